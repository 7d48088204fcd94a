/* test_callback.c - what the leaf `callback` tells of its functions' refusals, and of
 * answers that are none; and what is told of a program's own table that refuses. For
 * what `callback` asks its functions see test_leaves.c. */
#include "support_leaf.h"

#include <string.h>

#include "weir/aligned.h"
#include "weir/binning.h"
#include "weir/leaves.h"
#include "weir/resource_ops.h"

#define MIB       ((size_t)1 << 20)
#define TOO_LARGE ((size_t)1 << 50)

typedef enum manner {
    SERVES, REFUSES, SAYS_WHY, ASKS_OTHERS, FAILS_ELSEWHERE, MISALIGNS
} manner;

/* Functions over a leaf of the library's. */
typedef struct functions {
    weir_resource *below;
    manner manner;
} functions;

/* One byte further than memory begins. */
static weir_status misaligned(functions *self, weir_stream stream, size_t bytes,
                              size_t alignment, void **out)
{
    weir_status status =
        weir_allocate(self->below, stream, bytes + 1, alignment, out);
    if (status == WEIR_OK)
        *out = (char *)*out + 1;
    return status;
}

static weir_status functions_allocate(void *context, weir_stream stream, size_t bytes,
                                      size_t alignment, void **out)
{
    functions *self = context;
    switch (self->manner) {
    case REFUSES:
        return WEIR_OUT_OF_MEMORY;
    case SAYS_WHY:
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "the shop is shut");
    case ASKS_OTHERS:
        return weir_allocate(self->below, stream, TOO_LARGE + 1, alignment, out);
    case FAILS_ELSEWHERE:
        must_answer(WEIR_INVALID_ARGUMENT,
                    weir_allocate(self->below, stream, bytes, 3, out));
        return WEIR_OUT_OF_MEMORY;
    case MISALIGNS:
        return misaligned(self, stream, bytes, alignment, out);
    default:
        return weir_allocate(self->below, stream, bytes, alignment, out);
    }
}

static void functions_deallocate(void *context, weir_stream stream, void *ptr,
                                 size_t bytes, size_t alignment)
{
    functions *self = context;
    const size_t more = self->manner == MISALIGNS;
    must(weir_deallocate(self->below, stream, (char *)ptr - more, bytes + more,
                         alignment));
}

static weir_resource *open_callback(scene *s, functions *self)
{
    const weir_callbacks calls = { .struct_size = sizeof calls,
                                   .allocate = functions_allocate,
                                   .deallocate = functions_deallocate };
    weir_resource *mr;
    *self = (functions){ .below = s->mr };
    must_ok(weir_callback_create(s->device, &calls, self, &mr));
    return mr;
}

/* Asks for what is refused, after another refusal with the same status. */
static weir_out_of_memory refusal_of(scene *s, weir_resource *mr, size_t bytes)
{
    void *ptr = s;
    weir_out_of_memory report = { .struct_size = sizeof report };
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(s->mr, s->a, TOO_LARGE, 256, &ptr));
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(mr, s->a, bytes, 256, &ptr));
    must(ptr == NULL);
    must_equal(weir_last_error().status, WEIR_OUT_OF_MEMORY);
    must_ok(weir_last_out_of_memory(&report));
    return report;
}

static void says(const char *words)
{
    must(strstr(weir_last_error().message, words) != NULL);
}

/* A function that answers a bare status leaves the thread's last error as it was, and
 * that may be another's refusal. */
static void a_bare_refusal_is_not_told_with_an_older_one(void **state)
{
    (void)state;
    static const manner manners[] = { REFUSES, FAILS_ELSEWHERE };
    for (size_t i = 0; i < 2; i++) {
        scene s = scene_begin(1, "device");
        functions self;
        weir_resource *mr = open_callback(&s, &self);
        void *ptr = take(mr, s.a, MIB);
        self.manner = manners[i];
        for (size_t bytes = 1000; bytes < 1003; bytes++) {
            weir_out_of_memory report = refusal_of(&s, mr, bytes);
            must_equal(report.requested_bytes, bytes);
            must_equal(report.limit_bytes, SIZE_MAX);
            must_equal(report.held_bytes, MIB);
            must_equal(report.in_use_bytes, MIB);
            must_equal(report.largest_free_bytes, 0);
            assert_string_equal(report.resource, "callback");
            says("refused 100");
        }
        give(mr, s.a, ptr, MIB);
        weir_resource_unref(mr);
        scene_end(&s);
    }
}

/* Words of the program's come without numbers. */
static void what_a_function_says_is_passed_on(void **state)
{
    (void)state;
    scene s = scene_begin(1, "device");
    functions self;
    weir_resource *mr = open_callback(&s, &self);
    self.manner = SAYS_WHY;
    weir_out_of_memory report = refusal_of(&s, mr, 1000);
    says("the shop is shut");
    must_equal(report.requested_bytes, 0);
    must_equal(report.limit_bytes, SIZE_MAX);
    assert_string_equal(report.resource, "unnamed");

    self.manner = ASKS_OTHERS;
    report = refusal_of(&s, mr, 1000);
    must_equal(report.requested_bytes, TOO_LARGE + 1);
    assert_string_equal(report.resource, "device");
    weir_resource_unref(mr);
    scene_end(&s);
}

/* Who stands above has no numbers of an older refusal among its own. */
static void an_adaptor_above_tells_of_this_refusal(void **state)
{
    (void)state;
    static const manner manners[] = { REFUSES, SAYS_WHY };
    for (size_t i = 0; i < 2; i++) {
        scene s = scene_begin(1, "device");
        functions self;
        weir_resource *leaf = open_callback(&s, &self), *mr;
        must_ok(weir_binning_create(leaf, NULL, &mr));
        weir_resource_unref(leaf);
        self.manner = manners[i];
        weir_out_of_memory report = refusal_of(&s, mr, 64 * MIB);
        must_equal(report.requested_bytes, 64 * MIB);
        must_equal(report.limit_bytes, SIZE_MAX);
        must_equal(report.largest_free_bytes, 0);
        assert_string_equal(report.resource, "binning");
        weir_resource_unref(mr);
        scene_end(&s);
    }
}

/* It fails, and counts as that alone; the memory is the function's again. */
static void a_misaligned_address_is_a_failure(void **state)
{
    (void)state;
    scene s = scene_begin(1, "device");
    functions self;
    weir_resource *mr = open_callback(&s, &self);
    void *ptr = &s;
    self.manner = MISALIGNS;
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(mr, s.a, 1000, 256, &ptr));
    must(ptr == NULL);
    says("not aligned to 256");
    weir_resource_statistics now = statistics_of(mr);
    must_equal(now.failures, 1);
    must_equal(now.allocations, 0);
    must_equal(now.deallocations, 0);
    must_equal(now.peak_out_bytes, 0);
    must_equal(statistics_of(s.mr).out_blocks, 0);
    /* An odd address is as good as any where none is asked for. */
    must_ok(weir_allocate(mr, s.a, 1000, 1, &ptr));
    must(weir_deallocate(mr, s.a, ptr, 1000, 1));
    weir_resource_unref(mr);
    scene_end(&s);
}

/* ---- tables of a program's own ---- */

typedef struct mute {
    weir_device *device;
    weir_status answer;
    _Alignas(256) char bytes[2048];
    bool is_out;
} mute;

static weir_status mute_allocate(void *context, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out)
{
    mute *self = context;
    (void)stream;
    (void)alignment;
    if (self->is_out || bytes > sizeof self->bytes)
        return self->answer;
    self->is_out = true;
    *out = self->bytes;
    return WEIR_OK;
}

static bool mute_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                            size_t alignment)
{
    mute *self = context;
    (void)stream;
    (void)ptr;
    (void)bytes;
    (void)alignment;
    self->is_out = false;
    return true;
}

static weir_status mute_extend(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment, size_t new_bytes)
{
    mute *self = context;
    (void)stream;
    (void)ptr;
    (void)bytes;
    (void)alignment;
    (void)new_bytes;
    return self->answer;
}

static void mute_destroy(void *context)
{
    (void)context;
}

static void mute_properties(void *context, weir_resource_properties *out)
{
    mute *self = context;
    out->device = self->device;
    out->host_accessible = true;
    out->max_alignment = 256;
}

/* What refuses without a word is given words, as is an adaptor over it. */
static void a_mute_table_is_spoken_for(void **state)
{
    (void)state;
    static const weir_resource_ops ops = { .struct_size = sizeof ops, .name = "mute",
                                           .allocate = mute_allocate,
                                           .deallocate = mute_deallocate,
                                           .destroy = mute_destroy,
                                           .properties = mute_properties,
                                           .extend = mute_extend };
    scene s = scene_begin(1, "device");
    mute self = { .device = s.device, .answer = WEIR_OUT_OF_MEMORY };
    weir_resource *mr, *above;
    must_ok(weir_resource_create(&ops, &self, &mr));
    must_ok(weir_aligned_create(mr, NULL, &above));
    weir_out_of_memory report = refusal_of(&s, mr, 4000);
    must_equal(report.requested_bytes, 4000);
    must_equal(report.limit_bytes, SIZE_MAX);
    must(strcmp(report.resource, "mute") == 0);
    report = refusal_of(&s, above, 5000);
    must_equal(report.requested_bytes, 5000);
    must_equal(report.held_bytes, 0);

    void *ptr = take(mr, s.a, 1000);
    must_answer(WEIR_OUT_OF_MEMORY, weir_allocate(s.mr, s.a, TOO_LARGE, 256, &ptr));
    must_answer(WEIR_OUT_OF_MEMORY,
                weir_resource_extend(mr, s.a, self.bytes, 1000, 256, 2000));
    must_ok(weir_last_out_of_memory(&report));
    must_equal(report.requested_bytes, 2000);
    must(strcmp(report.resource, "mute") == 0);
    give(mr, s.a, self.bytes, 1000);

    self.answer = WEIR_DEVICE_ERROR;
    must_answer(WEIR_DEVICE_ERROR, weir_allocate(mr, s.a, 4000, 256, &ptr));
    must_equal(weir_last_error().status, WEIR_DEVICE_ERROR);
    says("mute refused 4000 bytes");
    weir_resource_unref(above);
    weir_resource_unref(mr);
    scene_end(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_bare_refusal_is_not_told_with_an_older_one),
        cmocka_unit_test(what_a_function_says_is_passed_on),
        cmocka_unit_test(an_adaptor_above_tells_of_this_refusal),
        cmocka_unit_test(a_misaligned_address_is_a_failure),
        cmocka_unit_test(a_mute_table_is_spoken_for),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
