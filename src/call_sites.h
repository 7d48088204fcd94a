/* call_sites.h - call sites: addresses off the stack, and words for them.
 *
 * A site is an array of `count` return addresses, the innermost first; null where the
 * stack has fewer. Taking one costs a walk up the stack; names are looked up when they
 * are told to somebody. Neither asks for host memory. */
#ifndef WEIR_CALL_SITES_H
#define WEIR_CALL_SITES_H

#include <stddef.h>

#include "weir/tracking.h"

#define WEIR__FRAMES_MAX ((size_t)WEIR_TRACKING_FRAMES_MAX)

/* Before the first site is taken: glibc loads what walks the stack at the first call,
 * which would be in the middle of an allocation. */
void weir__sites_begin(void);

/* Takes the site of who called the caller, which is an operation of a resource. */
void weir__site_take(void **frames, size_t count);

/* "FUNCTION+0x12 (MODULE+0x345)", or the module alone where the function has no name
 * that a linker exports; as much as there is room for. */
void weir__frame_say(char *to, size_t room, void *frame);

/* A site in one line, "a+0x1 < b+0x2", as many frames as a sentence has room for. */
typedef struct weir__site_words {
    char text[150];
} weir__site_words;
weir__site_words weir__site_say(void *const *frames, size_t count);

#endif
