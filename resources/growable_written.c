/* growable_written.c - see growable_written.h. */
#include "growable_written.h"

#include "internal.h"

void weir__written_init(weir__written *self, weir_device *device)
{
    self->device = device;
    self->mark = WEIR__MARK_DONE;
    weir__mutex_init(&self->lock, WEIR__RANK_GROWABLE);
}

void weir__written_end(weir__written *self)
{
    weir__mutex_destroy(&self->lock);
}

void weir__written_note(weir__written *self, weir_stream stream)
{
    weir__mark mark = weir__order_free_mark(self->device->order, stream, 0);
    weir__mutex_lock(&self->lock);
    self->mark = mark;
    weir__mutex_unlock(&self->lock);
}

weir_status weir__written_sync(weir__written *self, uint64_t key)
{
    weir__mutex_lock(&self->lock);
    weir__mark mark = self->mark;
    weir__mutex_unlock(&self->lock);
    if (mark.clock == WEIR__MARK_DONE.clock)
        return WEIR_OK;
    weir_status status = weir__order_sync(self->device->order, mark);
    if (status != WEIR_OK)
        return status;
    weir__note_done(self->device, key, NULL); /* who unmaps later learns it there */
    weir__mutex_lock(&self->lock);
    if (self->mark.clock == mark.clock && self->mark.number == mark.number)
        self->mark = WEIR__MARK_DONE;
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}
