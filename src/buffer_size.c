/* buffer_size.c - buffers that grow, shrink, are copied, and become owners: whatever
 * moves bytes to a block of their own. */
#include "buffer_internal.h"
#include "internal.h"
#include "pending.h"
#include "weir/resource_ops.h"

/* ---- checks ---- */

/* Capacities are multiples of what all memory is aligned to. */
static weir_status round_up(size_t bytes, size_t *out)
{
    *out = 0;
    if (bytes > SIZE_MAX - WEIR_ALIGNMENT)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no buffer has %zu bytes", bytes);
    *out = (bytes + WEIR_ALIGNMENT - 1) & ~(WEIR_ALIGNMENT - 1);
    return WEIR_OK;
}

/* NOT_OWNED unless the buffer is empty, or alone on a block. */
static weir_status check_owner(const weir_buffer *buffer)
{
    const weir_storage *storage = buffer->storage;
    if (storage == NULL && buffer->data == NULL)
        return WEIR_OK;
    weir_status status = weir__buffer_owns(buffer, "to change its size");
    if (status != WEIR_OK)
        return status;
    if (!storage->is_block)
        return weir__fail(WEIR_NOT_OWNED, "foreign memory keeps its size");
    return weir__storage_is_alone(storage) ? WEIR_OK : weir__buffer_refuse_shared();
}

static weir_status check_resource(const weir_resource *mr)
{
    if (mr != NULL)
        return WEIR_OK;
    return weir__fail(WEIR_NOT_SUPPORTED, "the buffer has no resource to allocate in");
}

/* For a copy to memory of `mr`; whose a view's bytes are nobody knows. */
static weir_status check_device(const weir_buffer *from, weir_resource *mr)
{
    if (from->storage == NULL || from->storage->device == weir_resource_device(mr))
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT,
                      "the bytes are another device's than the resource");
}

/* What the functions begin with that change a size: the stream is to be the buffer's
 * own. */
static weir_status begin(weir_buffer *buffer, weir_stream stream, weir__holder *holder)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status == WEIR_OK)
        status = check_owner(buffer);
    if (status == WEIR_OK)
        status = check_resource(buffer->resource);
    if (status == WEIR_OK)
        status = weir__holder_make(weir_resource_device(buffer->resource), stream,
                                   holder);
    return status;
}

/* `stream` waits for what the buffer's own stream has done, and other writers. */
static weir_status follow(const weir_buffer *buffer, weir_stream stream)
{
    if (buffer->storage == NULL)
        return WEIR_OK;
    return weir__storage_wait(buffer->storage, weir__buffer_holder(buffer), stream,
                              WEIR_READ);
}

/* What follows is one of two: the buffer settles on the stream that has followed, or
 * stays on its own. */
static void set_out(const weir_buffer *buffer)
{
    if (buffer->storage != NULL)
        weir__storage_set_out(buffer->storage, weir__buffer_holder(buffer));
}

static void settle(weir_buffer *buffer, weir__holder holder)
{
    if (buffer->storage != NULL)
        weir__storage_settle(buffer->storage, holder);
    weir__buffer_set_holder(buffer, holder);
}

static void stay(weir_buffer *buffer)
{
    settle(buffer, weir__buffer_holder(buffer));
}

/* The stream follows, and is the buffer's own. */
static weir_status take_over(weir_buffer *buffer, weir__holder holder)
{
    set_out(buffer);
    weir_status status = follow(buffer, holder.stream);
    if (status == WEIR_OK)
        settle(buffer, holder);
    else
        stay(buffer);
    return status;
}

/* ---- moving ---- */

/* Copies what `from` shows, or as much of it as there is room for, to a new block on
 * `holder`'s stream, which waits for the writers. */
static weir_status copy_to_new(const weir_buffer *from, weir_resource *mr,
                               size_t capacity, size_t alignment, weir__holder holder,
                               void **out)
{
    weir_status status = weir__pending_allocate(mr, holder.stream, capacity, alignment,
                                                out);
    if (status != WEIR_OK)
        return status;
    size_t bytes = from->size < capacity ? from->size : capacity;
    status = follow(from, holder.stream);
    if (status == WEIR_OK && bytes > 0)
        status = weir_copy(weir_resource_device(mr), holder.stream, *out, from->data,
                           bytes);
    if (status == WEIR_OK)
        return WEIR_OK;
    (void)weir_deallocate(mr, holder.stream, *out, capacity, alignment);
    *out = NULL;
    return status;
}

static size_t alignment_of(const weir_buffer *buffer)
{
    const weir_storage *storage = buffer->storage;
    return storage != NULL && storage->is_block ? storage->alignment : WEIR_ALIGNMENT;
}

/* True: nobody holds the storage now, and if `is_reused` nobody looks on, either. */
static bool claim(weir_storage *storage, bool is_reused)
{
    uint64_t was;
    WEIR_WINDOW(); /* whether anybody looks on was asked before */
    if (!weir__storage_claim(storage, &was))
        return false;
    if (!is_reused || !weir__storage_is_bound(storage))
        return true;
    weir__storage_unclaim(storage, was); /* somebody came, and has gone again */
    return false;
}

/* The block takes the place of the one that the buffer is alone on. Whoever knows that
 * weakly keeps its record. */
static weir_status put_in_place(weir_buffer *buffer, void *ptr, size_t capacity,
                                weir__holder holder)
{
    weir_resource *mr = buffer->resource;
    weir_storage *old = buffer->storage, *made = NULL;
    size_t alignment = alignment_of(buffer);
    if (weir__storage_is_bound(old)) {
        weir_status status = weir__storage_of_block(mr, ptr, capacity, alignment,
                                                    holder, &made);
        if (status != WEIR_OK)
            return status;
    }
    if (!claim(old, made == NULL)) {
        if (made != NULL)
            weir__storage_forget(made);
        return weir__buffer_refuse_shared();
    }
    if (made != NULL) {
        weir__storage_end_claimed(old, holder);
        buffer->storage = made;
    } else {
        weir__storage_replace(old, mr, ptr, capacity, alignment, holder);
    }
    buffer->data = ptr;
    buffer->capacity = capacity;
    weir__buffer_set_holder(buffer, holder);
    return WEIR_OK;
}

static weir_status move(weir_buffer *buffer, size_t capacity, weir__holder holder)
{
    void *ptr;
    size_t alignment = alignment_of(buffer);
    weir_resource *mr = buffer->resource;
    set_out(buffer);
    weir_status status = copy_to_new(buffer, mr, capacity, alignment, holder, &ptr);
    if (status == WEIR_OK) {
        status = put_in_place(buffer, ptr, capacity, holder);
        if (status == WEIR_OK)
            return WEIR_OK;
        weir__storage_use_surely(buffer->storage, holder.stream, WEIR_READ);
        (void)weir_deallocate(mr, holder.stream, ptr, capacity, alignment);
    }
    stay(buffer);
    return status;
}

/* True: the block is so long now, where it is. */
static bool extend(weir_buffer *buffer, size_t capacity, weir__holder holder)
{
    weir_storage *storage = buffer->storage;
    weir_resource_properties p = { .struct_size = sizeof p };
    if (buffer->data != storage->ptr || capacity <= storage->bytes ||
        weir_resource_get_properties(storage->resource, &p) != WEIR_OK ||
        !p.can_extend)
        return false;
    set_out(buffer);
    if (follow(buffer, holder.stream) != WEIR_OK ||
        weir_resource_extend(storage->resource, holder.stream, storage->ptr,
                             storage->bytes, storage->alignment, capacity) != WEIR_OK) {
        stay(buffer);
        return false;
    }
    storage->bytes = buffer->capacity = capacity;
    settle(buffer, holder);
    return true;
}

static weir_status grow(weir_buffer *buffer, size_t bytes, weir__holder holder)
{
    size_t capacity;
    weir_status status = round_up(bytes, &capacity);
    if (status != WEIR_OK)
        return status;
    if (buffer->storage != NULL)
        return extend(buffer, capacity, holder) ? WEIR_OK
                                                : move(buffer, capacity, holder);
    weir_buffer drawn;
    status = weir__buffer_draw(buffer->resource, capacity, WEIR_ALIGNMENT, holder,
                               &drawn);
    if (status != WEIR_OK)
        return status;
    weir_resource_unref(buffer->resource); /* the new one has its own */
    *buffer = drawn;
    buffer->size = 0;
    return WEIR_OK;
}

/* ---- size ---- */

weir_status weir_buffer_reserve(weir_buffer *buffer, size_t bytes, weir_stream stream)
{
    weir__holder holder;
    weir_status status = begin(buffer, stream, &holder);
    if (status != WEIR_OK)
        return status;
    if (bytes > buffer->capacity)
        return grow(buffer, bytes, holder);
    return take_over(buffer, holder);
}

weir_status weir_buffer_resize(weir_buffer *buffer, size_t bytes, weir_stream stream)
{
    weir_status status = weir_buffer_reserve(buffer, bytes, stream);
    if (status == WEIR_OK)
        buffer->size = bytes;
    return status;
}

weir_status weir_buffer_shrink(weir_buffer *buffer, weir_stream stream)
{
    weir__holder holder;
    weir_status status = begin(buffer, stream, &holder);
    if (status != WEIR_OK)
        return status;
    size_t least;
    status = round_up(buffer->size, &least);
    if (status == WEIR_OK && buffer->storage != NULL && buffer->size == 0) {
        weir__holder old = weir__buffer_holder(buffer);
        weir__storage_leave(buffer->storage, &old);
        buffer->data = NULL;
        buffer->capacity = 0;
        buffer->storage = NULL;
    } else if (status == WEIR_OK && buffer->storage != NULL &&
               least < buffer->storage->bytes) {
        return move(buffer, least, holder);
    }
    return status == WEIR_OK ? take_over(buffer, holder) : status;
}

/* ---- copies ---- */

/* A new buffer, with what `from` shows: noted there. */
static weir_status duplicate(weir_buffer *from, weir_resource *mr, weir_stream stream,
                             weir_buffer *out)
{
    weir__holder holder;
    weir_status status = weir__holder_make(weir_resource_device(mr), stream, &holder);
    if (status != WEIR_OK)
        return status;
    if (from->size == 0)
        return weir_buffer_init(mr, stream, out);
    void *ptr;
    size_t bytes = from->size, alignment = alignment_of(from);
    weir_storage *storage;
    status = copy_to_new(from, mr, bytes, alignment, holder, &ptr);
    if (status != WEIR_OK)
        return status;
    status = weir__storage_of_block(mr, ptr, bytes, alignment, holder, &storage);
    if (from->storage != NULL) /* whatever comes of it, it is read by now */
        weir__storage_use_surely(from->storage, stream, WEIR_READ);
    if (status == WEIR_OK)
        *out = weir__buffer_of(storage, mr, holder);
    else
        (void)weir_deallocate(mr, stream, ptr, bytes, alignment);
    return status;
}

weir_status weir_buffer_copy(weir_buffer *from, weir_resource *mr, weir_stream stream,
                             weir_buffer *out)
{
    if (out != NULL)
        *out = (weir_buffer){ .data = NULL };
    weir_status status = weir__buffer_enter(from, out);
    if (status == WEIR_OK && mr == NULL)
        mr = from->resource;
    if (status == WEIR_OK)
        status = check_resource(mr);
    if (status == WEIR_OK)
        status = check_device(from, mr);
    if (status == WEIR_OK)
        status = duplicate(from, mr, stream, out);
    return status;
}

weir_status weir_buffer_own(weir_buffer *buffer, weir_resource *mr, weir_stream stream)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status != WEIR_OK)
        return status;
    const weir_storage *storage = buffer->storage;
    if (storage != NULL && storage->is_block && weir__storage_is_alone(storage))
        return WEIR_OK;
    weir_buffer own = { .data = NULL };
    status = weir_buffer_copy(buffer, mr, stream, &own);
    if (status != WEIR_OK)
        return status;
    weir_buffer_reset(buffer);
    *buffer = own;
    return WEIR_OK;
}
