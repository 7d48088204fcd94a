/* emulated.c - the emulated device: opened, closed, and its table of primitives.
 *
 * See emulated.h for what it is made of. */
#include "device/emulated.h"

#include <stdio.h>
#include <string.h>

#include "device/emulated_map.h"
#include "device/emulated_range.h"
#include "device/emulated_shared.h"
#include "device/emulated_yard.h"

#define DEFAULT_MEMORY_BYTES ((size_t)32 << 30)
#define ORDINALS             16

/* Where all slabs of the process are, or were. */
static _Atomic uintptr_t slabs_begin = UINTPTR_MAX, slabs_end;

static void slab_note(uintptr_t begin, uintptr_t end)
{
    uintptr_t seen = atomic_load(&slabs_begin);
    while (begin < seen && !atomic_compare_exchange_weak(&slabs_begin, &seen, begin))
        continue;
    seen = atomic_load(&slabs_end);
    while (end > seen && !atomic_compare_exchange_weak(&slabs_end, &seen, end))
        continue;
}

void *weir__emulated_keep(weir__emulated *device, size_t bytes)
{
    weir__slab *slab = weir__host_alloc(bytes);
    if (slab != NULL) {
        slab->next = device->slabs;
        device->slabs = slab;
        slab_note((uintptr_t)slab, (uintptr_t)slab + bytes);
    }
    return slab;
}

bool weir__emulated_may_keep(const void *handle)
{
    return (uintptr_t)handle >= atomic_load(&slabs_begin) &&
           (uintptr_t)handle < atomic_load(&slabs_end) &&
           (uintptr_t)handle % sizeof(void *) == 0;
}

/* ---- closing ---- */

/* Frees what weir__emulated_open had made of it so far. */
static void device_free(weir__emulated *self)
{
    weir__mutex_lock(&self->lock);
    weir__streams_detach(self);
    weir__schedule_drain(self);
    weir__events_free(self);
    weir__graphs_free(self);
    weir__host_forget(self);
    if (self->ledger != NULL)
        weir__ledger_device_end(self->ledger, self);
    weir__mempools_free(self);
    weir__host_memory_drop(self);
    weir__mutex_unlock(&self->lock);

    weir__memory_drop_peers(self);
    if (self->arena != NULL)
        weir__arena_close(self->arena);
    while (self->slabs != NULL) {
        weir__slab *slab = self->slabs;
        self->slabs = slab->next;
        weir__host_free(slab);
    }
    weir__yard_close();
    weir__findings_free(self);
    if (self->ledger != NULL)
        weir__ledger_close(self->ledger);
    weir__mutex_destroy(&self->findings.lock);
    weir__cond_destroy(&self->changed);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static void emulated_close(void *device)
{
    weir__emulated *self = device;
    if (weir__is_forked())
        return;
    weir__emulated_unlist(self);
    device_free(self);
}

/* ---- properties ---- */

static void description_write(weir__emulated *self)
{
    static const char *const names[] = { "threads", "stepped", "no work" };
    const weir_emulated_options *options = &self->options;
    int length = snprintf(self->description, sizeof self->description,
                          "emulated device %d (%s", (int)self->ordinal,
                          names[options->scheduler]);
    size_t used = (size_t)length;
    if (options->scheduler != WEIR_EMULATED_STEPPED)
        snprintf(self->description + used, sizeof self->description - used, ")");
    else if (options->choose != NULL)
        snprintf(self->description + used, sizeof self->description - used,
                 ", by a chooser)");
    else
        snprintf(self->description + used, sizeof self->description - used,
                 ", seed %llu)", (unsigned long long)options->seed);
}

static void emulated_properties(void *device, weir_device_properties *out)
{
    const weir__emulated *self = device;
    out->description = self->description;
    out->emulated = true;
    out->ordinal = self->ordinal;
    memcpy(out->uuid, "weir emulated  ", sizeof out->uuid);
    out->uuid[sizeof out->uuid - 1] = (uint8_t)self->ordinal;
    out->memory_bytes = self->arena->bytes;
    out->concurrent_managed = true;
    out->pageable_access = true;
}

/* ---- what the ledger wants to know besides ---- */

/* A block that had no bytes before is a new one. */
static void note_extend(void *device, weir_stream stream, void *ptr, size_t bytes,
                        size_t new_bytes)
{
    weir__emulated *self = device;
    weir__queue *queue;
    uint64_t id = 0;
    if (self->ledger == NULL)
        return;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    if (weir__capture_of_stream(stream) != 0)
        id = WEIR__LEDGER_CAPTURE | weir__capture_of_stream(stream);
    else if (!self->is_lost && weir__stream_find(self, stream, &queue) == WEIR_OK)
        id = queue->id;
    if (id != 0)
        weir__ledger_extend(self->ledger, weir__this_thread(), id, (uintptr_t)ptr,
                            bytes, new_bytes);
    weir__mutex_unlock(&self->lock);
}

static void note_allocate(void *device, weir_stream stream, void *ptr, size_t bytes)
{
    note_extend(device, stream, ptr, 0, bytes);
}

static void note_at_once(void *device, void *ptr, size_t bytes)
{
    weir__emulated *self = device;
    if (self->ledger != NULL)
        weir__ledger_at_once(self->ledger, (uintptr_t)ptr, bytes);
}

static void note_cut(void *device, void *ptr, size_t bytes, size_t from, size_t to)
{
    weir__emulated *self = device;
    if (self->ledger != NULL)
        weir__ledger_cut(self->ledger, (uintptr_t)ptr, bytes, from, to);
}

/* On a stream that is not there any more it is behind points that nobody named; and on
 * one that is captured nothing runs that it could be behind. */
static void note_deallocate(void *device, weir_stream stream, void *ptr, size_t bytes)
{
    weir__emulated *self = device;
    weir__queue *queue;
    uint64_t id = 0;
    if (self->ledger == NULL)
        return;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    if (weir__capture_of_stream(stream) != 0)
        id = WEIR__LEDGER_CAPTURE | weir__capture_of_stream(stream);
    else if (stream != WEIR__NO_STREAM &&
             weir__stream_find(self, stream, &queue) == WEIR_OK)
        id = queue->branch == NULL ? queue->id : 0;
    weir__ledger_deallocate(self->ledger, weir__this_thread(), id, (uintptr_t)ptr,
                            bytes);
    weir__mutex_unlock(&self->lock);
}

static void note_release(void *device, uint64_t capture)
{
    weir__emulated *self = device;
    if (self->ledger != NULL)
        weir__ledger_release(self->ledger, WEIR__LEDGER_CAPTURE | capture);
}

static void note_done(void *device, uint64_t key, weir_event event)
{
    weir__emulated *self = device;
    weir__event *found = NULL;
    if (self->ledger == NULL)
        return;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    if (event == NULL || weir__event_find(self, event, &found) == WEIR_OK)
        weir__ledger_done(self->ledger, weir__this_thread(), self, key,
                          found != NULL ? found->learned : NULL);
    weir__mutex_unlock(&self->lock);
}

static void note_learn(void *device, uint64_t key)
{
    weir__emulated *self = device;
    if (self->ledger == NULL)
        return;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    weir__ledger_learn(self->ledger, weir__this_thread(), self, key);
    weir__mutex_unlock(&self->lock);
}

static void note_forget(void *device, uint64_t key, bool is_kept)
{
    weir__emulated *self = device;
    if (self->ledger == NULL)
        return;
    weir__mutex_lock(&self->lock);
    weir__ledger_forget(self->ledger, self, key, is_kept);
    weir__mutex_unlock(&self->lock);
}

static void note_guard(void *device, void *ptr, size_t bytes, void *block,
                       size_t block_bytes)
{
    weir__emulated *self = device;
    if (self->ledger == NULL)
        return;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    weir__ledger_guard(self->ledger, weir__this_thread(), (uintptr_t)ptr, bytes,
                       (uintptr_t)block, block_bytes);
    weir__mutex_unlock(&self->lock);
}

static void note_inspect(void *device, bool begins)
{
    weir__emulated *self = device;
    if (self->ledger == NULL)
        return;
    weir__emulated_meet_thread();
    weir__mutex_lock(&self->lock);
    weir__ledger_inspect(self->ledger, weir__this_thread(), begins);
    weir__mutex_unlock(&self->lock);
}

static void note_foreign(void *device, weir_event event, void *ptr, size_t bytes,
                         bool writes)
{
    weir__emulated *self = device;
    weir__event *found;
    if (self->ledger == NULL)
        return;
    weir__mutex_lock(&self->lock);
    if (weir__event_find(self, event, &found) == WEIR_OK)
        weir__shared_event_note(found, ptr, bytes, writes);
    weir__mutex_unlock(&self->lock);
}

static bool has_record_all(void *device)
{
    (void)device;
    return true;
}

static weir__emulated *emulated_itself(void *device)
{
    return device;
}

const weir__device_ops weir__emulated_ops = {
    .kind = "emulated",
    .close = emulated_close,
    .properties = emulated_properties,
    .malloc = weir__emulated_malloc,
    .free = weir__emulated_free,
    .host_malloc = weir__emulated_host_malloc,
    .host_free = weir__emulated_host_free,
    .memory_info = weir__emulated_memory_info,
    .stream_create = weir__emulated_stream_create,
    .stream_destroy = weir__emulated_stream_destroy,
    .stream_get_id = weir__emulated_stream_get_id,
    .stream_get_flags = weir__emulated_stream_get_flags,
    .stream_is_capturing = weir__emulated_stream_is_capturing,
    .stream_sync = weir__emulated_stream_sync,
    .stream_query = weir__emulated_stream_query,
    .stream_wait_event = weir__emulated_stream_wait_event,
    .event_create = weir__emulated_event_create,
    .event_destroy = weir__emulated_event_destroy,
    .event_record = weir__emulated_event_record,
    .event_record_all = weir__emulated_event_record_all,
    .has_record_all = has_record_all,
    .event_query = weir__emulated_event_query,
    .event_sync = weir__emulated_event_sync,
    .device_sync = weir__emulated_device_sync,
    .copy = weir__emulated_copy,
    .fill = weir__emulated_fill,
    .launch = weir__emulated_launch,
    .enable_peer = weir__emulated_enable_peer,
    .managed_malloc = weir__emulated_managed_malloc,
    .pinned_malloc = weir__emulated_pinned_malloc,
    .pinned_free = weir__emulated_pinned_free,
    .host_register = weir__emulated_host_register,
    .host_unregister = weir__emulated_host_unregister,
    .prefetch = weir__emulated_prefetch,
    .prefer = weir__emulated_prefer,
    .mempool_create = weir__emulated_mempool_create,
    .mempool_default = weir__emulated_mempool_default,
    .mempool_destroy = weir__emulated_mempool_destroy,
    .mempool_malloc = weir__emulated_mempool_malloc,
    .mempool_free = weir__emulated_mempool_free,
    .mempool_trim = weir__emulated_mempool_trim,
    .mempool_get_state = weir__emulated_mempool_get_state,
    .shared_malloc = weir__emulated_shared_malloc,
    .shared_free = weir__emulated_shared_free,
    .shared_find = weir__emulated_shared_find,
    .shared_export = weir__emulated_shared_export,
    .shared_open = weir__emulated_shared_open,
    .shared_close = weir__emulated_shared_close,
    .shared_event_create = weir__emulated_shared_event_create,
    .shared_event_open = weir__emulated_shared_event_open,
    .range_reserve = weir__emulated_range_reserve,
    .range_release = weir__emulated_range_release,
    .range_map = weir__emulated_range_map,
    .range_unmap = weir__emulated_range_unmap,
    .emulated = emulated_itself,
    .note_allocate = note_allocate,
    .note_extend = note_extend,
    .note_at_once = note_at_once,
    .note_cut = note_cut,
    .note_deallocate = note_deallocate,
    .note_release = note_release,
    .note_done = note_done,
    .note_learn = note_learn,
    .note_forget = note_forget,
    .note_guard = note_guard,
    .note_inspect = note_inspect,
    .note_foreign = note_foreign,
};

/* ---- opening ---- */

static weir__emulated *device_make(int32_t ordinal,
                                   const weir_emulated_options *options)
{
    weir__emulated *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return NULL;
    memset(self, 0, sizeof *self);
    self->ordinal = ordinal;
    self->options = *options;
    self->options.costs = NULL; /* the caller's */
    self->signals_end = &self->signals;
    self->owner = (weir__ledger_owner){ weir__findings_add, self };
    atomic_init(&self->random, options->seed);
    self->fault_random = ~options->seed;
    weir__mutex_init(&self->lock, WEIR__RANK_DEVICE);
    weir__mutex_init(&self->findings.lock, WEIR__RANK_FINDINGS);
    weir__cond_init(&self->changed);
    description_write(self);
    return self;
}

static bool keeps_pages(const weir__emulated *self)
{
#ifdef WEIR_TESTING
    if (weir__arenas_are_kept() && !self->options.no_ledger)
        return true;
#endif
    return self->options.scheduler == WEIR_EMULATED_NO_WORK;
}

static weir_status device_fill(weir__emulated *self)
{
    weir_status status = weir__arena_open(self->ordinal, self->options.memory_bytes,
                                          &self->arena);
    if (status != WEIR_OK)
        return status;
    self->arena->keeps_pages = keeps_pages(self);
    if (!self->options.no_ledger) {
        status = weir__findings_make(self);
        if (status != WEIR_OK)
            return status;
        self->ledger = weir__ledger_open();
        if (self->ledger == NULL)
            return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for the ledger");
    }
    return weir__queue_make(self, true, true, &self->legacy);
}

weir_status weir__emulated_open(int32_t ordinal, const weir_emulated_options *options,
                                const weir__device_ops **ops, void **self)
{
    weir_emulated_options complete;
    weir_status status = weir__read_options(options, &complete, sizeof complete,
                                            "emulated options");
    if (status != WEIR_OK)
        return status;
    if (complete.memory_bytes == 0)
        complete.memory_bytes = DEFAULT_MEMORY_BYTES;
    if ((unsigned)complete.scheduler > WEIR_EMULATED_NO_WORK)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no scheduler",
                          (int)complete.scheduler);
    weir_emulated_costs costs;
    status = weir__costs_read(complete.costs, &costs);
    if (status != WEIR_OK)
        return status;
    if (ordinal < 0 || ordinal >= ORDINALS)
        return weir__fail(WEIR_INVALID_ARGUMENT, "emulated devices have numbers 0 to "
                          "%d, not %d", ORDINALS - 1, (int)ordinal);

    status = weir__yard_open();
    if (status != WEIR_OK)
        return status;
    weir__emulated *made = device_make(ordinal, &complete);
    if (made == NULL) {
        weir__yard_close();
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device");
    }
    weir__costs_set(made, &costs);
    status = device_fill(made);
    if (status != WEIR_OK) {
        device_free(made);
        return status;
    }
    weir__emulated_list(made);
    *ops = &weir__emulated_ops;
    *self = made;
    return WEIR_OK;
}
