/* ipc_courier.h - streams of the service's own, that wait for importers' events so that
 * nobody else has to before he uses the bytes. */
#ifndef WEIR_IPC_COURIER_H
#define WEIR_IPC_COURIER_H

#include "storage.h"

/* A stream of `device` for one wait: with nothing on it if there is one, so that no
 * exporter waits for another's importer. The service's. */
weir_status weir__courier_find(weir_device *device, weir__holder *out);

/* The device is about to close. */
void weir__courier_drop(weir_device *device);

#endif
