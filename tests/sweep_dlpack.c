/* sweep_dlpack.c - exports, imports and their ends while each host allocation and each
 * device call on the way fails in turn, once or with all that follow, or the device is
 * lost. Each call answers OK or the planned failure, which has made nothing; whatever
 * was made comes back once, and in the end nothing is out. */
#include <string.h>

#include "internal.h"
#include "support_buffer.h"
#include "support_dlpack.h"

#define BYTES KIB

typedef enum fault_kind { HOST_FAULT, DEVICE_FAULT, LOST_FAULT } fault_kind;

typedef struct fault {
    fault_kind kind;
    uint64_t nth;
    bool lasting;
} fault;

typedef struct scene {
    fault fault;
    weir_device *device;
    weir_stream a, b, unknown;
    weir_resource *pool, *pinned;
    weir_buffer buffer;          /* of the pool, written on a */
    weir_buffer host;            /* pinned, likewise */
    foreign_tensor foreign;      /* of a third block, for an import */
    void *block;
    weir_dlpack tensor;          /* an export, made before the fault or under it */
    weir_buffer import;
    uint32_t imports;            /* of the foreign tensor */
} scene;

/* ---- under the fault ---- */

static bool went_well(const scene *it, weir_status status)
{
    static const weir_status planned[] = {
        WEIR_OUT_OF_HOST_MEMORY, WEIR_DEVICE_ERROR, WEIR_DEVICE_LOST
    };
    if (status != WEIR_OK)
        must_answer(planned[it->fault.kind], status);
    return status == WEIR_OK;
}

static void export_to(scene *it, weir_buffer *buffer,
                      const weir_dlpack_request *request)
{
    int64_t extent;
    weir_tensor tensor = bytes_of(buffer, &extent);
    weir_status status = weir_dlpack_export(buffer, &tensor, request, &it->tensor);
    bool is_there = it->tensor.legacy != NULL || it->tensor.versioned != NULL;
    must(is_there == went_well(it, status));
}

static void import_from(scene *it, weir_dlpack from, weir_stream stream)
{
    weir_tensor tensor;
    weir_status status = weir_dlpack_import(it->device, stream, from, NULL, &it->import,
                                            &tensor);
    if (!went_well(it, status)) {
        must_be_empty(&it->import);
        weir_dlpack_delete(from);
    }
}

static void end_export(scene *it)
{
    weir_dlpack_delete(it->tensor);
    it->tensor = (weir_dlpack){ NULL, NULL };
}

/* ---- the scenarios ---- */

static void to_a_known_stream(scene *it)
{
    int64_t to = number_of(it->b);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    export_to(it, &it->buffer, &request);
    end_export(it);
    weir_buffer_reset(&it->buffer);
}

/* The tensor is the last holder. */
static void to_a_known_stream_that_keeps_it(scene *it)
{
    int64_t to = number_of(it->b);
    weir_dlpack_request request = ask(&to, WEIR_READ);
    export_to(it, &it->buffer, &request);
    weir_buffer_reset(&it->buffer);
    end_export(it);
}

static void to_an_unknown_stream(scene *it)
{
    int64_t to = number_of(it->unknown);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    export_to(it, &it->buffer, &request);
    end_export(it);
    request.stream_outlives_tensor = true;
    export_to(it, &it->buffer, &request);
    weir_buffer_reset(&it->buffer);
    end_export(it);
}

static void a_copy_on_the_device(scene *it)
{
    int64_t to = number_of(it->b);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    request.copy = WEIR_COPY_ALWAYS;
    export_to(it, &it->buffer, &request);
    weir_buffer_reset(&it->buffer);
    end_export(it);
}

static const weir_dlpack_place cpu = { WEIR_DLPACK_CPU, 0 };

static void a_copy_to_the_host(scene *it)
{
    weir_dlpack_request request = ask(NULL, WEIR_WRITE);
    request.device = &cpu;
    export_to(it, &it->buffer, &request);
    if (it->tensor.versioned != NULL && it->fault.kind != LOST_FAULT)
        must(is_filled(data_of(it->tensor), 7, BYTES));
    weir_buffer_reset(&it->buffer);
    end_export(it);
}

static void to_the_host(scene *it)
{
    weir_dlpack_request request = ask(NULL, WEIR_WRITE);
    export_to(it, &it->host, &request);
    end_export(it);
    request.copy = WEIR_COPY_ALWAYS;
    export_to(it, &it->host, &request);
    end_export(it);
    weir_buffer_reset(&it->host);
}

static void done_elsewhere(scene *it)
{
    int64_t none = -1;
    weir_dlpack_request request = ask(&none, WEIR_WRITE);
    export_to(it, &it->buffer, &request);
    weir_buffer_reset(&it->buffer);
    if (it->tensor.versioned == NULL)
        return;
    if (went_well(it, weir_dlpack_done_versioned(it->tensor.versioned, it->b)))
        it->tensor.versioned = NULL;
    end_export(it);
}

static void there_and_back(scene *it)
{
    int64_t to = number_of(it->b);
    weir_dlpack_request request = ask(&to, WEIR_WRITE);
    export_to(it, &it->buffer, &request);
    weir_buffer_reset(&it->buffer);
    if (it->tensor.versioned == NULL)
        return;
    import_from(it, it->tensor, it->unknown);
    it->tensor = (weir_dlpack){ NULL, NULL };
    weir_buffer_reset(&it->import);
}

static void from_another(scene *it)
{
    it->imports++;
    import_from(it, foreign_versioned(&it->foreign), it->a);
    if (it->import.storage != NULL)
        (void)went_well(it, weir_buffer_use(&it->import, it->b, WEIR_WRITE));
    weir_buffer_reset(&it->import);
}

static void by_the_allocator(scene *it)
{
    int64_t extent = BYTES;
    weir__dl_tensor prototype = {
        .device = { device_type_of(it->device), 0 },
        .ndim = 1,
        .dtype = { WEIR_DTYPE_UINT, 8, 1 },
        .shape = &extent,
    };
    int answer = weir_dlpack_allocate(&prototype, &it->tensor.versioned, NULL, NULL);
    must((answer == 0) == (it->tensor.versioned != NULL));
    end_export(it);
}

typedef struct scenario {
    const char *name;
    void (*act)(scene *it);
} scenario;

static const scenario scenarios[] = {
    { "to a known stream", to_a_known_stream },
    { "to a known stream that keeps it", to_a_known_stream_that_keeps_it },
    { "to an unknown stream", to_an_unknown_stream },
    { "a copy on the device", a_copy_on_the_device },
    { "a copy to the host", a_copy_to_the_host },
    { "to the host", to_the_host },
    { "done elsewhere", done_elsewhere },
    { "there and back", there_and_back },
    { "from another", from_another },
    { "by the allocator", by_the_allocator },
};

/* ---- the runs ---- */

/* A ledger without memory says so as a finding. */
static weir_device *open_device(fault_kind kind)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.no_ledger = kind == HOST_FAULT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    return open_with("emulated:0", &options);
}

static weir_buffer written_buffer(scene *it, weir_resource *mr)
{
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(mr, it->a, BYTES, 256, &buffer));
    must_ok(weir_fill(it->device, it->a, buffer.data, 7, BYTES));
    return buffer;
}

static void scene_open(scene *it, fault at)
{
    *it = (scene){ .fault = at, .device = open_device(at.kind) };
    it->a = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    it->b = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    must_ok(support_stream_create(it->device, WEIR_STREAM_NON_BLOCKING, &it->unknown));
    must_ok(weir_resource_open(it->device, "pool/device", &it->pool));
    must_ok(weir_resource_open(it->device, "pool/pinned", &it->pinned));
    must_ok(weir_set_current_resource(it->device, it->pool, NULL));
    must_ok(weir_set_current_stream(it->device, it->a, NULL));
    it->buffer = written_buffer(it, it->pool);
    it->host = written_buffer(it, it->pinned);
    it->block = take(it->pool, it->a, BYTES);
    must_ok(weir_stream_wait(it->device, it->b, it->a));
    foreign_tensor_init(&it->foreign, device_type_of(it->device), 0, it->block, 2,
                        BYTES / 2);
}

static uint64_t device_calls(weir_device *device)
{
    weir_device_calls calls = calls_of(device);
    uint64_t sum = 0;
#define X(name) sum += calls.name;
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    return sum;
}

/* Acts under the fault; true: it struck. */
static bool act_under(scene *it, const scenario *which)
{
    fault at = it->fault;
    uint64_t before = device_calls(it->device);
    if (at.kind == HOST_FAULT)
        weir__host_fail_at(at.nth, at.lasting);
    else
        plan_fault(it->device, NULL, at.nth, at.lasting,
                   at.kind == LOST_FAULT ? WEIR_DEVICE_LOST : WEIR_DEVICE_ERROR);
    which->act(it);
    uint64_t calls = at.kind == HOST_FAULT ? weir__host_calls()
                                           : device_calls(it->device) - before;
    weir__host_fail_at(0, false);
    plan_fault(it->device, NULL, 0, false, WEIR_DEVICE_ERROR);
    return calls >= at.nth;
}

/* All that is left comes back; what nobody can be sure of, by a wait for all. */
static void scene_close(scene *it)
{
    must(it->tensor.legacy == NULL && it->tensor.versioned == NULL);
    must_be_empty(&it->import);
    weir_buffer_reset(&it->buffer);
    weir_buffer_reset(&it->host);
    bool is_lost = it->fault.kind == LOST_FAULT;
    weir_status status = weir_device_drain_sync(it->device);
    must(status == WEIR_OK || (is_lost && status == WEIR_DEVICE_LOST));
    must_equal(it->foreign.deletions, it->imports);
    weir_pending pending = pending_of(it->device);
    must_equal(pending.deferred_count + pending.limbo_count, 0);
    (void)weir_deallocate(it->pool, it->a, it->block, BYTES, 256);
    must_equal(statistics_of(it->pool).out_bytes, 0);
    must_equal(statistics_of(it->pinned).out_bytes, 0);
    must_ok(weir_set_current_stream(it->device, NULL, NULL));
    must_ok(weir_set_current_resource(it->device, NULL, NULL));
    weir_resource_unref(it->pool);
    weir_resource_unref(it->pinned);
    if (is_lost) {
        close_anyhow(it->device);
        return;
    }
    must_ok(support_stream_destroy(it->device, it->unknown));
    end_stream(it->device, it->a);
    end_stream(it->device, it->b);
    close_emulated(it->device);
}

static const scenario *under_way;
static fault under_test;

static int tell_where(void **state)
{
    (void)state;
    if (under_way != NULL)
        print_message("at \"%s\", fault kind %d, call %d, %s\n", under_way->name,
                      (int)under_test.kind, (int)under_test.nth,
                      under_test.lasting ? "and all after it" : "once");
    return 0;
}

static uint64_t sweep(fault_kind kind, bool lasting)
{
    uint64_t points = 0;
    for (size_t i = 0; i < sizeof scenarios / sizeof scenarios[0]; i++) {
        bool struck = true;
        for (uint64_t nth = 1; struck; nth++) {
            scene it;
            under_way = &scenarios[i];
            under_test = (fault){ kind, nth, lasting };
            scene_open(&it, under_test);
            struck = act_under(&it, &scenarios[i]);
            scene_close(&it);
            points += struck;
        }
    }
    under_way = NULL;
    return points;
}

/* There are a few more points than that; without them it would sweep nothing. */
static void without_host_memory(void **state)
{
    (void)state;
    must(sweep(HOST_FAULT, false) >= 60);
    must(sweep(HOST_FAULT, true) >= 60);
}

static void with_a_device_that_fails(void **state)
{
    (void)state;
    must(sweep(DEVICE_FAULT, false) >= 60);
    must(sweep(DEVICE_FAULT, true) >= 60);
}

static void with_a_device_that_is_lost(void **state)
{
    (void)state;
    must(sweep(LOST_FAULT, false) >= 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(without_host_memory, tell_where),
        cmocka_unit_test_teardown(with_a_device_that_fails, tell_where),
        cmocka_unit_test_teardown(with_a_device_that_is_lost, tell_where),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
