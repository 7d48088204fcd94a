/* test_range.c - addresses that memory is mapped to piece by piece, on an emulated
 * device: what is mapped where, what counts as memory of the device, what touches
 * bytes that are not mapped, and what the ledger makes of lives that end. On CUDA
 * devices: test_cuda_range.c. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "internal.h"
#include "support_shared.h"
#include "support_work.h"

static unsigned char *reserve(weir_device *device, size_t pieces)
{
    void *base = NULL;
    must_ok(weir__range_reserve(device, pieces * GRANULE, &base));
    must((uintptr_t)base % GRANULE == 0);
    return base;
}

/* True if this process can read the byte at `ptr`: the system's answer, no fault. */
static bool can_touch(const void *ptr)
{
    int ends[2];
    must(pipe(ends) == 0);
    ssize_t written = write(ends[1], ptr, 1);
    must(written == 1 || (written < 0 && errno == EFAULT));
    close(ends[0]);
    close(ends[1]);
    return written == 1;
}

static void only_what_is_mapped_is_memory(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t before = device_free_bytes(device);
    unsigned char *base = reserve(device, 8);
    must_equal(device_free_bytes(device), before);
    must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, base, 0, 1));
    must_equal(weir_last_error().native_code, 700);

    must_ok(weir__range_map(device, base + 2 * GRANULE, 2 * GRANULE));
    must_equal(device_free_bytes(device), before - 2 * GRANULE);
    must(!can_touch(base) && !can_touch(base + 2 * GRANULE));
    stamp(device, NULL, base + 2 * GRANULE, 2 * GRANULE, 7);
    must_answer(WEIR_DEVICE_ERROR,
                weir__fill(device, NULL, base + 2 * GRANULE - 1, 0, 1));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(device, NULL, base + 4 * GRANULE, 0, 1));
    must_answer(WEIR_DEVICE_ERROR,
                weir__fill(device, NULL, base + 2 * GRANULE, 0, 2 * GRANULE + 1));

    /* Side by side they are one, whichever came first. */
    must_ok(weir__range_map(device, base + 4 * GRANULE, GRANULE));
    must_ok(weir__range_map(device, base + GRANULE, GRANULE));
    must_ok(weir__range_map(device, base + 7 * GRANULE, GRANULE));
    must_ok(weir__fill(device, NULL, base + GRANULE, 3, GRANULE));
    must_ok(weir__copy(device, NULL, base + 4 * GRANULE - 9, base + GRANULE, 18));
    must_answer(WEIR_DEVICE_ERROR,
                weir__fill(device, NULL, base + 4 * GRANULE, 0, 4 * GRANULE));
    must_ok(weir_device_sync(device));
    must_ok(weir__range_unmap(device, base + 2 * GRANULE, 2 * GRANULE));
    must_answer(WEIR_DEVICE_ERROR,
                weir__fill(device, NULL, base + GRANULE, 0, 4 * GRANULE));
    must_answer(WEIR_DEVICE_ERROR,
                weir__fill(device, NULL, base + 2 * GRANULE, 0, 1));
    must_equal(device_free_bytes(device), before - 3 * GRANULE);

    must_ok(weir__range_unmap(device, base + GRANULE, GRANULE));
    must_ok(weir__range_unmap(device, base + 4 * GRANULE, GRANULE));
    must_ok(weir__range_unmap(device, base + 7 * GRANULE, GRANULE));
    must_equal(device_free_bytes(device), before);
    must_ok(weir__range_map(device, base, 8 * GRANULE));
    stamp(device, NULL, base, 8 * GRANULE, 8);
    check_stamp(device, NULL, base, 8 * GRANULE, 8);
    must_ok(weir_device_sync(device));
    must_ok(weir__range_unmap(device, base, 8 * GRANULE));
    must_ok(weir__range_release(device, base, 8 * GRANULE));
    close_emulated(device);
}

static void pieces_are_mapped_and_unmapped_whole(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    unsigned char *base = reserve(device, 6), *plain;
    unsigned char on_host[1];
    const weir_status bad = WEIR_INVALID_ARGUMENT;
    must_ok(weir__malloc(device, 4 * GRANULE, (void **)&plain));
    must_ok(weir__range_map(device, base + GRANULE, 2 * GRANULE));
    must_ok(weir__range_map(device, base + 3 * GRANULE, GRANULE));
    size_t before = device_free_bytes(device);

    must_answer(bad, weir__range_map(device, base, 2 * GRANULE));
    must_answer(bad, weir__range_map(device, base + 2 * GRANULE, GRANULE));
    must_answer(bad, weir__range_map(device, base + 4 * GRANULE, 3 * GRANULE));
    must_answer(bad,
                weir__range_map(device, base + 5 * GRANULE, SIZE_MAX - GRANULE + 1));
    must_answer(bad, weir__range_map(device, base + 4 * GRANULE + 1, GRANULE));
    must_answer(bad, weir__range_map(device, base + 4 * GRANULE, GRANULE - 1));
    must_answer(bad, weir__range_map(device, plain, GRANULE));
    must_answer(bad, weir__range_map(device, on_host, GRANULE));
    must_answer(bad, weir__range_unmap(device, base + GRANULE, GRANULE));
    must_answer(bad, weir__range_unmap(device, base + 2 * GRANULE, GRANULE));
    must_answer(bad, weir__range_unmap(device, base + GRANULE, 3 * GRANULE));
    must_answer(bad, weir__range_unmap(device, base, GRANULE));
    must_answer(bad, weir__range_unmap(device, plain, 4 * GRANULE));
    must_answer(bad, weir__range_release(device, base, 6 * GRANULE));
    must_answer(bad, weir__free(device, base + GRANULE));
    must_answer(bad, weir__shared_free(device, base + GRANULE));
    must_equal(device_free_bytes(device), before);

    must_ok(weir__range_unmap(device, base + GRANULE, 2 * GRANULE));
    must_answer(bad, weir__range_unmap(device, base + GRANULE, 2 * GRANULE));
    must_ok(weir__range_unmap(device, base + 3 * GRANULE, GRANULE));
    must_answer(bad, weir__range_release(device, base, 5 * GRANULE));
    must_answer(bad, weir__range_release(device, base + GRANULE, 5 * GRANULE));
    must_ok(weir__range_release(device, base, 6 * GRANULE));
    must_answer(bad, weir__range_release(device, base, 6 * GRANULE));
    must_answer(bad, weir__range_map(device, base, GRANULE));
    must_ok(weir__free(device, plain));
    close_emulated(device);
}

static void memory_counts_for_all(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    size_t all = device_free_bytes(device), pieces = all / GRANULE;
    unsigned char *base = reserve(device, 2 * pieces);
    void *none = device;
    must_ok(weir__range_map(device, base + GRANULE, all - GRANULE));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__range_map(device, base + all + GRANULE, 2 * GRANULE));
    must_equal(weir_last_error().native_code, 2);
    must_answer(WEIR_OUT_OF_MEMORY, weir__malloc(device, GRANULE + 1, &none));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir__range_reserve(device, SIZE_MAX - GRANULE + 1, &none));
    must_answer(WEIR_INVALID_ARGUMENT, weir__range_reserve(device, MIB, &none));
    must(none == device);
    must_ok(weir__range_map(device, base + all + GRANULE, GRANULE));
    must_equal(device_free_bytes(device), 0);
    must_ok(weir__range_unmap(device, base + GRANULE, all - GRANULE));
    must_ok(weir__range_unmap(device, base + all + GRANULE, GRANULE));
    must_ok(weir__range_release(device, base, 2 * all));
    close_emulated(device);
}

/* Each on its own device. */
static void other_devices_have_no_part_in_it(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0), *other = open_with("emulated:1", NULL);
    unsigned char *base = reserve(device, 2);
    must_answer(WEIR_INVALID_ARGUMENT, weir__range_map(other, base, GRANULE));
    must_ok(weir__range_map(device, base, GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT, weir__range_unmap(other, base, GRANULE));
    must_answer(WEIR_DEVICE_ERROR, weir__fill(other, NULL, base, 1, GRANULE));
    must_ok(weir__enable_peer(other, device));
    must_ok(weir__fill(other, NULL, base, 1, GRANULE));
    must_ok(weir_device_sync(other));
    must_ok(weir__range_unmap(device, base, GRANULE));
    must_answer(WEIR_INVALID_ARGUMENT, weir__range_release(other, base, 2 * GRANULE));
    must_ok(weir__range_release(device, base, 2 * GRANULE));
    close_emulated(other);
    close_emulated(device);
}

/* ---- the ledger ---- */

/* What a run does to a piece, and whether it waits for its work before the end. */
static uint64_t findings_of(bool waits)
{
    weir_device *device = open_stepped(0);
    unsigned char *base = reserve(device, 4);
    weir_stream stream = raw_stream(device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir__range_map(device, base, GRANULE));
    must_ok(weir__range_map(device, base + GRANULE, 2 * GRANULE));
    must_ok(weir__fill(device, stream, base + GRANULE / 2, 1, GRANULE));
    if (waits)
        raw_sync_stream(device, stream);
    must_ok(weir__range_unmap(device, base + GRANULE, 2 * GRANULE));
    uint64_t findings = weir_emulated_findings(device);
    if (findings > 0) {
        weir_emulated_finding finding = { .struct_size = sizeof finding };
        must_ok(weir_emulated_get_finding(device, 0, &finding));
        must(strcmp(finding.first, "fill writes") == 0);
        must(strncmp(finding.second, "free", 4) == 0);
        must_equal(finding.ptr, (uintptr_t)base + GRANULE);
        must_equal(finding.bytes, GRANULE / 2);
    }
    raw_sync_stream(device, stream);
    /* The same addresses begin anew: nothing is known of what was there. */
    must_ok(weir__range_map(device, base + GRANULE, GRANULE));
    must_ok(weir__fill(device, NULL, base + GRANULE, 2, GRANULE));
    must_equal(weir_emulated_findings(device), findings);
    must_ok(weir_device_sync(device));
    must_ok(weir__range_unmap(device, base, GRANULE));
    must_ok(weir__range_unmap(device, base + GRANULE, GRANULE));
    must_ok(weir__range_release(device, base, 4 * GRANULE));
    raw_stream_end(device, stream);
    if (findings == 0)
        close_emulated(device);
    else
        close_anyhow(device);
    return findings;
}

static void unmapping_under_work_is_found(void **state)
{
    (void)state;
    must_equal(findings_of(true), 0);
    must_equal(findings_of(false), 1);
}

/* ---- what fails ---- */

static void use_all(weir_device *device, weir_status wanted)
{
    void *base = NULL;
    weir_status status = weir__range_reserve(device, 4 * GRANULE, &base);
    if (status == WEIR_OK) {
        unsigned char *second = (unsigned char *)base + GRANULE;
        status = weir__range_map(device, second, GRANULE);
        if (status == WEIR_OK) {
            status = weir__range_unmap(device, second, GRANULE);
            if (status != WEIR_OK)
                must_ok(weir__range_unmap(device, second, GRANULE));
        }
        weir_status last = weir__range_release(device, base, 4 * GRANULE);
        if (last != WEIR_OK)
            must_ok(weir__range_release(device, base, 4 * GRANULE));
        status = status != WEIR_OK ? status : last;
    }
    must_equal(status, wanted);
}

static void each_call_can_fail_by_name(void **state)
{
    (void)state;
    static const char *const kinds[] = { "range_reserve", "range_map", "range_unmap",
                                         "range_release" };
    weir_device *device = open_stepped(0);
    use_all(device, WEIR_OK);
    weir_device_calls calls = calls_of(device);
    must_equal(calls.range_reserve + calls.range_map, 2);
    must_equal(calls.range_unmap + calls.range_release, 2);
    for (size_t i = 0; i < 4; i++) {
        size_t before = device_free_bytes(device);
        plan_fault(device, kinds[i], 1, false, WEIR_OUT_OF_MEMORY);
        use_all(device, WEIR_OUT_OF_MEMORY);
        plan_fault(device, NULL, 0, false, WEIR_OK);
        must_equal(device_free_bytes(device), before);
    }
    close_emulated(device);
}

static void host_memory_runs_out(void **state)
{
    (void)state;
    weir_device *device = open_stepped(0);
    for (uint64_t nth = 1;; nth++) {
        void *base = NULL;
        size_t before = device_free_bytes(device);
        weir__host_fail_at(nth, false);
        weir_status status = weir__range_reserve(device, 4 * GRANULE, &base);
        if (status == WEIR_OK)
            status = weir__range_map(device, (char *)base + GRANULE, GRANULE);
        bool is_over = status == WEIR_OK;
        weir__host_fail_at(0, false);
        if (!is_over)
            must_equal(status, WEIR_OUT_OF_HOST_MEMORY);
        if (is_over)
            must_ok(weir__range_unmap(device, (char *)base + GRANULE, GRANULE));
        must_equal(device_free_bytes(device), before);
        if (base != NULL)
            must_ok(weir__range_release(device, base, 4 * GRANULE));
        if (is_over) {
            must(nth > 4);
            break;
        }
    }
    close_anyhow(device); /* its ledger may be deaf, and says so */
}

static void each_call_costs_its_own(void **state)
{
    (void)state;
    weir_emulated_costs costs = { .struct_size = sizeof costs,
                                  .range_reserve = { 1, 10 }, .range_map = { 2, 100 },
                                  .range_unmap = { 3, 1000 },
                                  .range_release = { 4, 10000 } };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.costs = &costs;
    options.emulated = &emulated;
    weir_device *device = open_with("emulated:3", &options);
    use_all(device, WEIR_OK);
    must_equal(weir_emulated_modelled_ns(device), 1 + 2 + 3 + 4 + 2 * (100 + 1000));
    close_emulated(device);
}

static void ranges_end_with_the_device(void **state)
{
    (void)state;
    weir_device *device = open_threads();
    must_ok(weir__range_map(device, reserve(device, 4), GRANULE));
    must_be_quiet(device);
    close_anyhow(device);
    device = open_threads();
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_what_is_mapped_is_memory),
        cmocka_unit_test(pieces_are_mapped_and_unmapped_whole),
        cmocka_unit_test(memory_counts_for_all),
        cmocka_unit_test(other_devices_have_no_part_in_it),
        cmocka_unit_test(unmapping_under_work_is_found),
        cmocka_unit_test(each_call_can_fail_by_name),
        cmocka_unit_test(host_memory_runs_out),
        cmocka_unit_test(each_call_costs_its_own),
        cmocka_unit_test(ranges_end_with_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
