/* resource_parts.h - what resource.c (calling resources), resource_create.c (making
 * them) and resource_queries.c (asking them) share. */
#ifndef WEIR_RESOURCE_PARTS_H
#define WEIR_RESOURCE_PARTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "internal.h"
#include "resource_internal.h"
#include "weir/resource.h"

/* What every call reads comes first. */
struct weir_resource {
    atomic_uint_least64_t counts; /* references, and blocks out in the upper half */
    weir__allocate_call *allocate;     /* what weir_allocate does: by its table, */
    weir__deallocate_call *deallocate; /* ... or as weir__counting has it */
    void *self;
    weir_device *device;          /* counted */
    size_t max_alignment;         /* as in the properties */
    const weir__counting *counting; /* null: the core counts the blocks */
    bool listens;                 /* there is a ledger to tell */
    bool quick_is_watched;        /* the quick calls of `counting` come behind all that
                                     is done around a call of the table */
    bool is_devices_own;          /* its default current one, and so counts itself */
    weir_resource *upstream;      /* counted; null: a leaf */
    weir_resource *second;        /* counted; null: it has no second upstream */
    weir_resource_properties properties;
    weir_resource_ops ops;        /* last: it grows with later versions */
};

/* In `counts`. */
#define ONE_BLOCK       (UINT64_C(1) << 32)
#define REFERENCES_MASK (ONE_BLOCK - 1)

/* Whether a block of `mr` may be out. Who counts itself is not asked. */
static inline bool weir__may_have_blocks_out(weir_resource *mr)
{
    return mr->counting != NULL || atomic_load(&mr->counts) >> 32 != 0;
}

/* weir_resource_find that does not ask whether the block may be of `mr`: an adaptor
 * finds what is its upstream's. *out is complete. */
weir_status weir__resource_find_any(weir_resource *mr, const void *ptr,
                                    weir_block *out);

/* What all calls begin with that take a resource and can fail. */
static inline weir_status weir__resource_enter(const weir_resource *mr)
{
    weir_status status = weir__enter();
    if (status == WEIR_OK && mr == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the resource is null");
    return status;
}

/* As weir_deallocate on the stream of `clock`, where that may be ending on another
 * thread. False: nothing was done. */
static inline bool weir__deallocate_of(weir_resource *mr, weir_stream stream,
                                       uint64_t clock, void *ptr, size_t bytes,
                                       size_t alignment)
{
    const weir__counting *counting = mr->counting;
    return counting != NULL && mr->deallocate == counting->deallocate &&
           counting->deallocate_of(mr, stream, clock, ptr, bytes, alignment);
}

static inline bool is_power_of_two(size_t n)
{
    return n != 0 && (n & (n - 1)) == 0;
}

#endif
