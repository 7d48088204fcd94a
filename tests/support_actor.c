/* support_actor.c - see support_actor.h. */
#include "support_actor.h"

#include <stdlib.h>

#include "resource_parts.h"

static void *acts(void *argument)
{
    actor *self = argument;
    for (;;) {
        while (sem_wait(&self->go) != 0)
            continue;
        if (self->job == NULL)
            return NULL;
        self->job(self->argument);
        must(sem_post(&self->done) == 0);
    }
}

actor *actor_begin(void)
{
    actor *self = calloc(1, sizeof *self);
    must(self != NULL);
    must(sem_init(&self->go, 0, 0) == 0);
    must(sem_init(&self->done, 0, 0) == 0);
    must(pthread_create(&self->thread, NULL, acts, self) == 0);
    return self;
}

void actor_does(actor *self, void (*job)(void *argument), void *argument)
{
    self->job = job;
    self->argument = argument;
    must(sem_post(&self->go) == 0);
    while (sem_wait(&self->done) != 0)
        continue;
}

void actor_end(actor *self)
{
    self->job = NULL;
    must(sem_post(&self->go) == 0);
    must(pthread_join(self->thread, NULL) == 0);
    must(sem_destroy(&self->go) == 0);
    must(sem_destroy(&self->done) == 0);
    free(self);
}

void take_blocks(void *argument)
{
    blocks *self = argument;
    for (int i = 0; i < self->count; i++)
        self->ptrs[i] = take(self->pool, self->stream, self->bytes);
}

void give_blocks(void *argument)
{
    blocks *self = argument;
    for (int i = self->count; i-- > 0;)
        give(self->pool, self->stream, self->ptrs[i], self->bytes);
}

void turn_over_blocks(void *argument)
{
    take_blocks(argument);
    give_blocks(argument);
}

pool_scene open_cached(size_t limit_bytes, size_t cache_bytes)
{
    pool_scene it = { .device = open_stepped(1) };
    for (int i = 0; i < STREAMS; i++)
        it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.limit_bytes = limit_bytes;
    options.growth_bytes = limit_bytes != 0 ? limit_bytes : MIB;
    options.cache_bytes = cache_bytes;
    weir_resource *leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

cached_memory cached_in(weir_resource *mr)
{
    weir__pool *pool = mr->self;
    cached_memory all = { 0 };
    weir__pool_seats_close(pool);
    weir__mutex_lock(&pool->lock);
    const weir__kept kept = weir__pool_kept_locked(pool);
    all.blocks = kept.blocks;
    all.bytes = kept.bytes;
    all.depot_bytes = pool->depot.bytes;
    weir__depot_verify(&pool->depot, &pool->heap.view);
    for (weir__seat *seat = pool->seats; seat != NULL; seat = seat->next) {
        all.seats++;
        all.caches += seat->cache_count;
        for (uint32_t i = 0; seat->caches != NULL && i <= seat->mask; i++) {
            if (seat->caches[i] == NULL)
                continue;
            weir__cache_verify(seat->caches[i], &pool->heap.view);
            if (all.most_bytes < seat->caches[i]->bytes)
                all.most_bytes = seat->caches[i]->bytes;
        }
    }
    weir__mutex_unlock(&pool->lock);
    weir__pool_seats_open(pool);
    return all;
}

weir__heap_block *block_at(const weir__heap *heap, const void *ptr)
{
    uint32_t id = weir__heap_find(heap, ptr);
    must(id != 0);
    return weir__heap_block_of(heap, id);
}
