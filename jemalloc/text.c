/* text.c - makes the resource known to weir_resource_open: "jemalloc/pinned". */
#include <stddef.h>

#include "weir/jemalloc.h"
#include "weir/spec.h"

static weir_status make_from_text(weir_device *device, weir_resource *upstream,
                                  const void *options, weir_resource **out)
{
    (void)device;
    return weir_jemalloc_create(upstream, options, out);
}

/* From the loading of the library on; where there is no room for it, without. */
__attribute__((constructor)) static void become_known(void)
{
    static const weir_jemalloc_options blank = WEIR_JEMALLOC_OPTIONS_INIT;
    static const weir_spec_field fields[] = {
        { .name = "pending", .type = WEIR_SPEC_SIZE, .default_text = "64MiB",
          .offset = offsetof(weir_jemalloc_options, pending_bytes), .least = 1,
          .doc = "what may wait for its streams before all of it is looked at" },
    };
    static const weir_spec_addition jemalloc_kind = {
        .struct_size = sizeof jemalloc_kind, .name = "jemalloc",
        .purpose = "many small blocks of memory that the host reaches, by jemalloc",
        .blank = &blank, .blank_bytes = sizeof blank,
        .fields = fields, .field_count = 1, .make = make_from_text
    };
    weir_status ignored = weir_spec_add(&jemalloc_kind);
    (void)ignored;
}
