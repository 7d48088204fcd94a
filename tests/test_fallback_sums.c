/* test_fallback_sums.c - the statistics of a fallback, figure by figure: of two
 * resources that tell of everything, as no two of ours do at once. */
#include "support.h"
#include "weir/fallback.h"
#include "weir/resource_ops.h"
#include "weir/weir.h"

/* Tells what it was told to, and has no memory. */
typedef struct teller {
    weir_device *device;
    weir_resource_statistics says;
} teller;

static weir_status refuse(void *self, weir_stream stream, size_t bytes,
                          size_t alignment, void **out)
{
    (void)self, (void)stream, (void)bytes, (void)alignment, (void)out;
    return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "it has none");
}

static bool take_back(void *self, weir_stream stream, void *ptr, size_t bytes,
                      size_t alignment)
{
    (void)self, (void)stream, (void)ptr, (void)bytes, (void)alignment;
    return false;
}

static void end(void *self)
{
    (void)self;
}

static void describe(void *self, weir_resource_properties *out)
{
    const teller *it = self;
    out->device = it->device;
    out->device_accessible = true;
}

static void tell(void *self, weir_resource_statistics *out)
{
    const teller *it = self;
    *out = it->says;
}

static weir_resource *teller_open(teller *self)
{
    const weir_resource_ops ops = {
        .struct_size = sizeof ops, .name = "teller", .allocate = refuse,
        .deallocate = take_back, .destroy = end, .properties = describe,
        .statistics = tell,
    };
    weir_resource *mr;
    must_ok(weir_resource_create(&ops, self, &mr));
    return mr;
}

/* In whichever order they are asked. */
static void all_that_both_tell_is_added_up(void **state)
{
    (void)state;
    weir_device *device = open_stepped(support_seed(1));
    teller one = { device, { sizeof one.says, 1, 2, 4, 8, 16, 32, 64, 1 << 20, 128, 256,
                             512, 1024, 2048, 4096 } };
    teller other = { device, { sizeof other.says, 3, 6, 12, 24, 48, 96, 192, 1 << 10,
                               384, 768, 1536, 3072, 6144, 12288 } };
    weir_resource *primary = teller_open(&one), *alternate = teller_open(&other), *mr;
    for (int i = 0; i < 2; i++) {
        must_ok(weir_fallback_create(i == 0 ? primary : alternate,
                                     i == 0 ? alternate : primary, &mr));
        const weir_resource_statistics sum = statistics_of(mr);
        must_equal(sum.out_bytes, 4);
        must_equal(sum.out_blocks, 8);
        must_equal(sum.peak_out_bytes, 16);
        must_equal(sum.held_bytes, 32);
        must_equal(sum.peak_held_bytes, 64);
        must_equal(sum.free_bytes, 128);
        must_equal(sum.free_blocks, 256);
        must_equal(sum.largest_free_bytes, 1 << 20);
        must_equal(sum.kept_bytes, 512);
        must_equal(sum.set_aside_bytes, 1024);
        must_equal(sum.allocations, 2048);
        must_equal(sum.deallocations, 4096);
        must_equal(sum.failures, 0); /* its own */
        must_equal(sum.leaked_bytes, 16384);
        weir_resource_unref(mr);
    }
    weir_resource_unref(primary);
    weir_resource_unref(alternate);
    close_emulated(device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_both_tell_is_added_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
