/* emulated_costs.c - what the device's calls would have taken on another device.
 *
 * Nothing waits for it: costs are only added up, so that they neither change what
 * happens nor depend on how busy this machine is. */
#include <math.h>

#include "device/emulated.h"

static bool is_cost(double ns)
{
    return isfinite(ns) && ns >= 0;
}

static weir_status cost_check(const weir_emulated_cost *cost, const char *name)
{
    if (is_cost(cost->ns) && is_cost(cost->ns_per_mib))
        return WEIR_OK;
    return weir__fail(WEIR_INVALID_ARGUMENT,
                      "no %s takes %g ns and %g ns for each MiB", name, cost->ns,
                      cost->ns_per_mib);
}

weir_status weir__costs_read(const weir_emulated_costs *from, weir_emulated_costs *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out, "costs");
#define X(name)                                                                  \
    if (status == WEIR_OK)                                                       \
        status = cost_check(&out->name, #name);
    WEIR_DEVICE_CALL_MAP(X)
#undef X
    return status;
}

void weir__costs_set(weir__emulated *device, const weir_emulated_costs *costs)
{
#define X(name) device->costs[WEIR__CALL_##name] = costs->name;
    WEIR_DEVICE_CALL_MAP(X)
#undef X
}

void weir__cost_call(weir__emulated *device, weir__call call)
{
    device->modelled_ns += device->costs[call].ns;
}

void weir__cost_bytes(weir__emulated *device, weir__call call, size_t bytes)
{
    device->modelled_ns += device->costs[call].ns_per_mib * (double)bytes * 0x1p-20;
}
