/* weir/arena.h - an arena for each stream, so that threads with a stream each do not
 * meet, over a global one that grows.
 *
 * A request of up to a quarter of a superblock goes to the arena of its stream, which
 * cuts it out of superblocks; a larger one, in size or in alignment, to the global
 * arena, where superblocks come from. In each of them memory is found as in
 * weir/pool.h: what the thread freed on that stream, without a lock; what is free on
 * the stream; what is known to be done; what another stream has left there, for which
 * the stream is made to wait on the device; and then more is drawn, by an arena from
 * the global one, and by that from upstream. Before a request is refused all arenas
 * give their free superblocks to the global one, and a small one is looked for in every
 * arena, the global one as well. The host never waits.
 *
 * A stream that Weir knows (made by it, registered, or the legacy stream) gets the
 * arena with the fewest streams, when it first asks: its own, up to the number of
 * arenas. With the per-thread default stream, and streams that Weir does not know, it
 * is the thread that has one, by turns. A block goes back to the arena that it came
 * from, whoever frees it, behind what is on the stream that it is freed on.
 *
 * A superblock that is free as a whole goes back to the global arena, in stream order,
 * when the arena's last stream is retired; from all arenas before a request is refused,
 * and whenever 64 MiB, or a sixteenth of what is held if that is more, has been drawn
 * from upstream since they last did. So while the global arena grows by that much, free
 * superblocks of idle streams and of threads that have ended are at work again.
 *
 * A block has less than 1 TiB: a larger one is answered as if there were no room. */
#ifndef WEIR_ARENA_H
#define WEIR_ARENA_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Superblocks are whole multiples of this, and of no more than that. */
#define WEIR_ARENA_SUPERBLOCK_MIN ((size_t)64 << 10)
#define WEIR_ARENA_SUPERBLOCK_MAX ((size_t)1 << 30)
#define WEIR_ARENA_ARENAS_MAX     ((size_t)64)

/* Zero asks for the default; start from WEIR_ARENA_OPTIONS_INIT. */
typedef struct weir_arena_options {
    size_t struct_size;
    size_t superblock_bytes; /* default 4 MiB; rounded up to a multiple of 64 KiB */
    size_t limit_bytes;      /* most to hold from upstream; default no limit */
    size_t arenas;           /* how many, besides the global one; default 16 */
} weir_arena_options;

#define WEIR_ARENA_OPTIONS_INIT { sizeof(weir_arena_options), 0, 0, 0 }

/* Creates a resource over `upstream`, which it keeps alive. `options` may be null.
 *
 * Statistics are sums over all arenas, one after the other; peak_out_bytes counts
 * superblocks whole. An out-of-memory report has the sums, too.
 *
 *   INVALID_ARGUMENT     a superblock is above WEIR_ARENA_SUPERBLOCK_MAX, or there are
 *                        more arenas than WEIR_ARENA_ARENAS_MAX
 *   OUT_OF_HOST_MEMORY   and *out is null, as on every failure */
WEIR_API WEIR_NODISCARD weir_status
weir_arena_create(weir_resource *upstream, const weir_arena_options *options,
                  weir_resource **out);

/* Fills *out, whose struct_size the caller has set, with the options in force. `mr` is
 * an arena resource, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_arena_get_options(weir_resource *mr, weir_arena_options *out);

#ifdef __cplusplus
}
#endif
#endif
