/* sweep_ipc.c - tickets, for objects and for blocks of a driver's pool, are made,
 * opened, closed and answered for while each host allocation and each device call of
 * this process fails in turn, once or with all that follow. Each time the answer is a
 * success or that failure; nothing is held by who failed, and afterwards everything
 * works.
 *
 * The thread that answers makes calls of its own when it comes to it, so nobody counts
 * how many there are: the sweep goes on until nothing was struck. */
#include "support_remote.h"

#include <stdio.h>

#include "internal.h"

#define BYTES ((size_t)65536)
#define KEY   7u

typedef struct scene {
    bool is_pooled;       /* of a driver's pool; else objects */
    weir_device *device;
    weir_stream stream;
    weir_resource *mr;
    remote other;
    weir_ticket theirs;   /* of the other process's, to be opened here */
    uint64_t points;
} scene;

/* Without a ledger, which says so as a finding when it has no memory. */
static void begin(scene *it, bool is_pooled)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    *it = (scene){ .is_pooled = is_pooled,
                   .device = open_with("emulated:0", &options) };
    it->stream = make_stream(it->device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it->device,
                               is_pooled ? "async(handle_types=posix_fd)" : "shareable",
                               &it->mr));
    it->other = remote_begin();
    if (is_pooled)
        remote_make_pooled(&it->other, 0, BYTES, KEY);
    else
        remote_make(&it->other, 0, BYTES, KEY);
    must_ok(remote_export(&it->other, 0, WEIR_READ, &it->theirs));
}

static void end(scene *it)
{
    printf("# %llu calls failed in turn\n",
           (unsigned long long)it->points);
    remote_reset(&it->other, 0);
    ipc_settle();
    remote_end(&it->other);
    weir_resource_unref(it->mr);
    end_stream(it->device, it->stream);
    close_emulated(it->device);
}

/* ---- faults ---- */

typedef struct fault {
    bool of_host; /* else of the device */
    bool lasting;
    uint64_t nth;
} fault;

static void fault_begin(const scene *it, fault planned)
{
    if (planned.of_host)
        weir__host_fail_at(planned.nth, planned.lasting);
    else
        plan_fault(it->device, NULL, planned.nth, planned.lasting, WEIR_DEVICE_ERROR);
}

/* Whether it has struck. */
static bool fault_end(const scene *it, fault planned)
{
    uint64_t calls = planned.of_host ? weir__host_calls()
                                     : weir_emulated_fault_calls(it->device);
    weir__host_fail_at(0, false);
    plan_fault(it->device, NULL, 0, false, WEIR_OK);
    return calls >= planned.nth;
}

static bool went_well(fault planned, weir_status status)
{
    if (status != WEIR_OK)
        must_answer(planned.of_host ? WEIR_OUT_OF_HOST_MEMORY : WEIR_DEVICE_ERROR,
                    status);
    return status == WEIR_OK;
}

static weir_ipc_statistics now(void)
{
    weir_ipc_statistics it = { .struct_size = sizeof it };
    must_ok(weir_ipc_get_statistics(&it));
    return it;
}

/* ---- what is tried: each says whether the fault has struck ---- */

static weir_status export_it(const scene *it, weir_buffer *column, weir_ticket *out)
{
    weir_export_options options = WEIR_EXPORT_OPTIONS_INIT;
    options.share_whole_base = it->is_pooled;
    return weir_ipc_export(column, &options, out);
}

static bool try_export(scene *it, fault planned)
{
    weir_buffer column;
    weir_ticket ticket;
    must_ok(weir_buffer_allocate(it->mr, it->stream, BYTES, 256, &column));
    stamp(it->device, it->stream, column.data, column.size, KEY);
    fault_begin(it, planned);
    weir_status status = export_it(it, &column, &ticket);
    bool has_struck = fault_end(it, planned);
    if (went_well(planned, status)) {
        must_ok(remote_open(&it->other, 1, &ticket, WEIR_READ));
        must_equal(remote_errors(&it->other, 1, KEY), 0);
        must_ok(remote_close(&it->other, 1));
        ipc_settle();
    } else {
        must_equal(now().exports, 0);
    }
    weir_buffer_reset(&column);
    return has_struck;
}

static void must_open(scene *it)
{
    weir_buffer import;
    must_ok(weir_ipc_open(it->device, it->stream, &it->theirs, NULL, &import));
    check_stamp(it->device, it->stream, import.data, import.size, KEY);
    must_ok(weir_ipc_close(&import, it->stream));
    remote_settle(&it->other);
    must_ok(weir_ipc_trim_sync());
}

/* A pool's block that cannot be freed is kept from its exporter until the end of the
 * process, so with those these faults do not last. */
static bool try_open(scene *it, fault planned)
{
    weir_buffer import;
    if (it->is_pooled && planned.lasting)
        return false;
    fault_begin(it, planned);
    weir_status status = weir_ipc_open(it->device, it->stream, &it->theirs, NULL,
                                       &import);
    bool has_struck = fault_end(it, planned);
    if (went_well(planned, status))
        must_ok(weir_ipc_close(&import, it->stream));
    else
        must(import.storage == NULL);
    must_open(it);
    return has_struck;
}

/* Of what is mapped already. */
static bool try_open_again(scene *it, fault planned)
{
    weir_buffer import;
    must_ok(weir_ipc_open(it->device, it->stream, &it->theirs, NULL, &import));
    must_ok(weir_ipc_close(&import, it->stream));
    return try_open(it, planned);
}

/* Resetting cannot fail. Where nobody can tell when the work ends the exporter waits
 * for the end of the process, so these faults do not last. */
static bool try_close(scene *it, fault planned)
{
    weir_buffer import;
    if (planned.lasting)
        return false;
    must_ok(weir_ipc_open(it->device, it->stream, &it->theirs, NULL, &import));
    check_stamp(it->device, it->stream, import.data, import.size, KEY);
    fault_begin(it, planned);
    weir_buffer_reset(&import);
    bool has_struck = fault_end(it, planned);
    must_open(it);
    return has_struck;
}

/* The thread that answers is struck. */
static bool try_answer(scene *it, fault planned)
{
    weir_buffer column;
    weir_ticket ticket;
    must_ok(weir_buffer_allocate(it->mr, it->stream, BYTES, 256, &column));
    stamp(it->device, it->stream, column.data, column.size, KEY);
    must_ok(weir_stream_sync(it->device, it->stream));
    must_ok(export_it(it, &column, &ticket));
    fault_begin(it, planned);
    weir_status status = remote_open(&it->other, 1, &ticket, WEIR_READ);
    bool has_struck = fault_end(it, planned);
    if (status == WEIR_OK) {
        must_equal(remote_errors(&it->other, 1, KEY), 0);
        must_ok(remote_close(&it->other, 1));
    }
    ipc_settle();
    must_ok(remote_open(&it->other, 1, &ticket, WEIR_READ));
    must_equal(remote_errors(&it->other, 1, KEY), 0);
    must_ok(remote_close(&it->other, 1));
    ipc_settle();
    weir_buffer_reset(&column);
    return has_struck;
}

static void sweep(bool (*try_it)(scene *it, fault planned))
{
    for (int is_pooled = 0; is_pooled < 2; is_pooled++) {
        scene it;
        begin(&it, is_pooled);
        for (unsigned kind = 0; kind < 4; kind++) {
            fault planned = { .of_host = kind & 1, .lasting = kind & 2, .nth = 1 };
            while (try_it(&it, planned)) {
                it.points++;
                planned.nth++;
            }
        }
        must(it.points > 0);
        end(&it);
    }
}

static void exporting_survives_every_fault(void **state)
{
    (void)state;
    sweep(try_export);
}

static void opening_survives_every_fault(void **state)
{
    (void)state;
    sweep(try_open);
}

static void opening_again_survives_every_fault(void **state)
{
    (void)state;
    sweep(try_open_again);
}

static void closing_survives_every_fault(void **state)
{
    (void)state;
    sweep(try_close);
}

static void answering_survives_every_fault(void **state)
{
    (void)state;
    sweep(try_answer);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exporting_survives_every_fault),
        cmocka_unit_test(opening_survives_every_fault),
        cmocka_unit_test(opening_again_survives_every_fault),
        cmocka_unit_test(closing_survives_every_fault),
        cmocka_unit_test(answering_survives_every_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
