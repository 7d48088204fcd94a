/* heap_records.h - the heap's records, as who reads them without the heap's lock sees
 * them: blocks, and the way from an address to its block.
 *
 * Every block of a chunk, whatever its state, has one record of 24 bytes; what is free
 * has a second one with its marks and its place in the bins (heap.c). Records are
 * named by 32-bit ids, live in slabs that stay until the heap is closed, and are reused
 * as records only: whoever follows a stale id finds a record, if perhaps another's.
 *
 *     address -> segment of 2 MiB -> page of 8 KiB -> id -> record
 *                hashed              4 bytes, or a table of 32 ids for small blocks
 *
 * What a thread may do without the lock: look up an address, and, for a block that is
 * its own (handed out to it, or in its cache), read its record and set its `tag` and
 * `link`. All else is under the lock. A lookup that meets a change half done may miss:
 * asked again under the lock it is right. */
#ifndef WEIR_HEAP_RECORDS_H
#define WEIR_HEAP_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define WEIR__HEAP_GRAIN_BITS 8u
#define WEIR__HEAP_GRAIN      ((size_t)1 << WEIR__HEAP_GRAIN_BITS)

/* Addresses above 48 bits are refused, and blocks of 2^32 grains (1 TiB) or more. */
#define WEIR__HEAP_ADDRESS_BITS 48u

typedef enum weir__heap_state {
    WEIR__HEAP_SPARE,  /* a record that stands for nothing */
    WEIR__HEAP_FREE,   /* in the bins, behind its mark */
    WEIR__HEAP_LIMBO,  /* free, behind several marks: not in the bins */
    WEIR__HEAP_HELD,   /* somebody is at work on it: neither free nor out */
    WEIR__HEAP_END,    /* no block: where a chunk ends; 0 grains */
    WEIR__HEAP_OUT,    /* handed out */
    WEIR__HEAP_CACHED, /* given back, and in somebody's list, for its exact size */
    WEIR__HEAP_RETURNED /* free, but no record to say so was to be had yet */
} weir__heap_state;

/* The tag of a record, its upper 8 bits being the upper bits of `base`:
 *     OUT      state 3 | slack 15 | log2 of the alignment asked for 5 | in a capture 1
 *     CACHED   state 3 | holder 21: whose list it is in
 *     FREE, RETURNED  state 3 | owner 21
 *     else     state 3
 * slack is how many bytes fewer were asked for than the block has. */
#define WEIR__TAG_STATE_MASK  UINT32_C(7)
#define WEIR__TAG_HIGH_SHIFT  24u
#define WEIR__TAG_LOW_MASK    UINT32_C(0x00ffffff)
#define WEIR__TAG_SLACK_SHIFT 3u
#define WEIR__TAG_SLACK_BITS  15u
#define WEIR__TAG_ALIGN_SHIFT 18u
#define WEIR__TAG_CAPTURED    (UINT32_C(1) << 23)
/* Of the slack, whole grains. */
#define WEIR__SPARE_GRAINS \
    ((UINT32_C(1) << (WEIR__TAG_SLACK_BITS - WEIR__HEAP_GRAIN_BITS)) - 1)
#define WEIR__TAG_SPARE_MASK \
    (WEIR__SPARE_GRAINS << (WEIR__HEAP_GRAIN_BITS + WEIR__TAG_SLACK_SHIFT))
#define WEIR__HOLDER_SHIFT    3u
#define WEIR__HOLDER_MAX      ((UINT32_C(1) << 21) - 1)

typedef struct weir__heap_block {
    _Atomic uint32_t low;    /* base in grains, its lower 32 bits */
    _Atomic uint32_t tag;
    _Atomic uint32_t grains;
    uint32_t before;         /* the neighbour in front, in its chunk; 0: none */
    _Atomic uint32_t after;  /* the neighbour behind, or the chunk's END; of an END
                                what another chunk has in the same page, or 0 */
    _Atomic uint32_t link;   /* OUT: the owner (heap.h) whose stream it was handed out
                                on; CACHED: its holder's; else the heap's */
} weir__heap_block;

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__SLAB_BITS  3u
#define WEIR__HEAP_HOMES 3u
#else
#define WEIR__SLAB_BITS  10u
#define WEIR__HEAP_HOMES 64u
#endif

/* So many records fill three lines of 64 bytes, which have one home: whoever hits
 * writes to the record of his block, and shall share its lines with nobody else. */
#define WEIR__HOME_BITS 3u

/* A 2 MiB stretch of addresses. An entry is 0, the id of the first block that begins in
 * the page, behind which the others follow, or with the top bit set a table's. */
#define WEIR__SEGMENT_BITS 21u
#ifdef WEIR_TESTING
#define WEIR__PAGE_BITS    12u
#else
#define WEIR__PAGE_BITS    13u
#endif
#define WEIR__PAGE_GRAINS  (1u << (WEIR__PAGE_BITS - WEIR__HEAP_GRAIN_BITS))
#define WEIR__SEGMENT_PAGES (1u << (WEIR__SEGMENT_BITS - WEIR__PAGE_BITS))
#define WEIR__PAGE_IS_TABLE (UINT32_C(1) << 31)

typedef struct weir__heap_segment {
    _Atomic uint64_t number; /* address >> WEIR__SEGMENT_BITS */
    _Atomic uint32_t pages[WEIR__SEGMENT_PAGES];
    /* The heap's, under its lock: */
    uint32_t chunks;                         /* that have to do with these addresses */
    struct weir__heap_segment *next_spare;
} weir__heap_segment;

typedef struct weir__heap_table { /* the ids of the blocks of one page, by grain */
    _Atomic uint32_t ids[WEIR__PAGE_GRAINS];
} weir__heap_table;

/* Open addressing, by a multiplied hash of the number; some slots are null. */
typedef struct weir__heap_index {
    uint32_t shift;          /* 64 - log2 of how many slots there are */
    uint32_t mask;
    weir__heap_segment *_Atomic slots[];
} weir__heap_index;

#define WEIR__SEGMENT_HASH UINT64_C(0x9e3779b97f4a7c15)

/* What of a heap is read without its lock. The arrays grow by being replaced; the old
 * ones stay readable until the heap is closed, and so does all that they name. */
typedef struct weir__heap_view {
    weir__heap_block *_Atomic *_Atomic slabs; /* by id >> WEIR__SLAB_BITS */
    weir__heap_table *_Atomic *_Atomic tables;
    weir__heap_index *_Atomic index;          /* null: nothing was ever in the heap */
} weir__heap_view;

static inline weir__heap_block *weir__heap_at(const weir__heap_view *view, uint32_t id)
{
    weir__heap_block *_Atomic *slabs =
        atomic_load_explicit(&view->slabs, memory_order_acquire);
    weir__heap_block *slab =
        atomic_load_explicit(&slabs[id >> WEIR__SLAB_BITS], memory_order_acquire);
    return &slab[id & ((1u << WEIR__SLAB_BITS) - 1)];
}

static inline uint32_t weir__heap_tag(const weir__heap_block *block)
{
    return atomic_load_explicit(&block->tag, memory_order_relaxed);
}

static inline weir__heap_state weir__heap_state_of(const weir__heap_block *block)
{
    return (weir__heap_state)(weir__heap_tag(block) & WEIR__TAG_STATE_MASK);
}

static inline uintptr_t weir__heap_base(const weir__heap_block *block)
{
    uint64_t low = atomic_load_explicit(&block->low, memory_order_relaxed);
    uint64_t high = weir__heap_tag(block) >> WEIR__TAG_HIGH_SHIFT;
    return (uintptr_t)((high << 32 | low) << WEIR__HEAP_GRAIN_BITS);
}

static inline uint32_t weir__heap_grains(const weir__heap_block *block)
{
    return atomic_load_explicit(&block->grains, memory_order_relaxed);
}

static inline size_t weir__grains_size(uint32_t grains)
{
    return (size_t)grains << WEIR__HEAP_GRAIN_BITS;
}

static inline size_t weir__heap_bytes(const weir__heap_block *block)
{
    return weir__grains_size(weir__heap_grains(block));
}

/* Sets all of the tag but the upper bits of the base. */
static inline void weir__heap_set_tag(weir__heap_block *block, uint32_t low)
{
    uint32_t high = weir__heap_tag(block) & ~WEIR__TAG_LOW_MASK;
    atomic_store_explicit(&block->tag, high | low, memory_order_release);
}

/* Sets all of the tag but the upper bits of the base if that is `from`: then *tag is
 * all of it; else false. */
static inline bool weir__heap_turn_tag(weir__heap_block *block, uint32_t from,
                                       uint32_t to, uint32_t *tag)
{
    const uint32_t high = weir__heap_tag(block) ^ from;
    if ((high & WEIR__TAG_LOW_MASK) != 0)
        return false;
    *tag = high | to;
    atomic_store_explicit(&block->tag, *tag, memory_order_release);
    return true;
}

/* All of the tag but the upper bits of the base. */
static inline uint32_t weir__heap_low_tag(const weir__heap_block *block)
{
    return weir__heap_tag(block) & WEIR__TAG_LOW_MASK;
}

/* The tag, without the upper bits of the base, of what is free under an owner. */
static inline uint32_t weir__heap_free_tag(uint32_t owner)
{
    return WEIR__HEAP_FREE | owner << WEIR__HOLDER_SHIFT;
}

/* The tag, without the upper bits of the base, of a block of `bytes` bytes that is out
 * as asked for: with no more than WEIR__SPARE_GRAINS grains to spare. */
static inline uint32_t weir__heap_out_tag_in(size_t bytes, size_t asked_bytes,
                                             size_t asked_alignment)
{
    uint32_t slack = (uint32_t)(bytes - asked_bytes);
    uint32_t log2 = (uint32_t)__builtin_ctzll((unsigned long long)asked_alignment);
    return WEIR__HEAP_OUT | slack << WEIR__TAG_SLACK_SHIFT |
           log2 << WEIR__TAG_ALIGN_SHIFT;
}

/* The same of one that has no grain to spare. */
static inline uint32_t weir__heap_out_tag(size_t asked_bytes, size_t asked_alignment)
{
    size_t slack = (0 - asked_bytes) & (WEIR__HEAP_GRAIN - 1);
    return weir__heap_out_tag_in(asked_bytes + slack, asked_bytes, asked_alignment);
}

/* What was asked for of a block that is OUT with this tag. */
static inline size_t weir__heap_asked_bytes(const weir__heap_block *block, uint32_t tag)
{
    const uint32_t most = (UINT32_C(1) << WEIR__TAG_SLACK_BITS) - 1;
    return weir__heap_bytes(block) - (tag >> WEIR__TAG_SLACK_SHIFT & most);
}

/* Where the search for a block at `address` begins: the id of one in its page, or 0. */
static inline uint32_t weir__heap_page_of(const weir__heap_view *view, uint64_t address)
{
    const weir__heap_index *index =
        atomic_load_explicit(&view->index, memory_order_acquire);
    if (index == NULL)
        return 0;
    uint64_t number = address >> WEIR__SEGMENT_BITS;
    uint32_t slot = (uint32_t)((number * WEIR__SEGMENT_HASH) >> index->shift);
    const weir__heap_segment *segment;
    for (;; slot = (slot + 1) & index->mask) {
        segment = atomic_load_explicit(&index->slots[slot], memory_order_acquire);
        if (segment == NULL)
            return 0;
        if (atomic_load_explicit(&segment->number, memory_order_relaxed) == number)
            break;
    }
    uint32_t page = (uint32_t)(address >> WEIR__PAGE_BITS) & (WEIR__SEGMENT_PAGES - 1);
    uint32_t id = atomic_load_explicit(&segment->pages[page], memory_order_acquire);
    if ((id & WEIR__PAGE_IS_TABLE) == 0)
        return id;
    weir__heap_table *_Atomic *tables =
        atomic_load_explicit(&view->tables, memory_order_acquire);
    const weir__heap_table *table = atomic_load_explicit(
        &tables[id & ~WEIR__PAGE_IS_TABLE], memory_order_acquire);
    uint32_t grain =
        (uint32_t)(address >> WEIR__HEAP_GRAIN_BITS) & (WEIR__PAGE_GRAINS - 1);
    return atomic_load_explicit(&table->ids[grain], memory_order_acquire);
}

/* A block and an end of a chunk may begin with each grain of a page. */
#define WEIR__PAGE_MOST (2 * WEIR__PAGE_GRAINS)

/* What follows a record, if that began in the page of `address`; or 0. */
static inline uint32_t weir__heap_step(const weir__heap_block *block, uint64_t address)
{
    const uint32_t bits = WEIR__PAGE_BITS - WEIR__HEAP_GRAIN_BITS;
    uint32_t low = atomic_load_explicit(&block->low, memory_order_relaxed);
    uint32_t grain = (uint32_t)(address >> WEIR__HEAP_GRAIN_BITS);
    return (low ^ grain) >> bits == 0
               ? atomic_load_explicit(&block->after, memory_order_acquire)
               : 0;
}

/* Whether a record is that of a block at `ptr` that is out with the tag `low`, without
 * the upper bits of its base, and perhaps with grains to spare. The tag first: a record
 * that is used again may have the same one, and only who has acquired it sees that it
 * begins elsewhere. */
static inline bool weir__heap_is_tagged(const weir__heap_block *block, const void *ptr,
                                        uint32_t low)
{
    uint64_t grain = (uint64_t)(uintptr_t)ptr >> WEIR__HEAP_GRAIN_BITS;
    uint32_t tag = low | (uint32_t)(grain >> 32) << WEIR__TAG_HIGH_SHIFT;
    return (uintptr_t)ptr % WEIR__HEAP_GRAIN == 0 &&
           (atomic_load_explicit(&block->tag, memory_order_acquire) &
            ~WEIR__TAG_SPARE_MASK) == tag &&
           atomic_load_explicit(&block->low, memory_order_relaxed) == (uint32_t)grain;
}

/* Whether the block is at `ptr` and has all of this tag, as it had when it was OUT
 * there before. The tag first, as above. */
static inline bool weir__heap_is_still(const weir__heap_block *block, const void *ptr,
                                       uint32_t tag)
{
    return atomic_load_explicit(&block->tag, memory_order_acquire) == tag &&
           atomic_load_explicit(&block->low, memory_order_relaxed) ==
               (uint32_t)((uint64_t)(uintptr_t)ptr >> WEIR__HEAP_GRAIN_BITS);
}

/* The block at `ptr` if it is out with the tag `low`, as above, and its id; else null.
 * For a block that is the caller's, as weir__heap_lookup. */
static inline weir__heap_block *weir__heap_lookup_tagged(const weir__heap_view *view,
                                                         const void *ptr, uint32_t low,
                                                         uint32_t *out_id)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    /* An address that has more bits than a tag has room for is in no segment. */
    uint32_t id = weir__heap_page_of(view, address);
    for (uint32_t step = 0; id != 0 && step < WEIR__PAGE_MOST; step++) {
        weir__heap_block *block = weir__heap_at(view, id);
        if (weir__heap_is_tagged(block, ptr, low)) {
            *out_id = id;
            return block;
        }
        id = weir__heap_step(block, address);
    }
    return NULL;
}

/* The block that begins at `ptr` (no END), and its id; or null. May be called without
 * the lock, and then null only means that the answer is not clear. */
static inline weir__heap_block *weir__heap_lookup(const weir__heap_view *view,
                                                  const void *ptr, uint32_t *out_id)
{
    uint64_t address = (uint64_t)(uintptr_t)ptr;
    uint64_t grain = address >> WEIR__HEAP_GRAIN_BITS;
    if (address % WEIR__HEAP_GRAIN != 0 || address >> WEIR__HEAP_ADDRESS_BITS != 0)
        return NULL;
    uint32_t id = weir__heap_page_of(view, address);
    for (uint32_t step = 0; id != 0 && step < WEIR__PAGE_MOST; step++) {
        weir__heap_block *block = weir__heap_at(view, id);
        /* Acquire: whoever reads that a record is in use reads of what, too. */
        uint32_t tag = atomic_load_explicit(&block->tag, memory_order_acquire);
        if (atomic_load_explicit(&block->low, memory_order_relaxed) ==
                (uint32_t)grain &&
            tag >> WEIR__TAG_HIGH_SHIFT == (uint32_t)(grain >> 32) &&
            (tag & WEIR__TAG_STATE_MASK) != WEIR__HEAP_END &&
            (tag & WEIR__TAG_STATE_MASK) != WEIR__HEAP_SPARE) {
            *out_id = id;
            return block;
        }
        id = weir__heap_step(block, address);
    }
    return NULL;
}

#endif
