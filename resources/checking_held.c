/* checking_held.c - the quarantine of the resource `checking`: blocks that came back
 * and do not go upstream yet.
 *
 * Each has the points behind which it came back, and leaves by age once they are too
 * many bytes. Where the points are done by then, the watcher looks at it, and it goes
 * upstream behind that look; the watcher never waits for work of the program's, which
 * would put memory that is done behind work that is not. */
#include <string.h>

#include "checking_parts.h"
#include "internal.h"

static weir__mark mark_of(weir_point point)
{
    return (weir__mark){ .clock = point.clock, .number = point.mark };
}

/* ---- out of it ---- */

/* Gives its memory to upstream behind its points, and lets go of it. */
static void give(weir__checking *self, weir__checked *block)
{
    unsigned char *below = block->below;
    weir__note_guard(self->device, below, block->below_bytes, below, 0);
    (void)weir_deallocate_after(self->upstream, below, block->below_bytes,
                                block->record.alignment, block->behind,
                                block->behind_count);
    weir__mutex_lock(&self->lock);
    weir__checked_unlink(&self->leaving, block);
    self->landings++;
    weir__cond_broadcast(&self->landed);
    weir__mutex_unlock(&self->lock);
    weir__checked_let_go(self, block);
}

static bool is_behind_done_work(weir__checking *self, const weir__checked *block)
{
    for (size_t i = 0; i < block->behind_count; i++) {
        if (!weir__order_is_done(self->device->order, 0, mark_of(block->behind[i])))
            return false;
    }
    return true;
}

static void wait_sync(weir__checking *self, const weir__checked *block)
{
    for (size_t i = 0; i < block->behind_count; i++)
        (void)weir__order_sync(self->device->order, mark_of(block->behind[i]));
}

/* What one look sees of a block that leaves; how many parts that is. */
static size_t choose_parts(const weir__checking *self, const weir__checked *block,
                           weir__look_part out[WEIR__LOOK_PARTS])
{
    size_t all = weir__checked_region_bytes(self, block);
    size_t each = block->is_poisoned ? self->options.look_bytes / 2
                                     : self->options.guard_bytes;
    bool is_whole = block->is_poisoned && all <= self->options.look_bytes;
    out[0] = (weir__look_part){ 0, is_whole ? all : each };
    out[1] = (weir__look_part){ all - each, each };
    return is_whole ? 1 : 2;
}

/* Puts a look on the watcher's stream, and the block behind it. */
static void look_at(weir__checking *self, weir__checked *block)
{
    weir__look_part parts[WEIR__LOOK_PARTS];
    weir__look *look = weir__look_take(self);
    if (look == NULL) {
        weir__checking_leave_out(self);
        return;
    }
    size_t count = choose_parts(self, block, parts);
    bool good = weir__look_copy(self, look, self->watcher, block, parts, count);
    weir__mark mark = weir__checking_watched(self);
    weir__look_end(self, look, block, good, mark);
    block->behind[0] = (weir_point){ mark.clock, mark.number };
    block->behind_count = 1;
}

static void look_at_sync(weir__checking *self, weir__checked *block)
{
    const size_t guard = self->options.guard_bytes;
    size_t all = weir__checked_region_bytes(self, block);
    if (block->is_poisoned) {
        weir__checking_look_sync(self, block, 0, all);
    } else {
        weir__checking_look_sync(self, block, 0, guard);
        weir__checking_look_sync(self, block, all - guard, guard);
    }
    if (block->looked.clock != 0) {
        block->behind[0] = (weir_point){ block->looked.clock, block->looked.number };
        block->behind_count = 1;
    }
}

/* `block` is in this thread's hands. */
static void leave(weir__checking *self, weir__checked *block, bool waits)
{
    if (!is_behind_done_work(self, block) || weir__device_is_lost(self->device)) {
        weir__checking_leave_out(self);
    } else {
        weir__looks_judge_done(self); /* the one from when it came back */
        if (waits)
            look_at_sync(self, block);
        else
            look_at(self, block);
    }
    give(self, block);
}

/* Who takes it out learns what who put it in knew to be done. */
static void take_out_locked(weir__checking *self, weir__checked *block)
    WEIR_REQUIRES(&self->lock)
{
    weir__checked_unlink(&self->held, block);
    weir__checked_link(&self->leaving, block);
    block->taker = weir__thread_self()->number;
    weir__note_learn(self->device, (uintptr_t)block);
    weir__note_forget(self->device, (uintptr_t)block, false);
    weir__block_table_remove(&self->table, &block->record);
    self->held_blocks--;
    self->held_bytes -= block->below_bytes;
}

/* Takes out the oldest, if it is no younger than number `last`; else null. With `waits`
 * what it is behind is waited for first, and others may take it meanwhile: they need
 * not wait for that. */
static weir__checked *take_oldest(weir__checking *self, uint64_t last, bool waits)
{
    weir__checked asked = { .behind_count = 0 };
    for (;;) {
        weir__mutex_lock(&self->lock);
        weir__checked *oldest = self->held.oldest;
        if (oldest != NULL && oldest->held_number > last)
            oldest = NULL;
        bool is_it = !waits || oldest == NULL ||
                     oldest->held_number == asked.held_number;
        if (!is_it)
            memcpy(&asked, oldest, sizeof asked);
        else if (oldest != NULL)
            take_out_locked(self, oldest);
        weir__mutex_unlock(&self->lock);
        if (is_it)
            return oldest;
        wait_sync(self, &asked);
    }
}

bool weir__checking_empty(weir__checking *self, bool waits)
{
    bool any = false;
    weir__mutex_lock(&self->lock);
    uint64_t last = self->held.newest == NULL ? 0 : self->held.newest->held_number;
    weir__mutex_unlock(&self->lock);
    for (weir__checked *block; (block = take_oldest(self, last, waits)) != NULL;) {
        leave(self, block, waits);
        any = true;
    }
    return any;
}

/* ---- who waits for it ---- */

uint64_t weir__checking_count_landings(weir__checking *self)
{
    weir__mutex_lock(&self->lock);
    uint64_t landings = self->landings;
    weir__mutex_unlock(&self->lock);
    return landings;
}

/* A misuse handler allocates, called by a look at what leaves: it must not wait, not
 * even for others, who may be in theirs. */
static bool has_in_hand_locked(weir__checking *self) WEIR_REQUIRES(&self->lock)
{
    const weir__checked *block = self->leaving.oldest;
    while (block != NULL && block->taker != weir__thread_self()->number)
        block = block->newer;
    return block != NULL;
}

/* Not for ever: what is on its way may be in a misuse handler's hands, or in those of
 * upstream's functions, and these wait for who asks here. */
bool weir__checking_wait_for_landing(weir__checking *self, uint64_t landings)
{
    weir__mutex_lock(&self->lock);
    for (int left = WEIR__LANDING_WAITS;
         left > 0 && self->leaving.oldest != NULL && self->landings == landings &&
         !has_in_hand_locked(self);
         left--)
        weir__cond_wait_for(&self->landed, &self->lock, WEIR__LANDING_MS);
    bool are_more = self->landings != landings;
    weir__mutex_unlock(&self->lock);
    return are_more;
}

/* ---- into it ---- */

bool weir__checking_holds(const weir__checking *self, const weir__checked *block)
{
    return self->options.quarantine_bytes != WEIR_CHECKING_NO_QUARANTINE &&
           block->below_bytes <= self->options.quarantine_bytes;
}

/* Takes the oldest out if it has to leave: null, if none has. One that is in no hurry
 * is asked about without the lock, and may be another's then. */
static weir__checked *take_excess(weir__checking *self)
{
    const size_t most = self->options.quarantine_bytes;
    weir__checked asked = { .behind_count = 0 };
    weir__mutex_lock(&self->lock);
    weir__checked *oldest = self->held.oldest;
    bool is_much = self->held_bytes > most;
    bool is_too_much = self->held_bytes / 2 > most;
    if (is_much && !is_too_much)
        memcpy(&asked, oldest, sizeof asked);
    if (is_too_much)
        take_out_locked(self, oldest);
    weir__mutex_unlock(&self->lock);
    if (is_too_much)
        return oldest;
    if (!is_much || !is_behind_done_work(self, &asked))
        return NULL;
    weir__mutex_lock(&self->lock);
    oldest = self->held.oldest;
    bool is_it = oldest != NULL && oldest->held_number == asked.held_number;
    if (is_it)
        take_out_locked(self, oldest);
    weir__mutex_unlock(&self->lock);
    return is_it ? oldest : NULL;
}

void weir__checking_hold(weir__checking *self, weir__checked *block)
{
    weir__mutex_lock(&self->lock);
    block->record.state = WEIR__BLOCK_BACK;
    block->held_number = ++self->held_numbers;
    weir__block_table_reinsert(&self->table, &block->record);
    weir__checked_link(&self->held, block);
    weir__note_done(self->device, (uintptr_t)block, NULL);
    self->held_blocks++;
    self->held_bytes += block->below_bytes;
    weir__mutex_unlock(&self->lock);
    weir__checked *excess;
    while ((excess = take_excess(self)) != NULL)
        leave(self, excess, false);
}
