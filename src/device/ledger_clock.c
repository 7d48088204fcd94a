/* ledger_clock.c - vector clocks as sorted arrays of epochs.
 *
 * Most joins bring nothing new, or news of streams that are there already; so a join
 * looks before it moves anything, and merges from the back, in place. */
#include "ledger_clock.h"

#include <string.h>

#include "internal.h"
#include "ledger_table.h"

/* The index of `stream`, or of where it belongs. */
static size_t vector_find(const weir__vector *self, uint64_t stream)
{
    size_t low = 0, high = self->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (self->epochs[middle].stream < stream)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint64_t weir__vector_time(const weir__vector *self, uint64_t stream)
{
    size_t index = vector_find(self, stream);
    if (index == self->count || self->epochs[index].stream != stream)
        return 0;
    return self->epochs[index].time;
}

/* How many epochs the two begin with that are of the same streams: mostly all that the
 * shorter has, and then a join need not search. */
static size_t vector_same_start(const weir__vector *self, const weir__vector *other)
{
    const weir__epoch *mine = self->epochs, *theirs = other->epochs;
    size_t most = self->count < other->count ? self->count : other->count, same = 0;
    while (same < most && mine[same].stream == theirs[same].stream)
        same++;
    return same;
}

/* How many epochs of `other` are of streams that `self` does not know; `same` as
 * above. */
static size_t vector_count_missing(const weir__vector *self, const weir__vector *other,
                                   size_t same)
{
    const weir__epoch *mine = self->epochs;
    size_t missing = 0, at = same, count = self->count;
    for (size_t i = same; i < other->count; i++) {
        uint64_t stream = other->epochs[i].stream;
        while (at < count && mine[at].stream < stream)
            at++;
        missing += at == count || mine[at].stream != stream;
    }
    return missing;
}

/* Raises what both have to the greater time. */
static void vector_raise_common(weir__vector *self, const weir__vector *other,
                                size_t same)
{
    weir__epoch *mine = self->epochs;
    size_t at = same, count = self->count;
    for (size_t i = 0; i < same; i++) {
        if (mine[i].time < other->epochs[i].time)
            mine[i].time = other->epochs[i].time;
    }
    for (size_t i = same; i < other->count; i++) {
        weir__epoch theirs = other->epochs[i];
        while (at < count && mine[at].stream < theirs.stream)
            at++;
        if (at < count && mine[at].stream == theirs.stream &&
            mine[at].time < theirs.time)
            mine[at].time = theirs.time;
    }
}

static bool vector_reserve(weir__vector *self, size_t count)
{
    if (count <= self->room)
        return true;
    size_t room = self->room == 0 ? 4 : self->room * 2;
    if (room < count)
        room = count;
    weir__epoch *epochs = weir__ledger_grow(self->epochs,
                                            self->count * sizeof *epochs,
                                            room * sizeof *epochs);
    if (epochs == NULL)
        return false;
    self->epochs = epochs;
    self->room = room;
    return true;
}

bool weir__vector_is_behind(const weir__vector *self, const weir__vector *other)
{
    size_t at = 0;
    for (size_t i = 0; i < other->count; i++) {
        const weir__epoch *theirs = &other->epochs[i];
        while (at < self->count && self->epochs[at].stream < theirs->stream)
            at++;
        if (at == self->count || self->epochs[at].stream != theirs->stream ||
            self->epochs[at].time < theirs->time)
            return false;
    }
    return true;
}

bool weir__vector_join(weir__vector *self, const weir__vector *other)
{
    if (self == other)
        return true;
    size_t same = vector_same_start(self, other);
    size_t missing = vector_count_missing(self, other, same);
    if (!vector_reserve(self, self->count + missing))
        return false;

    vector_raise_common(self, other, same);
    size_t mine = self->count, theirs = other->count;
    self->count += missing;
    for (size_t to = self->count; missing > 0; ) {
        /* All that is left of self stays where it is once nothing is missing. */
        const weir__epoch *next = &other->epochs[theirs - 1];
        if (mine > 0 && self->epochs[mine - 1].stream >= next->stream) {
            if (self->epochs[mine - 1].stream == next->stream)
                theirs--;
            self->epochs[--to] = self->epochs[--mine];
        } else {
            self->epochs[--to] = *next;
            theirs--;
            missing--;
        }
    }
    return true;
}

bool weir__vector_raise(weir__vector *self, weir__epoch epoch)
{
    WEIR_ASSERT(epoch.time != 0, "an epoch that never was");
    weir__vector one = { .epochs = &epoch, .count = 1, .room = 1 };
    return weir__vector_join(self, &one);
}

bool weir__vector_copy(weir__vector *self, const weir__vector *other)
{
    if (!vector_reserve(self, other->count))
        return false;
    if (other->count > 0)
        memcpy(self->epochs, other->epochs, other->count * sizeof *other->epochs);
    self->count = other->count;
    return true;
}

void weir__vector_meet(weir__vector *self, const weir__vector *other)
{
    size_t kept = 0;
    for (size_t i = 0; i < self->count; i++) {
        weir__epoch epoch = self->epochs[i];
        uint64_t time = weir__vector_time(other, epoch.stream);
        if (time < epoch.time)
            epoch.time = time;
        if (epoch.time > 0)
            self->epochs[kept++] = epoch;
    }
    self->count = kept;
}

void weir__vector_thin(weir__vector *self,
                       bool (*is_needed)(void *context, uint64_t stream),
                       void *context)
{
    size_t kept = 0;
    for (size_t i = 0; i < self->count; i++) {
        if (is_needed(context, self->epochs[i].stream))
            self->epochs[kept++] = self->epochs[i];
    }
    self->count = kept;
}

void weir__vector_free(weir__vector *self)
{
    weir__host_free(self->epochs);
    *self = (weir__vector){ 0 };
}

void weir__vector_verify(const weir__vector *self)
{
    WEIR_CHECK(self->count <= self->room, "a vector outgrew its room");
    for (size_t i = 0; i < self->count; i++) {
        WEIR_CHECK(self->epochs[i].time != 0, "a vector keeps a zero");
        WEIR_CHECK(i == 0 || self->epochs[i - 1].stream < self->epochs[i].stream,
                   "a vector is not sorted");
    }
}
