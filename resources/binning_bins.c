/* binning_bins.c - see binning_bins.h. */
#include "binning_bins.h"

#include "internal.h"

/* ---- bins ---- */

weir__size_bin *weir__size_bin_make(weir_resource *mr, size_t bytes, bool is_own)
{
    weir_resource_properties its = { .struct_size = sizeof its };
    weir__size_bin *it = weir__host_alloc(sizeof *it);
    if (it == NULL)
        return NULL;
    weir_status status = weir_resource_get_properties(mr, &its);
    WEIR_CHECK(status == WEIR_OK, "a resource tells its properties");
    *it = (weir__size_bin){ .mr = mr, .bytes = bytes,
                            .max_alignment = its.max_alignment, .is_own = is_own };
    it->counter = it;
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
    weir__host_free(it);
}

void weir__size_bin_count_out(const weir__size_bin *bin, size_t bytes)
{
    weir__size_bin *it = bin->counter;
    size_t out_bytes = atomic_fetch_add(&it->out_bytes, bytes) + bytes;
    size_t peak = atomic_load(&it->peak_out_bytes);
    while (peak < out_bytes &&
           !atomic_compare_exchange_weak(&it->peak_out_bytes, &peak, out_bytes)) {
    }
    atomic_fetch_add(&it->out_blocks, 1);
    atomic_fetch_add(&it->allocations, 1);
}

void weir__size_bin_count_back(const weir__size_bin *bin, size_t bytes)
{
    weir__size_bin *it = bin->counter;
    size_t out_bytes = atomic_fetch_sub(&it->out_bytes, bytes);
    WEIR_CHECK(bytes <= out_bytes, "more came back than went out");
    atomic_fetch_sub(&it->out_blocks, 1);
    atomic_fetch_add(&it->deallocations, 1);
}

weir_resource_statistics weir__size_bin_statistics(const weir__size_bin *it)
{
    weir_resource_statistics now = { .struct_size = sizeof now };
    if (it->is_own) {
        weir_status status = weir_resource_get_statistics(it->mr, &now);
        WEIR_CHECK(status == WEIR_OK, "a resource of one size keeps statistics");
        return now;
    }
    if (it->counter != it)
        return now;
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

weir__size_bin *weir__size_bins_over(const weir__size_bins *table,
                                     const weir_resource *mr)
{
    for (size_t i = 0; i < table->count; i++) {
        if (table->bins[i]->mr == mr)
            return table->bins[i];
    }
    return NULL;
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
