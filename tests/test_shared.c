/* test_shared.c - memory of an emulated device that other processes open: what it is to
 * the device, what can be opened of it here and elsewhere, and what cannot. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ipc_process.h"
#include "support_process.h"
#include "support_shared.h"

/* True if this process can read the byte at `ptr`: the system's answer, no fault. */
static bool can_touch(const void *ptr)
{
    int ends[2];
    must(pipe(ends) == 0);
    ssize_t written = write(ends[1], ptr, 1);
    must(written == 1 || (written < 0 && errno == EFAULT));
    close(ends[0]);
    close(ends[1]);
    return written == 1;
}

/* ---- what it is to its device ---- */

static void memory_is_the_devices(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_stepped(0);
        size_t before = device_free_bytes(device);
        unsigned char *a = make_shared(device, shared_kinds[i], 1);
        unsigned char *b = make_shared(device, shared_kinds[i], GRANULE + 1);
        must((uintptr_t)a % GRANULE == 0 && (uintptr_t)b % GRANULE == 0);
        must_equal(device_free_bytes(device), before - 3 * GRANULE);
        must(!can_touch(a) && !can_touch(b + 2 * GRANULE - 1));
        stamp(device, NULL, b, 2 * GRANULE, 7);
        must_ok(weir__copy(device, NULL, a, b, GRANULE));
        must_ok(weir_device_sync(device));
        check_stamp(device, NULL, b, 2 * GRANULE, 7);
        must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, b, 0, 2 * GRANULE + 1));
        must_ok(weir_device_sync(device));
        must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, a));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, a + GRANULE / 2));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
        must_ok(weir__shared_free(device, a));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, a));
        must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, b, 0, 4 * GRANULE));
        must_equal(device_free_bytes(device), before - 2 * GRANULE);
        must_ok(weir__shared_free(device, b));
        close_emulated(device);
    }
}

static void memory_counts_for_both(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t all = device_free_bytes(device);
    void *none = device, *rest;
    unsigned char *most = make_shared(device, WEIR_SHARE_FD, all - GRANULE);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__shared_malloc(device, WEIR_SHARE_FD, GRANULE + 1, &none));
    must_equal(weir_last_error().native_code, 2);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__shared_malloc(device, WEIR_SHARE_LEGACY, SIZE_MAX, &none));
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, GRANULE + 1, &none));
    must(none == device);
    must_ok(weir__malloc(device, GRANULE, &rest));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__shared_malloc(device, WEIR_SHARE_FD, 1, &none));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_malloc(device, WEIR_SHARE_NONE, 1, &none));
    must_answer(WEIR_NOT_SUPPORTED,
                weir__shared_malloc(device, (weir_share_kind)3, 1, &none));
    must_equal(device_free_bytes(device), 0);
    must_ok(weir__free(device, rest));
    must_ok(weir__shared_free(device, most));
    close_emulated(device);
}

/* What is left is freed with the device; and neither a fork nor an exec inherits it. */
static void memory_ends_with_the_device(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, MIB);
    weir__shared shared = export_shared(device, ptr);
    must((fcntl(shared.fd, F_GETFD) & FD_CLOEXEC) != 0);
    (void)open_shared(device, &shared);
    must_ok(weir_device_sync(device));
    must_be_quiet(device);
    close_anyhow(device);
    struct stat about;
    must(fstat(shared.fd, &about) == 0 && about.st_size == (off_t)GRANULE);
    drop_shared(&shared);

    device = open_threads();
    must_hold_nothing(device);
    close_emulated(device);
}

static void only_objects_are_found(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    for (size_t i = 0; i < 2; i++) {
        unsigned char *ptr = make_shared(device, shared_kinds[i], 2 * GRANULE);
        void *base = NULL, *plain;
        weir__shared found;
        must_ok(weir__shared_find(device, ptr + MIB, GRANULE, &base, &found));
        must(base == ptr && found.kind == shared_kinds[i] && found.fd == -1);
        must_equal(found.bytes, 2 * GRANULE);
        must_ok(weir__shared_find(device, ptr, 2 * GRANULE, &base, &found));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr + 1, 2 * GRANULE, &base, &found));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr, SIZE_MAX, &base, &found));
        must_ok(weir__malloc(device, MIB, &plain));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, plain, MIB, &base, &found));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, &plain, 1, &base, &found));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_export(device, plain, &found));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__shared_export(device, ptr + GRANULE, &found));
        must_ok(weir__free(device, plain));
        must_ok(weir__shared_free(device, ptr));
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, ptr, 1, &base, &found));
    }
    close_emulated(device);
}

/* ---- opening ---- */

/* Twice in the process that has it: the same bytes, elsewhere. */
static void memory_is_opened_where_it_is_from(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_threads();
        unsigned char *ptr = make_shared(device, shared_kinds[i], GRANULE);
        size_t before = device_free_bytes(device);
        weir__shared shared = export_shared(device, ptr), found;
        must_equal(shared.bytes, GRANULE);
        must((shared.fd >= 0) == (shared_kinds[i] == WEIR_SHARE_FD));
        unsigned char *a = open_shared(device, &shared);
        unsigned char *b = open_shared(device, &shared);
        drop_shared(&shared);
        must(a != ptr && b != ptr && a != b && (uintptr_t)a % GRANULE == 0);
        must(!can_touch(a));
        must_equal(device_free_bytes(device), before);
        stamp(device, NULL, ptr, GRANULE, 3);
        check_stamp(device, NULL, a, GRANULE, 3);
        stamp(device, NULL, b, GRANULE, 4);
        must_ok(weir_device_sync(device));
        check_stamp(device, NULL, ptr, GRANULE, 4);
        must_ok(weir_device_sync(device));

        void *base;
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_find(device, a, 1, &base, &found));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_export(device, a, &found));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(device, a));
        must_ok(weir__shared_free(device, ptr));
        check_stamp(device, NULL, a, GRANULE, 4); /* which outlives its first name */
        must_ok(weir_device_sync(device));
        must_ok(weir__shared_close(device, a));
        must_answer(WEIR_INVALID_ARGUMENT, weir__shared_close(device, a));
        must_ok(weir__shared_close(device, b));
        close_emulated(device);
    }
}

static void peers_reach_it_too(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_device *other = open_with("emulated:7", NULL);
    unsigned char *ptr = make_shared(device, WEIR_SHARE_FD, GRANULE);
    weir__shared shared = export_shared(device, ptr);
    unsigned char *opened = open_shared(device, &shared);
    drop_shared(&shared);
    must_answer(WEIR_DEVICE_ERROR, weir__fill(other, NULL, ptr, 1, GRANULE));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(other, NULL, opened, 1, GRANULE));
    must_ok(weir_device_enable_peer(other, device));
    must_ok(weir__fill(other, NULL, ptr, 1, GRANULE));
    must_ok(weir_device_sync(other));
    must_ok(weir__copy(other, NULL, ptr, opened, GRANULE));
    must_ok(weir_device_sync(other));
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_free(other, ptr));
    must_ok(weir__shared_free(device, ptr));
    must_ok(weir__shared_close(device, opened));
    close_emulated(device);
    close_emulated(other);
}

/* ---- two processes ---- */

/* Opens what it is sent, finds pattern 1 there, leaves pattern 2. */
static void importer(int channel)
{
    weir_device *device = open_threads();
    size_t before = device_free_bytes(device);
    weir__shared shared;
    int fd = channel_receive(channel, &shared, sizeof shared);
    must((fd >= 0) == (shared.kind == WEIR_SHARE_FD));
    shared.fd = fd;
    unsigned char *ptr = open_shared(device, &shared);
    drop_shared(&shared);
    must_equal(device_free_bytes(device), before);
    check_stamp(device, NULL, ptr, GRANULE, 1);
    stamp(device, NULL, ptr, GRANULE, 2);
    must_ok(weir_device_sync(device));
    channel_say(channel, "written");
    channel_hear(channel, "freed");
    check_stamp(device, NULL, ptr, GRANULE, 2); /* the bytes stay while it has them */
    must_ok(weir_device_sync(device));
    must_ok(weir__shared_close(device, ptr));
    close_emulated(device);
}

static void memory_is_opened_elsewhere(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_threads();
        unsigned char *ptr = make_shared(device, shared_kinds[i], GRANULE);
        stamp(device, NULL, ptr, GRANULE, 1);
        must_ok(weir_device_sync(device));
        weir__shared shared = export_shared(device, ptr);
        support_process process = process_start("importer");
        channel_send(process.channel, &shared, sizeof shared, shared.fd);
        drop_shared(&shared);
        channel_hear(process.channel, "written");
        check_stamp(device, NULL, ptr, GRANULE, 2);
        must_ok(weir_device_sync(device));
        must_ok(weir__shared_free(device, ptr));
        channel_say(process.channel, "freed");
        process_end(&process);
        close_emulated(device);
    }
}

/* Shares memory, and waits for its end. */
static void exporter(int channel)
{
    weir_device *device = open_threads();
    unsigned char *ptr = make_shared(device, WEIR_SHARE_LEGACY, GRANULE);
    weir__shared shared = export_shared(device, ptr);
    channel_send(channel, &shared, sizeof shared, -1);
    channel_hear(channel, "never");
}

/* Its handle is worth nothing once its process is gone, and it begins at a start. */
static void memory_of_who_has_ended_is_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    support_process process = process_start("exporter");
    weir__shared shared;
    pid_t pid = process.pid;
    must(channel_receive(process.channel, &shared, sizeof shared) == -1);
    unsigned char *ptr = open_shared(device, &shared);
    must(weir__process_start_time(pid) > 0);
    must(weir__process_start_time(pid) >= weir__process_start_time(getpid()));
    process_kill(&process);
    must(channel_is_ended(process.channel));
    process_reap(&process);
    must_equal(weir__process_start_time(pid), 0);
    must_not_open(device, &shared);
    must_ok(weir__fill(device, NULL, ptr, 1, GRANULE)); /* what is open stays */
    must_ok(weir_device_sync(device));
    must_ok(weir__shared_close(device, ptr));
    close_emulated(device);
}

static void *go_on(void *channel)
{
    channel_say(*(const int *)channel, "on");
    channel_hear(*(const int *)channel, "end");
    exit(0);
}

/* Goes on without the thread that it began with. */
static void headless(int channel)
{
    static int kept;
    pthread_t thread;
    kept = channel;
    must(pthread_create(&thread, NULL, go_on, &kept) == 0);
    pthread_exit(NULL);
}

/* It looks as if it had ended, but for its other thread. */
static void process_lives_on_without_its_first_thread(void **state)
{
    (void)state;
    support_process process = process_start("headless");
    char path[64], line[256];
    uint64_t start_time = weir__process_start_time(process.pid);
    channel_hear(process.channel, "on");
    snprintf(path, sizeof path, "/proc/%d/stat", (int)process.pid);
    do { /* until that thread has ended */
        FILE *file = fopen(path, "r");
        must(file != NULL && fgets(line, sizeof line, file) != NULL);
        fclose(file);
        must_equal(weir__process_start_time(process.pid), start_time);
    } while (strstr(line, ") Z ") == NULL);
    must_equal(weir__process_start_time(process.pid), start_time);
    must(start_time > 0);
    channel_say(process.channel, "end");
    process_end(&process);
}

/* Says what another user is allowed. */
static void stranger(int channel)
{
    weir_device *device = open_stepped(0);
    weir__shared shared;
    must(channel_receive(channel, &shared, sizeof shared) == -1);
    must(geteuid() == 65533);
    must_not_open(device, &shared);
    close_emulated(device);
}

static void other_users_have_no_way_in(void **state)
{
    (void)state;
    if (!support_is_root())
        skip(); /* nobody here can be another user */
    weir_device *device = open_stepped(0);
    unsigned char *ptr = make_shared(device, WEIR_SHARE_LEGACY, GRANULE);
    weir__shared shared = export_shared(device, ptr);
    support_process process = process_start_as("stranger", 65533);
    channel_send(process.channel, &shared, sizeof shared, -1);
    process_end(&process);
    must_ok(weir__shared_free(device, ptr));
    close_emulated(device);
}

int main(int argc, char **argv)
{
    static const support_child children[] = { { "importer", importer },
                                              { "exporter", exporter },
                                              { "headless", headless },
                                              { "stranger", stranger } };
    support_children(argc, argv, children, 4);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(memory_is_the_devices),
        cmocka_unit_test(memory_counts_for_both),
        cmocka_unit_test(memory_ends_with_the_device),
        cmocka_unit_test(only_objects_are_found),
        cmocka_unit_test(memory_is_opened_where_it_is_from),
        cmocka_unit_test(peers_reach_it_too),
        cmocka_unit_test(memory_is_opened_elsewhere),
        cmocka_unit_test(memory_of_who_has_ended_is_refused),
        cmocka_unit_test(process_lives_on_without_its_first_thread),
        cmocka_unit_test(other_users_have_no_way_in),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
