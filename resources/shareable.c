/* shareable.c - the leaf `shareable`: memory that other processes can open, each block
 * a kernel object of its own. See leaf.h for what becomes of blocks that come back. */
#include "weir/shareable.h"

#include "internal.h"
#include "leaf.h"

static weir_status draw(weir_device *device, const void *context, size_t bytes,
                        size_t alignment, void **out)
{
    const weir_shareable_options *options = context;
    (void)alignment; /* objects are aligned to their step */
    if (bytes > SIZE_MAX - WEIR_SHAREABLE_OBJECT_BYTES)
        return weir__fail(WEIR_OUT_OF_MEMORY, "there are no %zu bytes in whole objects",
                          bytes);
    return weir__shared_malloc(device, options->kind, bytes, out);
}

static weir_status give(weir_device *device, const void *options, void *ptr,
                        size_t bytes)
{
    (void)options;
    (void)bytes;
    return weir__shared_free(device, ptr);
}

#define SHAREABLE_KIND(kind_of_share)                                            \
    {                                                                            \
        .name = "shareable",                                                     \
        .max_alignment = WEIR_SHAREABLE_OBJECT_BYTES,                            \
        .options_bytes = sizeof(weir_shareable_options),                         \
        .object_bytes = WEIR_SHAREABLE_OBJECT_BYTES,                             \
        .share_kind = (kind_of_share),                                           \
        .draw = draw,                                                            \
        .give = give,                                                            \
        .measure = weir__measure_device,                                         \
    }

static const weir__leaf_kind by_descriptor = SHAREABLE_KIND(WEIR_SHARE_FD);
static const weir__leaf_kind legacy = SHAREABLE_KIND(WEIR_SHARE_LEGACY);

static weir_status make(weir_device *device, weir_share_kind kind, weir_resource **out)
{
    const weir_shareable_options options = { sizeof options, kind };
    return weir__leaf_create(kind == WEIR_SHARE_FD ? &by_descriptor : &legacy, device,
                             &options, out);
}

/* The best kind that the device has. That it has no room just now is no sign that it
 * has not. */
static weir_status make_best(weir_device *device, weir_resource **out)
{
    weir_status status = make(device, WEIR_SHARE_FD, out);
    if (status != WEIR_OK)
        return status;
    status = weir__leaf_try(*out, WEIR_SHAREABLE_OBJECT_BYTES);
    if (status == WEIR_OK || status == WEIR_OUT_OF_MEMORY)
        return WEIR_OK;
    weir_resource_unref(*out);
    *out = NULL;
    return status == WEIR_NOT_SUPPORTED ? make(device, WEIR_SHARE_LEGACY, out) : status;
}

weir_status weir_shareable_create(weir_device *device,
                                  const weir_shareable_options *options,
                                  weir_resource **out)
{
    weir_shareable_options given;
    if (out != NULL)
        *out = NULL;
    weir_status status = weir__read_options(options, &given, sizeof given,
                                            "the options of shareable");
    if (status != WEIR_OK)
        return status;
    if (given.kind < WEIR_SHARE_NONE || given.kind > WEIR_SHARE_LEGACY)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "shareable: %d is no kind of memory to share",
                          (int)given.kind);
    return given.kind == WEIR_SHARE_NONE ? make_best(device, out)
                                         : make(device, given.kind, out);
}
