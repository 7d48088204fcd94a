/* checking_looks.c - the looks of the resource `checking`.
 *
 * A look copies some of a block's region to pinned memory, on a stream, and is judged
 * once the mark behind the copies is done: by a later call, or by who waits for it. Its
 * slot begins with the bytes that should come, so that a copy which never runs finds
 * nothing.
 *
 * FREE --take--> TAKEN --end--> UNDER_WAY --(mark is done)--> TAKEN --judged--> FREE
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "call_sites.h"
#include "checking_parts.h"
#include "internal.h"

/* ---- records ---- */

void weir__checked_link(weir__checked_list *list, weir__checked *block)
{
    block->newer = NULL;
    block->older = list->newest;
    *(list->newest == NULL ? &list->oldest : &list->newest->newer) = block;
    list->newest = block;
}

void weir__checked_unlink(weir__checked_list *list, weir__checked *block)
{
    *(block->older == NULL ? &list->oldest : &block->older->newer) = block->newer;
    *(block->newer == NULL ? &list->newest : &block->newer->older) = block->older;
    block->older = block->newer = NULL;
}

void weir__checked_let_go(weir__checking *self, weir__checked *block)
{
    weir__mutex_lock(&self->lock);
    WEIR_CHECK(block->holds > 0, "a record let go of too often");
    bool is_last = --block->holds == 0;
    weir__mutex_unlock(&self->lock);
    if (is_last)
        weir__host_free(block);
}

/* ---- what was found ---- */

/* The bytes of one zone that are not as they were filled. */
typedef struct damage {
    size_t count;
    size_t first; /* offset in the region */
    uint8_t value;
} damage;

/* In which `at` lies; it may end before *end. */
static weir__zone zone_at(const weir__checking *self, const weir__look *look, size_t at,
                          size_t *end)
{
    const size_t front = self->options.guard_bytes, back = front + look->block_bytes;
    if (at >= back)
        return WEIR__ZONE_BACK;
    const size_t zone_end = at < front ? front : back;
    if (zone_end < *end)
        *end = zone_end;
    return at < front ? WEIR__ZONE_FRONT : WEIR__ZONE_BYTES;
}

static uint8_t expected(weir__zone zone)
{
    return zone == WEIR__ZONE_BYTES ? WEIR__FREED_BYTE : WEIR__GUARD_BYTE;
}

/* There is one at least. */
static bool are_all(const unsigned char *bytes, size_t count, uint8_t value)
{
    return *bytes == value && memcmp(bytes, bytes + 1, count - 1) == 0;
}

/* Of one zone, from `at` on. */
static void inspect_zone(const unsigned char *bytes, size_t count, uint8_t value,
                         size_t at, damage *out)
{
    if (are_all(bytes, count, value))
        return;
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value && out->count++ == 0) {
            out->first = at + i;
            out->value = bytes[i];
        }
    }
}

static void inspect(const weir__checking *self, const weir__look *look, damage out[3])
{
    const unsigned char *bytes = look->slot;
    for (size_t i = 0; i < look->part_count; i++) {
        const size_t last = look->parts[i].at + look->parts[i].bytes;
        for (size_t at = look->parts[i].at, end; at < last; at = end) {
            end = last;
            weir__zone zone = zone_at(self, look, at, &end);
            inspect_zone(bytes, end - at, expected(zone), at, &out[zone]);
            bytes += end - at;
        }
    }
}

/* What a part shows that was never copied. */
static void expect(const weir__checking *self, const weir__look *look,
                   weir__look_part part, unsigned char *to)
{
    const size_t last = part.at + part.bytes;
    for (size_t at = part.at, end; at < last; at = end) {
        end = last;
        weir__zone zone = zone_at(self, look, at, &end);
        memset(to, expected(zone), end - at);
        to += end - at;
    }
}

/* "on stream 0x1, by a+0x1 < b+0x2" */
typedef struct words {
    char text[200];
} words;

static words where(const weir__checking *self, weir_stream stream, void *const *frames)
{
    words it;
    weir__site_words site = weir__site_say(frames, self->options.frames);
    const char *by = site.text[0] == '\0' ? "" : " by ";
    if (stream == WEIR__NO_STREAM)
        snprintf(it.text, sizeof it.text, "behind points%s%s", by, site.text);
    else
        snprintf(it.text, sizeof it.text, "on stream %p%s%s",
                 (void *)weir__stream_of(stream), by, site.text);
    return it;
}

static void tell(weir__checking *self, const weir__checked *block, size_t block_bytes,
                 weir__zone zone, const damage *it)
{
    const size_t guard = self->options.guard_bytes;
    const weir__block_record *record = &block->record;
    words allocated = where(self, record->stream, block->frames);
    words freed = { ", and is out" };
    if (block->is_freed) {
        words by = where(self, block->freed_on, block->frames + self->options.frames);
        snprintf(freed.text, sizeof freed.text, ", given back %.180s", by.text);
    }
    char place[120];
    size_t first = it->first - guard;
    switch (zone) {
    case WEIR__ZONE_FRONT:
        snprintf(place, sizeof place, "%zu bytes in front of its start were written, "
                 "the first %zu before it", it->count, guard - it->first);
        break;
    case WEIR__ZONE_BACK:
        snprintf(place, sizeof place, "%zu bytes past its end were written, the first "
                 "%zu behind it", it->count, first - block_bytes);
        break;
    case WEIR__ZONE_BYTES:
        snprintf(place, sizeof place, "%zu of its bytes were written after it was "
                 "given back, the first at %zu", it->count, first);
        break;
    }
    bool is_use = zone == WEIR__ZONE_BYTES;
    atomic_fetch_add(is_use ? &self->uses_after_free : &self->overruns, 1);
    weir__misuse(is_use ? WEIR_MISUSE_USE_AFTER_FREE : WEIR_MISUSE_OVERRUN, record->ptr,
                 block_bytes, "checking: the block of %zu bytes at %p: %s, with "
                 "0x%02x; it was allocated %s%s", block_bytes, record->ptr, place,
                 it->value, allocated.text, freed.text);
}

/* Judges a look that is done, and taken. */
static void judge(weir__checking *self, weir__look *look)
{
    damage found[3] = { { 0, 0, 0 } };
    weir__checked *block = look->block;
    bool is_news[3];
    inspect(self, look, found);
    weir__mutex_lock(&self->lock);
    for (int zone = 0; zone < 3; zone++) {
        is_news[zone] = found[zone].count > 0 && !block->zone_told[zone];
        block->zone_told[zone] |= is_news[zone];
    }
    weir__mutex_unlock(&self->lock);
    atomic_fetch_add(&self->looked, 1);
    for (int zone = 0; zone < 3; zone++) {
        if (is_news[zone])
            tell(self, block, look->block_bytes, (weir__zone)zone, &found[zone]);
    }
}

static void finish(weir__checking *self, weir__look *look)
{
    weir__checked *block = look->block;
    if (block != NULL)
        judge(self, look);
    weir__mutex_lock(&self->lock);
    look->block = NULL;
    look->state = WEIR__LOOK_FREE;
    weir__mutex_unlock(&self->lock);
    if (block != NULL)
        weir__checked_let_go(self, block);
}

/* ---- which are done ---- */

/* Where the one at `index` is under way: its mark. */
static bool is_under_way(weir__checking *self, size_t index, weir__mark *out)
{
    weir__mutex_lock(&self->lock);
    const weir__look *look = &self->looks[index];
    bool is = look->state == WEIR__LOOK_UNDER_WAY;
    *out = look->mark;
    weir__mutex_unlock(&self->lock);
    return is;
}

static bool is_marked_locked(const weir__look *look, weir__mark mark)
{
    return look->state == WEIR__LOOK_UNDER_WAY && look->mark.clock == mark.clock &&
           look->mark.number == mark.number;
}

/* What was asked about without the lock is another's meanwhile, or ours. */
static void finish_marked(weir__checking *self, size_t index, weir__mark mark)
{
    weir__look *look = &self->looks[index];
    weir__mutex_lock(&self->lock);
    bool is_ours = is_marked_locked(look, mark);
    if (is_ours) {
        look->state = WEIR__LOOK_TAKEN;
        self->under_way--;
    }
    weir__mutex_unlock(&self->lock);
    if (is_ours)
        finish(self, look);
}

/* True: it was done. */
static bool judge_if_done(weir__checking *self, size_t index)
{
    weir__mark mark;
    if (!is_under_way(self, index, &mark) ||
        !weir__order_is_done(self->device->order, 0, mark))
        return false;
    finish_marked(self, index, mark);
    return true;
}

void weir__looks_judge_done(weir__checking *self)
{
    for (size_t i = 0; i < WEIR__LOOKS_MOST; i++)
        (void)judge_if_done(self, i);
}

/* Asks the device once where nothing is done, so that a call costs little. */
void weir__looks_judge_some(weir__checking *self)
{
    weir__mark mark;
    weir__mutex_lock(&self->lock);
    size_t left = self->under_way > 0 ? WEIR__LOOKS_MOST : 0;
    size_t at = self->next_look;
    weir__mutex_unlock(&self->lock);
    while (left-- > 0) {
        at = (at + 1) % WEIR__LOOKS_MOST;
        if (is_under_way(self, at, &mark) && !judge_if_done(self, at))
            break;
    }
    weir__mutex_lock(&self->lock);
    self->next_look = at;
    weir__mutex_unlock(&self->lock);
}

bool weir__looks_judge_all_sync(weir__checking *self)
{
    bool all = true;
    for (size_t i = 0; i < WEIR__LOOKS_MOST; i++) {
        weir__mark mark;
        if (!is_under_way(self, i, &mark))
            continue;
        if (weir__order_sync(self->device->order, mark) == WEIR_OK)
            finish_marked(self, i, mark);
        else
            all = false;
    }
    return all;
}

/* ---- looking ---- */

bool weir__checking_fill(weir__checking *self, weir_stream stream, void *ptr,
                         uint8_t value, size_t bytes)
{
    weir__note_inspect(self->device, true);
    weir_status status = weir__fill(self->device, stream, ptr, value, bytes);
    weir__note_inspect(self->device, false);
    return status == WEIR_OK;
}

static weir__look *take_free(weir__checking *self)
{
    weir__look *found = NULL;
    weir__mutex_lock(&self->lock);
    for (size_t i = 0; i < WEIR__LOOKS_MOST && found == NULL; i++) {
        if (self->looks[i].state == WEIR__LOOK_FREE)
            found = &self->looks[i];
    }
    if (found != NULL)
        found->state = WEIR__LOOK_TAKEN;
    weir__mutex_unlock(&self->lock);
    return found;
}

weir__look *weir__look_take(weir__checking *self)
{
    weir__look *look = take_free(self);
    if (look == NULL) {
        weir__looks_judge_done(self);
        look = take_free(self);
    }
    /* Another thread may have learnt that its slot is not written any more. */
    if (look != NULL)
        (void)weir__order_may_take(self->device->order, 0, look->mark);
    return look;
}

bool weir__look_copy(weir__checking *self, weir__look *look, weir_stream stream,
                     weir__checked *block, const weir__look_part *parts, size_t count)
{
    unsigned char *to = look->slot;
    weir_status status = WEIR_OK;
    look->block_bytes = block->record.bytes;
    look->part_count = count;
    weir__note_inspect(self->device, true);
    for (size_t i = 0; i < count && status == WEIR_OK; i++) {
        look->parts[i] = parts[i];
        expect(self, look, parts[i], to);
        status = weir__copy(self->device, stream, to,
                            weir__checked_region(self, block) + parts[i].at,
                            parts[i].bytes);
        to += parts[i].bytes;
    }
    weir__note_inspect(self->device, false);
    return status == WEIR_OK;
}

void weir__look_end(weir__checking *self, weir__look *look, weir__checked *block,
                    bool good, weir__mark mark)
{
    weir__mutex_lock(&self->lock);
    look->mark = mark;
    look->state = WEIR__LOOK_UNDER_WAY;
    look->block = good ? block : NULL;
    block->holds += good;
    self->under_way++;
    weir__mutex_unlock(&self->lock);
    if (!good)
        weir__checking_leave_out(self);
}

weir__mark weir__checking_watched(weir__checking *self)
{
    weir__mark mark = weir__order_free_mark(self->device->order, self->watcher, 0);
    weir__order_cover(self->device->order, mark);
    return mark;
}

static weir__look *take_sync(weir__checking *self)
{
    weir__look *look = weir__look_take(self);
    if (look != NULL)
        return look;
    (void)weir__looks_judge_all_sync(self);
    return weir__look_take(self);
}

/* It cannot be waited for, and by the time that it is done the bytes may be another's:
 * there is nothing to judge. */
static void forget(weir__checking *self, weir__look *look, weir__mark mark)
{
    weir__mutex_lock(&self->lock);
    weir__checked *block = NULL;
    if (is_marked_locked(look, mark)) {
        block = look->block;
        look->block = NULL;
    }
    weir__mutex_unlock(&self->lock);
    if (block == NULL)
        return;
    weir__checking_leave_out(self);
    weir__checked_let_go(self, block);
}

/* One piece, of look_bytes at most. */
static void look_piece_sync(weir__checking *self, weir__checked *block,
                            weir__look_part part)
{
    weir__look *look = take_sync(self);
    if (look == NULL) {
        weir__checking_leave_out(self);
        return;
    }
    size_t index = (size_t)(look - self->looks);
    bool good = weir__look_copy(self, look, self->watcher, block, &part, 1);
    weir__mark mark = weir__checking_watched(self);
    weir__look_end(self, look, block, good, mark);
    if (weir__order_sync(self->device->order, mark) == WEIR_OK)
        finish_marked(self, index, mark);
    else
        forget(self, look, mark);
    weir__mutex_lock(&self->lock);
    block->looked = mark;
    weir__mutex_unlock(&self->lock);
}

void weir__checking_look_sync(weir__checking *self, weir__checked *block, size_t at,
                              size_t bytes)
{
    const size_t most = self->options.look_bytes;
    while (bytes > 0) {
        size_t now = bytes < most ? bytes : most;
        look_piece_sync(self, block, (weir__look_part){ at, now });
        at += now;
        bytes -= now;
    }
}
