/* ipc_service.h - the thread that answers other processes. */
#ifndef WEIR_IPC_SERVICE_H
#define WEIR_IPC_SERVICE_H

#include "weir/status.h"

/* Starts it; it ends by itself once there is nothing to do. FILE_ERROR: no thread. */
weir_status weir__service_start(void);

#endif
