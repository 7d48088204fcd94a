/* growable_pages.h - the addresses of a growable resource: which of their pages are
 * mapped, and which of those are taken.
 *
 * A range knows nothing of streams, but for what a resume has written
 * (growable_written.h). What is free in it nobody uses any more; what is
 * taken is its user's, who says of a part of it that it is kept: given back, and not
 * done yet. Any thread may call any of these at any time, but for close. None calls the
 * device under the range's lock: pages that are being mapped or unmapped are taken
 * meanwhile. */
#ifndef WEIR_GROWABLE_PAGES_H
#define WEIR_GROWABLE_PAGES_H

#include "device/device.h"
#include "growable_written.h"
#include "weir/growable.h"

typedef struct weir__pages weir__pages;

/* `options` are complete. */
weir_status weir__pages_open(weir_device *device, const weir_growable_options *options,
                             weir__pages **out);
/* Unmaps what is free, and gives the addresses back. What is still taken, or what the
 * device does not take, is left to the device's end; returns how many bytes. */
size_t weir__pages_close(weir__pages *pages);

/* The ledger's name for what was done when it was given: no life of the bytes ends
 * there, so that who takes or unmaps them has to learn it. */
static inline uint64_t weir__pages_key(const weir__pages *pages)
{
    return (uint64_t)(uintptr_t)pages;
}

/* The best fit among what is mapped and free; false: there is none. */
bool weir__pages_take(weir__pages *pages, size_t bytes, void **out);
/* The same, but maps what is missing. OUT_OF_MEMORY, or what the device answers: what
 * was mapped on the way is unmapped. */
weir_status weir__pages_grow(weir__pages *pages, size_t bytes, void **out);
/* What is taken at `ptr` becomes `new_bytes` long. OUT_OF_MEMORY: what follows is not
 * free, or could not be mapped. */
weir_status weir__pages_extend(weir__pages *pages, void *ptr, size_t bytes,
                               size_t new_bytes);
/* The option. */
bool weir__pages_remap(const weir__pages *pages);
void weir__pages_keep(weir__pages *pages, const void *ptr, size_t bytes);
void weir__pages_give(weir__pages *pages, const void *ptr, size_t bytes);

/* Whether a chunk that has a part of these bytes, which are kept, could be unmapped if
 * what is kept were free. */
bool weir__pages_could_unmap(weir__pages *pages, const void *ptr, size_t bytes);
/* Of the bytes from *from to *to of what is taken at `ptr`, sets the last of at least
 * `wanted_bytes`, or else all, that are whole chunks, or with what is free or kept
 * beside them are. Equal: none. */
void weir__pages_part(weir__pages *pages, const void *ptr, size_t bytes,
                      size_t wanted_bytes, size_t *from, size_t *to);
/* Unmaps free chunks, from the end on, while more than `keep_bytes` is mapped. Returns
 * how many bytes. */
size_t weir__pages_trim(weir__pages *pages, size_t keep_bytes);

/* ---- stopping, for growable_pause.c ---- */

/* What stands in a page's octet; or'ed. */
#define WEIR__PAGE_TAKEN  1u
#define WEIR__PAGE_KEPT   2u /* and TAKEN */
#define WEIR__PAGE_MAPPED 4u
#define WEIR__PAGE_FIRST  8u /* of a chunk, and MAPPED */

/* While a range is stopped nothing is taken, mapped or unmapped but by who has stopped
 * it: take finds nothing, grow and extend answer PAUSED, trim does nothing. What is
 * taken may be given. */
void weir__pages_stop(weir__pages *pages, bool is_stopped);
bool weir__pages_is_stopped(weir__pages *pages);
/* How many pages there are to look at: those behind were never taken. */
size_t weir__pages_top(weir__pages *pages);
/* The octets of the first `count` pages. */
void weir__pages_look(weir__pages *pages, unsigned char *out, size_t count);
void *weir__pages_address(const weir__pages *pages, size_t page);
/* What is being written: to be waited for before a chunk is unmapped. */
weir__written *weir__pages_written(weir__pages *pages);
/* A chunk, taken or not: whether its pages are taken does not change. */
weir_status weir__pages_map_chunk(weir__pages *pages, size_t first, size_t count);
weir_status weir__pages_unmap_chunk(weir__pages *pages, size_t first, size_t count);

typedef struct weir__pages_counts {
    size_t mapped_bytes;
    size_t peak_bytes;    /* of these */
    size_t largest_bytes; /* that are free and adjoin */
} weir__pages_counts;
weir__pages_counts weir__pages_count(weir__pages *pages);

/* Stops if its pages contradict its counts. */
void weir__pages_verify(weir__pages *pages);

#endif
