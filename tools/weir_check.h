/* weir_check.h - the checked pass: the same plan on a stepped device with its ledger,
 * or, where the device is real, with copies of what the blocks hold. */
#ifndef WEIR_CHECK_H
#define WEIR_CHECK_H

#include "weir_pass.h"

typedef struct check_result {
    bool has_ledger;        /* else there are no findings, whatever was done */
    size_t ledger_findings;
    size_t data_errors;    /* blocks that did not hold what was written to them */
    size_t out_of_memory;
} check_result;

/* Runs the plan at `place`. With `verify` every block is written whole, or in samples
 * if it is large, and read before it is freed; without, the ledger is told of both all
 * the same. A device that is not emulated must be verified. The first few faults are
 * said. False: something broke, and was said. */
bool check_run(const plan *work, const pass_place *place, bool verify,
               check_result *out);

/* That of a real device. */
bool check_run_by_copies(const plan *work, const pass_place *place, check_result *out);

/* So many faults of a kind are told in words; all are counted. */
#define CHECK_FAULTS_TOLD 5

/* The parts of a block that are written. Begins at 0 with *from and *to zero; false
 * after the last one. All begin at multiples of eight, and none overlaps another. */
bool check_next_part(size_t bytes, size_t *from, size_t *to);

#endif
