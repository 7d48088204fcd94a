/* resource.c - calls resources through their tables, and ends them.
 *
 * One number counts a resource's references and its blocks that are out. It dies when
 * both are none, so that memory can come back after the last unref. Some resources of
 * our own count their blocks themselves (resource_internal.h). A resource holds a
 * reference to its upstream and to its device, and lets go of both after its own
 * destroy.
 *
 * Resources call each other through here. Only the outermost call of a thread tells the
 * device's ledger whose bytes change hands: what a resource draws from another is its
 * own business. */
#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "current.h"
#include "device/device.h"
#include "internal.h"
#include "resource_parts.h"
#include "stream_order.h"
#include "sync.h"

/* ---- who lives how long ---- */

static void destroy(weir_resource *mr)
{
    weir__thread *thread = weir__thread_self();
    thread->depth++;
    mr->ops.destroy(mr->self);
    thread->depth--;

    weir_resource *upstream = mr->upstream;
    weir_resource *second = mr->second;
    weir_device *device = mr->device;
    weir__host_free(mr);
    weir_resource_unref(upstream);
    weir_resource_unref(second);
    weir_device_unref(device);
}

weir_resource *weir_resource_ref(weir_resource *mr)
{
    if (mr == NULL)
        return NULL;
    uint64_t before = atomic_fetch_add(&mr->counts, 1);
    WEIR_CHECK((before & REFERENCES_MASK) != 0, "referenced after the last unref");
    WEIR_CHECK((before & REFERENCES_MASK) != REFERENCES_MASK, "too many references");
    return mr;
}

void weir_resource_unref(weir_resource *mr)
{
    if (mr == NULL || weir__is_forked())
        return;
    uint64_t before = WEIR_UNLIKELY(mr->is_devices_own)
                          ? weir__current_own_unref(mr)
                          : atomic_fetch_sub(&mr->counts, 1);
    WEIR_CHECK((before & REFERENCES_MASK) != 0, "unreferenced too often");
    if (before == 1 && (mr->counting == NULL || mr->counting->close(mr->self)))
        destroy(mr);
}

void weir__resource_ended(weir_resource *mr)
{
    WEIR_CHECK(mr->counting != NULL && atomic_load(&mr->counts) == 0,
               "ended before its last unref");
    destroy(mr);
}

static void count_out(weir_resource *mr)
{
    uint64_t before = atomic_fetch_add(&mr->counts, ONE_BLOCK);
    WEIR_CHECK((before & REFERENCES_MASK) != 0, "allocated after the last unref");
    WEIR_CHECK(before >> 32 != UINT32_MAX, "more blocks than can be counted");
}

static void count_back(weir_resource *mr)
{
    uint64_t before = atomic_fetch_sub(&mr->counts, ONE_BLOCK);
    WEIR_CHECK(before >> 32 != 0, "more blocks came back than went out");
    if (before == ONE_BLOCK)
        destroy(mr);
}

/* ---- what the ledger is told ---- */

/* Nothing runs yet of what is captured, so the stream says nothing about it. */
static weir_stream stream_for_ledger(weir_resource *mr, weir_stream stream)
{
    if (stream == WEIR__NO_STREAM)
        return stream;
    const uint64_t capture = weir__order_captured_by(mr->device->order, stream);
    return capture != 0 ? weir__capture_stream(capture) : weir__stream_of(stream);
}

static WEIR_COLD void tell_allocate(weir_resource *mr, weir_stream stream, void *ptr,
                                    size_t bytes)
{
    mr->device->ops->note_allocate(mr->device->self, stream_for_ledger(mr, stream), ptr,
                                   bytes);
    if (mr->properties.usable_at_once)
        mr->device->ops->note_at_once(mr->device->self, ptr, bytes);
}

static WEIR_COLD void tell_extend(weir_resource *mr, weir_stream stream, void *ptr,
                                  size_t bytes, size_t new_bytes)
{
    mr->device->ops->note_extend(mr->device->self, stream_for_ledger(mr, stream), ptr,
                                 bytes, new_bytes);
    if (mr->properties.usable_at_once)
        mr->device->ops->note_at_once(mr->device->self, ptr, new_bytes);
}

/* Before the resource takes the block back, for afterwards it may be another thread's
 * already. So what the resource would refuse has to be known here. */
static WEIR_COLD void tell_deallocate(weir_resource *mr, weir_stream stream, void *ptr,
                                      size_t bytes, size_t alignment)
{
    if (mr->properties.can_find) {
        weir_block block = { .struct_size = sizeof block };
        if (weir_resource_find(mr, ptr, &block) != WEIR_OK || block.bytes != bytes ||
            block.alignment != alignment)
            return;
    }
    mr->device->ops->note_deallocate(mr->device->self, stream_for_ledger(mr, stream),
                                     ptr, bytes);
}

/* A resource above gives memory back: it may know this to be done of other threads and
 * streams, and who gets it next asks about `stream` alone. */
static WEIR_COLD void tell_given_below(weir_resource *mr, weir_stream stream)
{
    mr->device->ops->note_deallocate(mr->device->self, stream_for_ledger(mr, stream),
                                     NULL, 0);
}

/* ---- allocation ---- */

static WEIR_COLD weir_status check_alignment(weir_resource *mr, size_t alignment)
{
    if (!is_power_of_two(alignment))
        return weir__fail(WEIR_INVALID_ARGUMENT, "alignment %zu is no power of two",
                          alignment);
    if (alignment > mr->properties.max_alignment)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "alignment %zu is above %zu, the largest of %s", alignment,
                          mr->properties.max_alignment, mr->ops.name);
    return WEIR_OK;
}

static weir_status refuse_if_lost(weir_resource *mr)
{
    if (!weir__device_is_lost(mr->device))
        return WEIR_OK;
    return weir__fail(WEIR_DEVICE_LOST, "%s is lost: %s allocates no more",
                      mr->device->name, mr->ops.name);
}

/* A table made by others may answer success with an address that is none. */
static WEIR_COLD weir_status refuse_address(weir_resource *mr, weir_stream stream,
                                            void *ptr, size_t bytes, size_t alignment)
{
    if (ptr != NULL)
        (void)mr->ops.deallocate(mr->self, stream, ptr, bytes, alignment);
    return weir__fail(WEIR_DEVICE_ERROR,
                      "%s allocated %zu bytes at %p, which is not aligned to %zu",
                      mr->ops.name, bytes, ptr, alignment);
}

/* Whether a request goes to the resource. */
static inline bool is_plain(weir_resource *mr, size_t bytes, size_t alignment)
{
    return mr != NULL && bytes != 0 && is_power_of_two(alignment) &&
           alignment <= mr->max_alignment && !weir__device_is_lost(mr->device);
}

/* The answer to one that does not: zero bytes need no resource, all else is refused. */
static WEIR_COLD weir_status answer_alone(weir_resource *mr, size_t bytes,
                                          size_t alignment)
{
    if (mr == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is null");
    weir_status status = check_alignment(mr, alignment);
    if (status != WEIR_OK || bytes == 0)
        return status;
    return refuse_if_lost(mr);
}

/* A table made by others may refuse without a word: what is left there of an older
 * failure is not about this one. */
static WEIR_COLD weir_status speak_for(const weir_resource *mr, weir_status status,
                                       size_t bytes)
{
    const weir_out_of_memory report = { .requested_bytes = bytes,
                                        .limit_bytes = SIZE_MAX,
                                        .resource = mr->ops.name };
    if (status == WEIR_OUT_OF_MEMORY || status == WEIR_LIMIT_REACHED)
        return weir__fail_memory(status, &report);
    return weir__fail(status, "%s refused %zu bytes: %s", mr->ops.name, bytes,
                      weir_status_string(status));
}

static inline weir_status allocate_by_table(weir_resource *mr, weir_stream stream,
                                            size_t bytes, size_t alignment, void **out)
{
    void *ptr = NULL;
    const uint64_t said = weir__error_number();
    weir_status status = mr->ops.allocate(mr->self, stream, bytes, alignment, &ptr);
    if (status == WEIR_OK && (ptr == NULL || ((uintptr_t)ptr & (alignment - 1)) != 0))
        status = refuse_address(mr, stream, ptr, bytes, alignment);
    if (status != WEIR_OK)
        return weir__error_number() == said ? speak_for(mr, status, bytes) : status;
    if (mr->counting == NULL)
        count_out(mr);
    *out = ptr;
    return WEIR_OK;
}

/* With whatever there is to do around the resource's own part. */
static __attribute__((noinline)) weir_status
allocate_watched(weir_resource *mr, weir_stream stream, size_t bytes, size_t alignment,
                 void **out)
{
    weir__thread *thread = weir__thread_self();
    thread->depth++;
    weir_status status =
        WEIR_UNLIKELY(mr->quick_is_watched)
            ? mr->counting->allocate(mr, stream, bytes, alignment, out)
            : allocate_by_table(mr, stream, bytes, alignment, out);
    thread->depth--;
    if (status == WEIR_OK && mr->listens && thread->depth == 0)
        tell_allocate(mr, stream, *out, bytes);
    return status;
}

/* In a stepped run or a fork's child, or what does not go to the resource. */
static WEIR_COLD weir_status
allocate_otherwise(weir_resource *mr, weir_stream stream, size_t bytes,
                   size_t alignment, void **out)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (!is_plain(mr, bytes, alignment))
        return answer_alone(mr, bytes, alignment);
    return allocate_watched(mr, stream, bytes, alignment, out);
}

weir_status weir__allocate_fully(weir_resource *mr, weir_stream stream,
                                 size_t bytes, size_t alignment, void **out)
{
    if (WEIR_UNLIKELY(out == NULL))
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    if (WEIR_UNLIKELY(weir__must_enter(&weir__own_thread) ||
                      !is_plain(mr, bytes, alignment)))
        return allocate_otherwise(mr, stream, bytes, alignment, out);
    return allocate_watched(mr, stream, bytes, alignment, out);
}

weir_status weir__allocate_rest(weir_resource *mr, weir_stream stream,
                                size_t bytes, size_t alignment, void **out)
{
    return WEIR_UNLIKELY(mr->quick_is_watched)
               ? allocate_by_table(mr, stream, bytes, alignment, out)
               : weir__allocate_fully(mr, stream, bytes, alignment, out);
}

weir_status weir_allocate(weir_resource *mr, weir_stream stream,
                          size_t bytes, size_t alignment, void **out)
{
    if (WEIR_UNLIKELY(mr == NULL))
        return weir__allocate_fully(mr, stream, bytes, alignment, out);
    return mr->allocate(mr, stream, bytes, alignment, out);
}

weir_status weir_resource_extend(weir_resource *mr, weir_stream stream, void *ptr,
                                 size_t bytes, size_t alignment, size_t new_bytes)
{
    weir_status status = weir__resource_enter(mr);
    if (status != WEIR_OK)
        return status;
    status = check_alignment(mr, alignment);
    if (status != WEIR_OK)
        return status;
    if (ptr == NULL || bytes == 0 || new_bytes <= bytes)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "a block of %zu bytes at %p cannot be extended to %zu", bytes,
                          ptr, new_bytes);
    if (mr->ops.extend == NULL)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s cannot extend a block in place",
                          mr->ops.name);
    status = refuse_if_lost(mr);
    if (status != WEIR_OK)
        return status;

    weir__thread *thread = weir__thread_self();
    const uint64_t said = weir__error_number();
    thread->depth++;
    status = mr->ops.extend(mr->self, stream, ptr, bytes, alignment, new_bytes);
    thread->depth--;
    if (status != WEIR_OK && weir__error_number() == said)
        return speak_for(mr, status, new_bytes);
    if (status == WEIR_OK && mr->listens && thread->depth == 0)
        tell_extend(mr, stream, ptr, bytes, new_bytes);
    return status;
}

weir_status weir_resource_cut(weir_resource *mr, void *ptr, size_t bytes,
                              size_t alignment, size_t wanted_bytes, size_t *from,
                              size_t *to)
{
    weir_status status = weir__resource_enter(mr);
    if (status == WEIR_OK && (from == NULL || to == NULL))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "from or to is null");
    if (status == WEIR_OK)
        status = check_alignment(mr, alignment);
    if (status != WEIR_OK)
        return status;
    if (ptr == NULL || *from >= *to || *to > bytes || wanted_bytes == 0)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%zu bytes, from %zu to %zu of a block of %zu at %p, cannot "
                          "be cut out", wanted_bytes, *from, *to, bytes, ptr);
    if (mr->ops.cut == NULL)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s cannot cut a block", mr->ops.name);

    weir__thread *thread = weir__thread_self();
    size_t begin = *from, end = *to;
    thread->depth++;
    status = mr->ops.cut(mr->self, ptr, bytes, alignment, wanted_bytes, &begin, &end);
    thread->depth--;
    if (status != WEIR_OK)
        return status;
    for (int more = begin < end ? (begin > 0) + (end < bytes) : 0;
         more > 0 && mr->counting == NULL; more--)
        count_out(mr);
    if (begin < end && mr->listens && thread->depth == 0)
        mr->device->ops->note_cut(mr->device->self, ptr, bytes, begin, end);
    *from = begin;
    *to = end;
    return WEIR_OK;
}

/* ---- deallocation ---- */

/* Where none is out, what an adaptor finds was handed out to others. What nobody finds
 * has a story that only who keeps the records can tell. */
static WEIR_COLD bool knows_the_story_of(weir_resource *mr, const void *ptr)
{
    weir_block block;
    return mr->properties.can_find &&
           weir__resource_find_any(mr, ptr, &block) != WEIR_OK;
}

/* Whether such a block could be out at all, or the resource is the one to say why it
 * is not. */
static inline bool could_be_out(weir_resource *mr, const void *ptr, size_t bytes,
                                size_t alignment)
{
    return mr != NULL && bytes != 0 && is_power_of_two(alignment) &&
           (weir__may_have_blocks_out(mr) || knows_the_story_of(mr, ptr));
}

/* Tells the misuse handler why not. */
static WEIR_COLD void tell_cannot_be_out(weir_resource *mr, void *ptr, size_t bytes,
                                         size_t alignment)
{
    if (mr == NULL)
        weir__misuse(WEIR_MISUSE_FOREIGN_POINTER, ptr, bytes,
                     "%p is given back to no resource (null)", ptr);
    else if (bytes == 0 || !is_power_of_two(alignment))
        weir__misuse(WEIR_MISUSE_WRONG_SIZE, ptr, bytes,
                     "%s: %p comes back with %zu bytes, alignment %zu: no block has "
                     "these",
                     mr->ops.name, ptr, bytes, alignment);
    else
        weir__misuse(WEIR_MISUSE_FOREIGN_POINTER, ptr, bytes,
                     "%s: %p comes back, and no block is out", mr->ops.name, ptr);
}

/* As allocate_watched. */
static __attribute__((noinline)) bool
deallocate_watched(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes,
                   size_t alignment)
{
    weir__thread *thread = weir__thread_self();
    bool counts_itself = mr->counting != NULL; /* afterwards mr may be gone */
    if (mr->listens && thread->depth == 0)
        tell_deallocate(mr, weir__stream_of(stream), ptr, bytes, alignment);
    else if (mr->listens)
        tell_given_below(mr, stream);
    thread->depth++;
    bool done = WEIR_UNLIKELY(mr->quick_is_watched)
                    ? mr->counting->deallocate(mr, stream, ptr, bytes, alignment)
                    : mr->ops.deallocate(mr->self, stream, ptr, bytes, alignment);
    thread->depth--;
    if (done && !counts_itself)
        count_back(mr);
    return done;
}

static WEIR_COLD bool
deallocate_otherwise(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes,
                     size_t alignment)
{
    if (weir__enter() != WEIR_OK)
        return true;
    if (could_be_out(mr, ptr, bytes, alignment))
        return deallocate_watched(mr, stream, ptr, bytes, alignment);
    tell_cannot_be_out(mr, ptr, bytes, alignment);
    return false;
}

bool weir__deallocate_fully(weir_resource *mr, weir_stream stream,
                            void *ptr, size_t bytes, size_t alignment)
{
    if (ptr == NULL)
        return true;
    if (WEIR_UNLIKELY(weir__must_enter(&weir__own_thread) ||
                      !could_be_out(mr, ptr, bytes, alignment)))
        return deallocate_otherwise(mr, stream, ptr, bytes, alignment);
    return deallocate_watched(mr, stream, ptr, bytes, alignment);
}

bool weir__deallocate_rest(weir_resource *mr, weir_stream stream,
                           void *ptr, size_t bytes, size_t alignment)
{
    return WEIR_UNLIKELY(mr->quick_is_watched)
               ? mr->ops.deallocate(mr->self, stream, ptr, bytes, alignment)
               : weir__deallocate_fully(mr, stream, ptr, bytes, alignment);
}

bool weir_deallocate(weir_resource *mr, weir_stream stream,
                     void *ptr, size_t bytes, size_t alignment)
{
    if (WEIR_UNLIKELY(mr == NULL))
        return weir__deallocate_fully(mr, stream, ptr, bytes, alignment);
    return mr->deallocate(mr, stream, ptr, bytes, alignment);
}

/* Puts the legacy stream behind all points; in a device that is lost nothing needs it.
 * False: it cannot be, and neither can the host wait. */
static bool legacy_follows(weir_device *device, const weir_point *points, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (weir_stream_wait_point(device, WEIR_STREAM_LEGACY, points[i]) != WEIR_OK &&
            weir_point_sync(device, points[i]) != WEIR_OK &&
            !weir__device_is_lost(device))
            return false;
    }
    return true;
}

/* Else the misuse is told. */
static bool are_points(const weir_resource *mr, const void *ptr, size_t bytes,
                       const weir_point *points, size_t count)
{
    if (points == NULL && count != 0) {
        weir__misuse(WEIR_MISUSE_WRONG_STREAM, ptr, bytes,
                     "%s: %p comes back behind %zu points, and they are null",
                     mr->ops.name, ptr, count);
        return false;
    }
    for (size_t i = 0; i < count; i++) {
        const weir__mark mark = { points[i].clock, points[i].mark };
        if (!weir__order_has(mr->device->order, mark)) {
            weir__misuse(WEIR_MISUSE_WRONG_STREAM, ptr, bytes,
                         "%s: %p comes back behind points, and number %zu is none of "
                         "%s, as it is open now",
                         mr->ops.name, ptr, i, mr->device->name);
            return false;
        }
    }
    return true;
}

/* The legacy stream is behind all that the block is behind, or this thread knows that
 * to be done; who gets it next asks about the legacy stream alone. */
static bool deallocate_on_legacy(weir_resource *mr, void *ptr, size_t bytes,
                                 size_t alignment)
{
    if (mr->listens)
        tell_given_below(mr, WEIR_STREAM_LEGACY);
    return mr->ops.deallocate(mr->self, WEIR_STREAM_LEGACY, ptr, bytes, alignment);
}

bool weir_deallocate_after(weir_resource *mr, void *ptr, size_t bytes, size_t alignment,
                           const weir_point *points, size_t count)
{
    if (ptr == NULL || weir__enter() != WEIR_OK)
        return true;
    if (!could_be_out(mr, ptr, bytes, alignment)) {
        tell_cannot_be_out(mr, ptr, bytes, alignment);
        return false;
    }
    if (!are_points(mr, ptr, bytes, points, count))
        return false;

    weir__thread *thread = weir__thread_self();
    bool counts_itself = mr->counting != NULL; /* afterwards mr may be gone */
    if (mr->listens && thread->depth == 0)
        tell_deallocate(mr, WEIR__NO_STREAM, ptr, bytes, alignment);
    thread->depth++;
    bool done = false;
    bool is_left_out = false;
    if (mr->ops.deallocate_after != NULL)
        done = mr->ops.deallocate_after(mr->self, ptr, bytes, alignment, points, count);
    else if (legacy_follows(mr->device, points, count))
        done = deallocate_on_legacy(mr, ptr, bytes, alignment);
    else
        is_left_out = true;
    thread->depth--;
    if (done && !counts_itself)
        count_back(mr);
    return done || is_left_out;
}

bool weir_free(weir_resource *mr, void *ptr)
{
    if (ptr == NULL || weir__enter() != WEIR_OK)
        return true;
    if (!could_be_out(mr, ptr, 1, 1)) {
        tell_cannot_be_out(mr, ptr, 1, 1);
        return false;
    }
    weir_block block = { .struct_size = sizeof block };
    weir_status status = weir_resource_find(mr, ptr, &block);
    if (status == WEIR_OK)
        return weir_deallocate(mr, block.stream, ptr, block.bytes, block.alignment);
    if (status != WEIR_NOT_FOUND) {
        weir__misuse(WEIR_MISUSE_FOREIGN_POINTER, ptr, 0,
                     "%s: %p cannot be freed by its address: %s", mr->ops.name, ptr,
                     weir_last_error().message);
        return false;
    }
    /* What is not out has a story that only the resource can tell; and it is not out
     * with this many bytes, whatever other threads do meanwhile. */
    bool done = mr->ops.deallocate(mr->self, WEIR_STREAM_LEGACY, ptr, SIZE_MAX, 1);
    WEIR_CHECK(!done, "a block that was not out came back");
    return false;
}
