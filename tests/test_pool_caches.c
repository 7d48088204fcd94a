/* test_pool_caches.c - a seat's table of caches, by stream; and room in one that is
 * full. */
#include "pool_cache.h"
#include "support_records.h"

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
            do
                cache->stream = some_stream(&random, seat.mask, rival);
            while (weir__cache_find(&seat, cache->stream) != NULL);
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

/* ---- room ---- */

#define STACKED (2 * WEIR__MAGAZINE)

/* Each bin has all that it can; a look at WEIR__ROOM_LOOKS of them is not enough. */
static void much_room_is_made_at_once(void **state)
{
    (void)state;
    weir__cache cache = { .holder_tag = weir__holder_tag(1) };
    records heap = records_begin(STACKED * WEIR__BINS);
    for (uint32_t id = 1; id <= STACKED * WEIR__BINS; id++) {
        const uint32_t grains = 1u << (id - 1) / STACKED;
        records_make(&heap, id, grains);
        weir__bin *bin = weir__cache_claim(&cache, &heap.view, grains);
        must(weir__bin_push(bin, &heap.all[id], id, (void *)records_base(id),
                            cache.holder_tag));
        cache.bytes += weir__grains_size(grains);
    }
    weir__cache_verify(&cache, &heap.view);
    const size_t most = cache.bytes * 2 / 3;
    cache.most_bytes = most;
    weir__cache_make_room(&cache, &heap.view, 1);
    weir__cache_verify(&cache, &heap.view);
    must(cache.spill.count > WEIR__ROOM_LOOKS);
    must(cache.bytes - cache.spill.bytes <= most - most / WEIR__ROOM_SHARE);
    must(cache.bytes - cache.spill.bytes > most / 2); /* and no more than that */
    records_end(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cache_is_found_by_its_stream),
        cmocka_unit_test(much_room_is_made_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
