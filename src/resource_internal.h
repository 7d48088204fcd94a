/* resource_internal.h - what the core offers to resources of the library's own. */
#ifndef WEIR_RESOURCE_INTERNAL_H
#define WEIR_RESOURCE_INTERNAL_H

#include <stdbool.h>

#include "weir/resource_ops.h"

/* The `self` of `mr` if it was made from `ops` (told by their allocate), else null. For
 * calls that make sense for one kind of resource only. */
void *weir__resource_self(weir_resource *mr, const weir_resource_ops *ops);

/* The one resource that `mr` draws from; null: it is a leaf, or draws from two. Not
 * counted. */
weir_resource *weir__resource_below(weir_resource *mr);

/* Whose numbers weir_resource_get_statistics(mr) tells; null: nobody keeps any. Not
 * counted. */
weir_resource *weir__resource_counting(weir_resource *mr);

typedef weir_status weir__allocate_call(weir_resource *mr, weir_stream stream,
                                        size_t bytes, size_t alignment, void **out);
typedef bool weir__deallocate_call(weir_resource *mr, weir_stream stream, void *ptr,
                                   size_t bytes, size_t alignment);

/* What weir_allocate and weir_deallocate do with a resource that is not quick: all that
 * is around a call of its table. */
weir__allocate_call weir__allocate_fully;
weir__deallocate_call weir__deallocate_fully;

/* What a quick resource's own calls leave undone, by its table: as weir__allocate_fully
 * and weir__deallocate_fully, unless these have called them. */
weir__allocate_call weir__allocate_rest;
weir__deallocate_call weir__deallocate_rest;

/* A resource that counts its blocks itself. The core then counts references only: an
 * allocation and a deallocation change nothing that all threads share, and after
 * ops.deallocate has returned nothing of the resource is touched, for it may be gone.
 *
 * Whether the last reference or the last block goes first is decided by the resource,
 * under the lock that its count is under: close() comes once, from the thread of the
 * last unref, sets "closing" there and answers whether a block is out; a deallocation,
 * in the lines that count its block back, looks whether that was the last of a closing
 * resource. Of both exactly one finds no block out, and ends the resource. A block
 * counts as out until then, also while its deallocation is under way. Giving one back
 * twice may find the resource gone: that is the caller's. */
typedef struct weir__counting {
    /* After the last unref: nothing will be allocated any more. True: no block is out,
     * and destroy follows at once. False: weir__resource_ended is called once, by the
     * deallocation that brings the last of them back; or by close() itself, where it
     * lets go of what counts in its place. Called without locks. */
    bool (*close)(void *self);
    /* Null; or, in a resource that is quick, what weir_allocate and weir_deallocate do,
     * with arguments as they come, but for `mr`, which is not null. What is quickly
     * done of a call with good arguments by a thread that it knows (see
     * weir__thread.seat), with a device that is not lost, they do. All else they leave
     * to weir__allocate_rest and weir__deallocate_rest. Where a ledger listens these
     * same calls are watched: weir__allocate_fully and weir__deallocate_fully come
     * before them, and the arguments are good. */
    weir__allocate_call *allocate;
    weir__deallocate_call *deallocate;
    /* And for who cannot say whether the stream of `clock` is ending on another thread,
     * so that `stream` may soon be another's: what is quickly done, as long as it is
     * not. False: nothing was; and then weir_deallocate calls nothing of a user's, so
     * that the stream may be held (weir__order_hold_life). */
    bool (*deallocate_of)(weir_resource *mr, weir_stream stream, uint64_t clock,
                          void *ptr, size_t bytes, size_t alignment);
} weir__counting;

/* As weir_resource_create, for one that counts; `counting` is not copied. */
weir_status weir__resource_create_counting(const weir_resource_ops *ops,
                                           const weir__counting *counting, void *self,
                                           weir_resource **out);

/* The last action of ops.deallocate or deallocate_after, after a close() that answered
 * false: destroys the resource; `mr` and its self are gone afterwards. To be called
 * without locks. */
void weir__resource_ended(weir_resource *mr);

#endif
