/* pinned.c - the leaf `pinned`: host memory that stays where it is. See leaf.h for what
 * becomes of blocks that come back.
 *
 * Where it is to lie on one node of the host's, the pages come from the operating
 * system, bound to that node before anybody touches them, and are then pinned as they
 * are; else the device's own allocator gives it. */
#include "weir/pinned.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "internal.h"
#include "leaf.h"

#define PAGE_BYTES ((size_t)4096)
#define NODES_MAX  1024

/* The kernel's number for "from these nodes, or not at all". */
#define POLICY_BIND 2

/* ---- memory of one node ---- */

static size_t whole_pages(size_t bytes)
{
    return (bytes + (PAGE_BYTES - 1)) & ~(PAGE_BYTES - 1);
}

/* The address space goes with its pages. Should the system refuse that, only the
 * addresses stay behind. */
static void pages_unmap(void *ptr, size_t bytes)
{
    if (munmap(ptr, bytes) != 0)
        (void)madvise(ptr, bytes, MADV_DONTNEED);
}

static weir_status pages_bind(void *ptr, size_t bytes, int32_t node)
{
    const size_t word_bits = 8 * sizeof(unsigned long);
    unsigned long nodes[NODES_MAX / (8 * sizeof(unsigned long))] = { 0 };
    nodes[(size_t)node / word_bits] = 1ul << ((size_t)node % word_bits);
    /* The kernel takes one bit less than it is told. */
    if (syscall(SYS_mbind, ptr, bytes, POLICY_BIND, nodes, NODES_MAX + 1ul, 0u) == 0)
        return WEIR_OK;
    if (errno == EINVAL)
        return weir__fail(WEIR_NOT_SUPPORTED, "pinned: this host has no NUMA node %d",
                          (int)node);
    return weir__fail(WEIR_NOT_SUPPORTED,
                      "pinned: the system does not let memory be bound to NUMA node "
                      "%d: %s",
                      (int)node, strerror(errno));
}

/* `bytes` is whole pages. */
static weir_status pages_map(size_t bytes, int32_t node, void **out)
{
    void *ptr = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                     -1, 0);
    if (ptr == MAP_FAILED)
        return weir__fail(WEIR_OUT_OF_MEMORY, "pinned: the system has no %zu bytes: %s",
                          bytes, strerror(errno));
    weir_status status = pages_bind(ptr, bytes, node);
    if (status != WEIR_OK)
        pages_unmap(ptr, bytes);
    else
        *out = ptr;
    return status;
}

static weir_status draw_on_node(weir_device *device, int32_t node, uint32_t flags,
                                size_t bytes, void **out)
{
    if (bytes > SIZE_MAX - PAGE_BYTES)
        return weir__fail(WEIR_OUT_OF_MEMORY, "pinned: no host has %zu bytes", bytes);
    void *ptr = NULL;
    weir_status status = pages_map(whole_pages(bytes), node, &ptr);
    if (status != WEIR_OK)
        return status;
    status = weir__host_register(device, ptr, whole_pages(bytes), flags);
    if (status != WEIR_OK)
        pages_unmap(ptr, whole_pages(bytes));
    else
        *out = ptr;
    return status;
}

static weir_status check_node(int32_t node)
{
    if (node < 0 || node >= NODES_MAX)
        return weir__fail(WEIR_NOT_SUPPORTED, "pinned: no host has a NUMA node %d",
                          (int)node);
    void *page = NULL;
    weir_status status = pages_map(PAGE_BYTES, node, &page);
    if (status == WEIR_OK)
        pages_unmap(page, PAGE_BYTES);
    return status;
}

/* ---- the leaf ---- */

static uint32_t flags_of(const weir_pinned_options *options)
{
    return (options->portable ? WEIR__PINNED_PORTABLE : 0) |
           (options->mapped ? WEIR__PINNED_MAPPED : 0);
}

/* What is small lies where it happens to; what is whole begins with a page. */
static weir_status draw(weir_device *device, const void *context, size_t bytes,
                        size_t alignment, void **out)
{
    const weir_pinned_options *options = context;
    if (options->on_numa_node) /* whole pages */
        return draw_on_node(device, options->numa_node, flags_of(options), bytes, out);
    weir_status status = weir__pinned_malloc(device, bytes, flags_of(options), out);
    if (status != WEIR_OK || (uintptr_t)*out % alignment == 0 ||
        bytes >= WEIR__PINNED_WHOLE)
        return status;
    status = weir__pinned_free(device, *out);
    *out = NULL;
    if (status != WEIR_OK)
        return status;
    return weir__pinned_malloc(device, WEIR__PINNED_WHOLE, flags_of(options), out);
}

static weir_status give(weir_device *device, const void *context, void *ptr,
                        size_t bytes)
{
    const weir_pinned_options *options = context;
    if (!options->on_numa_node)
        return weir__pinned_free(device, ptr);
    weir_status status = weir__host_unregister(device, ptr);
    if (status == WEIR_OK)
        pages_unmap(ptr, whole_pages(bytes));
    return status;
}

static const weir__leaf_kind pinned_kind = {
    .name = "pinned",
    .max_alignment = PAGE_BYTES,
    .options_bytes = sizeof(weir_pinned_options),
    .host_accessible = true,
    .pinned = true,
    .draw = draw,
    .give = give,
    .measure = weir__measure_host,
};

weir_status weir_pinned_create(weir_device *device, const weir_pinned_options *options,
                               weir_resource **out)
{
    weir_pinned_options given;
    if (out != NULL)
        *out = NULL;
    weir_status status = weir__read_options(options, &given, sizeof given,
                                            "the options of pinned");
    if (status == WEIR_OK && given.on_numa_node)
        status = check_node(given.numa_node);
    else if (status == WEIR_OK && given.numa_node != 0)
        status = weir__fail(WEIR_INVALID_ARGUMENT,
                            "pinned: numa_node is %d, and on_numa_node is not set",
                            (int)given.numa_node);
    if (status != WEIR_OK)
        return status;
    given.struct_size = sizeof given;
    return weir__leaf_create(&pinned_kind, device, &given, out);
}
