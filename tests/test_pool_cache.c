/* test_pool_cache.c - a thread's cache as the records that it is: random programs
 * against arrays, and checks that stop. */
#include "pool_cache.h"
#include "support_records.h"

#define SIZES     5
#define PER_SIZE  (2 * WEIR__MAGAZINE + 12)
#define BLOCKS    (SIZES * PER_SIZE)
#define HOLDER    UINT32_C(0x15a5a5) /* of 21 bits */
#define NO_HOLDER UINT32_C(0x15a5a4)

/* ---- the model: arrays, the top last ---- */

typedef struct pile {
    uint32_t ids[BLOCKS];
    uint32_t count;
} pile;

static void pile_add(pile *self, uint32_t id)
{
    self->ids[self->count++] = id;
}

/* The `n` lowest go from one pile onto another. */
static void pile_move_lowest(pile *self, uint32_t n, pile *to)
{
    for (uint32_t i = 0; i < n; i++)
        pile_add(to, self->ids[i]);
    self->count -= n;
    memmove(self->ids, self->ids + n, self->count * sizeof *self->ids);
}

static void pile_move_from_the_top(pile *self, pile *to)
{
    while (self->count > 0)
        pile_add(to, self->ids[--self->count]);
}

/* A cache, and what should be in it. */
typedef struct world {
    records heap;
    weir__cache cache;
    uint32_t sizes[SIZES];
    uint32_t grains[BLOCKS + 1]; /* of each block */
    pile bins[WEIR__BINS];
    uint32_t bin_grains[WEIR__BINS];
    pile spilt;
    pile out;                    /* in no order */
    pile away[SIZES];            /* full magazines that were taken out, by size */
    uint64_t random;
    uint32_t refusals, swaps;    /* rare things that were met */
    uint32_t unspilt;            /* from below others */
} world;

static uint32_t below(world *w, uint32_t n)
{
    return (uint32_t)support_random_below(&w->random, n);
}

static uint32_t out_tag(const world *w, uint32_t id)
{
    size_t bytes = ((size_t)w->grains[id] << WEIR__HEAP_GRAIN_BITS) - id % 256;
    return weir__heap_out_tag(bytes, (size_t)1 << id % 9);
}

static size_t bytes_of(const world *w, uint32_t id)
{
    return (size_t)w->grains[id] << WEIR__HEAP_GRAIN_BITS;
}

/* A block is the user's. */
static void go_out(world *w, uint32_t id)
{
    weir__heap_set_tag(&w->heap.all[id], out_tag(w, id));
    pile_add(&w->out, id);
}

static uint32_t bin_index(world *w, uint32_t grains)
{
    return (uint32_t)(weir__cache_bin(&w->cache, grains) - w->cache.bins);
}

/* The first large size behind `grains`, and round, that has its bin, or another. */
static uint32_t large_size(world *w, uint32_t grains, bool same)
{
    uint32_t from = grains;
    do
        from = from < WEIR__CACHED_GRAINS ? from + 1 : WEIR__SMALL_BINS + 1;
    while ((bin_index(w, from) == bin_index(w, grains)) != same);
    must(from != grains);
    return from;
}

/* Two small sizes, a large one with its rival, and one with a bin of its own, which may
 * be the largest that there is. */
static void choose_sizes(world *w)
{
    const uint32_t small = w->sizes[1] = WEIR__SMALL_BINS;
    uint32_t large = small + 1 + below(w, WEIR__CACHED_GRAINS - small);
    w->sizes[0] = 1 + below(w, small - 1);
    w->sizes[2] = large;
    w->sizes[3] = large_size(w, large, true);
    w->sizes[4] = large_size(w, large, false);
    if (bin_index(w, UINT32_MAX) != bin_index(w, large))
        w->sizes[4] = UINT32_MAX;
}

static void world_begin(world *w, uint64_t seed)
{
    memset(w, 0, sizeof *w);
    w->random = seed;
    w->cache.holder_tag = weir__holder_tag(HOLDER);
    choose_sizes(w);
    w->heap = records_begin(BLOCKS);
    for (uint32_t id = 1; id <= BLOCKS; id++) {
        w->grains[id] = w->sizes[id % SIZES];
        records_make(&w->heap, id, w->grains[id]);
        go_out(w, id);
    }
}

/* ---- the cache is what the model is ---- */

/* Claims that a stack is the `count` of `ids` that end before `end`. */
static void must_be_stack(const world *w, uint32_t id, const uint32_t *end,
                          uint32_t count)
{
    for (; count > 0; count--) {
        must_equal(id, *--end);
        id = weir__link_of(&w->heap.all[id]);
    }
    must_equal(id, 0);
}

static size_t must_have_tags(const world *w, const pile *ids, bool is_out)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < ids->count; i++) {
        uint32_t id = ids->ids[i];
        records_must_be(&w->heap, id, w->grains[id],
                        is_out ? out_tag(w, id) : w->cache.holder_tag);
        bytes += bytes_of(w, id);
    }
    return bytes;
}

static void must_be_bin(const world *w, uint32_t index)
{
    const weir__bin *bin = &w->cache.bins[index];
    const pile *ids = &w->bins[index];
    must_equal(bin->grains, w->bin_grains[index]);
    must(bin->count <= WEIR__MAGAZINE);
    must_equal(bin->count + (bin->full != 0 ? WEIR__MAGAZINE : 0), ids->count);
    if (bin->count > 0) {
        uint32_t top = ids->ids[ids->count - 1];
        must_equal((uintptr_t)bin->ptr, records_base(top));
        must(bin->top == &w->heap.all[top]);
        must_be_stack(w, bin->top_id, ids->ids + ids->count, bin->count);
    }
    if (bin->full != 0)
        must_be_stack(w, bin->full, ids->ids + WEIR__MAGAZINE, WEIR__MAGAZINE);
}

static void must_be_as_modelled(const world *w)
{
    size_t bytes = 0, blocks = w->spilt.count;
    for (uint32_t i = 0; i < WEIR__BINS; i++) {
        must_be_bin(w, i);
        bytes += must_have_tags(w, &w->bins[i], false);
        blocks += w->bins[i].count;
    }
    size_t spilt_bytes = must_have_tags(w, &w->spilt, false);
    must_equal(w->cache.spill.count, w->spilt.count);
    must_equal(w->cache.spill.bytes, spilt_bytes);
    must_be_stack(w, w->cache.spill.head, w->spilt.ids + w->spilt.count,
                  w->spilt.count);
    must_equal(w->cache.bytes, bytes + spilt_bytes);
    must_equal(weir__cache_blocks(&w->cache), blocks);
    (void)must_have_tags(w, &w->out, true);
    weir__cache_verify(&w->cache, &w->heap.view);
}

/* ---- steps ---- */

static void spill(world *w, uint32_t id)
{
    w->cache.bytes += bytes_of(w, id);
    weir__cache_spill(&w->cache, &w->heap.all[id], id);
    pile_add(&w->spilt, id);
}

/* The full magazine below the top leaves. */
static void take_full(world *w, weir__bin *bin, pile *ids, pile *to)
{
    must_be_stack(w, bin->full, ids->ids + WEIR__MAGAZINE, WEIR__MAGAZINE);
    bin->full = 0;
    w->cache.bytes -= bytes_of(w, ids->ids[0]) * WEIR__MAGAZINE;
    pile_move_lowest(ids, WEIR__MAGAZINE, to);
}

static bool push(world *w, weir__bin *bin, uint32_t id)
{
    return weir__bin_push(bin, &w->heap.all[id], id, (void *)records_base(id),
                          w->cache.holder_tag);
}

static void step_give_back(world *w)
{
    if (w->out.count == 0)
        return;
    uint32_t at = below(w, w->out.count), id = w->out.ids[at];
    w->out.ids[at] = w->out.ids[--w->out.count];
    weir__bin *bin = weir__cache_bin(&w->cache, w->grains[id]);
    pile *ids = &w->bins[bin - w->cache.bins];
    if (bin->grains != w->grains[id] || below(w, 50) == 0) {
        spill(w, id);
        return;
    }
    bool is_room = push(w, bin, id);
    must_equal(is_room, ids->count < 2 * WEIR__MAGAZINE);
    if (!is_room) {
        w->refusals++;
        records_must_be(&w->heap, id, w->grains[id], out_tag(w, id));
        weir__cache_verify(&w->cache, &w->heap.view);
        take_full(w, bin, ids, &w->away[id % SIZES]);
        must(push(w, bin, id));
    }
    w->cache.bytes += bytes_of(w, id);
    pile_add(ids, id);
}

static void claim(world *w, uint32_t grains)
{
    uint32_t index = bin_index(w, grains);
    must(weir__cache_claim(&w->cache, &w->heap.view, grains) ==
         &w->cache.bins[index]);
    if (w->bin_grains[index] != grains) {
        w->swaps += w->bins[index].count > 0;
        pile_move_from_the_top(&w->bins[index], &w->spilt);
    }
    w->bin_grains[index] = grains;
}

/* A magazine that left comes back to an empty bin. */
static void load(world *w, uint32_t size)
{
    weir__bin *bin = weir__cache_bin(&w->cache, w->sizes[size]);
    pile *ids = &w->bins[bin - w->cache.bins], *away = &w->away[size];
    if (away->count == 0)
        return;
    must_equal(ids->count, 0);
    weir__bin_load(bin, &w->heap.view, away->ids[WEIR__MAGAZINE - 1], WEIR__MAGAZINE);
    pile_move_lowest(away, WEIR__MAGAZINE, ids);
    w->cache.bytes += bytes_of(w, ids->ids[0]) * WEIR__MAGAZINE;
}

static void step_take(world *w)
{
    uint32_t size = below(w, SIZES), grains = w->sizes[size];
    weir__bin *bin = weir__cache_bin(&w->cache, grains);
    pile *ids = &w->bins[bin - w->cache.bins];
    if (bin->grains != grains) {
        claim(w, grains);
        return;
    }
    bool is_ready = weir__bin_is_ready(bin, &w->heap.view);
    must_equal(is_ready, ids->count > 0);
    if (!is_ready) {
        load(w, size);
        return;
    }
    must_be_as_modelled(w);
    uint32_t id = ids->ids[--ids->count];
    must(bin->ptr == (void *)records_base(id));
    must(weir__bin_pop(bin, &w->heap.view) == &w->heap.all[id]);
    records_must_be(&w->heap, id, grains, w->cache.holder_tag);
    w->cache.bytes -= bytes_of(w, id);
    go_out(w, id);
}

/* The last of a size that was spilt. */
static void step_unspill(world *w)
{
    const uint32_t grains = w->sizes[below(w, SIZES)];
    uint32_t at = w->spilt.count;
    while (at > 0 && w->grains[w->spilt.ids[at - 1]] != grains)
        at--;
    const uint32_t id = at > 0 ? w->spilt.ids[at - 1] : 0;
    weir__heap_taken taken = weir__cache_unspill(&w->cache, &w->heap.view, grains,
                                                 id != 0 ? out_tag(w, id) : 0);
    must_equal(taken.id, id);
    must(taken.block == (id != 0 ? &w->heap.all[id] : NULL));
    if (id == 0)
        return;
    must_equal(weir__heap_tag(taken.block), out_tag(w, id));
    w->spilt.count--;
    memmove(&w->spilt.ids[at - 1], &w->spilt.ids[at],
            (w->spilt.count - (at - 1)) * sizeof w->spilt.ids[0]);
    pile_add(&w->out, id);
    w->unspilt += at <= w->spilt.count;
}

static void step_spill_all(world *w)
{
    weir__cache_spill_all(&w->cache, &w->heap.view);
    for (uint32_t i = 0; i < WEIR__BINS; i++)
        pile_move_from_the_top(&w->bins[i], &w->spilt);
}

/* What was spilt, and what is away, goes to the user again. */
static void step_settle(world *w)
{
    w->cache.bytes -= w->cache.spill.bytes;
    w->cache.spill = (weir__block_list){ 0 };
    while (w->spilt.count > 0)
        go_out(w, w->spilt.ids[--w->spilt.count]);
    for (uint32_t i = 0; i < SIZES && below(w, 2) == 0; i++)
        while (w->away[i].count > 0)
            go_out(w, w->away[i].ids[--w->away[i].count]);
}

static void random_programs_are_as_arrays(void **state)
{
    (void)state;
    static world w;
    uint32_t refusals = 0, swaps = 0, unspilt = 0;
    uint64_t programs = SUPPORT_PROGRAMS("programs of a pool's cache", 400, 10000);
    for (uint64_t program = 0; program < programs; program++) {
        world_begin(&w, support_seed(program));
        for (uint32_t step = 0; step < 16 * BLOCKS; step++) {
            /* By turns more is given back, and more is taken. */
            uint32_t giving = step / (4 * BLOCKS) % 2 == 0 ? 75 : 25;
            uint32_t dice = below(&w, 100);
            if (below(&w, 4 * BLOCKS) == 0)
                step_spill_all(&w);
            else if (below(&w, 40) == 0)
                step_settle(&w);
            else if (below(&w, 20) == 0)
                step_unspill(&w);
            else if (below(&w, 40) == 0)
                claim(&w, w.sizes[below(&w, SIZES)]);
            else if (dice < giving)
                step_give_back(&w);
            else
                step_take(&w);
            must_be_as_modelled(&w);
        }
        refusals += w.refusals;
        swaps += w.swaps;
        unspilt += w.unspilt;
        records_end(&w.heap);
    }
    print_message("magazines of %u: %u did not fit, %u bins emptied for a rival\n",
                  (unsigned)WEIR__MAGAZINE, (unsigned)refusals, (unsigned)swaps);
    must(refusals > 0 && swaps > 0 && unspilt > 0);
}

static void every_size_has_its_bin(void **state)
{
    (void)state;
    weir__cache cache = { 0 };
    for (uint32_t grains = 1; grains <= WEIR__SMALL_BINS; grains++)
        must(weir__cache_bin(&cache, grains) == &cache.bins[grains - 1]);
    ptrdiff_t last = WEIR__SMALL_BINS - 1;
    uint32_t grains = WEIR__SMALL_BINS;
    while (++grains <= WEIR__CACHED_GRAINS) {
        ptrdiff_t at = weir__cache_bin(&cache, grains) - cache.bins;
        must(at == last || at == last + 1);
        last = at;
    }
    must(last == WEIR__BINS - 1);
    must(weir__cache_bin(&cache, UINT32_MAX) == &cache.bins[last]);
}

/* ---- verify stops ---- */

/* Block 1 is spilt; the bin of one grain has a full magazine, the lowest of it block 2,
 * and one block more, LAST. */
#define LAST (2 + WEIR__MAGAZINE)

typedef struct scene {
    records heap;
    weir__cache cache;
    weir__bin *bin;
    void (*damage)(struct scene *);
} scene;

static void scene_begin(scene *s)
{
    *s = (scene){ .heap = records_begin(LAST) };
    s->cache.holder_tag = weir__holder_tag(HOLDER);
    for (uint32_t id = 1; id <= LAST; id++)
        records_make(&s->heap, id, 1);
    weir__cache_spill(&s->cache, &s->heap.all[1], 1);
    s->bin = weir__cache_claim(&s->cache, &s->heap.view, 1);
    for (uint32_t id = 2; id <= LAST; id++)
        must(weir__bin_push(s->bin, &s->heap.all[id], id, (void *)records_base(id),
                            s->cache.holder_tag));
    s->cache.bytes = LAST * WEIR__HEAP_GRAIN;
    must(s->bin->full != 0 && s->bin->count == 1);
    weir__cache_verify(&s->cache, &s->heap.view);
}

static void is_anothers(scene *s, uint32_t id)
{
    weir__heap_set_tag(&s->heap.all[id], weir__holder_tag(NO_HOLDER));
}

static void spilt_is_anothers(scene *s) { is_anothers(s, 1); }
static void full_is_anothers(scene *s)  { is_anothers(s, 2); }
static void top_is_anothers(scene *s)   { is_anothers(s, LAST); }

static void all_below_are_anothers(scene *s)
{
    for (uint32_t id = 2; id < LAST; id++)
        is_anothers(s, id);
}

static void top_is_out(scene *s)
{
    weir__heap_set_tag(s->bin->top, weir__heap_out_tag(200, 256));
}

static void top_is_larger(scene *s)
{
    atomic_store(&s->bin->top->grains, 2);
    s->cache.bytes += WEIR__HEAP_GRAIN;
}

static void full_is_larger(scene *s)
{
    atomic_store(&s->heap.all[2].grains, 2);
    s->cache.bytes += WEIR__HEAP_GRAIN;
}

static void spill_is_longer(scene *s)   { s->cache.spill.count = 0; }
static void spill_goes_round(scene *s)  { weir__link_set(&s->heap.all[1], 1); }
static void top_goes_on(scene *s)       { weir__link_set(s->bin->top, s->bin->full); }
static void full_goes_on(scene *s)      { weir__link_set(&s->heap.all[2], LAST); }
static void full_is_too_short(scene *s) { s->bin->full = LAST - 2; }
static void spilt_bytes_are_off(scene *s) { s->cache.spill.bytes++; }
static void count_is_too_long(scene *s) { s->bin->count = WEIR__MAGAZINE + 1; }
static void top_is_missing(scene *s)    { s->bin->top = NULL; }
static void count_is_none(scene *s)     { s->bin->count = 0; }
static void top_is_left(scene *s)       { s->cache.bins[3].top_id = 1; }
static void top_is_below(scene *s)      { s->bin->top_id = 2; }
static void address_is_off(scene *s)    { s->bin->ptr = (void *)records_base(2); }
static void bytes_are_off(scene *s)     { s->cache.bytes -= WEIR__HEAP_GRAIN; }
static void bin_is_nobodys(scene *s)    { s->bin->grains = 0; }
static void full_is_nobodys(scene *s)
{
    (void)weir__bin_pop(s->bin, &s->heap.view);
    s->cache.bytes -= WEIR__HEAP_GRAIN;
    s->bin->grains = 0;
}

static void bin_is_misplaced(scene *s)
{
    s->cache.bins[1] = *s->bin;
    *s->bin = (weir__bin){ 0 };
}

static void damage_and_verify(void *argument)
{
    scene *s = argument;
    s->damage(s);
    weir__cache_verify(&s->cache, &s->heap.view);
}

static void verify_stops_at_each_damage(void **state)
{
    (void)state;
    static const struct {
        void (*damage)(scene *);
        const char *words;
    } all[] = {
        { spilt_is_anothers, "a cache's blocks are marked as its own" },
        { full_is_anothers, "a cache's blocks are marked as its own" },
        { top_is_anothers, "a cache's blocks are marked as its own" },
        { top_is_out, "a cache's blocks are marked as its own" },
        { top_is_larger, "a bin's blocks are of one size" },
        { full_is_larger, "a bin's blocks are of one size" },
        { spill_is_longer, "a stack ends where its count does" },
        { spill_goes_round, "a stack ends where its count does" },
        { top_goes_on, "a stack ends where its count does" },
        { full_goes_on, "a stack ends where its count does" },
        { full_is_too_short, "marked as its own" }, /* it goes on to record 0 */
        { spilt_bytes_are_off, "spilt bytes are counted" },
        { count_is_too_long, "a magazine is no longer than that" },
        { top_is_missing, "a bin knows its top by id and address" },
        { count_is_none, "a bin knows its top by id and address" },
        { top_is_left, "a bin knows its top by id and address" },
        { top_is_below, "a bin knows its top by id and address" },
        { address_is_off, "a bin knows its top by id and address" },
        { bin_is_nobodys, "a bin that is nobody's is empty" },
        { full_is_nobodys, "a bin that is nobody's is empty" },
        { bin_is_misplaced, "a bin is where its size says" },
        { bytes_are_off, "a cache counts its bytes" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        scene s;
        scene_begin(&s);
        s.damage = all[i].damage;
        must_stop(all[i].words, damage_and_verify, &s);
        records_end(&s.heap);
    }
}

static void empty(scene *s) { weir__cache_spill_all(&s->cache, &s->heap.view); }

static void claim_for_rival(scene *s)
{
    uint32_t grains = s->bin->grains;
    s->bin->grains = 3; /* as if it were a rival's: a small bin is not checked */
    weir__bin *bin = weir__cache_claim(&s->cache, &s->heap.view, grains);
    s->cache.bytes += 2 * WEIR__HEAP_GRAIN * s->cache.lost.blocks; /* and so counted */
    s->cache.lost.bytes /= 3;
    must(bin == s->bin && bin->count == 0 && bin->full == 0);
}

static void give_up(scene *s)
{
    weir__cache_give_up(&s->cache, s->bin);
    must(s->bin->count == 0 && s->bin->full != 0); /* which is another stack */
}

/* As two frees of one block on two threads leave it. */
static void from_anothers_block_on_a_stack_is_given_up(void **state)
{
    (void)state;
    static const struct {
        void (*damage)(scene *);
        void (*act)(scene *);
        uint32_t met, blocks, left; /* in the cache afterwards */
    } all[] = {
        { top_is_anothers, empty, LAST, 1, LAST - 1 },
        { top_is_anothers, claim_for_rival, LAST, 1, LAST - 1 },
        { top_is_anothers, give_up, LAST, 1, LAST - 1 },
        { top_is_out, empty, LAST, 1, LAST - 1 },
        { full_is_anothers, empty, 2, 1, LAST - 1 },
        { full_is_anothers, claim_for_rival, 2, 1, LAST - 1 },
        { all_below_are_anothers, empty, LAST - 1, WEIR__MAGAZINE, 2 },
        { all_below_are_anothers, claim_for_rival, LAST - 1, WEIR__MAGAZINE, 2 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        scene s;
        scene_begin(&s);
        all[i].damage(&s);
        all[i].act(&s);
        must_equal(s.cache.lost.lists, 1);
        must_equal(s.cache.lost.blocks, all[i].blocks);
        must_equal(s.cache.lost.bytes, WEIR__HEAP_GRAIN);
        must(s.cache.lost.ptr == (void *)records_base(all[i].met));
        must_equal(s.cache.bytes, all[i].left * WEIR__HEAP_GRAIN);
        must_equal(weir__cache_blocks(&s.cache), all[i].left);
        weir__cache_verify(&s.cache, &s.heap.view);
        records_end(&s.heap);
    }
}

/* The same where one of a size is looked for among what was spilt: whoever settles the
 * list gives it up. */
static void from_anothers_block_on_nothing_is_taken(void **state)
{
    (void)state;
    for (uint32_t at = 1; at <= 3; at++) { /* 1 is the lowest of three */
        scene s;
        scene_begin(&s);
        weir__cache_spill_all(&s.cache, &s.heap.view);
        s.cache.spill.count = 3;
        s.cache.spill.head = 3;
        for (uint32_t id = 1; id <= 3; id++) {
            atomic_store(&s.heap.all[id].grains, id);
            weir__link_set(&s.heap.all[id], id - 1);
        }
        is_anothers(&s, at);
        for (uint32_t grains = 1; grains <= 3; grains++) {
            const weir__cache before = s.cache;
            const weir__heap_taken taken =
                weir__cache_unspill(&s.cache, &s.heap.view, grains, WEIR__HEAP_OUT);
            must((taken.block != NULL) == (grains > at));
            must(taken.block == NULL || taken.id == grains);
            must(taken.block != NULL || memcmp(&before, &s.cache, sizeof before) == 0);
        }
        must(weir__heap_tag(&s.heap.all[at]) == weir__holder_tag(NO_HOLDER));
        records_end(&s.heap);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_programs_are_as_arrays),
        cmocka_unit_test(every_size_has_its_bin),
        cmocka_unit_test(verify_stops_at_each_damage),
        cmocka_unit_test(from_anothers_block_on_a_stack_is_given_up),
        cmocka_unit_test(from_anothers_block_on_nothing_is_taken),
    };
    return cmocka_run_group_tests_name("pool_cache", tests, NULL, NULL);
}
