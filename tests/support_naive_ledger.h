/* support_naive_ledger.h - a ledger without clocks, epochs, pieces or pruning, for the
 * model test. It numbers everything that is put on a stream; what an actor is behind is
 * a set of these numbers; each byte has its state; and each access is held against all
 * accesses ever made. */
#ifndef WEIR_TESTS_SUPPORT_NAIVE_LEDGER_H
#define WEIR_TESTS_SUPPORT_NAIVE_LEDGER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "weir/emulated.h"

#define STEPS_MAX 240
#define SET_WORDS 4

typedef struct set {
    uint64_t bits[SET_WORDS]; /* by the number of a step */
} set;

enum { STREAMS_MAX = 32, THREADS_MAX = 12, KEYS = 4, DEVICES = 2,
       BYTES = 64, ACCESSES_MAX = 3 * STEPS_MAX, HOST = -1 };

typedef struct naive_stream {
    uint64_t id;
    int device;
    bool is_legacy;
    bool is_blocking;
    bool lives;
    set knows;
} naive_stream;

typedef struct naive_thread {
    uint64_t number;
    bool is_met;  /* by the ledger */
    bool lives;
    set knows;
} naive_thread;

typedef struct naive_access {
    uint32_t number;     /* of the step */
    uint64_t stream;
    const char *words;
    bool writes;
    bool is_forgotten;   /* its memory has ended */
    int device;          /* whose memory */
    uint32_t begin, end;
} naive_access;

typedef enum byte_state { RAW, OUT, BACK } byte_state;

typedef struct naive_byte {
    byte_state state;
    uint32_t block;      /* out: which */
    uint32_t since;      /* no access of a step before this one counts any more */
} naive_byte;

typedef struct block {
    int device;
    uint32_t begin, end;
} block;

typedef struct verdict {
    bool race;
    bool lease;
} verdict;

typedef struct naive {
    uint32_t step;
    naive_stream streams[STREAMS_MAX];
    uint32_t stream_count;
    naive_thread threads[THREADS_MAX];
    uint32_t thread_count;
    set floor;           /* without threads: what the last one knew */
    set keys[DEVICES][KEYS];
    set ended[DEVICES];
    naive_access accesses[ACCESSES_MAX];
    uint32_t access_count;
    naive_byte bytes[DEVICES][BYTES];
    block blocks[STEPS_MAX];
    uint32_t block_count;
    /* the step in progress */
    verdict wanted;
    int act_stream;      /* or HOST */
    set act_knows;       /* with what the legacy stream's rules promise */
} naive;

/* Where the memory of each device begins; BYTES long, the second behind the first. */
extern const uintptr_t naive_memory[DEVICES];

void set_join(set *self, const set *other);

/* A thread makes its first call. */
void naive_meet(naive *self, naive_thread *thread);
/* Something is put on the stream of that index: it becomes the act of the step. */
void naive_advance(naive *self, int stream, const naive_thread *thread,
                   bool is_operation);
/* Holds bytes that the act touches against all accesses. */
void naive_judge(naive *self, int device, uint32_t begin, uint32_t end, bool writes);
void naive_keep(naive *self, int device, uint32_t begin, uint32_t end,
                const char *words, bool writes);
/* A pool has the bytes: what was done with them before counts (or not) from here on. */
void naive_pool(naive *self, int device, uint32_t begin, uint32_t end, byte_state state,
                bool counts);
bool naive_is_behind(const naive *self, int stream, uint32_t step);
/* Which bytes of these bounds are out as a block of exactly these bounds; false:
 * none. */
bool naive_find_block(const naive *self, const block *asked, bool is_of[BYTES]);

/* Whether one step that the act is not behind touches all bytes of the finding. */
bool naive_is_true_race(const naive *self, const weir_emulated_finding *finding);
bool naive_has_state(const naive *self, const weir_emulated_finding *finding,
                     byte_state wanted);

#endif
