/* hits.h - for the tests of what a hit may cost: a pool over an emulated device that
 * does no work, through the public functions alone, so that they look at the library
 * as it ships. */
#ifndef WEIR_TESTS_HITS_H
#define WEIR_TESTS_HITS_H

#include <stddef.h>

#include "weir/weir.h"

#define HITS_STREAMS   4
#define HITS_DEPTH_MAX 32

typedef struct hits_scene {
    weir_device *device;
    weir_stream streams[HITS_STREAMS]; /* non-blocking, known */
    weir_resource *pool;
} hits_scene;

/* All of these stop the process with a sentence where anything fails. */
hits_scene hits_open(void);
hits_scene hits_open_with(const weir_pool_options *pool_options);
void hits_close(hits_scene *it);

/* `rounds` times, on each of the first `streams` streams in turn: allocates `depth`
 * blocks of `bytes` bytes, and gives them back, the last one first. */
void hits_run(const hits_scene *it, size_t streams, size_t bytes, size_t depth,
              size_t rounds);

/* The same on stream number `stream` alone. */
void hits_run_on(const hits_scene *it, size_t stream, size_t bytes, size_t depth,
                 size_t rounds);

/* One block. */
void *hits_take(const hits_scene *it, size_t stream, size_t bytes);
void hits_give(const hits_scene *it, size_t stream, void *ptr, size_t bytes);

/* The words and a line of their own, and the end of the process. */
_Noreturn void hits_stop(const char *words);

#endif
