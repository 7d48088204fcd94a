/* support_weak.c - see support_weak.h. */
#include "support_weak.h"

#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "support_explore.h"
#include "support_turns.h"

/* How far somebody has seen of each word, as the number of a store. */
typedef struct view {
    uint8_t seen[WEAK_WORDS];
} view;

/* What comes before, of each thread: how many of its releases, and its own part. */
typedef struct clocks {
    uint8_t of[WEAK_THREADS];
} clocks;

typedef struct message {
    uint8_t value;
    view sees;
    clocks after;
} message;

typedef struct word {
    uint8_t stores;       /* so many, the first included */
    uint8_t last_ordered; /* the last that was sequentially consistent */
    message all[WEAK_STORES];
} word;

typedef struct thread {
    view sees;
    clocks after;
    uint8_t last_word, last_store; /* of its last load */
    bool waits;
    bool sleeps[WEAK_WORDS]; /* on a futex */
    uint64_t past; /* what it has done and got: where in its program it is */
} thread;

/* All that the rest of a run depends on, and nothing else; no byte of it is unset. */
typedef struct memory {
    word words[WEAK_WORDS];
    thread threads[WEAK_THREADS];
    view fences;                  /* what full fences have seen */
    view lock_sees[1 + WEAK_RANKS]; /* the one for all comes first */
    clocks lock_after[1 + WEAK_RANKS];
    uint8_t turns[WEAK_RANKS];    /* how often each was taken */
    clocks visits[WEAK_PLACES];    /* the last of each thread */
    uint8_t inside[WEAK_PLACES];  /* how many are */
} memory;

_Static_assert(WEAK_THREADS <= TURNS_THREADS, "there is a stack for each thread");

#define SEEN_MAX ((size_t)1 << 22)

typedef struct fingerprint {
    uint64_t a, b;
} fingerprint;

static struct {
    const weak_program *program;
    memory memory;
    uint32_t holders[1 + WEAK_RANKS]; /* of the locks: a thread's number and 1, or 0 */
    explorer ways;
    fingerprint *seen; /* states, open addressing */
    size_t states;
} now;

/* ---- states that were met ---- */

static uint64_t mix(uint64_t sum, uint64_t value)
{
    sum = (sum ^ value) * 0x9e3779b97f4a7c15u;
    return sum ^ (sum >> 29);
}

static fingerprint fingerprint_of(const memory *self)
{
    fingerprint sum = { 1, 2 };
    const unsigned char *bytes = (const unsigned char *)self;
    for (size_t i = 0; i < sizeof *self; i += 8) {
        uint64_t value = 0;
        memcpy(&value, bytes + i, sizeof *self - i < 8 ? sizeof *self - i : 8);
        sum.a = mix(sum.a, value);
        sum.b = mix(sum.b, value + 0x632be59bd9b4e019u);
    }
    sum.a |= 1; /* never the empty one */
    return sum;
}

static bool is_new(void)
{
    fingerprint sum = fingerprint_of(&now.memory);
    size_t at = sum.b % SEEN_MAX;
    while (now.seen[at].a != 0) {
        if (now.seen[at].a == sum.a && now.seen[at].b == sum.b)
            return false;
        at = (at + 1) % SEEN_MAX;
    }
    now.seen[at] = sum;
    now.states++;
    must(now.states < SEEN_MAX / 2);
    return true;
}

/* ---- threads ---- */

static uint32_t self_number(void)
{
    return turns_self();
}

static thread *self(void)
{
    return &now.memory.threads[self_number()];
}

static void has_done(uint32_t what, uint64_t got)
{
    self()->past = mix(self()->past, (uint64_t)what << 32 | got);
}

/* Before each step: any thread may be next. From a state that another way has led to
 * before, this run tries nothing more. Between two of these each thread has done
 * something: or the state would be taken for one that was met. */
static void step(void)
{
    explorer *ways = &now.ways;
    if (ways->active && ways->at == ways->length && !is_new())
        ways->active = false;
    if (ways->active)
        turns_yield();
}

static uint32_t choose(uint32_t n)
{
    return n > 1 ? explore_choose(&now.ways, n) : 0;
}

/* ---- views and clocks ---- */

static void see(view *at, const view *more)
{
    for (int i = 0; i < WEAK_WORDS; i++) {
        if (at->seen[i] < more->seen[i])
            at->seen[i] = more->seen[i];
    }
}

static void come_after(clocks *at, const clocks *more)
{
    for (int i = 0; i < WEAK_THREADS; i++) {
        if (at->of[i] < more->of[i])
            at->of[i] = more->of[i];
    }
}

static void fence(thread *of)
{
    see(&now.memory.fences, &of->sees);
    of->sees = now.memory.fences;
}

static bool acquires(memory_order order)
{
    return order == memory_order_acquire || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

static bool releases(memory_order order)
{
    return order == memory_order_release || order == memory_order_acq_rel ||
           order == memory_order_seq_cst;
}

/* ---- words ---- */

static uint32_t index_of(const volatile void *address)
{
    uint32_t i = 0;
    while (now.program->words[i] != address) {
        i++;
        must(i < WEAK_WORDS);
    }
    return i;
}

static uint32_t load_at(uint32_t index, uint32_t store, memory_order order)
{
    thread *at = self();
    const message *from = &now.memory.words[index].all[store];
    at->sees.seen[index] = (uint8_t)store;
    at->last_word = (uint8_t)index;
    at->last_store = (uint8_t)store;
    if (acquires(order)) {
        see(&at->sees, &from->sees);
        come_after(&at->after, &from->after);
    }
    return from->value;
}

/* Each word has one writer at a time, who has seen the last store: so none is ever put
 * between two others. */
static void store_last(uint32_t index, uint32_t value, memory_order order)
{
    word *to = &now.memory.words[index];
    thread *at = self();
    must(to->stores < WEAK_STORES);
    must(at->sees.seen[index] == to->stores - 1);
    message *made = &to->all[to->stores];
    made->value = (uint8_t)value;
    at->sees.seen[index] = to->stores;
    if (releases(order)) {
        made->sees = at->sees;
        made->after = at->after;
        at->after.of[self_number()]++;
    } else {
        made->sees.seen[index] = to->stores;
    }
    if (order == memory_order_seq_cst)
        to->last_ordered = to->stores;
    to->stores++;
    turns_wake(&now.memory); /* who waits for anything to happen */
}

uint32_t weak_load(const volatile void *address, memory_order order)
{
    step();
    uint32_t index = index_of(address);
    const word *from = &now.memory.words[index];
    uint32_t oldest = self()->sees.seen[index];
    if (order == memory_order_seq_cst && oldest < from->last_ordered)
        oldest = from->last_ordered;
    uint32_t store = from->stores - 1 - choose(from->stores - oldest);
    uint32_t value = load_at(index, store, order);
    has_done(1, value);
    return value;
}

void weak_store(const volatile void *address, uint32_t value, memory_order order)
{
    step();
    store_last(index_of(address), value, order);
    has_done(2, value);
}

static uint32_t load_last(uint32_t index, memory_order order)
{
    return load_at(index, now.memory.words[index].stores - 1u, order);
}

uint32_t weak_exchange_explicit(const volatile void *address, uint32_t value,
                                memory_order order)
{
    step();
    uint32_t index = index_of(address);
    uint32_t was = load_last(index, order);
    store_last(index, value, order);
    has_done(3, was);
    return was;
}

uint32_t weak_exchange(const volatile void *address, uint32_t value)
{
    return weak_exchange_explicit(address, value, memory_order_seq_cst);
}

uint32_t weak_compare_exchange(const volatile void *address, uint32_t expected,
                               uint32_t value, memory_order order)
{
    step();
    uint32_t index = index_of(address);
    const word *all = &now.memory.words[index];
    uint32_t was = all->all[all->stores - 1].value;
    if (was == expected) {
        (void)load_last(index, order);
        store_last(index, value, order);
    }
    has_done(16, was);
    return was;
}

void weak_add(const volatile void *address, uint32_t value)
{
    step();
    uint32_t index = index_of(address);
    uint32_t was = load_last(index, memory_order_relaxed);
    store_last(index, was + value, memory_order_relaxed);
    has_done(20, was);
}

/* The system looks under a lock of its own, and wakes under it. */
void weak_futex_wait(const volatile void *address, uint32_t value)
{
    step();
    uint32_t index = index_of(address);
    bool *sleeps = &self()->sleeps[index];
    has_done(17, 0);
    *sleeps = load_last(index, memory_order_relaxed) == value;
    while (*sleeps)
        (void)turns_block(sleeps, true);
    has_done(18, 0);
}

void weak_futex_wake(const volatile void *address)
{
    step();
    uint32_t index = index_of(address);
    bool *sleepers[WEAK_THREADS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < now.program->threads; i++) {
        if (now.memory.threads[i].sleeps[index])
            sleepers[count++] = &now.memory.threads[i].sleeps[index];
    }
    if (count > 0) {
        bool *woken = sleepers[choose(count)];
        *woken = false;
        turns_wake(woken);
    }
    has_done(19, count);
}

void weak_membarrier(void)
{
    uint32_t left[WEAK_THREADS];
    uint32_t count = 0;
    for (uint32_t i = 0; i < now.program->threads; i++) {
        if (i != self_number())
            left[count++] = i;
    }
    step();
    fence(self());
    has_done(4, 0);
    while (count > 0) {
        step();
        uint32_t nth = choose(count);
        fence(&now.memory.threads[left[nth]]);
        has_done(5, left[nth]);
        left[nth] = left[--count];
    }
    step();
    fence(self());
    has_done(6, 0);
}

void weak_await_change(void)
{
    thread *at = self();
    step();
    at->waits = true;
    while (now.memory.words[at->last_word].stores - 1 == at->last_store) {
        bool somebody_else_goes_on = turns_block(&now.memory, false);
        must(somebody_else_goes_on);
    }
    at->waits = false;
    if (at->sees.seen[at->last_word] == at->last_store)
        at->sees.seen[at->last_word]++;
    has_done(7, 0);
}

/* ---- what is not simulated word by word ---- */

static void lock(uint32_t number)
{
    has_done(8, number);
    uint32_t mine = self_number() + 1;
    for (uint32_t i = number; i < 1 + WEAK_RANKS; i++)
        must(now.holders[i] != mine);
    turns_yield(); /* a step, always */
    while (now.holders[number] != 0)
        (void)turns_block(&now.holders[number], true);
    now.holders[number] = mine;
    see(&self()->sees, &now.memory.lock_sees[number]);
    come_after(&self()->after, &now.memory.lock_after[number]);
    has_done(9, number == 0 ? 0 : ++now.memory.turns[number - 1]);
}

static void unlock(uint32_t number)
{
    now.memory.lock_sees[number] = self()->sees;
    now.memory.lock_after[number] = self()->after;
    self()->after.of[self_number()]++;
    has_done(10, number);
    must(now.holders[number] == self_number() + 1);
    now.holders[number] = 0;
    turns_wake(&now.holders[number]);
}

void weak_lock(void)
{
    lock(0);
}

void weak_unlock(void)
{
    unlock(0);
}

void weak_lock_ranked(uint32_t rank)
{
    has_done(15, rank);
    step(); /* from each state only once */
    lock(rank + 1);
}

void weak_unlock_ranked(uint32_t rank)
{
    unlock(rank + 1);
}

static void visit(uint32_t place)
{
    const thread *at = self();
    clocks *visits = &now.memory.visits[place];
    bool races = false;
    for (uint32_t i = 0; i < WEAK_THREADS; i++)
        races = races || (i != self_number() && visits->of[i] > at->after.of[i]);
    must(!races);
    visits->of[self_number()] = at->after.of[self_number()];
}

void weak_work_begin(uint32_t place)
{
    must(now.memory.inside[place] == 0);
    now.memory.inside[place]++;
    visit(place);
    has_done(11, place);
}

void weak_work_end(uint32_t place)
{
    step();
    visit(place);
    must(now.memory.inside[place] == 1);
    now.memory.inside[place]--;
    has_done(12, place);
}

/* ---- runs ---- */

static void memory_begin(memory *all)
{
    memset(all, 0, sizeof *all);
    for (int i = 0; i < WEAK_WORDS; i++)
        all->words[i].stores = 1;
    /* From 1: 0 is what nobody has done. */
    for (int i = 0; i < WEAK_THREADS; i++)
        all->threads[i].after.of[i] = 1;
}

static void thread_main(uint32_t number)
{
    has_done(14, 0);
    now.program->play[number]();
    has_done(13, 0);
}

void weak_explore(const weak_program *program)
{
    now.program = program;
    now.ways = (explorer){ .most_switches = 0 };
    now.states = 0;
    now.seen = calloc(SEEN_MAX, sizeof *now.seen);
    must(now.seen != NULL);
    do {
        memory_begin(&now.memory);
        now.ways.active = true;
        memset(now.holders, 0, sizeof now.holders);
        turns_run(explore_choose, &now.ways, program->threads, thread_main);
        must(now.ways.length < EXPLORE_DEPTH);
        if (program->end != NULL)
            program->end();
    } while (explore_next(&now.ways));
    free(now.seen);
    print_message("%s: %llu executions through %zu states\n", program->what,
                  (unsigned long long)now.ways.runs, now.states);
}
