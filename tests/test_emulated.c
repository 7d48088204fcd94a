/* test_emulated.c - the emulated device's memory: where it can be touched, who may
 * reach it, what runs out; and copies, fills and kernels on it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/emulated.h"
#include "support_work.h"

#define MIB ((size_t)1 << 20)

static weir__emulated *inside(weir_device *device)
{
    return device->self;
}

static unsigned char *make_memory(weir_device *device, size_t bytes)
{
    void *ptr;
    must_ok(weir__malloc(device, bytes, &ptr));
    return ptr;
}

static void end_memory(weir_device *device, void *ptr)
{
    must_ok(weir__free(device, ptr));
}

/* True if this process can read the byte at `ptr`: the system's answer, no fault. */
static bool can_touch(const void *ptr)
{
    int ends[2];
    must(pipe(ends) == 0);
    ssize_t written = write(ends[1], ptr, 1);
    bool refused = written < 0 && errno == EFAULT;
    must(written == 1 || refused);
    close(ends[0]);
    close(ends[1]);
    return !refused;
}

static void keep_view(void *argument, void *const views[])
{
    *(void **)argument = views[0];
}

static void memory_cannot_be_touched_by_the_host(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *ptr = make_memory(device, 3 * MIB);
    void *view = NULL;
    const weir_emulated_range range = { ptr + MIB, 10, WEIR_EMULATED_WRITE };
    must(!can_touch(ptr) && !can_touch(ptr + 3 * MIB - 1));
    must_ok(weir_emulated_launch(device, NULL, keep_view, &view, &range, 1));
    must_ok(weir__device_sync(device));
    must(view != NULL && view != range.ptr && can_touch(view));
    end_memory(device, ptr);
    close_emulated(device);
}

static void memory_is_not_inherited_by_a_fork(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    const unsigned char *view = inside(device)->arena->view;
    must(can_touch(view));
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        uint64_t gate;
        bool forked = weir_device_sync(device) == WEIR_FORKED &&
                      weir_emulated_stall(device, NULL, &gate) == WEIR_FORKED;
        weir_device_unref(device);
        _exit(forked && !can_touch(view) ? 0 : 1);
    }
    int result = 0;
    must(waitpid(child, &result, 0) == child);
    must(WIFEXITED(result) && WEXITSTATUS(result) == 0);
    close_emulated(device);
}

/* ---- copies, fills, kernels ---- */

static void add_one(void *argument, void *const views[])
{
    const unsigned char *from = views[0];
    unsigned char *to = views[1];
    for (size_t i = 0; i < *(const size_t *)argument; i++)
        to[i] = (unsigned char)(from[i] + 1);
}

static void bytes_go_through(weir_device *device)
{
    size_t bytes = 70000;
    unsigned char *a = make_memory(device, bytes), *b = make_memory(device, bytes);
    unsigned char in[64], out[64];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (unsigned char)(i * 3);
    const weir_emulated_range ranges[] = {
        { a, bytes, WEIR_EMULATED_READ }, { b, bytes, WEIR_EMULATED_WRITE }
    };
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir__fill(device, stream, a, 7, bytes));
    must_ok(weir__copy(device, stream, a + 1000, in, sizeof in));
    must_ok(weir_emulated_launch(device, stream, add_one, &bytes, ranges, 2));
    must_ok(weir__copy(device, stream, out, b + 1000 - 1, sizeof out));
    raw_sync_stream(device, stream);
    must_equal(out[0], 8);
    for (size_t i = 1; i < sizeof out; i++)
        must_equal(out[i], (unsigned char)((i - 1) * 3 + 1));
    raw_stream_end(device, stream);
    end_memory(device, a);
    end_memory(device, b);
}

static void work_reaches_the_bytes(void **state)
{
    (void)state;
    for (int scheduler = 0; scheduler < 2; scheduler++) {
        weir_device *device = open_emulated((weir_emulated_scheduler)scheduler, 5);
        bytes_go_through(device);
        close_emulated(device);
    }
}

static void see_all(void *argument, void *const views[])
{
    unsigned char *seen = argument;
    for (size_t i = 0; i < 20; i++)
        seen[i] = i == 3 ? views[i] == NULL : *(unsigned char *)views[i];
}

/* More ranges than fit without host memory, one of them empty. */
static void kernel_gets_a_view_of_each_range(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *ptr = make_memory(device, 20);
    unsigned char seen[20] = { 0 };
    weir_emulated_range ranges[20];
    for (unsigned char i = 0; i < 20; i++) {
        ranges[i] = (weir_emulated_range){ ptr + i, i != 3, WEIR_EMULATED_READ };
        must_ok(weir__fill(device, NULL, ptr + i, (uint8_t)(i + 1), 1));
    }
    must_ok(weir_emulated_launch(device, NULL, see_all, seen, ranges, 20));
    must_ok(weir__device_sync(device));
    for (unsigned char i = 0; i < 20; i++)
        must_equal(seen[i], i == 3 ? 1 : i + 1);
    end_memory(device, ptr);
    close_emulated(device);
}

static void addresses_are_judged_at_the_call(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *ptr = make_memory(device, 1024), *gone = make_memory(device, 4096);
    unsigned char *next = make_memory(device, 512);
    unsigned char host[16] = { 0 };
    end_memory(device, gone);
    must_ok(weir__copy(device, NULL, ptr + 1008, host, 16));
    must_answer(WEIR_DEVICE_ERROR, weir__copy(device, NULL, ptr + 1009, host, 16));
    must_equal(weir_last_error().native_code, 700);
    must_answer(WEIR_DEVICE_ERROR, weir__copy(device, NULL, host, gone, 16));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, next + 4 * MIB, 0, 1));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, ptr, 0, SIZE_MAX));
    const weir_emulated_range bad = { ptr - 1, 2, WEIR_EMULATED_READ };
    void *view;
    must_answer(WEIR_DEVICE_ERROR,
                weir_emulated_launch(device, NULL, keep_view, &view, &bad, 1));
    must_ok(weir__device_sync(device));
    end_memory(device, ptr);
    end_memory(device, next);
    close_emulated(device);
}

static void what_is_not_stepped_takes_no_steps(void **state)
{
    (void)state;
    static const weir_emulated_scheduler others[] = { WEIR_EMULATED_THREADS,
                                                      WEIR_EMULATED_NO_WORK };
    for (int i = 0; i < 2; i++) {
        weir_device *device = open_emulated(others[i], 0);
        bool ran = true;
        must_answer(WEIR_NOT_SUPPORTED, weir_emulated_step(device, &ran));
        must(!ran);
        close_emulated(device);
    }
}

static void bad_arguments_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    const weir_emulated_range odd = { &device, 1, (weir_emulated_access)4 };
    void *view;
    bool ran;
    size_t captured;
    weir_stream stream;
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_launch(NULL, NULL, keep_view, &view, NULL, 0));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_launch(device, NULL, NULL, &view, NULL, 0));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_launch(device, NULL, keep_view, &view, NULL, 1));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_launch(device, NULL, keep_view, &view, &odd, 1));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_stall(device, NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_step(device, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_step(NULL, &ran));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_stream_create(device, (weir_stream_kind)7, &stream));
    must(stream == NULL);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_stream_create(device, WEIR_STREAM_BLOCKING, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_stream_destroy(device, NULL));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_begin(device, NULL));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_capture_end(device, NULL, &captured));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_get_finding(device, 0, NULL));
    must_answer(WEIR_NOT_FOUND, weir_emulated_get_finding(device, 0, &finding));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_emulated_run_threads(device, 1, NULL, NULL));
    must_answer(WEIR_NOT_FOUND, weir_emulated_open_gate(device, 0));
    must_answer(WEIR_NOT_FOUND, weir_emulated_open_gate(device, 1));
    must_equal(weir_emulated_findings(NULL), 0);
    must_equal(weir_emulated_call_bit("no such call"), 0);
    must_equal(weir_emulated_call_bit(NULL), 0);
    close_emulated(device);
}

/* ---- handing out ---- */

/* Every second block of many is given back: they come again in the order of their
 * addresses, wherever in the tree they are. */
static void lowest_of_many(weir_device *device)
{
    unsigned char *blocks[64];
    for (int i = 0; i < 64; i++)
        blocks[i] = make_memory(device, 512);
    for (int i = 0; i < 64; i += 2)
        end_memory(device, blocks[i]);
    for (int i = 0; i < 64; i += 2)
        must(make_memory(device, 100) == blocks[i]);
    for (int i = 0; i < 64; i++)
        end_memory(device, blocks[i]);
}

static void memory_is_handed_out_lowest_first(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t all = device_free_bytes(device);
    unsigned char *a = make_memory(device, 1), *b = make_memory(device, 5000);
    unsigned char *c = make_memory(device, 512);
    must((uintptr_t)a % 256 == 0 && b == a + 512 && c == b + 5120);
    must_equal(device_free_bytes(device), all - 512 - 5120 - 512);
    end_memory(device, b);
    must(make_memory(device, 5121) == c + 512);
    must(make_memory(device, 1000) == b);
    end_memory(device, a);
    end_memory(device, b);
    must(make_memory(device, 512 + 5120) == a); /* what lay side by side is one again */
    end_memory(device, a);
    end_memory(device, c);
    end_memory(device, c + 512);
    must_equal(device_free_bytes(device), all);
    lowest_of_many(device);
    close_emulated(device);
}

static void running_out_says_so(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t free_bytes, total;
    void *none = device;
    must_ok(weir_device_memory(device, &free_bytes, &total));
    must(free_bytes == total);
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, total + 1, &none));
    must_equal(weir_last_error().native_code, 2);
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, SIZE_MAX, &none));
    unsigned char *all = make_memory(device, total);
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, 1, &none));
    end_memory(device, all);
    must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, all));
    must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, &none));
    all = make_memory(device, 1024);
    must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, all + 512));
    end_memory(device, all);
    close_emulated(device);
}

#define MODEL_BLOCKS 64

typedef struct model_block {
    unsigned char *ptr;
    size_t bytes;
} model_block;

static void model_step(weir_device *device, model_block *block,
                       const model_block *blocks, uint64_t *random)
{
    if (block->ptr != NULL) {
        end_memory(device, block->ptr);
        block->ptr = NULL;
        return;
    }
    block->bytes = support_random_between(random, 1, 40000);
    unsigned char *ptr = make_memory(device, block->bytes);
    for (size_t i = 0; i < MODEL_BLOCKS; i++) {
        must(blocks[i].ptr == NULL || ptr + block->bytes <= blocks[i].ptr ||
             blocks[i].ptr + blocks[i].bytes <= ptr);
    }
    block->ptr = ptr;
}

/* Against a list of what is out: no overlap, exact sums, and one piece at the end. */
static void memory_agrees_with_a_list(void **state)
{
    (void)state;
    uint64_t steps = support_bound("steps of emulated memory", 5000, 200000);
    weir_device *device = open_stepped(support_seed(0));
    uint64_t random = support_seed_in_use();
    model_block blocks[MODEL_BLOCKS] = { { NULL, 0 } };
    size_t all = device_free_bytes(device), out = 0;
    for (uint64_t step = 0; step < steps; step++) {
        model_block *block = &blocks[support_random_below(&random, MODEL_BLOCKS)];
        out -= block->ptr != NULL ? (block->bytes + 511) / 512 * 512 : 0;
        model_step(device, block, blocks, &random);
        out += block->ptr != NULL ? (block->bytes + 511) / 512 * 512 : 0;
        must_equal(device_free_bytes(device), all - out);
    }
    for (size_t i = 0; i < MODEL_BLOCKS; i++) {
        if (blocks[i].ptr != NULL)
            end_memory(device, blocks[i].ptr);
    }
    end_memory(device, make_memory(device, all));
    close_emulated(device);
}

static size_t pages_held(weir_device *device)
{
    struct stat about;
    must(fstat(inside(device)->arena->fd, &about) == 0);
    return (size_t)about.st_blocks * 512 / 4096;
}

static void pages_go_back_with_their_last_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *a = make_memory(device, 2048), *b = make_memory(device, 2048);
    unsigned char *c = make_memory(device, 8 * MIB);
    must_equal(pages_held(device), 0);
    must_ok(weir__fill(device, NULL, a, 1, 2048));
    must_ok(weir__fill(device, NULL, b, 1, 2048));
    must_ok(weir__fill(device, NULL, c, 1, 8 * MIB));
    must_ok(weir__device_sync(device));
    must_equal(pages_held(device), 1 + 8 * MIB / 4096);
    end_memory(device, c);
    must_equal(pages_held(device), 1);
    end_memory(device, a);
    must_equal(pages_held(device), 1); /* the other half is in use */
    end_memory(device, b);
    must_equal(pages_held(device), 0);
    close_emulated(device);
}

static void devices_are_many_and_large(void **state)
{
    (void)state;
    weir_device_properties first = { .struct_size = sizeof first };
    weir_device_properties second = { .struct_size = sizeof second };
    weir_device *one = open_with("emulated:3", NULL);
    weir_device *two = open_with("emulated:4", NULL);
    must_ok(weir_device_get_properties(one, &first));
    must_ok(weir_device_get_properties(two, &second));
    must_equal(first.memory_bytes, (size_t)32 << 30);
    must(memcmp(first.uuid, second.uuid, sizeof first.uuid) != 0);
    must_equal(second.ordinal, 4);
    must(strstr(second.description, "emulated device 4 (threads)") != NULL);
    unsigned char *far = make_memory(two, (size_t)32 << 30);
    must_ok(weir__fill(two, NULL, far + ((size_t)32 << 30) - 1, 1, 1));
    must_ok(weir__device_sync(two));
    end_memory(two, far);
    close_emulated(one);
    close_emulated(two);
}

/* ---- host memory, and other devices ---- */

static void host_memory_can_be_reached(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    void *ptr;
    must_ok(weir__host_malloc(device, 5000, 4096, &ptr));
    must((uintptr_t)ptr % 4096 == 0);
    must_ok(weir__fill(device, NULL, ptr, 9, 5000));
    must_ok(weir__device_sync(device));
    must_equal(((unsigned char *)ptr)[4999], 9);
    must_answer(WEIR_INVALID_ARGUMENT, weir__host_free_device(device, &ptr));
    must_ok(weir__host_free_device(device, ptr));
    must_answer(WEIR_INVALID_ARGUMENT, weir__host_free_device(device, ptr));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__host_malloc(device, SIZE_MAX / 2, 256, &ptr));
    must_ok(weir__host_malloc(device, 1, 1, &ptr)); /* freed with the device */
    close_emulated(device);
}

static void peers_need_to_be_enabled(void **state)
{
    (void)state;
    weir_device *one = open_stepped(0);
    weir_device *two = open_with("emulated:1", NULL);
    unsigned char *here = make_memory(one, 100), *there = make_memory(two, 100);
    unsigned char got = 0;
    must_answer(WEIR_DEVICE_ERROR, weir__copy(one, NULL, here, there, 100));
    must_equal(weir_last_error().native_code, 700);
    must_ok(weir_device_enable_peer(one, two));
    must_ok(weir_device_enable_peer(one, two));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(two, NULL, here, 1, 1)); /* one way */

    must_ok(weir__fill(two, NULL, there, 42, 100));
    must_ok(weir__device_sync(two));
    must_ok(weir__copy(one, NULL, here, there, 100));
    must_ok(weir__copy(one, NULL, &got, here + 99, 1));
    must_ok(weir__device_sync(one));
    must_equal(got, 42);

    /* Of a pool of the device's own that is not enough. */
    weir_mempool pool;
    void *pooled;
    must_ok(weir__mempool_default(two, WEIR_ASYNC_DEVICE, &pool));
    must_ok(weir__mempool_malloc(two, pool, NULL, 100, &pooled));
    must_answer(WEIR_DEVICE_ERROR, weir__copy(one, NULL, here, pooled, 100));
    must_equal(weir_last_error().native_code, 700);
    must_ok(weir__fill(two, NULL, pooled, 1, 100));
    must_ok(weir__mempool_free(two, NULL, pooled));

    end_memory(two, there);
    must_answer(WEIR_DEVICE_ERROR, weir__copy(one, NULL, here, there, 100));
    close_emulated(two);
    must_answer(WEIR_DEVICE_ERROR, weir__copy(one, NULL, here, there, 100));
    end_memory(one, here);
    close_emulated(one);
}

/* Each host allocation fails in turn: the call says so, and nothing has changed. */
static void malloc_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t free_bytes = device_free_bytes(device);
    void *ptr = NULL;
    uint64_t failing = 1;
    for (;; failing++) {
        weir__host_fail_at(failing, false);
        weir_status status = weir__malloc(device, 100, &ptr);
        weir__host_fail_at(0, false);
        if (status == WEIR_OK)
            break;
        must(status == WEIR_OUT_OF_HOST_MEMORY);
        must_equal(device_free_bytes(device), free_bytes);
        must(failing < 10);
    }
    must(failing >= 2);
    end_memory(device, ptr);
    close_anyhow(device); /* the ledger may have gone deaf, and says so */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_cannot_be_touched_by_the_host),
        cmocka_unit_test(memory_is_not_inherited_by_a_fork),
        cmocka_unit_test(work_reaches_the_bytes),
        cmocka_unit_test(kernel_gets_a_view_of_each_range),
        cmocka_unit_test(addresses_are_judged_at_the_call),
        cmocka_unit_test(what_is_not_stepped_takes_no_steps),
        cmocka_unit_test(bad_arguments_are_refused),
        cmocka_unit_test(memory_is_handed_out_lowest_first),
        cmocka_unit_test(running_out_says_so),
        cmocka_unit_test(memory_agrees_with_a_list),
        cmocka_unit_test(pages_go_back_with_their_last_block),
        cmocka_unit_test(devices_are_many_and_large),
        cmocka_unit_test(host_memory_can_be_reached),
        cmocka_unit_test(peers_need_to_be_enabled),
        cmocka_unit_test(malloc_survives_every_host_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
