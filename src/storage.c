/* storage.c - see storage.h: records, holders, and the end. */
#include "storage.h"

#include "pending.h"
#include "resource_internal.h"
#include "storage_internal.h"

#define AT_HOME   ((uint64_t)1 << 32)
#define ALL_MASK  (AT_HOME - 1)

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
    weir__storage_tell_over(self);
}

/* ---- records ---- */

static weir_storage *storage_new(weir_device *device, weir__holder holder, size_t extra)
{
    weir_storage *self = weir__host_alloc(sizeof *self + extra);
    if (self == NULL) {
        (void)weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a storage");
        return NULL;
    }
    /* Field by field: as a whole it costs more, for the uses are the most of it. */
    atomic_init(&self->holders, AT_HOME + 1);
    atomic_init(&self->records, 1);
    atomic_init(&self->is_unnamed, false);
    self->is_block = self->read_only = self->ignores_stream = false;
    self->kind = WEIR_MEMORY_DEVICE;
    self->device = device;
    self->resource = NULL;
    self->ptr = NULL;
    self->bytes = self->alignment = 0;
    self->deleter = NULL;
    self->context = NULL;
    self->home = holder.life.clock;
    atomic_init(&self->use_count, 0);
    atomic_init(&self->notes, 0);
    self->next = NULL;
    self->aside = 0;
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
            weir__storage_note_holder(self, holder);
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
    tell_leave(self);
    (void)atomic_fetch_sub(&self->holders, share_of(self, from));
}

/* ---- the end ---- */

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
        if (!weir__order_is_done(weir__storage_order(self), 0, marks[i]))
            return false;
    }
    return true;
}

bool weir__storage_end(weir_storage *self, bool all_done)
{
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = all_done ? 0 : weir__storage_marks(self, 0, WEIR_WRITE, marks);
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
           weir__order_lives(weir__storage_order(self), holder.stream, holder.life);
}

/* The block goes back on the last holder's stream, where that lives and is behind all
 * uses; else behind points. */
static void deallocate(weir_storage *self, weir__holder holder)
{
    bool may_be_on_its_own = is_there(self, holder);
    if (may_be_on_its_own && self->use_count > 0)
        weir__storage_drop_passed(self, holder.life.clock);
    if (may_be_on_its_own && self->use_count == 0) {
        (void)weir_deallocate(self->resource, holder.stream, self->ptr, self->bytes,
                              self->alignment);
        return;
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    weir__storage_note_last(self, holder);
    deallocate_after(self, marks, weir__storage_marks(self, 0, WEIR_WRITE, marks));
}

/* Lets a stream wait for all uses, the last holder's own where it still lives, else the
 * legacy one; false: it cannot. */
static bool wait_for_uses(weir_storage *self, weir__holder holder, weir_stream *out)
{
    weir__order *order = weir__storage_order(self);
    uint64_t t = holder.life.clock;
    *out = holder.stream;
    if (!is_there(self, holder)) {
        *out = NULL;
        t = weir__order_legacy(order);
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = weir__storage_marks(self, t, WEIR_WRITE, marks);
    return weir__storage_wait_marks(self, t, *out, marks, count) == WEIR_OK;
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
    weir__storage_note_last(self, holder);
    weir_stream stream;
    if (!self->ignores_stream && wait_for_uses(self, holder, &stream)) {
        end_foreign(self, stream);
        return;
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = weir__storage_marks(self, 0, WEIR_WRITE, marks);
    for (uint32_t i = 0; i < count; i++)
        weir__order_cover(weir__storage_order(self), marks[i]);
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

bool weir__storage_claim(weir_storage *self, uint64_t *was)
{
    uint64_t now = atomic_load(&self->holders);
    while ((now & ALL_MASK) == 1) {
        if (atomic_compare_exchange_weak(&self->holders, &now, 0)) {
            *was = now;
            return true;
        }
    }
    return false;
}

void weir__storage_unclaim(weir_storage *self, uint64_t was)
{
    atomic_store(&self->holders, was);
}

void weir__storage_end_claimed(weir_storage *self, weir__holder holder)
{
    tell_last(self);
    end_on(self, holder);
}

void weir__storage_replace(weir_storage *self, weir_resource *mr, void *ptr,
                           size_t bytes, size_t alignment, weir__holder holder)
{
    WEIR_CHECK(self->is_block && !weir__storage_is_bound(self), "nobody looks on");
    tell_last(self);
    deallocate(self, holder);
    set_block(self, mr, ptr, bytes, alignment);
    self->home = holder.life.clock;
    self->use_count = 0;
    atomic_store(&self->holders, AT_HOME + 1);
}

void weir__storage_forget(weir_storage *self)
{
    weir_device *device = self->is_block ? NULL : self->device;
    tell_last(self);
    weir__storage_drop_record(self);
    weir_device_unref(device);
}
