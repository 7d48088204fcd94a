/* resource_create.c - turns a table of operations into a resource.
 *
 * A table is completed once, when the resource is made: copied as far as its maker
 * knew it, checked, and filled up with defaults; upstream, device and properties are
 * asked for then, and never again. */
#include <string.h>

#include "device/device.h"
#include "internal.h"
#include "resource_parts.h"

/* The table as first published; nobody may offer less. */
#define OPS_SIZE_MIN (offsetof(weir_resource_ops, destroy) + sizeof(void (*)(void *)))

/* Writes a complete copy of `from`, or says why there can be none. */
static weir_status ops_read(const weir_resource_ops *from, weir_resource_ops *ops)
{
    weir_status status = weir__read_options(from, ops, sizeof *ops,
                                            "a resource's operations");
    if (status != WEIR_OK)
        return status;
    if (from->struct_size < OPS_SIZE_MIN)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "struct_size of a resource's operations is %zu; the required "
                          "ones need %zu",
                          from->struct_size, OPS_SIZE_MIN);
    if (!ops->name || !ops->allocate || !ops->deallocate || !ops->destroy)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a required member of a resource's operations is null");
    if (!ops->upstream && !ops->properties)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s has no upstream, and does not tell its properties",
                          ops->name);
    return WEIR_OK;
}

static weir_status ask_properties(weir_resource *mr)
{
    const weir_resource_ops *ops = &mr->ops;
    weir_resource_properties *properties = &mr->properties;
    weir_resource_properties upstream = { .max_alignment = WEIR_ALIGNMENT,
                                          .leaf = ops->name };
    if (mr->upstream != NULL)
        upstream = mr->upstream->properties;
    *properties = upstream;
    properties->name = ops->name;
    properties->can_trim = ops->trim_sync != NULL || upstream.can_trim;
    if (ops->properties != NULL)
        ops->properties(mr->self, properties);

    /* What nobody may tell otherwise. */
    properties->struct_size = sizeof *properties;
    properties->name = ops->name;
    properties->leaf = upstream.leaf;
    properties->can_extend = ops->extend != NULL;
    properties->can_find = ops->find != NULL || upstream.can_find;
    if (mr->upstream != NULL)
        properties->device = upstream.device;
    if (properties->device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s tells no device", ops->name);
    if (!is_power_of_two(properties->max_alignment))
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "the largest alignment of %s is %zu: no power of two",
                          ops->name, properties->max_alignment);
    return WEIR_OK;
}

static bool has_ledger(const weir_device *device)
{
    return device->ops->note_allocate != NULL && !device->emulated_options.no_ledger;
}

weir_status weir__resource_create_counting(const weir_resource_ops *ops,
                                           const weir__counting *counting, void *self,
                                           weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (ops == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "a resource's operations are null");

    weir_resource made = { .self = self, .counting = counting };
    status = ops_read(ops, &made.ops);
    if (status != WEIR_OK)
        return status;
    if (made.ops.upstream != NULL) {
        made.upstream = made.ops.upstream(self);
        if (made.upstream == NULL)
            return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream of %s is null",
                              made.ops.name);
    }
    status = ask_properties(&made);
    if (status != WEIR_OK)
        return status;

    weir_resource *mr = weir__host_alloc(sizeof *mr);
    if (mr == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a resource");
    memcpy(mr, &made, sizeof made);
    atomic_init(&mr->counts, 1);
    mr->max_alignment = made.properties.max_alignment;
    mr->knows_blocks = made.properties.can_find || counting != NULL;
    mr->listens = has_ledger(made.properties.device);
    mr->is_short = counting != NULL && !mr->listens;
    mr->device = weir_device_ref(made.properties.device);
    if (mr->upstream != NULL)
        weir_resource_ref(mr->upstream);
    *out = mr;
    return WEIR_OK;
}

weir_status weir_resource_create(const weir_resource_ops *ops, void *self,
                                 weir_resource **out)
{
    return weir__resource_create_counting(ops, NULL, self, out);
}

void *weir__resource_self(weir_resource *mr, const weir_resource_ops *ops)
{
    return mr != NULL && mr->ops.allocate == ops->allocate ? mr->self : NULL;
}
