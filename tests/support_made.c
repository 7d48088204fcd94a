/* support_made.c - see support_made.h. */
#include "support_made.h"

#include "support.h"
#include "weir/failure_callback.h"
#include "weir/leaves.h"
#include "weir/logging.h"

static weir_status callback_allocate(void *context, weir_stream stream,
                                     size_t bytes, size_t alignment, void **out)
{
    return weir_allocate(context, stream, bytes, alignment, out);
}

static void callback_deallocate(void *context, weir_stream stream,
                                void *ptr, size_t bytes, size_t alignment)
{
    must(weir_deallocate(context, stream, ptr, bytes, alignment));
}

static void callback_destroy(void *context)
{
    weir_resource_unref(context);
}

weir_resource *make_callback(weir_device *device)
{
    const weir_callbacks callbacks = { .struct_size = sizeof callbacks,
                                       .allocate = callback_allocate,
                                       .deallocate = callback_deallocate,
                                       .destroy = callback_destroy,
                                       .usable_at_once = true };
    weir_resource *below, *mr;
    must_ok(weir_device_resource_create(device, &below));
    must_ok(weir_callback_create(device, &callbacks, below, &mr));
    return mr;
}

weir_resource *make_logging(weir_device *device)
{
    weir_resource *below, *mr;
    must_ok(weir_resource_open(device, "pool/device", &below));
    must_ok(weir_logging_create(below, "/dev/null", NULL, &mr));
    weir_resource_unref(below);
    return mr;
}

static bool try_twice_more(void *context, weir_stream stream, size_t bytes,
                           size_t refusals)
{
    (void)stream;
    (void)bytes;
    (void)weir_resource_trim_sync(context, 0);
    return refusals < 3;
}

weir_resource *make_failure_callback(weir_device *device)
{
    weir_resource *below, *mr;
    must_ok(weir_resource_open(device, "pool/device", &below));
    must_ok(weir_failure_callback_create(below, try_twice_more, below, NULL, &mr));
    weir_resource_unref(below);
    return mr;
}
