/* fixed_size_slabs.h - the slabs of a fixed_size resource: which one an address lies
 * in, and what its block was asked for with.
 *
 * A slab is found by its address without a lock: a table has a slot for each stretch of
 * addresses that it touches, and the stretches are so long that it touches one or two.
 * Each block has a word: 0 while it is not out.
 *
 * Slabs' records are never freed before the end, only used again: whoever looks without
 * the lock finds a record, if perhaps another's. Who gives back a block that is out
 * finds the right one, for it cannot go; or none, while slots are moved, and looks
 * again under the lock. */
#ifndef WEIR_FIXED_SIZE_SLABS_H
#define WEIR_FIXED_SIZE_SLABS_H

#include <stdatomic.h>

#include "heap_records.h"
#include "internal.h"
#include "sync.h"

/* Memory from upstream. All but `room` is set under the lock, and also read without. */
typedef struct weir__slab {
    _Atomic uintptr_t base;    /* of its first block */
    _Atomic size_t bytes;      /* of its blocks; 0: it is no slab now */
    uint32_t room;             /* of how many blocks it has words */
    struct weir__slab *next, **link; /* of the list of slabs, or of the spare ones */
    _Atomic uint64_t asked[];  /* see weir__slab_asked */
} weir__slab;

/* Threads write to the words of their blocks, and read what stands in front of these:
 * so neither shares a line of 64 bytes with the other, and words of neighbours are
 * lines apart, at least where there are few or as long as part of a slab is in use. */
#define WEIR__SLAB_LINE_BITS 3u /* words in a line */
#define WEIR__SLAB_LINES_BITS_LEAST 6u

typedef struct weir__slab_slot {
    weir__slab *_Atomic slab;
    uint64_t region;           /* under the lock only */
} weir__slab_slot;

/* Open addressing. */
typedef struct weir__slab_table {
    struct weir__slab_table *older; /* kept, for somebody may be looking there */
    size_t mask;
    weir__slab_slot slots[];
} weir__slab_table;

typedef struct weir__slabs {
    weir__slab_table *_Atomic table; /* set under the lock, also read without */
    /* Set once: */
    size_t block_bytes;
    uint32_t block_grains;
    uint32_t region_shift;     /* of the stretches */
    uint32_t line_bits;        /* the words of a whole slab are in 2^line_bits lines */
    /* Guards what follows. Nobody is called under it. Rank resource. */
    weir__mutex lock;
    size_t slots_used;
    weir__slab *drawn;
    weir__slab *spares, *single_spares; /* of many blocks, and of one */
} weir__slabs;

/* Slabs of `slab_bytes` at most. False: no host memory, and there is nothing to
 * close. */
bool weir__slabs_init(weir__slabs *slabs, size_t block_bytes, size_t slab_bytes);
/* None is drawn any more. */
void weir__slabs_close(weir__slabs *slabs);

/* A record for a slab of `room` blocks, and a place for it in the table; null: no host
 * memory. Then one of the next two. The first block begins at the first grain from
 * `ptr` on. */
weir__slab *weir__slab_begin(weir__slabs *slabs, uint32_t room);
void weir__slab_drawn(weir__slabs *slabs, weir__slab *it, const void *ptr);
void weir__slab_not_drawn(weir__slabs *slabs, weir__slab *it);
/* The slab that begins there goes back; none of its blocks is out. */
void weir__slab_gone(weir__slabs *slabs, const void *ptr);

/* What was asked for, in all blocks that are out; and how much is drawn. */
void weir__slabs_count(weir__slabs *slabs, size_t *asked_bytes, size_t *drawn_bytes);

/* Stops if something contradicts itself. */
void weir__slabs_verify(weir__slabs *slabs);

/* ---- words ---- */

/* The bytes, and the logarithm of the alignment: never 0. */
static inline uint64_t weir__asked_word(size_t bytes, size_t alignment)
{
    return (uint64_t)bytes << 6 |
           (uint64_t)__builtin_ctzll((unsigned long long)alignment);
}

static inline size_t weir__asked_bytes(uint64_t word)
{
    return (size_t)(word >> 6);
}

static inline size_t weir__asked_alignment(uint64_t word)
{
    return (size_t)1 << (word & 63);
}

/* ---- looking ---- */

/* Where an address lies: null, nowhere. */
typedef struct weir__slab_place {
    weir__slab *slab;
    size_t offset;
} weir__slab_place;

static inline size_t weir__slab_home(const weir__slab_table *table, uint64_t region)
{
    return (size_t)((region * WEIR__GOLDEN_RATIO) >> 32) & table->mask;
}

/* Without the lock nowhere means nothing. */
static inline weir__slab_place weir__slab_look(const weir__slabs *slabs,
                                               const void *ptr)
{
    uintptr_t address = (uintptr_t)ptr;
    const weir__slab_table *table =
        atomic_load_explicit(&slabs->table, memory_order_acquire);
    size_t at = weir__slab_home(table, (uint64_t)address >> slabs->region_shift);
    for (size_t i = 0; i <= table->mask; i++, at = (at + 1) & table->mask) {
        weir__slab *it =
            atomic_load_explicit(&table->slots[at].slab, memory_order_acquire);
        if (it == NULL)
            break;
        /* Relaxed: where a block at `ptr` is out, whoever was handed it came behind
         * what was stored here. */
        size_t offset =
            address - atomic_load_explicit(&it->base, memory_order_relaxed);
        if (offset < atomic_load_explicit(&it->bytes, memory_order_relaxed))
            return (weir__slab_place){ it, offset };
    }
    return (weir__slab_place){ NULL, 0 };
}

WEIR_COLD weir__slab_place weir__slab_look_again(weir__slabs *slabs, const void *ptr);

static inline weir__slab_place weir__slab_find(weir__slabs *slabs, const void *ptr)
{
    weir__slab_place at = weir__slab_look(slabs, ptr);
    return WEIR_LIKELY(at.slab != NULL) ? at : weir__slab_look_again(slabs, ptr);
}

static inline _Atomic uint64_t *weir__slab_asked(const weir__slabs *slabs,
                                                 weir__slab *it, uint32_t index)
{
    uint32_t line = index & ((1u << slabs->line_bits) - 1);
    return &it->asked[((line + 1) << WEIR__SLAB_LINE_BITS) +
                      (index >> slabs->line_bits)];
}

/* The word of the block that begins at a place, which is somewhere; null: none does. */
static inline _Atomic uint64_t *weir__slab_word(const weir__slabs *slabs,
                                                weir__slab_place at)
{
    uint32_t grains = (uint32_t)(at.offset / WEIR__HEAP_GRAIN);
    uint32_t index = grains / slabs->block_grains;
    bool begins = at.offset % WEIR__HEAP_GRAIN == 0 &&
                  grains % slabs->block_grains == 0;
    /* A record that is used again meanwhile still has as many words. */
    return WEIR_LIKELY(begins && index < at.slab->room)
               ? weir__slab_asked(slabs, at.slab, index)
               : NULL;
}

#endif
