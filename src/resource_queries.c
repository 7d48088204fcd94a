/* resource_queries.c - what resources tell of themselves, alone and as a chain; and
 * trim, which goes down a chain in the same way. */
#include "internal.h"
#include "resource_parts.h"

/* Whether what it does not answer itself is asked of its upstream. */
static bool passes_on(const weir_resource *mr)
{
    return mr->upstream != NULL && mr->second == NULL;
}

weir_resource *weir__resource_below(weir_resource *mr)
{
    return passes_on(mr) ? mr->upstream : NULL;
}

weir_status weir__resource_find_any(weir_resource *mr, const void *ptr, weir_block *out)
{
    *out = (weir_block){ .struct_size = sizeof *out };
    while (mr->ops.find == NULL && passes_on(mr))
        mr = mr->upstream;
    if (mr->ops.find == NULL)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s keeps no record of its blocks",
                          mr->ops.name);
    return mr->ops.find(mr->self, ptr, out);
}

weir_status weir_resource_find(weir_resource *mr, const void *ptr, weir_block *out)
{
    const weir_block none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__resource_enter(mr);
    weir_block block;
    if (status == WEIR_OK)
        status = weir__resource_find_any(mr, ptr, &block);
    if (status == WEIR_OK && !weir__may_have_blocks_out(mr))
        status = weir__fail(WEIR_NOT_FOUND, "%s: %p is another's block: none is out",
                            mr->ops.name, ptr);
    if (status != WEIR_OK)
        return status;
    return weir__fill_out(out, &block, sizeof block);
}

weir_resource *weir__resource_counting(weir_resource *mr)
{
    while (mr != NULL && mr->ops.statistics == NULL)
        mr = weir__resource_below(mr);
    return mr;
}

/* What the second may keep beside what upstream holds, unless that is the same; who
 * does not tell how much it is leaves it nothing. */
static size_t keep_of_second(weir_resource *mr, size_t keep_bytes)
{
    weir_resource_statistics now = { .struct_size = sizeof now };
    weir_resource *counting = weir__resource_counting(mr->upstream);
    if (counting != NULL && counting == weir__resource_counting(mr->second))
        return keep_bytes;
    if (weir_resource_get_statistics(mr->upstream, &now) != WEIR_OK ||
        now.held_bytes >= keep_bytes)
        return 0;
    return keep_bytes - now.held_bytes;
}

static size_t trim_upstream(weir_resource *mr, size_t keep_bytes)
{
    if (mr->upstream == NULL)
        return 0;
    size_t bytes = weir_resource_trim_sync(mr->upstream, keep_bytes);
    if (mr->second != NULL)
        bytes += weir_resource_trim_sync(mr->second, keep_of_second(mr, keep_bytes));
    return bytes;
}

size_t weir_resource_trim_sync(weir_resource *mr, size_t keep_bytes)
{
    if (weir__resource_enter(mr) != WEIR_OK)
        return 0;
    if (mr->ops.trim_sync == NULL)
        return trim_upstream(mr, keep_bytes);
    weir__thread *thread = weir__thread_self();
    thread->depth++;
    size_t bytes = mr->ops.trim_sync(mr->self, keep_bytes);
    thread->depth--;
    return bytes;
}

weir_status weir_resource_get_properties(weir_resource *mr,
                                         weir_resource_properties *out)
{
    const weir_resource_properties none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__resource_enter(mr);
    if (status != WEIR_OK)
        return status;
    return weir__fill_out(out, &mr->properties, sizeof mr->properties);
}

weir_device *weir_resource_device(weir_resource *mr)
{
    return mr == NULL ? NULL : mr->device;
}

weir_resource *weir_resource_upstream(weir_resource *mr, size_t which)
{
    if (mr == NULL || which > 1)
        return NULL;
    return which == 0 ? mr->upstream : mr->second;
}

weir_status weir_resource_get_statistics(weir_resource *mr,
                                         weir_resource_statistics *out)
{
    const weir_resource_statistics none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__resource_enter(mr);
    if (status != WEIR_OK)
        return status;

    weir_resource *counting = weir__resource_counting(mr);
    if (counting == NULL)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s keeps no statistics", mr->ops.name);
    weir_resource_statistics statistics = none;
    counting->ops.statistics(counting->self, &statistics);
    return weir__fill_out(out, &statistics, sizeof statistics);
}

weir_status weir_resource_refuse(weir_status status, const char *message)
{
    if (status == WEIR_OK)
        return status;
    weir__failed(status, 0, "%s", message != NULL ? message
                                                  : weir_status_string(status));
    if (status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED)
        weir__report_memory(&(weir_out_of_memory){ .limit_bytes = SIZE_MAX,
                                                   .resource = "unnamed" });
    return status;
}

void weir_resource_report_misuse(const weir_misuse *misuse)
{
    if (misuse == NULL)
        return;
    weir__misuse(misuse->kind, misuse->ptr, misuse->bytes, "%s",
                 misuse->message != NULL ? misuse->message : "a rule was broken");
}
