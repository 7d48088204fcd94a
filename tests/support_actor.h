/* support_actor.h - threads that do one thing at a time when they are told to, and
 * sleep in between: what a pool keeps for them stays there.
 *
 * And pools with caches. The test build's are small: see pool_cache.h. */
#ifndef WEIR_TESTS_SUPPORT_ACTOR_H
#define WEIR_TESTS_SUPPORT_ACTOR_H

#include <pthread.h>
#include <semaphore.h>

#include "pool_seats.h"
#include "support_pool.h"

typedef struct actor {
    pthread_t thread;
    sem_t go, done;
    void (*job)(void *argument); /* null: the thread ends */
    void *argument;
} actor;

/* Of the heap: a test that fails leaves it asleep. */
actor *actor_begin(void);
/* Returns once the thread has done it, and sleeps. */
void actor_does(actor *self, void (*job)(void *argument), void *argument);
void actor_end(actor *self);

/* Many blocks of one size. */
#define BLOCKS_MOST 64
typedef struct blocks {
    weir_resource *pool;
    weir_stream stream;
    size_t bytes;
    int count;
    void *ptrs[BLOCKS_MOST];
} blocks;

/* For threads and actors. The last that was taken is given back first. */
void take_blocks(void *blocks);
void give_blocks(void *blocks);
/* Takes all of them and gives them back. */
void turn_over_blocks(void *blocks);

/* A stepped device, and a pool over it that caches `cache_bytes` (0: the default). */
pool_scene open_cached(size_t limit_bytes, size_t cache_bytes);

/* What is in the pool's caches and its depot. Nobody else may be at work on it. */
typedef struct cached_memory {
    size_t blocks, bytes;
    size_t depot_bytes;
    size_t seats;
    size_t caches;
    size_t most_bytes;         /* in one cache */
} cached_memory;
cached_memory cached_in(weir_resource *pool);

/* The record of the block that begins at `ptr`, which there is. */
weir__heap_block *block_at(const weir__heap *heap, const void *ptr);

#endif
