/* support_turns.h - the threads of a small program, as they are in a stepped run, but
 * all of them on the one thread that runs the test, each with a stack of its own: what
 * tries a program in millions of ways cannot make threads for each.
 *
 * The turn is lost in turns_yield and turns_block only, and who is next is asked of a
 * chooser, as weir__baton_run does: of those that can go on, in the order of their
 * numbers. For code that has nothing thread-local and takes no lock but its model's. */
#ifndef WEIR_TESTS_SUPPORT_TURNS_H
#define WEIR_TESTS_SUPPORT_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define TURNS_THREADS 3 /* at most */

/* Runs `count` threads, each of which calls entry(its number), until all have ended. A
 * deadlock fails the test. */
void turns_run(uint32_t (*choose)(void *context, uint32_t n), void *context,
               uint32_t count, void (*entry)(uint32_t number));

/* For the threads: one's number, and a place to lose the turn. */
uint32_t turns_self(void);
void turns_yield(void);

/* Until turns_wake(what). Who only waits is woken, too, when nobody can go on: then the
 * answer is false. */
bool turns_block(const void *what, bool is_on_lock);
void turns_wake(const void *what);

#endif
