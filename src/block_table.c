/* block_table.c - see block_table.h. */
#include "block_table.h"

#include <stdint.h>
#include <string.h>

#include "internal.h"

/* A test build begins small, so that growing is common there. */
#ifdef WEIR_TESTING
#define CHAINS_AT_FIRST 2
#else
#define CHAINS_AT_FIRST 64
#endif

static size_t chain_index(size_t chain_count, const void *ptr)
{
    /* Addresses differ in their upper bits least and in their lowest not at all. */
    uint64_t mixed = (uint64_t)(uintptr_t)ptr * WEIR__GOLDEN_RATIO;
    return (size_t)(mixed >> 32) & (chain_count - 1);
}

static weir__block_record **make_chains(size_t count)
{
    weir__block_record **chains = weir__host_alloc(count * sizeof *chains);
    if (chains != NULL)
        memset(chains, 0, count * sizeof *chains);
    return chains;
}

weir_status weir__block_table_init(weir__block_table *table)
{
    table->chains = make_chains(CHAINS_AT_FIRST);
    if (table->chains == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a table of blocks");
    table->chain_count = CHAINS_AT_FIRST;
    table->count = 0;
    return WEIR_OK;
}

void weir__block_table_finish(weir__block_table *table)
{
    WEIR_CHECK(table->count == 0, "a table of blocks ends with records in it");
    weir__host_free(table->chains);
    table->chains = NULL;
}

static void put_in_chain(weir__block_table *table, weir__block_record *record)
{
    size_t index = chain_index(table->chain_count, record->ptr);
    record->next = table->chains[index];
    table->chains[index] = record;
}

/* Doubles the number of chains if there is memory for it. */
static void try_to_grow(weir__block_table *table)
{
    weir__block_record **old_chains = table->chains;
    size_t old_count = table->chain_count;
    weir__block_record **chains = make_chains(old_count * 2);
    if (chains == NULL)
        return;

    table->chains = chains;
    table->chain_count = old_count * 2;
    for (size_t i = 0; i < old_count; i++) {
        while (old_chains[i] != NULL) {
            weir__block_record *record = old_chains[i];
            old_chains[i] = record->next;
            put_in_chain(table, record);
        }
    }
    weir__host_free(old_chains);
}

void weir__block_table_reinsert(weir__block_table *table, weir__block_record *record)
{
    WEIR_ASSERT(weir__block_table_find(table, record->ptr) == NULL,
                "one address, two blocks");
    put_in_chain(table, record);
    table->count++;
}

void weir__block_table_insert(weir__block_table *table, weir__block_record *record)
{
    if (table->count >= table->chain_count)
        try_to_grow(table);
    weir__block_table_reinsert(table, record);
}

weir__block_record *weir__block_table_find(const weir__block_table *table,
                                           const void *ptr)
{
    weir__block_record *record = table->chains[chain_index(table->chain_count, ptr)];
    while (record != NULL && record->ptr != ptr)
        record = record->next;
    return record;
}

void weir__block_table_remove(weir__block_table *table, weir__block_record *record)
{
    weir__block_record **link =
        &table->chains[chain_index(table->chain_count, record->ptr)];
    while (*link != NULL && *link != record)
        link = &(*link)->next;
    WEIR_CHECK(*link == record, "a record that is in no chain is removed");
    *link = record->next;
    record->next = NULL;
    table->count--;
}

weir__block_record *weir__block_table_any(const weir__block_table *table)
{
    for (size_t i = 0; i < table->chain_count; i++) {
        if (table->chains[i] != NULL)
            return table->chains[i];
    }
    return NULL;
}

void weir__block_table_verify(const weir__block_table *table)
{
    size_t count = 0;
    for (size_t i = 0; i < table->chain_count; i++) {
        for (weir__block_record *record = table->chains[i]; record != NULL;
             record = record->next) {
            WEIR_CHECK(chain_index(table->chain_count, record->ptr) == i,
                       "a record is in a chain that is not its own");
            WEIR_CHECK(record->ptr != NULL && record->bytes != 0,
                       "a record tells of no block");
            count++;
            WEIR_CHECK(count <= table->count, "more records than were inserted");
        }
    }
    WEIR_CHECK(count == table->count, "a record was lost");
}

weir__block_fault weir__block_judge(const weir__block_record *record,
                                    size_t bytes, size_t alignment)
{
    if (record == NULL)
        return (weir__block_fault){ .kind = WEIR_MISUSE_FOREIGN_POINTER };
    weir__block_fault fault = { .bytes = record->bytes,
                                .alignment = record->alignment };
    if (record->state != WEIR__BLOCK_OUT)
        fault.kind = WEIR_MISUSE_DOUBLE_FREE;
    else if (record->bytes != bytes || record->alignment != alignment)
        fault.kind = WEIR_MISUSE_WRONG_SIZE;
    return fault;
}

void weir__block_report(const weir__block_fault *fault, const char *resource,
                        const void *ptr, size_t bytes, size_t alignment)
{
    switch (fault->kind) {
    case WEIR_MISUSE_DOUBLE_FREE:
        weir__misuse(fault->kind, ptr, bytes, "%s: %p was given back already",
                     resource, ptr);
        break;
    case WEIR_MISUSE_WRONG_SIZE:
        weir__misuse(fault->kind, ptr, bytes,
                     "%s: %p comes back with %zu bytes, alignment %zu, and was "
                     "allocated with %zu, %zu",
                     resource, ptr, bytes, alignment, fault->bytes, fault->alignment);
        break;
    default:
        weir__misuse(WEIR_MISUSE_FOREIGN_POINTER, ptr, bytes,
                     "%s: %p is no block that it has out", resource, ptr);
        break;
    }
}

weir_status weir__block_describe(const weir__block_record *record,
                                 const char *resource, const void *ptr,
                                 weir_block *out)
{
    if (record == NULL || record->state != WEIR__BLOCK_OUT)
        return weir__fail(WEIR_NOT_FOUND, "%s: %p is no block that it has out",
                          resource, ptr);
    *out = (weir_block){ .struct_size = sizeof *out,
                         .ptr = record->ptr,
                         .bytes = record->bytes,
                         .alignment = record->alignment,
                         .stream = record->stream };
    return WEIR_OK;
}
