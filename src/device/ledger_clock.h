/* ledger_clock.h - vector clocks: what an actor of the ledger is behind.
 *
 * Each stream counts what is put on it; an epoch is a stream and such a count. A
 * vector holds one epoch for each stream that its owner is behind, sorted by
 * stream; a stream that is not in it counts as zero, and a zero is not kept.
 *
 * Vectors are closed: whoever is behind an epoch of a stream is behind all that the
 * stream was behind then. This holds because a stream counts one up whenever it
 * learns something, and because nobody learns an epoch alone. Joining and meeting
 * keep it so; it is what allows an access to stand for those it is ordered after. */
#ifndef WEIR_DEVICE_LEDGER_CLOCK_H
#define WEIR_DEVICE_LEDGER_CLOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct weir__epoch {
    uint64_t stream;
    uint64_t time;      /* from 1 */
} weir__epoch;

/* All zero is the vector that is behind nothing. */
typedef struct weir__vector {
    weir__epoch *epochs;
    size_t count;
    size_t room;
} weir__vector;

/* The count of `stream` that the owner is behind; 0: nothing of it. */
uint64_t weir__vector_time(const weir__vector *self, uint64_t stream);

static inline bool weir__vector_covers(const weir__vector *self, weir__epoch epoch)
{
    return epoch.time <= weir__vector_time(self, epoch.stream);
}

bool weir__vector_is_behind(const weir__vector *self, const weir__vector *other);

/* False: no host memory, and nothing has changed. */
bool weir__vector_join(weir__vector *self, const weir__vector *other);
bool weir__vector_raise(weir__vector *self, weir__epoch epoch);
bool weir__vector_copy(weir__vector *self, const weir__vector *other);

/* Leaves what both are behind. */
void weir__vector_meet(weir__vector *self, const weir__vector *other);

/* Drops the epochs of streams that `is_needed` does not want. */
void weir__vector_thin(weir__vector *self,
                       bool (*is_needed)(void *context, uint64_t stream),
                       void *context);

/* Gives back its memory; it is then behind nothing. */
void weir__vector_free(weir__vector *self);

/* Sorted, each stream once, no zeros. */
void weir__vector_verify(const weir__vector *self);

#endif
