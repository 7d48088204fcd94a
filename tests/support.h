/* support.h - what the tests share: bounds and seeds, claims that print the seed
 * when they fail, emulated devices that are looked over when they are closed, bytes
 * written and checked by kernels, and a catcher of misuse.
 *
 * WEIR_BOUND=full in the environment asks for the long runs, WEIR_SEED=N for the
 * seed that a failure has printed, and WEIR_STEPPED=threads for the system's threads
 * where runs go by turns (fibers.c). */
#ifndef WEIR_TESTS_SUPPORT_H
#define WEIR_TESTS_SUPPORT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "weir/emulated.h"
#include "weir/resource.h"

/* ---- bounds and seeds ---- */

/* How many of `what` this run tries: `quick`, or `full`. Printed once per `what`. */
uint64_t support_bound(const char *what, uint64_t quick, uint64_t full);

/* The seed for run number `index` of a test, from WEIR_SEED (then for index 0) or the
 * number itself; it becomes the one that failures print. */
uint64_t support_seed(uint64_t index);
/* The same for a seed made otherwise. */
void support_use_seed(uint64_t seed);
uint64_t support_seed_in_use(void);

/* A number that depends on *state alone, and the next state (splitmix64). */
uint64_t support_random(uint64_t *state);
uint64_t support_random_below(uint64_t *state, uint64_t n);           /* n > 0 */
uint64_t support_random_between(uint64_t *state, uint64_t least, uint64_t most);

/* ---- claims ---- */

/* Claims, on any thread. A claim that does not hold prints the place, the seed, and
 * what Weir last said; then the test fails, or on a thread other than the test's own
 * the program stops. */
#define must(condition)                                                          \
    ((condition) ? (void)0 : support_fail(#condition, __FILE__, __LINE__))
#define must_ok(call)                                                            \
    support_must_answer(WEIR_OK, (call), #call, __FILE__, __LINE__)
#define must_answer(status, call)                                                \
    support_must_answer((status), (call), #call, __FILE__, __LINE__)
/* Two numbers, both printed. */
#define must_equal(a, b)                                                         \
    support_must_equal((uint64_t)(a), (uint64_t)(b), #a, #b, __FILE__, __LINE__)

void support_fail(const char *words, const char *file, int line);
void support_must_answer(weir_status wanted, weir_status got, const char *call,
                         const char *file, int line);
void support_must_equal(uint64_t a, uint64_t b, const char *a_words,
                        const char *b_words, const char *file, int line);

/* ---- devices ---- */

/* Opens "emulated:0" (the next one after a failed test, which leaves its own open) with
 * 4 GiB and a ledger. close_emulated waits for it, and then
 * claims: the ledger found nothing, no pattern was damaged, all memory of the device is
 * free, and, with the last device, that the library holds no more host memory than when
 * the first was opened. */
weir_device *open_emulated(weir_emulated_scheduler scheduler, uint64_t seed);
weir_device *open_stepped(uint64_t seed);
weir_device *open_threads(void);
/* Any name and options; to be closed in the same way. */
weir_device *open_with(const char *name, const weir_device_options *options);
void close_emulated(weir_device *device);
/* From now on memory of a device that is given back keeps its pages, and devices that
 * are closed keep theirs for the next: for programs with very many of both. */
void support_keep_memory(void);
/* For devices that were lost, or have findings on purpose: claims nothing. */
void close_anyhow(weir_device *device);

/* True: WEIR_TEST_DEVICE=cuda is set, and all of these open a CUDA device instead, with
 * the stand-in for the runtime on an emulated device as was asked for. */
bool support_is_cuda(void);
/* weir_device_open, by the same rule. */
weir_status support_open(const char *name, const weir_device_options *options,
                         weir_device **out);
/* With CUDA devices: claims that the thread's contexts and last error are as before
 * Weir; with the last device that nothing of the driver's is out. And forgets what
 * there is of both. */
void support_must_be_neat(bool all_closed);
void support_tidy_up(void);
/* How many pools the driver has that were not destroyed. */
size_t support_pools_left(void);

/* Prints the findings of `device`, and claims that there are none. */
void must_be_quiet(weir_device *device);
size_t device_free_bytes(weir_device *device);

weir_stream make_stream(weir_device *device, weir_stream_kind kind);
void end_stream(weir_device *device, weir_stream stream);

/* Allocates, deallocates with alignment WEIR_ALIGNMENT, which must succeed. */
void *take(weir_resource *mr, weir_stream stream, size_t bytes);
void give(weir_resource *mr, weir_stream stream, void *ptr, size_t bytes);

weir_resource_statistics statistics_of(weir_resource *mr);
weir_device_calls calls_of(weir_device *device);
uint64_t calls_in_all(weir_device *device);

/* Plans that the nth next device call of the named kind (null: any) fails with
 * `status`, or all from then on. With nth 0: no faults any more. */
void plan_fault(weir_device *device, const char *kind, uint64_t nth, bool lasting,
                weir_status status);

/* ---- contents ---- */

/* Puts a kernel on `stream` that writes the pattern of `key` to the block, or that
 * reads it and counts an error if it is not there. Blocks above 1 MiB have it in
 * their first and last page and in one page of each 256 KiB, the ledger sees the
 * whole. Errors are printed as they are met, and claimed absent by close_emulated. */
void stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
           uint64_t key);
void check_stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
                 uint64_t key);
/* The same without a claim that the launch succeeds. */
weir_status try_stamp(weir_device *device, weir_stream stream, void *ptr, size_t bytes,
                      uint64_t key);
weir_status try_check_stamp(weir_device *device, weir_stream stream, void *ptr,
                            size_t bytes, uint64_t key);
/* Errors so far, and begins anew; for tests that want one. */
uint64_t take_stamp_errors(void);

/* The last device is closed: what stamps have needed goes. */
void support_stamps_end(void);

/* ---- what a real device does in its own way ---- */

/* True in the programs of tests/gpu: open_emulated and the rest open the first CUDA
 * device, whatever scheduler, seed and memory they ask for. It has no ledger and
 * plans no faults; stamps are its kernels, over all of a block up to 256 MiB. */
bool support_is_gpu(void);

/* weir_resource_open, which must succeed. But where a real device has no such memory:
 * says so, closes it, and the test is skipped. */
weir_resource *open_or_leave_out(weir_device *device, const char *spec);

/* Whether more may be asked of `mr` than there is. Not of managed memory, with which a
 * real device can hang: says so. */
bool support_may_ask_too_much(weir_resource *mr);

/* Claims that all memory of the device is free; that after a trim of `mr` as much of
 * its device is as was `before`. Of a real device, which others use too: but for a few
 * MiB, of managed memory for 144. */
void must_hold_nothing(weir_device *device);
void must_be_free_again(weir_resource *mr, size_t before);

/* As the functions of weir/emulated.h with the same name. */
weir_status support_run_threads(weir_device *device, size_t count,
                                void (*entry)(void *argument), void *const arguments[]);
weir_status support_host_signal(weir_device *device, uintptr_t channel);
weir_status support_host_await(weir_device *device, uintptr_t channel);
weir_status support_stream_create(weir_device *device, weir_stream_kind kind,
                                  weir_stream *out);
weir_status support_stream_destroy(weir_device *device, weir_stream stream);

/* ---- addresses ---- */

/* The calling process may have so many more addresses than it has, until setrlimit has
 * put back *before. Returns how many that is. */
size_t support_limit_addresses(size_t more, struct rlimit *before);

/* ---- misuse ---- */

/* From begin to end the misuse handler only counts. */
typedef struct misuse_log {
    uint64_t count;
    weir_misuse_kind kind;  /* of the last one */
    const void *ptr;
    size_t bytes;
    char message[256];
} misuse_log;
void misuse_begin(misuse_log *log);
void misuse_end(void);
/* Claims that exactly one was logged, of this kind and about `ptr`, and begins anew. */
void must_be_misuse(misuse_log *log, weir_misuse_kind kind, const void *ptr);

#endif
