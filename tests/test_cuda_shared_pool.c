/* test_cuda_shared_pool.c - blocks of CUDA devices' pools that other processes can
 * open: which they are, what is opened and how it ends, and what is refused. Over the
 * stand-in; test_cuda.c fails each call in turn. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include <cuda_runtime_api.h>

#include "device/module.h"
#include "fakes/shared.h"
#include "internal.h"
#include "support_mempool.h"
#include "support_process.h"

#define BLOCK ((size_t)64 << 10)

/* With a block of it. */
static weir_mempool pool_with(weir_device *device, void **block)
{
    weir_mempool pool = make_pool_to_share(device);
    *block = draw(device, pool, NULL, BLOCK);
    return pool;
}

static void free_and_close(weir_device *device, void *opened)
{
    back(device, NULL, opened);
    must_ok(weir__stream_sync(device, NULL));
    must_ok(weir__shared_close(device, opened));
}

static void end_both(weir_device *device, weir_mempool pool, void *block)
{
    back(device, NULL, block);
    must_ok(weir__stream_sync(device, NULL));
    end_pool(device, pool);
    must_equal(fakes_look().pools, 0);
    must_equal(fakes_look().pool_blocks, 0);
    end_device(device);
}

/* The driver is asked; the others are nobody else's to open. */
static void blocks_of_such_pools_are_found(void **state)
{
    (void)state;
    weir_device *device = cuda_open(0), *other = cuda_open(1);
    void *block, *beside, *far, *base = NULL;
    weir__shared found;
    weir_mempool pool = pool_with(device, &block), plain = make_pool(device, SAME, 0);
    weir_mempool elsewhere = pool_with(other, &far), usual;
    must_ok(weir__mempool_default(device, WEIR_ASYNC_DEVICE, &usual));
    must_ok(weir__shared_find(device, (char *)block + 8, BLOCK - 8, &base, &found));
    must(base == block && found.kind == WEIR_SHARE_POOL && found.fd == -1);
    must_equal(found.bytes, BLOCK);
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_find(device, block, BLOCK + 1, &base, &found));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__shared_export(device, (char *)block + 512, &found));
    beside = draw(device, plain, NULL, BLOCK);
    must_not_find(device, beside);
    back(device, NULL, beside);
    beside = draw(device, usual, NULL, BLOCK);
    must_not_find(device, beside);
    must_not_find(device, far);
    back(device, NULL, beside);
    back(other, NULL, far);
    must_ok(weir__stream_sync(other, NULL));
    end_pool(other, elsewhere);
    end_pool(device, plain);
    close_emulated(other);
    end_both(device, pool, block);
}

/* A pool for each, which ends with it; the block and its bytes are the exporter's. */
static void block_is_opened_and_ends(void **state)
{
    (void)state;
    static const fakes_machine machines[] = { { .no_rdma = false },
                                              { .closes_pools = true } };
    for (size_t i = 0; i < 2; i++) {
        void *block;
        weir_device *device = device_of(&machines[i]);
        weir_mempool pool = pool_with(device, &block);
        unsigned before = open_descriptors();
        weir__shared shared = export_shared(device, block);
        must_equal(shared.bytes, BLOCK);
        must((fcntl(shared.fd, F_GETFD) & FD_CLOEXEC) != 0);
        put(device, block, BLOCK, 5);
        fakes_forget();
        unsigned char *a = open_shared(device, &shared);
        must_equal(fakes_calls("cudaMemPoolSetAccess"), i); /* only if it must */
        unsigned char *b = open_shared(device, &shared);
        must(a != block && b != block && a != b);
        must_equal(fakes_look().pools, 3);
        must_have(device, a, BLOCK, 5);
        put(device, b, BLOCK, 6);
        must_have(device, block, BLOCK, 6);
        must_not_find(device, a);
        free_and_close(device, a);
        must_equal(fakes_look().pools, 2);
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
        must_have(device, b, BLOCK, 6);
        free_and_close(device, b);
        drop_shared(&shared);
        must_equal(open_descriptors(), before);
        end_both(device, pool, block);
    }
}

/* A close that fails is done by the next. */
static void end_of_its_pool_is_tried_again(void **state)
{
    (void)state;
    void *block;
    weir_device *device = cuda_open(0);
    weir_mempool pool = pool_with(device, &block);
    weir__shared shared = export_shared(device, block);
    void *opened = open_shared(device, &shared);
    drop_shared(&shared);
    back(device, NULL, opened);
    must_ok(weir__stream_sync(device, NULL));
    fakes_fail("cudaMemPoolDestroy", 1, false, cudaErrorUnknown);
    must_answer(WEIR_DEVICE_ERROR, weir__shared_close(device, opened));
    fakes_fail(NULL, 0, false, 0);
    must_equal(fakes_look().pools, 2);
    must_ok(weir__shared_close(device, opened));
    must_equal(fakes_look().pools, 1);
    end_both(device, pool, block);
}

/* And nothing is left of what was begun. */
static void must_leave_nothing(weir_device *device, const weir__shared *shared)
{
    fakes_state before = fakes_look();
    must_not_open(device, shared);
    must_equal(fakes_look().pools, before.pools);
    must_equal(fakes_look().pool_blocks, before.pool_blocks);
}

static void other_things_are_refused(void **state)
{
    (void)state;
    static const fakes_machine elsewhere = { .imports_elsewhere = true };
    static const size_t wrong[] = { 0, BLOCK + 1, 2 * BLOCK, SIZE_MAX };
    void *block;
    weir_device *device = cuda_open(0);
    weir_mempool pool = pool_with(device, &block);
    weir__shared shared = export_shared(device, block), bad = shared;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        bad.bytes = wrong[i];
        must_leave_nothing(device, &bad);
    }
    bad = shared, bad.octets[0] ^= 1;
    must_leave_nothing(device, &bad);
    weir__shared file = own_file(GRANULE, 0);
    bad = shared, bad.fd = file.fd;
    must_leave_nothing(device, &bad);
    drop_shared(&file);
    bad.fd = -1;
    must_leave_nothing(device, &bad);
    fakes_set_machine(&elsewhere);
    must_leave_nothing(device, &shared);
    must(strstr(weir_last_error().message, "no memory that it shares") != NULL);
    fakes_set_machine(NULL);
    free_and_close(device, open_shared(device, &shared));
    drop_shared(&shared);
    end_both(device, pool, block);
}

static int lowest_descriptor(void)
{
    int fd = dup(STDOUT_FILENO);
    must(fd >= 0);
    (void)close(fd);
    return fd;
}

/* Of the two calls the first has made a descriptor when the second fails. */
static void export_that_fails_leaves_nothing(void **state)
{
    (void)state;
    static const char *const calls[] = { "cudaMemPoolExportToShareableHandle",
                                         "cudaMemPoolExportPointer" };
    void *block;
    weir_device *device = cuda_open(0);
    weir_mempool pool = pool_with(device, &block);
    int lowest = lowest_descriptor();
    for (size_t i = 0; i < 2; i++) {
        weir__shared none;
        fakes_fail(calls[i], 1, false, cudaErrorUnknown);
        must_answer(WEIR_DEVICE_ERROR, weir__shared_export(device, block, &none));
        must(strstr(weir_last_error().message, calls[i]) != NULL);
        fakes_fail(NULL, 0, false, 0);
        must_equal(lowest_descriptor(), lowest);
    }
    weir__shared shared = export_shared(device, block);
    drop_shared(&shared);
    end_both(device, pool, block);
}

static void devices_without_such_pools_refuse(void **state)
{
    (void)state;
    static const fakes_machine machines[] = { { .no_handles = true },
                                              { .no_pools = true } };
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = device_of(&machines[i]);
        weir__shared shared = { .kind = WEIR_SHARE_POOL, .bytes = BLOCK, .fd = 0 };
        void *none = device;
        fakes_forget();
        must_answer(WEIR_NOT_SUPPORTED, weir__shared_open(device, &shared, &none));
        must(strstr(weir_last_error().message, "the descriptor of its pool") != NULL);
        must_equal(fakes_calls("cudaMemPoolImportFromShareableHandle"), 0);
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_malloc(device, WEIR_SHARE_POOL, BLOCK, &none));
        must(none == device);
        end_device(device);
    }
}

/* The record's place comes before the driver is asked for anything. */
static void no_memory_for_the_record_leaves_nothing(void **state)
{
    (void)state;
    void *block, *none = NULL;
    weir_device *device = cuda_open(0);
    weir_mempool pool = pool_with(device, &block);
    weir__shared shared = export_shared(device, block);
    fakes_forget();
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY, weir__shared_open(device, &shared, &none));
    weir__host_fail_at(0, false);
    must(none == NULL);
    must_equal(fakes_calls("cudaMemPoolImportFromShareableHandle"), 0);
    drop_shared(&shared);
    end_both(device, pool, block);
}

/* ---- two processes ---- */

/* Opens what it is sent, finds 1 there, leaves 2. */
static void importer(int channel)
{
    weir_device *device = cuda_open(0);
    weir__shared shared;
    int fd = channel_receive(channel, &shared, sizeof shared);
    must(fd >= 0);
    shared.fd = fd;
    unsigned char *ptr = open_shared(device, &shared);
    drop_shared(&shared);
    must_have(device, ptr, BLOCK, 1);
    put(device, ptr, BLOCK, 2);
    channel_say(channel, "written");
    channel_hear(channel, "close");
    free_and_close(device, ptr);
    end_device(device);
}

static void block_is_opened_elsewhere(void **state)
{
    (void)state;
    void *block;
    weir_device *device = cuda_open(0);
    weir_mempool pool = pool_with(device, &block);
    put(device, block, BLOCK, 1);
    weir__shared shared = export_shared(device, block);
    support_process process = process_start("importer");
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    drop_shared(&shared);
    channel_hear(process.channel, "written");
    must_have(device, block, BLOCK, 2);
    channel_say(process.channel, "close");
    process_end(&process);
    end_both(device, pool, block);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "importer", importer } };
    support_children(argc, argv, children, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_such_pools_are_found),
        cmocka_unit_test(block_is_opened_and_ends),
        cmocka_unit_test(end_of_its_pool_is_tried_again),
        cmocka_unit_test(other_things_are_refused),
        cmocka_unit_test(export_that_fails_leaves_nothing),
        cmocka_unit_test(devices_without_such_pools_refuse),
        cmocka_unit_test(no_memory_for_the_record_leaves_nothing),
        cmocka_unit_test(block_is_opened_elsewhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
