/* test_host_leaves.c - the leaves managed and pinned: what their memory is, which
 * options they take, and what becomes of it when a call fails. What they keep and
 * when they free it they have in common with the other leaves (test_leaves.c). */
#include "support_leaf.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "device/device.h"
#include "weir/managed.h"
#include "weir/pinned.h"
#include "weir/resource_ops.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

/* ---- what the memory is ---- */

/* Host and device see the same bytes at the same address. */
static void must_be_the_hosts_too(const char *spec)
{
    scene s = scene_begin(1, spec);
    unsigned char *ptr = take(s.mr, s.a, 10000);
    stamp(s.device, s.a, ptr, 10000, 9);
    check_stamp(s.device, s.a, ptr, 10000, 9);
    must_ok(weir_stream_sync(s.device, s.a));
    ptr[9999] = (unsigned char)(ptr[9999] + 1);
    check_stamp(s.device, s.a, ptr, 10000, 9);
    must_ok(weir_stream_sync(s.device, s.a));
    must_equal(take_stamp_errors(), 1);
    give(s.mr, s.a, ptr, 10000);
    scene_end(&s);
}

static void both_are_the_hosts_too(void **state)
{
    (void)state;
    must_be_the_hosts_too("managed");
    must_be_the_hosts_too("pinned");
    must_be_the_hosts_too("pool/managed");
    must_be_the_hosts_too("pool/pinned");
}

static weir_resource_properties properties_of(weir_resource *mr)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    return properties;
}

static void both_tell_what_they_are(void **state)
{
    (void)state;
    static const char *const specs[] = { "managed", "pinned", "pool/managed",
                                         "pool/pinned" };
    for (size_t i = 0; i < 4; i++) {
        scene s = scene_begin(2 + i, specs[i]);
        weir_resource_properties properties = properties_of(s.mr);
        must(properties.host_accessible && properties.device_accessible);
        must_equal(properties.managed, i % 2 == 0);
        must_equal(properties.pinned, i % 2 == 1);
        assert_string_equal(properties.leaf, i % 2 == 0 ? "managed" : "pinned");
        must(properties.can_trim && properties.can_find);
        must_equal(properties.usable_at_once, i < 2);
        if (i < 2)
            must_equal(properties.max_alignment, i == 0 ? WEIR_ALIGNMENT : 4096);
        scene_end(&s);
    }
}

static void pinned_memory_is_aligned_to_a_page(void **state)
{
    (void)state;
    scene s = scene_begin(6, "pinned");
    void *out[5], *none;
    for (size_t i = 0; i < 5; i++) {
        must_ok(weir_allocate(s.mr, s.a, 1 + 1000 * i, 4096, &out[i]));
        must((uintptr_t)out[i] % 4096 == 0);
    }
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(s.mr, s.a, 1, 8192, &none));
    for (size_t i = 0; i < 5; i++)
        must(weir_deallocate(s.mr, s.a, out[i], 1 + 1000 * i, 4096));
    (void)weir_resource_trim_sync(s.mr, 0);
    weir_device_calls calls = calls_of(s.device);
    must_equal(calls.pinned_malloc, calls.pinned_free); /* also what did not fit */
    scene_end(&s);
}

/* A block that does not begin where it should goes back, for another. If it cannot,
 * that is told, and there is none. */
static void pinned_memory_that_does_not_fit_goes_back(void **state)
{
    (void)state;
    enum { COUNT = 64 };
    scene s = scene_begin(6, "pinned");
    void *out[COUNT];
    size_t failed = 0;
    plan_fault(s.device, "pinned_free", 1, true, WEIR_DEVICE_ERROR);
    for (size_t i = 0; i < COUNT; i++) {
        weir_status status = weir_allocate(s.mr, s.a, 3000, 4096, &out[i]);
        must(status == WEIR_OK || (status == WEIR_DEVICE_ERROR && out[i] == NULL));
        failed += status != WEIR_OK;
    }
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    must(failed > 0);
    must_equal(statistics_of(s.mr).out_blocks, COUNT - failed);
    for (size_t i = 0; i < COUNT; i++)
        must(out[i] == NULL || weir_deallocate(s.mr, s.a, out[i], 3000, 4096));
    scene_end(&s);
}

/* Pinning is slow: a pool over it does it once, and orders who gets the memory. */
static void pool_over_pinned_memory_is_stream_ordered(void **state)
{
    (void)state;
    enum { CHUNK = 8 << 20 }; /* what the pool draws at once */
    scene s = scene_begin(7, "pool/pinned");
    void *ptr = take(s.mr, s.a, CHUNK);
    stamp(s.device, s.a, ptr, CHUNK, 1);
    give(s.mr, s.a, ptr, CHUNK);
    weir_device_calls before = calls_of(s.device);
    for (uint64_t i = 0; i < 10; i++) {
        weir_stream stream = i % 3 == 0 ? s.b : s.a;
        must(take(s.mr, stream, CHUNK) == ptr); /* each behind the one before */
        check_stamp(s.device, stream, ptr, CHUNK, 1 + i);
        stamp(s.device, stream, ptr, CHUNK, 2 + i);
        give(s.mr, stream, ptr, CHUNK);
    }
    must_equal(before.pinned_malloc, 1);
    must_equal(calls_of(s.device).pinned_malloc, 1);
    must_equal(calls_of(s.device).pinned_free, 0);
    scene_end(&s);
}

/* ---- when it is freed ---- */

/* Freeing under running work is an error with both: they wait for what they keep. */
static void must_keep_what_is_in_use(const char *spec, bool managed)
{
    scene s = scene_begin(8, spec);
    void *ptr = take(s.mr, s.a, MIB);
    uint64_t gate;
    must_ok(weir_emulated_stall(s.device, s.a, &gate));
    stamp(s.device, s.a, ptr, MIB, 4);
    give(s.mr, s.a, ptr, MIB);
    must_equal(statistics_of(s.mr).kept_bytes, MIB);
    weir_device_calls calls = calls_of(s.device);
    must_equal(calls.free + calls.pinned_free, 0);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0); /* the gate is closed */
    must_ok(weir_emulated_open_gate(s.device, gate));
    must_equal(weir_resource_trim_sync(s.mr, 0), MIB);
    calls = calls_of(s.device);
    must_equal(calls.free, managed ? 1 : 0);
    must_equal(calls.pinned_free, managed ? 0 : 1);
    must_equal(calls.host_free, 0);
    scene_end(&s);
}

static void both_keep_what_is_in_use(void **state)
{
    (void)state;
    must_keep_what_is_in_use("managed", true);
    must_keep_what_is_in_use("pinned", false);
}

/* ---- options ---- */

static void managed_options_are_read_with_care(void **state)
{
    (void)state;
    scene s = scene_begin(10, NULL);
    for (int preferred = -1; preferred <= 3; preferred++) {
        weir_managed_options options = WEIR_MANAGED_OPTIONS_INIT;
        options.preferred = (weir_managed_location)preferred;
        options.read_mostly = preferred == 1;
        bool good = preferred >= 0 && preferred <= 2;
        must_answer(good ? WEIR_OK : WEIR_INVALID_ARGUMENT,
                    weir_managed_create(s.device, &options, &s.mr));
        must(good == (s.mr != NULL));
        if (good)
            give(s.mr, s.a, take(s.mr, s.a, 5000), 5000);
        weir_resource_unref(s.mr);
    }
    const weir_managed_options unset = { 0 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_managed_create(s.device, &unset, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_managed_create(NULL, NULL, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_managed_create(s.device, NULL, NULL));
    must(s.mr == NULL);
    struct {
        weir_managed_options known;
        size_t more;
    } newer = { WEIR_MANAGED_OPTIONS_INIT, 1 };
    newer.known.struct_size = sizeof newer;
    must_answer(WEIR_NOT_SUPPORTED,
                weir_managed_create(s.device, &newer.known, &s.mr));
    newer.more = 0;
    must_ok(weir_managed_create(s.device, &newer.known, &s.mr));
    scene_end(&s);
}

static void pinned_options_are_read_with_care(void **state)
{
    (void)state;
    scene s = scene_begin(11, NULL);
    for (int i = 0; i < 4; i++) {
        weir_pinned_options options = WEIR_PINNED_OPTIONS_INIT;
        options.portable = i % 2 != 0;
        options.mapped = i / 2 != 0;
        must_ok(weir_pinned_create(s.device, &options, &s.mr));
        give(s.mr, s.a, take(s.mr, s.a, 5000), 5000);
        weir_resource_unref(s.mr);
    }
    weir_pinned_options options = WEIR_PINNED_OPTIONS_INIT;
    options.numa_node = 1; /* and nobody asked for a node */
    must_answer(WEIR_INVALID_ARGUMENT, weir_pinned_create(s.device, &options, &s.mr));
    const weir_pinned_options unset = { 0 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_pinned_create(s.device, &unset, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_pinned_create(NULL, NULL, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_pinned_create(s.device, NULL, NULL));
    must(s.mr == NULL);
    scene_end(&s);
}

/* ---- what the device is told ---- */

/* Whether this process may bind memory to node 0; in some containers none may. */
static bool can_bind(void)
{
    void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                      -1, 0);
    must(page != MAP_FAILED);
    const unsigned long node = 1;
    bool can = syscall(SYS_mbind, page, (size_t)4096, 2, &node, 64ul, 0u) == 0;
    munmap(page, 4096);
    return can;
}

static uint32_t told_flags;

static weir_status note_pinned_malloc(void *self, size_t bytes, uint32_t flags,
                                      void **out)
{
    (void)self;
    (void)bytes;
    told_flags = flags;
    *out = NULL;
    return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "only the flags are looked at");
}

static weir_status note_host_register(void *self, void *ptr, size_t bytes,
                                      uint32_t flags)
{
    return note_pinned_malloc(self, bytes, flags, &ptr);
}

static void must_be_told(weir_device *device, const weir_pinned_options *options)
{
    weir_resource *mr;
    void *none;
    must_ok(weir_pinned_create(device, options, &mr));
    told_flags = UINT32_MAX;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(mr, NULL, MIB, WEIR_ALIGNMENT, &none));
    must_equal(told_flags & WEIR__PINNED_PORTABLE,
               options->portable ? WEIR__PINNED_PORTABLE : 0);
    must_equal(told_flags & WEIR__PINNED_MAPPED,
               options->mapped ? WEIR__PINNED_MAPPED : 0);
    weir_resource_unref(mr);
}

static void the_device_is_told_how_to_pin(void **state)
{
    (void)state;
    weir_device *device = open_stepped(16);
    const weir__device_ops *real = device->ops;
    weir__device_ops ops = *real;
    ops.pinned_malloc = note_pinned_malloc;
    ops.host_register = note_host_register;
    device->ops = &ops;
    for (int i = 0; i < (can_bind() ? 8 : 4); i++) {
        weir_pinned_options options = WEIR_PINNED_OPTIONS_INIT;
        options.portable = (i & 1) != 0;
        options.mapped = (i & 2) != 0;
        options.on_numa_node = i >= 4;
        must_be_told(device, &options);
    }
    device->ops = real;
    close_emulated(device);
}

/* ---- a node of the host's ---- */

static void pinned_memory_may_lie_on_a_node(void **state)
{
    (void)state;
    if (!can_bind())
        skip();
    scene s = scene_begin(12, "pinned(numa=0)");
    unsigned char *ptr = take(s.mr, s.a, 5000);
    unsigned char *large = take(s.mr, s.b, 3 * MIB + 1);
    must((uintptr_t)ptr % 4096 == 0);
    int policy = -1;
    unsigned long nodes[16] = { 0 };
    must(syscall(SYS_get_mempolicy, &policy, nodes, 1024ul, ptr, 2ul) == 0);
    must_equal(policy, 2); /* bound */
    must_equal(nodes[0], 1);
    stamp(s.device, s.a, ptr, 5000, 3);
    check_stamp(s.device, s.a, ptr, 5000, 3);
    stamp(s.device, s.b, large, 3 * MIB + 1, 4);
    check_stamp(s.device, s.b, large, 3 * MIB + 1, 4);
    give(s.mr, s.a, ptr, 5000);
    give(s.mr, s.b, large, 3 * MIB + 1);
    must_equal(weir_resource_trim_sync(s.mr, 0), 3 * MIB + 5001);
    weir_device_calls calls = calls_of(s.device);
    must_equal(calls.pinned_malloc + calls.pinned_free, 0);
    must_equal(calls.host_register, 2);
    must_equal(calls.host_unregister, 2);
    unsigned char resident;
    must(mincore(ptr, 4096, &resident) != 0 && errno == ENOMEM); /* unmapped */

    void *none;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(s.mr, s.a, SIZE_MAX, WEIR_ALIGNMENT, &none));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(s.mr, s.a, SIZE_MAX / 2, WEIR_ALIGNMENT, &none));
    scene_end(&s);
}

static void a_node_that_is_not_there_is_told_at_once(void **state)
{
    (void)state;
    scene s = scene_begin(13, NULL);
    static const int32_t nodes[] = { -1, 1023, 1024, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < sizeof nodes / sizeof nodes[0]; i++) {
        weir_pinned_options options = WEIR_PINNED_OPTIONS_INIT;
        options.on_numa_node = true;
        options.numa_node = nodes[i];
        must_answer(WEIR_NOT_SUPPORTED, weir_pinned_create(s.device, &options, &s.mr));
        must(s.mr == NULL);
        must(strstr(weir_last_error().message, "NUMA node") != NULL);
    }
    scene_end(&s);
}

/* Bytes of addresses that this process has. */
static size_t addresses_in_use(void)
{
    size_t pages = 0;
    FILE *file = fopen("/proc/self/statm", "re");
    must(file != NULL && fscanf(file, "%zu", &pages) == 1);
    must(fclose(file) == 0);
    return pages * (size_t)sysconf(_SC_PAGESIZE);
}

/* What cannot be pinned is not mapped either, and what cannot be unpinned stays. */
static void memory_on_a_node_survives_failures(void **state)
{
    (void)state;
    enum { TIMES = 32 };
    if (!can_bind())
        skip();
    scene s = scene_begin(14, "pinned(numa=0)");
    void *ptr;
    const size_t before = addresses_in_use();
    plan_fault(s.device, "host_register", 1, true, WEIR_DEVICE_ERROR);
    for (int i = 0; i < TIMES; i++) {
        must_answer(WEIR_DEVICE_ERROR,
                    weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &ptr));
        must(ptr == NULL);
    }
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    must(addresses_in_use() < before + TIMES / 2 * MIB);
    must_equal(statistics_of(s.mr).held_bytes, 0);
    ptr = take(s.mr, s.a, 64 * KIB);
    give(s.mr, s.a, ptr, 64 * KIB);
    plan_fault(s.device, "host_unregister", 1, false, WEIR_DEVICE_ERROR);
    must_equal(weir_resource_trim_sync(s.mr, 0), 0);
    must_equal(statistics_of(s.mr).kept_bytes, 64 * KIB);
    *(volatile char *)ptr = 1; /* it is there */
    must_answer(WEIR_DEVICE_ERROR,
                weir_allocate(s.mr, s.a, 64 * KIB, WEIR_ALIGNMENT, &ptr));
    must(strstr(weir_last_error().message, "told once") != NULL);
    must_equal(weir_resource_trim_sync(s.mr, 0), 64 * KIB);
    scene_end(&s);
}

/* ---- failures ---- */

static void must_pass_on_failures(const char *spec, const char *call)
{
    scene s = scene_begin(15, spec);
    void *ptr;
    plan_fault(s.device, call, 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_allocate(s.mr, s.a, MIB, WEIR_ALIGNMENT, &ptr));
    must(ptr == NULL);
    must_equal(statistics_of(s.mr).failures, 1);
    must_equal(statistics_of(s.mr).held_bytes, 0);
    ptr = take(s.mr, s.a, MIB);
    give(s.mr, s.a, ptr, MIB);
    scene_end(&s);
}

static void both_pass_on_failures(void **state)
{
    (void)state;
    must_pass_on_failures("managed", "managed_malloc");
    must_pass_on_failures("pinned", "pinned_malloc");
}

static void both_tell_what_they_know_when_out_of_memory(void **state)
{
    (void)state;
    static const char *const specs[] = { "managed", "pinned" };
    for (size_t i = 0; i < 2; i++) {
        scene s = scene_begin(16 + i, specs[i]);
        void *out = take(s.mr, s.a, MIB), *none;
        must_answer(WEIR_OUT_OF_MEMORY,
                    weir_allocate(s.mr, s.a, SIZE_MAX / 4, WEIR_ALIGNMENT, &none));
        weir_out_of_memory report = { .struct_size = sizeof report };
        must_ok(weir_last_out_of_memory(&report));
        must_equal(report.requested_bytes, SIZE_MAX / 4);
        must_equal(report.held_bytes, MIB);
        must_equal(report.in_use_bytes, MIB);
        assert_string_equal(report.resource, specs[i]);
        give(s.mr, s.a, out, MIB);
        scene_end(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_are_the_hosts_too),
        cmocka_unit_test(both_tell_what_they_are),
        cmocka_unit_test(pinned_memory_is_aligned_to_a_page),
        cmocka_unit_test(pinned_memory_that_does_not_fit_goes_back),
        cmocka_unit_test(pool_over_pinned_memory_is_stream_ordered),
        cmocka_unit_test(both_keep_what_is_in_use),
        cmocka_unit_test(managed_options_are_read_with_care),
        cmocka_unit_test(pinned_options_are_read_with_care),
        cmocka_unit_test(the_device_is_told_how_to_pin),
        cmocka_unit_test(pinned_memory_may_lie_on_a_node),
        cmocka_unit_test(a_node_that_is_not_there_is_told_at_once),
        cmocka_unit_test(memory_on_a_node_survives_failures),
        cmocka_unit_test(both_pass_on_failures),
        cmocka_unit_test(both_tell_what_they_know_when_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
