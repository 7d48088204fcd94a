/* test_heap_lookups.c - threads look up their own blocks without the heap's lock and
 * set their tags, while others cut and merge what lies beside them, and chunks come and
 * go. */
#include <pthread.h>
#include <stdlib.h>

#include "heap_internal.h"
#include "internal.h"
#include "support.h"

#define GRAIN   WEIR__HEAP_GRAIN
#define BASE    ((uintptr_t)1 << 40)
#define THREADS 3
#define OWN     12
#define CHUNK   (256 * GRAIN)

typedef struct scene {
    pthread_mutex_t lock;
    weir__heap heap;
    weir__chunk chunks[2];
    uint64_t rounds;
} scene;

typedef struct user {
    scene *it;
    uint64_t state;
    uint32_t number;
    uint32_t ids[OWN];
    uintptr_t bases[OWN];
    uint64_t hits, misses;
} user;

static void add_chunk(scene *it, weir__chunk *chunk, uintptr_t base)
{
    must(weir__heap_promise(&it->heap));
    must_ok(weir__heap_reserve(&it->heap, base, CHUNK));
    uint32_t all = weir__heap_add_chunk(&it->heap, chunk, base, CHUNK);
    weir__heap_release(&it->heap, all, WEIR__MARK_DONE);
    weir__heap_forget_promise(&it->heap);
}

static void take_own(user *self, size_t i)
{
    weir__heap *heap = &self->it->heap;
    size_t bytes = (size_t)(1 + support_random_below(&self->state, 4)) * GRAIN;
    pthread_mutex_lock(&self->it->lock);
    must(weir__heap_promise(heap));
    const weir__heap_owner *done = weir__heap_owner_at(heap, WEIR__OWNER_DONE);
    uint32_t best = weir__heap_best(heap, done, bytes, GRAIN);
    if (best != 0) {
        weir__heap_hold(heap, best);
        best = weir__heap_hand_out(heap, (weir__heap_run){ best, best }, bytes, GRAIN,
                                   WEIR__MARK_DONE, WEIR__MARK_DONE);
        weir__heap_block *block = weir__heap_block_of(heap, best);
        weir__heap_set_tag(block, weir__heap_out_tag(GRAIN, GRAIN));
        self->bases[i] = weir__heap_base(block);
    }
    self->ids[i] = best;
    weir__heap_forget_promise(heap);
    pthread_mutex_unlock(&self->it->lock);
}

static void give_own(user *self, size_t i)
{
    weir__heap *heap = &self->it->heap;
    pthread_mutex_lock(&self->it->lock);
    weir__heap_set_tag(weir__heap_block_of(heap, self->ids[i]), WEIR__HEAP_CACHED);
    weir__heap_release(heap, self->ids[i], WEIR__MARK_DONE);
    pthread_mutex_unlock(&self->it->lock);
}

/* Under the lock the answer is right; without it there may be none. */
static void look_up(user *self, size_t i)
{
    weir__heap *heap = &self->it->heap;
    uint32_t id = 0, tag = WEIR__HEAP_CACHED | self->number << WEIR__HOLDER_SHIFT;
    weir__heap_block *block =
        weir__heap_lookup_tagged(&heap->view, (void *)self->bases[i],
                                 weir__heap_out_tag(GRAIN, GRAIN), &id);
    if (block == NULL) {
        self->misses++;
        pthread_mutex_lock(&self->it->lock);
        id = weir__heap_find(heap, (void *)self->bases[i]);
        pthread_mutex_unlock(&self->it->lock);
        must_equal(id, self->ids[i]);
        return;
    }
    self->hits++;
    must_equal(id, self->ids[i]);
    must(weir__heap_base(block) == self->bases[i] && weir__heap_grains(block) <= 4);
    weir__heap_set_tag(block, tag);
    atomic_store_explicit(&block->link, self->number, memory_order_relaxed);
    must_equal(weir__heap_tag(block), tag);
    weir__heap_set_tag(block, weir__heap_out_tag(GRAIN, GRAIN));
    atomic_store_explicit(&block->link, WEIR__OWNER_DONE, memory_order_relaxed);
}

static void *use(void *argument)
{
    user *self = argument;
    for (uint64_t round = 0; round < self->it->rounds; round++) {
        size_t i = (size_t)support_random_below(&self->state, OWN);
        if (self->ids[i] != 0)
            give_own(self, i);
        take_own(self, i);
        for (i = 0; i < OWN; i++) {
            if (self->ids[i] != 0)
                look_up(self, i);
        }
    }
    for (size_t i = 0; i < OWN; i++) {
        if (self->ids[i] != 0)
            give_own(self, i);
    }
    return NULL;
}

/* The second chunk comes and goes, 2 MiB further each time: segments come and go. */
static void *move_chunks(void *argument)
{
    scene *it = argument;
    for (uint64_t round = 0; round < it->rounds; round++) {
        weir__chunk *chunk = &it->chunks[1];
        pthread_mutex_lock(&it->lock);
        if (round == 0) {
            add_chunk(it, chunk, BASE + CHUNK); /* right behind the first */
        } else if (weir__heap_chunk_is_idle(&it->heap, chunk)) {
            for (uint32_t id = weir__heap_first(&it->heap, chunk); id != 0;
                 id = weir__heap_after(&it->heap, id))
                weir__heap_hold(&it->heap, id);
            weir__heap_remove_chunk(&it->heap, chunk);
            add_chunk(it, chunk, BASE + CHUNK + round % 64 * ((uintptr_t)2 << 20));
        }
        pthread_mutex_unlock(&it->lock);
    }
    return NULL;
}

static void lookups_need_no_lock(void **state)
{
    (void)state;
    static scene it;
    static user users[THREADS];
    pthread_t threads[THREADS], mover;
    it.rounds = support_bound("test_heap_lookups.rounds", 100000, 1000000);
    must(pthread_mutex_init(&it.lock, NULL) == 0 && weir__heap_init(&it.heap));
    add_chunk(&it, &it.chunks[0], BASE);
    for (uint32_t i = 0; i < THREADS; i++) {
        users[i] = (user){ .it = &it, .state = support_seed(i), .number = i + 1 };
        must(pthread_create(&threads[i], NULL, use, &users[i]) == 0);
    }
    must(pthread_create(&mover, NULL, move_chunks, &it) == 0);
    uint64_t hits = 0, misses = 0;
    for (uint32_t i = 0; i < THREADS; i++) {
        must(pthread_join(threads[i], NULL) == 0);
        hits += users[i].hits;
        misses += users[i].misses;
    }
    must(pthread_join(mover, NULL) == 0);
    print_message("%llu found without the lock, %llu asked again under it\n",
                  (unsigned long long)hits, (unsigned long long)misses);
    must(hits > 100 * misses);
    weir__heap_verify(&it.heap);
    must_equal(it.heap.taken_blocks, 0);
    weir__heap_close(&it.heap);
    must(pthread_mutex_destroy(&it.lock) == 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lookups_need_no_lock),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
