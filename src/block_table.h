/* block_table.h - from the address of a block to the record that a leaf keeps of it.
 *
 * A hash table with chains through the records themselves: finding and removing take
 * constant time, and neither inserting nor removing can fail. The table grows when it
 * can; where there is no host memory for that, its chains get longer.
 *
 * A record belongs to who inserted it. The owner's lock guards the table. */
#ifndef WEIR_BLOCK_TABLE_H
#define WEIR_BLOCK_TABLE_H

#include <stdbool.h>
#include <stddef.h>

#include "weir/resource.h"

typedef enum weir__block_state {
    WEIR__BLOCK_OUT,     /* the user's */
    WEIR__BLOCK_LEAVING, /* its deallocation is under way */
    WEIR__BLOCK_BACK     /* given back, and kept */
} weir__block_state;

/* First member of a leaf's own record. */
typedef struct weir__block_record {
    struct weir__block_record *next; /* in its chain */
    void *ptr;
    size_t bytes;                    /* as asked for, like alignment */
    size_t alignment;
    weir_stream stream;              /* that it was allocated on */
    weir__block_state state;
} weir__block_record;

typedef struct weir__block_table {
    weir__block_record **chains;
    size_t chain_count; /* a power of two */
    size_t count;
} weir__block_table;

/* OUT_OF_HOST_MEMORY. */
weir_status weir__block_table_init(weir__block_table *table);

/* Every record must have been removed. */
void weir__block_table_finish(weir__block_table *table);

/* No record of the same address may be there. */
void weir__block_table_insert(weir__block_table *table, weir__block_record *record);
/* The same without growing: asks for no host memory. */
void weir__block_table_reinsert(weir__block_table *table, weir__block_record *record);

/* The record of `ptr`, or null. */
weir__block_record *weir__block_table_find(const weir__block_table *table,
                                           const void *ptr);
void weir__block_table_remove(weir__block_table *table, weir__block_record *record);

/* Some record, or null if there is none. */
weir__block_record *weir__block_table_any(const weir__block_table *table);

/* Walks it all, and stops if it is not sound. */
void weir__block_table_verify(const weir__block_table *table);

/* What is wrong with giving back `bytes` at `alignment`, as found under the owner's
 * lock, to be told by weir__block_report without it. */
typedef struct weir__block_fault {
    weir_misuse_kind kind; /* 0: nothing is wrong */
    size_t bytes;          /* as asked for */
    size_t alignment;
} weir__block_fault;

/* Judges the deallocation of what `record` tells of; null: it was not found. */
weir__block_fault weir__block_judge(const weir__block_record *record,
                                    size_t bytes, size_t alignment);

/* Tells the misuse handler; `resource` is a name. */
void weir__block_report(const weir__block_fault *fault, const char *resource,
                        const void *ptr, size_t bytes, size_t alignment);

/* Fills *out with a block that is out; NOT_FOUND if `record` is null or tells of
 * another. To be called under the owner's lock. */
weir_status weir__block_describe(const weir__block_record *record,
                                 const char *resource, const void *ptr,
                                 weir_block *out);

#endif
