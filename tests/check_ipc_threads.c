/* check_ipc_threads.c - threads of one process that open, share and close the same
 * tickets at once, while another process does, too. */
#include "support_remote.h"

#define BYTES   ((size_t)65536)
#define KEY     7u
#define THREADS 4

typedef struct opener {
    weir_device *device;
    weir_stream stream;
    const weir_ticket *tickets; /* two */
    uint64_t rounds;
    uint64_t seed;
} opener;

static void open_and_close(void *argument)
{
    opener *self = argument;
    uint64_t random = self->seed;
    for (uint64_t i = 0; i < self->rounds; i++) {
        size_t which = support_random_below(&random, 2);
        weir_buffer buffer, slice;
        must_ok(weir_ipc_open(self->device, self->stream, &self->tickets[which], NULL,
                              &buffer));
        check_stamp(self->device, self->stream, buffer.data, buffer.size, KEY + which);
        bool keeps_slice = support_random_below(&random, 2) == 0;
        if (keeps_slice)
            must_ok(weir_buffer_slice(&buffer, 0, 64, &slice));
        must_ok(weir_ipc_close(&buffer, self->stream));
        if (support_random_below(&random, 8) == 0)
            must_ok(weir_ipc_trim_sync());
        if (keeps_slice)
            weir_buffer_reset(&slice);
    }
}

static void threads_open_the_same_tickets(void **state)
{
    (void)state;
    uint64_t rounds = support_bound("openings by each of four threads", 25, 250);
    ipc_stage it = ipc_begin();
    remote other = remote_begin();
    weir_buffer mine = ipc_make(&it, BYTES, KEY);
    weir_ticket tickets[2] = { ipc_export(&mine, WEIR_READ) };
    remote_make(&other, 0, BYTES, KEY + 1);
    must_ok(remote_export(&other, 0, WEIR_READ, &tickets[1]));
    opener openers[THREADS];
    void *arguments[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        openers[i] = (opener){ it.at.device,
                               make_stream(it.at.device, WEIR_STREAM_NON_BLOCKING),
                               tickets, rounds, support_seed(i) };
        arguments[i] = &openers[i];
    }
    must_ok(weir_emulated_run_threads(it.at.device, THREADS, open_and_close,
                                      arguments));
    for (unsigned i = 0; i < THREADS; i++)
        end_stream(it.at.device, openers[i].stream);
    weir_ipc_statistics now = { .struct_size = sizeof now };
    must_ok(weir_ipc_get_statistics(&now));
    must_equal(now.imports, 0);
    weir_buffer_reset(&mine);
    remote_reset(&other, 0);
    remote_end(&other);
    ipc_end(&it);
}

static int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(threads_open_the_same_tickets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    return remote_main(argc, argv, run);
}
