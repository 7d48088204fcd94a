/* ipc.c - what exports and imports share: the list of both, the start of the service,
 * forks, and the end of a device. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "ipc.h"
#include "ipc_internal.h"
#include "ipc_service.h"

weir__ipc weir__ipc_all = { .lock = WEIR__MUTEX_INIT(WEIR__RANK_IPC),
                            .changed = WEIR__COND_INIT,
                            .wake = -1,
                            .listener = -1 };

int64_t weir__ipc_now(void)
{
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool weir__ipc_must_push(const weir_device *device)
{
    const weir__device_ops *ops = device->ops;
    return ops->emulated != NULL && ops->emulated(device->self) != NULL;
}

void weir__message_close(const weir__message *message)
{
    int fds[WEIR__MESSAGE_FDS];
    uint32_t count = weir__message_fds(message, fds);
    for (uint32_t i = 0; i < count; i++)
        (void)close(fds[i]);
}

bool weir__peer_has_ended(const weir__peer_process *peer)
{
    struct pollfd process = { .fd = peer->pidfd, .events = POLLIN };
    return poll(&process, 1, 0) > 0;
}

/* ---- forks ---- */

static bool is_child; /* of one that used this: here it is never used again */

static void before_fork(void)
{
    if (!is_child)
        weir__mutex_lock(&weir__ipc_all.lock);
}

static void after_fork(void)
{
    if (!is_child)
        weir__mutex_unlock(&weir__ipc_all.lock);
}

/* Who talks to the parent must not find its child at the other end. The lock stays
 * taken; and a child that forks in turn has closed it all before. */
static void child_after_fork(void)
{
    weir__ipc *it = &weir__ipc_all;
    if (is_child)
        return;
    is_child = true;
    if (it->listener >= 0)
        (void)close(it->listener);
    for (weir__connection *c = it->connections; c != NULL; c = c->next) {
        if (c->fd >= 0)
            (void)close(c->fd);
    }
    for (weir__import *i = it->imports; i != NULL; i = i->next) {
        if (i->fd >= 0)
            (void)close(i->fd);
    }
}

static void watch(void)
{
    (void)pthread_atfork(before_fork, after_fork, child_after_fork);
}

/* ---- the service ---- */

void weir__ipc_wake(void)
{
    const uint64_t one = 1;
    if (weir__ipc_all.wake >= 0 &&
        write(weir__ipc_all.wake, &one, sizeof one) != sizeof one)
        WEIR_CHECK(errno == EAGAIN, "the service cannot be woken");
}

static weir_status start_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    weir__ipc *it = &weir__ipc_all;
    (void)pthread_once(&once, watch);
    it->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (it->wake < 0)
        return weir__fail(WEIR_FILE_ERROR, "no file descriptor for IPC: %s",
                          strerror(errno));
    weir_status status = weir__service_start();
    if (status == WEIR_OK) {
        it->is_running = true;
        return WEIR_OK;
    }
    (void)close(it->wake);
    it->wake = -1;
    return status;
}

/* Where nobody finds the socket any more: the one that takes its place has its number,
 * for the service may just be waiting there, and as a rule its path, so that tickets
 * that are out are good again. */
static weir_status listen_again(void) WEIR_REQUIRES(weir__ipc_all.lock)
{
    weir__ipc *it = &weir__ipc_all;
    char path[sizeof it->path];
    int fd, code;
    weir_status status = weir__socket_listen(path, &fd);
    if (status != WEIR_OK)
        return status;
    do {
        code = dup3(fd, it->listener, O_CLOEXEC);
    } while (code < 0 && (errno == EINTR || errno == EBUSY));
    if (code < 0) { /* as where fewer may be open than were */
        status = weir__fail_native(WEIR_FILE_ERROR, errno, "the socket of IPC cannot "
                                   "take the place of the one that was removed: %s",
                                   strerror(errno));
        weir__socket_unlisten(path, fd);
        return status;
    }
    (void)close(fd);
    memcpy(it->path, path, sizeof path);
    return WEIR_OK;
}

weir_status weir__ipc_start(bool listens)
{
    weir__ipc *it = &weir__ipc_all;
    weir_status status = it->is_running ? WEIR_OK : start_thread();
    if (status != WEIR_OK || !listens)
        return status;
    if (it->listener < 0)
        status = weir__socket_listen(it->path, &it->listener);
    else if (!weir__socket_is_there(it->path))
        status = listen_again();
    else
        return WEIR_OK;
    weir__ipc_wake(); /* for the listener, or to end if there is nothing */
    return status;
}

static bool has_work(void) WEIR_REQUIRES(weir__ipc_all.lock)
{
    const weir__ipc *it = &weir__ipc_all;
    const weir__connection *open = it->connections;
    while (open != NULL && !open->is_open)
        open = open->next;
    return it->exports != NULL || it->owed != NULL || it->imports != NULL ||
           open != NULL;
}

void weir__ipc_settle(void)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__ipc_wake();
    if (it->service != weir__thread_self()->number) {
        while (it->is_running && !has_work())
            weir__cond_wait(&it->changed, &it->lock);
    }
    weir__mutex_unlock(&it->lock);
}

/* ---- what there is ---- */

weir_status weir_ipc_get_statistics(weir_ipc_statistics *out)
{
    weir_ipc_statistics all = { .struct_size = sizeof all };
    weir_status status = weir__fill_out(out, &all, sizeof all);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    for (weir__export *e = it->exports; e != NULL; e = e->next)
        all.exports++;
    for (weir__connection *c = it->connections; c != NULL; c = c->next)
        all.importers += c->is_open;
    for (weir__import *i = it->imports; i != NULL; i = i->next) {
        bool is_open = i->storage != NULL;
        all.imports += is_open;
        all.cached += !is_open && i->base != NULL;
        all.cached_bytes += is_open || i->base == NULL ? 0 : i->base_bytes;
    }
    all.maps = it->maps;
    all.refused = it->refused;
    weir__mutex_unlock(&it->lock);
    return weir__fill_out(out, &all, sizeof all);
}
