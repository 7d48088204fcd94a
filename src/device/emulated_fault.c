/* emulated_fault.c - the head of every primitive, where a planned fault strikes: before
 * anything has happened, so that a call that fails so has had no effect.
 *
 * A lost device stays lost: what was left to do is dropped, every call is refused, and
 * no kernel runs any more once the first call has said so. */
#include <string.h>

#include "device/emulated.h"

static const char *const call_names[] = {
#define X(name) #name,
    WEIR_DEVICE_CALL_MAP(X)
#undef X
};

weir_status weir__emulated_refuse_lost(weir__emulated *device)
{
    while (device->running > 0)
        weir__cond_wait(&device->changed, &device->lock);
    return weir__fail_native(WEIR_DEVICE_LOST, WEIR__NATIVE_LOST,
                             "emulated device %d is lost", (int)device->ordinal);
}

void weir__emulated_lose(weir__emulated *device)
{
    device->is_lost = true;
    device->closed_gates = NULL;
    for (weir__queue *queue = device->active; queue != NULL;) {
        weir__queue *next = queue->next;
        weir__queue_discard(queue);
        queue = next;
    }
    weir__schedule_changed(device);
}

/* True for about `probability` of all draws. */
static bool draw(weir__emulated *device, double probability)
{
    if (probability <= 0)
        return false;
    device->fault_random = device->fault_random * 6364136223846793005u +
                           1442695040888963407u;
    return (double)(device->fault_random >> 11) * 0x1p-53 < probability;
}

/* Whether the planned fault strikes this call, which it counts. */
static bool fault_strikes(weir__emulated *device, weir__call call)
{
    const weir_emulated_fault *fault = &device->fault;
    if ((fault->kinds & (UINT64_C(1) << call)) == 0)
        return false;
    device->fault_calls++;
    if (device->fault_is_on)
        return true;
    bool by_count = device->fault_calls == fault->nth;
    if (!by_count && !draw(device, fault->probability))
        return false;
    device->fault_is_on = fault->lasting;
    return true;
}

static weir_status fault_tell(weir__emulated *device, weir__call call)
{
    weir_status status = device->fault.status;
    if (status == WEIR_DEVICE_LOST) {
        weir__emulated_lose(device);
        return weir__emulated_refuse_lost(device);
    }
    int32_t native = status == WEIR_OUT_OF_MEMORY ? WEIR__NATIVE_OUT_OF_MEMORY
                                                  : WEIR__NATIVE_PLANNED;
    return weir__fail_native(status, native,
                             "a planned fault struck call %llu, a %s, of emulated "
                             "device %d",
                             (unsigned long long)device->fault_calls, call_names[call],
                             (int)device->ordinal);
}

weir_status weir__emulated_begin_unplanned(weir__emulated *device)
{
    weir__emulated_meet_thread();
    weir__mutex_lock(&device->lock);
    return device->is_lost ? weir__emulated_refuse_lost(device) : WEIR_OK;
}

weir_status weir__emulated_begin(weir__emulated *device, weir__call call)
{
    weir_status status = weir__emulated_begin_unplanned(device);
    weir__cost_call(device, call);
    if (status == WEIR_OK && device->fault.kinds != 0 && fault_strikes(device, call))
        return fault_tell(device, call);
    return status;
}

static bool is_status(weir_status status)
{
    switch (status) {
#define X(name, number, words) case WEIR_##name: return true;
        WEIR_STATUS_MAP(X)
#undef X
    }
    return false;
}

weir_status weir__fault_plan(weir__emulated *device, const weir_emulated_fault *fault)
{
    weir_emulated_fault plan = { .struct_size = sizeof plan };
    if (fault != NULL) {
        weir_status status = weir__read_options(fault, &plan, sizeof plan, "a fault");
        if (status != WEIR_OK)
            return status;
        if (!(plan.probability >= 0 && plan.probability <= 1))
            return weir__fail(WEIR_INVALID_ARGUMENT, "%g is no probability",
                              plan.probability);
        if (!is_status(plan.status))
            return weir__fail(WEIR_INVALID_ARGUMENT, "%d is no status",
                              (int)plan.status);
        if (plan.kinds == 0)
            plan.kinds = WEIR_EMULATED_ALL_CALLS;
        if (plan.status == WEIR_OK)
            plan.status = WEIR_DEVICE_ERROR;
    }
    device->fault = plan;
    device->fault_calls = 0;
    device->fault_is_on = false;
    return WEIR_OK;
}

uint64_t weir_emulated_call_bit(const char *name)
{
    for (int call = 0; name != NULL && call < WEIR__CALL_COUNT; call++) {
        if (strcmp(call_names[call], name) == 0)
            return UINT64_C(1) << call;
    }
    return 0;
}
