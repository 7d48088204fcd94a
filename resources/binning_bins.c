/* binning_bins.c - see binning_bins.h. */
#include "binning_bins.h"

#include "internal.h"

/* ---- bins ---- */

static weir__few_blocks *few_blocks_make(void)
{
    weir__few_blocks *it = weir__host_alloc(sizeof *it);
    if (it != NULL && weir__few_blocks_init(it) != WEIR_OK) {
        weir__host_free(it);
        it = NULL;
    }
    return it;
}

weir__size_bin *weir__size_bin_make(weir_resource *mr, size_t bytes, bool is_own)
{
    const bool is_added = !is_own && bytes != SIZE_MAX;
    weir_resource_properties its = { .struct_size = sizeof its };
    weir__size_bin *it = weir__host_alloc(sizeof *it);
    if (it == NULL)
        return NULL;
    weir_status status = weir_resource_get_properties(mr, &its);
    WEIR_CHECK(status == WEIR_OK, "a resource tells its properties");
    *it = (weir__size_bin){ .mr = mr, .bytes = bytes,
                            .max_alignment = its.max_alignment, .is_own = is_own,
                            .is_first = true };
    it->has = is_added ? few_blocks_make() : NULL;
    if (is_added && it->has == NULL) {
        weir__host_free(it);
        return NULL;
    }
    atomic_init(&it->out_bytes, 0);
    atomic_init(&it->out_blocks, 0);
    atomic_init(&it->peak_out_bytes, 0);
    atomic_init(&it->allocations, 0);
    atomic_init(&it->deallocations, 0);
    return it;
}

void weir__size_bin_free(weir__size_bin *it)
{
    if (it->bytes != SIZE_MAX)
        weir_resource_unref(it->mr);
    if (it->has != NULL)
        weir__few_blocks_finish(it->has);
    weir__host_free(it->has);
    weir__host_free(it);
}

/* ---- blocks ---- */

static void count_out(weir__size_bin *it, size_t bytes)
{
    size_t out_bytes = atomic_fetch_add(&it->out_bytes, bytes) + bytes;
    size_t peak = atomic_load(&it->peak_out_bytes);
    while (peak < out_bytes &&
           !atomic_compare_exchange_weak(&it->peak_out_bytes, &peak, out_bytes)) {
    }
    atomic_fetch_add(&it->out_blocks, 1);
    atomic_fetch_add(&it->allocations, 1);
}

static void count_back(weir__size_bin *it, size_t bytes)
{
    size_t out_bytes = atomic_fetch_sub(&it->out_bytes, bytes);
    WEIR_CHECK(bytes <= out_bytes, "more came back than went out");
    atomic_fetch_sub(&it->out_blocks, 1);
    atomic_fetch_add(&it->deallocations, 1);
}

static weir_status allocate_noted(weir__size_bin *it, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    weir__block_record *record = weir__host_alloc(sizeof *record);
    if (record == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "binning: no memory for the record of a block");
    weir_status status = weir_allocate(it->mr, stream, bytes, alignment, out);
    if (status != WEIR_OK) {
        weir__host_free(record);
        return status;
    }
    *record = (weir__block_record){ .ptr = *out, .bytes = bytes,
                                    .alignment = alignment, .stream = stream,
                                    .state = WEIR__BLOCK_OUT };
    weir__few_blocks_insert(it->has, record);
    return WEIR_OK;
}

weir_status weir__size_bin_allocate(weir__size_bin *it, weir_stream stream,
                                    size_t bytes, size_t alignment, void **out)
{
    weir_status status =
        WEIR_UNLIKELY(it->has != NULL)
            ? allocate_noted(it, stream, bytes, alignment, out)
            : weir_allocate(it->mr, stream, bytes, alignment, out);
    if (status == WEIR_OK && !it->is_own)
        count_out(it, bytes);
    return status;
}

bool weir__size_bin_begin_back(weir__size_bin *it, const void *ptr, size_t bytes,
                               size_t alignment, weir__block_record **record)
{
    weir__block_fault fault = { .bytes = 0 };
    *record = NULL;
    if (WEIR_LIKELY(it->has == NULL))
        return true;
    *record = weir__few_blocks_take(it->has, ptr, bytes, alignment, &fault);
    if (*record != NULL)
        return true;
    if (fault.kind == 0) /* it was here a moment ago */
        fault.kind = WEIR_MISUSE_DOUBLE_FREE;
    weir__block_report(&fault, "binning", ptr, bytes, alignment);
    return false;
}

bool weir__size_bin_end_back(weir__size_bin *it, size_t bytes,
                             weir__block_record *record, bool done)
{
    if (done && !it->is_own)
        count_back(it, bytes);
    if (done)
        weir__host_free(record);
    else if (record != NULL)
        weir__few_blocks_reinsert(it->has, record);
    return done;
}

/* ---- what there is ---- */

weir_resource_statistics weir__size_bin_statistics(const weir__size_bin *it)
{
    weir_resource_statistics now = { .struct_size = sizeof now };
    if (it->is_own) {
        weir_status status = weir_resource_get_statistics(it->mr, &now);
        WEIR_CHECK(status == WEIR_OK, "a resource of one size keeps statistics");
        return now;
    }
    now.out_bytes = now.held_bytes = atomic_load(&it->out_bytes);
    now.out_blocks = atomic_load(&it->out_blocks);
    now.peak_out_bytes = atomic_load(&it->peak_out_bytes);
    if (now.peak_out_bytes < now.out_bytes)
        now.peak_out_bytes = now.out_bytes; /* it is raised a moment later */
    now.peak_held_bytes = now.peak_out_bytes;
    now.deallocations = atomic_load(&it->deallocations);
    now.allocations = atomic_load(&it->allocations);
    return now;
}

/* ---- tables ---- */

weir__size_bins *weir__size_bins_make(size_t count)
{
    weir__size_bins *table =
        weir__host_alloc(sizeof *table + count * sizeof(weir__size_bin *));
    if (table != NULL)
        *table = (weir__size_bins){ .count = count };
    return table;
}

void weir__size_bins_index(weir__size_bins *table)
{
    size_t at = 0;
    for (unsigned class = 0; class < WEIR__SIZE_CLASSES; class++) {
        const size_t below = class == 0 ? 0 : (size_t)1 << (class - 1);
        while (table->bins[at]->bytes <= below) /* upstream's are SIZE_MAX */
            at++;
        table->first[class] = at;
    }
}

weir__size_bins *weir__size_bins_with(const weir__size_bins *old, weir__size_bin *it)
{
    weir__size_bins *table = weir__size_bins_make(old->count + 1);
    if (table == NULL)
        return NULL;
    table->number = old->number + 1;
    size_t at = 0;
    for (; old->bins[at]->bytes < it->bytes; at++)
        table->bins[at] = old->bins[at];
    table->bins[at] = it;
    for (; at < old->count; at++)
        table->bins[at + 1] = old->bins[at];
    weir__size_bins_index(table);
    return table;
}

bool weir__size_bins_have(const weir__size_bins *table, size_t bytes)
{
    size_t at = table->first[weir__size_class(bytes)];
    while (table->bins[at]->bytes < bytes)
        at++;
    return table->bins[at]->bytes == bytes;
}

bool weir__size_bins_are_over(const weir__size_bins *table, const weir_resource *mr)
{
    for (size_t i = 0; i < table->count; i++) {
        if (table->bins[i]->mr == mr)
            return true;
    }
    return false;
}

void weir__size_bins_free(weir__size_bins *table)
{
    for (size_t i = 0; table != NULL && i < table->count; i++)
        weir__size_bin_free(table->bins[i]);
    for (weir__size_bins *older; table != NULL; table = older) {
        older = table->older;
        weir__host_free(table);
    }
}
