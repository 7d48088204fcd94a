/* pool_cache.c - see pool_cache.h: bins and spill lists. Pure records: no lock, no
 * stream order. Everything here is behind the seat's gate. */
#include "pool_cache.h"

#include "internal.h"

static void give_up(weir__cache *cache, const weir__heap_block *met, uint32_t grains,
                    uint32_t count)
{
    weir__lost_add(&cache->lost, met, grains, count);
    cache->bytes -= weir__grains_size(grains) * count;
}

void weir__cache_give_up(weir__cache *cache, weir__bin *bin)
{
    give_up(cache, bin->top, bin->grains, bin->count);
    bin->top_id = bin->count = 0;
}

/* Moves a stack of blocks of `grains` grains to the spill list. One that was given back
 * twice at the same moment may link on into another's stack, of which nothing may come
 * along. */
static void spill_stack(weir__cache *cache, const weir__heap_view *view, uint32_t id,
                        uint32_t count, uint32_t grains)
{
    for (; count > 0; count--) {
        weir__heap_block *block = weir__heap_at(view, id);
        if (weir__heap_tag(block) != cache->holder_tag) {
            give_up(cache, block, grains, count);
            return;
        }
        uint32_t below = weir__link_of(block);
        weir__list_push(&cache->spill, block, id);
        id = below;
    }
}

void weir__cache_empty_bin(weir__cache *cache, const weir__heap_view *view,
                           weir__bin *bin)
{
    spill_stack(cache, view, bin->top_id, bin->count, bin->grains);
    if (bin->full != 0)
        spill_stack(cache, view, bin->full, WEIR__MAGAZINE, bin->grains);
    *bin = (weir__bin){ .grains = bin->grains };
}

weir__heap_taken weir__cache_unspill(weir__cache *cache,
                                     const weir__heap_view *view, uint32_t grains,
                                     uint32_t tag)
{
    weir__block_list *list = &cache->spill;
    weir__heap_block *above = NULL;
    uint32_t id = list->head;
    for (uint32_t left = list->count; left > 0; left--) {
        weir__heap_block *block = weir__heap_at(view, id);
        if (WEIR_UNLIKELY(weir__heap_tag(block) != cache->holder_tag))
            break; /* who settles the list gives up what is left of it */
        const uint32_t below = weir__link_of(block);
        if (weir__heap_grains(block) == grains) {
            if (above == NULL)
                list->head = below;
            else
                weir__link_set(above, below);
            list->count--;
            list->bytes -= weir__grains_size(grains);
            cache->bytes -= weir__grains_size(grains);
            weir__link_set(block, cache->owner);
            weir__heap_set_tag(block, tag);
            return (weir__heap_taken){ block, id };
        }
        above = block;
        id = below;
    }
    return (weir__heap_taken){ NULL, 0 };
}

void weir__cache_spill_all(weir__cache *cache, const weir__heap_view *view)
{
    for (uint32_t i = 0; i < WEIR__BINS; i++) {
        weir__bin *bin = &cache->bins[i];
        if ((bin->count | bin->full) != 0)
            weir__cache_empty_bin(cache, view, bin);
    }
}

/* Whether a bin has more than its share of `most_bytes`; one block never is. */
static inline bool has_much(const weir__bin *bin, size_t most_bytes)
{
    if (bin->count <= 1 && bin->full == 0)
        return false;
    const size_t count = bin->count + (bin->full != 0 ? WEIR__MAGAZINE : 0);
    const size_t bytes = weir__grains_size(bin->grains);
    return bytes * count * count > most_bytes / WEIR__MUCH_SHARE;
}

void weir__cache_make_room(weir__cache *cache, const weir__heap_view *view,
                           uint32_t grains)
{
    const size_t most_bytes = cache->most_bytes;
    const uint32_t least = (uint32_t)weir__cache_bin_index(grains);
    const size_t enough = most_bytes - most_bytes / WEIR__ROOM_SHARE;
    weir__bin *bin = &cache->bins[cache->looked >= least ? cache->looked : least - 1];
    for (uint32_t looks = WEIR__ROOM_LOOKS; looks > 0; looks--) {
        if (++bin == cache->bins + WEIR__BINS)
            bin = &cache->bins[least];
        if (!has_much(bin, most_bytes) || !weir__bin_is_ready(bin, view))
            continue;
        if (cache->bytes - cache->spill.bytes > enough)
            looks = WEIR__ROOM_LOOKS;
        uint32_t id = bin->top_id;
        if (WEIR_UNLIKELY(weir__heap_tag(bin->top) != cache->holder_tag))
            weir__cache_give_up(cache, bin);
        else
            weir__list_push(&cache->spill, weir__bin_pop(bin, view), id);
    }
    cache->looked = (uint32_t)(bin - cache->bins);
}

uint32_t weir__cache_blocks(const weir__cache *cache)
{
    uint32_t blocks = cache->spill.count;
    for (uint32_t i = 0; i < WEIR__BINS; i++) {
        const weir__bin *bin = &cache->bins[i];
        blocks += bin->count + (bin->full != 0 ? WEIR__MAGAZINE : 0);
    }
    return blocks;
}

/* ---- verify ---- */

static size_t stack_verify(const weir__cache *cache, const weir__heap_view *view,
                           uint32_t id, uint32_t count, uint32_t grains)
{
    size_t bytes = 0;
    for (; count > 0; count--) {
        const weir__heap_block *block = weir__heap_at(view, id);
        WEIR_CHECK(weir__heap_tag(block) == cache->holder_tag,
                   "a cache's blocks are marked as its own");
        WEIR_CHECK(grains == 0 || weir__heap_grains(block) == grains,
                   "a bin's blocks are of one size");
        bytes += weir__heap_bytes(block);
        id = weir__link_of(block);
    }
    WEIR_CHECK(id == 0, "a stack ends where its count does");
    return bytes;
}

void weir__cache_verify(const weir__cache *cache, const weir__heap_view *view)
{
    size_t bytes = stack_verify(cache, view, cache->spill.head, cache->spill.count, 0);
    WEIR_CHECK(bytes == cache->spill.bytes, "spilt bytes are counted");
    for (uint32_t i = 0; i < WEIR__BINS; i++) {
        const weir__bin *bin = &cache->bins[i];
        WEIR_CHECK(bin->count <= WEIR__MAGAZINE, "a magazine is no longer than that");
        WEIR_CHECK(bin->count == 0 ? bin->top_id == 0 :
                       (bin->top == weir__heap_at(view, bin->top_id) &&
                        bin->ptr == (void *)weir__heap_base(bin->top)),
                   "a bin knows its top by id and address");
        WEIR_CHECK(bin->grains != 0 || (bin->count == 0 && bin->full == 0),
                   "a bin that is nobody's is empty");
        WEIR_CHECK(bin->grains == 0 || weir__cache_bin_index(bin->grains) == i,
                   "a bin is where its size says");
        if (bin->count > 0)
            bytes += stack_verify(cache, view, bin->top_id, bin->count, bin->grains);
        if (bin->full != 0)
            bytes += stack_verify(cache, view, bin->full, WEIR__MAGAZINE, bin->grains);
    }
    WEIR_CHECK(bytes == cache->bytes, "a cache counts its bytes");
}
