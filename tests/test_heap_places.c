/* test_heap_places.c - where weir__heap_known_place finds room, compared with what a
 * walk over all blocks finds. */
#include "internal.h"
#include "support_heap.h"

#define GRAINS  2048u
#define CLOCKS  4u
#define NUMBERS 6u
#define MOST    192u /* grains of a block: beyond 128 a bin is for several sizes */

/* A request, and what is known. */
typedef struct question {
    const weir__heap *heap;
    const weir__chunk *chunk;
    const weir__heap_owner *owner;
    size_t bytes, alignment;
    weir__heap_places where;
} question;

static size_t bytes_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_bytes(weir__heap_block_of(heap, id));
}

static bool is_free(const weir__heap *heap, uint32_t id)
{
    return weir__heap_state_at(heap, id) == WEIR__HEAP_FREE;
}

static const weir__heap_owner *owner_of(const weir__heap *heap, uint32_t id)
{
    return weir__heap_owner_find(heap, weir__heap_mark(heap, id).clock);
}

static bool is_known(const weir__heap *heap, uint32_t id)
{
    return is_free(heap, id) &&
           weir__heap_mark(heap, id).number <= owner_of(heap, id)->known;
}

/* Whether a block is looked at for its own sake. */
static bool counts(const question *self, uint32_t id)
{
    size_t bytes = bytes_of(self->heap, id);
    return owner_of(self->heap, id) == self->owner ? bytes >= self->bytes
                                                   : bytes >= self->where.part;
}

/* Whether all that is known from `first` on, up to what is not, will do. */
static bool will_do(const question *self, uint32_t first)
{
    bool any = false;
    uint32_t last = first;
    for (uint32_t id = first; id != 0 && is_known(self->heap, id);
         id = weir__heap_after(self->heap, id)) {
        any = any || counts(self, id);
        last = id;
    }
    return any &&
           weir__heap_fits(self->heap, first, last, self->bytes, self->alignment);
}

/* All that is free around a block. */
static size_t run_bytes(const weir__heap *heap, uint32_t id)
{
    size_t bytes = bytes_of(heap, id);
    uint32_t next = id;
    while ((next = weir__heap_before(heap, next)) != 0 && is_free(heap, next))
        bytes += bytes_of(heap, next);
    for (next = id; (next = weir__heap_after(heap, next)) != 0 && is_free(heap, next);)
        bytes += bytes_of(heap, next);
    return bytes;
}

/* The smallest run that has a place, or SIZE_MAX. */
static size_t smallest(const question *self)
{
    const weir__heap *heap = self->heap;
    size_t least = SIZE_MAX;
    bool begins = true;
    for (uint32_t id = weir__heap_first(heap, self->chunk); id != 0;
         id = weir__heap_after(heap, id)) {
        if (is_known(heap, id) && begins && will_do(self, id)) {
            size_t bytes = run_bytes(heap, id);
            least = bytes < least ? bytes : least;
        }
        begins = !is_known(heap, id);
    }
    return least;
}

static bool has_own(const question *self, weir__heap_run part)
{
    uint32_t id = part.first;
    for (; id != 0 && is_known(self->heap, id); id = weir__heap_after(self->heap, id)) {
        if (owner_of(self->heap, id) == self->owner &&
            bytes_of(self->heap, id) >= self->bytes)
            return true;
    }
    return false;
}

static void must_be_a_place(const question *self, weir__heap_run part)
{
    const weir__heap *heap = self->heap;
    uint32_t before = weir__heap_before(heap, part.first);
    must(before == 0 || !is_known(heap, before));
    must(will_do(self, part.first));
    must(weir__heap_fits(heap, part.first, part.last, self->bytes, self->alignment));
    for (uint32_t id = part.first; id != part.last; id = weir__heap_after(heap, id)) {
        must(is_known(heap, id));
        must(!weir__heap_fits(heap, part.first, id, self->bytes, self->alignment));
    }
    must(is_known(heap, part.last));
}

static void must_find_the_smallest(const question *self)
{
    size_t least = smallest(self);
    weir__heap_run part = weir__heap_known_place(self->heap, self->owner, self->bytes,
                                                 self->alignment, self->where);
    if (least == SIZE_MAX || least > self->where.most) {
        must_equal(part.first, 0);
        return;
    }
    must(part.first != 0);
    must_be_a_place(self, part);
    size_t bytes = run_bytes(self->heap, part.first);
    must(bytes == least || (bytes <= self->where.enough && has_own(self, part)));
}

static void ask(const weir__heap *heap, const weir__chunk *chunk, uint64_t *draws)
{
    for (uint64_t clock = 0; clock < CLOCKS; clock++) {
        weir__heap_owner *owner = weir__heap_owner_find(heap, clock);
        if (owner != NULL)
            owner->known = clock != 0 && support_random_below(draws, 8) != 0
                               ? support_random_below(draws, NUMBERS + 1)
                               : UINT64_MAX;
    }
    weir__heap_owner *owner =
        weir__heap_owner_find(heap, support_random_below(draws, CLOCKS));
    if (owner == NULL)
        return;
    owner->known = UINT64_MAX;
    const size_t bytes = (1 + (size_t)support_random_below(draws, MOST)) * GRAIN;
    const size_t most = (size_t)support_random_below(draws, 4 * MOST) * GRAIN;
    question it = { .heap = heap,
                    .chunk = chunk,
                    .owner = owner,
                    .bytes = bytes,
                    .alignment = GRAIN << support_random_below(draws, 3),
                    .where = { .part = bytes / (1 + support_random_below(draws, 16)) /
                                       GRAIN * GRAIN,
                               .most = most < 3 * MOST * GRAIN ? most : SIZE_MAX } };
    must_find_the_smallest(&it);
    it.where.enough = bytes * support_random_below(draws, 3);
    must_find_the_smallest(&it);
}

static void give_one(weir__heap *heap, uint32_t id, uint64_t *draws)
{
    come_back(heap, id);
    must(weir__heap_promise(heap));
    weir__mark mark = { support_random_below(draws, CLOCKS), 0 };
    mark.number = mark.clock != 0 ? 1 + support_random_below(draws, NUMBERS) : 0;
    must(weir__heap_owner_get(heap, mark.clock, NULL) != NULL);
    if (support_random_below(draws, 8) == 0) { /* into limbo, if it can be */
        must(weir__heap_owner_get(heap, CLOCKS, NULL) != NULL);
        (void)weir__heap_add_mark(heap, id, (weir__mark){ CLOCKS, 1 });
    }
    weir__heap_release(heap, id, mark);
    weir__heap_forget_promise(heap);
}

static void the_smallest_run_with_room_is_found(void **state)
{
    (void)state;
    uint64_t runs = support_bound("test_heap_places.programs", 20, 400);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t draws = support_seed(run);
        weir__heap heap;
        weir__chunk chunk = { 0 };
        uint32_t out[GRAINS], count = 0;
        open_heap(&heap, &chunk, GRAINS * GRAIN);
        for (int step = 0; step < 300; step++) {
            weir__heap_owner *owner =
                weir__heap_owner_find(&heap, support_random_below(&draws, CLOCKS));
            size_t bytes = (1 + (size_t)support_random_below(&draws, MOST)) * GRAIN;
            must(weir__heap_promise(&heap));
            if (owner != NULL && weir__heap_best(&heap, owner, bytes, GRAIN) != 0)
                out[count++] = take_best(&heap, owner, bytes, GRAIN);
            weir__heap_forget_promise(&heap);
            if (count > 0 && support_random_below(&draws, 2) == 0) {
                size_t at = (size_t)support_random_below(&draws, count);
                give_one(&heap, out[at], &draws);
                out[at] = out[--count];
            }
            ask(&heap, &chunk, &draws);
        }
        weir__heap_verify(&heap);
        weir__heap_close(&heap);
    }
}

static void what_no_block_can_have_has_no_place(void **state)
{
    (void)state;
    weir__heap heap;
    weir__chunk chunk = { 0 };
    open_heap(&heap, &chunk, GRAINS * GRAIN);
    weir__heap_owner *done = weir__heap_owner_find(&heap, 0);
    done->known = UINT64_MAX;
    const weir__heap_places where = { .part = GRAIN, .most = SIZE_MAX };
    must(weir__heap_known_place(&heap, done, GRAIN, GRAIN, where).first != 0);
    /* So many grains are as many as the first, in 32 bits. */
    const size_t much = WEIR__CHUNK_MOST + 2 * GRAIN;
    must_equal(weir__heap_known_place(&heap, done, much, GRAIN, where).first, 0);
    weir__heap_close(&heap);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_run_with_room_is_found),
        cmocka_unit_test(what_no_block_can_have_has_no_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
