/* weir/buffer.h - buffers: a window on some bytes, that owns them or borrows them.
 *
 * A buffer is a struct of the caller's. Its fields may be read at any time; only the
 * functions here change them, and it must not be copied by assignment (but moved: then
 * the one that it was copied from is not used any more). All zero is an empty buffer
 * that cannot grow.
 *
 *     storage  data      the buffer
 *     null     null      is empty; grows where `resource` is not null
 *     null     not null  borrows: a view of bytes whose owner outlives it
 *     set      any       owns, alone or with others: slices, shares, exports, imports
 *
 * Storage is the counted owner of the bytes: a resource's block, a foreign pointer with
 * its deleter, an imported tensor. Its last holder gives them back.
 *
 * Stream order: the buffer's own stream may use the bytes as it likes. Other streams
 * tell so by weir_buffer_use, after the work has been put on them. The bytes go back
 * behind all of that: behind what is on the buffer's own stream when it is reset, and
 * behind each use that was noted. Slices and shares may have streams of their own; what
 * is put on one of these counts, for others who hold the same bytes, once it is noted.
 *
 * Any thread may use a buffer, but no two at once while one of them changes it;
 * different buffers on the same storage may be used at the same time. A stream that is
 * unknown to Weir must live as long as it is the stream of a buffer that owns
 * something, or becomes that by an upgrade; a known one may be retired before, or on
 * another thread while a buffer of a pool's block is reset: then its last point counts.
 * (While one of another resource's block is reset, or of foreign memory, whose deleter
 * is told the stream, it must live.) A thread's own stream is that of the thread which
 * named it: where the buffer is reset on another the bytes are not used again before
 * the host has waited for the device.
 *
 * What can be answered besides what weir/status.h names, where work or a wait is put on
 * a stream: DEVICE_ERROR, DEVICE_LOST, CAPTURING. After a failure the buffer is as it
 * was; a wait that was put on a stream before it stays there. */
#ifndef WEIR_BUFFER_H
#define WEIR_BUFFER_H

#include "weir/device.h"
#include "weir/resource.h"
#include "weir/status.h"
#include "weir/stream.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct weir_storage weir_storage;

typedef struct weir_buffer {
    void *data;              /* the first byte; null if there is none */
    size_t size;             /* bytes, from `data` on */
    size_t capacity;         /* so many it may have without moving; `size` or more */
    weir_stream stream;      /* its own */
    weir_resource *resource; /* counted; where it grows. Null: it cannot */
    weir_storage *storage;   /* counted; see above */
    uint64_t reserved[2];    /* Weir's */
} weir_buffer;

/* What is done to the bytes: writing is reading too. */
typedef enum weir_access {
    WEIR_READ = 1,
    WEIR_WRITE = 2
} weir_access;

/* Where bytes lie, and so who can touch them. */
typedef enum weir_memory_kind {
    WEIR_MEMORY_DEVICE = 0,  /* the device alone */
    WEIR_MEMORY_MANAGED = 1, /* device and host */
    WEIR_MEMORY_PINNED = 2,  /* host and device */
    WEIR_MEMORY_HOST = 3     /* the host; a device only where it can reach all memory */
} weir_memory_kind;

/* Gives foreign memory back: called once, on any thread, without locks of the
 * library's, with the `ptr` and `bytes` that were adopted. `stream` is behind every use
 * of them, so what is put there may free them at once. It may call Weir. */
typedef void (*weir_deleter)(void *context, void *ptr, size_t bytes,
                             weir_stream stream);

/* ---- beginning ---- */

/* An empty buffer, which allocates from `mr` once it grows. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_init(weir_resource *mr, weir_stream stream, weir_buffer *out);

/* Allocates `bytes` bytes, aligned to `alignment`, on `stream`, as weir_allocate does
 * and with its answers; not filled. Keeps the alignment when it grows, unless it holds
 * nothing by then. With no bytes it is weir_buffer_init. On failure *out is empty, here
 * and below. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_allocate(weir_resource *mr, weir_stream stream, size_t bytes,
                     size_t alignment, weir_buffer *out);

/* Borrows `bytes` bytes at `ptr`, whose owner keeps them until the view and all that
 * uses it is gone. A view cannot be resized, shared, exported or sent, and no uses are
 * noted: Weir does not know when the bytes end. (Own it by weir_buffer_own, or adopt
 * the bytes with a deleter that does nothing.) A slice of a view is a view. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_view(void *ptr, size_t bytes, weir_stream stream, weir_buffer *out);

/* Memory that Weir did not allocate. Start from WEIR_FOREIGN_INIT. */
typedef struct weir_foreign {
    size_t struct_size;
    void *ptr;
    size_t bytes;
    weir_memory_kind kind;
    bool read_only;        /* nobody may write to it through the buffer */
    /* The deleter takes no notice of its stream. Then it is called only when all uses
     * are known to be done: from the call that ends the last buffer if that is known
     * there, else from a later one (see weir_device_drain_sync). */
    bool ignores_stream;
    weir_deleter deleter;  /* null: nobody needs to know */
    void *context;
} weir_foreign;

#define WEIR_FOREIGN_INIT                                                        \
    { sizeof(weir_foreign), NULL, 0, WEIR_MEMORY_DEVICE, false, false, NULL, NULL }

/* Takes over memory of `device`, or of the host, which work on `stream` may use at
 * once. The buffer cannot grow. INVALID_ARGUMENT: no bytes, also at an address that is
 * not null. On failure the deleter was not called, and the memory is still the
 * caller's. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_adopt(weir_device *device, weir_stream stream,
                  const weir_foreign *foreign, weir_buffer *out);

/* Takes over a block that `mr` has out, with the bytes and the alignment that it was
 * allocated with: the other side of weir_buffer_release. INVALID_ARGUMENT, NOT_FOUND:
 * `mr` keeps records, and this is not what they say. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_adopt_block(weir_resource *mr, weir_stream stream, void *ptr,
                        size_t bytes, size_t alignment, weir_buffer *out);

/* ---- more holders of the same bytes ---- */

/* Another holder of all that `from` shows; on the same stream. NOT_OWNED: a view, or
 * empty. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_share(const weir_buffer *from, weir_buffer *out);

/* The same of `bytes` bytes from `offset` on, which lie inside of its size:
 * INVALID_ARGUMENT if not. Its capacity is its size. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_slice(const weir_buffer *from, size_t offset, size_t bytes,
                  weir_buffer *out);

/* Knows a buffer's bytes without keeping them. Ended by weir_weak_buffer_reset. */
typedef struct weir_weak_buffer {
    weir_buffer seen; /* Weir's */
} weir_weak_buffer;

/* NOT_OWNED: a view, or empty. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_weaken(const weir_buffer *from, weir_weak_buffer *out);

/* Another holder, as the buffer was when it was weakened; NOT_FOUND: the bytes are
 * gone. */
WEIR_API WEIR_NODISCARD weir_status
weir_weak_buffer_upgrade(const weir_weak_buffer *weak, weir_buffer *out);

WEIR_API void weir_weak_buffer_reset(weir_weak_buffer *weak);

/* ---- size ----
 *
 * Where these move the bytes, the new ones are allocated on `stream`, which waits for
 * the buffer's old stream and all writers that were noted, and copies; the old bytes go
 * back behind that and behind all readers. Where nothing moves, `stream` waits for the
 * same all the same. Afterwards it is the buffer's own.
 *
 * NOT_OWNED: the bytes are borrowed, foreign, imported, or others hold them too.
 * NOT_SUPPORTED: there is no resource to grow in. Also what weir_allocate answers. */

/* Makes the buffer `bytes` long; the bytes that stay keep their contents. Within its
 * capacity nothing is allocated, and none is given back. Beyond it, the capacity is
 * `bytes`, rounded up to 256 bytes and no more: extended in place where the resource
 * can (a growable: buffers aligned to its pages). Who appends often reserves more. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_resize(weir_buffer *buffer, size_t bytes, weir_stream stream);

/* Sees to a capacity of at least `bytes`; the size stays. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_reserve(weir_buffer *buffer, size_t bytes, weir_stream stream);

/* Gives back what is above the size, by moving to a smaller block; all, if the size
 * is 0. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_shrink(weir_buffer *buffer, weir_stream stream);

/* ---- owners ---- */

/* A new buffer with the same bytes, copied on `stream` to memory of `mr` (null: of
 * `from`'s resource), once the writers of `from` are done; noted there as a use.
 *
 *   INVALID_ARGUMENT   `mr` is another device's, or cannot align as `from` is aligned
 *   NOT_SUPPORTED      `mr` is null, and `from`, as a view, has no resource
 *
 * and what weir_allocate answers. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_copy(weir_buffer *from, weir_resource *mr, weir_stream stream,
                 weir_buffer *out);

/* The buffer's own copy takes the place of bytes that it borrowed, or that others hold
 * too. Nothing happens where it is their only holder and they are a resource's. `mr` as
 * above. What a view shows is read on `stream`, which the caller has ordered behind
 * whoever wrote it. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_own(weir_buffer *buffer, weir_resource *mr, weir_stream stream);

/* Bytes that a buffer has given away, and what is needed to free them. */
typedef struct weir_released {
    size_t struct_size;
    void *data;              /* what the buffer showed */
    size_t size;
    void *ptr;               /* what is to be given back, */
    size_t bytes;            /* as it was allocated, */
    size_t alignment;
    weir_stream stream;      /* on this stream or another behind it, */
    weir_resource *resource; /* by weir_deallocate; counted: then unref it. Or null: */
    weir_deleter deleter;    /* by this, unless it is null too, */
    void *context;           /* once, with this, `ptr`, `bytes` and `stream`; */
    bool ignores_stream;     /* and then only when all on `stream` is done */
} weir_released;

/* Gives the bytes to the caller without a copy: *out, whose struct_size the caller has
 * set. The buffer's stream waits for all uses that were noted. Afterwards the buffer
 * is empty, with its resource. NOT_OWNED: it borrows them, has none, or others hold
 * them too (an export that was not deleted is a holder). */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_release(weir_buffer *buffer, weir_released *out);

/* Gives back what was released, on its stream, as the comments above say, and clears
 * it. Where the deleter ignores streams the host waits. */
WEIR_API weir_status weir_released_free_sync(weir_device *device,
                                             weir_released *released);

/* Ends the buffer: it is empty afterwards, without a resource. Its last holder gives
 * the bytes back, in stream order. Cannot fail, and needs no host memory. */
WEIR_API void weir_buffer_reset(weir_buffer *buffer);

/* ---- stream order ---- */

/* `stream` is the buffer's own from now on; what is on the old one so far is noted as a
 * write. Makes nobody wait: see weir_buffer_wait. DEVICE_ERROR: the device knows of no
 * such stream, as where it is another device's. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_set_stream(weir_buffer *buffer, weir_stream stream);

/* Notes that what is on `stream` so far reads the bytes, or writes them. Needs no
 * memory: of very many streams one waits for another. NOT_OWNED: a view, or empty. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_use(weir_buffer *buffer, weir_stream stream, weir_access access);

/* What is put on `stream` from now on may read the bytes (it waits for all writers), or
 * write them (it waits for readers, too). The buffer's own stream counts as a writer.
 * Not noted: weir_buffer_use follows, once the work is there. For users whose stream
 * nobody named (weir/dlpack.h), `stream` waits for all of the device, or, where no
 * event can be had for that, the host does; CAPTURING: `stream` is being captured, or
 * another one, which that would spoil (as it does what Weir does not know). NOT_OWNED:
 * a view, or empty. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_wait(const weir_buffer *buffer, weir_stream stream, weir_access access);

/* The same for the host, which waits. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_wait_sync(const weir_buffer *buffer, weir_access access);

/* ---- what it is ---- */

typedef struct weir_buffer_properties {
    size_t struct_size;
    weir_device *device;     /* not counted; null for a view or an empty one */
    weir_memory_kind kind;   /* of a view: DEVICE, which nobody has asked */
    bool owns;               /* it has storage */
    bool is_alone;           /* and nobody else holds that */
    bool read_only;
} weir_buffer_properties;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status
weir_buffer_get_properties(const weir_buffer *buffer, weir_buffer_properties *out);

/* ---- what waits ---- */

/* Bytes whose last holder is gone and that wait: for uses to be done, where a deleter
 * ignores streams, or, in limbo, for a point behind work that nobody named
 * (weir/dlpack.h tells whose). Later calls about buffers of the device look after the
 * first of them now and then. A buffer that finds no memory to allocate takes what is
 * done out of limbo, and if that is not enough the host waits for the rest. */
typedef struct weir_pending {
    size_t struct_size;
    size_t deferred_count;   /* deleters that wait for uses */
    size_t deferred_bytes;
    size_t limbo_count;
    size_t limbo_bytes;
    size_t limbo_bound;      /* above it, the next call sees to that point, where the
                                device has such points (CUDA 12.5) */
} weir_pending;

/* Fills *out, whose struct_size the caller has set. */
WEIR_API WEIR_NODISCARD weir_status
weir_device_get_pending(weir_device *device, weir_pending *out);

/* Waits on the host until all of these are done, and gives them back, with what their
 * deleters leave behind; and for what other calls are just giving back, so hold no lock
 * that their deleters want. Called from a deleter it does not wait for these. CAPTURING
 * as for weir_device_sync. */
WEIR_API WEIR_NODISCARD weir_status weir_device_drain_sync(weir_device *device);

#ifdef __cplusplus
}
#endif
#endif
