/* shared.h - what the tests of shared memory on CUDA devices have in common. */
#ifndef WEIR_TESTS_FAKES_SHARED_H
#define WEIR_TESTS_FAKES_SHARED_H

#include "fakes/primitives.h"
#include "support_shared.h"

/* cuda:0 on that machine, until end_device, which claims that nothing is out that was
 * made or opened here. */
weir_device *device_of(const fakes_machine *machine);
void end_device(weir_device *device);
void must_be_none(void);

/* Writes all the bytes, and claims them on both ends; the host waits. */
void put(weir_device *device, void *ptr, size_t bytes, uint8_t value);
void must_have(weir_device *device, const void *ptr, size_t bytes, uint8_t value);

/* Claims that there is nothing to share. */
void must_not_find(weir_device *device, const void *ptr);

#endif
