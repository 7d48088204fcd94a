/* fit.c - a library fits into buffers of its caller's, and bytes change hands without
 * being copied.
 *
 * fit() is a C library's: it gets its caller's buffers by reference, and grows them
 * from whatever resource they have. Others know a model as a pointer and a size, no
 * more: so it is handed out, and taken back. The caller's array is wrapped, and stays
 * his own. Copies, allocations and frees are counted; status 1 if a count is wrong. */
#include <stdio.h>
#include <weir/weir.h>

#define TRY(call)                                                         \
    do {                                                                  \
        weir_status status_ = (call);                                     \
        if (status_ != WEIR_OK)                                           \
            return status_;                                               \
    } while (0)

enum { ROWS = 4, COLUMNS = 256 };

/* ---- the library: it knows buffers, and nothing of who allocates ---- */

/* Runs on the device, when its stream comes to it. */
static void add_up(void *argument, void *const views[])
{
    const double *table = views[0];
    double *means = views[1];
    (void)argument;
    for (size_t c = 0; c < COLUMNS; c++) {
        means[c] = 0;
        for (size_t r = 0; r < ROWS; r++)
            means[c] += table[r * COLUMNS + c] / ROWS;
    }
}

/* Appends the means of the table's columns to the model, which grows. */
static weir_status fit(weir_device *device, weir_stream stream,
                       const weir_buffer *table, weir_buffer *model)
{
    size_t before = model->size, bytes = COLUMNS * sizeof(double);
    TRY(weir_buffer_resize(model, before + bytes, stream));
    const weir_emulated_range ranges[] = {
        { table->data, table->size, WEIR_EMULATED_READ },
        { (char *)model->data + before, bytes, WEIR_EMULATED_WRITE },
    };
    return weir_emulated_launch(device, stream, add_up, NULL, ranges, 2);
}

/* A pointer and a size are all that passes here; what is needed to free the bytes, or
 * to take them back, stays behind in `ticket`. */
static weir_status serialise(weir_buffer *model, weir_released *ticket, void **ptr,
                             size_t *size)
{
    TRY(weir_buffer_release(model, ticket));
    weir_buffer_reset(model); /* it could still grow */
    *ptr = ticket->data;
    *size = ticket->size;
    return WEIR_OK;
}

static weir_status deserialise(weir_released *ticket, void *ptr, size_t size,
                               weir_stream stream, weir_buffer *model)
{
    if (ptr != ticket->data || size != ticket->size)
        return WEIR_INVALID_ARGUMENT; /* not the bytes that went out */
    TRY(weir_buffer_adopt_block(ticket->resource, ticket->stream, ticket->ptr,
                                ticket->bytes, ticket->alignment, model));
    weir_resource_unref(ticket->resource); /* the buffer has its own */
    TRY(weir_buffer_set_stream(model, stream));
    return weir_buffer_resize(model, size, stream); /* as it was: nothing moves */
}

/* ---- its user ---- */

static int slips;

static void expect(uint64_t was, uint64_t wanted, const char *what)
{
    printf("%-48s %2llu\n", what, (unsigned long long)was);
    if (was == wanted)
        return;
    fprintf(stderr, "that should be %llu\n", (unsigned long long)wanted);
    slips++;
}

static uint64_t copies(weir_device *device)
{
    weir_device_calls calls = { .struct_size = sizeof calls };
    return weir_device_get_calls(device, &calls) == WEIR_OK ? calls.copy : UINT64_MAX;
}

static weir_resource_statistics counts(weir_resource *mr)
{
    weir_resource_statistics it = { .struct_size = sizeof it };
    if (weir_resource_get_statistics(mr, &it) != WEIR_OK)
        it.out_blocks = SIZE_MAX;
    return it;
}

static weir_status use_library(weir_device *device, weir_stream stream,
                               weir_resource *mr)
{
    static double array[ROWS * COLUMNS];
    for (size_t i = 0; i < ROWS * COLUMNS; i++)
        array[i] = (double)(i % COLUMNS);

    weir_buffer table, model;
    TRY(weir_buffer_view(array, sizeof array, stream, &table));
    TRY(weir_buffer_init(mr, stream, &model));
    TRY(fit(device, stream, &table, &model));
    expect(copies(device), 0, "copies: wrap an array, fit for the first time");
    TRY(fit(device, stream, &table, &model));
    expect(copies(device), 1, "copies: fit once more, the model grows");
    expect(counts(mr).deallocations, 1, "blocks freed, in stream order");

    weir_released ticket = { .struct_size = sizeof ticket };
    void *ptr, *data = model.data;
    size_t size;
    TRY(serialise(&model, &ticket, &ptr, &size));
    expect(ptr == data && model.data == NULL, 1, "handed out: the very bytes");
    TRY(deserialise(&ticket, ptr, size, stream, &model));
    expect(model.data == data && model.size == size, 1, "taken back: the very bytes");
    expect(copies(device), 1, "copies: still");
    expect(counts(mr).allocations, 2, "blocks allocated, in all");

    double last;
    TRY(weir_copy_sync(device, stream, &last,
                       (char *)model.data + size - sizeof last, sizeof last));
    expect((uint64_t)last, COLUMNS - 1, "mean of the last column");

    weir_buffer_reset(&model);
    weir_buffer_reset(&table);
    expect(counts(mr).deallocations, 2, "blocks freed, in all");
    expect((uint64_t)array[COLUMNS - 1], COLUMNS - 1, "the caller's array, as it was");
    return WEIR_OK;
}

static weir_status run(void)
{
    weir_device *device;
    weir_stream stream;
    weir_resource *mr;
    TRY(weir_device_open("emulated", NULL, &device));
    TRY(weir_stream_create(device, WEIR_STREAM_NON_BLOCKING, &stream));
    TRY(weir_resource_open(device, "statistics/pool/device", &mr));
    TRY(use_library(device, stream, mr));
    TRY(weir_stream_destroy(device, stream));
    expect(counts(mr).out_blocks, 0, "blocks still out");
    weir_resource_unref(mr);
    expect(weir_emulated_findings(device), 0, "accesses that nothing ordered");
    weir_device_unref(device);
    return WEIR_OK;
}

int main(void)
{
    weir_status status = run();
    if (status != WEIR_OK)
        fprintf(stderr, "%s: %s\n", weir_status_string(status),
                weir_last_error().message);
    return status == WEIR_OK && slips == 0 ? 0 : 1;
}
