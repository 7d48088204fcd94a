/* support_roomy.c - see support_roomy.h. */
#include "support_roomy.h"

#include "support.h"
#include "weir/resource_ops.h"

static weir_status roomy_allocate(void *context, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    roomy *self = context;
    if (bytes > self->room)
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "no block is that long");
    weir_status status = weir_allocate(self->pool, stream, self->room, alignment, out);
    if (status != WEIR_OK)
        return status;
    self->out_bytes += bytes;
    self->out_blocks++;
    return WEIR_OK;
}

static void count_back(roomy *self, size_t bytes)
{
    must(self->out_blocks > 0 && self->out_bytes >= bytes);
    self->out_bytes -= bytes;
    self->out_blocks--;
}

static bool roomy_deallocate(void *context, weir_stream stream, void *ptr, size_t bytes,
                             size_t alignment)
{
    roomy *self = context;
    count_back(self, bytes);
    return weir_deallocate(self->pool, stream, ptr, self->room, alignment);
}

static bool roomy_deallocate_after(void *context, void *ptr, size_t bytes,
                                   size_t alignment, const weir_point *points,
                                   size_t count)
{
    roomy *self = context;
    count_back(self, bytes);
    return weir_deallocate_after(self->pool, ptr, self->room, alignment, points, count);
}

static weir_status roomy_extend(void *context, weir_stream stream, void *ptr,
                                size_t bytes, size_t alignment, size_t new_bytes)
{
    roomy *self = context;
    (void)stream;
    (void)alignment;
    must(ptr != NULL && new_bytes > bytes);
    if (new_bytes > self->room) {
        self->refusals++;
        return weir_resource_refuse(WEIR_OUT_OF_MEMORY, "no block is that long");
    }
    self->out_bytes += new_bytes - bytes;
    self->extensions++;
    return WEIR_OK;
}

static void roomy_statistics(void *context, weir_resource_statistics *out)
{
    const roomy *self = context;
    out->out_bytes = self->out_bytes;
    out->out_blocks = self->out_blocks;
}

static void roomy_properties(void *context, weir_resource_properties *out)
{
    const roomy *self = context;
    weir_resource_properties pool = { .struct_size = sizeof pool };
    must_ok(weir_resource_get_properties(self->pool, &pool));
    out->device = pool.device;
    out->device_accessible = true;
    out->managed = pool.managed;
}

static void roomy_destroy(void *context)
{
    (void)context;
}

weir_resource *roomy_open(roomy *self, weir_resource *pool, size_t room)
{
    static const weir_resource_ops ops = {
        .struct_size = sizeof ops,
        .name = "roomy",
        .allocate = roomy_allocate,
        .deallocate = roomy_deallocate,
        .destroy = roomy_destroy,
        .properties = roomy_properties,
        .statistics = roomy_statistics,
        .deallocate_after = roomy_deallocate_after,
        .extend = roomy_extend,
    };
    weir_resource *mr;
    *self = (roomy){ .pool = pool, .room = room };
    must_ok(weir_resource_create(&ops, self, &mr));
    return mr;
}
