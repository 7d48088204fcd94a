/* emulated_thread.c - host threads as emulated devices see them: their ends, the
 * signals that hand over from one to another, and runs of several.
 *
 * A thread's end is heard through a key of the system's. Other destructors of the
 * library may still use a device on their way out, so the end is told late in the
 * rounds of destructors that the system makes; a thread that uses a device even after
 * that is told of once more, in the next round. */
#include <limits.h>
#include <pthread.h>

#include "device/emulated.h"

/* ---- the open devices, and the ends of threads ---- */

static weir__mutex list_lock = WEIR__MUTEX_INIT(WEIR__RANK_DEVICES);
static weir__emulated *list; /* guarded by list_lock */
static pthread_key_t key;
static bool has_key;

/* The key's value counts the rounds of destructors that a thread goes through at its
 * end: it points to the round to come. The end is told one before the last, so that one
 * is left for a thread that is met again. */
static const char rounds[PTHREAD_DESTRUCTOR_ITERATIONS - 1];
#define TELLING_ROUND (&rounds[sizeof rounds - 1])

static void thread_end(uint64_t thread)
{
    weir__ledger *ledger = NULL;
    weir__mutex_lock(&list_lock);
    for (weir__emulated *device = list; device != NULL; device = device->next_listed) {
        weir__mutex_lock(&device->lock);
        weir__stream_end_own(device, thread);
        weir__mutex_unlock(&device->lock);
        if (device->ledger != NULL)
            ledger = device->ledger; /* the same for all */
    }
    if (ledger != NULL)
        weir__ledger_thread_end(ledger, thread);
    weir__mutex_unlock(&list_lock);
}

static void destructor(void *value)
{
    const char *round = value;
    weir__thread *thread = weir__thread_self();
    if (weir__is_forked())
        return;
    if (round != TELLING_ROUND && pthread_setspecific(key, round + 1) == 0)
        return;
    thread->end_is_told = true;
    thread_end(thread->number);
}

static void key_make(void)
{
    has_key = weir__key_make(&key, destructor);
}

void weir__emulated_meet_thread(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, key_make);
    if (!has_key || pthread_getspecific(key) != NULL)
        return;
    bool is_told = weir__thread_self()->end_is_told;
    (void)pthread_setspecific(key, is_told ? TELLING_ROUND : rounds);
}

void weir__emulated_list(weir__emulated *device)
{
    weir__mutex_lock(&list_lock);
    device->next_listed = list;
    list = device;
    weir__mutex_unlock(&list_lock);
}

void weir__emulated_unlist(weir__emulated *device)
{
    weir__mutex_lock(&list_lock);
    weir__emulated **link = &list;
    while (*link != device)
        link = &(*link)->next_listed;
    *link = device->next_listed;
    weir__mutex_unlock(&list_lock);
}

/* ---- signals ---- */

weir_status weir__host_signal(weir__emulated *device, uintptr_t channel)
{
    weir__signal *signal = weir__host_alloc(sizeof *signal);
    if (signal == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for a signal");
    *signal = (weir__signal){ .channel = channel };
    weir__mutex_lock(&device->lock);
    if (device->ledger != NULL)
        signal->given = weir__ledger_host_give(device->ledger, weir__this_thread());
    *device->signals_end = signal;
    device->signals_end = &signal->next;
    weir__cond_broadcast(&device->changed);
    weir__baton_progress();
    weir__mutex_unlock(&device->lock);
    return WEIR_OK;
}

/* Takes the oldest signal of `channel` off the list; null: there is none. */
static weir__signal *signal_take(weir__emulated *device, uintptr_t channel)
{
    weir__signal **link = &device->signals;
    while (*link != NULL && (*link)->channel != channel)
        link = &(*link)->next;
    weir__signal *signal = *link;
    if (signal == NULL)
        return NULL;
    *link = signal->next;
    if (device->signals_end == &signal->next)
        device->signals_end = link;
    return signal;
}

static void signal_free(weir__emulated *device, weir__signal *signal)
{
    if (signal->given != NULL)
        weir__ledger_unref(device->ledger, signal->given);
    weir__host_free(signal);
}

/* Under the lock, which is given back meanwhile; false: nobody is left who could signal
 * anything. */
static bool wait_for_signals(weir__emulated *device)
{
    if (weir__thread_self()->baton == NULL) {
        weir__cond_wait(&device->changed, &device->lock);
        return true;
    }
    weir__mutex_unlock(&device->lock);
    bool go_on = weir__baton_wait_for_others();
    weir__mutex_lock(&device->lock);
    return go_on;
}

weir_status weir__host_await(weir__emulated *device, uintptr_t channel)
{
    weir__emulated_meet_thread();
    weir__mutex_lock(&device->lock);
    weir__signal *signal = signal_take(device, channel);
    bool go_on = true;
    while (signal == NULL && go_on) {
        go_on = wait_for_signals(device);
        signal = signal_take(device, channel);
    }
    if (signal != NULL && signal->given != NULL)
        weir__ledger_host_take(device->ledger, weir__this_thread(), signal->given);
    if (signal != NULL)
        signal_free(device, signal);
    weir__mutex_unlock(&device->lock);
    if (signal == NULL)
        return weir__fail_native(WEIR_DEVICE_ERROR, WEIR__NATIVE_DEADLOCK,
                                 "deadlock: a thread awaits channel %#llx, and nobody "
                                 "is left to signal it", (unsigned long long)channel);
    return WEIR_OK;
}

void weir__host_forget(weir__emulated *device)
{
    while (device->signals != NULL) {
        weir__signal *signal = device->signals;
        device->signals = signal->next;
        signal_free(device, signal);
    }
    device->signals_end = &device->signals;
}

/* ---- runs ---- */

typedef struct runner {
    weir__emulated *device;
    void (*entry)(void *argument);
    void *argument;
    weir__ledger_position *given;    /* what the caller knew; borrowed */
    weir__ledger_position *returned; /* what the thread knew at its end; counted */
} runner;

static void runner_main(void *argument)
{
    runner *self = argument;
    weir__ledger *ledger = self->device->ledger;
    weir__emulated_meet_thread();
    if (self->given != NULL)
        weir__ledger_host_take(ledger, weir__this_thread(), self->given);
    self->entry(self->argument);
    if (ledger != NULL)
        self->returned = weir__ledger_host_give(ledger, weir__this_thread());
}

static void runner_end(runner *self, bool ran)
{
    if (self->returned == NULL)
        return;
    if (ran)
        weir__ledger_host_take(self->device->ledger, weir__this_thread(),
                               self->returned);
    weir__ledger_unref(self->device->ledger, self->returned);
}

/* Some things happen only where threads change at each step, and others only where one
 * does much while another stands still: seeds in turn try all from the one to the
 * other. */
static uint32_t patience(const weir__emulated *device)
{
    return device->options.choose != NULL ? 1 : 1u << 2 * (device->options.seed % 4);
}

static weir_status run(weir__emulated *device, size_t count, runner *runners,
                       void *const pointers[])
{
    weir__ledger_position *given = NULL;
    if (device->ledger != NULL)
        given = weir__ledger_host_give(device->ledger, weir__this_thread());
    for (size_t i = 0; i < count; i++)
        runners[i].given = given;

    bool by_turns = device->options.scheduler == WEIR_EMULATED_STEPPED;
    weir_status status =
        weir__baton_run(by_turns ? weir__emulated_choose : NULL, device,
                        patience(device), count, runner_main, pointers);
    for (size_t i = 0; i < count; i++)
        runner_end(&runners[i], status == WEIR_OK);
    if (given != NULL)
        weir__ledger_unref(device->ledger, given);
    return status;
}

weir_status weir__host_run(weir__emulated *device, size_t count,
                           void (*entry)(void *argument), void *const arguments[])
{
    size_t each = sizeof(runner) + sizeof(void *);
    if (count > SIZE_MAX / each)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%zu threads are too many", count);
    if (count == 0)
        return WEIR_OK;
    runner *runners = weir__host_alloc(count * each);
    if (runners == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for %zu threads", count);
    void **pointers = (void **)(runners + count);
    for (size_t i = 0; i < count; i++) {
        runners[i] = (runner){ .device = device, .entry = entry,
                               .argument = arguments != NULL ? arguments[i] : NULL };
        pointers[i] = &runners[i];
    }
    weir_status status = run(device, count, runners, pointers);
    weir__host_free(runners);
    return status;
}
