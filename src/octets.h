/* octets.h - whole numbers as octets, the lowest first, wherever they lie; for what
 * other processes read and write. */
#ifndef WEIR_OCTETS_H
#define WEIR_OCTETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* `count` octets, 8 at most, of which the number must need no more. */
static inline void weir__octets_put(uint8_t *at, uint64_t number, size_t count)
{
    for (size_t i = 0; i < count; i++)
        at[i] = (uint8_t)(number >> (8 * i));
}

static inline uint64_t weir__octets_get(const uint8_t *at, size_t count)
{
    uint64_t number = 0;
    for (size_t i = 0; i < count; i++)
        number |= (uint64_t)at[i] << (8 * i);
    return number;
}

/* The first of `begin` to `end` that is not zero; `end`: none. */
static inline size_t weir__octets_not_zero(const uint8_t *octets, size_t begin,
                                           size_t end)
{
    while (begin < end && octets[begin] == 0)
        begin++;
    return begin;
}

#endif
