/* test_costs.c - the emulated device adds up what its calls would have taken. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "support_work.h"
#include "weir/async.h"

#define MIB ((size_t)1 << 20)

static weir_device *open_costly(weir_emulated_scheduler scheduler,
                                const weir_emulated_costs *costs)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = scheduler;
    emulated.costs = costs;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

/* The costs since *last, which becomes what there is now. */
static uint64_t cost_since(weir_device *device, double *last)
{
    double before = *last;
    *last = weir_emulated_modelled_ns(device);
    must(*last >= before);
    return (uint64_t)(*last - before);
}

/* ---- each kind ---- */

/* One of each kind in the order of the map, so that no two cost the same. */
static weir_emulated_costs costs_of_all(void)
{
    weir_emulated_costs costs = { .struct_size = sizeof costs };
    double ns = 0;
#define X(name) ns++, costs.name = (weir_emulated_cost){ ns, 1000 * ns };
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    return costs;
}

#define must_cost(kind, mib)                                                     \
    must_equal(cost_since(device, &last),                                        \
               costs.kind.ns + (double)(mib) * costs.kind.ns_per_mib)

static void each_call_costs_its_own(void **state)
{
    (void)state;
    static const weir_emulated_scheduler schedulers[] = {
        WEIR_EMULATED_THREADS, WEIR_EMULATED_STEPPED, WEIR_EMULATED_NO_WORK
    };
    const weir_emulated_costs costs = costs_of_all();

    for (size_t i = 0; i < 3; i++) {
        weir_device *device = open_costly(schedulers[i], &costs);
        double last = weir_emulated_modelled_ns(device);
        size_t free_bytes, total;
        void *ptr;
        bool done;

        must_ok(weir__malloc(device, 3 * MIB, &ptr));
        must_cost(malloc, 3);
        must_ok(weir__fill(device, NULL, ptr, 1, MIB));
        must_cost(fill, 1);
        must_ok(weir__copy(device, NULL, ptr, (char *)ptr + MIB, MIB / 2));
        must_cost(copy, 0.5);
        weir_event event = raw_event(device);
        must_cost(event_create, 0);
        raw_record(device, event, NULL);
        must_cost(event_record, 0);
        must_ok(weir__event_query(device, event, &done));
        must_cost(event_query, 0);
        must_ok(weir__stream_wait_event(device, NULL, event));
        must_cost(stream_wait_event, 0);
        raw_event_end(device, event);
        must_cost(event_destroy, 0);
        must_ok(weir__device_sync(device));
        must_cost(device_sync, 0);
        must_ok(weir_device_memory(device, &free_bytes, &total));
        must_cost(memory_info, 0);
        must_ok(weir__free(device, ptr));
        must_cost(free, 3);
        close_emulated(device);
    }
}

static void memory_of_the_host_costs_by_its_bytes(void **state)
{
    (void)state;
    const weir_managed_options managed = { .struct_size = sizeof managed };
    const weir_emulated_costs costs = costs_of_all();
    weir_device *device = open_costly(WEIR_EMULATED_STEPPED, &costs);
    double last = weir_emulated_modelled_ns(device);
    void *ptr;

    must_ok(weir__host_malloc(device, 2 * MIB, 4096, &ptr));
    must_cost(host_malloc, 2);
    must_ok(weir__host_free_device(device, ptr));
    must_cost(host_free, 2);
    must_ok(weir__pinned_malloc(device, MIB, 0, &ptr));
    must_cost(pinned_malloc, 1);
    must_ok(weir__pinned_free(device, ptr));
    must_cost(pinned_free, 1);
    must_ok(weir__managed_malloc(device, 4 * MIB, &managed, &ptr));
    must_cost(managed_malloc, 4);
    must_ok(weir__prefetch(device, NULL, ptr, 3 * MIB, WEIR__PLACE_DEVICE));
    must_cost(prefetch, 3);
    must_ok(weir__prefer(device, ptr, 2 * MIB, WEIR__PLACE_HOST));
    must_cost(prefer, 2);
    must_ok(weir__free(device, ptr));
    must_cost(free, 4);
    void *pages = aligned_alloc(4096, MIB);
    must(pages != NULL);
    must_ok(weir__host_register(device, pages, MIB, 0));
    must_cost(host_register, 1);
    must_ok(weir__host_unregister(device, pages));
    must_cost(host_unregister, 1);
    free(pages);
    close_emulated(device);
}

/* A pool that has the memory costs the call alone. */
static void a_pool_costs_what_it_draws(void **state)
{
    (void)state;
    const weir_async_options options = {
        .struct_size = sizeof options, .release_threshold_bytes = UINT64_MAX,
        .reuse = WEIR_ASYNC_REUSE_SAME_STREAM,
    };
    const weir_emulated_costs costs = costs_of_all();
    weir_device *device = open_costly(WEIR_EMULATED_STEPPED, &costs);
    double last = weir_emulated_modelled_ns(device);
    weir__mempool_state reserved;
    weir_mempool pool;
    void *ptr;

    must_ok(weir__mempool_create(device, &options, &pool));
    must_cost(mempool_create, 0);
    must_ok(weir__mempool_malloc(device, pool, NULL, MIB, &ptr));
    uint64_t first = cost_since(device, &last);
    must_ok(weir__mempool_get_state(device, pool, &reserved));
    must_cost(mempool_get_state, 0);
    double mib = (double)reserved.reserved_bytes / (double)MIB;
    must(mib >= 1);
    must_equal(first, costs.mempool_malloc.ns + mib * costs.mempool_malloc.ns_per_mib);
    must_ok(weir__mempool_free(device, NULL, ptr));
    must_cost(mempool_free, 0);
    must_ok(weir__mempool_malloc(device, pool, NULL, MIB, &ptr));
    must_cost(mempool_malloc, 0);
    must_ok(weir__mempool_free(device, NULL, ptr));
    must_ok(weir__device_sync(device));
    (void)cost_since(device, &last);
    must_ok(weir__mempool_trim(device, pool, 0));
    must_cost(mempool_trim, mib);
    must_ok(weir__mempool_destroy(device, pool));
    close_emulated(device);
}

static void a_refused_call_costs_no_bytes(void **state)
{
    (void)state;
    const weir_emulated_costs costs = costs_of_all();
    weir_device *device = open_costly(WEIR_EMULATED_STEPPED, &costs);
    double last = weir_emulated_modelled_ns(device);
    void *ptr;

    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, SIZE_MAX / 4, &ptr));
    must_cost(malloc, 0);
    plan_fault(device, "malloc", 1, false, WEIR_OUT_OF_MEMORY);
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, MIB, &ptr));
    must_cost(malloc, 0);
    close_emulated(device);
}

/* ---- options ---- */

static void without_costs_nothing_costs(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    void *ptr;
    must_ok(weir__malloc(device, MIB, &ptr));
    must_ok(weir__free(device, ptr));
    must(weir_emulated_modelled_ns(device) == 0);
    must(weir_emulated_modelled_ns(NULL) == 0);
    close_emulated(device);
}

static void costs_are_copied_and_compared(void **state)
{
    (void)state;
    weir_emulated_costs costs = costs_of_all();
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device *device, *again;
    emulated.memory_bytes = 64 * MIB;
    emulated.costs = &costs;
    options.emulated = &emulated;
    device = open_with("emulated:3", &options);

    must_ok(weir_device_open("emulated:3", &options, &again));
    weir_device_unref(again);
    must_ok(weir_device_open("emulated:3", NULL, &again));
    weir_device_unref(again);
    costs.fill.ns += 1;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_device_open("emulated:3", &options, &again));
    emulated.costs = NULL;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_device_open("emulated:3", &options, &again));
    close_emulated(device);
}

static void what_is_no_cost_is_refused(void **state)
{
    (void)state;
    const double bad[] = { -1, NAN, INFINITY, -INFINITY };
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device *device;
    options.emulated = &emulated;
    for (size_t i = 0; i < 2 * sizeof bad / sizeof *bad; i++) {
        weir_emulated_costs costs = { .struct_size = sizeof costs };
        *(i % 2 == 0 ? &costs.launch.ns : &costs.launch.ns_per_mib) = bad[i / 2];
        emulated.costs = &costs;
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_device_open("emulated:3", &options, &device));
        must(strstr(weir_last_error().message, "launch") != NULL);
        must(device == NULL);
    }
    const weir_emulated_costs sizeless = { .struct_size = 0 };
    emulated.costs = &sizeless;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_device_open("emulated:3", &options, &device));
}

/* A caller who knows fewer kinds of calls than there are. */
static void fewer_costs_are_taken(void **state)
{
    (void)state;
    weir_emulated_costs costs = costs_of_all();
    costs.struct_size = offsetof(weir_emulated_costs, host_malloc);
    weir_device *device = open_costly(WEIR_EMULATED_STEPPED, &costs);
    double last = weir_emulated_modelled_ns(device);
    void *ptr;
    must_ok(weir__malloc(device, MIB, &ptr));
    must_cost(malloc, 1);
    must_ok(weir__host_malloc(device, MIB, 256, &ptr));
    must_equal(cost_since(device, &last), 0);
    must_ok(weir__host_free_device(device, ptr));
    weir_device_unref(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_call_costs_its_own),
        cmocka_unit_test(memory_of_the_host_costs_by_its_bytes),
        cmocka_unit_test(a_pool_costs_what_it_draws),
        cmocka_unit_test(a_refused_call_costs_no_bytes),
        cmocka_unit_test(without_costs_nothing_costs),
        cmocka_unit_test(costs_are_copied_and_compared),
        cmocka_unit_test(what_is_no_cost_is_refused),
        cmocka_unit_test(fewer_costs_are_taken),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
