/* emulated_yard.c - see emulated_yard.h.
 *
 * Stretches of addresses are cut into pieces, free and taken. A stretch is memory up to
 * where it ever was handed out; what is given back stays memory, for the next to find,
 * until there is much of that: then the system gets the pages. A stretch that nobody
 * has a piece of is unmapped only when the system has no more addresses, or memory. */
#include "device/emulated_yard.h"

#include <sys/mman.h>

#include "device/emulated.h"
#include "device/emulated_map.h"
#include "internal.h"

#define PAGE      ((size_t)4096)
#define STRETCH   ((size_t)64 << 20) /* mapped at once, at least */
#define KEPT_MOST ((size_t)64 << 20) /* of pages that nobody has */

typedef struct stretch {
    struct stretch *next;
    uintptr_t base;
    size_t bytes;
    size_t committed;
} stretch;

static weir__mutex yard_lock = WEIR__MUTEX_INIT(WEIR__RANK_MEMORY);
/* Guarded by yard_lock: */
static stretch *stretches;
static weir__blocks pieces; /* of all stretches */
static size_t devices;
static size_t kept;         /* given back since the system got pages, and not taken */
#ifdef WEIR_TESTING
static stretch spares[8];   /* of STRETCH bytes each; where the base is 0: none */
#endif

static uintptr_t round_up(uintptr_t number, size_t to)
{
    return (number + (to - 1)) & ~(uintptr_t)(to - 1);
}

/* ---- stretches ---- */

/* What looks for leaks has to look into the yard, as it would into malloc's. */
void __lsan_register_root_region(const void *ptr, size_t bytes) __attribute__((weak));
void __lsan_unregister_root_region(const void *ptr, size_t bytes) __attribute__((weak));

static weir_status fail_host(void)
{
    return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a block's record");
}

static weir_status fail_full(size_t bytes)
{
    return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                             "the host has no %zu bytes", bytes);
}

/* Under the lock, as the next two. Null: there is none. */
static stretch *stretch_of(uintptr_t ptr, size_t bytes)
{
    stretch *at = stretches;
    while (at != NULL && (ptr >= at->base + at->bytes || at->base >= ptr + bytes))
        at = at->next;
    return at;
}

/* Where tests keep memory they keep some stretches for the next device, too. */
#ifdef WEIR_TESTING
#define SPARES (sizeof spares / sizeof spares[0])

static bool spare_put(const stretch *ended)
{
    size_t at = 0;
    while (at < SPARES && spares[at].base != 0)
        at++;
    bool is_put = weir__arenas_are_kept() && at < SPARES && ended->bytes == STRETCH;
    if (is_put)
        spares[at] = *ended;
    return is_put;
}

static stretch spare_take(void)
{
    stretch taken = { .base = 0 };
    weir__mutex_lock(&yard_lock);
    for (size_t at = 0; at < SPARES && taken.base == 0; at++) {
        taken = spares[at];
        spares[at].base = 0;
    }
    weir__mutex_unlock(&yard_lock);
    return taken;
}

static bool keeps_pages(void)
{
    return weir__arenas_are_kept();
}
#else
static bool spare_put(const stretch *ended)
{
    (void)ended;
    return false;
}

static stretch spare_take(void)
{
    return (stretch){ .base = 0 };
}

static bool keeps_pages(void)
{
    return false;
}
#endif

static void stretch_end(stretch **link)
{
    stretch *ended = *link;
    *link = ended->next;
    if (__lsan_unregister_root_region != NULL)
        __lsan_unregister_root_region((void *)ended->base, ended->bytes);
    if (!spare_put(ended))
        (void)munmap((void *)ended->base, ended->bytes);
    weir__host_free(ended);
}

/* Those that are one free piece; false: there were none. */
static bool stretches_drop(void)
{
    bool any = false;
    for (stretch **link = &stretches; *link != NULL;) {
        weir__block *piece = weir__blocks_at_or_below(&pieces, (*link)->base);
        bool is_free = piece->is_free && piece->bytes == (*link)->bytes;
        if (is_free) {
            weir__blocks_remove(&pieces, piece);
            weir__host_free(piece);
            stretch_end(link);
        } else {
            link = &(*link)->next;
        }
        any = any || is_free;
    }
    return any;
}

/* Its base is 0: the system has no such addresses. */
static stretch stretch_map(size_t bytes)
{
    stretch mapped = { .base = 0 };
    if (bytes == STRETCH)
        mapped = spare_take();
    if (mapped.base != 0)
        return mapped;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base != MAP_FAILED)
        mapped = (stretch){ .base = (uintptr_t)base, .bytes = bytes };
    return mapped;
}

/* Adds a stretch with room for so many bytes. */
static weir_status stretch_add(size_t bytes)
{
    stretch *made = weir__host_alloc(sizeof *made);
    weir__block *piece = weir__block_make(0, 0, true);
    const size_t room = bytes > STRETCH ? round_up(bytes, PAGE) : STRETCH;
    const bool has_records = made != NULL && piece != NULL;
    const stretch mapped = has_records ? stretch_map(room) : (stretch){ .base = 0 };
    if (mapped.base == 0) {
        weir__host_free(piece);
        weir__host_free(made);
        return has_records ? fail_full(bytes) : fail_host();
    }
    if (__lsan_register_root_region != NULL)
        __lsan_register_root_region((void *)mapped.base, room);
    piece->ptr = mapped.base;
    piece->bytes = room;
    *made = mapped;
    weir__mutex_lock(&yard_lock);
    made->next = stretches;
    stretches = made;
    weir__blocks_insert(&pieces, piece);
    weir__mutex_unlock(&yard_lock);
    return WEIR_OK;
}

weir_status weir__yard_open(void)
{
    weir__mutex_lock(&yard_lock);
    const bool is_first = devices++ == 0;
    weir__mutex_unlock(&yard_lock);
    weir_status status = is_first ? stretch_add(STRETCH) : WEIR_OK;
    if (status != WEIR_OK)
        weir__yard_close();
    return status;
}

void weir__yard_close(void)
{
    weir__mutex_lock(&yard_lock);
    const bool is_last = --devices == 0;
    if (is_last)
        weir__blocks_clear(&pieces);
    while (is_last && stretches != NULL)
        stretch_end(&stretches);
    if (is_last)
        kept = 0;
    weir__mutex_unlock(&yard_lock);
}

bool weir__yard_has(uintptr_t ptr, size_t bytes)
{
    weir__mutex_lock(&yard_lock);
    bool has = stretch_of(ptr, bytes) != NULL;
    weir__mutex_unlock(&yard_lock);
    return has;
}

/* ---- pieces: under the lock ---- */

/* Leaves a free piece its first `bytes` bytes; the rest becomes `rest`, or there is
 * none. */
static void piece_cut(weir__block *piece, size_t bytes, weir__block *rest)
{
    rest->ptr = piece->ptr + bytes;
    rest->bytes = piece->bytes - bytes;
    piece->bytes = bytes;
    weir__blocks_refresh(&pieces, piece);
    if (rest->bytes > 0)
        weir__blocks_insert(&pieces, rest);
    else
        weir__host_free(rest);
}

/* Takes the granules out of a free piece with room for them; null: there is none.
 * `others` become the pieces beside them, or are freed. */
static weir__block *piece_take(size_t bytes, size_t alignment, weir__block *others[2])
{
    weir__block *piece =
        weir__blocks_first_fit(&pieces, bytes + alignment - WEIR__YARD_GRANULE);
    if (piece == NULL)
        return NULL;
    const size_t gap = round_up(piece->ptr, alignment) - piece->ptr;
    if (gap > 0) {
        piece_cut(piece, gap, others[0]);
        piece = others[0];
    } else {
        weir__host_free(others[0]);
    }
    piece->is_free = false;
    piece_cut(piece, bytes, others[1]);
    kept -= kept < bytes ? kept : bytes;
    return piece;
}

/* Makes one of two neighbours in a stretch, if both are free; false: not so. */
static bool pieces_merge(weir__block *first, weir__block *second)
{
    if (first == NULL || second == NULL || !first->is_free || !second->is_free ||
        first->ptr + first->bytes != second->ptr ||
        stretch_of(second->ptr, 1)->base == second->ptr)
        return false;
    weir__blocks_remove(&pieces, second);
    first->bytes += second->bytes;
    weir__blocks_refresh(&pieces, first);
    weir__host_free(second);
    return true;
}

static void piece_free(weir__block *piece)
{
    kept += piece->bytes;
    piece->is_free = true;
    weir__blocks_refresh(&pieces, piece);
    (void)pieces_merge(piece, weir__blocks_above(&pieces, piece->ptr));
    (void)pieces_merge(weir__blocks_at_or_below(&pieces, piece->ptr - 1), piece);
}

/* The system gets all pages that free pieces have to themselves. */
static void pages_give_back(void)
{
    for (const weir__block *piece = weir__blocks_above(&pieces, 0); piece != NULL;
         piece = weir__blocks_above(&pieces, piece->ptr)) {
        const uintptr_t first = round_up(piece->ptr, PAGE);
        const uintptr_t last = (piece->ptr + piece->bytes) & ~(uintptr_t)(PAGE - 1);
        if (piece->is_free && first < last)
            (void)madvise((void *)first, last - first, MADV_DONTNEED);
    }
    kept = 0;
}

/* Makes a piece memory, and what is in front of it in its stretch; false: the system
 * has not so much. */
static bool piece_commit(const weir__block *piece)
{
    stretch *of = stretch_of(piece->ptr, 1);
    const size_t end = round_up(piece->ptr + piece->bytes - of->base, PAGE);
    if (end <= of->committed)
        return true;
    if (mprotect((void *)(of->base + of->committed), end - of->committed,
                 PROT_READ | PROT_WRITE) != 0)
        return false;
    of->committed = end;
    return true;
}

/* ---- taking and giving ---- */

/* null with WEIR_OK: another stretch is wanted. */
static weir_status try_take(size_t bytes, size_t alignment, weir__block *others[2],
                            weir__block **out)
{
    weir_status status = WEIR_OK;
    weir__mutex_lock(&yard_lock);
    *out = piece_take(bytes, alignment, others);
    if (*out != NULL && !piece_commit(*out)) {
        piece_free(*out);
        status = fail_full(bytes);
    }
    weir__mutex_unlock(&yard_lock);
    return status;
}

static weir_status take(size_t bytes, size_t alignment, void **out)
{
    weir__block *piece = NULL, *others[] = { weir__block_make(0, 0, true),
                                             weir__block_make(0, 0, true) };
    bool has_records = others[0] != NULL && others[1] != NULL;
    weir_status status = has_records ? WEIR_OK : fail_host();
    while (status == WEIR_OK && piece == NULL) {
        status = try_take(bytes, alignment, others, &piece);
        if (status == WEIR_OK && piece == NULL)
            status = stretch_add(bytes + alignment);
    }
    if (piece == NULL) {
        weir__host_free(others[0]);
        weir__host_free(others[1]);
    }
    if (status == WEIR_OK)
        *out = (void *)piece->ptr;
    return status;
}

static bool drop(void)
{
    weir__mutex_lock(&yard_lock);
    bool any = stretches_drop();
    weir__mutex_unlock(&yard_lock);
    return any;
}

weir_status weir__yard_take(size_t bytes, size_t alignment, void **out)
{
    bytes = round_up(bytes + (bytes == 0), WEIR__YARD_GRANULE);
    if (alignment < WEIR__YARD_GRANULE)
        alignment = WEIR__YARD_GRANULE;
    weir_status status = take(bytes, alignment, out);
    if (status == WEIR_OUT_OF_MEMORY && drop())
        status = take(bytes, alignment, out);
    if (status == WEIR_OUT_OF_MEMORY)
        (void)drop(); /* what was mapped for it */
    return status;
}

void weir__yard_give(void *ptr)
{
    weir__mutex_lock(&yard_lock);
    weir__block *piece = weir__blocks_at_or_below(&pieces, (uintptr_t)ptr);
    WEIR_CHECK(piece != NULL && piece->ptr == (uintptr_t)ptr && !piece->is_free,
               "what is given back was taken");
    piece_free(piece);
    if (kept > KEPT_MOST && !keeps_pages())
        pages_give_back();
    weir__mutex_unlock(&yard_lock);
}
