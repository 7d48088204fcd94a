/* growable_pause.c - see growable_pause.h, and include/weir/growable.h for what users
 * are promised.
 *
 *     active --stop--> changing --unmapped--> paused --> changing --mapped--> active
 *                         |  failed: as it was             |  failed: as it was
 *
 * Who changes the state has the record of the pause, and the pages, to himself: they
 * are stopped from the first step of a pause to the last of a resume, and meanwhile
 * only ever get freer. So a look at them, kept in the record, tells for good which
 * chunks there were and what was out.
 *
 * Neither direction gives up what it has before it has all that can be refused: a pause
 * unmaps nothing before all is copied, a resume copies nothing before all is mapped.
 * Chunks that the device does not unmap stay as they are, also while paused, and a
 * resume finds them there. */
#include "growable_pause.h"

#include "internal.h"
#include "resource_internal.h"
#include "stream_order.h"

#define PAGE WEIR_GROWABLE_PAGE_BYTES

typedef enum pause_state { ACTIVE, CHANGING, PAUSED } pause_state;

/* What was there when the pause began. */
typedef struct record {
    weir_resource *host; /* counted; or null, and the contents are dropped */
    void *saved;         /* of `host`: what was out, page after page; or null */
    size_t saved_bytes;
    size_t count;
    unsigned char *now;  /* `count` octets for another look; the same allocation */
    unsigned char pages[];
} record;

struct weir__pause {
    weir_device *device; /* not counted */
    weir__pages *pages;
    weir__mutex lock;    /* guards all below */
    pause_state state;
    record *record;      /* null: not paused; within, it is his who changes the state */
    weir_growable_pause told; /* what get_pause tells */
};

/* The ledger's name for what he knew who paused: he who resumes learns it. */
static uint64_t key_of(const weir__pause *self)
{
    return (uint64_t)(uintptr_t)self;
}

/* ---- pages, as a look has found them ---- */

static bool is_out(unsigned bits)
{
    return (bits & (WEIR__PAGE_TAKEN | WEIR__PAGE_KEPT)) == WEIR__PAGE_TAKEN;
}

typedef struct run {
    size_t first, count; /* pages */
} run;

/* The next chunk that begins at *from or later; *from is behind it then. */
static bool next_chunk(const record *it, size_t *from, run *out)
{
    size_t page = *from;
    while (page < it->count && (it->pages[page] & WEIR__PAGE_FIRST) == 0)
        page++;
    if (page == it->count)
        return false;
    size_t end = page + 1;
    while (end < it->count && (it->pages[end] & (WEIR__PAGE_MAPPED | WEIR__PAGE_FIRST))
                                  == WEIR__PAGE_MAPPED)
        end++;
    *out = (run){ page, end - page };
    *from = end;
    return true;
}

/* The next run of pages that were out then and are now. *offset is where the host has
 * its bytes; of the pages in front of *from it is behind. */
static bool next_run(const record *it, size_t *from, size_t *offset, run *out)
{
    size_t page = *from;
    for (; page < it->count && !(is_out(it->pages[page]) && is_out(it->now[page]));
         page++)
        *offset += is_out(it->pages[page]) ? PAGE : 0;
    size_t end = page;
    while (end < it->count && is_out(it->pages[end]) && is_out(it->now[end]))
        end++;
    *out = (run){ page, end - page };
    *from = end;
    return page < end;
}

/* At the last look. */
static bool is_mapped(const record *it, run chunk)
{
    return (it->now[chunk.first] & WEIR__PAGE_MAPPED) != 0;
}

/* Likewise: whether something of it is taken, so that a resume maps it. */
static bool is_wanted(const record *it, run chunk)
{
    for (size_t page = chunk.first; page < chunk.first + chunk.count; page++) {
        if ((it->now[page] & WEIR__PAGE_TAKEN) != 0)
            return true;
    }
    return false;
}

/* ---- the record ---- */

static weir_status record_make(weir__pages *pages, record **out)
{
    size_t count = weir__pages_top(pages);
    record *it = weir__host_alloc(sizeof *it + 2 * count);
    if (it == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "growable: no memory for the records of %zu paused pages",
                          count);
    *it = (record){ .count = count };
    it->now = it->pages + count;
    weir__pages_look(pages, it->pages, count);
    memcpy(it->now, it->pages, count);
    *out = it;
    return WEIR_OK;
}

static weir_status record_allocate(record *it, weir_resource *host, weir_stream stream)
{
    size_t bytes = 0;
    for (size_t page = 0; page < it->count; page++)
        bytes += is_out(it->pages[page]) ? PAGE : 0;
    if (host == NULL || bytes == 0)
        return WEIR_OK;
    weir_status status = weir_allocate(host, stream, bytes, WEIR_ALIGNMENT, &it->saved);
    if (status != WEIR_OK)
        return status;
    it->host = weir_resource_ref(host);
    it->saved_bytes = bytes;
    return WEIR_OK;
}

/* What is on the stream may still use what the host has. */
static void record_drop(record *it, weir_stream stream)
{
    if (it->saved != NULL)
        (void)weir_deallocate(it->host, stream, it->saved, it->saved_bytes,
                              WEIR_ALIGNMENT);
    weir_resource_unref(it->host);
    weir__host_free(it);
}

/* Puts the copies on `stream`, to the host or back; also of what a resource above has
 * back, which is nobody's. */
static weir_status record_copy(const weir__pause *self, const record *it,
                               weir_stream stream, bool to_host)
{
    size_t from = 0, offset = 0;
    weir_status status = WEIR_OK;
    run next;
    if (it->saved == NULL)
        return WEIR_OK;
    weir__note_inspect(self->device, true);
    while (status == WEIR_OK && next_run(it, &from, &offset, &next)) {
        void *device = weir__pages_address(self->pages, next.first);
        void *host = (unsigned char *)it->saved + offset;
        status = to_host ? weir__copy(self->device, stream, host, device,
                                      next.count * PAGE)
                         : weir__copy(self->device, stream, device, host,
                                      next.count * PAGE);
        offset += next.count * PAGE;
    }
    weir__note_inspect(self->device, false);
    return status;
}

/* What a resume would map now. */
static size_t record_absent(const weir__pause *self, const record *it)
{
    size_t bytes = 0, from = 0;
    run chunk;
    weir__pages_look(self->pages, it->now, it->count);
    while (next_chunk(it, &from, &chunk)) {
        if (!is_mapped(it, chunk) && is_wanted(it, chunk))
            bytes += chunk.count * PAGE;
    }
    return bytes;
}

/* What the last resume has put on a stream. */
static weir_status written_sync(const weir__pause *self)
{
    return weir__written_sync(weir__pages_written(self->pages),
                              weir__pages_key(self->pages));
}

/* ---- the state ---- */

/* It is whom it answers OK to who changes it, until change_end; unless it was `done`
 * already, which *is_done tells. */
static weir_status change_begin(weir__pause *self, pause_state done, bool *is_done)
{
    weir__mutex_lock(&self->lock);
    pause_state was = self->state;
    if (was != done && was != CHANGING)
        self->state = CHANGING;
    weir__mutex_unlock(&self->lock);
    *is_done = was == done;
    if (was == CHANGING)
        return weir__fail(WEIR_PAUSED, "growable: another thread is pausing or "
                                       "resuming the memory");
    return WEIR_OK;
}

static void change_end(weir__pause *self, pause_state state, record *it)
{
    weir_growable_pause told = { .struct_size = sizeof told };
    if (it != NULL) {
        told.is_paused = true;
        told.absent_bytes = record_absent(self, it);
        told.kept_bytes = it->saved_bytes;
    }
    weir__mutex_lock(&self->lock);
    self->state = state;
    self->record = it;
    self->told = told;
    weir__mutex_unlock(&self->lock);
}

/* ---- pausing ---- */

/* Unmaps what is mapped, as the last look has it, of what the device takes. A failure:
 * it took none. */
static weir_status unmap_all(weir__pause *self, const record *it)
{
    weir_status status = WEIR_OK;
    size_t from = 0, unmapped = 0;
    run chunk;
    weir__note_learn(self->device, weir__pages_key(self->pages));
    while (next_chunk(it, &from, &chunk)) {
        if (!is_mapped(it, chunk))
            continue;
        weir_status answer = weir__pages_unmap_chunk(self->pages, chunk.first,
                                                     chunk.count);
        if (answer == WEIR_OK)
            unmapped++;
        else
            status = answer;
    }
    return unmapped > 0 ? WEIR_OK : status;
}

/* Whether `saved` lies in pages of a growable below `mr` that are stopped; of one that
 * draws from two it may be either's. Null lies in one that is alone at the bottom. */
static bool is_in_stopped(weir_resource *mr, const void *saved)
{
    weir_resource *leaf;
    const weir__pause *its = weir__growable_pause_of(mr, &leaf);
    if (its == NULL)
        return saved != NULL && mr != NULL &&
               (is_in_stopped(weir_resource_upstream(mr, 0), saved) ||
                is_in_stopped(weir_resource_upstream(mr, 1), saved));
    uintptr_t begin = (uintptr_t)weir__pages_address(its->pages, 0);
    bool is_there = saved == NULL ||
                    (uintptr_t)saved - begin < weir__pages_top(its->pages) * PAGE;
    return is_there && weir__pages_is_stopped(its->pages);
}

/* Copies cannot be where memory is paused itself; the pages that they would be of are
 * stopped already. */
static weir_status check_host(weir_resource *host, const void *saved)
{
    if (!is_in_stopped(host, saved))
        return WEIR_OK;
    return weir__fail(WEIR_PAUSED, "growable: the memory that the contents are kept in "
                                   "is paused, too; it is to be resumed first");
}

/* The pages are stopped; on failure there is no record, and all is mapped. */
static weir_status pause_stopped(weir__pause *self, weir_resource *leaf,
                                 weir_stream stream, weir_resource *host, record **out)
{
    record *it;
    weir__error_record why;
    weir_status status = weir__growable_settle_sync(leaf);
    if (status == WEIR_OK)
        status = record_make(self->pages, &it);
    if (status != WEIR_OK)
        return status;
    status = record_allocate(it, host, stream);
    if (status == WEIR_OK)
        status = check_host(host, it->saved);
    if (status == WEIR_OK)
        status = record_copy(self, it, stream, true);
    if (status == WEIR_OK)
        status = weir__order_stream_sync(self->device->order, stream);
    if (status == WEIR_OK)
        status = written_sync(self);
    if (status == WEIR_OK)
        status = unmap_all(self, it);
    if (status == WEIR_OK) {
        *out = it;
        return WEIR_OK;
    }
    weir__error_keep(&why);
    if (it->saved != NULL) /* nobody else knows of copies that read what is out */
        (void)weir__order_stream_sync(self->device->order, stream);
    record_drop(it, stream);
    weir__error_put_back(&why);
    return status;
}

static weir_status find_growable(weir_resource *mr, weir__pause **out,
                                 weir_resource **leaf)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (mr == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is null");
    *out = weir__growable_pause_of(mr, leaf);
    if (*out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "there is no growable at the bottom of this resource");
    return WEIR_OK;
}

weir_status weir_growable_pause_sync(weir_resource *mr, weir_stream stream,
                                     weir_resource *keep_in)
{
    weir__pause *self;
    weir_resource *leaf;
    record *it = NULL;
    bool is_done = false;
    weir_status status = find_growable(mr, &self, &leaf);
    if (status != WEIR_OK)
        return status;
    if (keep_in != NULL && weir_resource_device(keep_in) != self->device)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "growable: the contents would be kept in memory of another "
                          "device, %s", weir_resource_device(keep_in)->name);
    status = weir__order_may_sync(self->device->order, stream);
    if (status == WEIR_OK)
        status = change_begin(self, PAUSED, &is_done);
    if (status != WEIR_OK || is_done)
        return status;
    (void)weir_resource_trim_sync(mr, 0);
    weir__pages_stop(self->pages, true);
    status = pause_stopped(self, leaf, stream, keep_in, &it);
    if (status == WEIR_OK)
        weir__note_done(self->device, key_of(self), NULL);
    else
        weir__pages_stop(self->pages, false);
    change_end(self, status == WEIR_OK ? PAUSED : ACTIVE, it);
    return status;
}

/* ---- resuming ---- */

/* Maps what has gone of each chunk that something of is taken; the others are no more.
 * OUT_OF_MEMORY, or what the device answers. */
static weir_status map_all(weir__pause *self, const record *it)
{
    weir_status status = WEIR_OK;
    size_t from = 0;
    run chunk;
    while (status == WEIR_OK && next_chunk(it, &from, &chunk)) {
        if (!is_mapped(it, chunk) && is_wanted(it, chunk))
            status = weir__pages_map_chunk(self->pages, chunk.first, chunk.count);
    }
    return status;
}

/* The pages are stopped; on failure they are as they were, but that chunks which the
 * device did not unmap before may have gone, too. */
static weir_status resume_stopped(weir__pause *self, record *it, weir_stream stream)
{
    weir__error_record why;
    weir_status status = check_host(it->host, it->saved);
    if (status == WEIR_OK) /* only where one before has failed */
        status = written_sync(self);
    if (status != WEIR_OK)
        return status;
    weir__pages_look(self->pages, it->now, it->count);
    status = map_all(self, it);
    if (status == WEIR_OK) {
        status = record_copy(self, it, stream, false);
        if (it->saved != NULL)
            weir__written_note(weir__pages_written(self->pages), stream);
    }
    if (status == WEIR_OK)
        return WEIR_OK;
    weir__error_keep(&why);
    /* A pool above may have handed some of it out meanwhile; and copies may be on. */
    if (weir__order_stream_sync(self->device->order, stream) == WEIR_OK) {
        weir__pages_look(self->pages, it->now, it->count);
        (void)unmap_all(self, it);
    }
    weir__error_put_back(&why);
    return status;
}

weir_status weir_growable_resume(weir_resource *mr, weir_stream stream)
{
    weir__pause *self;
    weir_resource *leaf;
    bool is_done = false;
    weir_status status = find_growable(mr, &self, &leaf);
    if (status == WEIR_OK)
        status = weir__order_may_sync(self->device->order, stream);
    if (status == WEIR_OK)
        status = change_begin(self, ACTIVE, &is_done);
    if (status != WEIR_OK || is_done)
        return status;
    record *it = self->record;
    weir__note_learn(self->device, key_of(self));
    status = resume_stopped(self, it, stream);
    if (status != WEIR_OK) {
        change_end(self, PAUSED, it);
        return status;
    }
    record_drop(it, stream);
    weir__pages_stop(self->pages, false);
    change_end(self, ACTIVE, NULL);
    return WEIR_OK;
}

/* ---- the rest ---- */

weir_status weir_growable_get_pause(weir_resource *mr, weir_growable_pause *out)
{
    weir__pause *self;
    weir_resource *leaf;
    weir_growable_pause found = { .struct_size = sizeof found };
    weir_status status = weir__fill_out(out, &found, sizeof found);
    if (status == WEIR_OK)
        status = find_growable(mr, &self, &leaf);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    found = self->told;
    weir__mutex_unlock(&self->lock);
    return weir__fill_out(out, &found, sizeof found);
}

weir_status weir__pause_create(weir_device *device, weir__pages *pages,
                               weir__pause **out)
{
    weir__pause *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "growable: no memory for the record of its pauses");
    *self = (weir__pause){ .device = device, .pages = pages,
                           .told = { .struct_size = sizeof self->told } };
    weir__mutex_init(&self->lock, WEIR__RANK_GROWABLE);
    *out = self;
    return WEIR_OK;
}

void weir__pause_end(weir__pause *self)
{
    if (self->record != NULL) {
        record *it = self->record;
        weir__thread *thread = weir__thread_self();
        const uint32_t depth = thread->depth;
        thread->depth = 0; /* the ledger has heard of what the host has */
        (void)written_sync(self); /* a resume may have failed */
        if (it->saved != NULL)
            (void)weir_deallocate_after(it->host, it->saved, it->saved_bytes,
                                        WEIR_ALIGNMENT, NULL, 0);
        thread->depth = depth;
        it->saved = NULL;
        record_drop(it, NULL);
        weir__pages_stop(self->pages, false);
    }
    weir__note_forget(self->device, key_of(self), true);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}
