/* model_gate.c - the gate, model-checked: the library's own code on a simulated weak
 * memory, in all ways in which its threads can go on. First the memory itself is held
 * to what is known of weak memories: else all would hold on it. */
#include "support.h"
#include "support_weak.h"

/* The code of the gate, with the memory's operations in the place of the machine's. */
#define WEIR__GATE_MODEL
#define WEIR__GATE_LOAD(word, order)         weak_load(word, order)
#define WEIR__GATE_STORE(word, value, order) weak_store(word, value, order)
#define WEIR__GATE_EXCHANGE(word, value)     ((void)weak_exchange(word, value))
#define WEIR__GATE_KEEP_ORDER()              ((void)0)

static bool fence_all_threads(void)
{
    weak_membarrier();
    return true;
}

static void pause_after(const void *gate, uint32_t looks)
{
    (void)gate;
    (void)looks;
    weak_await_change();
}

#include "gate.c"

/* Gates are made before the threads, by none of them. */
bool weir__gate_is_mine(const weir__gate *gate)
{
    (void)gate;
    return true;
}

/* ---- the memory ---- */

static uint32_t x, y; /* only their addresses count */
static memory_order stores_by, loads_by;
static uint32_t got[2];
static uint32_t outcomes; /* bit 2 * got[0] + got[1] */

static void outcome_add(void)
{
    outcomes |= 1u << (2 * got[0] + got[1]);
}

static void stores_x_loads_y(void)
{
    weak_store(&x, 1, stores_by);
    got[0] = weak_load(&y, loads_by);
}

static void stores_y_loads_x(void)
{
    weak_store(&y, 1, stores_by);
    got[1] = weak_load(&x, loads_by);
}

static void stores_y_fences_all_loads_x(void)
{
    weak_store(&y, 1, stores_by);
    weak_membarrier();
    got[1] = weak_load(&x, loads_by);
}

static void stores_x_then_y(void)
{
    weak_store(&x, 1, memory_order_relaxed);
    weak_store(&y, 1, stores_by);
}

static void loads_y_then_x(void)
{
    got[0] = weak_load(&y, loads_by);
    got[1] = weak_load(&x, memory_order_relaxed);
}

static uint32_t outcomes_of(const char *what, memory_order store, memory_order load,
                            void (*first)(void), void (*second)(void))
{
    const weak_program program = { .what = what, .threads = 2,
                                   .play = { first, second }, .end = outcome_add,
                                   .words = { &x, &y } };
    stores_by = store;
    loads_by = load;
    outcomes = 0;
    weak_explore(&program);
    return outcomes;
}

#define ALL_FOUR 0xfu

static void memory_holds_stores_back(void **state)
{
    (void)state;
    const uint32_t not_both_0 = ALL_FOUR & ~1u;
    must_equal(outcomes_of("two relaxed sides", memory_order_relaxed,
                           memory_order_relaxed, stores_x_loads_y, stores_y_loads_x),
               ALL_FOUR);
    must_equal(outcomes_of("two sides that release and acquire", memory_order_release,
                           memory_order_acquire, stores_x_loads_y, stores_y_loads_x),
               ALL_FOUR);
    must_equal(outcomes_of("two consistent sides", memory_order_seq_cst,
                           memory_order_seq_cst, stores_x_loads_y, stores_y_loads_x),
               not_both_0);
    must_equal(outcomes_of("a relaxed side, and one that fences all",
                           memory_order_relaxed, memory_order_relaxed, stores_x_loads_y,
                           stores_y_fences_all_loads_x),
               not_both_0);
}

static void memory_mixes_stores_up(void **state)
{
    (void)state;
    const uint32_t not_the_second_alone = ALL_FOUR & ~(1u << 2);
    must_equal(outcomes_of("a relaxed message", memory_order_relaxed,
                           memory_order_acquire, stores_x_then_y, loads_y_then_x),
               ALL_FOUR);
    must_equal(outcomes_of("a message that is read relaxed", memory_order_release,
                           memory_order_relaxed, stores_x_then_y, loads_y_then_x),
               ALL_FOUR);
    must_equal(outcomes_of("a message", memory_order_release, memory_order_acquire,
                           stores_x_then_y, loads_y_then_x),
               not_the_second_alone);
}

/* ---- the gate ---- */

static weir__gate gates[2];
static uint64_t visits, flushes;

static void work(uint32_t place)
{
    weak_work_begin(place);
    weak_work_end(place);
}

/* As a pool does: who is refused waits for the lock, and then needs no gate. */
static void owner_passes(uint32_t number)
{
    if (weir__gate_enter(&gates[number])) {
        work(number);
        weir__gate_leave(&gates[number]);
        return;
    }
    weak_lock();
    work(number);
    weak_unlock();
}

static void flush(uint32_t count)
{
    weak_lock();
    for (uint32_t i = 0; i < count; i++)
        weir__gate_close_begin(&gates[i]);
    weir__gate_barrier();
    for (uint32_t i = 0; i < count; i++)
        weir__gate_close_wait(&gates[i]);
    for (uint32_t i = 0; i < count; i++)
        work(i);
    for (uint32_t i = 0; i < count; i++)
        weir__gate_open(&gates[i]);
    weak_unlock();
}

static void owns_the_first(void)
{
    for (uint64_t i = 0; i < visits; i++)
        owner_passes(0);
}

static void owns_the_second(void)
{
    for (uint64_t i = 0; i < visits; i++)
        owner_passes(1);
}

static void flushes_the_first(void)
{
    for (uint64_t i = 0; i < flushes; i++)
        flush(1);
}

static void flushes_both(void)
{
    flush(2);
}

static void owns_the_first_and_flushes_both(void)
{
    owner_passes(0);
    flush(2);
    owner_passes(0);
}

static void owns_the_second_and_flushes_both(void)
{
    owner_passes(1);
    flush(2);
    owner_passes(1);
}

/* Both ways, whatever this system's membarrier answers: it is not asked. */
static void explore(weak_program program)
{
    program.words[0] = &gates[0].busy;
    program.words[1] = &gates[0].closed;
    program.words[2] = &gates[1].busy;
    program.words[3] = &gates[1].closed;
    for (int i = 0; i < 2; i++) {
        weir__gate_init(&gates[0]);
        weir__gate_init(&gates[1]);
        weir__gate_fences = i == 1;
        print_message(i == 1 ? "owners fence: " : "membarrier: ");
        weak_explore(&program);
    }
}

static void one_flusher_and_the_owner_exclude_each_other(void **state)
{
    (void)state;
    visits = support_bound("model_gate.visits", 3, 4);
    flushes = support_bound("model_gate.flushes", 2, 3);
    explore((weak_program){ .what = "an owner and a flusher", .threads = 2,
                            .play = { owns_the_first, flushes_the_first } });
}

static void two_flushers_and_the_owner_exclude_each_other(void **state)
{
    (void)state;
    visits = support_bound("model_gate.visits of two flushers", 1, 3);
    flushes = 1;
    explore((weak_program){
        .what = "an owner and two flushers", .threads = 3,
        .play = { owns_the_first, flushes_the_first, flushes_the_first } });
}

static void one_barrier_serves_two_gates(void **state)
{
    (void)state;
    visits = support_bound("model_gate.visits of two owners", 1, 2);
    explore((weak_program){
        .what = "two owners and a flusher", .threads = 3,
        .play = { owns_the_first, owns_the_second, flushes_both } });
}

static void owners_flush_their_own_and_each_others(void **state)
{
    (void)state;
    explore((weak_program){ .what = "two owners that flush", .threads = 2,
                            .play = { owns_the_first_and_flushes_both,
                                      owns_the_second_and_flushes_both } });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_holds_stores_back),
        cmocka_unit_test(memory_mixes_stores_up),
        cmocka_unit_test(one_flusher_and_the_owner_exclude_each_other),
        cmocka_unit_test(two_flushers_and_the_owner_exclude_each_other),
        cmocka_unit_test(one_barrier_serves_two_gates),
        cmocka_unit_test(owners_flush_their_own_and_each_others),
    };
    return cmocka_run_group_tests_name("gate on a weak memory", tests, NULL, NULL);
}
