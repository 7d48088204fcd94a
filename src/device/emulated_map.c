/* emulated_map.c - see emulated_map.h.
 *
 * The bytes of one arena live in a memory file that is mapped once, where work reaches
 * them. Device addresses come from a reserved range of the same length that nobody can
 * touch. Neither is inherited by a fork.
 *
 * Tests that open thousands of devices keep the mappings of those that are closed for
 * those that they open next: to fault in a page takes longer than all that is done
 * with it. */
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "device/emulated_map.h"
#include "internal.h"
#include "sync.h"

#define PAGE ((size_t)4096)

/* Addresses that nobody can touch, aligned to `alignment`; null: errno says why. */
static void *addresses_reserve(size_t bytes, size_t alignment)
{
    size_t more = alignment > PAGE ? alignment : 0;
    unsigned char *all = mmap(NULL, bytes + more, PROT_NONE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED)
        return NULL;
    size_t in_front = (alignment - (uintptr_t)all % alignment) % alignment;
    if (in_front > 0)
        munmap(all, in_front);
    if (more > in_front)
        munmap(all + in_front + bytes, more - in_front);
    return all + in_front;
}

bool weir__arena_map(weir__arena *arena, size_t alignment)
{
    arena->base = addresses_reserve(arena->bytes, alignment);
    if (arena->base == NULL)
        return false;
    void *view = mmap(NULL, arena->bytes, PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, arena->fd, 0);
    if (view == MAP_FAILED)
        return false;
    arena->view = view;
    return madvise(arena->base, arena->bytes, MADV_DONTFORK) == 0 &&
           madvise(view, arena->bytes, MADV_DONTFORK) == 0;
}

static void mappings_end(const weir__arena *arena)
{
    if (arena->view != NULL)
        munmap(arena->view, arena->bytes);
    if (arena->base != NULL)
        munmap(arena->base, arena->bytes);
    if (arena->fd >= 0)
        close(arena->fd);
}

#ifdef WEIR_TESTING
/* ---- spare ones ---- */

#define SPARES      4
#define SPARE_PAGES ((blkcnt_t)(512 << 20) / 512) /* as a file's are counted */

static weir__mutex spares_lock = WEIR__MUTEX_INIT(WEIR__RANK_SPARES);
static weir__arena spares[SPARES]; /* the addresses and the file; guarded, as: */
static unsigned spares_next;       /* which is ended for another */
static atomic_bool spares_kept;

void weir__arenas_keep(void)
{
    atomic_store(&spares_kept, true);
}

bool weir__arenas_are_kept(void)
{
    return atomic_load(&spares_kept);
}

static bool spare_take(weir__arena *arena)
{
    weir__arena found = { .fd = -1 };
    weir__mutex_lock(&spares_lock);
    for (unsigned i = 0; i < SPARES && found.view == NULL; i++) {
        if (spares[i].view != NULL && spares[i].bytes == arena->bytes &&
            spares[i].is_range == arena->is_range) {
            found = spares[i];
            spares[i].view = NULL;
        }
    }
    weir__mutex_unlock(&spares_lock);
    if (found.view == NULL)
        return false;
    arena->base = found.base;
    arena->view = found.view;
    arena->fd = found.fd;
    return true;
}

/* Takes over what `arena` has mapped, or false. */
static bool spare_put(const weir__arena *arena)
{
    struct stat about;
    bool is_object = arena->home != arena && !arena->is_range;
    if (!weir__arenas_are_kept() || !arena->keeps_pages || is_object ||
        arena->view == NULL || fstat(arena->fd, &about) != 0 ||
        about.st_blocks > SPARE_PAGES)
        return false;
    weir__mutex_lock(&spares_lock);
    weir__arena *place = &spares[spares_next++ % SPARES];
    weir__arena old = *place;
    *place = *arena;
    weir__mutex_unlock(&spares_lock);
    if (old.view != NULL)
        mappings_end(&old);
    return true;
}
#else
static bool spare_take(weir__arena *arena)
{
    (void)arena;
    return false;
}

static bool spare_put(const weir__arena *arena)
{
    (void)arena;
    return false;
}
#endif

bool weir__arena_map_new(weir__arena *arena, size_t alignment)
{
    if (spare_take(arena))
        return true;
    arena->fd = memfd_create(arena->is_range ? "weir-range" : "weir-emulated",
                             MFD_CLOEXEC);
    return arena->fd >= 0 && ftruncate(arena->fd, (off_t)arena->bytes) == 0 &&
           weir__arena_map(arena, alignment);
}

void weir__arena_unmap(weir__arena *arena)
{
    if (!spare_put(arena))
        mappings_end(arena);
    weir__host_free(arena);
}
