/* fakes_context.c - primary contexts, the threads' stacks of them, and the machine. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "fakes/fakes_internal.h"

#define STACK 8
#define SHARED_DEVICES 2 /* of the shared object, unless the environment says more */

fakes_machine fakes_the_machine;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* retaining and releasing */
static unsigned long long last_id; /* that a context had; guarded by the lock */
static fakes_context contexts[FAKES_DEVICES];
static struct {
    bool is_set;
    weir_emulated_options options;
} settings[FAKES_DEVICES];

static _Thread_local fakes_context *stack[STACK];
static _Thread_local int depth;
static _Thread_local int thread_device;

/* ---- the machine ---- */

void fakes_set_machine(const fakes_machine *machine)
{
    fakes_the_machine = machine != NULL ? *machine : (fakes_machine){ .devices = 0 };
}

int fakes_device_count(void)
{
    if (fakes_the_machine.devices != 0)
        return fakes_the_machine.devices < 0 ? 0 : fakes_the_machine.devices;
#ifdef WEIR_TESTING
    return FAKES_DEVICES;
#else
    const char *wish = getenv("WEIR_STAND_IN_DEVICES");
    int count = wish != NULL ? atoi(wish) : SHARED_DEVICES;
    return count < 0 ? 0 : count > FAKES_DEVICES ? FAKES_DEVICES : count;
#endif
}

int fakes_runtime_version(void)
{
    int version = fakes_the_machine.runtime_version;
    return version == 0 ? CUDART_VERSION : version;
}

int fakes_driver_version(void)
{
    int version = fakes_the_machine.driver_version;
    return version == 0 ? fakes_runtime_version() : version < 0 ? 0 : version;
}

void fakes_set_device(int ordinal, const weir_emulated_options *options)
{
    settings[ordinal].is_set = options != NULL;
    if (options != NULL)
        settings[ordinal].options = *options;
}

/* Nobody reads the ledger of a device that is hidden, or tells it of hand-overs. */
static weir_emulated_options options_of(int ordinal)
{
    if (settings[ordinal].is_set)
        return settings[ordinal].options;
    weir_emulated_options options = WEIR_EMULATED_OPTIONS_INIT;
    options.no_ledger = true;
    const char *wish = getenv("WEIR_STAND_IN");
    if (wish == NULL)
        return options;
    if (strncmp(wish, "stepped:", 8) == 0) {
        options.scheduler = WEIR_EMULATED_STEPPED;
        options.seed = strtoull(wish + 8, NULL, 0);
    } else if (strcmp(wish, "no-work") == 0) {
        options.scheduler = WEIR_EMULATED_NO_WORK;
    } else if (strcmp(wish, "threads") != 0) {
        fakes_not_provided("a device as WEIR_STAND_IN asks for");
    }
    return options;
}

size_t fakes_memory_bytes(int ordinal)
{
    size_t bytes = options_of(ordinal).memory_bytes;
    return bytes != 0 ? bytes : (size_t)32 << 30; /* the emulated device's default */
}

/* ---- primary contexts ---- */

static int context_open(fakes_context *context)
{
    weir_emulated_options options = options_of(context->ordinal);
    void *self;
    weir_status status = weir__emulated_open(context->ordinal, &options, &context->ops,
                                             &self);
    if (status != WEIR_OK)
        return fakes_error_of(context, status);
    context->device = self;
    context->id = ++last_id;
    context->pool = NULL;
    atomic_store(&context->spoilt, 0);
    for (int i = 0; i < FAKES_DEVICES; i++)
        atomic_store(&context->peers[i], false);
    return cudaSuccess;
}

int fakes_retain(int ordinal, fakes_context **out)
{
    fakes_context *context = &contexts[ordinal];
    int error = cudaSuccess;
    pthread_mutex_lock(&lock);
    context->ordinal = ordinal;
    if (context->device == NULL)
        error = context_open(context);
    if (error == cudaSuccess) {
        context->retained++;
        *out = context;
    }
    pthread_mutex_unlock(&lock);
    return error;
}

/* Waits for nothing: what is in flight never ends, as it may on a real device. */
static void context_end(fakes_context *context, weir__emulated *device)
{
    fakes_halt(device);
    fakes_forget_graphs(context);
    fakes_forget_captures(device);
    fakes_forget_objects(context);
    fakes_forget_blocks(context);
    fakes_forget_pools(context);
    context->ops->close(device);
    fakes_forget_jobs(context);
}

int fakes_release(int ordinal)
{
    fakes_context *context = &contexts[ordinal];
    weir__emulated *device = NULL;
    pthread_mutex_lock(&lock);
    bool was_retained = context->retained > 0;
    if (was_retained && --context->retained == 0) {
        device = context->device;
        context->device = NULL;
    }
    pthread_mutex_unlock(&lock);
    if (device != NULL)
        context_end(context, device);
    return was_retained ? cudaSuccess : CUDA_ERROR_INVALID_CONTEXT;
}

void fakes_reset_context(int ordinal)
{
    fakes_context *context = &contexts[ordinal];
    pthread_mutex_lock(&lock);
    weir__emulated *device = context->device;
    context->device = NULL;
    pthread_mutex_unlock(&lock);
    if (device != NULL)
        context_end(context, device);
}

int fakes_revive(fakes_context *context)
{
    int error = CUDA_SUCCESS;
    pthread_mutex_lock(&lock);
    if (context->retained == 0)
        error = CUDA_ERROR_INVALID_CONTEXT;
    else if (context->device == NULL)
        error = context_open(context);
    pthread_mutex_unlock(&lock);
    return error;
}

unsigned long long fakes_id_of(const fakes_context *context)
{
    pthread_mutex_lock(&lock);
    unsigned long long id = context->id;
    pthread_mutex_unlock(&lock);
    return id;
}

int fakes_retain_implicitly(int ordinal, fakes_context **out)
{
    int error = fakes_retain(ordinal, out);
    if (error == cudaSuccess && atomic_exchange(&(*out)->is_implicit, true))
        (void)fakes_release(ordinal);
    return error;
}

int fakes_retained(int ordinal)
{
    pthread_mutex_lock(&lock);
    int retained = contexts[ordinal].retained;
    pthread_mutex_unlock(&lock);
    return retained;
}

weir__emulated *fakes_emulated(int ordinal)
{
    pthread_mutex_lock(&lock);
    weir__emulated *device = contexts[ordinal].device;
    pthread_mutex_unlock(&lock);
    return device;
}

fakes_context *fakes_context_of(const void *handle)
{
    for (int i = 0; i < FAKES_DEVICES; i++) {
        if (handle == &contexts[i] && fakes_emulated(i) != NULL)
            return &contexts[i];
    }
    return NULL;
}

/* ---- the thread's stack ---- */

fakes_context *fakes_current(void)
{
    return depth > 0 ? stack[depth - 1] : NULL;
}

int fakes_push(fakes_context *context)
{
    if (depth == STACK)
        return CUDA_ERROR_OUT_OF_MEMORY;
    stack[depth++] = context;
    return CUDA_SUCCESS;
}

int fakes_pop(fakes_context **out)
{
    if (depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = stack[--depth];
    return CUDA_SUCCESS;
}

int fakes_pushed(void)
{
    return depth;
}

void fakes_set_current(fakes_context *context)
{
    if (depth > 0)
        depth--;
    if (context != NULL)
        stack[depth++] = context;
}

int fakes_thread_device(void)
{
    fakes_context *current = fakes_current();
    return current != NULL ? current->ordinal : thread_device;
}

void fakes_set_thread_device(int ordinal)
{
    thread_device = ordinal;
}

void fakes_contexts_reset(void)
{
    depth = 0;
    thread_device = 0;
    for (int i = 0; i < FAKES_DEVICES; i++) {
        if (atomic_exchange(&contexts[i].is_implicit, false))
            (void)fakes_release(i);
    }
}
