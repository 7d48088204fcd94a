/* test_miss_lines.c - what threads that miss take from each other: see lines.h.
 *
 * That a hit stores to no line of another thread's is test_hit_lines.c's. Here two
 * threads of one pool miss as programs do, and how many lines came is less than what
 * was written down; which grows where two things that threads write come to lie in one
 * line. By turns, so that nothing depends on the machine but where memory lies. */
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <setjmp.h>

#include <cmocka.h>

#include "hits.h"
#include "lines.h"

#define THREADS 2
#define LIVE    256
#define TURNS   4096     /* of each thread; as many before it counts */
#define OWN     20       /* pairs in one, on streams of their own */
#define HANDED  256      /* blocks in one, from thread to thread */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static size_t turn;      /* whose it is, by lock */

typedef struct actor actor;
typedef struct actor {
    unsigned number;
    hits_scene *scene;
    void (*work)(actor *self); /* in one turn */
    uint64_t random;
    void *ptrs[LIVE];
    size_t bytes[LIVE];
} actor;

static uint32_t draw(actor *self)
{
    self->random ^= self->random << 13;
    self->random ^= self->random >> 7;
    self->random ^= self->random << 17;
    return (uint32_t)(self->random >> 20);
}

/* 256 B to 1 MiB, each doubling as likely as any. */
static void fill(actor *self, size_t slot)
{
    const size_t least = (size_t)256 << draw(self) % 12;
    self->bytes[slot] = least + draw(self) % least;
    self->ptrs[slot] = hits_take(self->scene, self->number, self->bytes[slot]);
}

static void turn_over(actor *self)
{
    for (size_t i = 0; i < LIVE && self->ptrs[i] == NULL; i++)
        fill(self, i);
    for (size_t i = 0; i < OWN; i++) {
        const size_t slot = draw(self) % LIVE;
        hits_give(self->scene, self->number, self->ptrs[slot], self->bytes[slot]);
        fill(self, slot);
    }
}

static void *handed[HANDED];

static void hand_over(actor *self)
{
    for (size_t i = 0; i < HANDED; i++) {
        if (self->number == 0)
            handed[i] = hits_take(self->scene, 0, 4096);
        else
            hits_give(self->scene, 0, handed[i], 4096);
    }
}

static void *act(void *argument)
{
    actor *self = argument;
    for (size_t i = 0; i < 2 * TURNS; i++) {
        pthread_mutex_lock(&lock);
        while (turn % THREADS != self->number)
            pthread_cond_wait(&passed, &lock);
        if (turn == (size_t)TURNS * THREADS)
            (void)lines_moved();
        lines_begin(self->number);
        self->work(self);
        lines_end();
        turn++;
        pthread_cond_broadcast(&passed);
        pthread_mutex_unlock(&lock);
    }
    for (size_t i = 0; i < LIVE; i++) {
        if (self->ptrs[i] != NULL)
            hits_give(self->scene, self->number, self->ptrs[i], self->bytes[i]);
    }
    return NULL;
}

/* How many lines come for a thousand of `in_turn` things that are done in a turn. */
static uint64_t lines_of(void (*work)(actor *self), size_t in_turn)
{
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.cache_bytes = (size_t)64 << 20; /* with more next to nothing is missed */
    hits_scene scene = hits_open_with(&options);
    static actor actors[THREADS];
    pthread_t threads[THREADS];
    turn = 0;
    for (unsigned i = 0; i < THREADS; i++) {
        actors[i] = (actor){ .number = i, .scene = &scene, .work = work,
                             .random = UINT64_C(0x2545f4914f6cdd1d) + i };
        assert_int_equal(pthread_create(&threads[i], NULL, act, &actors[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    const uint64_t moved = lines_moved();
    hits_close(&scene);
    return moved * 1000 / (in_turn * TURNS);
}

/* Of misses there is one in a hundred pairs, more or less. */
static void streams_of_their_own(void **state)
{
    (void)state;
    uint64_t lines = lines_of(turn_over, (size_t)OWN * THREADS);
    print_message("%llu lines for 1000 pairs, each thread on its own stream\n",
                  (unsigned long long)lines);
    assert_in_range(lines, 1, 35);
}

/* Each record is written by both, and four of them have a line. */
static void freed_by_another(void **state)
{
    (void)state;
    uint64_t lines = lines_of(hand_over, HANDED);
    print_message("%llu lines for 1000 blocks that another thread frees\n",
                  (unsigned long long)lines);
    assert_in_range(lines, 500, 1250);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_of_their_own),
        cmocka_unit_test(freed_by_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
