/* test_headroom.c - the leaf `system` with a headroom: which part of a block is told to
 * stay where, that it is told no more once the memory goes, and what failures leave. */
#include "support_leaf.h"

#include <string.h>

#include "device/emulated_places.h"
#include "internal.h"
#include "weir/leaves.h"
#include "weir/system.h"

#define PAGE ((size_t)64 << 10)
#define MIB  ((size_t)1 << 20)

static weir_resource *open_headroom(weir_device *device, size_t headroom_bytes)
{
    weir_system_options options = WEIR_SYSTEM_OPTIONS_INIT;
    weir_resource *mr = NULL;
    options.headroom_bytes = headroom_bytes;
    must_ok(weir_system_create(device, &options, &mr));
    return mr;
}

/* The first bytes of a block prefer the device, the rest of its pages the host. */
static void must_split(const char *ptr, size_t bytes, size_t on_device)
{
    size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    for (size_t at = 0; at < whole; at += PAGE / 2)
        must_equal(weir__host_preferred(ptr + at),
                   at < on_device ? WEIR__PLACE_DEVICE : WEIR__PLACE_HOST);
    must_equal(weir__host_preferred(ptr + whole - 1),
               on_device >= whole ? WEIR__PLACE_DEVICE : WEIR__PLACE_HOST);
}

static void block_is_split_by_what_is_free(void **state)
{
    (void)state;
    const struct {
        size_t room, bytes, on_device; /* room: what is free beyond the headroom */
    } cases[] = {
        { 4 * MIB, 4 * MIB, 4 * MIB },     { 4 * MIB, 4 * MIB + 1, 4 * MIB },
        { 4 * MIB - 1, 4 * MIB, 4 * MIB - PAGE }, { 4 * MIB, 100, PAGE },
        { PAGE - 1, 100, 0 },              { PAGE, 3 * PAGE, PAGE },
        { MIB, 10 * MIB, MIB },
    };
    scene s = scene_begin(1, NULL);
    size_t free_bytes = device_free_bytes(s.device);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        weir_resource *mr = open_headroom(s.device, free_bytes - cases[i].room);
        char *ptr = take(mr, s.a, cases[i].bytes);
        must((uintptr_t)ptr % PAGE == 0);
        must_split(ptr, cases[i].bytes, cases[i].on_device);
        stamp(s.device, s.a, ptr, cases[i].bytes, i);
        check_stamp(s.device, s.a, ptr, cases[i].bytes, i);
        give(mr, s.a, ptr, cases[i].bytes);
        weir_resource_unref(mr);
    }
    scene_end(&s);
}

/* What others have of the device's memory counts, at the time of each block. */
static void headroom_is_of_what_is_free_now(void **state)
{
    (void)state;
    scene s = scene_begin(2, "device");
    size_t free_bytes = device_free_bytes(s.device);
    weir_resource *mr = open_headroom(s.device, free_bytes - 4 * MIB);
    char *before = take(mr, s.a, 4 * MIB);
    void *others = take(s.mr, s.a, 3 * MIB);
    char *beside = take(mr, s.a, 4 * MIB);
    void *more = take(s.mr, s.a, 3 * MIB);
    char *after = take(mr, s.a, 4 * MIB);
    must_split(before, 4 * MIB, 4 * MIB);
    must_split(beside, 4 * MIB, MIB);
    must_split(after, 4 * MIB, 0);
    give(s.mr, s.a, others, 3 * MIB);
    give(s.mr, s.a, more, 3 * MIB);
    give(mr, s.a, before, 4 * MIB);
    give(mr, s.a, beside, 4 * MIB);
    give(mr, s.a, after, 4 * MIB);
    weir_resource_unref(mr);
    scene_end(&s);
}

static void advice_ends_with_the_block(void **state)
{
    (void)state;
    scene s = scene_begin(3, NULL);
    size_t free_bytes = device_free_bytes(s.device);
    weir_resource *mr = open_headroom(s.device, free_bytes - PAGE);
    void *ptr = take(mr, s.a, 2 * PAGE);
    must_equal(calls_of(s.device).prefer, 2);
    give(mr, s.a, ptr, 2 * PAGE);
    must_equal(calls_of(s.device).prefer, 2);
    must_ok(weir_device_sync(s.device));
    must_equal(weir_resource_trim_sync(mr, 0), 2 * PAGE);
    must_equal(calls_of(s.device).prefer, 3);

    ptr = take(mr, s.a, 2 * PAGE); /* though that is refused, the memory goes */
    give(mr, s.a, ptr, 2 * PAGE);
    must_ok(weir_device_sync(s.device));
    plan_fault(s.device, "prefer", 1, true, WEIR_DEVICE_ERROR);
    must_equal(weir_resource_trim_sync(mr, 0), 2 * PAGE);
    plan_fault(s.device, NULL, 0, false, WEIR_OK);
    must_equal(statistics_of(mr).held_bytes, 0);
    weir_resource_unref(mr);
    scene_end(&s);
}

static void refused_advice_leaves_no_block(void **state)
{
    (void)state;
    scene s = scene_begin(4, NULL);
    size_t free_bytes = device_free_bytes(s.device);
    weir_resource *mr = open_headroom(s.device, free_bytes - PAGE);
    const struct {
        const char *kind;
        uint64_t nth;
        weir_status status;
    } faults[] = {
        { "memory_info", 1, WEIR_DEVICE_ERROR }, { "prefer", 1, WEIR_DEVICE_ERROR },
        { "prefer", 2, WEIR_DEVICE_ERROR }, { "host_malloc", 1, WEIR_OUT_OF_MEMORY },
    };
    for (size_t i = 0; i < 4; i++) {
        void *ptr = mr;
        uint64_t freed = calls_of(s.device).host_free;
        plan_fault(s.device, faults[i].kind, faults[i].nth, false, faults[i].status);
        must_answer(faults[i].status, weir_allocate(mr, s.a, 2 * PAGE, 8, &ptr));
        must(ptr == NULL);
        must_equal(weir_last_error().status, faults[i].status);
        must_equal(statistics_of(mr).held_bytes, 0);
        must_equal(calls_of(s.device).host_free, freed + (i < 3));
        plan_fault(s.device, NULL, 0, false, WEIR_OK);
    }
    void *ptr = mr;
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, s.a, SIZE_MAX - 5, 8, &ptr));
    must(ptr == NULL);
    weir_resource_unref(mr);
    scene_end(&s);
}

static void options_are_read(void **state)
{
    (void)state;
    scene s = scene_begin(5, NULL);
    weir_resource *mr = NULL;
    must_ok(weir_resource_open(s.device, "system(headroom=1MiB)", &mr));
    void *ptr = take(mr, s.a, 100);
    must_split(ptr, 100, PAGE);
    must_equal(statistics_of(mr).held_bytes, PAGE);
    give(mr, s.a, ptr, 100);
    weir_resource_unref(mr);
    must_ok(weir_resource_open(s.device, "system(headroom=none)", &mr));
    uint64_t advised = calls_of(s.device).prefer;
    ptr = take(mr, s.a, 100);
    must_equal(calls_of(s.device).prefer, advised);
    must_equal(statistics_of(mr).held_bytes, 100);
    give(mr, s.a, ptr, 100);
    weir_resource_unref(mr);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_open(s.device, "system(headroom=0)", &mr));
    const weir_system_options odd = { .struct_size = 1 };
    must_answer(WEIR_INVALID_ARGUMENT, weir_system_create(s.device, &odd, &mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_system_create(NULL, NULL, &mr));
    must(mr == NULL);
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_is_split_by_what_is_free),
        cmocka_unit_test(headroom_is_of_what_is_free_now),
        cmocka_unit_test(advice_ends_with_the_block),
        cmocka_unit_test(refused_advice_leaves_no_block),
        cmocka_unit_test(options_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
