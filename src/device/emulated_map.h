/* emulated_map.h - where the bytes of an emulated device's memory are. */
#ifndef WEIR_DEVICE_EMULATED_MAP_H
#define WEIR_DEVICE_EMULATED_MAP_H

#include "device/emulated.h"

/* Maps the file of `arena`, or a new one. False: errno says why, and what was mapped is
 * left to unmap, which also frees the record. */
bool weir__arena_map(weir__arena *arena, size_t alignment);
bool weir__arena_map_new(weir__arena *arena, size_t alignment);
void weir__arena_unmap(weir__arena *arena);

#ifdef WEIR_TESTING
/* From now on devices with a ledger, which finds who uses memory that was given back,
 * keep its pages; and those that are opened take over what closed ones had mapped. The
 * same for ranges, which are all aligned alike, and for the yard. */
void weir__arenas_keep(void);
bool weir__arenas_are_kept(void);
#endif

#endif
