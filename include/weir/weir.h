/* weir/weir.h - all of Weir. */
#ifndef WEIR_WEIR_H
#define WEIR_WEIR_H

#include "weir/async.h"
#include "weir/buffer.h"
#include "weir/capture.h"
#include "weir/current.h"
#include "weir/device.h"
#include "weir/dlpack.h"
#include "weir/emulated.h"
#include "weir/host.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/logging.h"
#include "weir/managed.h"
#include "weir/pinned.h"
#include "weir/pool.h"
#include "weir/resource.h"
#include "weir/resource_ops.h"
#include "weir/spec.h"
#include "weir/statistics.h"
#include "weir/status.h"
#include "weir/stream.h"
#include "weir/version.h"

#endif
