/* weir_check.h - the checked pass: the same plan on a stepped device with its
 * ledger. */
#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include "weir_pass.h"

typedef struct check_result {
    size_t ledger_findings;
    size_t data_errors;    /* blocks that did not hold what was written to them */
    size_t out_of_memory;
} check_result;

/* Runs the plan at `place`, which must be emulated. With `verify` every block is
 * written whole, or in samples if it is large, and read before it is freed; without,
 * the ledger is told of both all the same. The first few faults are said.
 * False: something broke, and was said. */
bool check_run(const plan *work, const pass_place *place, bool verify,
               check_result *out);

#endif
