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

size_t weir__heap_free_around(const weir__heap *heap, uint32_t block, size_t most)
{
    uint32_t first = block, last = block, next;
    size_t bytes = end_of(heap, block) - base_of(heap, block);
    while (bytes <= most && is_free(heap, next = before(heap, first))) {
        first = next;
        bytes = end_of(heap, last) - base_of(heap, first);
    }
    while (bytes <= most && is_free(heap, next = behind(heap, last))) {
        last = next;
        bytes = end_of(heap, last) - base_of(heap, first);
    }
    return bytes;
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
