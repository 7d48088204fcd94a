/* callback.c - a leaf whose memory comes from functions of the caller's.
 *
 * It keeps a record of each block, so that misuse is found here and the caller's
 * functions only ever see what they gave. They are called without locks. */
#include <string.h>

#include "block_table.h"
#include "internal.h"
#include "sync.h"
#include "weir/leaves.h"
#include "weir/resource_ops.h"

typedef struct callback {
    weir_device *device; /* counted by the resource */
    weir_callbacks calls;
    void *context;       /* the caller's */
    weir__mutex lock;    /* guards everything below */
    weir__block_table table;
    weir_resource_statistics counts;
} callback;

static const char name[] = "callback";

/* Where the function has not said why it refused: a sentence, and what is known here of
 * too little memory. */
static WEIR_COLD weir_status tell_refusal(callback *self, weir_status status,
                                          size_t bytes)
{
    weir__failed(status, 0, "%s: its function refused %zu bytes: %s", name, bytes,
                 weir_status_string(status));
    if (status != WEIR_OUT_OF_MEMORY && status != WEIR_LIMIT_REACHED)
        return status;
    weir_out_of_memory report = { .requested_bytes = bytes, .limit_bytes = SIZE_MAX,
                                  .resource = name };
    weir__mutex_lock(&self->lock);
    report.held_bytes = report.in_use_bytes = self->counts.out_bytes;
    weir__mutex_unlock(&self->lock);
    weir__report_memory(&report);
    return status;
}

/* What is no memory as it was asked for goes back at once, before it counts. */
static WEIR_COLD weir_status refuse_address(callback *self, weir_stream stream,
                                            void *ptr, size_t bytes, size_t alignment)
{
    if (ptr == NULL)
        return weir__fail(WEIR_DEVICE_ERROR,
                          "%s: its function answered success, without memory", name);
    self->calls.deallocate(self->context, stream, ptr, bytes, alignment);
    return weir__fail(WEIR_DEVICE_ERROR,
                      "%s: its function gave %zu bytes at %p, which is not aligned to "
                      "%zu",
                      name, bytes, ptr, alignment);
}

/* Asks the caller's function. Its status is passed on, and so is what it has said. */
static weir_status ask_for_memory(callback *self, weir_stream stream, size_t bytes,
                                  size_t alignment, void **out)
{
    const uint64_t before = weir__error_number();
    *out = NULL;
    weir_status status = self->calls.allocate(self->context, stream, bytes, alignment,
                                              out);
    if (status != WEIR_OK && (weir__error_number() == before ||
                              weir_last_error().status != status))
        return tell_refusal(self, status, bytes);
    if (status == WEIR_OK &&
        (*out == NULL || ((uintptr_t)*out & (alignment - 1)) != 0))
        return refuse_address(self, stream, *out, bytes, alignment);
    return status;
}

/* Puts the record among the others. False: the address is out already. */
static bool insert(callback *self, weir__block_record *record)
{
    weir__mutex_lock(&self->lock);
    bool fresh = weir__block_table_find(&self->table, record->ptr) == NULL;
    if (fresh) {
        weir_resource_statistics *counts = &self->counts;
        weir__block_table_insert(&self->table, record);
        counts->out_bytes += record->bytes;
        counts->out_blocks++;
        counts->allocations++;
        if (counts->peak_out_bytes < counts->out_bytes)
            counts->peak_out_bytes = counts->out_bytes;
    }
    weir__mutex_unlock(&self->lock);
    return fresh;
}

static weir_status allocate(callback *self, weir__block_record *record)
{
    weir_status status = ask_for_memory(self, record->stream, record->bytes,
                                        record->alignment, &record->ptr);
    if (status != WEIR_OK)
        return status;
    if (!insert(self, record))
        return weir__fail(WEIR_DEVICE_ERROR,
                          "%s: its function gave %p, which is out already", name,
                          record->ptr);
    return WEIR_OK;
}

static weir_status callback_allocate(void *context, weir_stream stream,
                                     size_t bytes, size_t alignment, void **out)
{
    callback *self = context;
    weir_status status = WEIR_OUT_OF_HOST_MEMORY;
    weir__block_record *record = weir__host_alloc(sizeof *record);
    if (record == NULL) {
        weir__failed(status, 0, "%s: no memory for a block's record", name);
    } else {
        *record = (weir__block_record){ .bytes = bytes, .alignment = alignment,
                                        .stream = stream,
                                        .state = WEIR__BLOCK_OUT };
        status = allocate(self, record);
    }
    if (status != WEIR_OK) {
        weir__host_free(record);
        weir__mutex_lock(&self->lock);
        self->counts.failures++;
        weir__mutex_unlock(&self->lock);
        return status;
    }
    *out = record->ptr;
    return WEIR_OK;
}

static bool callback_deallocate(void *context, weir_stream stream,
                                void *ptr, size_t bytes, size_t alignment)
{
    callback *self = context;
    weir__mutex_lock(&self->lock);
    weir__block_record *record = weir__block_table_find(&self->table, ptr);
    weir__block_fault fault = weir__block_judge(record, bytes, alignment);
    if (fault.kind == 0) {
        weir__block_table_remove(&self->table, record);
        self->counts.out_bytes -= bytes;
        self->counts.out_blocks--;
        self->counts.deallocations++;
    }
    weir__mutex_unlock(&self->lock);
    if (fault.kind != 0) {
        weir__block_report(&fault, name, ptr, bytes, alignment);
        return false;
    }
    weir__host_free(record);
    self->calls.deallocate(self->context, stream, ptr, bytes, alignment);
    return true;
}

static void callback_properties(void *context, weir_resource_properties *out)
{
    callback *self = context;
    out->device = self->device;
    out->device_accessible = true;
    out->host_accessible = self->calls.host_accessible;
    out->usable_at_once = self->calls.usable_at_once;
    if (self->calls.max_alignment != 0)
        out->max_alignment = self->calls.max_alignment;
}

static void callback_statistics(void *context, weir_resource_statistics *out)
{
    callback *self = context;
    weir__mutex_lock(&self->lock);
    *out = self->counts;
    weir__mutex_unlock(&self->lock);
    out->struct_size = sizeof *out;
    out->held_bytes = out->out_bytes;
    out->peak_held_bytes = out->peak_out_bytes;
}

static weir_status callback_find(void *context, const void *ptr, weir_block *out)
{
    callback *self = context;
    weir__mutex_lock(&self->lock);
    weir_status status = weir__block_describe(weir__block_table_find(&self->table, ptr),
                                              name, ptr, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* Everything but the caller's own destroy. */
static void callback_free(callback *self)
{
    weir__block_table_finish(&self->table);
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static void callback_destroy(void *context)
{
    callback *self = context;
    void (*destroy)(void *) = self->calls.destroy;
    void *callers = self->context;
    callback_free(self);
    if (destroy != NULL)
        destroy(callers);
}

static const weir_resource_ops callback_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = name,
    .allocate = callback_allocate,
    .deallocate = callback_deallocate,
    .destroy = callback_destroy,
    .properties = callback_properties,
    .statistics = callback_statistics,
    .find = callback_find,
};

static weir_status read_callbacks(const weir_callbacks *from, weir_callbacks *calls)
{
    if (from == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the callbacks are null");
    weir_status status = weir__read_options(from, calls, sizeof *calls, "callbacks");
    if (status == WEIR_OK && (!calls->allocate || !calls->deallocate))
        status = weir__fail(WEIR_INVALID_ARGUMENT, "a required callback is null");
    return status;
}

weir_status weir_callback_create(weir_device *device, const weir_callbacks *callbacks,
                                 void *context, weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    if (device == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the device is null");
    weir_callbacks calls;
    weir_status status = read_callbacks(callbacks, &calls);
    if (status != WEIR_OK)
        return status;

    callback *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for the resource %s",
                          name);
    memset(self, 0, sizeof *self);
    self->device = device;
    self->calls = calls;
    self->context = context;
    status = weir__block_table_init(&self->table);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    status = weir_resource_create(&callback_ops, self, out);
    if (status != WEIR_OK)
        callback_free(self);
    return status;
}
