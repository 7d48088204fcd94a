/* pool_pages.c - blocks that a pool does not cut: whoever asks for them aligned to
 * upstream's pages gets pages of his own, as upstream hands them out, which grow in
 * place and can go back in parts.
 *
 * So the pool of a growable serves small requests, and passes on those of the
 * suballocators above it. What it has passed on is none of its heap's: it is known by
 * its address, which lies in no chunk. Upstream may have others' blocks besides: the
 * pool keeps no record, but knows how much it has passed on, and aligned to what. */
#include "pool_pages.h"

#include "internal.h"
#include "pool_hit.h"
#include "pool_seats.h"
#include "resource_internal.h"

static void count_passed(weir__pool *self, size_t bytes)
{
    weir__mutex_lock(&self->lock);
    WEIR_CHECK(!self->closing, "allocated after the last unref");
    self->passed_blocks++;
    self->passed_bytes += bytes;
    weir__pool_note_held_locked(self);
    weir__mutex_unlock(&self->lock);
}

/* True: the pool is over, and the caller ends it. */
static bool count_back(weir__pool *self, size_t bytes)
{
    weir__mutex_lock(&self->lock);
    self->passed_blocks--;
    self->passed_bytes -= bytes;
    bool is_over = weir__pool_is_over_locked(self);
    weir__mutex_unlock(&self->lock);
    return is_over;
}

static uint64_t count_ways(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    uint64_t count = self->ways_made;
    weir__mutex_unlock(&self->lock);
    return count;
}

/* Gives upstream what lies free here; it waits for what is not done. */
static void make_way(weir__pool *self)
{
    weir__mutex_lock(&self->miss);
    weir__pool_flush_caches(self);
    size_t bytes = weir__pool_give_idle(self);
    weir__mutex_lock(&self->lock);
    self->ways_made += bytes > 0; /* before anybody can look in vain */
    weir__mutex_unlock(&self->lock);
    weir__mutex_unlock(&self->miss);
}

weir_status weir__pool_pass(weir__pool *self, weir_stream stream, size_t bytes,
                            size_t alignment, void **out)
{
    const uint64_t ways = count_ways(self);
    weir_status status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    if (weir__pool_is_refusal(status)) {
        make_way(self);
        if (count_ways(self) != ways) /* another thread's may do, too */
            status = weir_allocate(self->upstream, stream, bytes, alignment, out);
    }
    if (status != WEIR_OK) {
        weir__mutex_lock(&self->lock);
        self->counts.failures++;
        weir__mutex_unlock(&self->lock);
        return status;
    }
    count_passed(self, bytes);
    weir__pool_count_out(self, bytes);
    weir__pool_tell_lost(self);
    return WEIR_OK;
}

/* Whether such a block may have been passed on. */
static bool may_have_passed_locked(const weir__pool *self, size_t bytes,
                                   size_t alignment) WEIR_REQUIRES(self->lock)
{
    return alignment >= self->pass_alignment && self->passed_blocks > 0 &&
           bytes <= self->passed_bytes;
}

static bool may_have_passed(weir__pool *self, size_t bytes, size_t alignment)
{
    weir__mutex_lock(&self->lock);
    bool may_have = may_have_passed_locked(self, bytes, alignment);
    weir__mutex_unlock(&self->lock);
    return may_have;
}

/* Tells of what upstream would take back, but never gave to this pool. Of all else
 * upstream knows best what is wrong with it. */
static bool is_misplaced(weir__pool *self, const void *ptr, size_t bytes,
                         size_t alignment)
{
    weir_block found = { .struct_size = sizeof found };
    if (may_have_passed(self, bytes, alignment) ||
        weir_resource_find(self->upstream, ptr, &found) != WEIR_OK ||
        found.bytes != bytes || found.alignment != alignment)
        return false;
    weir__misuse(WEIR_MISUSE_FOREIGN_POINTER, ptr, bytes,
                 "pool: %p was never allocated here", ptr);
    return true;
}

static void finish_back(weir__pool *self, size_t bytes)
{
    weir__pool_count_back(self, bytes);
    if (count_back(self, bytes))
        weir__resource_ended(self->mr);
}

bool weir__pool_pass_back(weir__pool *self, weir_stream stream, void *ptr, size_t bytes,
                          size_t alignment)
{
    if (is_misplaced(self, ptr, bytes, alignment) ||
        !weir_deallocate(self->upstream, stream, ptr, bytes, alignment))
        return false;
    finish_back(self, bytes);
    return true;
}

bool weir__pool_pass_back_after(weir__pool *self, void *ptr, size_t bytes,
                                size_t alignment, const weir_point *points,
                                size_t count)
{
    if (is_misplaced(self, ptr, bytes, alignment) ||
        !weir_deallocate_after(self->upstream, ptr, bytes, alignment, points, count))
        return false;
    finish_back(self, bytes);
    return true;
}

/* Whether upstream may be asked about what begins at `ptr`. */
static weir_status check_passed(weir__pool *self, const void *ptr, size_t bytes,
                                size_t alignment)
{
    weir__mutex_lock(&self->lock);
    bool is_passed = weir__heap_find(&self->heap, ptr) == 0 &&
                     may_have_passed_locked(self, bytes, alignment);
    weir__mutex_unlock(&self->lock);
    return is_passed ? WEIR_OK
                     : weir__fail(WEIR_NOT_SUPPORTED,
                                  "pool: the block at %p was not asked for aligned to "
                                  "%zu bytes, and so has no pages of its own", ptr,
                                  self->pass_alignment);
}

weir_status weir__pool_extend(void *context, weir_stream stream, void *ptr,
                              size_t bytes, size_t alignment, size_t new_bytes)
{
    weir__pool *self = context;
    weir_status status = check_passed(self, ptr, bytes, alignment);
    if (status == WEIR_OK)
        status = weir_resource_extend(self->upstream, stream, ptr, bytes, alignment,
                                      new_bytes);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    self->passed_bytes += new_bytes - bytes;
    self->counts.out_bytes += new_bytes - bytes;
    weir__pool_note_peak_locked(self, (int64_t)self->counts.out_bytes);
    weir__pool_note_held_locked(self);
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

weir_status weir__pool_cut(void *context, void *ptr, size_t bytes, size_t alignment,
                           size_t wanted_bytes, size_t *from, size_t *to)
{
    weir__pool *self = context;
    weir_status status = check_passed(self, ptr, bytes, alignment);
    if (status == WEIR_OK)
        status = weir_resource_cut(self->upstream, ptr, bytes, alignment, wanted_bytes,
                                   from, to);
    if (status != WEIR_OK || *from == *to)
        return status;
    size_t more = (size_t)(*from > 0) + (*to < bytes);
    weir__mutex_lock(&self->lock);
    self->passed_blocks += more;
    self->counts.out_blocks += more;
    self->counts.allocations += more;
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

weir_status weir__pool_find_passed(weir__pool *self, const void *ptr, weir_block *out)
{
    weir_block found = { .struct_size = sizeof found };
    weir_status status = weir_resource_find(self->upstream, ptr, &found);
    if (status == WEIR_OK && !may_have_passed(self, found.bytes, found.alignment))
        status = weir__fail(WEIR_NOT_FOUND, "pool: no block that is out begins at %p",
                            ptr);
    if (status == WEIR_OK)
        *out = found;
    return status;
}

size_t weir__pool_passed_bytes(weir__pool *self)
{
    weir__mutex_lock(&self->lock);
    size_t bytes = self->passed_bytes;
    weir__mutex_unlock(&self->lock);
    return bytes;
}
