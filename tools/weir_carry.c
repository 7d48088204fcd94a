/* weir_carry.c - see weir_carry.h. */
#include "weir_carry.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "weir/host.h"
#include "weir/ipc.h"

#define ROOM_BYTES ((size_t)4 << 20)

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

bool carry_open(const char *device, carry *out, refusal *why)
{
    memset(out, 0, sizeof *out);
    out->room = malloc(ROOM_BYTES);
    if (out->room == NULL)
        return refuse(why, "there is no host memory");
    weir_status status = weir_device_open(device, NULL, &out->device);
    if (status == WEIR_OK)
        status = weir_stream_create(out->device, WEIR_STREAM_NON_BLOCKING,
                                    &out->stream);
    if (status == WEIR_OK)
        return true;
    refuse_status(why, device, status);
    carry_close(out);
    return false;
}

void carry_close(carry *self)
{
    weir_buffer_reset(&self->data);
    weir_buffer_reset(&self->mask);
    if (self->stream != NULL)
        (void)weir_stream_destroy(self->device, self->stream);
    weir_device_unref(self->device);
    free(self->room);
    memset(self, 0, sizeof *self);
}

/* ---- reading ---- */

/* Opens what `ticket` names: as long as it says, and so as was announced. */
static bool part_open(carry *self, const char *what, const weir_ticket *ticket,
                      weir_buffer *out, bool *is_over, refusal *why)
{
    weir_status status = weir_ipc_open(self->device, self->stream, ticket, NULL, out);
    *is_over = status == WEIR_NOT_FOUND;
    return status == WEIR_OK || refuse_status(why, what, status);
}

static bool items_read(carry *self, weir_buffer *from, size_t offset, carry_part *part,
                       FILE *file, refusal *why)
{
    uLong crc = crc32(0, NULL, 0);
    for (size_t at = 0, more; at < part->bytes; at += more) {
        more = least((size_t)part->bytes - at, ROOM_BYTES);
        weir_status status = weir_buffer_to_host_sync(from, self->stream, offset + at,
                                                      more, self->room);
        if (status != WEIR_OK)
            return refuse_status(why, "the items", status);
        crc = crc32(crc, self->room, (uInt)more);
        if (file != NULL && fwrite(self->room, 1, more, file) != more)
            return refuse(why, "the file cannot be written: %s", strerror(errno));
    }
    part->crc32 = (uint32_t)crc;
    return true;
}

/* Counts the items from part->from to part->to that the mask says are not there. */
static bool nulls_count(carry *self, weir_buffer *mask, carry_part *part, refusal *why)
{
    const unsigned char *bits = self->room;
    for (uint64_t at = part->from; at < part->to;) {
        size_t offset = (size_t)(at / 8);
        size_t bytes = least(mask->size - offset, ROOM_BYTES);
        weir_status status = weir_buffer_to_host_sync(mask, self->stream, offset, bytes,
                                                      self->room);
        if (status != WEIR_OK)
            return refuse_status(why, "the mask", status);
        uint64_t first = (uint64_t)offset * 8, end = first + (uint64_t)bytes * 8;
        for (; at < part->to && at < end; at++)
            part->nulls += (bits[(at - first) / 8] >> (at % 8) & 1) == 0;
    }
    return true;
}

bool carry_read(carry *self, const column *it, carry_part *part, FILE *file,
                bool *is_over, refusal *why)
{
    weir_buffer data = { 0 }, mask = { 0 };
    part->nulls = 0;
    part->bytes = (part->to - part->from) * it->dtype->bytes;
    bool good = part_open(self, "the items", &it->data, &data, is_over, why) &&
                (!it->has_mask ||
                 part_open(self, "the mask", &it->mask, &mask, is_over, why));
    if (good)
        good = items_read(self, &data, (size_t)part->from * it->dtype->bytes, part,
                          file, why) &&
               (!it->has_mask || nulls_count(self, &mask, part, why));
    weir_buffer_reset(&mask);
    weir_buffer_reset(&data);
    return good;
}

/* ---- bringing ---- */

/* A file, and how many bytes it has now. A pipe, which is none, is not waited for. */
static FILE *file_open(const char *path, size_t *bytes, refusal *why)
{
    struct stat about;
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "rb");
    if (file != NULL && fstat(fileno(file), &about) == 0 && S_ISREG(about.st_mode)) {
        *bytes = (size_t)about.st_size;
        return file;
    }
    refuse(why, "%s: %s", path, file == NULL ? strerror(errno) : "it is no file");
    if (file != NULL)
        fclose(file);
    else if (fd >= 0)
        close(fd);
    return NULL;
}

static bool file_carry(carry *self, const char *path, FILE *file, weir_buffer *to,
                       refusal *why)
{
    for (size_t at = 0, more; at < to->size; at += more) {
        more = least(to->size - at, ROOM_BYTES);
        if (fread(self->room, 1, more, file) != more)
            return refuse(why, "%s became shorter while it was read", path);
        weir_status status = weir_buffer_from_host_sync(to, self->stream, at, more,
                                                        self->room);
        if (status != WEIR_OK)
            return refuse_status(why, path, status);
    }
    return true;
}

static bool file_bring(carry *self, weir_resource *mr, const char *path, FILE *file,
                       size_t bytes, weir_buffer *to, weir_ticket *out, refusal *why)
{
    weir_status status = weir_buffer_allocate(mr, self->stream, bytes, WEIR_ALIGNMENT,
                                              to);
    if (status != WEIR_OK)
        return refuse_status(why, path, status);
    if (!file_carry(self, path, file, to, why))
        return false;
    status = weir_ipc_export(to, NULL, out);
    return status == WEIR_OK || refuse_status(why, path, status);
}

static bool length_find(const char *path, size_t bytes, column *it, refusal *why)
{
    if (bytes % it->dtype->bytes != 0)
        return refuse(why, "%s: %zu bytes are no whole number of items of %zu", path,
                      bytes, it->dtype->bytes);
    return column_length_set(it, bytes / it->dtype->bytes, why);
}

bool carry_bring(carry *self, const char *resource, const char *data_path,
                 const char *mask_path, column *it, refusal *why)
{
    weir_resource *mr = NULL;
    size_t bytes = 0, mask_bytes = 0;
    FILE *data = file_open(data_path, &bytes, why), *mask = NULL;
    bool good = data != NULL && length_find(data_path, bytes, it, why);
    it->has_mask = mask_path != NULL;
    if (good && it->has_mask) {
        mask = file_open(mask_path, &mask_bytes, why);
        good = mask != NULL;
    }
    if (good && mask_bytes != column_mask_bytes(it))
        good = refuse(why, "%s has %zu bytes, and a bit for each of %" PRIu64
                           " items takes %zu", mask_path, mask_bytes, it->length,
                      column_mask_bytes(it));
    weir_status status = WEIR_OK;
    if (good)
        status = weir_resource_open(self->device, resource, &mr);
    if (status != WEIR_OK)
        good = refuse_status(why, resource, status);
    good = good &&
           file_bring(self, mr, data_path, data, bytes, &self->data, &it->data, why) &&
           (!it->has_mask || file_bring(self, mr, mask_path, mask, mask_bytes,
                                        &self->mask, &it->mask, why));
    weir_resource_unref(mr);
    if (mask != NULL)
        fclose(mask);
    if (data != NULL)
        fclose(data);
    return good;
}
