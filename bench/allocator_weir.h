/* allocator_weir.h - what the cases that only Weir has see of it. */
#ifndef WEIR_BENCH_ALLOCATOR_WEIR_H
#define WEIR_BENCH_ALLOCATOR_WEIR_H

#include "weir/weir.h"

/* Between allocator_open and allocator_close; stream 0 is the default stream. */
weir_device *weir_under_test_device(void);
weir_resource *weir_under_test(void);
weir_stream weir_under_test_stream(unsigned stream);

/* Says what a call that failed said, and returns false. */
bool say_failed(const char *what);

/* A device as the benchmarks use it, and `spec` over it, for programs of their own. */
weir_status open_no_work_device(size_t memory_bytes, weir_device **out);

#endif
