/* storage.c - see storage.h. */
#include "storage.h"

#include "internal.h"
#include "pending.h"
#include "resource_internal.h"

#define AT_HOME   ((uint64_t)1 << 32)
#define ALL_MASK  (AT_HOME - 1)

static weir__order *order_of(const weir_storage *self)
{
    return self->device->order;
}

/* ---- what the ledger is told: what who leaves has done is before the end ---- */

static void tell_leave(weir_storage *self)
{
    const weir__device_ops *ops = self->device->ops;
    if (ops->note_done != NULL)
        ops->note_done(self->device->self, (uintptr_t)self, NULL);
}

static void tell_last(weir_storage *self)
{
    const weir__device_ops *ops = self->device->ops;
    if (ops->note_learn != NULL)
        ops->note_learn(self->device->self, (uintptr_t)self);
    if (ops->note_forget != NULL)
        ops->note_forget(self->device->self, (uintptr_t)self, false);
}

/* ---- records ---- */

static weir_storage *storage_new(weir_device *device, weir__holder holder, size_t extra)
{
    weir_storage *self = weir__host_alloc(sizeof *self + extra);
    if (self == NULL) {
        (void)weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a storage");
        return NULL;
    }
    *self = (weir_storage){ .device = device, .home = holder.life.clock };
    atomic_init(&self->holders, AT_HOME + 1);
    atomic_init(&self->records, 1);
    atomic_init(&self->is_unnamed, false);
    weir__mutex_init(&self->lock, WEIR__RANK_STORAGE);
    return self;
}

weir_memory_kind weir__memory_kind(weir_resource *mr)
{
    weir_resource_properties it = { .struct_size = sizeof it };
    if (weir_resource_get_properties(mr, &it) != WEIR_OK)
        return WEIR_MEMORY_DEVICE;
    if (it.managed)
        return WEIR_MEMORY_MANAGED;
    if (it.pinned)
        return WEIR_MEMORY_PINNED;
    return it.host_accessible ? WEIR_MEMORY_HOST : WEIR_MEMORY_DEVICE;
}

static void set_block(weir_storage *self, weir_resource *mr, void *ptr, size_t bytes,
                      size_t alignment)
{
    self->is_block = true;
    self->kind = weir__memory_kind(mr);
    self->resource = mr;
    self->ptr = ptr;
    self->bytes = bytes;
    self->alignment = alignment;
}

weir_status weir__storage_of_block(weir_resource *mr, void *ptr, size_t bytes,
                                   size_t alignment, weir__holder holder,
                                   weir_storage **out)
{
    *out = storage_new(weir_resource_device(mr), holder, 0);
    if (*out == NULL)
        return WEIR_OUT_OF_HOST_MEMORY;
    set_block(*out, mr, ptr, bytes, alignment);
    return WEIR_OK;
}

weir_status weir__storage_of_foreign(weir_device *device, const weir_foreign *foreign,
                                     weir__holder holder, size_t extra,
                                     weir_storage **out)
{
    weir_storage *self = *out = storage_new(device, holder, extra);
    if (self == NULL)
        return WEIR_OUT_OF_HOST_MEMORY;
    (void)weir_device_ref(device);
    self->kind = foreign->kind;
    self->read_only = foreign->read_only;
    self->ignores_stream = foreign->ignores_stream;
    self->ptr = foreign->ptr;
    self->bytes = foreign->bytes;
    self->deleter = foreign->deleter;
    self->context = foreign->context;
    return WEIR_OK;
}

void weir__storage_keep_record(weir_storage *self)
{
    atomic_fetch_add_explicit(&self->records, 1, memory_order_relaxed);
}

void weir__storage_drop_record(weir_storage *self)
{
    if (atomic_fetch_sub_explicit(&self->records, 1, memory_order_acq_rel) != 1)
        return;
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

bool weir__storage_is_bound(const weir_storage *self)
{
    return atomic_load(&self->records) > 1 || atomic_load(&self->is_unnamed);
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
static bool drop_use(weir_storage *self, weir__use seen)
{
    weir__mutex_lock(&self->lock);
    weir__use *use = find_use_locked(self, seen.clock);
    bool drops = use != NULL && use->read == seen.read && use->write == seen.write;
    if (drops)
        *use = self->uses[--self->use_count];
    weir__mutex_unlock(&self->lock);
    return drops;
}

/* What the stream of `use` is behind, or is done, is good with its mark. */
static weir__use absorb(weir_storage *self, weir__use use)
{
    weir__use seen[WEIR__STORAGE_USES + 1];
    uint32_t count = copy_uses(self, seen);
    for (uint32_t i = 0; i < count; i++) {
        if (seen[i].clock == use.clock ||
            !weir__order_may_take(order_of(self), use.clock, mark_of(seen[i])) ||
            !drop_use(self, seen[i]))
            continue;
        if (seen[i].write != 0)
            use.write = later(use.read, use.write);
        if (seen[i].read != 0)
            use.read = later(use.read, use.write);
    }
    return use;
}

/* Notes it; or answers the mark for which its stream has to wait before there is
 * room. */
static bool try_note(weir_storage *self, weir__mark mark, weir_access access,
                     weir__mark *full)
{
    weir__use use = { mark.clock, mark.number, 0 };
    if (access == WEIR_WRITE)
        use = (weir__use){ mark.clock, 0, mark.number };
    if (put_use(self, use, WEIR__STORAGE_USES))
        return true;
    use = absorb(self, use);
    if (put_use(self, use, WEIR__STORAGE_USES))
        return true;
    weir__use seen[WEIR__STORAGE_USES + 1];
    bool is_full = copy_uses(self, seen) > 0; /* or was, before others dropped them */
    *full = is_full ? mark_of(seen[0]) : WEIR__MARK_DONE;
    return false;
}

weir_status weir__storage_use(weir_storage *self, weir_stream stream,
                              weir_access access)
{
    for (;;) {
        weir__mark mark, full;
        weir_status status = weir__order_point(order_of(self), stream, &mark);
        if (status != WEIR_OK || try_note(self, mark, access, &full))
            return status;
        status = weir__order_wait(order_of(self), mark.clock, stream, full);
        if (status != WEIR_OK)
            return status;
    }
}

/* All that is on the holder's stream counts as a write. If there is no way to note
 * that, nobody can name it. */
static void note_holder(weir_storage *self, weir__holder holder)
{
    weir__order *order = order_of(self);
    while (holder.stream != WEIR__NO_STREAM) {
        weir__mark full;
        weir__mark mark = weir__order_life_mark(order, holder.stream, holder.life);
        if (mark.clock == 0 || try_note(self, mark, WEIR_WRITE, &full))
            return;
        if (mark.clock == WEIR__CLOCK_ASIDE ||
            !weir__order_lives(order, holder.stream, holder.life) ||
            weir__order_wait(order, mark.clock, holder.stream, full) != WEIR_OK) {
            atomic_store(&self->is_unnamed, true);
            return;
        }
    }
}

/* The same for one who leaves for good; there is always room. */
static void note_last(weir_storage *self, weir__holder holder)
{
    if (holder.stream == WEIR__NO_STREAM)
        return;
    weir__mark mark =
        weir__order_life_mark(order_of(self), holder.stream, holder.life);
    if (mark.clock != 0)
        (void)put_use(self, (weir__use){ mark.clock, 0, mark.number },
                      WEIR__STORAGE_USES + 1);
}

/* ---- waits ---- */

/* The marks that an access has to wait for, but those of clock `t`; their number. */
static uint32_t marks_for(weir_storage *self, uint64_t t, weir_access access,
                          weir__mark *out)
{
    weir__use seen[WEIR__STORAGE_USES + 1];
    uint32_t count = 0, seen_count = copy_uses(self, seen);
    for (uint32_t i = 0; i < seen_count; i++) {
        weir__mark mark = { seen[i].clock, seen[i].write };
        if (access == WEIR_WRITE)
            mark = mark_of(seen[i]);
        if (mark.number != 0 && mark.clock != t)
            out[count++] = mark;
    }
    return count;
}

static weir_status wait_for(weir__order *order, uint64_t t, weir_stream stream,
                            const weir__mark *marks, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        weir_status status = weir__order_wait(order, t, stream, marks[i]);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

weir_status weir__storage_wait(weir_storage *self, weir__holder holder,
                               weir_stream stream, weir_access access)
{
    weir__order *order = order_of(self);
    bool is_own = weir__stream_of(stream) == weir__stream_of(holder.stream) &&
                  holder.life.changes != 0 &&
                  weir__order_lives(order, holder.stream, holder.life);
    if (is_own && self->use_count == 0)
        return WEIR_OK;
    uint64_t t;
    weir_status status = weir__order_clock(order, stream, &t);
    if (status != WEIR_OK)
        return status;
    weir__mark marks[WEIR__STORAGE_USES + 2];
    uint32_t count = marks_for(self, t, access, marks);
    if (t != holder.life.clock) {
        marks[count] = weir__order_life_mark(order, holder.stream, holder.life);
        count += marks[count].clock != 0 && marks[count].clock != t;
    }
    return wait_for(order, t, stream, marks, count);
}

weir_status weir__storage_wait_sync(weir_storage *self, weir__holder holder,
                                    weir_access access)
{
    weir__order *order = order_of(self);
    weir__mark marks[WEIR__STORAGE_USES + 2];
    uint32_t count = marks_for(self, 0, access, marks);
    marks[count] = weir__order_life_mark(order, holder.stream, holder.life);
    count += marks[count].clock != 0;
    for (uint32_t i = 0; i < count; i++) {
        weir_status status = weir__order_sync(order, marks[i]);
        if (status != WEIR_OK)
            return status;
    }
    return WEIR_OK;
}

/* ---- holders ---- */

static uint64_t share_of(const weir_storage *self, weir__holder holder)
{
    return holder.life.clock == self->home ? AT_HOME + 1 : 1;
}

void weir__storage_hold(weir_storage *self, weir__holder holder)
{
    uint64_t before = atomic_fetch_add_explicit(&self->holders, share_of(self, holder),
                                                memory_order_relaxed);
    WEIR_CHECK((before & ALL_MASK) != 0, "only what is held can be held by one more");
}

bool weir__storage_hold_weak(weir_storage *self, weir__holder holder)
{
    uint64_t now = atomic_load(&self->holders);
    while ((now & ALL_MASK) != 0) {
        if (atomic_compare_exchange_weak(&self->holders, &now,
                                         now + share_of(self, holder)))
            return true;
    }
    return false;
}

bool weir__storage_is_alone(const weir_storage *self)
{
    return (atomic_load_explicit(&self->holders, memory_order_acquire) & ALL_MASK) == 1;
}

/* A holder is one no more; whether it was the last. What is on its stream is noted,
 * unless it was the last, or somebody at home will leave later, and so with a later
 * mark. */
static bool let_go(weir_storage *self, weir__holder holder)
{
    uint64_t share = share_of(self, holder);
    uint64_t now = atomic_load(&self->holders);
    bool is_noted = false;
    for (;;) {
        bool is_last = (now & ALL_MASK) == 1;
        bool is_covered = share > 1 && now / AT_HOME > 1;
        if (!is_last && !is_covered && !is_noted) {
            note_holder(self, holder);
            is_noted = true;
        }
        if (!is_last)
            tell_leave(self);
        if (atomic_compare_exchange_weak(&self->holders, &now, now - share))
            return is_last;
    }
}

void weir__storage_change_holder(weir_storage *self, weir__holder from, weir__holder to)
{
    if (from.life.clock == to.life.clock)
        return;
    weir__storage_hold(self, to);
    (void)let_go(self, from);
}

/* ---- the end ---- */

/* Drops what the stream of `clock` is behind (0: what is done). */
static void drop_passed(weir_storage *self, uint64_t clock)
{
    weir__use seen[WEIR__STORAGE_USES + 1];
    uint32_t count = copy_uses(self, seen);
    for (uint32_t i = 0; i < count; i++) {
        if (seen[i].clock == clock ||
            weir__order_may_take(order_of(self), clock, mark_of(seen[i])))
            (void)drop_use(self, seen[i]);
    }
}

static void deallocate_after(weir_storage *self, const weir__mark *marks,
                             uint32_t count)
{
    weir_point points[WEIR__STORAGE_USES + 1];
    for (uint32_t i = 0; i < count; i++)
        points[i] = (weir_point){ marks[i].clock, marks[i].number };
    (void)weir_deallocate_after(self->resource, self->ptr, self->bytes, self->alignment,
                                points, count);
}

static void end_foreign(weir_storage *self, weir_stream stream)
{
    weir_device *device = self->device;
    if (self->deleter != NULL)
        self->deleter(self->context, self->ptr, self->bytes, stream);
    weir__storage_drop_record(self);
    weir_device_unref(device);
}

/* Nothing runs on a device that is lost. */
static bool marks_are_done(const weir_storage *self, const weir__mark *marks,
                           uint32_t count)
{
    if (weir__device_is_lost(self->device))
        return true;
    for (uint32_t i = 0; i < count; i++) {
        if (!weir__order_is_done(order_of(self), 0, marks[i]))
            return false;
    }
    return true;
}

bool weir__storage_end(weir_storage *self, bool all_done)
{
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = all_done ? 0 : marks_for(self, 0, WEIR_WRITE, marks);
    if (self->is_block) {
        deallocate_after(self, marks, count);
        weir__storage_drop_record(self);
        return true;
    }
    if (!marks_are_done(self, marks, count))
        return false;
    end_foreign(self, NULL);
    return true;
}

static bool is_there(const weir_storage *self, weir__holder holder)
{
    return holder.stream != WEIR__NO_STREAM &&
           weir__order_lives(order_of(self), holder.stream, holder.life);
}

/* The block goes back on the last holder's stream, where that lives and is behind all
 * uses; else behind points. */
static void deallocate(weir_storage *self, weir__holder holder)
{
    if (self->use_count > 0)
        drop_passed(self, holder.life.clock);
    if (self->use_count == 0 && is_there(self, holder)) {
        (void)weir_deallocate(self->resource, holder.stream, self->ptr, self->bytes,
                              self->alignment);
        return;
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    note_last(self, holder);
    deallocate_after(self, marks, marks_for(self, 0, WEIR_WRITE, marks));
}

/* Lets a stream wait for all uses, the last holder's own where it still lives, else the
 * legacy one; false: it cannot. */
static bool wait_for_uses(weir_storage *self, weir__holder holder, weir_stream *out)
{
    weir__order *order = order_of(self);
    uint64_t t = holder.life.clock;
    *out = holder.stream;
    if (!is_there(self, holder)) {
        *out = NULL;
        if (weir__order_clock(order, NULL, &t) != WEIR_OK)
            return false;
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = marks_for(self, t, WEIR_WRITE, marks);
    return wait_for(order, t, *out, marks, count) == WEIR_OK;
}

static void end_foreign_on(weir_storage *self, weir__holder holder)
{
    if (self->deleter == NULL) {
        end_foreign(self, NULL);
        return;
    }
    if (!self->ignores_stream && self->use_count == 0 && is_there(self, holder)) {
        end_foreign(self, holder.stream);
        return;
    }
    note_last(self, holder);
    weir_stream stream;
    if (!self->ignores_stream && wait_for_uses(self, holder, &stream)) {
        end_foreign(self, stream);
        return;
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = marks_for(self, 0, WEIR_WRITE, marks);
    for (uint32_t i = 0; i < count; i++)
        weir__order_cover(order_of(self), marks[i]);
    if (!weir__storage_end(self, false))
        weir__pending_defer(self);
}

static void end_on(weir_storage *self, weir__holder holder)
{
    if (atomic_load(&self->is_unnamed)) {
        weir__pending_to_limbo(self); /* behind all work there is by then */
    } else if (self->is_block) {
        deallocate(self, holder);
        weir__storage_drop_record(self);
    } else {
        end_foreign_on(self, holder);
    }
}

void weir__storage_leave(weir_storage *self, weir__holder holder)
{
    if (weir__is_forked() || !let_go(self, holder))
        return;
    tell_last(self);
    end_on(self, holder);
}

void weir__storage_leave_unnamed(weir_storage *self)
{
    atomic_store(&self->is_unnamed, true);
    weir__storage_leave(self, WEIR__HOLDER_NONE);
}

/* ---- the only holder ---- */

bool weir__storage_claim(weir_storage *self)
{
    uint64_t now = atomic_load(&self->holders);
    while ((now & ALL_MASK) == 1) {
        if (atomic_compare_exchange_weak(&self->holders, &now, 0)) {
            tell_last(self);
            return true;
        }
    }
    return false;
}

void weir__storage_end_claimed(weir_storage *self, weir__holder holder)
{
    end_on(self, holder);
}

void weir__storage_replace(weir_storage *self, weir_resource *mr, void *ptr,
                           size_t bytes, size_t alignment, weir__holder holder)
{
    WEIR_ASSERT(self->is_block && !weir__storage_is_bound(self), "nobody looks on");
    deallocate(self, holder);
    set_block(self, mr, ptr, bytes, alignment);
    self->home = holder.life.clock;
    self->use_count = 0;
    atomic_store(&self->holders, AT_HOME + 1);
}

void weir__storage_forget(weir_storage *self)
{
    weir_device *device = self->is_block ? NULL : self->device;
    weir__storage_drop_record(self);
    weir_device_unref(device);
}
