/* spec.c - builds a chain of resources from text: "statistics/pool/device".
 *
 * The text is read from its end, the leaf, so that each part stands on what is made
 * already; it keeps that alive, and so only the outermost is handed out. */
#include <string.h>

#include "internal.h"
#include "weir/leaves.h"
#include "weir/pool.h"
#include "weir/statistics.h"

/* Either of the two makers is set, or `advice` on how to get it otherwise. */
typedef struct part_kind {
    const char *name;
    weir_status (*make_leaf)(weir_device *device, weir_resource **out);
    weir_status (*make_above)(weir_resource *upstream, weir_resource **out);
    const char *advice;
} part_kind;

static weir_status make_default_pool(weir_resource *upstream, weir_resource **out)
{
    return weir_pool_create(upstream, NULL, out);
}

static const part_kind kinds[] = {
    { .name = "device", .make_leaf = weir_device_resource_create },
    { .name = "system", .make_leaf = weir_system_resource_create },
    { .name = "pool", .make_above = make_default_pool },
    { .name = "statistics", .make_above = weir_statistics_create },
    { .name = "limiting", .advice = "needs a limit: use weir_limiting_create" },
    { .name = "callback", .advice = "needs functions: use weir_callback_create" },
};

static const part_kind *find_kind(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strlen(kinds[i].name) == length && memcmp(kinds[i].name, name, length) == 0)
            return &kinds[i];
    }
    return NULL;
}

static int shown(size_t length)
{
    return length < 60 ? (int)length : 60;
}

/* Makes one part over what stands below it; null: it is the last one. */
static weir_status make_part(weir_device *device, const char *name, size_t length,
                             weir_resource *below, weir_resource **out)
{
    const part_kind *kind = find_kind(name, length);
    if (kind == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "no resource is called \"%.*s\": there are device, system, "
                          "pool and statistics",
                          shown(length), name);
    if (kind->advice != NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "\"%s\" %s", kind->name, kind->advice);
    if (kind->make_leaf != NULL && below != NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "\"%s\" draws from no other resource: it can only be the "
                          "last one",
                          kind->name);
    if (kind->make_above != NULL && below == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "\"%s\" draws from another resource, which must follow: "
                          "\"%s/device\"",
                          kind->name, kind->name);
    if (below == NULL)
        return kind->make_leaf(device, out);
    return kind->make_above(below, out);
}

/* Makes the parts of text[0, length), the last one first. */
static weir_status make_chain(weir_device *device, const char *text, size_t length,
                              weir_resource **out)
{
    weir_resource *below = NULL;
    for (;;) {
        size_t start = length;
        while (start > 0 && text[start - 1] != '/')
            start--;

        weir_resource *made = NULL;
        weir_status status = make_part(device, text + start, length - start, below,
                                       &made);
        weir_resource_unref(below);
        if (status != WEIR_OK)
            return status;
        below = made;
        if (start == 0)
            break;
        length = start - 1;
    }
    *out = below;
    return WEIR_OK;
}

weir_status weir_resource_open(weir_device *device, const char *spec,
                               weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL || spec == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the %s is null",
                          device == NULL ? "device" : "text that names resources");
    return make_chain(device, spec, strlen(spec), out);
}
