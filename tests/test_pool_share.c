/* test_pool_share.c - how a pool's memory comes to be divided between streams: what
 * each gets of what lies idle, when the pool grows instead, and that this ends. */
#include <string.h>

#include "pool_internal.h"
#include "support_pool.h"
#include "weir/limiting.h"

#define GIB ((size_t)1 << 30)

/* A pool with slack, over a device whose work is never done, or a stepped one. */
static pool_scene open_with_slack(weir_emulated_scheduler scheduler,
                                  size_t growth_bytes, size_t slack_bytes,
                                  size_t limiting_bytes)
{
    pool_scene it = open_scene_without_pool(scheduler, 64 * GIB);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.growth_bytes = growth_bytes;
    options.slack_bytes = slack_bytes;
    weir_resource *upstream = open_leaf(it.device);
    if (limiting_bytes != 0) {
        weir_resource *leaf = upstream;
        must_ok(weir_limiting_create(leaf, limiting_bytes, &upstream));
        weir_resource_unref(leaf);
    }
    must_ok(weir_pool_create(upstream, &options, &it.pool));
    weir_resource_unref(upstream);
    return it;
}

static size_t held(const pool_scene *it)
{
    return statistics_of(it->pool).held_bytes;
}

/* ---- blocks of one size on one stream ---- */

#define MANY 256

static void take_many(pool_scene *it, int stream, size_t bytes, int count, void **out)
{
    for (int i = 0; i < count; i++)
        out[i] = take(it->pool, it->streams[stream], bytes);
}

static void give_many(pool_scene *it, int stream, size_t bytes, int count, void **ptrs)
{
    for (int i = 0; i < count; i++)
        give(it->pool, it->streams[stream], ptrs[i], bytes);
}

/* ---- growth and waiting ---- */

/* Little lies idle: the pool grows. Much does: it is taken. */
static void the_pool_grows_while_little_lies_idle(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, MIB, 4 * MIB, 0);
    void *a = take_on(&it, 0, 3 * MIB), *b = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, 3 * MIB);
    void *c = take_on(&it, 1, 3 * MIB);
    must(c != a);
    must_equal(waits(&it), 0);
    must_ok(weir_stream_sync(it.device, it.streams[1])); /* not stalled with 0 */
    must_equal(held(&it), 7 * MIB);

    give_on(&it, 0, b, MIB);
    void *d = take_on(&it, 1, MIB);
    must(d == a || d == b);
    must_equal(waits(&it), 1);
    must_equal(held(&it), 7 * MIB);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[1]));
    open_gate(&it, gate);
    give_on(&it, 1, c, 3 * MIB);
    give_on(&it, 1, d, MIB);
    close_scene(&it);
}

/* What needs no wait is taken before the pool grows, however little it is. */
static void what_is_done_is_taken_before_the_pool_grows(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, MIB, 4 * MIB, 0);
    void *a = take_on(&it, 0, 2 * MIB);
    give_on(&it, 0, a, 2 * MIB);
    must_ok(weir_stream_sync(it.device, it.streams[0]));
    void *b = take_on(&it, 1, 2 * MIB);
    must(b == a);
    must_equal(held(&it), 2 * MIB);
    give_on(&it, 1, b, 2 * MIB);
    close_scene(&it);
}

/* Whatever one stream has left, and in whatever pieces: another needs no more than the
 * slack besides. `bytes` each, on a device whose work is never done. */
static void must_strand_no_more(size_t bytes, int count, size_t slack_bytes,
                                size_t growth_bytes)
{
    void *blocks[MANY];
    size_t all = bytes * (size_t)count;
    pool_scene it = open_with_slack(WEIR_EMULATED_NO_WORK, growth_bytes, slack_bytes,
                                    0);
    take_many(&it, 0, bytes, count, blocks);
    size_t first = held(&it);
    must(first < all + growth_bytes);
    give_many(&it, 0, bytes, count, blocks);
    for (int stream = 1; stream < STREAMS; stream++) {
        take_many(&it, stream, bytes, count, blocks);
        must(held(&it) <= first + slack_bytes + growth_bytes);
        give_many(&it, stream, bytes, count, blocks);
    }
    must(waits(&it) > 0);
    close_scene(&it);
}

static void an_idle_stream_strands_no_more_than_the_slack(void **state)
{
    (void)state;
    must_strand_no_more(20 * GIB, 1, GIB, 256 * MIB);
    must_strand_no_more(GIB, 20, 2 * GIB, 256 * MIB);
    must_strand_no_more(128 * MIB, 160, GIB, 256 * MIB);
    must_strand_no_more(256 * KIB, 256, 16 * MIB, 8 * MIB);
    must_strand_no_more(2 * MIB, 100, 64 * MIB, 8 * MIB);
}

/* Whatever growth is asked for: what is fresh is cut in whole grains. */
static void odd_growth_is_counted_right(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_NO_WORK, 8 * MIB + 1000, MIB, 0);
    void *blocks[STREAMS];
    for (int stream = 0; stream < STREAMS; stream++)
        blocks[stream] = take(it.pool, it.streams[stream], 1000);
    weir_resource_statistics now = statistics_of(it.pool);
    must_equal(now.free_bytes, now.held_bytes - STREAMS * (size_t)1024);
    for (int stream = 0; stream < STREAMS; stream++)
        give(it.pool, it.streams[stream], blocks[stream], 1000);
    now = statistics_of(it.pool);
    must_equal(now.free_bytes, now.held_bytes);
    close_scene(&it);
}

/* Streams in turn get all of what is held, in blocks that are no part of a power of
 * two: what each is given holds whole ones. */
static void pieces_hold_whole_requests(void **state)
{
    (void)state;
    const size_t bytes = MIB + MIB / 4;
    pool_scene it = open_with_slack(WEIR_EMULATED_NO_WORK, 12 * bytes, 8 * MIB, 0);
    void *blocks[48];
    for (int round = 0; round < 2; round++) { /* of nobody's, then of the first's */
        for (int i = 0; i < 48; i++)
            blocks[i] = take(it.pool, it.streams[i % STREAMS], bytes);
        must_equal(statistics_of(it.pool).free_bytes, 0);
        must_equal(held(&it), 48 * bytes);
        give_many(&it, 0, bytes, 48, blocks);
    }
    close_scene(&it);
}

/* Without an option a test build has no slack. */
static void without_slack_what_others_left_is_taken_first(void **state)
{
    (void)state;
    static const size_t none[] = { 0, WEIR_POOL_NO_SLACK };
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++) {
        pool_scene it = open_with_slack(WEIR_EMULATED_NO_WORK, MIB, none[i], 0);
        void *a = take(it.pool, it.streams[0], MIB);
        give(it.pool, it.streams[0], a, MIB);
        must(take(it.pool, it.streams[1], MIB / 4) == a);
        must_equal(waits(&it), 1);
        /* No more than it asked for. */
        must(take(it.pool, it.streams[0], MIB / 4 * 3) == (char *)a + MIB / 4);
        must_equal(waits(&it), 1);
        give(it.pool, it.streams[1], a, MIB / 4);
        give(it.pool, it.streams[0], (char *)a + MIB / 4, MIB / 4 * 3);
        close_scene(&it);
    }
}

/* Who may not grow takes what others have, and is refused nothing that he got before:
 * not by a limit that the pool knows nothing of either. */
static void a_refusal_ends_growth_before_waiting(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_NO_WORK, 4 * MIB, 16 * MIB, 4 * MIB);
    void *blocks[4];
    take_many(&it, 0, MIB, 4, blocks);
    give_many(&it, 0, MIB, 4, blocks);
    uint64_t before = statistics_of(it.pool).failures;
    void *a = take(it.pool, it.streams[1], MIB);
    must_equal(waits(&it), 1);
    uint64_t asked = calls_of(it.device).malloc;
    void *b = take(it.pool, it.streams[2], 3 * MIB);
    must_equal(statistics_of(it.pool).failures, before);
    must_equal(calls_of(it.device).malloc, asked);
    give(it.pool, it.streams[1], a, MIB);
    give(it.pool, it.streams[2], b, 3 * MIB);
    void *all = take(it.pool, it.streams[3], 4 * MIB);
    must_equal(held(&it), 4 * MIB);
    give(it.pool, it.streams[3], all, 4 * MIB);
    close_scene(&it);
}

/* Looks for 2 MiB in vain, while the first two of what is free are a capture's, which
 * is released then; *first begins them. What stays out besides is returned: its chunk
 * cannot go upstream. */
static void *look_in_vain_beside_a_capture(pool_scene *it, void **first)
{
    void *stays = take_on(it, 1, 2 * MIB);
    weir_capture *capture;
    must_ok(weir_capture_begin(it->pool, it->streams[0], &capture));
    void *a = take(it->pool, it->streams[0], MIB), *b = take_on(it, 1, MIB);
    give(it->pool, it->streams[0], a, MIB);
    give_on(it, 1, b, MIB);
    must_ok(weir_capture_end(capture));
    (void)try_take(it, 2, 2 * MIB, WEIR_LIMIT_REACHED);
    must_ok(weir_capture_release(capture, it->streams[0]));
    *first = a;
    return stays;
}

/* Who looked for neighbours in vain looks again before anybody is refused, also if
 * nothing has come back since. */
static void nobody_is_refused_for_an_old_search(void **state)
{
    (void)state;
    pool_scene it = open_scene(1, 4 * MIB, 4 * MIB, MIB);
    void *a, *stays = look_in_vain_beside_a_capture(&it, &a);
    must(take_on(&it, 2, 2 * MIB) == a);
    give_on(&it, 2, a, 2 * MIB);
    give_on(&it, 1, stays, 2 * MIB);
    close_scene(&it);
}

/* The same where upstream has refused before, and could give more now: it is not asked
 * before all has been looked for. */
static void upstream_is_asked_after_an_old_search(void **state)
{
    (void)state;
    pool_scene it = open_scene_without_pool(WEIR_EMULATED_STEPPED, 64 * MIB);
    weir_resource *leaf = open_leaf(it.device), *upstream;
    must_ok(weir_limiting_create(leaf, 6 * MIB, &upstream));
    void *other = take(upstream, it.streams[3], 2 * MIB);
    it.pool = open_pool(weir_resource_ref(upstream), 4 * MIB, 0, MIB);
    void *a, *stays = look_in_vain_beside_a_capture(&it, &a);
    give(upstream, it.streams[3], other, 2 * MIB);
    must(take_on(&it, 2, 2 * MIB) == a);
    must_equal(held(&it), 4 * MIB);
    give_on(&it, 2, a, 2 * MIB);
    give_on(&it, 1, stays, 2 * MIB);
    weir_resource_unref(upstream);
    weir_resource_unref(leaf);
    close_scene(&it);
}

/* ---- pieces ---- */

/* A stream that comes back for more of another's memory gets it at once: one wait for
 * a quarter of the slack. */
static void a_stream_takes_a_good_piece(void **state)
{
    (void)state;
    enum { SLACK = 16, BLOCKS = 4 * SLACK };
    void *blocks[BLOCKS];
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, MIB, SLACK * MIB, 0);
    void *a = take_on(&it, 0, SLACK * MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, SLACK * MIB);
    for (int i = 0; i < BLOCKS / 4; i++) {
        blocks[i] = take_on(&it, 1, MIB / 4);
        must(blocks[i] == (char *)a + (size_t)i * (MIB / 4));
    }
    must_equal(waits(&it), 1);
    must_equal(held(&it), SLACK * MIB);

    /* What is left is the donor's, and it waits for nobody; nor does what is left of
     * the piece, once it is done. */
    must(take_on(&it, 0, SLACK / 4 * 3 * MIB) == (char *)a + SLACK / 4 * MIB);
    must_equal(waits(&it), 1);
    open_gate(&it, gate);
    for (int i = 0; i < BLOCKS / 4; i++)
        give_on(&it, 1, blocks[i], MIB / 4);
    give_on(&it, 0, (char *)a + SLACK / 4 * MIB, SLACK / 4 * 3 * MIB);
    close_scene(&it);
}

/* A third stream that takes what the second has of the first is behind the first. */
static void a_piece_is_behind_its_donor(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, MIB, MIB, 0);
    void *a = take_on(&it, 0, MIB), *idle = take_on(&it, 2, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    void *small = take_on(&it, 1, 4 * KIB); /* and a quarter of all with it */
    must(small == a);
    void *own = take_on(&it, 0, MIB / 4 * 3);
    must(own == (char *)a + MIB / 4);
    give_on(&it, 1, small, 4 * KIB);
    give_on(&it, 2, idle, MIB); /* so that there is more than the slack */
    void *b = take_on(&it, 3, MIB / 4);
    must(b == a);
    must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(it.device, it.streams[3]));
    open_gate(&it, gate);
    give_on(&it, 0, own, MIB / 4 * 3);
    give_on(&it, 3, b, MIB / 4);
    close_scene(&it);
}

/* The same where the second was behind the first already, and waited for nothing. */
static void a_piece_is_for_who_is_behind_its_donor(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, MIB, MIB, 0);
    char *a = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
    uint64_t before = waits(&it);
    void *b = take_on(&it, 1, 4 * KIB);
    must(b == a);
    must_equal(waits(&it), before);
    char *c = take_on(&it, 2, 64 * KIB);
    must(c < a || c >= a + MIB);
    must_ok(weir_stream_sync(it.device, it.streams[2])); /* not stalled with 0 */
    open_gate(&it, gate);
    give_on(&it, 1, b, 4 * KIB);
    give_on(&it, 2, c, 64 * KIB);
    close_scene(&it);
}

/* ... but where Weir does not know that stream: nobody could ask it for an event later,
 * so what it does not need stays the donor's, for others to wait for. */
static void nobody_keeps_a_piece_that_cannot_be_waited_for(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, MIB, MIB / 2, 0);
    weir_stream unknown;
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING, &unknown));
    char *a = take_on(&it, 0, MIB);
    uint64_t gate = stall(&it, 0);
    give_on(&it, 0, a, MIB);
    must_ok(weir_stream_wait(it.device, unknown, it.streams[0]));
    uint64_t before = waits(&it);
    void *b = take(it.pool, unknown, 4 * KIB);
    must(b == a);
    must_equal(waits(&it), before);
    void *c = take_on(&it, 2, MIB - 4 * KIB);
    must(c == a + 4 * KIB);
    must_equal(waits(&it), before + 1);
    open_gate(&it, gate);
    give(it.pool, unknown, b, 4 * KIB);
    give_on(&it, 2, c, MIB - 4 * KIB);
    must_ok(weir_device_sync(it.device));
    must_ok(weir_emulated_stream_destroy(it.device, unknown));
    close_scene(&it);
}

/* Streams that take from each other as they like, with work on every block: the device
 * finds whoever touches what another still uses, the stamps what it did to it. With
 * every other seed two take, and the others give back, small ones: by magazines. */
static void shared_memory_is_in_order(uint64_t seed)
{
    enum { BLOCKS = 24 };
    struct {
        void *ptr;
        size_t bytes;
        int stream;
    } blocks[BLOCKS] = { { NULL, 0, 0 } };
    const bool goes_round = seed % 2 == 1;
    const uint64_t bits_most = goes_round ? 9 : 14, takers = goes_round ? 2 : STREAMS;
    const uint64_t syncs = goes_round ? 10 : 50; /* one in so many steps */
    uint64_t draws = seed;
    pool_scene it = open_with_slack(WEIR_EMULATED_STEPPED, 64 * KIB, 48 * KIB, 0);
    for (int i = 0; i < 400; i++) {
        size_t at = (size_t)support_random_below(&draws, BLOCKS);
        if (blocks[at].ptr != NULL) {
            int stream = blocks[at].stream;
            if (goes_round) {
                stream = 2 + (int)support_random_below(&draws, STREAMS - 2);
                must_ok(weir_stream_wait(it.device, it.streams[stream],
                                         it.streams[blocks[at].stream]));
            }
            give_on(&it, stream, blocks[at].ptr, blocks[at].bytes);
            blocks[at].ptr = NULL;
        } else {
            blocks[at].bytes = (size_t)1
                               << support_random_between(&draws, 8, bits_most);
            blocks[at].stream = (int)support_random_below(&draws, takers);
            blocks[at].ptr = take_on(&it, blocks[at].stream, blocks[at].bytes);
        }
        if (support_random_below(&draws, syncs) == 0)
            must_ok(weir_stream_sync(it.device, it.streams[i % STREAMS]));
        if (support_random_below(&draws, 50) == 0)
            (void)weir_resource_trim_sync(it.pool, 0);
    }
    for (size_t at = 0; at < BLOCKS; at++) {
        if (blocks[at].ptr != NULL)
            give_on(&it, blocks[at].stream, blocks[at].ptr, blocks[at].bytes);
    }
    must_ok(weir_device_sync(it.device));
    must_equal(statistics_of(it.pool).free_bytes, held(&it));
    close_scene(&it);
}

static void what_is_shared_is_in_order(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_pool_share.runs", 50, 2000);
    for (uint64_t run = 0; run < runs; run++)
        shared_memory_is_in_order(support_seed(run));
}

/* ---- going on as before ---- */

#define LIVE 64

typedef struct turnover {
    pool_scene *it;
    uint64_t seed;
    void *ptrs[LIVE];
    size_t bytes[LIVE];
} turnover;

/* 256 B to 1 MiB, each doubling as likely. */
static size_t draw_bytes(uint64_t *seed)
{
    size_t least = (size_t)256 << support_random_below(seed, 12);
    return least + (size_t)support_random_below(seed, least) + 1;
}

/* The streams take turns; each frees the oldest of its own. */
static void run_turnover(turnover *self, int pairs)
{
    for (int i = 0; i < pairs; i++) {
        int at = i % LIVE, stream = i % STREAMS;
        if (self->ptrs[at] != NULL)
            give(self->it->pool, self->it->streams[stream], self->ptrs[at],
                 self->bytes[at]);
        self->bytes[at] = draw_bytes(&self->seed);
        self->ptrs[at] = take(self->it->pool, self->it->streams[stream],
                              self->bytes[at]);
    }
}

static void end_turnover(turnover *self)
{
    for (int at = 0; at < LIVE; at++)
        give(self->it->pool, self->it->streams[at % STREAMS], self->ptrs[at],
             self->bytes[at]);
}

/* No event, no wait, no question and no growth. */
static void streams_that_go_on_need_no_device(void **state)
{
    (void)state;
    pool_scene it = open_with_slack(WEIR_EMULATED_NO_WORK, 0, 64 * MIB, 0);
    turnover all = { .it = &it, .seed = 3 };
    run_turnover(&all, 100 * 1024);
    weir_device_calls before = calls_of(it.device);
    run_turnover(&all, 100 * 1024);
    weir_device_calls after = calls_of(it.device);
    must(memcmp(&before, &after, sizeof before) == 0);
    must(held(&it) <= 64 * MIB);
    end_turnover(&all);
    close_scene(&it);
}

/* A stepped one, whose pool grows by 1 MiB at a time. */
static pool_scene open_in_steps(size_t limit_bytes)
{
    pool_scene it = { .device = open_stepped(1) };
    for (int i = 0; i < STREAMS; i++)
        it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    weir_pool_options options = WEIR_POOL_OPTIONS_INIT;
    options.limit_bytes = limit_bytes;
    options.growth_bytes = MIB;
    weir_resource *leaf = open_leaf(it.device);
    must_ok(weir_pool_create(leaf, &options, &it.pool));
    weir_resource_unref(leaf);
    return it;
}

/* As long as streams look for each other's memory, it gets an event on its way to the
 * heap: who takes it does not wait for what comes later. */
static void who_looks_around_waits_for_little(void **state)
{
    (void)state;
    pool_scene it = open_in_steps(MIB);
    enum { BLOCKS = 8 };
    void *blocks[BLOCKS];
    size_t bytes = MIB / BLOCKS;
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = take_on(&it, 0, bytes); /* the first of them grew the pool */
    for (int i = 0; i < BLOCKS; i++)
        give_on(&it, 0, blocks[i], bytes);
    uint64_t gate = stall(&it, 0);
    void *a = take_on(&it, 1, bytes);
    must_equal(waits(&it), 1);
    must_ok(weir_stream_sync(it.device, it.streams[1])); /* not stalled with 0 */
    open_gate(&it, gate);
    give_on(&it, 1, a, bytes);
    close_scene(&it);
}

/* The same of what goes from one stream to another for ever, by magazines; even if the
 * host has waited for all of it until then. */
static void waits_for_little(bool is_known)
{
    pool_scene it = open_in_steps(0);
    void *blocks[16];
    for (uint32_t i = 0; i < 4 * WEIR__POOL_QUIET_AFTER; i += 16) {
        take_many(&it, 0, 256, 16, blocks);
        must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
        give_many(&it, 1, 256, 16, blocks);
        if (is_known)
            must_ok(weir_stream_sync(it.device, it.streams[1]));
    }
    if (is_known) {
        take_many(&it, 0, 256, 16, blocks);
        must_ok(weir_stream_wait(it.device, it.streams[1], it.streams[0]));
        give_many(&it, 1, 256, 16, blocks);
    }
    uint64_t gate = stall(&it, 1), before = waits(&it);
    int count = 0;
    while (count < 8 && waits(&it) == before)
        blocks[count++] = take_on(&it, 0, 256);
    must_equal(waits(&it), before + 1);
    must_ok(weir_stream_sync(it.device, it.streams[0])); /* not stalled with 1 */
    open_gate(&it, gate);
    for (int i = 0; i < count; i++)
        give_on(&it, 0, blocks[i], 256);
    close_scene(&it);
}

static void who_takes_a_surplus_waits_for_little(void **state)
{
    (void)state;
    waits_for_little(false);
    waits_for_little(true);
}

/* Where nobody has looked for another's memory for long, magazines get no event; from
 * the first look on each has one. */
static void after_a_look_each_magazine_has_an_event(void **state)
{
    (void)state;
    pool_scene it = open_in_steps(0);
    enum { BLOCKS = 2 * WEIR__MAGAZINE + 5 };
    void *blocks[BLOCKS];
    take_many(&it, 0, 256, BLOCKS, blocks);
    for (uint32_t i = 0; i < 2 * WEIR__POOL_QUIET_AFTER; i++)
        give_on(&it, 0, take_on(&it, 0, 4096), 4096);
    uint64_t before = calls_of(it.device).event_record;
    give_many(&it, 0, 256, 2 * WEIR__MAGAZINE + 1, blocks);
    must_equal(calls_of(it.device).event_record, before);

    void *other = take_on(&it, 1, 256);
    for (int i = 2 * WEIR__MAGAZINE + 1; i < BLOCKS; i += 2) {
        before = calls_of(it.device).event_record;
        give_many(&it, 0, 256, 2, &blocks[i]);
        must_equal(calls_of(it.device).event_record, before + 1);
    }
    give_on(&it, 1, other, 256);
    close_scene(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_pool_grows_while_little_lies_idle),
        cmocka_unit_test(what_is_done_is_taken_before_the_pool_grows),
        cmocka_unit_test(an_idle_stream_strands_no_more_than_the_slack),
        cmocka_unit_test(odd_growth_is_counted_right),
        cmocka_unit_test(pieces_hold_whole_requests),
        cmocka_unit_test(without_slack_what_others_left_is_taken_first),
        cmocka_unit_test(a_refusal_ends_growth_before_waiting),
        cmocka_unit_test(nobody_is_refused_for_an_old_search),
        cmocka_unit_test(upstream_is_asked_after_an_old_search),
        cmocka_unit_test(a_stream_takes_a_good_piece),
        cmocka_unit_test(a_piece_is_behind_its_donor),
        cmocka_unit_test(a_piece_is_for_who_is_behind_its_donor),
        cmocka_unit_test(nobody_keeps_a_piece_that_cannot_be_waited_for),
        cmocka_unit_test(what_is_shared_is_in_order),
        cmocka_unit_test(who_looks_around_waits_for_little),
        cmocka_unit_test(streams_that_go_on_need_no_device),
        cmocka_unit_test(who_takes_a_surplus_waits_for_little),
        cmocka_unit_test(after_a_look_each_magazine_has_an_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
