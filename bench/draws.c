/* draws.c - random numbers, see draws.h. */
#include "draws.h"

#include <math.h>

#define MINSTD_FACTOR  16807u
#define MINSTD_MODULUS 2147483647u
#define MINSTD_LEAST   1u
#define MINSTD_RANGE   (MINSTD_MODULUS - 1u - MINSTD_LEAST) /* largest less least */

uint64_t splitmix_next(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

double splitmix_unit(uint64_t *state)
{
    return (double)(splitmix_next(state) >> 11) * 0x1p-53;
}

size_t splitmix_below(uint64_t *state, size_t n)
{
    return (size_t)(splitmix_unit(state) * (double)n);
}

size_t splitmix_size(uint64_t *state, size_t least, size_t most)
{
    double u = splitmix_unit(state);
    return (size_t)((double)least * pow((double)most / (double)least, u));
}

uint32_t minstd_next(uint32_t *state)
{
    *state = (uint32_t)((uint64_t)*state * MINSTD_FACTOR % MINSTD_MODULUS);
    return *state;
}

/* From 0 to `range`, where the engine's own range is wider: equal parts of it, and what
 * is left over at its end is drawn again. */
static uint64_t minstd_scaled_down(uint32_t *state, uint64_t range)
{
    uint64_t parts = range + 1, width = MINSTD_RANGE / parts, drawn;
    do
        drawn = minstd_next(state) - MINSTD_LEAST;
    while (drawn >= parts * width);
    return drawn / width;
}

uint64_t minstd_between(uint32_t *state, uint64_t least, uint64_t most)
{
    const uint64_t base = (uint64_t)MINSTD_RANGE + 1;
    uint64_t range = most - least;

    if (range < MINSTD_RANGE)
        return least + minstd_scaled_down(state, range);
    if (range == MINSTD_RANGE)
        return least + (minstd_next(state) - MINSTD_LEAST);

    /* Several draws, the first the most significant; what is out of range, or has run
     * over, is drawn again. */
    uint64_t high, drawn;
    do {
        high = base * minstd_between(state, 0, range / base);
        drawn = high + (minstd_next(state) - MINSTD_LEAST);
    } while (drawn > range || drawn < high);
    return least + drawn;
}
