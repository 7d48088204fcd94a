/* thread.c - what Weir knows about the calling thread, and whether this process is a
 * fork's child.
 *
 * One small block of thread-local storage for the whole library: it is initial-exec,
 * and a library that is loaded late finds little room for that kind. What is larger
 * (the last error) is on the heap, and freed when the thread ends. */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "internal.h"
#include "sync.h"
#ifdef WEIR_TESTING
#include "fibers.h"
#endif

_Thread_local weir__thread weir__own_thread = { .seat = &weir__no_seat };
atomic_bool weir__forked;
static atomic_uint_least64_t thread_count;

void weir__thread_begin(void)
{
    weir__own_thread.number = atomic_fetch_add(&thread_count, 1) + 1;
}

/* ---- the end of a thread ---- */

static pthread_key_t end_key;
static bool end_key_made;
static _Atomic(void (*)(void *)) ends[WEIR__KEEPS_COUNT];

/* Other keys' destructors may come later, and may allocate and give back: they find
 * nothing kept, and can keep nothing. Nothing is left for a later round. */
void weir__thread_end(void)
{
    weir__thread *thread = weir__thread_self();
    void *const kept[] = { [WEIR__KEEPS_CACHES] = thread->caches,
                           [WEIR__KEEPS_STREAMS] = thread->streams };
    thread->caches = NULL;
    thread->seat = &weir__no_seat;
    thread->streams = NULL;
    thread->is_ending = true;
    thread->own_is_over = thread->own_is_over || thread->own_watched != 0;
    for (size_t i = 0; i < WEIR__KEEPS_COUNT; i++) {
        if (kept[i] != NULL && !weir__is_forked())
            atomic_load(&ends[i])(kept[i]);
    }
}

static void thread_ends(void *value)
{
    (void)value;
    weir__thread_end();
}

static void end_key_create(void)
{
    end_key_made = weir__key_make(&end_key, thread_ends);
}

bool weir__thread_watch_exit(weir__keeps what, void (*end)(void *kept))
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    weir__thread *thread = weir__thread_self();
    (void)pthread_once(&once, end_key_create);
    if (!end_key_made || thread->is_ending ||
        pthread_setspecific(end_key, thread) != 0)
        return false;
    atomic_store(&ends[what], end);
    return true;
}

/* The system's, where it is glibc: what C++ registers destructors of thread-local
 * objects with. They are called in reverse, before all keys', and keep the library
 * loaded. */
extern int __cxa_thread_atexit_impl(void (*end)(void *), void *object, void *library)
    __attribute__((weak));
extern void *__dso_handle WEIR_HIDDEN;

bool weir__thread_watch_first(void (*end)(void *))
{
    enum { PLENTY = 2048 }; /* so that it goes back to where calloc looks */
    if (__cxa_thread_atexit_impl == NULL)
        return false;
    void *room = weir__host_alloc(PLENTY);
    weir__host_free(room);
    if (room == NULL)
        return false;
#ifdef WEIR_TESTING
    if (weir__fiber_runs())
        return weir__fiber_watch_first(end);
#endif
    return __cxa_thread_atexit_impl(end, NULL, &__dso_handle) == 0;
}

/* ---- forks ---- */

static void child_after_fork(void)
{
    atomic_store(&weir__forked, true);
    weir__own_thread.seat = &weir__no_seat; /* who has one does not look */
}

static void watch(void)
{
    (void)pthread_atfork(NULL, NULL, child_after_fork);
}

void weir__watch_forks(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, watch);
}

weir_status weir__enter_watched(void)
{
    if (weir__is_forked())
        return weir__fail(WEIR_FORKED, "a fork's child cannot use its parent's device");
    weir__yield();
    return WEIR_OK;
}

weir_status weir__fill_out(void *out, const void *from, size_t known)
{
    size_t size;
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    memcpy(&size, out, sizeof size);
    if (size <= sizeof size)
        return weir__fail(WEIR_INVALID_ARGUMENT, "struct_size is not set");

    size_t common = size < known ? size : known;
    unsigned char *to = out;
    memcpy(to + sizeof size, (const unsigned char *)from + sizeof size,
           common - sizeof size);
    memset(to + common, 0, size - common);
    return WEIR_OK;
}

/* Of another version: more or less than is known. */
weir_status weir__read_other_options(const void *from, void *out, size_t known,
                                     const char *what)
{
    size_t size;
    memset(out, 0, known);
    memcpy(out, &known, sizeof known);
    memcpy(&size, from, sizeof size);
    if (size <= sizeof size)
        return weir__fail(WEIR_INVALID_ARGUMENT, "struct_size of %s is not set", what);
    const unsigned char *bytes = from;
    for (size_t i = known; i < size; i++) {
        if (bytes[i] != 0)
            return weir__fail(WEIR_NOT_SUPPORTED,
                              "%s ask for something that this version does not know",
                              what);
    }
    size_t common = size < known ? size : known;
    memcpy((unsigned char *)out + sizeof size, bytes + sizeof size,
           common - sizeof size);
    return WEIR_OK;
}
