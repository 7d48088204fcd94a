/* own_cases_weir.c - cases that only Weir has. */
#include "cases.h"

const bench_case own_cases[1];
const size_t own_case_count = 0;
