/* test_counting.c - resources that count their blocks themselves: what the core leaves
 * alone, and how a pool, which is one, ends on another thread. */
#include "support.h"

#include <pthread.h>
#include <stdlib.h>

#include "resource_internal.h"
#include "weir/pool.h"
#include "weir/resource_ops.h"

/* ---- a table to play with: host memory, counted without a lock ---- */

typedef struct toy {
    weir_device *device;
    weir_resource *mr;
    int out;
    int closed;
    int destroyed;
} toy;

static weir_status toy_allocate(void *context, weir_stream stream,
                                size_t bytes, size_t alignment, void **out)
{
    toy *self = context;
    (void)stream;
    *out = aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
    if (*out == NULL)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "no room for toys");
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

/* The core looks at nothing of it once it has taken its last block back: the host's
 * memory for it is gone by then, which the address sanitizer sees. */
static void resource_ends_with_its_last_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
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
    close_emulated(device);
}

static void resource_without_blocks_ends_with_its_last_unref(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    toy self;
    weir_resource *mr = make_toy(&self, device);
    give(mr, NULL, take(mr, NULL, 100), 100);
    must_equal(self.destroyed, 0);
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);
    must_equal(self.closed, 1);
    close_emulated(device);
}

/* What the resource takes back is back, and what it refuses is refused, whatever has
 * passed through the core. */
static void core_counts_no_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
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
    close_emulated(device);
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
        cmocka_unit_test(pool_ends_on_the_thread_of_its_last_block),
    };
    return cmocka_run_group_tests_name("counting", tests, NULL, NULL);
}
