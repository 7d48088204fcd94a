/* test_prefetch.c - each block is prefetched on its stream before anybody has it; what
 * a refused prefetch leaves, captures, and memory that does not move. */
#include "support_graph.h"
#include "support_roomy.h"

#include <string.h>

#include "device/emulated_places.h"
#include "internal.h"
#include "weir/capture.h"
#include "weir/leaves.h"
#include "weir/managed.h"
#include "weir/prefetch.h"
#include "weir/resource_ops.h"

#define BYTES ((size_t)10000)

static weir_resource *open_spec(weir_device *device, const char *spec)
{
    weir_resource *mr = NULL;
    must_ok(weir_resource_open(device, spec, &mr));
    return mr;
}

static weir_prefetch_counts counts_of(weir_resource *mr)
{
    weir_prefetch_counts counts = { .struct_size = sizeof counts };
    must_ok(weir_prefetch_get_counts(mr, &counts));
    return counts;
}

static void must_count(weir_resource *mr, uint64_t prefetches, uint64_t bytes,
                       uint64_t captured, uint64_t failures)
{
    const weir_prefetch_counts counts = counts_of(mr);
    must_equal(counts.prefetches, prefetches);
    must_equal(counts.prefetched_bytes, bytes);
    must_equal(counts.captured, captured);
    must_equal(counts.failures, failures);
}

/* ---- the primitives ---- */

static void only_what_moves_is_prefetched(void **state)
{
    (void)state;
    static const char *const movable[] = { "system", "managed" };
    static const char *const others[] = { "device", "pinned", "async" };
    static char own[BYTES];
    weir_device *device = open_stepped(support_seed(1));
    for (size_t i = 0; i < 2; i++) {
        weir_resource *mr = open_spec(device, movable[i]);
        char *ptr = take(mr, NULL, BYTES);
        must(weir__host_moved(ptr) == WEIR__PLACE_ANY);
        must_ok(weir__prefetch(device, NULL, ptr, BYTES, WEIR__PLACE_DEVICE));
        must(weir__host_moved(ptr + BYTES - 1) == WEIR__PLACE_DEVICE);
        must_ok(weir__prefetch(device, NULL, ptr, BYTES, WEIR__PLACE_HOST));
        must(weir__host_moved(ptr) == WEIR__PLACE_HOST);
        must_ok(weir__prefer(device, ptr, 4096, WEIR__PLACE_DEVICE));
        must_ok(weir__prefer(device, ptr + 4096, BYTES - 4096, WEIR__PLACE_HOST));
        must(weir__host_preferred(ptr + 4095) == WEIR__PLACE_DEVICE);
        must(weir__host_preferred(ptr + 4096) == WEIR__PLACE_HOST);
        must_ok(weir__prefer(device, ptr, BYTES, WEIR__PLACE_ANY));
        must(weir__host_preferred(ptr) == WEIR__PLACE_ANY);
        must(weir__host_preferred(ptr + 4096) == WEIR__PLACE_ANY);
        give(mr, NULL, ptr, BYTES);
        weir_resource_unref(mr);
    }
    for (size_t i = 0; i < 3; i++) {
        weir_resource *mr = open_spec(device, others[i]);
        void *ptr = take(mr, NULL, BYTES);
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__prefetch(device, NULL, ptr, BYTES, WEIR__PLACE_DEVICE));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__prefer(device, ptr, BYTES, WEIR__PLACE_DEVICE));
        give(mr, NULL, ptr, BYTES);
        weir_resource_unref(mr);
    }
    must_ok(weir__prefetch(device, NULL, own, BYTES, WEIR__PLACE_DEVICE));
    close_emulated(device);
}

/* Lets as many operations happen as can. */
static size_t steps_of(weir_device *device)
{
    bool stepped = true;
    size_t count = 0;
    for (;; count++) {
        must_ok(weir_emulated_step(device, &stepped));
        if (!stepped)
            return count;
    }
}

static void prefetch_has_its_place_on_the_stream(void **state)
{
    (void)state;
    stage it = stage_on(open_stepped(support_seed(2)));
    weir_resource *mr = open_spec(it.device, "system");
    void *ptr = take(mr, it.s, BYTES);
    uint64_t gate;
    must_ok(weir_emulated_stall(it.device, it.s, &gate));
    must_ok(weir__prefetch(it.device, it.s, ptr, BYTES, WEIR__PLACE_DEVICE));
    must_equal(steps_of(it.device), 0);
    must_ok(weir__prefetch(it.device, it.t, ptr, BYTES, WEIR__PLACE_DEVICE));
    must_equal(steps_of(it.device), 1);
    must_ok(weir_emulated_open_gate(it.device, gate));
    must_equal(steps_of(it.device), 2);

    graph_begin(&it);
    must_answer(WEIR_DEVICE_ERROR,
                weir__prefetch(it.device, it.s, ptr, BYTES, WEIR__PLACE_DEVICE));
    must_equal(weir_last_error().native_code, 900);
    must_not_end(&it, it.s, 901);
    give(mr, it.s, ptr, BYTES);
    weir_resource_unref(mr);
    stage_close(&it);
}

/* ---- blocks ---- */

static void every_block_is_prefetched_on_its_stream(void **state)
{
    (void)state;
    static const char *const specs[] = { "prefetch/managed", "prefetch/system",
                                         "prefetch/async(memory=managed)",
                                         "prefetch/pool/managed" };
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        weir_device *device = open_stepped(support_seed(3));
        weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_resource *mr = open_spec(device, specs[i]);
        weir_resource_properties properties = { .struct_size = sizeof properties };
        must_ok(weir_resource_get_properties(mr, &properties));
        must(!properties.usable_at_once && !properties.pages_usable_at_once);
        must(properties.host_accessible);
        assert_string_equal(properties.name, "prefetch");
        uint64_t gate, before = calls_of(device).prefetch;
        must_ok(weir_emulated_stall(device, stream, &gate));
        void *ptr = take(mr, stream, BYTES);
        must_equal(calls_of(device).prefetch, before + 1);
        must_count(mr, 1, BYTES, 0, 0);
        must(i == 2 || i == 3 || weir__host_moved(ptr) == WEIR__PLACE_DEVICE);
        must_equal(steps_of(device), 0);
        must_ok(weir_emulated_open_gate(device, gate));
        must_equal(steps_of(device), 2);
        stamp(device, stream, ptr, BYTES, 1);
        check_stamp(device, stream, ptr, BYTES, 1);
        give(mr, stream, ptr, BYTES);
        must_ok(weir_allocate(mr, stream, 0, 1, &ptr));
        must_count(mr, 1, BYTES, 0, 0);
        ptr = take(mr, stream, 7); /* again, if it is the same memory */
        must_count(mr, 2, BYTES + 7, 0, 0);
        give(mr, stream, ptr, 7);
        weir_resource_unref(mr);
        end_stream(device, stream);
        close_emulated(device);
    }
}

static void blocks_can_be_moved_to_the_host(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *mr = open_spec(device, "prefetch(location=host)/managed");
    void *ptr = take(mr, NULL, BYTES);
    must(weir__host_moved(ptr) == WEIR__PLACE_HOST);
    give(mr, NULL, ptr, BYTES);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void what_is_added_is_prefetched(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    weir_resource *pool = open_spec(device, "pool/managed"), *mr;
    roomy room;
    weir_resource *upstream = roomy_open(&room, pool, 64 * BYTES);
    must_ok(weir_prefetch_create(upstream, NULL, &mr));
    void *ptr = take(mr, NULL, BYTES);
    must_ok(weir_resource_extend(mr, NULL, ptr, BYTES, WEIR_ALIGNMENT, 3 * BYTES));
    must_count(mr, 2, 3 * BYTES, 0, 0);
    must_answer(WEIR_OUT_OF_MEMORY, weir_resource_extend(mr, NULL, ptr, 3 * BYTES,
                                                         WEIR_ALIGNMENT, 65 * BYTES));
    must_count(mr, 2, 3 * BYTES, 0, 0);
    weir_point point;
    must_ok(weir_point_here(device, NULL, &point));
    must(weir_deallocate_after(mr, ptr, 3 * BYTES, WEIR_ALIGNMENT, &point, 1));
    must_equal(room.out_bytes, 0);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
    must_ok(weir_prefetch_create(pool, NULL, &mr)); /* which cannot extend */
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(!properties.can_extend && properties.can_find && properties.can_trim);
    weir_resource_unref(mr);
    weir_resource_unref(pool);
    close_emulated(device);
}

/* A chunk is prefetched when the pool draws it, on the stream that asked; what is left
 * of it goes to other streams, too. */
static void pool_over_it_orders_what_is_left(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_stream other = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *mr = open_spec(device, "pool/prefetch/managed");
    uint64_t gate;
    must_ok(weir_emulated_stall(device, stream, &gate));
    void *ptr = take(mr, stream, BYTES);
    void *beside = take(mr, other, BYTES);
    stamp(device, other, beside, BYTES, 1);
    must_ok(weir_emulated_open_gate(device, gate));
    check_stamp(device, other, beside, BYTES, 1);
    give(mr, other, beside, BYTES);
    give(mr, stream, ptr, BYTES);
    weir_resource_unref(mr);
    end_stream(device, stream);
    end_stream(device, other);
    close_emulated(device);
}

/* ---- refusals ---- */

static void refused_prefetch_is_only_counted(void **state)
{
    (void)state;
    static const char *const kinds[] = { "prefetch", "stream_is_capturing" };
    weir_device *device = open_stepped(support_seed(7));
    weir_resource *mr = open_spec(device, "prefetch/managed"), *none;
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(device, "no", &none));
    for (size_t i = 0; i < 2; i++) {
        const weir_error before = weir_last_error();
        plan_fault(device, kinds[i], 1, true, WEIR_DEVICE_ERROR);
        void *ptr = take(mr, NULL, BYTES);
        plan_fault(device, NULL, 0, false, WEIR_OK);
        must_count(mr, i, i * BYTES, 0, 1 + i);
        must_equal(weir_last_error().status, before.status);
        assert_string_equal(weir_last_error().message, before.message);
        stamp(device, NULL, ptr, BYTES, 1);
        check_stamp(device, NULL, ptr, BYTES, 1);
        give(mr, NULL, ptr, BYTES);
        ptr = take(mr, NULL, BYTES);
        must_count(mr, 1 + i, (1 + i) * BYTES, 0, 1 + i);
        give(mr, NULL, ptr, BYTES);
    }
    plan_fault(device, "managed_malloc", 1, true, WEIR_OUT_OF_MEMORY);
    void *ptr = device;
    must_ok(weir_device_sync(device));
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, NULL, BYTES, 8, &ptr));
    must(ptr == NULL);
    must_count(mr, 2, 2 * BYTES, 0, 2);
    plan_fault(device, NULL, 0, false, WEIR_OK);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void nothing_is_put_into_a_capture(void **state)
{
    (void)state;
    for (int declared = 0; declared < 2; declared++) {
        stage it = stage_on(open_stepped(support_seed(8)));
        weir_resource *mr = open_spec(it.device, "prefetch/managed");
        weir_capture *capture = NULL;
        if (declared == 0) /* of a known stream that much is not noticed */
            must_ok(weir_stream_register(it.device, it.s));
        graph_begin(&it);
        if (declared != 0)
            must_ok(weir_capture_begin(mr, it.s, &capture));
        uint64_t before = calls_of(it.device).prefetch;
        void *ptr = take(mr, it.s, BYTES);
        must_equal(calls_of(it.device).prefetch, before);
        must_count(mr, 0, 0, 1, 0);
        void *beside = take(mr, it.t, BYTES); /* another stream is free */
        must_count(mr, 1, BYTES, 1, 0);
        stamp(it.device, it.s, ptr, BYTES, 1);
        weir_emulated_graph *graph = graph_end(&it); /* not spoilt */
        if (declared != 0)
            must_ok(weir_capture_end(capture));
        graph_launch(&it, graph, it.s);
        check_stamp(it.device, it.s, ptr, BYTES, 1);
        give(mr, it.s, ptr, BYTES);
        give(mr, it.t, beside, BYTES);
        raw_sync_stream(it.device, it.s);
        graph_destroy(&it, graph);
        must_ok(weir_capture_release(capture, it.s));
        weir_resource_unref(mr);
        if (declared == 0)
            must_ok(weir_stream_retire(it.device, it.s));
        stage_close(&it);
    }
}

static void create_refuses_and_fails_well(void **state)
{
    (void)state;
    static const char *const others[] = {
        "prefetch/device", "prefetch/pinned", "prefetch/pool/async",
        "prefetch/fallback(device)/managed", "prefetch/growable" };
    weir_device *device = open_stepped(support_seed(9));
    weir_resource *leaf, *mr = NULL;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        must_answer(WEIR_NOT_SUPPORTED, weir_resource_open(device, others[i], &mr));
        must(mr == NULL);
        must(strstr(weir_last_error().message, "prefetch") != NULL);
    }
    weir_prefetch_options options = WEIR_PREFETCH_OPTIONS_INIT;
    must_ok(weir_managed_create(device, NULL, &leaf));
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_create(NULL, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_create(leaf, NULL, NULL));
    options.location = (weir_prefetch_location)2;
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_create(leaf, &options, &mr));
    options = (weir_prefetch_options){ .struct_size = 1 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_create(leaf, &options, &mr));
    must(mr == NULL);
    weir_prefetch_counts counts = { .struct_size = sizeof counts };
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_get_counts(leaf, &counts));
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_get_counts(NULL, &counts));
    must_answer(WEIR_INVALID_ARGUMENT, weir_prefetch_get_counts(leaf, NULL));

    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_prefetch_create(leaf, NULL, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 3); /* two fail in turn, then none */
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_moves_is_prefetched),
        cmocka_unit_test(prefetch_has_its_place_on_the_stream),
        cmocka_unit_test(every_block_is_prefetched_on_its_stream),
        cmocka_unit_test(blocks_can_be_moved_to_the_host),
        cmocka_unit_test(what_is_added_is_prefetched),
        cmocka_unit_test(pool_over_it_orders_what_is_left),
        cmocka_unit_test(refused_prefetch_is_only_counted),
        cmocka_unit_test(nothing_is_put_into_a_capture),
        cmocka_unit_test(create_refuses_and_fails_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
