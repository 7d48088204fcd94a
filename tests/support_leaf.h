/* support_leaf.h - a stepped device with a resource and two streams, for tests of one
 * leaf. */
#ifndef WEIR_TESTS_SUPPORT_LEAF_H
#define WEIR_TESTS_SUPPORT_LEAF_H

#include "support.h"

typedef struct scene {
    weir_device *device;
    weir_resource *mr; /* null: none */
    weir_stream a, b;  /* that do not block */
} scene;

/* The resource is made from `spec`; null: there is none yet. */
scene scene_begin(uint64_t seed, const char *spec);
void scene_end(scene *s);
uint64_t scene_stall(scene *s, weir_stream stream);
void scene_open_gate(scene *s, uint64_t gate);

#endif
