/* support_explore.h - tries every way in which a small program of host threads can
 * interleave.
 *
 * The program asks explore_choose (a weir_emulated_chooser) whenever there is more than
 * one way to go on. The explorer runs it again and again, depth first over the choices,
 * until every sequence of them was taken; the program must depend on nothing else.
 *
 * Going on with what was chosen last is a choice that costs nothing; any other is a
 * switch. With `most_switches` only sequences with at most that many are tried: all of
 * them, and few switches are enough for most races that there are. */
#ifndef WEIR_TESTS_SUPPORT_EXPLORE_H
#define WEIR_TESTS_SUPPORT_EXPLORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPLORE_DEPTH 512

typedef struct explorer {
    bool active;             /* otherwise every choice is 0, and none is explored */
    uint32_t most_switches;  /* 0: any number */
    uint64_t runs;
    uint32_t turned[EXPLORE_DEPTH]; /* from the choice before: 0 is the same again */
    uint32_t ways[EXPLORE_DEPTH];
    size_t length;           /* of the sequence to follow */
    size_t at;               /* how far this run has followed it */
    uint32_t last;
} explorer;

uint32_t explore_choose(void *explorer, uint32_t n);

/* Ends a run: true if there is another sequence to try. */
bool explore_next(explorer *self);

#endif
