/* support_made.h - resources that the conformance suite cannot make from text, or makes
 * otherwise as well. Each must succeed. */
#ifndef WEIR_TESTS_SUPPORT_MADE_H
#define WEIR_TESTS_SUPPORT_MADE_H

#include "weir/resource.h"

/* A leaf whose functions draw from `device`. */
weir_resource *make_callback(weir_device *device);
/* Over a pool: its log goes nowhere. */
weir_resource *make_logging(weir_device *device);
/* Over a pool, which its hook trims: each request is tried three times. */
weir_resource *make_failure_callback(weir_device *device);

#endif
