/* draws.h - the random numbers that workloads are made of: the same on every machine,
 * and for workloads that others defined the same that they draw. */
#ifndef WEIR_BENCH_DRAWS_H
#define WEIR_BENCH_DRAWS_H

#include <stddef.h>
#include <stdint.h>

/* splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators): the
 * state is the seed. */
uint64_t splitmix_next(uint64_t *state);

/* From 0, included, to 1, excluded; 53 bits of one draw. */
double splitmix_unit(uint64_t *state);

/* From 0 to n - 1, n > 0. */
size_t splitmix_below(uint64_t *state, size_t n);

/* Log-uniform: least * (most / least)^u, so that each doubling is as likely as any. */
size_t splitmix_size(uint64_t *state, size_t least, size_t most);

/* libstdc++'s std::default_random_engine: std::minstd_rand0, x * 16807 mod 2^31 - 1.
 * Its default seed is 1. */
#define MINSTD_SEED 1u
uint32_t minstd_next(uint32_t *state);

/* What std::uniform_int_distribution(least, most) of libstdc++ draws from that engine,
 * in as many draws. */
uint64_t minstd_between(uint32_t *state, uint64_t least, uint64_t most);

#endif
