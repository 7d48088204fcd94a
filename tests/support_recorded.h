/* support_recorded.h - code that one thread at a time runs under a lock, recorded; and
 * then one who reads what it writes without the lock, in every way that C11 allows.
 *
 * Code that is compiled with this header put in front of it (-include) has its memory
 * in an arena, and each of its atomic stores is written down with its order; what it
 * stores otherwise is found by comparing the arena with what it was. As the lock puts
 * all of that into one order, a thread that only reads needs no interleaving: what it
 * knows is a moment, up to which it sees all; each of its loads gives what the word was
 * then or became later, whichever, and no word goes back; an acquire that reads a
 * release moves the moment on. Loads that have several answers are choices, all of
 * which are tried. A load of what may not be set up yet, of what is stored plainly
 * meanwhile, or of memory that was given back or is no memory, fails the test.
 *
 * Others may store without the lock to words that are theirs alone for a while
 * (recorded_act_as): whoever reads that learns what they knew, and no more. */
#ifndef WEIR_TESTS_SUPPORT_RECORDED_H
#define WEIR_TESTS_SUPPORT_RECORDED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what stands in for the machine and the host ---- */

void     recorded_store(void *word, size_t bytes, uint64_t value, memory_order order);
uint64_t recorded_load(const void *word, size_t bytes, memory_order order);
void    *recorded_alloc(size_t bytes);
void     recorded_free(void *ptr);
void    *recorded_reserve(size_t item_bytes, size_t *count, size_t least, bool reads);
bool     recorded_commit(void *ptr, size_t had, size_t bytes);
void     recorded_release(void *ptr, size_t bytes);

#undef atomic_store_explicit
#define atomic_store_explicit(word, value, order) \
    recorded_store(word, sizeof *(word), (uint64_t)(uintptr_t)(value), order)
#undef atomic_load_explicit
#define atomic_load_explicit(word, order)  \
    ((__typeof__((void)0, *(word)))(uintptr_t) \
         recorded_load(word, sizeof *(word), order))
#define weir__host_alloc   recorded_alloc
#define weir__host_free    recorded_free
#define weir__host_reserve recorded_reserve
#define weir__host_commit  recorded_commit
#define weir__host_release recorded_release

/* ---- recording ---- */

/* Forgets all, and begins again with an empty arena. */
void recorded_begin(void);
/* The moment: all that was stored up to now is known to who knows it. */
uint32_t recorded_now(void);
/* Until this is called with 0 whatever is stored is so by a user (not 0) who knows all
 * up to `knows`, without the lock; others know of it from recorded_settle on. */
void recorded_act_as(uint32_t user, uint32_t knows);
void recorded_settle(uint32_t user);

/* ---- reading ---- */

typedef struct recorded_reader {
    uint32_t knows;      /* the moment that it begins with */
    uint32_t until;      /* it is done before anything is stored behind this one */
    const void *own;     /* a word that it knows up to `until`; or null */
    void (*read)(void *context);
    void *context;
} recorded_reader;

/* Lets it read in every way. Returns how many ways were tried. */
uint64_t recorded_explore(const recorded_reader *reader);

#endif
