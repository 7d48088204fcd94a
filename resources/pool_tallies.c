/* pool_tallies.c - what threads have done with a pool: who is inside of his gate counts
 * for himself, a hit in its cache; who has the gates closed adds that up. */
#include "pool_hit.h"

#include "internal.h"
#include "pool_seats.h"

/* With what its caches count. */
static weir__tally tally_of(const weir__seat *seat)
{
    weir__tally sum = seat->tally;
    for (uint32_t i = 0; seat->caches != NULL && i <= seat->mask; i++) {
        if (seat->caches[i] == NULL)
            continue;
        sum.allocations += seat->caches[i]->allocations;
        sum.deallocations += seat->caches[i]->deallocations;
    }
    return sum;
}

void weir__pool_fold_locked(weir__pool *self)
{
    weir_resource_statistics *counts = &self->counts;
    /* Below zero where what others allocated was freed behind no gate. */
    int64_t before = (int64_t)counts->out_bytes, out = before, peak = 0;
    for (weir__seat *seat = self->seats; seat != NULL; seat = seat->next) {
        const weir__tally sum = tally_of(seat);
        counts->allocations += sum.allocations;
        counts->deallocations += sum.deallocations;
        out += sum.peak_bytes - sum.below_peak;
        if (peak < sum.peak_bytes)
            peak = sum.peak_bytes;
        seat->tally = (weir__tally){
            .allocations = seat->tally.allocations - sum.allocations,
            .deallocations = seat->tally.deallocations - sum.deallocations
        };
    }
    counts->out_bytes = (size_t)out;
    counts->out_blocks = (size_t)(counts->allocations - counts->deallocations);
    if (self->counts_whole_grains && counts->out_blocks == 0) {
        counts->out_bytes = 0; /* see pool_lost.c */
        self->counts_whole_grains = false;
    }
    weir__pool_note_peak_locked(self, before + peak);
    weir__pool_note_peak_locked(self, out);
}

void weir__pool_count_out(weir__pool *self, size_t bytes)
{
    weir__seat *seat = weir__seat_here(self);
    if (seat != NULL && weir__gate_enter(&seat->gate)) {
        weir__tally_out(&seat->tally, &seat->tally.allocations, bytes);
        weir__gate_leave(&seat->gate);
        return;
    }
    weir_resource_statistics *counts = &self->counts;
    weir__mutex_lock(&self->lock);
    counts->allocations++;
    counts->out_blocks++;
    counts->out_bytes += bytes;
    weir__pool_note_peak_locked(self, (int64_t)counts->out_bytes);
    weir__mutex_unlock(&self->lock);
}

void weir__pool_count_back(weir__pool *self, size_t bytes)
{
    weir__seat *seat = weir__seat_here(self);
    if (seat != NULL && weir__gate_enter(&seat->gate)) {
        weir__tally_back(&seat->tally, &seat->tally.deallocations, bytes);
        weir__gate_leave(&seat->gate);
        return;
    }
    weir__mutex_lock(&self->lock);
    self->counts.deallocations++;
    self->counts.out_blocks--;
    self->counts.out_bytes -= bytes;
    weir__mutex_unlock(&self->lock);
}
