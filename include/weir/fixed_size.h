/* weir/fixed_size.h - blocks of one size, cut out of slabs: no request is searched a
 * place for, and none leaves a gap.
 *
 * Every request up to the size of a block gets a whole one; a larger one is refused
 * with LIMIT_REACHED. Which block it gets is decided as in weir/pool.h: one that the
 * thread freed on that stream, without a lock; one that is free on the stream; one
 * whose last use is known to be done; one of another stream's, for which the stream is
 * made to wait on the device; a new slab from upstream; and where that is refused, one
 * single block from upstream. The host never waits. So streams share what is there
 * before more is drawn, and after N blocks were out at once no more than N, and what
 * rounding up to slabs adds, is ever held.
 *
 * A slab goes back to upstream once all of it is free: by weir_resource_trim_sync, and
 * at the end. It is drawn as late, by the first request that needs it. */
#ifndef WEIR_FIXED_SIZE_H
#define WEIR_FIXED_SIZE_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A slab is smaller than this. */
#define WEIR_FIXED_SIZE_SLAB_MAX ((size_t)1 << 40)

/* Zero asks for the default; start from WEIR_FIXED_SIZE_OPTIONS_INIT. */
typedef struct weir_fixed_size_options {
    size_t struct_size;
    size_t slab_blocks; /* blocks in a slab; default as many as fill 8 MiB, but at
                           least 4, and 1 where even 4 are too much for a slab */
} weir_fixed_size_options;

#define WEIR_FIXED_SIZE_OPTIONS_INIT { sizeof(weir_fixed_size_options), 0 }

/* Creates a resource over `upstream`, which it keeps alive, with blocks of
 * `block_bytes` bytes, rounded up to a multiple of 256. `options` may be null. Its
 * largest alignment is the largest power of two that the block size is a multiple of,
 * as far as upstream has it; 256 at least.
 *
 * Statistics: out_bytes is what was asked for, peak_out_bytes counts whole blocks.
 *
 *   INVALID_ARGUMENT     block_bytes is 0, or a slab would be WEIR_FIXED_SIZE_SLAB_MAX
 *                        or more
 *   OUT_OF_HOST_MEMORY   and *out is null, as on every failure */
WEIR_API WEIR_NODISCARD weir_status
weir_fixed_size_create(weir_resource *upstream, size_t block_bytes,
                       const weir_fixed_size_options *options, weir_resource **out);

/* Fills *out, whose struct_size the caller has set, with the options in force, and
 * *block_bytes with the size of a block. `mr` is a fixed_size resource, or
 * INVALID_ARGUMENT; *block_bytes is 0 then. */
WEIR_API WEIR_NODISCARD weir_status
weir_fixed_size_get_options(weir_resource *mr, size_t *block_bytes,
                            weir_fixed_size_options *out);

/* Whether `ptr` lies in a slab of `mr`; false of any other resource. Takes no lock
 * where it does. For who has several and has to know whose a block is. */
WEIR_API bool weir_fixed_size_has(weir_resource *mr, const void *ptr);

#ifdef __cplusplus
}
#endif
#endif
