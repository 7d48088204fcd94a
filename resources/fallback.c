/* fallback.c - asks a primary resource, and an alternate one where that has no room.
 *
 * Whose a block is, its address does not tell. The alternate's have records; all others
 * are the primary's. A record is there before its block is handed out, and gone before
 * its block goes back: from then on the primary may hand out the same address, where
 * both draw from one place below. */
#include "weir/fallback.h"

#include <stdio.h>

#include "few_blocks.h"
#include "internal.h"
#include "resource_internal.h"

typedef struct fallback {
    weir_resource *primary, *alternate; /* counted by the resource */
    atomic_uint_least64_t failures;
    weir__few_blocks of_alternate;
} fallback;

static bool is_no_room(weir_status status)
{
    return status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED;
}

/* ---- allocation ---- */

/* Half of what the thread's last error has room for. */
typedef struct sentence {
    char text[190];
} sentence;

static sentence last_sentence(void)
{
    sentence it;
    snprintf(it.text, sizeof it.text, "%s", weir_last_error().message);
    return it;
}

/* Both have refused; the last error is the alternate's. */
static weir_status refuse(weir_status status, const sentence *primary)
{
    sentence alternate = last_sentence();
    return weir__fail_native(status, weir_last_error().native_code,
                             "fallback: %s; and then %s", primary->text,
                             alternate.text);
}

/* The primary has just refused. */
static weir_status ask_alternate(fallback *self, weir_stream stream, size_t bytes,
                                 size_t alignment, void **out)
{
    sentence primary = last_sentence();
    weir__block_record *record = weir__host_alloc(sizeof *record);
    if (record == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "fallback: no memory for the record of a block");
    *record = (weir__block_record){ .bytes = bytes, .alignment = alignment,
                                    .stream = stream, .state = WEIR__BLOCK_OUT };
    weir_status status = weir_allocate(self->alternate, stream, bytes, alignment,
                                       &record->ptr);
    if (status != WEIR_OK) {
        weir__host_free(record);
        return is_no_room(status) ? refuse(status, &primary) : status;
    }
    *out = record->ptr;
    weir__few_blocks_insert(&self->of_alternate, record);
    return WEIR_OK;
}

static weir_status fallback_allocate(void *context, weir_stream stream,
                                     size_t bytes, size_t alignment, void **out)
{
    fallback *self = context;
    weir_status status = weir_allocate(self->primary, stream, bytes, alignment, out);
    if (is_no_room(status))
        status = ask_alternate(self, stream, bytes, alignment, out);
    if (status != WEIR_OK)
        atomic_fetch_add(&self->failures, 1);
    return status;
}

static weir_status fallback_extend(void *context, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment, size_t new_bytes)
{
    fallback *self = context;
    if (!weir__few_blocks_find(&self->of_alternate, ptr, NULL))
        return weir_resource_extend(self->primary, stream, ptr, bytes, alignment,
                                    new_bytes);
    weir_status status = weir_resource_extend(self->alternate, stream, ptr, bytes,
                                              alignment, new_bytes);
    if (status == WEIR_OK)
        weir__few_blocks_resize(&self->of_alternate, ptr, new_bytes);
    return status;
}

/* ---- deallocation ---- */

/* Decides where a block goes back to. Null: nowhere, and the misuse handler was told.
 * *record is the alternate's, taken out, or null. */
static weir_resource *owner_of(fallback *self, void *ptr, size_t bytes,
                               size_t alignment, weir__block_record **record)
{
    weir__block_fault fault;
    *record = weir__few_blocks_take(&self->of_alternate, ptr, bytes, alignment, &fault);
    if (fault.kind != 0) {
        weir__block_report(&fault, "fallback", ptr, bytes, alignment);
        return NULL;
    }
    return *record == NULL ? self->primary : self->alternate;
}

/* After the owner's answer. */
static bool settle(fallback *self, weir__block_record *record, bool done)
{
    if (done)
        weir__host_free(record);
    else if (record != NULL)
        weir__few_blocks_reinsert(&self->of_alternate, record);
    return done;
}

static bool fallback_deallocate(void *context, weir_stream stream,
                                void *ptr, size_t bytes, size_t alignment)
{
    fallback *self = context;
    weir__block_record *record;
    weir_resource *owner = owner_of(self, ptr, bytes, alignment, &record);
    if (owner == NULL)
        return false;
    return settle(self, record,
                  weir_deallocate(owner, stream, ptr, bytes, alignment));
}

static bool fallback_deallocate_after(void *context, void *ptr, size_t bytes,
                                      size_t alignment, const weir_point *points,
                                      size_t count)
{
    fallback *self = context;
    weir__block_record *record;
    weir_resource *owner = owner_of(self, ptr, bytes, alignment, &record);
    if (owner == NULL)
        return false;
    return settle(self, record,
                  weir_deallocate_after(owner, ptr, bytes, alignment, points, count));
}

/* ---- questions ---- */

static weir_resource *fallback_upstream(void *context)
{
    fallback *self = context;
    return self->primary;
}

static weir_resource *fallback_second_upstream(void *context)
{
    fallback *self = context;
    return self->alternate;
}

static weir_status fallback_find(void *context, const void *ptr, weir_block *out)
{
    fallback *self = context;
    if (weir__few_blocks_find(&self->of_alternate, ptr, out))
        return WEIR_OK;
    out->struct_size = sizeof *out;
    return weir_resource_find(self->primary, ptr, out);
}

static void add_statistics(weir_resource *mr, weir_resource_statistics *sum)
{
    weir_resource_statistics one = { .struct_size = sizeof one };
    if (weir_resource_get_statistics(mr, &one) != WEIR_OK)
        return;
    sum->out_bytes += one.out_bytes;
    sum->out_blocks += one.out_blocks;
    sum->peak_out_bytes += one.peak_out_bytes;
    sum->held_bytes += one.held_bytes;
    sum->peak_held_bytes += one.peak_held_bytes;
    sum->free_bytes += one.free_bytes;
    sum->free_blocks += one.free_blocks;
    if (sum->largest_free_bytes < one.largest_free_bytes)
        sum->largest_free_bytes = one.largest_free_bytes;
    sum->kept_bytes += one.kept_bytes;
    sum->set_aside_bytes += one.set_aside_bytes;
    sum->allocations += one.allocations;
    sum->deallocations += one.deallocations;
    sum->leaked_bytes += one.leaked_bytes;
}

static void fallback_statistics(void *context, weir_resource_statistics *out)
{
    fallback *self = context;
    add_statistics(self->primary, out);
    if (weir__resource_counting(self->primary) !=
        weir__resource_counting(self->alternate))
        add_statistics(self->alternate, out);
    out->failures = atomic_load(&self->failures);
}

static void fallback_destroy(void *context)
{
    fallback *self = context;
    weir__few_blocks_finish(&self->of_alternate);
    weir__host_free(self);
}

static const weir_resource_ops fallback_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "fallback",
    .allocate = fallback_allocate,
    .deallocate = fallback_deallocate,
    .destroy = fallback_destroy,
    .upstream = fallback_upstream,
    .statistics = fallback_statistics,
    .find = fallback_find,
    .deallocate_after = fallback_deallocate_after,
    .extend = fallback_extend,
    .second_upstream = fallback_second_upstream,
};

/* ---- creation ---- */

static bool has_statistics(weir_resource *mr)
{
    weir_resource_statistics now = { .struct_size = sizeof now };
    return weir_resource_get_statistics(mr, &now) == WEIR_OK;
}

/* The table without what the two cannot do together. */
static weir_status choose_ops(const fallback *self, weir_resource_ops *ops)
{
    weir_resource_properties one = { .struct_size = sizeof one };
    weir_resource_properties other = { .struct_size = sizeof other };
    weir_status status = weir_resource_get_properties(self->primary, &one);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(self->alternate, &other);
    if (status != WEIR_OK)
        return status;
    *ops = fallback_ops;
    if (!one.can_find || !other.can_find)
        ops->find = NULL;
    if (!one.can_extend && !other.can_extend)
        ops->extend = NULL;
    if (!has_statistics(self->primary) || !has_statistics(self->alternate))
        ops->statistics = NULL;
    return WEIR_OK;
}

weir_status weir_fallback_create(weir_resource *primary, weir_resource *alternate,
                                 weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (primary == NULL || alternate == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the %s is null",
                          primary == NULL ? "primary" : "alternate");
    if (primary == alternate)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "the alternate is the primary: it has no more room");

    fallback *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource fallback");
    self->primary = primary;
    self->alternate = alternate;
    atomic_init(&self->failures, 0);
    status = weir__few_blocks_init(&self->of_alternate);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir_resource_ops ops;
    status = choose_ops(self, &ops);
    if (status == WEIR_OK)
        status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        fallback_destroy(self);
    return status;
}
