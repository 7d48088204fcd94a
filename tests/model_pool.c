/* model_pool.c - two threads on one pool, in every way in which they can interleave
 * with a bounded number of switches: misuse that races, and blocks that change
 * hands. */
#include "support_explore.h"
#include "support_scene.h"

typedef struct race {
    scene it;
    void *x, *y;
    uint32_t accepted;
} race;

/* Opens a scene whose threads the explorer schedules. */
static scene scene_explored(explorer *self)
{
    scene it = { .device = NULL };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.memory_bytes = MEMORY;
    emulated.choose = explore_choose;
    emulated.choose_context = self;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    it.device = open_with("emulated:0", &options);
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    return it;
}

static void explored(const explorer *self, const char *what)
{
    print_message("%s: %llu interleavings, all there are with at most %u switches\n",
                  what, (unsigned long long)self->runs, (unsigned)self->most_switches);
}

static void frees_x(void *argument)
{
    race *self = argument;
    if (weir_deallocate(self->it.pool, self->it.a, self->x, SIZE, WEIR_ALIGNMENT))
        self->accepted++;
}

/* Whichever comes first: one free is a free, the other a misuse that changes
 * nothing. */
static void one_of_two_frees_is_misuse(void **state)
{
    (void)state;
    static explorer self;
    self = (explorer){ 0 };
    self.most_switches = (uint32_t)support_bound("model_pool.free_switches", 2, 4);
    race at = { .it = scene_explored(&self) };
    misuse_log log;
    do {
        at.x = take(at.it.pool, at.it.a, SIZE);
        at.accepted = 0;
        misuse_begin(&log);
        self.active = true;
        run_both(at.it.device, frees_x, frees_x, &at);
        self.active = false;
        misuse_end();
        must_equal(at.accepted, 1);
        must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, at.x);
        must_equal(statistics_of(at.it.pool).out_blocks, 0);
    } while (explore_next(&self));
    scene_close(&at.it);
    explored(&self, "two frees of one block");
}

static void passes_on_a(void *argument)
{
    race *self = argument;
    void *ptr = take(self->it.pool, self->it.a, SIZE);
    stamp(self->it.device, self->it.a, ptr, SIZE, 1);
    give(self->it.pool, self->it.a, ptr, SIZE);
}

static void passes_on_b(void *argument)
{
    race *self = argument;
    void *ptr = take(self->it.pool, self->it.b, SIZE);
    stamp(self->it.device, self->it.b, ptr, SIZE, 2);
    check_stamp(self->it.device, self->it.b, ptr, SIZE, 2);
    give(self->it.pool, self->it.b, ptr, SIZE);
}

/* Two streams and threads use the same memory in turn, or side by side: the ledger
 * looks on. */
static void two_threads_share_a_pool(void **state)
{
    (void)state;
    static explorer self;
    self = (explorer){ 0 };
    self.most_switches = (uint32_t)support_bound("model_pool.share_switches", 2, 3);
    race at = { .it = scene_explored(&self) };
    do {
        self.active = true;
        run_both(at.it.device, passes_on_a, passes_on_b, &at);
        self.active = false;
        must_be_quiet(at.it.device);
        must_ok(weir_device_sync(at.it.device));
        (void)weir_resource_trim_sync(at.it.pool, 0); /* each run begins with nothing */
    } while (explore_next(&self));
    scene_close(&at.it);
    explored(&self, "two streams on one pool");
}

/* ---- the end of a pool ---- */

static void unrefs_the_pool(void *argument)
{
    race *self = argument;
    weir_resource_unref(self->it.pool);
}

static void gives_x_back(void *argument)
{
    race *self = argument;
    give(self->it.pool, self->it.a, self->x, SIZE);
}

static void gives_y_back_behind_a_point(void *argument)
{
    race *self = argument;
    weir_resource *pool = self->it.pool;
    weir_point point;
    must_ok(weir_point_here(self->it.device, self->it.b, &point));
    must(weir_deallocate_after(pool, self->y, SIZE, WEIR_ALIGNMENT, &point, 1));
}

/* Runs both on a pool that ends with them, in every way; afterwards nothing is held. */
static void end_of_pool(const char *what, bool has_y, bool is_unreferenced,
                        void (*first)(void *), void (*second)(void *))
{
    static explorer self;
    self = (explorer){ 0 };
    self.most_switches = (uint32_t)support_bound("model_pool.end_switches", 3, 4);
    race at = { .it = scene_explored(&self) };
    weir_resource_unref(at.it.pool);
    do {
        must_ok(weir_resource_open(at.it.device, "pool/device", &at.it.pool));
        at.x = take(at.it.pool, at.it.a, SIZE);
        at.y = has_y ? take(at.it.pool, at.it.b, SIZE) : NULL;
        if (is_unreferenced)
            weir_resource_unref(at.it.pool);
        self.active = true;
        run_both(at.it.device, first, second, &at);
        self.active = false;
        must_equal(device_free_bytes(at.it.device), MEMORY);
    } while (explore_next(&self));
    at.it.pool = NULL;
    scene_close(&at.it);
    explored(&self, what);
}

static void last_unref_or_last_block_ends_a_pool(void **state)
{
    (void)state;
    end_of_pool("the last unref against the last free", false, false, unrefs_the_pool,
                gives_x_back);
}

static void one_of_the_last_two_blocks_ends_a_pool(void **state)
{
    (void)state;
    end_of_pool("the last two frees, after the last unref", true, true, gives_x_back,
                gives_y_back_behind_a_point);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_of_two_frees_is_misuse),
        cmocka_unit_test(two_threads_share_a_pool),
        cmocka_unit_test(last_unref_or_last_block_ends_a_pool),
        cmocka_unit_test(one_of_the_last_two_blocks_ends_a_pool),
    };
    support_keep_memory();
    return cmocka_run_group_tests_name("threads on a pool", tests, NULL, NULL);
}
