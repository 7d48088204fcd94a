/* test_pool_depot.c - the depot as the records that it is: random programs against an
 * array, and checks that stop. */
#include "pool_depot.h"
#include "support_records.h"

#define SIZES  6
#define LOTS   (WEIR__DEPOT_MOST + 4) /* magazines that there are blocks for */
#define HOLDER UINT32_C(0x1f00ff)

/* ---- magazines ---- */

/* The head of magazine `lot`; its other blocks come below it, in ids too. */
static uint32_t lot_head(uint32_t lot)
{
    return (lot + 1) * WEIR__MAGAZINE;
}

static weir__magazine make_magazine(records *heap, uint32_t lot, uint32_t grains)
{
    weir__magazine magazine = { .head = lot_head(lot),
                                .holder_tag = weir__holder_tag(HOLDER - lot),
                                .grains = grains,
                                .mark = { lot + 1, UINT64_C(1) << 40 | grains } };
    uint32_t below = 0;
    for (uint32_t id = magazine.head - WEIR__MAGAZINE + 1; id <= magazine.head; id++) {
        records_make(heap, id, grains);
        weir__heap_set_tag(&heap->all[id], magazine.holder_tag);
        weir__link_set(&heap->all[id], below);
        below = id;
    }
    return magazine;
}

/* In one condition: it is asked some million times. */
static void must_be_same(const weir__magazine *a, const weir__magazine *b)
{
    must(a->head == b->head && a->holder_tag == b->holder_tag &&
         a->grains == b->grains && a->mark.clock == b->mark.clock &&
         a->mark.number == b->mark.number);
}

/* ---- random programs ---- */

/* A depot, and what should be in it: the oldest first. */
typedef struct world {
    records heap;
    weir__depot depot;
    weir__magazine in[WEIR__DEPOT_MOST];
    uint32_t count;
    uint32_t spare[LOTS];    /* whose blocks are in no magazine */
    uint32_t spare_count;
    uint32_t sizes[SIZES];
    uint32_t touched;        /* the size of what came or went last */
    size_t bytes;
    uint64_t random;
} world;

static uint32_t below(world *w, uint32_t n)
{
    return (uint32_t)support_random_below(&w->random, n);
}

static void world_begin(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    memset(&w->depot, 0xa5, sizeof w->depot); /* init leaves nothing of it */
    weir__depot_init(&w->depot);
    w->random = seed;
    w->heap = records_begin(LOTS * WEIR__MAGAZINE);
    for (w->spare_count = 0; w->spare_count < LOTS; w->spare_count++)
        w->spare[w->spare_count] = w->spare_count;
    /* Three of one bucket, its neighbour, the largest of all, and any. */
    uint32_t grains = 1 + below(w, 1000);
    for (uint32_t i = 0; i < 3; i++)
        w->sizes[i] = grains + i * WEIR__DEPOT_BUCKETS;
    w->sizes[3] = grains + 1;
    w->sizes[4] = UINT32_MAX;
    w->sizes[5] = 1 + below(w, UINT32_MAX - 1);
    w->touched = w->sizes[0];
}

/* Those of one size are found as the array has them, and then no more. */
static void must_be_found(const world *w, uint32_t grains)
{
    const weir__magazine *found = NULL;
    for (uint32_t i = 0; i < w->count; i++) {
        if (w->in[i].grains != grains)
            continue;
        found = weir__depot_next(&w->depot, grains, found);
        must(found != NULL);
        must_be_same(found, &w->in[i]);
    }
    must(weir__depot_next(&w->depot, grains, found) == NULL);
}

/* What a step has put in or taken out is seen at once. */
static void must_be_as_left(const world *w)
{
    const weir__magazine *oldest = weir__depot_oldest(&w->depot);
    must((oldest == NULL) == (w->count == 0));
    if (oldest != NULL)
        must_be_same(oldest, &w->in[0]);
    must_be_found(w, w->touched);
    must_equal(w->depot.count, w->count);
    must_equal(w->depot.bytes, w->bytes);
    must_equal(weir__depot_is_full(&w->depot), w->count == WEIR__DEPOT_MOST);
}

/* And so is all the rest. */
static void must_be_as_modelled(const world *w)
{
    weir__depot_verify(&w->depot, &w->heap.view);
    must_be_as_left(w);
    for (uint32_t size = 0; size < SIZES; size++)
        must_be_found(w, w->sizes[size]);
    must_be_found(w, w->sizes[2] + WEIR__DEPOT_BUCKETS);
}

static void step_put(world *w)
{
    uint32_t at = below(w, w->spare_count), lot = w->spare[at];
    w->spare[at] = w->spare[--w->spare_count];
    weir__magazine magazine = make_magazine(&w->heap, lot, w->sizes[below(w, SIZES)]);
    /* Whose links were anything before. */
    magazine.next = magazine.before = magazine.newer = magazine.older = 1;
    weir__depot_put(&w->depot, magazine);
    w->in[w->count++] = magazine;
    w->touched = magazine.grains;
    w->bytes += (size_t)magazine.grains * WEIR__HEAP_GRAIN * WEIR__MAGAZINE;
}

/* Number `at` in the depot, found as its users do. */
static const weir__magazine *find(const world *w, uint32_t at)
{
    if (at == 0)
        return weir__depot_oldest(&w->depot);
    const weir__magazine *found = NULL;
    for (uint32_t i = 0; i <= at; i++) {
        if (w->in[i].grains == w->in[at].grains)
            found = weir__depot_next(&w->depot, w->in[at].grains, found);
    }
    return found;
}

static void step_take(world *w, uint32_t at)
{
    weir__magazine taken = weir__depot_take(&w->depot, find(w, at));
    must_be_same(&taken, &w->in[at]);
    for (uint32_t id = taken.head, i = 0; i < WEIR__MAGAZINE; i++) {
        records_must_be(&w->heap, id, taken.grains, taken.holder_tag);
        id = weir__link_of(&w->heap.all[id]);
    }
    w->spare[w->spare_count++] = taken.head / WEIR__MAGAZINE - 1;
    w->count--;
    memmove(&w->in[at], &w->in[at + 1], (w->count - at) * sizeof *w->in);
    w->touched = taken.grains;
    w->bytes -= (size_t)taken.grains * WEIR__HEAP_GRAIN * WEIR__MAGAZINE;
}

static void random_programs_are_as_an_array(void **state)
{
    (void)state;
    static world w;
    uint64_t filled = 0, emptied = 0;
    uint64_t programs = SUPPORT_PROGRAMS("programs of a pool's depot", 200, 10000);
    for (uint64_t program = 0; program < programs; program++) {
        world_begin(&w, support_seed(program));
        must_be_as_modelled(&w);
        for (uint32_t step = 0; step < 12 * WEIR__DEPOT_MOST; step++) {
            /* By turns it fills up and runs empty. */
            uint32_t putting = step / (3 * WEIR__DEPOT_MOST) % 2 == 0 ? 80 : 20;
            bool puts = below(&w, 100) < putting;
            if (puts && w.count < WEIR__DEPOT_MOST)
                step_put(&w);
            else if (w.count > 0)
                step_take(&w, below(&w, 3) == 0 ? 0 : below(&w, w.count));
            /* Where it holds very many, all of it is looked at now and then. */
            must_be_as_left(&w);
            if (step % (1 + WEIR__DEPOT_MOST / 16) == 0)
                must_be_as_modelled(&w);
            filled += w.count == WEIR__DEPOT_MOST;
            emptied += w.count == 0;
        }
        must_be_as_modelled(&w);
        records_end(&w.heap);
    }
    print_message("%u magazines at most: %llu times full, %llu times empty\n",
                  (unsigned)WEIR__DEPOT_MOST, (unsigned long long)filled,
                  (unsigned long long)emptied);
    must(filled > 0 && emptied > 0);
}

/* ---- checks that stop ---- */

/* Three magazines, of one bucket: of 1 grain, of more, of 1 again. */
#define MORE (1 + WEIR__DEPOT_BUCKETS)

typedef struct scene {
    records heap;
    weir__depot depot;
    weir__magazine *first, *second, *third;
    void (*damage)(struct scene *);
} scene;

static void scene_begin(scene *s)
{
    *s = (scene){ .heap = records_begin(LOTS * WEIR__MAGAZINE) };
    weir__depot_init(&s->depot);
    for (uint32_t lot = 0; lot < 3; lot++)
        weir__depot_put(&s->depot,
                        make_magazine(&s->heap, lot, lot == 1 ? MORE : 1));
    s->first = &s->depot.magazines[s->depot.oldest];
    s->second = &s->depot.magazines[s->first->newer];
    s->third = &s->depot.magazines[s->depot.newest];
    must(s->second->newer == s->depot.newest && s->second->grains == MORE);
    weir__depot_verify(&s->depot, &s->heap.view);
}

static weir__heap_block *head_of(scene *s, const weir__magazine *magazine)
{
    return weir__heap_at(&s->heap.view, magazine->head);
}

static void older_is_off(scene *s)    { s->second->older = 0; }

static void newer_goes_round(scene *s)
{
    s->third->newer = s->depot.oldest;
    s->first->older = s->depot.newest;
}

static void newest_is_off(scene *s)   { s->depot.newest = s->depot.oldest; }

static void oldest_is_off(scene *s)
{
    s->depot.oldest = s->first->newer;
    s->second->older = 0;
}

static void tag_is_off(scene *s)
{
    weir__heap_set_tag(head_of(s, s->third), weir__heap_out_tag(256, 256));
}

static void low_tag_is_off(scene *s)
{
    weir__heap_set_tag(&s->heap.all[1], weir__holder_tag(HOLDER - 1));
}

static void size_is_off(scene *s)
{
    atomic_store(&s->heap.all[1].grains, MORE);
}

static void magazine_goes_on(scene *s)
{
    weir__link_set(&s->heap.all[1], s->second->head);
}

static void magazine_is_too_short(scene *s)
{
    s->first->head--;
}

static void bucket_is_cut(scene *s)
{
    s->first->next = 0;
    s->depot.last[1 % WEIR__DEPOT_BUCKETS] = s->depot.oldest;
}

static void bucket_loses_one(scene *s)
{
    s->first->next = s->depot.newest;
    s->third->before = s->depot.oldest;
}

static void before_is_off(scene *s)   { s->third->before = s->depot.oldest; }

static void last_is_off(scene *s)
{
    s->depot.last[1 % WEIR__DEPOT_BUCKETS] = s->depot.oldest;
}

static void bucket_is_off(scene *s)
{
    s->depot.first[0] = s->depot.first[1 % WEIR__DEPOT_BUCKETS];
}

static void bucket_has_unused(scene *s)
{
    s->depot.first[0] = s->depot.last[0] = WEIR__DEPOT_MOST;
}

static void count_is_off(scene *s)    { s->depot.count--; }

static void bytes_are_off(scene *s)   { s->depot.bytes++; }

static void unused_are_lost(scene *s) { s->depot.unused = 0; }

static void used_is_unused(scene *s)  { s->depot.unused = s->depot.newest; }

static void unused_goes_round(scene *s)
{
    s->depot.magazines[s->depot.unused].next = s->depot.unused;
}

static void damage_and_verify(void *argument)
{
    scene *s = argument;
    s->damage(s);
    weir__depot_verify(&s->depot, &s->heap.view);
}

static void verify_stops_at_each_damage(void **state)
{
    (void)state;
    static const struct {
        void (*damage)(scene *);
        const char *words;
    } all[] = {
        { older_is_off, "magazines know who is older" },
        { newer_goes_round, "magazines know who is older" },
        { newest_is_off, "the depot knows the newest" },
        { oldest_is_off, "the depot is counted" },
        { tag_is_off, "a magazine's blocks keep the tag that they came with" },
        { low_tag_is_off, "a magazine's blocks keep the tag that they came with" },
        { size_is_off, "a magazine's blocks are of one size" },
        { magazine_goes_on, "a magazine is full, and no fuller" },
        { magazine_is_too_short, "keep the tag" }, /* it goes on to record 0 */
        { bucket_is_cut, "a magazine is found by its size" },
        { bucket_loses_one, "a magazine is found by its size" },
        { before_is_off, "magazines know who is before them" },
        { last_is_off, "a bucket knows its last" },
        { bucket_is_off, "a magazine is in the bucket of its size" },
        { bucket_has_unused, "a magazine is in the bucket of its size" },
        { count_is_off, "the depot is counted" },
        { bytes_are_off, "the depot is counted" },
        { unused_are_lost, "no magazine is lost" },
        { used_is_unused, "what is unused has no blocks" },
        { unused_goes_round, "the unused have an end" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        scene s;
        scene_begin(&s);
        s.damage = all[i].damage;
        must_stop(all[i].words, damage_and_verify, &s);
        records_end(&s.heap);
    }
}

static void puts_one_more(void *argument)
{
    scene *s = argument;
    weir__depot_put(&s->depot, make_magazine(&s->heap, LOTS - 1, 1));
}

static void takes_what_is_not_in(void *argument)
{
    scene *s = argument;
    (void)weir__depot_take(&s->depot, s->second);
}

static void misuse_stops(void **state)
{
    (void)state;
    scene s;
    scene_begin(&s);
    for (uint32_t lot = 3; lot < WEIR__DEPOT_MOST; lot++)
        weir__depot_put(&s.depot, make_magazine(&s.heap, lot, 1));
    weir__depot_verify(&s.depot, &s.heap.view);
    must(weir__depot_is_full(&s.depot));
    must_stop("who puts a magazine in the depot has made room", puts_one_more, &s);
    (void)weir__depot_take(&s.depot, s.second);
    weir__depot_verify(&s.depot, &s.heap.view);
    must(!weir__depot_is_full(&s.depot));
    must_stop("what is taken out of the depot is in it", takes_what_is_not_in, &s);
    records_end(&s.heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_are_as_an_array),
        cmocka_unit_test(verify_stops_at_each_damage),
        cmocka_unit_test(misuse_stops),
    };
    return cmocka_run_group_tests_name("pool_depot", tests, NULL, NULL);
}
