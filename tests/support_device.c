/* support_device.c - which device a test opens when it asks for an emulated one.
 *
 * With WEIR_TEST_DEVICE=cuda in the environment it is a CUDA device: the module's code
 * over the stand-in for the runtime, which stands on an emulated device with the
 * options that were asked for. So the same claims hold of it, the ledger's among
 * them. */
#include "support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "internal.h"

bool support_is_cuda(void)
{
    const char *wish = getenv("WEIR_TEST_DEVICE");
    return wish != NULL && strcmp(wish, "cuda") == 0;
}

#ifdef WEIR_TEST_CUDA
#include "device/emulated.h"
#include "device/module.h"
#include "fakes/fakes.h"

/* ---- the module's table, with what weir/emulated.h needs besides ---- */

static weir__device_ops ops;
static void *selves[FAKES_DEVICES]; /* the module's objects, by ordinal */

static weir__emulated *emulated_of(void *self)
{
    for (int i = 0; i < FAKES_DEVICES; i++) {
        if (selves[i] == self)
            return fakes_emulated(i);
    }
    return NULL;
}

/* Kernels exist on the emulated device only; and one that was captured may run more
 * than once. */
static weir_status launch(void *self, weir_stream stream, weir_emulated_kernel kernel,
                          void *argument, const weir_emulated_range *ranges,
                          size_t count)
{
    return weir__emulated_launch(emulated_of(self), stream, kernel, argument, ranges,
                                 count);
}

/* Ordinary host memory comes from malloc, which CUDA never hears of; the ledger does
 * this way, and a planned fault strikes it. */
static weir_status host_malloc(void *self, size_t bytes, size_t alignment, void **out)
{
    return weir__emulated_host_malloc(emulated_of(self), bytes, alignment, out);
}

static weir_status host_free(void *self, void *ptr)
{
    return weir__emulated_host_free(emulated_of(self), ptr);
}

static void note_allocate(void *self, weir_stream stream, void *ptr, size_t bytes)
{
    weir__emulated_ops.note_allocate(emulated_of(self), stream, ptr, bytes);
}

static void note_extend(void *self, weir_stream stream, void *ptr, size_t bytes,
                        size_t new_bytes)
{
    weir__emulated_ops.note_extend(emulated_of(self), stream, ptr, bytes, new_bytes);
}

static void note_at_once(void *self, void *ptr, size_t bytes)
{
    weir__emulated_ops.note_at_once(emulated_of(self), ptr, bytes);
}

static void note_cut(void *self, void *ptr, size_t bytes, size_t from, size_t to)
{
    weir__emulated_ops.note_cut(emulated_of(self), ptr, bytes, from, to);
}

static void note_deallocate(void *self, weir_stream stream, void *ptr, size_t bytes)
{
    weir__emulated_ops.note_deallocate(emulated_of(self), stream, ptr, bytes);
}

static void note_release(void *self, uint64_t capture)
{
    weir__emulated_ops.note_release(emulated_of(self), capture);
}

static void note_done(void *self, uint64_t key, weir_event event)
{
    weir__emulated_ops.note_done(emulated_of(self), key, event);
}

static void note_learn(void *self, uint64_t key)
{
    weir__emulated_ops.note_learn(emulated_of(self), key);
}

static void note_forget(void *self, uint64_t key, bool is_kept)
{
    weir__emulated_ops.note_forget(emulated_of(self), key, is_kept);
}

static void note_guard(void *self, void *ptr, size_t bytes, void *block,
                       size_t block_bytes)
{
    weir__emulated_ops.note_guard(emulated_of(self), ptr, bytes, block, block_bytes);
}

static void note_inspect(void *self, bool begins)
{
    weir__emulated_ops.note_inspect(emulated_of(self), begins);
}

static void dress(weir_device *device)
{
    weir_device_properties properties = { .struct_size = sizeof properties };
    if (device->ops == &ops)
        return;
    device->ops->properties(device->self, &properties);
    selves[properties.ordinal] = device->self;
    ops = *device->ops;
    ops.launch = launch;
    ops.host_malloc = host_malloc;
    ops.host_free = host_free;
    ops.emulated = emulated_of;
    ops.note_allocate = note_allocate;
    ops.note_extend = note_extend;
    ops.note_at_once = note_at_once;
    ops.note_cut = note_cut;
    ops.note_deallocate = note_deallocate;
    ops.note_release = note_release;
    ops.note_done = note_done;
    ops.note_learn = note_learn;
    ops.note_forget = note_forget;
    ops.note_guard = note_guard;
    ops.note_inspect = note_inspect;
    device->ops = &ops;
    device->listens = true;
}

static weir_status open_cuda(const char *name, const weir_device_options *options,
                             weir_device **out)
{
    weir_device_options rest = *options;
    char cuda_name[24];
    const char *colon = strchr(name, ':');
    int ordinal = colon != NULL ? atoi(colon + 1) : 0;
    snprintf(cuda_name, sizeof cuda_name, "cuda:%d", ordinal);
    weir__module_linked = weir__cuda_module();
    fakes_set_device(ordinal, options->emulated);
    rest.emulated = NULL;
    weir_status status = weir_device_open(cuda_name, &rest, out);
    if (status == WEIR_OK)
        dress(*out);
    return status;
}

weir_status support_open(const char *name, const weir_device_options *options,
                         weir_device **out)
{
    static const weir_device_options defaults = WEIR_DEVICE_OPTIONS_INIT;
    if (!support_is_cuda() || strncmp(name, "emulated", 8) != 0)
        return weir_device_open(name, options, out);
    return open_cuda(name, options != NULL ? options : &defaults, out);
}

void support_must_be_neat(bool all_closed)
{
    if (all_closed)
        fakes_end_process();
    fakes_state state = fakes_look();
    must_equal(state.pushed, 0);
    must_equal(state.last_error, 0);
    must(!state.is_relaxed);
    must_equal(state.timed_events, 0);
    must_equal(state.set_devices, 0);
    must_equal(state.implicit, 0);
    must_equal(state.spoilt, 0);
    if (!all_closed)
        return;
    must_equal(state.retained, 0);
    int64_t out = state.device_blocks + state.pool_blocks + state.pinned_blocks +
                  state.registered_blocks + state.streams + state.events +
                  state.pools + state.graphs;
    must(out <= (int64_t)state.refused); /* by a planned fault */
    fakes_reset();
}

void support_tidy_up(void)
{
    fakes_end_process();
    fakes_reset();
}

size_t support_pools_left(void)
{
    return (size_t)fakes_look().pools;
}
#else
weir_status support_open(const char *name, const weir_device_options *options,
                         weir_device **out)
{
    if (support_is_cuda())
        support_fail("this build can test CUDA devices", __FILE__, __LINE__);
    return weir_device_open(name, options, out);
}

void support_must_be_neat(bool all_closed)
{
    (void)all_closed;
}

size_t support_pools_left(void)
{
    return 0; /* they go with the device */
}

void support_tidy_up(void)
{
}
#endif
