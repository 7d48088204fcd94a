/* support_turns.c - see support_turns.h. */
#include "support_turns.h"

#include <stddef.h>
#include <string.h>

#include "jump.h"
#include "support.h"

#define STACK_BYTES ((size_t)128 << 10)

typedef enum turns_state { RUNNABLE, BLOCKED, WAITING, ENDED } turns_state;

typedef struct runner {
    jump_place place;
    turns_state state;
    bool alone;       /* woken because nobody else can go on */
    const void *what; /* it is blocked on, or waits for */
} runner;

static _Alignas(16) char stacks[TURNS_THREADS][STACK_BYTES];

static struct {
    uint32_t (*choose)(void *context, uint32_t n);
    void *choose_context;
    void (*entry)(uint32_t number);
    uint32_t count, current;
    bool is_running;  /* or a claim has failed, and nobody is where he should be */
    jump_place end;   /* of the run */
    runner all[TURNS_THREADS];
} now;

static uint32_t runnable(void)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < now.count; i++)
        count += now.all[i].state == RUNNABLE;
    return count;
}

/* The number of the nth in that state; now.count: there is none. */
static uint32_t nth_in(turns_state state, uint32_t nth)
{
    uint32_t i = 0;
    while (i < now.count && (now.all[i].state != state || nth-- > 0))
        i++;
    return i;
}

/* Who goes on; now.count: all have ended. */
static uint32_t next(void)
{
    uint32_t count = runnable();
    if (count > 0) {
        uint32_t nth = count == 1 ? 0 : now.choose(now.choose_context, count);
        must(nth < count);
        return nth_in(RUNNABLE, nth);
    }
    uint32_t waiting = nth_in(WAITING, 0);
    if (waiting < now.count) {
        now.all[waiting].alone = true;
        now.all[waiting].state = RUNNABLE;
        return waiting;
    }
    bool is_deadlock = nth_in(BLOCKED, 0) < now.count;
    must(!is_deadlock);
    return now.count;
}

static void pass(void)
{
    uint32_t from = now.current, to = next();
    if (to == from)
        return;
    now.current = to;
    jump(&now.all[from].place, &now.all[to].place);
}

/* All runs' of one number. */
static _Noreturn void runner_main(void *argument)
{
    runner *self = argument;
    for (;;) {
        now.entry(now.current);
        self->state = ENDED;
        uint32_t to = next();
        now.current = to;
        jump(&self->place, to == now.count ? &now.end : &now.all[to].place);
    }
}

void turns_run(uint32_t (*choose)(void *context, uint32_t n), void *context,
               uint32_t count, void (*entry)(uint32_t number))
{
    must(count > 0 && count <= TURNS_THREADS);
    now.choose = choose;
    now.choose_context = context;
    now.entry = entry;
    now.count = count;
    if (now.is_running)
        memset(now.all, 0, sizeof now.all);
    for (uint32_t i = 0; i < count; i++) {
        if (now.all[i].place.entry == NULL)
            jump_make(&now.all[i].place, stacks[i], STACK_BYTES, runner_main,
                      &now.all[i]);
        now.all[i].state = RUNNABLE;
    }
    now.is_running = true;
    now.current = next();
    jump(&now.end, &now.all[now.current].place);
    now.is_running = false;
}

uint32_t turns_self(void)
{
    return now.current;
}

void turns_yield(void)
{
    pass();
}

bool turns_block(const void *what, bool is_on_lock)
{
    runner *self = &now.all[now.current];
    self->what = what;
    self->alone = false;
    self->state = is_on_lock ? BLOCKED : WAITING;
    pass();
    must(self->state == RUNNABLE);
    return !self->alone;
}

void turns_wake(const void *what)
{
    for (uint32_t i = 0; i < now.count; i++) {
        runner *one = &now.all[i];
        if ((one->state == BLOCKED || one->state == WAITING) && one->what == what)
            one->state = RUNNABLE;
    }
}
