/* test_pool_extends.c - while a pool's last chunk grows, others give back what lies at
 * its end, and a second stream begins. What then is left of it waits for its own last
 * use. */
#include "support_pool.h"

/* Memory of the device's, handed out as a range that grows; anybody may use at once
 * what is new of it. While it grows it lets the other thread do its part. */
typedef struct range {
    weir_device *device;
    weir_resource *leaf;
    void *ptr;
    size_t out_bytes;
    bool tells;
} range;

#define FIRST_BYTES (8 * KIB)
#define RANGE_BYTES (64 * KIB)

static weir_status range_allocate(void *context, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    range *self = context;
    (void)alignment;
    must(self->out_bytes == 0 && bytes <= RANGE_BYTES);
    self->out_bytes = bytes;
    *out = self->ptr = take(self->leaf, stream, RANGE_BYTES);
    return WEIR_OK;
}

static weir_status range_extend(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment, size_t new_bytes)
{
    range *self = context;
    (void)stream;
    (void)alignment;
    must(ptr == self->ptr && bytes == self->out_bytes && new_bytes <= RANGE_BYTES);
    self->out_bytes = new_bytes;
    if (self->tells) {
        self->tells = false;
        must_ok(weir_emulated_host_signal(self->device, 1));
        must_ok(weir_emulated_host_await(self->device, 2));
    }
    return WEIR_OK;
}

static bool range_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    range *self = context;
    (void)alignment;
    must(ptr == self->ptr && bytes == self->out_bytes);
    self->out_bytes = 0;
    give(self->leaf, stream, ptr, RANGE_BYTES);
    return true;
}

static void range_properties(void *context, weir_resource_properties *out)
{
    out->device = ((range *)context)->device;
    out->device_accessible = true;
    out->usable_at_once = true;
}

static void range_destroy(void *context)
{
    (void)context;
}

static weir_resource *open_range(range *self)
{
    static const weir_resource_ops ops = {
        .struct_size = sizeof ops,
        .name = "range",
        .allocate = range_allocate,
        .deallocate = range_deallocate,
        .destroy = range_destroy,
        .properties = range_properties,
        .extend = range_extend,
    };
    weir_resource *mr;
    must_ok(weir_resource_create(&ops, self, &mr));
    return mr;
}

/* ---- two threads, the first of which is held up once ---- */

#define HALF (FIRST_BYTES / 2)

typedef struct stage {
    pool_scene scene;
    range below;
    void *end;              /* the second half of the chunk */
    uint64_t at, choices;   /* where the first thread is held up, and how far it came */
    bool is_through;        /* it was before */
} stage;

static uint32_t choose(void *context, uint32_t n)
{
    stage *it = context;
    return it->choices++ < it->at ? 0 : n - 1;
}

/* Finds nothing, and then perhaps a half that has come back; and grows. */
static void asks(void *argument)
{
    stage *it = argument;
    it->below.tells = true;
    void *ptr = take_on(&it->scene, 0, 3 * KIB);
    it->is_through = it->choices <= it->at;
    if (it->below.tells) /* it never grew */
        must_ok(weir_emulated_host_signal(it->scene.device, 1));
    give_on(&it->scene, 0, ptr, 3 * KIB);
}

static void gives_the_end(void *argument)
{
    stage *it = argument;
    give_on(&it->scene, 0, it->end, HALF);
    must_ok(weir_emulated_host_await(it->scene.device, 1));
    it->scene.streams[1] = make_stream(it->scene.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_emulated_host_signal(it->scene.device, 2));
}

typedef struct job {
    void (*does)(void *stage);
    stage *it;
} job;

static void do_job(void *argument)
{
    job *self = argument;
    self->does(self->it);
}

static void stage_open(stage *it)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = 64 * MIB;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = choose;
    emulated.choose_context = it;
    weir_device_options device = WEIR_DEVICE_OPTIONS_INIT;
    device.emulated = &emulated;
    it->scene.device = open_with("emulated:0", &device);
    it->scene.streams[0] = make_stream(it->scene.device, WEIR_STREAM_NON_BLOCKING);
}

/* False: the first thread was through before it was held up. *grew counts. */
static bool run_at(uint64_t at, uint64_t *grew)
{
    stage it = { .at = UINT64_MAX };
    support_use_seed(at);
    stage_open(&it);
    pool_scene *scene = &it.scene;
    weir_resource *leaf = open_leaf(scene->device);
    it.below = (range){ .device = scene->device, .leaf = leaf };
    scene->pool = open_pool(open_range(&it.below), FIRST_BYTES, 0, FIRST_BYTES);
    void *front = take_on(scene, 0, HALF);
    it.end = take_on(scene, 0, HALF);
    it.at = at;
    it.choices = 0;
    job jobs[2] = { { asks, &it }, { gives_the_end, &it } };
    void *arguments[2] = { &jobs[0], &jobs[1] };
    must_ok(weir_emulated_run_threads(scene->device, 2, do_job, arguments));
    *grew += it.below.out_bytes > FIRST_BYTES;

    void *rest = take_on(scene, 1, KIB);
    give_on(scene, 1, rest, KIB);
    give_on(scene, 0, front, HALF);
    must_ok(weir_device_sync(scene->device));
    weir_resource_unref(scene->pool);
    weir_resource_unref(leaf);
    for (int i = 0; i < 2; i++)
        end_stream(scene->device, scene->streams[i]);
    close_emulated(scene->device);
    return !it.is_through;
}

static void what_is_left_of_an_end_waits_for_its_use(void **state)
{
    (void)state;
    uint64_t at = 0, grew = 0;
    while (run_at(at, &grew))
        at++;
    print_message("%llu windows, after %llu of which it grew\n", (unsigned long long)at,
                  (unsigned long long)grew);
    must(at > 10 && grew > 0 && grew < at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_of_an_end_waits_for_its_use),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
