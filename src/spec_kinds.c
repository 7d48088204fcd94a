/* spec_kinds.c - the resources that text can name: one row each, the options first.
 *
 * What is written here as a default is a value that sets what holds without it. Where
 * zero asks a struct for its default, text has a word for that, and zero is refused. */
#include "spec.h"
#include "weir/async.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/logging.h"
#include "weir/managed.h"
#include "weir/pinned.h"
#include "weir/pool.h"
#include "weir/statistics.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* ---- device, system ---- */

static weir_status make_device(weir_device *device, weir_resource *upstream,
                               const void *options, weir_resource **out)
{
    (void)upstream;
    (void)options;
    return weir_device_resource_create(device, out);
}

static weir_status make_system(weir_device *device, weir_resource *upstream,
                               const void *options, weir_resource **out)
{
    (void)upstream;
    (void)options;
    return weir_system_resource_create(device, out);
}

/* ---- managed, pinned ---- */

static const weir_managed_options managed_blank = WEIR_MANAGED_OPTIONS_INIT;

static const weir__spec_option managed_options[] = {
    { .name = "preferred", .type = WEIR__SPEC_WORD,
      WEIR__SPEC_FIELD(weir_managed_options, preferred), .default_text = "none",
      WEIR__SPEC_CHOICES("none, device, host", WEIR_MANAGED_ANYWHERE,
                         WEIR_MANAGED_DEVICE, WEIR_MANAGED_HOST),
      .doc = "where it should stay; the others reach it there" },
    { .name = "read_mostly", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(weir_managed_options, read_mostly), .default_text = "false",
      .doc = "copies of it may lie in several places" },
};

static weir_status make_managed(weir_device *device, weir_resource *upstream,
                                const void *options, weir_resource **out)
{
    (void)upstream;
    return weir_managed_create(device, options, out);
}

#define ANY_NODE (-1)

typedef struct pinned_values {
    weir_pinned_options options;
    int32_t numa;
} pinned_values;

static const pinned_values pinned_blank = { .options = WEIR_PINNED_OPTIONS_INIT,
                                            .numa = ANY_NODE };

static const weir__spec_option pinned_options[] = {
    { .name = "portable", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(pinned_values, options.portable), .default_text = "false",
      .doc = "pinned for all devices, not only for this one" },
    { .name = "mapped", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(pinned_values, options.mapped), .default_text = "false",
      .doc = "in the device's address space too, which it mostly is anyway" },
    { .name = "numa", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(pinned_values, numa), .default_text = "any",
      WEIR__SPEC_CHOICES("any", (uint64_t)ANY_NODE), .least = 0, .most = INT32_MAX,
      .doc = "the node of the host's that it lies on" },
};

static weir_status make_pinned(weir_device *device, weir_resource *upstream,
                               const void *options, weir_resource **out)
{
    (void)upstream;
    pinned_values values = *(const pinned_values *)options;
    if (values.numa != ANY_NODE) {
        values.options.on_numa_node = true;
        values.options.numa_node = values.numa;
    }
    return weir_pinned_create(device, &values.options, out);
}

/* ---- async ---- */

typedef struct async_values {
    weir_async_options options;
    int32_t numa;
} async_values;

static const async_values async_blank = {
    .options = { .struct_size = sizeof(weir_async_options),
                 .release_threshold_bytes = SIZE_MAX },
    .numa = ANY_NODE
};

static const weir__spec_option async_options[] = {
    { .name = "pool", .type = WEIR__SPEC_WORD,
      WEIR__SPEC_FIELD(async_values, options.pool), .default_text = "own",
      WEIR__SPEC_CHOICES("own, default", WEIR_ASYNC_OWN, WEIR_ASYNC_DEFAULT),
      .doc = "which of the driver's pools; the options below are for an own one" },
    { .name = "memory", .type = WEIR__SPEC_WORD,
      WEIR__SPEC_FIELD(async_values, options.memory), .default_text = "device",
      WEIR__SPEC_CHOICES("device, managed, pinned", WEIR_ASYNC_DEVICE,
                         WEIR_ASYNC_MANAGED, WEIR_ASYNC_PINNED),
      .doc = "what it hands out" },
    { .name = "primed", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(async_values, options.primed_bytes), .default_text = "none",
      WEIR__SPEC_CHOICES("none", 0), .doc = "drawn when it is made" },
    { .name = "release_threshold", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(async_values, options.release_threshold_bytes),
      .default_text = "everything", WEIR__SPEC_CHOICES("everything", SIZE_MAX),
      .doc = "how much it keeps when the host waits" },
    { .name = "max", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(async_values, options.max_bytes), .default_text = "driver",
      WEIR__SPEC_CHOICES("driver", 0), .least = 1,
      .doc = "most to draw; by default what the driver allows" },
    { .name = "handle_types", .type = WEIR__SPEC_WORDS,
      WEIR__SPEC_FIELD(async_values, options.handle_types), .default_text = "none",
      WEIR__SPEC_CHOICES("none, posix_fd, fabric", 0, WEIR_ASYNC_HANDLE_POSIX_FD,
                         WEIR_ASYNC_HANDLE_FABRIC),
      .doc = "how its memory can be handed to other processes" },
    { .name = "reuse", .type = WEIR__SPEC_WORDS,
      WEIR__SPEC_FIELD(async_values, options.reuse),
      .default_text = "same_stream+events+opportunistic+internal",
      WEIR__SPEC_CHOICES("same_stream, events, opportunistic, internal",
                         WEIR_ASYNC_REUSE_SAME_STREAM, WEIR_ASYNC_REUSE_EVENTS,
                         WEIR_ASYNC_REUSE_OPPORTUNISTIC, WEIR_ASYNC_REUSE_INTERNAL),
      .doc = "what of other streams' memory the driver may reuse" },
    { .name = "numa", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(async_values, numa), .default_text = "any",
      WEIR__SPEC_CHOICES("any", (uint64_t)ANY_NODE), .least = 0, .most = INT32_MAX,
      .doc = "pinned memory: the node of the host's that it lies on" },
};

/* In text a threshold of 0 means what it says; in the options that is the default. */
static weir_status make_async(weir_device *device, weir_resource *upstream,
                              const void *options, weir_resource **out)
{
    (void)upstream;
    async_values values = *(const async_values *)options;
    size_t *threshold = &values.options.release_threshold_bytes;
    if (*threshold == SIZE_MAX)
        *threshold = 0;
    else if (*threshold == 0)
        *threshold = 1;
    if (values.numa != ANY_NODE) {
        values.options.on_numa_node = true;
        values.options.numa_node = values.numa;
    }
    return weir_async_create(device, &values.options, out);
}

/* ---- pool ---- */

static const weir_pool_options pool_blank = WEIR_POOL_OPTIONS_INIT;

static const weir__spec_option pool_options[] = {
    { .name = "initial", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, initial_bytes), .default_text = "none",
      WEIR__SPEC_CHOICES("none", 0),
      .doc = "drawn in one chunk by the first allocation" },
    { .name = "limit", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, limit_bytes), .default_text = "unlimited",
      WEIR__SPEC_CHOICES("unlimited", SIZE_MAX), .least = 1,
      .doc = "most to hold from upstream" },
    { .name = "growth", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, growth_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto", 0), .least = 1,
      .doc = "chunks are multiples of it; auto: 8MiB, and as the pool grows an "
             "eighth to a quarter of what it holds, up to 256MiB" },
    { .name = "cache", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, cache_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto, none", 0, WEIR_POOL_NO_CACHE), .least = 1,
      .doc = "most that a thread keeps of what it freed on one stream; auto: 32MiB" },
    { .name = "slack", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, slack_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto, none", 0, WEIR_POOL_NO_SLACK), .least = 1,
      .doc = "what may lie free on other streams while the pool grows for one; auto: "
             "64MiB or a sixteenth of what it holds; none with a limit" },
};

static weir_status make_pool(weir_device *device, weir_resource *upstream,
                             const void *options, weir_resource **out)
{
    (void)device;
    return weir_pool_create(upstream, options, out);
}

/* ---- statistics, limiting ---- */

static weir_status make_statistics(weir_device *device, weir_resource *upstream,
                                   const void *options, weir_resource **out)
{
    (void)device;
    (void)options;
    return weir_statistics_create(upstream, out);
}

typedef struct limiting_values {
    size_t limit_bytes;
} limiting_values;

static const limiting_values limiting_blank = { 0 };

static const weir__spec_option limiting_options[] = {
    { .name = "limit", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(limiting_values, limit_bytes),
      .doc = "most bytes to be out at once" },
};

static weir_status make_limiting(weir_device *device, weir_resource *upstream,
                                 const void *options, weir_resource **out)
{
    const limiting_values *values = options;
    (void)device;
    return weir_limiting_create(upstream, values->limit_bytes, out);
}

/* ---- logging ---- */

typedef struct logging_values {
    const char *file;
    weir_logging_options options;
} logging_values;

static const logging_values logging_blank = { .options = WEIR_LOGGING_OPTIONS_INIT };

static const weir__spec_option logging_options[] = {
    { .name = "file", .type = WEIR__SPEC_TEXT,
      WEIR__SPEC_FIELD(logging_values, file), .doc = "that the lines go to" },
    { .name = "append", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(logging_values, options.append), .default_text = "false",
      .doc = "goes on behind what the file holds; else it begins anew" },
    { .name = "flush", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(logging_values, options.flush_bytes), .default_text = "none",
      WEIR__SPEC_CHOICES("none", 0), .least = 1,
      .doc = "as many bytes of lines may wait to be written, 1MiB at most" },
};

static weir_status make_logging(weir_device *device, weir_resource *upstream,
                                const void *options, weir_resource **out)
{
    const logging_values *values = options;
    (void)device;
    return weir_logging_create(upstream, values->file, &values->options, out);
}

/* ---- the table: leaves first ---- */

static const weir__spec_kind kinds[] = {
    { .name = "device", .is_leaf = true, .make = make_device,
      .purpose = "memory of the device, one device call each" },
    { .name = "system", .is_leaf = true, .make = make_system,
      .purpose = "ordinary host memory, where the device can reach it" },
    { .name = "managed", .is_leaf = true, .make = make_managed,
      .purpose = "memory that moves between host and device",
      .blank = &managed_blank, .blank_bytes = sizeof managed_blank,
      .options = managed_options, .option_count = COUNT(managed_options) },
    { .name = "pinned", .is_leaf = true, .make = make_pinned,
      .purpose = "host memory that stays where it is, for fast copies",
      .blank = &pinned_blank, .blank_bytes = sizeof pinned_blank,
      .options = pinned_options, .option_count = COUNT(pinned_options) },
    { .name = "async", .is_leaf = true, .make = make_async,
      .purpose = "memory of the driver's own pools, in stream order",
      .blank = &async_blank, .blank_bytes = sizeof async_blank,
      .options = async_options, .option_count = COUNT(async_options) },
    { .name = "callback", .is_leaf = true, .only_from = "weir_callback_create",
      .purpose = "memory from functions of the caller's" },
    { .name = "pool", .make = make_pool,
      .purpose = "reuses freed memory, stream by stream, before asking upstream",
      .blank = &pool_blank, .blank_bytes = sizeof pool_blank,
      .options = pool_options, .option_count = COUNT(pool_options) },
    { .name = "limiting", .make = make_limiting,
      .purpose = "refuses to let more than a set number of bytes be out",
      .blank = &limiting_blank, .blank_bytes = sizeof limiting_blank,
      .options = limiting_options, .option_count = COUNT(limiting_options) },
    { .name = "logging", .make = make_logging,
      .purpose = "writes each call to a file, in the form of RMM's log and more",
      .blank = &logging_blank, .blank_bytes = sizeof logging_blank,
      .options = logging_options, .option_count = COUNT(logging_options) },
    { .name = "statistics", .make = make_statistics,
      .purpose = "counts what passes through" },
};

const weir__spec_table weir__spec_table_own = { kinds, COUNT(kinds) };
