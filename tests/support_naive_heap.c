/* support_naive_heap.c - see support_naive_heap.h. */
#include "support_naive_heap.h"

#include <string.h>

#include "heap_bins.h"
#include "support.h"

uint64_t model_below(model *m, uint64_t n)
{
    return support_random_below(&m->state, n);
}

static bool model_fits(uintptr_t base, uintptr_t end, size_t bytes, size_t alignment)
{
    while (base % alignment != 0)
        base += GRAIN;
    return base < end && end - base >= bytes;
}

static void model_remove(model_chunk *chunk, size_t at)
{
    memmove(&chunk->blocks[at], &chunk->blocks[at + 1],
            (chunk->count - at - 1) * sizeof(model_block));
    chunk->count--;
}

void model_insert(model_chunk *chunk, size_t at, model_block block)
{
    must(chunk->count < BLOCKS_MAX);
    memmove(&chunk->blocks[at + 1], &chunk->blocks[at],
            (chunk->count - at) * sizeof(model_block));
    chunk->blocks[at] = block;
    chunk->count++;
}

void model_merge(model_chunk *chunk)
{
    for (size_t i = 0; i + 1 < chunk->count;) {
        model_block *a = &chunk->blocks[i], *b = a + 1;
        if (a->state != WEIR__HEAP_FREE || b->state != WEIR__HEAP_FREE ||
            a->mark.clock != b->mark.clock) {
            i++;
            continue;
        }
        a->bytes += b->bytes;
        if (a->mark.number < b->mark.number)
            a->mark.number = b->mark.number;
        model_remove(chunk, i + 1);
    }
}

model_block *model_best(model *m, uint64_t clock, size_t bytes, size_t alignment)
{
    model_block *best = NULL;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            model_block *b = &m->chunks[c]->blocks[i];
            if (b->state == WEIR__HEAP_FREE && b->mark.clock == clock &&
                model_fits(b->base, b->base + b->bytes, bytes, alignment) &&
                (best == NULL || b->bytes < best->bytes ||
                 (b->bytes == best->bytes && b->base < best->base)))
                best = b;
        }
    }
    return best;
}

static bool is_free_of(const model_block *b, uint64_t clock)
{
    return b->state == WEIR__HEAP_FREE && b->mark.clock == clock;
}

static uint32_t bin_number(size_t bytes)
{
    weir__heap_bin bin = weir__heap_bin_of((uint32_t)(bytes >> WEIR__HEAP_GRAIN_BITS));
    return bin.row * 64 + bin.bit;
}

/* Whether a clock has more free blocks in the bin of `bytes` than are looked at. */
static bool is_long(const model *m, uint64_t clock, size_t bytes)
{
    size_t count = 0;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            const model_block *b = &m->chunks[c]->blocks[i];
            count += is_free_of(b, clock) && bin_number(b->bytes) == bin_number(bytes);
        }
    }
    return count > WEIR__BIN_LOOKS;
}

bool model_is_good(const model *m, const model_block *got, uint64_t clock, size_t bytes,
                   size_t alignment)
{
    bool is_good = is_free_of(got, clock) &&
                   model_fits(got->base, got->base + got->bytes, bytes, alignment);
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            const model_block *b = &m->chunks[c]->blocks[i];
            if (is_free_of(b, clock) &&
                model_fits(b->base, b->base + b->bytes, bytes, alignment) &&
                (b->bytes < got->bytes ||
                 (b->bytes == got->bytes && b->base < got->base)))
                is_good = is_good && is_long(m, clock, b->bytes);
        }
    }
    return is_good;
}

bool model_is_idle(const model_block *b)
{
    return b->state == WEIR__HEAP_FREE || b->state == WEIR__HEAP_LIMBO;
}

/* Whether the i-th to the j-th block of a chunk may all be part of a run. */
static bool model_usable(const model *m, const model_chunk *chunk, size_t i, size_t j)
{
    for (; i <= j; i++) {
        const model_block *b = &chunk->blocks[i];
        if (!model_is_idle(b) || !(m->usable >> b->mark.clock & 1))
            return false;
    }
    return true;
}

model_run model_find_run(model *m, size_t bytes, size_t alignment)
{
    model_run best = { NULL, 0, 0, SIZE_MAX };
    for (size_t c = 0; c < m->chunk_count; c++) {
        model_chunk *chunk = m->chunks[c];
        for (size_t i = 0; i < chunk->count; i++) {
            for (size_t j = i; j < chunk->count && model_usable(m, chunk, i, j); j++) {
                uintptr_t base = chunk->blocks[i].base;
                uintptr_t end = chunk->blocks[j].base + chunk->blocks[j].bytes;
                if (model_fits(base, end, bytes, alignment) && end - base < best.bytes)
                    best = (model_run){ chunk, i, j, end - base };
            }
        }
    }
    return best;
}

/* Cuts a block out of a run, and returns its address. */
uintptr_t model_hand_out(model_run run, size_t bytes, size_t alignment,
                                weir__mark front, weir__mark rest)
{
    model_chunk *chunk = run.chunk;
    model_block whole = chunk->blocks[run.first];
    whole.bytes = run.bytes;
    for (size_t i = run.first; i <= run.last; i++)
        model_remove(chunk, run.first);

    uintptr_t base = whole.base;
    while (base % alignment != 0)
        base += GRAIN;
    size_t at = run.first;
    if (base != whole.base)
        model_insert(chunk, at++, (model_block){ whole.base, base - whole.base,
                                                 WEIR__HEAP_FREE, front });
    model_insert(chunk, at++, (model_block){ base, bytes, WEIR__HEAP_OUT, { 0, 0 } });
    size_t left = whole.base + whole.bytes - base - bytes;
    if (left > 0)
        model_insert(chunk, at, (model_block){ base + bytes, left, WEIR__HEAP_FREE,
                                               rest });
    model_merge(chunk);
    return base;
}

size_t model_largest(const model *m)
{
    size_t largest = 0;
    for (size_t c = 0; c < m->chunk_count; c++) {
        size_t run = 0;
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            const model_block *b = &m->chunks[c]->blocks[i];
            run = model_is_idle(b) ? run + b->bytes : 0;
            largest = run > largest ? run : largest;
        }
    }
    return largest;
}

/* A random block in the given state, or null. */
model_block *model_pick(model *m, weir__heap_state state, model_chunk **in)
{
    model_block *picked = NULL;
    uint64_t seen = 0;
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            if (m->chunks[c]->blocks[i].state == state && model_below(m, ++seen) == 0) {
                picked = &m->chunks[c]->blocks[i];
                *in = m->chunks[c];
            }
        }
    }
    return picked;
}

model_block *model_at(model *m, uintptr_t base)
{
    for (size_t c = 0; c < m->chunk_count; c++) {
        for (size_t i = 0; i < m->chunks[c]->count; i++) {
            if (m->chunks[c]->blocks[i].base == base)
                return &m->chunks[c]->blocks[i];
        }
    }
    must(false);
    return NULL;
}
