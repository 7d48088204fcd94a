/* weir_value.h - numbers and sizes on a command line. */
#ifndef WEIR_VALUE_H
#define WEIR_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Each reads what was given with --`option`, or says what it should have been. */
bool value_number(const char *option, const char *text, uint64_t least, uint64_t most,
                  uint64_t *out);
/* As 1000000, 512MiB or 8GiB; none is refused. */
bool value_bytes(const char *option, const char *text, size_t *out);

#endif
