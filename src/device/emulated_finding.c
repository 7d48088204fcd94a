/* emulated_finding.c - what the ledger found on a device's streams: all are counted,
 * and the first ones kept, each with its sentence.
 *
 * The ledger calls in with its own lock held, from any device's call; so findings
 * have a lock of their own, a leaf below the ledger's. */
#include <stdio.h>
#include <string.h>

#include "device/emulated.h"

weir_status weir__findings_make(weir__emulated *device)
{
    weir__findings *self = &device->findings;
    size_t bytes = WEIR__FINDINGS_KEPT * sizeof *self->first;
    self->first = weir__host_alloc(bytes);
    if (self->first == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "no memory for findings");
    return WEIR_OK;
}

void weir__findings_free(weir__emulated *device)
{
    weir__host_free(device->findings.first);
    device->findings.first = NULL;
}

void weir__findings_add(void *device, const weir_emulated_finding *finding)
{
    weir__emulated *owner = device;
    weir__findings *self = &owner->findings;
    weir__mutex_lock(&self->lock);
    self->count++;
    if (self->kept < WEIR__FINDINGS_KEPT) {
        struct weir__finding *kept = &self->first[self->kept++];
        kept->finding = *finding;
        kept->finding.struct_size = sizeof *finding;
        snprintf(kept->message, sizeof kept->message, "%s", finding->message);
        kept->finding.message = kept->message;
    }
    weir__mutex_unlock(&self->lock);
    if (owner->options.on_finding != NULL)
        owner->options.on_finding(owner->options.finding_context, finding);
}
