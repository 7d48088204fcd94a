/* sweep_leaves.c - every device call and every host allocation of a small program over
 * a leaf fails in turn, once and for good: nothing is leaked, and the counts are
 * right. */
#include "support.h"

#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "weir/growable.h"
#include "weir/shareable.h"

/* What a block takes of the device. */
static size_t held_bytes(const char *spec, size_t bytes)
{
    bool in_pages = strncmp(spec, "system(headroom", 15) == 0;
    const size_t object = in_pages ? (size_t)64 << 10 : WEIR_SHAREABLE_OBJECT_BYTES;
    bool in_objects = strncmp(spec, "shareable", 9) == 0 ||
                      strncmp(spec, "growable", 8) == 0 || in_pages;
    return in_objects ? (bytes + object - 1) / object * object : bytes;
}

static const char in_chunks[] = "growable(chunk=4MiB, pages_only=true)";
static const char by_pages[] = "growable(remap=true, pages_only=true)";

static bool is_growable(const char *spec)
{
    return strncmp(spec, "growable", 8) == 0;
}

/* That much is out, and the rest of what is held is kept: but where chunks are mapped
 * some of them is free. */
static void check_held(const char *spec, const weir_resource_statistics *now,
                       size_t out_held_bytes)
{
    if (!is_growable(spec)) {
        must_equal(now->held_bytes, out_held_bytes + now->kept_bytes);
        return;
    }
    must_equal(now->held_bytes % WEIR_GROWABLE_PAGE_BYTES, 0);
    must(now->held_bytes >= out_held_bytes + now->kept_bytes);
    must(now->free_bytes >= now->kept_bytes &&
         now->free_bytes <= now->held_bytes - out_held_bytes);
}

/* Creates a leaf, allocates, hands over, frees and trims, as far as that goes; then
 * checks the counts and gives all back. `faults_end` is called before the end. */
static void run_program(weir_device *device, const char *spec, weir_stream a,
                        weir_stream b, void (*faults_end)(weir_device *device))
{
    weir_resource *mr;
    if (weir_resource_open(device, spec, &mr) != WEIR_OK) {
        faults_end(device);
        return;
    }
    void *out[4] = { NULL };
    size_t out_bytes = 0, out_held_bytes = 0;
    for (size_t i = 0; i < 4; i++) {
        size_t bytes = (i + 1) * 100000;
        weir_stream s = i % 2 == 0 ? a : b;
        if (weir_allocate(mr, s, bytes, WEIR_ALIGNMENT, &out[i]) != WEIR_OK) {
            must(out[i] == NULL);
            continue;
        }
        out_bytes += bytes;
        out_held_bytes += held_bytes(spec, bytes);
        if (try_stamp(device, s, out[i], bytes, i) == WEIR_OK)
            (void)try_check_stamp(device, s, out[i], bytes, i);
        if (i == 1) {
            give(mr, s, out[i], bytes);
            out_bytes -= bytes;
            out_held_bytes -= held_bytes(spec, bytes);
            out[i] = NULL;
            (void)weir_resource_trim_sync(mr, 0);
        }
    }
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.out_bytes, out_bytes);
    check_held(spec, &now, out_held_bytes);
    weir_point point;
    for (size_t i = 0; i < 4; i++) {
        weir_stream s = i % 2 == 0 ? a : b;
        if (out[i] == NULL)
            continue;
        if (weir_point_here(device, s, &point) == WEIR_OK)
            must(weir_deallocate_after(mr, out[i], (i + 1) * 100000, WEIR_ALIGNMENT,
                                       &point, 1));
        else
            give(mr, s, out[i], (i + 1) * 100000);
    }
    (void)weir_resource_trim_sync(mr, 200000);
    now = statistics_of(mr);
    must_equal(now.out_blocks, 0);
    check_held(spec, &now, 0);
    faults_end(device);
    weir_resource_unref(mr);
}

static void end_device_faults(weir_device *device)
{
    plan_fault(device, NULL, 0, false, WEIR_OK);
}

static void keep_faults(weir_device *device)
{
    (void)device;
}

static uint64_t sweep_device_calls(const char *spec, bool lasting)
{
    uint64_t nth, calls;
    for (nth = 1;; nth++) {
        weir_device *device = open_stepped(support_seed(nth));
        weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
        weir_stream b = make_stream(device, WEIR_STREAM_BLOCKING);
        plan_fault(device, NULL, nth, lasting, WEIR_DEVICE_ERROR);
        run_program(device, spec, a, b, lasting ? end_device_faults : keep_faults);
        calls = weir_emulated_fault_calls(device);
        plan_fault(device, NULL, 0, false, WEIR_OK);
        end_stream(device, a);
        end_stream(device, b);
        /* Kernels may have been left out; the pattern is not what is tested. */
        must_ok(weir_device_sync(device));
        (void)take_stamp_errors();
        close_emulated(device);
        if (!lasting && calls < nth)
            return nth;
        if (lasting && nth == 40)
            return nth;
    }
}

static void leaf_survives_every_device_failure(void **state)
{
    (void)state;
    uint64_t device_calls = sweep_device_calls("device", false);
    static const char *const others[] = { "system", "managed", "pinned",
                                          "shareable(fd)", "shareable(legacy)" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        must_equal(sweep_device_calls(others[i], false), device_calls);
        sweep_device_calls(others[i], true);
    }
    must_equal(sweep_device_calls("shareable", false), device_calls + 2);
    sweep_device_calls("shareable", true);
    /* For each of four blocks how much is free, and advice; and that taken back. (Other
     * turns of the schedule may have other questions, too.) */
    must(sweep_device_calls("system(headroom=1)", false) >= device_calls + 12);
    sweep_device_calls("system(headroom=4GiB)", true);
    const uint64_t of_growable = sweep_device_calls(in_chunks, false);
    printf("growable: %llu device calls failed in turn\n",
           (unsigned long long)of_growable - 1);
    sweep_device_calls(in_chunks, true);
    sweep_device_calls(by_pages, false);
    sweep_device_calls(by_pages, true);
    printf("bound: device calls that failed in turn = %llu\n",
           (unsigned long long)device_calls - 1);
    must(device_calls > 20);
    sweep_device_calls("device", true);
}

static void end_host_faults(weir_device *device)
{
    (void)device;
    weir__host_fail_at(0, false);
}

static void sweep_host_calls(const char *spec)
{
    for (int lasting = 0; lasting < 2; lasting++) {
        uint64_t calls = 1;
        for (uint64_t nth = 1; calls >= nth || nth == 1; nth++) {
            weir_device *device = open_stepped(support_seed(nth));
            weir_stream a = make_stream(device, WEIR_STREAM_NON_BLOCKING);
            weir_stream b = make_stream(device, WEIR_STREAM_BLOCKING);
            weir__host_fail_at(nth, lasting != 0);
            run_program(device, spec, a, b, keep_faults);
            calls = weir__host_calls();
            end_host_faults(device);
            end_stream(device, a);
            end_stream(device, b);
            must_ok(weir_device_sync(device));
            (void)take_stamp_errors();
            if (weir_emulated_findings(device) == 0)
                close_emulated(device);
            else
                close_anyhow(device); /* the ledger had no memory, and said so */
            if (lasting != 0 && nth == 40)
                break;
        }
    }
}

static void leaf_survives_every_host_failure(void **state)
{
    (void)state;
    sweep_host_calls("device");
    sweep_host_calls(in_chunks);
    sweep_host_calls(by_pages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(leaf_survives_every_device_failure),
        cmocka_unit_test(leaf_survives_every_host_failure),
    };
    support_keep_memory();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
