/* model_blocks.c - the table of blocks against a naive one. */
#include "support.h"

#include "block_table.h"
#include "internal.h"

static void table_agrees_with_a_naive_one(void **state)
{
    (void)state;
    uint64_t steps = support_bound("steps of the table's model", 3000, 100000);
    uint64_t random = support_seed(25);
    weir__block_table table;
    static weir__block_record records[200]; /* [i] is in the table if state is OUT */
    must_ok(weir__block_table_init(&table));
    for (size_t i = 0; i < 200; i++)
        records[i].state = WEIR__BLOCK_BACK;

    for (uint64_t step = 0; step < steps; step++) {
        size_t i = (size_t)support_random_below(&random, 200);
        weir__block_record *record = &records[i];
        void *ptr = (void *)((i + 1) * 256);
        if (step % 7 == 0)
            weir__host_fail_at(1, false); /* growing is not a must */
        weir__block_record *found = weir__block_table_find(&table, ptr);
        must(found == (record->state == WEIR__BLOCK_OUT ? record : NULL));
        if (found == NULL) {
            *record = (weir__block_record){ .ptr = ptr, .bytes = i + 1 };
            weir__block_table_insert(&table, record);
        } else {
            weir__block_table_remove(&table, record);
            record->state = WEIR__BLOCK_BACK;
        }
        weir__host_fail_at(0, false);
        weir__block_table_verify(&table);
    }
    weir__block_record *any;
    while ((any = weir__block_table_any(&table)) != NULL)
        weir__block_table_remove(&table, any);
    weir__block_table_finish(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(table_agrees_with_a_naive_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
