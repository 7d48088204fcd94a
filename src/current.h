/* current.h - what devices and resources tell current.c of their references. */
#ifndef WEIR_CURRENT_INTERNAL_H
#define WEIR_CURRENT_INTERNAL_H

#include <stdint.h>

#include "device/device.h"
#include "weir/resource.h"

/* Of a device's references its own resource, with what that stands on, has no more. */
#define WEIR__CURRENT_OWN_REFERENCES_MAX 2

/* With the device: in its beginning, and when no resource is left. */
void weir__current_begin(weir_device *device);
void weir__current_end(weir_device *device);

/* After each unref of a device but the last, with the registry locked. If all that is
 * left are the references of its own resource, gives what the device holds of that: for
 * the caller to unref once it has no lock. Else null. */
weir_resource *weir__current_let_go(weir_device *device);

/* Takes one reference off `mr`, which is its device's own, and returns the counts of
 * before. */
uint64_t weir__current_own_unref(weir_resource *mr);

#endif
