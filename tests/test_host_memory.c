/* test_host_memory.c - memory of the host's that an emulated device knows: managed,
 * pinned, registered and ordinary; who takes back what, and what the ledger says. */
#include <stdlib.h>
#include <string.h>

#include "internal.h"
#include "support_work.h"

#define PAGE ((size_t)4096)

typedef enum kind { ORDINARY, MANAGED, PINNED, REGISTERED, OF_DEVICE, KINDS } kind;

/* Pages of the test's own. */
static void *make_pages(size_t count)
{
    void *pages = aligned_alloc(PAGE, count * PAGE);
    must(pages != NULL);
    memset(pages, 0, count * PAGE);
    return pages;
}

/* `pages` is what is registered. */
static weir_status try_make(weir_device *device, kind what, void *pages, void **out)
{
    static const weir_managed_options options = WEIR_MANAGED_OPTIONS_INIT;
    switch (what) {
    case ORDINARY: return weir__host_malloc(device, PAGE, 256, out);
    case MANAGED: return weir__managed_malloc(device, PAGE, &options, out);
    case PINNED: return weir__pinned_malloc(device, PAGE, WEIR__PINNED_PORTABLE, out);
    case REGISTERED:
        *out = pages;
        return weir__host_register(device, pages, PAGE, WEIR__PINNED_MAPPED);
    default: return weir__malloc(device, PAGE, out);
    }
}

static weir_status try_end(weir_device *device, kind what, void *ptr)
{
    switch (what) {
    case ORDINARY: return weir__host_free_device(device, ptr);
    case PINNED: return weir__pinned_free(device, ptr);
    case REGISTERED: return weir__host_unregister(device, ptr);
    default: return weir__free(device, ptr);
    }
}

static bool can_end(kind made, kind ended)
{
    return made == ended || (made == MANAGED && ended == OF_DEVICE) ||
           (made == OF_DEVICE && ended == MANAGED);
}

static void kinds_are_told_apart(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    void *pages = make_pages(1);
    for (kind made = ORDINARY; made < KINDS; made++) {
        for (kind ended = ORDINARY; ended < KINDS; ended++) {
            void *ptr;
            must_ok(try_make(device, made, pages, &ptr));
            if (!can_end(made, ended)) {
                must_answer(WEIR_INVALID_ARGUMENT, try_end(device, ended, ptr));
                must_equal(weir_last_error().native_code,
                           ended == REGISTERED ? 713 : 1);
                must_answer(WEIR_INVALID_ARGUMENT,
                            try_end(device, made, (char *)ptr + 512));
            }
            must_ok(try_end(device, made, ptr));
            must_answer(WEIR_INVALID_ARGUMENT, try_end(device, made, ptr));
        }
    }
    free(pages);
    close_emulated(device);
}

/* The host writes, a kernel reads and writes, the host reads. */
static void add_one(void *argument, void *const views[])
{
    (void)argument;
    unsigned char *bytes = views[0];
    for (size_t i = 0; i < PAGE; i++)
        bytes[i]++;
}

static void is_touched_from_both_sides(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    void *pages = make_pages(1);
    for (kind made = ORDINARY; made <= REGISTERED; made++) {
        void *ptr;
        must_ok(try_make(device, made, pages, &ptr));
        memset(ptr, 41, PAGE);
        const weir_emulated_range range = { ptr, PAGE, WEIR_EMULATED_READ_WRITE };
        must_ok(weir_emulated_launch(device, NULL, add_one, NULL, &range, 1));
        must_ok(weir__device_sync(device));
        for (size_t i = 0; i < PAGE; i++)
            must_equal(((unsigned char *)ptr)[i], 42);
        must_ok(try_end(device, made, ptr));
    }
    free(pages);
    close_emulated(device);
}

static void pages_are_aligned(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    for (kind made = MANAGED; made <= PINNED; made++) {
        void *ptr[8];
        for (size_t i = 0; i < 8; i++) {
            must_ok(try_make(device, made, NULL, &ptr[i]));
            must_equal((uintptr_t)ptr[i] % (made == PINNED ? 256 : PAGE), 0);
        }
        for (size_t i = 0; i < 8; i++)
            must_ok(try_end(device, made, ptr[i]));
    }
    void *whole; /* of what is pinned; what is smaller is packed */
    must_ok(weir__pinned_malloc(device, WEIR__PINNED_WHOLE, 0, &whole));
    must_equal((uintptr_t)whole % PAGE, 0);
    must_ok(weir__pinned_free(device, whole));
    close_emulated(device);
}

static void no_byte_is_known_twice(void **state)
{
    (void)state;
    weir_device *one = open_with("emulated:0", NULL), *two = open_with("emulated:1",
                                                                       NULL);
    char *pages = make_pages(4);
    void *pinned;
    must_ok(weir__host_register(one, pages + PAGE, 2 * PAGE, 0));
    must_ok(weir__pinned_malloc(one, PAGE, 0, &pinned));
    for (int i = 0; i < 2; i++) {
        weir_device *device = i == 0 ? one : two;
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__host_register(device, pages + PAGE, 2 * PAGE, 0));
        must_equal(weir_last_error().native_code, 712);
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__host_register(device, pages, 2 * PAGE, 0));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__host_register(device, pages + 2 * PAGE, 2 * PAGE, 0));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__host_register(device, pages, 4 * PAGE, 0));
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir__host_register(device, pinned, PAGE, 0));
    }
    must_ok(weir__host_register(two, pages, PAGE, 0));
    must_ok(weir__host_register(two, pages + 3 * PAGE, PAGE, 0));
    /* Another device's is none of ours. */
    must_answer(WEIR_INVALID_ARGUMENT, weir__host_unregister(one, pages));
    must_answer(WEIR_INVALID_ARGUMENT, weir__pinned_free(two, pinned));

    must_ok(weir__pinned_free(one, pinned));
    must_ok(weir__host_unregister(one, pages + PAGE));
    must_ok(weir__host_register(two, pages + PAGE, 2 * PAGE, 0));
    close_emulated(two); /* with three registrations */
    must_ok(weir__host_register(one, pages, 4 * PAGE, 0));
    must_ok(weir__host_unregister(one, pages));
    close_emulated(one);
    free(pages);
}

static void only_whole_pages_are_registered(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    char *pages = make_pages(2);
    char *last = (char *)(UINTPTR_MAX - PAGE + 1); /* no page is behind it */
    must_answer(WEIR_INVALID_ARGUMENT, weir__host_register(device, pages + 8, PAGE, 0));
    must_answer(WEIR_INVALID_ARGUMENT, weir__host_register(device, pages, PAGE + 1, 0));
    must_answer(WEIR_INVALID_ARGUMENT, weir__host_register(device, last, PAGE, 0));
    must_ok(weir__host_register(device, pages, PAGE, 0));
    must_ok(weir__host_unregister(device, pages));
    free(pages);
    close_emulated(device);
}

/* Ending under a kernel is a finding, after a wait it is none. */
static void ends_are_judged(void **state)
{
    (void)state;
    void *pages = make_pages(1);
    for (kind made = ORDINARY; made <= REGISTERED; made++) {
        for (int waits = 0; waits < 2; waits++) {
            weir_device *device = open_stepped(0);
            weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
            void *ptr;
            must_ok(try_make(device, made, pages, &ptr));
            must_ok(weir__fill(device, stream, ptr, 1, PAGE));
            must_ok(weir_emulated_step(device, &(bool){ false })); /* done, unseen */
            if (waits)
                raw_sync_stream(device, stream);
            must_ok(try_end(device, made, ptr));
            must_equal(weir_emulated_findings(device), waits ? 0 : 1);
            raw_stream_end(device, stream);
            close_anyhow(device);
        }
    }
    free(pages);
}

static void running_out_says_so(void **state)
{
    (void)state;
    static const weir_managed_options options = WEIR_MANAGED_OPTIONS_INIT;
    weir_device *device = open_stepped(0);
    void *ptr = NULL;
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__managed_malloc(device, SIZE_MAX / 2, &options, &ptr));
    must_equal(weir_last_error().native_code, 2);
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__pinned_malloc(device, SIZE_MAX / 2, 0, &ptr));
    must(ptr == NULL);
    close_emulated(device);
}

static const char *const call_names[] = { "host_malloc", "managed_malloc",
                                          "pinned_malloc", "host_register", "malloc" };
static const char *const end_names[] = { "host_free", "free", "pinned_free",
                                         "host_unregister", "free" };

static void faults_change_nothing(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    void *pages = make_pages(1), *ptr;
    for (kind made = ORDINARY; made < KINDS; made++) {
        plan_fault(device, call_names[made], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, try_make(device, made, pages, &ptr));
        must_ok(try_make(device, made, pages, &ptr));
        plan_fault(device, end_names[made], 1, false, WEIR_DEVICE_ERROR);
        must_answer(WEIR_DEVICE_ERROR, try_end(device, made, ptr));
        must_ok(try_end(device, made, ptr));
    }
    must_ok(weir_emulated_set_fault(device, NULL));
    free(pages);
    close_emulated(device);
}

static void lost_device_refuses(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    void *pages = make_pages(1), *ptr[KINDS], *other;
    for (kind made = ORDINARY; made < KINDS; made++)
        must_ok(try_make(device, made, pages, &ptr[made]));
    plan_fault(device, NULL, 1, false, WEIR_DEVICE_LOST);
    must_answer(WEIR_DEVICE_LOST, weir__device_sync(device));
    for (kind made = ORDINARY; made < KINDS; made++) {
        must_answer(WEIR_DEVICE_LOST, try_make(device, made, pages, &other));
        must_answer(WEIR_DEVICE_LOST, try_end(device, made, ptr[made]));
    }
    close_anyhow(device); /* with all of it out */
    free(pages);
}

static void survives_every_host_failure(void **state)
{
    (void)state;
    void *pages = make_pages(1);
    for (kind made = ORDINARY; made <= REGISTERED; made++) {
        weir_device *device = open_stepped(0);
        void *ptr = NULL;
        uint64_t failing = 1;
        for (;; failing++) {
            weir__host_fail_at(failing, false);
            weir_status status = try_make(device, made, pages, &ptr);
            weir__host_fail_at(0, false);
            if (status == WEIR_OK)
                break;
            must(status == WEIR_OUT_OF_HOST_MEMORY);
            must(failing < 10);
        }
        must(failing >= 2);
        must_ok(try_end(device, made, ptr));
        close_anyhow(device); /* the ledger may have gone deaf, and says so */
    }
    free(pages);
}

/* ---- what work may touch ---- */

static weir_status try_touch(weir_device *device, void *ptr, size_t bytes)
{
    const weir_emulated_range range = { ptr, bytes, WEIR_EMULATED_READ };
    return weir_emulated_launch(device, NULL, add_one, NULL, &range, 1);
}

static void must_be_no_memory(weir_device *device, void *ptr, size_t bytes)
{
    must_answer(WEIR_DEVICE_ERROR, try_touch(device, ptr, bytes));
    must_equal(weir_last_error().native_code, 700);
}

static void must_be_memory(weir_device *device, void *ptr, size_t bytes)
{
    must_ok(weir__fill(device, NULL, ptr, 7, bytes));
    must_ok(weir__device_sync(device));
}

static void work_stays_inside_one_block(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    for (kind made = ORDINARY; made <= PINNED; made++) {
        char *ptr[3]; /* side by side */
        for (size_t i = 0; i < 3; i++)
            must_ok(try_make(device, made, NULL, (void **)&ptr[i]));
        must(ptr[1] == ptr[0] + PAGE && ptr[2] == ptr[1] + PAGE);
        must_be_memory(device, ptr[1], PAGE);
        must_be_memory(device, ptr[1] + PAGE - 1, 1);
        must_be_no_memory(device, ptr[1], PAGE + 1);
        must_be_no_memory(device, ptr[1] - 1, 2);
        must_be_no_memory(device, ptr[2] + PAGE, 1); /* nobody's yet */
        must_be_no_memory(device, ptr[0], SIZE_MAX - (uintptr_t)ptr[0]);
        for (size_t i = 0; i < 3; i++)
            must_ok(try_end(device, made, ptr[i]));
    }
    close_emulated(device);
}

/* It is the program's, whatever of it a device knows. */
static void work_may_go_beyond_registered_pages(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    char *pages = make_pages(3);
    must_ok(weir__host_register(device, pages + PAGE, PAGE, 0));
    must_be_memory(device, pages, 3 * PAGE);
    must_ok(weir__host_unregister(device, pages + PAGE));
    must_be_memory(device, pages, 3 * PAGE);
    free(pages);
    close_emulated(device);
}

/* Nor is it anybody else's: malloc never gives these addresses out. */
static void what_was_given_back_is_no_memory(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    for (kind made = ORDINARY; made <= PINNED; made++) {
        void *ptr;
        must_ok(try_make(device, made, NULL, &ptr));
        must_be_memory(device, ptr, PAGE);
        must_ok(try_end(device, made, ptr));
        void *others = make_pages(1);
        must(others != ptr);
        must_be_no_memory(device, ptr, PAGE);
        must_be_no_memory(device, ptr, 1);
        free(others);
    }
    close_emulated(device);
}

/* It does no harm; the ledger has told that it is late. */
static void late_work_finds_pages(void **state)
{
    (void)state;
    for (kind made = ORDINARY; made <= PINNED; made++) {
        weir_device *device = open_stepped(0);
        uint64_t gate;
        void *ptr;
        must_ok(try_make(device, made, NULL, &ptr));
        must_ok(weir_emulated_stall(device, NULL, &gate));
        const weir_emulated_range range = { ptr, PAGE, WEIR_EMULATED_READ_WRITE };
        must_ok(weir_emulated_launch(device, NULL, add_one, NULL, &range, 1));
        must_ok(try_end(device, made, ptr));
        must_ok(weir_emulated_open_gate(device, gate));
        must_ok(weir__device_sync(device));
        must_equal(weir_emulated_findings(device), 1);
        close_anyhow(device);
    }
}

#define MANY ((size_t)1 << 40)

/* How many the process has. */
static size_t addresses_now(void)
{
    struct rlimit before;
    const size_t addresses = support_limit_addresses(0, &before);
    must(setrlimit(RLIMIT_AS, &before) == 0);
    return addresses;
}

/* Of more than is mapped at once, and aligned to more than pages. */
static void large_blocks_have_room(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    void *ptr[6];
    for (size_t i = 0; i < 6; i++) {
        const size_t bytes = (size_t)1000 << (6 * (i % 3)); /* 1000 B, 64 KB, 4 MB */
        must_ok(weir__host_malloc(device, 20 * bytes, (size_t)1 << (8 + 4 * (i % 4)),
                                  &ptr[i]));
        must_equal((uintptr_t)ptr[i] % ((size_t)1 << (8 + 4 * (i % 4))), 0);
        memset(ptr[i], 1, 20 * bytes);
    }
    for (size_t i = 0; i < 6; i++)
        must_ok(weir__host_free_device(device, ptr[(i * 5 + 2) % 6]));
    must_ok(weir__host_malloc(device, 1000, 256, &ptr[1]));
    const size_t addresses = addresses_now();
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__host_malloc(device, (size_t)1 << 46, 256, &ptr[0]));
    must(addresses_now() < addresses + MANY); /* nothing stays mapped for it */
    must_ok(weir__host_free_device(device, ptr[1]));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__host_malloc(device, SIZE_MAX, 256, &ptr[0]));
    close_emulated(device);
}

/* What was mapped for smaller ones is let go of, where addresses are few. */
static void larger_and_larger_blocks_have_addresses(void **state)
{
    (void)state;
    struct rlimit before;
    weir_device *device = open_stepped(0);
    (void)support_limit_addresses((size_t)3 << 30, &before);
    for (size_t i = 1; i <= 16; i++) {
        void *ptr = NULL;
        weir_status status = weir__host_malloc(device, i << 27, 256, &ptr);
        if (status == WEIR_OK)
            must_ok(weir__host_free_device(device, ptr));
        must_equal(status, WEIR_OK);
    }
    must(setrlimit(RLIMIT_AS, &before) == 0);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kinds_are_told_apart),
        cmocka_unit_test(is_touched_from_both_sides),
        cmocka_unit_test(pages_are_aligned),
        cmocka_unit_test(no_byte_is_known_twice),
        cmocka_unit_test(only_whole_pages_are_registered),
        cmocka_unit_test(ends_are_judged),
        cmocka_unit_test(running_out_says_so),
        cmocka_unit_test(faults_change_nothing),
        cmocka_unit_test(lost_device_refuses),
        cmocka_unit_test(survives_every_host_failure),
        cmocka_unit_test(work_stays_inside_one_block),
        cmocka_unit_test(work_may_go_beyond_registered_pages),
        cmocka_unit_test(what_was_given_back_is_no_memory),
        cmocka_unit_test(late_work_finds_pages),
        cmocka_unit_test(large_blocks_have_room),
        cmocka_unit_test(larger_and_larger_blocks_have_addresses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
