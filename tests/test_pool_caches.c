/* test_pool_caches.c - a seat's table of caches, by stream. */
#include "pool_cache.h"
#include "support.h"

#define TABLE_MOST 64

/* Streams as they come: the default ones, and pointers; some of one hash. */
static weir_stream some_stream(uint64_t *random, uint32_t mask, weir_stream rival)
{
    uintptr_t stream;
    do {
        stream = support_random_below(random, 8) == 0
                     ? (uintptr_t)support_random_below(random, 3)
                     : (uintptr_t)support_random_below(random, 1 << 20) * 16;
    } while (rival != NULL && (weir__stream_hash((weir_stream)stream) & mask) !=
                                  (weir__stream_hash(rival) & mask));
    return (weir_stream)stream;
}

static void cache_is_found_by_its_stream(void **state)
{
    (void)state;
    static weir__cache caches[TABLE_MOST];
    weir__seat seat = { 0 };
    must(weir__cache_find(&seat, NULL) == NULL); /* which has no table yet */
    uint64_t wrapped = 0;
    for (uint64_t i = 0; i < 2000; i++) {
        uint64_t random = support_seed(i);
        weir__cache *table[TABLE_MOST] = { NULL };
        seat.mask = (2u << support_random_below(&random, 6)) - 1;
        seat.caches = table;
        /* All but one slot, all of one hash, or of any. */
        weir_stream rival = i % 2 == 0 ? some_stream(&random, 0, NULL) : NULL;
        for (seat.cache_count = 0; seat.cache_count < seat.mask; seat.cache_count++) {
            weir__cache *cache = &caches[seat.cache_count];
            do {
                cache->stream = some_stream(&random, seat.mask, rival);
                seat.last = NULL; /* which this stream was not */
            } while (weir__cache_find(&seat, cache->stream) != NULL);
            uint32_t at = weir__stream_hash(cache->stream) & seat.mask;
            for (; table[at] != NULL; at = (at + 1) & seat.mask)
                wrapped += at == seat.mask;
            table[at] = cache;
        }
        for (uint32_t j = 0; j < 2 * TABLE_MOST; j++) {
            weir_stream stream = some_stream(&random, seat.mask, rival);
            if (j < seat.cache_count)
                stream = caches[j].stream;
            weir__cache *found = NULL;
            for (uint32_t k = 0; k < seat.cache_count; k++)
                found = caches[k].stream == stream ? &caches[k] : found;
            must(weir__cache_find(&seat, stream) == found);
        }
    }
    must(wrapped > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_is_found_by_its_stream),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
