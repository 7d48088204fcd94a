/* jump.c - see jump.h. */
#undef _FORTIFY_SOURCE /* which takes a jump to a stack that lies lower for a mistake */
#include "jump.h"

#include <stdint.h>
#include <stdlib.h>

#include "internal.h"

#ifdef WEIR_SANITIZE_ADDRESS
#include <sanitizer/asan_interface.h>

static _Thread_local jump_place *left; /* the last one that was */

static void arrive(jump_place *self)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &bytes);
    left->bottom = bottom;
    left->bytes = bytes;
}

/* Here swapcontext, for the sanitizer takes a long jump for one that leaves frames. */
static void go(jump_place *from, jump_place *to, bool is_last)
{
    left = from;
    __sanitizer_start_switch_fiber(is_last ? NULL : &from->fake_stack, to->bottom,
                                   to->bytes);
    if (swapcontext(&from->first, &to->first) != 0)
        abort();
    arrive(from);
}
#else
static void arrive(jump_place *self)
{
    (void)self;
}

static void go(jump_place *from, jump_place *to, bool is_last)
{
    (void)is_last;
    if (_setjmp(from->here) != 0)
        return;
    if (to->is_begun)
        _longjmp(to->here, 1);
    to->is_begun = true;
    (void)setcontext(&to->first);
    abort();
}
#endif

void jump(jump_place *from, jump_place *to)
{
    from->is_begun = true;
    go(from, to, false);
}

void jump_off(jump_place *from, jump_place *to)
{
    go(from, to, true);
    abort();
}

static void begin(unsigned high, unsigned low)
{
    jump_place *self = (jump_place *)((uintptr_t)high << 32 | low);
    arrive(self);
    self->entry(self->argument);
    abort();
}

void jump_make(jump_place *self, void *stack, size_t bytes,
               void (*entry)(void *argument), void *argument)
{
    const uintptr_t number = (uintptr_t)self;
    *self = (jump_place){ .entry = entry, .argument = argument, .bottom = stack,
                          .bytes = bytes };
    if (getcontext(&self->first) != 0)
        abort();
    self->first.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = bytes };
    makecontext(&self->first, (void (*)(void))begin, 2, (unsigned)(number >> 32),
                (unsigned)number);
#ifdef WEIR_SANITIZE_ADDRESS
    ASAN_UNPOISON_MEMORY_REGION(stack, bytes);
    /* Where it knows of a stack, swapcontext clears what it holds of it each time. */
    self->first.uc_stack = (stack_t){ .ss_size = 0 };
#endif
}
