/* test_foreign.c - an adaptor that keeps no records of its own is given a block that
 * its upstream handed out to somebody else: that is misuse, and changes nothing. */
#include "support.h"

#include "weir/aligned.h"
#include "weir/fallback.h"
#include "weir/limiting.h"
#include "weir/statistics.h"

/* ---- adaptors ---- */

static weir_status make_statistics(weir_resource *upstream, weir_resource **out)
{
    return weir_statistics_create(upstream, out);
}

static weir_status make_limiting(weir_resource *upstream, weir_resource **out)
{
    return weir_limiting_create(upstream, (size_t)1 << 20, out);
}

static weir_status make_aligned(weir_resource *upstream, weir_resource **out)
{
    return weir_aligned_create(upstream, NULL, out);
}

static weir_status make_fallback(weir_resource *upstream, weir_resource **out)
{
    weir_resource *alternate;
    weir_status status =
        weir_resource_open(weir_resource_device(upstream), "device", &alternate);
    if (status == WEIR_OK)
        status = weir_fallback_create(upstream, alternate, out);
    weir_resource_unref(alternate);
    return status;
}

static weir_status make_two(weir_resource *upstream, weir_resource **out)
{
    weir_resource *between;
    weir_status status = make_limiting(upstream, &between);
    if (status == WEIR_OK)
        status = make_statistics(between, out);
    weir_resource_unref(between);
    return status;
}

static weir_status (*const makers[])(weir_resource *upstream, weir_resource **out) = {
    make_statistics, make_limiting, make_aligned, make_fallback, make_two
};

/* ---- what is not theirs ---- */

static void must_refuse(weir_resource *mr, void *ptr)
{
    misuse_log log;
    weir_block block = { .struct_size = sizeof block };
    must_answer(WEIR_NOT_FOUND, weir_resource_find(mr, ptr, &block));
    must(block.ptr == NULL && block.bytes == 0);
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, ptr, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    must(!weir_deallocate_after(mr, ptr, 1000, WEIR_ALIGNMENT, NULL, 0));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    must(!weir_free(mr, ptr));
    must_be_misuse(&log, WEIR_MISUSE_FOREIGN_POINTER, ptr);
    misuse_end();
}

static void check_over(weir_device *device, const char *upstream_spec, size_t which)
{
    weir_resource *upstream, *mr;
    weir_block block = { .struct_size = sizeof block };
    misuse_log log;
    must_ok(weir_resource_open(device, upstream_spec, &upstream));
    must_ok(makers[which](upstream, &mr));
    void *ptr = take(upstream, NULL, 1000);
    must_refuse(mr, ptr);
    void *own = take(mr, NULL, 1000);
    must_ok(weir_resource_find(mr, own, &block));
    must(block.ptr == own);
    give(mr, NULL, own, 1000);
    must_refuse(mr, ptr);

    /* What nobody has out is told by who knows. */
    misuse_begin(&log);
    must(!weir_deallocate(mr, NULL, own, 1000, WEIR_ALIGNMENT));
    must_be_misuse(&log, WEIR_MISUSE_DOUBLE_FREE, own);
    misuse_end();
    must_ok(weir_resource_find(upstream, ptr, &block));
    give(upstream, NULL, ptr, 1000);
    weir_resource_unref(mr);
    weir_resource_unref(upstream);
}

static void blocks_of_others_are_refused(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    for (size_t which = 0; which < sizeof makers / sizeof makers[0]; which++) {
        check_over(device, "pool/device", which);
        check_over(device, "device", which);
    }
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(blocks_of_others_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
