/* own_cases_none.c - for allocators that have no cases of their own. */
#include "cases.h"

const bench_case own_cases[1];
const size_t own_case_count = 0;
