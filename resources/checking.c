/* checking.c - guards beside each block, and a quarantine for those that came back: the
 * resource's making and end, what it is asked, and the look at everything.
 *
 * checking_calls.c tells what an allocation and a deallocation do. The resource has a
 * stream of its own, the watcher, for looks at what has come back; it is put behind
 * nothing that is not done, so that it never stands still. */
#include "weir/checking.h"

#include <string.h>

#include "call_sites.h"
#include "checking_parts.h"
#include "internal.h"
#include "resource_internal.h"

/* ---- the look at everything ---- */

static uint64_t findings(weir__checking *self)
{
    return atomic_load(&self->overruns) + atomic_load(&self->uses_after_free);
}

/* The next block that is out, has guards, and is no younger than number `last`, pinned;
 * `block` (null: the beginning) is let go of. */
static weir__checked *pin_next(weir__checking *self, weir__checked *block,
                               uint64_t last)
{
    weir__mutex_lock(&self->lock);
    weir__checked *next = block == NULL ? self->out.oldest : block->newer;
    while (next != NULL && next->number <= last &&
           (next->is_moving || !next->is_guarded))
        next = next->newer;
    if (next != NULL && next->number > last)
        next = NULL;
    if (next != NULL)
        next->pins++;
    if (block != NULL && --block->pins == 0)
        weir__cond_broadcast(&self->unpinned);
    weir__mutex_unlock(&self->lock);
    return next;
}

/* Up to number `last`: what was put on their streams by then is done. */
static void look_at_all_out(weir__checking *self, uint64_t last)
{
    const size_t guard = self->options.guard_bytes;
    weir__checked *block = NULL;
    while ((block = pin_next(self, block, last)) != NULL) {
        size_t all = weir__checked_region_bytes(self, block);
        weir__checking_look_sync(self, block, 0, guard);
        weir__checking_look_sync(self, block, all - guard, guard);
    }
}

static weir_status check_sync(weir__checking *self)
{
    weir__mutex_lock(&self->lock);
    uint64_t last = self->numbers;
    weir__mutex_unlock(&self->lock);
    weir_status status = weir__order_device_sync(self->device->order);
    if (status != WEIR_OK)
        return status;
    (void)weir__looks_judge_all_sync(self);
    (void)weir__checking_empty(self, true);
    look_at_all_out(self, last);
    (void)weir__looks_judge_all_sync(self);
    return WEIR_OK;
}

/* ---- questions ---- */

static weir_resource *checking_upstream(void *context)
{
    weir__checking *self = context;
    return self->upstream;
}

static void checking_properties(void *context, weir_resource_properties *out)
{
    (void)context;
    out->share_kind = WEIR_SHARE_NONE;
    out->usable_at_once = out->pages_usable_at_once = false;
}

static weir_status checking_find(void *context, const void *ptr, weir_block *out)
{
    weir__checking *self = context;
    weir__mutex_lock(&self->lock);
    weir_status status = weir__block_describe(
        weir__block_table_find(&self->table, ptr), "checking", ptr, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* What is the program's comes from here; what is held, from upstream. */
static void checking_statistics(void *context, weir_resource_statistics *out)
{
    weir__checking *self = context;
    weir_resource_statistics below = { .struct_size = sizeof below };
    if (weir_resource_get_statistics(self->upstream, &below) == WEIR_OK)
        *out = below;
    weir__mutex_lock(&self->lock);
    const weir_resource_statistics *counts = &self->counts;
    out->out_bytes = counts->out_bytes;
    out->out_blocks = counts->out_blocks;
    out->peak_out_bytes = counts->peak_out_bytes;
    out->allocations = counts->allocations;
    out->deallocations = counts->deallocations;
    out->failures = counts->failures;
    out->kept_bytes += self->held_bytes;
    weir__mutex_unlock(&self->lock);
}

static size_t checking_trim_sync(void *context, size_t keep_bytes)
{
    weir__checking *self = context;
    (void)weir__checking_empty(self, true);
    (void)weir__looks_judge_all_sync(self);
    return weir_resource_trim_sync(self->upstream, keep_bytes);
}

/* ---- the end ---- */

/* Copies that cannot be waited for may still write to the staging: then it stays. */
static void checking_destroy(void *context)
{
    weir__checking *self = context;
    bool all_done = true;
    if (self->watcher != NULL) {
        (void)weir__checking_empty(self, true);
        all_done = weir__looks_judge_all_sync(self);
    }
    WEIR_CHECK(self->out.oldest == NULL, "memory is still out");
    for (size_t i = 0; i < WEIR__LOOKS_MOST; i++) {
        weir__checked *block = self->looks[i].block;
        (void)weir__order_may_take(self->device->order, 0, self->looks[i].mark);
        if (block != NULL)
            weir__checked_let_go(self, block);
    }
    if (self->watcher != NULL)
        (void)weir_stream_destroy(self->device, self->watcher);
    if (self->staging != NULL && all_done)
        (void)weir__pinned_free(self->device, self->staging);
    weir__block_table_finish(&self->table);
    weir__cond_destroy(&self->landed);
    weir__cond_destroy(&self->unpinned);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static const weir_resource_ops checking_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "checking",
    .allocate = weir__checking_allocate,
    .deallocate = weir__checking_deallocate,
    .destroy = checking_destroy,
    .trim_sync = checking_trim_sync,
    .upstream = checking_upstream,
    .properties = checking_properties,
    .statistics = checking_statistics,
    .find = checking_find,
    .deallocate_after = weir__checking_deallocate_after,
    .extend = weir__checking_extend,
};

/* ---- creation ---- */

static weir_status check_most(const char *what, size_t value, size_t most)
{
    if (value <= most)
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT, "checking: %zu %s; %zu are the most",
                      value, what, most);
}

static weir_status options_read(const weir_checking_options *from,
                                weir_checking_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of checking");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->guard_bytes == 0)
        out->guard_bytes = 256;
    if (out->quarantine_bytes == 0)
        out->quarantine_bytes = (size_t)64 << 20;
    if (out->look_bytes == 0)
        out->look_bytes = (size_t)64 << 10;
    if (out->frames == 0)
        out->frames = 4;
    status = check_most("guard bytes", out->guard_bytes, WEIR_CHECKING_GUARD_MAX);
    if (status == WEIR_OK)
        status = check_most("bytes to look at", out->look_bytes,
                            WEIR_CHECKING_LOOK_MAX);
    if (status == WEIR_OK)
        status = check_most("frames of each call site", out->frames,
                            WEIR_CHECKING_FRAMES_MAX);
    if (status == WEIR_OK && out->look_bytes < 4 * out->guard_bytes)
        out->look_bytes = 4 * out->guard_bytes;
    return status;
}

static weir_status make_self(weir_resource *upstream,
                             const weir_checking_options *options, weir__checking **out)
{
    weir__checking *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource checking");
    memset(self, 0, sizeof *self);
    self->upstream = upstream;
    self->device = weir_resource_device(upstream);
    self->options = *options;
    weir_status status = weir__block_table_init(&self->table);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    weir__cond_init(&self->unpinned);
    weir__cond_init(&self->landed);
    *out = self;
    return WEIR_OK;
}

/* What it needs of the device. */
static weir_status prepare(weir__checking *self)
{
    const size_t each = self->options.look_bytes;
    void *staging;
    weir_status status = weir__pinned_malloc(self->device, WEIR__LOOKS_MOST * each, 0,
                                             &staging);
    if (status != WEIR_OK)
        return status;
    self->staging = staging;
    for (size_t i = 0; i < WEIR__LOOKS_MOST; i++)
        self->looks[i].slot = self->staging + i * each;
    return weir_stream_create(self->device, WEIR_STREAM_NON_BLOCKING, &self->watcher);
}

weir_status weir_checking_create(weir_resource *upstream,
                                 const weir_checking_options *options,
                                 weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_checking_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = weir__enter();
    if (status == WEIR_OK && upstream == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (status == WEIR_OK)
        status = options_read(options, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    weir__checking *self = NULL;
    if (status == WEIR_OK)
        status = make_self(upstream, &in_force, &self);
    if (status != WEIR_OK)
        return status;

    weir__sites_begin();
    weir_resource_ops ops = checking_ops;
    if (!up.can_extend)
        ops.extend = NULL;
    status = prepare(self);
    if (status == WEIR_OK)
        status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK) {
        weir__error_record why;
        weir__error_keep(&why);
        checking_destroy(self);
        weir__error_put_back(&why);
    }
    return status;
}

/* Null: said why. */
static weir__checking *self_of(weir_resource *mr)
{
    weir__checking *self = weir__resource_self(mr, &checking_ops);
    if (self == NULL)
        (void)weir__fail(WEIR_INVALID_ARGUMENT, "%s is no checking resource",
                         mr == NULL ? "null" : "this");
    return self;
}

weir_status weir_checking_check_sync(weir_resource *mr, uint64_t *out)
{
    if (out != NULL)
        *out = 0;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    weir__checking *self = self_of(mr);
    if (self == NULL)
        return WEIR_INVALID_ARGUMENT;
    uint64_t before = findings(self);
    weir__thread *thread = weir__thread_self();
    thread->depth++; /* what goes upstream meanwhile is nothing that the caller does */
    status = check_sync(self);
    thread->depth--;
    if (out != NULL && status == WEIR_OK)
        *out = findings(self) - before;
    return status;
}

weir_status weir_checking_get_statistics(weir_resource *mr,
                                         weir_checking_statistics *out)
{
    const weir_checking_statistics none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    weir__checking *self = self_of(mr);
    if (self == NULL)
        return WEIR_INVALID_ARGUMENT;
    weir_checking_statistics now = { .struct_size = sizeof now,
                                     .overruns = atomic_load(&self->overruns),
                                     .uses_after_free =
                                         atomic_load(&self->uses_after_free),
                                     .wrong_frees = atomic_load(&self->wrong_frees),
                                     .wrong_streams = atomic_load(&self->wrong_streams),
                                     .looks = atomic_load(&self->looked),
                                     .not_checked = atomic_load(&self->not_checked) };
    weir__mutex_lock(&self->lock);
    now.quarantine_blocks = self->held_blocks;
    now.quarantine_bytes = self->held_bytes;
    weir__mutex_unlock(&self->lock);
    return weir__fill_out(out, &now, sizeof now);
}

weir_status weir_checking_get_options(weir_resource *mr, weir_checking_options *out)
{
    const weir_checking_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const weir__checking *self = self_of(mr);
    if (self == NULL)
        return WEIR_INVALID_ARGUMENT;
    return weir__fill_out(out, &self->options, sizeof self->options);
}
