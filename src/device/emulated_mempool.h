/* emulated_mempool.h - what pools of an emulated device are made of, for their own
 * files only. All of it is guarded by the device's lock.
 *
 *     pool --> chunk --> chunk           drawn from the device, or from the host
 *     chunk:  |  out  | free | out |   free   |     spans, without a gap
 *                behind (queue, position)
 *
 * A free span knows behind what it was given back; behind nothing is what nobody has
 * had yet, or what a host wait has shown done. Neighbours that are free behind the same
 * queue are one span, and so are those behind nothing. */
#ifndef WEIR_DEVICE_EMULATED_MEMPOOL_H
#define WEIR_DEVICE_EMULATED_MEMPOOL_H

#include "device/emulated.h"

typedef struct weir__span {
    weir__block block;       /* first; in the device's tree while it is out */
    struct weir__chunk *chunk;
    struct weir__span *before;
    struct weir__span *after;
    weir__position freed;    /* queue counted; null: behind nothing */
    uint64_t freed_time;     /* the same to the ledger; 0: it does not know */
} weir__span;

typedef struct weir__chunk {
    struct weir__chunk *next;
    struct weir__mempool *pool;
    void *ptr;
    size_t bytes;
    size_t free_bytes;
    size_t pending;          /* free spans that are behind something */
    weir__span *first;
} weir__chunk;

typedef struct weir__mempool {
    struct weir__mempool *next;
    weir__emulated *device;
    weir_async_options options;
    bool is_default;
    bool is_dying;           /* destroyed; ends when all of it is free and done */
    weir__chunk *chunks;     /* the youngest first */
    uint64_t reserved_bytes;
    uint64_t used_bytes;
} weir__mempool;

/* Makes room in `pool` for `bytes`, usable by what is put on `queue` from now on. */
weir_status weir__mempool_take(weir__mempool *pool, weir__queue *queue, size_t bytes,
                               weir__span **out);
/* `span` goes back behind all that is on `queue`, at the ledger's time `time`. */
void weir__mempool_give(weir__span *span, weir__queue *queue, uint64_t time);
/* A host wait has shown `waited` (queue null: of all queues) done. */
void weir__mempool_learn(weir__mempool *pool, weir__position waited);
/* Gives chunks back that are free and done, until at most `keep_bytes` are reserved. */
void weir__mempool_release(weir__mempool *pool, uint64_t keep_bytes);
/* The device closes: frees the records, and the host's memory. */
void weir__mempool_forget(weir__mempool *pool);
/* Stops if the pool is not sound. */
void weir__mempool_verify(const weir__mempool *pool);

#endif
