/* test_shared_pool.c - blocks of a pool of an emulated device that other processes open
 * (kind POOL): what can be exported, what is opened of it here and elsewhere, that it
 * is freed before it is closed, and what is refused. */
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "device/emulated_shared.h"
#include "internal.h"
#include "support_mempool.h"
#include "support_process.h"
#include "support_shared.h"

#define KIB   ((size_t)1024)
#define BLOCK (64 * KIB)

static void must_find_none(weir_device *device, const void *ptr, size_t bytes)
{
    void *base = device;
    weir__shared found = { .fd = -7 };
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_find(device, ptr, bytes, &base, &found));
    must(base == device && found.fd == -7);
}

/* Frees in stream order, and closes once that is done. */
static void free_and_close(weir_device *device, void *opened)
{
    back(device, NULL, opened);
    must_ok(weir_device_sync(device));
    must_ok(weir__shared_close(device, opened));
}

/* ---- what can be exported ---- */

static void blocks_of_such_a_pool_are_found(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t before = device_free_bytes(device);
    weir_mempool pool = make_pool_to_share(device), other = make_pool(device, SAME, 0);
    must_equal(device_free_bytes(device), before); /* nothing is drawn yet */
    unsigned char *a = draw(device, pool, NULL, 1000);
    unsigned char *b = draw(device, pool, NULL, 1024);
    must_equal(device_free_bytes(device), before - CHUNK);
    must(b == a + 1024);
    void *base;
    weir__shared found;
    must_ok(weir__shared_find(device, b + 24, 1000, &base, &found));
    must(base == b && found.kind == WEIR_SHARE_POOL && found.fd == -1);
    must_equal(found.bytes, 1024);
    must_ok(weir__shared_find(device, a, 1024, &base, &found));
    must(base == a);
    must_find_none(device, a, 1025); /* its neighbour's */
    must_find_none(device, b + 1024, 1);
    must_find_none(device, draw(device, other, NULL, 512), 512);
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_export(device, a + 512, &found));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, a));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
    must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, a));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_malloc(device, WEIR_SHARE_POOL, 512, &base));
    back(device, NULL, a);
    must_find_none(device, a, 1);
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_export(device, a, &found));
    end_pool(device, pool);
    end_pool(device, other);
    back(device, NULL, b);
    must_ok(weir_device_sync(device));
    must_find_none(device, b, 1);
    close_anyhow(device); /* with a block of the other pool */
}

/* It has no more than its bound, or the device, of one file. */
static void such_a_pool_has_its_bound(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t all = device_free_bytes(device);
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.reuse = SAME;
    options.handle_types = WEIR_ASYNC_HANDLE_POSIX_FD;
    options.max_bytes = CHUNK + 512;
    weir_mempool small, large = make_pool_to_share(device);
    void *none;
    must_ok(weir__mempool_create(device, &options, &small));
    void *a = draw(device, small, NULL, CHUNK), *b = draw(device, small, NULL, 512);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__mempool_malloc(device, small, NULL, 1, &none));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__mempool_malloc(device, large, NULL, all, &none));
    void *rest = draw(device, large, NULL, all - 2 * CHUNK);
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, CHUNK, &none));
    back(device, NULL, a);
    back(device, NULL, b);
    back(device, NULL, rest);
    end_pool(device, small);
    end_pool(device, large);
    must_ok(weir_device_sync(device));
    must_equal(device_free_bytes(device), all);
    close_emulated(device);
}

static void peers_do_not_reach_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_device *other = open_with("emulated:7", NULL);
    weir_mempool pool = make_pool_to_share(device);
    void *ptr = draw(device, pool, NULL, BLOCK);
    must_ok(weir_device_enable_peer(other, device));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(other, NULL, ptr, 1, BLOCK));
    must_ok(weir__fill(device, NULL, ptr, 1, BLOCK));
    back(device, NULL, ptr);
    end_pool(device, pool);
    close_emulated(device);
    close_emulated(other);
}

/* ---- opening ---- */

static void block_is_opened_and_freed_before_it_is_closed(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    weir_mempool pool = make_pool_to_share(device);
    unsigned char *beside = draw(device, pool, NULL, 512);
    unsigned char *ptr = draw(device, pool, NULL, BLOCK);
    size_t before = device_free_bytes(device);
    weir__shared shared = export_shared(device, ptr), found;
    void *base;
    must(shared.kind == WEIR_SHARE_POOL && shared.fd >= 0);
    must_equal(shared.bytes, BLOCK);
    unsigned char *a = open_shared(device, &shared), *b = open_shared(device, &shared);
    drop_shared(&shared);
    must(a != ptr && b != ptr && a != b);
    must_equal(device_free_bytes(device), before);
    stamp(device, NULL, ptr, BLOCK, 3);
    check_stamp(device, NULL, a, BLOCK, 3);
    stamp(device, NULL, b, BLOCK, 4);
    check_stamp(device, NULL, ptr, BLOCK, 4);
    must_ok(weir_device_sync(device));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, a, 0, BLOCK + 1));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, a - 512, 0, 512));
    must_answer(WEIR_NOT_SUPPORTED, weir__shared_find(device, a, 1, &base, &found));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_export(device, a, &found));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, a));

    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, a + 512));
    back(device, NULL, a);
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, a));
    must_ok(weir_device_sync(device));
    must_ok(weir__shared_close(device, a));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));

    free_and_close(device, b);
    back(device, NULL, ptr);
    back(device, NULL, beside);
    end_pool(device, pool);
    must_ok(weir_device_sync(device));
    close_emulated(device);
}

/* What is opened stays, with its bytes, when the pool ends; but no driver wants a block
 * back that others have open, which is found. */
static void block_outlives_its_pool(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t all = device_free_bytes(device);
    weir_mempool pool = make_pool_to_share(device);
    void *ptr = draw(device, pool, NULL, BLOCK);
    weir__shared shared = export_shared(device, ptr);
    void *opened = open_shared(device, &shared);
    back(device, NULL, ptr);
    must_equal(weir_emulated_findings(device), 1);
    end_pool(device, pool);
    must_ok(weir_device_sync(device));
    must_equal(device_free_bytes(device), all);
    stamp(device, NULL, opened, BLOCK, 1);
    check_stamp(device, NULL, opened, BLOCK, 1);
    void *again = open_shared(device, &shared);
    check_stamp(device, NULL, again, BLOCK, 1);
    drop_shared(&shared);
    free_and_close(device, opened);
    free_and_close(device, again);
    must_equal(weir_emulated_findings(device), 1);
    close_anyhow(device);
}

/* Of a neighbour nobody has to know; and who is killed has freed all. */
static void only_what_is_open_is_found(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool_to_share(device);
    void *before = draw(device, pool, NULL, 512);
    void *ptr = draw(device, pool, NULL, BLOCK);
    void *behind = draw(device, pool, NULL, 512);
    weir__shared shared = export_shared(device, ptr);
    support_process process = process_start("holder");
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    channel_hear(process.channel, "open");
    void *opened = open_shared(device, &shared);
    drop_shared(&shared);
    back(device, NULL, before);
    back(device, NULL, behind);
    must_equal(weir_emulated_findings(device), 0);
    free_and_close(device, opened);
    process_kill(&process);
    process_reap(&process);
    back(device, NULL, ptr);
    end_pool(device, pool);
    must_ok(weir_device_sync(device));
    close_emulated(device);
}

static void what_is_open_elsewhere_is_found(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool_to_share(device);
    void *ptr = draw(device, pool, NULL, BLOCK);
    weir__shared shared = export_shared(device, ptr);
    weir_emulated_finding found = { .struct_size = sizeof found };
    support_process process = process_start("holder");
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    drop_shared(&shared);
    channel_hear(process.channel, "open");
    back(device, NULL, ptr);
    must_equal(weir_emulated_findings(device), 1);
    must_ok(weir_emulated_get_finding(device, 0, &found));
    must(found.ptr == (uintptr_t)ptr && found.bytes == BLOCK);
    must(strstr(found.message, "has not freed them") != NULL);
    process_kill(&process);
    process_reap(&process);
    close_anyhow(device);
}

/* To the ledger of who has opened it, to free is to write, and ends the use. */
static void uses_behind_the_free_are_found(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool_to_share(device);
    weir_stream other = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *ptr = draw(device, pool, NULL, BLOCK);
    weir__shared shared = export_shared(device, ptr);
    void *a = open_shared(device, &shared), *b = open_shared(device, &shared);
    drop_shared(&shared);
    must_ok(weir__fill(device, NULL, a, 1, BLOCK));
    back(device, NULL, a);
    must_equal(weir_emulated_findings(device), 0);
    must_ok(weir__fill(device, NULL, a, 1, BLOCK));
    must_equal(weir_emulated_findings(device), 1);

    must_ok(weir__fill(device, other, b, 1, BLOCK));
    back(device, NULL, b); /* which is not behind the other */
    must_equal(weir_emulated_findings(device), 2);
    close_anyhow(device);
}

/* To unmap it is not for who has not seen the free done. */
static void close_is_behind_the_free(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool_to_share(device);
    void *ptr = draw(device, pool, NULL, BLOCK);
    weir__shared shared = export_shared(device, ptr);
    void *opened = open_shared(device, &shared);
    drop_shared(&shared);
    back(device, NULL, opened);
    must_ok(weir__shared_close(device, opened));
    must_equal(weir_emulated_findings(device), 1);
    close_anyhow(device);
}

/* ---- what is refused ---- */

static void must_not_open_at(weir_device *device, weir__shared shared,
                             weir__pool_place place)
{
    memcpy(shared.octets, &place, sizeof place);
    must_not_open(device, &shared);
}

static void bad_places_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool_to_share(device);
    void *first = draw(device, pool, NULL, 512), *ptr = draw(device, pool, NULL, BLOCK);
    weir__shared shared = export_shared(device, ptr), file = own_file(GRANULE, 0);
    weir__pool_place good, bad;
    memcpy(&good, shared.octets, sizeof good);
    bad = good, bad.magic++;
    must_not_open_at(device, shared, bad);
    bad = good, bad.file_bytes += GRANULE;
    must_not_open_at(device, shared, bad);
    bad = good, bad.bytes = bad.file_bytes + 512;
    must_not_open_at(device, shared, bad);
    bad = good, bad.bytes += 512; /* not as the message says */
    must_not_open_at(device, shared, bad);
    bad = good, bad.offset++;
    must_not_open_at(device, shared, bad);
    bad = good, bad.offset = bad.file_bytes;
    must_not_open_at(device, shared, bad);
    bad = good, bad.offset = UINT64_MAX - 511;
    must_not_open_at(device, shared, bad);
    weir__shared other = shared;
    other.bytes = 0, bad = good, bad.bytes = 0;
    must_not_open_at(device, other, bad);
    other.bytes = 100, bad = good, bad.bytes = 100;
    must_not_open_at(device, other, bad);
    other.bytes = SIZE_MAX - 511, bad = good, bad.bytes = SIZE_MAX - 511;
    must_not_open_at(device, other, bad);
    other = shared, other.fd = -1;
    must_not_open(device, &other);
    other.fd = file.fd; /* that could be made shorter */
    bad = good, bad.file_bytes = GRANULE, bad.offset = 0;
    must_not_open_at(device, other, bad);
    drop_shared(&file);
    free_and_close(device, open_shared(device, &shared));
    drop_shared(&shared);
    back(device, NULL, first);
    back(device, NULL, ptr);
    end_pool(device, pool);
    close_emulated(device);
}

/* ---- two processes ---- */

/* Has open what it is sent. */
static void holder(int channel)
{
    weir_device *device = open_stepped(0);
    weir__shared shared;
    shared.fd = channel_receive(channel, &shared, sizeof shared);
    (void)open_shared(device, &shared);
    channel_say(channel, "open");
    channel_hear(channel, "never");
}

/* Opens what it is sent, finds pattern 1 there, leaves pattern 2. */
static void importer(int channel)
{
    weir_device *device = open_threads();
    weir__shared shared;
    int fd = channel_receive(channel, &shared, sizeof shared);
    must(fd >= 0);
    shared.fd = fd;
    unsigned char *ptr = open_shared(device, &shared);
    drop_shared(&shared);
    check_stamp(device, NULL, ptr, BLOCK, 1);
    stamp(device, NULL, ptr, BLOCK, 2);
    must_ok(weir_device_sync(device));
    channel_say(channel, "written");
    free_and_close(device, ptr);
    channel_say(channel, "freed");
    close_emulated(device);
}

static void block_is_opened_elsewhere(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    weir_mempool pool = make_pool_to_share(device);
    void *beside = draw(device, pool, NULL, 512);
    void *ptr = draw(device, pool, NULL, BLOCK);
    stamp(device, NULL, beside, 512, 9);
    stamp(device, NULL, ptr, BLOCK, 1);
    must_ok(weir_device_sync(device));
    weir__shared shared = export_shared(device, ptr);
    support_process process = process_start("importer");
    channel_send(process.channel, &shared, sizeof shared, shared.fd);
    drop_shared(&shared);
    channel_hear(process.channel, "written");
    check_stamp(device, NULL, ptr, BLOCK, 2);
    check_stamp(device, NULL, beside, 512, 9);
    must_ok(weir_device_sync(device));
    channel_hear(process.channel, "freed");
    back(device, NULL, ptr);
    back(device, NULL, beside);
    end_pool(device, pool);
    process_end(&process);
    close_emulated(device);
}

/* ---- faults ---- */

static void every_call_can_be_struck(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool_to_share(device);
    void *ptr = draw(device, pool, NULL, BLOCK), *none = NULL;
    weir__shared shared = export_shared(device, ptr), out = { .fd = -7 };
    void *opened = open_shared(device, &shared);
    plan_fault(device, "shared_find", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__shared_find(device, ptr, 1, &none, &out));
    plan_fault(device, "shared_export", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__shared_export(device, ptr, &out));
    plan_fault(device, "shared_open", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__shared_open(device, &shared, &none));
    plan_fault(device, "mempool_free", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__mempool_free(device, NULL, opened));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, opened));
    back(device, NULL, opened);
    must_ok(weir_device_sync(device));
    plan_fault(device, "shared_close", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir__shared_close(device, opened));
    must(none == NULL && out.fd == -7);
    plan_fault(device, NULL, 0, false, WEIR_OK);
    must_ok(weir__shared_close(device, opened));
    drop_shared(&shared);
    back(device, NULL, ptr);
    end_pool(device, pool);
    close_emulated(device);
}

/* Makes a pool, and a block of it that is opened and goes back; until one fails. */
static weir_status all_calls(weir_device *device)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.handle_types = WEIR_ASYNC_HANDLE_POSIX_FD;
    weir_mempool pool;
    weir__shared shared;
    void *ptr, *opened;
    weir_status status = weir__mempool_create(device, &options, &pool);
    if (status != WEIR_OK)
        return status;
    status = weir__mempool_malloc(device, pool, NULL, BLOCK, &ptr);
    if (status == WEIR_OK) {
        status = weir__shared_export(device, ptr, &shared);
        if (status == WEIR_OK) {
            status = weir__shared_open(device, &shared, &opened);
            drop_shared(&shared);
        }
        if (status == WEIR_OK)
            free_and_close(device, opened);
        back(device, NULL, ptr);
    }
    end_pool(device, pool);
    must_ok(weir_device_sync(device));
    return status;
}

static void calls_survive_every_host_failure(void **state)
{
    (void)state;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = true; /* which would go deaf */
    emulated.scheduler = WEIR_EMULATED_NO_WORK; /* whose work needs no memory */
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:3", &options);
    size_t before = device_free_bytes(device);
    must_ok(all_calls(device));
    uint64_t nth = 0;
    weir_status status = WEIR_OUT_OF_HOST_MEMORY;
    while (status == WEIR_OUT_OF_HOST_MEMORY) {
        weir__host_fail_at(++nth, false);
        status = all_calls(device);
        weir__host_fail_at(0, false);
        must_equal(device_free_bytes(device), before);
    }
    must_ok(status);
    must(nth > 8); /* the pool's, its file's two, four for a block, two when opened */
    close_emulated(device);
}

static void calls_survive_every_missing_descriptor(void **state)
{
    (void)state;
    int spare[64], count = 0;
    struct rlimit usual, few = { .rlim_cur = 64 };
    weir_device *device = open_stepped(0);
    size_t before = device_free_bytes(device);
    must(getrlimit(RLIMIT_NOFILE, &usual) == 0);
    few.rlim_max = usual.rlim_max;
    must(setrlimit(RLIMIT_NOFILE, &few) == 0);
    while ((spare[count] = dup(0)) >= 0)
        count++;
    must(errno == EMFILE);
    for (int left = 0; left < 4; left++) {
        if (left > 0)
            close(spare[--count]);
        must_answer(left < 3 ? WEIR_DEVICE_ERROR : WEIR_OK, all_calls(device));
        must(left == 3 || weir_last_error().native_code == EMFILE);
        must_equal(device_free_bytes(device), before);
    }
    while (count > 0)
        close(spare[--count]);
    must(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    close_emulated(device);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "importer", importer },
                                              { "holder", holder } };
    support_children(argc, argv, children, 2);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_such_a_pool_are_found),
        cmocka_unit_test(such_a_pool_has_its_bound),
        cmocka_unit_test(peers_do_not_reach_it),
        cmocka_unit_test(block_is_opened_and_freed_before_it_is_closed),
        cmocka_unit_test(block_outlives_its_pool),
        cmocka_unit_test(only_what_is_open_is_found),
        cmocka_unit_test(what_is_open_elsewhere_is_found),
        cmocka_unit_test(uses_behind_the_free_are_found),
        cmocka_unit_test(close_is_behind_the_free),
        cmocka_unit_test(bad_places_are_refused),
        cmocka_unit_test(block_is_opened_elsewhere),
        cmocka_unit_test(every_call_can_be_struck),
        cmocka_unit_test(calls_survive_every_host_failure),
        cmocka_unit_test(calls_survive_every_missing_descriptor),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
