/* weir_costs.h - a file of costs: what each kind of device call takes on some device.
 *
 * Lines of words: the kind of call as `weir replay` names it, how many ns one takes,
 * and, or nothing, how many more for each MiB that it is about. Empty lines, and what
 * comes after a `#`, say nothing.
 *
 *     event_record 850
 *     malloc 71000 1000    # H200
 */
#ifndef WEIR_COSTS_H
#define WEIR_COSTS_H

#include <stdbool.h>

#include "weir/emulated.h"

/* False: said what is wrong, with the line. */
bool costs_read(const char *path, weir_emulated_costs *out);

#endif
