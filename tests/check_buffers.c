/* check_buffers.c - the checklist's lines on who owns a buffer, D45 to D54, and some
 * on what two sides see of the same bytes, B27 to B29. */
#include "support_checklist.h"

#include <string.h>

#include "support_pattern.h"
#include "weir/buffer.h"

#define BYTES ((size_t)4096)
#define MORE  ((size_t)3 * BYTES)

/* Memory from elsewhere: a leaf of the test's own, and a deleter that gives it back
 * there, and counts. */
typedef struct foreign_maker {
    weir_resource *leaf;
    weir_foreign foreign;
    unsigned deleted;
    weir_stream deleted_on;
} foreign_maker;

static void foreign_delete(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    foreign_maker *it = context;
    it->deleted++;
    it->deleted_on = stream;
    give(it->leaf, stream, ptr, bytes);
}

static void foreign_begin(foreign_maker *it, weir_device *device, weir_stream stream)
{
    memset(it, 0, sizeof *it);
    must_ok(weir_resource_open(device, "device", &it->leaf));
    it->foreign = (weir_foreign)WEIR_FOREIGN_INIT;
    it->foreign.ptr = take(it->leaf, stream, BYTES);
    it->foreign.bytes = BYTES;
    it->foreign.deleter = foreign_delete;
    it->foreign.context = it;
}

/* By then it was deleted, once. */
static void foreign_end(foreign_maker *it)
{
    must_equal(it->deleted, 1);
    weir_resource_unref(it->leaf);
}

static weir_buffer allocate(checklist_stage *it, weir_stream stream, size_t bytes)
{
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(it->mr, stream, bytes, WEIR_ALIGNMENT, &buffer));
    return buffer;
}

static bool owns(const weir_buffer *buffer)
{
    weir_buffer_properties properties = { .struct_size = sizeof properties };
    must_ok(weir_buffer_get_properties(buffer, &properties));
    return properties.owns;
}

static size_t blocks_out(checklist_stage *it)
{
    return statistics_of(it->mr).out_blocks;
}

/* What a call has answered that changed nothing. */
static void must_be_as_before(const weir_buffer *buffer, const weir_buffer *before)
{
    must(buffer->data == before->data && buffer->storage == before->storage);
    must(buffer->stream == before->stream && buffer->resource == before->resource);
    must_equal(buffer->size, before->size);
    must_equal(buffer->capacity, before->capacity);
}

/* ---- D: who owns a buffer ---- */

/* All that was handed out goes back by the buffers alone. */
static void d45_whatever_allocates_returns_a_buffer(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer out[5];
    out[0] = allocate(&it, it.a, BYTES);
    must_ok(weir_buffer_copy(&out[0], NULL, it.b, &out[1]));
    must_ok(weir_buffer_share(&out[0], &out[2]));
    must_ok(weir_buffer_slice(&out[0], 8, 16, &out[3]));
    must_ok(weir_buffer_view(out[0].data, BYTES, it.a, &out[4]));
    must_ok(weir_buffer_own(&out[4], it.mr, it.a));
    must_equal(blocks_out(&it), 3);
    for (size_t i = 0; i < 5; i++) {
        must(owns(&out[i]));
        weir_buffer_reset(&out[i]);
        must(out[i].data == NULL && out[i].storage == NULL);
    }
    must_equal(blocks_out(&it), 0);
    checklist_end(&it);
}

static void d46_a_foreign_pointer_is_adopted_without_a_copy(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    foreign_maker maker;
    foreign_begin(&maker, it.device, it.a);
    uint64_t gate = checklist_hold(it.device, it.b);
    stamp(it.device, it.a, maker.foreign.ptr, BYTES, 46);
    uint64_t copies = checklist_copies(it.device);
    weir_buffer buffer;
    must_ok(weir_buffer_adopt(it.device, it.a, &maker.foreign, &buffer));
    must(buffer.data == maker.foreign.ptr);
    must_equal(buffer.size, BYTES);
    must(owns(&buffer));

    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_READ));
    check_stamp(it.device, it.b, buffer.data, BYTES, 46);
    must_ok(weir_buffer_use(&buffer, it.b, WEIR_READ));
    weir_buffer_reset(&buffer); /* b is still to read, and the deleter's stream waits */
    must_equal(maker.deleted, 1);
    must_be_held(it.device, maker.deleted_on);
    checklist_let_go(it.device, gate);
    must_equal(checklist_copies(it.device), copies);
    foreign_end(&maker);
    checklist_end(&it);
}

/* The other side of a pointer and a size in C: a whole block, and what made it. */
static void d47_a_deserialised_block_goes_into_an_empty_slot(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    struct { weir_buffer slot; } model = { .slot = { .data = NULL } };
    void *ptr = take(it.mr, it.b, BYTES);
    uint64_t gate = checklist_hold(it.device, it.b);
    stamp(it.device, it.b, ptr, BYTES, 47);
    must_ok(weir_buffer_adopt_block(it.mr, it.b, ptr, BYTES, WEIR_ALIGNMENT,
                                    &model.slot));
    must(model.slot.data == ptr);
    must_equal(model.slot.size, BYTES);
    must_equal(checklist_copies(it.device), 0);
    must_equal(statistics_of(it.mr).allocations, 1);

    /* It is as one that Weir has allocated: it can grow, behind who wrote it. */
    must_ok(weir_buffer_resize(&model.slot, MORE, it.a));
    check_stamp(it.device, it.a, model.slot.data, BYTES, 47);
    must_be_held(it.device, it.a);
    checklist_let_go(it.device, gate);
    weir_buffer_reset(&model.slot);
    must_equal(blocks_out(&it), 0);
    checklist_end(&it);
}

static void d48_what_is_released_outlives_the_buffer(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = allocate(&it, it.a, BYTES);
    void *ptr = buffer.data;
    stamp(it.device, it.a, ptr, BYTES, 48);
    must_ok(weir_buffer_wait(&buffer, it.b, WEIR_READ));
    uint64_t gate = checklist_hold(it.device, it.b);
    check_stamp(it.device, it.b, ptr, BYTES, 48);
    must_ok(weir_buffer_use(&buffer, it.b, WEIR_READ));

    weir_released out = { .struct_size = sizeof out };
    must_ok(weir_buffer_release(&buffer, &out));
    weir_buffer_reset(&buffer);
    must(out.data == ptr && out.ptr == ptr && out.deleter == NULL);
    must_equal(out.size, BYTES);
    must_equal(checklist_copies(it.device), 0);
    must_equal(blocks_out(&it), 1);

    /* The caller may write, and free, at once: the stream is behind who still reads. */
    stamp(it.device, out.stream, out.data, BYTES, 49);
    must_be_held(it.device, out.stream);
    must(weir_deallocate(out.resource, out.stream, out.ptr, out.bytes, out.alignment));
    weir_resource_unref(out.resource);
    checklist_let_go(it.device, gate);
    must_equal(blocks_out(&it), 0);
    checklist_end(&it);
}

/* A function of a library's, which fills its caller's buffer on a stream of its own. */
static void fit(checklist_stage *it, weir_buffer *coefficients)
{
    must_ok(weir_buffer_resize(coefficients, MORE, it->b));
    check_stamp(it->device, it->b, coefficients->data, BYTES, 49);
    stamp(it->device, it->b, coefficients->data, MORE, 50);
}

static void d49_a_callee_resizes_its_callers_buffer(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = allocate(&it, it.a, BYTES);
    weir_buffer before = buffer;
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, buffer.data, BYTES, 49);
    fit(&it, &buffer);
    must_be_held(it.device, it.b);
    must_equal(buffer.size, MORE);
    must(buffer.capacity >= MORE && buffer.data != NULL);
    must(buffer.stream == it.b && buffer.resource == before.resource);
    must_equal(blocks_out(&it), 1);
    checklist_let_go(it.device, gate);

    must_ok(weir_buffer_wait(&buffer, it.c, WEIR_READ));
    check_stamp(it.device, it.c, buffer.data, MORE, 50);
    must_ok(weir_buffer_use(&buffer, it.c, WEIR_READ));
    weir_buffer_reset(&buffer);
    checklist_end(&it);
}

/* Claims that `buffer` stays as it is, and that `stream` waits for nothing. */
static void must_refuse_to_resize(checklist_stage *it, weir_buffer *buffer)
{
    weir_buffer before = *buffer;
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(buffer, MORE, it->b));
    must_be_as_before(buffer, &before);
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(buffer, 1, it->b));
    must_be_as_before(buffer, &before);
    must_answer(WEIR_NOT_OWNED, weir_buffer_reserve(buffer, MORE, it->b));
    must_answer(WEIR_NOT_OWNED, weir_buffer_shrink(buffer, it->b));
    must_be_as_before(buffer, &before);
    must_not_be_held(it->device, it->b);
}

static void d50_what_does_not_own_alone_is_not_resized(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer owner = allocate(&it, it.a, BYTES), view, shared, foreign;
    foreign_maker maker;
    foreign_begin(&maker, it.device, it.a);
    uint64_t gate = checklist_hold(it.device, it.a);
    stamp(it.device, it.a, owner.data, BYTES, 50);
    must_ok(weir_buffer_view(owner.data, BYTES, it.a, &view));
    must_refuse_to_resize(&it, &view);
    must_ok(weir_buffer_share(&owner, &shared));
    must_refuse_to_resize(&it, &shared);
    must_refuse_to_resize(&it, &owner);
    weir_buffer_reset(&shared);
    must_ok(weir_buffer_adopt(it.device, it.a, &maker.foreign, &foreign));
    must_refuse_to_resize(&it, &foreign);
    weir_buffer_reset(&foreign);

    /* A view becomes an owner by copying, and then it can be. */
    must_ok(weir_buffer_own(&view, it.mr, it.a));
    must(view.data != owner.data);
    must_ok(weir_buffer_resize(&view, MORE, it.b));
    check_stamp(it.device, it.b, view.data, BYTES, 50);
    must_be_held(it.device, it.b);
    must_ok(weir_buffer_resize(&owner, MORE, it.a)); /* it is alone again */
    checklist_let_go(it.device, gate);
    weir_buffer_reset(&view);
    weir_buffer_reset(&owner);
    foreign_end(&maker);
    checklist_end(&it);
}

static void d51_a_buffer_gives_its_bytes_away_and_takes_them_back(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = allocate(&it, it.a, BYTES);
    void *ptr = buffer.data;
    stamp(it.device, it.a, ptr, BYTES, 51);
    for (unsigned turn = 0; turn < 3; turn++) {
        weir_released out = { .struct_size = sizeof out };
        must_ok(weir_buffer_release(&buffer, &out));
        weir_buffer_reset(&buffer);
        must_equal(statistics_of(it.mr).deallocations, 0);

        must_ok(weir_buffer_view(out.ptr, out.bytes, out.stream, &buffer));
        must(!owns(&buffer));
        weir_buffer_reset(&buffer);
        must_equal(statistics_of(it.mr).deallocations, 0);

        must_ok(weir_buffer_adopt_block(out.resource, out.stream, out.ptr, out.bytes,
                                        out.alignment, &buffer));
        weir_resource_unref(out.resource);
        must(owns(&buffer) && buffer.data == ptr);
        check_stamp(it.device, buffer.stream, ptr, BYTES, 51);
    }
    weir_buffer_reset(&buffer);
    weir_buffer_reset(&buffer); /* which is empty, and frees nothing */
    must_equal(statistics_of(it.mr).deallocations, 1);
    must_equal(statistics_of(it.mr).allocations, 1);
    must_equal(checklist_copies(it.device), 0);
    checklist_end(&it);
}

/* Each of three holders is the last one once. */
static void d52_the_last_holder_frees(void **state)
{
    (void)state;
    for (size_t last = 0; last < 3; last++) {
        checklist_stage it = checklist_begin();
        weir_buffer holders[3];
        holders[0] = allocate(&it, it.a, BYTES);
        must_ok(weir_buffer_share(&holders[0], &holders[1]));
        must_ok(weir_buffer_slice(&holders[0], BYTES / 2, BYTES / 2, &holders[2]));
        char *base = holders[0].data;
        stamp(it.device, it.a, base, BYTES, 52);
        for (size_t i = 1; i < 3; i++) {
            weir_buffer_reset(&holders[(last + i) % 3]);
            must_equal(blocks_out(&it), 1);
        }
        must(holders[last].data == (last == 2 ? base + BYTES / 2 : base));
        check_stamp(it.device, it.a, base, BYTES, 52);
        weir_buffer_reset(&holders[last]);
        must_equal(blocks_out(&it), 0);
        checklist_end(&it);
    }
}

static void d53_a_weak_reference_tells_that_its_buffer_is_gone(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = allocate(&it, it.a, BYTES), again;
    void *ptr = buffer.data;
    weir_weak_buffer weak;
    must_ok(weir_buffer_weaken(&buffer, &weak));
    must_ok(weir_weak_buffer_upgrade(&weak, &again));
    must(again.data == ptr && owns(&again));
    weir_buffer_reset(&buffer);
    must_equal(blocks_out(&it), 1); /* what was upgraded holds it */
    must_ok(weir_weak_buffer_upgrade(&weak, &buffer));
    weir_buffer_reset(&buffer);
    weir_buffer_reset(&again);
    must_equal(blocks_out(&it), 0); /* what is weak does not */

    /* Not even once another buffer has the same place. */
    weir_buffer other = allocate(&it, it.a, BYTES);
    must(other.data == ptr);
    must_answer(WEIR_NOT_FOUND, weir_weak_buffer_upgrade(&weak, &again));
    must(again.data == NULL && again.storage == NULL);
    weir_buffer_reset(&other);
    weir_weak_buffer_reset(&weak);
    checklist_end(&it);
}

/* A function of a library's with a fixed interface in C: its caller's bytes stay where
 * they are, and the caller's, whatever it does with its window on them. */
static void scale(checklist_stage *it, void *values, size_t bytes)
{
    weir_buffer window, part;
    must_ok(weir_buffer_view(values, bytes, it->a, &window));
    must_ok(weir_buffer_slice(&window, 0, bytes / 2, &part));
    must(window.data == values && part.data == values);
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&window, 2 * bytes, it->a));
    weir_released out = { .struct_size = sizeof out };
    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&window, &out));
    must(window.data == values && out.ptr == NULL);
    stamp(it->device, it->a, window.data, bytes, 54);
    must_ok(weir_buffer_own(&part, it->mr, it->a));
    stamp(it->device, it->a, part.data, part.size, 0);
    weir_buffer_reset(&part);
    weir_buffer_reset(&window);
}

static void d54_the_callers_pointer_is_neither_freed_nor_moved(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    void *values = take(it.mr, it.a, BYTES);
    stamp(it.device, it.a, values, BYTES, 53);
    scale(&it, values, BYTES);
    must_equal(blocks_out(&it), 1);
    check_stamp(it.device, it.a, values, BYTES, 54);
    give(it.mr, it.a, values, BYTES);
    must_equal(blocks_out(&it), 0);
    checklist_end(&it);
}

/* ---- B: what both sides of the same bytes see ---- */

static void b27_a_buffer_that_gave_its_bytes_away_is_empty(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = allocate(&it, it.a, BYTES), other;
    weir_released out = { .struct_size = sizeof out }, more = out;
    must_ok(weir_buffer_release(&buffer, &out));
    must(buffer.data == NULL && buffer.storage == NULL && !owns(&buffer));
    must_equal(buffer.size, 0);
    must_equal(buffer.capacity, 0);

    must_answer(WEIR_NOT_OWNED, weir_buffer_release(&buffer, &more));
    must_answer(WEIR_NOT_OWNED, weir_buffer_share(&buffer, &other));
    must_answer(WEIR_NOT_OWNED, weir_buffer_use(&buffer, it.a, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_wait(&buffer, it.b, WEIR_READ));
    must_answer(WEIR_NOT_OWNED, weir_buffer_wait_sync(&buffer, WEIR_READ));
    must_answer(WEIR_INVALID_ARGUMENT, weir_buffer_slice(&buffer, 0, 1, &other));
    must_ok(weir_buffer_resize(&buffer, BYTES, it.a)); /* it has its resource */
    must(buffer.data != out.ptr);
    weir_buffer_reset(&buffer);
    must_ok(weir_released_free_sync(it.device, &out));
    must_equal(blocks_out(&it), 0);
    checklist_end(&it);
}

static void b28_two_holders_of_the_same_bytes_see_a_write(void **state)
{
    (void)state;
    checklist_stage it = checklist_begin();
    weir_buffer buffer = allocate(&it, it.a, BYTES), first, second;
    must_ok(weir_buffer_share(&buffer, &first));
    must_ok(weir_buffer_share(&buffer, &second));
    weir_buffer_reset(&buffer);
    must(first.data == second.data);

    must_ok(weir_buffer_wait(&first, it.b, WEIR_WRITE));
    uint64_t gate = checklist_hold(it.device, it.b);
    stamp(it.device, it.b, first.data, BYTES, 28);
    must_ok(weir_buffer_use(&first, it.b, WEIR_WRITE));
    must_ok(weir_buffer_wait(&second, it.c, WEIR_READ));
    check_stamp(it.device, it.c, second.data, BYTES, 28);
    must_ok(weir_buffer_use(&second, it.c, WEIR_READ));
    must_be_held(it.device, it.c);
    weir_buffer_reset(&first);
    must_equal(blocks_out(&it), 1);
    weir_buffer_reset(&second);
    must_equal(blocks_out(&it), 0);
    void *next = take(it.mr, it.a, BYTES); /* the same place, behind both */
    stamp(it.device, it.a, next, BYTES, 29);
    give(it.mr, it.a, next, BYTES);
    checklist_let_go(it.device, gate);
    checklist_end(&it);
}

static void b29_the_host_reads_what_a_stream_made_after_a_wait(void **state)
{
    (void)state;
    const char *const kinds[] = { "managed", "pinned" };
    checklist_stage it = checklist_begin();
    for (size_t i = 0; i < 2; i++) {
        weir_resource *mr;
        must_ok(weir_resource_open(it.device, kinds[i], &mr));
        weir_buffer buffer;
        must_ok(weir_buffer_allocate(mr, it.a, BYTES, WEIR_ALIGNMENT, &buffer));
        stamp(it.device, it.a, buffer.data, BYTES, 29);
        must_ok(weir_buffer_set_stream(&buffer, it.b));
        must_ok(weir_buffer_wait_sync(&buffer, WEIR_READ));
        must_equal(pattern_compare(buffer.data, BYTES, 29), BYTES);
        weir_buffer_reset(&buffer);
        weir_resource_unref(mr);
    }
    checklist_end(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(d45_whatever_allocates_returns_a_buffer),
        cmocka_unit_test(d46_a_foreign_pointer_is_adopted_without_a_copy),
        cmocka_unit_test(d47_a_deserialised_block_goes_into_an_empty_slot),
        cmocka_unit_test(d48_what_is_released_outlives_the_buffer),
        cmocka_unit_test(d49_a_callee_resizes_its_callers_buffer),
        cmocka_unit_test(d50_what_does_not_own_alone_is_not_resized),
        cmocka_unit_test(d51_a_buffer_gives_its_bytes_away_and_takes_them_back),
        cmocka_unit_test(d52_the_last_holder_frees),
        cmocka_unit_test(d53_a_weak_reference_tells_that_its_buffer_is_gone),
        cmocka_unit_test(d54_the_callers_pointer_is_neither_freed_nor_moved),
        cmocka_unit_test(b27_a_buffer_that_gave_its_bytes_away_is_empty),
        cmocka_unit_test(b28_two_holders_of_the_same_bytes_see_a_write),
        cmocka_unit_test(b29_the_host_reads_what_a_stream_made_after_a_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
