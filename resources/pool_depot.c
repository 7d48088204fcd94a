/* pool_depot.c - see pool_depot.h. */
#include "pool_depot.h"

#include "internal.h"

static size_t bucket_of(uint32_t grains)
{
    return grains % WEIR__DEPOT_BUCKETS;
}

void weir__depot_init(weir__depot *depot)
{
    *depot = (weir__depot){ .unused = 1 };
    for (uint16_t i = 1; i < WEIR__DEPOT_MOST; i++)
        depot->magazines[i].next = (uint16_t)(i + 1);
}

void weir__depot_put(weir__depot *depot, weir__magazine magazine)
{
    uint16_t at = depot->unused;
    WEIR_CHECK(at != 0, "who puts a magazine in the depot has made room");
    depot->unused = depot->magazines[at].next;

    /* At the end of its bucket, for the oldest is the likeliest to be done. */
    size_t bucket = bucket_of(magazine.grains);
    magazine.next = 0;
    magazine.before = depot->last[bucket];
    *(magazine.before != 0 ? &depot->magazines[magazine.before].next
                           : &depot->first[bucket]) = at;
    depot->last[bucket] = at;
    magazine.newer = 0;
    magazine.older = depot->newest;
    *(magazine.older != 0 ? &depot->magazines[magazine.older].newer
                          : &depot->oldest) = at;
    depot->newest = at;
    depot->magazines[at] = magazine;
    depot->count++;
    depot->bytes += weir__magazine_bytes(&magazine);
}

static const weir__magazine *from(const weir__depot *depot, uint16_t at,
                                  uint32_t grains)
{
    while (at != 0 && depot->magazines[at].grains != grains)
        at = depot->magazines[at].next;
    return at != 0 ? &depot->magazines[at] : NULL;
}

const weir__magazine *weir__depot_next(const weir__depot *depot, uint32_t grains,
                                       const weir__magazine *after)
{
    return from(depot, after != NULL ? after->next : depot->first[bucket_of(grains)],
                grains);
}

const weir__magazine *weir__depot_oldest(const weir__depot *depot)
{
    return depot->oldest != 0 ? &depot->magazines[depot->oldest] : NULL;
}

weir__magazine weir__depot_take(weir__depot *depot, const weir__magazine *magazine)
{
    uint16_t at = (uint16_t)(magazine - depot->magazines);
    weir__magazine *all = depot->magazines, taken = *magazine;
    WEIR_CHECK(taken.head != 0, "what is taken out of the depot is in it");
    size_t bucket = bucket_of(taken.grains);
    *(taken.before != 0 ? &all[taken.before].next : &depot->first[bucket]) = taken.next;
    *(taken.next != 0 ? &all[taken.next].before : &depot->last[bucket]) = taken.before;
    *(taken.older != 0 ? &all[taken.older].newer : &depot->oldest) = taken.newer;
    *(taken.newer != 0 ? &all[taken.newer].older : &depot->newest) = taken.older;
    all[at] = (weir__magazine){ .next = depot->unused };
    depot->unused = at;
    depot->count--;
    depot->bytes -= weir__magazine_bytes(&taken);
    return taken;
}

/* ---- verify ---- */

static void magazine_verify(const weir__magazine *magazine, const weir__heap_view *view)
{
    uint32_t id = magazine->head;
    for (uint32_t i = 0; i < WEIR__MAGAZINE; i++) {
        const weir__heap_block *block = weir__heap_at(view, id);
        WEIR_CHECK(weir__heap_tag(block) == magazine->holder_tag,
                   "a magazine's blocks keep the tag that they came with");
        WEIR_CHECK(weir__heap_grains(block) == magazine->grains,
                   "a magazine's blocks are of one size");
        id = weir__link_of(block);
    }
    WEIR_CHECK(id == 0, "a magazine is full, and no fuller");
}

/* How many are in a bucket. It has an end: nobody has two before it. */
static uint32_t bucket_verify(const weir__depot *depot, size_t bucket)
{
    uint32_t count = 0;
    uint16_t before = 0;
    for (uint16_t at = depot->first[bucket]; at != 0; at = depot->magazines[at].next) {
        const weir__magazine *magazine = &depot->magazines[at];
        WEIR_CHECK(magazine->before == before, "magazines know who is before them");
        WEIR_CHECK(magazine->head != 0 && bucket_of(magazine->grains) == bucket,
                   "a magazine is in the bucket of its size");
        before = at;
        count++;
    }
    WEIR_CHECK(depot->last[bucket] == before, "a bucket knows its last");
    return count;
}

void weir__depot_verify(const weir__depot *depot, const weir__heap_view *view)
{
    uint32_t count = 0, unused = 0, in_buckets = 0;
    size_t bytes = 0;
    uint16_t older = 0;
    for (uint16_t at = depot->oldest; at != 0; at = depot->magazines[at].newer) {
        const weir__magazine *magazine = &depot->magazines[at];
        WEIR_CHECK(magazine->older == older, "magazines know who is older");
        if (view != NULL)
            magazine_verify(magazine, view);
        bytes += weir__magazine_bytes(magazine);
        count++;
        older = at;
    }
    WEIR_CHECK(depot->newest == older, "the depot knows the newest");
    WEIR_CHECK(count == depot->count && bytes == depot->bytes, "the depot is counted");
    for (size_t bucket = 0; bucket < WEIR__DEPOT_BUCKETS; bucket++)
        in_buckets += bucket_verify(depot, bucket);
    WEIR_CHECK(in_buckets == count, "a magazine is found by its size");
    for (uint16_t at = depot->unused; at != 0; at = depot->magazines[at].next) {
        WEIR_CHECK(++unused <= WEIR__DEPOT_MOST, "the unused have an end");
        WEIR_CHECK(depot->magazines[at].head == 0, "what is unused has no blocks");
    }
    WEIR_CHECK(count + unused == WEIR__DEPOT_MOST, "no magazine is lost");
}
