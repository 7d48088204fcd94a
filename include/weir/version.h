/* weir/version.h - which Weir this is: of the headers, and of the library. */
#ifndef WEIR_VERSION_H
#define WEIR_VERSION_H

#include <stdint.h>

#include "weir/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define WEIR_VERSION_MAJOR 0
#define WEIR_VERSION_MINOR 1
#define WEIR_VERSION_PATCH 0

/* One number that grows with every version: 0.1.0 is 100, 1.2.3 is 10203. */
#define WEIR_VERSION                                                             \
    (WEIR_VERSION_MAJOR * 10000 + WEIR_VERSION_MINOR * 100 + WEIR_VERSION_PATCH)

/* The version of the library that is loaded, which may be another one than that
 * of the headers: as a number like WEIR_VERSION, and as text ("0.1.0"). */
WEIR_API uint32_t    weir_version(void);
WEIR_API const char *weir_version_string(void);

/* How it was built, for bug reports: compiler, options, in one line. */
WEIR_API const char *weir_build_string(void);

#ifdef __cplusplus
}
#endif
#endif
