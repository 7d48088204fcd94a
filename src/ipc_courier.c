/* ipc_courier.c - see ipc_courier.h: a few streams for each device. */
#include "ipc_courier.h"

#include "buffer_internal.h"
#include "ipc_internal.h"
#include "weir/stream.h"

#define STREAMS 4

typedef struct weir__courier {
    struct weir__courier *next;
    weir_device *device;
    uint32_t count; /* of streams made */
    uint32_t turn;  /* whose it is if all are busy */
    weir_stream streams[STREAMS];
} courier;

/* A device that has importers cannot close meanwhile: what is found stays. */
static courier *find(const weir_device *device)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    courier *found = weir__ipc_all.couriers;
    while (found != NULL && found->device != device)
        found = found->next;
    weir__mutex_unlock(&weir__ipc_all.lock);
    return found;
}

static courier *make(weir_device *device)
{
    courier *made = weir__host_alloc(sizeof *made);
    if (made == NULL)
        return NULL;
    weir__mutex_lock(&weir__ipc_all.lock);
    *made = (courier){ .next = weir__ipc_all.couriers, .device = device };
    weir__ipc_all.couriers = made;
    weir__mutex_unlock(&weir__ipc_all.lock);
    return made;
}

static weir_status choose(courier *self, weir_stream *out)
{
    for (uint32_t i = 0; i < self->count; i++) {
        bool is_done = false;
        *out = self->streams[i];
        if (weir__stream_query(self->device, *out, &is_done) == WEIR_OK && is_done)
            return WEIR_OK;
    }
    if (self->count < STREAMS) {
        weir_status status = weir_stream_create(self->device, WEIR_STREAM_NON_BLOCKING,
                                                out);
        if (status == WEIR_OK)
            self->streams[self->count++] = *out;
        return status;
    }
    *out = self->streams[self->turn++ % STREAMS];
    return WEIR_OK;
}

weir_status weir__courier_find(weir_device *device, weir__holder *out)
{
    courier *self = find(device);
    if (self == NULL)
        self = make(device);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a device's couriers");
    weir_stream stream;
    weir_status status = choose(self, &stream);
    return status == WEIR_OK ? weir__holder_make(device, stream, out) : status;
}

void weir__courier_drop(weir_device *device)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    courier **link = &weir__ipc_all.couriers;
    while (*link != NULL && (*link)->device != device)
        link = &(*link)->next;
    courier *found = *link;
    if (found != NULL)
        *link = found->next;
    weir__mutex_unlock(&weir__ipc_all.lock);
    if (found == NULL)
        return;
    for (uint32_t i = 0; i < found->count; i++)
        (void)weir_stream_destroy(device, found->streams[i]);
    weir__host_free(found);
}
