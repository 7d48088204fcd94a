/* emulated_places.h - where memory of the host's was told to be, which changes nothing
 * that a program could see: for the primitives that tell it, and for tests. */
#ifndef WEIR_DEVICE_EMULATED_PLACES_H
#define WEIR_DEVICE_EMULATED_PLACES_H

#include "device/emulated.h"

/* WEIR_OK: it is memory that moves between host and device. */
weir_status weir__host_judge_movable(weir__emulated *device, const void *ptr,
                                     size_t bytes);
void weir__host_note_moved(const void *ptr, size_t bytes, weir__place place);

/* Where the byte was told to stay, and where it was moved last; known only of what a
 * device has made. */
weir__place weir__host_preferred(const void *ptr);
weir__place weir__host_moved(const void *ptr);

#endif
