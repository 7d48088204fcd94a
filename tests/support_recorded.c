/* support_recorded.c - see support_recorded.h. */
#include "support_recorded.h"

#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "support_explore.h"

#define LINE         ((size_t)64)
#define STRETCH      (64 * LINE) /* many lines are compared at once faster than each */
#define ARENA_BYTES  ((size_t)1 << 18) /* with a line to spare */
#define WORD         sizeof(uint32_t)
#define ARENA_WORDS  (ARENA_BYTES / WORD)
#define EVENTS       ((uint32_t)1 << 18)
#define ALLOCATIONS  512u
#define MOST_AT_ONCE 256u /* that one load may give */
#define SEEN         128u /* words that one reader loads */
#define NEVER        UINT32_MAX
#define RESERVED_MOST ((size_t)1 << 13)
#define GARBAGE      0xa5

/* Something that was stored; it has a place in the order of all. */
typedef struct event {
    uint64_t value;
    uint32_t older;  /* of the same word, or 0 */
    uint32_t known;  /* from this moment on */
    uint32_t tells;  /* who acquires it knows all up to here; 0: nothing */
    uint32_t user;   /* or 0 */
    bool is_plain;
} event;

typedef struct allocation {
    size_t begin, end; /* in the arena */
    uint32_t freed;    /* when, or NEVER */
} allocation;

typedef struct seen {
    const void *word;
    uint32_t event;
} seen;

static struct {
    _Alignas(64) unsigned char arena[ARENA_BYTES];
    unsigned char shadow[ARENA_BYTES]; /* as it was */
    size_t used;
    allocation allocations[ALLOCATIONS];
    uint32_t allocation_count;
    event events[EVENTS];              /* the first is none */
    uint32_t now;                      /* the last */
    uint32_t newest[ARENA_WORDS];      /* of each word */
    uint32_t user, user_knows;
    unsigned char *unset;              /* what was reserved last that cannot be read */
    size_t unset_bytes;
} all;

static struct {
    const recorded_reader *is; /* null: nobody reads */
    uint32_t knows;
    seen seen[SEEN];
    uint32_t seen_count;
    uint8_t seen_at[ARENA_WORDS]; /* from 1; 0: it was not */
    explorer ways;
} reading;

/* ---- recording ---- */

static size_t place_of(const void *word)
{
    size_t place = (size_t)((uintptr_t)word - (uintptr_t)all.arena);
    must(place < all.used); /* memory that nobody has */
    return place;
}

static uint64_t value_at(const unsigned char *bytes, size_t count)
{
    uint64_t value = 0; /* the lower bytes come first here */
    memcpy(&value, bytes, count);
    return value;
}

static event *event_make(size_t place)
{
    must(all.now + 1 < EVENTS);
    event *made = &all.events[++all.now];
    *made = (event){ .older = all.newest[place / WORD],
                     .known = all.user != 0 ? NEVER : all.now,
                     .user = all.user };
    all.newest[place / WORD] = all.now;
    return made;
}

static bool is_as_it_was(size_t place, size_t bytes)
{
    return memcmp(all.arena + place, all.shadow + place, bytes) == 0;
}

static void find_plain_in(size_t line)
{
    for (size_t at = line; at < line + LINE; at += WORD) {
        if (is_as_it_was(at, WORD))
            continue;
        event *made = event_make(at);
        made->value = value_at(all.arena + at, sizeof made->value);
        made->is_plain = true;
    }
    memcpy(all.shadow + line, all.arena + line, LINE);
}

/* What was stored plainly since it was looked last. */
static void find_plain(void)
{
    for (size_t from = 0; from < all.used; from += STRETCH) {
        size_t end = all.used - from < STRETCH ? all.used : from + STRETCH;
        if (is_as_it_was(from, end - from))
            continue;
        for (size_t line = from; line < end; line += LINE) {
            if (!is_as_it_was(line, LINE))
                find_plain_in(line);
        }
    }
}

void recorded_store(void *word, size_t bytes, uint64_t value, memory_order order)
{
    must(reading.is == NULL);
    find_plain();
    size_t place = place_of(word);
    event *made = event_make(place);
    made->value = value;
    if (order == memory_order_release || order == memory_order_seq_cst)
        made->tells = all.user != 0 ? all.user_knows : all.now;
    memcpy(all.arena + place, &value, bytes);
    memcpy(all.shadow + place, &value, bytes);
}

void *recorded_alloc(size_t bytes)
{
    find_plain();
    size_t begin = all.used;
    must(all.allocation_count < ALLOCATIONS && ARENA_BYTES - begin > bytes + LINE);
    all.allocations[all.allocation_count++] =
        (allocation){ begin, begin + bytes, NEVER };
    all.used = (begin + bytes + LINE - 1) & ~(LINE - 1);
    return all.arena + begin;
}

/* Little. What cannot be read yet is not set up. */
void *recorded_reserve(size_t item_bytes, size_t *count, size_t least, bool reads)
{
    (void)least;
    while (*count * item_bytes > RESERVED_MOST)
        *count /= 2;
    unsigned char *ptr = recorded_alloc(*count * item_bytes);
    if (reads) {
        memset(ptr, 0, *count * item_bytes);
    } else {
        all.unset = ptr;
        all.unset_bytes = *count * item_bytes;
    }
    return ptr;
}

bool recorded_commit(void *ptr, size_t had, size_t bytes)
{
    unsigned char *from = ptr;
    (void)place_of(from + bytes - 1);
    if (from >= all.unset && from < all.unset + all.unset_bytes)
        memset(from + had, 0, bytes - had);
    return true;
}

void recorded_release(void *ptr, size_t bytes)
{
    (void)bytes;
    recorded_free(ptr);
}

/* They follow each other in the arena. */
static allocation *allocation_of(size_t place)
{
    uint32_t low = 0, high = all.allocation_count;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (all.allocations[middle].end <= place)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == all.allocation_count || place < all.allocations[low].begin)
        return NULL;
    return &all.allocations[low];
}

/* It stays there, so that who reads it nevertheless is caught. */
void recorded_free(void *ptr)
{
    find_plain();
    if (ptr != NULL)
        allocation_of(place_of(ptr))->freed = all.now;
}

static void forget_seen(void)
{
    while (reading.seen_count > 0)
        reading.seen_at[place_of(reading.seen[--reading.seen_count].word) / WORD] = 0;
}

void recorded_begin(void)
{
    reading.is = NULL;
    forget_seen();
    all.used = all.allocation_count = all.now = all.user = 0;
    all.unset_bytes = 0;
    memset(all.newest, 0, sizeof all.newest);
    memset(all.arena, GARBAGE, sizeof all.arena);
    memset(all.shadow, GARBAGE, sizeof all.shadow);
}

uint32_t recorded_now(void)
{
    find_plain();
    return all.now;
}

void recorded_act_as(uint32_t user, uint32_t knows)
{
    find_plain();
    all.user = user;
    all.user_knows = knows;
}

void recorded_settle(uint32_t user)
{
    for (uint32_t i = 1; i <= all.now; i++) {
        if (all.events[i].user == user && all.events[i].known == NEVER)
            all.events[i].known = all.now;
    }
}

/* ---- reading ---- */

static bool is_known(uint32_t number)
{
    return all.events[number].known <= reading.knows;
}

static seen *seen_of(const void *word)
{
    uint8_t *at = &reading.seen_at[place_of(word) / WORD];
    if (*at == 0) {
        must(reading.seen_count < SEEN);
        reading.seen[reading.seen_count++] = (seen){ .word = word };
        *at = (uint8_t)reading.seen_count;
    }
    return &reading.seen[*at - 1];
}

/* What a load may give: from what the reader knows of, or has seen, to the last. */
static uint32_t choose_event(const void *word, uint32_t least)
{
    uint32_t from[MOST_AT_ONCE], count = 0;
    uint32_t at = all.newest[place_of(word) / WORD];
    while (at > reading.is->until)
        at = all.events[at].older;
    for (;; at = all.events[at].older) {
        must(at != 0); /* it may not be set up yet */
        must(count < MOST_AT_ONCE);
        from[count++] = at;
        if (at <= least || is_known(at) || word == reading.is->own)
            break;
        must(!all.events[at].is_plain); /* a race */
    }
    return count > 1 ? from[explore_choose(&reading.ways, count)] : from[0];
}

static uint64_t load_as_reader(const void *word, size_t bytes, memory_order order)
{
    must(reading.ways.length < EXPLORE_DEPTH);
    const allocation *its = allocation_of(place_of(word));
    must(its != NULL && its->freed >= reading.is->until);
    seen *its_seen = seen_of(word);
    its_seen->event = choose_event(word, its_seen->event);
    const event *got = &all.events[its_seen->event];
    if ((order == memory_order_acquire || order == memory_order_seq_cst) &&
        reading.knows < got->tells)
        reading.knows = got->tells;
    return bytes == WORD ? (uint32_t)got->value : got->value;
}

uint64_t recorded_load(const void *word, size_t bytes, memory_order order)
{
    return reading.is != NULL ? load_as_reader(word, bytes, order)
                              : value_at(all.arena + place_of(word), bytes);
}

uint64_t recorded_explore(const recorded_reader *reader)
{
    find_plain();
    reading.ways = (explorer){ .most_switches = 0 };
    do {
        reading.is = reader;
        reading.ways.active = true;
        reading.knows = reader->knows;
        forget_seen();
        reader->read(reader->context);
        reading.is = NULL;
    } while (explore_next(&reading.ways));
    return reading.ways.runs;
}
