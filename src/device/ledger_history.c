/* ledger_history.c - the pieces of memory, in a skip list by address. */
#include "ledger_history.h"

#include <string.h>

#include "internal.h"

void weir__history_init(weir__history *self)
{
    *self = (weir__history){ .draw = 0x9e3779b97f4a7c15u };
}

/* ---- the skip list ---- */

/* Each level has about a quarter of the pieces of the one below. The numbers only
 * shape the list: what it says does not depend on them. */
static uint32_t draw_height(weir__history *self)
{
    self->draw ^= self->draw << 13;
    self->draw ^= self->draw >> 7;
    self->draw ^= self->draw << 17;
    uint32_t height = 1;
    for (uint64_t bits = self->draw >> 8;
         height < WEIR__HISTORY_HEIGHT && (bits & 3) == 0; bits >>= 2)
        height++;
    return height;
}

/* The links that point to the first piece at or after `address`, level by level. */
typedef struct trail {
    weir__piece **links[WEIR__HISTORY_HEIGHT];
    weir__piece *before; /* the last piece that begins before `address`, or null */
} trail;

static trail find_trail(weir__history *self, uintptr_t address)
{
    trail found = { .before = NULL };
    weir__piece **links = self->first;
    for (int level = WEIR__HISTORY_HEIGHT - 1; level >= 0; level--) {
        while (links[level] != NULL && links[level]->begin < address) {
            found.before = links[level];
            links = links[level]->next;
        }
        found.links[level] = &links[level];
    }
    return found;
}

static void piece_free(weir__piece *piece)
{
    weir__host_free(piece->accesses);
    weir__host_free(piece);
}

/* Makes a piece, in no list yet; null: no host memory. */
static weir__piece *piece_create(weir__history *self, uintptr_t begin, uintptr_t end,
                                 uint32_t room)
{
    uint32_t height = draw_height(self);
    weir__piece *piece = weir__host_alloc(sizeof *piece +
                                          height * sizeof piece->next[0]);
    if (piece == NULL)
        return NULL;
    *piece = (weir__piece){ .begin = begin, .end = end, .height = height,
                            .room = room };
    if (room > 0) {
        piece->accesses = weir__host_alloc(room * sizeof *piece->accesses);
        if (piece->accesses == NULL) {
            weir__host_free(piece);
            return NULL;
        }
    }
    return piece;
}

static void insert(weir__history *self, weir__piece *piece, const trail *at)
{
    for (uint32_t level = 0; level < piece->height; level++) {
        piece->next[level] = *at->links[level];
        *at->links[level] = piece;
    }
    self->pieces++;
    self->accesses += piece->count;
}

static void remove_piece(weir__history *self, weir__piece *piece)
{
    trail at = find_trail(self, piece->begin);
    for (uint32_t level = 0; level < piece->height; level++) {
        WEIR_ASSERT(*at.links[level] == piece, "a piece is not where it should be");
        *at.links[level] = piece->next[level];
    }
    self->pieces--;
    self->accesses -= piece->count;
    piece_free(piece);
}

/* ---- memory ---- */

void weir__history_free(weir__history *self)
{
    for (weir__piece *piece = self->first[0]; piece != NULL; ) {
        weir__piece *next = piece->next[0];
        piece_free(piece);
        piece = next;
    }
    weir__history_init(self);
}

bool weir__history_begin(weir__history *self, uintptr_t begin, uintptr_t end)
{
    trail at = find_trail(self, begin);
    const weir__piece *after = *at.links[0];
    WEIR_CHECK((at.before == NULL || at.before->end <= begin) &&
               (after == NULL || after->begin >= end), "memory began twice");

    weir__piece *piece = piece_create(self, begin, end, 0);
    if (piece == NULL)
        return false;
    piece->memory = begin;
    insert(self, piece, &at);
    return true;
}

void weir__history_end(weir__history *self, uintptr_t begin, uintptr_t end)
{
    weir__piece *piece = weir__history_first(self, begin);
    while (piece != NULL && piece->begin < end) {
        weir__piece *next = piece->next[0];
        WEIR_ASSERT(piece->begin >= begin && piece->end <= end,
                    "a piece reaches beyond its memory");
        remove_piece(self, piece);
        piece = next;
    }
}

weir__piece *weir__history_first(const weir__history *self, uintptr_t begin)
{
    weir__piece *before = NULL;
    weir__piece *const *links = self->first;
    for (int level = WEIR__HISTORY_HEIGHT - 1; level >= 0; level--) {
        while (links[level] != NULL && links[level]->begin <= begin) {
            before = links[level];
            links = links[level]->next;
        }
    }
    if (before != NULL && before->end > begin)
        return before;
    return links[0];
}

/* ---- cutting and healing ---- */

static bool cut_at(weir__history *self, uintptr_t address)
{
    trail at = find_trail(self, address);
    weir__piece *whole = at.before;
    if (whole == NULL || whole->end <= address)
        return true;

    weir__piece *upper = piece_create(self, address, whole->end, whole->count);
    if (upper == NULL)
        return false;
    upper->memory = whole->memory;
    upper->lease = whole->lease;
    upper->count = whole->count;
    if (whole->count > 0)
        memcpy(upper->accesses, whole->accesses,
               whole->count * sizeof *whole->accesses);
    whole->end = address;
    insert(self, upper, &at);
    return true;
}

bool weir__history_cut(weir__history *self, uintptr_t begin, uintptr_t end)
{
    return cut_at(self, begin) && cut_at(self, end);
}

static bool epoch_equal(weir__epoch a, weir__epoch b)
{
    return a.stream == b.stream && a.time == b.time;
}

static bool lease_equal(const weir__lease *a, const weir__lease *b)
{
    return a->state == b->state && a->ptr == b->ptr && a->bytes == b->bytes &&
           a->is_open == b->is_open && a->capture == b->capture &&
           epoch_equal(a->since, b->since);
}

/* Whether `a` and the piece after it say the same. */
static bool is_healable(const weir__piece *a)
{
    const weir__piece *b = a->next[0];
    if (b == NULL || b->begin != a->end || b->memory != a->memory ||
        b->count != a->count || !lease_equal(&a->lease, &b->lease))
        return false;
    for (uint32_t i = 0; i < a->count; i++) {
        const weir__access *x = &a->accesses[i], *y = &b->accesses[i];
        if (!epoch_equal(x->epoch, y->epoch) || x->writes != y->writes ||
            x->what != y->what)
            return false;
    }
    return true;
}

void weir__history_heal(weir__history *self, uintptr_t begin, uintptr_t end)
{
    weir__piece *piece = weir__history_first(self, begin == 0 ? 0 : begin - 1);
    while (piece != NULL && piece->begin < end) {
        while (is_healable(piece)) {
            uintptr_t new_end = piece->next[0]->end;
            remove_piece(self, piece->next[0]);
            piece->end = new_end;
        }
        piece = piece->next[0];
    }
}

/* ---- accesses ---- */

void weir__piece_filter(weir__history *self, weir__piece *piece,
                        bool (*is_kept)(void *context, const weir__access *access),
                        void *context)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < piece->count; i++) {
        if (is_kept(context, &piece->accesses[i]))
            piece->accesses[kept++] = piece->accesses[i];
    }
    self->accesses -= piece->count - kept;
    piece->count = kept;
}

/* Sorted by stream, reads first. */
static bool access_is_before(const weir__access *a, const weir__access *b)
{
    if (a->epoch.stream != b->epoch.stream)
        return a->epoch.stream < b->epoch.stream;
    return a->writes < b->writes;
}

bool weir__piece_add(weir__history *self, weir__piece *piece, weir__access access)
{
    if (piece->count == piece->room) {
        uint32_t room = piece->room == 0 ? 2 : piece->room * 2;
        weir__access *accesses = weir__host_alloc(room * sizeof *accesses);
        if (accesses == NULL)
            return false;
        if (piece->count > 0)
            memcpy(accesses, piece->accesses, piece->count * sizeof *accesses);
        weir__host_free(piece->accesses);
        piece->accesses = accesses;
        piece->room = room;
    }
    uint32_t at = piece->count;
    while (at > 0 && access_is_before(&access, &piece->accesses[at - 1])) {
        piece->accesses[at] = piece->accesses[at - 1];
        at--;
    }
    piece->accesses[at] = access;
    piece->count++;
    self->accesses++;
    return true;
}

/* ---- soundness ---- */

static void piece_verify(const weir__piece *piece)
{
    WEIR_CHECK(piece->begin < piece->end, "an empty piece");
    WEIR_CHECK(piece->memory <= piece->begin, "a piece before its memory");
    WEIR_CHECK(piece->count <= piece->room, "a piece outgrew its room");
    WEIR_CHECK(piece->lease.state != WEIR__LEASE_RAW ||
               (piece->lease.bytes == 0 && piece->lease.since.stream == 0),
               "a raw piece with a past");
    WEIR_CHECK(piece->lease.state != WEIR__LEASE_OUT ||
               (piece->lease.ptr <= piece->begin &&
                piece->end - piece->lease.ptr <= piece->lease.bytes),
               "a piece reaches out of its block");
    WEIR_CHECK(!is_healable(piece), "two neighbours say the same");

    for (uint32_t i = 0; i < piece->count; i++) {
        const weir__access *access = &piece->accesses[i];
        WEIR_CHECK(access->epoch.time != 0, "an access that never was");
        if (i == 0)
            continue;
        const weir__access *before = &piece->accesses[i - 1];
        WEIR_CHECK(access_is_before(before, access), "accesses are not sorted");
        WEIR_CHECK(before->epoch.stream != access->epoch.stream ||
                   before->epoch.time >= access->epoch.time,
                   "a write follows a read of its stream and did not drop it");
    }
}

void weir__history_verify(const weir__history *self)
{
    size_t pieces = 0, accesses = 0;
    const weir__piece *before = NULL;
    for (const weir__piece *piece = self->first[0]; piece != NULL;
         piece = piece->next[0]) {
        piece_verify(piece);
        WEIR_CHECK(before == NULL || before->end <= piece->begin, "pieces overlap");
        WEIR_CHECK(before == NULL || before->memory != piece->memory ||
                   before->end == piece->begin, "a gap in a memory");
        pieces++;
        accesses += piece->count;
        before = piece;
    }
    WEIR_CHECK(pieces == self->pieces, "pieces are miscounted");
    WEIR_CHECK(accesses == self->accesses, "accesses are miscounted");

    for (uint32_t level = 1; level < WEIR__HISTORY_HEIGHT; level++) {
        const weir__piece *upper = self->first[level];
        for (const weir__piece *piece = self->first[0]; piece != NULL;
             piece = piece->next[0]) {
            if (piece->height <= level)
                continue;
            WEIR_CHECK(upper == piece, "a level leaves out a piece");
            upper = piece->next[level];
        }
        WEIR_CHECK(upper == NULL, "a level leads out of the list");
    }
}
