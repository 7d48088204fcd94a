/* heap.c - see heap.h. The arena is asked by name alone: no block of it is in a cache
 * of jemalloc's, which would outlive the heap. */
#include "heap.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "weir/resource_ops.h"

#ifdef WEIR_TESTING
#include "internal.h" /* whose host allocations can be made to fail */
#endif

/* So that jemalloc's own records are where all of its records are. */
typedef struct arena_config {
    extent_hooks_t *hooks;
    bool metadata_use_hooks;
} arena_config;

/* The request that the calling thread is in jemalloc with; null: none. */
static _Thread_local wanted *asking;

void *heap_host_alloc(size_t bytes)
{
#ifdef WEIR_TESTING
    void *ptr = weir__host_alloc(bytes);
    return ptr == NULL ? NULL : memset(ptr, 0, bytes);
#else
    return mallocx(bytes, MALLOCX_ZERO);
#endif
}

void heap_host_free(void *ptr)
{
#ifdef WEIR_TESTING
    weir__host_free(ptr);
#else
    if (ptr != NULL)
        dallocx(ptr, 0);
#endif
}

/* ---- lists of extents, under the lock ---- */

static extent *take_off(extent **link)
{
    extent *gone = *link;
    *link = gone->next;
    return gone;
}

static void put_on(extent **list, extent *it)
{
    it->next = *list;
    *list = it;
}

/* Where the extent is linked that has the address; *link is null: there is none. */
static extent **find(extent **list, const void *ptr)
{
    while (*list != NULL && (uintptr_t)ptr - (uintptr_t)(*list)->ptr >= (*list)->size)
        list = &(*list)->next;
    return list;
}

/* ---- hooks ---- */

static heap *heap_of(extent_hooks_t *hooks)
{
    return (heap *)(void *)hooks;
}

static bool suits(const extent *it, size_t size, size_t alignment)
{
    return it->size == size && ((uintptr_t)it->ptr & (alignment - 1)) == 0;
}

static void note_wanted(size_t size, size_t alignment)
{
    if (asking == NULL)
        return;
    if (asking->first_size == 0) {
        asking->first_size = size;
        asking->first_alignment = alignment;
    }
    asking->last_size = size;
    asking->last_alignment = alignment;
}

static void *hook_alloc(extent_hooks_t *hooks, void *new_addr, size_t size,
                        size_t alignment, bool *zero, bool *commit, unsigned arena)
{
    heap *self = heap_of(hooks);
    (void)arena;
    if (new_addr != NULL)
        return NULL;
    pthread_mutex_lock(&self->lock);
    extent **link = &self->shelf;
    while (*link != NULL && !suits(*link, size, alignment))
        link = &(*link)->next;
    extent *it = *link == NULL ? NULL : take_off(link);
    if (it != NULL)
        put_on(&self->taken, it);
    pthread_mutex_unlock(&self->lock);
    if (it == NULL) {
        note_wanted(size, alignment);
        return NULL;
    }
    if (*zero)
        memset(it->ptr, 0, size);
    *commit = true;
    return it->ptr;
}

/* True: jemalloc keeps it, as it is not all of an extent. */
static bool hook_dalloc(extent_hooks_t *hooks, void *addr, size_t size, bool committed,
                        unsigned arena)
{
    heap *self = heap_of(hooks);
    (void)committed;
    (void)arena;
    pthread_mutex_lock(&self->lock);
    extent **link = find(&self->taken, addr);
    bool is_all = *link != NULL && (*link)->ptr == addr && (*link)->size == size;
    if (is_all)
        put_on(&self->shelf, take_off(link));
    pthread_mutex_unlock(&self->lock);
    return !is_all;
}

static bool hook_split(extent_hooks_t *hooks, void *addr, size_t size, size_t size_a,
                       size_t size_b, bool committed, unsigned arena)
{
    (void)hooks;
    (void)addr;
    (void)size;
    (void)size_a;
    (void)size_b;
    (void)committed;
    (void)arena;
    return false;
}

/* True: what adjoins is not of one extent, and stays apart. */
static bool hook_merge(extent_hooks_t *hooks, void *addr_a, size_t size_a, void *addr_b,
                       size_t size_b, bool committed, unsigned arena)
{
    heap *self = heap_of(hooks);
    (void)size_a;
    (void)size_b;
    (void)committed;
    (void)arena;
    pthread_mutex_lock(&self->lock);
    const extent *a = *find(&self->taken, addr_a);
    bool is_one = a != NULL && a == *find(&self->taken, addr_b);
    pthread_mutex_unlock(&self->lock);
    return !is_one;
}

/* ---- arenas ---- */

static bool arena_make(heap *self)
{
    arena_config config = { &self->hooks, false };
    size_t bytes = sizeof self->arena;
    return mallctl("experimental.arenas_create_ext", &self->arena, &bytes, &config,
                   sizeof config) == 0;
}

static void arena_do(unsigned arena, const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", arena, what);
    (void)mallctl(name, NULL, NULL, NULL, 0);
}

/* Nothing is cut, and nobody is in jemalloc: all extents come back. */
static void arena_end(heap *self, unsigned arena)
{
    arena_do(arena, "destroy");
    pthread_mutex_lock(&self->lock);
    while (self->taken != NULL)
        put_on(&self->shelf, take_off(&self->taken));
    pthread_mutex_unlock(&self->lock);
}

bool heap_begin(heap *self, weir_resource *upstream,
                const weir_resource_properties *properties)
{
    *self = (heap){ .hooks = { .alloc = hook_alloc, .dalloc = hook_dalloc,
                               .split = hook_split, .merge = hook_merge },
                    .upstream = upstream, .device = properties->device,
                    .upstreams_max = properties->max_alignment,
                    .upstream_is_at_once = properties->usable_at_once };
    if (!arena_make(self))
        return false;
    pthread_rwlock_init(&self->using, NULL);
    pthread_mutex_init(&self->lock, NULL);
    return true;
}

/* ---- blocks ---- */

static int flags_of(const heap *self, size_t alignment)
{
    return (int)MALLOCX_ARENA(self->arena) | MALLOCX_TCACHE_NONE |
           (int)MALLOCX_ALIGN(alignment);
}

static void count_cut(heap *self, bool more)
{
    pthread_mutex_lock(&self->lock);
    self->cut += more ? 1 : (size_t)-1;
    pthread_mutex_unlock(&self->lock);
}

void *heap_cut(heap *self, size_t bytes, size_t alignment, wanted *out)
{
    *out = (wanted){ 0 };
    if (bytes > PTRDIFF_MAX)
        return NULL;
    pthread_rwlock_rdlock(&self->using);
    asking = out;
    void *ptr = mallocx(bytes, flags_of(self, alignment));
    asking = NULL;
    if (ptr != NULL)
        count_cut(self, true);
    pthread_rwlock_unlock(&self->using);
    return ptr;
}

void heap_uncut(heap *self, void *ptr, size_t bytes, size_t alignment)
{
    pthread_rwlock_rdlock(&self->using);
    sdallocx(ptr, bytes, flags_of(self, alignment));
    count_cut(self, false);
    pthread_rwlock_unlock(&self->using);
}

/* ---- upstream ---- */

static weir_status wait_for(heap *self, weir_stream stream)
{
    weir_point here;
    weir_status status = weir_point_here(self->device, stream, &here);
    return status == WEIR_OK ? weir_point_sync(self->device, here) : status;
}

static weir_status draw(heap *self, weir_stream stream, extent *it, size_t alignment)
{
    weir_status status = weir_allocate(self->upstream, stream, it->bytes, it->alignment,
                                       &it->base);
    if (status != WEIR_OK)
        return status;
    if (!self->upstream_is_at_once)
        status = wait_for(self, stream);
    if (status != WEIR_OK) {
        (void)weir_deallocate(self->upstream, stream, it->base, it->bytes,
                              it->alignment);
        return status;
    }
    size_t over = (uintptr_t)it->base & (alignment - 1);
    it->ptr = (char *)it->base + (over == 0 ? 0 : alignment - over);
    return WEIR_OK;
}

weir_status heap_draw(heap *self, weir_stream stream, size_t size, size_t alignment)
{
    size_t below = alignment < self->upstreams_max ? alignment : self->upstreams_max;
    if (size > SIZE_MAX - alignment)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "jemalloc: no memory is so "
                                                        "large");
    extent *it = heap_host_alloc(sizeof *it);
    if (it == NULL)
        return weir_resource_refuse(WEIR_OUT_OF_HOST_MEMORY,
                                    "jemalloc: no memory for the record of an extent");
    *it = (extent){ .bytes = size + (alignment - below), .alignment = below,
                    .size = size };
    weir_status status = draw(self, stream, it, alignment);
    if (status != WEIR_OK) {
        heap_host_free(it);
        return status;
    }
    pthread_mutex_lock(&self->lock);
    put_on(&self->shelf, it);
    self->held_bytes += it->bytes;
    if (self->peak_held_bytes < self->held_bytes)
        self->peak_held_bytes = self->held_bytes;
    pthread_mutex_unlock(&self->lock);
    return WEIR_OK;
}

/* One off the shelf, while more than that is held; null: none. */
static extent *next_idle(heap *self, size_t keep_bytes)
{
    pthread_mutex_lock(&self->lock);
    extent *it = NULL;
    if (self->shelf != NULL && self->held_bytes > keep_bytes) {
        it = take_off(&self->shelf);
        self->held_bytes -= it->bytes;
    }
    pthread_mutex_unlock(&self->lock);
    return it;
}

/* Nobody uses any of it: there is no point to come behind. */
static size_t give_idle(heap *self, size_t keep_bytes)
{
    size_t bytes = 0;
    for (extent *it; (it = next_idle(self, keep_bytes)) != NULL;) {
        bytes += it->bytes;
        (void)weir_deallocate_after(self->upstream, it->base, it->bytes, it->alignment,
                                    NULL, 0);
        heap_host_free(it);
    }
    return bytes;
}

heap_counts heap_count(heap *self)
{
    pthread_mutex_lock(&self->lock);
    heap_counts now = { self->held_bytes, self->peak_held_bytes };
    pthread_mutex_unlock(&self->lock);
    return now;
}

size_t heap_give(heap *self, size_t keep_bytes)
{
    pthread_rwlock_wrlock(&self->using);
    unsigned arena = self->arena;
    arena_do(arena, "purge");
    /* Nobody is in to change either. */
    if (self->cut == 0 && self->taken != NULL && arena_make(self))
        arena_end(self, arena);
    pthread_rwlock_unlock(&self->using);
    return give_idle(self, keep_bytes);
}

void heap_end(heap *self, bool leaks)
{
    if (!leaks) {
        arena_end(self, self->arena);
        (void)give_idle(self, 0);
    }
    pthread_rwlock_destroy(&self->using);
    pthread_mutex_destroy(&self->lock);
}
