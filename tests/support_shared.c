/* support_shared.c - see support_shared.h. */
#include "support_shared.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

const weir_share_kind shared_kinds[2] = { WEIR_SHARE_FD, WEIR_SHARE_LEGACY };

unsigned char *make_shared(weir_device *device, weir_share_kind kind,
                                  size_t bytes)
{
    void *ptr;
    must_ok(weir__shared_malloc(device, kind, bytes, &ptr));
    return ptr;
}

weir__shared export_shared(weir_device *device, void *base)
{
    weir__shared shared;
    must_ok(weir__shared_export(device, base, &shared));
    return shared;
}

unsigned char *open_shared(weir_device *device, const weir__shared *shared)
{
    void *ptr;
    must_ok(weir__shared_open(device, shared, &ptr));
    return ptr;
}

void drop_shared(const weir__shared *shared)
{
    if (shared->fd >= 0)
        close(shared->fd);
}

unsigned open_descriptors(void)
{
    unsigned count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

void must_not_open(weir_device *device, const weir__shared *shared)
{
    void *none = device;
    unsigned before = open_descriptors();
    must_answer(WEIR_INVALID_ARGUMENT, weir__shared_open(device, shared, &none));
    must(none == device);
    must_equal(open_descriptors(), before);
}

weir__shared own_file(size_t bytes, int seals)
{
    weir__shared shared = { .kind = WEIR_SHARE_FD, .bytes = bytes };
    shared.fd = memfd_create("any", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must(shared.fd >= 0 && ftruncate(shared.fd, (off_t)bytes) == 0);
    must(seals == 0 || fcntl(shared.fd, F_ADD_SEALS, seals) == 0);
    return shared;
}
