/* fixed_size_slabs.c - see fixed_size_slabs.h. */
#include "fixed_size_slabs.h"

#ifdef WEIR_TESTING /* small, so that what is rare happens */
#define SLOTS_LEAST 4u
#else
#define SLOTS_LEAST 64u
#endif

/* ---- the table ---- */

static weir__slab_table *table_make(size_t slots)
{
    weir__slab_table *table =
        weir__host_alloc(sizeof *table + slots * sizeof(weir__slab_slot));
    if (table == NULL)
        return NULL;
    table->older = NULL;
    table->mask = slots - 1;
    for (size_t i = 0; i < slots; i++) {
        atomic_init(&table->slots[i].slab, NULL);
        table->slots[i].region = 0;
    }
    return table;
}

static weir__slab_table *table_of(const weir__slabs *self)
{
    return atomic_load_explicit(&self->table, memory_order_relaxed);
}

/* The region first: it is nobody's who has no lock. */
static void slot_set(weir__slab_slot *to, weir__slab *it, uint64_t region)
{
    to->region = region;
    atomic_store_explicit(&to->slab, it, memory_order_release);
}

static void table_put(weir__slab_table *table, weir__slab *it, uint64_t region)
{
    size_t at = weir__slab_home(table, region);
    while (atomic_load_explicit(&table->slots[at].slab, memory_order_relaxed) != NULL)
        at = (at + 1) & table->mask;
    slot_set(&table->slots[at], it, region);
}

/* Takes a slab's slot away, and moves those behind it that would not be found any
 * more. Who looks meanwhile may miss one. */
static void table_drop(weir__slab_table *table, const weir__slab *it, uint64_t region)
{
    size_t gap = weir__slab_home(table, region);
    while (atomic_load_explicit(&table->slots[gap].slab, memory_order_relaxed) != it ||
           table->slots[gap].region != region)
        gap = (gap + 1) & table->mask;
    for (size_t at = (gap + 1) & table->mask;; at = (at + 1) & table->mask) {
        weir__slab_slot *next = &table->slots[at];
        weir__slab *other = atomic_load_explicit(&next->slab, memory_order_relaxed);
        if (other == NULL)
            break;
        size_t home = weir__slab_home(table, next->region);
        if (((at - home) & table->mask) < ((at - gap) & table->mask))
            continue; /* the gap is in front of where its search begins */
        slot_set(&table->slots[gap], other, next->region);
        gap = at;
    }
    atomic_store_explicit(&table->slots[gap].slab, NULL, memory_order_release);
}

/* Sees to it that two more slots are free, and half of all. False: no host memory. */
static bool table_reserve_locked(weir__slabs *self) WEIR_REQUIRES(self->lock)
{
    weir__slab_table *old = table_of(self);
    if (2 * (self->slots_used + 2) <= old->mask + 1)
        return true;
    weir__slab_table *table = table_make(2 * (old->mask + 1));
    if (table == NULL)
        return false;
    table->older = old;
    for (size_t i = 0; i <= old->mask; i++) {
        weir__slab *it =
            atomic_load_explicit(&old->slots[i].slab, memory_order_relaxed);
        if (it != NULL)
            table_put(table, it, old->slots[i].region);
    }
    atomic_store_explicit(&self->table, table, memory_order_release);
    return true;
}

/* ---- records ---- */

static uintptr_t first_grain(const void *ptr)
{
    const uintptr_t below = WEIR__HEAP_GRAIN - 1;
    return ((uintptr_t)ptr + below) & ~below;
}

static void list_put(weir__slab **list, weir__slab *it)
{
    it->next = *list;
    it->link = list;
    if (*list != NULL)
        (*list)->link = &it->next;
    *list = it;
}

static void list_drop(weir__slab *it)
{
    *it->link = it->next;
    if (it->next != NULL)
        it->next->link = it->link;
}

static void lay_by_locked(weir__slabs *self, weir__slab *it) WEIR_REQUIRES(self->lock)
{
    list_put(it->room == 1 ? &self->single_spares : &self->spares, it);
}

/* A spare record with `room` words, or null. There are those of whole slabs, which all
 * have as many, and of single blocks. */
static weir__slab *take_spare_locked(weir__slabs *self, uint32_t room)
    WEIR_REQUIRES(self->lock)
{
    weir__slab *it = room == 1 ? self->single_spares : self->spares;
    if (it != NULL)
        list_drop(it);
    WEIR_CHECK(it == NULL || it->room == room, "a slab is whole, or one block");
    return it;
}

static weir__slab *record_make(const weir__slabs *self, uint32_t room)
{
    size_t lines = room == 1 ? 1 : (size_t)1 << self->line_bits;
    size_t words = (lines + 1) << WEIR__SLAB_LINE_BITS;
    weir__slab *it = weir__host_alloc(sizeof *it + words * sizeof it->asked[0]);
    if (it == NULL)
        return NULL;
    it->room = room;
    atomic_init(&it->base, 0);
    atomic_init(&it->bytes, 0);
    for (size_t i = 0; i < words; i++)
        atomic_init(&it->asked[i], 0);
    return it;
}

weir__slab *weir__slab_begin(weir__slabs *self, uint32_t room)
{
    weir__mutex_lock(&self->lock);
    bool has_slots = table_reserve_locked(self);
    weir__slab *it = has_slots ? take_spare_locked(self, room) : NULL;
    weir__mutex_unlock(&self->lock);
    return has_slots && it == NULL ? record_make(self, room) : it;
}

void weir__slab_not_drawn(weir__slabs *self, weir__slab *it)
{
    weir__mutex_lock(&self->lock);
    lay_by_locked(self, it);
    weir__mutex_unlock(&self->lock);
}

/* The stretches that a slab touches. */
typedef struct stretches {
    uint64_t first, last;
} stretches;

static stretches stretches_of(const weir__slabs *self, uintptr_t base, size_t bytes)
{
    return (stretches){ (uint64_t)base >> self->region_shift,
                        (uint64_t)(base + (bytes - 1)) >> self->region_shift };
}

void weir__slab_drawn(weir__slabs *self, weir__slab *it, const void *ptr)
{
    uintptr_t base = first_grain(ptr);
    size_t bytes = it->room * self->block_bytes;
    stretches touched = stretches_of(self, base, bytes);
    weir__mutex_lock(&self->lock);
    atomic_store_explicit(&it->base, base, memory_order_relaxed);
    atomic_store_explicit(&it->bytes, bytes, memory_order_relaxed);
    list_put(&self->drawn, it);
    table_put(table_of(self), it, touched.first);
    if (touched.first != touched.last)
        table_put(table_of(self), it, touched.last);
    self->slots_used += touched.first != touched.last ? 2 : 1;
    weir__mutex_unlock(&self->lock);
}

void weir__slab_gone(weir__slabs *self, const void *ptr)
{
    weir__mutex_lock(&self->lock);
    weir__slab *it = weir__slab_look(self, (const void *)first_grain(ptr)).slab;
    WEIR_CHECK(it != NULL, "a slab goes back that was never drawn");
    uintptr_t base = atomic_load_explicit(&it->base, memory_order_relaxed);
    size_t bytes = atomic_load_explicit(&it->bytes, memory_order_relaxed);
    WEIR_CHECK(base == first_grain(ptr), "a slab goes back as a whole");
    stretches touched = stretches_of(self, base, bytes);
    table_drop(table_of(self), it, touched.first);
    if (touched.first != touched.last)
        table_drop(table_of(self), it, touched.last);
    self->slots_used -= touched.first != touched.last ? 2 : 1;
    atomic_store_explicit(&it->bytes, 0, memory_order_relaxed);
    list_drop(it);
    lay_by_locked(self, it);
    weir__mutex_unlock(&self->lock);
}

weir__slab_place weir__slab_look_again(weir__slabs *self, const void *ptr)
{
    weir__mutex_lock(&self->lock);
    weir__slab_place at = weir__slab_look(self, ptr);
    weir__mutex_unlock(&self->lock);
    return at;
}

void weir__slabs_count(weir__slabs *self, size_t *asked_bytes, size_t *drawn_bytes)
{
    *asked_bytes = 0;
    *drawn_bytes = 0;
    weir__mutex_lock(&self->lock);
    for (weir__slab *it = self->drawn; it != NULL; it = it->next) {
        *drawn_bytes += atomic_load_explicit(&it->bytes, memory_order_relaxed);
        for (uint32_t i = 0; i < it->room; i++)
            *asked_bytes += weir__asked_bytes(
                atomic_load_explicit(weir__slab_asked(self, it, i),
                                     memory_order_relaxed));
    }
    weir__mutex_unlock(&self->lock);
}

void weir__slabs_verify(weir__slabs *self)
{
    size_t slots = 0, filled = 0;
    weir__mutex_lock(&self->lock);
    const weir__slab_table *table = table_of(self);
    for (const weir__slab *it = self->drawn; it != NULL; it = it->next) {
        uintptr_t base = atomic_load(&it->base);
        size_t bytes = atomic_load(&it->bytes);
        stretches touched = stretches_of(self, base, bytes);
        slots += touched.first != touched.last ? 2 : 1;
        WEIR_CHECK(*it->link == it, "a slab is in a list");
        WEIR_CHECK(weir__slab_look(self, (const void *)base).slab == it &&
                       weir__slab_look(self, (const void *)(base + bytes - 1)).slab ==
                           it,
                   "a slab is found by its first and by its last byte");
    }
    for (size_t i = 0; i <= table->mask; i++)
        filled += atomic_load(&table->slots[i].slab) != NULL;
    WEIR_CHECK(slots == self->slots_used && slots == filled,
               "the slots of slabs are counted");
    WEIR_CHECK(2 * filled <= table->mask + 1, "half of the slots are free");
    weir__mutex_unlock(&self->lock);
}

/* ---- beginning and end ---- */

bool weir__slabs_init(weir__slabs *self, size_t block_bytes, size_t slab_bytes)
{
    weir__slab_table *table = table_make(SLOTS_LEAST);
    if (table == NULL)
        return false;
    *self = (weir__slabs){ .block_bytes = block_bytes,
                           .block_grains = (uint32_t)(block_bytes / WEIR__HEAP_GRAIN),
                           .region_shift = WEIR__HEAP_GRAIN_BITS };
    while ((size_t)1 << self->region_shift < slab_bytes)
        self->region_shift++;
    const size_t blocks = slab_bytes / block_bytes, lines_least =
        blocks >> WEIR__SLAB_LINES_BITS_LEAST != 0 ? 1u << WEIR__SLAB_LINES_BITS_LEAST
                                                   : blocks;
    while ((size_t)1 << self->line_bits < lines_least ||
           (size_t)1 << (self->line_bits + WEIR__SLAB_LINE_BITS) < blocks)
        self->line_bits++;
    atomic_init(&self->table, table);
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    return true;
}

void weir__slabs_close(weir__slabs *self)
{
    WEIR_CHECK(self->drawn == NULL, "a slab is still drawn");
    for (weir__slab_table *table = table_of(self), *older; table != NULL;
         table = older) {
        older = table->older;
        weir__host_free(table);
    }
    weir__slab *const spares[] = { self->spares, self->single_spares };
    for (size_t i = 0; i < 2; i++) {
        for (weir__slab *it = spares[i], *next; it != NULL; it = next) {
            next = it->next;
            weir__host_free(it);
        }
    }
    weir__mutex_destroy(&self->lock);
}
