/* weir/resource_ops.h - a memory resource, as the code that implements one
 * sees it. Code that only allocates does not need this header. */
#ifndef WEIR_RESOURCE_OPS_H
#define WEIR_RESOURCE_OPS_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a resource does. The table is copied at creation; `self` is whatever
 * was handed to weir_resource_create, and comes first in every call.
 *
 * Later versions add members at the end only. A member past `struct_size`, and
 * an optional one left null, gets the behaviour written beside it. Any thread may be
 * in any of these at any time, but for destroy. */
typedef struct weir_resource_ops {
    size_t struct_size;
    const char *name; /* for messages; outlives the resource */

    /* Required. `bytes` is never zero, `alignment` always a power of two up to
     * max_alignment, `out` never null; on failure the value left in *out does not
     * matter. */
    weir_status (*allocate)(void *self, weir_stream stream,
                            size_t bytes, size_t alignment, void **out);
    /* Required. `ptr` is never null. Cannot fail and allocates no host memory. False if
     * the misuse handler was told and returned: then nothing has changed. */
    bool (*deallocate)(void *self, weir_stream stream,
                       void *ptr, size_t bytes, size_t alignment);
    /* Required. Called once: after the last unref, and after the last block is back.
     * May wait on the host. */
    void (*destroy)(void *self);

    /* Optional: gives unused memory back to upstream until no more than
     * `keep_bytes` is held. Left null: asks upstream, or does nothing in a leaf. */
    size_t (*trim_sync)(void *self, size_t keep_bytes);

    /* The resource it draws from; not counted. Left null: it is a leaf. Asked once. */
    weir_resource *(*upstream)(void *self);
    /* Required in a leaf, which at least sets device and what accesses its memory: *out
     * comes zeroed but for max_alignment (WEIR_ALIGNMENT) and the names. Above
     * upstream optional: *out comes as upstream has it. Asked once, at creation. Who
     * cuts upstream's blocks into smaller ones clears share_kind. */
    void (*properties)(void *self, weir_resource_properties *out);
    /* Optional: fills the zeroed *out. Left null: upstream's. */
    void (*statistics)(void *self, weir_resource_statistics *out);
    /* Optional: the block that begins at `ptr`; NOT_FOUND by weir_resource_refuse. Left
     * null: upstream's, which is right if blocks pass through unchanged. With it, the
     * resource finds misuse: its deallocate is asked about what it has not out, with
     * sizes that no block has. */
    weir_status (*find)(void *self, const void *ptr, weir_block *out);
    /* Optional. As deallocate, behind `count` points. Left null: the legacy stream
     * waits for them, or if it cannot the host does, and the block goes back on that
     * stream. What nobody can wait for, as points of a capture that is not released,
     * is never given back. */
    bool (*deallocate_after)(void *self, void *ptr, size_t bytes, size_t alignment,
                             const weir_point *points, size_t count);
    /* Optional: makes the block of `bytes` at `ptr` `new_bytes` long without moving
     * it, or changes nothing and answers OUT_OF_MEMORY, LIMIT_REACHED or
     * NOT_SUPPORTED. What is added is as if allocated on `stream`; the block goes
     * back with the new size. Left null: NOT_SUPPORTED; an adaptor does not pass it
     * on by itself. */
    weir_status (*extend)(void *self, weir_stream stream, void *ptr,
                          size_t bytes, size_t alignment, size_t new_bytes);

    /* Optional: a second resource it draws from, of the same device; not counted. Left
     * null: there is none. Asked once. With two, properties come as what both promise,
     * a trim_sync left null asks both, upstream keeping what it may first, and
     * statistics and find left null are NOT_SUPPORTED: neither speaks for both. */
    weir_resource *(*second_upstream)(void *self);

    /* Optional: makes a block of its own of a part of the block of `bytes` at `ptr`,
     * and one each of what is left in front and behind; nothing moves. They go back
     * each with its own bytes, and the alignment that the block had. Of what lies from
     * *from to *to, which its user does not use any more, it is the last part of at
     * least `wanted_bytes` that the device can have back while the rest stays; or,
     * where there is not so much, all that it can have. Sets both: equal if there is
     * none, and the block is as it was. INVALID_ARGUMENT, OUT_OF_HOST_MEMORY or
     * NOT_SUPPORTED: nothing has changed. Left null: NOT_SUPPORTED; an adaptor does not
     * pass it on by itself. Who has it tells cut_bytes among its properties. */
    weir_status (*cut)(void *self, void *ptr, size_t bytes, size_t alignment,
                       size_t wanted_bytes, size_t *from, size_t *to);
} weir_resource_ops;

/* Makes a resource out of `ops` and `self`, and takes a reference to its upstream (if
 * any) and its device. On failure `self` still belongs to the caller, and `destroy` has
 * not been called. NOT_SUPPORTED: the table asks for what only a newer Weir knows. */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_create(const weir_resource_ops *ops, void *self, weir_resource **out);

/* Extends a block of `mr` in place; for suballocators. Answers as the table's
 * extend. */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_extend(weir_resource *mr, weir_stream stream, void *ptr,
                     size_t bytes, size_t alignment, size_t new_bytes);

/* Cuts a part out of a block of `mr` that its user does not use any more, so that this
 * can go back by itself; for suballocators. Answers as the table's cut, which is asked
 * for *from < *to <= bytes and `wanted_bytes` above zero. On failure *from and *to are
 * as they were. */
WEIR_API WEIR_NODISCARD weir_status
weir_resource_cut(weir_resource *mr, void *ptr, size_t bytes, size_t alignment,
                  size_t wanted_bytes, size_t *from, size_t *to);

/* For code outside of the library that implements resources: records `status` and
 * `message` for weir_last_error(), and returns `status`. Of OUT_OF_MEMORY and
 * LIMIT_REACHED weir_last_out_of_memory() tells no numbers: all are 0, there is no
 * limit, and the resource is "unnamed". */
WEIR_API weir_status weir_resource_refuse(weir_status status, const char *message);

/* Likewise: tells the misuse handler. */
WEIR_API void weir_resource_report_misuse(const weir_misuse *misuse);

#ifdef __cplusplus
}
#endif
#endif
