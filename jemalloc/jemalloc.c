/* jemalloc.c - the resource `jemalloc`: blocks that jemalloc has cut out of upstream's
 * extents, and what keeps stream order away from jemalloc.
 *
 * jemalloc knows no streams: what it is given it may hand out at once, to anybody. So
 * what comes back is pending, with the point of its stream, until that is done:
 *
 *     out --deallocate--> leaving --(its point is taken)--> pending --done--> jemalloc
 *
 * Captured streams have no point that could be asked for here. So they get no memory,
 * and what comes back on one is kept to the end, for a graph may use it.
 *
 * Who has found out that a point is done may be another thread than who is handed the
 * memory next. So the last point that was found done of each clock is kept, and asked
 * about again by who gets memory: by then that is known, and no device call.
 *
 * No call into the library is made under a lock. */
#include "weir/jemalloc.h"

#include <stdint.h>
#include <string.h>

#include "heap.h"
#include "weir/resource_ops.h"

#define MAX_ALIGNMENT  ((size_t)2 << 20)
#define PENDING_BYTES  ((size_t)64 << 20)
#define BUCKETS        1024 /* a power of two */
#define LOOKS          4    /* at pending blocks, of each allocation */
#define CLOCKS         64   /* whose points are kept: the last ones */
#define TRIES          16   /* of jemalloc, with an extent more each time */

typedef enum block_state {
    BLOCK_OUT,
    BLOCK_LEAVING,
    BLOCK_PENDING
} block_state;

typedef struct block {
    struct block *next;         /* in its bucket */
    struct block *next_pending;
    void *ptr;
    size_t bytes, alignment;
    weir_stream stream;
    weir_point freed;
    block_state state;
    bool is_aside;    /* its stream could not be asked: a wait for all does it, */
    bool is_captured; /* at the end */
} block;

typedef struct jemalloc {
    heap heap;
    weir_resource *upstream; /* counted by the resource */
    weir_device *device;
    size_t pending_max;      /* before all of it is looked at */
    pthread_mutex_t lock;    /* guards what follows; a leaf */
    block *buckets[BUCKETS];
    block *pending;          /* in the order of their coming */
    block **pending_end;
    weir_point done[CLOCKS]; /* mark 0: none */
    size_t next_done;
    size_t pending_bytes;
    weir_resource_statistics counts;
} jemalloc;

static void lock(jemalloc *self)
{
    pthread_mutex_lock(&self->lock);
}

static void unlock(jemalloc *self)
{
    pthread_mutex_unlock(&self->lock);
}

/* ---- blocks by address, under the lock ---- */

static block **bucket_of(jemalloc *self, const void *ptr)
{
    uint64_t mixed = (uint64_t)(uintptr_t)ptr * UINT64_C(0x9E3779B97F4A7C15);
    return &self->buckets[(mixed >> 40) & (BUCKETS - 1)];
}

/* Where it is linked; *link is null: there is none. */
static block **find(jemalloc *self, const void *ptr)
{
    block **link = bucket_of(self, ptr);
    while (*link != NULL && (*link)->ptr != ptr)
        link = &(*link)->next;
    return link;
}

static void put_pending(jemalloc *self, block *it)
{
    it->state = BLOCK_PENDING;
    it->next_pending = NULL;
    *self->pending_end = it;
    self->pending_end = &it->next_pending;
}

static block *take_pending(jemalloc *self)
{
    block *it = self->pending;
    if (it == NULL)
        return NULL;
    self->pending = it->next_pending;
    if (self->pending == NULL)
        self->pending_end = &self->pending;
    return it;
}

/* ---- points ---- */

static bool is_done(jemalloc *self, weir_point point)
{
    bool done = false;
    return weir_point_query(self->device, point, &done) == WEIR_OK && done;
}

/* To be asked about by who gets memory that others gave. */
static void keep_done(jemalloc *self, weir_point point)
{
    lock(self);
    weir_point *at = self->done, *end = self->done + CLOCKS;
    while (at < end && at->mark != 0 && at->clock != point.clock)
        at++;
    if (at == end) {
        self->done[self->next_done] = point;
        self->next_done = (self->next_done + 1) % CLOCKS;
    } else if (at->mark < point.mark) {
        *at = point;
    }
    unlock(self);
}

static void learn_done(jemalloc *self)
{
    weir_point points[CLOCKS];
    lock(self);
    memcpy(points, self->done, sizeof points);
    unlock(self);
    for (size_t i = 0; i < CLOCKS && points[i].mark != 0; i++)
        (void)is_done(self, points[i]);
}

/* ---- what is pending ---- */

/* All that was put before is done. The address may be another's from then on. */
static void give_to_heap(jemalloc *self, block *it)
{
    if (!it->is_aside)
        keep_done(self, it->freed);
    lock(self);
    block **link = find(self, it->ptr);
    *link = it->next;
    self->pending_bytes -= it->bytes;
    unlock(self);
    heap_uncut(&self->heap, it->ptr, it->bytes, it->alignment);
    heap_host_free(it);
}

/* Looks at the pending block that has waited longest since it was looked at. Returns
 * how many bytes that gave; *left counts down to the end. */
static size_t look_at_one(jemalloc *self, size_t *left)
{
    lock(self);
    block *it = *left == 0 ? NULL : take_pending(self);
    unlock(self);
    if (it == NULL) {
        *left = 0;
        return 0;
    }
    --*left;
    size_t bytes = it->bytes;
    if (!it->is_aside && is_done(self, it->freed)) {
        give_to_heap(self, it);
        return bytes;
    }
    lock(self);
    put_pending(self, it);
    unlock(self);
    return 0;
}

static size_t count_pending(jemalloc *self)
{
    lock(self);
    size_t count = 0;
    for (const block *it = self->pending; it != NULL; it = it->next_pending)
        count++;
    unlock(self);
    return count;
}

/* Looks at each once; returns how many bytes that gave. */
static size_t look_at_all(jemalloc *self)
{
    size_t bytes = 0;
    for (size_t left = count_pending(self); left > 0;)
        bytes += look_at_one(self, &left);
    return bytes;
}

static void look_at_some(jemalloc *self)
{
    size_t left = LOOKS;
    lock(self);
    bool is_much = self->pending_bytes > self->pending_max;
    unlock(self);
    if (is_much)
        (void)look_at_all(self);
    while (!is_much && left > 0)
        (void)look_at_one(self, &left);
}

/* 0: it cannot be waited for. */
static size_t wait_for(jemalloc *self, block *it, bool is_end)
{
    size_t bytes = it->bytes;
    weir_status status = WEIR_CAPTURING;
    if (!it->is_aside)
        status = weir_point_sync(self->device, it->freed);
    else if (is_end || !it->is_captured)
        status = weir_device_sync(self->device);
    if (status != WEIR_OK)
        return 0;
    give_to_heap(self, it);
    return bytes;
}

/* Waits on the host for one of them, the first that can be waited for. Returns its
 * bytes; 0: there is none. */
static size_t wait_for_one(jemalloc *self, bool is_end)
{
    for (size_t left = count_pending(self); left > 0; left--) {
        lock(self);
        block *it = take_pending(self);
        unlock(self);
        if (it == NULL)
            return 0;
        size_t bytes = wait_for(self, it, is_end);
        if (bytes > 0)
            return bytes;
        lock(self);
        put_pending(self, it);
        unlock(self);
    }
    return 0;
}

/* ---- allocation ---- */

static bool is_no_room(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

/* What jemalloc wanted first is more than it needs; what it wanted last is all. */
static weir_status draw(jemalloc *self, weir_stream stream, const wanted *what)
{
    if (what->last_size == 0)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY,
                                    "jemalloc: it has no room, and wants no extent");
    weir_status status = heap_draw(&self->heap, stream, what->first_size,
                                   what->first_alignment);
    if (is_no_room(status) && what->last_size != what->first_size)
        status = heap_draw(&self->heap, stream, what->last_size, what->last_alignment);
    return status;
}

/* Upstream has no room: gets some of what is pending or idle, the cheapest first.
 * `round` counts the calls for one request. False: there is nothing left. */
static bool make_room(jemalloc *self, int round)
{
    if (round == 0 && look_at_all(self) > 0)
        return true;
    learn_done(self);
    if (heap_give(&self->heap, 0) > 0)
        return true;
    return wait_for_one(self, false) > 0;
}

static weir_status cut(jemalloc *self, weir_stream stream, size_t bytes,
                       size_t alignment, void **out)
{
    weir_status status = WEIR_OK;
    int rounds = 0;
    for (int drawn = 0; drawn < TRIES;) {
        wanted what;
        *out = heap_cut(&self->heap, bytes, alignment, &what);
        if (*out != NULL)
            return WEIR_OK;
        status = draw(self, stream, &what);
        if (status == WEIR_OK)
            drawn++;
        else if (!is_no_room(status))
            return status;
        else if (!make_room(self, rounds++))
            return draw(self, stream, &what) == WEIR_OK
                       ? weir_resource_refuse(WEIR_OUT_OF_MEMORY,
                                              "jemalloc: others were faster")
                       : status;
    }
    return weir_resource_refuse(WEIR_OUT_OF_MEMORY,
                                "jemalloc: it does not take what it wanted");
}

static void count_out(jemalloc *self, const block *it)
{
    weir_resource_statistics *counts = &self->counts;
    counts->allocations++;
    counts->out_blocks++;
    counts->out_bytes += it->bytes;
    if (counts->peak_out_bytes < counts->out_bytes)
        counts->peak_out_bytes = counts->out_bytes;
}

static weir_status allocate_block(jemalloc *self, weir_stream stream, block *it)
{
    weir_point here;
    weir_status status = weir_point_here(self->device, stream, &here);
    if (status != WEIR_OK) /* it may be captured */
        return status;
    look_at_some(self);
    status = cut(self, stream, it->bytes, it->alignment, &it->ptr);
    if (status != WEIR_OK)
        return status;
    learn_done(self);
    lock(self);
    block **bucket = bucket_of(self, it->ptr);
    it->next = *bucket;
    *bucket = it;
    count_out(self, it);
    unlock(self);
    return WEIR_OK;
}

static weir_status jemalloc_allocate(void *context, weir_stream stream, size_t bytes,
                                     size_t alignment, void **out)
{
    jemalloc *self = context;
    block *it = heap_host_alloc(sizeof *it);
    weir_status status = WEIR_OUT_OF_HOST_MEMORY;
    if (it == NULL) {
        (void)weir_resource_refuse(status, "jemalloc: no memory for a block's record");
    } else {
        *it = (block){ .bytes = bytes, .alignment = alignment, .stream = stream };
        status = allocate_block(self, stream, it);
    }
    if (status == WEIR_OK) {
        *out = it->ptr;
        return WEIR_OK;
    }
    heap_host_free(it);
    lock(self);
    self->counts.failures++;
    unlock(self);
    return status;
}

/* ---- deallocation ---- */

static bool report(weir_misuse_kind kind, const char *message, const void *ptr,
                   size_t bytes)
{
    const weir_misuse misuse = { kind, message, ptr, bytes };
    weir_resource_report_misuse(&misuse);
    return false;
}

/* Null: it is misuse, and `kind` of what. */
static block *begin_leaving(jemalloc *self, const void *ptr, size_t bytes,
                            size_t alignment, weir_misuse_kind *kind)
{
    lock(self);
    block *it = *find(self, ptr);
    if (it == NULL)
        *kind = WEIR_MISUSE_FOREIGN_POINTER;
    else if (it->state != BLOCK_OUT)
        *kind = WEIR_MISUSE_DOUBLE_FREE;
    else if (it->bytes != bytes || it->alignment != alignment)
        *kind = WEIR_MISUSE_WRONG_SIZE;
    bool is_out = it != NULL && it->state == BLOCK_OUT && it->bytes == bytes &&
                  it->alignment == alignment;
    if (is_out)
        it->state = BLOCK_LEAVING;
    unlock(self);
    return is_out ? it : NULL;
}

static bool jemalloc_deallocate(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment)
{
    static const char *const what[] = {
        [WEIR_MISUSE_DOUBLE_FREE] = "jemalloc: the block was given back before",
        [WEIR_MISUSE_FOREIGN_POINTER] = "jemalloc: the block is not out here",
        [WEIR_MISUSE_WRONG_SIZE] = "jemalloc: the block has another size or alignment",
    };
    jemalloc *self = context;
    weir_misuse_kind kind;
    block *it = begin_leaving(self, ptr, bytes, alignment, &kind);
    if (it == NULL)
        return report(kind, what[kind], ptr, bytes);
    weir_status status = weir_point_here(self->device, stream, &it->freed);
    it->is_aside = status != WEIR_OK;
    it->is_captured = status == WEIR_CAPTURING;
    lock(self);
    self->counts.deallocations++;
    self->counts.out_blocks--;
    self->counts.out_bytes -= bytes;
    self->pending_bytes += bytes;
    put_pending(self, it);
    unlock(self);
    return true;
}

/* ---- questions ---- */

static size_t jemalloc_trim(void *context, size_t keep_bytes)
{
    jemalloc *self = context;
    (void)look_at_all(self);
    learn_done(self);
    return heap_give(&self->heap, keep_bytes);
}

static weir_resource *jemalloc_upstream(void *context)
{
    jemalloc *self = context;
    return self->upstream;
}

static void jemalloc_properties(void *context, weir_resource_properties *out)
{
    (void)context;
    out->usable_at_once = true;
    out->share_kind = WEIR_SHARE_NONE;
    out->max_alignment = MAX_ALIGNMENT;
}

static void jemalloc_statistics(void *context, weir_resource_statistics *out)
{
    jemalloc *self = context;
    size_t struct_size = out->struct_size;
    lock(self);
    *out = self->counts;
    out->kept_bytes = self->pending_bytes;
    unlock(self);
    out->struct_size = struct_size;
    heap_counts held = heap_count(&self->heap);
    out->held_bytes = held.held_bytes;
    out->peak_held_bytes = held.peak_held_bytes;
    size_t used = out->out_bytes + out->kept_bytes;
    out->free_bytes = held.held_bytes > used ? held.held_bytes - used : 0;
}

static weir_status jemalloc_find(void *context, const void *ptr, weir_block *out)
{
    jemalloc *self = context;
    lock(self);
    const block *it = *find(self, ptr);
    bool is_out = it != NULL && it->state == BLOCK_OUT;
    if (is_out)
        *out = (weir_block){ .struct_size = sizeof *out, .ptr = it->ptr,
                             .bytes = it->bytes, .alignment = it->alignment,
                             .stream = it->stream };
    unlock(self);
    return is_out ? WEIR_OK : weir_resource_refuse(WEIR_NOT_FOUND,
                                                   "jemalloc has no such block out");
}

/* ---- beginning and end ---- */

static bool is_lost(weir_device *device)
{
    weir_device_properties it = { .struct_size = sizeof it };
    return weir_device_get_properties(device, &it) == WEIR_OK && it.lost;
}

/* Of a lost device nothing runs any more. */
static void drop_pending(jemalloc *self)
{
    for (block *it; (it = take_pending(self)) != NULL;)
        give_to_heap(self, it);
}

static void jemalloc_destroy(void *context)
{
    jemalloc *self = context;
    while (wait_for_one(self, true) > 0)
        continue;
    if (is_lost(self->device))
        drop_pending(self);
    bool leaks = self->pending != NULL;
    learn_done(self);
    heap_end(&self->heap, leaks);
    if (leaks) {
        (void)weir_resource_refuse(WEIR_DEVICE_ERROR,
                                   "jemalloc ends and leaks its memory: nobody could "
                                   "wait for all of it, or a capture has some");
        return;
    }
    pthread_mutex_destroy(&self->lock);
    heap_host_free(self);
}

static const weir_resource_ops jemalloc_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "jemalloc",
    .allocate = jemalloc_allocate,
    .deallocate = jemalloc_deallocate,
    .destroy = jemalloc_destroy,
    .trim_sync = jemalloc_trim,
    .upstream = jemalloc_upstream,
    .properties = jemalloc_properties,
    .statistics = jemalloc_statistics,
    .find = jemalloc_find,
};

/* Newer options than ours are refused if they ask for something. */
static weir_status options_read(const weir_jemalloc_options *from,
                                weir_jemalloc_options *out)
{
    *out = (weir_jemalloc_options)WEIR_JEMALLOC_OPTIONS_INIT;
    if (from != NULL && from->struct_size < sizeof from->struct_size)
        return weir_resource_refuse(WEIR_INVALID_ARGUMENT,
                                    "jemalloc: struct_size of the options is not set");
    if (from != NULL && from->struct_size > sizeof *out) {
        const unsigned char *more = (const unsigned char *)from;
        for (size_t i = sizeof *out; i < from->struct_size; i++) {
            if (more[i] != 0)
                return weir_resource_refuse(WEIR_NOT_SUPPORTED,
                                            "jemalloc: the options ask for what only a "
                                            "newer Weir knows");
        }
    }
    if (from != NULL)
        memcpy(out, from, from->struct_size < sizeof *out ? from->struct_size
                                                          : sizeof *out);
    if (out->pending_bytes == 0)
        out->pending_bytes = PENDING_BYTES;
    return WEIR_OK;
}

static weir_status make(weir_resource *upstream, const weir_jemalloc_options *options,
                        const weir_resource_properties *up, jemalloc **out)
{
    jemalloc *self = heap_host_alloc(sizeof *self);
    if (self == NULL || !heap_begin(&self->heap, upstream, up)) {
        heap_host_free(self);
        return weir_resource_refuse(WEIR_OUT_OF_HOST_MEMORY,
                                    "jemalloc: no memory for another arena");
    }
    self->upstream = upstream;
    self->device = up->device;
    self->pending_max = options->pending_bytes;
    self->pending_end = &self->pending;
    pthread_mutex_init(&self->lock, NULL);
    *out = self;
    return WEIR_OK;
}

weir_status weir_jemalloc_create(weir_resource *upstream,
                                 const weir_jemalloc_options *options,
                                 weir_resource **out)
{
    if (out == NULL)
        return weir_resource_refuse(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_jemalloc_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    weir_status status = options_read(options, &in_force);
    if (status == WEIR_OK && upstream == NULL)
        status = weir_resource_refuse(WEIR_INVALID_ARGUMENT, "the upstream is null");
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status == WEIR_OK && !up.host_accessible)
        status = weir_resource_refuse(WEIR_NOT_SUPPORTED,
                                      "jemalloc: the host does not reach upstream's "
                                      "memory; pinned, managed and system are of use");
    jemalloc *self = NULL;
    if (status == WEIR_OK)
        status = make(upstream, &in_force, &up, &self);
    if (status != WEIR_OK)
        return status;
    status = weir_resource_create(&jemalloc_ops, self, out);
    if (status != WEIR_OK)
        jemalloc_destroy(self);
    return status;
}
