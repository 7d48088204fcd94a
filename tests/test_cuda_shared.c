/* test_cuda_shared.c - memory of CUDA devices that other processes can open: what it is
 * to its device, what devices lack, and what a failing call leaves. Over the stand-in;
 * test_cuda.c fails each call in turn. */
#include <pthread.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/module.h"
#include "fakes/shared.h"
#include "internal.h"
#include "weir/weir.h"

/* ---- what it is to its device ---- */

static void memory_is_of_whole_granules(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    for (size_t i = 0; i < 2; i++) {
        void *base = NULL;
        weir__shared found;
        unsigned char *ptr = make_shared(device, shared_kinds[i], GRANULE + 1);
        must_equal((uintptr_t)ptr % GRANULE, 0);
        put(device, ptr, 2 * GRANULE, 7);
        must_have(device, ptr, 2 * GRANULE, 7);
        must_ok(weir__shared_find(device, ptr + MIB, 3 * MIB, &base, &found));
        must(base == ptr && found.kind == shared_kinds[i] && found.fd == -1);
        must_equal(found.bytes, 2 * GRANULE);
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr + 1, 2 * GRANULE, &base, &found));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr, SIZE_MAX, &base, &found));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__shared_export(device, ptr + GRANULE, &found));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, ptr));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, ptr + 1));
        must_ok(weir__shared_free(device, ptr));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, ptr));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr, 1, &base, &found));
    }
    end_device(device);
}

/* The driver says which are best. */
static void granules_are_the_drivers(void **state)
{
    (void)state;
    static const fakes_machine coarse = { .granule = 2 * GRANULE };
    weir_device *device = device_of(&coarse);
    void *base, *none = device;
    weir__shared found;
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, GRANULE);
    must_ok(weir__shared_find(device, ptr, 1, &base, &found));
    must_equal(found.bytes, 2 * GRANULE);
    weir__shared shared = export_shared(device, ptr);
    shared.bytes = 3 * GRANULE;
    must_not_open(device, &shared);
    shared.bytes = 2 * GRANULE;
    must_ok(weir__shared_close(device, open_shared(device, &shared)));
    drop_shared(&shared);
    must_ok(weir__shared_free(device, ptr));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__shared_malloc(device, WEIR_SHARE_FD, SIZE_MAX, &none));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__shared_malloc(device, WEIR_SHARE_LEGACY, SIZE_MAX, &none));
    must(none == device);
    end_device(device);
}

/* Several, made and freed in any order; none begins in another. */
static void each_is_told_from_its_neighbours(void **state)
{
    (void)state;
    enum { COUNT = 40 };
    weir_device *device = cuda_open(0);
    unsigned char *all[COUNT];
    uint64_t random = 1;
    for (int i = 0; i < COUNT; i++)
        all[i] = make_shared(device, WEIR_SHARE_FD, 1);
    for (int left = COUNT; left > 0; left--) {
        for (int i = 0; i < left; i++) {
            void *base;
            weir__shared found;
            must_ok(weir__shared_find(device, all[i] + GRANULE - 1, 1, &base, &found));
            must(base == all[i]);
            must_answer(WEIR_NOT_SUPPORTED,
                        weir__shared_find(device, all[i] + 1, GRANULE, &base, &found));
        }
        int drawn = (int)support_random_between(&random, 0, (uint64_t)left - 1);
        must_ok(weir__shared_free(device, all[drawn]));
        all[drawn] = all[left - 1];
    }
    end_device(device);
}

static void *make_and_free(void *argument)
{
    weir_device *device = argument;
    for (int i = 0; i < 50; i++) {
        void *base;
        weir__shared found;
        unsigned char *a = make_shared(device, WEIR_SHARE_FD, GRANULE);
        unsigned char *b = make_shared(device, WEIR_SHARE_FD, 2 * GRANULE);
        must_ok(weir__shared_find(device, b + GRANULE, GRANULE, &base, &found));
        must(base == b);
        must_ok(weir__shared_free(device, a));
        must_ok(weir__shared_find(device, b, 1, &base, &found));
        must_ok(weir__shared_free(device, b));
    }
    return NULL;
}

static void threads_share_the_records(void **state)
{
    (void)state;
    enum { THREADS = 4 };
    weir_emulated_options options = WEIR_EMULATED_OPTIONS_INIT;
    options.no_ledger = true;
    fakes_set_device(0, &options);
    weir__module_linked = weir__cuda_module();
    weir_device *device = open_with("cuda:0", NULL);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        must(pthread_create(&threads[i], NULL, make_and_free, device) == 0);
    for (int i = 0; i < THREADS; i++)
        must(pthread_join(threads[i], NULL) == 0);
    end_device(device);
}

/* Of the device's own memory only what fills granules has a handle that opens nothing
 * else; and that of another device is the other's to share. */
static void other_memory_is_not_shared(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0), *other = cuda_open(1);
    const weir_managed_options managed = WEIR_MANAGED_OPTIONS_INIT;
    void *small, *whole, *moving, *pinned, *base;
    weir__shared found;
    must_ok(weir__malloc(device, 1000, &small));
    must_ok(weir__malloc(device, 2 * GRANULE, &whole));
    must_ok(weir__managed_malloc(device, GRANULE, &managed, &moving));
    must_ok(weir__pinned_malloc(device, GRANULE, 0, &pinned));
    unsigned char *others = make_shared(other, WEIR_SHARE_LEGACY, GRANULE);
    must_not_find(device, small);
    must_not_find(device, moving);
    must_not_find(device, pinned);
    must_not_find(device, others);
    must_not_find(device, &found);
    must_ok(weir__shared_find(device, (char *)whole + 5, GRANULE, &base, &found));
    must(base == whole && found.kind == WEIR_SHARE_LEGACY);
    must_equal(found.bytes, 2 * GRANULE);
    must_ok(weir__free(device, small));
    must_ok(weir__free(device, whole));
    must_ok(weir__free(device, moving));
    must_ok(weir__pinned_free(device, pinned));
    must_ok(weir__shared_free(other, others));
    must_be_none();
    close_emulated(other);
    end_device(device);
}

/* A block that begins inside a granule has neighbours there. */
static void blocks_beside_others_are_refused(void **state)
{
    (void)state;
    static const fakes_machine packed = { .packs_blocks = true };
    weir_device *device = device_of(&packed);
    void *none = device, *first;
    must_ok(weir__malloc(device, 1, &first));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_malloc(device, WEIR_SHARE_LEGACY, GRANULE, &none));
    must(none == device);
    must_ok(weir__free(device, first));
    end_device(device);
}

/* As those that are registered with NCCL have to be. */
static void peers_and_the_bus_reach_it(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0), *peer = cuda_open(1);
    fakes_forget();
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, GRANULE);
    must_equal(fakes_look().rdma_objects, 1);
    must_ok(weir_device_enable_peer(peer, device));
    put(peer, ptr, GRANULE, 3);
    must_have(device, ptr, GRANULE, 3);
    weir__shared shared = export_shared(device, ptr);
    unsigned char *opened = open_shared(device, &shared);
    put(peer, opened, GRANULE, 4);
    must_have(device, ptr, GRANULE, 4);
    must_ok(weir__shared_close(device, opened));
    drop_shared(&shared);
    must_ok(weir__shared_free(device, ptr));
    close_emulated(peer);
    end_device(device);
}

/* ---- what a device lacks ---- */

static void must_lack(weir_device *device, weir_share_kind kind)
{
    void *none = device;
    weir__shared shared = { .kind = kind, .bytes = GRANULE, .fd = 0 };
    fakes_forget();
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_malloc(device, kind, GRANULE, &none));
    must_answer(WEIR_NOT_SUPPORTED, weir__shared_open(device, &shared, &none));
    must(none == device);
    must_equal(fakes_calls("cuMemCreate") + fakes_calls("cuMemAddressReserve") +
                   fakes_calls("cuMemImportFromShareableHandle") +
                   fakes_calls("cudaMalloc") + fakes_calls("cudaIpcOpenMemHandle"), 0);
}

static void must_lack_events(weir_device *device)
{
    weir_event event = NULL;
    weir__shared_event handle = { .fd = -1 };
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_event_create(device, &event, &handle));
    must_answer(WEIR_NOT_SUPPORTED, weir__shared_event_open(device, &handle, &event));
    must(event == NULL);
    must_equal(fakes_calls("cudaEventCreateWithFlags") +
                   fakes_calls("cudaIpcOpenEventHandle"), 0);
}

static void what_a_device_lacks_is_refused(void **state)
{
    (void)state;
    static const fakes_machine machines[] = {
        { .no_mapping = true }, { .no_descriptors = true }, { .no_ipc = true } };
    for (size_t i = 0; i < sizeof machines / sizeof machines[0]; i++) {
        weir_device *device = device_of(&machines[i]);
        weir_share_kind lacks = machines[i].no_ipc ? WEIR_SHARE_LEGACY : WEIR_SHARE_FD;
        weir_share_kind has = machines[i].no_ipc ? WEIR_SHARE_FD : WEIR_SHARE_LEGACY;
        must_lack(device, lacks);
        must_lack(device, WEIR_SHARE_NONE);
        must_lack(device, (weir_share_kind)9);
        if (machines[i].no_ipc) {
            void *block;
            must_ok(weir__malloc(device, GRANULE, &block));
            must_not_find(device, block);
            must_ok(weir__free(device, block));
            must_lack_events(device);
        }
        must_ok(weir__shared_free(device, make_shared(device, has, 1)));
        end_device(device);
    }
}

static void the_bus_and_peers_need_not_reach_it(void **state)
{
    (void)state;
    static const fakes_machine alone = { .no_rdma = true, .no_peers = true };
    weir_device *device = device_of(&alone);
    fakes_forget();
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, 1);
    must_equal(fakes_look().rdma_objects, 0);
    put(device, ptr, GRANULE, 1);
    must_ok(weir__shared_free(device, ptr));
    end_device(device);
}

/* ---- what fails ---- */

/* The end of a mapping is three calls. Where one fails the memory is no more to be
 * had, and the next try goes on from there. */
static void half_an_end_is_finished_later(void **state)
{
    (void)state;
    static const char *const calls[] = { "cuMemUnmap", "cuMemRelease",
                                         "cuMemAddressFree" };
    weir_device *device = cuda_open(0);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        void *base;
        weir__shared found;
        unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, 1);
        fakes_forget();
        fakes_fail(calls[i], 1, false, cudaErrorUnknown);
        must_answer(WEIR_DEVICE_ERROR, weir__shared_free(device, ptr));
        must(strstr(weir_last_error().message, calls[i]) != NULL);
        fakes_fail(NULL, 0, false, 0);
        must_equal(fakes_look().mappings, i == 0);
        must_answer(i == 0 ? WEIR_OK : WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr, 1, &base, &found));
        must_ok(weir__shared_free(device, ptr));
        must_equal(fakes_calls("cuMemUnmap"), 1 + (i == 0));
        must_be_none();
    }
    end_device(device);
}

/* The record's place is the only host memory, and the driver is asked for nothing
 * before it is there. */
static void no_memory_for_records_leaves_nothing(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0);
    void *none = device;
    size_t live = weir__host_live();
    fakes_forget();
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir__shared_malloc(device, WEIR_SHARE_FD, 1, &none));
    weir__host_fail_at(0, false);
    must(none == device);
    must_equal(fakes_calls("cuCtxPushCurrent"), 0);
    must_equal(weir__host_live(), live);
    must_ok(weir__shared_free(device, make_shared(device, WEIR_SHARE_FD, 1)));
    end_device(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_of_whole_granules),
        cmocka_unit_test(granules_are_the_drivers),
        cmocka_unit_test(each_is_told_from_its_neighbours),
        cmocka_unit_test(threads_share_the_records),
        cmocka_unit_test(other_memory_is_not_shared),
        cmocka_unit_test(blocks_beside_others_are_refused),
        cmocka_unit_test(peers_and_the_bus_reach_it),
        cmocka_unit_test(what_a_device_lacks_is_refused),
        cmocka_unit_test(the_bus_and_peers_need_not_reach_it),
        cmocka_unit_test(half_an_end_is_finished_later),
        cmocka_unit_test(no_memory_for_records_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
