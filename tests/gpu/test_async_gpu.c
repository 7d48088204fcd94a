/* test_async_gpu.c - the driver's own pools: each kind of memory and each option serves
 * two streams, and what a pool holds is what the options say. */
#include "gpu/support_gpu.h"
#include "weir/weir.h"

#define MIB ((size_t)1 << 20)

typedef struct scene {
    weir_device *device;
    weir_stream a, b;
} scene;

static void scene_open(scene *s)
{
    s->device = open_threads();
    s->a = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
    s->b = make_stream(s->device, WEIR_STREAM_NON_BLOCKING);
}

static void scene_close(scene *s)
{
    end_stream(s->device, s->a);
    end_stream(s->device, s->b);
    close_emulated(s->device);
}

static uint64_t reserved_bytes(weir_resource *mr)
{
    weir_mempool pool;
    uint64_t bytes = 0;
    must_ok(weir_async_get_pool(mr, &pool));
    must_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &bytes));
    return bytes;
}

/* Blocks that are written on one stream and freed on another, over and over. */
static void must_serve(scene *s, weir_resource *mr)
{
    uint64_t random = 1;
    for (uint64_t i = 0; i < 100; i++) {
        size_t bytes = (size_t)support_random_between(&random, 1, 2 * MIB);
        weir_stream from = i % 2 == 0 ? s->a : s->b, to = i % 3 == 0 ? s->a : s->b;
        void *ptr = take(mr, from, bytes);
        stamp(s->device, from, ptr, bytes, i);
        must_ok(weir_stream_wait(s->device, to, from));
        check_stamp(s->device, to, ptr, bytes, i);
        give(mr, to, ptr, bytes);
    }
    must_ok(weir_device_sync(s->device));
    must_equal(statistics_of(mr).out_blocks, 0);
}

/* False: the device has no such pool, which was said. */
static bool try_kind(scene *s, const char *spec)
{
    weir_resource *mr;
    weir_status status = weir_resource_open(s->device, spec, &mr);
    if (status == WEIR_NOT_SUPPORTED) {
        print_message("left out: %s: %s\n", spec, weir_last_error().message);
        return false;
    }
    must_ok(status);
    must_serve(s, mr);
    weir_resource_unref(mr);
    return true;
}

static void every_kind_of_pool_serves(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "async(memory=managed)",
        "async(memory=pinned)",
        "async(memory=pinned, numa=0)",
        "async(handle_types=posix_fd)",
        "async(handle_types=fabric)",
        "async(pool=default)",
        "async(reuse=same_stream)",
        "async(reuse=events)",
        "async(reuse=opportunistic)",
        "async(reuse=internal)",
        "async(release_threshold=1)",
    };
    scene s;
    scene_open(&s);
    must(try_kind(&s, "async"));
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++)
        (void)try_kind(&s, specs[i]);
    scene_close(&s);
}

static void a_pool_holds_what_it_was_primed_with(void **state)
{
    (void)state;
    scene s;
    weir_resource *mr;
    scene_open(&s);
    must_ok(weir_resource_open(s.device, "async(primed=64MiB)", &mr));
    must(reserved_bytes(mr) >= 64 * MIB);
    must_serve(&s, mr);
    weir_resource_unref(mr);
    scene_close(&s);
}

/* The driver's default would give everything back at each wait of the host. */
static void a_pool_keeps_what_is_free_until_it_is_trimmed(void **state)
{
    (void)state;
    scene s;
    weir_resource *mr;
    scene_open(&s);
    must_ok(weir_resource_open(s.device, "async", &mr));
    give(mr, s.a, take(mr, s.a, 64 * MIB), 64 * MIB);
    must_ok(weir_device_sync(s.device));
    must(reserved_bytes(mr) >= 64 * MIB);
    (void)weir_resource_trim_sync(mr, 0);
    must_equal(reserved_bytes(mr), 0);
    weir_resource_unref(mr);
    scene_close(&s);
}

static void a_pool_has_a_largest_size(void **state)
{
    (void)state;
    scene s;
    weir_resource *mr;
    void *none;
    scene_open(&s);
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.max_bytes = 64 * MIB;
    must_ok(weir_async_create(s.device, &options, &mr));
    must_serve(&s, mr);
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(mr, s.a, 256 * MIB, WEIR_ALIGNMENT, &none));
    must_cuda(cudaPeekAtLastError());
    must_serve(&s, mr);
    weir_resource_unref(mr);
    scene_close(&s);
}

static void a_foreign_pool_outlives_the_leaf(void **state)
{
    (void)state;
    scene s;
    weir_resource *mr;
    scene_open(&s);
    struct cudaMemPoolProps props = {
        .allocType = cudaMemAllocationTypePinned,
        .location = { .type = cudaMemLocationTypeDevice, .id = 0 },
    };
    cudaMemPool_t pool;
    must_cuda(cudaMemPoolCreate(&pool, &props));
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.pool = WEIR_ASYNC_FOREIGN;
    options.foreign = pool;
    must_ok(weir_async_create(s.device, &options, &mr));
    must_serve(&s, mr);
    weir_resource_unref(mr);
    void *ptr;
    must_cuda(cudaMallocFromPoolAsync(&ptr, MIB, pool, s.a));
    must_cuda(cudaFreeAsync(ptr, s.a));
    must_cuda(cudaStreamSynchronize(s.a));
    must_cuda(cudaMemPoolDestroy(pool));
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_of_pool_serves),
        cmocka_unit_test(a_pool_holds_what_it_was_primed_with),
        cmocka_unit_test(a_pool_keeps_what_is_free_until_it_is_trimmed),
        cmocka_unit_test(a_pool_has_a_largest_size),
        cmocka_unit_test(a_foreign_pool_outlives_the_leaf),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
