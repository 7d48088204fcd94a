/* test_mempool_lives.c - the emulated device's own pools: how they come and go, what
 * goes back to the device when, which bounds hold, and what failures leave behind. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "support_mempool.h"

/* ---- what goes back ---- */

typedef enum wait_kind { BY_STREAM, BY_EVENT, BY_DEVICE, BY_QUERY, WAITS } wait_kind;

static void host_waits(weir_device *device, weir_stream stream, wait_kind how)
{
    weir_event event;
    bool done = false;
    switch (how) {
    case BY_STREAM: raw_sync_stream(device, stream); break;
    case BY_EVENT:
        event = raw_event(device);
        raw_record(device, event, stream);
        must_ok(weir__event_sync(device, event));
        raw_event_end(device, event);
        break;
    case BY_DEVICE: must_ok(weir__device_sync(device)); break;
    case BY_QUERY:
        while (!done)
            must_ok(weir__stream_query(device, stream, &done));
        break;
    case WAITS: break;
    }
}

/* Three chunks of a pool, one of them in use: a wait lets the others go until no more
 * than the threshold is left. A query is no wait. */
static void waits_release_down_to_the_threshold(void **state)
{
    (void)state;
    static const size_t thresholds[] = { 0, 1, CHUNK, 2 * CHUNK, EVERYTHING };
    static const size_t left[] = { 1, 1, 1, 2, 3 };
    for (wait_kind how = BY_STREAM; how < WAITS; how++) {
        for (size_t i = 0; i < sizeof left / sizeof left[0]; i++) {
            weir_device *device = open_stepped(0);
            size_t free_bytes = device_free_bytes(device);
            weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
            weir_mempool pool = make_pool(device, SAME, thresholds[i]);
            char *part[3];
            for (int each = 0; each < 3; each++)
                part[each] = draw(device, pool, stream, CHUNK);
            for (int each = 0; each < 2; each++) {
                stamp(device, stream, part[each], CHUNK, 1);
                back(device, stream, part[each]);
            }
            must_hold(device, pool, 3 * CHUNK, CHUNK);
            host_waits(device, stream, how);
            size_t kept = (how == BY_QUERY ? 3 : left[i]) * CHUNK;
            must_hold(device, pool, kept, CHUNK);
            must_equal(device_free_bytes(device), free_bytes - kept);
            back(device, stream, part[2]);
            end_pool(device, pool);
            raw_stream_end(device, stream);
            close_emulated(device);
        }
    }
}

static void trim_takes_what_is_done(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING),
                b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    char *part[4];
    for (int i = 0; i < 4; i++)
        part[i] = draw(device, pool, a, CHUNK);
    must_ok(weir__mempool_trim(device, pool, 0));
    must_hold(device, pool, 4 * CHUNK, 4 * CHUNK);
    raw_sync_stream(device, a);
    uint64_t gate = raw_stall(device, b);
    back(device, b, part[0]);
    back(device, a, part[1]);
    back(device, a, part[2]);
    step_all(device);
    must_ok(weir__mempool_trim(device, pool, 3 * CHUNK));
    must_hold(device, pool, 3 * CHUNK, CHUNK);
    must_ok(weir__mempool_trim(device, pool, 0));
    must_hold(device, pool, 2 * CHUNK, CHUNK); /* one in use, one behind the gate */
    raw_open_gate(device, gate);
    step_all(device);
    must_ok(weir__mempool_trim(device, pool, 0));
    must_hold(device, pool, CHUNK, CHUNK);
    back(device, a, part[3]);
    end_pool(device, pool);
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    close_emulated(device);
}

/* Streams come and go; what they gave back is one again after the wait. */
static void ended_streams_leave_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    char *part[8];
    for (size_t i = 0; i < 8; i++) {
        weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
        part[i] = draw(device, pool, stream, CHUNK / 8);
        back(device, stream, part[i]);
        raw_stream_end(device, stream);
    }
    must_hold(device, pool, CHUNK, 0);
    must_ok(weir__device_sync(device));
    must(draw(device, pool, NULL, CHUNK) == part[0]);
    must_hold(device, pool, CHUNK, CHUNK);
    back(device, NULL, part[0]);
    end_pool(device, pool);
    close_emulated(device);
}

/* ---- bounds ---- */

static void maximum_is_honoured(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    options.reuse = SAME;
    options.release_threshold_bytes = EVERYTHING;
    options.max_bytes = 2 * CHUNK + 700;
    weir_mempool pool;
    void *none = NULL;
    must_ok(weir__mempool_create(device, &options, &pool));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__mempool_malloc(device, pool, NULL, 3 * CHUNK, &none));
    must_equal(weir_last_error().native_code, 2);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__mempool_malloc(device, pool, NULL, SIZE_MAX, &none));
    void *a = draw(device, pool, NULL, CHUNK), *b = draw(device, pool, NULL, CHUNK);
    void *c = draw(device, pool, NULL, 512); /* what is left of the bound */
    must_hold(device, pool, 2 * CHUNK + 512, 2 * CHUNK + 512);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__mempool_malloc(device, pool, NULL, 1, &none));
    must(none == NULL);
    back(device, NULL, a);
    back(device, NULL, b);
    must_answer(WEIR_OUT_OF_MEMORY, /* not done: they stay */
                weir__mempool_malloc(device, pool, NULL, 2 * CHUNK, &none));
    must_hold(device, pool, 2 * CHUNK + 512, 512);
    step_all(device);
    a = draw(device, pool, NULL, 2 * CHUNK); /* for which two chunks go back */
    must_hold(device, pool, 2 * CHUNK + 512, 2 * CHUNK + 512);
    back(device, NULL, a);
    back(device, NULL, c);
    end_pool(device, pool);
    close_emulated(device);
}

static void device_runs_out(void **state)
{
    (void)state;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.memory_bytes = 4 * CHUNK;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:0", &options);
    weir_mempool pool = make_pool(device, SAME, EVERYTHING);
    void *a = draw(device, pool, NULL, 3 * CHUNK), *none = NULL;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__mempool_malloc(device, pool, NULL, 2 * CHUNK, &none));
    must(none == NULL);
    must_hold(device, pool, 3 * CHUNK, 3 * CHUNK);
    back(device, NULL, a);
    step_all(device);
    a = draw(device, pool, NULL, 4 * CHUNK); /* the other chunk made room */
    must_hold(device, pool, 4 * CHUNK, 4 * CHUNK);
    back(device, NULL, a);
    end_pool(device, pool);
    close_emulated(device);
}

/* ---- handles ---- */

static void must_be_no_pool(weir_device *device, weir_mempool pool)
{
    weir__mempool_state state;
    void *none;
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_get_state(device, pool, &state));
    must_equal(weir_last_error().native_code, 1);
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_trim(device, pool, 0));
    must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_destroy(device, pool));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__mempool_malloc(device, pool, NULL, 1, &none));
}

static void stale_and_foreign_handles_are_refused(void **state)
{
    (void)state;
    weir_device *one = open_with("emulated:0", NULL),
                *two = open_with("emulated:1", NULL);
    weir_mempool pool = make_pool(one, SAME, 0);
    uint64_t local[16] = { 0 };
    must_be_no_pool(two, pool);
    must_be_no_pool(one, (weir_mempool)(void *)local);
    must_be_no_pool(one, (weir_mempool)(uintptr_t)1);
    end_pool(one, pool);
    must_be_no_pool(one, pool);
    close_emulated(two);
    close_emulated(one);
}

/* Destroyed with memory out and in use: it ends with the last of it, and not before the
 * streams are past that. */
static void destroy_waits_for_the_last_free(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t free_bytes = device_free_bytes(device);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_mempool pool = make_pool(device, SAME, 0);
    char *a = draw(device, pool, stream, CHUNK), *b = draw(device, pool, stream, CHUNK);
    uint64_t gate = raw_stall(device, stream);
    stamp(device, stream, a, CHUNK, 1);
    stamp(device, stream, b, CHUNK, 2);
    back(device, stream, a);
    end_pool(device, pool);
    must_be_no_pool(device, pool);
    check_stamp(device, stream, b, CHUNK, 2);
    must_equal(device_free_bytes(device), free_bytes - 2 * CHUNK);
    back(device, stream, b);
    must_equal(device_free_bytes(device), free_bytes - 2 * CHUNK); /* the gate */
    raw_open_gate(device, gate);
    raw_sync_stream(device, stream);
    must_equal(device_free_bytes(device), free_bytes);

    pool = make_pool(device, SAME, EVERYTHING);
    back(device, stream, draw(device, pool, stream, 1));
    raw_sync_stream(device, stream);
    must_equal(device_free_bytes(device), free_bytes - CHUNK);
    end_pool(device, pool); /* which nothing holds up */
    must_equal(device_free_bytes(device), free_bytes);
    raw_stream_end(device, stream);
    close_emulated(device);
}

static void default_pools_are_the_devices(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    weir_mempool pools[3];
    for (int i = 0; i < 3; i++) {
        weir_mempool again;
        must_ok(weir__mempool_default(device, (weir_async_memory)i, &pools[i]));
        must_ok(weir__mempool_default(device, (weir_async_memory)i, &again));
        must(again == pools[i]);
        must(i == 0 || pools[i] != pools[i - 1]);
        must_answer(WEIR_INVALID_ARGUMENT, weir__mempool_destroy(device, pools[i]));
        back(device, NULL, draw(device, pools[i], NULL, 1));
        must_hold(device, pools[i], CHUNK, 0);
    }
    must_ok(weir__device_sync(device)); /* threshold 0 */
    for (int i = 0; i < 3; i++)
        must_hold(device, pools[i], 0, 0);
    weir_mempool none;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__mempool_default(device, (weir_async_memory)3, &none));
    must_hold(device, pools[0], 0, 0);
    (void)draw(device, pools[1], NULL, 100);
    close_emulated(device); /* with memory of the host's out */
}

static void handle_types_are_judged(void **state)
{
    (void)state;
    static const struct {
        weir_async_memory memory;
        uint32_t types;
        bool on_node;
        weir_status status;
    } cases[] = {
        { WEIR_ASYNC_DEVICE, WEIR_ASYNC_HANDLE_POSIX_FD, false, WEIR_OK },
        { WEIR_ASYNC_DEVICE, WEIR_ASYNC_HANDLE_FABRIC, false, WEIR_OK },
        { WEIR_ASYNC_DEVICE, 2, false, WEIR_NOT_SUPPORTED },
        { WEIR_ASYNC_PINNED, 0, false, WEIR_OK },
        { WEIR_ASYNC_PINNED, WEIR_ASYNC_HANDLE_POSIX_FD, false, WEIR_NOT_SUPPORTED },
        { WEIR_ASYNC_PINNED, WEIR_ASYNC_HANDLE_POSIX_FD, true, WEIR_OK },
        { WEIR_ASYNC_MANAGED, WEIR_ASYNC_HANDLE_POSIX_FD, false, WEIR_NOT_SUPPORTED },
        { (weir_async_memory)7, 0, false, WEIR_INVALID_ARGUMENT },
    };
    weir_device *device = open_stepped(0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
        weir_mempool pool;
        options.memory = cases[i].memory;
        options.handle_types = cases[i].types;
        options.on_numa_node = cases[i].on_node;
        options.reuse = SAME;
        must_answer(cases[i].status, weir__mempool_create(device, &options, &pool));
        if (cases[i].status == WEIR_OK)
            end_pool(device, pool);
    }
    close_emulated(device);
}

/* Memory of the host's: both sides touch it, and it is known while it is drawn. */
static void host_pools_are_touched_from_both_sides(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    for (int i = WEIR_ASYNC_MANAGED; i <= WEIR_ASYNC_PINNED; i++) {
        size_t free_bytes = device_free_bytes(device);
        weir_mempool pool = make_pool_of(device, (weir_async_memory)i);
        unsigned char *ptr = draw(device, pool, NULL, 4096), got = 0;
        must_equal((uintptr_t)ptr % 4096, 0);
        must_equal(device_free_bytes(device), free_bytes);
        memset(ptr, 7, 4096);
        must_ok(weir__copy(device, NULL, ptr + 1, ptr, 1));
        must_ok(weir__fill(device, NULL, ptr, 9, 1));
        must_ok(weir__device_sync(device));
        must(ptr[0] == 9 && ptr[1] == 7);
        must_ok(weir__copy(device, NULL, &got, ptr, 1));
        must_ok(weir__device_sync(device));
        must(got == 9);
        must_answer(WEIR_INVALID_ARGUMENT, weir__host_register(device, ptr, 4096, 0));
        must_answer(WEIR_INVALID_ARGUMENT, weir__pinned_free(device, ptr));
        must_answer(WEIR_INVALID_ARGUMENT, weir__free(device, ptr));
        back(device, NULL, ptr);
        end_pool(device, pool);
    }
    close_emulated(device);
}

/* ---- failures ---- */

/* The calls on a pool, each in a state in which it succeeds. */
typedef struct world {
    weir_device *device;
    weir_stream a;
    weir_stream b;
    weir_mempool pool;  /* with a chunk that a gave back; b would be made to wait */
    void *out;          /* on a */
} world;

static void world_begin(world *self)
{
    self->device = open_stepped(0);
    self->a = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->b = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    self->pool = make_pool(self->device, INTERNAL, EVERYTHING);
    void *ptr = draw(self->device, self->pool, self->a, CHUNK);
    self->out = draw(self->device, self->pool, self->a, CHUNK);
    stamp(self->device, self->a, ptr, CHUNK, 1);
    back(self->device, self->a, ptr);
}

static weir_status world_call(world *self, int call, void **made)
{
    weir_async_options options = WEIR_ASYNC_OPTIONS_INIT;
    weir__mempool_state state;
    options.reuse = SAME;
    switch (call) {
    case 0: return weir__mempool_malloc(self->device, self->pool, self->b, 700, made);
    case 1: return weir__mempool_malloc(self->device, self->pool, self->b, 2 * CHUNK,
                                        made);
    case 2: return weir__mempool_free(self->device, self->a, self->out);
    case 3: return weir__mempool_create(self->device, &options, (weir_mempool *)made);
    case 4: return weir__mempool_default(self->device, WEIR_ASYNC_DEVICE,
                                         (weir_mempool *)made);
    case 5: return weir__mempool_trim(self->device, self->pool, 0);
    case 6: return weir__mempool_get_state(self->device, self->pool, &state);
    default: return weir__mempool_destroy(self->device, self->pool);
    }
}

enum { WORLD_CALLS = 8 };
static const char *const world_names[WORLD_CALLS] = {
    "mempool_malloc", "mempool_malloc", "mempool_free", "mempool_create",
    "mempool_default", "mempool_trim", "mempool_get_state", "mempool_destroy"
};

/* As world_begin left it; the wait that b would have got is none: b is done at once. */
static void world_is_unchanged(world *self)
{
    bool done;
    must_hold(self->device, self->pool, 2 * CHUNK, CHUNK);
    must_ok(weir__stream_query(self->device, self->b, &done));
    must(done);
}

static void faults_change_nothing(void **state)
{
    (void)state;
    for (int call = 0; call < WORLD_CALLS; call++) {
        world self;
        void *made = NULL;
        world_begin(&self);
        plan_fault(self.device, world_names[call], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, world_call(&self, call, &made));
        must(made == NULL && weir_emulated_fault_calls(self.device) == 1);
        must_ok(weir_emulated_set_fault(self.device, NULL));
        world_is_unchanged(&self);
        must_ok(world_call(&self, call, &made));
        close_anyhow(self.device);
    }
}

static void lost_device_refuses(void **state)
{
    (void)state;
    world self;
    void *made;
    world_begin(&self);
    plan_fault(self.device, NULL, 1, false, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir__device_sync(self.device));
    for (int call = 0; call < WORLD_CALLS; call++)
        must_answer(WEIR_DEVICE_LOST, world_call(&self, call, &made));
    close_anyhow(self.device);
}

static void survives_every_host_failure(void **state)
{
    (void)state;
    static const uint64_t least[WORLD_CALLS] = { 2, 4, 1, 1, 1, 0, 0, 0 };
    for (int call = 0; call < WORLD_CALLS; call++) {
        uint64_t failing = 1;
        for (;; failing++) {
            world self;
            void *made = NULL;
            world_begin(&self);
            weir__host_fail_at(failing, false);
            weir_status status = world_call(&self, call, &made);
            bool failed = weir__host_calls() >= failing;
            weir__host_fail_at(0, false);
            if (status != WEIR_OK) {
                must(status == WEIR_OUT_OF_HOST_MEMORY && made == NULL);
                world_is_unchanged(&self);
            }
            close_anyhow(self.device); /* the ledger may have gone deaf */
            if (!failed)
                break;
            must(failing < 40);
        }
        must(failing > least[call]);
    }
}

/* ---- schedulers ---- */

static void no_work_is_served_too(void **state)
{
    (void)state;
    weir_device *device = open_emulated(WEIR_EMULATED_NO_WORK, 0);
    weir_stream a = raw_stream(device, WEIR_STREAM_NON_BLOCKING),
                b = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    weir_mempool pool = make_pool(device, SAME | CHANCE, CHUNK);
    void *ptr = draw(device, pool, a, CHUNK);
    back(device, a, ptr);
    void *other = draw(device, pool, b, CHUNK); /* nothing is done before a wait */
    must(other != ptr);
    back(device, b, other);
    raw_sync_stream(device, a);
    must_hold(device, pool, CHUNK, 0);
    raw_sync_stream(device, b);
    must_hold(device, pool, CHUNK, 0);
    must(draw(device, pool, a, CHUNK) == other);
    back(device, a, other);
    end_pool(device, pool);
    raw_stream_end(device, a);
    raw_stream_end(device, b);
    close_emulated(device);
}

enum { THREADS = 4, BLOCKS = 6 };

typedef struct user {
    weir_device *device;
    weir_mempool pool;
    uint64_t seed;
    uint64_t turns;
} user;

/* Has a few blocks out on a stream of its own; each keeps what was written to it. */
static void use_pool(void *argument)
{
    user *self = argument;
    uint64_t random = self->seed;
    weir_stream stream = raw_stream(self->device, WEIR_STREAM_NON_BLOCKING);
    struct { void *ptr; size_t bytes; uint64_t key; } blocks[BLOCKS] = { { 0 } };
    for (uint64_t turn = 0; turn < self->turns; turn++) {
        size_t i = support_random_below(&random, BLOCKS);
        if (blocks[i].ptr != NULL) {
            check_stamp(self->device, stream, blocks[i].ptr, blocks[i].bytes,
                        blocks[i].key);
            back(self->device, stream, blocks[i].ptr);
        }
        blocks[i].bytes = support_random_between(&random, 1, CHUNK / 4);
        blocks[i].key = self->seed + turn;
        blocks[i].ptr = draw(self->device, self->pool, stream, blocks[i].bytes);
        stamp(self->device, stream, blocks[i].ptr, blocks[i].bytes, blocks[i].key);
        if (support_random_below(&random, 40) == 0)
            raw_sync_stream(self->device, stream);
    }
    for (size_t i = 0; i < BLOCKS; i++) {
        if (blocks[i].ptr != NULL)
            back(self->device, stream, blocks[i].ptr);
    }
    raw_stream_end(self->device, stream);
}

static void load(weir_device *device, uint32_t reuse, uint64_t seed, uint64_t turns)
{
    weir_mempool pool = make_pool(device, reuse, 2 * CHUNK);
    user users[THREADS];
    void *arguments[THREADS];
    for (uint64_t i = 0; i < THREADS; i++) {
        users[i] = (user){ device, pool, seed * 1000 + i * 100000, turns };
        arguments[i] = &users[i];
    }
    must_ok(weir_emulated_run_threads(device, THREADS, use_pool, arguments));
    must_equal(state_of(device, pool).used_bytes, 0);
    end_pool(device, pool);
}

/* Every set of policies, with threads that really run at once, and by turns. */
static void bytes_are_one_users_under_load(void **state)
{
    (void)state;
    uint64_t turns = support_bound("test_mempool.user_turns", 60, 600);
    for (uint32_t reuse = SAME; reuse < 16; reuse++) {
        weir_device *device = open_threads();
        load(device, reuse, support_seed(reuse), turns);
        close_emulated(device);
        device = open_stepped(support_seed(reuse));
        load(device, reuse, reuse, turns);
        close_emulated(device);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(waits_release_down_to_the_threshold),
        cmocka_unit_test(trim_takes_what_is_done),
        cmocka_unit_test(ended_streams_leave_nothing),
        cmocka_unit_test(maximum_is_honoured),
        cmocka_unit_test(device_runs_out),
        cmocka_unit_test(stale_and_foreign_handles_are_refused),
        cmocka_unit_test(destroy_waits_for_the_last_free),
        cmocka_unit_test(default_pools_are_the_devices),
        cmocka_unit_test(handle_types_are_judged),
        cmocka_unit_test(host_pools_are_touched_from_both_sides),
        cmocka_unit_test(faults_change_nothing),
        cmocka_unit_test(lost_device_refuses),
        cmocka_unit_test(survives_every_host_failure),
        cmocka_unit_test(no_work_is_served_too),
        cmocka_unit_test(bytes_are_one_users_under_load),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
