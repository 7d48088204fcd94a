/* storage_internal.h - what storage.c (holders, the end) asks of storage_uses.c (who
 * uses the bytes). */
#ifndef WEIR_STORAGE_INTERNAL_H
#define WEIR_STORAGE_INTERNAL_H

#include "internal.h"
#include "storage.h"

static inline weir__order *weir__storage_order(const weir_storage *self)
{
    return self->device->order;
}

/* The ledger need not keep any longer what it was told of uses. */
void weir__storage_tell_over(weir_storage *self);

/* All that is on the holder's stream counts as a write. If there is no way to note
 * that, nobody can name it. */
void weir__storage_note_holder(weir_storage *self, weir__holder holder);
/* The same for one who leaves for good; there is always room. */
void weir__storage_note_last(weir_storage *self, weir__holder holder);

/* Drops what is the stream's of clock `t`, or what that is behind, or is done. For who
 * holds the storage alone, or ends it. */
void weir__storage_drop_passed(weir_storage *self, uint64_t t);

/* The marks that an access has to wait for, but those of clock `t`; their number. */
uint32_t weir__storage_marks(weir_storage *self, uint64_t t, weir_access access,
                             weir__mark *out);
weir_status weir__storage_wait_marks(weir_storage *self, uint64_t t, weir_stream stream,
                                     const weir__mark *marks, uint32_t count);

#endif
