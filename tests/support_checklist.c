/* support_checklist.c - see support_checklist.h. */
#include "support_checklist.h"

#include <stdlib.h>
#include <string.h>

#define SEED 1
#define MEMORY ((size_t)1 << 30)
#define LOOKS 1000 /* for a wait that is missing to show */

static weir_emulated_scheduler scheduler_asked_for(void)
{
    const char *wish = getenv("WEIR_TEST_DEVICE");
    if (wish != NULL && strcmp(wish, "threads") == 0)
        return WEIR_EMULATED_THREADS;
    must(wish == NULL || strcmp(wish, "stepped") == 0 || strcmp(wish, "cuda") == 0);
    return WEIR_EMULATED_STEPPED;
}

weir_device *checklist_open(void)
{
    return open_emulated(scheduler_asked_for(), support_seed(SEED));
}

weir_device *checklist_open_other(void)
{
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.memory_bytes = MEMORY;
    emulated.scheduler = scheduler_asked_for();
    emulated.seed = support_seed_in_use();
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;
    return open_with("emulated:1", &options);
}

void checklist_close(weir_device *device)
{
    close_emulated(device);
}

checklist_stage checklist_begin(void)
{
    checklist_stage stage = { .device = checklist_open() };
    must_ok(weir_resource_open(stage.device, "pool/device", &stage.mr));
    stage.a = make_stream(stage.device, WEIR_STREAM_NON_BLOCKING);
    stage.b = make_stream(stage.device, WEIR_STREAM_NON_BLOCKING);
    stage.c = make_stream(stage.device, WEIR_STREAM_NON_BLOCKING);
    return stage;
}

void checklist_end(checklist_stage *stage)
{
    weir_resource_unref(stage->mr);
    end_stream(stage->device, stage->a);
    end_stream(stage->device, stage->b);
    end_stream(stage->device, stage->c);
    checklist_close(stage->device);
}

uint64_t checklist_hold(weir_device *device, weir_stream stream)
{
    uint64_t gate;
    must_ok(weir_emulated_stall(device, stream, &gate));
    return gate;
}

void checklist_let_go(weir_device *device, uint64_t gate)
{
    must_ok(weir_emulated_open_gate(device, gate));
}

bool checklist_is_stepped(void)
{
    return scheduler_asked_for() == WEIR_EMULATED_STEPPED;
}

void must_stay_undone(weir_device *device, weir_stream stream)
{
    for (int look = 0; look < LOOKS; look++) {
        bool is_done;
        must_ok(weir_stream_query(device, stream, &is_done));
        must(!is_done);
    }
}

/* Where there are no workers a wait for what is held ends, and says so; with them it
 * would not, and the stream is asked. */
void must_be_held(weir_device *device, weir_stream stream)
{
    if (checklist_is_stepped()) {
        must_answer(WEIR_DEVICE_ERROR, weir_stream_sync(device, stream));
        return;
    }
    must_stay_undone(device, stream);
}

void must_not_be_held(weir_device *device, weir_stream stream)
{
    must_ok(weir_stream_sync(device, stream));
}

uint64_t checklist_copies(weir_device *device)
{
    return calls_of(device).copy;
}
