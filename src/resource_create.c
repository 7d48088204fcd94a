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
    if (ops->second_upstream && !ops->upstream)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s has a second upstream, and no "
                          "first", ops->name);
    if (!ops->upstream && !ops->properties)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s has no upstream, and does not tell its properties",
                          ops->name);
    return WEIR_OK;
}

/* Leaves of `properties` what `other` promises, too. */
static void keep_common(weir_resource_properties *properties,
                        const weir_resource_properties *other)
{
    if (properties->max_alignment > other->max_alignment)
        properties->max_alignment = other->max_alignment;
    properties->device_accessible &= other->device_accessible;
    properties->host_accessible &= other->host_accessible;
    properties->managed &= other->managed;
    properties->pinned &= other->pinned;
    properties->usable_at_once &= other->usable_at_once;
    properties->pages_usable_at_once &= other->pages_usable_at_once;
    properties->remaps &= other->remaps;
    if (properties->share_kind != other->share_kind)
        properties->share_kind = WEIR_SHARE_NONE;
    properties->can_trim |= other->can_trim;
    properties->can_find = false; /* one alone does not find them all */
}

static weir_status ask_properties(weir_resource *mr)
{
    const weir_resource_ops *ops = &mr->ops;
    weir_resource_properties *properties = &mr->properties;
    weir_resource_properties upstream = { .max_alignment = WEIR_ALIGNMENT,
                                          .leaf = ops->name };
    if (mr->upstream != NULL)
        upstream = mr->upstream->properties;
    if (mr->second != NULL)
        keep_common(&upstream, &mr->second->properties);
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
    properties->pages_usable_at_once |= properties->usable_at_once;
    if (ops->cut == NULL) {
        properties->cut_bytes = 0;
        properties->remaps = false;
    }
    properties->can_find = ops->find != NULL || upstream.can_find;
    if (mr->upstream != NULL)
        properties->device = upstream.device;
    if (properties->device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s tells no device", ops->name);
    if (ops->cut != NULL && !is_power_of_two(properties->cut_bytes))
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s cuts blocks at multiples of %zu: no power of two",
                          ops->name, properties->cut_bytes);
    if (!is_power_of_two(properties->max_alignment))
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "the largest alignment of %s is %zu: no power of two",
                          ops->name, properties->max_alignment);
    return WEIR_OK;
}

/* Asks what it draws from. */
static weir_status ask_upstreams(weir_resource *mr)
{
    const weir_resource_ops *ops = &mr->ops;
    if (ops->upstream == NULL)
        return WEIR_OK;
    mr->upstream = ops->upstream(mr->self);
    if (mr->upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream of %s is null",
                          ops->name);
    if (ops->second_upstream == NULL)
        return WEIR_OK;
    mr->second = ops->second_upstream(mr->self);
    if (mr->second == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the second upstream of %s is null",
                          ops->name);
    if (mr->second->device != mr->upstream->device)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%s draws from %s of %s and from %s of %s: two devices",
                          ops->name, mr->upstream->ops.name, mr->upstream->device->name,
                          mr->second->ops.name, mr->second->device->name);
    return WEIR_OK;
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
    status = ask_upstreams(&made);
    if (status == WEIR_OK)
        status = ask_properties(&made);
    if (status != WEIR_OK)
        return status;

    weir_resource *mr = weir__host_alloc(sizeof *mr);
    if (mr == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a resource");
    memcpy(mr, &made, sizeof made);
    atomic_init(&mr->counts, 1);
    mr->max_alignment = made.properties.max_alignment;
    mr->listens = made.properties.device->listens;
    const bool is_quick = counting != NULL && counting->allocate != NULL;
    mr->quick_is_watched = is_quick && mr->listens;
    const bool is_short = is_quick && !mr->quick_is_watched;
    mr->allocate = is_short ? counting->allocate : weir__allocate_fully;
    mr->deallocate = is_short ? counting->deallocate : weir__deallocate_fully;
    mr->device = weir_device_ref(made.properties.device);
    if (mr->upstream != NULL)
        weir_resource_ref(mr->upstream);
    if (mr->second != NULL)
        weir_resource_ref(mr->second);
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
