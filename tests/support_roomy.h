/* support_roomy.h - for the tests of buffers: a resource that can extend its blocks in
 * place. Each has as many bytes of a pool behind it as it can ever become long. */
#ifndef WEIR_TESTS_SUPPORT_ROOMY_H
#define WEIR_TESTS_SUPPORT_ROOMY_H

#include "weir/resource.h"

typedef struct roomy {
    weir_resource *pool; /* not counted: it outlives this one */
    size_t room;         /* bytes behind each block */
    uint32_t extensions; /* so many were granted */
    uint32_t refusals;
    size_t out_bytes, out_blocks;
} roomy;

/* `self` is the caller's, and filled in; for one thread at a time. */
weir_resource *roomy_open(roomy *self, weir_resource *pool, size_t room);

#endif
