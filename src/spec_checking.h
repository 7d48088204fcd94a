/* spec_checking.h - what text can say of the resource `checking`: its row in
 * spec_kinds.c. */
#ifndef WEIR_SPEC_CHECKING_H
#define WEIR_SPEC_CHECKING_H

#include "spec.h"
#include "weir/checking.h"

#define WEIR__SPEC_CHECKING_OPTIONS 6
#define WEIR__SPEC_NO_FILL          (-1)

typedef struct weir__spec_checking {
    weir_checking_options options;
    int32_t fill; /* a byte, or NO_FILL */
} weir__spec_checking;

extern const weir__spec_checking weir__spec_checking_blank;
extern const weir__spec_option weir__spec_checking_options[WEIR__SPEC_CHECKING_OPTIONS];

weir_status weir__spec_make_checking(weir_device *device, weir_resource *upstream,
                                     const void *values, weir_resource **out);

#endif
