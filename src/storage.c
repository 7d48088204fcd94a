/* storage.c - see storage.h: records, holders, and the end. */
#include "storage.h"

#include "ipc.h"
#include "pending.h"
#include "resource_parts.h"
#include "storage_internal.h"

/* ---- what the ledger is told: what who leaves has done is before the end ---- */

static void tell_leave(weir_storage *self)
{
    weir__note_done(self->device, (uintptr_t)self, NULL);
}

static WEIR_NOINLINE void tell_ledger_last(weir_storage *self)
{
    weir__note_learn(self->device, (uintptr_t)self);
    weir__note_forget(self->device, (uintptr_t)self, false);
    weir__storage_tell_over(self);
}

static inline void tell_last(weir_storage *self)
{
    if (WEIR_UNLIKELY(atomic_load_explicit(&self->is_exported, memory_order_relaxed)))
        weir__ipc_storage_ends(self);
    if (WEIR_UNLIKELY(self->device->listens))
        tell_ledger_last(self);
}

/* ---- records ---- */

static inline weir_storage *storage_new(weir_device *device, weir__holder holder,
                                        size_t extra)
{
    weir_storage *self = weir__host_alloc(sizeof *self + extra);
    if (self == NULL) {
        (void)weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a storage");
        return NULL;
    }
    /* Field by field: as a whole it costs more, for the uses are the most of it. */
    atomic_init(&self->holders, WEIR__AT_HOME + 1);
    atomic_init(&self->records, 1);
    atomic_init(&self->is_exported, false);
    self->is_block = self->read_only = self->ignores_stream = false;
    self->keeps_device = false;
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
    atomic_init(&self->unnamed_all, 0);
    atomic_init(&self->unnamed_writes, 0);
    self->next = NULL;
    weir__mutex_init(&self->lock, WEIR__RANK_STORAGE);
    return self;
}

weir_memory_kind weir__memory_kind(const weir_resource *mr)
{
    const weir_resource_properties *it = &mr->properties;
    if (it->managed)
        return WEIR_MEMORY_MANAGED;
    if (it->pinned)
        return WEIR_MEMORY_PINNED;
    return it->host_accessible ? WEIR_MEMORY_HOST : WEIR_MEMORY_DEVICE;
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
    self->kind = foreign->kind;
    self->read_only = foreign->read_only;
    self->ignores_stream = foreign->ignores_stream;
    self->ptr = foreign->ptr;
    self->bytes = foreign->bytes;
    self->deleter = foreign->deleter;
    self->context = foreign->context;
    return WEIR_OK;
}

void weir__storage_keep_device(weir_storage *self)
{
    (void)weir_device_ref(self->device);
    self->keeps_device = true;
}

void weir__storage_keep_record(weir_storage *self)
{
    /* Relaxed: who makes a weak holder is one itself, and leaves later. */
    atomic_fetch_or_explicit(&self->holders, WEIR__WEAKENED, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->records, 1, memory_order_relaxed);
}

/* One that is the last finds that out without writing. */
void weir__storage_drop_record(weir_storage *self)
{
    if (atomic_load_explicit(&self->records, memory_order_acquire) != 1 &&
        atomic_fetch_sub_explicit(&self->records, 1, memory_order_acq_rel) != 1)
        return;
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

bool weir__storage_is_bound(const weir_storage *self)
{
    return atomic_load(&self->records) > 1 || atomic_load(&self->unnamed_all) != 0;
}

/* ---- holders ---- */

bool weir__storage_hold_weak(weir_storage *self, weir__holder holder)
{
    uint64_t now = atomic_load(&self->holders);
    while ((now & WEIR__HOLDERS_MASK) != 0) {
        if (atomic_compare_exchange_weak(&self->holders, &now,
                                         now + weir__storage_share(self, holder)))
            return true;
    }
    return false;
}

bool weir__storage_is_alone(const weir_storage *self)
{
    uint64_t now = atomic_load_explicit(&self->holders, memory_order_acquire);
    return (now & WEIR__HOLDERS_MASK) == 1;
}

bool weir__storage_is_held(const weir_storage *self)
{
    return (atomic_load(&self->holders) & WEIR__HOLDERS_MASK) != 0;
}

/* Whether one who holds is the only one who ever can: there are no others, and there
 * was never a weak one that could become one. */
static bool is_for_one(const weir_storage *self)
{
    uint64_t now = atomic_load_explicit(&self->holders, memory_order_acquire);
    WEIR_WINDOW();
    return (now & (WEIR__HOLDERS_MASK | WEIR__WEAKENED)) == 1;
}

void weir__storage_set_out(weir_storage *self, weir__holder from)
{
    uint64_t home = weir__storage_share(self, from) - 1;
    tell_leave(self);
    uint64_t before = atomic_fetch_sub(&self->holders, home);
    WEIR_ASSERT((before & WEIR__HOLDERS_MASK) != 0 && before >= home,
                "it was at home");
}

void weir__storage_settle(weir_storage *self, weir__holder at)
{
    (void)atomic_fetch_add(&self->holders, weir__storage_share(self, at) - 1);
}

/* A holder is one no more, if it need note nothing: it is the last, or somebody at home
 * will leave later, and so with a later mark. */
static bool let_go_unnoted(weir_storage *self, const weir__holder *holder,
                           bool *is_last)
{
    uint64_t share = weir__storage_share(self, *holder);
    tell_leave(self);
    uint64_t now = atomic_load(&self->holders);
    for (;;) {
        *is_last = (now & WEIR__HOLDERS_MASK) == 1;
        if (!*is_last && (share == 1 || now / WEIR__AT_HOME == 1))
            return false;
        WEIR_ASSERT(now >= share, "who leaves was there, and at home");
        if (atomic_compare_exchange_weak(&self->holders, &now, now - share))
            return true;
    }
}

/* The same for who has set out, and has noted what it had to. */
static bool let_go_noted(weir_storage *self)
{
    uint64_t now = atomic_load(&self->holders);
    for (;;) {
        bool is_last = (now & WEIR__HOLDERS_MASK) == 1;
        if (!is_last)
            tell_leave(self);
        if (atomic_compare_exchange_weak(&self->holders, &now, now - 1))
            return is_last;
    }
}

static WEIR_NOINLINE bool note_and_let_go(weir_storage *self,
                                          const weir__holder *holder)
{
    weir__storage_set_out(self, *holder);
    weir__storage_note_holder(self, *holder);
    return let_go_noted(self);
}

/* Where others may be, or come. */
static WEIR_NOINLINE bool let_go_among_others(weir_storage *self,
                                              const weir__holder *holder)
{
    bool is_last;
    if (let_go_unnoted(self, holder, &is_last))
        return is_last;
    return note_and_let_go(self, holder);
}

/* True: it was the last. */
static bool let_go(weir_storage *self, const weir__holder *holder)
{
    if (!is_for_one(self))
        return let_go_among_others(self, holder);
    atomic_store_explicit(&self->holders, 0, memory_order_relaxed); /* unseen */
    return true;
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
    weir_device *device = self->keeps_device ? self->device : NULL;
    weir__own_thread.gives_back++; /* for pending.c: it waits for no other deleter */
    if (self->deleter != NULL)
        self->deleter(self->context, self->ptr, self->bytes, stream);
    weir__own_thread.gives_back--;
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

static bool is_there(const weir_storage *self, const weir__holder *holder)
{
    return holder->stream != WEIR__NO_STREAM &&
           weir__order_lives(weir__storage_order(self), holder->stream, holder->life);
}

static void deallocate_by_name(weir_storage *self, const weir__holder *holder)
{
    (void)weir_deallocate(self->resource, holder->stream, self->ptr, self->bytes,
                          self->alignment);
}

/* The block goes back on the holder's stream. False: that is just ending, or is taken
 * into a capture. Of resources that may call users' code nobody knows whether they
 * wait for who ends the stream: there it must not end. */
static bool deallocate_on(weir_storage *self, const weir__holder *holder)
{
    weir_resource *mr = self->resource;
    weir_device *device = self->device;
    WEIR_WINDOW(); /* it lived before */
    if (mr->counting == NULL || mr->counting->deallocate_of == NULL) {
        deallocate_by_name(self, holder);
        return true;
    }
    if (weir__deallocate_of(mr, holder->stream, holder->life.clock, self->ptr,
                            self->bytes, self->alignment))
        return true;
    weir__order *order = weir__storage_order(self);
    if (!weir__order_hold_life(order, holder->stream, holder->life))
        return false;
    weir_device_ref(device); /* it may have been the last block */
    deallocate_by_name(self, holder);
    weir__order_let_go_life(order, holder->life);
    weir_device_unref(device);
    return true;
}

/* The block goes back on the last holder's stream, where that lives and is behind all
 * uses; else behind points. False: these would not speak for what nobody can name. */
static bool deallocate(weir_storage *self, const weir__holder *holder)
{
    bool may_be_on_its_own = is_there(self, holder);
    if (may_be_on_its_own && self->use_count > 0)
        weir__storage_drop_passed(self, holder->life.clock);
    if (may_be_on_its_own && self->use_count == 0 && deallocate_on(self, holder))
        return true;
    if (weir__storage_is_unnamed(self, 0))
        return false;
    weir__mark marks[WEIR__STORAGE_USES + 1];
    weir__storage_note_last(self, *holder);
    deallocate_after(self, marks, weir__storage_marks(self, 0, WEIR_WRITE, marks));
    return true;
}

/* Lets a stream wait for all uses, the last holder's own where it still lives, else the
 * legacy one; false: it cannot. */
static bool wait_for_uses(weir_storage *self, const weir__holder *holder,
                          weir_stream *out)
{
    weir__order *order = weir__storage_order(self);
    uint64_t t = holder->life.clock;
    *out = holder->stream;
    if (!is_there(self, holder)) {
        *out = NULL;
        t = weir__order_legacy(order);
    }
    weir__mark marks[WEIR__STORAGE_USES + 1];
    uint32_t count = weir__storage_marks(self, t, WEIR_WRITE, marks);
    return weir__storage_wait_marks(self, t, *out, marks, count) == WEIR_OK;
}

/* Where it is not just the last holder's stream that the deleter has to be behind. */
static WEIR_NOINLINE void end_foreign_behind_uses(weir_storage *self,
                                                  const weir__holder *holder)
{
    weir__storage_note_last(self, *holder);
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

static void end_foreign_on(weir_storage *self, const weir__holder *holder)
{
    if (self->deleter == NULL)
        end_foreign(self, NULL);
    else if (!self->ignores_stream && self->use_count == 0 && is_there(self, holder))
        end_foreign(self, holder->stream);
    else
        end_foreign_behind_uses(self, holder);
}

/* Whether what nobody can name is over, or the last holder's stream is behind it. One
 * without a stream may leave after others that left it to him to note what they did. */
static bool is_named(weir_storage *self, const weir__holder *holder)
{
    if (self->unnamed_all == 0)
        return true;
    if (holder->stream == WEIR__NO_STREAM)
        return false;
    return !weir__storage_is_unnamed(self, 0) ||
           (self->is_block && !weir__storage_is_unnamed(self, holder->life.clock));
}

static void end_on(weir_storage *self, const weir__holder *holder)
{
    if (!is_named(self, holder) || (self->is_block && !deallocate(self, holder))) {
        weir__pending_to_limbo(self); /* behind all work there is by then */
    } else if (self->is_block) {
        weir__storage_drop_record(self);
    } else {
        end_foreign_on(self, holder);
    }
}

void weir__storage_leave(weir_storage *self, const weir__holder *holder)
{
    if (weir__is_forked() || !let_go(self, holder))
        return;
    tell_last(self);
    end_on(self, holder);
}

void weir__storage_leave_idle(weir_storage *self, weir__holder holder)
{
    if (holder.life.clock != self->home)
        holder.stream = WEIR__NO_STREAM;
    weir__storage_leave(self, &holder);
}

void weir__storage_leave_unnamed(weir_storage *self)
{
    weir__storage_note_unnamed(self, WEIR_WRITE);
    weir__storage_leave(self, &WEIR__HOLDER_NONE);
}

/* ---- the only holder ---- */

bool weir__storage_claim(weir_storage *self, uint64_t *was)
{
    uint64_t now = atomic_load(&self->holders);
    while ((now & WEIR__HOLDERS_MASK) == 1) {
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
    end_on(self, &holder);
}

void weir__storage_replace(weir_storage *self, weir_resource *mr, void *ptr,
                           size_t bytes, size_t alignment, weir__holder holder)
{
    WEIR_CHECK(self->is_block && !weir__storage_is_bound(self), "nobody looks on");
    tell_last(self);
    (void)deallocate(self, &holder); /* all is named */
    set_block(self, mr, ptr, bytes, alignment);
    self->home = holder.life.clock;
    self->use_count = 0;
    atomic_store(&self->holders, WEIR__AT_HOME + 1);
}

void weir__storage_forget(weir_storage *self)
{
    weir_device *device = self->keeps_device ? self->device : NULL;
    tell_last(self);
    weir__storage_drop_record(self);
    weir_device_unref(device);
}
