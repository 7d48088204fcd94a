/* test_buffer_costs.c - what calls about buffers ask of the host's memory: one record
 * at most beyond what the resource needs, none where there is one to use again, and
 * none to give back. */
#include "internal.h"
#include "support_buffer.h"

/* Without a ledger, which has records of its own. The pool has met all that it will. */
static buffer_scene quiet_scene(void)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_NO_WORK;
    emulated.no_ledger = true;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    buffer_scene it = buffer_scene_on(open_with("emulated:0", &options));
    for (int i = 0; i < 4; i++) {
        weir_buffer buffers[3];
        for (int j = 0; j < 3; j++)
            buffers[j] = make_buffer(&it, it.a, (size_t)64 * KIB << j);
        for (int j = 0; j < 3; j++)
            weir_buffer_reset(&buffers[j]);
    }
    return it;
}

/* The host allocations of a call, beside it. */
#define must_cost(count, call)                                                   \
    do {                                                                         \
        uint64_t before_ = weir__host_calls();                                   \
        call;                                                                    \
        must_equal(weir__host_calls() - before_, (count));                       \
    } while (0)

static void beginning_costs_one_record(void **state)
{
    (void)state;
    buffer_scene it = quiet_scene();
    weir_buffer x, y;
    must_cost(0, must_ok(weir_buffer_init(it.pool, it.a, &x)));
    weir_buffer_reset(&x);
    must_cost(1, x = make_buffer(&it, it.a, 64 * KIB));
    must_cost(1, must_ok(weir_buffer_copy(&x, NULL, it.a, &y)));
    must_cost(0, weir_buffer_reset(&y));
    must_cost(0, must_ok(weir_buffer_view(x.data, KIB, it.a, &y)));
    must_cost(1, must_ok(weir_buffer_own(&y, it.pool, it.a)));
    must_cost(0, weir_buffer_reset(&y));
    weir_released r = { .struct_size = sizeof r };
    must_cost(0, must_ok(weir_buffer_release(&x, &r)));
    must_cost(1, must_ok(weir_buffer_adopt_block(r.resource, r.stream, r.ptr, r.bytes,
                                                 r.alignment, &y)));
    weir_resource_unref(r.resource);
    weir_buffer_reset(&x);
    must_cost(0, weir_buffer_reset(&y));
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    foreign.ptr = &foreign; /* nobody looks */
    foreign.bytes = sizeof foreign;
    must_cost(1, must_ok(weir_buffer_adopt(it.device, it.a, &foreign, &y)));
    must_cost(0, weir_buffer_reset(&y));
    buffer_scene_close(&it);
}

static void more_holders_cost_none(void **state)
{
    (void)state;
    buffer_scene it = quiet_scene();
    weir_buffer x = make_buffer(&it, it.a, 64 * KIB), y;
    weir_weak_buffer weak;
    must_cost(0, must_ok(weir_buffer_share(&x, &y)));
    must_cost(0, weir_buffer_reset(&y));
    must_cost(0, must_ok(weir_buffer_slice(&x, 256, 256, &y)));
    must_cost(0, weir_buffer_reset(&x));
    must_cost(0, must_ok(weir_buffer_weaken(&y, &weak)));
    must_cost(0, must_ok(weir_weak_buffer_upgrade(&weak, &x)));
    must_cost(0, weir_buffer_reset(&x));
    must_cost(0, weir_buffer_reset(&y));
    must_cost(0, weir_weak_buffer_reset(&weak));
    buffer_scene_close(&it);
}

/* The buffer that moves has a record: the new bytes get that. Only where somebody knows
 * the old bytes weakly there has to be another. */
static void resizing_uses_the_record_again(void **state)
{
    (void)state;
    buffer_scene it = quiet_scene();
    weir_buffer x = make_buffer(&it, it.a, 64 * KIB);
    weir_storage *record = x.storage;
    for (int i = 0; i < 3; i++) {
        bool is_first = i == 0; /* the pool has records to make of what it cuts */
        void *old = x.data;
        uint64_t before = weir__host_calls();
        must_ok(weir_buffer_resize(&x, 128 * KIB, it.a));
        must(x.data != old && x.storage == record);
        must_ok(weir_buffer_reserve(&x, 256 * KIB, it.a));
        must_ok(weir_buffer_resize(&x, 64 * KIB, it.a));
        old = x.data;
        must_ok(weir_buffer_shrink(&x, it.a));
        must(x.data != old && x.storage == record && x.capacity == 64 * KIB);
        must(is_first || weir__host_calls() == before);
    }
    weir_weak_buffer weak;
    must_ok(weir_buffer_weaken(&x, &weak));
    must_cost(1, must_ok(weir_buffer_resize(&x, 128 * KIB, it.a)));
    must(x.storage != record);
    must_cost(0, must_ok(weir_buffer_resize(&x, 256 * KIB, it.a))); /* of that nobody */
    weir_weak_buffer_reset(&weak);
    must_cost(0, weir_buffer_reset(&x));
    buffer_scene_close(&it);
}

static void noting_uses_costs_none(void **state)
{
    (void)state;
    buffer_scene it = quiet_scene();
    weir_buffer x = make_buffer(&it, it.a, 64 * KIB);
    must_cost(0, must_ok(weir_buffer_use(&x, it.b, WEIR_WRITE)));
    must_cost(0, must_ok(weir_buffer_set_stream(&x, it.b)));
    must_cost(0, weir_buffer_reset(&x));
    buffer_scene_close(&it);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(beginning_costs_one_record),
        cmocka_unit_test(more_holders_cost_none),
        cmocka_unit_test(resizing_uses_the_record_again),
        cmocka_unit_test(noting_uses_costs_none),
    };
    return cmocka_run_group_tests_name("costs of buffers", tests, NULL, NULL);
}
