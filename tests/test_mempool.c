/* test_mempool.c - the emulated device's own pools: what is handed out again for whom,
 * what goes back when, handles, and what goes wrong. Chunks are 64 KiB in tests. */
#include <string.h>

#include "internal.h"
#include "support_mempool.h"

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

/* Stream b waits for all that is on a. */
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

    scene_begin(&self, SAME, 0); /* done, and nobody has waited */
    raw_open_gate(self.device, self.gate);
    step_all(self.device);
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
    scene_begin(&self, CHANCE, 0);
    raw_open_gate(self.device, self.gate);
    step_all(self.device);
    must_draw_first(&self);
    scene_end(&self);

    scene_begin(&self, EVENTS | INTERNAL, 0);
    raw_open_gate(self.device, self.gate);
    must_ok(weir__stream_sync(self.device, self.a)); /* which any pool learns from */
    must_draw_first(&self);
    scene_end(&self);
}

/* The host waits for an event on a: what a gives back behind it is still in use. */
static void waits_teach_no_more_than_they_waited_for(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self, SAME, 0);
    raw_open_gate(self.device, self.gate);
    char *ptr = draw(self.device, self.pool, self.a, CHUNK);
    weir_event event = raw_event(self.device);
    raw_record(self.device, event, self.a);
    self.gate = raw_stall(self.device, self.a);
    stamp(self.device, self.a, ptr, CHUNK, 1);
    back(self.device, self.a, ptr);
    must_ok(weir__event_sync(self.device, event));
    must_draw_new(&self);
    raw_event_end(self.device, event);
    scene_end(&self);
}

static void pool_makes_streams_wait(void **state)
{
    (void)state;
    scene self;
    bool done;
    scene_begin(&self, INTERNAL, 0);
    must_ok(weir__stream_query(self.device, self.b, &done));
    must(done);
    must_draw_first(&self);
    step_all(self.device);
    must_ok(weir__stream_query(self.device, self.b, &done));
    must(!done); /* behind the gate on a */
    raw_open_gate(self.device, self.gate);
    raw_sync_stream(self.device, self.b);
    scene_end(&self);
}

/* A hole made of neighbours: two of stream a, one of b in between. */
static void neighbours_serve_together(void **state)
{
    (void)state;
    for (int policy = 0; policy < 2; policy++) {
        weir_device *device = open_stepped(0);
        weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING),
                    b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_mempool pool = make_pool(device, policy == 0 ? SAME : INTERNAL,
                                      EVERYTHING);
        char *part[4];
        for (int i = 0; i < 4; i++)
            part[i] = draw(device, pool, i == 1 ? b : a, CHUNK / 4);
        uint64_t gate = raw_stall(device, b);
        stamp(device, b, part[1], CHUNK / 4, 1);
        for (int i = 0; i < 3; i++)
            back(device, i == 1 ? b : a, part[i]);
        must_hold(device, pool, CHUNK, CHUNK / 4);
        char *hole = draw(device, pool, a, CHUNK / 2);
        must((hole == part[0]) == (policy == 1));
        stamp(device, a, hole, CHUNK / 2, 2);
        check_stamp(device, a, hole, CHUNK / 2, 2);
        must_hold(device, pool, policy == 0 ? 2 * CHUNK : CHUNK, CHUNK * 3 / 4);
        step_all(device);
        raw_open_gate(device, gate);
        back(device, a, hole);
        back(device, a, part[3]);
        end_pool(device, pool);
        raw_stream_end(device, a);
        raw_stream_end(device, b);
        close_emulated(device);
    }
}

/* What a wait for one other stream cannot serve is drawn anew: the pool makes a stream
 * wait for no two. */
static void waits_for_one_stream_at_most(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_stream streams[3];
    for (int i = 0; i < 3; i++)
        streams[i] = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_mempool pool = make_pool(device, INTERNAL, EVERYTHING);
    char *part[2];
    for (int i = 0; i < 2; i++)
        part[i] = draw(device, pool, streams[i], CHUNK / 2);
    for (int i = 0; i < 2; i++) {
        stamp(device, streams[i], part[i], CHUNK / 2, 1);
        back(device, streams[i], part[i]);
    }
    char *whole = draw(device, pool, streams[2], CHUNK);
    must(whole != part[0]);
    must_hold(device, pool, 2 * CHUNK, CHUNK);
    back(device, streams[2], whole);
    end_pool(device, pool);
    for (int i = 0; i < 3; i++)
        raw_stream_end(device, streams[i]);
    close_emulated(device);
}

/* ---- the ledger ---- */

static void must_find(weir_device *device, const char *first, const char *second,
                      const char *words)
{
    must_equal(weir_emulated_findings(device), 1);
    weir_emulated_finding finding = { .struct_size = sizeof finding };
    must_ok(weir_emulated_get_finding(device, 0, &finding));
    must(strcmp(finding.first, first) == 0 && strcmp(finding.second, second) == 0);
    must(strstr(finding.message, words) != NULL);
    close_anyhow(device);
}

/* Handed out on a, used on b. */
static void use_elsewhere_is_found(void **state)
{
    (void)state;
    for (int ordered = 0; ordered < 2; ordered++) {
        scene self;
        scene_begin(&self, SAME, 0);
        raw_open_gate(self.device, self.gate);
        char *ptr = draw(self.device, self.pool, self.a, 1000);
        if (ordered)
            waits_by_event(&self);
        stamp(self.device, self.b, ptr, 1000, 3);
        if (!ordered) {
            must_find(self.device, "pool malloc", "kernel writes", "not ordered");
            continue;
        }
        back(self.device, self.b, ptr);
        scene_end(&self);
    }
}

/* Used on b, given back on a. */
static void free_before_the_use_is_over_is_found(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self, SAME, 0);
    raw_open_gate(self.device, self.gate);
    char *ptr = draw(self.device, self.pool, self.a, 1000);
    waits_by_event(&self);
    stamp(self.device, self.b, ptr, 1000, 3);
    back(self.device, self.a, ptr);
    must_find(self.device, "kernel writes", "pool free", "not ordered");
}

static void use_after_free_is_found(void **state)
{
    (void)state;
    scene self;
    scene_begin(&self, SAME, 0);
    raw_open_gate(self.device, self.gate);
    stamp(self.device, self.a, self.first, 1000, 3);
    must_find(self.device, "deallocate", "kernel writes", "gave them back");
}

static void use_beside_what_is_out_is_found(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    char *ptr = draw(device, pool, NULL, 512);
    stamp(device, NULL, ptr, 512, 1);
    must_be_quiet(device);
    stamp(device, NULL, ptr + 512, 512, 1);
    must_find(device, "deallocate", "kernel writes", "gave them back");
}

/* The pool lets b have what a gave back, by a wait of its own or by chance; that orders
 * these bytes, and no others: what else a did is still in b's way. */
static void reuse_teaches_nothing_else(void **state)
{
    (void)state;
    static const uint32_t policies[] = { INTERNAL, CHANCE };
    for (size_t i = 0; i < 2; i++) {
        weir_device *device = open_stepped(0);
        weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING),
                    b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_mempool pool = make_pool(device, policies[i], EVERYTHING);
        char *other = draw(device, pool, a, CHUNK), *ptr = draw(device, pool, a, CHUNK);
        stamp(device, a, other, CHUNK, 1);
        stamp(device, a, ptr, CHUNK, 1);
        back(device, a, ptr);
        if (policies[i] == CHANCE)
            step_all(device);
        must(draw(device, pool, b, CHUNK) == ptr);
        stamp(device, b, ptr, CHUNK, 2);
        must_be_quiet(device);
        stamp(device, b, other, CHUNK, 2);
        must_find(device, "kernel writes", "kernel writes", "not ordered");
    }
}

/* By the rules of the legacy stream a free on it is behind the blocking streams. */
static void legacy_stream_frees_for_all(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_stream blocking = raw_stream(device, WEIR_STREAM_BLOCKING);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    char *ptr = draw(device, pool, blocking, CHUNK);
    uint64_t gate = raw_stall(device, blocking);
    stamp(device, blocking, ptr, CHUNK, 1);
    back(device, NULL, ptr);
    must(draw(device, pool, NULL, CHUNK) == ptr);
    stamp(device, NULL, ptr, CHUNK, 2);
    step_all(device);
    raw_open_gate(device, gate);
    check_stamp(device, NULL, ptr, CHUNK, 2);
    back(device, NULL, ptr);
    end_pool(device, pool);
    raw_stream_end(device, blocking);
    close_emulated(device);
}

/* ---- seeds ---- */

/* Which part a run reuses when two would do: it depends on the seed alone. */
static uint64_t choices_of(uint64_t seed)
{
    weir_device *device = open_stepped(seed);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    uint64_t chosen = 0;
    char *part[4];
    for (int i = 0; i < 4; i++)
        part[i] = draw(device, pool, NULL, CHUNK / 4);
    for (int turn = 0; turn < 12; turn++) {
        back(device, NULL, part[0]);
        back(device, NULL, part[2]);
        char *ptr = draw(device, pool, NULL, CHUNK / 4);
        chosen = chosen << 1 | (ptr == part[0]);
        must(ptr == part[0] || ptr == part[2]);
        must(draw(device, pool, NULL, CHUNK / 4) != ptr);
        must_hold(device, pool, CHUNK, CHUNK);
    }
    for (int i = 0; i < 4; i++)
        back(device, NULL, part[i]);
    end_pool(device, pool);
    close_emulated(device);
    return chosen;
}

static void choices_come_from_the_seed(void **state)
{
    (void)state;
    unsigned different = 0;
    for (uint64_t seed = 0; seed < 10; seed++) {
        uint64_t chosen = choices_of(support_seed(seed));
        must_equal(chosen, choices_of(seed));
        different += chosen != choices_of(seed + 1);
    }
    must(different > 7);
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
        cmocka_unit_test(waits_teach_no_more_than_they_waited_for),
        cmocka_unit_test(pool_makes_streams_wait),
        cmocka_unit_test(neighbours_serve_together),
        cmocka_unit_test(waits_for_one_stream_at_most),
        cmocka_unit_test(use_elsewhere_is_found),
        cmocka_unit_test(free_before_the_use_is_over_is_found),
        cmocka_unit_test(use_after_free_is_found),
        cmocka_unit_test(use_beside_what_is_out_is_found),
        cmocka_unit_test(reuse_teaches_nothing_else),
        cmocka_unit_test(legacy_stream_frees_for_all),
        cmocka_unit_test(choices_come_from_the_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
