/* ledger_table.c - sorted arrays of named things. */
#include "ledger_table.h"

#include <string.h>

#include "internal.h"

static int name_compare(weir__name a, weir__name b)
{
    if (a.realm != b.realm)
        return a.realm < b.realm ? -1 : 1;
    if (a.number != b.number)
        return a.number < b.number ? -1 : 1;
    return 0;
}

/* How many items have a smaller name. */
static size_t table_rank(const weir__table *self, weir__name name)
{
    if (self->count > 0 && name_compare(*self->items[self->count - 1], name) < 0)
        return self->count;
    size_t low = 0, high = self->count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (name_compare(*self->items[middle], name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void *weir__table_find(const weir__table *self, weir__name name)
{
    size_t index = table_rank(self, name);
    if (index == self->count || name_compare(*self->items[index], name) != 0)
        return NULL;
    return self->items[index];
}

void *weir__table_find_at_or_before(const weir__table *self, weir__name name)
{
    size_t index = table_rank(self, name);
    if (index < self->count && name_compare(*self->items[index], name) == 0)
        return self->items[index];
    return index == 0 ? NULL : self->items[index - 1];
}

bool weir__table_add(weir__table *self, weir__name *item)
{
    if (self->count == self->room) {
        size_t room = self->room == 0 ? 8 : self->room * 2;
        weir__name **items = weir__ledger_grow(self->items,
                                               self->count * sizeof *items,
                                               room * sizeof *items);
        if (items == NULL)
            return false;
        self->items = items;
        self->room = room;
    }
    size_t index = table_rank(self, *item);
    WEIR_CHECK(index == self->count || name_compare(*self->items[index], *item) != 0,
               "two things of one name");
    memmove(&self->items[index + 1], &self->items[index],
            (self->count - index) * sizeof self->items[0]);
    self->items[index] = item;
    self->count++;
    return true;
}

void weir__table_remove(weir__table *self, weir__name *item)
{
    size_t index = table_rank(self, *item);
    WEIR_CHECK(index < self->count && self->items[index] == item,
               "removed from a table that it is not in");
    self->count--;
    memmove(&self->items[index], &self->items[index + 1],
            (self->count - index) * sizeof self->items[0]);
}

void weir__table_free(weir__table *self)
{
    weir__host_free(self->items);
    *self = (weir__table){ 0 };
}

void weir__table_verify(const weir__table *self)
{
    WEIR_CHECK(self->count <= self->room, "a table outgrew its room");
    for (size_t i = 1; i < self->count; i++)
        WEIR_CHECK(name_compare(*self->items[i - 1], *self->items[i]) < 0,
                   "a table is not sorted");
}

void *weir__ledger_grow(void *old, size_t used, size_t bytes)
{
    WEIR_ASSERT(used <= bytes, "growing must not lose anything");
    void *fresh = weir__host_alloc(bytes);
    if (fresh == NULL)
        return NULL;
    if (used > 0)
        memcpy(fresh, old, used);
    weir__host_free(old);
    return fresh;
}
