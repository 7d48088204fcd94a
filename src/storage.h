/* storage.h - the counted owner of some bytes: a resource's block, or foreign memory
 * with its deleter. Notes which streams use the bytes, and gives them back behind all
 * of that when its last holder leaves.
 *
 * A holder (a buffer, an exported tensor) has a stream, and counts as a use of that up
 * to when it leaves: so as long as a holder is at `home`, the clock of the first, no
 * other at home has anything to note. The last one sets out from home before it takes
 * its mark, for others may come meanwhile, and go with a later one. What is noted is a
 * mark for reading and one for writing of each stream; there is room for a few. Of more
 * streams one waits for another, and then its mark is good for both. */
#ifndef WEIR_STORAGE_H
#define WEIR_STORAGE_H

#include "device/device.h"
#include "stream_order.h"
#include "sync.h"
#include "weir/buffer.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define WEIR__STORAGE_USES 2u
#else
#define WEIR__STORAGE_USES 4u
#endif

typedef struct weir__use {
    uint64_t clock;
    uint64_t read, write; /* numbers; 0: has not */
} weir__use;

struct weir_storage {
    _Atomic uint64_t holders;  /* low half: all of them, and a bit for there having been
                                  weak ones; high half: those at home */
    _Atomic uint32_t records;  /* who needs this record: weak holders, and all others
                                  together one */
    atomic_bool is_exported;   /* there are tickets for it (weir/ipc.h), or were */
    bool is_block;             /* a resource's */
    bool read_only;
    bool ignores_stream;       /* the deleter does */
    weir_memory_kind kind;
    bool keeps_device;         /* counts it; else a block does, or what the deleter
                                  ends */
    weir_device *device;
    weir_resource *resource;   /* of a block, which keeps it */
    void *ptr;
    size_t bytes;
    size_t alignment;          /* of a block */
    weir_deleter deleter;      /* of foreign memory, may be null */
    void *context;
    uint64_t home;             /* a clock */
    weir__mutex lock;          /* guards the uses */
    _Atomic uint32_t use_count; /* also read without the lock */
    _Atomic uint32_t notes;     /* how often one was noted, or left unnamed; likewise */
    _Atomic uint64_t unnamed_all, unnamed_writes; /* numbers of aside marks behind work
                                   that nobody can name, 0: there was none; likewise */
    weir__use uses[WEIR__STORAGE_USES + 1]; /* one more for the last holder's stream */
    struct weir_storage *next; /* of those that wait for their end */
};

/* One holder's stream. Without one (WEIR__HOLDER_NONE) it has nothing on any stream
 * when it leaves. */
typedef struct weir__holder {
    weir__life life; /* first: as a buffer keeps it, 16 bytes at once */
    weir_stream stream;
} weir__holder;

#define WEIR__HOLDER_NONE ((weir__holder){ { 0, 0 }, WEIR__NO_STREAM })

/* Whether `stream` is a holder's, known to be the same still. */
static inline bool weir__holder_is_on(weir__order *order, const weir__holder *holder,
                                      weir_stream stream)
{
    return (stream == holder->stream ||
            weir__stream_of(stream) == weir__stream_of(holder->stream)) &&
           holder->life.changes != 0 &&
           weir__order_lives(order, holder->stream, holder->life);
}

/* Of what kind the blocks of `mr` are. */
weir_memory_kind weir__memory_kind(const weir_resource *mr);

/* Storage with one holder, for a block that `mr` has out. */
weir_status weir__storage_of_block(weir_resource *mr, void *ptr, size_t bytes,
                                   size_t alignment, weir__holder holder,
                                   weir_storage **out);
/* The same for foreign memory, with `extra` bytes behind the record (see
 * weir__storage_extra) in the same host allocation. If nothing that its deleter ends
 * keeps the device open, the storage has to. */
weir_status weir__storage_of_foreign(weir_device *device, const weir_foreign *foreign,
                                     weir__holder holder, size_t extra,
                                     weir_storage **out);
void weir__storage_keep_device(weir_storage *self);
static inline void *weir__storage_extra(weir_storage *self)
{
    return self + 1;
}

/* In `holders`. */
#define WEIR__AT_HOME      ((uint64_t)1 << 32)
#define WEIR__WEAKENED     ((uint64_t)1 << 31)
#define WEIR__HOLDERS_MASK (WEIR__WEAKENED - 1)
static inline uint64_t weir__storage_share(const weir_storage *self,
                                           weir__holder holder)
{
    return holder.life.clock == self->home ? WEIR__AT_HOME + 1 : 1;
}

/* One more holder, of which one is there already; or none: then false. */
static inline void weir__storage_hold(weir_storage *self, weir__holder holder)
{
    uint64_t share = weir__storage_share(self, holder);
    uint64_t before =
        atomic_fetch_add_explicit(&self->holders, share, memory_order_relaxed);
    WEIR_CHECK((before & WEIR__HOLDERS_MASK) != 0,
               "only what is held can be held by one more");
}
bool weir__storage_hold_weak(weir_storage *self, weir__holder holder);
bool weir__storage_is_alone(const weir_storage *self);
/* Whether anybody holds it. */
bool weir__storage_is_held(const weir_storage *self);

/* A holder leaves: the last gives the bytes back. Cannot fail, and asks for no host
 * memory. To be called without locks. *holder is read to the end: it must not lie in
 * what ends with the bytes. */
void weir__storage_leave(weir_storage *self, const weir__holder *holder);
/* The same for a holder with nothing of its own on its stream. Others at home may have
 * left that to it. */
void weir__storage_leave_idle(weir_storage *self, weir__holder holder);
/* The same for a holder without a stream, whose work is on some that it cannot name.
 * Makes no device call. */
void weir__storage_leave_unnamed(weir_storage *self);

/* The only holder makes sure of that: from now on there is none, and nobody becomes
 * one; *was is for unclaim. False: others hold the bytes, and nothing has changed. One
 * of the next follows. */
bool weir__storage_claim(weir_storage *self, uint64_t *was);
/* It is the only holder again. */
void weir__storage_unclaim(weir_storage *self, uint64_t was);
/* The bytes go back, behind `holder`'s stream and what is noted. */
void weir__storage_end_claimed(weir_storage *self, weir__holder holder);
/* The block goes back likewise, and another is the storage's, with one holder. */
void weir__storage_replace(weir_storage *self, weir_resource *mr, void *ptr,
                           size_t bytes, size_t alignment, weir__holder holder);
/* The bytes are no concern of the storage's any more. */
void weir__storage_forget(weir_storage *self);

/* The record is needed by one more, a weak holder that a holder makes; or by one
 * less. */
void weir__storage_keep_record(weir_storage *self);
void weir__storage_drop_record(weir_storage *self);
/* Whether it may not be used for other bytes: a weak holder needs it, or limbo will. */
bool weir__storage_is_bound(const weir_storage *self);

/* What is on the holder's stream is noted, as a write. If that has ended and there is
 * no room, `heir` waits for it, and is noted. */
weir_status weir__storage_note(weir_storage *self, weir__holder holder,
                               weir_stream heir);
/* A holder leaves its stream for another one: first it sets out, then what is on the
 * old stream is noted, or waited for by the new one, and last it settles there, or, if
 * that failed, where it was. In between it may claim the storage, but not leave it. */
void weir__storage_set_out(weir_storage *self, weir__holder from);
void weir__storage_settle(weir_storage *self, weir__holder at);

/* What has been put on some stream by now uses the bytes, and nobody can name it. Asks
 * for no host memory, and makes no device call. */
void weir__storage_note_unnamed(weir_storage *self, weir_access access);
/* Whether that may still run, seen from the stream of clock `t`. */
bool weir__storage_is_unnamed(weir_storage *self, uint64_t t);
/* See weir_buffer_use. */
weir_status weir__storage_use(weir_storage *self, weir_stream stream,
                              weir_access access);
/* The same for what has been put on `stream` already: where it cannot be noted, nobody
 * can name it. */
void weir__storage_use_surely(weir_storage *self, weir_stream stream,
                              weir_access access);
/* The same for a stream in that life, with its mark: where its event cannot be recorded
 * that is an aside one. */
weir__mark weir__storage_note_user(weir_storage *self, weir__holder user,
                                   weir_access access);
/* Whether others than the holders' streams have used the bytes, as far as that is not
 * known to be over. */
static inline bool weir__storage_has_uses(const weir_storage *self)
{
    return self->use_count != 0 || self->unnamed_all != 0;
}
/* See weir_buffer_wait. For a stream that is `holder`'s nothing is asked of the order
 * where nothing is noted. */
weir_status weir__storage_wait_for_others(weir_storage *self, weir__holder holder,
                                          weir_stream stream, weir_access access);
static inline weir_status weir__storage_wait(weir_storage *self, weir__holder holder,
                                             weir_stream stream, weir_access access)
{
    if (!weir__storage_has_uses(self) &&
        weir__holder_is_on(self->device->order, &holder, stream))
        return WEIR_OK;
    return weir__storage_wait_for_others(self, holder, stream, access);
}
weir_status weir__storage_wait_sync(weir_storage *self, weir__holder holder,
                                    weir_access access);

/* Gives the bytes, which nobody holds, back behind the uses that are noted; for
 * pending.c. `all_done`: nothing uses them any more. False: a use is not known to be
 * done, and the deleter cannot wait. */
bool weir__storage_end(weir_storage *self, bool all_done);

#endif
