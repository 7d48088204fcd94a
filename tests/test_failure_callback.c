/* test_failure_callback.c - a program is asked for help where there is no room, while
 * it helps and no oftener than is allowed; what it does meanwhile is its own. */
#include "support.h"

#include <stdatomic.h>
#include <string.h>

#include "internal.h"
#include "support_roomy.h"
#include "weir/failure_callback.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"

#define BYTES ((size_t)1000)
#define HELD  8

/* What the hook can do, and has been told. */
typedef struct helper {
    weir_device *device;
    weir_resource *mr;
    void *held[HELD];     /* blocks of BYTES that it can do without */
    size_t count;
    size_t calls, refusals, bytes;
    weir_stream stream;
    bool always;          /* says that it helped, also where it could not */
    void (*besides)(struct helper *self); /* null: nothing */
} helper;

static bool help(void *context, weir_stream stream, size_t bytes, size_t refusals)
{
    helper *self = context;
    must(weir_last_error().status == WEIR_LIMIT_REACHED);
    self->calls++;
    self->refusals = refusals;
    self->bytes = bytes;
    self->stream = stream;
    if (self->besides != NULL)
        self->besides(self);
    if (self->count == 0)
        return self->always;
    void *ptr = self->held[--self->count];
    check_stamp(self->device, NULL, ptr, BYTES, self->count);
    give(self->mr, NULL, ptr, BYTES);
    return true;
}

/* Over `spec`; all that the limit of HELD blocks allows is out. */
static void helper_begin(helper *self, const char *spec, size_t max_retries)
{
    weir_resource *upstream, *limited;
    weir_failure_callback_options options = WEIR_FAILURE_CALLBACK_OPTIONS_INIT;
    options.max_retries = max_retries;
    must_ok(weir_resource_open(self->device, spec, &upstream));
    must_ok(weir_limiting_create(upstream, HELD * BYTES, &limited));
    must_ok(weir_failure_callback_create(limited, help, self, &options, &self->mr));
    weir_resource_unref(upstream);
    weir_resource_unref(limited);
    for (size_t i = 0; i < HELD; i++) {
        self->held[i] = take(self->mr, NULL, BYTES);
        stamp(self->device, NULL, self->held[i], BYTES, i);
    }
    self->count = HELD;
}

static void helper_end(helper *self)
{
    while (self->count > 0)
        give(self->mr, NULL, self->held[--self->count], BYTES);
    must_equal(statistics_of(self->mr).out_blocks, 0);
    weir_resource_unref(self->mr);
    close_emulated(self->device);
}

/* ---- again and again ---- */

static void request_is_tried_again_while_the_hook_helps(void **state)
{
    (void)state;
    helper it = { .device = open_stepped(support_seed(1)) };
    helper_begin(&it, "pool(limit=1MiB)/device", 0);
    weir_stream stream = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    void *ptr = take(it.mr, stream, 3 * BYTES);
    stamp(it.device, stream, ptr, 3 * BYTES, 99);
    must_equal(it.calls, 3);
    must_equal(it.refusals, 3);
    must_equal(it.bytes, 3 * BYTES);
    must(it.stream == stream);
    must_equal(it.count, HELD - 3);

    it.calls = 0;
    void *another = take(it.mr, NULL, BYTES);
    must_equal(it.calls, 1);
    must_equal(it.refusals, 1); /* counted for each request */
    give(it.mr, NULL, another, BYTES);
    another = take(it.mr, NULL, BYTES);
    must_equal(it.calls, 1); /* there is room */
    give(it.mr, NULL, another, BYTES);
    check_stamp(it.device, stream, ptr, 3 * BYTES, 99);
    give(it.mr, stream, ptr, 3 * BYTES);
    end_stream(it.device, stream);
    helper_end(&it);
}

static void must_be_refused(helper *it, size_t bytes)
{
    void *ptr = it;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(it->mr, NULL, bytes, WEIR_ALIGNMENT, &ptr));
    must(ptr == NULL);
    must(strstr(weir_last_error().message, "limiting has no ") != NULL);
    must_equal(weir_last_error().status, WEIR_LIMIT_REACHED);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, bytes);
    assert_string_equal(report.resource, "limiting");
}

static void retries_have_a_bound(void **state)
{
    (void)state;
    const size_t bounds[] = { 0, 1, 5 };
    for (size_t i = 0; i < 3; i++) {
        helper it = { .device = open_stepped(support_seed(2)), .always = true };
        helper_begin(&it, "device", bounds[i]);
        must_be_refused(&it, 9 * BYTES); /* more than there can ever be */
        must_equal(it.calls, bounds[i] == 0 ? 100 : bounds[i]);
        must_equal(it.refusals, it.calls);
        weir_failure_callback_options options = { .struct_size = sizeof options };
        must_ok(weir_failure_callback_get_options(it.mr, &options));
        must_equal(options.max_retries, it.calls);
        helper_end(&it);
    }
}

/* Fails at whatever it does, also for want of memory. */
static void fail_besides(helper *self)
{
    weir_resource *other;
    void *ptr;
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_open(self->device, "no", &other));
    must_ok(weir_resource_open(self->device, "limiting(7)/system", &other));
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(other, NULL, 8, 8, &ptr));
    weir_resource_unref(other);
}

static void refusal_is_what_upstream_said(void **state)
{
    (void)state;
    helper it = { .device = open_stepped(support_seed(3)), .besides = fail_besides };
    helper_begin(&it, "device", 0);
    must_be_refused(&it, 9 * BYTES);
    must_equal(it.calls, HELD + 1); /* the last time it could not help */
    it.always = true;
    it.calls = 0;
    must_be_refused(&it, 9 * BYTES);
    must_equal(it.calls, 100);
    helper_end(&it);
}

static void other_failures_are_not_the_hooks(void **state)
{
    (void)state;
    helper it = { .device = open_stepped(support_seed(4)), .always = true };
    helper_begin(&it, "device", 0);
    give(it.mr, NULL, it.held[--it.count], BYTES);
    must_ok(weir_device_sync(it.device));
    (void)weir_resource_trim_sync(it.mr, 0);
    void *ptr;
    plan_fault(it.device, "malloc", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(it.mr, NULL, BYTES, 8, &ptr));
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY, weir_allocate(it.mr, NULL, BYTES, 8, &ptr));
    weir__host_fail_at(0, false);
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(it.mr, NULL, BYTES, 512, &ptr));
    must_equal(it.calls, 0);
    helper_end(&it);
}

/* ---- from within ---- */

/* One request more, of the same resource: refused, and not the hook's business. */
static void ask_besides(helper *self)
{
    size_t calls = self->calls;
    void *ptr = self;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(self->mr, NULL, HELD * BYTES, WEIR_ALIGNMENT, &ptr));
    must(ptr == NULL);
    must_equal(self->calls, calls);
    if (self->count == 0)
        return;
    /* It can do with less: the ledger hears of all of this. */
    give(self->mr, NULL, self->held[--self->count], BYTES);
    ptr = take(self->mr, NULL, BYTES / 2);
    stamp(self->device, NULL, ptr, BYTES / 2, 5);
    check_stamp(self->device, NULL, ptr, BYTES / 2, 5);
    must(weir_free(self->mr, ptr));
    must_equal(self->calls, calls);
}

static void hook_may_use_the_resource(void **state)
{
    (void)state;
    helper it = { .device = open_stepped(support_seed(5)), .besides = ask_besides };
    helper_begin(&it, "pool(limit=1MiB)/device", 0);
    void *ptr = take(it.mr, NULL, 3 * BYTES);
    stamp(it.device, NULL, ptr, 3 * BYTES, 99);
    must_equal(it.calls, 2);
    check_stamp(it.device, NULL, ptr, 3 * BYTES, 99);
    give(it.mr, NULL, ptr, 3 * BYTES);
    must_be_quiet(it.device);
    helper_end(&it);
}

/* Two on top of each other, whose hooks each ask the outer one. */
typedef struct tower {
    weir_resource *outer;
    size_t calls[2];
} tower;

static bool climb(tower *self, size_t which)
{
    void *ptr;
    self->calls[which]++;
    must(self->calls[0] + self->calls[1] < 1000);
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(self->outer, NULL, 200, 8, &ptr));
    return true;
}

static bool climb_outer(void *context, weir_stream stream, size_t bytes,
                        size_t refusals)
{
    (void)stream;
    (void)bytes;
    (void)refusals;
    return climb(context, 0);
}

static bool climb_inner(void *context, weir_stream stream, size_t bytes,
                        size_t refusals)
{
    (void)stream;
    (void)bytes;
    (void)refusals;
    return climb(context, 1);
}

static void hooks_on_top_of_each_other_come_to_an_end(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    weir_failure_callback_options options = { sizeof options, 2 };
    weir_resource *limited, *inner;
    tower it = { .outer = NULL };
    must_ok(weir_resource_open(device, "limiting(100)/device", &limited));
    must_ok(weir_failure_callback_create(limited, climb_inner, &it, &options, &inner));
    must_ok(weir_failure_callback_create(inner, climb_outer, &it, &options, &it.outer));
    void *ptr;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(it.outer, NULL, 150, 8, &ptr));
    /* Each of the outer's three tries has two calls of the inner hook, from each of
     * which the outer is called twice; and so is the inner from each of the outer's
     * own two. */
    must_equal(it.calls[1], 3 * 2 + 2 * 2);
    must_equal(it.calls[0], 3 * 2 * 2 + 2);
    weir_resource_unref(it.outer);
    weir_resource_unref(inner);
    weir_resource_unref(limited);
    close_emulated(device);
}

/* ---- threads ---- */

#define THREADS 3

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    uintptr_t channels;   /* one for each thread, from here on */
    size_t index;
} worker;

static _Thread_local worker *me;

/* Goes on when all threads are in here: as none holds a lock, they come. */
static bool meet(void *context, weir_stream stream, size_t bytes, size_t refusals)
{
    (void)context;
    (void)stream;
    (void)bytes;
    for (size_t i = 0; i < THREADS; i++) {
        if (i != me->index)
            must_ok(support_host_signal(me->device, me->channels + i));
    }
    for (size_t i = 0; i + 1 < THREADS; i++)
        must_ok(support_host_await(me->device, me->channels + me->index));
    return refusals < 3;
}

static void ask_and_meet(void *argument)
{
    void *ptr;
    me = argument;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(me->mr, WEIR_STREAM_PER_THREAD, 200, 8, &ptr));
}

static void all_threads_may_be_in_the_hook(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads in a hook", 20, 500);
    for (uint64_t i = 0; i <= seeds; i++) {
        weir_device *device = i < seeds ? open_stepped(support_seed(i))
                                        : open_threads();
        weir_resource *limited, *mr;
        must_ok(weir_resource_open(device, "limiting(100)/device", &limited));
        must_ok(weir_failure_callback_create(limited, meet, NULL, NULL, &mr));
        worker workers[THREADS];
        void *arguments[THREADS];
        for (size_t j = 0; j < THREADS; j++) {
            workers[j] = (worker){ device, mr, (uintptr_t)workers, j };
            arguments[j] = &workers[j];
        }
        must_ok(support_run_threads(device, THREADS, ask_and_meet, arguments));
        weir_resource_unref(mr);
        weir_resource_unref(limited);
        close_emulated(device);
    }
}

/* ---- what else passes through ---- */

static void extension_is_not_tried_again(void **state)
{
    (void)state;
    helper it = { .device = open_stepped(support_seed(7)), .always = true };
    weir_resource *pool, *upstream;
    roomy room;
    must_ok(weir_resource_open(it.device, "pool/device", &pool));
    upstream = roomy_open(&room, pool, 4096);
    must_ok(weir_failure_callback_create(upstream, help, &it, NULL, &it.mr));
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(it.mr, &properties));
    must(properties.can_extend);
    void *ptr = take(it.mr, NULL, BYTES);
    must_ok(weir_resource_extend(it.mr, NULL, ptr, BYTES, WEIR_ALIGNMENT, 4096));
    must_answer(WEIR_OUT_OF_MEMORY, weir_resource_extend(it.mr, NULL, ptr, 4096,
                                                         WEIR_ALIGNMENT, 5000));
    must_equal(it.calls, 0);
    must_equal(room.extensions * 16 + room.refusals, 17);
    weir_point point;
    must_ok(weir_point_here(it.device, NULL, &point));
    must(weir_deallocate_after(it.mr, ptr, 4096, WEIR_ALIGNMENT, &point, 1));
    must_equal(room.out_bytes, 0);
    weir_resource_unref(it.mr);
    weir_resource_unref(upstream);

    /* Over what cannot extend it does not say that it can. */
    must_ok(weir_failure_callback_create(pool, help, &it, NULL, &it.mr));
    must_ok(weir_resource_get_properties(it.mr, &properties));
    must(!properties.can_extend && properties.can_find && properties.can_trim);
    assert_string_equal(properties.name, "failure_callback");
    weir_resource_unref(it.mr);
    weir_resource_unref(pool);
    close_emulated(it.device);
}

static void create_refuses_and_fails_well(void **state)
{
    (void)state;
    helper it = { .device = open_stepped(support_seed(8)) };
    weir_resource *leaf, *mr = NULL;
    weir_failure_callback_options options = { .struct_size = 1 };
    must_ok(weir_device_resource_create(it.device, &leaf));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_failure_callback_create(NULL, help, &it, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_failure_callback_create(leaf, NULL, &it, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_failure_callback_create(leaf, help, &it, NULL, NULL));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_failure_callback_create(leaf, help, &it, &options, &mr));
    must(mr == NULL);
    options.struct_size = sizeof options;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_failure_callback_get_options(leaf, &options));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_failure_callback_get_options(NULL, &options));
    must_answer(WEIR_INVALID_ARGUMENT, weir_failure_callback_get_options(leaf, NULL));

    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_failure_callback_create(leaf, help, &it, NULL, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 3); /* two fail in turn, then none */
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    close_emulated(it.device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_is_tried_again_while_the_hook_helps),
        cmocka_unit_test(retries_have_a_bound),
        cmocka_unit_test(refusal_is_what_upstream_said),
        cmocka_unit_test(other_failures_are_not_the_hooks),
        cmocka_unit_test(hook_may_use_the_resource),
        cmocka_unit_test(hooks_on_top_of_each_other_come_to_an_end),
        cmocka_unit_test(all_threads_may_be_in_the_hook),
        cmocka_unit_test(extension_is_not_tried_again),
        cmocka_unit_test(create_refuses_and_fails_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
