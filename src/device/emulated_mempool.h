/* emulated_mempool.h - what pools of an emulated device are made of, for their own
 * files only. All of it is guarded by the device's lock.
 *
 *     pool --> chunk --> chunk           drawn from the device, or from the host
 *     chunk:  |  out  | free | free | out |  free  |    spans, without a gap
 *                     |    a hole   |     | a hole |    behind (queue, position)
 *
 * A free span knows behind what it was given back; behind nothing is what nobody has
 * had yet, or what a host wait has shown done. Neighbours that are free behind the same
 * queue are one span, and so are those behind nothing. All that is free between two
 * that are out is a hole; holes are found by their length. */
#ifndef WEIR_DEVICE_EMULATED_MEMPOOL_H
#define WEIR_DEVICE_EMULATED_MEMPOOL_H

#include "device/emulated.h"

typedef struct weir__span {
    weir__block node;        /* out: in the device's tree; the first of a hole: in the
                                pool's, and as long as the hole */
    uintptr_t ptr;
    size_t bytes;
    bool is_free;
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
    weir__arena *shared;     /* where all of it lies, if it has handles; else null */
    bool is_default;
    bool is_granted;         /* for who looks at it as CUDA: the device may touch it, */
    bool is_exported;        /* and a descriptor was asked for */
    bool is_dying;           /* destroyed; ends when all of it is free and done */
    weir__chunk *chunks;     /* the youngest first */
    weir__blocks holes;
    uint64_t reserved_bytes;
    uint64_t used_bytes;
} weir__mempool;

/* Memory from the device or the host (or from `shared`, if that is not null), for a
 * chunk or a graph; to the ledger nobody has it yet. */
weir_status weir__pool_memory_draw(weir__emulated *device, weir__arena *shared,
                                   weir_async_memory memory, size_t bytes, void **out);
void weir__pool_memory_return(weir__emulated *device, weir__arena *shared,
                              weir_async_memory memory, void *ptr, size_t bytes);

/* Makes room in `pool` for `bytes`, usable by what is put on `queue` from now on. */
weir_status weir__mempool_take(weir__mempool *pool, weir__queue *queue, size_t bytes,
                               weir__span **out);
/* `span` goes back behind all that is on `queue`, at the ledger's time `time`. */
void weir__mempool_give(weir__span *span, weir__queue *queue, uint64_t time);
/* A host wait has shown `waited` (queue null: of all queues) done. */
void weir__mempool_learn(weir__mempool *pool, weir__position waited);
/* Gives chunks back that are free and done, until at most `keep_bytes` are reserved. */
void weir__mempool_release(weir__mempool *pool, uint64_t keep_bytes);
/* The pool, or the device, ends: returns all, whoever has it. */
void weir__mempool_forget(weir__mempool *pool);
/* Stops if the pool is not sound. */
void weir__mempool_verify(const weir__mempool *pool);

/* ---- memory of graphs: emulated_graph_memory.c ---- */

/* Allocated in a capture: it has its address for as long as the graph lives, and is out
 * from a launch until it is freed, in the graph or behind the launch. */
typedef struct weir__graph_memory {
    struct weir__graph_memory *next; /* on the device's list */
    weir__emulated *device;
    weir__graph *graph;              /* null: it is gone */
    weir_async_memory memory;
    void *ptr;
    size_t bytes;
    bool is_freed_inside;            /* by an operation of the graph */
    bool is_out;
    weir__position at;               /* behind its last use: counted; null: none */
} weir__graph_memory;

/* In a capture: an operation that allocates, or frees, where the branch is. */
weir_status weir__graph_memory_malloc(weir__branch *branch, weir_async_memory memory,
                                      size_t bytes, void **out);
weir_status weir__graph_memory_free_inside(weir__branch *branch, const void *ptr);
/* What is at `ptr` and out since a launch; null: nothing. */
weir__graph_memory *weir__graph_memory_find_out(weir__emulated *device,
                                                const void *ptr);
/* It was freed on `queue`, by the last operation there. */
void weir__graph_memory_give(weir__graph_memory *memory, weir__queue *queue);
/* Returns what is of no graph any more, and done (or not: the device closes). */
void weir__graph_memories_reap(weir__emulated *device, bool all);

#endif
