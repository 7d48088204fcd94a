/* call_sites.c - see call_sites.h. */
#include "call_sites.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

/* What a walk finds first at most: what a sanitizer puts around backtrace, the function
 * that takes the site, and its caller. */
#define FRAMES_OF_OURS ((size_t)4)

void weir__sites_begin(void)
{
    void *here;
    (void)backtrace(&here, 1);
}

WEIR_NOINLINE void weir__site_take(void **frames, size_t count)
{
    void *all[WEIR__FRAMES_MAX + FRAMES_OF_OURS];
    WEIR_CHECK(count <= WEIR__FRAMES_MAX, "more frames than there is room for");
    size_t found = (size_t)backtrace(all, (int)(count + FRAMES_OF_OURS));
    size_t first = 0; /* behind the address in the caller */
    for (size_t i = 0; i < found && i < FRAMES_OF_OURS; i++) {
        if (all[i] == __builtin_return_address(0))
            first = i + 1;
    }
    for (size_t i = 0; i < count; i++)
        frames[i] = first + i < found ? all[first + i] : NULL;
}

static const char *file_of(const Dl_info *info)
{
    const char *slash = strrchr(info->dli_fname, '/');
    return slash == NULL ? info->dli_fname : slash + 1;
}

/* Says where `frame` is: with its module, too, if `both`, or if there is no name.
 * Returns how many characters that takes, as snprintf. */
static int put_frame(char *to, size_t room, void *frame, bool both)
{
    Dl_info info;
    /* An address returned to may be the first of another function: the call is not. */
    if (dladdr((char *)frame - 1, &info) == 0 || info.dli_fname == NULL)
        return snprintf(to, room, "%p", frame);
    uintptr_t in_file = (uintptr_t)frame - (uintptr_t)info.dli_fbase;
    if (info.dli_sname == NULL)
        return snprintf(to, room, "%s+0x%" PRIxPTR, file_of(&info), in_file);
    uintptr_t in_function = (uintptr_t)frame - (uintptr_t)info.dli_saddr;
    if (!both)
        return snprintf(to, room, "%s+0x%" PRIxPTR, info.dli_sname, in_function);
    return snprintf(to, room, "%s+0x%" PRIxPTR " (%s+0x%" PRIxPTR ")", info.dli_sname,
                    in_function, file_of(&info), in_file);
}

void weir__frame_say(char *to, size_t room, void *frame)
{
    (void)put_frame(to, room, frame, true);
}

weir__site_words weir__site_say(void *const *frames, size_t count)
{
    weir__site_words words = { "" };
    const size_t room = sizeof words.text;
    size_t used = 0;
    for (size_t i = 0; i < count && frames[i] != NULL; i++) {
        char one[sizeof words.text];
        size_t length = (size_t)put_frame(one, sizeof one, frames[i], false);
        const char *between = i == 0 ? "" : " < ";
        if (used + strlen(between) + length >= room)
            break;
        used += (size_t)snprintf(words.text + used, room - used, "%s%s", between, one);
    }
    return words;
}
