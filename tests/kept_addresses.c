/* kept_addresses.c - part of host.c in test builds: addresses that are kept.
 *
 * For tests that make thousands of heaps: what one has released the next has again,
 * cleared and no memory, as if it were new. To map it and to fault in its pages takes
 * longer than all that is done with it. */
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "internal.h"
#include "sync.h"

#define KEPT        32
#define KEPT_PARTS  8
#define KEPT_MEMORY ((size_t)1 << 20) /* what more became memory is not kept */

typedef struct addresses {
    unsigned char *ptr; /* null: none */
    size_t bytes;
    bool reads;
    bool is_out;
    unsigned count; /* of the parts that are memory; KEPT_PARTS: too many to know */
    struct {
        unsigned char *ptr;
        size_t bytes;
    } parts[KEPT_PARTS];
} addresses;

static weir__mutex kept_lock = WEIR__MUTEX_INIT(WEIR__RANK_SPARES);
static addresses kept[KEPT]; /* guarded by kept_lock */
static atomic_bool keeps;

void weir__addresses_keep(void)
{
    atomic_store(&keeps, true);
}

static addresses *find(const unsigned char *ptr)
{
    for (addresses *one = kept; one < kept + KEPT; one++) {
        if (one->ptr != NULL && (uintptr_t)ptr - (uintptr_t)one->ptr < one->bytes)
            return one;
    }
    return NULL;
}

void *weir__addresses_take(size_t bytes, bool reads)
{
    void *ptr = NULL;
    if (!atomic_load(&keeps))
        return NULL;
    weir__mutex_lock(&kept_lock);
    for (addresses *one = kept; one < kept + KEPT && ptr == NULL; one++) {
        if (one->ptr != NULL && !one->is_out && one->bytes == bytes &&
            one->reads == reads) {
            one->is_out = true;
            ptr = one->ptr;
        }
    }
    weir__mutex_unlock(&kept_lock);
    return ptr;
}

void weir__addresses_reserved(void *ptr, size_t bytes, bool reads)
{
    if (!atomic_load(&keeps))
        return;
    weir__mutex_lock(&kept_lock);
    addresses *one = kept;
    while (one < kept + KEPT && one->ptr != NULL)
        one++;
    if (one < kept + KEPT)
        *one = (addresses){ .ptr = ptr, .bytes = bytes, .reads = reads,
                            .is_out = true };
    weir__mutex_unlock(&kept_lock);
}

/* Its whole pages. */
void weir__addresses_committed(void *ptr, size_t bytes)
{
    if (!atomic_load(&keeps))
        return;
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t first = (uintptr_t)ptr & ~(page - 1);
    const uintptr_t end = ((uintptr_t)ptr + bytes + page - 1) & ~(page - 1);
    weir__mutex_lock(&kept_lock);
    addresses *one = find(ptr);
    unsigned i = 0;
    while (one != NULL && i < one->count && one->parts[i].ptr != (void *)first)
        i++;
    if (one != NULL && i < KEPT_PARTS) {
        one->parts[i].ptr = (unsigned char *)first;
        if (i == one->count)
            one->parts[one->count++].bytes = 0;
        if (one->parts[i].bytes < end - first)
            one->parts[i].bytes = end - first;
    }
    weir__mutex_unlock(&kept_lock);
}

/* Makes of them what they were when they were new; false: they had better go. */
static bool clear(addresses *one)
{
    size_t bytes = 0;
    for (unsigned i = 0; i < one->count; i++)
        bytes += one->parts[i].bytes;
    if (one->count == KEPT_PARTS || bytes > KEPT_MEMORY)
        return false;
    for (unsigned i = 0; i < one->count; i++)
        memset(one->parts[i].ptr, 0, one->parts[i].bytes);
    one->count = 0;
    return bytes == 0 ||
           mprotect(one->ptr, one->bytes, one->reads ? PROT_READ : PROT_NONE) == 0;
}

bool weir__addresses_give(void *ptr)
{
    if (!atomic_load(&keeps))
        return false;
    weir__mutex_lock(&kept_lock);
    addresses *one = find(ptr);
    if (one != NULL) {
        one->is_out = false;
        if (!clear(one))
            one->ptr = NULL;
    }
    bool is_kept = one != NULL && one->ptr != NULL;
    weir__mutex_unlock(&kept_lock);
    return is_kept;
}
