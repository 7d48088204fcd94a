/* pool_place.c - where in a pool's free memory a request is cut out.
 *
 *     | out | 1 | 2 | out | 1 |   2   | 1 | 3 |   1   | 2 | out |
 *            small run     large run: cut at its beginning, or not at all
 *
 * What streams free merges only with their own, so a stream's best fit may lie in the
 * middle of a large stretch that several have left: cut there, it never serves a large
 * request again, and the pool grows though much is free. So where several streams have
 * left much, the run counts that a block lies in: all that is free from one block that
 * is out to the next. A run that is small against the pool is cut where the stream has
 * something in it. A large one only at its beginning, and only if none that is much
 * smaller has room; for that the stream waits for others. What is left of what is cut
 * stays its stream's.
 *
 * Nearly always there is room in what the stream may take, in a run that is small: that
 * is found at once, from a number for each owner (weir__heap_known_place), under the
 * lock that a best fit would take. Only else each run is looked at, with miss's lock.
 *
 * Nothing of this in a pool of one stream, or where little is free, or before the pool
 * has grown beyond its initial size. */
#include "internal.h"
#include "pool_internal.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define PLACE_CUT_LEAST ((size_t)64 << 10)
#define PLACE_ASKED     2u
#define PLACE_RECORDS   192u
#else
#define PLACE_CUT_LEAST ((size_t)32 << 20)
#define PLACE_ASKED     16u /* so many owners are asked about at once */
#define PLACE_RECORDS   512u /* ... of what is free are looked at for each block that
                                comes back */
#endif
/* So large a part of what is held may lie in a run that is cut without a look at the
 * others; or with one; and a block that is so small a part is cut in any run. */
#define PLACE_CUT_SHARE   128u
#define PLACE_LARGE_SHARE 8u
#define PLACE_SMALL_SHARE 4096u
/* A large run is cut if it is no more than so many times the smallest with room. */
#define PLACE_NEAR 2u
/* One that is such a part of what is cut without a look, or has no more than such a
 * part of the request to spare, need not be smaller. */
#define PLACE_FEW_SHARE 4u
#define PLACE_MORE      2u
/* Runs that have no block of such a part of what is asked for are crumbs: nobody looks
 * at them. */
#define PLACE_PARTS 16u

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

void weir__pool_note_cut_locked(weir__pool *self)
{
    size_t slack = self->options.slack_bytes;
    if (slack == 0 || slack == WEIR_POOL_NO_SLACK)
        slack = PLACE_CUT_LEAST;
    self->cut_bytes = most(slack, self->held_bytes / PLACE_CUT_SHARE);
    const size_t times = 2 * self->threads;
    self->much_bytes =
        self->cut_bytes < SIZE_MAX / times ? times * self->cut_bytes : SIZE_MAX;
    if (self->held_bytes <= self->options.initial_bytes) /* that is there to be used */
        self->cut_bytes = self->much_bytes = SIZE_MAX;
}

bool weir__pool_spares_locked(const weir__pool *self, uint32_t block)
{
    const weir__heap *heap = &self->heap;
    if (block == 0)
        return false;
    uint32_t before = weir__heap_before(heap, block);
    bool begins = before == 0 || !weir__heap_is_idle(weir__heap_block_of(heap, before));
    return !(begins && weir__heap_bytes(weir__heap_block_of(heap, block)) <=
                           heap->bytes / PLACE_SMALL_SHARE) &&
           weir__heap_free_around(heap, block, self->cut_bytes) > self->cut_bytes;
}

/* ---- what the stream may take ---- */

/* Notes of each owner what a clock's stream may take of it. */
static void note_known_locked(weir__pool *self, uint64_t clock)
    WEIR_REQUIRES(self->lock)
{
    weir__heap_owner *asked[PLACE_ASKED], *owner;
    weir__mark marks[PLACE_ASKED];
    uint32_t slot = 0, count;
    do {
        count = 0;
        while (count < PLACE_ASKED &&
               (owner = weir__heap_next_owner(&self->heap, &slot)) != NULL) {
            slot++;
            asked[count] = owner;
            marks[count++].clock = owner->clock;
        }
        weir__order_may_take_to(self->order, clock, marks, count);
        for (uint32_t i = 0; i < count; i++)
            asked[i]->known = marks[i].number;
    } while (count == PLACE_ASKED);
}

/* Where the stream may take a request, in the smallest run that is not large against
 * the pool; first is 0: nowhere. What others have left is not looked at each time where
 * that is very much. */
static weir__heap_run known_place_locked(const weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    weir__pool *self = request->pool;
    weir__heap_places where = {
        .part = request->bytes / PLACE_PARTS,
        .most = most(self->cut_bytes, self->heap.bytes / PLACE_LARGE_SHARE),
        .enough = most(self->cut_bytes / PLACE_FEW_SHARE,
                       request->bytes + request->bytes / PLACE_MORE),
    };
    if (self->releases < self->place_at)
        where.enough = SIZE_MAX;
    else
        self->place_at = self->releases + self->heap.free_blocks / PLACE_RECORDS;
    note_known_locked(self, request->clock);
    return weir__heap_known_place(&self->heap, request->owner, request->bytes,
                                  request->alignment, where);
}

/* The part begins where the request does: with an alignment blocks in front of that may
 * be left out. */
static weir__heap_run trimmed(const weir__request *request, weir__heap_run run)
{
    const weir__heap *heap = &request->pool->heap;
    const weir__heap_block *first = weir__heap_block_of(heap, run.first);
    while (weir__heap_gap(first, request->alignment) >= weir__heap_bytes(first)) {
        run.first = weir__heap_after(heap, run.first);
        first = weir__heap_block_of(heap, run.first);
    }
    return run;
}

uint32_t weir__pool_place_known_locked(weir__request *request)
{
    weir__pool *self = request->pool;
    if (request->owner->kind == WEIR__POOL_CAPTURE)
        return 0;
    weir__heap_run run = known_place_locked(request);
    if (run.first == 0)
        return 0;
    run = trimmed(request, run);
    if (!weir__pool_may_take_run(request, run)) /* for the ledger to hear; and it may be
                                                   forgotten since */
        return 0;
    if (weir__heap_mark(&self->heap, run.first).clock != request->clock)
        weir__pool_note_want_locked(self);
    return weir__pool_take_run_locked(request, run);
}

/* ---- a look at all runs ---- */

/* A part of a run with room for the request, no longer than it needs. */
typedef struct place {
    weir__heap_run part;  /* first is 0: there is none */
    size_t bytes;         /* of the run */
} place;

typedef struct survey {
    weir__request *request;
    place any;            /* at the beginning of the smallest run */
    place known;          /* of the smallest where the stream may take that */
} survey;

/* The smaller run is better; of equal ones the first: where memory lies is upstream's
 * whim. */
static bool could_be_better(const place *best, size_t bytes)
{
    return best->part.first == 0 || bytes < best->bytes;
}

static void offer(place *best, weir__heap_run part, size_t bytes)
{
    if (could_be_better(best, bytes))
        *best = (place){ part, bytes };
}

static size_t look_at_run(void *context, weir__heap_run run, size_t bytes)
{
    survey *self = context;
    weir__request *request = self->request;
    const weir__heap *heap = &request->pool->heap;
    bool wants_any = could_be_better(&self->any, bytes);
    bool wants_known = could_be_better(&self->known, bytes);
    uint32_t any = 0; /* where the part begins */
    for (uint32_t id = run.first; wants_any || wants_known;
         id = weir__heap_after(heap, id)) {
        bool may = weir__pool_may_take(request, id);
        any = !may && !weir__pool_can_wait(request, id) ? 0 : any != 0 ? any : id;
        wants_known = wants_known && may;
        if (wants_any && any != 0 &&
            weir__heap_fits(heap, any, id, request->bytes, request->alignment)) {
            offer(&self->any, (weir__heap_run){ any, id }, bytes);
            wants_any = false;
        }
        if (wants_known && weir__heap_fits(heap, run.first, id, request->bytes,
                                           request->alignment)) {
            offer(&self->known, (weir__heap_run){ run.first, id }, bytes);
            wants_known = false;
        }
        if (id == run.last)
            break;
    }
    /* Larger ones are of no interest where there is one of each kind. */
    return self->known.part.first != 0 ? most(self->any.bytes, self->known.bytes)
                                       : SIZE_MAX;
}

/* The survey's part, where one has to wait for others or not. */
static uint32_t place_in_large_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    survey all = { .request = request };
    weir__heap_each_run(&request->pool->heap, request->bytes,
                        request->bytes / PLACE_PARTS, look_at_run, &all);
    if (all.any.part.first == 0)
        return 0;
    request->is_placed = true; /* nothing is spared any more */
    return all.known.part.first != 0 && all.known.bytes / PLACE_NEAR <= all.any.bytes
               ? weir__pool_take_run_locked(request, trimmed(request, all.known.part))
               : weir__pool_take_waiting_locked(
                     request, trimmed(request, all.any.part), true);
}

uint32_t weir__pool_place_locked(weir__request *request)
{
    weir__pool *self = request->pool;
    if (request->is_placed || !weir__pool_is_wary(self))
        return 0;
    const bool is_time = self->releases >= self->place_at;
    uint32_t block = weir__pool_place_known_locked(request);
    return block != 0 || !is_time || request->owner->kind == WEIR__POOL_CAPTURE
               ? block
               : place_in_large_locked(request);
}

/* ---- the end of what grows in place ---- */

/* Whether a block at a chunk's end becomes one with new bytes of `clock`: it is of that
 * clock, or the stream may take it, or can wait for it where growth is not instead of
 * that. */
static bool is_of_end(weir__request *request, uint32_t block, uint64_t clock)
{
    const weir__heap *heap = &request->pool->heap;
    if (weir__heap_state_at(heap, block) != WEIR__HEAP_FREE)
        return false;
    if (weir__heap_mark(heap, block).clock == clock)
        return true;
    return request->alignment <= WEIR__HEAP_GRAIN &&
           request->owner->kind != WEIR__POOL_CAPTURE &&
           (request->grows_first ? weir__pool_may_take(request, block)
                                 : weir__pool_can_wait(request, block));
}

weir__heap_run weir__pool_hold_end_locked(weir__request *request,
                                          const weir__chunk *chunk, uint64_t clock,
                                          size_t needed, size_t *bytes)
{
    weir__heap *heap = &request->pool->heap;
    weir__heap_run end = { 0, weir__heap_last(heap, chunk) };
    for (uint32_t block = end.last; block != 0 && is_of_end(request, block, clock);
         block = weir__heap_before(heap, block)) {
        size_t more = weir__heap_bytes(weir__heap_block_of(heap, block));
        bool is_one =
            block == end.last && weir__heap_mark(heap, block).clock == clock;
        if (!is_one && *bytes + more >= needed)
            break;
        weir__heap_hold(heap, block);
        *bytes += more;
        end.first = block;
    }
    return end;
}
