/* host_array.c - buffers of the host's own arrays, and their pages, registered or not.
 *
 * A device takes no page twice, and forgets it at the first word. So what buffers have
 * registered is counted here: a buffer whose pages another has registered counts one
 * more, and the last to end unregisters. A buffer whose pages several others have
 * registered counts for each of them. Pages that somebody else has registered are used
 * as they are. */
#include <stdint.h>

#include "device/device.h"
#include "internal.h"
#include "sync.h"
#include "weir/host.h"

#define PAGE_BYTES ((size_t)4096)
#define NDIM_MAX   64

/* CUDA's number for pages that are registered already: cudaErrorHostMemoryAlready-
 * Registered. The emulated device says the same. */
#define NATIVE_REGISTERED 712

/* ---- what an array covers ---- */

static weir_status check_shape(const weir_host_array *array)
{
    if (array->item_bytes == 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the array's items have no bytes");
    if (array->ndim < 0 || array->ndim > NDIM_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%d dimensions: 0 to %d are possible",
                          (int)array->ndim, NDIM_MAX);
    if (array->ndim > 0 && array->shape == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the array's shape is null");
    for (int32_t i = 0; i < array->ndim; i++) {
        if (array->shape[i] < 0)
            return weir__fail(WEIR_INVALID_ARGUMENT, "axis %d has %lld items", (int)i,
                              (long long)array->shape[i]);
        if (array->shape[i] == 0)
            return weir__fail(WEIR_INVALID_ARGUMENT, "the array has no items: there is "
                              "nothing to adopt");
    }
    return WEIR_OK;
}

/* The bytes of an array that is C-contiguous. */
static weir_status measure(const weir_host_array *array, size_t *out)
{
    int64_t bytes;
    weir_status status = check_shape(array);
    if (status != WEIR_OK)
        return status;
    bool fits = !__builtin_add_overflow(array->item_bytes, 0, &bytes);
    for (int32_t i = array->ndim; i-- > 0 && fits;) {
        if (array->strides != NULL && array->shape[i] != 1 &&
            array->strides[i] != bytes)
            return weir__fail(WEIR_INVALID_ARGUMENT, "the array is not C-contiguous: "
                              "along axis %d it goes on after %lld bytes, not %lld",
                              (int)i, (long long)array->strides[i], (long long)bytes);
        fits = !__builtin_mul_overflow(bytes, array->shape[i], &bytes);
    }
    if (!fits)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no memory has that many items");
    *out = (size_t)bytes;
    return WEIR_OK;
}

/* ---- pages ---- */

typedef struct pages {
    struct pages *next;
    weir_device *device; /* counted */
    char *ptr;
    size_t bytes;
    size_t users;        /* buffers, and spans */
    bool is_span;        /* not registered as a whole: it uses what was before, */
    uint64_t number;     /* and so has a smaller one */
} pages;

/* Held over calls to the device: whoever finds pages registered has to know by whom. */
static weir__mutex pages_lock = WEIR__MUTEX_INIT(WEIR__RANK_PAGES);
static pages *registered; /* guarded by pages_lock */
static uint64_t last_number;

static const uint32_t flags = WEIR__PINNED_PORTABLE | WEIR__PINNED_MAPPED;

/* The same driver's, for what one of its devices knows all of them do. */
static pages *find_locked(const weir_device *device, const char *ptr, size_t bytes)
    WEIR_REQUIRES(pages_lock)
{
    for (pages *it = registered; it != NULL; it = it->next) {
        if (it->device->ops == device->ops && ptr >= it->ptr &&
            bytes <= it->bytes && (size_t)(ptr - it->ptr) <= it->bytes - bytes)
            return it;
    }
    return NULL;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool is_part(const pages *it, const pages *span)
{
    return !it->is_span && it->number < span->number &&
           it->device->ops == span->device->ops && it->ptr < span->ptr + span->bytes &&
           span->ptr < it->ptr + it->bytes;
}

/* Uses whatever of the bytes other buffers have registered; false: nothing. */
static bool use_parts_locked(pages *span) WEIR_REQUIRES(pages_lock)
{
    bool any = false;
    for (pages *it = registered; it != NULL; it = it->next) {
        if (is_part(it, span)) {
            it->users++;
            any = true;
        }
    }
    return any;
}

static void enter_locked(pages *self) WEIR_REQUIRES(pages_lock)
{
    (void)weir_device_ref(self->device);
    self->next = registered;
    registered = self;
}

static bool is_refused_as_registered(weir_device *device, char *ptr, size_t bytes)
{
    weir_status status = weir__host_register(device, ptr, bytes, flags);
    if (status == WEIR_OK)
        (void)weir__host_unregister(device, ptr);
    return status != WEIR_OK && weir_last_error().native_code == NATIVE_REGISTERED;
}

/* How much of `bytes` bytes from `ptr` on one buffer here has registered; or 0, and
 * *next is where the next such begins, or the end. */
static size_t own_from(const weir_device *device, const char *ptr, size_t bytes,
                       size_t *next) WEIR_REQUIRES(pages_lock)
{
    *next = bytes;
    for (const pages *it = registered; it != NULL; it = it->next) {
        if (it->is_span || it->device->ops != device->ops || ptr >= it->ptr + it->bytes)
            continue;
        if (ptr < it->ptr)
            *next = least(*next, (size_t)(it->ptr - ptr));
        else
            return least(bytes, it->bytes - (size_t)(ptr - it->ptr));
    }
    return 0;
}

/* The device refused them because some are registered. Only if all are can it copy from
 * there. Of a stretch that others have registered the ends tell: to ask for each page
 * could take long. */
static weir_status check_registered(weir_device *device, char *ptr, size_t bytes)
    WEIR_REQUIRES(pages_lock)
{
    size_t known = 0, next;
    while (known < bytes) {
        size_t own = own_from(device, ptr + known, bytes - known, &next);
        if (own == 0 &&
            (!is_refused_as_registered(device, ptr + known, PAGE_BYTES) ||
             !is_refused_as_registered(device, ptr + known + next - PAGE_BYTES,
                                       PAGE_BYTES)))
            break;
        known += own != 0 ? own : next;
    }
    if (known == bytes)
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT, "of %zu bytes at %p some pages are "
                      "registered and others are not", bytes, (void *)ptr);
}

static weir_status register_locked(weir_device *device, char *ptr, size_t bytes,
                                   pages **out)
    WEIR_REQUIRES(pages_lock)
{
    pages *made = weir__host_alloc(sizeof *made);
    if (made == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a record of pages");
    *made = (pages){ NULL, device, ptr, bytes, 1, false, ++last_number };
    weir_status status = weir__host_register(device, ptr, bytes, flags);
    bool is_ours = status == WEIR_OK;
    if (!is_ours && weir_last_error().native_code == NATIVE_REGISTERED) {
        status = check_registered(device, ptr, bytes);
        made->is_span = is_ours = status == WEIR_OK && use_parts_locked(made);
    }
    if (is_ours) {
        enter_locked(made);
        *out = made;
    } else {
        weir__host_free(made);
    }
    return status;
}

/* *out is null where somebody else has registered them. */
static weir_status pages_pin(weir_device *device, char *ptr, size_t bytes, pages **out)
{
    *out = NULL;
    if ((uintptr_t)ptr % PAGE_BYTES != 0)
        return weir__fail(WEIR_INVALID_ARGUMENT, "whole pages are registered: the "
                          "array begins %zu bytes into one",
                          (size_t)((uintptr_t)ptr % PAGE_BYTES));
    if (bytes > SIZE_MAX - PAGE_BYTES)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no host has %zu bytes", bytes);
    bytes = (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    weir__mutex_lock(&pages_lock);
    weir_status status = WEIR_OK;
    pages *known = find_locked(device, ptr, bytes);
    if (known != NULL) {
        known->users++;
        *out = known;
    } else {
        status = register_locked(device, ptr, bytes, out);
    }
    weir__mutex_unlock(&pages_lock);
    return status;
}

/* Has one user less. Without any it goes to `ended`, and what is registered is so no
 * longer. A device that refuses keeps it: all that is left to do is to go on. */
static void drop_locked(pages *self, pages **ended) WEIR_REQUIRES(pages_lock)
{
    if (--self->users > 0)
        return;
    pages **link = &registered;
    while (*link != self)
        link = &(*link)->next;
    *link = self->next;
    self->next = *ended;
    *ended = self;
    if (!self->is_span)
        (void)weir__host_unregister(self->device, self->ptr);
}

static void drop_parts_locked(const pages *span, pages **ended)
    WEIR_REQUIRES(pages_lock)
{
    for (pages *it = registered, *next; it != NULL; it = next) {
        next = it->next;
        if (is_part(it, span))
            drop_locked(it, ended);
    }
}

static void pages_unpin(pages *self)
{
    pages *ended = NULL;
    if (self == NULL)
        return;
    weir__mutex_lock(&pages_lock);
    drop_locked(self, &ended);
    if (ended != NULL && self->is_span)
        drop_parts_locked(self, &ended);
    weir__mutex_unlock(&pages_lock);
    while (ended != NULL) {
        pages *next = ended->next;
        weir_device_unref(ended->device);
        weir__host_free(ended);
        ended = next;
    }
}

/* ---- buffers ---- */

/* Stands between a buffer's end and the deleter of its array. */
typedef struct pinned_array {
    pages *pages;
    weir_deleter deleter;
    void *context;
} pinned_array;

static void end_pinned(void *context, void *ptr, size_t bytes, weir_stream stream)
{
    pinned_array it = *(pinned_array *)context;
    weir__host_free(context);
    pages_unpin(it.pages);
    if (it.deleter != NULL)
        it.deleter(it.context, ptr, bytes, stream);
}

static weir_status adopt_pinned(weir_device *device, weir_stream stream,
                                weir_foreign *foreign, weir_buffer *out)
{
    pinned_array *it = weir__host_alloc(sizeof *it);
    if (it == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for an array's record");
    *it = (pinned_array){ NULL, foreign->deleter, foreign->context };
    weir_status status = pages_pin(device, foreign->ptr, foreign->bytes, &it->pages);
    if (status == WEIR_OK) {
        foreign->kind = WEIR_MEMORY_PINNED;
        foreign->deleter = end_pinned;
        foreign->context = it;
        status = weir_buffer_adopt(device, stream, foreign, out);
        if (status != WEIR_OK)
            pages_unpin(it->pages);
    }
    if (status != WEIR_OK)
        weir__host_free(it);
    return status;
}

weir_status weir_buffer_adopt_host(weir_device *device, weir_stream stream,
                                   const weir_host_array *array, weir_buffer *out)
{
    if (out != NULL)
        *out = (weir_buffer){ .data = NULL };
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (device == NULL || array == NULL || out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is null",
                          device == NULL  ? "the device"
                          : array == NULL ? "the array"
                                          : "out");
    weir_host_array it;
    weir_foreign foreign = WEIR_FOREIGN_INIT;
    status = weir__read_options(array, &it, sizeof it, "the host's array");
    if (status == WEIR_OK && it.data == NULL)
        status = weir__fail(WEIR_INVALID_ARGUMENT, "the array's data is null");
    if (status == WEIR_OK)
        status = measure(&it, &foreign.bytes);
    if (status != WEIR_OK)
        return status;
    foreign.ptr = it.data;
    foreign.kind = WEIR_MEMORY_HOST;
    foreign.read_only = it.read_only;
    foreign.ignores_stream = true;
    foreign.deleter = it.deleter;
    foreign.context = it.context;
    return it.pinned ? adopt_pinned(device, stream, &foreign, out)
                     : weir_buffer_adopt(device, stream, &foreign, out);
}
