/* model_arena.c - random programs over arenas: which one a stream has, and threads that
 * begin and end, whose blocks others give back. */
#include "support_pool.h"

#include "arena_parts.h"
#include "internal.h"

static weir_resource *open_arena(weir_resource *upstream, size_t limit_bytes)
{
    weir_arena_options options = WEIR_ARENA_OPTIONS_INIT;
    options.limit_bytes = limit_bytes;
    weir_resource *mr;
    must_ok(weir_arena_create(upstream, &options, &mr));
    weir_resource_unref(upstream);
    return mr;
}

/* ---- which arena a stream has ---- */

/* More streams than slots, and ends of streams in any order: found as long as there is
 * a slot, and gone when it was told. */
static void streams_are_bound_and_let_go(void **state)
{
    (void)state;
    enum { MOST = 12 };
    uint64_t runs = support_bound("programs of streams and arenas", 20, 400);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t random = support_seed(run);
        weir_device *device = open_stepped(random);
        weir_stream streams[MOST];
        bool is_bound[MOST] = { false };
        size_t count = 0;
        weir__arena_streams *it = weir__host_alloc(sizeof *it);
        must(it != NULL && weir__arena_streams_init(it, device->order, 3));
        for (int i = 0; i < MOST; i++)
            streams[i] = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        for (int step = 0; step < 200; step++) {
            size_t at = support_random_below(&random, MOST);
            if (support_random_below(&random, 2) == 0) {
                must(weir__arena_streams_find(it, streams[at]) < 3);
                if (!is_bound[at] && count < WEIR__STREAM_SLOTS_USED) {
                    is_bound[at] = true;
                    count++;
                }
            } else {
                uint32_t arena, bound = it->used;
                (void)weir__arena_streams_drop(it, streams[at], &arena);
                must_equal(bound - it->used, is_bound[at]);
                count -= is_bound[at];
                is_bound[at] = false;
            }
            must_equal(it->used, count);
            weir__arena_streams_verify(it);
        }
        weir__arena_streams_close(it);
        weir__host_free(it);
        for (int i = 0; i < MOST; i++)
            end_stream(device, streams[i]);
        close_emulated(device);
    }
}

/* ---- threads ---- */

typedef struct worker {
    pool_scene *it;
    weir_stream stream;
    void *blocks[8];
} worker;

static void work(void *argument)
{
    worker *self = argument;
    pool_scene *it = self->it;
    for (int i = 0; i < 8; i++) {
        self->blocks[i] = take(it->pool, self->stream, (size_t)1000 << (i % 4));
        stamp(it->device, self->stream, self->blocks[i], (size_t)1000 << (i % 4),
              (uintptr_t)self->blocks[i]);
    }
    for (int i = 0; i < 4; i++) {
        check_stamp(it->device, self->stream, self->blocks[i], (size_t)1000 << (i % 4),
                    (uintptr_t)self->blocks[i]);
        give(it->pool, self->stream, self->blocks[i], (size_t)1000 << (i % 4));
    }
}

/* Threads that end leave what they had to those that come; what they have left out
 * others give back, on another stream. */
static void threads_that_end_strand_nothing(void **state)
{
    (void)state;
    uint64_t runs = support_bound("programs of threads and arenas", 10, 200);
    for (uint64_t run = 0; run < runs; run++) {
        (void)support_seed(run);
        pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 128 * MIB);
        it.pool = open_arena(open_leaf(it.device), 6 * (256 * KIB));
        for (int round = 0; round < 6; round++) {
            worker workers[3];
            void *arguments[3];
            for (int i = 0; i < 3; i++) {
                workers[i] = (worker){ .it = &it,
                                       .stream = i < 2 ? WEIR_STREAM_PER_THREAD
                                                       : it.streams[0] };
                arguments[i] = &workers[i];
            }
            must_ok(weir_emulated_run_threads(it.device, 3, work, arguments));
            must_ok(weir_device_sync(it.device));
            for (int i = 0; i < 3; i++)
                for (int j = 4; j < 8; j++)
                    give_on(&it, 1 + i, workers[i].blocks[j], (size_t)1000 << (j % 4));
        }
        must_equal(statistics_of(it.pool).out_blocks, 0);
        must_ok(weir_device_sync(it.device));
        void *all = take_on(&it, 3, 6 * (256 * KIB));
        give_on(&it, 3, all, 6 * (256 * KIB));
        close_scene(&it);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_are_bound_and_let_go),
        cmocka_unit_test(threads_that_end_strand_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
