/* test_mempool.c - the emulated device's own pools: what is handed out again for whom,
 * what goes back when, handles, and what goes wrong. Chunks are 64 KiB in tests. */
#include <string.h>

#include "device/emulated.h"
#include "internal.h"
#include "support_work.h"

#define CHUNK ((size_t)64 << 10)
#define EVERYTHING SIZE_MAX

#define SAME     WEIR_ASYNC_REUSE_SAME_STREAM
#define EVENTS   WEIR_ASYNC_REUSE_EVENTS
#define CHANCE   WEIR_ASYNC_REUSE_OPPORTUNISTIC
#define INTERNAL WEIR_ASYNC_REUSE_INTERNAL

static weir_mempool make_pool(weir_device *device, uint32_t reuse, size_t threshold)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.reuse = reuse;
    options.release_threshold_bytes = threshold;
    weir_mempool pool;
    must_ok(weir__mempool_create(device, &options, &pool));
    return pool;
}

static void end_pool(weir_device *device, weir_mempool pool)
{
    must_ok(weir__mempool_destroy(device, pool));
}

static void *draw(weir_device *device, weir_mempool pool, weir_stream stream,
                  size_t bytes)
{
    void *ptr;
    must_ok(weir__mempool_malloc(device, pool, stream, bytes, &ptr));
    return ptr;
}

static void back(weir_device *device, weir_stream stream, void *ptr)
{
    must_ok(weir__mempool_free(device, stream, ptr));
}

static weir__mempool_state state_of(weir_device *device, weir_mempool pool)
{
    weir__mempool_state state;
    must_ok(weir__mempool_get_state(device, pool, &state));
    return state;
}

static void must_hold(weir_device *device, weir_mempool pool, size_t reserved,
                      size_t used)
{
    must_equal(state_of(device, pool).reserved_bytes, reserved);
    must_equal(state_of(device, pool).used_bytes, used);
}

/* ---- one stream ---- */

static void pool_serves_one_stream(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    must_hold(device, pool, 0, 0);
    char *a = draw(device, pool, stream, 1000), *b = draw(device, pool, stream, 1);
    must_equal((uintptr_t)a % 512, 0);
    must(b - a == 1024);
    must_hold(device, pool, CHUNK, 1536);
    stamp(device, stream, a, 1000, 1);
    back(device, stream, a);
    must_hold(device, pool, CHUNK, 512);
    must(draw(device, pool, stream, 1024) == a); /* without a wait */
    stamp(device, stream, a, 1024, 2);
    check_stamp(device, stream, a, 1024, 2);
    back(device, stream, a);
    back(device, stream, b);
    must(draw(device, pool, stream, CHUNK) == a); /* one again */
    back(device, stream, a);
    char *large = draw(device, pool, stream, 3 * CHUNK + 1);
    must_hold(device, pool, 5 * CHUNK, 3 * CHUNK + 512);
    stamp(device, stream, large, 3 * CHUNK + 1, 3);
    check_stamp(device, stream, large, 3 * CHUNK + 1, 3);
    back(device, stream, large);
    end_pool(device, pool);
    raw_stream_end(device, stream);
    close_emulated(device);
}

static void what_is_not_out_is_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    char *a = draw(device, pool, NULL, 1024), *b = draw(device, pool, NULL, 512);
    void *ordinary;
    int local;
    must_ok(weir__malloc(device, 512, &ordinary));
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, a + 512));
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, b + 512));
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, ordinary));
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, &local));
    must_equal(weir_last_error().native_code, 1);
    must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, b));
    back(device, NULL, a);
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_free(device, NULL, a));
    must_hold(device, pool, CHUNK, 512);
    back(device, NULL, b);
    must_ok(weir__free(device, ordinary));
    end_pool(device, pool);
    close_emulated(device);
}

/* ---- two streams ---- */

/* A pool with one chunk, all of it given back on stream `a`, where a kernel of it has
 * not run: a gate is closed in front of it. */
typedef struct scene {
    weir_device *device;
    weir_stream a;
    weir_stream b;
    weir_mempool pool;
    char *first; /* the chunk */
    uint64_t gate;
} scene;

static void scene_begin(scene *self, uint32_t reuse, uint64_t seed)
{
    self->device = open_stepped(seed);
    self->a = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->b = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->pool = make_pool(self->device, reuse, EVERYTHING);
    self->first = draw(self->device, self->pool, self->a, CHUNK);
    self->gate = raw_stall(self->device, self->a);
    stamp(self->device, self->a, self->first, CHUNK, 1);
    back(self->device, self->a, self->first);
}

static void scene_end(scene *self)
{
    raw_open_gate(self->device, self->gate);
    end_pool(self->device, self->pool);
    raw_stream_end(self->device, self->a);
    raw_stream_end(self->device, self->b);
    close_emulated(self->device);
}

static void must_draw_new(scene *self)
{
    char *other = draw(self->device, self->pool, self->b, CHUNK);
    must(other != self->first);
    must_equal(state_of(self->device, self->pool).reserved_bytes, 2 * CHUNK);
    back(self->device, self->b, other);
}

static void must_draw_first(scene *self)
{
    must(draw(self->device, self->pool, self->b, CHUNK) == self->first);
    must_equal(state_of(self->device, self->pool).reserved_bytes, CHUNK);
    stamp(self->device, self->b, self->first, CHUNK, 2);
    check_stamp(self->device, self->b, self->first, CHUNK, 2);
    back(self->device, self->b, self->first);
}

/* Stream b waits for an event behind the free, or (`early`) in front of it. */
static void waits_by_event(scene *self)
{
    weir_event event = raw_event(self->device);
    raw_record(self->device, event, self->a);
    raw_wait_event(self->device, self->b, event);
    raw_event_end(self->device, event);
}

static void other_streams_get_other_memory(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self, SAME, 0);
    waits_by_event(&self);
    must_draw_new(&self);
    scene_end(&self);

    scene_begin(&self, SAME | CHANCE, 0); /* not done */
    waits_by_event(&self);
    must_draw_new(&self);
    scene_end(&self);

    scene_begin(&self, SAME | EVENTS, 0); /* not waited for */
    must_draw_new(&self);
    scene_end(&self);
}

static void events_let_reuse(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self, EVENTS, 0);
    waits_by_event(&self);
    must_draw_first(&self);
    scene_end(&self);
}

static void event_before_the_free_does_not(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self, EVENTS, 0);
    must_draw_new(&self); /* on b */
    char *again = draw(self.device, self.pool, self.a, CHUNK);
    must(again == self.first);
    waits_by_event(&self);
    back(self.device, self.a, again);
    char *other = draw(self.device, self.pool, self.b, CHUNK);
    must(other != self.first);
    back(self.device, self.b, other);
    scene_end(&self);
}

static void chance_lets_reuse_what_is_done(void **state)
{
    (void)state;
    scene self;
    bool stepped = true;
    scene_begin(&self, CHANCE, 0);
    raw_open_gate(self.device, self.gate);
    while (stepped)
        must_ok(weir_emulated_step(self.device, &stepped));
    must_draw_first(&self);
    scene_end(&self);

    scene_begin(&self, EVENTS | INTERNAL, 0);
    raw_open_gate(self.device, self.gate);
    must_ok(weir__stream_sync(self.device, self.a)); /* which any pool learns from */
    must_draw_first(&self);
    scene_end(&self);
}

static void pool_makes_streams_wait(void **state)
{
    (void)state;
    scene self;
    bool done, stepped = true;
    scene_begin(&self, INTERNAL, 0);
    must_ok(weir__stream_query(self.device, self.b, &done));
    must(done);
    must_draw_first(&self);
    while (stepped)
        must_ok(weir_emulated_step(self.device, &stepped));
    must_ok(weir__stream_query(self.device, self.b, &done));
    must(!done); /* behind the gate on a */
    raw_open_gate(self.device, self.gate);
    raw_sync_stream(self.device, self.b);
    scene_end(&self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pool_serves_one_stream),
        cmocka_unit_test(what_is_not_out_is_refused),
        cmocka_unit_test(other_streams_get_other_memory),
        cmocka_unit_test(events_let_reuse),
        cmocka_unit_test(event_before_the_free_does_not),
        cmocka_unit_test(chance_lets_reuse_what_is_done),
        cmocka_unit_test(pool_makes_streams_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
