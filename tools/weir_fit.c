/* weir_fit.c - the smallest single chunk with which a pool serves a whole trace.
 *
 * What a pool holds at its peak says as much about how it grows as about how it packs.
 * A pool that has one chunk and cannot grow must find a place for everything, so the
 * smallest chunk that does is the honest figure for fragmentation. It is found by
 * bisection: below the peak of what is live none can do, and the first that does is
 * looked for upwards from there. */
#include <string.h>

#include "weir_replay.h"
#include "weir_say.h"

bool fit_is_possible(const char *spec)
{
    return strncmp(spec, "pool/", 5) == 0;
}

static size_t round_up(size_t bytes, size_t step)
{
    return (bytes + step - 1) / step * step;
}

static bool chunk_serves(const plan *work, const pass_place *place, size_t bytes,
                         bool *broke)
{
    pass_place with_chunk = *place;
    with_chunk.chunk_bytes = bytes;
    with_chunk.scheduler = WEIR_EMULATED_NO_WORK;
    say_progress("fit: %s", say_bytes(bytes).text);
    return pass_serves(work, &with_chunk, broke);
}

size_t fit_find(const plan *work, const pass_place *place, bool *broke)
{
    size_t step = round_up(work->peak_live_bytes / 16384 + 1, WEIR_ALIGNMENT);
    size_t least = round_up(work->peak_live_bytes, WEIR_ALIGNMENT);
    size_t most = place->is_emulated ? place->memory_bytes : least * 4;
    size_t too_small = 0, serves = 0;

    /* Upwards in growing strides until one serves ... */
    *broke = false;
    for (size_t more = 0; serves == 0 && !*broke; more = more == 0 ? step : more * 2) {
        if (least + more > most)
            return 0;
        if (chunk_serves(work, place, least + more, broke))
            serves = least + more;
        else
            too_small = least + more;
    }
    /* ... then between that one and the last that did not. */
    while (!*broke && too_small != 0 && serves - too_small > step) {
        size_t middle = too_small + round_up((serves - too_small) / 2, WEIR_ALIGNMENT);
        if (chunk_serves(work, place, middle, broke))
            serves = middle;
        else
            too_small = middle;
    }
    return *broke ? 0 : serves;
}
