/* async_internal.h - what the files of the leaf `async` share: async.c hands out and
 * takes back, async_kept.c has what the driver cannot have yet, async_create.c reads
 * options and makes pools. */
#ifndef WEIR_ASYNC_INTERNAL_H
#define WEIR_ASYNC_INTERNAL_H

#include "device/device.h"
#include "kept.h"
#include "sync.h"
#include "weir/async.h"
#include "weir/resource_ops.h"

typedef struct weir__async {
    weir_device *device;        /* counted by the resource */
    weir_mempool pool;
    bool owns_pool;
    weir_async_memory memory;
    bool is_shared;             /* an own pool, for file descriptors */
    size_t max_bytes;           /* of an own pool; 0: the driver's */
    weir_stream back;           /* our own, that does not block and has no clock: what
                                   cannot be freed on its last stream is freed here */
    weir__mutex lock;           /* guards everything below */
    weir__block_table table;    /* of weir__kept_block: out, or kept */
    weir__kept_block *oldest;   /* kept ones, a list through `newer` */
    weir__kept_block *youngest;
    size_t kept_blocks;         /* on that list */
    size_t in_hand_blocks;      /* off it: a thread is about to free them */
    uint64_t freed;             /* of those: the driver has them */
    weir__cond landed;          /* one is in nobody's hands any more */
    size_t reserved_bytes;      /* by the pool, when it was last asked */
    weir__kept_refusal refusal;
    weir_resource_statistics counts;
} weir__async;

extern const weir_resource_ops weir__async_ops;

/* Keeps a block that is in the table, behind its marks; without any for good. */
void weir__async_keep_locked(weir__async *self, weir__kept_block *block);

/* Gives a block to the driver, on `stream`; its record is in no table any more. False:
 * that failed, and it is kept, behind the marks that it has, or else what is on
 * `stream`. */
bool weir__async_free_block(weir__async *self, weir_stream stream,
                            weir__kept_block *block);

/* Makes `back` wait for all of the marks. */
weir_status weir__async_back_waits(const weir__async *self, const weir__mark *marks,
                                   size_t count);

/* Looks at `most` kept blocks, and frees those that `back` can be made to wait for. */
void weir__async_free_kept(weir__async *self, size_t most);

/* Others may free kept blocks that a thread lacks; when it looked, `freed` were. True
 * once there are more, false if nobody has any in his hands. */
uint64_t weir__async_count_freed(weir__async *self);
bool weir__async_wait_for_landing(weir__async *self, uint64_t freed);

size_t weir__async_count_kept(weir__async *self);
size_t weir__async_aside_bytes_locked(const weir__async *self);
void weir__async_verify_locked(weir__async *self);

/* Ends what async_create.c has made of it. No block is out or kept. */
void weir__async_free(weir__async *self);

#endif
