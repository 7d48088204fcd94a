/* growable.c - the leaf `growable`: blocks at one range of addresses.
 *
 * Two parts: the range (growable_pages.h) maps, unmaps and cuts, and knows nothing of
 * streams; the leaf (leaf.h) keeps what comes back until that is done, and only then
 * gives it to the range. So what is free in the range may be used by all at once, or
 * unmapped, and no mark has to be split or merged. Cutting small blocks, and passing
 * memory between streams without waiting, is a pool's work, which extends one block of
 * this leaf for as long as nothing is in the way. */
#include "weir/growable.h"

#include "growable_pages.h"
#include "growable_pause.h"
#include "internal.h"
#include "leaf.h"
#include "resource_internal.h"
#include "weir/pool.h"

#define CHUNK_BYTES ((size_t)32 << 20)

/* What the leaf has for options. */
typedef struct growable {
    weir__pages *pages;
    weir__pause *pause;
} growable;

static weir__pages *pages_of(const void *options)
{
    return ((const growable *)options)->pages;
}

static void verify(weir__pages *pages)
{
#ifdef WEIR_TESTING
    weir__pages_verify(pages);
#else
    (void)pages;
#endif
}

static bool reuse(weir_device *device, const void *options, size_t bytes, void **out)
{
    weir__pages *pages = pages_of(options);
    bool found = weir__pages_take(pages, bytes, out);
    if (found)
        weir__note_learn(device, weir__pages_key(pages));
    return found;
}

/* Pages that are free may be part of it. */
static weir_status draw(weir_device *device, const void *options, size_t bytes,
                        size_t alignment, void **out)
{
    weir__pages *pages = pages_of(options);
    (void)alignment; /* pages are aligned to themselves */
    weir_status status = weir__pages_grow(pages, bytes, out);
    if (status == WEIR_OK)
        weir__note_learn(device, weir__pages_key(pages));
    return status;
}

static weir_status extend(weir_device *device, const void *options, void *ptr,
                          size_t bytes, size_t new_bytes)
{
    weir__pages *pages = pages_of(options);
    weir_status status = weir__pages_extend(pages, ptr, bytes, new_bytes);
    if (status == WEIR_OK)
        weir__note_learn(device, weir__pages_key(pages));
    return status;
}

static weir_status give(weir_device *device, const void *options, void *ptr,
                        size_t bytes)
{
    weir__pages *pages = pages_of(options);
    weir__note_done(device, weir__pages_key(pages), NULL);
    weir__pages_give(pages, ptr, bytes);
    verify(pages);
    return WEIR_OK;
}

static void part(const void *options, const void *ptr, size_t bytes,
                 size_t wanted_bytes, size_t *from, size_t *to)
{
    weir__pages_part(pages_of(options), ptr, bytes, wanted_bytes, from, to);
}

static bool remaps(const void *options)
{
    return weir__pages_remap(pages_of(options));
}

static void keep(const void *options, const void *ptr, size_t bytes)
{
    weir__pages_keep(pages_of(options), ptr, bytes);
}

static bool is_awaited(const void *options, const void *ptr, size_t bytes)
{
    return weir__pages_could_unmap(pages_of(options), ptr, bytes);
}

static size_t trim(weir_device *device, const void *options, size_t keep_bytes)
{
    weir__pages *pages = pages_of(options);
    (void)device;
    size_t bytes = weir__pages_trim(pages, keep_bytes);
    verify(pages);
    return bytes;
}

static void describe(const void *options, weir_resource_statistics *out)
{
    weir__pages_counts counts = weir__pages_count(pages_of(options));
    out->held_bytes = counts.mapped_bytes;
    out->peak_held_bytes = counts.peak_bytes;
    out->largest_free_bytes = counts.largest_bytes;
}

static size_t end(weir_device *device, const void *options)
{
    weir__pages *pages = pages_of(options);
    uint64_t key = weir__pages_key(pages);
    weir__pause_end(((const growable *)options)->pause);
    size_t left = weir__pages_close(pages);
    weir__note_forget(device, key, true);
    return left;
}

static const weir__leaf_kind growable_kind = {
    .name = "growable",
    .max_alignment = WEIR_GROWABLE_PAGE_BYTES,
    .options_bytes = sizeof(growable),
    .object_bytes = WEIR_GROWABLE_PAGE_BYTES,
    .draw = draw,
    .give = give,
    .measure = weir__measure_device,
    .reuse = reuse,
    .extend = extend,
    .part = part,
    .remaps = remaps,
    .keep = keep,
    .is_awaited = is_awaited,
    .trim = trim,
    .describe = describe,
    .end = end,
};

weir__pause *weir__growable_pause_of(weir_resource *mr, weir_resource **leaf)
{
    const growable *found = NULL;
    for (; mr != NULL && found == NULL; mr = weir__resource_below(mr)) {
        found = weir__leaf_options(mr, &growable_kind);
        *leaf = mr;
    }
    return found == NULL ? NULL : found->pause;
}

weir_status weir__growable_settle_sync(weir_resource *leaf)
{
    return weir__leaf_settle_sync(leaf, &growable_kind);
}

static weir_status fill_in(weir_device *device, weir_growable_options *options)
{
    const size_t page = WEIR_GROWABLE_PAGE_BYTES;
    weir_device_properties properties = { .struct_size = sizeof properties };
    if (options->chunk_bytes > WEIR_GROWABLE_CHUNK_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "growable: chunks of %zu bytes, of which %zu are the most",
                          options->chunk_bytes, WEIR_GROWABLE_CHUNK_MAX);
    weir_status status = weir_device_get_properties(device, &properties);
    if (status != WEIR_OK)
        return status;
    if (options->chunk_bytes == 0)
        options->chunk_bytes = options->remap ? page : CHUNK_BYTES;
    if (options->reserve_bytes == 0)
        options->reserve_bytes = 2 * properties.memory_bytes;
    if (options->reserve_bytes > SIZE_MAX - page)
        return weir__fail(WEIR_OUT_OF_MEMORY, "growable: no %zu bytes of addresses",
                          options->reserve_bytes);
    options->chunk_bytes = (options->chunk_bytes + page - 1) / page * page;
    options->reserve_bytes = (options->reserve_bytes + page - 1) / page * page;
    return WEIR_OK;
}

/* On failure *mr is no more. */
static weir_status put_pool_over(weir_resource **mr)
{
    weir_resource *leaf = *mr;
    weir_status status = weir_pool_create(leaf, NULL, mr);
    weir_resource_unref(leaf);
    return status;
}

weir_status weir_growable_create(weir_device *device,
                                 const weir_growable_options *options,
                                 weir_resource **out)
{
    weir_growable_options given;
    growable parts;
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    weir_status status = weir__read_options(options, &given, sizeof given,
                                            "the options of growable");
    if (status == WEIR_OK)
        status = fill_in(device, &given);
    if (status == WEIR_OK)
        status = weir__pages_open(device, &given, &parts.pages);
    if (status != WEIR_OK)
        return status;
    status = weir__pause_create(device, parts.pages, &parts.pause);
    if (status == WEIR_OK) {
        status = weir__leaf_create(&growable_kind, device, &parts, out);
        if (status != WEIR_OK)
            weir__pause_end(parts.pause);
    }
    if (status != WEIR_OK)
        (void)weir__pages_close(parts.pages);
    return status != WEIR_OK || given.pages_only ? status : put_pool_over(out);
}
