/* test_counting.c - resources that count their blocks themselves: what the core leaves
 * alone, and how a pool, which is one, ends on another thread. */
#include "support.h"

#include <pthread.h>
#include <stdlib.h>

#include "internal.h"
#include "resource_internal.h"
#include "weir/limiting.h"
#include "weir/pool.h"
#include "weir/resource_ops.h"

/* ---- a table to play with: host memory, counted without a lock ---- */

typedef struct toy {
    weir_device *device;
    weir_resource *mr;
    int out;
    int closed;
    int destroyed;
    bool is_full;
} toy;

static weir_status toy_allocate(void *context, weir_stream stream,
                                size_t bytes, size_t alignment, void **out)
{
    toy *self = context;
    (void)stream;
    size_t room = (bytes + alignment) / alignment * alignment;
    void *ptr = self->is_full ? NULL : aligned_alloc(alignment, room);
    if (ptr == NULL)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "no room for toys");
    *out = ptr;
    self->out++;
    return WEIR_OK;
}

/* Refuses what cannot be out; what is wrong with it, a real one would say. */
static bool toy_deallocate(void *context, weir_stream stream,
                           void *ptr, size_t bytes, size_t alignment)
{
    toy *self = context;
    (void)stream;
    (void)bytes;
    (void)alignment;
    if (self->out == 0)
        return false;
    free(ptr);
    if (--self->out == 0 && self->closed > 0)
        weir__resource_ended(self->mr);
    return true;
}

static bool toy_close(void *context)
{
    toy *self = context;
    self->closed++;
    return self->out == 0;
}

static void toy_destroy(void *context)
{
    toy *self = context;
    self->destroyed++;
}

static void toy_properties(void *context, weir_resource_properties *out)
{
    toy *self = context;
    out->device = self->device;
    out->host_accessible = true;
}

static const weir_resource_ops toy_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "toy",
    .allocate = toy_allocate,
    .deallocate = toy_deallocate,
    .destroy = toy_destroy,
    .properties = toy_properties,
};

static const weir__counting toy_counting = { .close = toy_close };

static weir_resource *make_toy(toy *self, weir_device *device)
{
    *self = (toy){ .device = device };
    must_ok(weir__resource_create_counting(&toy_ops, &toy_counting, self, &self->mr));
    return self->mr;
}

/* ---- the core ---- */

/* Where no ledger listens the core's part is shorter. */
static weir_device *open_listening(bool has_ledger)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = !has_ledger;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static void both_ways(void (*test)(weir_device *device))
{
    for (int has_ledger = 0; has_ledger < 2; has_ledger++) {
        weir_device *device = open_listening(has_ledger != 0);
        test(device);
        close_emulated(device);
    }
}

/* The core looks at nothing of it once it has taken its last block back: the host's
 * memory for it is gone by then, which the address sanitizer sees. */
static void ends_with_its_last_block(weir_device *device)
{
    toy self;
    weir_resource *mr = make_toy(&self, device);
    must(weir_resource_ref(mr) == mr);
    void *a = take(mr, NULL, 100), *b = take(mr, NULL, 100);
    weir_resource_unref(mr);
    must_equal(self.closed, 0);
    weir_resource_unref(mr); /* the last one */
    must_equal(self.closed, 1);
    give(mr, NULL, a, 100);
    must_equal(self.destroyed, 0);
    must(weir_deallocate_after(mr, b, 100, WEIR_ALIGNMENT, NULL, 0));
    must_equal(self.destroyed, 1);
}

static void resource_ends_with_its_last_block(void **state)
{
    (void)state;
    both_ways(ends_with_its_last_block);
}

static void ends_with_its_last_unref(weir_device *device)
{
    toy self;
    weir_resource *mr = make_toy(&self, device);
    give(mr, NULL, take(mr, NULL, 100), 100);
    must_equal(self.destroyed, 0);
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);
    must_equal(self.closed, 1);
}

static void resource_without_blocks_ends_with_its_last_unref(void **state)
{
    (void)state;
    both_ways(ends_with_its_last_unref);
}

/* What the resource takes back is back, and what it refuses is refused, whatever has
 * passed through the core. */
static void counts_no_block(weir_device *device)
{
    toy self;
    weir_resource *mr = make_toy(&self, device);
    void *past_the_core = NULL;
    must_ok(toy_allocate(&self, NULL, 100, WEIR_ALIGNMENT, &past_the_core));
    give(mr, NULL, past_the_core, 100);

    misuse_log log;
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, &self, 100, WEIR_ALIGNMENT));
    must_equal(log.count, 0); /* to tell is the toy's */
    must(!weir_deallocate(mr, NULL, &self, 0, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, &self);
    misuse_end();

    must_ok(weir_allocate(mr, NULL, 100, WEIR_ALIGNMENT, &past_the_core));
    must(toy_deallocate(&self, NULL, past_the_core, 100, WEIR_ALIGNMENT));
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);
}

static void core_counts_no_block(void **state)
{
    (void)state;
    both_ways(counts_no_block);
}

/* What goes to the resource, what does not, and what it refuses. */
static void asks_for_all_kinds(weir_device *device)
{
    toy self;
    weir_resource *mr = make_toy(&self, device);
    void *ptr = &self;
    must_ok(weir_allocate(mr, NULL, 0, 256, &ptr));
    must(ptr == NULL);
    ptr = &self;
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 3, &ptr));
    must(ptr == NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 512, &ptr));
    must(ptr == NULL && self.out == 0);
    self.is_full = true;
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, NULL, 8, 256, &ptr));
    must(ptr == NULL && self.out == 0);
    self.is_full = false;

    weir_resource *above; /* calls within calls */
    must_ok(weir_limiting_create(mr, 1000, &above));
    ptr = take(above, NULL, 8);
    must_equal(self.out, 1);
    weir_resource_unref(mr);
    give(above, NULL, ptr, 8);
    must_equal(self.destroyed, 0);
    weir_resource_unref(above);
    must_equal(self.destroyed, 1);
    must_equal(weir__thread_self()->depth, 0);
}

static void request_is_answered_as_by_any_resource(void **state)
{
    (void)state;
    both_ways(asks_for_all_kinds);
}

/* ---- a pool ---- */

typedef struct last_block {
    weir_resource *pool;
    void *ptr;
} last_block;

static void *gives_it_back(void *argument)
{
    const last_block *self = argument;
    give(self->pool, NULL, self->ptr, 100);
    return NULL;
}

static void pool_ends_on_the_thread_of_its_last_block(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    size_t before = device_free_bytes(device);
    last_block last;
    must_ok(weir_resource_open(device, "pool/device", &last.pool));
    last.ptr = take(last.pool, NULL, 100);
    weir_resource_unref(last.pool);
    must(device_free_bytes(device) < before);

    pthread_t thread;
    must(pthread_create(&thread, NULL, gives_it_back, &last) == 0);
    must(pthread_join(thread, NULL) == 0);
    must_equal(device_free_bytes(device), before);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resource_ends_with_its_last_block),
        cmocka_unit_test(resource_without_blocks_ends_with_its_last_unref),
        cmocka_unit_test(core_counts_no_block),
        cmocka_unit_test(request_is_answered_as_by_any_resource),
        cmocka_unit_test(pool_ends_on_the_thread_of_its_last_block),
    };
    return cmocka_run_group_tests_name("counting", tests, NULL, NULL);
}
