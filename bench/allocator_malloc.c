/* allocator_malloc.c - the malloc that this program is linked with: glibc's, or that of
 * a library which stands in for it. */
#include "allocator.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* BENCH_MALLOC is the name, BENCH_MALLOC_LIBRARY how its library's file name begins. */
const char *const allocator_name = BENCH_MALLOC;

static const char *library_of_malloc(void)
{
    Dl_info found;
    void *entry = dlsym(RTLD_DEFAULT, "malloc");
    if (entry == NULL || dladdr(entry, &found) == 0)
        return "nobody";
    return found.dli_fname;
}

const char *allocator_description(void)
{
    static char text[512];
    snprintf(text, sizeof text, "malloc and free of %s", library_of_malloc());
    return text;
}

bool allocator_takes(const char *option)
{
    (void)option;
    return false;
}

/* Makes sure that malloc is whose it should be. */
bool allocator_open(const allocator_options *options)
{
    (void)options;
    if (strstr(library_of_malloc(), "/" BENCH_MALLOC_LIBRARY) == NULL) {
        fprintf(stderr, "%s: malloc is that of %s\n", allocator_name,
                library_of_malloc());
        return false;
    }
    return true;
}

void allocator_close(void)
{
}

void *allocator_allocate(size_t bytes, unsigned stream)
{
    (void)stream;
    return malloc(bytes);
}

void allocator_deallocate(void *ptr, size_t bytes, unsigned stream)
{
    (void)bytes;
    (void)stream;
    free(ptr);
}

allocator_calls allocator_get_calls(void)
{
    return (allocator_calls){ 0 };
}
