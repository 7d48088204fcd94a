/* test_shared_faults.c - memory for other processes where something is wrong: handles
 * that are none, calls that fail, host memory and descriptors that run out. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "internal.h"
#include "ipc_process.h"
#include "support_shared.h"

/* ---- what cannot be opened ---- */

static void bad_files_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    static const int bad_seals[] = { 0, F_SEAL_GROW, F_SEAL_GROW | F_SEAL_SEAL,
                                     F_SEAL_SHRINK | F_SEAL_WRITE,
                                     F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE };
    for (size_t i = 0; i < sizeof bad_seals / sizeof bad_seals[0]; i++) {
        weir__shared shared = own_file(GRANULE, bad_seals[i]);
        must_not_open(device, &shared);
        drop_shared(&shared);
    }
    static const size_t bad_bytes[] = { 1, 4096, GRANULE - 1, GRANULE + 1 };
    for (size_t i = 0; i < sizeof bad_bytes / sizeof bad_bytes[0]; i++) {
        weir__shared shared = own_file(bad_bytes[i], F_SEAL_SHRINK);
        must_not_open(device, &shared);
        drop_shared(&shared);
    }
    weir__shared shared = own_file(2 * GRANULE, F_SEAL_SHRINK);
    static const size_t lies[] = { 0, 1, GRANULE, 4 * GRANULE, SIZE_MAX,
                                   SIZE_MAX - GRANULE + 1 };
    for (size_t i = 0; i < sizeof lies / sizeof lies[0]; i++) {
        shared.bytes = lies[i];
        must_not_open(device, &shared);
    }
    shared.bytes = 2 * GRANULE;
    shared.kind = WEIR_SHARE_NONE;
    must_not_open(device, &shared);
    shared.kind = (weir_share_kind)9;
    must_not_open(device, &shared);
    shared.kind = WEIR_SHARE_LEGACY; /* and its octets are zeros */
    must_not_open(device, &shared);
    shared.kind = WEIR_SHARE_FD;
    must_ok(weir__shared_close(device, open_shared(device, &shared)));
    drop_shared(&shared);
    close_emulated(device);
}

static void bad_descriptors_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir__shared good = own_file(GRANULE, F_SEAL_SHRINK), bad = good;
    char path[64];
    int ends[2];
    snprintf(path, sizeof path, "/proc/self/fd/%d", good.fd);
    must(pipe(ends) == 0);
    int fds[] = { open(path, O_RDONLY | O_CLOEXEC), open(path, O_PATH | O_CLOEXEC),
                  open("/dev/null", O_RDWR | O_CLOEXEC),
                  open("/proc/self/exe", O_RDONLY | O_CLOEXEC), ends[0], ends[1] };
    for (size_t i = 0; i < sizeof fds / sizeof fds[0]; i++) {
        must(fds[i] >= 0);
        bad.fd = fds[i];
        must_not_open(device, &bad);
        close(fds[i]);
    }
    bad.fd = -1;
    must_not_open(device, &bad);
    bad.fd = 1 << 20;
    must_not_open(device, &bad);
    drop_shared(&good);
    close_emulated(device);
}

/* Octets of kind LEGACY, as emulated_shared.c lays them out. */
typedef struct octets {
    uint64_t magic;
    uint64_t start_time;
    int32_t pid;
    int32_t fd;
} octets;

static void must_not_open_octets(weir_device *device, weir__shared shared, octets bad)
{
    memcpy(shared.octets, &bad, sizeof bad);
    must_not_open(device, &shared);
}

/* A file that is no memory, but would be taken for it by its length. */
static int long_file(void)
{
    FILE *file = tmpfile();
    must(file != NULL && ftruncate(fileno(file), (off_t)GRANULE) == 0);
    int fd = dup(fileno(file));
    fclose(file);
    return fd;
}

static void bad_octets_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *ptr = make_shared(device, WEIR_SHARE_LEGACY, GRANULE);
    weir__shared shared = export_shared(device, ptr);
    octets good, bad;
    memcpy(&good, shared.octets, sizeof good);
    must_equal(good.pid, getpid());
    must_equal(good.start_time, weir__process_start_time(getpid()));

    weir__shared unsealed = own_file(GRANULE, 0);
    int ends[2], odd[4];
    must(pipe(ends) == 0);
    odd[0] = unsealed.fd;
    odd[1] = ends[0];
    odd[2] = long_file();
    odd[3] = 1 << 20;
    for (size_t i = 0; i < 4; i++) {
        bad = good;
        bad.fd = odd[i];
        must_not_open_octets(device, shared, bad);
    }
    bad = good, bad.fd = -1;
    must_not_open_octets(device, shared, bad);
    bad = good, bad.magic++;
    must_not_open_octets(device, shared, bad);
    bad = good, bad.start_time++;
    must_not_open_octets(device, shared, bad);
    bad = good, bad.start_time = 0;
    must_not_open_octets(device, shared, bad);
    bad = good, bad.pid = 0;
    must_not_open_octets(device, shared, bad);
    bad = good, bad.pid = -1;
    must_not_open_octets(device, shared, bad);
    bad = good, bad.pid = INT32_MAX;
    must_not_open_octets(device, shared, bad);
    shared.bytes += GRANULE;
    must_not_open_octets(device, shared, good);
    close(ends[0]);
    close(ends[1]);
    close(odd[2]);
    drop_shared(&unsealed);
    must_ok(weir__shared_free(device, ptr));
    shared.bytes -= GRANULE;
    must_not_open_octets(device, shared, good); /* it is gone */
    close_emulated(device);
}

/* ---- faults ---- */

typedef struct scene {
    weir_device *device;
    unsigned char *ptr;
    unsigned char *opened;
    weir__shared shared;
} scene;

static scene set_scene(weir_share_kind kind)
{
    scene self = { .device = open_stepped(0) };
    self.ptr = make_shared(self.device, kind, GRANULE);
    self.shared = export_shared(self.device, self.ptr);
    self.opened = open_shared(self.device, &self.shared);
    return self;
}

static void clear_scene(const scene *self)
{
    drop_shared(&self->shared);
    must_ok(weir__shared_close(self->device, self->opened));
    must_ok(weir__shared_free(self->device, self->ptr));
    close_emulated(self->device);
}

static void every_call_can_be_struck(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        scene self = set_scene(shared_kinds[i]);
        size_t before = device_free_bytes(self.device);
        void *ptr = NULL;
        weir__shared out = { .fd = -7 };
        plan_fault(self.device, "shared_malloc", 1, false, WEIR_OUT_OF_MEMORY);
        must_answer(WEIR_OUT_OF_MEMORY,
                    weir__shared_malloc(self.device, shared_kinds[i], 1, &ptr));
        plan_fault(self.device, "shared_free", 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, weir__shared_free(self.device, self.ptr));
        plan_fault(self.device, "shared_find", 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR,
                    weir__shared_find(self.device, self.ptr, 1, &ptr, &out));
        plan_fault(self.device, "shared_export", 1, false, WEIR_NOT_SUPPORTED);
        must_answer(WEIR_NOT_SUPPORTED,
                    weir__shared_export(self.device, self.ptr, &out));
        plan_fault(self.device, "shared_open", 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR,
                    weir__shared_open(self.device, &self.shared, &ptr));
        plan_fault(self.device, "shared_close", 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, weir__shared_close(self.device, self.opened));
        must(ptr == NULL && out.fd == -7);
        must_equal(device_free_bytes(self.device), before);
        plan_fault(self.device, NULL, 0, false, WEIR_OK);
        clear_scene(&self);
    }
}

/* Makes, exports, opens, closes and frees, until one of them fails. */
static weir_status all_calls(weir_device *device, weir_share_kind kind)
{
    void *ptr, *opened;
    weir__shared shared;
    weir_status status = weir__shared_malloc(device, kind, GRANULE, &ptr);
    if (status != WEIR_OK)
        return status;
    status = weir__shared_export(device, ptr, &shared);
    if (status == WEIR_OK) {
        status = weir__shared_open(device, &shared, &opened);
        drop_shared(&shared);
    }
    if (status == WEIR_OK)
        must_ok(weir__shared_close(device, opened));
    must_ok(weir__shared_free(device, ptr));
    return status;
}

static void calls_survive_every_host_failure(void **state)
{
    (void)state;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = true; /* which would go deaf */
    options.emulated = &emulated;
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_with("emulated:3", &options);
        weir_status status = WEIR_OUT_OF_HOST_MEMORY;
        uint64_t nth = 0;
        size_t before = device_free_bytes(device);
        while (status == WEIR_OUT_OF_HOST_MEMORY) {
            weir__host_fail_at(++nth, false);
            status = all_calls(device, shared_kinds[i]);
            weir__host_fail_at(0, false);
            must_equal(device_free_bytes(device), before);
        }
        must_ok(status);
        must_equal(nth, 5); /* two for each object */
        close_emulated(device);
    }
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
        weir_status status = all_calls(device, WEIR_SHARE_FD);
        must(status == (left < 3 ? WEIR_DEVICE_ERROR : WEIR_OK));
        must(left == 3 || weir_last_error().native_code == EMFILE);
        must_equal(device_free_bytes(device), before);
    }
    while (count > 0)
        close(spare[--count]);
    must(setrlimit(RLIMIT_NOFILE, &usual) == 0);
    close_emulated(device);
}

static void each_call_costs_its_own(void **state)
{
    (void)state;
    weir_emulated_costs costs = { .struct_size = sizeof costs,
                                  .shared_malloc = { 1, 10 }, .shared_export = { 2, 0 },
                                  .shared_open = { 3, 100 }, .shared_close = { 4, 20 },
                                  .shared_free = { 5, 30 }, .shared_find = { 6, 0 } };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.costs = &costs;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:3", &options);
    must_ok(all_calls(device, WEIR_SHARE_FD));
    must_equal(weir_emulated_modelled_ns(device),
               1 + 2 + 3 + 4 + 5 + 2 * (10 + 100 + 20 + 30));
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(bad_descriptors_are_refused),
        cmocka_unit_test(bad_octets_are_refused),
        cmocka_unit_test(every_call_can_be_struck),
        cmocka_unit_test(calls_survive_every_host_failure),
        cmocka_unit_test(calls_survive_every_missing_descriptor),
        cmocka_unit_test(each_call_costs_its_own),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
