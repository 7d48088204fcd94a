/* host.c - the library's own host memory.
 *
 * Everything the library keeps for itself comes from here, so that test builds can make
 * any single allocation fail and can count what was not freed. */
#include <malloc.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "internal.h"

/* ---- addresses ---- */

/* Of what a process may have in all, others want the rest. */
#define SHARE 128u

/* Made readable afterwards: where all that is mapped is locked (MCL_FUTURE), what can
 * be read at once would be put there page by page. */
static void *map(size_t bytes, bool reads)
{
    void *ptr = mmap(NULL, bytes, PROT_NONE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ptr == MAP_FAILED)
        return NULL;
    if (reads && mprotect(ptr, bytes, PROT_READ) != 0) {
        (void)munmap(ptr, bytes);
        return NULL;
    }
    return ptr;
}

static void *reserve(size_t item_bytes, size_t *count, size_t least, bool reads)
{
    struct rlimit most;
    if (getrlimit(RLIMIT_AS, &most) == 0 && most.rlim_cur != RLIM_INFINITY) {
        while (*count / 2 >= least && *count > most.rlim_cur / SHARE / item_bytes)
            *count /= 2;
    }
    for (; *count >= least && *count > 0; *count /= 2) {
        void *ptr = map(*count * item_bytes, reads);
        if (ptr != NULL)
            return ptr;
    }
    return NULL;
}

/* By whole pages: the one where `had` ends is memory already. */
static bool commit(void *ptr, size_t had, size_t bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uintptr_t begin = (uintptr_t)ptr, end = begin + bytes;
    begin = had > 0 ? (begin + had + page - 1) & ~(page - 1) : begin & ~(page - 1);
    end = (end + page - 1) & ~(page - 1);
    return begin >= end ||
           mprotect((void *)begin, end - begin, PROT_READ | PROT_WRITE) == 0;
}

/* ---- memory ---- */

static void *allocate_lines(size_t bytes)
{
    const size_t lines = bytes / WEIR__LINE + (bytes % WEIR__LINE != 0);
    return aligned_alloc(WEIR__LINE, lines * WEIR__LINE);
}

#ifdef WEIR_TESTING
static atomic_uint_least64_t calls;
static atomic_uint_least64_t fail_at;
static atomic_bool fail_lasting;
static atomic_size_t live;
static _Thread_local unsigned spared;

void weir__host_spare(bool begin)
{
    spared += begin ? 1u : -1u;
}

void weir__host_fail_at(uint64_t nth, bool lasting)
{
    atomic_store(&fail_lasting, lasting);
    atomic_store(&calls, 0);
    atomic_store(&fail_at, nth);
}

uint64_t weir__host_calls(void)
{
    return atomic_load(&calls);
}

size_t weir__host_live(void)
{
    return atomic_load(&live);
}

static bool must_fail(void)
{
    if (spared > 0)
        return false;
    uint64_t call = atomic_fetch_add(&calls, 1) + 1;
    uint64_t nth = atomic_load(&fail_at);
    return nth != 0 && (call == nth || (call > nth && atomic_load(&fail_lasting)));
}

static void *counted(void *ptr)
{
    if (ptr != NULL)
        atomic_fetch_add(&live, 1);
    return ptr;
}

void *weir__host_alloc(size_t bytes)
{
    return must_fail() ? NULL : counted(malloc(bytes));
}

void *weir__host_alloc_lines(size_t bytes)
{
    return must_fail() ? NULL : counted(allocate_lines(bytes));
}

void weir__host_free(void *ptr)
{
    if (ptr != NULL) {
        atomic_fetch_sub(&live, 1);
        /* Who still reads it shall not find what was there. */
        memset(ptr, 0xdb, malloc_usable_size(ptr));
        __asm__ volatile("" : : "r"(ptr) : "memory"); /* it is not left out */
    }
    free(ptr);
}

void *weir__host_reserve(size_t item_bytes, size_t *count, size_t least, bool reads)
{
    if (must_fail())
        return NULL;
    void *ptr = weir__addresses_take(*count * item_bytes, reads);
    if (ptr == NULL) {
        ptr = reserve(item_bytes, count, least, reads);
        if (ptr != NULL)
            weir__addresses_reserved(ptr, *count * item_bytes, reads);
    }
    if (ptr != NULL)
        atomic_fetch_add(&live, *count * item_bytes);
    return ptr;
}

void weir__host_release(void *ptr, size_t bytes)
{
    atomic_fetch_sub(&live, bytes);
    if (!weir__addresses_give(ptr))
        (void)munmap(ptr, bytes);
}

bool weir__host_commit(void *ptr, size_t had, size_t bytes)
{
    if (must_fail() || !commit(ptr, had, bytes))
        return false;
    weir__addresses_committed(ptr, bytes);
    return true;
}
#else
void *weir__host_alloc(size_t bytes)
{
    return malloc(bytes);
}

void *weir__host_alloc_lines(size_t bytes)
{
    return allocate_lines(bytes);
}

void weir__host_free(void *ptr)
{
    free(ptr);
}

void *weir__host_reserve(size_t item_bytes, size_t *count, size_t least, bool reads)
{
    return reserve(item_bytes, count, least, reads);
}

void weir__host_release(void *ptr, size_t bytes)
{
    (void)munmap(ptr, bytes);
}

bool weir__host_commit(void *ptr, size_t had, size_t bytes)
{
    return commit(ptr, had, bytes);
}
#endif
