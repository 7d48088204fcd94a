/* test_fallback.c - what one resource has no room for another gives, and each gets back
 * what it gave: also where both draw from one pool, and addresses change hands. */
#include "support.h"

#include <string.h>

#include "internal.h"
#include "support_roomy.h"
#include "weir/fallback.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/resource_ops.h"
#include "weir/statistics.h"

/* A fallback, and the two it asks, each with numbers of its own. */
typedef struct couple {
    weir_device *device;
    weir_resource *primary, *alternate, *mr;
} couple;

static couple couple_open(weir_device *device, const char *primary,
                          const char *alternate)
{
    couple it = { .device = device };
    must_ok(weir_resource_open(device, primary, &it.primary));
    must_ok(weir_resource_open(device, alternate, &it.alternate));
    must_ok(weir_fallback_create(it.primary, it.alternate, &it.mr));
    return it;
}

static void couple_end(couple *it)
{
    weir_resource_unref(it->mr);
    must_equal(statistics_of(it->primary).out_blocks, 0);
    must_equal(statistics_of(it->alternate).out_blocks, 0);
    weir_resource_unref(it->primary);
    weir_resource_unref(it->alternate);
}

static void must_be_out(const couple *it, size_t of_primary, size_t of_alternate)
{
    must_equal(statistics_of(it->primary).out_bytes, of_primary);
    must_equal(statistics_of(it->alternate).out_bytes, of_alternate);
    must_equal(statistics_of(it->mr).out_bytes, of_primary + of_alternate);
}

/* What comes back on a stream that has ended waits for the device, in either. */
static void what_either_has_set_aside_is_told(void **state)
{
    (void)state;
    static const char *const specs[] = { "device", "limiting(1000)/device" };
    for (int i = 0; i < 2; i++) {
        weir_device *device = open_stepped(support_seed(1));
        couple it = couple_open(device, specs[i], "pinned");
        weir_stream gone = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        void *ptr = take(it.mr, gone, 2000);
        end_stream(device, gone);
        give(it.mr, gone, ptr, 2000);
        must_equal(statistics_of(i ? it.alternate : it.primary).set_aside_bytes, 2000);
        must_equal(statistics_of(it.mr).set_aside_bytes, 2000);
        couple_end(&it);
        close_emulated(device);
    }
}

/* ---- who is asked ---- */

static void what_primary_has_no_room_for_comes_from_the_alternate(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    couple it = couple_open(device, "limiting(1000)/device", "pinned");
    weir_stream stream = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *first = take(it.mr, NULL, 1000), *second = take(it.mr, NULL, 1);
    must_be_out(&it, 1000, 1);
    void *third = take(it.mr, NULL, 500), *fourth = take(it.mr, stream, 600);
    must_be_out(&it, 1000, 1101);

    weir_block block = { .struct_size = sizeof block };
    must_ok(weir_resource_find(it.mr, fourth, &block));
    must(block.ptr == fourth && block.bytes == 600 && block.stream == stream);
    must(block.alignment == WEIR_ALIGNMENT);
    must_ok(weir_resource_find(it.mr, first, &block));
    must(block.ptr == first && block.bytes == 1000);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(it.mr, &it, &block));

    give(it.mr, NULL, first, 1000);
    must_be_out(&it, 0, 1101);
    first = take(it.mr, NULL, 1000);
    must_be_out(&it, 1000, 1101); /* the primary is asked first, each time */
    give(it.mr, NULL, second, 1);
    weir_point point;
    must_ok(weir_point_here(device, NULL, &point));
    must(weir_deallocate_after(it.mr, third, 500, WEIR_ALIGNMENT, &point, 1));
    must_be_out(&it, 1000, 600);
    must(weir_free(it.mr, fourth));
    must(weir_deallocate_after(it.mr, first, 1000, WEIR_ALIGNMENT, &point, 1));
    must_be_out(&it, 0, 0);
    must_equal(statistics_of(it.mr).allocations, 5);
    must_equal(statistics_of(it.mr).failures, 0);
    end_stream(device, stream);
    couple_end(&it);
    close_emulated(device);
}

static void other_answers_of_the_primary_stand(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    couple it = couple_open(device, "device", "pinned");
    void *ptr = &it;
    plan_fault(device, "malloc", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(it.mr, NULL, 100, 8, &ptr));
    must(ptr == NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(it.mr, NULL, 100, 512, &ptr));
    weir__host_fail_at(1, false);
    must_answer(WEIR_OUT_OF_HOST_MEMORY, weir_allocate(it.mr, NULL, 100, 8, &ptr));
    weir__host_fail_at(0, false);
    must_equal(statistics_of(it.alternate).allocations, 0);
    must_equal(statistics_of(it.alternate).failures, 0);
    must_equal(statistics_of(it.mr).failures, 2); /* what cannot be is not asked */
    must_be_out(&it, 0, 0);
    couple_end(&it);
    close_emulated(device);
}

static void both_are_named_where_both_refuse(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    couple it = couple_open(device, "limiting(1000)/device", "limiting(2000)/pinned");
    void *a = take(it.mr, NULL, 700), *b = take(it.mr, NULL, 1500), *none = &it;
    must_answer(WEIR_LIMIT_REACHED, weir_allocate(it.mr, NULL, 501, 8, &none));
    must(none == NULL);
    must(strncmp(weir_last_error().message, "fallback: ", 10) == 0);
    must(strstr(weir_last_error().message, "limit 1000") != NULL);
    must(strstr(weir_last_error().message, "limit 2000") != NULL);
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.limit_bytes, 2000);
    must_equal(report.requested_bytes, 501);
    must_equal(statistics_of(it.mr).failures, 1);
    must_be_out(&it, 700, 1500);

    /* What the alternate answers otherwise stands as it is. */
    plan_fault(device, "pinned_malloc", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(it.mr, NULL, 500, 8, &none));
    must(strncmp(weir_last_error().message, "fallback: ", 10) != 0);
    must_be_out(&it, 700, 1500);
    give(it.mr, NULL, a, 700);
    give(it.mr, NULL, b, 1500);
    couple_end(&it);
    close_emulated(device);
}

static void three_can_be_asked(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    weir_resource *mr;
    must_ok(weir_resource_open(device,
                               "fallback(\"fallback(system)/limiting(200)/pinned\")/"
                               "limiting(100)/device", &mr));
    void *out[3] = { take(mr, NULL, 100), take(mr, NULL, 200), take(mr, NULL, 300) };
    weir_resource_statistics now = statistics_of(mr);
    must(now.out_bytes == 600 && now.peak_out_bytes == 600 && now.failures == 0);
    for (size_t i = 0; i < 3; i++)
        give(mr, NULL, out[i], (i + 1) * 100);
    must_equal(statistics_of(mr).out_blocks, 0);
    weir_resource_unref(mr);
    close_emulated(device);
}

/* ---- misuse, ends ---- */

static void misuse_of_either_changes_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    couple it = couple_open(device, "limiting(1000)/device", "pinned");
    void *out[2] = { take(it.mr, NULL, 1000), take(it.mr, NULL, 1000) };
    misuse_log log;
    misuse_begin(&log);
    for (size_t i = 0; i < 2; i++) {
        must(!weir_deallocate(it.mr, NULL, out[i], 999, WEIR_ALIGNMENT));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, out[i]);
        must(!weir_deallocate(it.mr, NULL, out[i], 1000, 8));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, out[i]);
        must(!weir_deallocate_after(it.mr, out[i], 2, WEIR_ALIGNMENT, NULL, 0));
        must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, out[i]);
    }
    must_be_out(&it, 1000, 1000);
    for (size_t i = 0; i < 2; i++) {
        give(it.mr, NULL, out[i], 1000);
        must(!weir_deallocate(it.mr, NULL, out[i], 1000, WEIR_ALIGNMENT));
        must_equal(log.count, 1);
        misuse_begin(&log);
        must(!weir_free(it.mr, out[i]));
        must_equal(log.count, 1);
        misuse_begin(&log);
    }
    misuse_end();
    must_be_out(&it, 0, 0);
    couple_end(&it);
    close_emulated(device);
}

/* The alternate finds what the records cannot: that it has the block back already. It
 * stays out here then, and can be given back once it is out there. */
static void block_that_the_alternate_refuses_stays_out(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    couple it = couple_open(device, "limiting(1)/system", "device");
    void *ptr = take(it.mr, NULL, 1000);
    give(it.alternate, NULL, ptr, 1000); /* behind its back */
    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(it.mr, NULL, ptr, 1000, WEIR_ALIGNMENT));
    must_equal(log.count, 1);
    must(!weir_deallocate_after(it.mr, ptr, 1000, WEIR_ALIGNMENT, NULL, 0));
    must_equal(log.count, 2);
    misuse_end();
    (void)weir_resource_trim_sync(it.alternate, 0);
    must(take(it.alternate, NULL, 1000) == ptr); /* the emulated device reuses it */
    give(it.mr, NULL, ptr, 1000);
    must_be_out(&it, 0, 0);
    couple_end(&it);
    close_emulated(device);
}

static void parts_may_go_in_any_order(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7));
    for (int order = 0; order < 6; order++) {
        couple it = couple_open(device, "limiting(1000)/pool/device", "pool/pinned");
        void *a = take(it.mr, NULL, 1000), *b = take(it.mr, NULL, 1000);
        weir_resource *parts[3] = { it.primary, it.alternate, it.mr };
        static const int orders[6][3] = { { 0, 1, 2 }, { 0, 2, 1 }, { 1, 0, 2 },
                                          { 1, 2, 0 }, { 2, 0, 1 }, { 2, 1, 0 } };
        for (int i = 0; i < 3; i++)
            weir_resource_unref(parts[orders[order][i]]);
        give(it.mr, NULL, order % 2 == 0 ? a : b, 1000);
        give(it.mr, NULL, order % 2 == 0 ? b : a, 1000);
        must_hold_nothing(device);
    }
    close_emulated(device);
}

/* ---- what both can ---- */

static weir_resource_properties properties_of(weir_resource *mr)
{
    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(mr, &properties));
    return properties;
}

static void properties_are_what_both_promise(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8));
    couple it = couple_open(device, "system", "pinned");
    weir_resource_properties both = properties_of(it.mr);
    assert_string_equal(both.name, "fallback");
    assert_string_equal(both.leaf, "system");
    must(both.device == device && both.device_accessible && both.host_accessible);
    must(!both.pinned && !both.managed && both.usable_at_once);
    must(both.can_find && both.can_trim && !both.can_extend);
    must_equal(both.max_alignment, 4096);
    couple_end(&it);

    it = couple_open(device, "device", "pool/pinned");
    both = properties_of(it.mr);
    must(both.device_accessible && !both.host_accessible && !both.usable_at_once);
    must_equal(both.max_alignment, WEIR_ALIGNMENT);
    couple_end(&it);

    it = couple_open(device, "managed", "managed");
    must(properties_of(it.mr).managed);
    couple_end(&it);
    it = couple_open(device, "shareable", "shareable");
    must_equal(properties_of(it.mr).share_kind, WEIR_SHARE_FD);
    couple_end(&it);
    it = couple_open(device, "shareable", "device");
    must_equal(properties_of(it.mr).share_kind, WEIR_SHARE_NONE);
    couple_end(&it);
    close_emulated(device);
}

static void trim_asks_both_and_shares_what_may_stay(void **state)
{
    (void)state;
    const size_t mib = (size_t)1 << 20;
    weir_device *device = open_stepped(support_seed(9));
    couple it = couple_open(device, "pool(limit=8MiB, growth=1MiB)/device",
                            "pool(growth=1MiB)/device");
    void *out[12];
    for (size_t i = 0; i < 12; i++)
        out[i] = take(it.mr, NULL, mib);
    must_equal(statistics_of(it.alternate).held_bytes, 4 * mib);
    for (size_t i = 0; i < 12; i++)
        give(it.mr, NULL, out[i], mib);
    must_equal(weir_resource_trim_sync(it.mr, 10 * mib), 2 * mib);
    must_equal(statistics_of(it.primary).held_bytes, 8 * mib);
    must_equal(statistics_of(it.alternate).held_bytes, 2 * mib);
    must_equal(weir_resource_trim_sync(it.mr, 3 * mib), 7 * mib);
    must_equal(statistics_of(it.primary).held_bytes, 3 * mib);
    must_equal(statistics_of(it.alternate).held_bytes, 0);
    must(statistics_of(it.mr).largest_free_bytes >= mib); /* the larger one's */
    must_equal(weir_resource_trim_sync(it.mr, 0), 3 * mib);
    must_hold_nothing(device);
    couple_end(&it);
    close_emulated(device);
}

/* Neither numbers nor records of its blocks. */
static weir_status plain_allocate(void *self, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    return weir_allocate(self, stream, bytes, alignment, out);
}

static bool plain_deallocate(void *self, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    return weir_deallocate(self, stream, ptr, bytes, alignment);
}

static void plain_properties(void *self, weir_resource_properties *out)
{
    out->device = weir_resource_device(self);
    out->device_accessible = true;
}

static void plain_destroy(void *self)
{
    weir_resource_unref(self);
}

static weir_resource *plain_open(weir_device *device)
{
    static const weir_resource_ops ops = { .struct_size = sizeof ops, .name = "plain",
                                           .allocate = plain_allocate,
                                           .deallocate = plain_deallocate,
                                           .properties = plain_properties,
                                           .destroy = plain_destroy };
    weir_resource *below, *mr;
    must_ok(weir_resource_open(device, "limiting(1000)/device", &below));
    must_ok(weir_resource_create(&ops, below, &mr));
    return mr;
}

static void what_one_does_not_know_is_not_told_for_both(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(10));
    weir_resource *plain = plain_open(device), *pinned, *mr, *above;
    must_ok(weir_resource_open(device, "pinned", &pinned));
    for (int turn = 0; turn < 2; turn++) {
        must_ok(turn == 0 ? weir_fallback_create(plain, pinned, &mr)
                          : weir_fallback_create(pinned, plain, &mr));
        must_ok(weir_limiting_create(mr, 5000, &above)); /* passes all on */
        void *a = take(above, NULL, 1000), *b = take(above, NULL, 1000);
        must(!properties_of(above).can_find);
        weir_block block = { .struct_size = sizeof block };
        must_answer(WEIR_NOT_SUPPORTED, weir_resource_find(above, b, &block));
        weir_resource_statistics now = { .struct_size = sizeof now };
        must_answer(WEIR_NOT_SUPPORTED, weir_resource_get_statistics(above, &now));
        give(above, NULL, a, 1000);
        give(above, NULL, b, 1000);
        (void)weir_resource_trim_sync(above, 0);
        weir_resource_unref(above);
        weir_resource_unref(mr);
    }
    weir_resource_unref(plain);
    weir_resource_unref(pinned);
    must_hold_nothing(device);
    close_emulated(device);
}

static void blocks_are_extended_where_they_lie(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(11));
    weir_resource *pool, *mr, *limited;
    must_ok(weir_resource_open(device, "pool/device", &pool));
    roomy first, second;
    weir_resource *primary = roomy_open(&first, pool, 4096);
    weir_resource *alternate = roomy_open(&second, pool, 16384);
    must_ok(weir_limiting_create(pool, 100, &limited));
    must_ok(weir_fallback_create(primary, alternate, &mr));
    must(properties_of(mr).can_extend);

    void *a = take(mr, NULL, 4000), *b = take(mr, NULL, 5000);
    must_ok(weir_resource_extend(mr, NULL, a, 4000, WEIR_ALIGNMENT, 4096));
    must_ok(weir_resource_extend(mr, NULL, b, 5000, WEIR_ALIGNMENT, 16384));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(mr, NULL, a, 4096, WEIR_ALIGNMENT, 4097));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(mr, NULL, b, 16384, WEIR_ALIGNMENT, 16385));
    must_equal(first.extensions + second.extensions * 16, 17);
    must_equal(first.refusals + second.refusals * 16, 17);
    must_equal(first.out_bytes, 4096);
    must_equal(second.out_bytes, 16384);
    give(mr, NULL, b, 16384);
    give(mr, NULL, a, 4096);
    must_equal(first.out_blocks + second.out_blocks, 0);
    weir_resource_unref(mr);

    /* Where one of them can: the other says no. */
    must_ok(weir_fallback_create(limited, alternate, &mr));
    must(properties_of(mr).can_extend);
    a = take(mr, NULL, 50);
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_extend(mr, NULL, a, 50, WEIR_ALIGNMENT, 60));
    b = take(mr, NULL, 200);
    must_ok(weir_resource_extend(mr, NULL, b, 200, WEIR_ALIGNMENT, 300));
    give(mr, NULL, a, 50);
    give(mr, NULL, b, 300);
    weir_resource_unref(mr);
    weir_resource_unref(limited);
    weir_resource_unref(primary);
    weir_resource_unref(alternate);
    weir_resource_unref(pool);
    close_emulated(device);
}

/* ---- addresses that change hands ---- */

#define THREADS 3
#define HELD    8
#define BYTES   ((size_t)1000)
#define ROOM    (6 * BYTES) /* of the primary's */

typedef struct worker {
    const couple *it;
    weir_stream stream;
    uint64_t random;
    int steps;
    void *ptr[HELD];
    uint64_t key[HELD];
} worker;

static void give_one(worker *self, size_t slot)
{
    const couple *it = self->it;
    void *ptr = self->ptr[slot];
    check_stamp(it->device, self->stream, ptr, BYTES, self->key[slot]);
    if (support_random_below(&self->random, 3) == 0) {
        weir_point point;
        must_ok(weir_point_here(it->device, self->stream, &point));
        must(weir_deallocate_after(it->mr, ptr, BYTES, WEIR_ALIGNMENT, &point, 1));
    } else {
        give(it->mr, self->stream, ptr, BYTES);
    }
    self->ptr[slot] = NULL;
}

static void take_and_give(void *argument)
{
    worker *self = argument;
    const couple *it = self->it;
    for (int i = 0; i < self->steps; i++) {
        size_t slot = (size_t)support_random_below(&self->random, HELD);
        if (self->ptr[slot] != NULL) {
            give_one(self, slot);
            continue;
        }
        self->ptr[slot] = take(it->mr, self->stream, BYTES);
        self->key[slot] = support_random(&self->random);
        stamp(it->device, self->stream, self->ptr[slot], BYTES,
              self->key[slot]);
    }
    for (size_t slot = 0; slot < HELD; slot++) {
        if (self->ptr[slot] != NULL)
            give_one(self, slot);
    }
}

/* Both draw from one pool, so that a block of the one is soon a block of the other; a
 * block that goes back to the wrong one is counted back there, which both notice. All
 * are on one stream, or each thread on its own. */
static void run_workers(weir_device *device, uint64_t seed, int steps)
{
    weir_resource *pool, *limited;
    must_ok(weir_resource_open(device, "pool(cache=none)/device", &pool));
    couple it = { .device = device };
    must_ok(weir_limiting_create(pool, ROOM, &limited));
    must_ok(weir_statistics_create(limited, &it.primary));
    must_ok(weir_statistics_create(pool, &it.alternate));
    must_ok(weir_fallback_create(it.primary, it.alternate, &it.mr));
    worker workers[THREADS];
    void *arguments[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        workers[i] = (worker){ .it = &it, .random = seed * THREADS + i,
                               .stream = seed % 4 == 0 ? WEIR_STREAM_PER_THREAD : NULL,
                               .steps = steps };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(device, THREADS, take_and_give, arguments));
    must(statistics_of(it.primary).allocations > 0);
    must(statistics_of(it.alternate).allocations > 0);
    must_be_out(&it, 0, 0);
    void *all = take(limited, NULL, ROOM); /* nothing is left counted */
    give(limited, NULL, all, ROOM);
    couple_end(&it);
    weir_resource_unref(limited);
    weir_resource_unref(pool);
}

static void addresses_change_hands_between_both(void **state)
{
    (void)state;
    uint64_t seeds = support_bound("seeds of threads with a fallback", 20, 500);
    for (uint64_t i = 0; i < seeds; i++) {
        uint64_t seed = support_seed(i);
        weir_device *device = open_stepped(seed);
        run_workers(device, seed, 80);
        close_emulated(device);
    }
    weir_device *device = open_threads();
    run_workers(device, 1, (int)support_bound("rounds with a fallback", 300, 5000));
    close_emulated(device);
}

/* ---- making ---- */

static void create_refuses_what_makes_no_sense(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(12)), *other;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    couple it = couple_open(device, "device", "pinned");
    weir_resource *elsewhere, *mr = it.mr;
    must_answer(WEIR_INVALID_ARGUMENT, weir_fallback_create(NULL, it.alternate, &mr));
    must(mr == NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_fallback_create(it.primary, NULL, &mr));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_fallback_create(it.primary, it.alternate, NULL));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_fallback_create(it.primary, it.primary, &mr));
    if (!support_is_cuda()) {
        must_ok(weir_device_open("emulated:9", &options, &other));
        must_ok(weir_resource_open(other, "device", &elsewhere));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_fallback_create(it.primary, elsewhere, &mr));
        must(strstr(weir_last_error().message, "two devices") != NULL);
        weir_resource_unref(elsewhere);
        weir_device_unref(other);
    }
    couple_end(&it);
    close_emulated(device);
}

static void create_survives_every_host_failure(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(13));
    couple it = couple_open(device, "device", "pinned");
    weir_resource *mr = NULL;
    uint64_t failing;
    for (failing = 1; mr == NULL; failing++) {
        size_t live = weir__host_live();
        weir__host_fail_at(failing, false);
        weir_status status = weir_fallback_create(it.primary, it.alternate, &mr);
        weir__host_fail_at(0, false);
        if (status != WEIR_OK) {
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
            must_equal(weir__host_live(), live);
        }
    }
    must_equal(failing - 1, 4); /* three fail in turn, then none */
    weir_resource_unref(mr);
    couple_end(&it);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_either_has_set_aside_is_told),
        cmocka_unit_test(what_primary_has_no_room_for_comes_from_the_alternate),
        cmocka_unit_test(other_answers_of_the_primary_stand),
        cmocka_unit_test(both_are_named_where_both_refuse),
        cmocka_unit_test(three_can_be_asked),
        cmocka_unit_test(misuse_of_either_changes_nothing),
        cmocka_unit_test(block_that_the_alternate_refuses_stays_out),
        cmocka_unit_test(parts_may_go_in_any_order),
        cmocka_unit_test(properties_are_what_both_promise),
        cmocka_unit_test(trim_asks_both_and_shares_what_may_stay),
        cmocka_unit_test(what_one_does_not_know_is_not_told_for_both),
        cmocka_unit_test(blocks_are_extended_where_they_lie),
        cmocka_unit_test(addresses_change_hands_between_both),
        cmocka_unit_test(create_refuses_what_makes_no_sense),
        cmocka_unit_test(create_survives_every_host_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
