/* test_host_array.c - buffers of the host's own arrays: what may be adopted, when their
 * deleters come, and whose pages are registered how long. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "device/device.h"
#include "internal.h"
#include "support_buffer.h"

#define PAGE ((size_t)4096)

/* ---- arrays ---- */

/* What a deleter was told, and saw. */
typedef struct end {
    weir_device *device;
    uint32_t count;
    void *ptr;
    size_t bytes;
    uint64_t unregistered; /* calls by then */
} end;

static void end_array(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    end *self = context;
    (void)stream;
    self->count++;
    self->ptr = ptr;
    self->bytes = bytes;
    self->unregistered = calls_of(self->device).host_unregister;
}

static unsigned char *make_pages(size_t count)
{
    unsigned char *pages = aligned_alloc(PAGE, count * PAGE);
    must(pages != NULL);
    memset(pages, 1, count * PAGE);
    return pages;
}

/* Bytes; `shape` is one extent. */
static weir_host_array bytes_at(buffer_scene *it, void *data, const int64_t *shape,
                                end *context)
{
    weir_host_array array = WEIR_HOST_ARRAY_INIT;
    *context = (end){ .device = it->device };
    array.data = data;
    array.item_bytes = 1;
    array.ndim = 1;
    array.shape = shape;
    array.deleter = end_array;
    array.context = context;
    return array;
}

/* Ends the buffer, and waits until its deleter has been called. */
static void end_buffer(buffer_scene *it, weir_buffer *buffer)
{
    weir_buffer_reset(buffer);
    must_ok(weir_device_drain_sync(it->device));
}

static void must_have_ended(const end *it, const void *ptr, size_t bytes)
{
    must_equal(it->count, 1);
    must(it->ptr == ptr);
    must_equal(it->bytes, bytes);
}

static bool is_registered(weir_device *device, void *page)
{
    weir_status status = weir__host_register(device, page, PAGE, 0);
    if (status == WEIR_OK)
        must_ok(weir__host_unregister(device, page));
    return status != WEIR_OK;
}

/* ---- ownership ---- */

static void an_array_becomes_a_buffer(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    double numbers[3][5];
    const int64_t shape[] = { 3, 5 }, strides[] = { sizeof numbers[0], sizeof(double) };
    weir_host_array array = bytes_at(&it, numbers, shape, &ended);
    array.item_bytes = sizeof(double);
    array.ndim = 2;
    array.strides = strides;
    array.read_only = true;
    weir_buffer x;
    must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
    must(x.data == numbers && x.size == sizeof numbers && x.stream == it.a);
    weir_buffer_properties p = properties_of(&x);
    must(p.owns && p.read_only && p.kind == WEIR_MEMORY_HOST);
    must_answer(WEIR_NOT_OWNED, weir_buffer_resize(&x, 8, it.a));
    must_equal(calls_of(it.device).host_register, 0);
    end_buffer(&it, &x);
    must_have_ended(&ended, numbers, sizeof numbers);
    buffer_scene_close(&it);
}

static void the_deleter_waits_for_the_work(void **state)
{
    (void)state;
    for (int pinned = 0; pinned < 2; pinned++) {
        buffer_scene it = buffer_scene_open();
        end ended;
        unsigned char *pages = make_pages(2);
        const int64_t shape = 2 * PAGE;
        weir_host_array array = bytes_at(&it, pages, &shape, &ended);
        array.pinned = pinned != 0;
        weir_buffer x;
        must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
        must_ok(weir_buffer_wait(&x, it.b, WEIR_WRITE));
        uint64_t gate = stall_stream(&it, it.b);
        must_ok(weir_fill(it.device, it.b, x.data, 7, x.size));
        must_ok(weir_buffer_use(&x, it.b, WEIR_WRITE));
        weir_buffer_reset(&x);
        must_equal(ended.count, 0);
        must_equal(calls_of(it.device).host_unregister, 0);
        must_equal(pending_of(it.device).deferred_count, 1);
        open_stream(&it, gate);
        must_ok(weir_device_drain_sync(it.device));
        must_have_ended(&ended, pages, 2 * PAGE);
        must_equal(calls_of(it.device).host_unregister, (uint64_t)pinned);
        must_equal(pages[2 * PAGE - 1], 7);
        buffer_scene_close(&it);
        free(pages);
    }
}

/* ---- layouts ---- */

typedef struct layout {
    weir_status status;
    size_t item_bytes;
    int32_t ndim;
    int64_t shape[3], strides[3];
    size_t bytes; /* of those that are adopted */
} layout;

static const layout layouts[] = {
    { WEIR_OK, 4, 0, { 0 }, { 0 }, 4 },
    { WEIR_OK, 4, 1, { 8 }, { 4 }, 32 },
    { WEIR_OK, 4, 2, { 2, 3 }, { 12, 4 }, 24 },
    { WEIR_OK, 1, 3, { 2, 3, 4 }, { 12, 4, 1 }, 24 },
    { WEIR_OK, 4, 3, { 2, 1, 3 }, { 12, -77, 4 }, 24 }, /* of 1: means nothing */
    { WEIR_OK, 4, 1, { 1 }, { 0 }, 4 },
    { WEIR_INVALID_ARGUMENT, 4, 2, { 2, 3 }, { 4, 8 }, 0 },   /* column by column */
    { WEIR_INVALID_ARGUMENT, 4, 2, { 2, 3 }, { 16, 4 }, 0 },  /* a gap */
    { WEIR_INVALID_ARGUMENT, 4, 1, { 8 }, { -4 }, 0 },        /* backwards */
    { WEIR_INVALID_ARGUMENT, 4, 1, { 8 }, { 0 }, 0 },         /* the same again */
    { WEIR_INVALID_ARGUMENT, 4, 1, { 8 }, { 8 }, 0 },
    { WEIR_INVALID_ARGUMENT, 4, 2, { 2, 0 }, { 0, 4 }, 0 },   /* nothing */
    { WEIR_INVALID_ARGUMENT, 4, 1, { -1 }, { 4 }, 0 },
    { WEIR_INVALID_ARGUMENT, 0, 1, { 8 }, { 0 }, 0 },
    { WEIR_INVALID_ARGUMENT, 4, -1, { 8 }, { 4 }, 0 },
    { WEIR_INVALID_ARGUMENT, 4, 65, { 8 }, { 4 }, 0 },
    { WEIR_INVALID_ARGUMENT, 2, 1, { INT64_MAX }, { 2 }, 0 },
    { WEIR_INVALID_ARGUMENT, SIZE_MAX, 0, { 0 }, { 0 }, 0 },
    { WEIR_INVALID_ARGUMENT, 1, 1, { INT64_MAX }, { 1 }, 0 }, /* beyond all addresses */
};

static void only_c_contiguous_arrays_are_adopted(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    static unsigned char data[64];
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        const layout *of = &layouts[i];
        void *at = of->shape[0] == INT64_MAX ? (void *)(UINTPTR_MAX - 15) : data;
        weir_host_array array = bytes_at(&it, at, of->shape, &ended);
        array.item_bytes = of->item_bytes;
        array.ndim = of->ndim;
        array.strides = of->strides;
        weir_buffer x;
        must_answer(of->status, weir_buffer_adopt_host(it.device, it.a, &array, &x));
        if (of->status != WEIR_OK) {
            must_be_empty(&x);
            must_equal(ended.count, 0);
            continue;
        }
        must_equal(x.size, of->bytes);
        end_buffer(&it, &x);
        must_have_ended(&ended, data, of->bytes);
        array.strides = NULL;
        must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
        must_equal(x.size, of->bytes);
        end_buffer(&it, &x);
    }
    buffer_scene_close(&it);
}

static void what_has_no_meaning_is_refused(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char data[16];
    const int64_t shape = 16;
    const weir_host_array good = bytes_at(&it, data, &shape, &ended);
    weir_host_array array = good;
    weir_buffer x;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(NULL, it.a, &array, &x));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, NULL, &x));
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, NULL));
    array.data = NULL;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, &x));
    array = good;
    array.shape = NULL;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, &x));
    array = good;
    array.struct_size = 0;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, &x));
    must_be_empty(&x);
    must_equal(ended.count, 0);
    buffer_scene_close(&it);
}

/* ---- pages ---- */

static void pages_are_registered_and_given_up(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char *pages = make_pages(3);
    const int64_t shape = PAGE + 904; /* the rest of its last page comes along */
    weir_host_array array = bytes_at(&it, pages, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
    must_equal(properties_of(&x).kind, WEIR_MEMORY_PINNED);
    must_equal(x.size, PAGE + 904);
    must_equal(calls_of(it.device).host_register, 1);
    must(is_registered(it.device, pages) && is_registered(it.device, pages + PAGE));
    must(!is_registered(it.device, pages + 2 * PAGE));
    write_all(&it, it.a, &x, 4);
    must_ok(weir_buffer_wait_sync(&x, WEIR_WRITE));
    uint64_t calls = calls_of(it.device).host_unregister;
    end_buffer(&it, &x);
    must_have_ended(&ended, pages, PAGE + 904);
    must_equal(ended.unregistered, calls + 1); /* by then */
    must_equal(calls_of(it.device).host_unregister, calls + 1);
    must(!is_registered(it.device, pages) && !is_registered(it.device, pages + PAGE));
    buffer_scene_close(&it);
    free(pages);
}

static void an_array_inside_of_a_page_is_not_pinned(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char *pages = make_pages(2);
    const int64_t shape = PAGE;
    weir_host_array array = bytes_at(&it, pages + 16, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, &x));
    must_be_empty(&x);
    must(ended.count == 0 && !is_registered(it.device, pages));
    buffer_scene_close(&it);
    free(pages);
}

static void what_is_no_memory_is_not_registered(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *pages = mmap(NULL, 4 * PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    must(pages != MAP_FAILED && munmap(pages + 2 * PAGE, PAGE) == 0);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__host_register(device, pages, 4 * PAGE, 0));
    must(!is_registered(device, pages));
    must(munmap(pages, 2 * PAGE) == 0 && munmap(pages + 3 * PAGE, PAGE) == 0);
    close_emulated(device);
}

static void pages_of_others_are_used_as_they_are(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char *pages = make_pages(4);
    const int64_t shape = 2 * PAGE;
    weir_host_array array = bytes_at(&it, pages, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    must_ok(weir__host_register(it.device, pages, 3 * PAGE, 0));
    must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
    must_equal(properties_of(&x).kind, WEIR_MEMORY_PINNED);
    end_buffer(&it, &x);
    must_have_ended(&ended, pages, 2 * PAGE);
    must_ok(weir__host_unregister(it.device, pages)); /* it was left to us */

    /* All but one are: the first, or the last. */
    const int64_t three = 3 * PAGE;
    for (size_t i = 0; i < 2; i++) {
        must_ok(weir__host_register(it.device, pages + (1 - i) * PAGE, 2 * PAGE, 0));
        array = bytes_at(&it, pages, &three, &ended);
        array.pinned = true;
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_buffer_adopt_host(it.device, it.a, &array, &x));
        must_be_empty(&x);
        must_equal(ended.count, 0);
        must(!is_registered(it.device, pages + 2 * i * PAGE));
        must_ok(weir__host_unregister(it.device, pages + (1 - i) * PAGE));
    }
    buffer_scene_close(&it);
    free(pages);
}

/* Between the pages of two buffers are one of another's and one that is nobody's. */
static void a_page_between_two_buffers_is_missed(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended[3];
    unsigned char *pages = make_pages(4);
    const int64_t one = PAGE, four = 4 * PAGE;
    weir_buffer x[3];
    for (size_t i = 0; i < 2; i++) {
        weir_host_array array = bytes_at(&it, pages + 3 * i * PAGE, &one, &ended[i]);
        array.pinned = true;
        must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x[i]));
    }
    must_ok(weir__host_register(it.device, pages + PAGE, PAGE, 0));
    weir_host_array array = bytes_at(&it, pages, &four, &ended[2]);
    array.pinned = true;
    must_answer(WEIR_INVALID_ARGUMENT,
                weir_buffer_adopt_host(it.device, it.a, &array, &x[2]));
    must(!is_registered(it.device, pages + 2 * PAGE));
    must_ok(weir__host_unregister(it.device, pages + PAGE));
    for (size_t i = 0; i < 2; i++)
        end_buffer(&it, &x[i]);
    must(!is_registered(it.device, pages));
    buffer_scene_close(&it);
    free(pages);
}

/* Two buffers with the same pages, the second with some of the first's: whichever ends
 * last unregisters, and nobody before. */
static void pages_stay_for_the_last_buffer(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        buffer_scene it = buffer_scene_open();
        end ended[2];
        unsigned char *pages = make_pages(4);
        const int64_t shape[] = { 4 * PAGE, 2 * PAGE };
        weir_buffer x[2];
        for (size_t i = 0; i < 2; i++) {
            weir_host_array array = bytes_at(&it, pages + i * PAGE, &shape[i],
                                             &ended[i]);
            array.pinned = true;
            must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x[i]));
        }
        must_equal(calls_of(it.device).host_register, 1);
        end_buffer(&it, &x[first]);
        must_equal(ended[first].count, 1);
        must_equal(calls_of(it.device).host_unregister, 0);
        end_buffer(&it, &x[1 - first]);
        must_equal(ended[1 - first].count, 1);
        must_equal(ended[1 - first].unregistered, 1);
        must_equal(calls_of(it.device).host_unregister, 1);
        must(!is_registered(it.device, pages));
        buffer_scene_close(&it);
        free(pages);
    }
}

/* A buffer with the pages of two others, and one within it: what was registered stays
 * so for the last of them, in whatever order they end. */
static void pages_of_several_stay_for_the_last_buffer(void **state)
{
    (void)state;
    enum { COUNT = 4 };
    static const size_t at[COUNT] = { 0, 2, 1, 1 }, count[COUNT] = { 2, 2, 3, 2 };
    for (int order = 0; order < 4; order++) {
        buffer_scene it = buffer_scene_open();
        end ended[COUNT];
        unsigned char *pages = make_pages(COUNT);
        weir_buffer x[COUNT];
        for (size_t i = 0; i < COUNT; i++) {
            const int64_t shape = (int64_t)(count[i] * PAGE);
            weir_host_array array = bytes_at(&it, pages + at[i] * PAGE, &shape,
                                             &ended[i]);
            array.pinned = true;
            must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x[i]));
            must_equal(properties_of(&x[i]).kind, WEIR_MEMORY_PINNED);
        }
        for (int i = 0; i < COUNT; i++) {
            int ends = order % 2 == 0 ? (i + order) % COUNT
                                      : COUNT - 1 - (i + order) % COUNT;
            end_buffer(&it, &x[ends]);
            must_equal(ended[ends].count, 1);
            for (size_t j = 0; j < COUNT; j++) {
                for (size_t k = 0; k < count[j] && ended[j].count == 0; k++)
                    must(is_registered(it.device, pages + (at[j] + k) * PAGE));
            }
        }
        for (size_t i = 0; i < COUNT; i++)
            must(!is_registered(it.device, pages + i * PAGE));
        buffer_scene_close(&it);
        free(pages);
    }
}

/* Who was given the bytes gives up the pages as well. */
static void released_pages_are_given_up_later(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char *pages = make_pages(1);
    const int64_t shape = PAGE;
    weir_host_array array = bytes_at(&it, pages, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    weir_released given = { .struct_size = sizeof given };
    must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
    write_all(&it, it.a, &x, 4);
    must_ok(weir_buffer_release(&x, &given));
    must(given.ptr == pages && given.ignores_stream);
    end_buffer(&it, &x);
    must_equal(ended.count, 0);
    must_equal(calls_of(it.device).host_unregister, 0);
    must_ok(weir_released_free_sync(it.device, &given));
    must_have_ended(&ended, pages, PAGE);
    must_equal(ended.unregistered, 1);
    buffer_scene_close(&it);
    free(pages);
}

/* ---- failures ---- */

static void a_registration_that_fails_leaves_nothing(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char *pages = make_pages(1);
    const int64_t shape = PAGE;
    weir_host_array array = bytes_at(&it, pages, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    size_t live = weir__host_live();
    plan_fault(it.device, "host_register", 1, false, WEIR_DEVICE_ERROR);
    must_answer(WEIR_DEVICE_ERROR,
                weir_buffer_adopt_host(it.device, it.a, &array, &x));
    must_be_empty(&x);
    must_equal(ended.count, 0);
    must_equal(weir__host_live(), live);
    must(!is_registered(it.device, pages));
    buffer_scene_close(&it);
    free(pages);
}

/* A ledger without host memory would say so itself. */
static buffer_scene scene_without_ledger(void)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = true;
    options.emulated = &emulated;
    return buffer_scene_on(open_with("emulated:0", &options));
}

/* Each host allocation fails in turn. */
static void without_host_memory_nothing_is_left(void **state)
{
    (void)state;
    buffer_scene it = scene_without_ledger();
    end ended;
    unsigned char *pages = make_pages(1);
    const int64_t shape = PAGE;
    weir_host_array array = bytes_at(&it, pages, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    size_t live = weir__host_live();
    uint64_t failed = 0;
    for (;;) {
        weir__host_fail_at(failed + 1, false);
        weir_status status = weir_buffer_adopt_host(it.device, it.a, &array, &x);
        weir__host_fail_at(0, false);
        must_equal(ended.count, 0);
        if (status == WEIR_OK)
            break;
        failed++;
        must_equal(status, WEIR_OUT_OF_HOST_MEMORY);
        must_be_empty(&x);
        must_equal(weir__host_live(), live);
        must(!is_registered(it.device, pages));
    }
    must(failed >= 3); /* the array's record, its pages', and the storage */
    must_equal(properties_of(&x).kind, WEIR_MEMORY_PINNED);
    end_buffer(&it, &x);
    must_equal(ended.count, 1);
    buffer_scene_close(&it);
    free(pages);
}

/* The memory is its owner's again, whatever the device says. */
static void the_deleter_comes_though_the_device_refuses(void **state)
{
    (void)state;
    buffer_scene it = buffer_scene_open();
    end ended;
    unsigned char *pages = make_pages(1);
    const int64_t shape = PAGE;
    weir_host_array array = bytes_at(&it, pages, &shape, &ended);
    array.pinned = true;
    weir_buffer x;
    must_ok(weir_buffer_adopt_host(it.device, it.a, &array, &x));
    plan_fault(it.device, "host_unregister", 1, false, WEIR_DEVICE_ERROR);
    end_buffer(&it, &x);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    must_have_ended(&ended, pages, PAGE);
    must_ok(weir__host_unregister(it.device, pages)); /* it still was */
    buffer_scene_close(&it);
    free(pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_array_becomes_a_buffer),
        cmocka_unit_test(the_deleter_waits_for_the_work),
        cmocka_unit_test(only_c_contiguous_arrays_are_adopted),
        cmocka_unit_test(what_has_no_meaning_is_refused),
        cmocka_unit_test(pages_are_registered_and_given_up),
        cmocka_unit_test(an_array_inside_of_a_page_is_not_pinned),
        cmocka_unit_test(what_is_no_memory_is_not_registered),
        cmocka_unit_test(pages_of_others_are_used_as_they_are),
        cmocka_unit_test(a_page_between_two_buffers_is_missed),
        cmocka_unit_test(pages_stay_for_the_last_buffer),
        cmocka_unit_test(pages_of_several_stay_for_the_last_buffer),
        cmocka_unit_test(released_pages_are_given_up_later),
        cmocka_unit_test(a_registration_that_fails_leaves_nothing),
        cmocka_unit_test(without_host_memory_nothing_is_left),
        cmocka_unit_test(the_deleter_comes_though_the_device_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
