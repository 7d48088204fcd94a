/* test_host_access.c - what a host thread says that it touches itself is judged: by
 * what it has waited for. */
#include <stdlib.h>
#include <string.h>

#include "support.h"

#define BYTES ((size_t)4096)

typedef struct scene {
    weir_device *device;
    weir_stream stream;
    weir_resource *pinned;
    void *staging; /* of the host's */
    void *ptr;     /* of the device's */
    weir_resource *mr;
} scene;

static scene scene_open(void)
{
    scene it = { .device = open_stepped(support_seed(1)) };
    it.stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it.device, "pool/pinned", &it.pinned));
    must_ok(weir_resource_open(it.device, "pool/device", &it.mr));
    it.staging = take(it.pinned, it.stream, BYTES);
    it.ptr = take(it.mr, it.stream, BYTES);
    must_ok(weir_fill(it.device, it.stream, it.ptr, 3, BYTES));
    must_ok(weir_fill(it.device, it.stream, it.staging, 4, BYTES));
    must_ok(weir_stream_sync(it.device, it.stream));
    return it;
}

/* With so many findings. */
static void scene_close(scene *it, size_t findings)
{
    must_equal(weir_emulated_findings(it->device), findings);
    weir_resource_unref(it->mr);
    weir_resource_unref(it->pinned);
    must_ok(weir_stream_destroy(it->device, it->stream));
    close_anyhow(it->device);
}

static weir_status try_access(scene *it, void *ptr, size_t bytes,
                              weir_emulated_access access)
{
    const weir_emulated_range range = { ptr, bytes, access };
    return weir_emulated_host_access(it->device, &range, 1);
}

static void must_be_told(scene *it, const char *message_begins)
{
    weir_emulated_finding found = { .struct_size = sizeof found };
    must_ok(weir_emulated_get_finding(it->device, 0, &found));
    must_equal(found.second_stream, 0);
    if (strncmp(found.message, message_begins, strlen(message_begins)) != 0)
        print_error("%s\n", found.message);
    must(strncmp(found.message, message_begins, strlen(message_begins)) == 0);
}

static void give_all(scene *it)
{
    must(weir_deallocate(it->pinned, it->stream, it->staging, BYTES, WEIR_ALIGNMENT));
    must(weir_deallocate(it->mr, it->stream, it->ptr, BYTES, WEIR_ALIGNMENT));
}

typedef enum waiting { NOT, SYNC, QUERY, EVENT } waiting;

static void wait_somehow(scene *it, waiting how)
{
    bool is_done = false;
    weir_event event = NULL;
    must_ok(weir_event_create(it->device, &event));
    must_ok(weir_event_record(it->device, it->stream, event));
    if (how == SYNC)
        must_ok(weir_stream_sync(it->device, it->stream));
    while (how == QUERY && !is_done)
        must_ok(weir_stream_query(it->device, it->stream, &is_done));
    if (how == EVENT)
        must_ok(weir_event_sync(it->device, event));
    must_ok(weir_event_destroy(it->device, event));
}

static void result_is_read_behind_its_copy(void **state)
{
    (void)state;
    for (waiting how = NOT; how <= EVENT; how++) {
        scene it = scene_open();
        must_ok(weir_copy(it.device, it.stream, it.staging, it.ptr, BYTES));
        wait_somehow(&it, how);
        must_ok(try_access(&it, it.staging, BYTES, WEIR_EMULATED_READ));
        if (how == NOT)
            must_be_told(&it, "read by the host is not ordered after copy writes on");
        else
            must_equal(*(unsigned char *)it.staging, 3);
        give_all(&it);
        scene_close(&it, how == NOT);
    }
}

static void staging_is_refilled_behind_its_copy(void **state)
{
    (void)state;
    for (waiting how = NOT; how <= EVENT; how++) {
        scene it = scene_open();
        must_ok(weir_copy(it.device, it.stream, it.ptr, it.staging, BYTES));
        must_ok(try_access(&it, it.staging, BYTES, WEIR_EMULATED_READ)); /* both do */
        wait_somehow(&it, how);
        must_ok(try_access(&it, it.staging, 1, WEIR_EMULATED_READ_WRITE));
        if (how == NOT)
            must_be_told(&it, "write by the host is not ordered after copy reads on");
        give_all(&it);
        scene_close(&it, how == NOT);
    }
}

/* The write is in front of what this thread puts on the stream then. */
static void what_comes_later_is_behind_it(void **state)
{
    (void)state;
    scene it = scene_open();
    must_ok(try_access(&it, it.staging, BYTES, WEIR_EMULATED_WRITE));
    must_ok(weir_copy(it.device, it.stream, it.ptr, it.staging, BYTES));
    give_all(&it);
    scene_close(&it, 0);
}

static void block_that_went_back_is_not_touched(void **state)
{
    (void)state;
    scene it = scene_open();
    give_all(&it);
    must_ok(weir_stream_sync(it.device, it.stream));
    must_ok(try_access(&it, it.staging, BYTES, WEIR_EMULATED_READ));
    must_be_told(&it, "read by the host uses 0x");
    scene_close(&it, 1);
}

/* Where that is promised; what a pool hands out may still be at work on its stream. */
static void block_is_touched_at_once(void **state)
{
    (void)state;
    static const char *const specs[] = { "pinned", "managed", "system", "pool/pinned" };
    for (size_t i = 0; i < 4; i++) {
        scene it = scene_open();
        weir_resource *mr;
        must_ok(weir_resource_open(it.device, specs[i], &mr));
        const bool is_pool = i == 3;
        for (int round = 0; round < 2; round++) {
            void *ptr = take(mr, it.stream, BYTES);
            must_ok(try_access(&it, ptr, BYTES, WEIR_EMULATED_WRITE));
            must_ok(weir_copy(it.device, it.stream, it.ptr, ptr, BYTES));
            give(mr, it.stream, ptr, BYTES);
            must_ok(weir_stream_sync(it.device, it.stream));
        }
        if (is_pool)
            must_be_told(&it, "write by the host is not ordered after allocate on");
        weir_resource_unref(mr);
        give_all(&it);
        scene_close(&it, is_pool ? 2 : 0);
    }
}

static void only_what_the_host_can_touch_is_judged(void **state)
{
    (void)state;
    scene it = scene_open();
    void *mine = malloc(BYTES);
    const weir_emulated_range ranges[] = { { it.staging, BYTES, WEIR_EMULATED_WRITE },
                                           { it.ptr, BYTES, WEIR_EMULATED_READ } };
    must_ok(weir_copy(it.device, it.stream, it.ptr, it.staging, BYTES));
    must_answer(WEIR_DEVICE_ERROR, weir_emulated_host_access(it.device, ranges, 2));
    must_answer(WEIR_DEVICE_ERROR,
                try_access(&it, it.staging, (size_t)1 << 40, WEIR_EMULATED_WRITE));
    must_answer(WEIR_DEVICE_ERROR, try_access(&it, NULL, 1, WEIR_EMULATED_WRITE));
    must_answer(WEIR_INVALID_ARGUMENT,
                try_access(&it, it.staging, 1, (weir_emulated_access)4));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_host_access(it.device, NULL, 1));
    must_answer(WEIR_INVALID_ARGUMENT, weir_emulated_host_access(NULL, ranges, 1));
    must_equal(weir_emulated_findings(it.device), 0);
    must_ok(weir_emulated_host_access(it.device, NULL, 0));
    must_ok(try_access(&it, NULL, 0, WEIR_EMULATED_WRITE));
    must_ok(try_access(&it, mine, BYTES, WEIR_EMULATED_WRITE));
    must_ok(weir_stream_sync(it.device, it.stream));
    must_ok(weir_emulated_host_access(it.device, ranges, 1));
    free(mine);
    give_all(&it);
    scene_close(&it, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(result_is_read_behind_its_copy),
        cmocka_unit_test(staging_is_refilled_behind_its_copy),
        cmocka_unit_test(what_comes_later_is_behind_it),
        cmocka_unit_test(block_that_went_back_is_not_touched),
        cmocka_unit_test(block_is_touched_at_once),
        cmocka_unit_test(only_what_the_host_can_touch_is_judged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
