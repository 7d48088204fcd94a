/* support_logging.h - a log in a folder of its own, taken apart line by line. */
#ifndef WEIR_TESTS_SUPPORT_LOGGING_H
#define WEIR_TESTS_SUPPORT_LOGGING_H

#include "support.h"
#include "weir/weir.h"

#define LOG_HEADER \
    "Thread,Time,Action,Pointer,Size,Stream,Device,Alignment,Sequence\n"

extern char log_folder[];
extern char log_path[64]; /* of the log, in the folder */

/* Setup and teardown of a group. */
int log_folder_make(void **state);
int log_folder_remove(void **state);

void log_write_file(const char *text);
/* What the file holds, to be freed by the caller. */
char *log_read_file(void);

typedef struct log_line {
    long thread;
    char time[24], action[24], pointer[24], stream[24], device[24];
    size_t bytes, alignment;
    uint64_t sequence;
} log_line;

typedef struct log_lines {
    log_line *all;  /* to be freed by the caller */
    size_t count;
} log_lines;

/* Takes one line apart, which must be whole; what is left of the text. */
const char *log_line_parse(const char *text, log_line *out);
/* The lines behind the header, all of which must be whole. */
log_lines log_read_lines(void);
/* Claims that no line lies across a page of the file. */
void log_must_keep_to_pages(void);
void must_be_line(const log_line *it, const char *action, const void *ptr,
                  size_t bytes, weir_stream stream, size_t alignment);

/* A log at the path over what the text names. */
weir_resource *log_over(weir_device *device, const char *spec, bool append,
                        size_t flush_bytes);
weir_logging_state log_state_of(weir_resource *mr);

#endif
