/* support_spec.c - see support_spec.h. */
#include "support_spec.h"

#include <stdlib.h>
#include <string.h>

#include "weir/leaves.h"
#include "weir/pool.h"
#include "weir/statistics.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

const probe_values probe_blank = { .node = -1, .size = 4096 };
probe_record probe_records[WEIR_SPEC_PARTS_MAX];
size_t probe_count;

void probe_forget(void)
{
    probe_count = 0;
}

bool probe_is_same(const probe_values *a, const probe_values *b)
{
    bool files = a->file == NULL || b->file == NULL ? a->file == b->file
                                                    : strcmp(a->file, b->file) == 0;
    return files && a->append == b->append && a->quiet == b->quiet && a->node == b->node
           && a->far == b->far && a->mode == b->mode && a->flags == b->flags
           && a->wide_flags == b->wide_flags && a->size == b->size;
}

static void record(const probe_values *values, bool is_leaf)
{
    must(probe_count < WEIR_SPEC_PARTS_MAX);
    probe_record *it = &probe_records[probe_count++];
    it->is_leaf = is_leaf;
    it->values = *values;
    if (values->file == NULL)
        return;
    must(strlen(values->file) < sizeof it->file);
    memcpy(it->file, values->file, strlen(values->file) + 1);
    it->values.file = it->file;
}

static weir_status make_probe(weir_device *device, weir_resource *upstream,
                              const void *options, weir_resource **out)
{
    must(upstream == NULL);
    record(options, true);
    return weir_system_resource_create(device, out);
}

static weir_status make_wrap(weir_device *device, weir_resource *upstream,
                             const void *options, weir_resource **out)
{
    must(device != NULL && upstream != NULL);
    record(options, false);
    return weir_statistics_create(upstream, out);
}

/* A row of the library's own table stands for all of them. */
static weir_status make_pool(weir_device *device, weir_resource *upstream,
                             const void *options, weir_resource **out)
{
    (void)device;
    return weir_pool_create(upstream, options, out);
}

#define FILE_ROW                                                                 \
    { .name = "file", .type = WEIR__SPEC_TEXT, .doc = "a file",                  \
      WEIR__SPEC_FIELD(probe_values, file), .default_text = "none" }
#define MODE_ROW                                                                 \
    { .name = "mode", .type = WEIR__SPEC_WORD, .doc = "how",                     \
      WEIR__SPEC_FIELD(probe_values, mode), .default_text = "slow",              \
      WEIR__SPEC_CHOICES("slow, fast", PROBE_SLOW, PROBE_FAST) }

static const weir__spec_option probe_options[] = {
    FILE_ROW,
    { .name = "append", .type = WEIR__SPEC_BOOLEAN, .doc = "behind what is there",
      WEIR__SPEC_FIELD(probe_values, append), .default_text = "no" },
    { .name = "quiet", .type = WEIR__SPEC_BOOLEAN, .doc = "says nothing",
      WEIR__SPEC_FIELD(probe_values, quiet), .default_text = "no" },
    { .name = "node", .type = WEIR__SPEC_INTEGER, .doc = "a node",
      WEIR__SPEC_FIELD(probe_values, node), .default_text = "any",
      WEIR__SPEC_CHOICES("any", (uint64_t)-1), .least = 0, .most = 1023 },
    { .name = "far", .type = WEIR__SPEC_INTEGER, .doc = "a number",
      WEIR__SPEC_FIELD(probe_values, far), .default_text = "0",
      .least = -INT64_MAX, .most = INT64_MAX },
    MODE_ROW,
    { .name = "flags", .type = WEIR__SPEC_WORDS, .doc = "some",
      WEIR__SPEC_FIELD(probe_values, flags), .default_text = "none",
      WEIR__SPEC_CHOICES("none, a, b, high", 0, 1, 2, UINT64_C(1) << 31) },
    { .name = "wide", .type = WEIR__SPEC_WORDS, .doc = "more",
      WEIR__SPEC_FIELD(probe_values, wide_flags), .default_text = "none",
      WEIR__SPEC_CHOICES("none, top, low, both", 0, UINT64_C(1) << 63, 1,
                         UINT64_C(1) << 63 | 1) },
    { .name = "size", .type = WEIR__SPEC_SIZE, .doc = "how much",
      WEIR__SPEC_FIELD(probe_values, size), .default_text = "4KiB",
      WEIR__SPEC_CHOICES("all, half", SIZE_MAX, SIZE_MAX / 2), .least = 16 },
};

static const weir__spec_option wrap_options[] = {
    { .name = "size", .type = WEIR__SPEC_SIZE, .doc = "how much",
      WEIR__SPEC_FIELD(probe_values, size) },
    FILE_ROW,
    MODE_ROW,
};

static const weir_pool_options pool_blank = WEIR_POOL_OPTIONS_INIT;

static const weir__spec_option pool_options[] = {
    { .name = "initial", .type = WEIR__SPEC_SIZE, .doc = "drawn first",
      WEIR__SPEC_FIELD(weir_pool_options, initial_bytes), .default_text = "0" },
    { .name = "limit", .type = WEIR__SPEC_SIZE, .doc = "the most",
      WEIR__SPEC_FIELD(weir_pool_options, limit_bytes), .default_text = "0" },
};

static const weir__spec_kind kinds[] = {
    { .name = "probe", .is_leaf = true, .make = make_probe, .blank = &probe_blank,
      .blank_bytes = sizeof probe_blank, .options = probe_options,
      .option_count = COUNT(probe_options), .purpose = "records" },
    { .name = "wrap", .make = make_wrap, .blank = &probe_blank,
      .blank_bytes = sizeof probe_blank, .options = wrap_options,
      .option_count = COUNT(wrap_options), .purpose = "records" },
    { .name = "pool", .make = make_pool, .blank = &pool_blank,
      .blank_bytes = sizeof pool_blank, .options = pool_options,
      .option_count = COUNT(pool_options), .purpose = "may refuse its options" },
};

const weir__spec_table probe_table = { kinds, COUNT(kinds) };

weir_status probe_open(weir_device *device, const char *spec, weir_resource **out)
{
    probe_forget();
    return weir__spec_open(&probe_table, device, spec, out);
}

size_t refused_character(void)
{
    static const char words[] = ": character ";
    const char *at = strstr(weir_last_error().message, words);
    return at == NULL ? 0 : strtoull(at + sizeof words - 1, NULL, 10);
}
