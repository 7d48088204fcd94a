/* ledger_host.c - what a host thread says that it touches itself, and may. That is
 * judged, and not kept: what the thread puts on a stream later is behind it, and other
 * threads are not seen to be. */
#include "ledger_parts.h"

static bool touch(weir__ledger *self, const weir__ledger_owner *owner,
                  const weir__ledger_holder *host, uintptr_t ptr, size_t bytes,
                  bool writes)
{
    weir__act act = { .device = weir__ledger_device_of(self, owner),
                      .clock = &host->clock, .is_operation = true,
                      .what = "access" };
    if (act.device == NULL)
        return false;
    bool looked =
        weir__ledger_look_at(self, &act, ptr, weir__end_of(ptr, bytes), writes);
    weir__ledger_tell(self, &act);
    return looked;
}

void weir__ledger_host_access(weir__ledger *self, const weir__ledger_owner *owner,
                              uint64_t thread, uintptr_t ptr, size_t bytes, bool writes)
{
    if (bytes == 0 || !weir__ledger_in(self))
        return;
    const weir__ledger_holder *host = weir__ledger_thread_of(self, thread);
    weir__ledger_out(self, host != NULL &&
                               touch(self, owner, host, ptr, bytes, writes));
}

void weir__ledger_at_once(weir__ledger *self, uintptr_t ptr, size_t bytes)
{
    if (weir__ledger_in(self))
        weir__ledger_out(self, weir__ledger_open_block(self, ptr, bytes));
}
