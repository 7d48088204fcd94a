/* weir/growable.h - the leaf `growable`: memory of the device at one range of
 * addresses, which grows by mapping more memory to it and gives back from wherever it
 * is free.
 *
 * The range has pages of 2 MiB. A block that is asked for aligned to these
 * (WEIR_GROWABLE_PAGE_BYTES) has pages of its own: the best fit among what is mapped
 * and free. It is extended in place where what follows it is free. All other blocks are
 * cut by a pool, with its default options, out of pages that it has extended: so they
 * share pages, are reused in stream order, cost what weir/pool.h says, and have less
 * than 1 TiB, which blocks of pages may pass. Where the device has no room for pages
 * the pool's free ones make way. Suballocators above ("pool/growable",
 * "arena/growable") draw pages: the pool in between has nothing to do then. With
 * `pages_only` it is left out.
 *
 * Where no free pages fit, only what is missing is mapped, beside free pages where that
 * saves most: in chunks, the shortfall rounded up to `chunk_bytes`, or as much as the
 * device has if that is less. Chunks that adjoin are one: nothing is lost at their
 * borders, and what grew bit by bit serves a request for all of it. No address ever
 * moves.
 *
 * weir_resource_trim_sync unmaps the chunks in which nothing is out, from the end on;
 * it waits on the host for blocks that were given back to those, and for no others. An
 * allocation for which the device has no memory left unmaps free chunks first. Who has
 * parts of a block of pages free cuts them out, in whole chunks (resource_ops.h), and
 * they go as blocks do: so trim leaves a pool the chunks in which something is out.
 *
 * Pages that are given back are kept until they are done, as weir/leaves.h says, and
 * then reused before more is mapped. A limit is an adaptor's
 * ("limiting(8GiB)/growable").
 *
 * On a CUDA device each chunk is made as NCCL's registration wants it: pinned, with
 * handles by file descriptor, reachable by RDMA (GPUDirect) where the device can, and
 * by every peer at once. weir_ipc_export takes none of it: a block may begin in one
 * chunk and end in another, and in each lie blocks of others (see weir/shareable.h).
 *
 * Statistics are the pool's, and of the pages below it (weir_resource_upstream(mr, 0)):
 * there held_bytes is what is mapped, out_bytes what was asked for. */
#ifndef WEIR_GROWABLE_H
#define WEIR_GROWABLE_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_GROWABLE_PAGE_BYTES ((size_t)2 << 20)
/* What a chunk has at most: beyond that drivers take disproportionately long. */
#define WEIR_GROWABLE_CHUNK_MAX ((size_t)512 << 20)

/* Zero asks for the default; start from WEIR_GROWABLE_OPTIONS_INIT. Rounded up to
 * pages. */
typedef struct weir_growable_options {
    size_t struct_size;
    size_t chunk_bytes;   /* what growth is a multiple of; default 32 MiB, or with remap
                             a page */
    size_t reserve_bytes; /* of addresses; default twice the device's memory */
    /* What is free is unmapped before more is mapped, wherever both lie: so a block of
     * any size is made of free memory that does not adjoin, and no more is held than is
     * out, rounded up to chunks. All chunks have `chunk_bytes` then, one page by
     * default. Whoever grows calls the device for each, and waits on the host until
     * what is unmapped is done. */
    bool remap;
    bool pages_only;      /* no pool: a block of any size has pages of its own */
} weir_growable_options;

#define WEIR_GROWABLE_OPTIONS_INIT { sizeof(weir_growable_options), 0, 0, false, false }

/* Creates it, and reserves its addresses; nothing is mapped. `options` may be null.
 * Alignment up to WEIR_GROWABLE_PAGE_BYTES. Finding a place for a block of pages takes
 * a step for each page that was ever mapped.
 *
 *   INVALID_ARGUMENT     chunks above WEIR_GROWABLE_CHUNK_MAX
 *   NOT_SUPPORTED        the device cannot map memory to addresses
 *   OUT_OF_MEMORY        it has not so many addresses
 *   DEVICE_ERROR, OUT_OF_HOST_MEMORY
 *
 * On failure *out is null. */
WEIR_API WEIR_NODISCARD weir_status
weir_growable_create(weir_device *device, const weir_growable_options *options,
                     weir_resource **out);

/* ---- pause and resume ----
 *
 * The memory of a growable can be lent to others for a while, as servers of language
 * models do between requests: a pause gives all of it back to the device, a resume maps
 * new memory at the same addresses, so that pointers, and graphs that were captured,
 * stay good. What was out has its old contents afterwards, if the pause was given a
 * resource to keep them in, or unknown ones. A growable is paused as a whole: what is
 * to be paused on its own gets one of its own, in the place of a tag.
 *
 *     weir_resource_open(device, "pool/growable", &weights);
 *     weir_resource_open(device, "pool/growable", &kv_cache);
 *     weir_resource_open(device, "pinned", &host);
 *     ...
 *     weir_growable_pause_sync(weights, stream, host);    contents kept
 *     weir_growable_pause_sync(kv_cache, stream, NULL);   and dropped
 *     ...                                                 the GPU is another's
 *     weir_growable_resume(weights, stream);
 *     weir_growable_resume(kv_cache, stream);
 *
 * `mr` is a growable, or has one at the bottom of its chain; then what is free in the
 * resources above goes back, too, and what these have in use is what is out. All that
 * uses the memory has been put on `stream`, or in front of what is on it: also of
 * blocks that came back to a resource above, and of blocks of a capture, which stay its
 * own. To that work a pause and a resume are one more user: they read or write, on
 * `stream`, all that is kept. A resource `checking` above has its guards in it, and
 * finds them gone if the contents are not kept.
 *
 * What others know the memory by (registrations with NCCL or for RDMA, handles opened
 * elsewhere) stands for what was there before, and keeps it: undo that first. Peers
 * reach it after a resume as before.
 *
 * While it is paused no pages can be allocated of a growable, and no block extended:
 * PAUSED. A pool may still hand out what it has, for use after the resume.
 * Blocks can be given back, and trim does nothing. What touches the memory fails as
 * with any address where nothing is mapped: an emulated device refuses such work, and
 * its ledger finds what was on its way. */

/* Pauses. Waits on the host for what is on `stream`, and for blocks that were given
 * back to the growable, on whatever stream; for nothing else. With `keep_in`, a
 * resource of the same device ("pinned", "pool/pinned", "limiting(64GiB)/pinned"), what
 * is out is copied to one block of that, in whole pages. What is free is never copied.
 * Paused already: OK, and nothing changes.
 *
 *   INVALID_ARGUMENT   no growable is there, or keep_in is of another device
 *   CAPTURING          the stream is being captured, or one that would have to be
 *                      waited for
 *   PAUSED             another thread is pausing or resuming it; or keep_in is paused
 *   DEVICE_ERROR, DEVICE_LOST
 *
 * and what keep_in answers (OUT_OF_MEMORY, LIMIT_REACHED...). On failure nothing is
 * paused, and no more is lost than free memory. Chunks that the device fails to unmap
 * when others have gone stay held (held_bytes of the statistics) until the resume. */
WEIR_API WEIR_NODISCARD weir_status
weir_growable_pause_sync(weir_resource *mr, weir_stream stream, weir_resource *keep_in);

/* Resumes: maps as much as was unmapped of what is still in use, and puts the copies
 * back on `stream`, where memory of keep_in goes back behind them. What follows on the
 * stream can use it all, other streams only behind that; nothing is unmapped before.
 * Waits for nothing on the host, unless it fails: then for what is on `stream`. Not
 * paused: OK, and nothing changes.
 *
 *   OUT_OF_MEMORY      the device has not so much memory now
 *   INVALID_ARGUMENT, CAPTURING, PAUSED, DEVICE_ERROR, DEVICE_LOST   as above
 *
 * On failure it stays paused, what was kept is still kept, and what was mapped is not
 * any more, unless the device fails at that, too. */
WEIR_API WEIR_NODISCARD weir_status
weir_growable_resume(weir_resource *mr, weir_stream stream);

typedef struct weir_growable_pause {
    size_t struct_size;
    bool is_paused;
    size_t absent_bytes; /* what a resume would have mapped when the pause began; at
                            most, for what is given back meanwhile is not mapped */
    size_t kept_bytes;   /* in keep_in */
} weir_growable_pause;

/* Fills *out, whose struct_size the caller has set; INVALID_ARGUMENT as above. */
WEIR_API WEIR_NODISCARD weir_status
weir_growable_get_pause(weir_resource *mr, weir_growable_pause *out);

#ifdef __cplusplus
}
#endif
#endif
