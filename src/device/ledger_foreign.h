/* ledger_foreign.h - what the ledgers of several processes tell each other.
 *
 * A record of an event that processes share goes with a telling: what it is behind, of
 * all streams that its ledger knows. Who waits for the event learns that. So an order
 * that leads through another process is seen where it comes back, and an access by
 * another process (weir__ledger_foreign) is judged, and judges others, as one of this
 * process's own.
 *
 * Names. A stream is called by 63 bits that are its own among all processes: 31 that
 * its process drew, and 32 of its id; the top bit sets them apart from ids. A process
 * calls its own streams by their ids, and what it is told of them is clamped to what
 * they have done. Nothing else of a telling is believed to be more than a number.
 *
 * Forgetting. A stream of another process stays in all clocks here until its process
 * has forgotten it, or has ended; and for as long as the history here names it. For it
 * may still be asked about there, behind what this process tells. A telling lists all
 * streams that its process knows of its own, with time 0 where it is not behind them:
 * what a newer one does not list is forgotten.
 *
 * A process without a ledger passes on what it is not asked about: who waits for it
 * counts as behind all that was ever told from here.
 *
 * The rule for what was forgotten: who learns anything from another process counts as
 * behind all forgotten streams. A telling that says nothing of a stream may come from
 * behind it, since its entry was thinned out on the way; so an access of such a stream
 * that is named here is a finding for those who have heard of no other process since,
 * and for nobody else. Where three processes pass on an order, and the middle one has
 * heard before the last one that the first has forgotten a stream, a finding may be
 * wrong: nobody can hand over memory so without waiting for the first itself. */
#ifndef WEIR_DEVICE_LEDGER_FOREIGN_H
#define WEIR_DEVICE_LEDGER_FOREIGN_H

#include "device/ledger.h"
#include "device/ledger_clock.h"

#define WEIR__LEDGER_FOREIGN (UINT64_C(1) << 63) /* in a stream's name */

typedef struct weir__ledger_telling {
    uint64_t process;  /* who tells: what it drew; 0: it has no ledger */
    uint64_t number;   /* of its tellings, from 1 */
    uint64_t stream;   /* that has recorded; its name among all processes */
    uint64_t count;    /* of epochs */
} weir__ledger_telling;

/* Who that is, as weir__process_find knows it. */
typedef struct weir__ledger_teller {
    int32_t pid;
    uint64_t start_time;
} weir__ledger_teller;

/* Tells of `position`, which stream `id` has recorded: writes the epochs to `epochs`,
 * where there is room for `room`. out->count may be more: then they are cut off. */
void weir__ledger_tell_others(weir__ledger *ledger,
                              const weir__ledger_position *position, uint64_t id,
                              weir__epoch *epochs, size_t room,
                              weir__ledger_telling *out);

/* What somebody has told as a position of this ledger, with one reference; null: the
 * ledger is deaf. The epochs, which it sorts, are the caller's; null: they could not be
 * had, and the ledger is deaf from now on. */
weir__ledger_position *weir__ledger_hear(weir__ledger *ledger,
                                         const weir__ledger_teller *teller,
                                         const weir__ledger_telling *telling,
                                         weir__epoch *epochs);

/* The process of `stream` (its name among all) has touched the bytes in front of the
 * record of that stream that told `position`. */
void weir__ledger_foreign(weir__ledger *ledger, uint64_t stream,
                          const weir__ledger_position *position, uintptr_t ptr,
                          size_t bytes, bool writes);

#endif
