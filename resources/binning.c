/* binning.c - each size from the bin that fits it best, or from upstream.
 *
 * The bins stand in a table, smallest first, that never changes: to add one makes a new
 * table, which takes the old one's place in one store. Who reads the old one meanwhile
 * may go on, so it is kept until the end; there are as many as there were additions.
 *
 * Where does a block go back to? Its size names the bin that a request would be sent to
 * now. Each bin has the number of the table that it came with. One of table 0 has been
 * there for every block, and there is no other answer. A later one may have come after
 * the block went out: then it was sent to the smallest bin that fits of those that were
 * there, and so it is one of the ever larger ones, each of an earlier table than the
 * last, up to the first of table 0 or upstream:
 *
 *     bin      512:0   768:2   1K:1   2K:0   4K:0   upstream
 *     of 600           here?   or ?   or here
 *
 * They are asked one after the other. A bin of one size knows by the address, without a
 * lock, and so is asked always; upstream never. Of any other that came later a record
 * of each block is kept here: its resource cannot be asked, for that may answer for
 * what upstream or another bin has from the same place, and did not come through it.
 *
 * A thread that frees a block has a table no older than that which it was allocated by:
 * it was handed the block after that. */
#include "weir/binning.h"

#include <stdatomic.h>

#include "binning_bins.h"
#include "internal.h"
#include "resource_internal.h"
#include "sync.h"
#include "weir/fixed_size.h"

#define DEFAULT_MIN 8u
#define DEFAULT_MAX 22u

typedef struct binning {
    weir_resource *upstream;        /* counted by the resource */
    weir_binning_options options;   /* in force */
    weir_resource_properties up;    /* upstream's */
    weir__size_bins *_Atomic table; /* also read without the lock */
    atomic_uint_least64_t failures;
    weir__mutex lock;               /* one adds at a time. Rank resource */
} binning;

/* ---- finding a bin ---- */

static const weir__size_bins *table_of(const binning *self)
{
    return atomic_load_explicit(&self->table, memory_order_acquire);
}

static bool bin_has(const weir__size_bin *it, const void *ptr)
{
    return it->is_own ? weir_fixed_size_has(it->mr, ptr)
                      : it->has != NULL && weir__few_blocks_find(it->has, ptr, NULL);
}

/* The bin that it lies in. Null: none; if it is a block here, it is upstream's. */
static weir__size_bin *bin_around(const weir__size_bins *table, const void *ptr)
{
    for (size_t i = 0; i + 1 < table->count; i++) {
        if (bin_has(table->bins[i], ptr))
            return table->bins[i];
    }
    return NULL;
}

static weir__size_bin *upstreams(const weir__size_bins *table)
{
    return table->bins[table->count - 1];
}

/* Whether a block came from that bin. Upstream is not asked: it tells itself if one did
 * not; but what a bin has from it would be a block to it, that comes back. */
static bool has_block(const weir__size_bins *table, const weir__size_bin *it,
                      const void *ptr, size_t bytes)
{
    if (it == upstreams(table)) /* with so many bytes there is no block */
        return bytes != SIZE_MAX && bin_around(table, ptr) == NULL;
    return bin_has(it, ptr);
}

/* Who can tell what is wrong with a block that comes back and is not where one of its
 * size could be. What upstream would take is another's. */
static WEIR_COLD weir__size_bin *who_can_tell(const weir__size_bins *table,
                                              const void *ptr, size_t bytes,
                                              size_t alignment)
{
    weir_block found = { .struct_size = sizeof found };
    weir__size_bin *it = bin_around(table, ptr);
    if (it != NULL)
        return it;
    if (weir_resource_find(upstreams(table)->mr, ptr, &found) == WEIR_OK &&
        (found.bytes != bytes || found.alignment != alignment))
        return upstreams(table);
    size_t at = weir__size_bins_fit(table, bytes, alignment);
    while (table->bins[at]->has != NULL) /* it knows its blocks only */
        at++;
    return table->bins[at];
}

/* The next place that a block may have been sent to, if it was not sent to the one at
 * `at`, of a later table than 0: the next larger one that was there before that. */
static size_t earlier_fit(const weir__size_bins *table, size_t at, size_t bytes,
                          size_t alignment)
{
    const uint64_t since = table->bins[at]->since;
    do {
        at++;
    } while (at + 1 < table->count &&
             (table->bins[at]->since >= since ||
              !weir__size_bin_fits(table->bins[at], bytes, alignment)));
    return at;
}

/* The bin that a block came from; null: there is none that a request of its size could
 * have gone to. */
static weir__size_bin *bin_from(const weir__size_bins *table, const void *ptr,
                                size_t bytes, size_t alignment)
{
    size_t at = weir__size_bins_fit(table, bytes, alignment);
    while (WEIR_UNLIKELY(!has_block(table, table->bins[at], ptr, bytes))) {
        if (table->bins[at]->since == 0)
            return NULL;
        at = earlier_fit(table, at, bytes, alignment);
    }
    return table->bins[at];
}

/* ---- what there is ---- */

static void binning_statistics(void *context, weir_resource_statistics *out)
{
    binning *self = context;
    const weir__size_bins *table = table_of(self);
    for (size_t i = 0; i < table->count; i++) {
        const weir_resource_statistics one = weir__size_bin_statistics(table->bins[i]);
        out->out_bytes += one.out_bytes;
        out->out_blocks += one.out_blocks;
        out->peak_out_bytes += one.peak_out_bytes;
        out->held_bytes += one.held_bytes;
        out->peak_held_bytes += one.peak_held_bytes;
        out->free_bytes += one.free_bytes;
        out->free_blocks += one.free_blocks;
        if (out->largest_free_bytes < one.largest_free_bytes)
            out->largest_free_bytes = one.largest_free_bytes;
        out->set_aside_bytes += one.set_aside_bytes;
        out->allocations += one.allocations;
        out->deallocations += one.deallocations;
        out->leaked_bytes += one.leaked_bytes;
    }
    out->failures = atomic_load(&self->failures);
}

/* ---- allocation ---- */

/* A bin or upstream has said why; of too little memory all have a part. */
static weir_status refuse(binning *self, weir_status status, size_t bytes)
{
    weir_out_of_memory report = { .struct_size = sizeof report };
    atomic_fetch_add(&self->failures, 1);
    if ((status != WEIR_OUT_OF_MEMORY && status != WEIR_LIMIT_REACHED) ||
        weir_last_out_of_memory(&report) != WEIR_OK)
        return status;
    weir_resource_statistics now = { .struct_size = sizeof now };
    binning_statistics(self, &now);
    report.requested_bytes = bytes;
    report.held_bytes = now.held_bytes;
    report.in_use_bytes = now.out_bytes;
    if (report.largest_free_bytes < now.largest_free_bytes)
        report.largest_free_bytes = now.largest_free_bytes;
    report.resource = "binning";
    return weir__fail_memory(status, &report);
}

static weir_status binning_allocate(void *context, weir_stream stream, size_t bytes,
                                    size_t alignment, void **out)
{
    binning *self = context;
    const weir__size_bins *table = table_of(self);
    weir__size_bin *it = table->bins[weir__size_bins_fit(table, bytes, alignment)];
    weir_status status = weir__size_bin_allocate(it, stream, bytes, alignment, out);
    if (WEIR_UNLIKELY(status != WEIR_OK))
        return refuse(self, status, bytes);
    return WEIR_OK;
}

/* Decides where a block goes back to. Null: nowhere, and the misuse handler was told.
 * *record is the bin's, taken out, or null. */
static weir__size_bin *begin_back(const binning *self, const void *ptr, size_t bytes,
                                  size_t alignment, weir__block_record **record)
{
    const weir__size_bins *table = table_of(self);
    weir__size_bin *it = bin_from(table, ptr, bytes, alignment);
    if (WEIR_UNLIKELY(it == NULL))
        it = who_can_tell(table, ptr, bytes, alignment);
    return weir__size_bin_begin_back(it, ptr, bytes, alignment, record) ? it : NULL;
}

static bool binning_deallocate(void *context, weir_stream stream, void *ptr,
                               size_t bytes, size_t alignment)
{
    weir__block_record *record;
    weir__size_bin *it = begin_back(context, ptr, bytes, alignment, &record);
    return it != NULL &&
           weir__size_bin_end_back(
               it, bytes, record,
               weir_deallocate(it->mr, stream, ptr, bytes, alignment));
}

static bool binning_deallocate_after(void *context, void *ptr, size_t bytes,
                                     size_t alignment, const weir_point *points,
                                     size_t count)
{
    weir__block_record *record;
    weir__size_bin *it = begin_back(context, ptr, bytes, alignment, &record);
    return it != NULL &&
           weir__size_bin_end_back(
               it, bytes, record,
               weir_deallocate_after(it->mr, ptr, bytes, alignment, points, count));
}

/* ---- the rest ---- */

/* What lies in a bin is that bin's alone, whatever upstream calls it. What upstream
 * knows besides may be what a bin has drawn: it is a block of here only where a request
 * of its size could have gone. */
static weir_status binning_find(void *context, const void *ptr, weir_block *out)
{
    const binning *self = context;
    const weir__size_bins *table = table_of(self);
    const weir__size_bin *it = bin_around(table, ptr);
    if (it != NULL && it->is_own)
        return weir_resource_find(it->mr, ptr, out);
    if (it != NULL ? weir__few_blocks_find(it->has, ptr, out)
                   : weir_resource_find(self->upstream, ptr, out) == WEIR_OK &&
                         bin_from(table, ptr, out->bytes, out->alignment) != NULL)
        return WEIR_OK;
    return weir__fail(WEIR_NOT_FOUND, "binning: no block that is out begins at %p",
                      ptr);
}

/* Of a bin; of several over one resource the first. */
static size_t held_by(const weir__size_bin *it)
{
    weir_resource_statistics now = { .struct_size = sizeof now };
    return it->is_first && weir_resource_get_statistics(it->mr, &now) == WEIR_OK
               ? now.held_bytes
               : 0;
}

/* One bin after the other, as long as all hold too much; and then upstream, which has
 * got it. */
static size_t binning_trim_sync(void *context, size_t keep_bytes)
{
    binning *self = context;
    const weir__size_bins *table = table_of(self);
    size_t held = 0, given = 0;
    for (size_t i = 0; i + 1 < table->count; i++)
        held += held_by(table->bins[i]);
    for (size_t i = 0; i + 1 < table->count && held > keep_bytes; i++) {
        size_t its = held_by(table->bins[i]), more = held - keep_bytes;
        size_t bytes = weir_resource_trim_sync(table->bins[i]->mr,
                                               its > more ? its - more : 0);
        given += bytes;
        held = held > bytes ? held - bytes : 0;
    }
    (void)weir_resource_trim_sync(self->upstream, keep_bytes);
    return given;
}

static weir_resource *binning_upstream(void *context)
{
    return ((binning *)context)->upstream;
}

static void binning_properties(void *context, weir_resource_properties *out)
{
    (void)context;
    out->usable_at_once = out->pages_usable_at_once = false;
    out->share_kind = WEIR_SHARE_NONE;
}

static void binning_destroy(void *context)
{
    binning *self = context;
    weir__size_bins_free(atomic_load(&self->table));
    weir__mutex_destroy(&self->lock);
    weir__host_free(self);
}

static const weir_resource_ops binning_ops = {
    .struct_size = sizeof(weir_resource_ops),
    .name = "binning",
    .allocate = binning_allocate,
    .deallocate = binning_deallocate,
    .destroy = binning_destroy,
    .trim_sync = binning_trim_sync,
    .upstream = binning_upstream,
    .properties = binning_properties,
    .statistics = binning_statistics,
    .find = binning_find,
    .deallocate_after = binning_deallocate_after,
};

/* ---- creation ---- */

static weir_status options_read(const weir_binning_options *from,
                                weir_binning_options *out)
{
    weir_status status = weir__read_options(from, out, sizeof *out,
                                            "the options of a binning resource");
    if (status != WEIR_OK)
        return status;
    out->struct_size = sizeof *out;
    if (out->min_exponent == WEIR_BINNING_NO_RANGE)
        return out->max_exponent == 0
                   ? WEIR_OK
                   : weir__fail(WEIR_INVALID_ARGUMENT,
                                "max_exponent is %u, and there is no range of bins",
                                out->max_exponent);
    if (out->min_exponent == 0)
        out->min_exponent = DEFAULT_MIN;
    if (out->max_exponent == 0)
        out->max_exponent = DEFAULT_MAX;
    if (out->min_exponent < WEIR_BINNING_EXPONENT_MIN ||
        out->max_exponent > WEIR_BINNING_EXPONENT_MAX ||
        out->min_exponent > out->max_exponent)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "bins of 2^%u to 2^%u bytes are no range: it goes from 2^%u "
                          "to 2^%u at most",
                          out->min_exponent, out->max_exponent,
                          WEIR_BINNING_EXPONENT_MIN, WEIR_BINNING_EXPONENT_MAX);
    return WEIR_OK;
}

/* A bin of one size over upstream, of `bytes` bytes or a little more. */
static weir_status own_bin_make(weir_resource *upstream, size_t bytes,
                                weir__size_bin **out)
{
    weir_resource *mr;
    weir_fixed_size_options options = WEIR_FIXED_SIZE_OPTIONS_INIT;
    weir_status status = weir_fixed_size_create(upstream, bytes, NULL, &mr);
    *out = NULL;
    if (status != WEIR_OK)
        return status;
    status = weir_fixed_size_get_options(mr, &bytes, &options);
    if (status == WEIR_OK)
        *out = weir__size_bin_make(mr, bytes, true);
    if (*out == NULL) {
        weir_resource_unref(mr);
        if (status == WEIR_OK)
            status = weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                                "binning: no memory for a bin");
    }
    return status;
}

/* The bins of the range, and upstream. */
static weir_status first_table_make(binning *self, weir__size_bins **out)
{
    const weir_binning_options *options = &self->options;
    size_t range = options->min_exponent == WEIR_BINNING_NO_RANGE
                       ? 0
                       : options->max_exponent - options->min_exponent + 1;
    weir__size_bins *table = weir__size_bins_make(range + 1);
    weir__size_bin *last = weir__size_bin_make(self->upstream, SIZE_MAX, false);
    *out = NULL;
    if (table == NULL || last == NULL) {
        weir__host_free(table);
        weir__host_free(last);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY, "binning: no memory for its bins");
    }
    for (size_t i = 0; i < range; i++) {
        weir_status status =
            own_bin_make(self->upstream, (size_t)1 << (options->min_exponent + i),
                         &table->bins[i]);
        if (status != WEIR_OK) {
            table->count = i;
            weir__size_bins_free(table);
            weir__host_free(last);
            return status;
        }
    }
    table->bins[range] = last;
    weir__size_bins_index(table);
    *out = table;
    return WEIR_OK;
}

weir_status weir_binning_create(weir_resource *upstream,
                                const weir_binning_options *options,
                                weir_resource **out)
{
    if (out == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "out is null");
    *out = NULL;
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    if (upstream == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the upstream is null");
    weir_binning_options in_force;
    weir_resource_properties up = { .struct_size = sizeof up };
    status = options_read(options, &in_force);
    if (status == WEIR_OK)
        status = weir_resource_get_properties(upstream, &up);
    if (status != WEIR_OK)
        return status;

    binning *self = weir__host_alloc(sizeof *self);
    if (self == NULL)
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "no memory for the resource binning");
    *self = (binning){ .upstream = upstream, .options = in_force, .up = up };
    weir__size_bins *table;
    status = first_table_make(self, &table);
    if (status != WEIR_OK) {
        weir__host_free(self);
        return status;
    }
    atomic_init(&self->table, table);
    atomic_init(&self->failures, 0);
    weir__mutex_init(&self->lock, WEIR__RANK_RESOURCE);
    weir_resource_ops ops = binning_ops;
    if (!up.can_find) /* then we cannot either */
        ops.find = NULL;
    status = weir_resource_create(&ops, self, out);
    if (status != WEIR_OK)
        binning_destroy(self);
    return status;
}

/* ---- adding ---- */

/* Whether `mr` is this, or asks it for memory: by an upstream, or by an added bin. */
static bool leads_back(const binning *self, weir_resource *mr)
{
    const binning *its = weir__resource_self(mr, &binning_ops);
    if (mr == NULL || its == self)
        return its == self;
    const weir__size_bins *table = its != NULL ? table_of(its) : NULL;
    for (size_t i = 0; table != NULL && i < table->count; i++) {
        if (table->bins[i]->has != NULL && leads_back(self, table->bins[i]->mr))
            return true;
    }
    return leads_back(self, weir_resource_upstream(mr, 0)) ||
           leads_back(self, weir_resource_upstream(mr, 1));
}

static weir_status may_be_bin(const binning *self, weir_resource *mr)
{
    const weir_resource_properties *up = &self->up;
    weir_resource_properties its = { .struct_size = sizeof its };
    weir_status status = weir_resource_get_properties(mr, &its);
    if (status != WEIR_OK)
        return status;
    if (leads_back(self, mr))
        return weir__fail(WEIR_INVALID_ARGUMENT, "a binning resource, and what draws "
                          "from it, is no bin of its own");
    if (its.device != up->device)
        return weir__fail(WEIR_INVALID_ARGUMENT, "%s is of another device than %s",
                          its.name, up->name);
    if (its.device_accessible < up->device_accessible ||
        its.host_accessible < up->host_accessible || its.managed < up->managed ||
        its.pinned < up->pinned)
        return weir__fail(WEIR_INVALID_ARGUMENT,
                          "memory of %s is not all that memory of %s is", its.name,
                          up->name);
    if (!its.can_find)
        return weir__fail(WEIR_NOT_SUPPORTED, "%s does not know its blocks", its.name);
    return WEIR_OK;
}

static weir_status table_add(binning *self, weir__size_bin *it)
{
    weir__mutex_lock(&self->lock);
    weir__size_bins *old = atomic_load(&self->table);
    bool is_there = weir__size_bins_have(old, it->bytes);
    weir__size_bins *table = NULL;
    if (!is_there)
        table = weir__size_bins_with(old, it);
    if (table != NULL) {
        it->is_first = !weir__size_bins_are_over(old, it->mr);
        it->since = table->number;
        table->older = old;
        atomic_store_explicit(&self->table, table, memory_order_release);
    }
    weir__mutex_unlock(&self->lock);
    if (is_there)
        return weir__fail(WEIR_INVALID_ARGUMENT, "there is a bin of %zu bytes already",
                          it->bytes);
    return table != NULL ? WEIR_OK
                         : weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                                      "binning: no memory for a table");
}

weir_status weir_binning_add(weir_resource *mr, size_t bytes, weir_resource *other)
{
    weir_status status = weir__enter();
    if (status != WEIR_OK)
        return status;
    binning *self = weir__resource_self(mr, &binning_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is no binning resource");
    if (bytes == 0 || bytes == SIZE_MAX)
        return weir__fail(WEIR_INVALID_ARGUMENT, "no bin has %zu bytes", bytes);
    weir__size_bin *it = NULL;
    if (other == NULL) {
        status = own_bin_make(self->upstream, bytes, &it);
    } else {
        status = may_be_bin(self, other);
        if (status == WEIR_OK)
            it = weir__size_bin_make(weir_resource_ref(other), bytes, false);
        if (status == WEIR_OK && it == NULL) {
            weir_resource_unref(other);
            status = weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                                "binning: no memory for a bin");
        }
    }
    if (status == WEIR_OK)
        status = table_add(self, it);
    if (status != WEIR_OK && it != NULL)
        weir__size_bin_free(it);
    return status;
}

weir_status weir_binning_get_options(weir_resource *mr, weir_binning_options *out)
{
    const weir_binning_options none = { .struct_size = sizeof none };
    weir_status status = weir__fill_out(out, &none, sizeof none);
    if (status == WEIR_OK)
        status = weir__enter();
    if (status != WEIR_OK)
        return status;
    const binning *self = weir__resource_self(mr, &binning_ops);
    if (self == NULL)
        return weir__fail(WEIR_INVALID_ARGUMENT, "the resource is no binning resource");
    return weir__fill_out(out, &self->options, sizeof self->options);
}
