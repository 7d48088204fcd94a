/* support_corpus.h - inputs that fuzzers keep, in tests/corpus/NAME: one for each
 * answer that was ever reached. They are tried first, by every run; and a run that
 * comes upon an answer which none of them gives fails, until
 *
 *     WEIR_BOUND=full fuzz_NAME --keep
 *
 * has put an input there that gives it. An answer is a sentence, or success, whatever
 * numbers stand in it. */
#ifndef WEIR_TESTS_SUPPORT_CORPUS_H
#define WEIR_TESTS_SUPPORT_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "weir/status.h"

/* For a program's main. */
void corpus_read_options(int argc, char **argv);

/* Tries one input, with all claims, and returns the answer that it got; if that is no
 * success it was also the last failure of the thread. */
typedef weir_status (*corpus_try)(const uint8_t *input, size_t length);

/* Tries all that is kept in tests/corpus/PATTERN, which is "NAME/" and "*.SUFFIX", and
 * remembers the answers, to be asked for by corpus_must_have. At least `least` are
 * there, or with --keep none need be. */
void corpus_begin(const char *pattern, size_t least, corpus_try function);

/* Claims that an input is kept that gets the same answer as this one has just got. */
void corpus_must_have(weir_status status, const uint8_t *input, size_t length);

#endif
