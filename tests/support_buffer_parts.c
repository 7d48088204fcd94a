/* support_buffer_parts.c - see support_buffer_player.h: the model, and how buffers
 * begin and share. */
#include "support_buffer_parts.h"

#include <string.h>

#include "weir/weir.h"

uint64_t player_draw(player *self, uint64_t n)
{
    return support_random_below(&self->random, n);
}

bool player_toss(player *self)
{
    return player_draw(self, 2) == 0;
}

/* ---- the model ---- */

player_storage *player_storage_take(player *self, bool is_block, size_t bytes)
{
    for (int i = 0; i < PLAYER_STORAGES; i++) {
        player_storage *it = &self->storages[i];
        bool is_over = it->holders == 0 && it->weak == 0 &&
                       (it->is_block || atomic_load(&it->ends) == 1);
        if (it->is_taken && !is_over)
            continue;
        if (i >= self->storages_used)
            self->storages_used = i + 1;
        memset(it, 0, sizeof *it);
        it->scene = self->scene;
        it->is_taken = true;
        it->is_block = is_block;
        it->bytes = bytes;
        it->holders = 1;
        return it;
    }
    support_fail("there are storages enough", __FILE__, __LINE__);
    return NULL;
}

size_t player_out_bytes(const player *self)
{
    size_t bytes = 0;
    for (int i = 0; i < self->storages_used; i++) {
        const player_storage *it = &self->storages[i];
        bool is_out = it->is_block ? it->holders > 0 : atomic_load(&it->ends) == 0;
        bytes += it->is_taken && is_out ? it->bytes : 0;
    }
    return bytes;
}

size_t player_deferred(const player *self)
{
    size_t count = 0;
    for (int i = 0; i < self->storages_used; i++) {
        const player_storage *it = &self->storages[i];
        count += it->is_taken && !it->is_block && it->holders == 0 &&
                 atomic_load(&it->ends) == 0;
    }
    return count;
}

size_t player_cells_of(const player_slot *slot)
{
    return slot->buffer.size / CELL;
}

bool player_is_alone(const player_slot *slot)
{
    return slot->storage != NULL && !slot->storage->is_common &&
           slot->storage->holders == 1;
}

bool player_could_be_alone(const player_slot *slot)
{
    return player_is_alone(slot) || (slot->storage != NULL && slot->storage->is_common);
}

void player_holder_leaves(player_slot *slot)
{
    if (slot->storage != NULL && !slot->storage->is_common)
        slot->storage->holders--;
    slot->storage = NULL;
}

/* ---- slots ---- */

int player_any_stream(player *self)
{
    return (int)player_draw(self, self->is_alone ? PLAYER_STREAMS : STREAM_MORTAL);
}

weir_stream player_stream_of(const player *self, int stream)
{
    return self->scene->streams[stream];
}

player_slot *player_any_slot(player *self)
{
    return &self->slots[player_draw(self, PLAYER_SLOTS)];
}

player_slot *player_slot_with_storage(player *self)
{
    player_slot *slot = player_any_slot(self);
    for (int i = 0; i < PLAYER_SLOTS && slot->storage == NULL; i++)
        slot = &self->slots[(slot - self->slots + 1) % PLAYER_SLOTS];
    return slot->storage != NULL ? slot : NULL;
}

void player_slot_reset(player_slot *slot)
{
    weir_buffer_reset(&slot->buffer);
    must_be_empty(&slot->buffer);
    player_holder_leaves(slot);
}

static player_slot *fresh_slot(player *self)
{
    player_slot *slot = player_any_slot(self);
    player_slot_reset(slot);
    return slot;
}

/* A call that may refuse, and then leaves the buffer as it was. */
bool player_is_done(player_slot *slot, weir_buffer before, bool may, bool must_do,
                    weir_status refusal, weir_status status)
{
    if (status == WEIR_OK) {
        must(may);
        return true;
    }
    must_answer(refusal, status);
    must(!must_do);
    must(memcmp(&slot->buffer, &before, sizeof before) == 0);
    atomic_fetch_add(&player_refusals, 1);
    return false;
}

size_t player_any_bytes(player *self)
{
    size_t bytes = CELL * (1 + (size_t)player_draw(self, PLAYER_CELLS));
    return player_toss(self) ? bytes : bytes - (size_t)player_draw(self, CELL - 1);
}

/* ---- beginnings ---- */

bool player_do_init(player *self)
{
    player_slot *slot = fresh_slot(self);
    slot->stream = player_any_stream(self);
    weir_stream stream = player_stream_of(self, slot->stream);
    if (player_toss(self))
        must_ok(weir_buffer_init(self->scene->pool, stream, &slot->buffer));
    else
        must_ok(weir_buffer_allocate(self->scene->pool, stream, 0, WEIR_ALIGNMENT,
                                     &slot->buffer));
    must(slot->buffer.resource == self->scene->pool && slot->buffer.data == NULL);
    return true;
}

bool player_do_allocate(player *self)
{
    player_slot *slot = fresh_slot(self);
    size_t bytes = player_any_bytes(self);
    slot->stream = player_any_stream(self);
    weir_stream stream = player_stream_of(self, slot->stream);
    must_ok(weir_buffer_allocate(self->scene->pool, stream, bytes, WEIR_ALIGNMENT,
                                 &slot->buffer));
    slot->storage = player_storage_take(self, true, bytes);
    slot->first = 0;
    return true;
}

/* Calls Weir, as deleters may. */
static void deleter(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    player_storage *it = context;
    must(ptr == it->ptr && bytes == it->bytes);
    must_equal(atomic_load(&it->ends), 0);
    weir_buffer other;
    must_ok(weir_buffer_allocate(it->scene->pool, it->scene->streams[STREAM_A], CELL,
                                 WEIR_ALIGNMENT, &other));
    weir_buffer_reset(&other);
    give(it->scene->pool, stream, ptr, bytes);
    atomic_store(&it->ends, 1);
}

static void adopt_foreign(player *self, player_slot *slot, player_storage *storage)
{
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.ptr = storage->ptr;
    foreign.bytes = storage->bytes;
    foreign.ignores_stream = storage->ignores_stream;
    foreign.deleter = deleter;
    foreign.context = storage;
    must_ok(weir_buffer_adopt(self->scene->device, player_stream_of(self, slot->stream),
                              &foreign, &slot->buffer));
    must(slot->buffer.data == storage->ptr && slot->buffer.resource == NULL);
    slot->storage = storage;
    slot->first = 0;
}

bool player_do_adopt(player *self)
{
    player_slot *slot = fresh_slot(self);
    slot->stream = player_any_stream(self);
    player_storage *storage = player_storage_take(self, false, player_any_bytes(self));
    storage->ptr = take(self->scene->pool, player_stream_of(self, slot->stream),
                        storage->bytes);
    storage->ignores_stream = player_toss(self);
    adopt_foreign(self, slot, storage);
    return true;
}

bool player_do_adopt_block(player *self)
{
    player_slot *slot = fresh_slot(self);
    slot->stream = player_any_stream(self);
    weir_stream stream = player_stream_of(self, slot->stream);
    size_t bytes = player_any_bytes(self);
    void *ptr = take(self->scene->pool, stream, bytes);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_block(self->scene->pool, stream, ptr, bytes + 1,
                                        WEIR_ALIGNMENT, &slot->buffer));
    must_be_empty(&slot->buffer);
    must_ok(weir_buffer_adopt_block(self->scene->pool, stream, ptr, bytes,
                                    WEIR_ALIGNMENT, &slot->buffer));
    slot->storage = player_storage_take(self, true, bytes);
    slot->first = 0;
    return true;
}

/* ---- windows ---- */

void player_read_window(player *self, player_slot *slot, int stream)
{
    const player_storage *storage = slot->storage;
    for (size_t i = 0; i < player_cells_of(slot); i++) {
        uint64_t key = storage->keys[slot->first + i];
        if (key == 0)
            continue;
        check_stamp(self->scene->device, player_stream_of(self, stream),
                    (char *)slot->buffer.data + i * CELL, CELL, key);
        atomic_fetch_add(&player_checks, 1);
    }
}

void player_write_window(player *self, player_slot *slot, int stream)
{
    for (size_t i = 0; i < player_cells_of(slot); i++) {
        uint64_t key = ++self->keys;
        slot->storage->keys[slot->first + i] = key;
        stamp(self->scene->device, player_stream_of(self, stream),
              (char *)slot->buffer.data + i * CELL, CELL, key);
    }
}

/* A view of somebody's bytes refuses what it must, and becomes an owner. */
bool player_do_view(player *self)
{
    player_slot *from = player_slot_with_storage(self), *slot = player_any_slot(self);
    if (from == NULL || from == slot || player_cells_of(from) == 0)
        return false;
    player_slot_reset(slot);
    int s = player_any_stream(self);
    weir_stream stream = player_stream_of(self, s);
    weir_buffer view, out;
    must_ok(weir_buffer_view(from->buffer.data, from->buffer.size, stream, &view));
    weir_buffer before = view;
    weir_weak_buffer weak;
    weir_released released = { .struct_size = sizeof released };
    must_answer(WEIR_NOT_OWNED, weir_buffer_share(&view, &out));
    must_answer(WEIR_NOT_OWNED, weir_buffer_weaken(&view, &weak));
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&view, 1, stream));
    must_answer(WEIR_NOT_OWNED, weir_buffer_reserve(&view, 1, stream));
    must_answer(WEIR_NOT_OWNED, weir_buffer_shrink(&view, stream));
    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&view, &released));
    must_answer(WEIR_NOT_OWNED, weir_buffer_use(&view, stream, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_wait(&view, stream, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_wait_sync(&view, WEIR_READ));
    must_answer(WEIR_NOT_SUPPORTED, weir_buffer_own(&view, NULL, stream));
    must(memcmp(&view, &before, sizeof view) == 0);
    must_ok(weir_buffer_slice(&view, 0, CELL, &out));
    must(out.data == view.data && out.size == CELL && out.storage == NULL);
    must_ok(weir_buffer_wait(&from->buffer, stream, WEIR_READ));
    must_ok(weir_buffer_own(&view, self->scene->pool, stream));
    must_ok(weir_buffer_use(&from->buffer, stream, WEIR_READ));
    from->storage->met_others = true;
    *slot = (player_slot){ view, player_storage_take(self, true, view.size), 0, s };
    memcpy(slot->storage->keys, &from->storage->keys[from->first],
           player_cells_of(from) * sizeof(uint64_t));
    weir_buffer_reset(&out);
    return true;
}

/* One more; of a common storage nobody counts them, for other players look there. */
static void count_holder(player_storage *storage)
{
    if (!storage->is_common)
        storage->holders++;
    storage->met_others = true;
}

bool player_do_share(player *self)
{
    player_slot *from = player_any_slot(self), *slot = player_any_slot(self);
    if (from == slot)
        return false;
    player_slot_reset(slot);
    if (from->storage == NULL) {
        must_answer(WEIR_NOT_OWNED, weir_buffer_share(&from->buffer, &slot->buffer));
        must_be_empty(&slot->buffer);
        return true;
    }
    must_ok(weir_buffer_share(&from->buffer, &slot->buffer));
    must(memcmp(&slot->buffer, &from->buffer, sizeof slot->buffer) == 0);
    *slot = (player_slot){ slot->buffer, from->storage, from->first, from->stream };
    count_holder(slot->storage);
    return true;
}

bool player_do_slice(player *self)
{
    player_slot *from = player_slot_with_storage(self), *slot = player_any_slot(self);
    if (from == NULL || from == slot)
        return false;
    player_slot_reset(slot);
    size_t cells = player_cells_of(from);
    size_t first = (size_t)player_draw(self, cells + 1);
    size_t count = (size_t)player_draw(self, cells - first + 1);
    weir_buffer before = from->buffer;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_slice(&from->buffer, first * CELL,
                                  from->buffer.size - first * CELL + 1, &slot->buffer));
    must_be_empty(&slot->buffer);
    must_ok(weir_buffer_slice(&from->buffer, first * CELL, count * CELL,
                              &slot->buffer));
    must(memcmp(&before, &from->buffer, sizeof before) == 0);
    must(slot->buffer.data == (char *)from->buffer.data + first * CELL);
    must(slot->buffer.size == count * CELL && slot->buffer.capacity == count * CELL);
    *slot = (player_slot){ slot->buffer, from->storage, from->first + first,
                           from->stream };
    count_holder(slot->storage);
    return true;
}

void player_weak_end(player_weak *weak)
{
    weir_weak_buffer_reset(&weak->weak);
    if (weak->storage != NULL && !weak->storage->is_common)
        weak->storage->weak--;
    weak->storage = NULL;
}

bool player_do_weaken(player *self)
{
    player_slot *from = player_slot_with_storage(self);
    player_weak *weak = &self->weaks[player_draw(self, PLAYER_WEAKS)];
    if (from == NULL)
        return false;
    player_weak_end(weak);
    must_ok(weir_buffer_weaken(&from->buffer, &weak->weak));
    weak->storage = from->storage;
    if (!weak->storage->is_common) /* which other players read meanwhile */
        weak->storage->weak++;
    weak->storage->met_others = true;
    weak->first = from->first;
    weak->bytes = from->buffer.size;
    weak->stream = from->stream;
    return true;
}

bool player_do_upgrade(player *self)
{
    player_weak *weak = &self->weaks[player_draw(self, PLAYER_WEAKS)];
    player_slot *slot = player_any_slot(self);
    player_storage *storage = weak->storage;
    if (storage == NULL)
        return false;
    player_slot_reset(slot);
    weir_status status = weir_weak_buffer_upgrade(&weak->weak, &slot->buffer);
    if (!storage->is_common)
        must_equal(status, storage->holders > 0 ? WEIR_OK : WEIR_NOT_FOUND);
    if (status != WEIR_OK) {
        must_answer(WEIR_NOT_FOUND, status);
        must_be_empty(&slot->buffer);
        return true;
    }
    must(slot->buffer.size == weak->bytes);
    *slot = (player_slot){ slot->buffer, storage, weak->first, weak->stream };
    count_holder(storage);
    return true;
}

bool player_do_forget(player *self)
{
    player_weak *weak = &self->weaks[player_draw(self, PLAYER_WEAKS)];
    bool does = weak->storage != NULL;
    player_weak_end(weak);
    return does;
}
