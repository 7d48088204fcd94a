/* model_lookups.c - lookups without the heap's lock, model-checked: the heap's own code
 * is run and recorded, and then a thread that has a block looks it up while all that
 * happens, with every answer that its loads may get on a weak memory.
 *
 * A program is a row of steps, of a letter and a digit each:
 *     +C -C >C   chunk C is added; removed, if it is idle; made longer
 *     tG mG TG   a block of G grains is taken; and its record goes to another home; a
 *                block of 16 times as many
 *     gN aN      the Nth of the blocks that are out comes back: done, or behind a mark
 * A step that cannot be is left out. */
#include <stdio.h>
#include <string.h>

#include "heap_internal.h"
#include "support.h"
#include "support_recorded.h"

#define GRAIN     WEIR__HEAP_GRAIN
#define BASE      ((uintptr_t)1 << 26)
#define CHUNKS    5u
#define LIVES_MAX 64u
#define STEPS_MAX 64u

/* A block, from when it was handed out until it comes back. */
typedef struct life {
    const void *ptr;
    weir__heap_block *block;
    uint32_t id;         /* its record */
    uint64_t head;
    uint32_t from, until;
    bool is_over;
} life;

static struct {
    weir__heap *heap;    /* in the arena */
    weir__chunk chunks[CHUNKS];
    bool is_there[CHUNKS];
    life lives[LIVES_MAX];
    uint32_t life_count;
    const char *steps;   /* of the program that is looked at */
    bool is_over;        /* that was looked at */
    uint32_t step_count;
    uint32_t moments[STEPS_MAX + 1]; /* when the heap was made, and behind each step */
    uint64_t number;     /* of the last mark */
    const life *looks;   /* who looks for his block now */
    const life *remembers;
    uintptr_t stranger;
    uint64_t hits, misses;
} now;

/* ---- chunks ---- */

/* Some share a segment; the last lies in two. */
static const struct {
    uint32_t base, grains; /* in grains */
} places[CHUNKS] = {
    { 0, 24 }, { 24, 16 }, { 40, 40 }, { 8 << 13, 8 }, { (21 << 13) - 4, 8 },
};

static void add_chunk(uint32_t number)
{
    const bool is_beside = number == 1 || number == 2;
    if (now.is_there[number] ||
        (is_beside && now.chunks[number - 1].bytes > places[number - 1].grains * GRAIN))
        return;
    uintptr_t base = BASE + places[number].base * GRAIN;
    size_t bytes = places[number].grains * GRAIN;
    must(weir__heap_promise(now.heap));
    must_ok(weir__heap_reserve(now.heap, base, bytes));
    uint32_t id =
        weir__heap_add_chunk(now.heap, &now.chunks[number], base, bytes);
    weir__heap_release(now.heap, id, WEIR__MARK_DONE);
    weir__heap_forget_promise(now.heap);
    now.is_there[number] = true;
}

static void remove_chunk(uint32_t number)
{
    weir__chunk *chunk = &now.chunks[number];
    if (!now.is_there[number] || !weir__heap_chunk_is_idle(now.heap, chunk))
        return;
    for (uint32_t id = weir__heap_first(now.heap, chunk); id != 0;
         id = weir__heap_after(now.heap, id))
        weir__heap_hold(now.heap, id);
    weir__heap_remove_chunk(now.heap, chunk);
    *chunk = (weir__chunk){ 0 };
    now.is_there[number] = false;
}

static void extend_chunk(uint32_t number)
{
    weir__chunk *chunk = &now.chunks[number];
    if (!now.is_there[number] || (number < 2 && now.is_there[number + 1]) ||
        chunk->bytes > places[number].grains * GRAIN)
        return;
    const size_t bytes = 8 * GRAIN;
    must(weir__heap_promise(now.heap));
    must_ok(weir__heap_reserve(now.heap, chunk->base + chunk->bytes, bytes));
    uint32_t id = weir__heap_extend_chunk(now.heap, chunk, bytes);
    weir__heap_release(now.heap, id, WEIR__MARK_DONE);
    weir__heap_forget_promise(now.heap);
}

/* ---- blocks ---- */

static const uint64_t some_clock = 5;

/* All of them were asked for alike: no tag tells one from another. */
static uint32_t out_tag(void)
{
    return weir__heap_out_tag(GRAIN, GRAIN);
}

static void take_block(size_t grains, bool moves)
{
    weir__heap *heap = now.heap;
    must(weir__heap_promise(heap));
    weir__heap_owner *owner = weir__heap_owner_at(heap, WEIR__OWNER_DONE);
    weir__heap_owner *other = weir__heap_owner_find(heap, some_clock);
    uint32_t home = moves && other != NULL ? weir__heap_home_for(other)
                                           : WEIR__HEAP_HOMES;
    uint32_t id = weir__heap_take_best(heap, owner, grains * GRAIN, home,
                                       WEIR__HEAP_OUT, 0).id;
    if (id == 0 && other != NULL)
        id = weir__heap_take_best(heap, other, grains * GRAIN, home, WEIR__HEAP_OUT,
                                  0).id;
    weir__heap_forget_promise(heap);
    if (id == 0)
        return;
    must(now.life_count < LIVES_MAX);
    weir__heap_block *block = weir__heap_block_of(heap, id);
    weir__heap_set_link(block, 0);
    life *made = &now.lives[now.life_count++];
    *made = (life){ .ptr = (const void *)weir__heap_base(block), .block = block,
                    .id = id, .from = recorded_now(), .until = UINT32_MAX };
    recorded_act_as(now.life_count, made->from);
    weir__heap_set_tag(block, out_tag());
    recorded_act_as(0, 0);
    made->head = weir__heap_head_of(block);
}

static void give_block(uint32_t nth, weir__mark mark)
{
    uint32_t user = 0;
    while (user < now.life_count && (now.lives[user].is_over || nth-- > 0))
        user++;
    if (user == now.life_count)
        return;
    life *its = &now.lives[user++];
    its->until = recorded_now();
    its->is_over = true;
    recorded_act_as(user, its->from);
    weir__heap_set_tag(its->block, WEIR__HEAP_CACHED | user << WEIR__HOLDER_SHIFT);
    recorded_act_as(0, 0);
    recorded_settle(user);
    must(weir__heap_can_release(now.heap, mark.clock));
    (void)weir__heap_release(now.heap, its->id, mark);
}

/* ---- programs ---- */

static void play_step(char what, uint32_t of)
{
    switch (what) {
    case '+': add_chunk(of); break;
    case '-': remove_chunk(of); break;
    case '>': extend_chunk(of); break;
    case 't': take_block(of, false); break;
    case 'm': take_block(of, true); break;
    case 'T': take_block(of * 16, false); break;
    case 'g': give_block(of, WEIR__MARK_DONE); break;
    case 'a': give_block(of, (weir__mark){ some_clock, ++now.number }); break;
    default: must(false);
    }
}

/* Under the lock a lookup is right; unless a block has no entry yet, it is by tag. */
static void find_all(void)
{
    for (uint32_t i = 0; i < now.life_count; i++) {
        const life *its = &now.lives[i];
        uint32_t id = 0;
        if (its->is_over)
            continue;
        must_equal(weir__heap_find(now.heap, its->ptr), its->id);
        const weir__heap_block *found =
            weir__heap_lookup_tagged(&now.heap->view, its->ptr, out_tag(), &id);
        if (found == NULL && now.heap->missing > 0)
            continue;
        must(found == its->block);
        must_equal(id, its->id);
    }
}

static void play(const char *steps)
{
    memset(&now, 0, sizeof now);
    recorded_begin();
    now.heap = recorded_alloc(sizeof *now.heap);
    must(weir__heap_init(now.heap));
    now.steps = steps;
    now.moments[0] = recorded_now();
    for (; *steps != '\0'; steps += steps[2] == ' ' ? 3 : 2) {
        must(now.step_count < STEPS_MAX);
        play_step(steps[0], (uint32_t)(steps[1] - '0'));
        find_all();
        weir__heap_verify(now.heap);
        now.moments[++now.step_count] = recorded_now();
    }
}

/* ---- lookups ---- */

/* What a lookup says is the block, or nothing. */
static void look_up(void *context)
{
    (void)context;
    const weir__heap_view *view = &now.heap->view;
    const life *its = now.looks;
    uint32_t id = 0;
    weir__heap_block *block = weir__heap_lookup_tagged(view, its->ptr, out_tag(), &id);
    must(block == NULL || (block == its->block && id == its->id));
    now.hits += block != NULL;
    now.misses += block == NULL;
}

/* A record that stood for this address before, when its block was the caller's. */
static void look_where_it_was(void *context)
{
    (void)context;
    bool is_it = weir__heap_is_still(now.remembers->block, now.remembers->head);
    must(!is_it || now.remembers->block == now.looks->block);
}

/* Whoever asks for what is not his may get any answer. */
static void look_anywhere(void *context)
{
    (void)context;
    uint32_t id = 0;
    weir__heap_block *block =
        weir__heap_lookup_tagged(&now.heap->view, (const void *)now.stranger,
                                 out_tag(), &id);
    must((block == NULL) == (id == 0));
}

static uint64_t explore_life(const life *its)
{
    const recorded_reader reader = {
        .knows = its->from, .until = its->until, .own = &its->block->head,
        .read = look_up };
    recorded_reader remembering = reader;
    remembering.read = look_where_it_was;
    uint64_t ways = 0;
    now.looks = its;
    ways += recorded_explore(&reader);
    for (now.remembers = now.lives; now.remembers < its; now.remembers++) {
        if (now.remembers->ptr == its->ptr)
            ways += recorded_explore(&remembering);
    }
    return ways;
}

static uint64_t explore_lives(void)
{
    uint64_t ways = 0;
    for (uint32_t i = 0; i < now.life_count; i++)
        ways += explore_life(&now.lives[i]);
    return ways;
}

/* While a few steps are made, the first of which has a number. */
static uint64_t explore_strangers(uint32_t step, uint32_t steps)
{
    const uint32_t end = step + steps < now.step_count ? step + steps : now.step_count;
    const recorded_reader reader = {
        .knows = now.moments[step], .until = now.moments[end],
        .read = look_anywhere };
    uint64_t ways = 0;
    for (uint32_t grain = 0; grain < 48; grain += 6) {
        now.stranger = BASE + grain * GRAIN;
        ways += recorded_explore(&reader);
    }
    return ways;
}

/* ---- the memory ---- */

static _Atomic uint32_t *words; /* two, in the arena */
static memory_order loads_by;
static uint32_t outcomes; /* bit 2 * first + second */

static void loads_the_second_then_the_first(void *context)
{
    (void)context;
    uint32_t second = atomic_load_explicit(&words[1], loads_by);
    uint32_t first = atomic_load_explicit(&words[0], memory_order_relaxed);
    outcomes |= 1u << (2 * second + first);
}

static void loads_the_first_twice(void *context)
{
    (void)context;
    uint32_t first = atomic_load_explicit(&words[0], memory_order_relaxed);
    uint32_t again = atomic_load_explicit(&words[0], memory_order_relaxed);
    outcomes |= 1u << (2 * first + again);
}

/* Both words become 1, the first one first; `user` stores the second, or nobody. */
static uint32_t outcomes_of(memory_order store, memory_order load, uint32_t user,
                            void (*read)(void *context))
{
    recorded_begin();
    words = recorded_alloc(2 * sizeof *words);
    memset(words, 0, 2 * sizeof *words);
    uint32_t begin = recorded_now();
    atomic_store_explicit(&words[0], 1, memory_order_relaxed);
    recorded_act_as(user, begin);
    atomic_store_explicit(&words[1], 1, store);
    recorded_act_as(0, 0);
    loads_by = load;
    outcomes = 0;
    (void)recorded_explore(&(recorded_reader){ .knows = begin,
                                               .until = recorded_now(), .read = read });
    return outcomes;
}

static void memory_is_as_weak_as_it_may_be(void **state)
{
    (void)state;
    const memory_order relaxed = memory_order_relaxed, acquire = memory_order_acquire,
                       release = memory_order_release;
    const uint32_t all_four = 0xf, not_the_second_alone = 0xb, not_back = 0xb;
    void (*const read)(void *) = loads_the_second_then_the_first;
    must_equal(outcomes_of(relaxed, acquire, 0, read), all_four);
    must_equal(outcomes_of(release, relaxed, 0, read), all_four);
    must_equal(outcomes_of(release, acquire, 0, read), not_the_second_alone);
    must_equal(outcomes_of(release, acquire, 1, read), all_four);
    must_equal(outcomes_of(relaxed, relaxed, 0, loads_the_first_twice), not_back);
}

/* ---- scenes ---- */

/* Tries all lookups while a program goes on, and says how many there were. */
static void explore(const char *what, const char *steps)
{
    play(steps);
    uint64_t own = explore_lives();
    uint64_t hits = now.hits, misses = now.misses;
    uint64_t others = 0;
    for (uint32_t step = 0; step < now.step_count; step++)
        others += explore_strangers(step, 3);
    now.is_over = true;
    print_message("%s: %llu ways to look up (%llu found, %llu not), %llu for a "
                  "stranger\n",
                  what, (unsigned long long)own, (unsigned long long)hits,
                  (unsigned long long)misses, (unsigned long long)others);
    must(hits > 0);
}

static void scenes(void **state)
{
    (void)state;
    explore("blocks are cut and merged", "+0 t2 t2 t2 g0 g1 t1 t1 g1 g1 t2");
    explore("blocks of two owners", "+0 t2 t3 t2 a0 t1 a1 m2 a0 t3 m1 m1");
    explore("a record is used elsewhere", "+0 t1 m1 a1 t1 g0 t2 t1 m1 g0 t1 t1");
    explore("a chunk behind another's end", "+1 t1 +0 -0 t1 t1 t1 +0 t3 -0");
    explore("a chunk before another", "+0 t1 +1 t1 t1 -1 t1 t1 +1 g0 t1");
    explore("a segment gets room", "+0 t3 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1");
    explore("entries move up",
            "+0 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 g8 g7 g6 g5 g4 g3 g2 t2 g1 t1");
    explore("entries move up, and down again",
            "+0 t1 t1 t1 t1 t1 t1 t1 t1 t1 g8 g7 g6 g5 g4 g3 g2 g1 +2 t1 t1 t1 t1 t1 "
            "t1 t1 t1");
    explore("a segment gets room several times",
            "+0 +1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 "
            "t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 t1 +2 t1 t1 t1 t1");
    explore("a chunk's end is used again", "+0 +1 t1 T1 g1 -0 t1 t1 t1 t1");
    explore("blocks far from each other", "+2 T1 T1 g0 T1 g0 g0 +0 T1 T2 g0 T1");
    explore("chunks far from each other", "+0 t1 +3 t1 +4 t1 t1 >4");
    explore("segments are used again", "+0 t1 +3 +4 -3 +1 -4 +4 +3 -4 t1");
    explore("segments come and go", "+0 +3 t1 +4 t1 -0 t1 +0 -4 -0 +0 +1 -0");
    explore("a record that stood for it before stands for its neighbour",
            "+0 t1 a0 t1 t1 t1 g2 g1 g0 m1 a0 T1 t6 t1 t1 a2 m1");
    explore("a record that stood elsewhere becomes an end beside a block",
            "+0 t2 T2 g2 a4 T3 +2 >4 t2 T2 -4 g0 +0 g0 +0 -2 -0 -1 t3 -2 >3 +1 >1 T1");
    explore("a chunk grows", "+0 t3 >0 t1 t1 +4 t1 >4");
}

/* What the recorder has found out so far, if a scene did not end. */
static int tell_program(void **state)
{
    (void)state;
    if (!now.is_over && now.steps != NULL)
        print_message("the program was %s\n", now.steps);
    return 0;
}

/* ---- programs ---- */

static void make_step(uint64_t *state, const char *letters, char *out)
{
    char letter = letters[support_random_below(state, strlen(letters))];
    uint64_t of = letter == 't' || letter == 'm' || letter == 'T'
                      ? support_random_between(state, 1, 3)
                      : support_random_below(state, CHUNKS);
    (void)snprintf(out, 4, " %c%c", letter, (char)('0' + of));
}

static void random_programs(void **state)
{
    (void)state;
    const uint64_t count = support_bound("model_lookups.programs", 10000, 150000);
    uint64_t own = 0, others = 0;
    static char program[3 * STEPS_MAX];
    for (uint64_t i = 0; i < count; i++) {
        uint64_t random = support_seed(i);
        /* Chunks come and go rarely, and often. */
        const char *letters = i % 4 != 0 ? "tttTmmggggaa+->" : "ttTmgga+++--->";
        uint64_t steps = support_random_between(&random, 8, 24);
        (void)snprintf(program, sizeof program, "+0");
        for (uint64_t step = 1; step < steps; step++)
            make_step(&random, letters, program + 3 * step - 1);
        play(program);
        own += explore_lives();
        others += explore_strangers(
            (uint32_t)support_random_below(&random, now.step_count), 3);
        now.is_over = true;
    }
    print_message("%llu programs: %llu ways to look up, %llu for a stranger\n",
                  (unsigned long long)count, (unsigned long long)own,
                  (unsigned long long)others);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_as_weak_as_it_may_be),
        cmocka_unit_test_teardown(scenes, tell_program),
        cmocka_unit_test_teardown(random_programs, tell_program),
    };
    return cmocka_run_group_tests_name("lookups without the lock", tests, NULL, NULL);
}
