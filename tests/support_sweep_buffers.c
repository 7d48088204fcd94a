/* support_sweep_buffers.c - see support_sweep_buffers.h. */
#include "support_sweep_buffers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "stream_order.h"

/* ---- under the fault ---- */

static weir_buffer before;
static size_t out_before;

void buffers_before(buffers_scene *it, const weir_buffer *buffer)
{
    before = *buffer;
    out_before = statistics_of(it->pool).out_bytes;
}

bool buffers_after(buffers_scene *it, const weir_buffer *buffer, weir_status status)
{
    static const weir_status planned[] = { [SWEEP_HOST] = WEIR_OUT_OF_HOST_MEMORY,
                                           [SWEEP_DEVICE] = WEIR_DEVICE_ERROR,
                                           [SWEEP_LOST] = WEIR_DEVICE_LOST };
    if (status == WEIR_OK)
        return true;
    must_equal(status, planned[it->fault.kind]);
    must(memcmp(buffer, &before, sizeof before) == 0);
    must_equal(statistics_of(it->pool).out_bytes, out_before);
    return false;
}

/* ---- after it ---- */

static void check_window(buffers_scene *it, weir_buffer *buffer)
{
    if (buffer->storage == NULL)
        return;
    must_ok(weir_buffer_wait(buffer, it->c, WEIR_READ));
    check_stamp(it->device, it->c, buffer->data,
                buffer->size < BYTES ? buffer->size : BYTES, KEY);
    must_ok(weir_buffer_use(buffer, it->c, WEIR_READ));
}

/* Whatever is free is written to on all streams. */
static void reuse(buffers_scene *it)
{
    weir_stream streams[] = { it->a, it->b, it->c, it->unknown, NULL };
    enum { COUNT = sizeof streams / sizeof streams[0], EACH = 4 };
    void *all[COUNT][EACH];
    for (int i = 0; i < COUNT * EACH; i++) {
        all[i / EACH][i % EACH] = take(it->pool, streams[i / EACH], BYTES);
        stamp(it->device, streams[i / EACH], all[i / EACH][i % EACH], BYTES, 9);
    }
    for (int i = 0; i < COUNT * EACH; i++)
        give(it->pool, streams[i / EACH], all[i / EACH][i % EACH], BYTES);
}

static void end_all(buffers_scene *it, weir_status drained)
{
    weir_weak_buffer_reset(&it->weak);
    weir_buffer_reset(&it->made);
    weir_buffer_reset(&it->x);
    weir_buffer_reset(&it->y);
    if (it->block != NULL)
        give(it->pool, it->a, it->block, BYTES);
    weir_status status = weir_device_drain_sync(it->device);
    must(status == drained || status == WEIR_OK);
    must_equal(it->ends, it->adoptions);
    must_equal(pending_of(it->device).deferred_count, 0);
    must_equal(pending_of(it->device).limbo_count, 0);
    must_equal(statistics_of(it->pool).out_bytes, 0);
}

static void end_well(buffers_scene *it)
{
    if (it->is_noted_surely && weir_buffer_wait(&it->x, it->c, WEIR_READ) != WEIR_OK) {
        must(strstr(weir_last_error().message, "weir_device_sync") != NULL);
        must_ok(weir_device_sync(it->device));
    }
    check_window(it, &it->x);
    check_window(it, &it->y);
    if (it->is_written)
        check_window(it, &it->made);
    weir_buffer_reset(&it->x); /* the others later */
    weir_buffer_reset(&it->made);
    reuse(it);
    end_all(it, WEIR_OK);
    reuse(it);
    weir__order_verify(it->device->order);
    weir_resource_unref(it->pool);
    end_stream(it->device, it->a);
    end_stream(it->device, it->b);
    end_stream(it->device, it->c);
    close_emulated(it->device);
}

static void end_lost(buffers_scene *it)
{
    end_all(it, WEIR_DEVICE_LOST);
    weir_resource_unref(it->pool);
    /* What a deleter frees then is behind nothing, for nothing comes any more. */
    must(it->adoptions > 0 || weir_emulated_findings(it->device) == 0);
    (void)take_stamp_errors();
    close_anyhow(it->device);
}

/* ---- the sweep ---- */

static char running[96]; /* empty between two runs */
static int ordinal;      /* of the device; a failed test leaves its own open */

static uint64_t run(const sweep_of_buffer *one, sweep_fault fault)
{
    snprintf(running, sizeof running, "%s, kind %d, %llu%s", one->name, (int)fault.kind,
             (unsigned long long)fault.nth, fault.lasting ? " and all later" : "");
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = (size_t)64 << 20;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = fault.kind == SWEEP_HOST;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    buffers_scene it = { .fault = fault, .host_live = weir__host_live() };
    char name[16];
    snprintf(name, sizeof name, "emulated:%d", ordinal % 16);
    it.device = open_with(name, &options);
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.c = make_stream(it.device, WEIR_STREAM_BLOCKING);
    must_ok(weir_emulated_stream_create(it.device, WEIR_STREAM_NON_BLOCKING,
                                        &it.unknown));
    if (one->prepare != NULL)
        one->prepare(&it);
    static const weir_status answers[] = { [SWEEP_DEVICE] = WEIR_DEVICE_ERROR,
                                           [SWEEP_LOST] = WEIR_DEVICE_LOST };
    if (fault.kind == SWEEP_HOST)
        weir__host_fail_at(fault.nth, fault.lasting);
    else
        plan_fault(it.device, NULL, fault.nth, fault.lasting, answers[fault.kind]);
    one->act(&it);
    uint64_t calls = fault.kind == SWEEP_HOST ? weir__host_calls()
                                              : weir_emulated_fault_calls(it.device);
    weir__host_fail_at(0, false);
    plan_fault(it.device, NULL, 0, false, WEIR_OK);
    if (weir__device_is_lost(it.device))
        end_lost(&it);
    else
        end_well(&it);
    must_equal(weir__host_live(), it.host_live);
    running[0] = '\0';
    return calls;
}

static uint64_t points;

/* How many calls there are without a fault. */
static uint64_t sweep_kind_of(const sweep_of_buffer *one, sweep_kind kind)
{
    uint64_t nth = 1;
    for (; run(one, (sweep_fault){ kind, nth, false }) >= nth; nth++)
        points++;
    for (uint64_t i = 1; i < nth; i++, points++)
        (void)run(one, (sweep_fault){ kind, i, true });
    return nth - 1;
}

static bool sweep(const sweep_of_buffer *one)
{
    uint64_t host = sweep_kind_of(one, SWEEP_HOST);
    uint64_t device = sweep_kind_of(one, SWEEP_DEVICE);
    for (uint64_t i = 1; i <= device; i++, points++)
        (void)run(one, (sweep_fault){ SWEEP_LOST, i, true });
    if (host == one->host && device == one->device)
        return true;
    fprintf(stderr, "  %s makes %llu host allocations and %llu device calls\n",
            one->name, (unsigned long long)host, (unsigned long long)device);
    return false;
}

void buffers_sweep_all(const sweep_of_buffer *all, size_t count)
{
    bool as_written = true;
    for (size_t i = 0; i < count; i++)
        as_written = sweep(&all[i]) && as_written;
    must(as_written);
}

int buffers_sweep_print_points(void **state)
{
    (void)state;
    print_message("bound: %s.points = %llu\n", program_invocation_short_name,
                  (unsigned long long)points);
    return 0;
}

int buffers_sweep_tell_where(void **state)
{
    (void)state;
    if (running[0] != '\0')
        fprintf(stderr, "  that was: %s\n", running);
    ordinal += running[0] != '\0';
    weir__host_fail_at(0, false);
    running[0] = '\0';
    return 0;
}
