/* system.c - the leaf `system`: ordinary host memory that the device can reach. See
 * leaf.h for what becomes of blocks that come back.
 *
 * With a headroom each block is told where to stay, in two parts:
 *
 *     |<-- what the device has free beyond the headroom -->|<------ the rest ------>|
 *      prefers the device                                   prefers the host
 *
 * Advice is about pages, and stays with them. So such blocks are whole pages, of the
 * largest kind that hosts have, and it is taken back before they are given back. */
#include "weir/system.h"

#include "internal.h"
#include "leaf.h"
#include "weir/leaves.h"

#define PAGE_BYTES ((size_t)64 << 10)

/* ---- blocks that stay in one place ---- */

static weir_status draw(weir_device *device, const void *options, size_t bytes,
                        size_t alignment, void **out)
{
    (void)options;
    return weir__host_malloc(device, bytes, alignment, out);
}

static weir_status give(weir_device *device, const void *options, void *ptr,
                        size_t bytes)
{
    (void)options;
    (void)bytes;
    return weir__host_free_device(device, ptr);
}

/* ---- blocks that are split ---- */

/* Of pages that take `bytes`; 0: there cannot be so many. */
static size_t whole_pages(size_t bytes)
{
    return bytes > SIZE_MAX - PAGE_BYTES
               ? 0 : (bytes + (PAGE_BYTES - 1)) & ~(PAGE_BYTES - 1);
}

/* Whether the advice is forgotten or not, the memory goes; what failed before stays
 * what the thread's last error is about. */
static weir_status give_split(weir_device *device, const void *options, void *ptr,
                              size_t bytes)
{
    weir__error_record before;
    (void)options;
    weir__error_keep(&before);
    if (weir__prefer(device, ptr, whole_pages(bytes), WEIR__PLACE_ANY) != WEIR_OK)
        weir__error_put_back(&before);
    return weir__host_free_device(device, ptr);
}

/* How many of the bytes, from the first on, are to stay on the device. */
static weir_status split(weir_device *device, size_t headroom_bytes, size_t bytes,
                         size_t *out)
{
    size_t free_bytes, total_bytes;
    weir_status status = weir__memory_info(device, &free_bytes, &total_bytes);
    if (status != WEIR_OK)
        return status;
    size_t room = free_bytes > headroom_bytes ? free_bytes - headroom_bytes : 0;
    *out = (room < bytes ? room : bytes) & ~(PAGE_BYTES - 1);
    return WEIR_OK;
}

/* `bytes` is whole pages. */
static weir_status advise(weir_device *device, size_t headroom_bytes, char *ptr,
                          size_t bytes)
{
    size_t on_device = 0;
    weir_status status = split(device, headroom_bytes, bytes, &on_device);
    if (status == WEIR_OK && on_device > 0)
        status = weir__prefer(device, ptr, on_device, WEIR__PLACE_DEVICE);
    if (status == WEIR_OK && on_device < bytes)
        status = weir__prefer(device, ptr + on_device, bytes - on_device,
                              WEIR__PLACE_HOST);
    return status;
}

static weir_status draw_split(weir_device *device, const void *context, size_t bytes,
                              size_t alignment, void **out)
{
    const weir_system_options *options = context;
    size_t whole = whole_pages(bytes);
    (void)alignment; /* less than a page's */
    if (whole == 0)
        return weir__fail(WEIR_OUT_OF_MEMORY, "system: no host has %zu bytes", bytes);
    weir_status status = weir__host_malloc(device, whole, PAGE_BYTES, out);
    if (status != WEIR_OK)
        return status;
    status = advise(device, options->headroom_bytes, *out, whole);
    if (status != WEIR_OK) {
        weir__error_record why;
        weir__error_keep(&why);
        (void)give_split(device, context, *out, bytes);
        weir__error_put_back(&why);
    }
    return status;
}

/* ---- the leaf ---- */

static const weir__leaf_kind system_kind = {
    .name = "system",
    .max_alignment = 4096,
    .options_bytes = sizeof(weir_system_options),
    .host_accessible = true,
    .draw = draw,
    .give = give,
    .measure = weir__measure_host,
};

static const weir__leaf_kind split_kind = {
    .name = "system",
    .max_alignment = 4096,
    .options_bytes = sizeof(weir_system_options),
    .object_bytes = PAGE_BYTES,
    .host_accessible = true,
    .draw = draw_split,
    .give = give_split,
    .measure = weir__measure_host,
};

static weir_status judge_device(weir_device *device, bool splits)
{
    weir_device_properties it = { .struct_size = sizeof it };
    weir_status status = weir_device_get_properties(device, &it);
    if (status == WEIR_OK && splits && !(it.pageable_access && it.concurrent_managed))
        return weir__fail(WEIR_NOT_SUPPORTED,
                          "system: %s does not take ordinary host memory, which a "
                          "headroom is about; use managed", it.name);
    if (status == WEIR_OK && !it.pageable_access)
        return weir__fail(WEIR_NOT_SUPPORTED,
                          "system: %s cannot reach ordinary host memory: use pinned or "
                          "managed", it.name);
    return status;
}

weir_status weir_system_create(weir_device *device, const weir_system_options *options,
                               weir_resource **out)
{
    weir_system_options given;
    if (out != NULL)
        *out = NULL;
    weir_status status = weir__read_options(options, &given, sizeof given,
                                            "the options of system");
    if (status != WEIR_OK)
        return status;
    given.struct_size = sizeof given;
    bool splits = given.headroom_bytes != 0;
    if (device != NULL)
        status = judge_device(device, splits);
    if (status != WEIR_OK)
        return status;
    return weir__leaf_create(splits ? &split_kind : &system_kind, device, &given, out);
}

weir_status weir_system_resource_create(weir_device *device, weir_resource **out)
{
    return weir_system_create(device, NULL, out);
}
