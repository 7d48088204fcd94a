/* device.c - the devices that are open.
 *
 * One registry for the process: whoever opens a device that is open already gets the
 * same one, so that all who share a GPU share its clocks. */
#include "device/device.h"
#include "device/module.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "current.h"
#include "internal.h"
#include "ipc.h"
#include "pending.h"
#include "stream_order.h"
#include "sync.h"

#define ORDINALS WEIR__DEVICE_ORDINALS
#define DEFAULT_MEMORY_BYTES ((size_t)32 << 30)

static weir__mutex registry_lock = WEIR__MUTEX_INIT(WEIR__RANK_REGISTRY);
static weir_device *registry; /* guarded by registry_lock, as the next */
static uint64_t serials;

/* ---- opening ---- */

typedef struct device_name {
    bool cuda;
    bool may_be_emulated; /* "auto" */
    int32_t ordinal;
} device_name;

/* Reads "kind" or "kind:N"; false if `text` is neither. */
static bool name_has_kind(const char *text, const char *kind, int32_t *ordinal)
{
    size_t length = strlen(kind);
    *ordinal = 0;
    if (strncmp(text, kind, length) != 0)
        return false;
    text += length;
    if (*text == '\0')
        return true;
    if (*text++ != ':' || *text < '0' || *text > '9')
        return false;
    char *end;
    unsigned long number = strtoul(text, &end, 10);
    if (*end != '\0' || number >= ORDINALS)
        return false;
    *ordinal = (int32_t)number;
    return true;
}

static weir_status name_parse(const char *text, device_name *out)
{
    *out = (device_name){ .cuda = false };
    if (name_has_kind(text, "emulated", &out->ordinal))
        return WEIR_OK;
    out->cuda = true;
    out->may_be_emulated = strcmp(text, "auto") == 0;
    if (out->may_be_emulated || name_has_kind(text, "cuda", &out->ordinal))
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT,
                      "no device is called \"%.40s\": try auto, emulated, emulated:1 "
                      "(to %d) or cuda:0",
                      text, ORDINALS - 1);
}

static bool emulated_options_equal(const weir_emulated_options *a,
                                   const weir_emulated_options *b)
{
    return a->memory_bytes == b->memory_bytes && a->scheduler == b->scheduler &&
           a->seed == b->seed && a->choose == b->choose &&
           a->choose_context == b->choose_context && a->no_ledger == b->no_ledger &&
           a->on_finding == b->on_finding && a->finding_context == b->finding_context &&
           memcmp(a->costs, b->costs, sizeof *a->costs) == 0;
}

/* In the end emulated->costs is `costs`. */
static weir_status options_read(const weir_device_options *from,
                                weir_device_options *options,
                                weir_emulated_options *emulated,
                                weir_emulated_costs *costs)
{
    weir_status status = weir__read_options(from, options, sizeof *options,
                                            "device options");
    if (status != WEIR_OK)
        return status;
    status = weir__read_options(options->emulated, emulated, sizeof *emulated,
                                "emulated options");
    if (status != WEIR_OK)
        return status;
    if (emulated->memory_bytes == 0)
        emulated->memory_bytes = DEFAULT_MEMORY_BYTES;
    if ((unsigned)emulated->scheduler > WEIR_EMULATED_NO_WORK)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no scheduler",
                          (int)emulated->scheduler);
    status = weir__costs_read(emulated->costs, costs);
    emulated->costs = costs;
    return status;
}

static weir_device *registry_find(const char *name)
{
    for (weir_device *device = registry; device != NULL; device = device->next) {
        if (strcmp(device->name, name) == 0)
            return device;
    }
    return NULL;
}

/* Everything but the registry. Undone by device_free. */
static void device_free(weir_device *device)
{
    weir__ipc_device_ends(device);
    weir__pending_destroy(device->pending);
    if (device->order != NULL)
        weir__order_destroy(device->order);
    if (device->ops != NULL)
        device->ops->close(device->self);
    weir__current_end(device);
    weir__host_free(device);
}

static weir_status device_make(const char *name, const device_name *which,
                               const weir_device_options *options,
                               const weir_emulated_options *emulated,
                               weir_device **out)
{
    weir_device *device = weir__host_alloc(sizeof *device);
    if (device == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device");
    memset(device, 0, sizeof *device);
    atomic_init(&device->references, 1);
    atomic_init(&device->lost, false);
    weir__current_begin(device);
    device->serial = ++serials;
    device->slot = (uint32_t)which->ordinal + (which->cuda ? ORDINALS : 0);
    for (int call = 0; call < WEIR__CALL_COUNT; call++)
        atomic_init(&device->calls[call], 0);
    snprintf(device->name, sizeof device->name, "%s", name);
    device->emulated_options = *emulated;
    device->costs = *emulated->costs;
    device->emulated_options.costs = &device->costs;
    device->options = *options;
    device->options.emulated = &device->emulated_options;

    weir_status status =
        which->cuda ? weir__cuda_open(which->ordinal, &device->ops, &device->self)
                    : weir__emulated_open(which->ordinal, &device->emulated_options,
                                          &device->ops, &device->self);
    device->listens = status == WEIR_OK && device->ops->note_done != NULL &&
                      !emulated->no_ledger;
    if (status == WEIR_OK)
        status = weir__order_create(device, options->eager, &device->order);
    if (status == WEIR_OK)
        status = weir__pending_create(&device->pending);
    if (status != WEIR_OK) {
        device_free(device);
        return status;
    }
    *out = device;
    return WEIR_OK;
}

/* The device in the registry gets one more reference, if `from` does not contradict. */
static weir_status device_reopen(weir_device *device, const weir_device_options *from,
                                 const weir_device_options *options,
                                 const weir_emulated_options *emulated)
{
    bool same = from == NULL ||
                (options->eager == device->options.eager &&
                 (options->emulated == NULL || device->ops->emulated == NULL ||
                  emulated_options_equal(emulated, &device->emulated_options)));
    if (!same)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s is open already, with other options", device->name);
    weir_device_ref(device);
    return WEIR_OK;
}

/* The one that is open, or a new one. */
static weir_status device_get(const device_name *which, const weir_device_options *from,
                              const weir_device_options *options,
                              const weir_emulated_options *emulated, weir_device **out)
{
    char name[sizeof ((weir_device *)0)->name];
    snprintf(name, sizeof name, "%s:%d", which->cuda ? "cuda" : "emulated",
             (int)which->ordinal);

    /* The device is made under the lock: two threads that open the same one at the
     * same time get the same one, and nothing made here can come back here. */
    weir_status status = WEIR_OK;
    weir__mutex_lock(&registry_lock);
    weir_device *device = registry_find(name);
    if (device != NULL) {
        status = device_reopen(device, from, options, emulated);
    } else {
        status = device_make(name, which, options, emulated, &device);
        if (status == WEIR_OK) {
            device->next = registry;
            registry = device;
        }
    }
    weir__mutex_unlock(&registry_lock);
    if (status == WEIR_OK)
        *out = device;
    return status;
}

weir_status weir_device_open(const char *name, const weir_device_options *from,
                             weir_device **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (name == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device's name is null");

    device_name which;
    weir_device_options options;
    weir_emulated_options emulated;
    weir_emulated_costs costs;
    status = name_parse(name, &which);
    if (status != WEIR_OK)
        return status;
    status = options_read(from, &options, &emulated, &costs);
    if (status != WEIR_OK)
        return status;
    weir__watch_forks();

    status = device_get(&which, from, &options, &emulated, out);
    if (status != WEIR_NOT_SUPPORTED || !which.may_be_emulated)
        return status;
    which.cuda = false;
    return device_get(&which, from, &options, &emulated, out);
}

weir_device *weir_device_ref(weir_device *device)
{
    if (device == NULL)
        return NULL;
    size_t before = atomic_fetch_add(&device->references, 1);
    WEIR_CHECK(before != 0, "referenced after the last unref");
    return device;
}

static void registry_remove(weir_device *device)
{
    weir_device **link = &registry;
    while (*link != device)
        link = &(*link)->next;
    *link = device->next;
}

/* Takes one off where that cannot be the last, nor leave the device with none but those
 * of its own resource: then nobody has to know. */
static bool unref_one_of_many(weir_device *device)
{
    size_t seen = atomic_load(&device->references);
    while (seen > WEIR__CURRENT_OWN_REFERENCES_MAX + 1) {
        if (atomic_compare_exchange_weak(&device->references, &seen, seen - 1))
            return true;
    }
    return false;
}

void weir_device_unref(weir_device *device)
{
    if (device == NULL || weir__is_forked() || unref_one_of_many(device))
        return;
    /* Under the lock, so that nobody opens what is on its way out. */
    weir__mutex_lock(&registry_lock);
    size_t before = atomic_fetch_sub(&device->references, 1);
    WEIR_CHECK(before != 0, "unreferenced too often");
    weir_resource *own = NULL;
    if (before == 1)
        registry_remove(device);
    else
        own = weir__current_let_go(device);
    weir__mutex_unlock(&registry_lock);
    if (before == 1)
        device_free(device);
    weir_resource_unref(own);
}

weir_device *weir__device_find(const char *name)
{
    weir__mutex_lock(&registry_lock);
    weir_device *device = registry_find(name);
    if (device != NULL)
        (void)weir_device_ref(device);
    weir__mutex_unlock(&registry_lock);
    return device;
}

/* ---- questions ---- */

static weir_status check_device(weir_device *device)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    return WEIR_OK;
}

weir_status weir_device_get_properties(weir_device *device,
                                       weir_device_properties *out)
{
    weir_device_properties properties = { .struct_size = sizeof properties };
    weir_status status = weir__fill_out(out, &properties, sizeof properties);
    if (status == WEIR_OK)
        status = check_device(device);
    if (status != WEIR_OK)
        return status;
    device->ops->properties(device->self, &properties);
    properties.name = device->name;
    properties.lost = weir__device_is_lost(device);
    return weir__fill_out(out, &properties, sizeof properties);
}

weir_status weir_device_get_calls(weir_device *device, weir_device_calls *out)
{
    const weir_device_calls none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = check_device(device);
    if (status != WEIR_OK)
        return status;
    weir_device_calls calls = {
        .struct_size = sizeof calls,
#define X(name) .name = atomic_load(&device->calls[WEIR__CALL_##name]),
        WEIR_DEVICE_CALL_MAP(X)
#undef X
    };
    return weir__fill_out(out, &calls, sizeof calls);
}

/* ---- public calls that are a primitive each ---- */

weir_status weir_device_memory(weir_device *device, size_t *free_bytes,
                               size_t *total_bytes)
{
    size_t free_now = 0, total = 0;
    weir_status status = check_device(device);
    if (status == WEIR_OK && (free_bytes == NULL || total_bytes == NULL))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "an out parameter is null");
    if (status == WEIR_OK)
        status = weir__memory_info(device, &free_now, &total);
    if (status != WEIR_OK)
        free_now = total = 0;
    if (free_bytes != NULL)
        *free_bytes = free_now;
    if (total_bytes != NULL)
        *total_bytes = total;
    return status;
}

weir_status weir_device_enable_peer(weir_device *device, weir_device *peer)
{
    weir_status status = check_device(device);
    if (status != WEIR_OK)
        return status;
    if (peer == NULL || peer == device)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the peer is %s",
                          peer == NULL ? "null" : "the device itself");
    if (peer->ops != device->ops)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s and %s cannot reach each other",
                          device->name, peer->name);
    return weir__enable_peer(device, peer);
}

weir_status weir_device_sync(weir_device *device)
{
    weir_status status = check_device(device);
    if (status != WEIR_OK)
        return status;
    return weir__order_device_sync(device->order);
}
