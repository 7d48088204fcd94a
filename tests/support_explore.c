/* support_explore.c - see support_explore.h. */
#include "support_explore.h"

uint32_t explore_choose(void *context, uint32_t n)
{
    explorer *self = context;
    if (!self->active || self->at == EXPLORE_DEPTH)
        return 0;
    if (self->at == self->length) {
        self->turned[self->length] = 0;
        self->ways[self->length] = n;
        self->length++;
    }
    self->last = (self->last + self->turned[self->at++]) % n;
    return self->last;
}

static bool has_too_many_switches(const explorer *self)
{
    uint32_t switches = 0;
    for (size_t i = 0; i < self->length; i++)
        switches += self->turned[i] != 0;
    return self->most_switches != 0 && switches > self->most_switches;
}

bool explore_next(explorer *self)
{
    self->runs++;
    self->length = self->at; /* a run may end sooner than the one before */
    self->at = 0;
    self->last = 0;
    while (self->length > 0) {
        size_t last = self->length - 1;
        if (++self->turned[last] < self->ways[last] && !has_too_many_switches(self))
            return true;
        self->length--;
    }
    return false;
}
