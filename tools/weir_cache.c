/* weir_cache.c - see weir_cache.h. */
#include "weir_cache.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "weir/device.h"
#include "weir/ipc.h"
#include "weir/resource.h"
#include "weir/shareable.h"

/* How long the process that a column comes from may take to hand it over; meanwhile
 * nobody else is served. */
#define PATIENCE_MS 1000

typedef struct entry {
    column told; /* with tickets of this process's */
    weir_buffer data, mask;
    size_t bytes;
    struct entry *newer, *older;
} entry;

struct cache {
    weir_device *device;
    weir_resource *mr;
    weir_stream stream; /* that copies */
    size_t capacity_bytes;
    entry *newest, *oldest;
    cache_counts counts;
};

/* ---- the list ---- */

static void entry_unlink(cache *self, entry *one)
{
    *(one->newer != NULL ? &one->newer->older : &self->newest) = one->older;
    *(one->older != NULL ? &one->older->newer : &self->oldest) = one->newer;
    self->counts.columns--;
    self->counts.bytes -= one->bytes;
}

static void entry_link(cache *self, entry *one)
{
    one->newer = NULL;
    one->older = self->newest;
    *(self->newest != NULL ? &self->newest->newer : &self->oldest) = one;
    self->newest = one;
    self->counts.columns++;
    self->counts.bytes += one->bytes;
}

static entry *entry_find(cache *self, const char *name)
{
    entry *one = self->newest;
    while (one != NULL && strcmp(one->told.name, name) != 0)
        one = one->older;
    return one;
}

/* ---- entries ---- */

/* Nobody opens it any more. If it does not go, it is over with the bytes. */
static void ticket_end(const weir_ticket *ticket)
{
    const weir_ticket none = { { 0 } };
    weir_status status = WEIR_OK;
    if (memcmp(ticket, &none, sizeof none) != 0)
        status = weir_ipc_revoke(ticket);
    (void)status;
}

/* Gives back what the entry has; readers keep it as long as they want. */
static void entry_end(entry *one)
{
    ticket_end(&one->told.data);
    ticket_end(&one->told.mask);
    weir_buffer_reset(&one->data);
    weir_buffer_reset(&one->mask);
    free(one);
}

static void entry_drop(cache *self, entry *one)
{
    entry_unlink(self, one);
    self->counts.dropped++;
    entry_end(one);
}

/* Copies what another process's ticket names to *out, and makes a ticket for that. On
 * failure *out is empty or ends with its entry. */
static bool part_take(cache *self, const char *what, const weir_ticket *from,
                      weir_buffer *out, weir_ticket *ticket, refusal *why)
{
    weir_open_options options = WEIR_OPEN_OPTIONS_INIT;
    weir_buffer theirs;

    options.timeout_ms = PATIENCE_MS;
    weir_status status = weir_ipc_open(self->device, self->stream, from, &options,
                                       &theirs);
    if (status != WEIR_OK)
        return refuse_status(why, what, status);
    status = weir_buffer_copy(&theirs, self->mr, self->stream, out);
    bool good = status == WEIR_OK || refuse_status(why, what, status);
    weir_buffer_reset(&theirs);
    if (!good)
        return false;
    status = weir_ipc_export(out, NULL, ticket);
    return status == WEIR_OK || refuse_status(why, what, status);
}

static size_t whole_objects(size_t bytes)
{
    const size_t object = WEIR_SHAREABLE_OBJECT_BYTES;
    return (bytes + object - 1) / object * object;
}

static entry *entry_make(cache *self, const column *wanted, refusal *why)
{
    entry *one = calloc(1, sizeof *one);
    if (one == NULL) {
        refuse(why, "the server has no host memory");
        return NULL;
    }
    one->told = *wanted;
    memset(&one->told.data, 0, sizeof one->told.data);
    memset(&one->told.mask, 0, sizeof one->told.mask);
    one->bytes = whole_objects(column_data_bytes(wanted)) +
                 whole_objects(column_mask_bytes(wanted));
    if (one->bytes > self->capacity_bytes)
        refuse(why, "%s takes %zu bytes, in objects of %zu, and the cache has %zu",
               wanted->name, one->bytes, WEIR_SHAREABLE_OBJECT_BYTES,
               self->capacity_bytes);
    else if (part_take(self, "the items", &wanted->data, &one->data, &one->told.data,
                       why) &&
             (!wanted->has_mask || part_take(self, "the mask", &wanted->mask,
                                             &one->mask, &one->told.mask, why)))
        return one;
    entry_end(one);
    return NULL;
}

/* ---- the cache ---- */

bool cache_add(cache *self, const column *wanted, refusal *why)
{
    entry *one = entry_make(self, wanted, why);
    if (one == NULL)
        return false;
    entry *before = entry_find(self, wanted->name);
    if (before != NULL)
        entry_drop(self, before);
    while (self->oldest != NULL &&
           self->counts.bytes + one->bytes > self->capacity_bytes)
        entry_drop(self, self->oldest);
    entry_link(self, one);
    self->counts.added++;
    return true;
}

const column *cache_read(cache *self, const char *name)
{
    entry *one = entry_find(self, name);
    if (one == NULL)
        return NULL;
    entry_unlink(self, one);
    entry_link(self, one);
    self->counts.read++;
    return &one->told;
}

void cache_visit(const cache *self, void (*visit)(void *context, const column *one),
                 void *context)
{
    for (const entry *one = self->newest; one != NULL; one = one->older)
        visit(context, &one->told);
}

cache_counts cache_count(const cache *self)
{
    return self->counts;
}

/* That each block of `mr` is an object of its own; else readers would reach others'. */
static bool must_be_shareable(weir_resource *mr, const char *spec, refusal *why)
{
    weir_resource_properties it = { .struct_size = sizeof it };
    weir_status status = weir_resource_get_properties(mr, &it);
    if (status != WEIR_OK)
        return refuse_status(why, spec, status);
    return it.share_kind == WEIR_SHARE_FD || it.share_kind == WEIR_SHARE_LEGACY ||
           refuse(why, "%s: its blocks are no objects of their own, which can be "
                       "shared; those of `shareable` are", spec);
}

cache *cache_open(const char *device, const char *spec, size_t capacity_bytes,
                  refusal *why)
{
    cache *self = calloc(1, sizeof *self);
    if (self == NULL) {
        refuse(why, "there is no host memory");
        return NULL;
    }
    self->capacity_bytes = capacity_bytes;
    const char *what = device;
    weir_status status = weir_device_open(device, NULL, &self->device);
    if (status == WEIR_OK) {
        what = spec;
        status = weir_resource_open(self->device, spec, &self->mr);
    }
    if (status == WEIR_OK) {
        what = "a stream";
        status = weir_stream_create(self->device, WEIR_STREAM_NON_BLOCKING,
                                    &self->stream);
    }
    if (status != WEIR_OK)
        refuse_status(why, what, status);
    else if (must_be_shareable(self->mr, spec, why))
        return self;
    cache_close(self);
    return NULL;
}

void cache_close(cache *self)
{
    if (self == NULL)
        return;
    while (self->newest != NULL) {
        entry *one = self->newest;
        entry_unlink(self, one);
        entry_end(one);
    }
    if (self->stream != NULL)
        (void)weir_stream_destroy(self->device, self->stream);
    weir_resource_unref(self->mr);
    weir_device_unref(self->device);
    free(self);
}
