/* client.c - a C program as a user of an installed Weir writes it: everything comes
 * from weir/weir.h and -lweir. Answers 0 if all went as promised. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "weir/weir.h"

#define BYTES ((size_t)100000)

static void must(weir_status status, const char *what)
{
    if (status == WEIR_OK)
        return;
    fprintf(stderr, "%s: %s: %s\n", what, weir_status_string(status),
            weir_last_error().message);
    exit(1);
}

static void expect(bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "does not hold: %s\n", what);
    exit(1);
}

/* Fills a block on one stream, hands it to another, and reads it there. */
static void use_memory(weir_device *device, weir_resource *mr)
{
    weir_stream first = NULL, second = NULL;
    must(weir_stream_create(device, WEIR_STREAM_NON_BLOCKING, &first), "stream");
    must(weir_stream_create(device, WEIR_STREAM_NON_BLOCKING, &second), "stream");

    void *block = NULL;
    must(weir_allocate(mr, first, BYTES, WEIR_ALIGNMENT, &block), "allocate");
    must(weir_fill(device, first, block, 0x5a, BYTES), "fill");
    must(weir_stream_wait(device, second, first), "wait");

    unsigned char *seen = (unsigned char *)calloc(BYTES, 1);
    expect(seen != NULL, "host memory");
    must(weir_copy_sync(device, second, seen, block, BYTES), "copy");
    for (size_t i = 0; i < BYTES; i++)
        expect(seen[i] == 0x5a, "the bytes that the first stream wrote");
    free(seen);

    expect(weir_deallocate(mr, second, block, BYTES, WEIR_ALIGNMENT), "deallocate");
    must(weir_stream_destroy(device, first), "stream");
    must(weir_stream_destroy(device, second), "stream");
}

/* What cannot be had is refused in words, and leaves everything usable. */
static void ask_for_too_much(weir_device *device, weir_resource *mr)
{
    size_t free_bytes = 0, total_bytes = 0;
    must(weir_device_memory(device, &free_bytes, &total_bytes), "memory");
    expect(free_bytes <= total_bytes && total_bytes > 0, "memory that adds up");

    void *block = &block;
    weir_status status = weir_allocate(mr, NULL, 2 * total_bytes, WEIR_ALIGNMENT,
                                       &block);
    expect(status == WEIR_OUT_OF_MEMORY && block == NULL, "refused");
    expect(strlen(weir_last_error().message) > 0, "a sentence");

    weir_out_of_memory report;
    memset(&report, 0, sizeof report);
    report.struct_size = sizeof report;
    must(weir_last_out_of_memory(&report), "report");
    expect(report.requested_bytes >= 2 * total_bytes, "the report knows the request");
}

int main(void)
{
    expect(weir_version() == WEIR_VERSION, "the headers' version");

    weir_device *device = NULL;
    must(weir_device_open("emulated", NULL, &device), "open");

    weir_resource *leaf = NULL, *pool = NULL;
    must(weir_device_resource_create(device, &leaf), "leaf");
    must(weir_pool_create(leaf, NULL, &pool), "pool");
    weir_resource_unref(leaf);

    use_memory(device, pool);
    ask_for_too_much(device, pool);
    use_memory(device, pool);
    expect(weir_emulated_findings(device) == 0, "a quiet ledger");

    weir_resource_unref(pool);
    weir_device_unref(device);
    printf("weir %s, %s\n", weir_version_string(), weir_build_string());
    return 0;
}
