/* hook.c - see hook.h. */
#include "hook.h"

void weir__hook_init(weir__hook *self)
{
    weir__mutex_init(&self->lock, WEIR__RANK_LEAF);
    self->inside = NULL;
}

void weir__hook_finish(weir__hook *self)
{
    WEIR_CHECK(self->inside == NULL, "a hook ends with a thread in it");
    weir__mutex_destroy(&self->lock);
}

/* The link to the visit of thread number `thread`, or the one at the end. */
static weir__hook_visit **link_of_locked(weir__hook *self, uint64_t thread)
    WEIR_REQUIRES(self->lock)
{
    weir__hook_visit **link = &self->inside;
    while (*link != NULL && (*link)->thread != thread)
        link = &(*link)->next;
    return link;
}

bool weir__hook_enter(weir__hook *self, weir__hook_visit *visit)
{
    weir__thread *thread = weir__thread_self();
    *visit = (weir__hook_visit){ .thread = thread->number, .depth = thread->depth };
    weir__mutex_lock(&self->lock);
    weir__hook_visit **link = link_of_locked(self, thread->number);
    bool is_outside = *link == NULL;
    if (is_outside)
        *link = visit;
    weir__mutex_unlock(&self->lock);
    if (is_outside)
        thread->depth = 0;
    return is_outside;
}

void weir__hook_leave(weir__hook *self, weir__hook_visit *visit)
{
    weir__thread *thread = weir__thread_self();
    weir__mutex_lock(&self->lock);
    weir__hook_visit **link = link_of_locked(self, thread->number);
    WEIR_CHECK(*link == visit, "a hook is left that was not entered");
    *link = visit->next;
    weir__mutex_unlock(&self->lock);
    WEIR_CHECK(thread->depth == 0, "a hook returns from within a call");
    thread->depth = visit->depth;
}
