/* jump.h - from one stack to another, on the same thread, and back: with no call of the
 * system but where a stack is first gone to. */
#ifndef WEIR_TESTS_JUMP_H
#define WEIR_TESTS_JUMP_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <ucontext.h>

/* Where a stack goes on. One of a thread's own stack need only be zeros. */
typedef struct jump_place {
    ucontext_t first; /* where it begins */
    bool is_begun;
    jmp_buf here;
    void (*entry)(void *argument);
    void *argument;
    const void *bottom; /* of its stack, as the address sanitizer wants to know */
    size_t bytes;
    void *fake_stack;   /* the sanitizer's */
} jump_place;

/* Calls entry(argument), which must not return, when it is first gone to. */
void jump_make(jump_place *self, void *stack, size_t bytes,
               void (*entry)(void *argument), void *argument);
/* Returns when somebody comes back to `from`. */
void jump(jump_place *from, jump_place *to);
/* The same, and nobody ever will. */
_Noreturn void jump_off(jump_place *from, jump_place *to);

#endif
