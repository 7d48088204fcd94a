/* ipc_service.c - the thread that answers other processes, and watches those whose
 * memory is mapped here. It sleeps until something comes, or is due. */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "ipc_internal.h"
#include "ipc_service.h"

#define PUSH_MS   1
#define REST_MS   10    /* after what failed for want of something */

/* Who connects and asks for nothing is sent away. */
#ifdef WEIR_TESTING
atomic_int weir__ipc_silent_ms = 10000;
#define SILENT_MS weir__ipc_silent_ms
#else
#define SILENT_MS 10000
#endif

/* The service's own; one at a time runs. */
typedef struct service {
    struct pollfd *polls;
    size_t count;
    size_t room;
    int64_t now;
    int64_t next;     /* when something is due; -1: nothing is */
    int64_t rest;     /* until then nobody is let in */
} service;

/* ---- what to wait for ---- */

static void due(service *self, int64_t when)
{
    if (self->next < 0 || when < self->next)
        self->next = when;
}

/* Its place; for a descriptor of -1 nothing ever happens there. */
static size_t add(service *self, int fd)
{
    self->polls[self->count] = (struct pollfd){ .fd = fd, .events = POLLIN };
    return self->count++;
}

static bool grow(service *self, size_t count)
{
    if (count <= self->room)
        return true;
    struct pollfd *polls = weir__host_alloc(2 * count * sizeof *polls);
    if (polls == NULL)
        return false;
    weir__host_free(self->polls);
    self->polls = polls;
    self->room = 2 * count;
    return true;
}

static size_t count_all(void) WEIR_REQUIRES(weir__ipc_all.lock)
{
    size_t count = 2;
    for (weir__connection *c = weir__ipc_all.connections; c != NULL; c = c->next)
        count += 2;
    for (weir__import *i = weir__ipc_all.imports; i != NULL; i = i->next)
        count++;
    return count;
}

static void gather_imports(service *self) WEIR_REQUIRES(weir__ipc_all.lock)
{
    for (weir__import *i = weir__ipc_all.imports; i != NULL; i = i->next) {
        bool is_ours = i->state != WEIR__IMPORT_ASKING;
        i->slot = add(self, is_ours ? i->fd : -1);
        if (is_ours && i->is_used && weir__ipc_must_push(i->device))
            due(self, self->now + PUSH_MS);
    }
}

/* A stepped device needs a push until the events that others wait for are done. */
static void exports_serve(service *self)
{
    bool is_left;
    weir__export_push(NULL, &is_left);
    if (is_left)
        due(self, self->now + PUSH_MS);
}

static void gather_exports(service *self) WEIR_REQUIRES(weir__ipc_all.lock)
{
    for (weir__export *e = weir__ipc_all.exports; e != NULL; e = e->next) {
        if (weir__export_is_owed(e))
            due(self, self->now + PUSH_MS);
    }
}

static void gather_connections(service *self) WEIR_REQUIRES(weir__ipc_all.lock)
{
    for (weir__connection *c = weir__ipc_all.connections; c != NULL; c = c->next) {
        c->slot = add(self, c->fd);
        (void)add(self, c->peer.pidfd);
        if (c->export == NULL)
            due(self, c->since + SILENT_MS);
    }
}

/* False: no memory to wait for all, so for a while there is no waiting. */
static bool gather(service *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    self->count = 0;
    bool has_room = grow(self, count_all());
    if (has_room) {
        (void)add(self, it->wake);
        (void)add(self, self->now < self->rest ? -1 : it->listener);
        gather_connections(self);
        gather_imports(self);
        gather_exports(self);
    }
    if (self->now < self->rest)
        due(self, self->rest);
    weir__mutex_unlock(&it->lock);
    return has_room;
}

/* ---- who comes ---- */

static void let_in(service *self)
{
    weir__peer_process peer;
    int fd;
    weir__mutex_lock(&weir__ipc_all.lock); /* another may take the listener's place */
    weir_status status = weir__socket_accept(weir__ipc_all.listener, &peer, &fd);
    weir__mutex_unlock(&weir__ipc_all.lock);
    if (status == WEIR_NOT_FOUND)
        return;
    weir__connection *made = NULL;
    if (status == WEIR_OK)
        made = weir__host_alloc(sizeof *made);
    if (status == WEIR_OK && made == NULL) {
        (void)close(fd);
        weir__peer_close(&peer);
    }
    weir__mutex_lock(&weir__ipc_all.lock);
    if (made != NULL) {
        *made = (weir__connection){ .next = weir__ipc_all.connections, .fd = fd,
                                    .peer = peer, .since = self->now,
                                    .slot = WEIR__IPC_NO_SLOT };
        weir__ipc_all.connections = made;
    } else {
        weir__ipc_all.refused++;
        self->rest = self->now + REST_MS;
    }
    weir__mutex_unlock(&weir__ipc_all.lock);
}

/* ---- what has come ---- */

static bool has_come(const service *self, size_t slot)
{
    return slot < self->count && self->polls[slot].fd >= 0 &&
           self->polls[slot].revents != 0;
}

/* What it has asked for, or could ask for, there is no more. */
static bool is_over(const weir__connection *self)
{
    weir__mutex_lock(&weir__ipc_all.lock);
    bool is_over = self->export != NULL ? self->export->is_over
                                        : weir__ipc_all.exports == NULL;
    weir__mutex_unlock(&weir__ipc_all.lock);
    return is_over;
}

/* Whether there is anything left of it. */
static bool serve(const service *self, weir__connection *connection)
{
    size_t slot = connection->slot;
    if (slot != WEIR__IPC_NO_SLOT && has_come(self, slot))
        weir__connection_read(connection);
    else if (slot != WEIR__IPC_NO_SLOT && has_come(self, slot + 1))
        weir__connection_ended(connection); /* and it had nothing left to say */
    if (connection->is_open) {
        if (connection->fd >= 0 && !connection->is_told && is_over(connection))
            weir__connection_tell(connection);
        return true;
    }
    if (connection->export == NULL && self->now >= connection->since + SILENT_MS)
        return false;
    return connection->fd >= 0 && !is_over(connection);
}

static void drain(const weir__export *export, const weir__connection *but)
{
    for (weir__connection *c = weir__ipc_all.connections; c != NULL; c = c->next) {
        bool is_meant = c != but && c->export != NULL &&
                        (export == NULL || c->export == export);
        while (is_meant && c->is_open && c->fd >= 0 && weir__connection_read(c)) {
            /* until nothing has come */
        }
    }
}

void weir__connections_drain(const weir__export *export, const weir__connection *but)
{
    static bool is_draining; /* what is read then does not begin anew */
    if (is_draining || (export != NULL && export->access != WEIR_WRITE))
        return;
    is_draining = true;
    drain(export, but);
    is_draining = false;
}

/* For those who wait in weir__service_drain. */
static void drain_all(void)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    uint64_t wanted = it->drains_wanted;
    bool is_wanted = wanted != it->drains_done;
    weir__mutex_unlock(&it->lock);
    if (is_wanted)
        weir__connections_drain(NULL, NULL);
    weir__mutex_lock(&it->lock);
    it->drains_done = wanted;
    weir__cond_broadcast(&it->changed);
    weir__mutex_unlock(&it->lock);
}

void weir__service_drain(const weir__export *export)
{
    weir__ipc *it = &weir__ipc_all;
    if (export->access != WEIR_WRITE)
        return;
    weir__mutex_lock(&it->lock);
    bool is_service = it->service == weir__thread_self()->number;
    if (!is_service) {
        uint64_t wanted = ++it->drains_wanted;
        weir__ipc_wake();
        while (it->drains_done < wanted)
            weir__cond_wait(&it->changed, &it->lock);
    }
    weir__mutex_unlock(&it->lock);
    /* Then a deleter opens it, of bytes whose own tickets are over: no connection that
     * is being read is one of this. */
    if (is_service)
        drain(export, NULL);
}

static void connections_serve(const service *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir__connection **link = &it->connections; /* changed by nobody else */
    while (*link != NULL) {
        weir__connection *connection = *link;
        if (serve(self, connection)) {
            link = &connection->next;
            continue;
        }
        weir__mutex_lock(&it->lock);
        *link = connection->next;
        weir__ipc_wake(); /* to end, if that was all */
        weir__mutex_unlock(&it->lock);
        weir__connection_free(connection);
    }
}

static weir__import *take_idle(service *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    weir__import **link = &it->imports;
    while (*link != NULL && !weir__import_is_idle(*link, self->now, &self->next))
        link = &(*link)->next;
    weir__import *found = *link;
    if (found != NULL) {
        *link = found->next;
        it->unmapping++;
    }
    weir__mutex_unlock(&it->lock);
    return found;
}

static void imports_serve(service *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    for (weir__import *i = it->imports; i != NULL; i = i->next) {
        if (i->state != WEIR__IMPORT_ASKING && i->slot != WEIR__IPC_NO_SLOT &&
            has_come(self, i->slot))
            weir__import_read(i);
        i->slot = WEIR__IPC_NO_SLOT;
    }
    weir__cond_broadcast(&it->changed);
    weir__mutex_unlock(&it->lock);

    weir__import *found;
    while ((found = take_idle(self)) != NULL) {
        weir__import_free(found);
        weir__mutex_lock(&it->lock);
        it->unmapping--;
        weir__ipc_wake(); /* to end, if that was all */
        weir__cond_broadcast(&it->changed);
        weir__mutex_unlock(&it->lock);
    }
}

/* ---- the thread ---- */

static void wait(service *self)
{
    int timeout = self->next < 0 ? -1
                  : self->next > self->now ? (int)(self->next - self->now)
                                           : 0;
    while (poll(self->polls, self->count, timeout) < 0) {
        WEIR_CHECK(errno == EINTR, "the service cannot wait");
    }
    uint64_t ignored;
    if (has_come(self, 0) && read(self->polls[0].fd, &ignored, sizeof ignored) < 0)
        WEIR_CHECK(errno == EAGAIN, "the service cannot read who woke it");
}

/* Nothing is exported or imported: then the thread ends, and nobody knows it. */
static bool may_end(service *self)
{
    weir__ipc *it = &weir__ipc_all;
    weir__mutex_lock(&it->lock);
    bool ends = it->exports == NULL && it->owed == NULL && it->connections == NULL &&
                it->imports == NULL && it->unmapping == 0 &&
                it->drains_done == it->drains_wanted;
    if (ends) {
        weir__host_free(self->polls);
        if (it->listener >= 0)
            weir__socket_unlisten(it->path, it->listener);
        (void)close(it->wake);
        it->listener = it->wake = -1;
        it->is_running = false;
        weir__cond_broadcast(&it->changed);
    }
    weir__mutex_unlock(&it->lock);
    return ends;
}

static void *run(void *unused)
{
    service self = { .polls = NULL };
    (void)unused;
    weir__mutex_lock(&weir__ipc_all.lock);
    weir__ipc_all.service = weir__thread_self()->number;
    weir__mutex_unlock(&weir__ipc_all.lock);
    do {
        self.next = -1;
        self.now = weir__ipc_now();
        imports_serve(&self);
        connections_serve(&self);
        drain_all();
        exports_serve(&self);
        if (has_come(&self, 1))
            let_in(&self);
        if (!gather(&self))
            due(&self, self.now + REST_MS);
        wait(&self);
    } while (!may_end(&self));
    return NULL;
}

weir_status weir__service_start(void)
{
    pthread_attr_t attributes;
    pthread_t thread;
    sigset_t all, before;
    if (pthread_attr_init(&attributes) != 0)
        return weir__fail(WEIR_FILE_ERROR, "no thread for IPC");
    (void)pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    (void)sigfillset(&all);
    (void)pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are the program's */
    int failed = pthread_create(&thread, &attributes, run, NULL);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    (void)pthread_attr_destroy(&attributes);
    return failed == 0 ? WEIR_OK
                       : weir__fail(WEIR_FILE_ERROR, "no thread for IPC: %s",
                                    strerror(failed));
}
