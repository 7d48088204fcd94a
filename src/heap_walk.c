/* heap_walk.c - what walks over all blocks of a heap: the search for runs of several
 * clocks, which only a miss needs, and what reports want to know. */
#include "heap_bins.h"

static uintptr_t base_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_base(weir__heap_block_of(heap, id));
}

static uintptr_t end_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_end_of(weir__heap_block_of(heap, id));
}

static bool is_idle(const weir__heap *heap, uint32_t id)
{
    return weir__heap_is_idle(weir__heap_block_of(heap, id));
}

static inline uint32_t before(const weir__heap *heap, uint32_t id)
{
    return weir__heap_tie_at(heap, id)->before;
}

static inline uint32_t behind(const weir__heap *heap, uint32_t id)
{
    return weir__heap_behind(weir__heap_tie_at(heap, id));
}

/* How many bytes are idle from a block on, up to the first that is not. */
static inline size_t idle_from(const weir__heap *heap, uint32_t id, uint32_t *end)
{
    size_t bytes = 0;
    for (; is_idle(heap, id); id = behind(heap, id))
        bytes += weir__heap_bytes(weir__heap_block_of(heap, id));
    *end = id;
    return bytes;
}

/* A search for the smallest run. */
typedef struct run_search {
    size_t bytes, alignment;
    weir__heap_usable usable;
    void *context;
    weir__heap_run best;
    size_t best_bytes;
} run_search;

/* Of idle blocks from `first` to in front of `end`. */
static void search_idle(const weir__heap *heap, run_search *search, uint32_t first,
                        uint32_t end)
{
    /* [first, id] is the window; its beginning follows as soon as it may. */
    for (uint32_t id = first; id != end; id = behind(heap, id)) {
        if (!search->usable(search->context, id)) {
            first = 0;
            continue;
        }
        if (first == 0)
            first = id;
        while (first != 0 &&
               weir__heap_fits(heap, first, id, search->bytes, search->alignment)) {
            size_t bytes = end_of(heap, id) - base_of(heap, first);
            if (bytes < search->best_bytes) {
                search->best = (weir__heap_run){ first, id };
                search->best_bytes = bytes;
            }
            first = first == id ? 0 : behind(heap, first);
        }
    }
}

weir__heap_run weir__heap_find_run(const weir__heap *heap, size_t bytes,
                                   size_t alignment, weir__heap_usable usable,
                                   void *context)
{
    run_search search = { bytes, alignment, usable, context, { 0, 0 }, SIZE_MAX };
    for (const weir__chunk *chunk = heap->oldest; chunk; chunk = chunk->newer) {
        uint32_t id = weir__heap_first(heap, chunk);
        while (id != chunk->end) { /* which is not idle */
            uint32_t end;
            if (idle_from(heap, id, &end) >= bytes)
                search_idle(heap, &search, id, end);
            id = end != chunk->end ? behind(heap, end) : end;
        }
    }
    return search.best;
}

/* Neither an END nor 0 is. */
static inline bool is_free(const weir__heap *heap, uint32_t id)
{
    return weir__heap_state_at(heap, id) == WEIR__HEAP_FREE;
}

/* The run that a FREE block is in. False: one in front of it there has so many grains,
 * too. */
static inline bool run_of_first(const weir__heap *heap, uint32_t id, uint32_t grains,
                                weir__heap_run *out)
{
    *out = (weir__heap_run){ id, id };
    for (uint32_t next; is_free(heap, next = before(heap, out->first));) {
        if (weir__heap_grains(weir__heap_block_of(heap, next)) >= grains)
            return false;
        out->first = next;
    }
    for (uint32_t next; is_free(heap, next = behind(heap, out->last));)
        out->last = next;
    return true;
}

/* A visit of runs. */
typedef struct run_visit {
    size_t bytes;
    uint32_t least, most; /* grains of a run's first block that counts; one with as many
                             as `most` is in no run of interest */
    weir__heap_run_visitor visit;
    void *context;
} run_visit;

static void visit_run(const weir__heap *heap, run_visit *self,
                      const weir__heap_free *record)
{
    weir__heap_run run;
    if (record->more < self->least || record->more >= self->most ||
        !run_of_first(heap, record->block, self->least, &run))
        return;
    size_t bytes = end_of(heap, run.last) - base_of(heap, run.first);
    if (bytes < self->bytes)
        return;
    size_t grains = self->visit(self->context, run, bytes) >> WEIR__HEAP_GRAIN_BITS;
    if (grains < self->most)
        self->most = (uint32_t)grains;
}

/* By the bins that an owner has, from the smallest on. */
static void visit_runs_of(const weir__heap *heap, run_visit *self,
                          const weir__heap_owner *owner)
{
    weir__heap_bin bin = weir__heap_bin_of(self->least);
    const weir__heap_row *row = weir__heap_bin_from(owner, &bin, ~UINT64_C(0));
    while (row != NULL) {
        const weir__heap_free *record;
        bool is_over = false;
        for (uint32_t id = row->firsts[bin.bit]; id != 0; id = record->beside[1]) {
            record = weir__heap_free_at(heap, id);
            is_over = is_over || record->more >= self->most;
            visit_run(heap, self, record);
        }
        row = is_over ? NULL : weir__heap_bin_from(owner, &bin, ~UINT64_C(1));
    }
}

void weir__heap_each_run(const weir__heap *heap, size_t bytes, size_t part,
                         weir__heap_run_visitor visit, void *context)
{
    if (part > WEIR__CHUNK_MOST)
        return;
    run_visit self = { bytes, (uint32_t)(part >> WEIR__HEAP_GRAIN_BITS), UINT32_MAX,
                       visit, context };
    if (self.least == 0)
        self.least = 1;
    const weir__heap_owner *owner;
    for (uint32_t slot = 0; (owner = weir__heap_next_owner(heap, &slot)) != NULL;
         slot++)
        visit_runs_of(heap, &self, owner);
}

/* How many bytes are free around neighbours that are; stops counting above `most`. */
static inline size_t free_around(const weir__heap *heap, weir__heap_run run,
                                 size_t most)
{
    uintptr_t base = base_of(heap, run.first), end = end_of(heap, run.last);
    for (uint32_t id = run.first;
         end - base <= most && is_free(heap, id = before(heap, id));)
        base = base_of(heap, id);
    for (uint32_t id = run.last;
         end - base <= most && is_free(heap, id = behind(heap, id));)
        end = end_of(heap, id);
    return end - base;
}

size_t weir__heap_free_around(const weir__heap *heap, uint32_t block, size_t most)
{
    return free_around(heap, (weir__heap_run){ block, block }, most);
}

/* A search for the smallest run where neighbours that are known have room. */
typedef struct place_search {
    const weir__heap_owner *owner;
    size_t bytes, alignment;
    uint32_t grains;         /* of these bytes */
    uint32_t least;          /* grains of a block that counts */
    size_t most;             /* bytes that a run of interest may have */
    weir__heap_run best;
} place_search;

static inline bool is_known(const weir__heap *heap, uint32_t id)
{
    const weir__heap_block *block = weir__heap_block_of(heap, id);
    const uint32_t tag = weir__heap_tag(block);
    if ((tag & WEIR__TAG_STATE_MASK) != WEIR__HEAP_FREE)
        return false;
    const uint64_t known = heap->owners[tag >> WEIR__HOLDER_SHIFT]->known;
    return known == UINT64_MAX || weir__heap_free_of(heap, block)->number <= known;
}

/* Whether a block that is known is looked at for its own sake. */
static inline bool counts(const place_search *self, const weir__heap_block *block)
{
    const bool is_own =
        weir__heap_tag(block) == weir__heap_free_tag(self->owner->slot);
    return weir__heap_grains(block) >= (is_own ? self->grains : self->least);
}

/* All that is known around a block that is. False: one in front counts, too, or it is
 * too little or too much. */
static inline bool known_around(const weir__heap *heap, const place_search *self,
                                uint32_t id, weir__heap_run *out)
{
    const uint64_t most = self->most >> WEIR__HEAP_GRAIN_BITS;
    uint64_t grains = weir__heap_grains(weir__heap_block_of(heap, id));
    *out = (weir__heap_run){ id, id };
    for (uint32_t next; is_known(heap, next = before(heap, out->first));) {
        const weir__heap_block *block = weir__heap_block_of(heap, next);
        grains += weir__heap_grains(block);
        if (grains > most || counts(self, block))
            return false;
        out->first = next;
    }
    for (uint32_t next; is_known(heap, next = behind(heap, out->last));) {
        grains += weir__heap_grains(weir__heap_block_of(heap, next));
        if (grains > most)
            return false;
        out->last = next;
    }
    return grains >= self->grains;
}

static inline bool has_room(const weir__heap *heap, const place_search *self,
                            weir__heap_run run)
{
    return weir__heap_fits(heap, run.first, run.last, self->bytes, self->alignment);
}

static inline void offer_known(const weir__heap *heap, place_search *self, uint32_t id)
{
    weir__heap_run part;
    if (!known_around(heap, self, id, &part) || !has_room(heap, self, part))
        return;
    const size_t bytes = free_around(heap, part, self->most);
    if (bytes > self->most)
        return;
    for (part.last = part.first; !has_room(heap, self, part);)
        part.last = behind(heap, part.last);
    self->best = part;
    self->most = bytes - 1;
}

/* Of an owner's blocks of so many grains, from the smallest bin on. */
static void offer_known_of(const weir__heap *heap, place_search *self,
                           const weir__heap_owner *owner, uint32_t least)
{
    weir__heap_bin bin = weir__heap_bin_of(least);
    const weir__heap_row *row = weir__heap_bin_from(owner, &bin, ~UINT64_C(0));
    while (row != NULL) {
        const weir__heap_free *record;
        bool is_over = false;
        for (uint32_t id = row->firsts[bin.bit]; id != 0; id = record->beside[1]) {
            record = weir__heap_free_at(heap, id);
            if (weir__grains_size(record->more) > self->most)
                is_over = true;
            else if (record->more >= least && record->number <= owner->known)
                offer_known(heap, self, record->block);
        }
        row = is_over ? NULL : weir__heap_bin_from(owner, &bin, ~UINT64_C(1));
    }
}

weir__heap_run weir__heap_known_place(const weir__heap *heap,
                                      const weir__heap_owner *owner, size_t bytes,
                                      size_t alignment, weir__heap_places where)
{
    place_search self = { .owner = owner, .bytes = bytes, .alignment = alignment,
                          .most = where.most };
    if (bytes > WEIR__CHUNK_MOST)
        return self.best;
    self.grains = (uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS);
    self.least = (uint32_t)(where.part >> WEIR__HEAP_GRAIN_BITS);
    if (self.least == 0)
        self.least = 1;
    offer_known_of(heap, &self, owner, self.grains);
    if (self.best.first != 0 && self.most < where.enough)
        return self.best;
    const weir__heap_owner *other;
    for (uint32_t slot = 0; (other = weir__heap_next_owner(heap, &slot)) != NULL;
         slot++) {
        if (other != owner && other->known != 0)
            offer_known_of(heap, &self, other, self.least);
    }
    return self.best;
}

uint32_t weir__heap_merge(weir__heap *heap, const weir__heap_merger *merger)
{
    uint32_t count = 0;
    for (const weir__chunk *chunk = heap->oldest; chunk; chunk = chunk->newer) {
        uint32_t id = weir__heap_first(heap, chunk);
        for (uint32_t next; id != 0; id = next) {
            next = weir__heap_after(heap, id);
            if (next == 0 || !is_free(heap, id) || !is_free(heap, next) ||
                !merger->usable(merger->context, id) ||
                !merger->usable(merger->context, next))
                continue;
            weir__heap_hold(heap, id);
            weir__heap_hold(heap, next);
            weir__mark mark = merger->mark(merger->context);
            (void)weir__heap_release(heap, id, mark);
            next = weir__heap_release(heap, next, mark);
            count++;
        }
    }
    return count;
}

uint32_t weir__heap_around(const weir__heap *heap, const void *ptr)
{
    uintptr_t at = (uintptr_t)ptr;
    for (const weir__chunk *chunk = heap->oldest; chunk; chunk = chunk->newer) {
        if (at < chunk->base || at - chunk->base >= chunk->bytes)
            continue;
        uint32_t id = weir__heap_first(heap, chunk);
        while (id != 0 && end_of(heap, id) <= at) /* 0: a record was spoilt */
            id = weir__heap_after(heap, id);
        return id;
    }
    return 0;
}

size_t weir__heap_largest_free(const weir__heap *heap)
{
    size_t largest = 0;
    for (const weir__chunk *chunk = heap->oldest; chunk; chunk = chunk->newer) {
        size_t run = 0;
        for (uint32_t id = weir__heap_first(heap, chunk); id != 0;
             id = weir__heap_after(heap, id)) {
            run = is_idle(heap, id) ? run + end_of(heap, id) - base_of(heap, id) : 0;
            if (run > largest)
                largest = run;
        }
    }
    return largest;
}

bool weir__heap_chunk_is_idle(const weir__heap *heap, const weir__chunk *chunk)
{
    uint32_t id = weir__heap_first(heap, chunk);
    while (id != 0 && is_idle(heap, id))
        id = weir__heap_after(heap, id);
    return id == 0;
}
