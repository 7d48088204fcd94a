/* emulated_shared.h - what an emulated device shares with those of other processes:
 * memory, each an object of its own, and events. */
#ifndef WEIR_DEVICE_EMULATED_SHARED_H
#define WEIR_DEVICE_EMULATED_SHARED_H

#include "device/emulated.h"
#include "device/ledger_foreign.h"

#define WEIR__OBJECT_GRANULE ((size_t)2 << 20)

/* What the octets of kind POOL begin with: where in the pool's file a block is. */
typedef struct weir__pool_place {
    uint64_t magic;
    uint64_t file_bytes;
    uint64_t offset;
    uint64_t bytes;
} weir__pool_place;

/* ---- objects: emulated_memory.c ---- */

/* A new one, of whole granules, which count as the device's memory. */
weir_status weir__object_make(weir__arena *home, weir_share_kind kind, size_t bytes,
                              weir__arena **out);
/* One for a pool, that may have so many bytes. What is made in it is the device's. */
weir_status weir__object_make_pool(weir__arena *home, size_t bytes, weir__arena **out);
weir_status weir__object_malloc(weir__arena *pool, size_t bytes, void **out);
void weir__object_free(weir__arena *pool, void *ptr);
/* Another's, which is no memory of the device's: `fd` is its file, checked, which has
 * all that `place` says, and the object's from now on; on failure it stays the
 * caller's. */
weir_status weir__object_import(weir__arena *home, weir_share_kind kind,
                                const weir__pool_place *place, int fd,
                                weir__arena **out);
void weir__object_end(weir__arena *object);
/* The object at home in `home` that has all of the bytes; null: none. */
weir__arena *weir__object_find(const weir__arena *home, const void *ptr, size_t bytes);

/* ---- memory: emulated_shared.c ---- */

/* What was opened at `ptr` of another process's pool, and was, or was not, freed in
 * stream order since; null: nothing. */
weir__arena *weir__shared_import_at(const weir__emulated *self, const void *ptr,
                                    bool is_freed);
/* It is freed in stream order: its exporter may free it, too. */
void weir__shared_free_import(weir__arena *import);
/* The bytes go back to `pool`: a finding, if another process (or this) has opened them
 * and not freed them. */
void weir__shared_judge_free(weir__emulated *self, const weir__arena *pool,
                             uint64_t stream, uintptr_t ptr, size_t bytes);

weir_status weir__emulated_shared_malloc(void *device, weir_share_kind kind,
                                         size_t bytes, void **out);
weir_status weir__emulated_shared_free(void *device, void *ptr);
weir_status weir__emulated_shared_find(void *device, const void *ptr, size_t bytes,
                                       void **base, weir__shared *out);
weir_status weir__emulated_shared_export(void *device, void *base, weir__shared *out);
weir_status weir__emulated_shared_open(void *device, const weir__shared *from,
                                       void **out);
weir_status weir__emulated_shared_close(void *device, void *ptr);

/* ---- events: emulated_shared_event.c ---- */

/* What two processes know of one event. Counted, under the device's lock: by the event,
 * and by the work that waits for it or tells of it. */
typedef struct weir__shared_state weir__shared_state;

void weir__shared_state_ref(weir__shared_state *state);
void weir__shared_state_unref(weir__shared_state *state); /* null: nothing */
/* Of another process's: whether what its record number `record` stands for is done. */
bool weir__shared_state_is_done(weir__shared_state *state, uint64_t record);
/* Of this process's: what its record number `record` stands for is done. */
void weir__shared_state_tell(weir__shared_state *state, uint64_t record);

bool weir__event_is_foreign(const weir__event *event);
/* Before `event`, which is shared, is recorded on `queue`: refuses another process's,
 * and what would be captured. */
weir_status weir__shared_event_admit(const weir__event *event,
                                     const weir__queue *queue);
/* It was, by `put` (null: there is no work), and knows what it has learned. */
void weir__shared_event_recorded(weir__event *event, weir__work *put);
/* These are of another process's. */
weir_status weir__shared_event_stream_wait(const weir__event *event,
                                           weir__queue *queue);
weir_status weir__shared_event_query(const weir__event *event, bool *done);
weir_status weir__shared_event_sync(const weir__event *event);
/* See note_foreign in device.h. The device keeps a ledger. */
void weir__shared_event_note(const weir__event *event, void *ptr, size_t bytes,
                             bool writes);

/* Looks at `work`, the first of its queue: false if no other process holds it up. */
bool weir__work_look(weir__emulated *device, weir__work *work);

weir_status weir__emulated_shared_event_create(void *device, weir_event *out,
                                               weir__shared_event *handle);
weir_status weir__emulated_shared_event_open(void *device,
                                             const weir__shared_event *handle,
                                             weir_event *out);

#endif
