/* buffer.c - windows on storage: how they begin, share, and end, and whom they wait
 * for. */
#include "weir/buffer.h"

#include "buffer_internal.h"
#include "internal.h"
#include "pending.h"

#define EMPTY ((weir_buffer){ .data = NULL })

/* ---- checks ---- */

weir_status weir__buffer_owns(const weir_buffer *buffer, const char *what)
{
    if (buffer->storage != NULL)
        return WEIR_OK;
    return weir__fail(WEIR_NOT_OWNED, "%s: the buffer %s", what,
                      buffer->data != NULL ? "only borrows its bytes" : "is empty");
}

weir_status weir__buffer_refuse_shared(void)
{
    return weir__fail(WEIR_NOT_OWNED, "others hold the bytes, too");
}

static weir_status check_access(weir_access access)
{
    if (access == WEIR_READ || access == WEIR_WRITE)
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no access", (int)access);
}

weir_status weir__holder_make(weir_device *device, weir_stream stream,
                              weir__holder *out)
{
    out->stream = stream;
    return weir__order_life(device->order, stream, &out->life);
}

/* ---- beginning ---- */

/* What the functions begin with that make a buffer on a stream of a resource's. */
static weir_status begin(weir_resource *mr, weir_stream stream, weir_buffer *out,
                         weir__holder *holder)
{
    if (out != NULL)
        *out = EMPTY;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (mr == NULL || out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          mr == NULL ? "the resource" : "out");
    weir__pending_look(weir_resource_device(mr));
    return weir__holder_make(weir_resource_device(mr), stream, holder);
}

static void begin_empty(weir_resource *mr, weir__holder holder, weir_buffer *out)
{
    *out = EMPTY;
    out->resource = weir_resource_ref(mr);
    weir__buffer_set_holder(out, holder);
}

weir_status weir_buffer_init(weir_resource *mr, weir_stream stream, weir_buffer *out)
{
    weir__holder holder;
    weir_status status = begin(mr, stream, out, &holder);
    if (status == WEIR_OK)
        begin_empty(mr, holder, out);
    return status;
}

weir_status weir__buffer_draw(weir_resource *mr, size_t bytes, size_t alignment,
                              weir__holder holder, weir_buffer *out)
{
    void *ptr;
    weir_storage *storage;
    weir_status status = weir__pending_allocate(mr, holder.stream, bytes, alignment,
                                                &ptr);
    if (status != WEIR_OK)
        return status;
    status = weir__storage_of_block(mr, ptr, bytes, alignment, holder, &storage);
    if (status != WEIR_OK) {
        (void)weir_deallocate(mr, holder.stream, ptr, bytes, alignment);
        return status;
    }
    *out = weir__buffer_of(storage, mr, holder);
    return WEIR_OK;
}

weir_status weir_buffer_allocate(weir_resource *mr, weir_stream stream, size_t bytes,
                                 size_t alignment, weir_buffer *out)
{
    weir__holder holder;
    weir_status status = begin(mr, stream, out, &holder);
    if (status != WEIR_OK)
        return status;
    if (bytes != 0)
        return weir__buffer_draw(mr, bytes, alignment, holder, out);
    void *none;
    status = weir_allocate(mr, stream, 0, alignment, &none); /* checks the alignment */
    if (status == WEIR_OK)
        begin_empty(mr, holder, out);
    return status;
}

static weir_status check_end(const void *ptr, size_t bytes)
{
    if (bytes <= UINTPTR_MAX - (uintptr_t)ptr)
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT,
                      "%zu bytes at %p go beyond all addresses", bytes, ptr);
}

weir_status weir_buffer_view(void *ptr, size_t bytes, weir_stream stream,
                             weir_buffer *out)
{
    if (out != NULL)
        *out = EMPTY;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (out == NULL || (ptr == NULL && bytes != 0))
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          out == NULL ? "out" : "what is borrowed");
    status = check_end(ptr, bytes);
    if (status == WEIR_OK)
        *out = (weir_buffer){ .data = ptr, .size = bytes, .capacity = bytes,
                              .stream = stream };
    return status;
}

static weir_status read_foreign(const weir_foreign *from, weir_foreign *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out, "foreign memory");
    if (status != WEIR_OK)
        return status;
    if (out->ptr == NULL || out->bytes == 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu bytes at %p cannot be adopted",
                          out->bytes, out->ptr);
    if ((unsigned)out->kind > WEIR_MEMORY_HOST)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no kind of memory",
                          (int)out->kind);
    return check_end(out->ptr, out->bytes);
}

weir_status weir_buffer_adopt(weir_device *device, weir_stream stream,
                              const weir_foreign *foreign, weir_buffer *out)
{
    if (out != NULL)
        *out = EMPTY;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL || foreign == NULL || out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          device == NULL    ? "the device"
                          : foreign == NULL ? "the foreign memory"
                                            : "out");
    weir_foreign it;
    weir__holder holder;
    weir_storage *storage;
    status = read_foreign(foreign, &it);
    if (status != WEIR_OK)
        return status;
    weir__pending_look(device);
    status = weir__holder_make(device, stream, &holder);
    if (status == WEIR_OK)
        status = weir__storage_of_foreign(device, &it, holder, 0, &storage);
    if (status != WEIR_OK)
        return status;
    weir__storage_keep_device(storage);
    *out = weir__buffer_of(storage, NULL, holder);
    return WEIR_OK;
}

/* Where the resource keeps records, it must have such a block out. */
static weir_status check_block(weir_resource *mr, void *ptr, size_t bytes,
                               size_t alignment)
{
    weir_block block = { .struct_size = sizeof block };
    if (ptr == NULL || bytes == 0 || alignment == 0 ||
        (alignment & (alignment - 1)) != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no block has %zu bytes at %p, "
                          "aligned to %zu", bytes, ptr, alignment);
    weir_status status = weir_resource_find(mr, ptr, &block);
    if (status == WEIR_NOT_SUPPORTED)
        return WEIR_OK;
    if (status == WEIR_OK && (block.bytes != bytes || block.alignment != alignment))
        return weir__fail(WEIR_INVALID_ARGUMENT, "the block at %p has %zu bytes, "
                          "aligned to %zu", ptr, block.bytes, block.alignment);
    return status;
}

weir_status weir_buffer_adopt_block(weir_resource *mr, weir_stream stream, void *ptr,
                                    size_t bytes, size_t alignment, weir_buffer *out)
{
    weir__holder holder;
    weir_storage *storage;
    weir_status status = begin(mr, stream, out, &holder);
    if (status == WEIR_OK)
        status = check_block(mr, ptr, bytes, alignment);
    if (status == WEIR_OK)
        status = weir__storage_of_block(mr, ptr, bytes, alignment, holder, &storage);
    if (status == WEIR_OK)
        *out = weir__buffer_of(storage, mr, holder);
    return status;
}

/* ---- more holders ---- */

static void copy_window(const weir_buffer *from, weir_buffer *out)
{
    *out = *from;
    if (out->resource != NULL)
        (void)weir_resource_ref(out->resource);
}

weir_status weir_buffer_share(const weir_buffer *from, weir_buffer *out)
{
    if (out != NULL)
        *out = EMPTY;
    weir_status status = weir__buffer_enter(from, out);
    if (status == WEIR_OK)
        status = weir__buffer_owns(from, "to be shared");
    if (status != WEIR_OK)
        return status;
    weir__storage_hold(from->storage, weir__buffer_holder(from));
    copy_window(from, out);
    return WEIR_OK;
}

weir_status weir_buffer_slice(const weir_buffer *from, size_t offset, size_t bytes,
                              weir_buffer *out)
{
    if (out != NULL)
        *out = EMPTY;
    weir_status status = weir__buffer_enter(from, out);
    if (status != WEIR_OK)
        return status;
    if (offset > from->size || bytes > from->size - offset)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "%zu bytes from %zu on are not inside of %zu", bytes, offset,
                          from->size);
    if (from->storage != NULL)
        weir__storage_hold(from->storage, weir__buffer_holder(from));
    copy_window(from, out);
    if (out->data != NULL)
        out->data = (char *)out->data + offset;
    out->size = out->capacity = bytes;
    return WEIR_OK;
}

weir_status weir_buffer_weaken(const weir_buffer *from, weir_weak_buffer *out)
{
    if (out != NULL)
        out->seen = EMPTY;
    weir_status status = weir__buffer_enter(from, out);
    if (status == WEIR_OK)
        status = weir__buffer_owns(from, "to be known weakly");
    if (status != WEIR_OK)
        return status;
    weir__storage_keep_record(from->storage);
    copy_window(from, &out->seen);
    return WEIR_OK;
}

weir_status weir_weak_buffer_upgrade(const weir_weak_buffer *weak, weir_buffer *out)
{
    if (out != NULL)
        *out = EMPTY;
    weir_status status = weir__buffer_enter(weak != NULL ? &weak->seen : NULL, out);
    if (status != WEIR_OK)
        return status;
    weir_storage *storage = weak->seen.storage;
    if (storage == NULL ||
        !weir__storage_hold_weak(storage, weir__buffer_holder(&weak->seen)))
        return weir__fail(WEIR_NOT_FOUND, "the bytes are gone");
    copy_window(&weak->seen, out);
    return WEIR_OK;
}

void weir_weak_buffer_reset(weir_weak_buffer *weak)
{
    if (weak == NULL)
        return;
    weir_buffer seen = weak->seen;
    weak->seen = EMPTY;
    if (weir__is_forked())
        return;
    if (seen.storage != NULL)
        weir__storage_drop_record(seen.storage);
    weir_resource_unref(seen.resource);
}

/* ---- the end ---- */

void weir_buffer_reset(weir_buffer *buffer)
{
    if (buffer == NULL)
        return;
    weir_storage *storage = buffer->storage;
    weir_resource *mr = buffer->resource;
    weir__holder holder = weir__buffer_holder(buffer);
    *buffer = EMPTY;
    if (weir__enter() != WEIR_OK)
        return;
    if (storage != NULL) {
        weir__pending_look(storage->device);
        weir__storage_leave(storage, &holder);
    }
    weir_resource_unref(mr);
}

weir_status weir__buffer_gather_uses(const weir_buffer *buffer, weir_access access,
                                     weir_stream *out)
{
    weir_storage *storage = buffer->storage;
    weir__holder holder = weir__buffer_holder(buffer);
    weir__order *order = storage->device->order;
    *out = weir__order_lives(order, holder.stream, holder.life) ? buffer->stream : NULL;
    return weir__storage_wait(storage, holder, *out, access);
}

/* From now on nobody holds the bytes. Not if others have held them since there were
 * `notes`, and noted more: for that nobody has waited. */
static weir_status claim_since(weir_storage *storage, uint32_t notes)
{
    uint64_t was;
    if (!weir__storage_claim(storage, &was))
        return weir__buffer_refuse_shared();
    if (storage->notes == notes)
        return WEIR_OK;
    weir__storage_unclaim(storage, was);
    return weir__buffer_refuse_shared();
}

weir_status weir_buffer_release(weir_buffer *buffer, weir_released *out)
{
    const weir_released none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__buffer_enter(buffer, out);
    if (status == WEIR_OK)
        status = weir__buffer_owns(buffer, "to be released");
    if (status != WEIR_OK)
        return status;
    weir_storage *storage = buffer->storage;
    if (!weir__storage_is_alone(storage))
        return weir__buffer_refuse_shared();
    weir_released it = { .struct_size = sizeof it,
                         .data = buffer->data,
                         .size = buffer->size,
                         .ptr = storage->ptr,
                         .bytes = storage->bytes,
                         .alignment = storage->alignment,
                         .resource = storage->resource,
                         .deleter = storage->deleter,
                         .context = storage->context,
                         .ignores_stream = storage->ignores_stream };
    uint32_t notes = storage->notes;
    status = weir__buffer_gather_uses(buffer, WEIR_WRITE, &it.stream);
    if (status == WEIR_OK)
        status = claim_since(storage, notes);
    if (status != WEIR_OK)
        return status;
    if (it.resource != NULL)
        (void)weir_resource_ref(it.resource);
    weir__storage_forget(storage);
    buffer->data = NULL;
    buffer->size = buffer->capacity = 0;
    buffer->storage = NULL;
    return weir__fill_out(out, &it, sizeof it);
}

weir_status weir_released_free_sync(weir_device *device, weir_released *released)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL || released == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          device == NULL ? "the device" : "what was released");
    weir_released it = *released;
    if (it.deleter != NULL && it.ignores_stream) {
        status = weir_stream_sync(device, it.stream);
        if (status != WEIR_OK && !weir__device_is_lost(device))
            return status;
    }
    *released = (weir_released){ .struct_size = it.struct_size };
    if (it.resource != NULL) {
        (void)weir_deallocate(it.resource, it.stream, it.ptr, it.bytes, it.alignment);
        weir_resource_unref(it.resource);
    } else if (it.deleter != NULL) {
        it.deleter(it.context, it.ptr, it.bytes, it.stream);
    }
    return WEIR_OK;
}

/* ---- stream order ---- */

/* Which device's streams are meant; null: nobody's. */
static weir_device *device_of(const weir_buffer *buffer)
{
    if (buffer->storage != NULL)
        return buffer->storage->device;
    return buffer->resource != NULL ? weir_resource_device(buffer->resource) : NULL;
}

weir_status weir_buffer_set_stream(weir_buffer *buffer, weir_stream stream)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status != WEIR_OK)
        return status;
    weir__holder holder = { { 0, 0 }, stream };
    weir_device *device = device_of(buffer);
    if (device != NULL)
        status = weir__holder_make(device, stream, &holder);
    if (status != WEIR_OK)
        return status;
    weir__holder old = weir__buffer_holder(buffer);
    if (buffer->storage != NULL && old.life.clock != holder.life.clock) {
        weir__storage_set_out(buffer->storage, old);
        status = weir__storage_note(buffer->storage, old, stream);
        weir__storage_settle(buffer->storage, status == WEIR_OK ? holder : old);
    }
    if (status == WEIR_OK)
        weir__buffer_set_holder(buffer, holder);
    return status;
}

weir_status weir_buffer_use(weir_buffer *buffer, weir_stream stream, weir_access access)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status == WEIR_OK)
        status = check_access(access);
    if (status == WEIR_OK)
        status = weir__buffer_owns(buffer, "to note a use");
    if (status == WEIR_OK)
        status = weir__storage_use(buffer->storage, stream, access);
    return status;
}

weir_status weir_buffer_wait(const weir_buffer *buffer, weir_stream stream,
                             weir_access access)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status == WEIR_OK)
        status = check_access(access);
    if (status == WEIR_OK)
        status = weir__buffer_owns(buffer, "to be waited for");
    if (status == WEIR_OK)
        status = weir__storage_wait(buffer->storage, weir__buffer_holder(buffer),
                                    stream, access);
    return status;
}

weir_status weir_buffer_wait_sync(const weir_buffer *buffer, weir_access access)
{
    weir_status status = weir__buffer_enter(buffer, buffer);
    if (status == WEIR_OK)
        status = check_access(access);
    if (status == WEIR_OK)
        status = weir__buffer_owns(buffer, "to be waited for");
    if (status == WEIR_OK)
        status = weir__storage_wait_sync(buffer->storage, weir__buffer_holder(buffer),
                                         access);
    return status;
}

/* ---- what it is ---- */

weir_status weir_buffer_get_properties(const weir_buffer *buffer,
                                       weir_buffer_properties *out)
{
    weir_buffer_properties it = { .struct_size = sizeof it };
    weir_status status = weir__fill_out(out, &it, sizeof it);
    if (status == WEIR_OK)
        status = weir__buffer_enter(buffer, out);
    if (status != WEIR_OK)
        return status;
    const weir_storage *storage = buffer->storage;
    if (storage != NULL) {
        it.device = storage->device;
        it.kind = storage->kind;
        it.owns = true;
        it.is_alone = weir__storage_is_alone(storage);
        it.read_only = storage->read_only;
    }
    return weir__fill_out(out, &it, sizeof it);
}
