/* cuda_mappings.c - what a CUDA device has mapped of objects that a file descriptor
 * can stand for.
 *
 * The driver finds an address's object too, but not which addresses were given out as
 * such, nor in how many bytes. In order of their addresses in one array: there are few,
 * and each cost a hundred microseconds. A place is promised before the first call of
 * the driver and kept while one ends, so that nothing here can fail halfway. */
#include <stdint.h>
#include <string.h>

#include "device/cuda_module.h"

#define ROOM_AT_FIRST 16

void weir__cuda_mappings_begin(weir__cuda *self)
{
    self->host->mutex_init(&self->mappings.lock, WEIR__RANK_MAPPINGS);
}

void weir__cuda_mappings_end(weir__cuda *self)
{
    self->host->mutex_destroy(&self->mappings.lock);
    self->host->host_free(self->mappings.at);
}

/* True: a place is kept. False: there are only *room, all of them taken. */
static bool try_promise(weir__cuda *self, size_t *room)
{
    weir__cuda_mappings *all = &self->mappings;
    self->host->mutex_lock(&all->lock);
    bool has = all->count + all->promised < all->room;
    if (has)
        all->promised++;
    *room = all->room;
    self->host->mutex_unlock(&all->lock);
    return has;
}

/* Puts a longer array, which it takes over, in the place of that with `room`. */
static void move_to(weir__cuda *self, weir__cuda_mapping *at, size_t longer,
                    size_t room)
{
    weir__cuda_mappings *all = &self->mappings;
    self->host->mutex_lock(&all->lock);
    weir__cuda_mapping *old = at; /* another thread was here first */
    if (all->room == room) {
        old = all->at;
        if (all->count != 0)
            memcpy(at, old, all->count * sizeof *at);
        all->at = at;
        all->room = longer;
    }
    self->host->mutex_unlock(&all->lock);
    self->host->host_free(old);
}

weir_status weir__cuda_mappings_promise(weir__cuda *self)
{
    size_t room;
    while (!try_promise(self, &room)) {
        size_t longer = room == 0 ? ROOM_AT_FIRST : 2 * room;
        weir__cuda_mapping *at = self->host->host_alloc(longer * sizeof *at);
        if (at == NULL)
            return weir__cuda_fail(self, WEIR_OUT_OF_HOST_MEMORY, 0,
                                   "no memory for the record of a mapping");
        move_to(self, at, longer, room);
    }
    return WEIR_OK;
}

void weir__cuda_mappings_drop(weir__cuda *self)
{
    self->host->mutex_lock(&self->mappings.lock);
    self->mappings.promised--;
    self->host->mutex_unlock(&self->mappings.lock);
}

/* How many begin at `address` or below it. Under the lock. */
static size_t count_up_to(const weir__cuda_mappings *all, CUdeviceptr address)
{
    size_t low = 0, high = all->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (all->at[middle].address <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void weir__cuda_mappings_put(weir__cuda *self, const weir__cuda_mapping *mapping)
{
    weir__cuda_mappings *all = &self->mappings;
    self->host->mutex_lock(&all->lock);
    size_t at = count_up_to(all, mapping->address);
    memmove(&all->at[at + 1], &all->at[at], (all->count - at) * sizeof *all->at);
    all->at[at] = *mapping;
    all->count++;
    all->promised--;
    self->host->mutex_unlock(&all->lock);
}

/* The last that begins at `address` or below it, or null. Under the lock. */
static weir__cuda_mapping *last_up_to(const weir__cuda_mappings *all,
                                      CUdeviceptr address)
{
    size_t count = count_up_to(all, address);
    return count == 0 ? NULL : &all->at[count - 1];
}

bool weir__cuda_mappings_take(weir__cuda *self, const void *ptr, bool is_opened,
                              weir__cuda_mapping *out)
{
    weir__cuda_mappings *all = &self->mappings;
    self->host->mutex_lock(&all->lock);
    weir__cuda_mapping *found = last_up_to(all, (uintptr_t)ptr);
    bool has = found != NULL && found->address == (uintptr_t)ptr &&
               found->is_opened == is_opened;
    if (has) {
        *out = *found;
        all->count--;
        all->promised++;
        size_t behind = (size_t)(&all->at[all->count] - found);
        memmove(found, found + 1, behind * sizeof *found);
    }
    self->host->mutex_unlock(&all->lock);
    return has;
}

bool weir__cuda_mappings_find(weir__cuda *self, const void *ptr, size_t bytes,
                              weir__cuda_mapping *out)
{
    weir__cuda_mappings *all = &self->mappings;
    self->host->mutex_lock(&all->lock);
    const weir__cuda_mapping *found = last_up_to(all, (uintptr_t)ptr);
    bool has = found != NULL && !found->is_opened && found->state == WEIR__CUDA_MAPPED;
    if (has) {
        size_t offset = (uintptr_t)ptr - found->address;
        has = offset < found->bytes && bytes <= found->bytes - offset;
        *out = *found;
    }
    self->host->mutex_unlock(&all->lock);
    return has;
}
