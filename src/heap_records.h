/* heap_records.h - the heap's records, as who reads them without the heap's lock sees
 * them: blocks, and the way from an address to its block.
 *
 * Every block of a chunk, whatever its state, has one record of 16 bytes, and apart
 * from that a tie of 8 that names its neighbours (heap.h); what is free has a second
 * record with its marks and its place in the bins (heap.c). Records are named by ids,
 * are reused as records only, in an array that grows where it is and stays until the
 * heap is closed: whoever follows a stale id finds a record, if perhaps another's.
 *
 *     address -> segment of 8 MiB -> entry of 4 bytes -> record
 *                                    hashed: some bits
 *                                    of the hash, and the id
 *
 * A segment has four entries for three blocks, or up to twice that, so what is large
 * costs no more than what is small, and all of it lies close together. An entry tells
 * by its bits of the hash whether the record is worth a look: that is one line read,
 * nearly always. A block gets its entry when it is first handed out, or a chunk begins
 * with it, and keeps it until it is part of another: what else is cut off and merged
 * again never has one.
 *
 * What a thread may do without the lock: look up an address, and, for a block that is
 * its own (handed out to it, or in its cache), read its record and set its tag and its
 * `link`. All else is under the lock. A lookup that meets a change half done may miss:
 * asked again under the lock (weir__heap_find) it is right. */
#ifndef WEIR_HEAP_RECORDS_H
#define WEIR_HEAP_RECORDS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "internal.h"

#define WEIR__HEAP_GRAIN_BITS 8u
#define WEIR__HEAP_GRAIN      ((size_t)1 << WEIR__HEAP_GRAIN_BITS)

/* Addresses above 48 bits are refused, and blocks of 2^32 grains (1 TiB) or more. */
#define WEIR__HEAP_ADDRESS_BITS 48u

typedef enum weir__heap_state {
    WEIR__HEAP_SPARE,  /* a record that stands for nothing */
    WEIR__HEAP_FREE,   /* in the bins, behind its mark */
    WEIR__HEAP_LIMBO,  /* free, behind several marks: not in the bins */
    WEIR__HEAP_HELD,   /* somebody is at work on it: neither free nor out */
    WEIR__HEAP_END,    /* no block: where a chunk ends; 0 grains, and no base, for
                          another chunk's block may begin there */
    WEIR__HEAP_OUT,    /* handed out */
    WEIR__HEAP_CACHED, /* given back, and in somebody's list, for its exact size */
    WEIR__HEAP_RETURNED /* free, but no record to say so was to be had yet */
} weir__heap_state;

/* The tag of a record, 24 bits:
 *     OUT      state 3 | asked 15 | log2 of the alignment asked for 5 | in a capture 1
 *     CACHED   state 3 | holder 21: whose list it is in
 *     FREE, RETURNED  state 3 | owner 21
 *     else     state 3
 * asked is the lower part of how many bytes were asked for: a block has fewer to spare
 * than that can count, so that its size tells the rest. Who frees it knows all of the
 * tag without a look at the block. */
#define WEIR__TAG_STATE_MASK  UINT32_C(7)
#define WEIR__TAG_BITS        24u
#define WEIR__TAG_MASK        ((UINT32_C(1) << WEIR__TAG_BITS) - 1)
#define WEIR__TAG_ASKED_SHIFT 3u
#define WEIR__TAG_ASKED_BITS  15u
#define WEIR__TAG_ASKED_MOST  ((UINT32_C(1) << WEIR__TAG_ASKED_BITS) - 1)
#define WEIR__TAG_ALIGN_SHIFT 18u
#define WEIR__TAG_CAPTURED    (UINT32_C(1) << 23)
/* The most that a block may have to spare, but for less than a grain. */
#define WEIR__SPARE_GRAINS \
    ((UINT32_C(1) << (WEIR__TAG_ASKED_BITS - WEIR__HEAP_GRAIN_BITS)) - 1)
#define WEIR__HOLDER_SHIFT    3u
#define WEIR__HOLDER_MAX      ((UINT32_C(1) << 21) - 1)

typedef struct weir__heap_block {
    _Atomic uint64_t head;   /* base in grains 40 | tag 24: in one word, so that who
                                reads it without the lock sees no tag of another's */
    _Atomic uint32_t grains;
    _Atomic uint32_t link;   /* OUT: the owner (heap.h) whose stream it was handed out
                                on, and so it stays in CACHED by nobody; CACHED: its
                                holder's; else the heap's. Without the lock it is set
                                before the tag says OUT, and after it says CACHED: but
                                who looks at both meanwhile has two moments */
} weir__heap_block;
_Static_assert(WEIR__HEAP_ADDRESS_BITS - WEIR__HEAP_GRAIN_BITS + WEIR__TAG_BITS == 64,
               "a head has room for any base");

/* A block that somebody takes, and the id of its record. Null: there is none. */
typedef struct weir__heap_taken {
    weir__heap_block *block;
    uint32_t id;
} weir__heap_taken;

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__HEAP_HOMES 3u
#define WEIR__HOME_BITS  3u
#else
#define WEIR__HEAP_HOMES 64u
#define WEIR__HOME_BITS  8u
#endif
/* 2^WEIR__HOME_BITS records in a row, a page of them, have one home: whoever hits
 * writes to the record of his block, and shall share its line with nobody else; nor its
 * page, for as far processors fetch ahead of who goes through it. */

/* A stretch of addresses, with an entry for each block that begins there, in a hash
 * table: open addressing, one behind the other, two to a power of them. */
#ifdef WEIR_TESTING
#define WEIR__SEGMENT_BITS 21u
#define WEIR__ENTRY_BITS   3u  /* log2 of how many it has at first */
#define WEIR__ID_BITS      19u /* room for so many records */
#define WEIR__PRINT_BITS   1u
#define WEIR__HASH_SHIFT   2u  /* four neighbours have one hash */
#else
#define WEIR__SEGMENT_BITS 23u
#define WEIR__ENTRY_BITS   4u
#define WEIR__ID_BITS      25u
#define WEIR__PRINT_BITS   7u
#define WEIR__HASH_SHIFT   0u
#endif
#define WEIR__SEGMENT_LINE WEIR__LINE

typedef struct weir__heap_segment {
    /* The heap's, under its lock: */
    uint64_t number;         /* address >> WEIR__SEGMENT_BITS */
    struct weir__heap_segment *next; /* of those that want room, or are spare */
    uint32_t bits;           /* log2 of its entries */
    uint32_t count;          /* entries in use */
    uint32_t missing;        /* blocks that found no room */
    uint32_t chunks;         /* that have to do with these addresses */
    bool wants_room;         /* it is in the list of those */
    char apart[WEIR__SEGMENT_LINE - 25 - sizeof(void *)];
    /* Read without the lock. 0: none; else some bits of the hash, and an id. */
    _Atomic uint32_t entries[];
} weir__heap_segment;
_Static_assert(offsetof(weir__heap_segment, entries) == WEIR__SEGMENT_LINE,
               "entries begin with a line of their own");

/* What of a heap is read without its lock: arrays that stay where they are until it is
 * closed, as does all that they name. */
typedef struct weir__heap_view {
    weir__heap_block *records;   /* by id */
    /* By number. 0: nowhere; else where the segment is. That begins with a line, and so
     * has room for 32 - bits. */
    _Atomic uintptr_t *segments;
    size_t numbers;              /* so many there are */
} weir__heap_view;

static inline weir__heap_block *weir__heap_at(const weir__heap_view *view, uint32_t id)
{
    return &view->records[id];
}

/* Whether a block may begin there: all else has bits that a record has no room for. */
static inline bool weir__heap_may_begin(const void *ptr)
{
    const uint64_t room = (UINT64_C(1) << WEIR__HEAP_ADDRESS_BITS) - WEIR__HEAP_GRAIN;
    return ((uint64_t)(uintptr_t)ptr & ~room) == 0;
}

/* What a record of a block at `ptr`, where one may begin, begins with. */
static inline uint64_t weir__heap_head(const void *ptr, uint32_t tag)
{
    return ((uint64_t)(uintptr_t)ptr << (WEIR__TAG_BITS - WEIR__HEAP_GRAIN_BITS)) + tag;
}

static inline uint64_t weir__heap_head_of(const weir__heap_block *block)
{
    return atomic_load_explicit(&block->head, memory_order_relaxed);
}

/* Release: who sees a tag OUT sees the link that was set before. */
static inline void weir__heap_set_head(weir__heap_block *block, uint64_t head)
{
    atomic_store_explicit(&block->head, head, memory_order_release);
}

static inline uint32_t weir__heap_tag(const weir__heap_block *block)
{
    return (uint32_t)weir__heap_head_of(block) & WEIR__TAG_MASK;
}

static inline weir__heap_state weir__heap_state_of(const weir__heap_block *block)
{
    return (weir__heap_state)(weir__heap_tag(block) & WEIR__TAG_STATE_MASK);
}

/* Where a block begins, in grains. */
static inline uint64_t weir__heap_grain(const weir__heap_block *block)
{
    return weir__heap_head_of(block) >> WEIR__TAG_BITS;
}

static inline uintptr_t weir__heap_head_base(uint64_t head)
{
    return (uintptr_t)(head >> WEIR__TAG_BITS << WEIR__HEAP_GRAIN_BITS);
}

static inline uintptr_t weir__heap_base(const weir__heap_block *block)
{
    return weir__heap_head_base(weir__heap_head_of(block));
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

static inline void weir__heap_set_tag(weir__heap_block *block, uint32_t tag)
{
    const uint64_t base = weir__heap_head_of(block) & ~(uint64_t)WEIR__TAG_MASK;
    weir__heap_set_head(block, base | tag);
}

/* What the record begins with but for the tag, if that is `tag`; else it has bits of
 * one as well. */
static inline uint64_t weir__heap_untagged(const weir__heap_block *block, uint32_t tag)
{
    return weir__heap_head_of(block) ^ tag;
}

/* Sets the tag of a record that begins with `head`, as others may want to at the same
 * moment, with the lock or without: one of them does. */
static inline bool weir__heap_claim(weir__heap_block *block, uint64_t head, uint32_t to)
{
    return atomic_compare_exchange_strong_explicit(
        &block->head, &head, (head & ~(uint64_t)WEIR__TAG_MASK) | to,
        memory_order_acq_rel, memory_order_relaxed);
}

/* The tag of what is free under an owner. */
static inline uint32_t weir__heap_free_tag(uint32_t owner)
{
    return WEIR__HEAP_FREE | owner << WEIR__HOLDER_SHIFT;
}

/* The tag of a block that is out as asked for. Sums, which a processor has instructions
 * for. */
static inline uint32_t weir__heap_out_tag(size_t asked_bytes, size_t asked_alignment)
{
    const uint32_t asked = (uint32_t)asked_bytes & WEIR__TAG_ASKED_MOST;
    const unsigned long long alignment = asked_alignment;
    const uint32_t log2 = (uint32_t)__builtin_ctzll(alignment);
    return (asked << WEIR__TAG_ASKED_SHIFT) +
           (WEIR__HEAP_OUT | log2 << WEIR__TAG_ALIGN_SHIFT);
}

/* Whether so many bytes were asked for of a block of `bytes` bytes, if its tag says
 * that of their lower part. */
static inline bool weir__heap_fits_asked(size_t bytes, size_t asked_bytes)
{
    return bytes - asked_bytes <= WEIR__TAG_ASKED_MOST;
}

/* How many bytes were asked for of a block that is OUT with this tag. */
static inline size_t weir__heap_asked_bytes(const weir__heap_block *block, uint32_t tag)
{
    const size_t bytes = weir__heap_bytes(block);
    return bytes - ((bytes - (tag >> WEIR__TAG_ASKED_SHIFT)) & WEIR__TAG_ASKED_MOST);
}

static inline size_t weir__heap_asked_alignment(uint32_t tag)
{
    return (size_t)1 << (tag >> WEIR__TAG_ALIGN_SHIFT & 31u);
}

/* The hash of a block's address: its upper bits say where a segment has its entry, some
 * below them are in there. The golden ratio spreads blocks of one size that lie side by
 * side better than chance does, but not where their distance is a Fibonacci number: so
 * it does that for 256 grains at a time. */
static inline uint32_t weir__heap_hash_of(uint64_t address)
{
    const uint32_t grain =
        (uint32_t)(address >> (WEIR__HEAP_GRAIN_BITS + WEIR__HASH_SHIFT));
    return (grain ^ grain >> 8) * UINT32_C(0x9e3779b1);
}

static inline uint32_t weir__heap_print_of(uint32_t hash)
{
    return hash >> 9 & ((1u << WEIR__PRINT_BITS) - 1);
}

/* A look through the entries that an address may have: from `at` on, so many. */
typedef struct weir__heap_probe {
    const _Atomic uint32_t *entries;
    uint32_t at, mask, print, left;
} weir__heap_probe;

static inline weir__heap_probe weir__heap_probe_begin(const weir__heap_view *view,
                                                      uint64_t address)
{
    const uint64_t number = address >> WEIR__SEGMENT_BITS;
    if (WEIR_UNLIKELY(number >= view->numbers))
        return (weir__heap_probe){ 0 };
    const uintptr_t segment =
        atomic_load_explicit(&view->segments[number], memory_order_acquire);
    if (segment == 0)
        return (weir__heap_probe){ 0 };
    const uint32_t shift = segment % WEIR__SEGMENT_LINE;
    const uint32_t hash = weir__heap_hash_of(address);
    const uintptr_t entries = segment - shift + WEIR__SEGMENT_LINE;
    return (weir__heap_probe){ .entries = (const _Atomic uint32_t *)entries,
                               .at = hash >> shift,
                               .mask = UINT32_MAX >> shift,
                               .print = weir__heap_print_of(hash),
                               .left = (UINT32_MAX >> shift) + 1 };
}

/* Whether its record may be the one. */
static inline bool weir__heap_probe_fits(const weir__heap_probe *probe, uint32_t entry)
{
    return entry >> WEIR__ID_BITS == probe->print;
}

/* The entry `further` on, if its record may be the one; else `other`. */
static inline uint32_t weir__heap_probe_at(const weir__heap_probe *probe,
                                           uint32_t further, uint32_t other)
{
    const uint32_t entry =
        atomic_load_explicit(&probe->entries[(probe->at + further) & probe->mask],
                             memory_order_acquire);
    return weir__heap_probe_fits(probe, entry) ? entry : other;
}

/* The first of a few whose record may be the one, or 0. All of them are read, without a
 * branch: who guesses how far he has to go guesses wrong as often as not, and finds out
 * when the line is there. */
static inline uint32_t weir__heap_probe_few(const weir__heap_probe *probe)
{
    uint32_t entry = weir__heap_probe_at(probe, 3, 0);
    entry = weir__heap_probe_at(probe, 2, entry);
    entry = weir__heap_probe_at(probe, 1, entry);
    return weir__heap_probe_at(probe, 0, entry);
}

/* The next entry; 0: there is no more. */
static inline uint32_t weir__heap_probe_step(weir__heap_probe *probe)
{
    if (probe->left == 0)
        return 0;
    const uint32_t at = probe->at;
    probe->at = (at + 1) & probe->mask;
    probe->left--;
    return atomic_load_explicit(&probe->entries[at], memory_order_acquire);
}

static inline uint32_t weir__heap_entry_id(uint32_t entry)
{
    return entry & ((1u << WEIR__ID_BITS) - 1);
}

/* Whether a record begins with `head`: that of a block that is out. Of one that is not
 * the caller's (who frees it twice) its size may be of another moment. */
static inline bool weir__heap_is_still(const weir__heap_block *block, uint64_t head)
{
    return weir__heap_head_of(block) == head;
}

/* The block at `ptr` if it is out with the tag `tag`, and its id; else null. Needs no
 * lock for a block that is the caller's; null only means that the answer is not
 * clear. */
static WEIR_INLINE weir__heap_block *
weir__heap_lookup_tagged(const weir__heap_view *view, const void *ptr, uint32_t tag,
                         uint32_t *out_id)
{
    if (!weir__heap_may_begin(ptr))
        return NULL;
    weir__heap_probe probe = weir__heap_probe_begin(view, (uint64_t)(uintptr_t)ptr);
    const uint64_t head = weir__heap_head(ptr, tag);
    if (WEIR_LIKELY(probe.left != 0)) {
        const uint32_t id = weir__heap_entry_id(weir__heap_probe_few(&probe));
        weir__heap_block *block = weir__heap_at(view, id);
        if (WEIR_LIKELY(weir__heap_is_still(block, head))) {
            *out_id = id;
            return block;
        }
    }
    for (uint32_t entry; (entry = weir__heap_probe_step(&probe)) != 0;) {
        if (!weir__heap_probe_fits(&probe, entry))
            continue;
        weir__heap_block *block = weir__heap_at(view, weir__heap_entry_id(entry));
        if (weir__heap_is_still(block, head)) {
            *out_id = weir__heap_entry_id(entry);
            return block;
        }
    }
    return NULL;
}

#endif
