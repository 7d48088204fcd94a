/* spec_kinds.c - the resources that text can name: one row each, the options first.
 *
 * What is written here as a default is a value that sets what holds without it. Where
 * zero asks a struct for its default, text has a word for that, and zero is refused. */
#include "spec.h"
#include "spec_checking.h"
#include "weir/aligned.h"
#include "weir/arena.h"
#include "weir/async.h"
#include "weir/binning.h"
#include "weir/fallback.h"
#include "weir/fixed_size.h"
#include "weir/leaves.h"
#include "weir/limiting.h"
#include "weir/logging.h"
#include "weir/managed.h"
#include "weir/pinned.h"
#include "weir/pool.h"
#include "weir/prefetch.h"
#include "weir/growable.h"
#include "weir/shareable.h"
#include "weir/statistics.h"
#include "weir/system.h"
#include "weir/tracking.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Of a row: KIND_blank and KIND_options. */
#define OPTIONS_OF(kind) \
    .blank = &kind##_blank, .blank_bytes = sizeof kind##_blank, \
    .options = kind##_options, .option_count = COUNT(kind##_options)

/* ---- device, system ---- */

static weir_status make_device(weir_device *device, weir_resource *upstream,
                               const void *options, weir_resource **out)
{
    (void)upstream;
    (void)options;
    return weir_device_resource_create(device, out);
}

static const weir_system_options system_blank = WEIR_SYSTEM_OPTIONS_INIT;

static const weir__spec_option system_options[] = {
    { .name = "headroom", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_system_options, headroom_bytes), .default_text = "none",
      WEIR__SPEC_CHOICES("none", 0), .least = 1, .doc = "of the device, for others" },
};

static weir_status make_system(weir_device *device, weir_resource *upstream,
                               const void *options, weir_resource **out)
{
    (void)upstream;
    return weir_system_create(device, options, out);
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

/* ---- shareable ---- */

static const weir_shareable_options shareable_blank = WEIR_SHAREABLE_OPTIONS_INIT;

static const weir__spec_option shareable_options[] = {
    { .name = "kind", .type = WEIR__SPEC_WORD,
      WEIR__SPEC_FIELD(weir_shareable_options, kind), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto, fd, legacy", WEIR_SHARE_NONE, WEIR_SHARE_FD,
                         WEIR_SHARE_LEGACY),
      .doc = "how others reach it; auto: by file descriptor, else legacy" },
};

static weir_status make_shareable(weir_device *device, weir_resource *upstream,
                                  const void *options, weir_resource **out)
{
    (void)upstream;
    return weir_shareable_create(device, options, out);
}

/* ---- growable ---- */

static const weir_growable_options growable_blank = WEIR_GROWABLE_OPTIONS_INIT;

static const weir__spec_option growable_options[] = {
    { .name = "chunk", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_growable_options, chunk_bytes), .default_text = "32MiB",
      .least = 1, .most = WEIR_GROWABLE_CHUNK_MAX,
      .doc = "what growth is a multiple of" },
    { .name = "reserve", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_growable_options, reserve_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto", 0), .least = 1,
      .doc = "bytes of addresses; auto: twice the device's memory" },
    { .name = "remap", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(weir_growable_options, remap), .default_text = "false",
      .doc = "unmap what is free, wherever it is, before more is mapped" },
    { .name = "pages_only", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(weir_growable_options, pages_only), .default_text = "false",
      .doc = "no pool over the pages: every block has pages of its own" },
};

static weir_status make_growable(weir_device *device, weir_resource *upstream,
                                 const void *options, weir_resource **out)
{
    (void)upstream;
    return weir_growable_create(device, options, out);
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
      .doc = "most to draw, if not managed; by default what the driver allows" },
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
      WEIR__SPEC_CHOICES("none", 0), .doc = "one chunk, by the first allocation" },
    { .name = "limit", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, limit_bytes), .default_text = "unlimited",
      WEIR__SPEC_CHOICES("unlimited", SIZE_MAX), .least = 1,
      .doc = "most to hold from upstream" },
    { .name = "growth", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, growth_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto", 0), .least = 1,
      .doc = "chunks are multiples of it; auto: 8MiB, 1/8 to 1/4 of all, 256MiB" },
    { .name = "cache", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, cache_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto, none", 0, WEIR_POOL_NO_CACHE), .least = 1,
      .doc = "most that a thread keeps of what it freed on one stream; auto: 64MiB, of "
             "its only one 128MiB, in place 32MiB; or a 64th of what it holds" },
    { .name = "slack", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_pool_options, slack_bytes), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto, none", 0, WEIR_POOL_NO_SLACK), .least = 1,
      .doc = "what may lie free on other streams while the pool grows for one; auto: "
             "32MiB or a 32nd of what it holds; none with a limit" },
    { .name = "exact", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(weir_pool_options, exact), .default_text = "false",
      .doc = "all are rounded up to 256B, and none to more" },
};

static weir_status make_pool(weir_device *device, weir_resource *upstream,
                             const void *options, weir_resource **out)
{
    (void)device;
    return weir_pool_create(upstream, options, out);
}

/* ---- fixed_size ---- */

typedef struct fixed_size_values {
    size_t block_bytes;
    int64_t slab_blocks;
} fixed_size_values;

static const fixed_size_values fixed_size_blank = { 0 };

static const weir__spec_option fixed_size_options[] = {
    { .name = "block", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(fixed_size_values, block_bytes), .least = 1,
      .doc = "of each block; larger requests are refused" },
    { .name = "blocks", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(fixed_size_values, slab_blocks), .default_text = "auto",
      WEIR__SPEC_CHOICES("auto", 0), .least = 1, .most = INT64_MAX,
      .doc = "drawn at once; auto: as many as fill 8MiB, at least 4" },
};

static weir_status make_fixed_size(weir_device *device, weir_resource *upstream,
                                   const void *options, weir_resource **out)
{
    (void)device;
    const fixed_size_values *values = options;
    weir_fixed_size_options in_force = WEIR_FIXED_SIZE_OPTIONS_INIT;
    in_force.slab_blocks = (size_t)values->slab_blocks;
    return weir_fixed_size_create(upstream, values->block_bytes, &in_force, out);
}

/* ---- binning ---- */

typedef struct binning_values {
    int32_t min_exponent;
    int32_t max_exponent;
} binning_values;

static const binning_values binning_blank = { 0 };

static const weir__spec_option binning_options[] = {
    { .name = "min", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(binning_values, min_exponent), .default_text = "8",
      WEIR__SPEC_CHOICES("none", WEIR_BINNING_NO_RANGE),
      .least = WEIR_BINNING_EXPONENT_MIN, .most = WEIR_BINNING_EXPONENT_MAX,
      .doc = "the smallest bin is of 2^min bytes; none: only bins that are added" },
    { .name = "max", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(binning_values, max_exponent), .default_text = "22",
      .least = WEIR_BINNING_EXPONENT_MIN, .most = WEIR_BINNING_EXPONENT_MAX,
      .doc = "the largest of 2^max; each power of two between has one" },
};

static weir_status make_binning(weir_device *device, weir_resource *upstream,
                                const void *options, weir_resource **out)
{
    (void)device;
    const binning_values *values = options;
    weir_binning_options in_force = WEIR_BINNING_OPTIONS_INIT;
    in_force.min_exponent = (uint32_t)values->min_exponent;
    in_force.max_exponent = (uint32_t)values->max_exponent;
    return weir_binning_create(upstream, &in_force, out);
}

/* ---- arena ---- */

typedef struct arena_values {
    size_t superblock_bytes;
    size_t limit_bytes;
    int64_t arenas;
} arena_values;

static const arena_values arena_blank = { 0 };

static const weir__spec_option arena_options[] = {
    { .name = "superblock", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(arena_values, superblock_bytes), .default_text = "4MiB",
      .least = WEIR_ARENA_SUPERBLOCK_MIN, .most = WEIR_ARENA_SUPERBLOCK_MAX,
      .doc = "arenas grow by it; a request of more than a quarter goes to the global" },
    { .name = "limit", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(arena_values, limit_bytes), .default_text = "unlimited",
      WEIR__SPEC_CHOICES("unlimited", 0), .least = 1,
      .doc = "the most to hold from upstream" },
    { .name = "arenas", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(arena_values, arenas), .default_text = "16", .least = 1,
      .most = WEIR_ARENA_ARENAS_MAX, .doc = "so many streams do not meet" },
};

static weir_status make_arena(weir_device *device, weir_resource *upstream,
                              const void *options, weir_resource **out)
{
    (void)device;
    const arena_values *values = options;
    weir_arena_options in_force = WEIR_ARENA_OPTIONS_INIT;
    in_force.superblock_bytes = values->superblock_bytes;
    in_force.limit_bytes = values->limit_bytes;
    in_force.arenas = (size_t)values->arenas;
    return weir_arena_create(upstream, &in_force, out);
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

/* ---- aligned ---- */

static const weir_aligned_options aligned_blank = WEIR_ALIGNED_OPTIONS_INIT;

static const weir__spec_option aligned_options[] = {
    { .name = "alignment", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_aligned_options, alignment), .default_text = "256B",
      .least = 1, .doc = "a power of two" },
    { .name = "threshold", .type = WEIR__SPEC_SIZE,
      WEIR__SPEC_FIELD(weir_aligned_options, threshold_bytes), .default_text = "none",
      WEIR__SPEC_CHOICES("none", 0),
      .doc = "of the least request that gets it; none: all do" },
};

static weir_status make_aligned(weir_device *device, weir_resource *upstream,
                                const void *options, weir_resource **out)
{
    (void)device;
    return weir_aligned_create(upstream, options, out);
}

/* ---- prefetch ---- */

static const weir_prefetch_options prefetch_blank = WEIR_PREFETCH_OPTIONS_INIT;

static const weir__spec_option prefetch_options[] = {
    { .name = "location", .type = WEIR__SPEC_WORD,
      WEIR__SPEC_FIELD(weir_prefetch_options, location), .default_text = "device",
      WEIR__SPEC_CHOICES("device, host", WEIR_PREFETCH_TO_DEVICE,
                         WEIR_PREFETCH_TO_HOST), .doc = "where blocks are moved to" },
};

static weir_status make_prefetch(weir_device *device, weir_resource *upstream,
                                 const void *options, weir_resource **out)
{
    (void)device;
    return weir_prefetch_create(upstream, options, out);
}

/* ---- fallback ---- */

typedef struct fallback_values {
    const char *alternate;
} fallback_values;

static const fallback_values fallback_blank = { NULL };

static const weir__spec_option fallback_options[] = {
    { .name = "alternate", .type = WEIR__SPEC_CHAIN,
      WEIR__SPEC_FIELD(fallback_values, alternate),
      .doc = "that is asked where the one behind the \"/\" has no room" },
};

static weir_status make_fallback(weir_device *device, weir_resource *upstream,
                                 const void *options, weir_resource **out)
{
    const fallback_values *values = options;
    weir_resource *alternate;
    weir_status status = weir_resource_open(device, values->alternate, &alternate);
    if (status != WEIR_OK)
        return status;
    status = weir_fallback_create(upstream, alternate, out);
    weir_resource_unref(alternate);
    return status;
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

/* ---- tracking ---- */

typedef struct tracking_values {
    bool report;
    weir_tracking_options options;
} tracking_values;

static const tracking_values tracking_blank = { .options = WEIR_TRACKING_OPTIONS_INIT };

static const weir__spec_option tracking_options[] = {
    { .name = "frames", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(tracking_values, options.frames), .default_text = "8",
      .least = 1, .most = WEIR_TRACKING_FRAMES_MAX,
      .doc = "kept of each call site" },
    { .name = "freed", .type = WEIR__SPEC_INTEGER,
      WEIR__SPEC_FIELD(tracking_values, options.freed_blocks), .default_text = "1024",
      .least = 1, .most = WEIR_TRACKING_FREED_MAX,
      .doc = "blocks remembered after they came back, to name double frees" },
    { .name = "report", .type = WEIR__SPEC_BOOLEAN,
      WEIR__SPEC_FIELD(tracking_values, report), .default_text = "false",
      .doc = "what is out when the last reference goes, to standard error" },
};

static weir_status make_tracking(weir_device *device, weir_resource *upstream,
                                 const void *values, weir_resource **out)
{
    const tracking_values *given = values;
    weir_tracking_options options = given->options;
    (void)device;
    if (given->report)
        options.on_leak = weir_tracking_line_to_stderr;
    return weir_tracking_create(upstream, &options, out);
}

/* ---- the table: leaves first ---- */

static const weir__spec_kind kinds[] = {
    { .name = "device", .is_leaf = true, .make = make_device,
      .purpose = "memory of the device, one device call each" },
    { .name = "system", .is_leaf = true, .make = make_system,
      .purpose = "ordinary host memory, where the device can reach it",
      OPTIONS_OF(system) },
    { .name = "managed", .is_leaf = true, .make = make_managed,
      .purpose = "memory that moves between host and device",
      OPTIONS_OF(managed) },
    { .name = "pinned", .is_leaf = true, .make = make_pinned,
      .purpose = "host memory that stays where it is, for fast copies",
      OPTIONS_OF(pinned) },
    { .name = "async", .is_leaf = true, .make = make_async,
      .purpose = "memory of the driver's own pools, in stream order",
      OPTIONS_OF(async) },
    { .name = "shareable", .is_leaf = true, .make = make_shareable,
      .purpose = "memory that other processes can open, in objects of 2MiB",
      OPTIONS_OF(shareable) },
    { .name = "growable", .is_leaf = true, .make = make_growable,
      .purpose = "memory that grows in place, by mapping more to one range",
      OPTIONS_OF(growable) },
    { .name = "callback", .is_leaf = true, .only_from = "weir_callback_create",
      .purpose = "memory from functions of the caller's" },
    { .name = "pool", .make = make_pool,
      .purpose = "reuses freed memory, stream by stream, before asking upstream",
      OPTIONS_OF(pool) },
    { .name = "fixed_size", .make = make_fixed_size,
      .purpose = "blocks of one size, out of slabs; larger requests are refused",
      OPTIONS_OF(fixed_size) },
    { .name = "binning", .make = make_binning,
      .purpose = "bins of one size each for small blocks, upstream for larger ones",
      OPTIONS_OF(binning) },
    { .name = "arena", .make = make_arena,
      .purpose = "a pool for each stream's small blocks over one for all that grows",
      OPTIONS_OF(arena) },
    { .name = "limiting", .make = make_limiting,
      .purpose = "refuses to let more than a set number of bytes be out",
      OPTIONS_OF(limiting) },
    { .name = "aligned", .make = make_aligned,
      .purpose = "a least alignment, for all requests or for the large ones",
      OPTIONS_OF(aligned) },
    { .name = "prefetch", .make = make_prefetch,
      .purpose = "moves managed memory to where it is needed, before it is touched",
      OPTIONS_OF(prefetch) },
    { .name = "fallback", .make = make_fallback,
      .purpose = "asks another resource where the first has no room",
      OPTIONS_OF(fallback) },
    { .name = "failure_callback", .only_from = "weir_failure_callback_create",
      .purpose = "asks a function of the program's for help, and tries again" },
    { .name = "logging", .make = make_logging,
      .purpose = "writes each call to a file, in the form of RMM's log and more",
      OPTIONS_OF(logging) },
    { .name = "statistics", .make = make_statistics,
      .purpose = "counts what passes through" },
    { .name = "tracking", .make = make_tracking,
      .purpose = "knows what is out and who allocated it: leaks, double frees",
      OPTIONS_OF(tracking) },
    { .name = "checking", .make = weir__spec_make_checking,
      .purpose = "finds overruns, and writes to what was given back",
      .blank = &weir__spec_checking_blank,
      .blank_bytes = sizeof weir__spec_checking_blank,
      .options = weir__spec_checking_options,
      .option_count = WEIR__SPEC_CHECKING_OPTIONS },
};

const weir__spec_table weir__spec_table_own = { kinds, COUNT(kinds) };
