/* test_current.c - a device's current resource: who holds whom, and who ends when; and
 * a thread's current stream: whose it is, and for how long. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "device/device.h"
#include "internal.h"
#include "support.h"
#include "sync.h"
#include "weir/weir.h"

#define BYTES ((size_t)1000)

/* Devices that tests close on their own ways stand beside the one that looks whether
 * anything is left. */
#define OTHER   "emulated:7"
#define ANOTHER "emulated:8"

static weir_status try_other(const char *name, size_t memory_bytes, weir_device **out)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.memory_bytes = memory_bytes;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    return support_open(name, &options, out);
}

static weir_device *open_other(const char *name)
{
    weir_device *device;
    must_ok(try_other(name, (size_t)1 << 30, &device));
    return device;
}

/* Other options are refused as long as a device is open. */
static bool is_open(const char *name)
{
    weir_device *device;
    weir_status status = try_other(name, (size_t)1 << 29, &device);
    if (status == WEIR_OK)
        weir_device_unref(device);
    else
        must_answer(WEIR_INVALID_ARGUMENT, status);
    return status != WEIR_OK;
}

static weir_resource *current(weir_device *device)
{
    weir_resource *mr;
    must_ok(weir_current_resource(device, &mr));
    return mr;
}

/* That resource, without keeping a reference. */
static weir_resource *look(weir_device *device)
{
    weir_resource *mr = current(device);
    weir_resource_unref(mr);
    return mr;
}

static weir_resource *make(weir_device *device, const char *spec)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, spec, &mr));
    return mr;
}

static void set(weir_device *device, weir_resource *mr)
{
    must_ok(weir_set_current_resource(device, mr, NULL));
}

/* ---- what is asked for ---- */

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1)), *other = open_other(OTHER);
    weir_resource *mr = make(device, "device"), *out = mr;
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING), before = stream;
    must_ok(weir_set_current_stream(device, stream, NULL));

    must_answer(WEIR_INVALID_ARGUMENT, weir_current_resource(device, NULL));
    must_answer(WEIR_INVALID_ARGUMENT, weir_current_resource(NULL, &out));
    must(out == NULL);
    out = mr;
    must_answer(WEIR_INVALID_ARGUMENT, weir_set_current_resource(NULL, mr, &out));
    must(out == NULL);
    out = mr;
    must_answer(WEIR_INVALID_ARGUMENT, weir_set_current_resource(other, mr, &out));
    must(out == NULL && strstr(weir_last_error().message, strchr(OTHER, ':')) != NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_set_current_resource(other, mr, NULL));
    must(other->current.set == NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_set_current_stream(NULL, stream, &before));
    must(before == NULL && weir_current_stream(NULL) == NULL);
    must(weir_current_stream(device) == stream);

    must_ok(weir_set_current_stream(device, NULL, NULL));
    end_stream(device, stream);
    weir_resource_unref(mr);
    weir_device_unref(other);
    close_emulated(device);
}

/* ---- the current resource ---- */

static void one_is_made_when_first_asked_for(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    must(device->current.own == NULL);
    weir_resource *mr = current(device), *again = current(device);
    must(mr == again);
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    must(properties.device == device);
    assert_string_equal(properties.name, "pool");
    assert_string_equal(properties.leaf, "device");

    give(mr, NULL, take(mr, NULL, BYTES), BYTES);
    weir_resource_unref(again);
    weir_resource_unref(mr);
    must(look(device) == mr); /* it is the device's, too */
    (void)weir_resource_trim_sync(mr, 0);
    close_emulated(device); /* and does not keep it open */
}

static void what_is_set_is_counted_and_the_old_one_returned(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *first = make(device, "device"), *second = make(device, "system");
    weir_resource *old = first;
    must_ok(weir_set_current_resource(device, first, &old));
    must(old == NULL);
    weir_resource_unref(first); /* the device's reference holds it */
    must(look(device) == first);
    must_ok(weir_set_current_resource(device, second, &old));
    must(old == first && look(device) == second);
    give(old, NULL, take(old, NULL, BYTES), BYTES);
    weir_resource_unref(old);
    must_ok(weir_set_current_resource(device, second, &old));
    must(old == second); /* one reference for another */
    weir_resource_unref(old);
    weir_resource_unref(second);

    must_ok(weir_set_current_resource(device, NULL, &old));
    must(old == second);
    weir_resource *own = current(device);
    must(own != second);
    set(device, second);
    set(device, own); /* as null */
    must(device->current.set == NULL && look(device) == own);
    weir_resource_unref(own);
    weir_resource_unref(old);
    close_emulated(device);
}

static void what_is_set_keeps_the_device_open(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4)), *other = open_other(OTHER);
    weir_resource *mr = make(other, "pool/device");
    weir_resource_unref(current(other)); /* beside it the device has its own */
    set(other, mr);
    weir_resource_unref(mr);
    weir_device_unref(other);
    must(is_open(OTHER));
    other = open_other(OTHER);
    must(look(other) == mr);
    set(other, NULL);
    weir_device_unref(other);
    must(!is_open(OTHER));
    close_emulated(device);
}

/* ---- who ends when ---- */

static void device_ends_with_its_own_resource(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5)), *other = open_other(OTHER);
    weir_resource *mr = current(other);
    weir_device_ref(other);
    weir_device_unref(other);
    weir_resource_unref(mr);
    must(other->current.own_is_held); /* by a device that the user holds */
    weir_device_unref(other);
    must(!is_open(OTHER));
    close_emulated(device);
}

static void who_has_its_own_resource_keeps_the_device(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6)), *other = open_other(OTHER);
    weir_resource *mr = current(other);
    weir_device_unref(other);
    must(is_open(OTHER));
    give(mr, NULL, take(mr, NULL, BYTES), BYTES);
    must(look(other) == mr); /* whoever asks; nor does that hold it */
    set(other, mr);
    weir_resource_unref(mr);
    must(!is_open(OTHER));
    close_emulated(device);
}

static void block_of_its_own_resource_keeps_the_device(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7)), *other = open_other(OTHER);
    weir_resource *mr = current(other);
    void *ptr = take(mr, NULL, BYTES);
    weir_resource_unref(mr);
    weir_device_unref(other);
    must(is_open(OTHER));
    other = open_other(OTHER);
    must(look(other) != mr); /* that allocates no more, so this is another */
    weir_device_unref(other);
    must(is_open(OTHER));
    give(mr, NULL, ptr, BYTES);
    must(!is_open(OTHER));
    close_emulated(device);
}

static void resource_above_its_own_keeps_both(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8)), *other = open_other(OTHER);
    weir_resource *own = current(other), *mr;
    must_ok(weir_limiting_create(own, BYTES, &mr));
    weir_resource_unref(own);
    weir_device_unref(other);
    must(look(other) == own && other->current.own_is_held);
    give(mr, NULL, take(mr, NULL, BYTES), BYTES);
    weir_resource_unref(mr);
    must(!is_open(OTHER));
    close_emulated(device);
}

static void device_opened_again_has_the_same_resource(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(9)), *other = open_other(OTHER);
    weir_resource *mr = current(other);
    weir_device_unref(other);
    must(!other->current.own_is_held);
    other = open_other(OTHER);
    must(look(other) == mr && other->current.own_is_held);
    weir_resource_unref(mr);
    must(look(other) == mr); /* the device has it again */
    weir_device_unref(other);
    must(!is_open(OTHER));

    /* But not where nobody has asked. */
    other = open_other(OTHER);
    mr = current(other);
    weir_device_unref(other);
    other = open_other(OTHER);
    weir_resource_unref(mr);
    must(other->current.own == NULL);
    weir_resource_unref(current(other));
    weir_device_unref(other);
    must(!is_open(OTHER));
    close_emulated(device);
}

/* ---- without host memory ---- */

static void resource_that_cannot_be_made_leaves_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(10));
    weir_resource *mr = NULL;
    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        size_t references = atomic_load(&device->references);
        weir__host_fail_at(failing, false);
        weir_status status = weir_current_resource(device, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must(mr == NULL && device->current.own == NULL);
            must_equal(weir__host_live(), live);
            must_equal(atomic_load(&device->references), references);
        }
    }
    must(failing > 4);
    weir__host_fail_at(1, true); /* that it is there needs none */
    must(look(device) == mr);
    set(device, mr);
    weir__host_fail_at(0, false);
    weir_resource_unref(mr);
    close_emulated(device);
}

static void stream_that_cannot_be_remembered_changes_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(11)), *other = open_other(OTHER);
    weir_stream streams[2] = { make_stream(device, WEIR_STREAM_BLOCKING),
                               make_stream(device, WEIR_STREAM_NON_BLOCKING) };
    weir_stream old = streams[0];
    weir__host_fail_at(1, true);
    must_answer(WEIR_OUT_OF_HOST_MEMORY,
                weir_set_current_stream(device, streams[0], &old));
    must(old == NULL && weir_current_stream(device) == NULL);
    must_ok(weir_set_current_stream(device, NULL, &old));
    weir__host_fail_at(0, false);
    size_t live = weir__host_live();
    must_ok(weir_set_current_stream(device, streams[0], &old));
    must_equal(weir__host_live(), live + 1);
    weir__host_fail_at(1, true); /* the only one there is, for all devices */
    must_ok(weir_set_current_stream(device, streams[1], &old));
    must(old == streams[0]);
    must_ok(weir_set_current_stream(other, WEIR_STREAM_PER_THREAD, &old));
    must(old == NULL && weir_current_stream(device) == streams[1]);
    must_ok(weir_set_current_stream(device, NULL, &old));
    must(old == streams[1] && weir_current_stream(other) == WEIR_STREAM_PER_THREAD);
    must_ok(weir_set_current_stream(device, NULL, &old));
    must(weir_current_stream(other) == WEIR_STREAM_PER_THREAD);
    must_ok(weir_set_current_stream(other, NULL, NULL));
    weir__host_fail_at(0, false);
    must_equal(weir__host_live(), live); /* nothing is set any more */
    end_stream(device, streams[0]);
    end_stream(device, streams[1]);
    weir_device_unref(other);
    close_emulated(device);
}

/* ---- the current stream ---- */

static void run(void *(*entry)(void *), void *argument)
{
    pthread_t thread;
    must(pthread_create(&thread, NULL, entry, argument) == 0);
    must(pthread_join(thread, NULL) == 0);
}

static void *has_its_own(void *argument)
{
    weir_device *device = argument;
    weir_stream old = WEIR_STREAM_LEGACY;
    must(weir_current_stream(device) == NULL);
    must_ok(weir_set_current_stream(device, WEIR_STREAM_PER_THREAD, &old));
    must(old == NULL && weir_current_stream(device) == WEIR_STREAM_PER_THREAD);
    return NULL;
}

/* What the thread set goes with it. */
static void stream_is_the_threads_and_the_devices(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12)), *other = open_other(OTHER);
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_set_current_stream(device, stream, NULL));
    must_ok(weir_set_current_stream(other, WEIR_STREAM_LEGACY, NULL));
    size_t live = weir__host_live();
    run(has_its_own, device);
    must_equal(weir__host_live(), live);

    uint64_t locks = weir__mutex_count();
    must(weir_current_stream(device) == stream);
    must(weir_current_stream(other) == WEIR_STREAM_LEGACY);
    must_equal(weir__mutex_count(), locks);
    must_ok(weir_set_current_stream(device, NULL, NULL));
    must_ok(weir_set_current_stream(other, NULL, NULL));
    end_stream(device, stream);
    weir_device_unref(other);
    close_emulated(device);
}

/* The new device lies, as a rule, where the old one lay. */
static void stream_of_a_device_that_was_closed_is_forgotten(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(13));
    static const char *const names[] = { OTHER, ANOTHER };
    for (int i = 0; i < 8; i++) {
        weir_device *other = open_other(names[i % 2]);
        weir_stream old = WEIR_STREAM_PER_THREAD;
        must(weir_current_stream(other) == NULL);
        must_ok(weir_set_current_stream(other, WEIR_STREAM_LEGACY, &old));
        must(old == NULL);
        weir_device_unref(other);
    }
    for (int i = 0; i < 2; i++) { /* each of them goes, though of another device */
        weir_device *other = open_other(names[i]);
        must_ok(weir_set_current_stream(other, NULL, NULL));
        weir_device_unref(other);
    }
    close_emulated(device);
}

static pthread_key_t late_key;

typedef struct late {
    weir_device *device;
    uint32_t rounds;
    uint32_t refused;
} late;

/* In the last of these rounds the thread has forgotten all. */
static void sets_late(void *value)
{
    late *self = value;
    weir_stream old = WEIR_STREAM_PER_THREAD;
    weir_status status =
        weir_set_current_stream(self->device, WEIR_STREAM_LEGACY, &old);
    if (weir__thread_self()->is_ending) {
        must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
        must(old == NULL && weir_current_stream(self->device) == NULL);
        must_ok(weir_set_current_stream(self->device, NULL, NULL));
        self->refused++;
    }
    if (++self->rounds < 2)
        (void)pthread_setspecific(late_key, self);
}

static void *ends_beside_another_key(void *argument)
{
    late *self = argument;
    must_ok(weir_set_current_stream(self->device, WEIR_STREAM_LEGACY, NULL));
    must(pthread_setspecific(late_key, argument) == 0);
    return NULL;
}

static void thread_at_its_end_remembers_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(14));
    late self = { .device = device };
    must(pthread_key_create(&late_key, sets_late) == 0);
    size_t live = weir__host_live();
    run(ends_beside_another_key, &self);
    must(self.rounds == 2 && self.refused >= 1);
    must_equal(weir__host_live(), live);
    must(pthread_key_delete(late_key) == 0);
    close_emulated(device);
}

/* ---- threads ---- */

#define THREADS 4

typedef struct worker {
    uint64_t random;
    uint32_t rounds;
} worker;

/* Opens the device, asks and sets, and lets go, in an order of its own. Between the
 * first to come and the last to go each finds the same. */
static void opens_asks_and_sets(void *argument)
{
    worker *self = argument;
    for (uint32_t i = 0; i < self->rounds; i++) {
        weir_device *device = open_other(OTHER);
        weir_resource *mr = current(device);
        bool device_first = support_random_below(&self->random, 2) == 0;
        weir_resource *mine = make(device, "device"), *old;
        must_ok(weir_set_current_resource(device, mine, &old));
        must(old != mine);
        weir_resource_unref(old);
        weir_resource_unref(mine);
        must_ok(weir_set_current_resource(device, NULL, &old));
        weir_resource_unref(old);
        if (device_first)
            weir_device_unref(device);
        give(mr, NULL, take(mr, NULL, BYTES), BYTES);
        weir_resource_unref(mr);
        if (!device_first)
            weir_device_unref(device);
    }
}

/* With nothing set, all that hold the device or what it made find one resource. */
static void only_asks(void *argument)
{
    worker *self = argument;
    for (uint32_t i = 0; i < self->rounds; i++) {
        weir_device *device = open_other(OTHER);
        weir_resource *mr = current(device);
        must(look(device) == mr);
        weir_device_unref(device);
        must(look(device) == mr);
        weir_resource_unref(mr);
    }
}

static void run_workers(weir_device *device, void (*entry)(void *), uint64_t seed,
                        uint32_t rounds)
{
    worker workers[THREADS];
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ seed * THREADS + i, rounds };
        arguments[i] = &workers[i];
    }
    must_ok(weir_emulated_run_threads(device, THREADS, entry, arguments));
    must(!is_open(OTHER));
}

static void threads_ask_and_set_at_once(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads and a current resource", 60, 1000);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        run_workers(device, opens_asks_and_sets, seed, 2);
        run_workers(device, only_asks, seed, 2);
        close_emulated(device);
    }
    uint32_t rounds =
        (uint32_t)support_bound("rounds of threads and a current resource", 100, 2000);
    weir_device *device = open_threads();
    run_workers(device, opens_asks_and_sets, 1, rounds);
    run_workers(device, only_asks, 1, rounds);
    close_emulated(device);
}

/* ---- fork ---- */

#define CHILD_CLAIM(condition) ((condition) ? (void)0 : _exit(__LINE__ % 250 + 1))

static void child_has_no_device(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(15));
    weir_resource *mr = current(device);
    must_ok(weir_set_current_stream(device, WEIR_STREAM_LEGACY, NULL));
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        weir_resource *other = mr;
        weir_stream old = WEIR_STREAM_LEGACY;
        CHILD_CLAIM(weir_current_resource(device, &other) == WEIR_FORKED);
        CHILD_CLAIM(other == NULL);
        other = mr;
        CHILD_CLAIM(weir_set_current_resource(device, mr, &other) == WEIR_FORKED);
        CHILD_CLAIM(other == NULL);
        CHILD_CLAIM(weir_current_stream(device) == NULL);
        CHILD_CLAIM(weir_set_current_stream(device, NULL, &old) == WEIR_FORKED);
        CHILD_CLAIM(old == NULL);
        weir_resource_unref(mr);
        weir_resource_unref(mr);
        weir_resource_unref(mr); /* would be once too often */
        _exit(0);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);
    must(weir_current_stream(device) == WEIR_STREAM_LEGACY);
    must_ok(weir_set_current_stream(device, NULL, NULL));
    weir_resource_unref(mr);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_no_meaning_is_refused),
        cmocka_unit_test(one_is_made_when_first_asked_for),
        cmocka_unit_test(what_is_set_is_counted_and_the_old_one_returned),
        cmocka_unit_test(what_is_set_keeps_the_device_open),
        cmocka_unit_test(device_ends_with_its_own_resource),
        cmocka_unit_test(who_has_its_own_resource_keeps_the_device),
        cmocka_unit_test(block_of_its_own_resource_keeps_the_device),
        cmocka_unit_test(resource_above_its_own_keeps_both),
        cmocka_unit_test(device_opened_again_has_the_same_resource),
        cmocka_unit_test(resource_that_cannot_be_made_leaves_nothing),
        cmocka_unit_test(stream_that_cannot_be_remembered_changes_nothing),
        cmocka_unit_test(stream_is_the_threads_and_the_devices),
        cmocka_unit_test(stream_of_a_device_that_was_closed_is_forgotten),
        cmocka_unit_test(thread_at_its_end_remembers_nothing),
        cmocka_unit_test(threads_ask_and_set_at_once),
        cmocka_unit_test(child_has_no_device),
    };
    return cmocka_run_group_tests_name("current", tests, NULL, NULL);
}
