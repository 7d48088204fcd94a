/* weir_value.c - see weir_value.h. */
#include "weir_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "weir_say.h"

bool value_number(const char *option, const char *text, uint64_t least, uint64_t most,
                  uint64_t *out)
{
    char *end;

    errno = 0;
    uint64_t number = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end != '\0' || errno != 0 || number < least
        || number > most) {
        say("--%s is a number from %" PRIu64 " to %" PRIu64 ", not `%s`", option, least,
            most, text);
        return false;
    }
    *out = number;
    return true;
}

bool value_bytes(const char *option, const char *text, size_t *out)
{
    static const char *const units[] = { "", "KiB", "MiB", "GiB", "TiB" };
    char *end;

    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        unsigned shift = (unsigned)(10 * i);
        if (strcmp(end, units[i]) != 0 || *text < '0' || *text > '9' || errno != 0
            || number == 0 || number > (SIZE_MAX >> 1 >> shift))
            continue;
        *out = (size_t)number << shift;
        return true;
    }
    say("--%s is a size as 1000000, 512MiB or 8GiB, not `%s`", option, text);
    return false;
}
