/* support_buffer.c - see support_buffer.h. */
#include "support_buffer.h"

#include <string.h>

#include "internal.h"
#include "storage.h"
#include "support_work.h"

buffer_scene buffer_scene_on(weir_device *device)
{
    buffer_scene it = { .device = device };
    it.a = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    it.b = make_stream(it.device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir_resource_open(it.device, "pool/device", &it.pool));
    return it;
}

buffer_scene buffer_scene_open(void)
{
    return buffer_scene_on(open_stepped(support_seed_in_use()));
}

buffer_scene small_scene_open(void)
{
    buffer_scene it = buffer_scene_open();
    weir_resource_unref(it.pool);
    must_ok(weir_resource_open(it.device, "pool(limit=4MiB, cache=none)/device",
                               &it.pool));
    return it;
}

void buffer_scene_close(buffer_scene *it)
{
    weir_resource_unref(it->pool);
    end_stream(it->device, it->a);
    end_stream(it->device, it->b);
    close_emulated(it->device);
}

weir_buffer make_buffer(buffer_scene *it, weir_stream stream, size_t bytes)
{
    weir_buffer buffer;
    must_ok(weir_buffer_allocate(it->pool, stream, bytes, WEIR_ALIGNMENT, &buffer));
    must_equal(buffer.size, bytes);
    return buffer;
}

void write_all(buffer_scene *it, weir_stream stream, const weir_buffer *buffer,
              uint64_t key)
{
    stamp(it->device, stream, buffer->data, buffer->size, key);
}

void check_all(buffer_scene *it, weir_stream stream, const weir_buffer *buffer,
              uint64_t key)
{
    check_stamp(it->device, stream, buffer->data, buffer->size, key);
}

uint64_t stall_stream(buffer_scene *it, weir_stream stream)
{
    uint64_t gate;
    must_ok(weir_emulated_stall(it->device, stream, &gate));
    return gate;
}

void open_stream(buffer_scene *it, uint64_t gate)
{
    must_ok(weir_emulated_open_gate(it->device, gate));
}

static void end_foreign(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    foreign_block *self = context;
    self->ends++;
    self->stream = stream;
    self->ptr = ptr;
    self->bytes = bytes;
    give(self->it->pool, stream, ptr, bytes);
}

weir_foreign make_foreign(buffer_scene *it, size_t bytes, foreign_block *context)
{
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    *context = (foreign_block){ .it = it };
    foreign.ptr = take(it->pool, it->a, bytes);
    foreign.bytes = bytes;
    foreign.deleter = end_foreign;
    foreign.context = context;
    return foreign;
}

stranger stranger_come(buffer_scene *it)
{
    stranger self = { it, raw_stream(it->device, WEIR_STREAM_NON_BLOCKING) };
    return self;
}

void stranger_go(stranger *self)
{
    raw_stream_end(self->it->device, self->stream);
}

void use_unnamed(stranger *self, weir_buffer *buffer)
{
    buffer_scene *it = self->it;
    weir_storage *storage = buffer->storage;
    must_ok(weir_stream_wait(it->device, self->stream, buffer->stream));
    write_all(it, self->stream, buffer, 7);
    weir__storage_hold(storage, WEIR__HOLDER_NONE);
    weir_buffer_reset(buffer);
    weir__storage_leave_unnamed(storage);
}

void must_be_in_limbo(const buffer_scene *it, size_t count, size_t bytes)
{
    weir_pending pending = pending_of(it->device);
    must_equal(pending.limbo_count, count);
    must_equal(pending.limbo_bytes, bytes);
    must(pending.limbo_bound >= MIB);
}

void look_in_vain(buffer_scene *it)
{
    for (int i = 0; i < 2; i++) {
        weir_buffer buffer;
        must_ok(weir_buffer_init(it->pool, it->a, &buffer));
        weir_buffer_reset(&buffer);
    }
}

weir_buffer_properties properties_of(const weir_buffer *buffer)
{
    weir_buffer_properties it = { .struct_size = sizeof it };
    must_ok(weir_buffer_get_properties(buffer, &it));
    return it;
}

weir_pending pending_of(weir_device *device)
{
    weir_pending it = { .struct_size = sizeof it };
    must_ok(weir_device_get_pending(device, &it));
    return it;
}

void must_be_empty(const weir_buffer *buffer)
{
    static const weir_buffer empty;
    must(memcmp(buffer, &empty, sizeof empty) == 0);
}
