/* emulated_shared.c - memory of an emulated device that other processes can open.
 *
 * An object is a memory file (emulated_memory.c). As kind FD a descriptor of it is
 * handed on; as kind LEGACY 64 octets say where the file is: the process, when that
 * began, and its descriptor there, which /proc/PID/fd leads to. So those are good as
 * long as that process keeps it, as with CUDA, and a descriptor while anybody has it.
 * A pool is one file, of which a descriptor is handed on with octets that say where in
 * it a block is: who has that can map all of the pool. He opens the file anew, and
 * locks his block's part for reading until he has freed it: so a block that goes back
 * to its pool before is found.
 *
 * Whatever comes from outside is looked at as a file before it is mapped: it must be a
 * memory file, of that length, and sealed against shrinking, for what is cut off under
 * a mapping kills who touches it. What is in it nobody believes anyway. */
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "device/emulated_shared.h"
#include "ipc_process.h"

#define LEGACY_MAGIC UINT64_C(0x3159434147454c57)
#define POOL_MAGIC   UINT64_C(0x314b434f4c425057)
#define POOL_GRANULE ((size_t)512) /* of its blocks */
#define BYTES_MAX    (SIZE_MAX >> 17) /* 128 TiB: what a process can address */

/* What the octets of kind LEGACY begin with; the others are zero. */
typedef struct legacy_name {
    uint64_t magic;
    uint64_t start_time;
    int32_t pid;
    int32_t fd;
} legacy_name;

/* Of a kind that is an object for each allocation. */
static bool is_kind(weir_share_kind kind)
{
    return kind == WEIR_SHARE_FD || kind == WEIR_SHARE_LEGACY;
}

/* ---- making and freeing ---- */

static weir_status malloc_locked(weir__emulated *self, weir_share_kind kind,
                                 size_t bytes, void **out)
{
    weir__arena *object;
    if (!is_kind(kind))
        return weir__fail_native(WEIR_NOT_SUPPORTED, WEIR__NATIVE_NOT_SUPPORTED,
                                 "%d is no kind of memory that is allocated to be "
                                 "shared", (int)kind);
    weir_status status = weir__object_make(self->arena, kind, bytes, &object);
    if (status != WEIR_OK)
        return status;
    *out = object->base;
    weir__cost_bytes(self, WEIR__CALL_shared_malloc, bytes);
    if (self->ledger != NULL)
        weir__ledger_memory_begin(self->ledger, &self->owner, weir__this_thread(),
                                  (uintptr_t)object->base, object->bytes);
    return WEIR_OK;
}

weir_status weir__emulated_shared_malloc(void *device, weir_share_kind kind,
                                         size_t bytes, void **out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_malloc);
    if (status == WEIR_OK)
        status = malloc_locked(self, kind, bytes, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* The object that begins at `ptr`, if it came about in that way; else null. */
static weir__arena *object_at(const weir__emulated *self, const void *ptr,
                              bool is_imported)
{
    weir__arena *object = weir__object_find(self->arena, ptr, 1);
    bool is_it = object != NULL && object->base + object->offset == ptr &&
                 object->is_imported == is_imported &&
                 (object->is_imported || object->kind != WEIR_SHARE_POOL);
    return is_it ? object : NULL;
}

weir__arena *weir__shared_import_at(const weir__emulated *self, const void *ptr,
                                    bool is_freed)
{
    weir__arena *object = object_at(self, ptr, true);
    bool is_it = object != NULL && object->kind == WEIR_SHARE_POOL &&
                 object->is_freed == is_freed;
    return is_it ? object : NULL;
}

/* Its only block's. */
static size_t bytes_of(weir__arena *object)
{
    return weir__blocks_at_or_below(&object->blocks, UINTPTR_MAX)->bytes;
}

static weir_status end_locked(weir__emulated *self, weir__call call, void *ptr,
                              bool is_imported)
{
    weir__arena *object = object_at(self, ptr, is_imported);
    if (object == NULL)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%p is no memory that emulated device %d has %s", ptr,
                                 (int)self->ordinal,
                                 is_imported ? "opened" : "made to be shared");
    if (is_imported && object->kind == WEIR_SHARE_POOL && !object->is_freed)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "%p is of a pool, and was not freed on a stream", ptr);
    if (self->ledger != NULL && is_imported)
        weir__ledger_memory_close(self->ledger, weir__this_thread(), (uintptr_t)ptr);
    else if (self->ledger != NULL)
        weir__ledger_memory_end(self->ledger, weir__this_thread(), (uintptr_t)ptr);
    weir__cost_bytes(self, call, bytes_of(object));
    weir__object_end(object);
    return WEIR_OK;
}

weir_status weir__emulated_shared_free(void *device, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_free);
    if (status == WEIR_OK)
        status = end_locked(self, WEIR__CALL_shared_free, ptr, false);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- finding and exporting ---- */

/* The block that is out of a pool and has all of the bytes; else null. */
static const weir__block *pooled_find(weir__emulated *self, const void *ptr,
                                      size_t bytes)
{
    uintptr_t address = (uintptr_t)ptr;
    const weir__block *block = weir__blocks_at_or_below(&self->spans_out, address);
    bool has = block != NULL && address - block->ptr < block->bytes &&
               bytes <= block->bytes - (address - block->ptr);
    return has ? block : NULL;
}

static weir_status find_locked(weir__emulated *self, const void *ptr, size_t bytes,
                               void **base, weir__shared *out)
{
    const weir__arena *object = weir__object_find(self->arena, ptr, bytes);
    const weir__block *block = NULL;
    if (object != NULL && !object->is_imported && object->kind == WEIR_SHARE_POOL)
        block = pooled_find(self, ptr, bytes);
    if (block != NULL) {
        *base = object->base + (block->ptr - (uintptr_t)object->base);
        *out = (weir__shared){ .kind = object->kind, .bytes = block->bytes, .fd = -1 };
        return WEIR_OK;
    }
    if (object == NULL || object->is_imported || object->kind == WEIR_SHARE_POOL)
        return weir__fail_native(WEIR_NOT_SUPPORTED, WEIR__NATIVE_NOT_SUPPORTED,
                                 "%zu bytes at %p are no memory that emulated device "
                                 "%d can share: that must be made so", bytes, ptr,
                                 (int)self->ordinal);
    *base = object->base;
    *out = (weir__shared){ .kind = object->kind, .bytes = object->bytes, .fd = -1 };
    return WEIR_OK;
}

weir_status weir__emulated_shared_find(void *device, const void *ptr, size_t bytes,
                                       void **base, weir__shared *out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_find);
    if (status == WEIR_OK)
        status = find_locked(self, ptr, bytes, base, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

static weir_status export_locked(weir__emulated *self, const void *base,
                                 weir__shared *out)
{
    const weir__arena *object;
    void *begin;
    weir__shared made;
    if (find_locked(self, base, 1, &begin, &made) != WEIR_OK || begin != base)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "no memory that emulated device %d shares begins at "
                                 "%p", (int)self->ordinal, base);
    object = weir__object_find(self->arena, base, 1);
    if (object->kind == WEIR_SHARE_POOL) {
        size_t offset = (size_t)((const unsigned char *)base - object->base);
        weir__pool_place place = { POOL_MAGIC, object->bytes, offset, made.bytes };
        memcpy(made.octets, &place, sizeof place);
    }
    if (object->kind == WEIR_SHARE_LEGACY) {
        int32_t pid = (int32_t)getpid();
        legacy_name name = { LEGACY_MAGIC, weir__process_start_time(pid), pid,
                             object->fd };
        memcpy(made.octets, &name, sizeof name);
    } else {
        made.fd = fcntl(object->fd, F_DUPFD_CLOEXEC, 0);
        if (made.fd < 0)
            return weir__fail_native(WEIR_DEVICE_ERROR, errno,
                                     "the process has no file descriptor left");
    }
    *out = made;
    return WEIR_OK;
}

weir_status weir__emulated_shared_export(void *device, void *base, weir__shared *out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_export);
    if (status == WEIR_OK)
        status = export_locked(self, base, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

/* ---- opening ---- */

static weir_status fail_open(int why, const char *words)
{
    return weir__fail_native(WEIR_INVALID_ARGUMENT,
                             why != 0 ? why : WEIR__NATIVE_INVALID_VALUE,
                             "this is no memory that another process shares: %s",
                             words);
}

/* The descriptor is the caller's. Nothing is opened before it is known for a file in
 * memory: there are files that do something when they are. */
static weir_status legacy_open(const weir__shared *from, int *out)
{
    legacy_name name;
    char path[64];
    struct stat about;
    struct statfs where;
    memcpy(&name, from->octets, sizeof name);
    if (name.magic != LEGACY_MAGIC || name.pid <= 0 || name.fd < 0)
        return fail_open(0, "the octets are not of its kind");
    snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)name.pid, (int)name.fd);
    int seen = open(path, O_PATH | O_CLOEXEC);
    if (seen < 0)
        return fail_open(errno, "its process does not have it any more");
    bool is_memory = fstat(seen, &about) == 0 && S_ISREG(about.st_mode) &&
                     fstatfs(seen, &where) == 0 && where.f_type == TMPFS_MAGIC;
    snprintf(path, sizeof path, "/proc/self/fd/%d", seen);
    int fd = is_memory ? open(path, O_RDWR | O_CLOEXEC | O_NONBLOCK) : -1;
    int why = is_memory ? errno : 0;
    close(seen);
    if (fd < 0)
        return fail_open(why, "what its process has there is no memory file");
    /* Afterwards: so it was that process's, and no later one's with its number. */
    if (name.start_time == 0 || weir__process_start_time(name.pid) != name.start_time) {
        close(fd);
        return fail_open(0, "its process has ended");
    }
    *out = fd;
    return WEIR_OK;
}

static weir_status fd_open(const weir__shared *from, int *out)
{
    int fd = fcntl(from->fd, F_DUPFD_CLOEXEC, 0);
    if (fd < 0 && errno == EBADF)
        return fail_open(EBADF, "there is no such file descriptor");
    if (fd < 0)
        return weir__fail_native(WEIR_DEVICE_ERROR, errno,
                                 "the process has no file descriptor left");
    *out = fd;
    return WEIR_OK;
}

/* Reads where in its file a block of a pool is. */
static weir_status place_read(const weir__shared *from, weir__pool_place *out)
{
    memcpy(out, from->octets, sizeof *out);
    if (out->magic != POOL_MAGIC)
        return fail_open(0, "the octets are not of its kind");
    if (out->bytes != from->bytes || out->bytes == 0 ||
        out->offset % POOL_GRANULE != 0 || out->bytes % POOL_GRANULE != 0 ||
        out->bytes > out->file_bytes || out->offset > out->file_bytes - out->bytes)
        return fail_open(0, "its place is none in a pool");
    return WEIR_OK;
}

static weir_status file_check(int fd, size_t bytes)
{
    struct stat about;
    int seals = fcntl(fd, F_GET_SEALS);
    if (seals < 0 || fstat(fd, &about) != 0)
        return fail_open(errno, "it is no memory file");
    if ((seals & F_SEAL_SHRINK) == 0)
        return fail_open(0, "it could be made shorter");
    if (bytes == 0 || bytes > BYTES_MAX || bytes % WEIR__OBJECT_GRANULE != 0 ||
        about.st_size != (off_t)bytes)
        return weir__fail_native(WEIR_INVALID_ARGUMENT, WEIR__NATIVE_INVALID_VALUE,
                                 "this is no memory that another process shares: it "
                                 "has %lld bytes, not %zu", (long long)about.st_size,
                                 bytes);
    if ((fcntl(fd, F_GETFL) & O_ACCMODE) != O_RDWR ||
        (seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0)
        return fail_open(0, "nobody may write to it");
    return WEIR_OK;
}

static struct flock lock_of(short type, uint64_t offset, uint64_t bytes)
{
    return (struct flock){ .l_type = type, .l_whence = SEEK_SET,
                           .l_start = (off_t)offset, .l_len = (off_t)bytes };
}

/* The descriptor is the caller's, of an open file of its own: locks are that's. */
static weir_status pool_open(const weir__shared *from, const weir__pool_place *place,
                             int *out)
{
    char path[64];
    struct flock lock = lock_of(F_RDLCK, place->offset, place->bytes);
    weir_status status = file_check(from->fd, (size_t)place->file_bytes);
    if (status != WEIR_OK)
        return status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", from->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd >= 0 && fcntl(fd, F_OFD_SETLK, &lock) == 0) {
        *out = fd;
        return WEIR_OK;
    }
    int why = errno;
    if (fd >= 0)
        close(fd);
    return weir__fail_native(WEIR_DEVICE_ERROR, why,
                             "the file of a pool is not opened once more");
}

void weir__shared_free_import(weir__arena *import)
{
    struct flock lock = lock_of(F_UNLCK, import->offset, bytes_of(import));
    (void)fcntl(import->fd, F_OFD_SETLK, &lock);
    import->is_freed = true;
}

void weir__shared_judge_free(weir__emulated *self, const weir__arena *pool,
                             uint64_t stream, uintptr_t ptr, size_t bytes)
{
    char message[160];
    struct flock lock = lock_of(F_WRLCK, ptr - (uintptr_t)pool->base, bytes);
    if (fcntl(pool->fd, F_OFD_GETLK, &lock) != 0 || lock.l_type == F_UNLCK)
        return;
    snprintf(message, sizeof message,
             "%zu bytes at %#zx go back to their pool on stream %llu, and who has "
             "opened them has not freed them", bytes, (size_t)ptr,
             (unsigned long long)stream);
    const weir_emulated_finding finding = {
        .struct_size = sizeof finding, .first = "open elsewhere", .second = "pool free",
        .second_stream = stream, .ptr = ptr, .bytes = bytes, .message = message };
    weir__findings_add(self, &finding);
}

/* `fd` becomes the object's, or is closed. */
static weir_status import_locked(weir__emulated *self, const weir__shared *from,
                                 const weir__pool_place *place, int fd, void **out)
{
    weir__arena *object;
    weir_status status = file_check(fd, (size_t)place->file_bytes);
    if (status == WEIR_OK)
        status = weir__object_import(self->arena, from->kind, place, fd, &object);
    if (status != WEIR_OK) {
        close(fd);
        return status;
    }
    *out = object->base + object->offset;
    weir__cost_bytes(self, WEIR__CALL_shared_open, from->bytes);
    if (self->ledger != NULL)
        weir__ledger_memory_begin(self->ledger, &self->owner, weir__this_thread(),
                                  (uintptr_t)*out, from->bytes);
    return WEIR_OK;
}

static weir_status open_locked(weir__emulated *self, const weir__shared *from,
                               void **out)
{
    int fd = -1;
    weir_status status = WEIR_OK;
    weir__pool_place place = { .file_bytes = from->bytes, .bytes = from->bytes };
    if (from->kind == WEIR_SHARE_POOL)
        status = place_read(from, &place);
    else if (!is_kind(from->kind))
        status = fail_open(0, "its kind is unknown");
    if (status != WEIR_OK)
        return status;
    status = from->kind == WEIR_SHARE_LEGACY ? legacy_open(from, &fd)
             : from->kind == WEIR_SHARE_POOL ? pool_open(from, &place, &fd)
                                             : fd_open(from, &fd);
    return status == WEIR_OK ? import_locked(self, from, &place, fd, out) : status;
}

weir_status weir__emulated_shared_open(void *device, const weir__shared *from,
                                       void **out)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_open);
    if (status == WEIR_OK)
        status = open_locked(self, from, out);
    weir__mutex_unlock(&self->lock);
    return status;
}

weir_status weir__emulated_shared_close(void *device, void *ptr)
{
    weir__emulated *self = device;
    weir_status status = weir__emulated_begin(self, WEIR__CALL_shared_close);
    if (status == WEIR_OK)
        status = end_locked(self, WEIR__CALL_shared_close, ptr, true);
    weir__mutex_unlock(&self->lock);
    return status;
}
