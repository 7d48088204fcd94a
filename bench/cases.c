/* cases.c - the workloads W1 to W6, and the sweeps, for every allocator. */
#include "cases.h"

#define LIFO(NAME, BYTES, DEPTH)                                                 \
    { .name = NAME, .kind = &kind_lifo, .streams = 1, .bytes = BYTES, .depth = DEPTH }

/* Blocks of 256 B to 1 MiB, or small ones. Each case has a seed of its own, with room
 * behind it for those of further threads. */
#define LARGE .bytes_min = 256, .bytes_max = MIB
#define SMALL .bytes_min = 256, .bytes_max = 16 * KIB
#define HUGE  .bytes_min = 4 * MIB, .bytes_max = 64 * MIB

#define SHAPE(LIVE, SEED, ...)                                                   \
    .shape = { .live = LIVE, .seed = (SEED) * 1000u, __VA_ARGS__ }

/* Frees a random block, allocates another in its place. */
#define TURNOVER(NAME, LIVE, SEED, ...)                                          \
    { .name = NAME, .kind = &kind_turnover, .streams = 1,                        \
      SHAPE(LIVE, SEED, __VA_ARGS__) }
#define LOOKUP(NAME, KIND, LIVE, SEED, ...)                                      \
    { .name = NAME, .kind = &KIND, SHAPE(LIVE, SEED, __VA_ARGS__) }

#define RANDOM(NAME, COUNT, BYTES_MAX)                                           \
    { .name = NAME, .kind = &kind_random, .count = COUNT, .bytes_max = BYTES_MAX }

/* RMM's RANDOM_ALLOCATIONS with its ranges. */
#define RMM_RANDOM_ONE(COUNT, MIBS)                                              \
    RANDOM("RMM/RANDOM_ALLOCATIONS/" #COUNT "/" #MIBS, COUNT, (size_t)(MIBS) * MIB)
#define RMM_RANDOM(COUNT)                                                        \
    RMM_RANDOM_ONE(COUNT, 1), RMM_RANDOM_ONE(COUNT, 4), RMM_RANDOM_ONE(COUNT, 64), \
    RMM_RANDOM_ONE(COUNT, 256), RMM_RANDOM_ONE(COUNT, 1024), RMM_RANDOM_ONE(COUNT, 4096)

const bench_case cases[] = {
    LIFO("W1/256", 256, 1),
    LIFO("W1/4K", 4 * KIB, 1),
    LIFO("W1/1M", MIB, 1),
    LIFO("W1/4Kx32", 4 * KIB, 32),
    LIFO("W1/1Mx32", MIB, 32),
    RANDOM("W2/1000/4096M", 1000, 4096 * MIB),
    RANDOM("W2/10k/1M", 10000, MIB),
    RANDOM("W2/100k/1M", 100000, MIB),
    /* Sixteen live on each of four streams, the oldest freed on its own. */
    { .name = "W3", .kind = &kind_turnover, .streams = 4,
      .shape = { .live = 64, LARGE, .in_turn = true, .stream_count = 4,
                 .seed = 3000 } },
    { .name = "W4", .kind = &kind_turnover, .streams = 2,
      .shape = { .live = 1, .bytes_min = 4 * KIB, .bytes_max = 4 * KIB, .in_turn = true,
                 .freed_on = 2 } },
    { .name = "W4/ring", .kind = &kind_turnover, .streams = 2,
      .shape = { .live = 16, LARGE, .in_turn = true, .freed_on = 2,
                 .seed = 4000 } },
    TURNOVER("W5/10", 10, 50, LARGE),
    TURNOVER("W5/100", 100, 51, LARGE),
    TURNOVER("W5/1k", 1000, 52, LARGE),
    TURNOVER("W5/10k", 10000, 53, LARGE),
    TURNOVER("W5/100k", 100000, 54, LARGE, .step_count = TURNOVER_STEPS * 4),
    { .name = "W5/10k/4s", .kind = &kind_turnover, .streams = 4,
      SHAPE(10000, 55, LARGE, .stream_count = 4) },
    /* Little that is live, of many streams. */
    { .name = "W5/320/4s", .kind = &kind_turnover, .streams = 4,
      SHAPE(320, 56, LARGE, .stream_count = 4) },
    { .name = "W5/320/16s", .kind = &kind_turnover, .streams = 16,
      SHAPE(320, 57, LARGE, .stream_count = 16) },
    { .name = "W5/320/64s", .kind = &kind_turnover, .streams = 64,
      SHAPE(320, 58, LARGE, .stream_count = 64) },
    /* What no thread keeps. */
    TURNOVER("W5/64/huge", 64, 59, HUGE),
    { .name = "W5/64/huge/2s", .kind = &kind_turnover, .streams = 2,
      SHAPE(64, 59, HUGE, .stream_count = 2) },
    { .name = "W5/64/huge/4s", .kind = &kind_turnover, .streams = 4,
      SHAPE(64, 59, HUGE, .stream_count = 4) },
    TURNOVER("W5/10/small", 10, 60, SMALL),
    TURNOVER("W5/100/small", 100, 61, SMALL),
    TURNOVER("W5/1k/small", 1000, 62, SMALL),
    TURNOVER("W5/10k/small", 10000, 63, SMALL),
    TURNOVER("W5/100k/small", 100000, 64, SMALL, .step_count = TURNOVER_STEPS * 4),
    TURNOVER("W5/1M/small", 1000000, 65, SMALL, .step_count = TURNOVER_STEPS * 8),
    /* In the same pattern. */
    LOOKUP("lookup/100k", kind_lookup, 100000, 54, LARGE,
           .step_count = TURNOVER_STEPS * 4),
    LOOKUP("lookup/1M", kind_lookup, 1000000, 65, SMALL,
           .step_count = TURNOVER_STEPS * 8),
    LOOKUP("lookup-table/100k", kind_lookup_table, 100000, 54, LARGE,
           .step_count = TURNOVER_STEPS * 4),
    LOOKUP("lookup-table/1M", kind_lookup_table, 1000000, 65, SMALL,
           .step_count = TURNOVER_STEPS * 8),
    LOOKUP("lookup-ahead/100k", kind_lookup_ahead, 100000, 54, LARGE,
           .step_count = TURNOVER_STEPS * 4),
    LOOKUP("lookup-ahead/1M", kind_lookup_ahead, 1000000, 65, SMALL,
           .step_count = TURNOVER_STEPS * 8),
    LIFO("W6a", 4 * KIB, 1),
    TURNOVER("W6b", 256, 66, LARGE),
    TURNOVER("W6b/10k", 10000, 67, LARGE),
    { .name = "threads/shared-stream", .kind = &kind_shared_stream, .streams = 1,
      .bytes = 4 * KIB },
    { .name = "threads/freed-by-another", .kind = &kind_other_thread, .streams = 1,
      .crew = 2, .bytes = 4 * KIB },
    { .name = "threads/freed-by-another/later", .kind = &kind_other_thread,
      .streams = 1, .crew = 2, .bytes = 4 * KIB, .depth = 128 },
    { .name = "trace", .kind = &kind_script, .streams = 1 },
    RMM_RANDOM(1000),
    RMM_RANDOM(10000),
    RMM_RANDOM(100000),
    LIFO("size/256", 256, 1),
    LIFO("size/1K", KIB, 1),
    LIFO("size/4K", 4 * KIB, 1),
    LIFO("size/16K", 16 * KIB, 1),
    LIFO("size/64K", 64 * KIB, 1),
    LIFO("size/256K", 256 * KIB, 1),
    LIFO("size/1M", MIB, 1),
    LIFO("size/4M", 4 * MIB, 1),
    LIFO("size/16M", 16 * MIB, 1),
    LIFO("size/64M", 64 * MIB, 1),
};

const size_t case_count = sizeof cases / sizeof *cases;
