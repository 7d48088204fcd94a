/* spec_checking.c - see spec_checking.h. */
#include "spec_checking.h"

const weir__spec_checking weir__spec_checking_blank = {
    .options = WEIR_CHECKING_OPTIONS_INIT, .fill = WEIR__SPEC_NO_FILL
};

const weir__spec_option weir__spec_checking_options[WEIR__SPEC_CHECKING_OPTIONS] = {
    { .name = "guard", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir__spec_checking, options.guard_bytes),
      .default_text = "256B", .least = 1,
      .doc = "on each side of a block, 64KiB at most" },
    { .name = "quarantine", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir__spec_checking, options.quarantine_bytes),
      .default_text = "64MiB",
      WEIR__SPEC_CHOICES("none", WEIR_CHECKING_NO_QUARANTINE), .least = 1,
      .doc = "of blocks given back, held back to see who writes to them" },
    { .name = "look", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir__spec_checking, options.look_bytes),
      .default_text = "64KiB", .least = 1,
      .doc = "looked at of a block that leaves the quarantine" },
    { .name = "frames", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(weir__spec_checking, options.frames), .default_text = "4",
      .least = 1, .most = WEIR_CHECKING_FRAMES_MAX, .doc = "kept of each call site" },
    { .name = "fill", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(weir__spec_checking, fill), .default_text = "none",
      WEIR__SPEC_CHOICES("none", (uint64_t)WEIR__SPEC_NO_FILL),
      .least = 0, .most = UINT8_MAX, .doc = "in all bytes of a new block" },
    { .name = "strict", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(weir__spec_checking, options.strict), .default_text = "false",
      .doc = "a free on a stream that no wait of Weir's put behind the allocation" },
};

weir_status weir__spec_make_checking(weir_device *device, weir_resource *upstream,
                                     const void *values, weir_resource **out)
{
    const weir__spec_checking *given = values;
    weir_checking_options options = given->options;
    (void)device;
    options.fills = given->fill >= 0;
    options.first_byte = (uint8_t)(options.fills ? given->fill : 0);
    return weir_checking_create(upstream, &options, out);
}
