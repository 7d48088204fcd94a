/* support_logging.c - see support_logging.h. */
#include "support_logging.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- files ---- */

char log_folder[] = "/tmp/weir_logging_XXXXXX";
char log_path[64];

int log_folder_make(void **state)
{
    (void)state;
    if (mkdtemp(log_folder) == NULL)
        return -1;
    (void)snprintf(log_path, sizeof log_path, "%s/log.csv", log_folder);
    return 0;
}

int log_folder_remove(void **state)
{
    (void)state;
    (void)unlink(log_path);
    return rmdir(log_folder);
}

void log_write_file(const char *text)
{
    FILE *file = fopen(log_path, "wb");
    must(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

char *log_read_file(void)
{
    FILE *file = fopen(log_path, "rb");
    must(file != NULL && fseek(file, 0, SEEK_END) == 0);
    long bytes = ftell(file);
    must(bytes >= 0 && fseek(file, 0, SEEK_SET) == 0);
    char *text = malloc((size_t)bytes + 1);
    must(text != NULL && fread(text, 1, (size_t)bytes, file) == (size_t)bytes);
    text[bytes] = '\0';
    must(strlen(text) == (size_t)bytes && fclose(file) == 0);
    return text;
}

/* Of a copy of the line: sscanf measures all of what it is given. */
const char *log_line_parse(const char *text, log_line *out)
{
    char line[8192]; /* no line is longer than a page */
    const char *end = strchr(text, '\n');
    must(end != NULL && (size_t)(end - text) < sizeof line);
    memcpy(line, text, (size_t)(end - text));
    line[end - text] = '\0';
    int length = 0;
    int fields = sscanf(line, "%ld,%23[0-9:.],%23[a-z ],%23[^,],%zu,%23[^,],%23[^,],"
                        "%zu,%" SCNu64 "%n", &out->thread, out->time, out->action,
                        out->pointer, &out->bytes, out->stream, out->device,
                        &out->alignment, &out->sequence, &length);
    must_equal(fields, 9);
    must(line[length] == '\0');
    return end + 1;
}

log_lines log_read_lines(void)
{
    log_lines out = { NULL, 0 };
    char *text = log_read_file();
    must(strncmp(text, LOG_HEADER, strlen(LOG_HEADER)) == 0);
    for (const char *at = text + strlen(LOG_HEADER); *at != '\0'; out.count++) {
        if ((out.count & (out.count - 1)) == 0)
            out.all = realloc(out.all, (2 * out.count + 1) * sizeof *out.all);
        must(out.all != NULL);
        at = log_line_parse(at, &out.all[out.count]);
    }
    free(text);
    return out;
}

void log_must_keep_to_pages(void)
{
    char *text = log_read_file();
    size_t bytes = strlen(text);
    for (size_t at = 4096; at < bytes; at += 4096)
        must(text[at - 1] == '\n');
    free(text);
}

void must_be_line(const log_line *it, const char *action, const void *ptr,
                         size_t bytes, weir_stream stream, size_t alignment)
{
    char pointer[24], handle[24] = "0";
    (void)snprintf(pointer, sizeof pointer, "%p", ptr);
    if (stream != NULL)
        (void)snprintf(handle, sizeof handle, "%p", (void *)stream);
    assert_string_equal(it->action, action);
    assert_string_equal(it->pointer, pointer);
    assert_string_equal(it->stream, handle);
    must_equal(it->bytes, bytes);
    must_equal(it->alignment, alignment);
}

/* ---- resources ---- */

weir_resource *log_over(weir_device *device, const char *spec, bool append,
                               size_t flush_bytes)
{
    weir_logging_options options = WEIR_LOGGING_OPTIONS_INIT;
    options.append = append;
    options.flush_bytes = flush_bytes;
    weir_resource *below, *mr;
    must_ok(weir_resource_open(device, spec, &below));
    must_ok(weir_logging_create(below, log_path, &options, &mr));
    weir_resource_unref(below);
    return mr;
}

weir_logging_state log_state_of(weir_resource *mr)
{
    weir_logging_state now = { .struct_size = sizeof now };
    must_ok(weir_logging_get_state(mr, &now));
    return now;
}
