/* support_scene.h - a stage for the tests of stream order: a pool of one block, and
 * four streams that can be stalled.
 *
 * On a stepped device a host wait for work behind a closed gate answers DEVICE_ERROR
 * instead of hanging, which is how "does not finish" is seen. */
#ifndef WEIR_TESTS_SUPPORT_SCENE_H
#define WEIR_TESTS_SUPPORT_SCENE_H

#include "support.h"
#include "weir/weir.h"

#define SIZE   ((size_t)1 << 20)  /* of the block */
#define MEMORY ((size_t)64 << 20) /* of the device */

typedef struct scene {
    weir_device *device;
    weir_resource *pool;
    weir_stream a, b, c, d; /* non-blocking, known; null until they are made */
} scene;

/* A stepped device and a pool of one block of SIZE. */
scene scene_open(bool eager);
void scene_make_streams(scene *it);
void scene_close(scene *it);

void must_finish(scene *it, weir_stream stream);
void must_not_finish(scene *it, weir_stream stream);

/* Runs two functions as host threads of a stepped run. */
void run_both(weir_device *device, void (*first)(void *), void (*second)(void *),
              void *argument);

#endif
