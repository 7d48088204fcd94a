/* emulated_mempool_spans.c - the chunks of a device's pool, and what of them is handed
 * out again for which stream.
 *
 * What is free serves a stream in these ways, as the pool's options allow:
 *   - it is behind nothing, or was given back on that stream itself
 *   - events: the stream is behind where it was given back; the ledger knows, and
 *     without one this never applies
 *   - opportunistic: what it is behind happens to be done
 *   - internal, rather than to draw more: the stream is made to wait, for one other
 * Neighbours serve together. Where several places serve, the seed picks one, for on a
 * real device too nobody can tell which it will be. */
#include "device/emulated_mempool.h"
#include "device/emulated_shared.h"

#define GRANULE    ((size_t)512)
#define PAGE       ((size_t)4096)
#define BYTES_MAX  (SIZE_MAX >> 17) /* that anybody could draw */
#define PLACES_MAX 4 /* that the seed picks from */
#ifdef WEIR_TESTING  /* small, so that pools draw often */
#define CHUNK_BYTES ((size_t)64 << 10)
#else
#define CHUNK_BYTES ((size_t)2 << 20)
#endif

/* ---- spans ---- */

/* It is behind nothing from now on. */
static void span_clear(weir__span *span)
{
    if (span->freed.queue == NULL)
        return;
    weir__queue_unref(span->freed.queue);
    span->freed = (weir__position){ .queue = NULL };
    span->freed_time = 0;
    span->chunk->pending--;
}

static void span_link(weir__span *span, weir__span *before)
{
    span->before = before;
    span->after = before->after;
    if (before->after != NULL)
        before->after->before = span;
    before->after = span;
}

/* Takes the second of two neighbours out of the list, and frees its record. */
static void span_swallow(weir__span *first, weir__span *second)
{
    first->bytes += second->bytes;
    first->after = second->after;
    if (second->after != NULL)
        second->after->before = first;
    weir__host_free(second);
}

static bool is_mergeable(const weir__span *first, const weir__span *second)
{
    return first != NULL && second != NULL && first->is_free &&
           second->is_free && first->freed.queue == second->freed.queue;
}

/* Two free neighbours behind the same queue are one, behind the later of both. */
static void span_merge(weir__span *first, weir__span *second)
{
    if (second->freed.position > first->freed.position) {
        first->freed.position = second->freed.position;
        first->freed.issue = second->freed.issue;
        first->freed_time = second->freed_time;
    }
    span_clear(second);
    span_swallow(first, second);
}

static void span_settle(weir__span *span)
{
    if (is_mergeable(span, span->after))
        span_merge(span, span->after);
    if (is_mergeable(span->before, span))
        span_merge(span->before, span);
}

/* ---- holes ---- */

/* The first span of the hole that `span` is in. */
static weir__span *hole_of(weir__span *span)
{
    while (span->before != NULL && span->before->is_free)
        span = span->before;
    return span;
}

/* All that is free from `first` on is a hole. */
static void hole_add(weir__span *first)
{
    WEIR_ASSERT(first->is_free && hole_of(first) == first, "a hole in a hole");
    size_t bytes = 0;
    for (const weir__span *span = first; span != NULL && span->is_free;
         span = span->after)
        bytes += span->bytes;
    first->node = (weir__block){ .ptr = first->ptr, .bytes = bytes, .is_free = true };
    weir__blocks_insert(&first->chunk->pool->holes, &first->node);
}

static void hole_remove(weir__span *first)
{
    weir__blocks_remove(&first->chunk->pool->holes, &first->node);
}

/* ---- chunks ---- */

static weir__host_kind host_kind_of(weir_async_memory memory)
{
    return memory == WEIR_ASYNC_MANAGED ? WEIR__HOST_POOL_MANAGED : WEIR__HOST_POOL;
}

weir_status weir__pool_memory_draw(weir__emulated *device, weir__arena *shared,
                                   weir_async_memory memory, size_t bytes, void **out)
{
    weir_status status;
    if (shared != NULL)
        status = weir__object_malloc(shared, bytes, out);
    else if (memory == WEIR_ASYNC_DEVICE)
        status = weir__arena_malloc(device->arena, bytes, true, out);
    else
        status = weir__host_memory_make(device, host_kind_of(memory), bytes, PAGE, out);
    if (status != WEIR_OK)
        return status;
    weir__cost_bytes(device, WEIR__CALL_mempool_malloc, bytes);
    if (device->ledger != NULL)
        weir__ledger_pool_draw(device->ledger, &device->owner, weir__this_thread(),
                               (uintptr_t)*out, bytes);
    return WEIR_OK;
}

/* What comes next at these addresses may belong to another device: the ledger must have
 * heard of the end by then. */
void weir__pool_memory_return(weir__emulated *device, weir__arena *shared,
                              weir_async_memory memory, void *ptr, size_t bytes)
{
    weir__cost_bytes(device, WEIR__CALL_mempool_trim, bytes);
    if (device->ledger != NULL)
        weir__ledger_pool_return(device->ledger, (uintptr_t)ptr);
    if (shared != NULL)
        weir__object_free(shared, ptr);
    else if (memory != WEIR_ASYNC_DEVICE)
        weir__host_memory_end(device, host_kind_of(memory), ptr);
    else if (weir__arena_free(device->arena, ptr, &bytes) != WEIR_OK)
        WEIR_CHECK(false, "a pool returns what the device does not know");
}

static weir_status fail_max(const weir__mempool *pool, size_t bytes)
{
    if (pool->options.max_bytes == 0)
        return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                                 "no pool of emulated device %d could have %zu bytes",
                                 (int)pool->device->ordinal, bytes);
    return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                             "a pool of emulated device %d has no %zu bytes: it has "
                             "reserved %llu and may reserve %zu",
                             (int)pool->device->ordinal, bytes,
                             (unsigned long long)pool->reserved_bytes,
                             pool->options.max_bytes);
}

/* Draws memory for a chunk with room for `needed`: *bytes, as many as are usual where
 * the pool's bound allows them. */
static weir_status chunk_draw(const weir__mempool *pool, size_t needed, size_t *bytes,
                              void **out)
{
    *bytes = (needed + CHUNK_BYTES - 1) / CHUNK_BYTES * CHUNK_BYTES;
    if (pool->options.max_bytes != 0) {
        size_t left = pool->options.max_bytes - (size_t)pool->reserved_bytes;
        if (left < needed)
            return fail_max(pool, needed);
        if (*bytes > left)
            *bytes = left / GRANULE * GRANULE;
    }
    return weir__pool_memory_draw(pool->device, pool->shared, pool->options.memory,
                                  *bytes, out);
}

/* The same, if need be with what the pool has for nothing. */
static weir_status chunk_draw_or_swap(weir__mempool *pool, size_t needed,
                                      size_t *bytes, void **out)
{
    weir_status status = chunk_draw(pool, needed, bytes, out);
    if (status != WEIR_OUT_OF_MEMORY)
        return status;
    weir__mempool_release(pool, 0);
    return chunk_draw(pool, needed, bytes, out);
}

/* A chunk with room for `needed`, all of it free behind nothing. */
static weir_status chunk_make(weir__mempool *pool, size_t needed, weir__span **out)
{
    void *ptr = NULL;
    size_t bytes = 0;
    weir__span *span = weir__host_alloc(sizeof *span);
    weir__chunk *chunk = weir__host_alloc(sizeof *chunk);
    weir_status status =
        span == NULL || chunk == NULL
            ? weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a pool's records")
            : chunk_draw_or_swap(pool, needed, &bytes, &ptr);
    if (status != WEIR_OK) {
        weir__host_free(span);
        weir__host_free(chunk);
        return status;
    }
    *span = (weir__span){ .ptr = (uintptr_t)ptr, .bytes = bytes, .is_free = true,
                          .chunk = chunk };
    *chunk = (weir__chunk){ .pool = pool, .ptr = ptr, .bytes = bytes,
                            .free_bytes = bytes, .first = span,
                            .next = pool->chunks };
    pool->chunks = chunk;
    pool->reserved_bytes += bytes;
    hole_add(span);
    *out = span;
    return WEIR_OK;
}

/* Gives the memory of a chunk back, and frees its records. */
static void chunk_return(weir__chunk *chunk)
{
    const weir__mempool *pool = chunk->pool;
    weir__pool_memory_return(pool->device, pool->shared, pool->options.memory,
                             chunk->ptr, chunk->bytes);
    for (weir__span *span = chunk->first; span != NULL;) {
        weir__span *after = span->after;
        span_clear(span);
        weir__host_free(span);
        span = after;
    }
    weir__host_free(chunk);
}

static bool chunk_is_done(const weir__chunk *chunk)
{
    if (chunk->free_bytes < chunk->bytes)
        return false;
    for (const weir__span *span = chunk->first; span != NULL; span = span->after) {
        if (span->freed.queue != NULL &&
            !weir__position_is_done(chunk->pool->device, span->freed))
            return false;
    }
    return true;
}

void weir__mempool_release(weir__mempool *pool, uint64_t keep_bytes)
{
    weir__chunk **link = &pool->chunks;
    while (*link != NULL && pool->reserved_bytes > keep_bytes) {
        weir__chunk *chunk = *link;
        if (!chunk_is_done(chunk)) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        hole_remove(chunk->first);
        pool->reserved_bytes -= chunk->bytes;
        chunk_return(chunk);
    }
}

void weir__mempool_forget(weir__mempool *pool)
{
    while (pool->chunks != NULL) {
        weir__chunk *chunk = pool->chunks;
        pool->chunks = chunk->next;
        chunk_return(chunk);
    }
    if (pool->shared != NULL)
        weir__object_end(pool->shared);
}

static bool is_covered(const weir__mempool *pool, const weir__span *span,
                       weir__position waited)
{
    if (span->freed.queue == NULL)
        return false;
    if (waited.queue == NULL)
        return weir__position_is_done(pool->device, span->freed);
    return span->freed.queue == waited.queue &&
           span->freed.position <= waited.position;
}

void weir__mempool_learn(weir__mempool *pool, weir__position waited)
{
    for (weir__chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next) {
        weir__span *span = chunk->pending > 0 ? chunk->first : NULL;
        for (; span != NULL; span = span->after) {
            if (!is_covered(pool, span, waited))
                continue;
            span_clear(span);
            while (is_mergeable(span, span->after))
                span_merge(span, span->after);
            if (is_mergeable(span->before, span)) {
                span = span->before;
                span_merge(span, span->after);
            }
        }
    }
}

/* ---- what serves ---- */

/* Spans of a hole that serve together, and what to wait for first (null: nothing). */
typedef struct place {
    weir__span *first;
    weir__span *last;
    weir__position wait;
} place;

static bool serves_at_once(const weir__mempool *pool, const weir__span *span,
                           const weir__queue *queue)
{
    const weir__emulated *device = pool->device;
    const weir__position *freed = &span->freed;
    uint32_t reuse = pool->options.reuse;
    if (freed->queue == NULL || freed->queue == queue)
        return true;
    if ((reuse & WEIR_ASYNC_REUSE_EVENTS) != 0 && device->ledger != NULL &&
        weir__ledger_is_behind(device->ledger, queue->id, freed->queue->id,
                               span->freed_time))
        return true;
    return (reuse & WEIR_ASYNC_REUSE_OPPORTUNISTIC) != 0 &&
           weir__position_is_done(pool->device, *freed);
}

/* Whether `span` can be part of `found`, if need be by a wait. */
static bool place_add(place *found, const weir__mempool *pool, weir__span *span,
                      const weir__queue *queue, bool may_wait)
{
    const weir__position *freed = &span->freed;
    if (!span->is_free)
        return false;
    if (!serves_at_once(pool, span, queue)) {
        bool waits_for_one = found->wait.queue == NULL ||
                             found->wait.queue == freed->queue;
        if (!may_wait || !waits_for_one)
            return false;
        if (found->wait.queue == NULL || found->wait.position < freed->position)
            found->wait = *freed;
    }
    found->last = span;
    return true;
}

/* Whether from `first` on there is room. */
static bool place_find(const weir__mempool *pool, weir__span *first,
                       const weir__queue *queue, size_t bytes, bool may_wait,
                       place *out)
{
    *out = (place){ .first = first };
    size_t room = 0;
    for (weir__span *span = first; span != NULL; span = span->after) {
        if (!place_add(out, pool, span, queue, may_wait))
            return false;
        room += span->bytes;
        if (room >= bytes)
            return true;
    }
    return false;
}

typedef struct places {
    uint32_t most;
    uint32_t count;
    place found[PLACES_MAX];
} places;

/* Adds those in the hole that begins with `span`; they do not overlap. */
static void places_add(places *self, const weir__mempool *pool, weir__span *span,
                       const weir__queue *queue, size_t bytes, bool may_wait)
{
    for (; span != NULL && span->is_free && self->count < self->most;
         span = span->after) {
        place *next = &self->found[self->count];
        if (!place_find(pool, span, queue, bytes, may_wait, next))
            continue;
        self->count++;
        span = next->last;
    }
}

static bool place_choose(weir__mempool *pool, const weir__queue *queue, size_t bytes,
                         bool may_wait, place *out)
{
    weir__emulated *device = pool->device;
    bool by_seed = device->options.scheduler != WEIR_EMULATED_NO_WORK;
    places all = { .most = by_seed ? PLACES_MAX : 1 };
    weir__block *hole = weir__blocks_fit_above(&pool->holes, 0, bytes);
    while (hole != NULL && all.count < all.most) {
        places_add(&all, pool, (weir__span *)hole, queue, bytes, may_wait);
        hole = weir__blocks_fit_above(&pool->holes, hole->ptr, bytes);
    }
    if (all.count == 0)
        return false;
    *out = all.found[all.count > 1 ? weir__emulated_choose(device, all.count) : 0];
    return true;
}

/* The stream waits, as it would for an event. */
static weir_status place_wait(const place *chosen, weir__queue *queue)
{
    static const weir__work marker = { .kind = WEIR__WORK_MARKER };
    if (chosen->wait.queue == NULL)
        return WEIR_OK;
    return weir__queue_put(queue, &marker, 0, &chosen->wait, NULL);
}

static weir_status place_make(weir__mempool *pool, weir__queue *queue, size_t bytes,
                              place *out)
{
    if (place_choose(pool, queue, bytes, false, out))
        return WEIR_OK;
    if ((pool->options.reuse & WEIR_ASYNC_REUSE_INTERNAL) != 0 &&
        place_choose(pool, queue, bytes, true, out))
        return place_wait(out, queue);
    *out = (place){ .first = NULL };
    weir_status status = chunk_make(pool, bytes, &out->first);
    out->last = out->first;
    return status;
}

/* Cuts `bytes` out of the place, as one span; what is over stays as it was, in the
 * record `rest`. */
static weir__span *place_cut(const place *from, size_t bytes, weir__span *rest)
{
    weir__span *span = from->first;
    size_t room = 0;
    for (const weir__span *each = span; each != from->last; each = each->after)
        room += each->bytes;
    size_t needed = bytes - room; /* of the last */
    if (from->last->bytes == needed) {
        weir__host_free(rest);
    } else {
        *rest = (weir__span){ .chunk = span->chunk,
                              .ptr = from->last->ptr + needed,
                              .bytes = from->last->bytes - needed,
                              .is_free = true,
                              .freed = from->last->freed,
                              .freed_time = from->last->freed_time };
        span_link(rest, from->last);
        from->last->bytes = needed;
        if (rest->freed.queue != NULL) {
            weir__queue_ref(rest->freed.queue);
            span->chunk->pending++;
        }
    }
    span_clear(span);
    while (span->bytes < bytes) {
        span_clear(span->after);
        span_swallow(span, span->after);
    }
    WEIR_ASSERT(span->bytes == bytes, "a place was cut badly");
    return span;
}

weir_status weir__mempool_take(weir__mempool *pool, weir__queue *queue, size_t bytes,
                               weir__span **out)
{
    if (bytes > BYTES_MAX)
        return fail_max(pool, bytes);
    size_t rounded = (bytes + GRANULE - 1) / GRANULE * GRANULE;
    weir__span *rest = weir__host_alloc(sizeof *rest);
    if (rest == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a pool's records");
    place chosen;
    weir_status status = place_make(pool, queue, rounded, &chosen);
    if (status != WEIR_OK) {
        weir__host_free(rest);
        return status;
    }
    weir__span *hole = hole_of(chosen.first);
    hole_remove(hole);
    weir__span *span = place_cut(&chosen, rounded, rest);
    span->is_free = false;
    if (hole != span)
        hole_add(hole);
    if (span->after != NULL && span->after->is_free)
        hole_add(span->after);
    span->chunk->free_bytes -= rounded;
    pool->used_bytes += rounded;
    span->node = (weir__block){ .ptr = span->ptr, .bytes = rounded };
    weir__blocks_insert(&pool->device->spans_out, &span->node);
    *out = span;
    return WEIR_OK;
}

void weir__mempool_give(weir__span *span, weir__queue *queue, uint64_t time)
{
    weir__chunk *chunk = span->chunk;
    weir__mempool *pool = chunk->pool;
    weir__blocks_remove(&pool->device->spans_out, &span->node);
    if (span->after != NULL && span->after->is_free)
        hole_remove(span->after);
    weir__span *hole = hole_of(span);
    if (hole != span)
        hole_remove(hole);
    span->is_free = true;
    span->freed = weir__queue_position(weir__queue_ref(queue));
    span->freed_time = time;
    chunk->pending++;
    chunk->free_bytes += span->bytes;
    pool->used_bytes -= span->bytes;
    span_settle(span);
    hole_add(hole);
}

/* ---- soundness ---- */

/* Whether `span`, if it is the first of a hole, is listed with its length. */
static bool hole_is_known(weir__mempool *pool, const weir__span *span)
{
    if (!span->is_free || (span->before != NULL && span->before->is_free))
        return true;
    size_t bytes = 0;
    for (const weir__span *each = span; each != NULL && each->is_free;
         each = each->after)
        bytes += each->bytes;
    return weir__blocks_at_or_below(&pool->holes, span->ptr) == &span->node &&
           span->node.ptr == span->ptr && span->node.bytes == bytes;
}

static void chunk_verify(const weir__chunk *chunk)
{
    uintptr_t at = (uintptr_t)chunk->ptr;
    size_t free_bytes = 0, pending = 0;
    const weir__span *before = NULL;
    for (const weir__span *span = chunk->first; span != NULL; span = span->after) {
        WEIR_CHECK(span->chunk == chunk && span->before == before, "a lost span");
        WEIR_CHECK(span->ptr == at && span->bytes > 0, "a gap in a chunk");
        WEIR_CHECK(span->is_free || span->freed.queue == NULL,
                   "what is out is still behind something");
        WEIR_CHECK(!is_mergeable(before, span), "two neighbours are one");
        WEIR_CHECK(hole_is_known(chunk->pool, span), "a hole is not listed as it is");
        at += span->bytes;
        free_bytes += span->is_free ? span->bytes : 0;
        pending += span->freed.queue != NULL;
        before = span;
    }
    WEIR_CHECK(at == (uintptr_t)chunk->ptr + chunk->bytes, "a chunk is not covered");
    WEIR_CHECK(free_bytes == chunk->free_bytes && pending == chunk->pending,
               "a chunk is miscounted");
}

void weir__mempool_verify(const weir__mempool *pool)
{
    uint64_t reserved = 0, used = 0;
    for (const weir__chunk *chunk = pool->chunks; chunk != NULL; chunk = chunk->next) {
        chunk_verify(chunk);
        reserved += chunk->bytes;
        used += chunk->bytes - chunk->free_bytes;
    }
    WEIR_CHECK(reserved == pool->reserved_bytes && used == pool->used_bytes,
               "a pool is miscounted");
    WEIR_CHECK(pool->options.max_bytes == 0 || reserved <= pool->options.max_bytes,
               "a pool outgrew its bound");
}
