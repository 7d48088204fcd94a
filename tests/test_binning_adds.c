/* test_binning_adds.c - bins are added while blocks are out, by one thread and by many:
 * each block goes back to where it came from. */
#include "support_pool.h"

static weir_resource *open_bins(weir_resource *upstream, uint32_t min, uint32_t max)
{
    const weir_binning_options options = { sizeof options, min, max };
    weir_resource *mr;
    must_ok(weir_binning_create(upstream, &options, &mr));
    weir_resource_unref(upstream);
    return mr;
}

static weir_resource *other_pool(weir_device *device)
{
    weir_resource *mr;
    must_ok(weir_resource_open(device, "pool(growth=1MiB)/device", &mr));
    return mr;
}

/* One block of each size is out before, between and after the additions of bins, and
 * all go back in a random order, in all three ways: each to where it came from. */
typedef struct traveller {
    void *ptr;
    size_t bytes;
    int stream;
} traveller;

static void give_somehow(pool_scene *it, const traveller *one, uint64_t *random)
{
    weir_stream stream = it->streams[one->stream];
    weir_point point;
    check_stamp(it->device, stream, one->ptr, one->bytes, (uintptr_t)one->ptr);
    switch (support_random_below(random, 3)) {
    case 0:
        must(weir_free(it->pool, one->ptr));
        break;
    case 1:
        must_ok(weir_point_here(it->device, stream, &point));
        must(weir_deallocate_after(it->pool, one->ptr, one->bytes, WEIR_ALIGNMENT,
                                   &point, 1));
        break;
    default:
        give(it->pool, stream, one->ptr, one->bytes);
        break;
    }
}

static void blocks_go_back_to_where_they_came_from(void **state)
{
    (void)state;
    enum { MOST = 120 };
    uint64_t runs = support_bound("programs that add bins", 60, 1000);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t random = support_seed(run);
        pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
        weir_resource *others[3], *below = other_pool(it.device);
        bool is_over_pool = support_random_below(&random, 2) == 0;
        it.pool = open_bins(is_over_pool ? weir_resource_ref(below)
                                         : open_leaf(it.device),
                            is_over_pool ? 11 : WEIR_BINNING_NO_RANGE,
                            is_over_pool ? 12 : 0);
        /* Of these one is upstream itself, and one draws from where upstream does. */
        others[0] = weir_resource_ref(below);
        must_ok(weir_resource_open(it.device, "pool/device", &others[1]));
        must_ok(weir_pool_create(below, NULL, &others[2]));
        traveller out[MOST];
        size_t count = 0;
        for (int step = 0; step < 150; step++) {
            uint64_t what = support_random_below(&random, 100);
            if (what < 8) {
                size_t which = (size_t)support_random_below(&random, 6);
                weir_resource *bin = which < 3 ? others[which] : NULL;
                size_t bytes = support_random_between(&random, 1, 6000);
                weir_status status = weir_binning_add(it.pool, bytes, bin);
                must(status == WEIR_OK || status == WEIR_INVALID_ARGUMENT);
            } else if (count < MOST && what < 58) {
                traveller *one = &out[count++];
                one->bytes = support_random_between(&random, 1, 6000);
                one->stream = (int)support_random_below(&random, STREAMS);
                one->ptr = take_on(&it, one->stream, one->bytes);
                for (size_t i = 0; i + 1 < count; i++)
                    must((char *)out[i].ptr + out[i].bytes <= (char *)one->ptr ||
                         (char *)one->ptr + one->bytes <= (char *)out[i].ptr);
            } else if (count > 0) {
                size_t which = (size_t)support_random_below(&random, count);
                give_somehow(&it, &out[which], &random);
                out[which] = out[--count];
            }
            must_equal(statistics_of(it.pool).out_blocks, count);
        }
        while (count > 0)
            give_somehow(&it, &out[--count], &random);
        must_equal(statistics_of(it.pool).out_bytes, 0);
        (void)weir_resource_trim_sync(it.pool, 0);
        must_equal(statistics_of(it.pool).held_bytes, 0);
        weir_resource_unref(it.pool);
        it.pool = NULL;
        for (int i = 2; i >= 0; i--) { /* what draws from the first goes before it */
            must_equal(statistics_of(others[i]).out_blocks, 0);
            weir_resource_unref(others[i]);
        }
        weir_resource_unref(below);
        close_scene(&it);
    }
}

/* An adaptor answers for all that its upstream knows, and a pool over a growable for
 * that one's blocks: neither can tell whose block it is that comes back. Each is added
 * over upstream itself while a block of upstream's is out, and one of its own. */
typedef struct over_upstream {
    const char *upstream;
    weir_status (*make)(weir_resource *upstream, weir_resource **out);
} over_upstream;

static weir_status make_limiting(weir_resource *upstream, weir_resource **out)
{
    return weir_limiting_create(upstream, MIB, out);
}

static weir_status make_pool(weir_resource *upstream, weir_resource **out)
{
    return weir_pool_create(upstream, NULL, out);
}

static void a_bin_over_upstream_gets_its_own_only(void **state)
{
    (void)state;
    static const over_upstream cases[] = {
        { "pool/device", make_limiting },
        { "pool/device", weir_statistics_create },
        { "growable", make_pool },
        { "growable", make_limiting },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        (void)support_seed(1);
        pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 256 * MIB);
        weir_resource *upstream, *first, *second;
        must_ok(weir_resource_open(it.device, cases[i].upstream, &upstream));
        must_ok(cases[i].make(upstream, &first));
        must_ok(cases[i].make(upstream, &second));
        it.pool = open_bins(upstream, WEIR_BINNING_NO_RANGE, 0);
        void *of_upstream = take_on(&it, 0, 1000);
        must_ok(weir_binning_add(it.pool, 2000, first));
        void *of_first = take_on(&it, 1, 1000);
        must_ok(weir_binning_add(it.pool, 1000, second));
        void *of_second = take_on(&it, 2, 1000);
        void *const all[] = { of_upstream, of_first, of_second };
        for (int j = 0; j < 3; j++) {
            weir_block found = { .struct_size = sizeof found };
            must_ok(weir_resource_find(it.pool, all[j], &found));
            must(found.ptr == all[j] && found.bytes == 1000);
            give_on(&it, j, all[j], 1000);
            must_equal(statistics_of(it.pool).out_blocks, 2 - j);
        }
        must_equal(statistics_of(it.pool).out_bytes, 0);
        weir_resource_unref(it.pool);
        it.pool = NULL;
        weir_resource_unref(first); /* neither has anything out */
        weir_resource_unref(second);
        close_scene(&it);
    }
}

/* ---- threads ---- */

enum { THREADS = 4, ROUNDS = 60 };

typedef struct worker {
    weir_device *device;
    weir_resource *mr;
    weir_stream stream;
    uint64_t random;
    weir_resource *bin; /* that it adds, or null */
} worker;

/* Allocates, adds bins below the sizes of what is out, and gives back. */
static void work(void *argument)
{
    worker *self = argument;
    enum { MOST = 16 };
    traveller out[MOST];
    size_t count = 0;
    for (int i = 0; i < ROUNDS; i++) {
        uint64_t what = support_random_below(&self->random, 100);
        if (what < 15) {
            size_t bytes = support_random_between(&self->random, 1, 8 * KIB);
            weir_status status = weir_binning_add(
                self->mr, bytes, what < 5 ? self->bin : NULL);
            must(status == WEIR_OK || status == WEIR_INVALID_ARGUMENT);
        } else if (count < MOST && what < 65) {
            traveller *one = &out[count++];
            one->bytes = support_random_between(&self->random, 1, 10 * KIB);
            one->ptr = take(self->mr, self->stream, one->bytes);
            stamp(self->device, self->stream, one->ptr, one->bytes,
                  (uintptr_t)one->ptr);
        } else if (count > 0) {
            size_t which = (size_t)support_random_below(&self->random, count);
            check_stamp(self->device, self->stream, out[which].ptr, out[which].bytes,
                        (uintptr_t)out[which].ptr);
            give(self->mr, self->stream, out[which].ptr, out[which].bytes);
            out[which] = out[--count];
        }
    }
    while (count > 0) {
        count--;
        check_stamp(self->device, self->stream, out[count].ptr, out[count].bytes,
                    (uintptr_t)out[count].ptr);
        give(self->mr, self->stream, out[count].ptr, out[count].bytes);
    }
}

static void run_workers(weir_emulated_scheduler scheduler, uint64_t seed)
{
    pool_scene it = open_scene_without_pool(scheduler, 256 * MIB);
    weir_resource *other = other_pool(it.device);
    it.pool = open_bins(other_pool(it.device), 12, 13);
    worker workers[THREADS];
    void *arguments[THREADS];
    for (int i = 0; i < THREADS; i++) {
        workers[i] = (worker){ it.device, it.pool, it.streams[i],
                               seed * THREADS + (uint64_t)i, other };
        arguments[i] = &workers[i];
    }
    must_ok(support_run_threads(it.device, THREADS, work, arguments));
    weir_resource_statistics now = statistics_of(it.pool);
    must_equal(now.out_blocks, 0);
    must_equal(now.out_bytes, 0);
    must_equal(now.allocations, now.deallocations);
    must_equal(statistics_of(other).out_blocks, 0);
    weir_resource_unref(other);
    close_scene(&it);
}

static void bins_are_added_by_turns(void **state)
{
    (void)state;
    uint64_t runs = support_bound("threads that add bins by turns", 30, 500);
    for (uint64_t run = 0; run < runs; run++)
        run_workers(WEIR_EMULATED_STEPPED, support_seed(run));
}

static void bins_are_added_side_by_side(void **state)
{
    (void)state;
    uint64_t runs = support_bound("threads that add bins side by side", 10, 200);
    for (uint64_t run = 0; run < runs; run++)
        run_workers(WEIR_EMULATED_THREADS, support_seed(run));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_go_back_to_where_they_came_from),
        cmocka_unit_test(a_bin_over_upstream_gets_its_own_only),
        cmocka_unit_test(bins_are_added_by_turns),
        cmocka_unit_test(bins_are_added_side_by_side),
    };
#ifdef WEIR_SANITIZE_THREAD /* which sees nothing where threads take turns */
    cmocka_set_test_filter("bins_are_added_side_by_side");
#endif
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
