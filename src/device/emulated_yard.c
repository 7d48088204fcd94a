/* emulated_yard.c - see emulated_yard.h. */
#include "device/emulated_yard.h"

#include <sys/mman.h>

#include "device/emulated.h"
#include "internal.h"

#define PAGE    ((size_t)4096)
#define STRETCH ((size_t)64 << 20) /* mapped at once, at least */

/* Addresses that were mapped at once. */
typedef struct stretch {
    struct stretch *next;
    uintptr_t base;
    size_t bytes;
} stretch;

static weir__mutex yard_lock = WEIR__MUTEX_INIT(WEIR__RANK_MEMORY);
/* Guarded by yard_lock: */
static stretch *stretches;
static weir__blocks pieces; /* of all stretches, free and taken */
static size_t devices;

static uintptr_t round_up(uintptr_t number, size_t to)
{
    return (number + (to - 1)) & ~(uintptr_t)(to - 1);
}

/* ---- stretches ---- */

static weir_status fail_host(void)
{
    return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a block's record");
}

static weir_status fail_full(size_t bytes)
{
    return weir__fail_native(WEIR_OUT_OF_MEMORY, WEIR__NATIVE_OUT_OF_MEMORY,
                             "the host has no %zu bytes", bytes);
}

/* Adds a stretch with room for so many bytes. */
static weir_status stretch_add(size_t bytes)
{
    stretch *made = weir__host_alloc(sizeof *made);
    weir__block *piece = weir__block_make(0, 0, true);
    const size_t room = bytes > STRETCH ? round_up(bytes, PAGE) : STRETCH;
    void *base = MAP_FAILED;
    if (made != NULL && piece != NULL)
        base = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (base == MAP_FAILED) {
        bool has_records = made != NULL && piece != NULL;
        weir__host_free(piece);
        weir__host_free(made);
        return has_records ? fail_full(bytes) : fail_host();
    }
    piece->ptr = (uintptr_t)base;
    piece->bytes = room;
    *made = (stretch){ .base = (uintptr_t)base, .bytes = room };
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
    while (is_last && stretches != NULL) {
        stretch *ended = stretches;
        stretches = ended->next;
        (void)munmap((void *)ended->base, ended->bytes);
        weir__host_free(ended);
    }
    weir__mutex_unlock(&yard_lock);
}

bool weir__yard_has(uintptr_t ptr, size_t bytes)
{
    weir__mutex_lock(&yard_lock);
    const stretch *at = stretches;
    while (at != NULL && (ptr >= at->base + at->bytes || at->base >= ptr + bytes))
        at = at->next;
    weir__mutex_unlock(&yard_lock);
    return at != NULL;
}

/* ---- pieces ---- */

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
    return piece;
}

/* Two neighbours, both free, become the first of them. */
static void pieces_merge(weir__block *first, weir__block *second)
{
    weir__blocks_remove(&pieces, second);
    first->bytes += second->bytes;
    weir__blocks_refresh(&pieces, first);
    weir__host_free(second);
}

static bool are_neighbours(const weir__block *first, const weir__block *second)
{
    return first != NULL && second != NULL && first->is_free && second->is_free &&
           first->ptr + first->bytes == second->ptr;
}

/* Makes them memory: not all of the last page need be the block's. */
static weir_status commit(uintptr_t ptr, size_t bytes)
{
    const uintptr_t begin = ptr & ~(uintptr_t)(PAGE - 1);
    return mprotect((void *)begin, ptr + bytes - begin, PROT_READ | PROT_WRITE) == 0
               ? WEIR_OK
               : fail_full(bytes);
}

weir_status weir__yard_take(size_t bytes, size_t alignment, void **out)
{
    bytes = round_up(bytes + (bytes == 0), WEIR__YARD_GRANULE);
    if (alignment < WEIR__YARD_GRANULE)
        alignment = WEIR__YARD_GRANULE;
    weir__block *piece = NULL, *others[] = { weir__block_make(0, 0, true),
                                             weir__block_make(0, 0, true) };
    bool has_records = others[0] != NULL && others[1] != NULL;
    weir_status status = has_records ? WEIR_OK : fail_host();
    while (status == WEIR_OK && piece == NULL) {
        weir__mutex_lock(&yard_lock);
        piece = piece_take(bytes, alignment, others);
        weir__mutex_unlock(&yard_lock);
        if (piece == NULL)
            status = stretch_add(bytes + alignment);
    }
    if (status != WEIR_OK) {
        weir__host_free(others[0]);
        weir__host_free(others[1]);
        return status;
    }
    void *const ptr = (void *)piece->ptr;
    status = commit(piece->ptr, bytes);
    if (status == WEIR_OK)
        *out = ptr;
    else
        weir__yard_give(ptr);
    return status;
}

/* The pages from `first` to `last` that a free piece has to itself go back to the
 * system. */
static void pages_give_back(const weir__block *piece, uintptr_t first, uintptr_t last)
{
    first &= ~(uintptr_t)(PAGE - 1);
    last = round_up(last, PAGE);
    if (first < piece->ptr)
        first += PAGE;
    if (last > piece->ptr + piece->bytes)
        last -= PAGE;
    if (first < last)
        (void)madvise((void *)first, last - first, MADV_DONTNEED);
}

void weir__yard_give(void *ptr)
{
    weir__mutex_lock(&yard_lock);
    weir__block *piece = weir__blocks_at_or_below(&pieces, (uintptr_t)ptr);
    WEIR_CHECK(piece != NULL && piece->ptr == (uintptr_t)ptr && !piece->is_free,
               "what is given back was taken");
    const uintptr_t end = piece->ptr + piece->bytes;
    piece->is_free = true;
    weir__blocks_refresh(&pieces, piece);
    weir__block *above = weir__blocks_above(&pieces, piece->ptr);
    if (are_neighbours(piece, above))
        pieces_merge(piece, above);
    weir__block *below = weir__blocks_at_or_below(&pieces, piece->ptr - 1);
    if (are_neighbours(below, piece)) {
        pieces_merge(below, piece);
        piece = below;
    }
    pages_give_back(piece, (uintptr_t)ptr, end);
    weir__mutex_unlock(&yard_lock);
}
