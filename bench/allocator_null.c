/* allocator_null.c - no allocator: what the harness itself costs. Every block is at the
 * same address, which is never touched. */
#include "allocator.h"

const char *const allocator_name = "null";

const char *allocator_description(void)
{
    return "the harness itself: hands out a fixed address";
}

bool allocator_takes(const char *option)
{
    (void)option;
    return false;
}

bool allocator_open(const allocator_options *options)
{
    (void)options;
    return true;
}

void allocator_close(void)
{
}

void *allocator_allocate(size_t bytes, unsigned stream)
{
    static char block[1];
    (void)bytes;
    (void)stream;
    return block;
}

void allocator_deallocate(void *ptr, size_t bytes, unsigned stream)
{
    (void)ptr;
    (void)bytes;
    (void)stream;
}

allocator_calls allocator_get_calls(void)
{
    return (allocator_calls){ 0 };
}
