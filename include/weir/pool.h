/* weir/pool.h - reuses freed memory, stream by stream, before asking upstream.
 *
 * A request is served by, in this order: memory freed on the same stream; memory
 * whose last use is known to be done, or which the stream waits for already; what is
 * left of the initial size to draw from upstream; growth, as long as less than the
 * slack lies free on other streams; memory of other streams, for which the stream is
 * made to wait on the device; growth; and last, each time after free chunks went back
 * upstream, growth once more. The host waits only where upstream lets it (a leaf does
 * that is short of memory), and then all do that find nothing of their own. Requests
 * are rounded up to 256 bytes; and, from 8 KiB to 1 MiB, where there is room for that,
 * to a sixteenth of the power of two below, so that what was freed serves others that
 * are about as large. So long, a thread that keeps more than three quarters of what it
 * may (below) also hands out what is larger than a rounded request by up to an eighth
 * and less than 32 KiB. `exact` leaves both out.
 *
 * So streams that go on as before come to have enough each, and wait for nobody; and
 * while the pool grows no more than the slack lies free on streams that are idle,
 * besides what threads keep. A pool with slack takes more from another stream than a
 * request needs, up to a quarter of the slack, so as not to come again soon.
 *
 * A pool with a limit, or one that upstream has refused to let grow, has an end. It
 * looks now and then how much is out; what is left beyond the most that ever was, as
 * far as it has seen, is its room. There is room for speed if that is three eighths of
 * all, or half where several streams have left memory, and 4 MiB; and once as many
 * blocks have come back to the pool as are out, and 1024 at least, since the most
 * became much more, by a 16th of all: for until then nobody knows how much it will be.
 * Then blocks are rounded up, and the slack, and what a thread keeps of a stream in a
 * pool that cannot grow, are an eighth of the room at most (or a quarter, of a thread's
 * only stream). Else there is no slack, nothing is rounded up, and a thread keeps a
 * 1024th of what such a pool holds. So a pool that is made as large as it is to be, and
 * twice as large as what is needed, is about as fast as one that grows; of one that is
 * hardly larger nothing is lost; and one with a limit far above what is needed comes to
 * hold as much as one without. A trim, and weir_pool_give_back, let it find the most
 * anew.
 *
 * Once less than a quarter of what a pool that cannot grow holds is free, it takes the
 * best fit of all streams' memory, no more than is asked for, and merges what lies side
 * by side: then streams wait for each other more, and little is lost to there being
 * several. So it is from the first refusal on, too, for which so much was free, in
 * pieces; until it has grown and has room for more, a trim, or weir_pool_give_back.
 *
 * Where several streams have left memory side by side, all of it counts as one stretch.
 * A stream does not cut up its own in a stretch that is large (more than 32 MiB, and
 * more than an eighth of what the pool holds), unless there is none much smaller that
 * has room: it waits for others instead, and takes the beginning of the smallest. So
 * it is while more than 64 MiB, and than a 64th of what the pool holds, is free in all,
 * for each thread that keeps much (below), and once if none does. What is free at the
 * end of what grows in place is part of the request that it grows for.
 * With four streams that take and free at random, and work that is never done, that
 * holds 1.12 times what is out at most, on recorded programs of 1 to 18 GiB; and makes
 * a stream wait for another with one in four allocations where 13 blocks are all there
 * is, else with one in twelve or fewer.
 *
 * Over an upstream that can extend and cut blocks of pages, as a growable, a pool
 * without a limit passes on what is asked for aligned to those: such a block is
 * upstream's, which can do so with it. Blocks that the pool has cut itself cannot grow,
 * nor go back in parts: NOT_SUPPORTED. A block that another has from upstream, and that
 * comes back here, is told where it is not aligned so, or has more bytes than what the
 * pool has passed on and out; else it is taken for one of these.
 *
 * What a thread frees on a stream that Weir knows (made by it, registered, or the
 * legacy stream), or on its own per-thread default stream, it keeps at first, and hands
 * out again on the same stream, for the same size or nearly so, without a lock: blocks
 * of up to 2 MiB while there is room, for which larger ones make way. What is larger
 * than that is kept only while no stream has wanted more than its own for a while, and
 * only until the thread asks for what it has not kept.
 *
 * Nobody else can record an event on a thread's own stream: what the thread gives up of
 * that gets one at once. Who gets what such a thread keeps, while it sleeps, waits on
 * the device for all that was put on any stream by then. That would spoil captures: it
 * is CAPTURING while there is one that is declared, or of a stream that Weir knows, and
 * does spoil others (weir/capture.h). The thread itself has it back at once. At its end
 * a thread gives up what it keeps of its own stream before anything else, and keeps
 * none from then on (but if it first uses that in a destructor of a key of pthreads);
 * and none at all where that is not possible: without glibc, or where the driver has no
 * event behind a whole device (before CUDA 12.5). Of the end of a thread that first
 * uses a pool in the last round of its keys' destructors nobody hears: what it keeps is
 * idle until it is taken back, and some 20 KiB of host memory stay for good.
 *
 * So a thread with many streams keeps much: of 16 with little live on each a pool may
 * come to hold 16 times what a thread keeps of one. With a smaller `cache_bytes` and a
 * larger `slack_bytes` it holds less, and a pair takes two to three times as long:
 * bench/README.md has figures. And a program with one stream and little live holds much
 * of that: recorded ones of 116 and 506 MiB 2.2 and 1.5 times what is live at most, and
 * 1.7 and 1.3 times with `cache_bytes` of 64 MiB. A thread that comes to keep memory of
 * a second stream gives up at once what is then too much of the first.
 *
 * A thread that only frees gets what it needs for that from one that allocates. Of a
 * stream on which it has only freed for long a thread gives up what it keeps once that
 * is as much as it may; and what threads hand to each other becomes free when a stream
 * looks at what others have, unless it can have some of it. All that threads keep is
 * taken back before the pool refuses; before it grows, if all that is free comes to
 * more than its slack and what a thread may keep of its only stream, as many times as
 * there are threads that keep much (of all their streams more than half of what they
 * may of one of several; once, if none does; and no more than one block in 64
 * allocations is taken back so, beyond the first 4096), or if it has no slack, or grows
 * in place; by trim, when a stream is retired or captured, when the thread ends, and by
 * weir_thread_flush; also from threads that sleep. Once a pool had to grow though much
 * was free (more than 32 MiB, and a 16th of what it holds, for each thread that keeps
 * much), in pieces of several streams, or where it grows in place of whichever (and
 * there a 128th is much), a thread keeps less of each stream: a 1024th of what the pool
 * holds, or 1 MiB. How many keep much is counted when that is looked at, and now and
 * then. And once all that threads keep was taken back though several streams have more
 * than twice as much free as may be one stretch, for each of these threads, it is 32
 * MiB at most until one stream has all that is free. Both are forgotten once a million
 * blocks have come back to the pool since the last time, but where it grows in place.
 * Another stream that gets such memory waits for what was put on the first until it
 * left the thread, which may be more than was there when it was freed; or for all that
 * was put there so far, if no stream has wanted more than its own for a while. On an
 * `eager` device nothing is kept.
 *
 * A pool has at most 2^25 blocks, some 33 million, what is free included; or fewer if
 * the process may have few addresses (RLIMIT_AS) when it is made, for which it reserves
 * 2.0 GiB of them. Who asks for more is answered OUT_OF_HOST_MEMORY, and nothing has
 * changed. A block has less than 1 TiB: a larger one is answered as if there were no
 * room. */
#ifndef WEIR_POOL_H
#define WEIR_POOL_H

#include "weir/resource.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a pool behaves. Zero asks for the default, so start from
 * WEIR_POOL_OPTIONS_INIT and set what you care about. Later versions add fields
 * at the end only, and `struct_size` tells them what this caller knew. */
typedef struct weir_pool_options {
    size_t struct_size;
    size_t initial_bytes; /* drawn from upstream before a stream is made to wait for
                             another: by the first allocate, in one chunk, or as the
                             pool grows where upstream refuses that; default none */
    size_t limit_bytes;   /* most to hold from upstream; default no limit */
    size_t growth_bytes;  /* chunks are multiples of it; default 8 MiB, and as the
                             pool grows an eighth to a quarter of what it holds, up
                             to 256 MiB */
    size_t cache_bytes;   /* most that each thread keeps of what it freed on each
                             stream, and the pool of what threads hand to each other;
                             default 64 MiB, or 128 while a thread keeps memory of
                             one stream only, or 32 where the pool grows in place; or
                             a 64th of what the pool holds if that is more;
                             WEIR_POOL_NO_CACHE: none */
    size_t slack_bytes;   /* what may lie free on other streams while the pool grows
                             for one; default 32 MiB, or a 32nd of what the pool
                             holds if that is more; WEIR_POOL_NO_SLACK: none. With a
                             limit no more than an eighth of the room, see above */
    bool exact;           /* no block is larger than was asked for, but for the rounding
                             to 256 bytes; default false */
} weir_pool_options;

#define WEIR_POOL_OPTIONS_INIT { sizeof(weir_pool_options), 0, 0, 0, 0, 0, 0 }

/* Any number of bytes that no block has. */
#define WEIR_POOL_NO_CACHE ((size_t)1)
#define WEIR_POOL_NO_SLACK ((size_t)1)

/* Creates a pool over `upstream`, which it keeps alive. `options` may be null.
 * INVALID_ARGUMENT: the limit is below the initial size. */
WEIR_API WEIR_NODISCARD weir_status
weir_pool_create(weir_resource *upstream, const weir_pool_options *options,
                 weir_resource **out);

/* Fills *out, whose struct_size the caller has set, with the options in force; those
 * that go by what the pool holds are 0. `mr` is a pool, or INVALID_ARGUMENT. */
WEIR_API WEIR_NODISCARD weir_status
weir_pool_get_options(weir_resource *mr, weir_pool_options *out);

/* Gives upstream, in stream order, every chunk that is free as a whole, and returns how
 * many bytes went: as weir_resource_trim_sync to nothing, but the host waits for none
 * of the work that still uses them. Upstream gets each behind the points of that work
 * (weir_deallocate_after). What threads keep is taken back first. What a capture has
 * stays, what was set aside, and a chunk that more streams have used than can be named;
 * and everything if `mr` is no pool. */
WEIR_API size_t weir_pool_give_back(weir_resource *mr);

#ifdef __cplusplus
}
#endif
#endif
