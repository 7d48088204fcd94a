/* cudart_work.c - of the runtime: copies, fills and host functions. */
#include <pthread.h>
#include <stdlib.h>

#include "fakes/fakes_internal.h"

/* ---- copies and fills ---- */

static int copy_put(fakes_context *context, cudaStream_t stream, void *dst,
                    const void *src, size_t bytes, enum cudaMemcpyKind kind)
{
    if ((unsigned)kind > cudaMemcpyDefault)
        return cudaErrorInvalidMemcpyDirection;
    if (bytes == 0)
        return cudaSuccess;
    int error = fakes_check_access(context, dst, bytes);
    if (error == cudaSuccess)
        error = fakes_check_access(context, src, bytes);
    if (error != cudaSuccess)
        return error;
    return fakes_error_of(context,
                          context->ops->copy(context->device, fakes_stream(stream), dst,
                                             src, bytes));
}

static int fill_put(fakes_context *context, cudaStream_t stream, void *ptr, int value,
                    size_t bytes)
{
    if (bytes == 0)
        return cudaSuccess;
    int error = fakes_check_access(context, ptr, bytes);
    if (error != cudaSuccess)
        return error;
    return fakes_error_of(context,
                          context->ops->fill(context->device, fakes_stream(stream), ptr,
                                             (uint8_t)value, bytes));
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t bytes,
                            enum cudaMemcpyKind kind, cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemcpyAsync, &context);
    if (error == cudaSuccess)
        error = copy_put(context, stream, dst, src, bytes, kind);
    return fakes_end(error);
}

cudaError_t cudaMemsetAsync(void *ptr, int value, size_t bytes, cudaStream_t stream)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemsetAsync, &context);
    if (error == cudaSuccess)
        error = fill_put(context, stream, ptr, value, bytes);
    return fakes_end(error);
}

/* On the legacy stream, and the host waits. */
static int finish(fakes_context *context, int error)
{
    if (error != cudaSuccess)
        return error;
    return fakes_error_of(context, context->ops->stream_sync(context->device,
                                                             WEIR_STREAM_LEGACY));
}

cudaError_t cudaMemcpy(void *dst, const void *src, size_t bytes,
                       enum cudaMemcpyKind kind)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemcpy, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = finish(context, copy_put(context, NULL, dst, src, bytes, kind));
    return fakes_end(error);
}

cudaError_t cudaMemset(void *ptr, int value, size_t bytes)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaMemset, &context);
    if (error == cudaSuccess)
        error = fakes_refuse_unsafe();
    if (error == cudaSuccess)
        error = finish(context, fill_put(context, NULL, ptr, value, bytes));
    return fakes_end(error);
}

/* ---- host functions ---- */

/* Freed once it has run; one that a graph holds, or that will never run, with its
 * context. */
typedef struct job {
    cudaHostFn_t function;
    void *data;
    const fakes_context *context;
    bool is_captured;
    struct job *previous;
    struct job *next;
} job;

static pthread_mutex_t jobs_lock = PTHREAD_MUTEX_INITIALIZER;
static job *jobs; /* guarded by jobs_lock */

static job *job_make(const fakes_context *context, cudaHostFn_t function, void *data)
{
    job *made = malloc(sizeof *made);
    if (made == NULL)
        return NULL;
    *made = (job){ .function = function, .data = data, .context = context };
    pthread_mutex_lock(&jobs_lock);
    made->next = jobs;
    if (jobs != NULL)
        jobs->previous = made;
    jobs = made;
    pthread_mutex_unlock(&jobs_lock);
    return made;
}

/* Under jobs_lock. */
static void job_free(job *gone)
{
    if (gone->previous != NULL)
        gone->previous->next = gone->next;
    else
        jobs = gone->next;
    if (gone->next != NULL)
        gone->next->previous = gone->previous;
    free(gone);
}

static void job_run(void *argument, void *const views[])
{
    (void)views;
    job *self = argument;
    self->function(self->data);
    if (self->is_captured)
        return;
    pthread_mutex_lock(&jobs_lock);
    job_free(self);
    pthread_mutex_unlock(&jobs_lock);
}

void fakes_forget_jobs(const fakes_context *context)
{
    pthread_mutex_lock(&jobs_lock);
    for (job *each = jobs, *next; each != NULL; each = next) {
        next = each->next;
        if (each->context == context)
            job_free(each);
    }
    pthread_mutex_unlock(&jobs_lock);
}

static int job_put(fakes_context *context, cudaStream_t stream, cudaHostFn_t function,
                   void *data)
{
    if (function == NULL)
        return cudaErrorInvalidValue;
    job *put = job_make(context, function, data);
    if (put == NULL)
        return cudaErrorMemoryAllocation;
    put->is_captured = fakes_is_capturing(context, stream);
    weir_status status = context->ops->launch(context->device, fakes_stream(stream),
                                              job_run, put, NULL, 0);
    if (status == WEIR_OK)
        return cudaSuccess;
    pthread_mutex_lock(&jobs_lock);
    job_free(put);
    pthread_mutex_unlock(&jobs_lock);
    return fakes_error_of(context, status);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *data)
{
    fakes_context *context;
    int error = fakes_begin_in(FAKES_cudaLaunchHostFunc, &context);
    if (error == cudaSuccess)
        error = job_put(context, stream, function, data);
    return fakes_end(error);
}
