/* test_async_options.c - which options the leaf async takes, and which it refuses
 * before it asks the device for anything. */
#include "support.h"

#include <string.h>

#include "weir/async.h"

#define MIB ((size_t)1 << 20)

typedef struct scene {
    weir_device *device;
    weir_resource *mr; /* may be null */
} scene;

static scene scene_begin(uint64_t seed)
{
    scene s = { .device = open_stepped(support_seed(seed)) };
    return s;
}

static void scene_end(scene *s)
{
    weir_resource_unref(s->mr);
    close_emulated(s->device);
}

static weir_async_options blank(void)
{
    const weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    return options;
}

static void must_refuse(scene *s, const weir_async_options *options)
{
    weir_resource *mr = (weir_resource *)s;
    weir_device_calls before = calls_of(s->device);
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_create(s->device, options, &mr));
    must(mr == NULL);
    must(strncmp(weir_last_error().message, "async: ", 7) == 0);
    weir_device_calls after = calls_of(s->device);
    must(memcmp(&before, &after, sizeof after) == 0);
}

static void options_of_a_pool_of_its_own_are_checked(void **state)
{
    (void)state;
    scene s = scene_begin(1);
    weir_async_options bad[13];
    size_t count = sizeof bad / sizeof bad[0];
    for (size_t i = 0; i < count; i++)
        bad[i] = blank();
    bad[0].pool = (weir_async_pool)3;
    bad[1].pool = (weir_async_pool)-1;
    bad[2].memory = (weir_async_memory)3;
    bad[3].pool = WEIR_ASYNC_FOREIGN; /* and none is given */
    bad[4].foreign = (weir_mempool)&s;
    bad[5].handle_types = 2;
    bad[6].reuse = 16;
    bad[7].on_numa_node = true; /* of device memory */
    bad[8].numa_node = 1;
    bad[9].primed_bytes = 2 * MIB;
    bad[9].release_threshold_bytes = MIB;
    bad[10].primed_bytes = 2 * MIB;
    bad[10].max_bytes = MIB;
    bad[11].memory = (weir_async_memory)-1;
    bad[12].memory = WEIR_ASYNC_MANAGED;
    bad[12].on_numa_node = true;
    for (size_t i = 0; i < count; i++)
        must_refuse(&s, &bad[i]);

    weir_async_options unset = blank();
    unset.struct_size = 0;
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_create(s.device, &unset, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_create(NULL, NULL, &s.mr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_async_create(s.device, NULL, NULL));
    struct {
        weir_async_options known;
        size_t more;
    } newer = { blank(), 1 };
    newer.known.struct_size = sizeof newer;
    must_answer(WEIR_NOT_SUPPORTED, weir_async_create(s.device, &newer.known, &s.mr));
    must(s.mr == NULL);
    scene_end(&s);
}

static void options_of_a_pool_are_not_for_anothers(void **state)
{
    (void)state;
    scene s = scene_begin(2);
    weir_mempool pool;
    must_ok(weir_resource_open(s.device, "async", &s.mr));
    must_ok(weir_async_get_pool(s.mr, &pool));
    for (int i = 0; i < 2; i++) {
        weir_async_options shared = blank();
        shared.pool = i == 0 ? WEIR_ASYNC_DEFAULT : WEIR_ASYNC_FOREIGN;
        shared.foreign = i == 0 ? NULL : pool;
        weir_async_options bad[6] = { shared, shared, shared, shared, shared, shared };
        bad[0].primed_bytes = 1;
        bad[1].release_threshold_bytes = 1;
        bad[2].max_bytes = 1;
        bad[3].handle_types = WEIR_ASYNC_HANDLE_POSIX_FD;
        bad[4].reuse = WEIR_ASYNC_REUSE_SAME_STREAM;
        bad[5].on_numa_node = true;
        for (size_t j = 0; j < 6; j++)
            must_refuse(&s, &bad[j]);
    }
    scene_end(&s);
}

static void handles_are_for_memory_that_can_have_them(void **state)
{
    (void)state;
    scene s = scene_begin(3);
    weir_async_options options = blank();
    options.handle_types = WEIR_ASYNC_HANDLE_POSIX_FD | WEIR_ASYNC_HANDLE_FABRIC;
    must_ok(weir_async_create(s.device, &options, &s.mr));
    weir_resource_unref(s.mr);
    options.memory = WEIR_ASYNC_PINNED; /* only on a node of the host's */
    must_answer(WEIR_NOT_SUPPORTED, weir_async_create(s.device, &options, &s.mr));
    must(s.mr == NULL);
    options.on_numa_node = true;
    must_ok(weir_async_create(s.device, &options, &s.mr));
    weir_resource_unref(s.mr);
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_open(s.device,
                                   "async(memory=pinned, handle_types=fabric)", &s.mr));
    must_ok(weir_resource_open(
        s.device, "async(memory=pinned, handle_types=posix_fd+fabric, numa=0)", &s.mr));
    scene_end(&s);
}

/* CUDA has no such pools, so there are none elsewhere. */
static void managed_memory_is_not_bounded(void **state)
{
    (void)state;
    scene s = scene_begin(4);
    weir_async_options options = blank();
    options.memory = WEIR_ASYNC_MANAGED;
    options.max_bytes = MIB;
    must_answer(WEIR_NOT_SUPPORTED, weir_async_create(s.device, &options, &s.mr));
    must(s.mr == NULL);
    must(strstr(weir_last_error().message, "max_bytes is 1048576") != NULL);
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_open(s.device, "async(memory=managed, max=1MiB)", &s.mr));
    options.memory = WEIR_ASYNC_PINNED;
    must_ok(weir_async_create(s.device, &options, &s.mr));
    weir_resource_unref(s.mr);
    must_ok(weir_resource_open(s.device, "async(memory=managed, max=driver)", &s.mr));
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_of_a_pool_of_its_own_are_checked),
        cmocka_unit_test(options_of_a_pool_are_not_for_anothers),
        cmocka_unit_test(handles_are_for_memory_that_can_have_them),
        cmocka_unit_test(managed_memory_is_not_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
