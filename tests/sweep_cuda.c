/* sweep_cuda.c - every call of the CUDA runtime or driver that a small program makes
 * fails in turn: once, with all that follow, or so that the context is lost. Over each
 * leaf, and pools over them: nothing is leaked, the counts are exact, and with the
 * fault gone everything works. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include <cuda_runtime_api.h>

#include "device/device.h"
#include "fakes/primitives.h"
#include "internal.h"
#include "weir/weir.h"

#define BLOCKS      4
#define BLOCK_BYTES ((size_t)100000)

typedef struct fault {
    uint64_t nth;
    bool lasting;
    cudaError_t error;
} fault;

typedef struct stage {
    weir_device *device;
    weir_stream s, t;
    weir_resource *mr; /* null: not made */
    void *out[BLOCKS];
    size_t out_bytes;
    fault fault;
} stage;

/* What may be answered under the fault; true: success. */
static bool went_well(const stage *it, weir_status status)
{
    if (status == WEIR_OK)
        return true;
    if (it->fault.error == cudaErrorIllegalAddress)
        must_answer(WEIR_DEVICE_LOST, status);
    else if (it->fault.error == cudaErrorMemoryAllocation)
        must(status == WEIR_OUT_OF_MEMORY || status == WEIR_DEVICE_ERROR);
    else
        must_answer(WEIR_DEVICE_ERROR, status);
    must(weir_last_error().message[0] != '\0');
    return false;
}

static void must_count_right(const stage *it)
{
    weir_resource_statistics now = statistics_of(it->mr);
    must_equal(now.out_bytes, it->out_bytes);
    must(now.held_bytes >= now.out_bytes);
}

static bool take_one(stage *it, int index, weir_stream stream)
{
    weir_status status = weir_allocate(it->mr, stream, BLOCK_BYTES, WEIR_ALIGNMENT,
                                       &it->out[index]);
    must((status == WEIR_OK) == (it->out[index] != NULL));
    if (status == WEIR_OK)
        it->out_bytes += BLOCK_BYTES;
    must_count_right(it);
    return went_well(it, status);
}

static void give_one(stage *it, int index, weir_stream stream)
{
    if (it->out[index] == NULL)
        return;
    give(it->mr, stream, it->out[index], BLOCK_BYTES);
    it->out[index] = NULL;
    it->out_bytes -= BLOCK_BYTES;
    must_count_right(it);
}

static void fill_one(stage *it, int index, weir_stream stream)
{
    if (it->out[index] != NULL)
        (void)went_well(it, weir_fill(it->device, stream, it->out[index],
                                      (uint8_t)index, BLOCK_BYTES));
}

/* The program: memory goes from stream to stream, is trimmed, and drawn again. Returns
 * when the first call has failed that it cannot do without. */
static void act(stage *it, const char *spec)
{
    weir_status status = weir_resource_open(it->device, spec, &it->mr);
    must((status == WEIR_OK) == (it->mr != NULL));
    if (!went_well(it, status))
        return;
    for (int i = 0; i < BLOCKS; i++) {
        weir_stream stream = i % 2 == 0 ? it->s : it->t;
        (void)take_one(it, i, stream);
        fill_one(it, i, stream);
    }
    give_one(it, 0, it->s);
    give_one(it, 1, it->s); /* the stream is behind t by the caller's word */
    (void)take_one(it, 0, it->t);
    fill_one(it, 0, it->t);
    give_one(it, 2, it->s);
    (void)weir_resource_trim_sync(it->mr, 0);
    (void)take_one(it, 1, it->s);
    give_one(it, 1, it->s);
}

/* With the fault gone: a leaf may have to tell, once, that a free was refused. */
static void must_work(stage *it)
{
    for (int i = 0; i < BLOCKS; i++) {
        weir_stream stream = i % 2 == 0 ? it->t : it->s;
        bool was_out = it->out[i] != NULL;
        if (!was_out && !take_one(it, i, stream)) {
            must(strstr(weir_last_error().message, "told once") != NULL);
            must(take_one(it, i, stream));
        }
        must_ok(weir_device_sync(it->device));
        must_ok(weir_fill(it->device, stream, it->out[i], (uint8_t)i, BLOCK_BYTES));
    }
    for (int i = 0; i < BLOCKS; i++) {
        unsigned char back[2] = { 255, 255 };
        must_ok(weir_device_sync(it->device));
        must_ok(weir_copy(it->device, it->s, back, it->out[i], 1));
        must_ok(weir_copy(it->device, it->s, back + 1,
                          (char *)it->out[i] + BLOCK_BYTES - 1, 1));
        must_ok(weir_stream_sync(it->device, it->s));
        must(back[0] == i && back[1] == i);
    }
    for (int i = 0; i < BLOCKS; i++)
        give_one(it, i, it->s);
    must_equal(statistics_of(it->mr).out_blocks, 0);
}

static void must_be_clean(bool is_lost)
{
    fakes_state now = fakes_look();
    must_equal(now.pushed, 0);
    must(!now.is_relaxed);
    must_equal(now.implicit + now.set_devices + now.timed_events + now.spoilt, 0);
    if (is_lost) /* nobody can clear what the context is lost with */
        return;
    must_equal(now.last_error, 0);
    must_equal(now.device_blocks, 0);
    must_equal(now.pinned_blocks, 0);
    must_equal(now.pool_blocks, 0);
}

static void end_lost(stage *it)
{
    for (int i = 0; i < BLOCKS && it->mr != NULL; i++)
        give_one(it, i, it->s);
    if (it->mr != NULL)
        must_equal(statistics_of(it->mr).out_blocks, 0);
    weir_resource_unref(it->mr);
    must_be_clean(true);
    close_anyhow(it->device);
}

/* Returns how many calls could have been struck. */
static uint64_t run(const char *spec, fault planned)
{
    stage it = { .device = cuda_open(0), .fault = planned };
    it.s = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.t = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    fakes_fail(NULL, planned.nth, planned.lasting, (int)planned.error);
    act(&it, spec);
    uint64_t calls = fakes_fault_calls();
    fakes_fail(NULL, 0, false, 0);
    if (weir__device_is_lost(it.device)) {
        end_lost(&it);
        return calls;
    }
    if (it.mr == NULL)
        must_ok(weir_resource_open(it.device, spec, &it.mr));
    must_work(&it);
    weir_resource_unref(it.mr);
    end_stream(it.device, it.s);
    end_stream(it.device, it.t);
    must_be_clean(false);
    if (planned.lasting) /* nor could a pool or an event be destroyed: it is given up */
        close_anyhow(it.device);
    else
        close_emulated(it.device);
    return calls;
}

static uint64_t sweep(const char *spec, bool lasting, cudaError_t error)
{
    uint64_t nth = 0, calls;
    do {
        nth++;
        calls = run(spec, (fault){ nth, lasting, error });
    } while (calls >= nth && !(lasting && error == cudaErrorIllegalAddress));
    return nth - 1;
}

static const char *running; /* for who reads a failure */

static void sweep_all(const char *spec)
{
    running = spec;
    uint64_t calls = sweep(spec, false, cudaErrorUnknown);
    must(calls > 20);
    must_equal(sweep(spec, true, cudaErrorUnknown), calls);
    (void)sweep(spec, false, cudaErrorMemoryAllocation);
    (void)sweep(spec, true, cudaErrorMemoryAllocation);
    must_equal(sweep(spec, false, cudaErrorIllegalAddress), calls);
    printf("%s: %llu calls failed in turn\n", spec, (unsigned long long)calls);
    running = NULL;
}

static int tell_where(void **state)
{
    (void)state;
    if (running != NULL)
        fprintf(stderr, "  that was: %s\n", running);
    return 0;
}

static void leaves_survive_every_failing_call(void **state)
{
    (void)state;
    sweep_all("device");
    sweep_all("managed");
    sweep_all("pinned");
    sweep_all("async");
    sweep_all("shareable");
    sweep_all("growable(chunk=2MiB)");
    sweep_all("shareable(legacy)");
}

static void pools_survive_every_failing_call(void **state)
{
    (void)state;
    sweep_all("pool/device");
    sweep_all("pool/pinned");
    sweep_all("pool/async");
    sweep_all("pool/growable(chunk=2MiB)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(leaves_survive_every_failing_call, tell_where),
        cmocka_unit_test_teardown(pools_survive_every_failing_call, tell_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
