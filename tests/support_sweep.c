/* support_sweep.c - see support_sweep.h. */
#include "support_sweep.h"

#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "stream_order.h"

/* ---- before the fault ---- */

void sweep_take(sweep_scene *it, int index, weir_stream stream, size_t bytes)
{
    sweep_block *block = &it->blocks[index];
    must(block->ptr == NULL);
    *block = (sweep_block){ take(it->mr, stream, bytes), bytes, stream, ++it->keys,
                            false };
    stamp(it->device, stream, block->ptr, bytes, block->key);
}

void sweep_give(sweep_scene *it, int index, weir_stream stream)
{
    sweep_block *block = &it->blocks[index];
    check_stamp(it->device, stream, block->ptr, block->bytes, block->key);
    give(it->mr, stream, block->ptr, block->bytes);
    block->ptr = NULL;
}

void sweep_stall(sweep_scene *it, weir_stream stream)
{
    must(it->gate_count < SWEEP_GATES);
    must_ok(weir_emulated_stall(it->device, stream, &it->gates[it->gate_count++]));
}

void sweep_open_gates(sweep_scene *it)
{
    while (it->gate_count > 0)
        must_ok(weir_emulated_open_gate(it->device, it->gates[--it->gate_count]));
}

void sweep_order(sweep_scene *it, weir_stream stream, weir_stream other)
{
    weir_event event;
    must_ok(weir_event_create(it->device, &event));
    must_ok(weir_event_record(it->device, other, event));
    must_ok(weir_stream_wait_event(it->device, stream, event));
    must_ok(weir_event_destroy(it->device, event));
}

/* ---- under the fault ---- */

static weir_status planned_status(const sweep_scene *it)
{
    static const weir_status planned[] = { [SWEEP_HOST] = WEIR_OUT_OF_HOST_MEMORY,
                                           [SWEEP_DEVICE] = WEIR_DEVICE_ERROR,
                                           [SWEEP_LOST] = WEIR_DEVICE_LOST };
    return planned[it->fault.kind];
}

bool sweep_went_well(const sweep_scene *it, weir_status status)
{
    if (status == WEIR_OK)
        return true;
    must_equal(status, planned_status(it));
    must_equal(weir_last_error().status, status);
    must(weir_last_error().message[0] != '\0');
    return false;
}

static weir_resource_statistics numbers; /* as they were before a call */

void sweep_before(sweep_scene *it)
{
    memset(&numbers, 0, sizeof numbers);
    if (it->mr != NULL)
        numbers = statistics_of(it->mr);
}

bool sweep_after(sweep_scene *it, weir_status status)
{
    if (sweep_went_well(it, status))
        return true;
    if (it->mr == NULL)
        return false;
    weir_resource_statistics now = statistics_of(it->mr);
    if (it->chain->of_driver && !it->chain->pool) {
        /* What its pool has drawn for a request that then failed, that keeps; and so
         * does the leaf, if the pool did not take it. */
        now.kept_bytes = numbers.kept_bytes;
        now.set_aside_bytes = numbers.set_aside_bytes;
        now.held_bytes = numbers.held_bytes;
        now.free_bytes = numbers.free_bytes;
        now.peak_held_bytes = numbers.peak_held_bytes;
    }
    must(memcmp(&now, &numbers, sizeof now) == 0);
    return false;
}

static void must_not_overlap(const sweep_scene *it, const void *ptr, size_t bytes,
                             const sweep_block *itself)
{
    uintptr_t first = (uintptr_t)ptr;
    for (const sweep_block *block = it->blocks; block < it->blocks + SWEEP_BLOCKS;
         block++) {
        uintptr_t other = (uintptr_t)block->ptr;
        if (other != 0 && block != itself)
            must(other + block->bytes <= first || first + bytes <= other);
    }
}

bool attempt(sweep_scene *it, int index, weir_stream stream, size_t bytes)
{
    sweep_block *block = &it->blocks[index];
    must(block->ptr == NULL);
    void *ptr = it;
    sweep_before(it);
    weir_status status = weir_allocate(it->mr, stream, bytes, WEIR_ALIGNMENT, &ptr);
    must((status == WEIR_OK) == (ptr != NULL));
    numbers.failures++; /* the one number that a failure changes */
    if (status != WEIR_OK && weir__device_is_lost(it->device) &&
        statistics_of(it->mr).failures + 1 == numbers.failures)
        numbers.failures--; /* refused before any resource was asked */
    if (!sweep_after(it, status))
        return false;
    *block = (sweep_block){ ptr, bytes, stream, 0, false };
    must_not_overlap(it, ptr, bytes, block);
    return true;
}

void attempt_or_shrink(sweep_scene *it, int index, weir_stream stream, size_t bytes)
{
    void *ptr = it;
    sweep_before(it);
    weir_status status = weir_allocate(it->mr, stream, bytes, WEIR_ALIGNMENT, &ptr);
    weir_resource_statistics now = statistics_of(it->mr);
    must((status == WEIR_OK) == (ptr != NULL));
    if (sweep_went_well(it, status)) {
        it->blocks[index] = (sweep_block){ ptr, bytes, stream, 0, false };
        must_not_overlap(it, ptr, bytes, &it->blocks[index]);
        return;
    }
    must_equal(now.out_blocks, numbers.out_blocks);
    must_equal(now.out_bytes, numbers.out_bytes);
    must_equal(now.allocations, numbers.allocations);
    must(now.held_bytes <= numbers.held_bytes);
    must(now.failures <= numbers.failures + 1);
}

static void must_be_back(sweep_scene *it, int index)
{
    const weir_resource_statistics now = statistics_of(it->mr);
    must_equal(now.out_blocks, numbers.out_blocks - 1);
    must_equal(now.out_bytes, numbers.out_bytes - it->blocks[index].bytes);
    must_equal(now.deallocations, numbers.deallocations + 1);
    it->blocks[index].ptr = NULL;
}

void must_give(sweep_scene *it, int index, weir_stream stream)
{
    const sweep_block *block = &it->blocks[index];
    sweep_before(it);
    sweep_watch_library(it->device);
    bool done = weir_deallocate(it->mr, stream, block->ptr, block->bytes,
                                WEIR_ALIGNMENT);
    sweep_library_must_not_have_asked(it->device);
    must(done);
    must_be_back(it, index);
}

void must_give_after(sweep_scene *it, int index, size_t count)
{
    const sweep_block *block = &it->blocks[index];
    sweep_before(it);
    sweep_watch_library(it->device);
    bool done = weir_deallocate_after(it->mr, block->ptr, block->bytes, WEIR_ALIGNMENT,
                                      it->points, count);
    if (it->chain->by_legacy && count > 0)
        sweep_watch_no_more(it->device);
    else
        sweep_library_must_not_have_asked(it->device);
    must(done);
    if (it->chain->by_legacy && it->fault.lasting &&
        statistics_of(it->mr).out_blocks == numbers.out_blocks)
        it->blocks[index].left_out = true;
    else
        must_be_back(it, index);
}

void must_free(sweep_scene *it, int index)
{
    sweep_before(it);
    sweep_watch_library(it->device);
    bool done = weir_free(it->mr, it->blocks[index].ptr);
    sweep_library_must_not_have_asked(it->device);
    must(done);
    must_be_back(it, index);
}

void sweep_end_resource(sweep_scene *it)
{
    weir_resource_unref(it->mr);
    sweep_has_ended(it);
}

void sweep_has_ended(sweep_scene *it)
{
    it->mr = NULL;
    it->leaks = strstr(weir_last_error().message, "leak") != NULL;
}

/* ---- a run ---- */

static char running[160]; /* empty between two runs */
static int ordinal;       /* of the device; a failed test leaves its own open */

int sweep_tell_where(void **state)
{
    (void)state;
    if (running[0] != '\0') {
        fprintf(stderr, "  that was: %s\n", running);
        ordinal++;
    }
    running[0] = '\0';
    return 0;
}

static void scene_open(sweep_scene *it, const sweep_scenario *scenario)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = (size_t)64 << 20;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.seed = 1;
    emulated.no_ledger = it->fault.kind == SWEEP_HOST;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    weir__host_fail_at(0, false);
    it->host_live = weir__host_live();
    char name[16];
    snprintf(name, sizeof name, "emulated:%d", ordinal % 16);
    it->device = open_with(name, &options);
    for (int i = 0; i < SWEEP_STREAMS; i++)
        it->streams[i] = make_stream(it->device, i < SWEEP_STREAMS - 1
                                                     ? WEIR_STREAM_NON_BLOCKING
                                                     : WEIR_STREAM_BLOCKING);
    must_ok(weir_emulated_stream_create(it->device, WEIR_STREAM_NON_BLOCKING,
                                        &it->unknown));
    if (!scenario->makes)
        must_ok(it->chain->make(it->device, &it->mr));
    if (scenario->prepare != NULL)
        scenario->prepare(it);
    if (it->mr != NULL) /* who cannot ask then tells what was known last */
        (void)statistics_of(it->mr);
}

static void fault_begin(const sweep_scene *it)
{
    const sweep_fault *fault = &it->fault;
    if (fault->kind == SWEEP_HOST)
        weir__host_fail_at(fault->nth, fault->lasting);
    else
        plan_fault(it->device, NULL, fault->nth, fault->lasting, planned_status(it));
}

/* Ends the fault; returns how many calls could have been struck. */
static uint64_t fault_end(const sweep_scene *it)
{
    uint64_t calls = it->fault.kind == SWEEP_HOST
                         ? weir__host_calls()
                         : weir_emulated_fault_calls(it->device);
    weir__host_fail_at(0, false);
    plan_fault(it->device, NULL, 0, false, WEIR_OK);
    return calls;
}

static int leaves_of(const sweep_chain *chain)
{
    return strstr(chain->name, "fallback") != NULL ? 2 : 1;
}

/* Allocates with the fault gone. A leaf tells at the next allocate, once, that the
 * device did not take memory back. */
static void *take_again(sweep_scene *it, weir_stream stream, size_t bytes)
{
    void *ptr;
    weir_status status = weir_allocate(it->mr, stream, bytes, WEIR_ALIGNMENT, &ptr);
    if (status == WEIR_OK)
        return ptr;
    must(ptr == NULL && it->times_told < leaves_of(it->chain));
    must(it->fault.kind == SWEEP_DEVICE || it->chain->of_driver);
    must_equal(status, planned_status(it));
    must(strstr(weir_last_error().message, "told once") != NULL);
    it->times_told++;
    return take_again(it, stream, bytes);
}

/* The ledger takes it for back, so it is not checked. */
static void give_left_out(sweep_scene *it, int index)
{
    sweep_block *block = &it->blocks[index];
    must_ok(weir_device_sync(it->device));
    give(it->mr, block->stream, block->ptr, block->bytes);
    *block = (sweep_block){ NULL, 0, NULL, 0, false };
}

/* With the fault gone the resource works on all streams, and the blocks that were out
 * all the time are as they were. */
static void must_work(sweep_scene *it)
{
    for (int i = 0; i < SWEEP_BLOCKS; i++) {
        sweep_block *block = &it->blocks[i];
        if (block->ptr != NULL && block->key == 0) {
            block->key = ++it->keys;
            stamp(it->device, block->stream, block->ptr, block->bytes, block->key);
        }
    }
    weir_stream streams[] = { it->streams[0], it->streams[1], it->streams[2],
                              it->unknown,    NULL,           WEIR_STREAM_PER_THREAD };
    enum { COUNT = sizeof streams / sizeof streams[0] };
    sweep_block fresh[COUNT];
    for (int i = 0; i < COUNT; i++) {
        size_t bytes = (size_t)(i + 1) * SMALL / 8;
        void *ptr = take_again(it, streams[i], bytes);
        must_not_overlap(it, ptr, bytes, NULL);
        for (int j = 0; j < i; j++)
            must((char *)ptr + bytes <= (char *)fresh[j].ptr ||
                 (char *)fresh[j].ptr + fresh[j].bytes <= (char *)ptr);
        fresh[i] = (sweep_block){ ptr, bytes, streams[i], ++it->keys,
                                  false };
        stamp(it->device, streams[i], ptr, bytes, fresh[i].key);
    }
    for (int i = 0; i < COUNT; i++) {
        check_stamp(it->device, streams[i], fresh[i].ptr, fresh[i].bytes, fresh[i].key);
        give(it->mr, streams[i], fresh[i].ptr, fresh[i].bytes);
    }
    for (int i = 0; i < SWEEP_BLOCKS; i++) {
        if (it->blocks[i].left_out)
            give_left_out(it, i);
        else if (it->blocks[i].ptr != NULL)
            sweep_give(it, i, it->blocks[i].stream);
    }
    must_equal(statistics_of(it->mr).out_blocks, 0);
    must_equal(statistics_of(it->mr).out_bytes, 0);
    weir__order_verify(it->device->order);
}

/* Nothing works any more, but everything can be given back, and nothing hangs. */
static void must_end_lost(sweep_scene *it)
{
    void *ptr = it;
    if (it->mr == NULL)
        must_answer(it->chain->of_driver ? WEIR_DEVICE_LOST : WEIR_OK,
                    it->chain->make(it->device, &it->mr));
    if (it->mr != NULL) {
        must_answer(WEIR_DEVICE_LOST, weir_allocate(it->mr, it->streams[0], SMALL,
                                                    WEIR_ALIGNMENT, &ptr));
        must(ptr == NULL);
    }
    for (int i = 0; i < SWEEP_BLOCKS; i++) {
        if (it->blocks[i].ptr != NULL)
            must_give(it, i, it->blocks[i].stream);
    }
    (void)weir_capture_release(it->capture, it->streams[0]);
    if (it->mr != NULL) {
        must_equal(statistics_of(it->mr).out_blocks, 0);
        must_equal(weir_resource_trim_sync(it->mr, 0), 0);
        size_t held_bytes = statistics_of(it->mr).held_bytes;
        weir_resource_unref(it->mr);
        must(held_bytes == 0 || strstr(weir_last_error().message, "leak") != NULL);
    }
    for (int i = 0; i < SWEEP_STREAMS; i++) {
        if (it->streams[i] != NULL)
            must_answer(WEIR_DEVICE_LOST,
                        weir_stream_destroy(it->device, it->streams[i]));
    }
    must_equal(weir_emulated_findings(it->device), 0);
    (void)take_stamp_errors();
    close_anyhow(it->device);
    must_equal(weir__host_live(), it->host_live);
}

/* A fault that lasts to the end of a resource keeps its memory from going back; one
 * that is over does not. */
static void must_have_ended(const sweep_scene *it)
{
    size_t free_bytes, total_bytes;
    if (it->chain->of_driver)
        must_ok(weir_device_sync(it->device));
    must_ok(weir_device_memory(it->device, &free_bytes, &total_bytes));
    /* A driver's pool that is leaked may have given its memory back before. */
    if (strstr(it->chain->name, "system") == NULL)
        must_equal(it->leaks, free_bytes != total_bytes || support_pools_left() != 0);
    must(!it->leaks || it->fault.lasting);
}

static void must_end_well(sweep_scene *it)
{
    if (it->mr == NULL)
        must_have_ended(it);
    sweep_open_gates(it);
    if (it->capture != NULL)
        must_ok(weir_capture_release(it->capture, it->streams[0]));
    if (it->mr == NULL)
        must_ok(it->chain->make(it->device, &it->mr));
    must_work(it);
    weir_resource_unref(it->mr);
    for (int i = 0; i < SWEEP_STREAMS; i++)
        end_stream(it->device, it->streams[i]);
    if (it->leaks) {
        must_ok(weir_device_sync(it->device));
        must_be_quiet(it->device);
        must_equal(take_stamp_errors(), 0);
        close_anyhow(it->device);
    } else {
        close_emulated(it->device);
    }
    must_equal(weir__host_live(), it->host_live);
}

uint64_t sweep_run(const sweep_scenario *scenario, const sweep_chain *chain,
                   sweep_fault fault)
{
    static const char *const words[] = { [SWEEP_HOST] = "host allocation",
                                         [SWEEP_DEVICE] = "device call",
                                         [SWEEP_LOST] = "device lost in call" };
    snprintf(running, sizeof running, "%s, %s, %s %llu%s", scenario->name, chain->name,
             words[fault.kind], (unsigned long long)fault.nth,
             fault.lasting ? " and all later" : "");
    sweep_scene scene = { .chain = chain, .fault = fault };
    scene_open(&scene, scenario);
    fault_begin(&scene);
    scenario->act(&scene);
    uint64_t calls = fault_end(&scene);
    if (weir__device_is_lost(scene.device))
        must_end_lost(&scene);
    else
        must_end_well(&scene);
    running[0] = '\0';
    return calls;
}

uint64_t sweep_open_device(bool lasting)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_device *device;
    must_answer(WEIR_INVALID_ARGUMENT, weir_device_open("none", &options, &device));
    size_t live = weir__host_live();
    for (uint64_t nth = 1;; nth++) {
        weir__host_fail_at(nth, lasting);
        weir_status status = support_open("emulated:0", &options, &device);
        uint64_t calls = weir__host_calls();
        must((status == WEIR_OK) == (device != NULL));
        if (status != WEIR_OK)
            must_answer(WEIR_OUT_OF_HOST_MEMORY, status);
        weir_device_unref(device);
        weir__host_fail_at(0, false);
        must_equal(weir__host_live(), live);
        if (status == WEIR_OK && calls < nth)
            return calls;
    }
}

/* ---- the sweeps ---- */

uint64_t sweep_points;

/* Returns how many calls there are without a fault. */
static uint64_t sweep_once(const sweep_scenario *scenario, const sweep_chain *chain,
                           sweep_kind kind)
{
    uint64_t nth = 0, calls;
    do {
        nth++;
        calls = sweep_run(scenario, chain, (sweep_fault){ kind, nth, false });
    } while (calls >= nth);
    sweep_points += nth - 1;
    return nth - 1;
}

static void sweep_lasting(const sweep_scenario *scenario, const sweep_chain *chain,
                          sweep_kind kind, uint64_t calls)
{
    for (uint64_t nth = 1; nth <= calls; nth++)
        (void)sweep_run(scenario, chain, (sweep_fault){ kind, nth, true });
    sweep_points += calls;
}

void sweep_both(const sweep_scenario *scenario, const sweep_chain *chain,
                uint64_t *host, uint64_t *device)
{
    *host = sweep_once(scenario, chain, SWEEP_HOST);
    *device = sweep_once(scenario, chain, SWEEP_DEVICE);
    sweep_lasting(scenario, chain, SWEEP_HOST, *host);
    sweep_lasting(scenario, chain, SWEEP_DEVICE, *device);
    sweep_lasting(scenario, chain, SWEEP_LOST, *device);
}

static void print_row(const char *what, const uint64_t counts[SWEEP_CHAINS])
{
    fprintf(stderr, "      { ");
    for (int i = 0; i < SWEEP_CHAINS; i++)
        fprintf(stderr, "%llu%s", (unsigned long long)counts[i],
                i < SWEEP_CHAINS - 1 ? ", " : " }");
    fprintf(stderr, " %s\n", what);
}

static bool sweep_one(const sweep_entry *one)
{
    uint64_t host[SWEEP_CHAINS] = { 0 }, device[SWEEP_CHAINS] = { 0 };
    const sweep_scenario *scenario = &one->scenario;
    for (int i = 0; i < SWEEP_CHAINS; i++) {
        const sweep_chain *chain = &sweep_chains[i];
        if (scenario->suits == NULL || scenario->suits(chain))
            sweep_both(scenario, chain, &host[i], &device[i]);
    }
    /* Of a CUDA device the driver's host allocations are not ours: none is struck. */
    for (int i = 0; i < SWEEP_CHAINS && support_is_cuda(); i++)
        host[i] = host[i] <= one->host[i] ? one->host[i] : host[i];
    if (memcmp(host, one->host, sizeof host) == 0 &&
        memcmp(device, one->device, sizeof device) == 0)
        return true;
    fprintf(stderr, "  %s makes other calls than written down:\n", scenario->name);
    print_row("host allocations", host);
    print_row("device calls", device);
    return false;
}

void sweep_all(const sweep_entry *all, size_t count)
{
    bool as_written = true;
    for (size_t i = 0; i < count; i++)
        as_written = sweep_one(&all[i]) && as_written;
    must(as_written);
}
