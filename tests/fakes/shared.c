/* shared.c - see shared.h. */
#include "fakes/shared.h"

void put(weir_device *device, void *ptr, size_t bytes, uint8_t value)
{
    must_ok(weir__fill(device, NULL, ptr, value, bytes));
    must_ok(weir__stream_sync(device, NULL));
}

/* On both ends. */
void must_have(weir_device *device, const void *ptr, size_t bytes, uint8_t value)
{
    uint8_t first, last;
    const uint8_t *all = ptr;
    must_ok(weir__copy(device, NULL, &first, all, 1));
    must_ok(weir__copy(device, NULL, &last, all + bytes - 1, 1));
    must_ok(weir__stream_sync(device, NULL));
    must_equal(first, value);
    must_equal(last, value);
}

/* Nothing is out that was made or opened here. */
void must_be_none(void)
{
    fakes_state state = fakes_look();
    must_equal(state.objects, 0);
    must_equal(state.mappings, 0);
    must_equal(state.addresses, 0);
    must_equal(state.opened, 0);
    must_equal(state.device_blocks, 0);
    must_equal(state.events, 0);
}

weir_device *device_of(const fakes_machine *machine)
{
    fakes_set_machine(machine);
    return cuda_open(0);
}

void end_device(weir_device *device)
{
    must_be_none();
    fakes_set_machine(NULL);
    close_emulated(device);
}

void must_not_find(weir_device *device, const void *ptr)
{
    void *base = NULL;
    weir__shared found = { .fd = 9 };
    must_answer(WEIR_NOT_SUPPORTED, weir__shared_find(device, ptr, 1, &base, &found));
    must(base == NULL && found.fd == 9);
    must_answer(WEIR_INVALID_ARGUMENT,
                weir__shared_export(device, (void *)(uintptr_t)ptr, &found));
}
