/* ipc.h - what storages and devices tell of their ends; see include/weir/ipc.h. */
#ifndef WEIR_IPC_END_H
#define WEIR_IPC_END_H

#include "storage.h"

/* Nobody holds the storage any more, which has been exported: its tickets are over. To
 * be called without locks, before the bytes go back. */
void weir__ipc_storage_ends(weir_storage *storage);

/* The device is about to close: nothing of it stays mapped. */
void weir__ipc_device_ends(weir_device *device);

#endif
