/* test_checking_room.c - `checking` where memory is short: what it holds back gives way
 * to a request, whoever has it in hand, and the request says what was asked for. */
#include "support.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>

#include "checking_parts.h"
#include "internal.h"
#include "support_leaf.h"
#include "weir/checking.h"
#include "weir/resource_ops.h"

#define MIB ((size_t)1 << 20)

/* An upstream that has one block at a time. It can be slow to take it back: until
 * another has been refused. */
typedef struct narrow {
    weir_device *device;
    weir_resource *below;
    weir_resource *mr;         /* over it */
    atomic_bool is_out;
    bool is_slow;
    bool is_stuck;             /* until who asks has an answer */
    sem_t is_begun, may_end;
    atomic_int refusals;
    void *ptrs[WEIR__DRAWS_MOST + 10]; /* of `mr`: each refusal gives one back */
    int count;
} narrow;

static weir_status narrow_allocate(void *context, weir_stream stream, size_t bytes,
                                   size_t alignment, void **out)
{
    narrow *self = context;
    if (self->count == 0 && !atomic_exchange(&self->is_out, true))
        return weir_allocate(self->below, stream, bytes, alignment, out);
    atomic_fetch_add(&self->refusals, 1);
    if (self->count > 0)
        give(self->mr, stream, self->ptrs[--self->count], 1);
    return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "one at a time");
}

static bool narrow_deallocate(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment)
{
    narrow *self = context;
    if (self->is_stuck) {
        must(sem_post(&self->is_begun) == 0);
        must(sem_wait(&self->may_end) == 0);
    }
    if (self->is_slow) {
        must_ok(support_host_signal(self->device, 1));
        while (atomic_load(&self->refusals) == 0)
            weir__yield();
        for (int i = 0; i < 100; i++)
            weir__yield();
    }
    bool done = weir_deallocate(self->below, stream, ptr, bytes, alignment);
    atomic_store(&self->is_out, false);
    return done;
}

static weir_resource *narrow_upstream(void *context)
{
    narrow *self = context;
    return self->below;
}

static void narrow_destroy(void *context)
{
    (void)context;
}

static void narrow_begin(narrow *self, scene *s)
{
    static const weir_resource_ops ops = { .struct_size = sizeof ops, .name = "narrow",
                                           .allocate = narrow_allocate,
                                           .deallocate = narrow_deallocate,
                                           .upstream = narrow_upstream,
                                           .destroy = narrow_destroy };
    weir_resource *upstream;
    memset(self, 0, sizeof *self);
    self->device = s->device;
    self->below = s->mr;
    must_ok(weir_resource_create(&ops, self, &upstream));
    must_ok(weir_checking_create(upstream, NULL, &self->mr));
    weir_resource_unref(upstream);
}

/* ---- in another's hands ---- */

static void trim(void *context)
{
    narrow *self = context;
    (void)weir_resource_trim_sync(self->mr, 0);
}

static void ask(void *context)
{
    narrow *self = context;
    must_ok(support_host_await(self->device, 1));
    give(self->mr, NULL, take(self->mr, NULL, 1000), 1000);
}

typedef struct role {
    void (*part)(void *context);
    narrow *self;
} role;

static void play(void *argument)
{
    const role *it = argument;
    it->part(it->self);
}

static void request_waits_for_what_is_on_its_way_upstream(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 10; i++) {
        scene s = scene_begin(support_seed(i), "pool/device");
        narrow self;
        narrow_begin(&self, &s);
        give(self.mr, NULL, take(self.mr, NULL, 1000), 1000);
        self.is_slow = true;
        role roles[] = { { trim, &self }, { ask, &self } };
        void *const arguments[] = { &roles[0], &roles[1] };
        must_ok(support_run_threads(s.device, 2, play, arguments));
        self.is_slow = false;
        must_equal(atomic_load(&self.refusals), 1);
        must_equal(statistics_of(self.mr).failures, 0);
        weir_resource_unref(self.mr);
        scene_end(&s);
    }
}

static void *trim_beside(void *argument)
{
    trim(argument);
    return NULL;
}

/* Who has it in hand may wait for who asks. */
static void request_does_not_wait_for_ever(void **state)
{
    (void)state;
    scene s = scene_begin(1, "pool/device");
    narrow self;
    void *none;
    pthread_t other;
    narrow_begin(&self, &s);
    give(self.mr, NULL, take(self.mr, NULL, 1000), 1000);
    self.is_stuck = true;
    must(sem_init(&self.is_begun, 0, 0) == 0 && sem_init(&self.may_end, 0, 0) == 0);
    must(pthread_create(&other, NULL, trim_beside, &self) == 0);
    must(sem_wait(&self.is_begun) == 0);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(self.mr, NULL, 1000, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    must(sem_post(&self.may_end) == 0);
    must(pthread_join(other, NULL) == 0);
    must(sem_destroy(&self.is_begun) == 0 && sem_destroy(&self.may_end) == 0);
    self.is_stuck = false;
    weir_resource_unref(self.mr);
    scene_end(&s);
}

/* ---- in its own ---- */

static void spoil(void *argument, void *const views[])
{
    (void)argument;
    *(unsigned char *)views[0] ^= 0xff;
}

/* Called while the block that it is about is in this thread's hands. */
static void ask_at_once(void *context, const weir_misuse *misuse)
{
    narrow *self = context;
    void *none;
    must_equal(misuse->kind, WEIR_MISUSE_USE_AFTER_FREE);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(self->mr, NULL, 1000, WEIR_ALIGNMENT, &none));
    must(none == NULL);
}

static void handler_does_not_wait_for_its_own_thread(void **state)
{
    (void)state;
    scene s = scene_begin(1, "pool/device");
    narrow self;
    narrow_begin(&self, &s);
    void *ptr = take(self.mr, NULL, 1000);
    give(self.mr, NULL, ptr, 1000);
    const weir_emulated_range range = { ptr, 1, WEIR_EMULATED_READ_WRITE };
    must_ok(weir_emulated_launch(s.device, NULL, spoil, NULL, &range, 1));
    must_ok(weir_device_sync(s.device));
    weir_set_misuse_handler(ask_at_once, &self);
    (void)weir_resource_trim_sync(self.mr, 0);
    weir_set_misuse_handler(NULL, NULL);
    must_equal(atomic_load(&self.refusals), 1);
    give(self.mr, NULL, take(self.mr, NULL, 1000), 1000);
    weir_resource_unref(self.mr);
    weir_resource_unref(s.mr);
    end_stream(s.device, s.a);
    end_stream(s.device, s.b);
    close_anyhow(s.device); /* which has seen the write, too */
}

/* ---- what is still at work ---- */

/* It is waited for, and so looked at. */
static void trim_looks_at_what_is_still_at_work(void **state)
{
    (void)state;
    scene s = scene_begin(4, "checking/pool/device");
    weir_checking_statistics now = { .struct_size = sizeof now };
    void *ptr = take(s.mr, s.a, 1000);
    stamp(s.device, s.a, ptr, 1000, 1);
    give(s.mr, s.a, ptr, 1000);
    (void)weir_resource_trim_sync(s.mr, 0);
    must_ok(weir_checking_get_statistics(s.mr, &now));
    must_equal(now.quarantine_blocks, 0);
    must_equal(now.not_checked, 0);
    scene_end(&s);
}

/* ---- never enough ---- */

/* There is always something more that goes upstream, and it never helps. */
static void request_that_is_always_too_late_is_refused(void **state)
{
    (void)state;
    scene s = scene_begin(2, "pool/device");
    narrow self;
    void *none;
    narrow_begin(&self, &s);
    for (int i = 0; i < WEIR__DRAWS_MOST + 10; i++) {
        atomic_store(&self.is_out, false);
        self.ptrs[i] = take(self.mr, s.a, 1);
    }
    self.count = WEIR__DRAWS_MOST + 10;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(self.mr, s.a, 1000, WEIR_ALIGNMENT, &none));
    must(none == NULL);
    must_equal(self.count, 9);
    while (self.count > 0)
        give(self.mr, s.a, self.ptrs[--self.count], 1);
    weir_resource_unref(self.mr);
    scene_end(&s);
}

/* ---- what a refusal says ---- */

static void must_report(size_t bytes, const char *words)
{
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, bytes);
    assert_string_equal(report.resource, "checking");
    must(strstr(weir_last_error().message, words) != NULL);
}

/* Upstream was asked for the guards, too. */
static void refusal_says_what_was_asked_for(void **state)
{
    (void)state;
    scene s = scene_begin(3, "checking/limiting(1MiB)/growable(pages_only)");
    weir_out_of_memory report = { .struct_size = sizeof report };
    void *ptr = take(s.mr, s.a, 1000), *none;
    must_answer(WEIR_LIMIT_REACHED,
                weir_allocate(s.mr, s.a, MIB - 2000, WEIR_ALIGNMENT, &none));
    must_report(MIB - 2000, "checking has no 1046576 bytes: 1512 held (limit 1048576)");
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.largest_free_bytes, MIB - 1512 - 512);
    must_answer(WEIR_LIMIT_REACHED, weir_resource_extend(s.mr, s.a, ptr, 1000,
                                                         WEIR_ALIGNMENT, MIB));
    must_report(MIB, "checking has no 1048576 bytes");
    give(s.mr, s.a, ptr, 1000);
    scene_end(&s);

    /* Who says it in his own words has no report to rewrite. */
    s = scene_begin(3, "pool/device");
    narrow self;
    narrow_begin(&self, &s);
    atomic_store(&self.is_out, true);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_allocate(self.mr, s.a, 1000, WEIR_ALIGNMENT, &none));
    must(strstr(weir_last_error().message, "one at a time") != NULL);
    weir_resource_unref(self.mr);
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(request_waits_for_what_is_on_its_way_upstream),
        cmocka_unit_test(request_does_not_wait_for_ever),
        cmocka_unit_test(handler_does_not_wait_for_its_own_thread),
        cmocka_unit_test(trim_looks_at_what_is_still_at_work),
        cmocka_unit_test(request_that_is_always_too_late_is_refused),
        cmocka_unit_test(refusal_says_what_was_asked_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
