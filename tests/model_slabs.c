/* model_slabs.c - slabs that come and go anywhere, against a list of them: each byte is
 * found where it lies, and none where nothing is. */
#include "support.h"

#include "fixed_size_slabs.h"

enum { MODEL_SLABS = 40 };

/* Where each slab was put, as bytes of a stretch of addresses that is not memory. */
typedef struct slab_model {
    weir__slabs slabs;
    uintptr_t bases[MODEL_SLABS]; /* 0: none */
    size_t bytes[MODEL_SLABS];
} slab_model;

static bool model_has_room(const slab_model *it, uintptr_t base, size_t bytes)
{
    for (int i = 0; i < MODEL_SLABS; i++) {
        if (it->bases[i] != 0 && base < it->bases[i] + it->bytes[i] &&
            it->bases[i] < base + bytes)
            return false;
    }
    return true;
}

static void model_look(slab_model *it, uintptr_t address)
{
    weir__slab_place at = weir__slab_find(&it->slabs, (const void *)address);
    bool is_there = false;
    for (int i = 0; i < MODEL_SLABS; i++) {
        if (it->bases[i] != 0 && address - it->bases[i] < it->bytes[i]) {
            is_there = true;
            must_equal(at.offset, address - it->bases[i]);
            must(at.slab != NULL && at.slab->room * it->slabs.block_bytes ==
                                        it->bytes[i]);
        }
    }
    must((at.slab != NULL) == is_there);
}

static void model_step(slab_model *it, uint64_t *random, size_t slab_blocks)
{
    int i = (int)support_random_below(random, MODEL_SLABS);
    if (it->bases[i] != 0) {
        weir__slab_gone(&it->slabs, (const void *)it->bases[i]);
        it->bases[i] = 0;
        return;
    }
    uint32_t room = support_random_below(random, 3) == 0 ? 1 : (uint32_t)slab_blocks;
    uintptr_t base = ((uintptr_t)1 << 40) +
                     256 * support_random_below(random, 1000);
    if (!model_has_room(it, base, room * it->slabs.block_bytes))
        return;
    weir__slab *made = weir__slab_begin(&it->slabs, room);
    must(made != NULL && made->room == room);
    if (support_random_below(random, 8) == 0) {
        weir__slab_not_drawn(&it->slabs, made);
        return;
    }
    weir__slab_drawn(&it->slabs, made, (const void *)base);
    it->bases[i] = base;
    it->bytes[i] = room * it->slabs.block_bytes;
}

static void slabs_are_found_by_every_byte(void **state)
{
    (void)state;
    uint64_t runs = support_bound("programs of slabs", 40, 400);
    for (uint64_t run = 0; run < runs; run++) {
        uint64_t random = support_seed(run);
        size_t block = 256 * support_random_between(&random, 1, 4);
        size_t slab_blocks = support_random_between(&random, 1, 9);
        slab_model it = { .bases = { 0 } };
        must(weir__slabs_init(&it.slabs, block, block * slab_blocks));
        for (int step = 0; step < 300; step++) {
            model_step(&it, &random, slab_blocks);
            weir__slabs_verify(&it.slabs);
            for (int i = 0; i < 4; i++)
                model_look(&it, ((uintptr_t)1 << 40) +
                                    support_random_below(&random, 256 * 1010));
        }
        for (int i = 0; i < MODEL_SLABS; i++) {
            if (it.bases[i] != 0)
                weir__slab_gone(&it.slabs, (const void *)it.bases[i]);
        }
        weir__slabs_verify(&it.slabs);
        weir__slabs_close(&it.slabs);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slabs_are_found_by_every_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
