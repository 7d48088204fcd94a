/* pool_share.c - how a pool's memory is divided between streams, so that each comes to
 * have what it needs, and none has to take from another again and again.
 *
 * A stream has memory of its own once it has freed some, or was given a piece: of what
 * is nobody's, or of what another stream left idle. A piece is larger than the request
 * that it is for; what is freed in it merges with what is left of it. As long as little
 * lies idle under other streams' clocks, which is the pool's slack, the pool grows
 * before a stream waits for another. So where several streams go on as before, each
 * has enough after a while, and nobody looks beyond his own; and no more than the slack
 * lies idle while the pool grows.
 *
 * Where there is an end to what the pool can hold, all of this goes by how much of that
 * has never been out: its room. Memory is spent on speed where that is large; not where
 * it is small, nor while more and more is out, for nobody knows how much that will be.
 * And where the pool cannot grow and little is left, nobody cuts up what is his own
 * before he has looked at what all have; now and then who does so waits for all others,
 * and merges what lies side by side of several.
 *
 * What threads keep is in the way of what could be whole: once the pool had to grow
 * though it had room enough, in pieces of several streams, they keep less, for a while:
 * by then it has grown enough, or it comes to that again. But a pool that took
 * everything back from them before it grew would have next to nothing free, and threads
 * nothing to keep: as long as that is the case it grows first. What is next to nothing,
 * and what is much, goes by how many threads keep much: else several, of which each has
 * enough, would take it from each other for ever. Not so what grows in place. */
#include "internal.h"
#include "pool_internal.h"
#include "pool_seats.h"
#include "pool_share.h"

#ifdef WEIR_TESTING /* what is said by the option only, so that what is rare happens */
#define POOL_SLACK_LEAST ((size_t)0)
#define POOL_SLACK_SHARE SIZE_MAX
#define POOL_PIECE_LEAST ((size_t)2 << WEIR__HEAP_GRAIN_BITS)
#define POOL_FEW_BLOCKS  16u
#define POOL_CACHE_SHARE 1u
#define POOL_SHORT_CACHES 1u
#define POOL_FRAYED_LEAST ((size_t)4 << WEIR__HEAP_GRAIN_BITS)
#define POOL_WARY_CACHES  ((size_t)16 << WEIR__HEAP_GRAIN_BITS)
#define POOL_UNLOOKED_MOST 4u
#define POOL_FORGETS_AFTER 256u
#define POOL_SETTLES_AFTER 16u
#define POOL_ROOM_LEAST    ((size_t)16 << WEIR__HEAP_GRAIN_BITS)
#define POOL_TAKES_BACK    64u
#else
#define POOL_SLACK_LEAST ((size_t)32 << 20)
#define POOL_SLACK_SHARE ((size_t)32)
#define POOL_PIECE_LEAST ((size_t)1 << 20)
#define POOL_FEW_BLOCKS  64u
#define POOL_CACHE_SHARE 64u
#define POOL_SHORT_CACHES 1024u
#define POOL_FRAYED_LEAST ((size_t)1 << 20)
#define POOL_WARY_CACHES  ((size_t)32 << 20)
#define POOL_UNLOOKED_MOST 256u
#define POOL_FORGETS_AFTER (1u << 20)
#define POOL_SETTLES_AFTER 1024u
#define POOL_ROOM_LEAST    ((size_t)4 << 20)
#define POOL_TAKES_BACK    4096u
#endif
#define POOL_CACHE_LEAST          ((size_t)64 << 20)
#define POOL_CACHE_LONE           ((size_t)128 << 20)
#define POOL_CACHE_LEAST_IN_PLACE ((size_t)32 << 20)
/* Little is left: so large a part of what is held. A block fits badly that is larger by
 * more than such a part of the request. */
#define POOL_SCARCE_SHARE      4u
#define POOL_POOR_SHARE        32u
#define POOL_BLOCKS_PER_GATHER 64u
/* So large a part of what is held may be free in pieces. */
#define POOL_FRAYED_SHARE      16u
/* Beyond the first few, one block in so many allocations is taken back. */
#define POOL_BACK_SHARE        64u

/* Of what a pool that has an end can hold so many of 16 parts are room enough; more
 * where several streams have left memory. So large a part of the room may lie idle, or
 * in a cache. What is out is looked at when it may be more by one of the parts. */
#define POOL_PARTS        16u
#define POOL_ROOMY        6u
#define POOL_ROOMY_SHARED 8u
#define POOL_ROOM_SHARE   8u
#define POOL_GROWTH_LEAST ((size_t)8 << 20)
#define POOL_GROWTH_MOST  ((size_t)256 << 20)
#define POOL_GROWTH_IN_PLACE ((size_t)2 << 20)

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Few chunks, for each costs a call and none merges with another; and little too
 * much, for what is drawn stays. By default a power of two between an eighth and a
 * quarter of what is held: on recorded training runs that held less on average than
 * any one size, with fewer calls. What grows in place is asked for as little as can be:
 * it is one stretch all the same, and upstream rounds as it likes. */
size_t weir__pool_growth_now(const weir__pool *self)
{
    size_t growth = self->options.growth_bytes;
    if (growth != 0)
        return growth;
    if (self->up.can_extend)
        return POOL_GROWTH_IN_PLACE;
    growth = POOL_GROWTH_LEAST;
    while (growth < POOL_GROWTH_MOST && growth <= self->held_bytes / 8)
        growth *= 2;
    return growth;
}

/* How much more could be out than has been; SIZE_MAX where there is no end of it. */
static size_t room_bytes(const weir__pool *self)
{
    const size_t end = self->end_bytes;
    return end == SIZE_MAX ? SIZE_MAX : end - least(end, self->peak_bytes);
}

/* What may lie idle while the pool grows. Nobody else changes what is held. */
static size_t slack_bytes(const weir__pool *self)
{
    size_t slack = self->options.slack_bytes;
    if (slack == WEIR_POOL_NO_SLACK)
        return 0;
    if (slack == 0)
        slack = most(POOL_SLACK_LEAST, self->held_bytes / POOL_SLACK_SHARE);
    return self->has_room ? least(slack, room_bytes(self) / POOL_ROOM_SHARE) : 0;
}

bool weir__pool_has_slack(const weir__pool *self)
{
    return slack_bytes(self) > 0;
}

bool weir__pool_grows_freely(const weir__pool *self)
{
    return !self->is_short && weir__pool_has_slack(self);
}

/* ---- pieces ---- */

/* With few blocks all of them are looked at anyway, when it comes to the worst. */
static bool is_scarce_locked(const weir__pool *self) WEIR_REQUIRES(self->lock)
{
    const weir__heap *heap = &self->heap;
    return self->is_short && heap->taken_blocks >= POOL_FEW_BLOCKS &&
           heap->owning_count > 1 &&
           (self->is_tight ||
            heap->bytes - heap->taken_bytes < heap->bytes / POOL_SCARCE_SHARE);
}

/* A capture's memory is kept apart, and released as a whole; with one stream all is
 * that one's anyway. */
static bool may_want_pieces(const weir__request *request)
{
    const weir__pool *self = request->pool;
    return slack_bytes(self) > 0 && request->owner->kind != WEIR__POOL_CAPTURE &&
           !weir__order_has_one_stream(self->order);
}

/* Where little is left nobody takes more than he needs. */
static bool wants_pieces_locked(const weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    return may_want_pieces(request) && !is_scarce_locked(request->pool);
}

/* The first `bytes` bytes of a HELD block with one mark, or all of it, become the
 * stream's, behind `mark`; the rest is as it was. False: no host memory, and so is the
 * block. */
static bool cut_piece_locked(weir__request *request, uint32_t block, size_t bytes,
                             weir__mark mark) WEIR_REQUIRES(request->pool->lock)
{
    weir__heap *heap = &request->pool->heap;
    if (!weir__heap_promise(heap)) /* besides what the request was promised */
        return false;
    const weir__heap_block *it = weir__heap_block_of(heap, block);
    size_t room = weir__heap_bytes(it) - weir__heap_gap(it, request->alignment);
    weir__mark left = weir__heap_mark(heap, block);
    uint32_t piece =
        weir__heap_hand_out(heap, (weir__heap_run){ block, block }, least(bytes, room),
                            request->alignment, left, left);
    weir__heap_set_tag(weir__heap_block_of(heap, piece), WEIR__HEAP_CACHED);
    (void)weir__heap_release(heap, piece, mark);
    weir__heap_forget_promise(heap);
    request->has_piece = true;
    return true;
}

/* The same of a FREE block that the stream may take. */
static bool take_piece_locked(weir__request *request, uint32_t block, size_t bytes,
                              weir__mark mark) WEIR_REQUIRES(request->pool->lock)
{
    weir__heap *heap = &request->pool->heap;
    weir__pool_note_dropped_locked(request->pool);
    weir__heap_hold(heap, block);
    if (cut_piece_locked(request, block, bytes, mark))
        return true;
    (void)weir__heap_release(heap, block, weir__heap_mark(heap, block));
    return false;
}

/* As many whole requests as fit into `bytes` bytes, at least one: where all are alike
 * nothing is left over between pieces. */
static size_t whole_requests(const weir__request *request, size_t bytes)
{
    return most(request->bytes, bytes - bytes % request->bytes);
}

bool weir__pool_take_fresh_locked(weir__request *request, uint32_t block)
{
    const size_t part = weir__pool_growth_now(request->pool) / 8;
    const size_t bytes = least(most(POOL_PIECE_LEAST, part),
                               room_bytes(request->pool) / POOL_ROOM_SHARE);
    /* Mark 0 of any clock is done: what is never used stays for all to take. */
    return wants_pieces_locked(request) &&
           take_piece_locked(request, block, whole_requests(request, bytes),
                             (weir__mark){ request->clock, 0 });
}

static size_t piece_bytes(const weir__request *request)
{
    return whole_requests(request, slack_bytes(request->pool) / 4);
}

size_t weir__pool_piece_bytes_locked(const weir__request *request)
{
    return wants_pieces_locked(request) ? piece_bytes(request) : request->bytes;
}

bool weir__pool_take_known_locked(weir__request *request, uint32_t block)
{
    weir__pool *self = request->pool;
    size_t bytes = weir__pool_piece_bytes_locked(request);
    if (bytes == request->bytes)
        return false;
    weir__mark mark = { request->clock, 0 };
    if (!weir__order_may_take(self->order, 0, weir__heap_mark(&self->heap, block))) {
        if (!weir__pool_marks_later(request))
            return false;
        mark = weir__order_mark_here(self->order, request->clock);
    }
    return take_piece_locked(request, block, bytes, mark);
}

weir__mark weir__pool_piece_mark(const weir__request *request)
{
    weir__order *order = request->pool->order;
    if (!may_want_pieces(request) || piece_bytes(request) == request->bytes)
        return WEIR__MARK_DONE;
    return weir__pool_marks_later(request)
               ? weir__order_mark_here(order, request->clock)
               : weir__order_mark_closed(order, request->clock);
}

bool weir__pool_take_waited_locked(weir__request *request, uint32_t block,
                                   weir__mark mark)
{
    if (mark.clock == 0) /* there was one stream when it was asked for: now another may
                            have come, for whom it is not done */
        return false;
    size_t bytes = weir__pool_piece_bytes_locked(request);
    return bytes > request->bytes && cut_piece_locked(request, block, bytes, mark);
}

/* ---- growth before waiting ---- */

/* What is free under other clocks than the request's and could be had by a wait. */
static size_t idle_bytes_locked(const weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    const weir__pool *self = request->pool;
    const weir__heap_owner *owner;
    size_t bytes = self->depot.bytes;
    for (uint32_t slot = WEIR__OWNER_ASIDE + 1;
         (owner = weir__heap_next_owner(&self->heap, &slot)) != NULL; slot++) {
        weir__mark latest = { owner->clock, owner->latest };
        if (owner != request->owner &&
            weir__order_can_wait(self->order, request->clock, latest))
            bytes += owner->free_bytes;
    }
    return bytes;
}

bool weir__pool_grows_first(const weir__request *request)
{
    weir__pool *self = request->pool;
    if (!weir__pool_grows_freely(self))
        return false;
    if (self->held_bytes < slack_bytes(self)) /* so nothing that is idle is more */
        return request->owner->kind != WEIR__POOL_CAPTURE;
    if (!may_want_pieces(request))
        return false;
    weir__mutex_lock(&self->lock);
    size_t idle = weir__pool_is_wary(self) ? 0 : idle_bytes_locked(request);
    weir__mutex_unlock(&self->lock);
    return idle > 0 && idle < slack_bytes(self);
}

/* So much is out of a pool that has an end. It is settled once as many blocks have
 * come back as are out since it was last much more than ever: before, nobody knows how
 * much it will be. Looks again then, and once more is taken of the heap than ever, by
 * one of the parts. */
static void note_out_locked(weir__pool *self, size_t bytes) WEIR_REQUIRES(self->lock)
{
    const size_t part = most(self->end_bytes / POOL_PARTS, WEIR__HEAP_GRAIN);
    const size_t parts = weir__pool_is_shared(self) ? POOL_ROOMY_SHARED : POOL_ROOMY;
    if (self->end_bytes == SIZE_MAX)
        return;
    self->look_above = most(self->look_above, self->heap.taken_bytes + part);
    if (self->releases >= self->look_at) {
        self->is_settled = true;
        self->look_at = UINT64_MAX;
    }
    const bool is_first = self->look_at == UINT64_MAX && !self->is_settled;
    if (is_first || (bytes >= part && bytes - part > self->peak_bytes)) {
        self->peak_bytes = most(self->peak_bytes, bytes);
        self->is_settled = false;
        self->look_at =
            self->releases + most(self->heap.taken_blocks, POOL_SETTLES_AFTER);
    }
    self->has_room = self->is_settled && !self->is_tight &&
                     room_bytes(self) >= most(parts * part, POOL_ROOM_LEAST);
}

/* How much is free, what threads keep included; and how many of them keep much. Under
 * closed gates. */
static size_t look_at_kept(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    const weir__kept kept = weir__pool_kept_locked(self);
    const size_t taken = self->heap.taken_bytes;
    size_t bytes = self->heap.bytes - taken + kept.bytes;
    self->threads = most(kept.threads, 1);
    note_out_locked(self, taken - least(taken, kept.bytes));
    weir__pool_note_cut_locked(self);
    weir__mutex_unlock(&self->lock);
    self->unlooked = 0;
    return bytes;
}

/* What was taken back threads miss, block by block: there is an end to that. */
static bool has_taken_enough_locked(const weir__pool *self) WEIR_REQUIRES(self->lock)
{
    return self->taken_back >
           POOL_TAKES_BACK + self->counts.allocations / POOL_BACK_SHARE;
}

bool weir__pool_leaves_caches(weir__pool *self)
{
    size_t bytes = look_at_kept(self), slack = slack_bytes(self);
    weir__mutex_lock(&self->lock);
    const bool is_enough = has_taken_enough_locked(self);
    weir__mutex_unlock(&self->lock);
    size_t each = self->lone_bytes + least(slack, SIZE_MAX - self->lone_bytes);
    return !self->up.can_extend && weir__pool_grows_freely(self) &&
           (is_enough || bytes / self->threads < each);
}

/* Threads keep less from now on: for a while, unless the pool grows in place. */
static void note_locked(weir__pool *self, bool *why) WEIR_REQUIRES(self->lock)
{
    *why = true;
    if (!self->up.can_extend)
        self->forget_at = self->releases + POOL_FORGETS_AFTER;
}

/* It is frayed if there is much room, and enough, of several streams; or of whichever,
 * if it grows in place, so that little is free. */
void weir__pool_note_frayed(const weir__request *request)
{
    weir__pool *self = request->pool;
    weir__mutex_lock(&self->lock);
    size_t room = self->heap.bytes - self->heap.taken_bytes;
    size_t much = self->cut_bytes;
    if (!self->up.can_extend)
        much = most(much, self->held_bytes / POOL_FRAYED_SHARE);
    if (room >= request->bytes && room / self->threads > much &&
        (self->up.can_extend ||
         (weir__pool_is_shared(self) && !has_taken_enough_locked(self))))
        note_locked(self, &self->is_frayed);
    weir__mutex_unlock(&self->lock);
}

/* ---- where the pool cannot grow ---- */

void weir__pool_note_end(weir__pool *self)
{
    const bool has_end = self->end_bytes != SIZE_MAX;
    self->look_above = has_end ? 0 : SIZE_MAX; /* at once, or never */
    self->look_at = has_end ? self->look_at : UINT64_MAX;
    self->is_settled = self->is_settled && has_end;
    self->has_room = !has_end || (self->has_room && self->is_settled);
}

void weir__pool_note_tight(const weir__request *request)
{
    weir__pool *self = request->pool;
    const weir__heap *heap = &self->heap;
    /* With nothing to spare: else it may be served yet. */
    const size_t bytes = weir__pool_whole_grains(request->asked_bytes);
    weir__mutex_lock(&self->lock);
    if (self->is_short && request->owner->kind != WEIR__POOL_CAPTURE &&
        heap->bytes - heap->taken_bytes >= bytes &&
        weir__heap_largest_free(heap) < bytes) {
        self->is_tight = true;
        self->has_room = false;
    }
    weir__mutex_unlock(&self->lock);
}

void weir__pool_note_room_locked(weir__pool *self, bool is_refused)
{
    const size_t room = self->options.limit_bytes - self->held_bytes,
                 was = self->end_bytes;
    self->is_short = is_refused || room < weir__pool_growth_now(self);
    self->end_bytes = is_refused ? self->held_bytes : self->options.limit_bytes;
    self->is_tight = self->is_tight && self->is_short;
    if (self->end_bytes != was)
        weir__pool_note_end(self);
    weir__pool_note_cut_locked(self);
}

void weir__pool_forget_peak_locked(weir__pool *self)
{
    self->peak_bytes = 0;
    self->is_tight = self->is_settled = false;
    self->look_at = UINT64_MAX; /* the next look is as the first */
    weir__pool_note_end(self);
}

bool weir__pool_is_poor_locked(const weir__pool *self, uint32_t block, size_t bytes)
{
    if (block == 0 || !is_scarce_locked(self))
        return false;
    size_t room = weir__heap_bytes(weir__heap_block_of(&self->heap, block));
    return room - bytes > bytes / POOL_POOR_SHARE;
}

bool weir__pool_declines_locked(weir__request *request, uint32_t block)
{
    bool declines = !request->is_thorough && !request->has_piece &&
                    weir__pool_is_poor_locked(request->pool, block, request->bytes);
    request->has_declined = request->has_declined || declines;
    return declines;
}

uint32_t weir__pool_spare_grains(const weir__pool *self)
{
    return !self->options.exact && self->has_room ? WEIR__SPARE_MOST : 0;
}

/* By default more where more is held, in steps, for each closes the gates. */
size_t weir__pool_cache_most(const weir__pool *self)
{
    if (self->options.cache_bytes != 0)
        return self->options.cache_bytes;
    size_t bytes = self->up.can_extend ? POOL_CACHE_LEAST_IN_PLACE : POOL_CACHE_LEAST;
    size_t share = self->held_bytes / POOL_CACHE_SHARE;
    return most(bytes, share - share % (bytes / 4));
}

/* A thread with one stream keeps as much of it as one with two of both, where that is
 * left to the pool and nothing is in the way. */
size_t weir__pool_lone_most(const weir__pool *self, size_t cache_bytes)
{
    const bool is_default = self->options.cache_bytes == 0 && !self->up.can_extend &&
                            cache_bytes == weir__pool_cache_most(self);
    return is_default ? most(cache_bytes, POOL_CACHE_LONE) : cache_bytes;
}

void weir__pool_note_crowd(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    if (weir__pool_is_wary(self))
        note_locked(self, &self->is_crowded);
    weir__mutex_unlock(&self->lock);
}

/* Crowded it is until one stream has all that is free: what threads keep makes holes in
 * what others leave. */
static void forget(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    const bool is_over = self->releases >= self->forget_at;
    if (is_over)
        self->forget_at = UINT64_MAX;
    self->is_frayed = self->is_frayed && !is_over;
    self->is_crowded = self->is_crowded && !is_over && weir__pool_is_shared(self);
    weir__mutex_unlock(&self->lock);
}

void weir__pool_fit_caches(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    const bool looks = weir__pool_wants_look_locked(self);
    weir__mutex_unlock(&self->lock);
    if (looks || self->unlooked++ >= POOL_UNLOOKED_MOST) {
        weir__pool_seats_close(self);
        (void)look_at_kept(self);
        weir__pool_seats_open(self);
    }
    forget(self);
    size_t bytes = weir__pool_cache_most(self);
    uint32_t spare = weir__pool_spare_grains(self);
    if (atomic_load_explicit(&self->spare_grains, memory_order_relaxed) != spare)
        atomic_store_explicit(&self->spare_grains, spare, memory_order_relaxed);
    if (self->is_short)
        bytes = least(bytes, most(self->held_bytes / POOL_SHORT_CACHES,
                                  self->has_room ? room_bytes(self) / POOL_ROOM_SHARE
                                                 : 0));
    else if (self->is_frayed)
        bytes = least(bytes, most(POOL_FRAYED_LEAST,
                                  self->held_bytes / POOL_SHORT_CACHES));
    else if (self->is_crowded)
        bytes = least(bytes, POOL_WARY_CACHES);
    const size_t lone_bytes = weir__pool_lone_most(self, bytes);
    if (bytes == self->cache_bytes && lone_bytes == self->lone_bytes)
        return;
    bool takes_back = bytes < self->cache_bytes && (self->is_short || self->is_frayed);
    weir__pool_seats_close(self); /* nobody looks at it outside of his gate */
    self->cache_bytes = bytes;
    self->lone_bytes = lone_bytes;
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next)
        weir__seat_fit(self, seat);
    weir__pool_seats_open(self);
    if (takes_back) /* else it goes as more comes back */
        weir__pool_flush_caches(self);
}

void weir__pool_do_chores(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    const bool lays_by = self->wants_spare_seat;
    const bool fits = self->releases >= self->forget_at ||
                      weir__pool_wants_look_locked(self);
    weir__mutex_unlock(&self->lock);
    if (lays_by)
        weir__pool_lay_by_seat(self);
    if (!fits || !weir__mutex_try(&self->miss)) /* who has it fits them himself */
        return;
    weir__pool_fit_caches(self);
    weir__mutex_unlock(&self->miss);
}

static bool may_take(void *request, uint32_t block)
{
    return weir__pool_may_take(request, block);
}

static weir__mark mark_here(void *context)
{
    const weir__request *request = context;
    return weir__order_mark_here(request->pool->order, request->clock);
}

/* The stream waits for all that others have left. What cannot be waited for is left
 * out, and what comes meanwhile. */
static void wait_for_all_locked(weir__request *request)
    WEIR_REQUIRES(request->pool->lock)
{
    weir__pool *self = request->pool;
    const weir__heap_owner *owner;
    for (uint32_t slot = WEIR__OWNER_ASIDE + 1;
         (owner = weir__heap_next_owner(&self->heap, &slot)) != NULL; slot++) {
        weir__mark latest = { owner->clock, owner->latest };
        if (owner == request->owner ||
            !weir__order_can_wait(self->order, request->clock, latest))
            continue;
        weir__mutex_unlock(&self->lock);
        (void)weir__order_wait(self->order, request->clock, request->stream, latest);
        weir__mutex_lock(&self->lock);
    }
}

bool weir__pool_gather_locked(weir__request *request)
{
    weir__pool *self = request->pool;
    const weir__heap_merger merger = { may_take, mark_here, request };
    /* Of a capture no event is to be had either. */
    if (!is_scarce_locked(self) || self->releases < self->gather_at ||
        !weir__pool_marks_later(request))
        return false;
    wait_for_all_locked(request);
    /* What came back meanwhile does not count, and one more: so who asks goes on to
     * take what he then finds. */
    self->gather_at =
        self->releases + self->heap.taken_blocks / POOL_BLOCKS_PER_GATHER + 1;
    weir__pool_note_dropped_locked(self);
    (void)weir__heap_merge(&self->heap, &merger);
    return true;
}
