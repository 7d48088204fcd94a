/* managed.c - the leaf `managed`: memory that moves between host and device, with the
 * same advice for every block (cudaMallocManaged, cudaMemAdvise). See leaf.h for what
 * becomes of blocks that come back. */
#include "weir/managed.h"

#include "internal.h"
#include "leaf.h"

static weir_status draw(weir_device *device, const void *options, size_t bytes,
                        size_t alignment, void **out)
{
    (void)alignment; /* as for the leaf `device` */
    return weir__managed_malloc(device, bytes, options, out);
}

static weir_status give(weir_device *device, const void *options, void *ptr,
                        size_t bytes)
{
    (void)options;
    (void)bytes;
    return weir__free(device, ptr);
}

static const weir__leaf_kind managed_kind = {
    .name = "managed",
    .max_alignment = WEIR_ALIGNMENT,
    .options_bytes = sizeof(weir_managed_options),
    .host_accessible = true,
    .managed = true,
    .draw = draw,
    .give = give,
    .measure = weir__measure_both, /* what one has no room for moves to the other */
};

weir_status weir_managed_create(weir_device *device,
                                const weir_managed_options *options,
                                weir_resource **out)
{
    weir_managed_options given;
    if (out != NULL)
        *out = NULL;
    weir_status status = weir__read_options(options, &given, sizeof given,
                                            "the options of managed");
    if (status != WEIR_OK)
        return status;
    given.struct_size = sizeof given;
    if (given.preferred < WEIR_MANAGED_ANYWHERE || given.preferred > WEIR_MANAGED_HOST)
        return weir__fail(WEIR_INVALID_ARGUMENT, "managed: %d is no location to prefer",
                          (int)given.preferred);
    return weir__leaf_create(&managed_kind, device, &given, out);
}
