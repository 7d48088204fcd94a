/* few_blocks.c - see few_blocks.h. */
#include "few_blocks.h"

#include <stdint.h>

#include "internal.h"

/* The counter that `ptr` counts in while it has a record. */
static atomic_uint_least32_t *place_of(weir__few_blocks *self, const void *ptr)
{
    uint64_t mixed = (uint64_t)(uintptr_t)ptr * WEIR__GOLDEN_RATIO;
    return &self->counts[(mixed >> 40) % WEIR__FEW_PLACES];
}

static bool may_have(weir__few_blocks *self, const void *ptr)
{
    /* Relaxed: see the top of few_blocks.h. */
    return atomic_load_explicit(place_of(self, ptr), memory_order_relaxed) != 0;
}

weir_status weir__few_blocks_init(weir__few_blocks *self)
{
    weir_status status = weir__block_table_init(&self->table);
    if (status != WEIR_OK)
        return status;
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    for (size_t i = 0; i < WEIR__FEW_PLACES; i++)
        atomic_init(&self->counts[i], 0);
    return WEIR_OK;
}

void weir__few_blocks_finish(weir__few_blocks *self)
{
    weir__block_table_finish(&self->table);
    weir__mutex_destroy(&self->lock);
}

static void count(weir__few_blocks *self, const void *ptr, uint32_t change)
{
    (void)atomic_fetch_add_explicit(place_of(self, ptr), change, memory_order_relaxed);
}

void weir__few_blocks_insert(weir__few_blocks *self, weir__block_record *record)
{
    weir__mutex_lock(&self->lock);
    weir__block_table_insert(&self->table, record);
    count(self, record->ptr, 1);
    weir__mutex_unlock(&self->lock);
}

void weir__few_blocks_reinsert(weir__few_blocks *self, weir__block_record *record)
{
    weir__mutex_lock(&self->lock);
    weir__block_table_reinsert(&self->table, record);
    count(self, record->ptr, 1);
    weir__mutex_unlock(&self->lock);
}

bool weir__few_blocks_find(weir__few_blocks *self, const void *ptr, weir_block *out)
{
    if (!may_have(self, ptr))
        return false;
    weir__mutex_lock(&self->lock);
    const weir__block_record *record = weir__block_table_find(&self->table, ptr);
    if (record != NULL && out != NULL)
        (void)weir__block_describe(record, "", ptr, out);
    weir__mutex_unlock(&self->lock);
    return record != NULL;
}

weir__block_record *weir__few_blocks_take(weir__few_blocks *self, const void *ptr,
                                          size_t bytes, size_t alignment,
                                          weir__block_fault *fault)
{
    *fault = (weir__block_fault){ .bytes = 0 };
    if (!may_have(self, ptr))
        return NULL;
    weir__mutex_lock(&self->lock);
    weir__block_record *record = weir__block_table_find(&self->table, ptr);
    if (record != NULL)
        *fault = weir__block_judge(record, bytes, alignment);
    if (record != NULL && fault->kind == 0) {
        weir__block_table_remove(&self->table, record);
        count(self, ptr, UINT32_MAX); /* one less */
    } else {
        record = NULL;
    }
    weir__mutex_unlock(&self->lock);
    return record;
}

void weir__few_blocks_resize(weir__few_blocks *self, const void *ptr, size_t bytes)
{
    weir__mutex_lock(&self->lock);
    weir__block_record *record = weir__block_table_find(&self->table, ptr);
    if (record != NULL) /* else somebody has given it back meanwhile */
        record->bytes = bytes;
    weir__mutex_unlock(&self->lock);
}
