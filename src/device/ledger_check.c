/* ledger_check.c - judges each access against the history, enters it there, and
 * tells what was found.
 *
 * An access conflicts with an earlier one of the same bytes if one of them writes.
 * It is a finding unless the earlier one's epoch is in the clock that the later one
 * has.
 *
 * Two clocks matter. The real one is what the stream is behind; only what it covers
 * leaves the history. An allocation or deallocation is also given what the next
 * operation of its stream will be behind by the legacy stream's rules: that judges
 * it, but keeps no promise, since that operation may never come. So what only the
 * promise covers stays, for whoever is handed the bytes next. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "ledger_parts.h"

/* ---- what is ordered ---- */

/* Whether the next operation of act's stream would be behind `epoch` by the rules of
 * the legacy stream alone. */
static bool is_promised(const weir__ledger *self, const weir__act *act,
                        weir__epoch epoch)
{
    const weir__ledger_stream *stream = act->stream;
    if (stream->is_blocking && stream->device->legacy != NULL)
        return weir__vector_covers(&stream->device->legacy->clock, epoch);
    if (!stream->is_legacy)
        return false;
    for (size_t i = 0; i < self->streams.count; i++) {
        const weir__ledger_stream *other =
            (const weir__ledger_stream *)self->streams.items[i];
        if (other->device == stream->device && other->is_blocking &&
            weir__vector_covers(&other->clock, epoch))
            return true;
    }
    return false;
}

static bool is_ordered(const weir__ledger *self, const weir__act *act,
                       weir__epoch epoch)
{
    if (weir__vector_covers(act->clock, epoch))
        return true;
    return act->stream != NULL && !act->is_operation && is_promised(self, act, epoch);
}

/* ---- what is found ---- */

/* One finding for each pair of an earlier and the present access: the first bytes that
 * it is met at, and those that follow without a gap. */
static bool note_found(weir__ledger *self, weir__found found)
{
    for (size_t i = self->found_count; i-- > 0; ) {
        weir__found *old = &self->found[i];
        if (old->first.epoch.stream != found.first.epoch.stream ||
            old->first.epoch.time != found.first.epoch.time ||
            old->block != found.block)
            continue;
        if (old->end == found.begin && old->kind == found.kind &&
            old->first.writes == found.first.writes &&
            old->second_writes == found.second_writes)
            old->end = found.end;
        return true;
    }
    if (self->found_count == self->found_room) {
        size_t room = self->found_room == 0 ? 8 : self->found_room * 2;
        weir__found *grown = weir__ledger_grow(self->found,
                                               self->found_count * sizeof *grown,
                                               room * sizeof *grown);
        if (grown == NULL)
            return false;
        self->found = grown;
        self->found_room = room;
    }
    self->found[self->found_count++] = found;
    return true;
}

/* What went back to a capture is touched by that as little as it is freed. */
static bool is_nothing_to(const weir__act *act, const weir__piece *piece,
                          const weir__access *first)
{
    return piece->lease.state == WEIR__LEASE_KEPT && act->stream != NULL &&
           act->stream->is_graphs && strcmp(first->what, "deallocate") == 0;
}

/* The allocation of a block that the host may touch at once. */
static bool is_open_to(const weir__act *act, const weir__piece *piece,
                       const weir__access *first)
{
    return act->stream == NULL && act->is_operation && piece->lease.is_open &&
           first->epoch.stream == piece->lease.since.stream &&
           first->epoch.time == piece->lease.since.time;
}

/* What the act need not be behind. Late news of a stream may come behind its own. */
static bool is_left_out(const weir__act *act, const weir__piece *piece,
                        const weir__access *first)
{
    return first->epoch.stream == act->epoch.stream ||
           (act->is_here_alone && (first->epoch.stream & WEIR__LEDGER_FOREIGN) != 0) ||
           is_nothing_to(act, piece, first) || is_open_to(act, piece, first);
}

/* Notes each access of `piece` that the act must be behind, and is not. */
static bool judge_races(weir__ledger *self, const weir__act *act,
                        const weir__piece *piece, bool writes)
{
    for (uint32_t i = 0; i < piece->count; i++) {
        const weir__access *first = &piece->accesses[i];
        if (!(writes || first->writes) || is_ordered(self, act, first->epoch) ||
            is_left_out(act, piece, first))
            continue;
        if (!note_found(self, (weir__found){ .kind = WEIR__FOUND_RACE, .first = *first,
                                             .second_writes = writes,
                                             .begin = piece->begin,
                                             .end = piece->end }))
            return false;
    }
    return true;
}

/* Notes that `piece` is not leased as the act needs it. */
static bool judge_lease(weir__ledger *self, const weir__piece *piece,
                        weir__found_kind kind, const char *what, bool writes)
{
    weir__access first = { .epoch = piece->lease.since, .what = what, .writes = true };
    weir__found found = { .kind = kind, .first = first, .second_writes = writes,
                          .begin = piece->begin, .end = piece->end };
    if (kind == WEIR__FOUND_GUARD) {
        found.block = piece->lease.ptr;
        found.block_bytes = piece->lease.bytes;
    }
    return note_found(self, found);
}

/* ---- entering an access ---- */

typedef struct entry {
    const weir__vector *clock;
    bool writes;
} entry;

/* A later access stands for what it is really ordered after: a write for everything, a
 * read for reads. */
static bool is_still_open(void *context, const weir__access *access)
{
    const entry *later = context;
    return (access->writes && !later->writes) ||
           !weir__vector_covers(later->clock, access->epoch);
}

/* Whether a later access of the same stream stands for that of the act: what another
 * process has done may be told late. */
static bool is_stood_for(const weir__piece *piece, const weir__act *act, bool writes)
{
    for (uint32_t i = 0; i < piece->count; i++) {
        const weir__access *access = &piece->accesses[i];
        if (access->epoch.stream == act->epoch.stream &&
            access->epoch.time > act->epoch.time && (access->writes || !writes))
            return true;
    }
    return false;
}

static bool enter(weir__ledger *self, const weir__act *act, weir__piece *piece,
                  bool writes)
{
    if (is_stood_for(piece, act, writes))
        return true;
    entry later = { act->clock, writes };
    weir__piece_filter(&self->history, piece, is_still_open, &later);
    return weir__piece_add(&self->history, piece,
                           (weir__access){ .epoch = act->epoch, .what = act->what,
                                           .writes = writes });
}

static bool is_back_for(const weir__act *act, const weir__lease *lease)
{
    if (act->may_touch_all)
        return false;
    return lease->state == WEIR__LEASE_BACK ||
           (lease->state == WEIR__LEASE_KEPT && !act->stream->is_graphs);
}

bool weir__ledger_use(weir__ledger *self, const weir__act *act, uintptr_t begin,
                      uintptr_t end, bool writes)
{
    if (!weir__history_cut(&self->history, begin, end))
        return false;
    for (weir__piece *piece = weir__history_first(&self->history, begin);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        if (is_back_for(act, &piece->lease) &&
            !judge_lease(self, piece, WEIR__FOUND_USE_AFTER_FREE, "deallocate", writes))
            return false;
        if (piece->lease.state == WEIR__LEASE_GUARD && !act->may_touch_all &&
            !judge_lease(self, piece, WEIR__FOUND_GUARD, "guard bytes", writes))
            return false;
        if (!judge_races(self, act, piece, writes) || !enter(self, act, piece, writes))
            return false;
    }
    weir__history_heal(&self->history, begin, end);
    return true;
}

bool weir__ledger_look_at(weir__ledger *self, const weir__act *act, uintptr_t begin,
                          uintptr_t end, bool writes)
{
    if (!weir__history_cut(&self->history, begin, end))
        return false;
    bool told = true;
    for (const weir__piece *piece = weir__history_first(&self->history, begin);
         told && piece != NULL && piece->begin < end; piece = piece->next[0]) {
        const weir__lease_state state = piece->lease.state;
        if (state == WEIR__LEASE_BACK || state == WEIR__LEASE_KEPT)
            told = judge_lease(self, piece, WEIR__FOUND_USE_AFTER_FREE, "deallocate",
                               writes);
        if (told && state == WEIR__LEASE_GUARD)
            told = judge_lease(self, piece, WEIR__FOUND_GUARD, "guard bytes", writes);
        told = told && judge_races(self, act, piece, writes);
    }
    weir__history_heal(&self->history, begin, end);
    return told;
}

bool weir__ledger_set_guard(weir__ledger *self, uintptr_t begin, uintptr_t end,
                            uintptr_t block, size_t block_bytes)
{
    if (!weir__history_cut(&self->history, begin, end))
        return false;
    for (weir__piece *piece = weir__history_first(&self->history, begin);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        if (block_bytes != 0)
            piece->lease = (weir__lease){ .state = WEIR__LEASE_GUARD, .ptr = block,
                                          .bytes = block_bytes };
        else if (piece->lease.state == WEIR__LEASE_GUARD)
            piece->lease = (weir__lease){ .state = WEIR__LEASE_BACK };
    }
    weir__history_heal(&self->history, begin, end);
    return true;
}

static bool is_of_block(const weir__piece *piece, uintptr_t ptr, size_t bytes)
{
    return piece->lease.state == WEIR__LEASE_OUT && piece->lease.ptr == ptr &&
           piece->lease.bytes == bytes;
}

/* What is of the block of `had` bytes is of one of `bytes` now. */
static void lengthen(weir__ledger *self, uintptr_t ptr, size_t had, size_t bytes)
{
    uintptr_t end = weir__end_of(ptr, had);
    for (weir__piece *piece = weir__history_first(&self->history, ptr);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        if (is_of_block(piece, ptr, had))
            piece->lease.bytes = bytes;
    }
}

static bool cut(weir__ledger *self, uintptr_t ptr, size_t bytes, size_t from, size_t to)
{
    uintptr_t ends[] = { weir__end_of(ptr, from), weir__end_of(ptr, to),
                         weir__end_of(ptr, bytes) };
    if (!weir__history_cut(&self->history, ends[0], ends[1]))
        return false;
    for (weir__piece *piece = weir__history_first(&self->history, ptr);
         piece != NULL && piece->begin < ends[2]; piece = piece->next[0]) {
        size_t i = 0;
        uintptr_t begin = ptr;
        if (!is_of_block(piece, ptr, bytes))
            continue;
        while (piece->begin >= ends[i])
            begin = ends[i++];
        piece->lease.ptr = begin;
        piece->lease.bytes = ends[i] - begin;
    }
    return true;
}

void weir__ledger_cut(weir__ledger *self, uintptr_t ptr, size_t bytes, size_t from,
                      size_t to)
{
    if (weir__ledger_in(self))
        weir__ledger_out(self, cut(self, ptr, bytes, from, to));
}

bool weir__ledger_hand_out(weir__ledger *self, const weir__act *act, uintptr_t ptr,
                           size_t had, size_t bytes)
{
    uintptr_t begin = weir__end_of(ptr, had), end = weir__end_of(ptr, bytes);
    weir__lease lease = { WEIR__LEASE_OUT, ptr, bytes, act->epoch,
                          .capture = act->capture };

    if (!weir__history_cut(&self->history, begin, end))
        return false;
    if (had > 0)
        lengthen(self, ptr, had, bytes);
    for (weir__piece *piece = weir__history_first(&self->history, begin);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        if (piece->lease.state == WEIR__LEASE_OUT &&
            !judge_lease(self, piece, WEIR__FOUND_OWNED_TWICE, "allocate", true))
            return false;
        if (!judge_races(self, act, piece, true))
            return false;
        /* The host makes no access that would be kept. */
        if (act->stream != NULL && !enter(self, act, piece, true))
            return false;
        piece->lease = lease;
    }
    weir__history_heal(&self->history, ptr, end);
    return true;
}

bool weir__ledger_open_block(weir__ledger *self, uintptr_t ptr, size_t bytes)
{
    uintptr_t end = weir__end_of(ptr, bytes);
    for (weir__piece *piece = weir__history_first(&self->history, ptr);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        if (is_of_block(piece, ptr, bytes))
            piece->lease.is_open = true;
    }
    weir__history_heal(&self->history, ptr, end);
    return true;
}

bool weir__ledger_has_block(const weir__ledger *self, uintptr_t ptr, size_t bytes)
{
    uintptr_t end = weir__end_of(ptr, bytes);
    for (const weir__piece *piece = weir__history_first(&self->history, ptr);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        if (is_of_block(piece, ptr, bytes))
            return true;
    }
    return false;
}

bool weir__ledger_take_back(weir__ledger *self, const weir__act *act, uintptr_t ptr,
                            size_t bytes, uint64_t capture)
{
    uintptr_t end = weir__end_of(ptr, bytes);
    for (weir__piece *piece = weir__history_first(&self->history, ptr);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        /* What was handed out to somebody else meanwhile stays with them. */
        if (!is_of_block(piece, ptr, bytes))
            continue;
        /* It is that capture's still which it was handed out for. */
        uint64_t keeper = piece->lease.capture != 0 ? piece->lease.capture : capture;
        piece->lease = (weir__lease){ .state = keeper != 0 ? WEIR__LEASE_KEPT
                                                           : WEIR__LEASE_BACK,
                                      .capture = keeper };
        if (act == NULL)
            continue;
        piece->lease.since = act->epoch;
        if (!judge_races(self, act, piece, true) || !enter(self, act, piece, true))
            return false;
    }
    weir__history_heal(&self->history, ptr, end);
    return true;
}

/* What is out stays so, and goes back as if it had never been for a capture. */
bool weir__ledger_end_capture(weir__ledger *self, uint64_t capture)
{
    for (weir__piece *piece = weir__history_first(&self->history, 0); piece != NULL;
         piece = piece->next[0]) {
        if (piece->lease.capture != capture)
            continue;
        piece->lease.capture = 0;
        if (piece->lease.state == WEIR__LEASE_KEPT)
            piece->lease.state = WEIR__LEASE_BACK;
    }
    weir__history_heal(&self->history, 0, UINTPTR_MAX);
    return true;
}

/* ---- pools of a device's own ---- */

static bool is_forgotten(void *context, const weir__access *access)
{
    (void)context;
    (void)access;
    return false;
}

bool weir__ledger_pool_hold(weir__ledger *self, uintptr_t begin, uintptr_t end)
{
    if (!weir__history_cut(&self->history, begin, end))
        return false;
    for (weir__piece *piece = weir__history_first(&self->history, begin);
         piece != NULL && piece->begin < end; piece = piece->next[0])
        piece->lease = (weir__lease){ .state = WEIR__LEASE_BACK };
    weir__history_heal(&self->history, begin, end);
    return true;
}

bool weir__ledger_pool_begin(weir__ledger *self, const weir__act *act, uintptr_t begin,
                             uintptr_t end, bool anew)
{
    if (!weir__history_cut(&self->history, begin, end))
        return false;
    for (weir__piece *piece = weir__history_first(&self->history, begin);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        piece->lease = (weir__lease){ .state = WEIR__LEASE_RAW };
        if (anew)
            weir__piece_filter(&self->history, piece, is_forgotten, NULL);
        if (!judge_races(self, act, piece, true) || !enter(self, act, piece, true))
            return false;
    }
    weir__history_heal(&self->history, begin, end);
    return true;
}

bool weir__ledger_pool_take_back(weir__ledger *self, const weir__act *act,
                                 uintptr_t begin, uintptr_t end)
{
    if (!weir__history_cut(&self->history, begin, end))
        return false;
    for (weir__piece *piece = weir__history_first(&self->history, begin);
         piece != NULL && piece->begin < end; piece = piece->next[0]) {
        piece->lease = (weir__lease){ .state = WEIR__LEASE_BACK, .since = act->epoch };
        if (!judge_races(self, act, piece, true) || !enter(self, act, piece, true))
            return false;
    }
    weir__history_heal(&self->history, begin, end);
    return true;
}

bool weir__ledger_end_memory(weir__ledger *self, const weir__act *act, uintptr_t begin,
                             uintptr_t end)
{
    bool told = true;
    for (const weir__piece *piece = weir__history_first(&self->history, begin);
         told && piece != NULL && piece->begin < end; piece = piece->next[0])
        told = judge_races(self, act, piece, true);
    weir__history_end(&self->history, begin, end);
    return told;
}

/* ---- telling ---- */

/* Static words for what a finding names: "kernel" that writes is "kernel writes". */
static const char *words_of(const char *what, bool writes)
{
    static const char *const words[][3] = {
        { "kernel", "kernel reads", "kernel writes" },
        { "copy", "copy reads", "copy writes" },
        { "fill", "fill reads", "fill writes" },
        { "access", "read", "write" },
        { "another process", "another process reads", "another process writes" },
    };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        if (strcmp(what, words[i][0]) == 0)
            return words[i][writes ? 2 : 1];
    }
    return what;
}

#define SIDE_MAX 64

/* "kernel writes on stream 7", "free by the host" */
static void describe_side(char side[SIDE_MAX], const char *words, uint64_t stream)
{
    if (stream == 0)
        snprintf(side, SIDE_MAX, "%s by the host", words);
    else
        snprintf(side, SIDE_MAX, "%s on stream %" PRIu64, words, stream);
}

static void describe(char *message, size_t room, const weir__found *found,
                     const weir_emulated_finding *finding)
{
    char first[SIDE_MAX], second[SIDE_MAX], who[SIDE_MAX];
    describe_side(first, finding->first, finding->first_stream);
    describe_side(second, finding->second, finding->second_stream);
    if (finding->second_stream == 0)
        snprintf(who, sizeof who, "the host thread has not waited for");
    else
        snprintf(who, sizeof who, "stream %" PRIu64 " does not wait for",
                 finding->second_stream);

    switch (found->kind) {
    case WEIR__FOUND_RACE:
        snprintf(message, room, "%s is not ordered after %s: both touch 0x%" PRIxPTR
                 ", %zu bytes, and %s stream %" PRIu64, second, first, finding->ptr,
                 finding->bytes, who, finding->first_stream);
        break;
    case WEIR__FOUND_USE_AFTER_FREE:
        if (finding->first_stream == 0)
            snprintf(first, sizeof first, "a deallocation");
        snprintf(message, room, "%s uses 0x%" PRIxPTR ", %zu bytes, after %s gave them "
                 "back", second, finding->ptr, finding->bytes, first);
        break;
    case WEIR__FOUND_OWNED_TWICE:
        snprintf(message, room, "%s hands out 0x%" PRIxPTR ", %zu bytes, that are out "
                 "since %s", second, finding->ptr, finding->bytes, first);
        break;
    case WEIR__FOUND_GUARD:
        snprintf(message, room, "%s touches 0x%" PRIxPTR ", %zu bytes, %s the block of "
                 "%zu bytes at 0x%" PRIxPTR, second, finding->ptr, finding->bytes,
                 finding->ptr < found->block ? "before the start of"
                                             : "past the end of",
                 found->block_bytes, found->block);
        break;
    }
}

void weir__ledger_tell(weir__ledger *self, const weir__act *act)
{
    for (size_t i = 0; i < self->found_count; i++) {
        const weir__found *found = &self->found[i];
        char message[4 * SIDE_MAX + 96];
        weir_emulated_finding finding = {
            .struct_size = sizeof finding,
            .first = words_of(found->first.what, found->first.writes),
            .second = words_of(act->what, found->second_writes),
            .first_stream = found->first.epoch.stream,
            .second_stream = act->stream == NULL ? 0 : act->stream->name.number,
            .ptr = found->begin,
            .bytes = found->end - found->begin,
            .message = message,
        };
        describe(message, sizeof message, found, &finding);
        act->device->owner.found(act->device->owner.device, &finding);
    }
    self->found_count = 0;
}

void weir__ledger_tell_deaf(const weir__ledger_owner *owner)
{
    static const weir_emulated_finding finding = {
        .struct_size = sizeof finding,
        .first = "no host memory",
        .second = "the ledger is deaf",
        .message = "there is no host memory for the ledger's records: it is deaf, and "
                   "finds nothing from here on",
    };
    owner->found(owner->device, &finding);
}
