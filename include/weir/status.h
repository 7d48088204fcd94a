/* weir/status.h - what a call can answer, where to read more, and what happens
 * when a program breaks the rules.
 *
 * A call that can fail returns a weir_status. On failure what it would have
 * written is null or zero, nothing else has changed, and weir_last_error() holds
 * one sentence for this thread.
 *
 * Three answers are possible everywhere and are not repeated at each function:
 * INVALID_ARGUMENT (a null where none is allowed, a number without meaning),
 * OUT_OF_HOST_MEMORY (the library's own records), and FORKED. Whatever asks the device
 * for something can also answer DEVICE_ERROR (it refuses or fails; weir_last_error()
 * holds its own code) or DEVICE_LOST (it failed for good), where no more is said. */
#ifndef WEIR_STATUS_H
#define WEIR_STATUS_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define WEIR_API       __attribute__((visibility("default")))
#define WEIR_NODISCARD __attribute__((warn_unused_result))
#else
#define WEIR_API
#define WEIR_NODISCARD
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* One line per answer: code, number, words. The numbers never change. */
#define WEIR_STATUS_MAP(X)                                                       \
    X(OK, 0, "success")                                                         \
    X(INVALID_ARGUMENT, 1, "an argument has no meaning here")                   \
    X(NOT_SUPPORTED, 2, "this resource, device or build cannot do that")        \
    X(OUT_OF_HOST_MEMORY, 3, "no host memory for the library's own records")    \
    X(OUT_OF_MEMORY, 4, "no room on the device")                                \
    X(LIMIT_REACHED, 5, "a limit set above the device would be passed")         \
    X(DEVICE_ERROR, 6, "the device reported a failure")                         \
    X(DEVICE_LOST, 7, "the device failed for good; nothing can be allocated")   \
    X(CAPTURING, 8, "a stream is being captured, and that would spoil it")      \
    X(NOT_FOUND, 9, "nothing is known under that name or address")              \
    X(FORKED, 10, "this process is a fork's child and has no device")            \
    X(FILE_ERROR, 11, "a file could not be opened, read or written")            \
    X(NOT_OWNED, 12, "the buffer does not own its bytes, or not alone")         \
    X(PEER_GONE, 13, "the other process has ended, or does not answer")         \
    X(PAUSED, 14, "the memory is paused; nothing can be allocated of it")

typedef enum weir_status {
#define WEIR_STATUS_CODE(name, number, words) WEIR_##name = number,
    WEIR_STATUS_MAP(WEIR_STATUS_CODE)
#undef WEIR_STATUS_CODE
} weir_status;

/* The words for `status`; a string that lives as long as the library. */
WEIR_API const char *weir_status_string(weir_status status);

/* What the last failed call on this thread knew. Valid until the next failure
 * on this thread; a success leaves it alone, unless something failed on the way and was
 * made good, as where a fallback's primary refused: then it may hold that. So it is
 * for whoever was just answered a failure. */
typedef struct weir_error {
    weir_status status;
    int32_t native_code;   /* the device's own code, or 0 */
    const char *message;   /* one sentence, never null */
} weir_error;

WEIR_API weir_error weir_last_error(void);

/* What was known when a resource last ran out of memory on this thread
 * (OUT_OF_MEMORY or LIMIT_REACHED). */
typedef struct weir_out_of_memory {
    size_t struct_size;
    size_t requested_bytes;    /* as asked for by the failing call */
    size_t limit_bytes;        /* most it may hold; SIZE_MAX: no limit of its own */
    size_t held_bytes;         /* what the resource had from upstream */
    size_t in_use_bytes;       /* of these, what was out */
    size_t largest_free_bytes; /* the largest run of free bytes */
    const char *resource;      /* who says so: "pool", "device", ... */
} weir_out_of_memory;

/* Copies the last report of this thread to *out, whose struct_size the caller has
 * set. NOT_FOUND: no resource has run out on this thread yet. */
WEIR_API WEIR_NODISCARD weir_status weir_last_out_of_memory(weir_out_of_memory *out);

/* A broken rule that only the program can mend. */
typedef enum weir_misuse_kind {
    WEIR_MISUSE_DOUBLE_FREE = 1,     /* it is free here: given back already, or cut
                                        for its size and never handed out, which a
                                        resource may not tell apart */
    WEIR_MISUSE_FOREIGN_POINTER = 2, /* this resource never gave it */
    WEIR_MISUSE_WRONG_SIZE = 3,      /* not the bytes or alignment asked for */
    WEIR_MISUSE_WRONG_STREAM = 4,    /* points that are none; checking.h: not ordered */
    WEIR_MISUSE_STILL_IN_USE = 5,    /* destroyed while others still need it */
    /* Found by weir/checking.h, afterwards: */
    WEIR_MISUSE_OVERRUN = 6,         /* bytes beside a block were written */
    WEIR_MISUSE_USE_AFTER_FREE = 7   /* bytes were written that were given back */
} weir_misuse_kind;

typedef struct weir_misuse {
    weir_misuse_kind kind;
    const char *message;  /* one sentence; lives as long as the call */
    const void *ptr;      /* the address in question, or null */
    size_t bytes;         /* as given, or 0 */
} weir_misuse;

/* Is told of every misuse, on the thread that did it, without any lock of the
 * library's held. If it returns, the offending call has done nothing. But where two
 * threads give a block back at the same moment neither call may know: then who comes
 * upon it is told, later, and once it returns all goes on as if one call had been. */
typedef void (*weir_misuse_handler)(void *context, const weir_misuse *misuse);

/* Puts `handler` in place of the one before, for the whole process. Null puts back the
 * default one, which prints the sentence to stderr and aborts. */
WEIR_API void weir_set_misuse_handler(weir_misuse_handler handler, void *context);

#ifdef __cplusplus
}
#endif
#endif
