/* async_kept.c - the blocks of an `async` that came back and cannot be given to the
 * driver yet, because of a capture or because it failed; and the way to give them.
 *
 * They are few, and stand in a list: who looks at one takes it from the front, and puts
 * it back at the end; who lacks memory waits for what is in another's hands. The host
 * waits for none to be done: the stream `back` does.
 *
 * A record leaves the table before the driver is given the block, because that may hand
 * out the same address to another thread at once. */
#include "async_internal.h"
#include "internal.h"
#include "stream_order.h"

static weir__order *order_of(const weir__async *self)
{
    return self->device->order;
}

void weir__async_verify_locked(weir__async *self)
{
#ifdef WEIR_TESTING
    size_t blocks = 0, bytes = 0;
    if (self->table.count <= 64) /* a large one not every time */
        weir__block_table_verify(&self->table);
    for (const weir__kept_block *block = self->oldest; block; block = block->newer) {
        WEIR_CHECK(block->record.state == WEIR__BLOCK_BACK && block->mark_count > 0,
                   "a block is kept that did not come back, or waits for nothing");
        WEIR_CHECK(block->newer != NULL || block == self->youngest,
                   "the list of kept blocks does not know its end");
        blocks++;
        bytes += block->record.bytes;
    }
    WEIR_CHECK(blocks == self->kept_blocks && bytes <= self->counts.kept_bytes,
               "what is kept was counted wrong");
#endif
    WEIR_ASSERT(self->table.count >= self->counts.out_blocks, "a block was lost");
}

/* ---- the list ---- */

static void append_locked(weir__async *self, weir__kept_block *block)
{
    block->newer = NULL;
    if (self->oldest == NULL)
        self->oldest = block;
    else
        self->youngest->newer = block;
    self->youngest = block;
    self->kept_blocks++;
}

/* Takes the oldest off the list, or null. It stays in the table, and in the counts. */
static weir__kept_block *take_oldest(weir__async *self)
{
    weir__mutex_lock(&self->lock);
    weir__kept_block *block = self->oldest;
    if (block != NULL) {
        self->oldest = block->newer;
        self->kept_blocks--;
        self->in_hand_blocks++;
    }
    weir__mutex_unlock(&self->lock);
    return block;
}

static void put_back(weir__async *self, weir__kept_block *block)
{
    weir__mutex_lock(&self->lock);
    append_locked(self, block);
    weir__async_verify_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* What was taken off the list is in nobody's hands any more. */
static void land_one(weir__async *self, bool is_freed)
{
    weir__mutex_lock(&self->lock);
    self->in_hand_blocks--;
    self->freed += is_freed;
    weir__cond_broadcast(&self->landed);
    weir__mutex_unlock(&self->lock);
}

uint64_t weir__async_count_freed(weir__async *self)
{
    weir__mutex_lock(&self->lock);
    uint64_t freed = self->freed;
    weir__mutex_unlock(&self->lock);
    return freed;
}

bool weir__async_wait_for_landing(weir__async *self, uint64_t freed)
{
    weir__mutex_lock(&self->lock);
    while (self->in_hand_blocks != 0 && self->freed == freed)
        weir__cond_wait(&self->landed, &self->lock);
    bool has_more = self->freed != freed;
    weir__mutex_unlock(&self->lock);
    return has_more;
}

void weir__async_keep_locked(weir__async *self, weir__kept_block *block)
{
    block->record.state = WEIR__BLOCK_BACK;
    self->counts.kept_bytes += block->record.bytes;
    if (block->mark_count > 0)
        append_locked(self, block);
    else
        self->counts.set_aside_bytes += block->record.bytes;
    weir__async_verify_locked(self);
}

size_t weir__async_count_kept(weir__async *self)
{
    weir__mutex_lock(&self->lock);
    size_t blocks = self->kept_blocks;
    weir__mutex_unlock(&self->lock);
    return blocks;
}

static bool is_set_aside(const weir__kept_block *block)
{
    for (size_t i = 0; i < block->mark_count; i++) {
        if (block->marks[i].clock == WEIR__CLOCK_ASIDE)
            return true;
    }
    return false;
}

size_t weir__async_aside_bytes_locked(const weir__async *self)
{
    size_t bytes = 0;
    for (const weir__kept_block *block = self->oldest; block; block = block->newer)
        bytes += is_set_aside(block) ? block->record.bytes : 0;
    return bytes;
}

/* ---- giving to the driver ---- */

weir_status weir__async_back_waits(const weir__async *self, const weir__mark *marks,
                                   size_t count)
{
    weir_status status = WEIR_OK;
    for (size_t i = 0; i < count && status == WEIR_OK; i++)
        status = weir__order_wait(order_of(self), 0, self->back, marks[i]);
    return status;
}

bool weir__async_free_block(weir__async *self, weir_stream stream,
                            weir__kept_block *block)
{
    weir_status status = weir__mempool_free(self->device, stream, block->record.ptr);
    if (status == WEIR_OK) {
        weir__host_free(block);
        return true;
    }
    int32_t code = weir_last_error().native_code;
    if (block->mark_count == 0) {
        block->marks[0] = weir__order_free_mark(order_of(self), stream, block->birth);
        block->mark_count = 1;
    }
    weir__mutex_lock(&self->lock);
    self->refusal = (weir__kept_refusal){ status, code };
    weir__block_table_reinsert(&self->table, &block->record);
    weir__async_keep_locked(self, block);
    weir__mutex_unlock(&self->lock);
    return false;
}

/* Whether `back` could be made to wait for all marks of `block`. */
static bool can_go(const weir__async *self, const weir__kept_block *block)
{
    for (size_t i = 0; i < block->mark_count; i++) {
        weir__mark mark = block->marks[i];
        if (weir__order_is_captured(order_of(self), mark))
            return false;
        if (mark.clock == WEIR__CLOCK_ASIDE &&
            !weir__order_may_take(order_of(self), 0, mark))
            return false;
    }
    return true;
}

/* Gives a block that was taken off the list to the driver, behind its marks. False: it
 * is put back. */
static bool free_or_put_back(weir__async *self, weir__kept_block *block)
{
    if (!can_go(self, block) ||
        weir__async_back_waits(self, block->marks, block->mark_count) != WEIR_OK) {
        put_back(self, block);
        return false;
    }
    if (block->rests_on_giver)
        (void)weir__order_may_take(order_of(self), 0, WEIR__MARK_DONE);
    weir__mutex_lock(&self->lock);
    weir__block_table_remove(&self->table, &block->record);
    self->counts.kept_bytes -= block->record.bytes;
    weir__mutex_unlock(&self->lock);
    return weir__async_free_block(self, self->back, block);
}

void weir__async_free_kept(weir__async *self, size_t most)
{
    size_t looks = weir__async_count_kept(self);
    if (looks > most)
        looks = most;
    for (weir__kept_block *block; looks > 0 && (block = take_oldest(self)); looks--)
        land_one(self, free_or_put_back(self, block));
}
