/* support_buffer_player.c - see support_buffer_player.h: how buffers move and end, and
 * the play. */
#include "support_buffer_player.h"

#include <string.h>

#include "support_buffer_parts.h"
#include "weir/weir.h"

atomic_uint_least64_t player_counts[PLAYER_OP_COUNT];
atomic_uint_least64_t player_refusals, player_checks;

const char *player_op_name(player_op op)
{
    static const char *const names[] = {
#define X(name) #name,
        PLAYER_OPS(X)
#undef X
    };
    return names[op];
}

/* ---- size ---- */

/* The bytes have moved to a block of their own, as whose only holder. */
static void has_moved(player *self, player_slot *slot, size_t kept)
{
    player_storage *old = slot->storage;
    size_t first = slot->first;
    player_storage *made = player_storage_take(self, true, slot->buffer.capacity);
    if (old != NULL && kept > 0)
        memcpy(made->keys, &old->keys[first], kept * sizeof(uint64_t));
    player_holder_leaves(slot);
    slot->storage = made;
    slot->first = 0;
}

/* After a success: where the bytes are, and which of them are as before. */
static void has_resized(player *self, player_slot *slot, weir_buffer before, int stream)
{
    size_t kept = before.size / CELL;
    kept = player_cells_of(slot) < kept ? player_cells_of(slot) : kept;
    must(slot->buffer.resource == self->scene->pool);
    must(slot->buffer.stream == player_stream_of(self, stream));
    if (slot->buffer.data == NULL)
        player_holder_leaves(slot);
    else if (slot->buffer.data != before.data ||
             slot->buffer.capacity != before.capacity)
        has_moved(self, slot, kept);
    player_storage *storage = slot->storage;
    if (storage != NULL && !storage->is_common) {
        memset(&storage->keys[slot->first + kept], 0,
               (PLAYER_CELLS - slot->first - kept) * sizeof(uint64_t));
        storage->met_others = true;
    }
    slot->stream = stream;
}

static bool is_foreign(const player_slot *slot)
{
    return slot->storage != NULL && !slot->storage->is_block;
}

static bool do_size(player *self, player_op op)
{
    player_slot *slot = player_any_slot(self);
    weir_buffer before = slot->buffer;
    int s = player_any_stream(self);
    weir_stream stream = player_stream_of(self, s);
    bool empties = op == PLAYER_RESIZE && player_draw(self, 6) == 0;
    size_t bytes = empties ? 0 : player_any_bytes(self);
    bool may = slot->storage == NULL ? before.resource != NULL
                                     : player_could_be_alone(slot) && !is_foreign(slot);
    bool must_do = may && (slot->storage == NULL || player_is_alone(slot));
    weir_status refusal = slot->storage == NULL ? WEIR_NOT_SUPPORTED : WEIR_NOT_OWNED;
    weir_status status =
        op == PLAYER_RESIZE    ? weir_buffer_resize(&slot->buffer, bytes, stream)
        : op == PLAYER_RESERVE ? weir_buffer_reserve(&slot->buffer, bytes, stream)
                               : weir_buffer_shrink(&slot->buffer, stream);
    if (!player_is_done(slot, before, may, must_do, refusal, status))
        return true;
    if (op == PLAYER_RESIZE)
        must(slot->buffer.size == bytes && slot->buffer.capacity >= bytes);
    else
        must_equal(slot->buffer.size, before.size);
    if (op == PLAYER_RESERVE)
        must(slot->buffer.capacity >= bytes);
    if (op == PLAYER_SHRINK)
        must(slot->buffer.capacity < before.size + CELL);
    if (op != PLAYER_SHRINK && bytes <= before.capacity)
        must(slot->buffer.data == before.data &&
             slot->buffer.capacity == before.capacity);
    has_resized(self, slot, before, s);
    return true;
}

/* ---- owners ---- */

static bool do_copy(player *self)
{
    player_slot *from = player_slot_with_storage(self), *slot = player_any_slot(self);
    if (from == NULL || from == slot)
        return false;
    player_slot_reset(slot);
    int s = player_any_stream(self);
    weir_resource *mr = player_toss(self) ? self->scene->pool : NULL;
    weir_buffer before = from->buffer;
    weir_status status = weir_buffer_copy(&from->buffer, mr, player_stream_of(self, s),
                                          &slot->buffer);
    must(memcmp(&from->buffer, &before, sizeof before) == 0);
    if (mr == NULL && before.resource == NULL) {
        must_answer(WEIR_NOT_SUPPORTED, status);
        must_be_empty(&slot->buffer);
        return true;
    }
    must_ok(status);
    from->storage->met_others = true;
    must_equal(slot->buffer.size, before.size);
    slot->stream = s;
    if (before.size == 0)
        return true;
    slot->storage = player_storage_take(self, true, before.size);
    slot->first = 0;
    memcpy(slot->storage->keys, &from->storage->keys[from->first],
           player_cells_of(from) * sizeof(uint64_t));
    return true;
}

static bool do_own(player *self)
{
    player_slot *slot = player_slot_with_storage(self);
    if (slot == NULL)
        return false;
    int s = player_any_stream(self);
    weir_buffer before = slot->buffer;
    weir_resource *mr = player_toss(self) ? self->scene->pool : NULL;
    bool is_own = player_is_alone(slot) && !is_foreign(slot);
    bool refuses = !is_own && mr == NULL && before.resource == NULL;
    weir_status status = weir_buffer_own(&slot->buffer, mr, player_stream_of(self, s));
    if (!player_is_done(slot, before, !refuses, !refuses, WEIR_NOT_SUPPORTED, status))
        return true;
    if (is_own)
        must(memcmp(&slot->buffer, &before, sizeof before) == 0);
    if (memcmp(&slot->buffer, &before, sizeof before) == 0)
        return true;
    must(slot->buffer.resource == self->scene->pool);
    must_equal(slot->buffer.size, before.size);
    if (before.size > 0)
        has_moved(self, slot, player_cells_of(slot));
    else
        player_holder_leaves(slot);
    slot->stream = s;
    return true;
}

/* What is released goes back, or is adopted again. */
static bool do_release(player *self)
{
    player_slot *slot = player_any_slot(self);
    weir_buffer before = slot->buffer;
    player_storage *storage = slot->storage;
    weir_released r = { .struct_size = sizeof r };
    bool must_do = player_is_alone(slot);
    weir_status status = weir_buffer_release(&slot->buffer, &r);
    if (!player_is_done(slot, before, player_could_be_alone(slot), must_do,
                        WEIR_NOT_OWNED, status)) {
        must(r.data == NULL && r.ptr == NULL && r.resource == NULL);
        return true;
    }
    must(r.data == before.data && r.size == before.size);
    must(slot->buffer.data == NULL && slot->buffer.resource == before.resource);
    must((r.deleter != NULL) == is_foreign(slot) &&
         (r.resource != NULL) != is_foreign(slot));
    /* All uses are before what is put on this stream: also a write to all. */
    for (size_t i = 0; i < player_cells_of(&(player_slot){ before, NULL, 0, 0 }); i++)
        stamp(self->scene->device, r.stream, (char *)r.data + i * CELL, CELL, 1);
    if (player_toss(self) || is_foreign(slot)) {
        player_holder_leaves(slot);
        must_ok(weir_released_free_sync(self->scene->device, &r));
        must(r.ptr == NULL && r.deleter == NULL);
        must(storage->is_block || atomic_load(&storage->ends) == 1);
        return true;
    }
    player_holder_leaves(slot);
    weir_buffer_reset(&slot->buffer);
    slot->stream = STREAM_LEGACY;
    for (int i = 0; i < PLAYER_STREAMS; i++) {
        if (player_stream_of(self, i) == r.stream)
            slot->stream = i;
    }
    must_ok(weir_buffer_adopt_block(r.resource, r.stream, r.ptr, r.bytes, r.alignment,
                                    &slot->buffer));
    weir_resource_unref(r.resource);
    slot->storage = player_storage_take(self, true, r.bytes);
    slot->first = 0;
    return true;
}

static bool do_reset(player *self)
{
    player_slot *slot = player_any_slot(self);
    bool does = slot->storage != NULL;
    player_slot_reset(slot);
    return does;
}

/* ---- stream order ---- */

static bool do_set_stream(player *self)
{
    player_slot *slot = player_any_slot(self);
    int s = player_any_stream(self);
    weir_buffer before = slot->buffer;
    must_ok(weir_buffer_set_stream(&slot->buffer, player_stream_of(self, s)));
    must(slot->buffer.stream == player_stream_of(self, s));
    must(slot->buffer.data == before.data && slot->buffer.storage == before.storage);
    slot->stream = s;
    if (slot->storage != NULL)
        slot->storage->met_others = true;
    return true;
}

/* Waits and notes but where the only holder is on its own stream, and was all the
 * time. */
static bool do_access(player *self, bool writes)
{
    player_slot *slot = player_slot_with_storage(self);
    if (slot == NULL || player_cells_of(slot) == 0)
        return false;
    player_storage *storage = slot->storage;
    writes = writes && !storage->is_common;
    int s = player_any_stream(self);
    weir_stream stream = player_stream_of(self, s);
    weir_access access = writes ? WEIR_WRITE : WEIR_READ;
    bool is_own = player_is_alone(slot) && storage->weak == 0 && s == slot->stream;
    if (!is_own || storage->met_others || player_toss(self))
        must_ok(weir_buffer_wait(&slot->buffer, stream, access));
    if (writes)
        player_write_window(self, slot, s);
    else
        player_read_window(self, slot, s);
    if (!is_own || player_toss(self))
        must_ok(weir_buffer_use(&slot->buffer, stream, access));
    storage->met_others = storage->met_others || !is_own;
    return true;
}

static bool do_use(player *self)
{
    player_slot *slot = player_any_slot(self);
    weir_stream stream = player_stream_of(self, player_any_stream(self));
    weir_buffer before = slot->buffer;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_use(&slot->buffer, stream, (weir_access)3));
    weir_status status = weir_buffer_use(&slot->buffer, stream,
                                         player_toss(self) ? WEIR_READ : WEIR_WRITE);
    must_answer(slot->storage != NULL ? WEIR_OK : WEIR_NOT_OWNED, status);
    must(memcmp(&slot->buffer, &before, sizeof before) == 0);
    if (slot->storage != NULL)
        slot->storage->met_others = true;
    return true;
}

static bool do_wait_sync(player *self)
{
    player_slot *slot = player_slot_with_storage(self);
    if (slot == NULL)
        return false;
    weir_access access = player_toss(self) ? WEIR_READ : WEIR_WRITE;
    must_ok(weir_buffer_wait_sync(&slot->buffer, access));
    return true;
}

static bool do_drain(player *self)
{
    must_ok(weir_device_drain_sync(self->scene->device));
    if (self->is_alone)
        must_equal(player_deferred(self), 0);
    return true;
}

/* ---- streams that change ---- */

static void forget_stream(player *self, int stream)
{
    for (int i = 0; i < PLAYER_SLOTS; i++) {
        if (self->slots[i].stream == stream)
            self->slots[i].stream = STREAM_ENDED;
    }
    for (int i = 0; i < PLAYER_WEAKS; i++) {
        if (self->weaks[i].stream == stream)
            self->weaks[i].stream = STREAM_ENDED;
    }
}

/* The next one has the handle of the last, as a rule. */
static bool do_retire(player *self)
{
    if (!self->is_alone)
        return false;
    weir_stream *stream = &self->scene->streams[STREAM_MORTAL];
    end_stream(self->scene->device, *stream);
    forget_stream(self, STREAM_MORTAL);
    self->has_lost_streams = true;
    *stream = make_stream(self->scene->device, WEIR_STREAM_NON_BLOCKING);
    return true;
}

/* Begins a buffer in a declared capture, and ends one, which may be of before. */
static bool do_capture(player *self)
{
    if (!self->is_alone)
        return false;
    weir_stream stream = player_stream_of(self, STREAM_A);
    self->has_lost_streams = true;
    weir_capture *capture;
    weir_buffer other;
    must_ok(weir_capture_begin(self->scene->pool, stream, &capture));
    must_ok(weir_buffer_allocate(self->scene->pool, stream, CELL, WEIR_ALIGNMENT,
                                 &other));
    must_answer(WEIR_CAPTURING, weir_buffer_use(&other, stream, WEIR_WRITE));
    player_slot *slot = player_slot_with_storage(self);
    if (slot != NULL) {
        weir_buffer before = slot->buffer;
        must_answer(WEIR_CAPTURING, weir_buffer_use(&slot->buffer, stream, WEIR_READ));
        must(memcmp(&slot->buffer, &before, sizeof before) == 0);
        player_slot_reset(slot);
    }
    if (player_toss(self))
        weir_buffer_reset(&other);
    must_ok(weir_capture_end(capture));
    must_ok(weir_capture_release(capture, stream));
    weir_buffer_reset(&other);
    return true;
}

/* By memcpy; what it was is not used any more. */
static bool do_move(player *self)
{
    player_slot *a = player_any_slot(self), *b = player_any_slot(self), c;
    memcpy(&c, a, sizeof c);
    memcpy(a, b, sizeof c);
    memcpy(b, &c, sizeof c);
    return a != b;
}

/* ---- playing ---- */

static bool play(player *self, player_op op)
{
    switch (op) {
    case PLAYER_INIT: return player_do_init(self);
    case PLAYER_ALLOCATE: return player_do_allocate(self);
    case PLAYER_ADOPT: return player_do_adopt(self);
    case PLAYER_ADOPT_BLOCK: return player_do_adopt_block(self);
    case PLAYER_VIEW: return player_do_view(self);
    case PLAYER_SHARE: return player_do_share(self);
    case PLAYER_SLICE: return player_do_slice(self);
    case PLAYER_WEAKEN: return player_do_weaken(self);
    case PLAYER_UPGRADE: return player_do_upgrade(self);
    case PLAYER_FORGET: return player_do_forget(self);
    case PLAYER_RESIZE:
    case PLAYER_RESERVE:
    case PLAYER_SHRINK: return do_size(self, op);
    case PLAYER_COPY: return do_copy(self);
    case PLAYER_OWN: return do_own(self);
    case PLAYER_RELEASE: return do_release(self);
    case PLAYER_RESET: return do_reset(self);
    case PLAYER_SET_STREAM: return do_set_stream(self);
    case PLAYER_WRITE: return do_access(self, true);
    case PLAYER_READ: return do_access(self, false);
    case PLAYER_USE: return do_use(self);
    case PLAYER_WAIT_SYNC: return do_wait_sync(self);
    case PLAYER_DRAIN: return do_drain(self);
    case PLAYER_RETIRE: return do_retire(self);
    case PLAYER_CAPTURE: return do_capture(self);
    case PLAYER_MOVE: return do_move(self);
    case PLAYER_OP_COUNT: break;
    }
    return false;
}

/* Who is alone knows all of it. */
static void look_over(const player *self)
{
    size_t out = statistics_of(self->scene->pool).out_bytes;
    weir_pending pending = pending_of(self->scene->device);
    if (pending.limbo_count == 0) {
        must_equal(out, player_out_bytes(self));
        must_equal(pending.deferred_count, player_deferred(self));
    }
    must(out >= player_out_bytes(self));
    must(out <= player_out_bytes(self) + pending.limbo_bytes);
    must(pending.deferred_count + pending.limbo_count >= player_deferred(self));
    /* Where a holder's stream has ended and many others are noted, it cannot wait for
     * one of them. */
    must(pending.limbo_count == 0 || self->has_lost_streams);
    for (int i = 0; i < PLAYER_SLOTS; i++) {
        const player_slot *slot = &self->slots[i];
        weir_buffer_properties p = properties_of(&slot->buffer);
        must_equal(p.owns, slot->storage != NULL);
        must_equal(p.is_alone, player_is_alone(slot));
    }
}

/* What is rare on the whole is common in some runs. */
static player_op any_op(player *self, const uint8_t *weights)
{
    uint64_t sum = 0;
    for (int i = 0; i < PLAYER_OP_COUNT; i++)
        sum += weights[i];
    uint64_t at = player_draw(self, sum);
    int op = 0;
    while (at >= weights[op])
        at -= weights[op++];
    return (player_op)op;
}

void player_play(void *argument)
{
    player *self = argument;
    uint8_t weights[PLAYER_OP_COUNT];
    for (int i = 0; i < PLAYER_OP_COUNT; i++)
        weights[i] = (uint8_t)player_draw(self, 8);
    weights[PLAYER_ALLOCATE] += 4;
    weights[PLAYER_WRITE] += 8;
    weights[PLAYER_READ] += 8;
    weights[PLAYER_WAIT_SYNC] /= 2;
    weights[PLAYER_DRAIN] /= 4;
    weights[PLAYER_CAPTURE] /= 4;
    for (size_t i = 0; i < self->steps; i++) {
        player_op op = any_op(self, weights);
        if (play(self, op))
            atomic_fetch_add(&player_counts[op], 1);
        if (self->is_alone)
            look_over(self);
    }
    player_end(self); /* of a thread's own stream only the thread can */
}

void player_begin(player *self, player_scene *scene, uint64_t seed, bool alone)
{
    memset(self, 0, sizeof *self);
    self->scene = scene;
    self->random = seed;
    self->keys = seed << 32;
    self->is_alone = alone;
    self->steps = 60;
}

void player_end(player *self)
{
    for (int i = 0; i < PLAYER_WEAKS; i++)
        player_weak_end(&self->weaks[i]);
    for (int i = 0; i < PLAYER_SLOTS; i++)
        player_slot_reset(&self->slots[i]);
}

void player_must_be_over(const player *self)
{
    must_equal(player_deferred(self), 0);
    must_equal(player_out_bytes(self), 0);
}

void players_share(player *const players[], size_t count, player_storage *storage,
                   size_t slot_index)
{
    player *first = players[0];
    weir_buffer all;
    must_ok(weir_buffer_allocate(first->scene->pool, player_stream_of(first, STREAM_A),
                                 PLAYER_CELLS * CELL, WEIR_ALIGNMENT, &all));
    *storage = (player_storage){ .is_block = true, .is_common = true };
    player_slot whole = { all, storage, 0, STREAM_A };
    player_write_window(first, &whole, STREAM_A);
    for (size_t i = 0; i < count; i++) {
        player_slot *slot = &players[i]->slots[slot_index];
        must_ok(weir_buffer_share(&all, &slot->buffer));
        slot->storage = storage;
        slot->stream = STREAM_A;
    }
    weir_buffer_reset(&all);
}
