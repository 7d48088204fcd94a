/* pool_seats.c - how the seats and caches of a pool's threads begin and end, and how
 * others take what is in them.
 *
 * The lock `seats` is held by who makes a seat, and by flushers from closing the gates
 * to opening them again; never by a thread inside of its gate. Under closed gates a
 * flusher takes marks and records events: it holds no lock then that a thread inside
 * may be waiting for. */
#include "pool_seats.h"

#include <string.h>

#include "internal.h"
#include "pool_hit.h"
#include "pool_internal.h"

#define SEATS_SWEPT_AT 32u

weir__seat weir__no_seat;
weir__cache weir__no_cache = { .stream = (weir_stream)&weir__no_cache,
                               .alias = (weir_stream)&weir__no_cache };

/* ---- the calling thread's seats ---- */

weir__seat *weir__seat_search(const weir__pool *pool)
{
    weir__thread *thread = &weir__own_thread;
    weir__seat *seat = thread->caches != NULL ? thread->caches->mine : NULL;
    while (seat != NULL && seat->pool != pool)
        seat = seat->next_mine;
    if (seat != NULL)
        thread->seat = seat;
    return seat;
}

static void seat_free(weir__seat *seat)
{
    weir__host_free(seat->caches);
    weir__host_free(seat);
}

/* Frees the calling thread's seats whose pools have let go of them. */
static void sweep_mine(weir__thread_caches *caches)
{
    weir__seat **link = &caches->mine;
    while (*link != NULL) {
        weir__seat *seat = *link;
        if (!weir__seat_is_dead(seat)) {
            link = &seat->next_mine;
            continue;
        }
        *link = seat->next_mine;
        if (weir__own_thread.seat == seat)
            weir__own_thread.seat = &weir__no_seat;
        seat_free(seat);
    }
}

/* Once none is left, nothing of the thread is. */
static void sweep_here(void)
{
    weir__thread *thread = weir__thread_self();
    if (thread->caches == NULL)
        return;
    sweep_mine(thread->caches);
    if (thread->caches->mine == NULL) {
        weir__host_free(thread->caches);
        thread->caches = NULL;
    }
}

/* ---- closed gates ---- */

/* All seats are the caller's from now on. */
static void close_gates(weir__pool *self) WEIR_REQUIRES(self->seats_lock)
{
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next)
        weir__gate_close_begin(&seat->gate);
    if (self->seats != NULL)
        weir__gate_barrier();
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next)
        weir__gate_close_wait(&seat->gate);
}

/* Opens them again, but for those whose threads are gone: these are freed. */
static void open_gates(weir__pool *self) WEIR_REQUIRES(self->seats_lock)
{
    weir__seat **link = &self->seats;
    self->seat_count = 0;
    while (*link != NULL) {
        weir__seat *seat = *link;
        if (!seat->is_left) {
            weir__gate_open(&seat->gate);
            link = &seat->next;
            self->seat_count++;
            continue;
        }
        *link = seat->next;
        seat_free(seat);
    }
    self->sweep_at = self->seat_count * 2 + SEATS_SWEPT_AT;
}

/* ---- emptying ---- */

void weir__pool_settle_to_locked(weir__pool *self, weir__block_list *list,
                                 weir__heap_owner *owner, uint64_t number)
{
    WEIR_ASSERT(list->count == 0 || list->holder_tag != 0, "a list says whose it is");
    uint32_t id = list->head, i = 0;
    for (; i < list->count; i++) {
        weir__heap_block *block = weir__heap_block_of(&self->heap, id);
        if (WEIR_UNLIKELY(weir__heap_tag(block) != list->holder_tag)) {
            weir__lost lost = { 0 };
            weir__lost_add(&lost, block, weir__heap_grains(block), list->count - i);
            weir__pool_note_lost_locked(self, &lost);
            break;
        }
        uint32_t next = weir__link_of(block);
        (void)weir__heap_release_to(&self->heap, id, block, owner, number);
        id = next;
    }
    self->releases += i;
    *list = (weir__block_list){ .holder_tag = list->holder_tag };
}

void weir__pool_settle_locked(weir__pool *self, weir__block_list *list,
                              weir__mark mark)
{
    if (list->count == 0)
        return;
    mark = weir__pool_owned_mark(self, mark);
    weir__heap_owner *owner = weir__heap_owner_meet(&self->heap, mark.clock);
    weir__pool_settle_to_locked(self, list, owner, mark.number);
}

bool weir__cache_empty(weir__pool *self, weir__cache *cache)
{
    weir__cache_spill_all(cache, &self->heap.view);
    bool any = cache->spill.count > 0 || cache->lost.lists > 0;
    const bool is_foreign = cache->own_of != 0 &&
                            cache->own_of != weir__thread_self()->number;
    if (!any && (cache->unclosed == 0 || is_foreign))
        return false;
    /* Taken now, when all of it is free, and closed before others see it; but for what
     * only its thread can close, which does so when it comes by. */
    weir__mark mark = weir__order_mark_closed(self->order, cache->clock);
    cache->unclosed = is_foreign;
    cache->bytes = 0;
    weir__mutex_lock(&self->lock);
    weir__cache_note_quiet_locked(self, cache);
    weir__pool_note_lost_locked(self, &cache->lost);
    weir__pool_settle_locked(self, &cache->spill, mark);
    weir__mutex_unlock(&self->lock);
    return any;
}

static void cache_end(weir__pool *self, weir__seat *seat, weir__cache *cache)
{
    seat->tally.allocations += cache->allocations;
    seat->tally.deallocations += cache->deallocations;
    weir__mutex_lock(&self->lock);
    weir__heap_owner_at(&self->heap, cache->owner)->pins--;
    weir__mutex_unlock(&self->lock);
    weir__order_let_go(self->order, cache->clock);
    weir__host_free(cache);
}

static bool seat_empty(weir__pool *self, weir__seat *seat)
{
    bool any = false;
    for (uint32_t i = 0; seat->caches != NULL && i <= seat->mask; i++) {
        if (seat->caches[i] != NULL)
            any = weir__cache_empty(self, seat->caches[i]) || any;
    }
    return any;
}

static void seat_end_caches(weir__pool *self, weir__seat *seat)
{
    for (uint32_t i = 0; seat->caches != NULL && i <= seat->mask; i++) {
        if (seat->caches[i] == NULL)
            continue;
        (void)weir__cache_empty(self, seat->caches[i]);
        cache_end(self, seat, seat->caches[i]);
        seat->caches[i] = NULL;
    }
    seat->cache_count = 0;
    seat->out_of = seat->back_to = &weir__no_cache;
}

/* After the caches: what then is in a list is in none that there is. */
static bool empty_depot(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    bool any = self->depot.count > 0 || self->lost.lists > 0;
    while (self->depot.count > 0)
        weir__pool_drain_locked(self);
    weir__pool_gather_lost_locked(self);
    weir__mutex_unlock(&self->lock);
    return any;
}

void weir__pool_seats_close(weir__pool *self)
{
    weir__mutex_lock(&self->seats_lock);
    close_gates(self);
    weir__mutex_lock(&self->lock);
    weir__pool_fold_locked(self);
    weir__mutex_unlock(&self->lock);
}

void weir__pool_seats_open(weir__pool *self)
{
    open_gates(self);
    weir__mutex_unlock(&self->seats_lock);
}

bool weir__pool_empty_caches(weir__pool *self)
{
    bool any = false;
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next)
        any = seat_empty(self, seat) || any;
    return empty_depot(self) || any;
}

void weir__pool_end_caches(weir__pool *self)
{
    weir__pool_seats_close(self);
    self->no_more_seats = true;
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next)
        seat_end_caches(self, seat);
    (void)empty_depot(self);
    for (weir__seat *seat = self->seats, *next; seat != NULL; seat = next) {
        next = seat->next;
        if (seat->is_left) {
            seat_free(seat);
        } else { /* Release: from now on it is its thread's alone. */
            atomic_store_explicit(&seat->is_dead, true, memory_order_release);
            weir__gate_tell(&seat->gate);
        }
    }
    self->seats = NULL;
    weir__mutex_unlock(&self->seats_lock);
    weir__pool_tell_lost_now(self);
    sweep_here();
}

/* Where a table has the stream's cache, or else room for it. */
static uint32_t table_at(weir__cache *const *caches, uint32_t mask, weir_stream stream)
{
    uint32_t at = weir__stream_hash(stream) & mask;
    while (caches[at] != NULL && caches[at]->stream != stream)
        at = (at + 1) & mask;
    return at;
}

/* Takes the cache at `at` out of the table, and puts those behind it where they are
 * found. */
static void table_remove(weir__seat *seat, uint32_t at)
{
    seat->caches[at] = NULL;
    seat->cache_count--;
    seat->out_of = seat->back_to = &weir__no_cache;
    for (uint32_t i = (at + 1) & seat->mask; seat->caches[i] != NULL;
         i = (i + 1) & seat->mask) {
        weir__cache *cache = seat->caches[i];
        seat->caches[i] = NULL;
        seat->caches[table_at(seat->caches, seat->mask, cache->stream)] = cache;
    }
}

void weir__seat_fit(const weir__pool *self, const weir__seat *seat)
{
    const bool is_lone = seat->cache_count == 1;
    for (uint32_t i = 0; seat->caches != NULL && i <= seat->mask; i++) {
        if (seat->caches[i] != NULL)
            seat->caches[i]->most_bytes = is_lone ? self->lone_bytes
                                                  : self->cache_bytes;
    }
}

void weir__seat_forget(weir__pool *self, weir__seat *seat, weir_stream stream,
                       uint64_t clock)
{
    if (seat->caches == NULL)
        return;
    uint32_t at = table_at(seat->caches, seat->mask, stream);
    weir__cache *cache = seat->caches[at];
    if (cache == NULL || (cache->own_of != 0 && cache->clock != clock))
        return;
    table_remove(seat, at);
    if (seat->cache_count == 1)
        weir__seat_fit(self, seat);
    (void)weir__cache_empty(self, cache);
    cache_end(self, seat, cache);
}

void weir__pool_stream_changes(weir__order_listener *listener, weir_stream stream,
                               uint64_t clock)
{
    weir__pool *self = (weir__pool *)(void *)((char *)listener -
                                              offsetof(weir__pool, listener));
    weir__pool_seats_close(self);
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next)
        weir__seat_forget(self, seat, stream, clock);
    weir__pool_seats_open(self);
    /* What went to heap and depot may have a number that no mark was taken for yet. */
    (void)weir__order_mark_closed(self->order, clock);
}

/* ---- beginning ---- */

/* Host memory for what a thread needs: by `alloc`, or where one gives back, which may
 * not ask the host, what has been laid by (spare; else null). */
static void *memory_for(void **spare, size_t bytes, void *(*alloc)(size_t bytes))
{
    if (spare == NULL)
        return alloc(bytes);
    void *memory = *spare;
    *spare = NULL;
    return memory;
}

#define TABLE_FIRST 4u
#define TABLE_SPARE 16u /* who only gives back gets no larger one */

static bool table_grow(weir__seat *seat, weir__spare_seat *spare)
{
    uint32_t old = seat->caches != NULL ? seat->mask + 1 : 0;
    if (seat->cache_count * 2 < old)
        return true;
    if (spare != NULL && old >= TABLE_SPARE)
        return false;
    uint32_t count = spare != NULL ? TABLE_SPARE : old != 0 ? old * 2 : TABLE_FIRST;
    weir__cache **caches = memory_for(spare != NULL ? &spare->table : NULL,
                                      count * sizeof(weir__cache *),
                                      weir__host_alloc);
    if (caches == NULL)
        return false;
    memset(caches, 0, count * sizeof(weir__cache *));
    for (uint32_t i = 0; i < old; i++) {
        weir__cache *cache = seat->caches[i];
        if (cache != NULL)
            caches[table_at(caches, count - 1, cache->stream)] = cache;
    }
    weir__host_free(seat->caches);
    seat->caches = caches;
    seat->mask = count - 1;
    return true;
}

/* A cache for `stream`, whose clock is steady, or the thread's own; inside of the gate.
 * Without memory there is none. */
static weir__cache *cache_add(weir__pool *self, weir__seat *seat, weir_stream stream,
                              weir__spare_seat *spare)
{
    uint64_t clock;
    const _Atomic uint64_t *counter;
    const bool is_own = stream == WEIR_STREAM_PER_THREAD;
    if (!table_grow(seat, spare) ||
        !(is_own ? weir__order_hold_own(self->order, &clock, &counter)
                 : weir__order_steady(self->order, stream, &clock, &counter)))
        return NULL;
    weir__cache *cache = memory_for(spare != NULL ? &spare->cache : NULL, sizeof *cache,
                                    weir__host_alloc_lines);
    if (cache == NULL) {
        weir__order_let_go(self->order, clock);
        return NULL;
    }
    *cache = (weir__cache){ .stream = stream,
                            .alias = stream == WEIR_STREAM_LEGACY ? NULL : stream,
                            .holder_tag = weir__holder_tag(seat->number),
                            .spill.holder_tag = weir__holder_tag(seat->number),
                            .clock = clock, .counter = counter,
                            .own_of = is_own ? weir__thread_self()->number : 0 };
    for (uint32_t i = 0; i < WEIR__SMALL_BINS; i++)
        cache->bins[i].grains = i + 1;
    weir__mutex_lock(&self->lock);
    weir__heap_owner *owner =
        spare != NULL ? weir__heap_owner_find(&self->heap, clock)
                      : weir__heap_owner_get(&self->heap, clock, stream);
    if (owner != NULL)
        weir__pool_add_cache(owner, cache, seat->number);
    weir__mutex_unlock(&self->lock);
    if (owner == NULL) {
        weir__order_let_go(self->order, clock);
        weir__host_free(cache);
        return NULL;
    }
    seat->caches[table_at(seat->caches, seat->mask, stream)] = cache;
    cache->most_bytes = self->cache_bytes;
    if (++seat->cache_count <= 2)
        weir__seat_fit(self, seat);
    if (seat->cache_count == 2)
        weir__seat_shrink(self, seat);
    return cache;
}

/* Seats of threads that have ended stay until somebody closes the gates. Where many
 * threads come and go, who comes does, each time when there are twice as many as were
 * left. */
static void sweep_left(weir__pool *self)
{
    weir__mutex_lock(&self->seats_lock);
    bool many = self->seat_count >= self->sweep_at;
    weir__mutex_unlock(&self->seats_lock);
    if (!many)
        return;
    weir__pool_seats_close(self);
    weir__pool_seats_open(self);
}

static weir__seat *seat_add(weir__pool *self, weir__thread_caches *caches,
                            weir__spare_seat *spare)
{
    sweep_left(self);
    weir__seat *seat = memory_for(spare != NULL ? &spare->seat : NULL, sizeof *seat,
                                  weir__host_alloc_lines);
    if (seat == NULL)
        return NULL;
    const bool is_quick = weir__own_thread.baton == NULL || self->listens;
    *seat = (weir__seat){ .pool = self, .quick = is_quick ? self : NULL,
                          .out_of = &weir__no_cache, .back_to = &weir__no_cache,
                          .gives_back = spare != NULL };
    weir__gate_init(&seat->gate);
    weir__mutex_lock(&self->seats_lock);
    bool is_late = self->no_more_seats;
    if (!is_late) {
        self->seat_number = self->seat_number % WEIR__HOLDER_MAX + 1; /* 0: nobody */
        seat->number = self->seat_number;
        seat->next = self->seats;
        self->seats = seat;
        self->seat_count++;
    }
    weir__mutex_unlock(&self->seats_lock);
    if (is_late) {
        weir__host_free(seat);
        return NULL;
    }
    seat->next_mine = caches->mine;
    caches->mine = seat;
    return seat;
}

/* ---- the end of a thread ---- */

static bool leave_seat(weir__seat *seat)
{
    if (!weir__gate_enter(&seat->gate))
        return false;
    seat_end_caches(seat->pool, seat);
    seat->is_left = true;
    weir__gate_leave(&seat->gate); /* from here on it is the pool's */
    return true;
}

/* A gate that is closed is a flusher's, who will open it, or let go of the seat. */
static void seat_leave(weir__seat *seat)
{
    while (!leave_seat(seat)) {
        if (weir__seat_is_dead(seat)) {
            seat_free(seat);
            return;
        }
        weir__gate_await(&seat->gate);
    }
}

static void caches_end(void *context)
{
    weir__thread_caches *caches = context;
    for (weir__seat *seat = caches->mine, *next; seat != NULL; seat = next) {
        next = seat->next_mine;
        seat_leave(seat);
    }
    weir__host_free(caches);
}

static weir__thread_caches *caches_here(weir__spare_seat *spare)
{
    weir__thread *thread = weir__thread_self();
    if (thread->caches != NULL ||
        !weir__thread_watch_exit(WEIR__KEEPS_CACHES, caches_end))
        return thread->caches;
    weir__thread_caches *caches =
        memory_for(spare != NULL ? &spare->caches : NULL, sizeof *caches,
                   weir__host_alloc);
    if (caches != NULL) {
        memset(caches, 0, sizeof *caches);
        thread->caches = caches;
    }
    return caches;
}

/* Returns the home of the cache, or HOMES if there is none. */
static uint32_t take_seat(weir__pool *self, weir_stream stream, weir__spare_seat *spare)
{
    weir__thread_caches *caches = caches_here(spare);
    if (caches == NULL || (stream == WEIR_STREAM_PER_THREAD &&
                           !weir__pool_watch_own(self)))
        return WEIR__HEAP_HOMES;
    weir__seat *seat = weir__seat_search(self);
    if (seat != NULL && weir__seat_is_dead(seat)) {
        sweep_mine(caches);
        seat = NULL;
    }
    if (seat == NULL) {
        sweep_mine(caches);
        seat = seat_add(self, caches, spare);
    }
    if (seat == NULL || !weir__gate_enter(&seat->gate))
        return WEIR__HEAP_HOMES;
    const weir__cache *cache = weir__cache_find(seat, stream);
    if (cache == NULL)
        cache = cache_add(self, seat, stream, spare);
    uint32_t home = cache != NULL ? cache->home : WEIR__HEAP_HOMES;
    weir__gate_leave(&seat->gate);
    return home;
}

uint32_t weir__pool_take_seat(weir__pool *self, weir_stream stream)
{
    return self->gate_bytes != 0 ? take_seat(self, stream, NULL) : WEIR__HEAP_HOMES;
}

/* ---- threads that only give back ---- */

void weir__spare_seat_clear(weir__spare_seat *spare)
{
    weir__host_free(spare->caches);
    weir__host_free(spare->seat);
    weir__host_free(spare->table);
    weir__host_free(spare->cache);
    *spare = (weir__spare_seat){ 0 };
}

void weir__pool_lay_by_seat(weir__pool *self)
{
    weir__spare_seat made = { weir__host_alloc(sizeof(weir__thread_caches)),
                              weir__host_alloc_lines(sizeof(weir__seat)),
                              weir__host_alloc(TABLE_SPARE * sizeof(weir__cache *)),
                              weir__host_alloc_lines(sizeof(weir__cache)) };
    bool is_whole = made.caches != NULL && made.seat != NULL && made.table != NULL &&
                    made.cache != NULL;
    weir__mutex_lock(&self->lock);
    self->wants_spare_seat = false;
    if (is_whole && self->spare_seat.cache == NULL) {
        self->spare_seat = made;
        made = (weir__spare_seat){ 0 };
    }
    weir__mutex_unlock(&self->lock);
    weir__spare_seat_clear(&made);
}

void weir__pool_take_spare_seat(weir__pool *self, weir_stream stream)
{
    uint64_t clock;
    const _Atomic uint64_t *counter;
    const weir__seat *seat = weir__seat_here(self);
    bool has_one = seat != NULL && !seat->gives_back && !weir__seat_is_dead(seat);
    if (self->gate_bytes == 0 || has_one ||
        !weir__order_steady(self->order, stream, &clock, &counter))
        return;
    weir__mutex_lock(&self->lock);
    weir__spare_seat spare = self->spare_seat;
    self->spare_seat = (weir__spare_seat){ 0 };
    self->wants_spare_seat = spare.cache == NULL;
    weir__mutex_unlock(&self->lock);
    if (spare.cache == NULL)
        return;
    (void)take_seat(self, stream, &spare);
    weir__spare_seat_clear(&spare);
}

void weir_thread_flush(void)
{
    weir__thread_caches *caches = weir__thread_self()->caches;
    if (caches == NULL || weir__enter() != WEIR_OK)
        return;
    for (weir__seat *seat = caches->mine; seat != NULL; seat = seat->next_mine) {
        bool is_in;
        while (!(is_in = weir__gate_enter(&seat->gate)) && !weir__seat_is_dead(seat))
            weir__gate_await(&seat->gate); /* who has it need not empty it */
        if (!is_in)
            continue;
        (void)seat_empty(seat->pool, seat);
        weir__gate_leave(&seat->gate);
    }
    sweep_here();
}
