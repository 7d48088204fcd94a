/* test_trims.c - recorded programs over a pool over growable, trimmed on their way:
 * what is left of the device's memory is what is live, rounded to chunks, and in the
 * end nothing.
 *
 *     test_trims [TRACE ...]    those, in the place of bench/traces; prints figures
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tools/weir_trace.h"
#include "weir/weir.h"

#define PAGE  WEIR_GROWABLE_PAGE_BYTES
#define TRIMS 4 /* on the way, the last at the end */

/* ---- what is live ---- */

typedef struct live {
    const trace *from;
    void **ptrs;           /* of each block; null: it is not out */
} live;

/* The bytes of all pages that a block lies in, as far as they were asked for. */
static size_t live_bytes(const live *it)
{
    uintptr_t low = UINTPTR_MAX, high = 0;
    for (size_t i = 0; i < it->from->block_count; i++) {
        uintptr_t ptr = (uintptr_t)it->ptrs[i];
        if (ptr == 0)
            continue;
        low = ptr / PAGE < low ? ptr / PAGE : low;
        uintptr_t last = (ptr + it->from->blocks[i].bytes - 1) / PAGE;
        high = last > high ? last : high;
    }
    if (high == 0)
        return 0;
    unsigned char *pages = calloc(high - low + 1, 1);
    must(pages != NULL);
    size_t count = 0;
    for (size_t i = 0; i < it->from->block_count; i++) {
        uintptr_t ptr = (uintptr_t)it->ptrs[i];
        uintptr_t last = (ptr + it->from->blocks[i].bytes - 1) / PAGE;
        for (uintptr_t page = ptr / PAGE; ptr != 0 && page <= last; page++) {
            count += pages[page - low] == 0;
            pages[page - low] = 1;
        }
    }
    free(pages);
    return count * PAGE;
}

/* ---- a run ---- */

typedef struct run {
    live live;
    weir_device *device;
    weir_stream *streams;
    weir_resource *mr;
    size_t free_before;
} run;

static void run_open(run *it, const trace *from, const char *spec)
{
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.memory_bytes = (size_t)64 << 30;
    options.emulated = &emulated;
    it->device = open_with("emulated:0", &options);
    it->free_before = device_free_bytes(it->device);
    it->live = (live){ .from = from };
    it->live.ptrs = calloc(from->block_count, sizeof *it->live.ptrs);
    it->streams = calloc(from->stream_count, sizeof(weir_stream));
    must(it->live.ptrs != NULL && it->streams != NULL);
    for (size_t i = 0; i < from->stream_count; i++)
        it->streams[i] = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it->device, spec, &it->mr));
}

/* What the device has given. */
static size_t held_bytes(const run *it)
{
    return it->free_before - device_free_bytes(it->device);
}

static void run_event(run *it, const trace_event *event)
{
    const trace_block *block = &it->live.from->blocks[event->block];
    void **ptr = &it->live.ptrs[event->block];
    weir_stream stream = it->streams[event->stream];
    if (event->kind == TRACE_ALLOCATE) {
        must_ok(weir_allocate(it->mr, stream, block->bytes, WEIR_ALIGNMENT, ptr));
    } else if (event->kind == TRACE_FREE) {
        must(weir_deallocate(it->mr, stream, *ptr, block->bytes, WEIR_ALIGNMENT));
        *ptr = NULL;
    }
}

static void run_close(run *it)
{
    for (size_t i = 0; i < it->live.from->block_count; i++) {
        if (it->live.ptrs[i] != NULL)
            must(weir_deallocate(it->mr, it->streams[0], it->live.ptrs[i],
                                 it->live.from->blocks[i].bytes, WEIR_ALIGNMENT));
    }
    (void)weir_resource_trim_sync(it->mr, 0);
    must_equal(held_bytes(it), 0);
    weir_resource_unref(it->mr);
    for (size_t i = 0; i < it->live.from->stream_count; i++)
        end_stream(it->device, it->streams[i]);
    free(it->live.ptrs);
    free(it->streams);
    close_emulated(it->device);
}

/* Chunks of a page each leave just the pages that something lies in. Of larger ones a
 * test does not know where they begin. */
static void run_trimmed(const char *path, const char *spec, bool is_exact)
{
    trace from;
    trace_error error;
    run it;
    must(trace_read(path, &from, &error));
    run_open(&it, &from, spec);
    const char *name = strrchr(path, '/');
    print_message("%s, %s\n", name != NULL ? name + 1 : path, spec);
    for (size_t i = 0, trims = 0; i < from.event_count; i++) {
        if (from.events[i].block != TRACE_NO_BLOCK)
            run_event(&it, &from.events[i]);
        if ((i + 1) * TRIMS / from.event_count == trims)
            continue;
        trims++;
        size_t before = held_bytes(&it), least = live_bytes(&it.live);
        (void)weir_resource_trim_sync(it.mr, 0);
        size_t held = held_bytes(&it);
        print_message("  event %6zu: held %8.3f MiB, trimmed to %8.3f; live pages "
                      "%8.3f\n", i + 1, (double)before / (1 << 20),
                      (double)held / (1 << 20), (double)least / (1 << 20));
        must(held >= least && held <= before);
        if (is_exact)
            must_equal(held, least);
    }
    run_close(&it);
    trace_clear(&from);
}

static const char *const own_paths[] = {
    WEIR_TOP "/bench/traces/generation.csv.gz",
    WEIR_TOP "/bench/traces/transformer_train.csv.gz",
};
static const char *const *paths = own_paths;
static size_t path_count = sizeof own_paths / sizeof own_paths[0];

static void trim_leaves_the_pages_that_are_live(void **state)
{
    (void)state;
    for (size_t i = 0; i < path_count; i++) {
        run_trimmed(paths[i], "pool(cache=none)/growable(remap=true)", true);
        run_trimmed(paths[i], "pool/growable(remap=true)", false);
        run_trimmed(paths[i], "pool/growable", false);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trim_leaves_the_pages_that_are_live),
    };
    if (argc > 1) {
        paths = (const char *const *)(argv + 1);
        path_count = (size_t)argc - 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
