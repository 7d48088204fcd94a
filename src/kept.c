/* kept.c - see kept.h. */
#include "kept.h"

#include "internal.h"

/* What the emulated device rounds to, and CUDA at least. */
#define ROOM_STEP_BYTES ((size_t)256)

/* ---- the marks of a block ---- */

/* Adds one, unless one of the same clock says as much. False: there is no room. */
static bool add_mark(weir__kept_block *block, weir__mark mark)
{
    for (size_t i = 0; i < block->mark_count; i++) {
        if (block->marks[i].clock == mark.clock) {
            if (block->marks[i].number < mark.number)
                block->marks[i].number = mark.number;
            return true;
        }
    }
    if (block->mark_count == WEIR__KEPT_MARKS)
        return false;
    block->marks[block->mark_count++] = mark;
    return true;
}

/* Makes room: one aside mark stands for all marks but those of captures, and for every
 * other point that the caller has, for a device wait is behind them all. False: there
 * is no room even for that. */
static bool fold_marks(weir__kept_block *block, weir__order *order)
{
    size_t left = 0;
    for (size_t i = 0; i < block->mark_count; i++) {
        if (weir__order_is_captured(order, block->marks[i]))
            block->marks[left++] = block->marks[i];
    }
    block->mark_count = left;
    return add_mark(block, weir__order_mark_here(order, 0)); /* no clock is number 0 */
}

/* Makes room by leaving out what is done, of which others learn as of all that the
 * giver knows. False: nothing is. */
static bool drop_done_marks(weir__kept_block *block, weir__order *order)
{
    size_t left = 0;
    for (size_t i = 0; i < block->mark_count; i++) {
        if (!weir__order_is_done(order, 0, block->marks[i]))
            block->marks[left++] = block->marks[i];
    }
    bool dropped = left < block->mark_count;
    block->mark_count = left;
    return dropped;
}

void weir__kept_mark_behind(weir__kept_block *block, weir__order *order,
                            const weir_point *points, size_t count)
{
    block->mark_count = 0;
    block->rests_on_giver = true;
    if (weir__order_is_captured(order, (weir__mark){ block->birth, 0 }))
        add_mark(block, weir__order_capture_mark(order, block->birth, count == 0));
    for (size_t i = 0; i < count; i++) {
        weir__mark mark = { points[i].clock, points[i].mark };
        bool fits = add_mark(block, mark) ||
                    (drop_done_marks(block, order) && add_mark(block, mark)) ||
                    (fold_marks(block, order) &&
                     (!weir__order_is_captured(order, mark) || add_mark(block, mark)));
        if (!fits) {
            block->mark_count = 0;
            return;
        }
    }
    if (block->mark_count == 0)
        add_mark(block, WEIR__MARK_DONE);
}

/* ---- queues ---- */

static size_t bucket_of(uint64_t clock)
{
    return (size_t)((clock * WEIR__GOLDEN_RATIO) >> 32) % WEIR__KEPT_BUCKETS;
}

static size_t room_of(const weir__kept_block *block)
{
    size_t bytes = block->held_bytes;
    return (bytes + ROOM_STEP_BYTES - 1) / ROOM_STEP_BYTES * ROOM_STEP_BYTES;
}

weir__mark weir__kept_mark(const weir__kept_block *block)
{
    WEIR_ASSERT(block->marks_left > 0, "a kept block waits for nothing");
    return block->marks[block->marks_left - 1];
}

static uint64_t clock_of(const weir__kept_block *block)
{
    return weir__kept_mark(block).clock;
}

static size_t aside_bytes_of(const weir__kept_block *block)
{
    for (size_t i = 0; i < block->marks_left; i++) {
        if (block->marks[i].clock == WEIR__CLOCK_ASIDE)
            return block->held_bytes;
    }
    return 0;
}

/* Where the head of the queue of `clock` hangs, or would hang. */
static weir__kept_block **find_queue(weir__kept *kept, uint64_t clock)
{
    weir__kept_block **link = &kept->buckets[bucket_of(clock)];
    while (*link != NULL && clock_of(*link) != clock)
        link = &(*link)->next_queue;
    return link;
}

void weir__kept_put(weir__kept *kept, weir__kept_block *block)
{
    if (block->number == 0)
        block->number = ++kept->last_number;
    if (block->marks_left == 0)
        block->marks_left = block->mark_count;
    block->newer = NULL;

    uint64_t clock = clock_of(block);
    weir__kept_block **link = find_queue(kept, clock);
    if (*link == NULL) {
        block->newest = block;
        block->next_queue = NULL;
        *link = block;
    } else {
        (*link)->newest->newer = block;
        (*link)->newest = block;
    }
    kept->blocks++;
    kept->bytes += block->held_bytes;
    kept->room_bytes += room_of(block);
    kept->aside_bytes += aside_bytes_of(block);
}

/* Takes the head that hangs at `link`; the next in its queue takes its place. */
static weir__kept_block *take_head(weir__kept *kept, weir__kept_block **link)
{
    weir__kept_block *head = *link;
    weir__kept_block *heir = head->newer;
    if (heir == NULL) {
        *link = head->next_queue;
    } else {
        heir->newest = head->newest;
        heir->next_queue = head->next_queue;
        *link = heir;
    }
    head->newer = NULL;
    kept->blocks--;
    kept->bytes -= head->held_bytes;
    kept->room_bytes -= room_of(head);
    kept->aside_bytes -= aside_bytes_of(head);
    return head;
}

/* Other threads may have seen that some of the marks are done: the ledger hears that
 * this one knows it too. */
static void learn_marks(const weir__kept_block *block, weir__order *order)
{
    for (size_t i = 0; i < block->mark_count; i++) {
        bool done = weir__order_may_take(order, 0, block->marks[i]);
        WEIR_ASSERT(done, "a mark was done and is not");
    }
    if (block->rests_on_giver)
        (void)weir__order_may_take(order, 0, WEIR__MARK_DONE);
}

weir__kept_block *weir__kept_take_done(weir__kept *kept, weir__order *order,
                                       uint64_t clock)
{
    weir__kept_block *taken = NULL;
    weir__kept_block **end = &taken;
    weir__kept_block **link = find_queue(kept, clock);
    while (*link != NULL && clock_of(*link) == clock &&
           weir__order_may_take(order, 0, weir__kept_mark(*link))) {
        weir__kept_block *block = take_head(kept, link);
        if (block->marks_left > 1) {
            block->marks_left--;
            weir__kept_put(kept, block);
            link = find_queue(kept, clock);
        } else {
            learn_marks(block, order);
            *end = block;
            end = &block->newer;
        }
    }
    return taken;
}

weir__kept_block *weir__kept_next_to_ask(weir__kept *kept, uint64_t round)
{
    for (size_t i = 0; i < WEIR__KEPT_BUCKETS; i++) {
        weir__kept_block *head = kept->buckets[i];
        while (head != NULL && head->asked >= round)
            head = head->next_queue;
        if (head != NULL) {
            head->asked = round;
            return head;
        }
    }
    return NULL;
}

weir__kept_block *weir__kept_oldest(weir__kept *kept, weir__order *order)
{
    weir__kept_block *oldest = NULL;
    for (size_t i = 0; i < WEIR__KEPT_BUCKETS; i++) {
        for (weir__kept_block *head = kept->buckets[i]; head != NULL;
             head = head->next_queue) {
            if ((oldest == NULL || head->number < oldest->number) &&
                !weir__order_is_captured(order, weir__kept_mark(head)))
                oldest = head;
        }
    }
    return oldest;
}

weir__kept_block *weir__kept_take_any(weir__kept *kept)
{
    for (size_t i = 0; i < WEIR__KEPT_BUCKETS; i++) {
        if (kept->buckets[i] != NULL)
            return take_head(kept, &kept->buckets[i]);
    }
    return NULL;
}

void weir__kept_verify(const weir__kept *kept)
{
    size_t blocks = 0, bytes = 0, aside_bytes = 0;
    for (size_t i = 0; i < WEIR__KEPT_BUCKETS; i++) {
        for (const weir__kept_block *head = kept->buckets[i]; head != NULL;
             head = head->next_queue) {
            uint64_t clock = clock_of(head);
            const weir__kept_block *last = head;
            WEIR_CHECK(bucket_of(clock) == i, "a queue hangs in another's place");
            for (const weir__kept_block *block = head; block != NULL;
                 block = block->newer) {
                WEIR_CHECK(clock_of(block) == clock, "a block stands in a queue that "
                                                     "is not its own");
                WEIR_CHECK(block->record.state == WEIR__BLOCK_BACK,
                           "a block is kept that did not come back");
                WEIR_CHECK(block->marks_left <= block->mark_count &&
                               block->mark_count <= WEIR__KEPT_MARKS,
                           "a block waits for more marks than it has");
                blocks++;
                bytes += block->held_bytes;
                aside_bytes += aside_bytes_of(block);
                last = block;
            }
            WEIR_CHECK(head->newest == last, "a queue does not know its end");
        }
    }
    WEIR_CHECK(blocks == kept->blocks && bytes == kept->bytes &&
                   aside_bytes == kept->aside_bytes,
               "what is kept was counted wrong");
}

/* ---- giving back ---- */

weir__kept_block *weir__kept_begin_leaving(weir__block_table *table, weir__mutex *lock,
                                           const char *name, void *ptr, size_t bytes,
                                           size_t alignment)
{
    weir__mutex_lock(lock);
    weir__block_record *record = weir__block_table_find(table, ptr);
    weir__block_fault fault = weir__block_judge(record, bytes, alignment);
    if (fault.kind == 0)
        record->state = WEIR__BLOCK_LEAVING;
    weir__mutex_unlock(lock);
    if (fault.kind == 0)
        return (weir__kept_block *)record;
    weir__block_report(&fault, name, ptr, bytes, alignment);
    return NULL;
}

weir_status weir__kept_tell_refusal(weir__kept_refusal *refusal, weir__mutex *lock,
                                    const char *name)
{
    weir__mutex_lock(lock);
    weir__kept_refusal told = *refusal;
    refusal->status = WEIR_OK;
    weir__mutex_unlock(lock);
    if (told.status == WEIR_OK)
        return WEIR_OK;
    return weir__fail_native(told.status, told.code,
                             "%s: the device refused to take back memory earlier; it "
                             "is kept, and this is told once",
                             name);
}
