/* clocks.c - see clocks.h. */
#include "clocks.h"

#include <string.h>

#include "internal.h"

/* ---- what is behind what ---- */

uint64_t weir__behind_of(const weir__behind *behind, uint64_t clock)
{
    if (behind == NULL)
        return 0;
    size_t low = 0, high = behind->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (behind->marks[middle].clock < clock)
            low = middle + 1;
        else
            high = middle;
    }
    bool found = low < behind->count && behind->marks[low].clock == clock;
    return found ? behind->marks[low].number : 0;
}

weir__behind *weir__behind_ref(weir__behind *behind)
{
    if (behind != NULL)
        behind->references++;
    return behind;
}

void weir__behind_unref(weir__behind *behind)
{
    if (behind != NULL && --behind->references == 0)
        weir__host_free(behind);
}

weir__behind *weir__behind_alloc(size_t count)
{
    size_t bytes = sizeof(weir__behind) + count * sizeof(weir__mark);
    weir__behind *behind = weir__host_alloc(bytes);
    if (behind != NULL) {
        behind->references = 1;
        behind->count = 0;
    }
    return behind;
}

/* Appends `mark`, or raises the last entry; nothing if it is done anyway. */
static bool
behind_append(weir__order *order, weir__behind *room, size_t capacity, weir__mark mark)
{
    weir__mark *last = room->count > 0 ? &room->marks[room->count - 1] : NULL;
    if (last != NULL && last->clock == mark.clock) {
        if (last->number < mark.number)
            last->number = mark.number;
        return true;
    }
    const weir__clock *clock = weir__clock_find(order, mark.clock);
    if (clock == NULL || mark.number <= clock->done)
        return true;
    if (room->count == capacity)
        return false;
    room->marks[room->count++] = mark;
    return true;
}

bool weir__behind_join(weir__order *order, weir__behind *room, size_t capacity,
                       const weir__behind *a, const weir__behind *b, weir__mark one)
{
    const weir__behind single_storage = { .references = 1 };
    const weir__behind *lists[2] = { a ? a : &single_storage, b ? b : &single_storage };
    size_t at[2] = { 0, 0 };
    bool one_is_in = false;

    room->count = 0;
    for (;;) {
        const weir__mark *next = NULL;
        int from = -1;
        for (int i = 0; i < 2; i++) {
            if (at[i] == lists[i]->count)
                continue;
            const weir__mark *mark = &lists[i]->marks[at[i]];
            if (next == NULL || mark->clock < next->clock) {
                next = mark;
                from = i;
            }
        }
        if (!one_is_in && (next == NULL || one.clock <= next->clock)) {
            one_is_in = true;
            if (!behind_append(order, room, capacity, one))
                return false;
            continue;
        }
        if (next == NULL)
            return true;
        if (!behind_append(order, room, capacity, *next))
            return false;
        at[from]++;
    }
}

/* ---- covers ---- */

weir__cover *weir__cover_ref(weir__cover *cover)
{
    cover->references++;
    return cover;
}

void weir__cover_unref(weir__order *order, weir__cover *cover)
{
    WEIR_CHECK(cover->references > 0, "a cover is let go too often");
    if (--cover->references > 0)
        return;
    weir__behind_unref(cover->behind);
    cover->behind = NULL;
    cover->next = order->spare_covers;
    order->spare_covers = cover;
    order->spare_count++;
}

weir__cover *weir__cover_take(weir__order *order)
{
    weir__cover *cover = order->spare_covers;
    if (cover == NULL)
        return NULL;
    order->spare_covers = cover->next;
    order->spare_count--;
    cover->next = NULL;
    cover->references = 1;
    return cover;
}

weir__cover *weir__cover_for(weir__clock *clock, uint64_t number)
{
    weir__cover *cover = clock->covers;
    while (cover != NULL && cover->number < number)
        cover = cover->next;
    return cover;
}

/* Drops the cover behind the oldest (the oldest is done soonest, the newest covers
 * most), or the older of two. */
static void
covers_thin(weir__order *order, weir__clock *clock)
{
    weir__cover **link = &clock->covers;
    if (clock->cover_count > 2)
        link = &(*link)->next;
    weir__cover *victim = *link;
    *link = victim->next;
    clock->cover_count--;
    weir__cover_unref(order, victim);
}

void weir__cover_publish(weir__order *order, weir__clock *clock, weir__cover *cover)
{
    weir__cover **link = &clock->covers;
    uint64_t covered = clock->done;
    for (; *link != NULL; link = &(*link)->next)
        covered = (*link)->number;
    if (cover->number <= covered) {
        weir__cover_unref(order, cover);
        return;
    }
    cover->next = NULL;
    *link = cover;
    clock->cover_count++;
    while (clock->cover_count > COVERS_MAX ||
           (clock->cover_count > 1 && order->spare_count < order->clock_count))
        covers_thin(order, clock);
}

void weir__clock_done(weir__order *order, weir__clock *clock, uint64_t number)
{
    if (clock->done < number)
        clock->done = number;
    while (clock->covers != NULL && clock->covers->number <= clock->done) {
        weir__cover *cover = clock->covers;
        clock->covers = cover->next;
        clock->cover_count--;
        weir__cover_unref(order, cover);
    }
}

/* ---- clocks ---- */

static weir__cover *covers_alloc(uint32_t count)
{
    weir__cover *list = NULL;
    for (; count > 0; count--) {
        weir__cover *cover = weir__host_alloc(sizeof *cover);
        if (cover == NULL)
            break;
        *cover = (weir__cover){ .next = list };
        list = cover;
    }
    return list;
}

/* Adds to the stock what was missing in one look at it. False: there was no host memory
 * for some of it. */
static bool stock_once(weir__order *order, bool *stocked)
{
    weir__mutex_lock(&order->lock);
    bool needs_clock = order->spare_clock_count < SPARE_CLOCKS;
    uint32_t wanted = order->clock_count + SPARE_COVERS;
    uint32_t missing = order->spare_count < wanted ? wanted - order->spare_count : 0;
    weir__mutex_unlock(&order->lock);
    *stocked = !needs_clock && missing == 0;
    if (*stocked)
        return true;

    weir__clock *clock = needs_clock ? weir__host_alloc(sizeof *clock) : NULL;
    weir__cover *covers = covers_alloc(missing);
    bool complete = !needs_clock || clock != NULL;

    weir__mutex_lock(&order->lock);
    if (clock != NULL && order->spare_clock_count < SPARE_CLOCKS) {
        clock->next_by_id = order->spare_clocks;
        order->spare_clocks = clock;
        order->spare_clock_count++;
        clock = NULL;
    }
    while (covers != NULL) {
        weir__cover *next = covers->next;
        covers->next = order->spare_covers;
        order->spare_covers = covers;
        order->spare_count++;
        order->cover_total++;
        covers = next;
        missing--;
    }
    *stocked = order->spare_clock_count == SPARE_CLOCKS &&
               order->spare_count > order->clock_count;
    weir__mutex_unlock(&order->lock);
    weir__host_free(clock);
    return complete && missing == 0;
}

/* Enough to go on with, if not for everything that may come. */
static bool has_least(weir__order *order)
{
    weir__mutex_lock(&order->lock);
    bool has = order->spare_clocks != NULL && order->spare_count > order->clock_count;
    weir__mutex_unlock(&order->lock);
    return has;
}

weir_status weir__clocks_stock(weir__order *order)
{
    /* Other threads may use up meanwhile what one look has added: only a lack of memory
     * is a failure. */
    bool stocked = false;
    while (stock_once(order, &stocked) && !stocked)
        continue;
    if (!stocked && !has_least(order))
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for streams' clocks");
    return WEIR_OK;
}

static weir__clock **bucket_by_id(weir__order *order, uint64_t id)
{
    return &order->by_id[id % CLOCK_BUCKETS];
}

static weir__clock **bucket_by_key(weir__order *order, weir__clock_kind kind,
                                   uint64_t key)
{
    uint64_t hash = (key ^ ((uint64_t)kind << 60)) * WEIR__GOLDEN_RATIO;
    return &order->by_key[hash >> 54];
}

weir__clock *weir__clock_find(weir__order *order, uint64_t id)
{
    if (id == WEIR__CLOCK_ASIDE)
        return &order->aside;
    weir__clock *clock = *bucket_by_id(order, id);
    while (clock != NULL && clock->id != id)
        clock = clock->next_by_id;
    return clock;
}

weir__clock *weir__clock_find_key(weir__order *order, weir__clock_kind kind,
                                  uint64_t key)
{
    weir__clock *clock = *bucket_by_key(order, kind, key);
    while (clock != NULL && (clock->key != key || clock->kind != kind))
        clock = clock->next_by_key;
    return clock;
}

weir__clock *weir__clock_add(weir__order *order, uint64_t id, weir__clock_kind kind,
                             uint64_t key, weir_stream stream, bool blocking)
{
    weir__clock *clock = order->spare_clocks;
    if (clock == NULL)
        return NULL;
    order->spare_clocks = clock->next_by_id;
    order->spare_clock_count--;
    *clock = (weir__clock){ .id = id, .kind = kind, .key = key, .stream = stream,
                            .blocking = blocking };

    weir__clock **bucket = bucket_by_id(order, clock->id);
    clock->next_by_id = *bucket;
    *bucket = clock;
    order->clock_count++;
    if (kind == WEIR__CLOCK_CAPTURE)
        return clock;

    bucket = bucket_by_key(order, kind, key);
    clock->next_by_key = *bucket;
    *bucket = clock;
    if (kind != WEIR__CLOCK_LEGACY)
        order->live++;
    order->blocking += blocking;
    return clock;
}

/* Takes `clock` out of the table of handles. */
static void key_remove(weir__order *order, weir__clock *clock)
{
    weir__clock **link = bucket_by_key(order, clock->kind, clock->key);
    while (*link != clock)
        link = &(*link)->next_by_key;
    *link = clock->next_by_key;
    order->live--;
    order->blocking -= clock->blocking;
}

void weir__clock_retire(weir__order *order, weir__clock *clock)
{
    key_remove(order, clock);
    clock->retired = true;
}

void weir__clock_end_later(weir__order *order, weir__clock *clock)
{
    WEIR_CHECK(!clock->ending, "a clock is queued twice");
    clock->ending = true;
    clock->next_ending = NULL;
    if (order->ending_last != NULL)
        order->ending_last->next_ending = clock;
    else
        order->ending_first = clock;
    order->ending_last = clock;
    order->ending_count++;
}

weir__clock *weir__clock_next_ending(weir__order *order)
{
    weir__clock *clock = order->ending_first;
    if (clock == NULL)
        return NULL;
    order->ending_first = clock->next_ending;
    if (order->ending_first == NULL)
        order->ending_last = NULL;
    order->ending_count--;
    clock->ending = false;
    return clock;
}

void weir__clock_drop(weir__order *order, weir__clock *clock)
{
    WEIR_CHECK(!clock->ending && clock->pins == 0, "a clock is dropped while needed");
    if (!clock->retired && clock->kind != WEIR__CLOCK_CAPTURE)
        key_remove(order, clock);
    weir__clock **link = bucket_by_id(order, clock->id);
    while (*link != clock)
        link = &(*link)->next_by_id;
    *link = clock->next_by_id;
    order->clock_count--;

    weir__clock_done(order, clock, UINT64_MAX);
    weir__behind_unref(clock->behind);
    weir__host_free(clock);
}

/* ---- all of them ---- */

void weir__clocks_free(weir__order *order)
{
    for (uint32_t i = 0; i < CLOCK_BUCKETS; i++) {
        while (order->by_id[i] != NULL) {
            weir__clock *clock = order->by_id[i];
            order->by_id[i] = clock->next_by_id;
            weir__clock_done(order, clock, UINT64_MAX);
            weir__behind_unref(clock->behind);
            weir__host_free(clock);
        }
    }
    weir__clock_done(order, &order->aside, UINT64_MAX);
    while (order->spare_clocks != NULL) {
        weir__clock *clock = order->spare_clocks;
        order->spare_clocks = clock->next_by_id;
        weir__host_free(clock);
    }
    while (order->spare_covers != NULL) {
        weir__cover *cover = order->spare_covers;
        order->spare_covers = cover->next;
        weir__host_free(cover);
    }
}

static uint32_t
clock_verify(weir__order *order, const weir__clock *clock)
{
    uint32_t count = 0;
    uint64_t last = clock->done;
    for (const weir__cover *cover = clock->covers; cover != NULL; cover = cover->next) {
        WEIR_CHECK(cover->number > last, "covers grow, and say more than done");
        WEIR_CHECK(cover->event != NULL && cover->references > 0, "it is recorded");
        last = cover->number;
        count++;
    }
    WEIR_CHECK(last <= clock->counter || clock->done == UINT64_MAX,
               "nothing is covered before it was marked");
    WEIR_CHECK(count == clock->cover_count && count <= COVERS_MAX, "they are counted");
    for (uint32_t i = 1; clock->behind && i < clock->behind->count; i++)
        WEIR_CHECK(clock->behind->marks[i - 1].clock < clock->behind->marks[i].clock,
                   "what it is behind is sorted");
    WEIR_CHECK(weir__clock_find(order, clock->id) == clock, "it is found by its id");
    return count;
}

void weir__clocks_verify(weir__order *order)
{
    uint32_t clocks = 0, spares = 0, ending = 0;
    uint32_t covers = clock_verify(order, &order->aside);
    for (uint32_t i = 0; i < CLOCK_BUCKETS; i++) {
        for (const weir__clock *c = order->by_id[i]; c != NULL; c = c->next_by_id) {
            covers += clock_verify(order, c);
            clocks++;
        }
    }
    for (const weir__cover *cover = order->spare_covers; cover; cover = cover->next)
        spares++;
    for (const weir__clock *c = order->ending_first; c != NULL; c = c->next_ending)
        ending++;
    WEIR_CHECK(clocks == order->clock_count, "clocks are counted");
    WEIR_CHECK(spares == order->spare_count, "spare covers are counted");
    WEIR_CHECK(ending == order->ending_count, "ending clocks are counted");
    WEIR_CHECK(covers + spares <= order->cover_total, "no cover from nowhere");
}
