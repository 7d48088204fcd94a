/* test_resource.c - the core: tables, who lives how long, dispatch, forks. */
#include "support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "internal.h"
#include "resource_internal.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/logging.h"
#include "weir/resource_ops.h"
#include "weir/statistics.h"

/* ---- a table to play with: host memory, counted ---- */

typedef struct toy {
    weir_device *device;
    weir_resource *upstream;
    int allocated;
    int deallocated;
    int destroyed;
    size_t misplaced_by;      /* added to what allocate answers */
    bool answers_null;
    weir_stream back_on;      /* of the last deallocate */
    size_t trimmed_to;
    size_t extended_to;
} toy;

static weir_status toy_allocate(void *context, weir_stream stream,
                                size_t bytes, size_t alignment, void **out)
{
    toy *self = context;
    (void)stream;
    *out = NULL;
    if (self->answers_null)
        return WEIR_OK;
    size_t room = (bytes + 2 * alignment) / alignment * alignment;
    *out = aligned_alloc(alignment, room);
    if (*out == NULL)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "no room for toys");
    *out = (char *)*out + self->misplaced_by;
    self->allocated++;
    return WEIR_OK;
}

static bool toy_deallocate(void *context, weir_stream stream,
                           void *ptr, size_t bytes, size_t alignment)
{
    toy *self = context;
    (void)bytes;
    (void)alignment;
    free((char *)ptr - self->misplaced_by);
    self->deallocated++;
    self->back_on = stream;
    return true;
}

static void toy_destroy(void *context)
{
    toy *self = context;
    self->destroyed++;
}

static size_t toy_trim_sync(void *context, size_t keep_bytes)
{
    toy *self = context;
    self->trimmed_to = keep_bytes;
    return 77;
}

static weir_resource *toy_upstream(void *context)
{
    toy *self = context;
    return self->upstream;
}

static void toy_properties(void *context, weir_resource_properties *out)
{
    toy *self = context;
    out->device = self->device;
    out->host_accessible = true;
    out->max_alignment = 1024;
}

static weir_status toy_extend(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment, size_t new_bytes)
{
    toy *self = context;
    (void)stream;
    (void)ptr;
    (void)bytes;
    (void)alignment;
    self->extended_to = new_bytes;
    return WEIR_OK;
}

static const weir_resource_ops toy_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "toy",
    .allocate = toy_allocate,
    .deallocate = toy_deallocate,
    .destroy = toy_destroy,
    .properties = toy_properties,
};

static weir_resource *make_toy(toy *self, weir_device *device)
{
    weir_resource *mr;
    *self = (toy){ .device = device };
    must_ok(weir_resource_create(&toy_ops, self, &mr));
    return mr;
}

/* ---- tables ---- */

static void table_may_be_older_or_newer(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    toy below_self, self = { .device = device };
    weir_resource *below = make_toy(&below_self, device), *mr;
    self.upstream = below;

    weir_resource_ops older = toy_ops;
    older.upstream = toy_upstream;
    older.extend = toy_extend;
    older.struct_size = offsetof(weir_resource_ops, properties);
    must_ok(weir_resource_create(&older, &self, &mr));
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_extend(mr, NULL, &self, 1, 256, 2));
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);

    struct {
        weir_resource_ops known;
        void (*unheard_of)(void);
    } newer = { toy_ops, NULL };
    newer.known.struct_size = sizeof newer;
    must_ok(weir_resource_create(&newer.known, &self, &mr));
    weir_resource_unref(mr);
    newer.unheard_of = abort;
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_create(&newer.known, &self, &mr));
    must(mr == NULL);
    must_equal(self.destroyed, 2); /* what failed is the caller's still */
    weir_resource_unref(below);
    close_emulated(device);
}

static void table_must_be_complete(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(2));
    toy self = { .device = device };
    weir_resource *mr = (weir_resource *)&self;

    weir_resource_ops bad = toy_ops;
    bad.struct_size = 0;
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_create(&bad, &self, &mr));
    must(mr == NULL);
    bad.struct_size = offsetof(weir_resource_ops, destroy);
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_create(&bad, &self, &mr));

#define WITHOUT(member)                                                          \
    bad = toy_ops;                                                               \
    bad.member = NULL;                                                           \
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_create(&bad, &self, &mr))
    WITHOUT(name);
    WITHOUT(allocate);
    WITHOUT(deallocate);
    WITHOUT(destroy);
    WITHOUT(properties); /* a leaf has to tell its device */
#undef WITHOUT

    bad = toy_ops;
    bad.upstream = toy_upstream; /* and it is null */
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_create(&bad, &self, &mr));
    self.device = NULL;
    must_answer(WEIR_INVALID_ARGUMENT, weir_resource_create(&toy_ops, &self, &mr));
    must_equal(self.destroyed, 0);
    close_emulated(device);
}

static void properties_come_from_the_whole_chain(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(3));
    weir_resource *leaf, *limited, *counted;
    must_ok(weir_device_resource_create(device, &leaf));
    must_ok(weir_limiting_create(leaf, 1000, &limited));
    must_ok(weir_statistics_create(limited, &counted));

    weir_resource_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_resource_get_properties(counted, &properties));
    assert_string_equal(properties.name, "statistics");
    assert_string_equal(properties.leaf, "device");
    must(properties.device == device);
    must(weir_resource_device(counted) == device);
    must(weir_resource_upstream(counted, 0) == limited);
    must(weir_resource_upstream(limited, 0) == leaf);
    must(weir_resource_upstream(leaf, 0) == NULL);
    must(weir_resource_upstream(counted, 1) == NULL);
    must_equal(properties.max_alignment, 256);
    must(properties.device_accessible && !properties.host_accessible);
    must(properties.can_trim && properties.can_find && !properties.can_extend);
    must(properties.usable_at_once);

    /* Whoever knows only the beginning of the struct gets no more. */
    struct { size_t struct_size; const char *name; const char *not_asked; } brief =
        { offsetof(weir_resource_properties, leaf), NULL, "as before" };
    weir_resource_properties *as_brief = (weir_resource_properties *)&brief;
    must_ok(weir_resource_get_properties(leaf, as_brief));
    assert_string_equal(brief.name, "device");
    assert_string_equal(brief.not_asked, "as before");

    weir_resource_unref(counted);
    weir_resource_unref(limited);
    weir_resource_unref(leaf);
    close_emulated(device);
}

/* ---- who lives how long ---- */

static void resource_lives_until_the_last_block_is_back(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(4));
    toy self;
    weir_resource *mr = make_toy(&self, device);
    must(weir_resource_ref(mr) == mr);

    void *a = take(mr, NULL, 100), *b = take(mr, NULL, 100);
    weir_resource_unref(mr);
    weir_resource_unref(mr); /* the last one */
    must_equal(self.destroyed, 0);
    give(mr, NULL, a, 100);
    must_equal(self.destroyed, 0);
    give(mr, NULL, b, 100);
    must_equal(self.destroyed, 1);

    mr = make_toy(&self, device);
    a = take(mr, NULL, 100);
    give(mr, NULL, a, 100);
    must_equal(self.destroyed, 0);
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);
    weir_resource_unref(NULL);
    close_emulated(device);
}

static void resource_keeps_upstream_and_device_alive(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(5));
    toy self;
    weir_resource *mr = make_toy(&self, device), *above;
    must_ok(weir_limiting_create(mr, 1000, &above));
    weir_resource_unref(mr);
    weir_device_unref(device); /* the resources hold it */
    void *a = take(above, NULL, 10);
    weir_resource_unref(above);
    must_equal(self.destroyed, 0);
    weir_device_ref(device);
    give(above, NULL, a, 10); /* the last block: all go, top down */
    must_equal(self.destroyed, 1);
    close_emulated(device);
}

/* ---- dispatch ---- */

static void allocate_checks_what_it_is_asked_and_what_it_gets(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(6));
    toy self;
    weir_resource *mr = make_toy(&self, device);
    void *ptr = &self;

    must_ok(weir_allocate(mr, NULL, 0, 8, &ptr));
    must(ptr == NULL);
    ptr = &self;
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 3, &ptr));
    must(ptr == NULL);
    must(strstr(weir_last_error().message, "alignment 3") != NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 0, &ptr));
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 8, 2048, &ptr));
    must(strstr(weir_last_error().message, "1024") != NULL);
    must_answer(WEIR_INVALID_ARGUMENT, weir_allocate(mr, NULL, 0, 3, &ptr));
    must_equal(self.allocated, 0);
    must_ok(weir_allocate(mr, NULL, 8, 1024, &ptr));
    must(weir_deallocate(mr, NULL, ptr, 8, 1024));

    /* A table that breaks its promise: the block goes back, and nobody sees it. */
    self.misplaced_by = 8;
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(mr, NULL, 8, 256, &ptr));
    must(ptr == NULL);
    must_equal(self.allocated, self.deallocated);
    self.misplaced_by = 0;
    self.answers_null = true;
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(mr, NULL, 8, 256, &ptr));
    weir_resource_unref(mr);
    must_equal(self.destroyed, 1);
    close_emulated(device);
}

static void defaults_pass_on_to_upstream(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(7));
    toy below = { .device = device };
    weir_resource_ops ops = toy_ops;
    ops.trim_sync = toy_trim_sync;
    ops.extend = toy_extend;
    weir_resource *leaf, *above;
    must_ok(weir_resource_create(&ops, &below, &leaf));
    /* It has none of these. */
    must_ok(weir_logging_create(leaf, "/dev/null", NULL, &above));

    must_equal(weir_resource_trim_sync(above, 5), 77);
    must_equal(below.trimmed_to, 5);
    must_ok(weir_resource_extend(leaf, NULL, &below, 10, 256, 20));
    must_equal(below.extended_to, 20);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_resource_extend(leaf, NULL, &below, 10, 256, 10));
    weir_block block = { .struct_size = sizeof block };
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_find(above, &below, &block));
    weir_resource_statistics statistics = { .struct_size = sizeof statistics };
    must_answer(WEIR_NOT_SUPPORTED, weir_resource_get_statistics(above, &statistics));

    weir_resource_unref(above);
    weir_resource_unref(leaf);
    toy bare;
    leaf = make_toy(&bare, device);
    must_equal(weir_resource_trim_sync(leaf, 0), 0);
    must_answer(WEIR_NOT_SUPPORTED,
                weir_resource_extend(leaf, NULL, &bare, 10, 256, 20));
    weir_resource_unref(leaf);
    close_emulated(device);
}

/* Two streams are stalled; whichever gate opens last holds the legacy stream. */
static void free_behind_both(weir_device *device, size_t last)
{
    toy self;
    weir_resource *mr = make_toy(&self, device);
    weir_stream streams[2];
    uint64_t gates[2];
    weir_point points[2];
    void *ptr = take(mr, NULL, 100);
    for (size_t i = 0; i < 2; i++) {
        streams[i] = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        must_ok(weir_stream_wait(device, streams[i], NULL)); /* they have it now */
        must_ok(weir_emulated_stall(device, streams[i], &gates[i]));
        must_ok(weir_point_here(device, streams[i], &points[i]));
    }
    must(weir_deallocate_after(mr, ptr, 100, 256, points, 2));
    must(self.back_on == WEIR_STREAM_LEGACY);

    bool done = true;
    must_ok(weir_emulated_open_gate(device, gates[1 - last]));
    must_ok(weir_stream_sync(device, streams[1 - last]));
    must_ok(weir_stream_query(device, WEIR_STREAM_LEGACY, &done));
    must(!done);
    must_ok(weir_emulated_open_gate(device, gates[last]));
    must_ok(weir_stream_sync(device, WEIR_STREAM_LEGACY));
    must_ok(weir_stream_query(device, streams[last], &done));
    must(done);

    ptr = take(mr, NULL, 100);
    must(weir_deallocate_after(mr, ptr, 100, 256, NULL, 0));
    must_equal(self.deallocated, 2);
    weir_resource_unref(mr);
    end_stream(device, streams[0]);
    end_stream(device, streams[1]);
}

static void block_without_a_better_way_goes_back_behind_points(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(8));
    free_behind_both(device, 0);
    free_behind_both(device, 1);
    close_emulated(device);
}

static void block_is_found_and_freed_by_its_address(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(9));
    weir_resource *leaf, *mr;
    must_ok(weir_device_resource_create(device, &leaf));
    must_ok(weir_limiting_create(leaf, 1000, &mr));
    weir_stream s = make_stream(device, WEIR_STREAM_NON_BLOCKING);
    void *ptr;
    must_ok(weir_allocate(mr, s, 100, 64, &ptr));

    weir_block block = { .struct_size = sizeof block };
    must_ok(weir_resource_find(mr, ptr, &block));
    must(block.ptr == ptr && block.bytes == 100 && block.alignment == 64);
    must(block.stream == s);
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, (char *)ptr + 1, &block));
    must(block.ptr == NULL && block.bytes == 0);

    must(weir_free(mr, ptr));
    must(weir_free(mr, NULL));
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, ptr, &block));
    must_equal(statistics_of(leaf).out_blocks, 0);

    misuse_log log;
    misuse_begin(&log);
    must(!weir_free(mr, ptr));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, ptr);
    must(!weir_free(mr, &block));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &block);
    toy self;
    weir_resource *without_records = make_toy(&self, device);
    ptr = take(without_records, NULL, 1);
    must(!weir_free(without_records, ptr));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    give(without_records, NULL, ptr, 1);
    must(!weir_deallocate(without_records, NULL, &block, 1, 256)); /* none is out */
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, &block);
    misuse_end();

    weir_resource_unref(without_records);
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    end_stream(device, s);
    close_emulated(device);
}

static void makers_of_tables_can_fail_and_report(void **state)
{
    (void)state;
    must_answer(WEIR_LIMIT_REACHED,
                weir_resource_refuse(WEIR_LIMIT_REACHED, "so it is"));
    assert_string_equal(weir_last_error().message, "so it is");
    must_answer(WEIR_NOT_FOUND, weir_resource_refuse(WEIR_NOT_FOUND, NULL));
    must(weir_last_error().message[0] != '\0');
    must_ok(weir_resource_refuse(WEIR_OK, "nothing"));

    misuse_log log;
    misuse_begin(&log);
    const weir_misuse misuse = { WEIR_MISUSE_WRONG_SIZE, "a size", &log, 5 };
    weir_resource_report_misuse(&misuse);
    assert_string_equal(log.message, "a size");
    must_equal(log.bytes, 5);
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, &log);
    misuse_end();
}

static void self_is_given_to_its_own_kind_only(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(10));
    toy self;
    weir_resource *mr = make_toy(&self, device), *other;
    must_ok(weir_device_resource_create(device, &other));
    must(weir__resource_self(mr, &toy_ops) == &self);
    must(weir__resource_self(other, &toy_ops) == NULL);
    must(weir__resource_self(NULL, &toy_ops) == NULL);
    weir_resource_unref(mr);
    weir_resource_unref(other);
    close_emulated(device);
}

/* ---- what the ledger hears ---- */

static void use_after_free(weir_resource *mr, weir_device *device)
{
    uint64_t ignored;
    void *ptr = take(mr, NULL, 4096);
    stamp(device, NULL, ptr, 4096, 1);
    must_ok(weir_emulated_stall(device, NULL, &ignored)); /* so that it stays kept */
    give(mr, NULL, ptr, 4096);
    size_t before = weir_emulated_findings(device);
    stamp(device, NULL, ptr, 4096, 2);
    must_equal(weir_emulated_findings(device), before + 1);
    must_ok(weir_emulated_open_gate(device, ignored));
}

static void ledger_hears_of_the_outermost_call(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(11));
    weir_resource *leaf, *mr, *pool; /* which counts its blocks itself */
    must_ok(weir_device_resource_create(device, &leaf));
    must_ok(weir_limiting_create(leaf, 100000, &mr));
    must_ok(weir_resource_open(device, "pool/device", &pool));
    use_after_free(leaf, device);
    use_after_free(mr, device);
    use_after_free(pool, device);
    weir_resource_unref(pool);

    /* A deallocation that is refused changes nothing for the ledger either. */
    misuse_log log;
    misuse_begin(&log);
    void *ptr = take(mr, NULL, 4096);
    size_t before = weir_emulated_findings(device);
    must(!weir_deallocate(mr, NULL, ptr, 4095, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_WRONG_SIZE, ptr);
    weir_resource *stranger;
    must_ok(weir_device_resource_create(device, &stranger));
    must(!weir_deallocate(stranger, NULL, ptr, 4096, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    misuse_end();
    stamp(device, NULL, ptr, 4096, 3);
    must_equal(weir_emulated_findings(device), before);
    give(mr, NULL, ptr, 4096);

    weir_resource_unref(stranger);
    weir_resource_unref(mr);
    weir_resource_unref(leaf);
    must_ok(weir_device_sync(device));
    close_anyhow(device); /* it has findings on purpose */
}

/* ---- fork ---- */

#define CHILD_CLAIM(condition) ((condition) ? (void)0 : _exit(__LINE__ % 250 + 1))

static void child_has_nothing_to_do_with_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(15));
    weir_resource *mr, *none;
    must_ok(weir_resource_open(device, "statistics/device", &mr));
    void *ptr = take(mr, NULL, 100);

    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        void *other = &mr;
        CHILD_CLAIM(weir_allocate(mr, NULL, 100, 256, &other) == WEIR_FORKED);
        CHILD_CLAIM(other == NULL);
        CHILD_CLAIM(weir_deallocate(mr, NULL, ptr, 100, 256));
        CHILD_CLAIM(weir_deallocate_after(mr, ptr, 100, 256, NULL, 0));
        CHILD_CLAIM(weir_free(mr, ptr));
        CHILD_CLAIM(weir_resource_open(device, "device", &none) == WEIR_FORKED);
        CHILD_CLAIM(weir_resource_trim_sync(mr, 0) == 0);
        weir_resource_unref(mr);
        weir_resource_unref(mr); /* would be once too often */
        _exit(0);
    }
    int status = -1;
    must(waitpid(child, &status, 0) == child);
    must_equal(status, 0);

    give(mr, NULL, ptr, 100);
    weir_resource_unref(mr);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_may_be_older_or_newer),
        cmocka_unit_test(table_must_be_complete),
        cmocka_unit_test(properties_come_from_the_whole_chain),
        cmocka_unit_test(resource_lives_until_the_last_block_is_back),
        cmocka_unit_test(resource_keeps_upstream_and_device_alive),
        cmocka_unit_test(allocate_checks_what_it_is_asked_and_what_it_gets),
        cmocka_unit_test(defaults_pass_on_to_upstream),
        cmocka_unit_test(block_without_a_better_way_goes_back_behind_points),
        cmocka_unit_test(block_is_found_and_freed_by_its_address),
        cmocka_unit_test(makers_of_tables_can_fail_and_report),
        cmocka_unit_test(self_is_given_to_its_own_kind_only),
        cmocka_unit_test(ledger_hears_of_the_outermost_call),
        cmocka_unit_test(child_has_nothing_to_do_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
