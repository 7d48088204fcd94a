/* support_checklist.h - the stage for tests/check_*.c, whose tests show the lines of
 * tests/checklist.txt: each is named after its line, a9_export_for_reading_waits.
 * (Other tests may stand beside them.)
 *
 * ctest runs each program three times: on a stepped emulated device, on one with
 * threads, and on CUDA devices over the stand-in. `./tools/test --checklist` tells how
 * each line fares on each. By hand WEIR_TEST_DEVICE says which: stepped (or nothing),
 * threads, cuda.
 *
 * All keep a ledger, so that a missing wait is found wherever it is; where work that
 * should have been waited for is held back, it also shows as wrong bytes. */
#ifndef WEIR_TESTS_SUPPORT_CHECKLIST_H
#define WEIR_TESTS_SUPPORT_CHECKLIST_H

#include "support.h"

/* The device of this run, and its end with all the claims of close_emulated. */
weir_device *checklist_open(void);
void checklist_close(weir_device *device);
/* A second one beside it, of the same kind. To be closed in the same way. */
weir_device *checklist_open_other(void);

typedef struct checklist_stage {
    weir_device *device;
    weir_resource *mr;   /* pool/device */
    weir_stream a, b, c; /* non-blocking, known */
} checklist_stage;

/* The same with a pool and streams. */
checklist_stage checklist_begin(void);
void checklist_end(checklist_stage *stage);

/* What is put on `stream` from now on does not run before its gate is let go. */
uint64_t checklist_hold(weir_device *device, weir_stream stream);
void checklist_let_go(weir_device *device, uint64_t gate);

/* Whether a wait of the host for what is held ends, with DEVICE_ERROR. */
bool checklist_is_stepped(void);
/* Claims that what is on `stream` waits behind a gate; that it ends, though others may
 * be held. */
void must_be_held(weir_device *device, weir_stream stream);
void must_not_be_held(weir_device *device, weir_stream stream);
/* The first, where the gate may be another process's: the stream is asked as often as
 * it takes for a wait that is missing to show. */
void must_stay_undone(weir_device *device, weir_stream stream);

/* How many copies Weir has asked the device for; a copy that a test itself makes by
 * weir_copy counts too. */
uint64_t checklist_copies(weir_device *device);

#endif
