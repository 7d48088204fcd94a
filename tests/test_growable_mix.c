/* test_growable_mix.c - all that can be done with growable memory, at random, on its
 * own and below other resources: blocks come, grow, are cut and go on several streams,
 * while it is trimmed, paused and resumed, and the device fails now and then. */
#include "device/device.h"
#include "internal.h"
#include "support.h"
#include "weir/resource_ops.h"
#include "weir/weir.h"

#define MIB  ((size_t)1 << 20)
#define PAGE WEIR_GROWABLE_PAGE_BYTES

enum { SLOTS = 24, STREAMS = 3 };

typedef struct slot {
    unsigned char *ptr; /* null: none */
    size_t bytes, alignment;
    uint64_t key;       /* 0: its contents are unknown */
    int stream;
} slot;

typedef struct mix {
    weir_device *device;
    weir_stream streams[STREAMS];
    weir_resource *mr, *keeper;
    weir_resource_properties about;
    uint64_t random, keys;
    bool is_paused, has_pool;
    slot slots[SLOTS];
} mix;

static uint64_t below(mix *it, uint64_t n)
{
    return support_random_below(&it->random, n);
}

static weir_stream stream_of(const mix *it, const slot *at)
{
    return it->streams[at->stream];
}

/* The next of its calls may fail. */
static bool fault_begin(mix *it)
{
    if (below(it, 6) != 0)
        return false;
    plan_fault(it->device, NULL, 1 + below(it, 6), below(it, 2) == 0,
               below(it, 2) == 0 ? WEIR_DEVICE_ERROR : WEIR_OUT_OF_MEMORY);
    return true;
}

static void fault_end(mix *it)
{
    plan_fault(it->device, NULL, 0, false, WEIR_OK);
}

/* What may be answered. */
static void must_be_fit(const mix *it, weir_status status, bool may_fail)
{
    bool is_fit = status == WEIR_OK || status == WEIR_OUT_OF_MEMORY ||
                  status == WEIR_LIMIT_REACHED ||
                  (status == WEIR_PAUSED && it->is_paused) ||
                  (status == WEIR_DEVICE_ERROR && may_fail);
    if (!is_fit)
        must_answer(WEIR_OK, status);
}

/* Not while it is paused. */
static void write_to(mix *it, slot *at)
{
    at->key = 0;
    if (it->is_paused)
        return;
    at->key = ++it->keys;
    stamp(it->device, stream_of(it, at), at->ptr, at->bytes, at->key);
}

static void look_at(mix *it, slot *at)
{
    if (!it->is_paused && at->key != 0)
        check_stamp(it->device, stream_of(it, at), at->ptr, at->bytes, at->key);
}

static void move_to(mix *it, slot *at, int stream)
{
    if (at->stream != stream)
        must_ok(weir_stream_wait(it->device, it->streams[stream], stream_of(it, at)));
    at->stream = stream;
}

static size_t some_bytes(mix *it)
{
    return below(it, 3) == 0 ? 1 + below(it, 300000) : 1 + below(it, 5 * PAGE);
}

static void come(mix *it, slot *at)
{
    void *ptr;
    at->stream = (int)below(it, STREAMS);
    at->bytes = some_bytes(it);
    at->alignment = below(it, 3) == 0 ? it->about.max_alignment : WEIR_ALIGNMENT;
    bool fails = fault_begin(it);
    weir_status status =
        weir_allocate(it->mr, stream_of(it, at), at->bytes, at->alignment, &ptr);
    fault_end(it);
    must_be_fit(it, status, fails);
    at->ptr = ptr;
    if (ptr != NULL)
        write_to(it, at);
}

static void go(mix *it, slot *at)
{
    look_at(it, at);
    if (below(it, 4) == 0) {
        weir_point points[2];
        must_ok(weir_point_here(it->device, stream_of(it, at), &points[0]));
        must_ok(weir_point_here(it->device, it->streams[below(it, STREAMS)],
                                &points[1]));
        (void)fault_begin(it);
        must(weir_deallocate_after(it->mr, at->ptr, at->bytes, at->alignment, points,
                                   2));
    } else {
        move_to(it, at, (int)below(it, STREAMS));
        (void)fault_begin(it);
        must(weir_deallocate(it->mr, stream_of(it, at), at->ptr, at->bytes,
                             at->alignment));
    }
    fault_end(it);
    at->ptr = NULL;
}

/* Of what a pool cuts itself nothing grows, and nothing goes back in parts. */
static bool is_cut(const mix *it, const slot *at, weir_status status)
{
    return status == WEIR_NOT_SUPPORTED && it->has_pool &&
           at->alignment < it->about.max_alignment;
}

static void extend(mix *it, slot *at)
{
    size_t new_bytes = at->bytes + some_bytes(it);
    if (!it->about.can_extend)
        return;
    look_at(it, at);
    move_to(it, at, (int)below(it, STREAMS));
    bool fails = fault_begin(it);
    weir_status status = weir_resource_extend(it->mr, stream_of(it, at), at->ptr,
                                              at->bytes, at->alignment, new_bytes);
    fault_end(it);
    if (!is_cut(it, at, status))
        must_be_fit(it, status, fails);
    if (status != WEIR_OK)
        return;
    at->bytes = new_bytes;
    write_to(it, at);
}

/* There is one. */
static slot *free_slot(mix *it)
{
    slot *at = it->slots;
    while (at->ptr != NULL)
        at++;
    return at;
}

static void cut(mix *it, slot *at)
{
    size_t from = below(it, at->bytes), to = from + 1 + below(it, at->bytes - from);
    size_t wanted = 1 + below(it, at->bytes);
    size_t begin = from, end = to;
    size_t room = 0;
    for (size_t i = 0; i < SLOTS; i++)
        room += it->slots[i].ptr == NULL;
    if (it->about.cut_bytes == 0 || room < 2)
        return;
    look_at(it, at);
    weir_status status = weir_resource_cut(it->mr, at->ptr, at->bytes, at->alignment,
                                           wanted, &begin, &end);
    if (is_cut(it, at, status))
        return;
    must_ok(status);
    must(begin == end || (begin >= from && begin < end && end <= to));
    must(!it->is_paused || begin == end);
    if (begin == end)
        return;
    slot whole = *at;
    if (end < whole.bytes) {
        slot *rest = free_slot(it);
        *rest = (slot){ whole.ptr + end, whole.bytes - end, whole.alignment, 0,
                         whole.stream };
        write_to(it, rest);
    }
    if (begin > 0) {
        at->bytes = begin;
        write_to(it, at);
        slot *middle = free_slot(it);
        *middle = (slot){ whole.ptr + begin, end - begin, whole.alignment, 0,
                           whole.stream };
        if (below(it, 3) != 0)
            go(it, middle);
        else
            write_to(it, middle);
    } else {
        at->bytes = end;
        write_to(it, at);
    }
}

/* The first stream goes on behind all; and all behind the first. */
static void gather(mix *it)
{
    for (int i = 1; i < STREAMS; i++)
        must_ok(weir_stream_wait(it->device, it->streams[0], it->streams[i]));
}

/* Also where the device fails, and no wait succeeds: copies may be under way. */
static void all_follow(mix *it)
{
    for (int i = 1; i < STREAMS; i++)
        must_ok(weir_stream_wait(it->device, it->streams[i], it->streams[0]));
}

static void pause(mix *it)
{
    weir_stream stream = it->streams[0];
    bool keeps = below(it, 2) == 0, was = it->is_paused;
    gather(it);
    bool fails = fault_begin(it);
    weir_status status =
        weir_growable_pause_sync(it->mr, stream, keeps ? it->keeper : NULL);
    fault_end(it);
    must_be_fit(it, status, fails);
    it->is_paused = was || status == WEIR_OK;
    if (fails)
        all_follow(it);
    if (!was && it->is_paused) {
        for (size_t i = 0; i < SLOTS && !keeps; i++)
            it->slots[i].key = 0;
    }
}

static void resume(mix *it)
{
    weir_stream stream = it->streams[0];
    bool was = it->is_paused;
    gather(it);
    bool fails = fault_begin(it);
    weir_status status = weir_growable_resume(it->mr, stream);
    fault_end(it);
    must_be_fit(it, status, fails);
    it->is_paused = was && status != WEIR_OK;
    if (fails || (was && !it->is_paused))
        all_follow(it);
    if (was && !it->is_paused) {
        for (size_t i = 0; i < SLOTS; i++) {
            if (it->slots[i].ptr != NULL)
                look_at(it, &it->slots[i]);
        }
    }
}

static void must_count(mix *it)
{
    size_t bytes = 0, blocks = 0;
    for (size_t i = 0; i < SLOTS; i++) {
        bytes += it->slots[i].ptr != NULL ? it->slots[i].bytes : 0;
        blocks += it->slots[i].ptr != NULL;
    }
    weir_resource_statistics now = statistics_of(it->mr);
    must_equal(now.out_blocks, blocks);
    must(now.out_bytes >= bytes);
    must(it->is_paused || now.held_bytes >= now.out_bytes);
    must(now.peak_held_bytes >= now.held_bytes);
    must_equal(now.allocations - now.deallocations, blocks);
    for (size_t i = 0; i < SLOTS; i++) {
        weir_block found = { .struct_size = sizeof found };
        if (it->slots[i].ptr == NULL || !it->about.can_find)
            continue;
        must_ok(weir_resource_find(it->mr, it->slots[i].ptr, &found));
        must_equal(found.bytes, it->slots[i].bytes);
    }
}

static void step(mix *it)
{
    slot *at = &it->slots[below(it, SLOTS)];
    uint64_t what = below(it, 100);
    if (at->ptr == NULL && what < 70)
        come(it, at);
    else if (at->ptr != NULL && what < 25)
        go(it, at);
    else if (at->ptr != NULL && what < 40)
        extend(it, at);
    else if (at->ptr != NULL && what < 60)
        cut(it, at);
    else if (at->ptr != NULL && what < 70)
        look_at(it, at);
    else if (what < 80) {
        (void)fault_begin(it);
        (void)weir_resource_trim_sync(it->mr, below(it, 2) * below(it, 40 * MIB));
        fault_end(it);
    } else if (what < 85) {
        pause(it);
    } else if (what < 93) {
        resume(it);
    }
    must_count(it);
}

static void play(const char *spec, uint64_t seed, uint64_t steps)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.seed = seed;
    emulated.memory_bytes = 96 * MIB;
    options.emulated = &emulated;
    mix it = { .device = open_with("emulated:0", &options), .random = seed };
    it.about.struct_size = sizeof it.about;
    it.has_pool = strstr(spec, "pages_only") == NULL;
    for (int i = 0; i < STREAMS; i++)
        it.streams[i] = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it.device, spec, &it.mr));
    must_ok(weir_resource_open(it.device, "pool/pinned", &it.keeper));
    must_ok(weir_resource_get_properties(it.mr, &it.about));
    for (uint64_t i = 0; i < steps; i++)
        step(&it);
    gather(&it);
    if (below(&it, 2) == 0)
        must_ok(weir_growable_resume(it.mr, it.streams[0]));
    it.is_paused = true; /* no more looks */
    for (size_t i = 0; i < SLOTS; i++) {
        if (it.slots[i].ptr != NULL)
            go(&it, &it.slots[i]);
    }
    gather(&it);
    if (below(&it, 2) == 0) {
        must_ok(weir_growable_resume(it.mr, it.streams[0]));
        must_ok(weir_device_sync(it.device));
        (void)weir_resource_trim_sync(it.mr, 0);
        must_equal(statistics_of(it.mr).held_bytes, 0);
    }
    weir_resource_unref(it.mr);
    weir_resource_unref(it.keeper);
    for (int i = 0; i < STREAMS; i++)
        end_stream(it.device, it.streams[i]);
    close_emulated(it.device);
}

static void anything_may_come_next(void **state)
{
    (void)state;
    static const char *const specs[] = {
        "growable(chunk=2MiB, pages_only=true)",
        "growable(remap=true, chunk=6MiB, pages_only=true)",
        "growable(chunk=6MiB)", "growable(remap=true)",
        "statistics/limiting(60MiB)/growable(chunk=4MiB)",
        "pool/growable(chunk=2MiB)", "pool/growable(remap=true)",
        "pool(growth=3MiB)/limiting(70MiB)/statistics/growable(chunk=8MiB)",
        "pool(limit=50MiB)/growable(remap=true)",
        "arena/growable(chunk=4MiB)", "fixed_size(300KiB)/growable(chunk=4MiB)",
        "binning/pool/growable(chunk=2MiB)", "tracking/pool/growable(chunk=2MiB)",
    };
    uint64_t seeds = support_bound("seeds of a mix over each growable", 2, 20);
    for (uint64_t i = 0; i < seeds; i++) {
        for (size_t j = 0; j < sizeof specs / sizeof specs[0]; j++) {
            play(specs[j], support_seed(i), 120);
        }
    }
}

int main(void)
{
    support_keep_memory();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anything_may_come_next),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
