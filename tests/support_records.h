/* support_records.h - records of a heap that are made by hand, for tests of the layers
 * that only link them; and claims that a check stops the process.
 *
 * All of it is inline: such a test is compiled a second time with the constants that
 * ship (SUPPORT_SHIPPED), which the other support is not. */
#ifndef WEIR_TESTS_SUPPORT_RECORDS_H
#define WEIR_TESTS_SUPPORT_RECORDS_H

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "heap_records.h"
#include "support.h"

#if defined(SUPPORT_SHIPPED) && defined(WEIR_TESTING)
#error "these are not the constants that ship"
#endif

/* How many programs of a kind: with the constants that ship each is long. */
#ifdef SUPPORT_SHIPPED
#define SUPPORT_PROGRAMS(what, quick, full)                                      \
    support_bound(what ", as shipped", (quick) / 20, (full) / 20)
#else
#define SUPPORT_PROGRAMS(what, quick, full) support_bound(what, quick, full)
#endif

/* Records 1 to `most`; 0 is spare, as in a heap. */
typedef struct records {
    weir__heap_view view;
    weir__heap_block *all;   /* what the view points to */
    uint32_t most;
} records;

/* Where block `id` is said to be: its own place, with some of the upper bits set. */
static inline uintptr_t records_base(uint32_t id)
{
    uint64_t low = id * UINT32_C(16777619), high = id * UINT32_C(37) & 0xffu;
    return (uintptr_t)((high << 32 | low) << WEIR__HEAP_GRAIN_BITS);
}

/* A record that is handed out, of `grains` grains and linked to nothing. */
static inline void records_make(records *self, uint32_t id, uint32_t grains)
{
    weir__heap_block *block = &self->all[id];
    const void *base = (const void *)records_base(id);
    atomic_store(&block->head, weir__heap_head(base, WEIR__HEAP_OUT));
    atomic_store(&block->grains, grains);
    atomic_store(&block->link, 0);
}

static inline records records_begin(uint32_t most)
{
    records self = { .most = most };
    self.view.records = self.all = calloc((size_t)most + 1, sizeof *self.all);
    must(self.all != NULL);
    return self;
}

static inline void records_end(records *self)
{
    free(self->all);
}

/* Claims that record `id` is as it was made, but for its link, and has this tag. */
static inline void records_must_be(const records *self, uint32_t id, uint32_t grains,
                                   uint32_t tag)
{
    const weir__heap_block *block = &self->all[id];
    must_equal(weir__heap_base(block), records_base(id));
    must_equal(weir__heap_grains(block), grains);
    must_equal(weir__heap_tag(block), tag);
}

/* Claims that a check stops what(argument), a child's, and says `words`. */
static inline void must_stop(const char *words, void (*what)(void *), void *argument)
{
    int ends[2];
    must(pipe(ends) == 0);
    fflush(NULL);
    pid_t child = fork();
    must(child >= 0);
    if (child == 0) {
        (void)signal(SIGABRT, SIG_DFL);
        if (dup2(ends[1], STDERR_FILENO) < 0)
            _exit(1);
        what(argument);
        _exit(0);
    }
    close(ends[1]);
    char said[1024] = { 0 };
    size_t length = 0;
    ssize_t more;
    while ((more = read(ends[0], said + length, sizeof said - 1 - length)) > 0)
        length += (size_t)more;
    close(ends[0]);
    int end = 0;
    must(waitpid(child, &end, 0) == child);
    if (!WIFSIGNALED(end) || strstr(said, words) == NULL)
        print_message("not stopped by \"%s\": %s\n", words, said);
    must(WIFSIGNALED(end) && WTERMSIG(end) == SIGABRT);
    must(strstr(said, words) != NULL);
}

#endif
