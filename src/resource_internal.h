/* resource_internal.h - what a resource of the library's own may know of a
 * weir_resource besides the public headers. */
#ifndef WEIR_RESOURCE_INTERNAL_H
#define WEIR_RESOURCE_INTERNAL_H

#include "weir/resource_ops.h"

/* The `self` of `mr` if it was made from `ops` (told by their allocate), else null. For
 * calls that make sense for one kind of resource only. */
void *weir__resource_self(weir_resource *mr, const weir_resource_ops *ops);

#endif
