/* test_shareable.c - the leaf shareable: what its memory is, how much of the device it
 * takes, and how its kind is chosen. What it keeps and when it frees it, it has in
 * common with the other leaves (test_leaves.c). */
#include "support_leaf.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "device/device.h"
#include "weir/leaves.h"
#include "weir/logging.h"
#include "weir/shareable.h"

#define MIB    ((size_t)1 << 20)
#define OBJECT WEIR_SHAREABLE_OBJECT_BYTES

static weir_resource_properties properties_of(weir_resource *mr)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    return properties;
}

/* The object that a block lies in. */
static weir__shared object_of(weir_device *device, const void *ptr, size_t bytes,
                              void **base)
{
    weir__shared object;
    must_ok(weir__shared_find(device, ptr, bytes, base, &object));
    return object;
}

static size_t object_bytes(size_t bytes)
{
    return (bytes + OBJECT - 1) / OBJECT * OBJECT;
}

/* ---- what the memory is ---- */

static void it_tells_what_it_is(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        weir_share_kind kind;
    } leaves[] = { { "shareable", WEIR_SHARE_FD },
                   { "shareable(kind=fd)", WEIR_SHARE_FD },
                   { "shareable(kind=legacy)", WEIR_SHARE_LEGACY } };
    for (size_t i = 0; i < 3; i++) {
        scene s = scene_begin(1 + i, leaves[i].spec);
        weir_resource_properties it = properties_of(s.mr);
        assert_string_equal(it.name, "shareable");
        assert_string_equal(it.leaf, "shareable");
        must_equal(it.share_kind, leaves[i].kind);
        must_equal(it.max_alignment, OBJECT);
        must(it.device_accessible && !it.host_accessible && !it.managed && !it.pinned);
        must(it.can_trim && it.can_find && it.usable_at_once);
        scene_end(&s);
    }
}

/* Who hands blocks on as they are says how they are shared; who cuts them up says that
 * they are not, and so does what stands above that. */
static void only_whole_blocks_are_shared(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        weir_share_kind kind;
    } chains[] = {
        { "limiting(1GiB)/shareable", WEIR_SHARE_FD },
        { "statistics/shareable(legacy)", WEIR_SHARE_LEGACY },
        { "logging(/dev/null)/limiting(1GiB)/statistics/shareable", WEIR_SHARE_FD },
        { "pool/shareable", WEIR_SHARE_NONE },
        { "statistics/pool/statistics/shareable", WEIR_SHARE_NONE },
        { "device", WEIR_SHARE_NONE }, { "managed", WEIR_SHARE_NONE },
        { "pinned", WEIR_SHARE_NONE }, { "system", WEIR_SHARE_NONE },
        { "async", WEIR_SHARE_NONE }, { "pool/device", WEIR_SHARE_NONE },
        { "async(handle_types=fabric)", WEIR_SHARE_NONE },
        { "statistics/async(handle_types=posix_fd)", WEIR_SHARE_POOL },
        { "pool/async(handle_types=posix_fd)", WEIR_SHARE_NONE },
    };
    for (size_t i = 0; i < sizeof chains / sizeof chains[0]; i++) {
        scene s = scene_begin(4 + i, chains[i].spec);
        must_equal(properties_of(s.mr).share_kind, chains[i].kind);
        scene_end(&s);
    }
}

static void must_be_objects(const char *spec, weir_share_kind kind)
{
    static const size_t sizes[] = { 1, 256, OBJECT - 1, OBJECT, OBJECT + 1,
                                    5 * OBJECT };
    enum { COUNT = sizeof sizes / sizeof sizes[0] };
    scene s = scene_begin(16, spec);
    size_t before = device_free_bytes(s.device), all = 0;
    void *out[COUNT];
    for (size_t i = 0; i < COUNT; i++) {
        void *base;
        out[i] = take(s.mr, s.a, sizes[i]);
        stamp(s.device, s.a, out[i], sizes[i], i);
        weir__shared object = object_of(s.device, out[i], sizes[i], &base);
        must(base == out[i]);
        must_equal((uintptr_t)base % OBJECT, 0);
        must_equal(object.kind, kind);
        must_equal(object.bytes, object_bytes(sizes[i]));
        all += object.bytes;
        must_equal(before - device_free_bytes(s.device), all);
    }
    for (size_t i = 0; i < COUNT; i++) {
        check_stamp(s.device, s.a, out[i], sizes[i], i);
        give(s.mr, s.a, out[i], sizes[i]);
    }
    must_equal(weir_resource_trim_sync(s.mr, 0), all);
    must_equal(device_free_bytes(s.device), before);
    scene_end(&s);
}

static void each_block_is_an_object_of_its_own(void **state)
{
    (void)state;
    must_be_objects("shareable(kind=fd)", WEIR_SHARE_FD);
    must_be_objects("shareable(kind=legacy)", WEIR_SHARE_LEGACY);
}

/* Why the pool says what it says. */
static void blocks_of_a_pool_lie_in_one_object(void **state)
{
    (void)state;
    scene s = scene_begin(17, "pool/shareable");
    void *a = take(s.mr, s.a, 1000), *b = take(s.mr, s.a, 1000);
    void *base_a, *base_b;
    (void)object_of(s.device, a, 1000, &base_a);
    (void)object_of(s.device, b, 1000, &base_b);
    must(a != b && base_a == base_b);
    give(s.mr, s.a, a, 1000);
    give(s.mr, s.a, b, 1000);
    scene_end(&s);
}

static void alignment_goes_up_to_an_object(void **state)
{
    (void)state;
    scene s = scene_begin(18, "shareable");
    void *ptr;
    must_ok(weir_allocate(s.mr, s.a, 3, OBJECT, &ptr));
    must_equal((uintptr_t)ptr % OBJECT, 0);
    must(weir_deallocate(s.mr, s.a, ptr, 3, OBJECT));
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(s.mr, s.a, 3, 2 * OBJECT, &ptr));
    scene_end(&s);
}

/* ---- how much it takes ---- */

static void statistics_count_whole_objects(void **state)
{
    (void)state;
    scene s = scene_begin(20, "shareable");
    void *small = take(s.mr, s.a, 5), *large = take(s.mr, s.a, OBJECT + 1);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.out_bytes, OBJECT + 6);
    must_equal(now.held_bytes, 3 * OBJECT);
    must_equal(now.peak_held_bytes, 3 * OBJECT);
    must_equal(now.kept_bytes + now.free_bytes, 0);

    uint64_t gate = scene_stall(&s, s.a);
    give(s.mr, s.a, small, 5);
    now = statistics_of(s.mr);
    must_equal(now.out_bytes, OBJECT + 1);
    must_equal(now.kept_bytes, OBJECT);
    must_equal(now.free_bytes, OBJECT);
    must_equal(now.free_blocks, 1);
    must_equal(now.held_bytes, 3 * OBJECT);
    must_equal(now.set_aside_bytes, 0);
    scene_open_gate(&s, gate);
    must_equal(weir_resource_trim_sync(s.mr, 2 * OBJECT), OBJECT);
    must_equal(statistics_of(s.mr).held_bytes, 2 * OBJECT);
    give(s.mr, s.a, large, OBJECT + 1);
    scene_end(&s);
}

/* What is set aside counts as objects, too. */
static void a_block_set_aside_counts_as_an_object(void **state)
{
    (void)state;
    scene s = scene_begin(21, "shareable");
    weir_stream streams[5];
    weir_point points[5];
    uint64_t gates[5];
    void *ptr = take(s.mr, s.a, 5);
    for (size_t i = 0; i < 5; i++) {
        streams[i] = make_stream(s.device, WEIR_STREAM_NON_BLOCKING);
        gates[i] = scene_stall(&s, streams[i]);
        must_ok(weir_point_here(s.device, streams[i], &points[i]));
    }
    must(weir_deallocate_after(s.mr, ptr, 5, WEIR_ALIGNMENT, points, 5));
    must_equal(statistics_of(s.mr).set_aside_bytes, OBJECT);
    for (size_t i = 0; i < 5; i++)
        scene_open_gate(&s, gates[i]);
    must_ok(weir_device_sync(s.device));
    must_equal(weir_resource_trim_sync(s.mr, 0), OBJECT);
    for (size_t i = 0; i < 5; i++)
        end_stream(s.device, streams[i]);
    scene_end(&s);
}

/* A test build keeps 4 MiB: three small blocks are more than that. */
static void small_blocks_do_not_pile_up(void **state)
{
    (void)state;
    scene s = scene_begin(22, "shareable");
    size_t most = 0;
    for (uint64_t i = 0; i < 20; i++) {
        void *ptr = take(s.mr, s.a, 100);
        stamp(s.device, s.a, ptr, 100, i);
        give(s.mr, s.a, ptr, 100);
        must_ok(weir_stream_sync(s.device, s.a));
        size_t kept = statistics_of(s.mr).kept_bytes;
        most = kept > most ? kept : most;
    }
    must_equal(most, 3 * OBJECT);
    scene_end(&s);
}

/* A device of eight objects: what five small blocks take is known, and waited for. */
static void waits_for_the_objects_of_small_blocks(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    const weir_emulated_options emulated = { .struct_size = sizeof emulated,
                                             .memory_bytes = 8 * OBJECT,
                                             .scheduler = WEIR_EMULATED_STEPPED,
                                             .seed = support_seed(23) };
    const weir_device_options options = { .struct_size = sizeof options,
                                          .emulated = &emulated };
    weir_device *device = open_with("emulated:0", &options);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_resource *mr;
    must_ok(weir_resource_open(device, "shareable", &mr));
    void *out[COUNT], *none;
    for (uint64_t i = 0; i < COUNT; i++) {
        out[i] = take(mr, stream, 10);
        stamp(device, stream, out[i], 10, i);
    }
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, stream, 4 * OBJECT, WEIR_ALIGNMENT, &none));
    for (size_t i = 0; i < COUNT; i++)
        give(mr, stream, out[i], 10); /* still used by what is on the stream */
    void *large = take(mr, stream, 8 * OBJECT);
    must_equal(statistics_of(mr).held_bytes, 8 * OBJECT);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, stream, 1, WEIR_ALIGNMENT, &none));
    give(mr, stream, large, 8 * OBJECT);
    must_answer(WEIR_OUT_OF_MEMORY, /* which is an object too many */
                weir_allocate(mr, stream, 8 * OBJECT + 1, WEIR_ALIGNMENT, &none));
    weir_resource_unref(mr);
    end_stream(device, stream);
    close_emulated(device);
}

static void it_keeps_what_is_in_use(void **state)
{
    (void)state;
    scene s = scene_begin(24, "shareable(kind=fd)");
    void *ptr = take(s.mr, s.a, MIB);
    uint64_t gate = scene_stall(&s, s.a);
    stamp(s.device, s.a, ptr, MIB, 4);
    give(s.mr, s.a, ptr, MIB);
    must_equal(calls_of(s.device).shared_free, 0);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0); /* the gate is closed */
    scene_open_gate(&s, gate);
    must_equal(weir_resource_trim_sync(s.mr, 0), OBJECT);
    weir_device_calls calls = calls_of(s.device);
    must_equal(calls.shared_malloc, 1);
    must_equal(calls.shared_free, 1);
    must_equal(calls.malloc + calls.free + calls.host_malloc, 0);
    scene_end(&s);
}

/* ---- options ---- */

static void options_are_read_with_care(void **state)
{
    (void)state;
    scene s = scene_begin(30, NULL);
    for (int kind = -1; kind <= 3; kind++) {
        weir_shareable_options options = WEIR_SHAREABLE_OPTIONS_INIT;
        options.kind = (weir_share_kind)kind;
        bool good = kind >= 0 && kind <= 2;
        must_answer(good ? WEIR_OK : WEIR_INVALID_ARGUMENT,
                    weir_shareable_create(s.device, &options, &s.mr));
        must(good == (s.mr != NULL));
        if (good)
            give(s.mr, s.a, take(s.mr, s.a, 5000), 5000);
        weir_resource_unref(s.mr);
    }
    const weir_shareable_options unset = { 0 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_shareable_create(s.device, &unset, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_shareable_create(NULL, NULL, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_shareable_create(s.device, NULL, NULL));
    must(s.mr == NULL);
    struct {
        weir_shareable_options known;
        size_t more;
    } newer = { WEIR_SHAREABLE_OPTIONS_INIT, 1 };
    newer.known.struct_size = sizeof newer;
    must_answer(WEIR_NOT_SUPPORTED,
                weir_shareable_create(s.device, &newer.known, &s.mr));
    newer.more = 0;
    must_ok(weir_shareable_create(s.device, &newer.known, &s.mr));
    scene_end(&s);
}

static void fork_child_makes_none(void **state)
{
    (void)state;
    scene s = scene_begin(31, NULL);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0)
        _exit(weir_shareable_create(s.device, NULL, &s.mr) == WEIR_FORKED &&
              s.mr == NULL ? 0 : 1);
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
    scene_end(&s);
}

/* ---- which kind it is when nobody says ---- */

static void a_device_without_descriptors_shares_legacy(void **state)
{
    (void)state;
    scene s = scene_begin(40, NULL);
    plan_fault(s.device, "shared_malloc", 1, false, WEIR_NOT_SUPPORTED);
    must_ok(weir_shareable_create(s.device, NULL, &s.mr));
    must_equal(properties_of(s.mr).share_kind, WEIR_SHARE_LEGACY);
    void *base, *ptr = take(s.mr, s.a, 100);
    must_equal(object_of(s.device, ptr, 100, &base).kind, WEIR_SHARE_LEGACY);
    give(s.mr, s.a, ptr, 100);
    scene_end(&s);
}

static void a_device_that_shares_nothing_says_so(void **state)
{
    (void)state;
    static const struct {
        const char *spec;
        const char *cuda; /* what stands behind it on a CUDA device, if there is one */
    } cases[] = { { "shareable(fd)", "shared_malloc" },
                  { "shareable(legacy)", "malloc" },
                  { "shareable", NULL } };
    for (size_t i = 0; i < 3; i++) {
        const char *kind = support_is_cuda() ? cases[i].cuda : "shared_malloc";
        if (kind == NULL)
            continue;
        scene s = scene_begin(41 + i, NULL);
        void *ptr;
        plan_fault(s.device, kind, 1, true, WEIR_NOT_SUPPORTED);
        must_ok(weir_resource_open(s.device, cases[i].spec, &s.mr));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir_allocate(s.mr, s.a, 100, WEIR_ALIGNMENT, &ptr));
        must(ptr == NULL);
        must_equal(statistics_of(s.mr).failures, 1);
        must_equal(statistics_of(s.mr).held_bytes, 0);
        scene_end(&s);
    }
}

/* Finding out takes nothing that is not given back, and needs no room. */
static void choosing_a_kind_leaves_nothing(void **state)
{
    (void)state;
    scene s = scene_begin(44, NULL);
    size_t before = device_free_bytes(s.device);
    must_ok(weir_shareable_create(s.device, NULL, &s.mr));
    must_equal(device_free_bytes(s.device), before);
    weir_device_calls calls = calls_of(s.device);
    must_equal(calls.shared_malloc, 1);
    must_equal(calls.shared_free, 1);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.allocations + now.deallocations + now.failures, 0);
    must_equal(now.held_bytes + now.peak_held_bytes + now.kept_bytes, 0);
    weir_resource_unref(s.mr);

    plan_fault(s.device, "shared_malloc", 1, false, WEIR_OUT_OF_MEMORY);
    must_ok(weir_shareable_create(s.device, NULL, &s.mr));
    must_equal(properties_of(s.mr).share_kind, WEIR_SHARE_FD);

    calls = calls_of(s.device);
    for (int i = 0; i < 2; i++) { /* with a kind there is nothing to find out */
        weir_resource *mr;
        const char *spec = i == 0 ? "shareable(fd)" : "shareable(legacy)";
        must_ok(weir_resource_open(s.device, spec, &mr));
        weir_resource_unref(mr);
    }
    must_equal(calls_of(s.device).shared_malloc, calls.shared_malloc);
    scene_end(&s);
}

static void a_failure_of_the_device_is_passed_on(void **state)
{
    (void)state;
    static const weir_status failures[] = { WEIR_DEVICE_ERROR,
                                            WEIR_OUT_OF_HOST_MEMORY };
    const size_t count = support_is_cuda() ? 1 : 2; /* CUDA has one word for both */
    scene s = scene_begin(45, NULL);
    for (size_t i = 0; i < count; i++) {
        plan_fault(s.device, "shared_malloc", 1, false, failures[i]);
        must_answer(failures[i], weir_shareable_create(s.device, NULL, &s.mr));
        must(s.mr == NULL);
    }
    must_ok(weir_resource_open(s.device, "shareable", &s.mr));
    for (size_t i = 0; i < count; i++) {
        void *ptr;
        plan_fault(s.device, "shared_malloc", 1, false, failures[i]);
        must_answer(failures[i],
                    weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &ptr));
        must(ptr == NULL);
        must_equal(statistics_of(s.mr).held_bytes, 0);
    }
    give(s.mr, s.a, take(s.mr, s.a, MIB), MIB);
    scene_end(&s);
}

/* The object that was drawn to find out stays the leaf's, until the device takes it. */
static void what_the_device_does_not_take_back_is_kept(void **state)
{
    (void)state;
    scene s = scene_begin(46, NULL);
    size_t before = device_free_bytes(s.device);
    void *ptr;
    plan_fault(s.device, "shared_free", 1, true, WEIR_DEVICE_ERROR);
    must_ok(weir_shareable_create(s.device, NULL, &s.mr));
    must_equal(properties_of(s.mr).share_kind, WEIR_SHARE_FD);
    weir_resource_statistics now = statistics_of(s.mr);
    must_equal(now.held_bytes, OBJECT);
    must_equal(now.kept_bytes, OBJECT);
    must_equal(now.peak_held_bytes, OBJECT);
    must_equal(now.free_blocks, 1);
    must_equal(now.allocations + now.deallocations + now.out_bytes, 0);
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    must_answer(WEIR_DEVICE_ERROR, /* told once */
                weir_allocate(s.mr, s.a, 5, WEIR_ALIGNMENT, &ptr));
    must_equal(weir_resource_trim_sync(s.mr, 0), OBJECT);
    must_equal(device_free_bytes(s.device), before);
    give(s.mr, s.a, take(s.mr, s.a, 5), 5);
    scene_end(&s);
}

static void it_survives_every_host_failure(void **state)
{
    (void)state;
    static const char *const specs[] = { "shareable", "shareable(legacy)" };
    for (size_t i = 0; i < 4; i++) {
        uint64_t calls = 1;
        for (uint64_t nth = 1; calls >= nth && nth < 60; nth++) {
            scene s = scene_begin(nth, NULL);
            size_t before = device_free_bytes(s.device);
            void *ptr = NULL;
            weir__host_fail_at(nth, i / 2 != 0);
            if (weir_resource_open(s.device, specs[i % 2], &s.mr) == WEIR_OK &&
                weir_allocate(s.mr, s.a, 5, WEIR_ALIGNMENT, &ptr) == WEIR_OK)
                give(s.mr, s.a, ptr, 5);
            calls = weir__host_calls();
            weir__host_fail_at(0, false);
            must(ptr != NULL || device_free_bytes(s.device) == before);
            must(ptr != NULL || calls >= nth);
            weir_resource_unref(s.mr);
            end_stream(s.device, s.a);
            end_stream(s.device, s.b);
            if (weir_emulated_findings(s.device) == 0)
                close_emulated(s.device);
            else
                close_anyhow(s.device); /* the ledger had no memory, and said so */
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_tells_what_it_is),
        cmocka_unit_test(only_whole_blocks_are_shared),
        cmocka_unit_test(each_block_is_an_object_of_its_own),
        cmocka_unit_test(blocks_of_a_pool_lie_in_one_object),
        cmocka_unit_test(alignment_goes_up_to_an_object),
        cmocka_unit_test(statistics_count_whole_objects),
        cmocka_unit_test(a_block_set_aside_counts_as_an_object),
        cmocka_unit_test(small_blocks_do_not_pile_up),
        cmocka_unit_test(waits_for_the_objects_of_small_blocks),
        cmocka_unit_test(it_keeps_what_is_in_use),
        cmocka_unit_test(options_are_read_with_care),
        cmocka_unit_test(fork_child_makes_none),
        cmocka_unit_test(a_device_without_descriptors_shares_legacy),
        cmocka_unit_test(a_device_that_shares_nothing_says_so),
        cmocka_unit_test(choosing_a_kind_leaves_nothing),
        cmocka_unit_test(a_failure_of_the_device_is_passed_on),
        cmocka_unit_test(what_the_device_does_not_take_back_is_kept),
        cmocka_unit_test(it_survives_every_host_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
