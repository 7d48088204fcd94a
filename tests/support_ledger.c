/* support_ledger.c - a scene for the tests of the ledger. */
#include "support_ledger.h"

#include <stdio.h>
#include <string.h>

#include "internal.h"
#include "support.h"

weir__ledger *ledger;
log_of_device ours, others;
uint64_t host;

void found(void *device, const weir_emulated_finding *finding)
{
    log_of_device *log = device;
    log->count++;
    log->last = *finding;
    snprintf(log->message, sizeof log->message, "%s", finding->message);
}

const weir__ledger_owner our_owner = { found, &ours };
const weir__ledger_owner other_owner = { found, &others };

/* Both devices, their streams, one memory each; threads 1 and 2 have been seen. */
void set_scene(void)
{
    memset(&ours, 0, sizeof ours);
    memset(&others, 0, sizeof others);
    host = 1;
    ledger = weir__ledger_open();
    must(ledger != NULL);
    weir__ledger_stream_begin(ledger, &our_owner, LEGACY, true, true);
    for (uint64_t id = A; id <= D; id++)
        weir__ledger_stream_begin(ledger, &our_owner, id, false, false);
    weir__ledger_stream_begin(ledger, &our_owner, BLOCKING, false, true);
    weir__ledger_stream_begin(ledger, &our_owner, BLOCKING_2, false, true);
    weir__ledger_stream_begin(ledger, &other_owner, THEIR_LEGACY, true, true);
    weir__ledger_stream_begin(ledger, &other_owner, THEIRS, false, false);
    weir__ledger_stream_begin(ledger, &other_owner, THEIR_BLOCKING, false, true);
    weir__ledger_memory_begin(ledger, &our_owner, host, BASE, SIZE);
    weir__ledger_memory_begin(ledger, &other_owner, host, PEER, SIZE);
    for (uint64_t thread = 1; thread <= 2; thread++)
        weir__ledger_unref(ledger, weir__ledger_host_give(ledger, thread));
}

void clear_scene(void)
{
    weir__ledger_verify(ledger);
    weir__ledger_device_end(ledger, &ours);
    weir__ledger_device_end(ledger, &others);
    weir__ledger_verify(ledger);
    weir__ledger_close(ledger);
}

void must_have_found(size_t count, bool with)
{
    if (ours.count != count)
        fprintf(stderr, "  %s the edge: %s\n", with ? "with" : "without",
                ours.count == 0 ? "nothing found" : ours.message);
    must_equal(ours.count, count);
    must_equal(others.count, 0);
}

/* Runs `scenario` with its edge and without. */
void check_edge(void (*scenario)(bool with))
{
    size_t live = weir__host_live();
    for (int with = 1; with >= 0; with--) {
        set_scene();
        scenario(with != 0);
        must_have_found(with ? 0 : 1, with != 0);
        clear_scene();
    }
    must_equal(weir__host_live(), live);
}

/* The same for what must always be quiet. */
void check_quiet(void (*scenario)(void))
{
    set_scene();
    scenario();
    must_have_found(0, true);
    clear_scene();
}

void touch(uint64_t stream, uintptr_t ptr, size_t bytes,
                  weir_emulated_access access)
{
    weir__ledger_access one = { ptr, bytes, access };
    weir__ledger_operation(ledger, host, stream, "kernel", &one, 1);
    weir__ledger_verify(ledger);
}

void write_on(uint64_t stream)
{
    touch(stream, BASE, BLOCK, WEIR_EMULATED_WRITE);
}

void read_on(uint64_t stream)
{
    touch(stream, BASE, BLOCK, WEIR_EMULATED_READ);
}

void allocate_on(uint64_t stream)
{
    weir__ledger_allocate(ledger, host, stream, BASE, BLOCK);
    weir__ledger_verify(ledger);
}

void deallocate_on(uint64_t stream)
{
    weir__ledger_deallocate(ledger, host, stream, BASE, BLOCK);
    weir__ledger_verify(ledger);
}

weir__ledger_position *record(uint64_t stream)
{
    return weir__ledger_record(ledger, host, stream);
}

/* Each takes the reference. */
void stream_waits(uint64_t stream, weir__ledger_position *position)
{
    weir__ledger_stream_wait(ledger, host, stream, position);
    weir__ledger_unref(ledger, position);
}

void host_waits(weir__ledger_position *position)
{
    weir__ledger_host_wait(ledger, host, position);
    weir__ledger_unref(ledger, position);
}

void wait_for(uint64_t stream, uint64_t other)
{
    stream_waits(stream, record(other));
}
