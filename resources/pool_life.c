/* pool_life.c - how a pool begins and ends, and what it tells about itself.
 *
 * Who keeps whom alive: the weir_resource around the pool holds upstream and device. It
 * leaves it to the pool to count the blocks that are out: after the last unref no
 * thread keeps anything, all are counted under the lock, and the last that comes back
 * ends both. A chunk's record belongs to the pool, from drawing it to giving it back;
 * a seat to the pool and its thread (pool_seats.c). */
#include "device/device.h"
#include "internal.h"
#include "pool_hit.h"
#include "pool_internal.h"
#include "pool_pages.h"
#include "pool_seats.h"
#include "pool_share.h"
#include "resource_internal.h"

/* Larger requests go the slow way, and what comes back of them. */
#define POOL_GATE_BYTES  ((size_t)1 << 36)

weir__kept weir__pool_kept_locked(const weir__pool *self)
{
    /* Not what they may at the moment: who may keep little keeps next to nothing. */
    const size_t half = weir__pool_cache_most(self) / 2;
    weir__kept all = { .blocks = (size_t)self->depot.count * WEIR__MAGAZINE,
                       .bytes = self->depot.bytes };
    for (const weir__seat *seat = self->seats; seat != NULL; seat = seat->next) {
        const size_t before = all.bytes;
        for (uint32_t i = 0; seat->caches != NULL && i <= seat->mask; i++) {
            const weir__cache *cache = seat->caches[i];
            if (cache == NULL)
                continue;
            all.blocks += weir__cache_blocks(cache);
            all.bytes += cache->bytes;
        }
        all.threads += all.bytes - before > half;
    }
    return all;
}

static void pool_statistics(void *context, weir_resource_statistics *out)
{
    weir__pool *self = context;
    weir__pool_seats_close(self);
    weir__mutex_lock(&self->lock);
    const weir__heap *heap = &self->heap;
    const weir__kept kept = weir__pool_kept_locked(self);
    *out = self->counts;
    out->struct_size = sizeof *out;
    out->held_bytes = self->held_bytes + self->passed_bytes;
    out->free_bytes = heap->bytes - heap->taken_bytes + kept.bytes;
    out->free_blocks = heap->free_blocks + heap->limbo_blocks +
                       heap->returned_blocks + kept.blocks;
    out->largest_free_bytes = weir__heap_largest_free(heap);
    out->set_aside_bytes = weir__heap_owner_at(heap, WEIR__OWNER_ASIDE)->free_bytes;
    weir__mutex_unlock(&self->lock);
    weir__pool_seats_open(self);
}

static void pool_properties(void *context, weir_resource_properties *out)
{
    const weir__pool *self = context;
    out->max_alignment = WEIR__POOL_ALIGNMENT_MOST;
    out->can_trim = true;
    out->usable_at_once = false;
    out->pages_usable_at_once = weir__pool_passes(self) && out->pages_usable_at_once;
    out->share_kind = WEIR_SHARE_NONE; /* several blocks lie in one of upstream's */
}

static weir_resource *pool_upstream(void *context)
{
    return ((weir__pool *)context)->upstream;
}

static size_t pool_trim_sync(void *context, size_t keep_bytes)
{
    weir__pool *self = context;
    weir__mutex_lock(&self->miss);
    weir__pool_flush_caches(self);
    size_t passed_bytes = weir__pool_passed_bytes(self);
    size_t bytes = weir__pool_trim_sync(
        self, keep_bytes > passed_bytes ? keep_bytes - passed_bytes : 0);
    weir__pool_fit_caches(self);
    weir__mutex_unlock(&self->miss);
    weir__pool_tell_lost(self);
    /* A leaf keeps what it is given until somebody asks for it. */
    (void)weir_resource_trim_sync(self->upstream, keep_bytes);
    return bytes;
}

/* ---- beginning and end ---- */

#define LINES_AT offsetof(weir__pool, heap.spares)

_Static_assert((offsetof(weir__pool, heap.spare_count) - LINES_AT) % WEIR__LINE == 0 &&
                   offsetof(weir__pool, lock) + sizeof(weir__mutex) -
                           offsetof(weir__pool, heap.spare_count) == WEIR__LINE,
               "a pool's lock is in one line with what nearly all write who take it");

/* Where a pool goes in host memory that is longer by a line: so that what is written
 * with every request lies in as few lines as can be. */
static weir__pool *in_lines(void *memory)
{
    size_t past = ((uintptr_t)memory + LINES_AT) % WEIR__LINE;
    return (weir__pool *)(void *)((char *)memory + (WEIR__LINE - past) % WEIR__LINE);
}

static void pool_free(weir__pool *self)
{
    if (self->has_dropped)
        weir__note_forget(self->device, weir__pool_dropped_key(self), true);
    weir__heap_close(&self->heap);
    weir__spare_seat_clear(&self->spare_seat);
    weir__mutex_destroy(&self->seats_lock);
    weir__mutex_destroy(&self->miss);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self->memory);
}

/* The last unref. What is on its way back counts as out until it is back. */
static bool pool_close(void *context)
{
    weir__pool *self = context;
    weir__pool_end_caches(self); /* from now on every block is counted under the lock */
    weir__mutex_lock(&self->lock);
    self->closing = true;
    bool is_over = weir__pool_is_over_locked(self);
    weir__mutex_unlock(&self->lock);
    return is_over;
}

static void pool_destroy(void *context)
{
    weir__pool *self = context;
    weir__order_unlisten(self->order, &self->listener);
    WEIR_CHECK(self->heap.taken_blocks == 0 && self->passed_blocks == 0,
               "memory is still out");
    size_t leaked_bytes = weir__pool_give_back_all(self);
    if (leaked_bytes > 0)
        (void)weir__fail(WEIR_DEVICE_ERROR,
                         "pool: %zu bytes did not go back upstream: too many streams "
                         "may still use them",
                         leaked_bytes);
    pool_free(self);
}

static const weir_resource_ops pool_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "pool",
    .allocate = weir__pool_allocate,
    .deallocate = weir__pool_deallocate,
    .destroy = pool_destroy,
    .trim_sync = pool_trim_sync,
    .upstream = pool_upstream,
    .properties = pool_properties,
    .statistics = pool_statistics,
    .find = weir__pool_find,
    .deallocate_after = weir__pool_deallocate_after,
    .extend = weir__pool_extend,
    .cut = weir__pool_cut,
};

/* As gates are entered in this process. */
static const weir__counting *pool_counting(void)
{
    static const weir__counting plain = { .close = pool_close,
                                          .allocate = weir__pool_hit,
                                          .deallocate = weir__pool_hit_back,
                                          .deallocate_of = weir__pool_hit_back_of };
    static const weir__counting fenced = { .close = pool_close,
                                           .allocate = weir__pool_hit_fenced,
                                           .deallocate = weir__pool_hit_back_fenced,
                                           .deallocate_of = weir__pool_hit_back_of };
    weir__gate_prepare();
    return weir__gate_fences ? &fenced : &plain;
}

static weir_status options_read(const weir_pool_options *from, weir_pool_options *out)
{
    weir_status status =
        weir__read_options(from, out, sizeof *out, "the options of a pool");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->limit_bytes == 0)
        out->limit_bytes = SIZE_MAX;
    if (out->limit_bytes < out->initial_bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "the limit of a pool is %zu bytes, below its initial size of "
                          "%zu",
                          out->limit_bytes, out->initial_bytes);
    return WEIR_OK;
}

/* A limit is on what the pool cuts itself. */
static size_t pass_alignment(const weir__pool *self)
{
    const weir_resource_properties *up = &self->up;
    bool passes = up->can_extend && up->cut_bytes != 0 &&
                  self->options.limit_bytes == SIZE_MAX;
    return passes ? up->cut_bytes : SIZE_MAX;
}

static void allow_caches(weir__pool *self)
{
    self->cache_bytes = weir__pool_cache_most(self);
    self->lone_bytes = weir__pool_lone_most(self, self->cache_bytes);
    if (self->cache_bytes < WEIR__HEAP_GRAIN)
        return;
    self->gate_bytes = POOL_GATE_BYTES;
    self->hit_bytes = weir__grains_size(WEIR__CLASSED_GRAINS);
}

weir_status weir_pool_create(weir_resource *upstream, const weir_pool_options *options,
                             weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream of a pool is null");
    weir_pool_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    status = weir_resource_get_properties(upstream, &up);
    if (status == WEIR_OK)
        status = options_read(options, &in_force);
    if (status != WEIR_OK)
        return status;

    void *memory = weir__host_alloc(sizeof(weir__pool) + WEIR__LINE);
    if (memory == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a pool");
    weir__pool *self = in_lines(memory);
    *self = (weir__pool){ .memory = memory,
                          .upstream = upstream,
                          .device = up.device,
                          .order = up.device->order,
                          .options = in_force,
                          .threads = 1, .forget_at = UINT64_MAX,
                          .end_bytes = in_force.limit_bytes, .look_at = UINT64_MAX,
                          .up = up,
                          .listener = { .clock_begins = weir__pool_clock_begins,
                                        .stream_changes = weir__pool_stream_changes } };
    weir__pool_note_end(self);
    allow_caches(self);
    self->listens = self->device->listens;
    self->pass_alignment = pass_alignment(self);
    atomic_init(&self->spare_grains, weir__pool_spare_grains(self));
    weir__depot_init(&self->depot);
    weir__mutex_init(&self->miss, WEIR__RANK_MISS);
    weir__mutex_init(&self->seats_lock, WEIR__RANK_SEATS);
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    if (!weir__heap_init(&self->heap)) {
        weir__mutex_destroy(&self->seats_lock);
        weir__mutex_destroy(&self->miss);
        weir__mutex_destroy(&self->lock);
        weir__host_free(memory);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory, or no addresses, for a pool");
    }

    status = weir__order_listen(self->order, &self->listener);
    if (status != WEIR_OK) {
        pool_free(self);
        return status;
    }
    weir_resource_ops ops = pool_ops;
    if (!weir__pool_passes(self)) {
        ops.extend = NULL;
        ops.cut = NULL;
    }
    status = weir__resource_create_counting(&ops, pool_counting(), self, out);
    if (status != WEIR_OK) {
        weir__order_unlisten(self->order, &self->listener);
        pool_free(self);
        return status;
    }
    self->mr = *out;
    return WEIR_OK;
}

weir_status weir_pool_get_options(weir_resource *mr, weir_pool_options *out)
{
    const weir_pool_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const weir__pool *self = weir__resource_self(mr, &pool_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is no pool");
    return weir__fill_out(out, &self->options, sizeof self->options);
}

size_t weir_pool_give_back(weir_resource *mr)
{
    if (weir__enter() != WEIR_OK)
        return 0;
    weir__pool *self = weir__resource_self(mr, &pool_ops);
    if (self == NULL)
        return 0;
    weir__pool_tell_lost(self);
    weir__thread *thread = weir__thread_self();
    thread->depth++; /* what goes upstream is not the user's */
    weir__mutex_lock(&self->miss);
    weir__pool_flush_caches(self);
    size_t bytes = weir__pool_give_idle(self);
    weir__mutex_lock(&self->lock);
    weir__pool_forget_peak_locked(self);
    weir__mutex_unlock(&self->lock);
    weir__pool_fit_caches(self);
    weir__mutex_unlock(&self->miss);
    thread->depth--;
    return bytes;
}
