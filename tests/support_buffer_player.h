/* support_buffer_player.h - a player of buffers: does one random thing after the other
 * with a few of them, and keeps beside each what it must hold and answer.
 *
 * The naive model: a storage is a row of cells, each with the key of what was written
 * to it last, and a number of holders. A player waits before each access and notes each
 * use, but where the header says that it need not. What goes back too early, or is
 * handed on without an order, the ledger finds, or the cells lose their keys.
 *
 * Storages that several players hold (`is_common`) are never written to; who is alone
 * on one, nobody can tell, so there both answers are right. */
#ifndef WEIR_TESTS_SUPPORT_BUFFER_PLAYER_H
#define WEIR_TESTS_SUPPORT_BUFFER_PLAYER_H

#include <stdatomic.h>

#include "support_buffer.h"

#define CELL ((size_t)256)

enum {
    PLAYER_CELLS = 8,
    PLAYER_SLOTS = 6,
    PLAYER_WEAKS = 3,
    PLAYER_STORAGES = 256,
    PLAYER_STREAMS = 7
};

/* The streams of a scene by number. */
enum {
    STREAM_A,
    STREAM_B,
    STREAM_BLOCKING,
    STREAM_UNKNOWN,  /* to Weir */
    STREAM_LEGACY,
    STREAM_OWN,      /* the calling thread's */
    STREAM_MORTAL,   /* retired, and made anew, while a player is alone */
    STREAM_ENDED = -1
};

typedef struct player_scene {
    weir_device *device;
    weir_resource *pool;
    weir_stream streams[PLAYER_STREAMS];
} player_scene;

typedef struct player_storage {
    player_scene *scene;
    bool is_taken;
    bool is_block;
    bool is_common;
    atomic_bool met_others; /* streams other than its holder's may use it */
    bool ignores_stream;
    int holders, weak;
    void *ptr;
    size_t bytes;
    atomic_int ends;        /* calls of the deleter */
    uint64_t keys[PLAYER_CELLS]; /* 0: not written */
} player_storage;

typedef struct player_slot {
    weir_buffer buffer;
    player_storage *storage; /* null: empty */
    size_t first;            /* cell */
    int stream;
} player_slot;

typedef struct player_weak {
    weir_weak_buffer weak;
    player_storage *storage; /* null: none */
    size_t first;
    size_t bytes;
    int stream;
} player_weak;

typedef struct player {
    player_scene *scene;
    uint64_t random;
    uint64_t keys;
    bool is_alone;           /* no other player */
    bool has_lost_streams;   /* retired, or to a capture */
    size_t steps;
    player_slot slots[PLAYER_SLOTS];
    player_weak weaks[PLAYER_WEAKS];
    player_storage storages[PLAYER_STORAGES];
    int storages_used;       /* at most: none after these was ever taken */
} player;

#define PLAYER_OPS(X)                                                            \
    X(INIT) X(ALLOCATE) X(ADOPT) X(ADOPT_BLOCK) X(VIEW) X(SHARE) X(SLICE)        \
    X(WEAKEN) X(UPGRADE) X(FORGET) X(RESIZE) X(RESERVE) X(SHRINK) X(COPY) X(OWN) \
    X(RELEASE) X(RESET) X(SET_STREAM) X(WRITE) X(READ) X(USE) X(WAIT_SYNC)       \
    X(DRAIN) X(RETIRE) X(CAPTURE) X(MOVE)

typedef enum player_op {
#define X(name) PLAYER_##name,
    PLAYER_OPS(X)
#undef X
    PLAYER_OP_COUNT
} player_op;

extern atomic_uint_least64_t player_counts[PLAYER_OP_COUNT]; /* that did something */
extern atomic_uint_least64_t player_refusals, player_checks;
const char *player_op_name(player_op op);

void player_begin(player *self, player_scene *scene, uint64_t seed, bool is_alone);
/* Plays `steps` times; the argument is the player, for weir_emulated_run_threads. */
void player_play(void *argument);
/* Ends all that it holds. */
void player_end(player *self);
/* After the drain: all of its deleters were called. */
void player_must_be_over(const player *self);

/* Fills *storage, one that all players hold in this slot, written already; it lasts
 * until they have ended. */
void players_share(player *const players[], size_t count, player_storage *storage,
                   size_t slot_index);

#endif
