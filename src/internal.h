/* internal.h - what every source file may lean on: failures, checks, host memory, and
 * what Weir knows about the calling thread. */
#ifndef WEIR_INTERNAL_H
#define WEIR_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "weir/status.h"

struct weir__baton;
struct weir__thread_caches;
struct weir__thread_streams;

/* ---- what a compiler is told of hot code ---- */

#define WEIR_LIKELY(condition)   __builtin_expect(!!(condition), 1)
#define WEIR_UNLIKELY(condition) __builtin_expect(!!(condition), 0)
/* What is rarely called: kept out of line, and away from what is called always. */
#define WEIR_COLD   __attribute__((cold, noinline))
#define WEIR_NOINLINE __attribute__((noinline))
/* Where what a caller knows leaves little of a function; and on the way of a hit, which
 * gcc would cut into calls at -O2. */
#define WEIR_INLINE   inline __attribute__((always_inline))
/* Not to be looked up through the library's table of foreign symbols. */
#define WEIR_HIDDEN __attribute__((visibility("hidden")))

/* ---- lines ---- */

/* What processors take from each other, as a whole, in bytes. */
#define WEIR__LINE 64u

/* Where the first line begins from `memory` on. */
static inline uintptr_t weir__line_from(const void *memory)
{
    return ((uintptr_t)memory + WEIR__LINE - 1) & ~(uintptr_t)(WEIR__LINE - 1);
}

/* ---- failures ---- */

/* Records what went wrong for weir_last_error(). */
WEIR_COLD void weir__failed(weir_status status, int32_t native_code,
                            const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The same, and is `status`. A macro, so that a compiler knows which: evaluates it
 * twice. */
#define weir__fail(status, ...)                                                  \
    (weir__failed(status, 0, __VA_ARGS__), (weir_status)(status))

/* The same with the device's own code. */
#define weir__fail_native(status, native_code, ...)                              \
    (weir__failed(status, native_code, __VA_ARGS__), (weir_status)(status))

/* The same for OUT_OF_MEMORY and LIMIT_REACHED: keeps `report`, and makes the sentence
 * from it. struct_size need not be set. */
WEIR_COLD weir_status weir__fail_memory(weir_status status,
                                        const weir_out_of_memory *report);
/* For who was asked for `bytes`, and asked upstream for `more_bytes` more, which has
 * refused with `status`: the report becomes `resource`'s own. Where that was no want of
 * memory, or came without a report, all stays as it is. */
WEIR_COLD void weir__report_as_own(weir_status status, size_t bytes, size_t more_bytes,
                                   const char *resource);

/* The report alone, of an error of these that has its sentence already. */
WEIR_COLD void weir__report_memory(const weir_out_of_memory *report);

/* What the thread's last error and its last out-of-memory report are, for whom lets
 * others run in between: kept, and put back. */
typedef struct weir__error_record {
    uint64_t number;
    weir_status status;
    int32_t native_code;
    char message[400];
    weir_out_of_memory report; /* struct_size 0: there was none yet */
    bool is_reported;          /* the last failure is about it, in its words */
} weir__error_record;
void weir__error_keep(weir__error_record *out);
void weir__error_put_back(const weir__error_record *kept);

/* Tells the misuse handler. If this returns, the caller changes nothing. To be called
 * without locks. */
void weir__misuse(weir_misuse_kind kind, const void *ptr, size_t bytes,
                  const char *format, ...) __attribute__((format(printf, 4, 5)));

/* ---- checks ---- */

/* A broken promise of our own: says so, and stops. */
#define WEIR_CHECK(condition, words)                                             \
    ((condition) ? (void)0 : weir__check_failed(#condition, words, __FILE__, __LINE__))
WEIR_COLD _Noreturn void weir__check_failed(const char *condition, const char *words,
                                            const char *file, int line);

/* The same where it costs too much for a release: test and debug builds only. */
#if defined(WEIR_TESTING) || !defined(NDEBUG)
#define WEIR_ASSERT(condition, words) WEIR_CHECK(condition, words)
#else
#define WEIR_ASSERT(condition, words) ((void)sizeof(condition))
#endif

/* What a hash multiplies by: 2^64 over the golden ratio. */
#define WEIR__GOLDEN_RATIO UINT64_C(0x9e3779b97f4a7c15)

/* ---- host memory ---- */

/* The library's own host memory, not cleared. The second begins with a line, and takes
 * several times as long: for what lives long. */
void *weir__host_alloc(size_t bytes);
void *weir__host_alloc_lines(size_t bytes);
void  weir__host_free(void *ptr);

/* Addresses, which are no memory yet but may be read as 0 if `reads`, for *count items;
 * or, where a process may have few, for half of that, and so on: *count says for how
 * many. Null: there are none for `least` or more. */
void *weir__host_reserve(size_t item_bytes, size_t *count, size_t least, bool reads);
void  weir__host_release(void *ptr, size_t bytes);
/* Makes memory, cleared, of reserved addresses from `ptr` on: of `bytes` bytes, where
 * the first `had` are so already. False: there is none, and what was is as it was. */
bool  weir__host_commit(void *ptr, size_t had, size_t bytes);

#ifdef WEIR_TESTING
/* From the `nth` next host allocation (1: the next) one fails, or all from then on; 0:
 * none. To reserve is one, and to commit. Counting starts anew. */
void   weir__host_fail_at(uint64_t nth, bool lasting);
uint64_t weir__host_calls(void); /* since the last weir__host_fail_at */
size_t weir__host_live(void);    /* allocations that are not freed, and bytes that are
                                    reserved */
/* Between a begin and its end the calling thread's are another's: none is counted for
 * weir__host_fail_at, or fails. Nests. */
void   weir__host_spare(bool begin);
/* tests/kept_addresses.c: addresses that were released and are kept, or null; what was
 * reserved otherwise, and what of that has become memory; and what is released: false,
 * if it is not kept. */
void  *weir__addresses_take(size_t bytes, bool reads);
void   weir__addresses_reserved(void *ptr, size_t bytes, bool reads);
void   weir__addresses_committed(void *ptr, size_t bytes);
bool   weir__addresses_give(void *ptr);
/* From now on some are kept. */
void   weir__addresses_keep(void);
#endif

/* ---- the calling thread ---- */

/* All that is thread-local in the library: with initial-exec TLS this must stay small
 * (64 bytes at most in all). */
typedef struct weir__thread {
    uint64_t number;                   /* unique in the process, from 1; 0: not yet */
    weir__error_record *error;         /* what weir_last_error() reads, or null */
    struct weir__baton *baton;         /* the run it takes part in, or null */
    struct weir__thread_caches *caches; /* memory that it keeps, or null */
    struct weir__seat *seat;           /* of `caches`, that it used last; or, as it
                                          stays in a fork's child, weir__no_seat */
    struct weir__thread_streams *streams; /* its current ones, or null */
    uint16_t baton_seat;               /* its place there */
    int16_t bare_status;               /* the last error, if `error` is null */
    uint32_t depth;                    /* of nested calls of resources; those of
                                          resources with no ledger to tell may be left
                                          out */
    uint8_t lives_held;                /* of streams, see weir__order_hold_life */
    bool is_ending : 1;                /* it keeps nothing any more */
    bool end_is_told : 1;              /* to the emulated devices */
    bool own_is_over : 1;              /* its own streams may have ended */
    uint16_t gives_back;               /* storages: see pending.c */
    uint32_t own_watched;              /* devices where that is heard of in time, a bit
                                          for each slot: see pool_own.c */
} weir__thread;

/* The calling thread's; for its number ask weir__thread_self. */
extern WEIR_HIDDEN _Thread_local weir__thread weir__own_thread;
/* One in no pool: so that who looks for his need not ask whether he has any. */
extern WEIR_HIDDEN struct weir__seat weir__no_seat;
extern WEIR_HIDDEN atomic_bool weir__forked; /* for weir__is_forked */

/* The number of the thread's last error, by which it is told from an earlier one of the
 * same status; 0: there was none. */
static inline uint64_t weir__error_number(void)
{
    const weir__error_record *record = weir__own_thread.error;
    return record == NULL ? 0 : record->number;
}

/* Gives this thread its number. */
WEIR_COLD void weir__thread_begin(void);

/* The calling thread's; its number is set. */
static inline weir__thread *weir__thread_self(void)
{
    if (WEIR_UNLIKELY(weir__own_thread.number == 0))
        weir__thread_begin();
    return &weir__own_thread;
}

/* pthread_key_create; true if it has made one. In test builds a stepped run may be of
 * fibers, which have a value each. */
#ifdef WEIR_TESTING
bool weir__key_make(pthread_key_t *key, void (*end)(void *value));
#else
static inline bool weir__key_make(pthread_key_t *key, void (*end)(void *value))
{
    return pthread_key_create(key, end) == 0;
}
#endif

/* What a thread keeps until it ends; ended in this order. */
typedef enum weir__keeps {
    WEIR__KEEPS_CACHES,
    WEIR__KEEPS_STREAMS,
    WEIR__KEEPS_COUNT
} weir__keeps;

/* To be called by a thread before it sets its `caches` or `streams`: when it ends, they
 * become null, and `end` is called with what they were, on that thread, which has its
 * number and may use devices. False: there will be no such call (the system has no key
 * left, or no memory; or the thread is ending already, and another key's destructor has
 * something to do), so the thread must do without. The main thread ends with the
 * process, and no call comes; nor does one in a fork's child. There is one user of each
 * in a process: the `end` that was told last is called. */
bool weir__thread_watch_exit(weir__keeps what, void (*end)(void *kept));

/* Has `end` called when the calling thread ends, before its keys' destructors and those
 * of the thread-local objects that it has by now: what those end, be it the thread's
 * own stream, is still there; but not if keys' destructors have begun. Once for each
 * call. False: this system cannot do that, or has no memory (glibc ends the program
 * where its own few octets are not there: so it is asked only if there were as many
 * just now). In the main thread it is called when the process ends. */
bool weir__thread_watch_first(void (*end)(void *));

/* Ends what the calling thread keeps, which keeps nothing from then on. When a thread
 * ends this is done for it; a stepped run does it before, by turns. */
void weir__thread_end(void);

/* True in the child of a fork, where there is no device. */
static inline bool weir__is_forked(void)
{
    /* Relaxed: set once, when there is one thread. */
    return WEIR_UNLIKELY(atomic_load_explicit(&weir__forked, memory_order_relaxed));
}

/* From the first call on, forks are noticed. */
void weir__watch_forks(void);

/* Whether weir__enter has something to do; if not, it need not be called. */
static inline bool weir__must_enter(const weir__thread *thread)
{
    return WEIR_UNLIKELY(weir__is_forked() || thread->baton != NULL);
}

/* What every public call that can fail begins with: refuses in a fork's child, and is
 * a place where a stepped run may change threads. */
WEIR_COLD weir_status weir__enter_watched(void);
static inline weir_status weir__enter(void)
{
    return weir__must_enter(&weir__own_thread) ? weir__enter_watched() : WEIR_OK;
}

/* Room for `size` bytes that a caller compiled against another version has set aside
 * begins with struct_size: copies `known` bytes of `from` at most, zeroes the rest,
 * keeps struct_size. INVALID_ARGUMENT if it is not even that long. */
weir_status weir__fill_out(void *out, const void *from, size_t known);

/* Reads options the other way round: *out (of `known` bytes) is what the caller
 * gave, or all zero where it knew less or `from` is null. NOT_SUPPORTED if it sets
 * what this version does not know. */
WEIR_COLD weir_status weir__read_other_options(const void *from, void *out,
                                               size_t known, const char *what);
static WEIR_INLINE weir_status weir__read_options(const void *from, void *out,
                                                  size_t known, const char *what)
{
    size_t size = known;
    if (from != NULL)
        memcpy(&size, from, sizeof size);
    if (WEIR_UNLIKELY(size != known))
        return weir__read_other_options(from, out, known, what);
    if (from != NULL) {
        memcpy(out, from, known);
    } else {
        memset(out, 0, known);
        memcpy(out, &size, sizeof size);
    }
    return WEIR_OK;
}

#endif
