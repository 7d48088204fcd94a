/* storage_uses.c - what is noted of the streams that use a storage, and how others wait
 * for that. */
#include "storage_internal.h"

/* ---- what the ledger is told: who finds no mark any more knows why ---- */

static uintptr_t key_of(const weir_storage *self)
{
    return (uintptr_t)&self->lock;
}

static void tell_dropped(weir_storage *self)
{
    weir__note_done(self->device, key_of(self), NULL);
}

static void tell_looked(weir_storage *self)
{
    weir__note_learn(self->device, key_of(self));
}

void weir__storage_tell_over(weir_storage *self)
{
    tell_looked(self);
    weir__note_forget(self->device, key_of(self), false);
}

/* ---- uses ---- */

static uint64_t later(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static weir__mark mark_of(weir__use use)
{
    return (weir__mark){ use.clock, later(use.read, use.write) };
}

static weir__use *find_use_locked(weir_storage *self, uint64_t clock)
    WEIR_REQUIRES(self->lock)
{
    for (uint32_t i = 0; i < self->use_count; i++) {
        if (self->uses[i].clock == clock)
            return &self->uses[i];
    }
    return NULL;
}

/* False: there is no room. */
static bool put_use_locked(weir_storage *self, weir__use use, uint32_t room)
    WEIR_REQUIRES(self->lock)
{
    weir__use *known = find_use_locked(self, use.clock);
    if (known == NULL && self->use_count == room)
        return false;
    if (known == NULL) {
        self->uses[self->use_count++] = use;
    } else {
        known->read = later(known->read, use.read);
        known->write = later(known->write, use.write);
    }
    self->notes++;
    return true;
}

static bool put_use(weir_storage *self, weir__use use, uint32_t room)
{
    weir__mutex_lock(&self->lock);
    bool put = put_use_locked(self, use, room);
    weir__mutex_unlock(&self->lock);
    return put;
}

/* Copies them; their number. */
static uint32_t copy_uses(weir_storage *self, weir__use *out)
{
    weir__mutex_lock(&self->lock);
    uint32_t count = self->use_count;
    for (uint32_t i = 0; i < count; i++)
        out[i] = self->uses[i];
    weir__mutex_unlock(&self->lock);
    return count;
}

/* Takes a use away that is still as it was seen. */
static bool drop_use_locked(weir_storage *self, weir__use seen)
    WEIR_REQUIRES(self->lock)
{
    weir__use *use = find_use_locked(self, seen.clock);
    bool drops = use != NULL && use->read == seen.read && use->write == seen.write;
    if (drops)
        *use = self->uses[--self->use_count];
    return drops;
}

/* Those that the stream of clock `t` is behind, or that are done, but not its own;
 * their number. */
static uint32_t passed_uses(weir_storage *self, uint64_t t, weir__use *out)
{
    weir__use seen[WEIR__STORAGE_USES + 1];
    uint32_t passed = 0, count = copy_uses(self, seen);
    for (uint32_t i = 0; i < count; i++) {
        if (seen[i].clock != t &&
            weir__order_may_take(weir__storage_order(self), t, mark_of(seen[i])))
            out[passed++] = seen[i];
    }
    return passed;
}

/* What has to be known for noting a use where there is no room: all zero at first. */
typedef struct noting {
    weir__use passed[WEIR__STORAGE_USES + 1]; /* can give way to a mark taken now */
    uint32_t passed_count;
    weir__mark full;       /* once the stream has waited for this */
} noting;

/* Puts it in the place of what its stream was behind, or was done, before its mark was
 * taken: that is good for all of them. In one step, so that who looks on finds the one
 * or the other. */
static bool put_use_for_others(weir_storage *self, weir__use use, const noting *it)
{
    uint64_t number = later(use.read, use.write);
    tell_dropped(self);
    weir__mutex_lock(&self->lock);
    for (uint32_t i = 0; i < it->passed_count; i++) {
        if (!drop_use_locked(self, it->passed[i]))
            continue;
        use.read = it->passed[i].read != 0 ? number : use.read;
        use.write = it->passed[i].write != 0 ? number : use.write;
    }
    bool put = put_use_locked(self, use, WEIR__STORAGE_USES);
    weir__mutex_unlock(&self->lock);
    return put;
}

void weir__storage_note_unnamed(weir_storage *self, weir_access access)
{
    uint64_t number = weir__order_mark_here(weir__storage_order(self), 0).number;
    weir__mutex_lock(&self->lock);
    self->unnamed_all = later(self->unnamed_all, number);
    if (access == WEIR_WRITE)
        self->unnamed_writes = later(self->unnamed_writes, number);
    self->notes++;
    weir__mutex_unlock(&self->lock);
}

/* Notes it; as unnamed, if it is an aside mark. False: its stream has to wait for
 * `full`, if that is one, and another mark be taken. One that was taken before what is
 * there now was passed is not behind that: another thread may have put the wait there
 * since. */
static bool try_note(weir_storage *self, weir__mark mark, weir_access access,
                     noting *it)
{
    weir__use use = { mark.clock, mark.number, 0 };
    if (mark.clock == WEIR__CLOCK_ASIDE) {
        weir__storage_note_unnamed(self, access);
        return true;
    }
    if (access == WEIR_WRITE)
        use = (weir__use){ mark.clock, 0, mark.number };
    if (it->passed_count > 0 ? put_use_for_others(self, use, it)
                             : put_use(self, use, WEIR__STORAGE_USES))
        return true;
    it->full = WEIR__MARK_DONE;
    it->passed_count = passed_uses(self, mark.clock, it->passed);
    if (it->passed_count == 0 && copy_uses(self, it->passed) > 0) {
        it->full = mark_of(it->passed[0]);
        it->passed_count = 1;
    }
    return false;
}

weir_status weir__storage_use(weir_storage *self, weir_stream stream,
                              weir_access access)
{
    weir__order *order = weir__storage_order(self);
    noting it = { .passed_count = 0 };
    for (;;) {
        weir__mark mark;
        weir_status status = weir__order_point(order, stream, &mark);
        if (status != WEIR_OK || try_note(self, mark, access, &it))
            return status;
        status = weir__order_wait(order, mark.clock, stream, it.full);
        if (status != WEIR_OK)
            return status;
    }
}

void weir__storage_use_surely(weir_storage *self, weir_stream stream,
                              weir_access access)
{
    if (weir__storage_use(self, stream, access) != WEIR_OK)
        weir__storage_note_unnamed(self, access);
}

/* Of a stream that is unknown to Weir, and has been idle, the clock may have gone, and
 * another thread be about to take the spare one: then it takes memory to name it. */
static weir__mark mark_of_holder(weir__order *order, weir__holder holder)
{
    weir__mark mark = weir__order_life_mark(order, holder.stream, holder.life);
    uint64_t clock;
    if (mark.clock == WEIR__CLOCK_ASIDE &&
        weir__order_lives(order, holder.stream, holder.life) &&
        weir__order_clock(order, holder.stream, &clock) == WEIR_OK)
        mark = weir__order_life_mark(order, holder.stream, holder.life);
    return mark;
}

/* Lets the holder's stream, of clock `t`, wait. False: it is ending, or has. */
static bool wait_on_its_own(weir_storage *self, weir__holder holder, uint64_t t,
                            weir__mark full, weir_status *status)
{
    weir__order *order = weir__storage_order(self);
    if (!weir__order_hold_life(order, holder.stream, holder.life))
        return false;
    *status = weir__order_wait(order, t, holder.stream, full);
    weir__order_let_go_life(order, holder.life);
    return true;
}

weir__mark weir__storage_note_user(weir_storage *self, weir__holder user,
                                   weir_access access)
{
    weir__order *order = weir__storage_order(self);
    noting it = { .passed_count = 0 };
    for (;;) {
        weir__mark mark = mark_of_holder(order, user);
        if (mark.clock == 0 || try_note(self, mark, access, &it))
            return mark;
        if (it.full.clock == 0)
            continue;
        weir_status status;
        if (!wait_on_its_own(self, user, mark.clock, it.full, &status) ||
            status != WEIR_OK) {
            weir__storage_note_unnamed(self, access);
            return mark;
        }
    }
}

void weir__storage_note_holder(weir_storage *self, weir__holder holder)
{
    if (holder.stream != WEIR__NO_STREAM)
        (void)weir__storage_note_user(self, holder, WEIR_WRITE);
}

weir_status weir__storage_note(weir_storage *self, weir__holder holder,
                               weir_stream heir)
{
    weir__order *order = weir__storage_order(self);
    noting it = { .passed_count = 0 };
    for (;;) {
        weir__mark mark;
        weir_status status =
            weir__order_life_point(order, holder.stream, holder.life, &mark);
        if (status != WEIR_OK || mark.clock == 0 ||
            try_note(self, mark, WEIR_WRITE, &it))
            return status;
        if (it.full.clock == 0)
            continue;
        uint64_t t = mark.clock;
        if (!wait_on_its_own(self, holder, t, it.full, &status)) {
            status = weir__order_clock(order, heir, &t);
            if (status == WEIR_OK)
                status = weir__order_wait(order, t, heir, mark);
            return status == WEIR_OK ? weir__storage_use(self, heir, WEIR_WRITE)
                                     : status;
        }
        if (status != WEIR_OK)
            return status;
    }
}

void weir__storage_note_last(weir_storage *self, weir__holder holder)
{
    if (holder.stream == WEIR__NO_STREAM)
        return;
    weir__mark mark =
        weir__order_life_mark(weir__storage_order(self), holder.stream, holder.life);
    if (mark.clock != 0)
        (void)put_use(self, (weir__use){ mark.clock, 0, mark.number },
                      WEIR__STORAGE_USES + 1);
}

/* ---- what a stream is behind ---- */

void weir__storage_drop_passed(weir_storage *self, uint64_t t)
{
    weir__use passed[WEIR__STORAGE_USES + 1];
    uint32_t count = passed_uses(self, t, passed);
    weir__mutex_lock(&self->lock);
    for (uint32_t i = 0; i < count; i++)
        (void)drop_use_locked(self, passed[i]);
    weir__use *own = find_use_locked(self, t);
    if (own != NULL)
        *own = self->uses[--self->use_count];
    weir__mutex_unlock(&self->lock);
}

/* ---- waits ---- */

uint32_t weir__storage_marks(weir_storage *self, uint64_t t, weir_access access,
                             weir__mark *out)
{
    weir__use seen[WEIR__STORAGE_USES + 1];
    uint32_t count = 0, seen_count = copy_uses(self, seen);
    tell_looked(self);
    for (uint32_t i = 0; i < seen_count; i++) {
        weir__mark mark = { seen[i].clock, seen[i].write };
        if (access == WEIR_WRITE)
            mark = mark_of(seen[i]);
        if (mark.number != 0 && mark.clock != t)
            out[count++] = mark;
    }
    return count;
}

weir_status weir__storage_wait_marks(weir_storage *self, uint64_t t, weir_stream stream,
                                     const weir__mark *marks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        weir_status status = weir__order_wait(weir__storage_order(self), t, stream,
                                              marks[i]);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* What an access has to wait for of what nobody can name; number 0: nothing. */
static weir__mark unnamed_mark(const weir_storage *self, weir_access access)
{
    uint64_t number = access == WEIR_WRITE ? self->unnamed_all : self->unnamed_writes;
    return (weir__mark){ WEIR__CLOCK_ASIDE, number };
}

bool weir__storage_is_unnamed(weir_storage *self, uint64_t t)
{
    weir__mark mark = unnamed_mark(self, WEIR_WRITE);
    return mark.number != 0 &&
           !weir__order_may_take(weir__storage_order(self), t, mark);
}

/* Waits for a mark of what is set aside, if it has a number: behind a point of the
 * whole device, where there is one or it has such; else the host waits. Neither for a
 * stream that is being captured, declared or not: the point spoils that, and is
 * refused; and one that is not known had no clock. */
static weir_status wait_for_aside(weir__order *order, uint64_t t, weir_stream stream,
                                  weir__mark mark)
{
    weir__mark point;
    if (mark.number == 0)
        return WEIR_OK;
    weir_status status = weir__order_wait(order, t, stream, mark);
    if (status == WEIR_OK || status == WEIR_CAPTURING)
        return status;
    (void)weir__order_stock(order); /* for the point */
    if (weir__order_all_point(order, &point) == WEIR_OK)
        return weir__order_wait(order, t, stream, mark);
    return weir__order_sync(order, mark);
}

weir_status weir__storage_wait_for_others(weir_storage *self, weir__holder holder,
                                          weir_stream stream, weir_access access)
{
    weir__order *order = weir__storage_order(self);
    uint64_t t;
    weir_status status = weir__order_clock(order, stream, &t);
    if (status != WEIR_OK)
        return status;
    weir__mark marks[WEIR__STORAGE_USES + 2], own = WEIR__MARK_DONE;
    uint32_t count = weir__storage_marks(self, t, access, marks);
    weir__mark aside = unnamed_mark(self, access);
    if (t != holder.life.clock)
        status = weir__order_life_point(order, holder.stream, holder.life, &own);
    if (own.clock == WEIR__CLOCK_ASIDE) /* another thread's own: later than all uses */
        aside = own;
    else if (own.clock != 0 && own.clock != t)
        marks[count++] = own;
    if (status == WEIR_OK)
        status = wait_for_aside(order, t, stream, aside);
    if (status != WEIR_OK)
        return status;
    return weir__storage_wait_marks(self, t, stream, marks, count);
}

weir_status weir__storage_wait_sync(weir_storage *self, weir__holder holder,
                                    weir_access access)
{
    weir__order *order = weir__storage_order(self);
    weir__mark marks[WEIR__STORAGE_USES + 3];
    uint32_t count = weir__storage_marks(self, 0, access, marks);
    weir_status status = weir__order_life_point(order, holder.stream, holder.life,
                                                &marks[count]);
    if (status != WEIR_OK)
        return status;
    count += marks[count].clock != 0;
    marks[count] = unnamed_mark(self, access);
    count += marks[count].number != 0;
    for (uint32_t i = 0; i < count; i++) {
        status = weir__order_sync(order, marks[i]);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}
