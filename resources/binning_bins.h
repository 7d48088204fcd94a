/* binning_bins.h - the bins of a binning resource, by size: tables that never change,
 * and what came through a bin. */
#ifndef WEIR_BINNING_BINS_H
#define WEIR_BINNING_BINS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "few_blocks.h"
#include "weir/resource.h"

typedef struct weir__size_bin {
    weir_resource *mr;      /* counted; but upstream's, which the core counts */
    size_t bytes;           /* the largest request; of upstream SIZE_MAX */
    size_t max_alignment;
    uint64_t since;         /* the table that it came with */
    bool is_own;            /* blocks of one size, and nobody else's */
    bool is_first;          /* of those over its resource */
    weir__few_blocks *has;  /* of one that was added over a resource: its blocks */
    /* If it is not an own one, others may use the resource, too: what came through. */
    atomic_size_t out_bytes, out_blocks, peak_out_bytes;
    atomic_uint_least64_t allocations, deallocations;
} weir__size_bin;

#define WEIR__SIZE_CLASSES 65

/* The bins, smallest first; the last is upstream, of table 0. */
typedef struct weir__size_bins {
    struct weir__size_bins *older;
    uint64_t number;
    size_t count;
    size_t first[WEIR__SIZE_CLASSES]; /* by class: where to begin to look */
    weir__size_bin *bins[];
} weir__size_bins;

/* How many bits bytes - 1 has: a class has what is above 2^(class - 1), up to
 * 2^class. */
static inline unsigned weir__size_class(size_t bytes)
{
    return bytes <= 1 ? 0
                      : 64u - (unsigned)__builtin_clzll((unsigned long long)bytes - 1);
}

static inline bool weir__size_bin_fits(const weir__size_bin *it, size_t bytes,
                                       size_t alignment)
{
    return it->bytes >= bytes && it->max_alignment >= alignment;
}

/* The place of the smallest bin that fits. Upstream fits all that the core lets
 * through; what is given back with an alignment above that is upstream's to tell. */
static inline size_t weir__size_bins_fit(const weir__size_bins *table, size_t bytes,
                                         size_t alignment)
{
    size_t at = table->first[weir__size_class(bytes)];
    while (at + 1 < table->count &&
           !weir__size_bin_fits(table->bins[at], bytes, alignment))
        at++;
    return at;
}

/* Takes over a reference to `mr`, but if it is upstream, with SIZE_MAX bytes. Null: no
 * host memory, and it takes nothing. */
weir__size_bin *weir__size_bin_make(weir_resource *mr, size_t bytes, bool is_own);
void weir__size_bin_free(weir__size_bin *it);

/* Room for `count` bins, all to be set; then it is indexed. Null: no host memory. */
weir__size_bins *weir__size_bins_make(size_t count);
void weir__size_bins_index(weir__size_bins *table);
/* The next table, with one bin more, of which there is no equal; or null: no host
 * memory. The old one is the caller's still. */
weir__size_bins *weir__size_bins_with(const weir__size_bins *old, weir__size_bin *it);
bool weir__size_bins_have(const weir__size_bins *table, size_t bytes);
/* Frees the newest table, which has all the bins that there ever were, with these, and
 * all older ones. */
void weir__size_bins_free(weir__size_bins *table);

/* Whether one of them is over `mr`. */
bool weir__size_bins_are_over(const weir__size_bins *table, const weir_resource *mr);

/* As weir_allocate, counted. Of a bin that was added over a resource a record is kept:
 * OUT_OF_HOST_MEMORY, too. */
weir_status weir__size_bin_allocate(weir__size_bin *it, weir_stream stream,
                                    size_t bytes, size_t alignment, void **out);
/* Before a block goes back to its bin, and with the answer after that: *record is taken
 * out meanwhile. False: it is not out as told, and the misuse handler knows. */
bool weir__size_bin_begin_back(weir__size_bin *it, const void *ptr, size_t bytes,
                               size_t alignment, weir__block_record **record);
bool weir__size_bin_end_back(weir__size_bin *it, size_t bytes,
                             weir__block_record *record, bool done);
/* Of an own bin, what it says; else what came through, which is held for that alone. */
weir_resource_statistics weir__size_bin_statistics(const weir__size_bin *it);

#endif
