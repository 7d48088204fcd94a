/* test_hits_back.c - what a free is judged by that a hit made ready: nothing passes for
 * what was handed out but that, as it was asked for. */
#include "pool_hit.h"
#include "support_actor.h"
#include "support_hits.h"

/* A record knows of what was asked for only the rest of a division by this. */
#define ASKED ((size_t)WEIR__TAG_ASKED_MOST + 1)

static void what_is_known_is_compared(pool_scene *it, size_t bytes)
{
    char *a = warm_hit(it, bytes);
    must_be_refused(it, a, 0, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, bytes - 1, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, 2 * bytes, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, bytes + ASKED, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, bytes - ASKED, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, bytes, WEIR_ALIGNMENT / 2, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, bytes, 3 * WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
    must_be_refused(it, a, bytes, 0, WEIR_MISUSE_WRONG_SIZE);
    give(it->pool, it->streams[0], a, bytes);
    must_be_refused(it, a, bytes, WEIR_ALIGNMENT, WEIR_MISUSE_DOUBLE_FREE);
}

/* Also of one with less alignment than usual. */
static void what_is_less_aligned_is_known(pool_scene *it, size_t bytes)
{
    const size_t less = WEIR_ALIGNMENT / 2;
    for (int i = 0; i < 2; i++) {
        void *a = NULL;
        must_ok(weir_allocate(it->pool, it->streams[0], bytes, less, &a));
        must_be_refused(it, a, bytes, WEIR_ALIGNMENT, WEIR_MISUSE_WRONG_SIZE);
        must_be_refused(it, a, bytes + ASKED, less, WEIR_MISUSE_WRONG_SIZE);
        must_be_refused(it, a, bytes - ASKED, less, WEIR_MISUSE_WRONG_SIZE);
        must(weir_deallocate(it->pool, it->streams[0], a, bytes, less));
    }
}

/* What a tag has no room for is the usual alignment in it, and a capture. */
static void a_captures_block_is_told_by_its_alignment(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    weir_stream stream = it.streams[0];
    run_on(&it, 0, KIB, 1);
    weir_capture *capture;
    must_ok(weir_capture_begin(it.pool, it.streams[1], &capture));
    void *a = take(it.pool, it.streams[1], KIB);
    must_ok(weir_capture_end(capture));
    must_be_refused(&it, a, KIB, (size_t)WEIR_ALIGNMENT << 32, WEIR_MISUSE_WRONG_SIZE);
    give(it.pool, stream, a, KIB);
    must_ok(weir_capture_release(capture, stream));
    close_scene(&it);
}

/* Of blocks in a stack, and of such as are too large for any. */
static void what_is_known_of_a_hit_is_compared(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    what_is_known_is_compared(&it, KIB);
    what_is_known_is_compared(&it, 2 * LARGEST);
    what_is_known_is_compared(&it, ASKED + KIB);
    what_is_less_aligned_is_known(&it, KIB);
    what_is_less_aligned_is_known(&it, 2 * LARGEST);
    what_is_less_aligned_is_known(&it, ASKED + KIB);
    close_scene(&it);
}

/* In the sum of both the octets by which a pointer is beside its block would make up
 * for what is told to be asked for too few. */
static void a_pointer_beside_a_block_is_none(void **state)
{
    (void)state;
    enum { BESIDE = 3, BYTES = 3 * 8192 + 100, BLOCKS = 64 };
    const size_t per_octet = (size_t)1 << (WEIR__TAG_BITS - WEIR__HEAP_GRAIN_BITS -
                                           WEIR__TAG_ASKED_SHIFT);
    pool_scene it = open_quiet_scene();
    blocks some = { it.pool, it.streams[0], BYTES, BLOCKS, { NULL } };
    take_blocks(&some);
    for (int i = 0; i < BLOCKS; i++) { /* not all have another place beside them */
        char *a = some.ptrs[i];
        for (size_t beside = 1; beside <= BESIDE; beside++)
            must_be_refused(&it, a + beside, BYTES - beside * per_octet, WEIR_ALIGNMENT,
                            WEIR_MISUSE_FOREIGN_POINTER);
    }
    give_blocks(&some);
    close_scene(&it);
}

/* Of which a record has no room for some. */
static void an_address_with_more_bits_is_none(void **state)
{
    (void)state;
    pool_scene it = open_quiet_scene();
    static const size_t sizes[] = { KIB, 2 * LARGEST };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        char *a = warm_hit(&it, sizes[i]);
        for (unsigned bit = WEIR__HEAP_ADDRESS_BITS; bit < 64; bit++)
            must_be_refused(&it, (void *)((uintptr_t)a | (uintptr_t)1 << bit), sizes[i],
                            WEIR_ALIGNMENT, WEIR_MISUSE_FOREIGN_POINTER);
        give(it.pool, it.streams[0], a, sizes[i]);
    }
    close_scene(&it);
}

/* Without host memory there is a cache, and perhaps no record of anything. */
static void nothing_is_freed_where_nothing_could_be_had(void **state)
{
    (void)state;
    bool had = false;
    for (uint64_t nth = 1; !had; nth++) {
        pool_scene it = open_quiet_scene();
        void *ptr = NULL;
        weir__host_fail_at(nth, true);
        had = weir_allocate(it.pool, it.streams[0], KIB, WEIR_ALIGNMENT, &ptr) ==
              WEIR_OK;
        for (int i = 0; i < 2 && !had; i++) {
            must(ptr == NULL);
            must(weir_deallocate(it.pool, it.streams[0], NULL, KIB, WEIR_ALIGNMENT));
            must_be_refused(&it, &it, KIB, WEIR_ALIGNMENT, WEIR_MISUSE_FOREIGN_POINTER);
        }
        weir__host_fail_at(0, false);
        if (had)
            give(it.pool, it.streams[0], ptr, KIB);
        close_scene(&it);
    }
}

/* More blocks of one size than there are places for what is known of them. */
static void blocks_that_share_a_place_are_told_apart(void **state)
{
    (void)state;
    enum { BLOCKS = 2 * WEIR__RECENT };
    static void *ptrs[BLOCKS];
    pool_scene it = open_quiet_scene();
    for (int i = 0; i < BLOCKS; i++)
        ptrs[i] = take(it.pool, it.streams[0], KIB);
    for (int i = 0; i < BLOCKS; i++) {
        weir_block found = { .struct_size = sizeof found };
        give(it.pool, it.streams[0], ptrs[i], KIB);
        must_answer(WEIR_NOT_FOUND, weir_resource_find(it.pool, ptrs[i], &found));
    }
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_known_of_a_hit_is_compared),
        cmocka_unit_test(a_captures_block_is_told_by_its_alignment),
        cmocka_unit_test(a_pointer_beside_a_block_is_none),
        cmocka_unit_test(an_address_with_more_bits_is_none),
        cmocka_unit_test(nothing_is_freed_where_nothing_could_be_had),
        cmocka_unit_test(blocks_that_share_a_place_are_told_apart),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
