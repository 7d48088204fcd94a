/* support_shared.h - what the tests of shared memory have in common. */
#ifndef WEIR_TESTS_SUPPORT_SHARED_H
#define WEIR_TESTS_SUPPORT_SHARED_H

#include "device/device.h"
#include "support.h"

#define MIB     ((size_t)1 << 20)
#define GRANULE (2 * MIB)

extern const weir_share_kind shared_kinds[2];

/* The primitives, which must succeed. */
unsigned char *make_shared(weir_device *device, weir_share_kind kind, size_t bytes);
weir__shared export_shared(weir_device *device, void *base);
unsigned char *open_shared(weir_device *device, const weir__shared *shared);
/* Closes its descriptor. */
void drop_shared(const weir__shared *shared);

/* A memory file of another's, who may do with it what he likes. */
weir__shared own_file(size_t bytes, int seals);

/* Claims that it is refused, and that this leaves no descriptor behind. */
void must_not_open(weir_device *device, const weir__shared *shared);
unsigned open_descriptors(void);

#endif
