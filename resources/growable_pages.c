/* growable_pages.c - see growable_pages.h.
 *
 *     pages    . . T T t f f F f . . . F T T .     . nothing mapped
 *     chunks       +-------- +---      +----       T taken, F f free; first of a chunk
 *
 * One octet for each page, and no other record: neighbours need no merging, growing
 * needs no host memory, and each look is a walk over what was ever mapped. That is a
 * few thousand steps on a large device, where mapping a chunk takes longer. */
#include "growable_pages.h"

#include <string.h>

#include "internal.h"

#define PAGE WEIR__RANGE_GRANULE
#define CHUNK_PAGES_MOST (WEIR_GROWABLE_CHUNK_MAX / PAGE)
#define CLOSE_ROUNDS 3 /* how often what the device does not take is tried again */

#define TAKEN  WEIR__PAGE_TAKEN
#define KEPT   WEIR__PAGE_KEPT
#define MAPPED WEIR__PAGE_MAPPED
#define FIRST  WEIR__PAGE_FIRST

struct weir__pages {
    weir_device *device;   /* not counted */
    unsigned char *base;
    size_t count;          /* of pages */
    size_t chunk_pages;
    size_t chunk_most;     /* pages of a chunk */
    bool remaps;
    weir__written written;
    weir__mutex mapping;   /* held by who maps or unmaps, across device calls: so that
                              nobody does once the range is stopped */
    weir__mutex lock;      /* guards all below */
    bool is_stopped;
    size_t top;            /* behind the last page that was ever taken */
    size_t mapped, peak;   /* pages */
    unsigned char pages[];
};

static void *address_of(const weir__pages *self, size_t page)
{
    return self->base + page * PAGE;
}

static size_t page_of(const weir__pages *self, const void *ptr)
{
    return (size_t)((const unsigned char *)ptr - self->base) / PAGE;
}

/* More than any range has, where there is no such number. */
static size_t pages_for(size_t bytes)
{
    return bytes / PAGE + (bytes % PAGE != 0);
}

static bool is_free(const weir__pages *self, size_t page)
{
    return (self->pages[page] & (MAPPED | TAKEN)) == MAPPED;
}

static bool is_hole(const weir__pages *self, size_t page)
{
    return (self->pages[page] & (MAPPED | TAKEN)) == 0;
}

/* ---- under the lock ---- */

static void set_pages(weir__pages *self, size_t from, size_t count, unsigned bits)
{
    for (size_t i = from; i < from + count; i++)
        self->pages[i] = (unsigned char)(self->pages[i] | bits);
    if (self->top < from + count)
        self->top = from + count;
}

static void clear_pages(weir__pages *self, size_t from, size_t count, unsigned bits)
{
    for (size_t i = from; i < from + count; i++)
        self->pages[i] = (unsigned char)(self->pages[i] & ~bits);
}

/* The smallest run of free pages that has room, of equal ones the lowest; `count` of
 * the range: none. *largest: the longest run of all. */
static size_t best_fit(const weir__pages *self, size_t wanted, size_t *largest)
{
    size_t best = self->count, best_pages = SIZE_MAX;
    *largest = 0;
    for (size_t from = 0, to; from < self->top; from = to + 1) {
        to = from;
        while (to < self->top && is_free(self, to))
            to++;
        size_t pages = to - from;
        if (pages > *largest)
            *largest = pages;
        if (pages >= wanted && pages < best_pages) {
            best = from;
            best_pages = pages;
        }
    }
    return best;
}

/* Where the fewest pages have to be mapped, of equal places the lowest; `count` of the
 * range: there are not so many addresses in one piece. */
static size_t cheapest_place(const weir__pages *self, size_t wanted)
{
    size_t best = self->count, least = SIZE_MAX, run = 0, holes = 0;
    size_t end = self->top <= self->count - wanted ? self->top + wanted : self->count;
    for (size_t page = 0; page < end; page++) {
        if (self->pages[page] & TAKEN) {
            run = holes = 0;
            continue;
        }
        run++;
        holes += is_hole(self, page);
        if (run > wanted) {
            run--;
            holes -= is_hole(self, page - wanted);
        }
        if (run == wanted && holes < least) {
            least = holes;
            best = page + 1 - wanted;
        }
    }
    return best;
}

/* The first page behind the chunk that begins at `page`. */
static size_t chunk_end(const weir__pages *self, size_t page)
{
    do
        page++;
    while (page < self->count && (self->pages[page] & (MAPPED | FIRST)) == MAPPED);
    return page;
}

/* Whether all of a chunk is free, or would be without what is kept. */
static bool chunk_is_idle(const weir__pages *self, size_t first, bool or_kept)
{
    size_t end = chunk_end(self, first);
    for (size_t page = first; page < end; page++) {
        unsigned bits = self->pages[page];
        if ((bits & TAKEN) != 0 && !(or_kept && (bits & KEPT) != 0))
            return false;
    }
    return true;
}

static size_t chunk_begin(const weir__pages *self, size_t page)
{
    while ((self->pages[page] & FIRST) == 0)
        page--;
    return page;
}

/* Whether a chunk could be unmapped if the pages in [from, to) were free, and what is
 * kept. */
static bool chunk_could_go(const weir__pages *self, size_t first, size_t from,
                           size_t to)
{
    size_t end = chunk_end(self, first);
    for (size_t page = first; page < end; page++) {
        bool counts = page < from || page >= to;
        if (counts && (self->pages[page] & (TAKEN | KEPT)) == TAKEN)
            return false;
    }
    return true;
}

/* ---- mapping: without the lock ---- */

/* Maps a chunk at pages that are the caller's, and holes. */
static weir_status chunk_map(weir__pages *self, size_t first, size_t pages)
{
    weir_status status = weir__range_map(self->device, address_of(self, first),
                                         pages * PAGE);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    set_pages(self, first, pages, MAPPED);
    set_pages(self, first, 1, FIRST);
    self->mapped += pages;
    if (self->peak < self->mapped)
        self->peak = self->mapped;
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

/* The last idle chunk that begins in [from, to), which becomes the caller's; false:
 * there is none. */
static bool claim_idle(weir__pages *self, size_t from, size_t to, size_t *first,
                       size_t *pages)
{
    bool found = false;
    weir__mutex_lock(&self->lock);
    for (size_t page = to; !found && page-- > from;) {
        if ((self->pages[page] & FIRST) == 0 || !chunk_is_idle(self, page, false))
            continue;
        *first = page;
        *pages = chunk_end(self, page) - page;
        set_pages(self, page, *pages, TAKEN);
        found = true;
    }
    weir__mutex_unlock(&self->lock);
    return found;
}

/* Unmaps a chunk that the caller has claimed. The ledger: he knows from here on what
 * those knew who gave it back, and not before the chunk was his. */
static bool chunk_unmap(weir__pages *self, size_t first, size_t pages)
{
    bool done = weir__written_sync(&self->written, weir__pages_key(self)) == WEIR_OK;
    weir__note_learn(self->device, weir__pages_key(self));
    done = done && weir__range_unmap(self->device, address_of(self, first),
                                     pages * PAGE) == WEIR_OK;
    weir__mutex_lock(&self->lock);
    clear_pages(self, first, pages, done ? TAKEN | MAPPED | FIRST : TAKEN);
    if (done)
        self->mapped -= pages;
    weir__mutex_unlock(&self->lock);
    return done;
}

/* Unmaps the idle chunks that begin in [from, to), from the end on, while more than
 * `keep` pages are mapped; stops at one that the device does not take. Returns how
 * many pages it has back. */
static size_t unmap_idle(weir__pages *self, size_t from, size_t to, size_t keep)
{
    size_t unmapped = 0, first, pages;
    while (weir__pages_count(self).mapped_bytes / PAGE > keep &&
           claim_idle(self, from, to, &first, &pages)) {
        if (!chunk_unmap(self, first, pages))
            break;
        unmapped += pages;
        to = first;
    }
    return unmapped;
}

/* Claims holes behind `end` that a chunk of `pages` may have besides, to be a multiple
 * of what chunks are. Returns how many. */
static size_t claim_more(weir__pages *self, size_t end, size_t pages)
{
    size_t over = pages % self->chunk_pages, more = 0;
    size_t wanted = over == 0 ? 0 : self->chunk_pages - over;
    weir__mutex_lock(&self->lock);
    while (more < wanted && end + more < self->count && is_hole(self, end + more))
        more++;
    set_pages(self, end, more, TAKEN);
    weir__mutex_unlock(&self->lock);
    return more;
}

static void unclaim(weir__pages *self, size_t first, size_t pages)
{
    weir__mutex_lock(&self->lock);
    clear_pages(self, first, pages, TAKEN | KEPT);
    weir__mutex_unlock(&self->lock);
}

/* Maps a chunk, and more behind it if that can be had, which is free then. Where the
 * device has no room, what is free elsewhere is unmapped. */
static weir_status chunk_grow(weir__pages *self, size_t first, size_t pages)
{
    size_t more = claim_more(self, first + pages, pages);
    weir_status status = chunk_map(self, first, pages + more);
    unclaim(self, first + pages, more);
    if (status == WEIR_OUT_OF_MEMORY && more > 0)
        status = chunk_map(self, first, pages);
    while (status == WEIR_OUT_OF_MEMORY && unmap_idle(self, 0, self->count, 0) > 0)
        status = chunk_map(self, first, pages);
    return status;
}

/* Maps what is not mapped of pages that are the caller's; on failure they are his no
 * more, and what could not be of use is unmapped. */
static weir_status map_holes(weir__pages *self, size_t first, size_t pages)
{
    weir_status status = WEIR_OK;
    size_t end = first + pages;
    for (size_t from = first, to; status == WEIR_OK && from < end; from = to) {
        to = from + 1;
        weir__mutex_lock(&self->lock); /* the neighbours' are not looked at */
        bool is_mapped = (self->pages[from] & MAPPED) != 0;
        while (!is_mapped && to < end && to - from < self->chunk_most &&
               (self->pages[to] & MAPPED) == 0)
            to++;
        weir__mutex_unlock(&self->lock);
        if (!is_mapped)
            status = chunk_grow(self, from, to - from);
    }
    if (status == WEIR_OK)
        return status;
    weir__error_record why;
    weir__error_keep(&why);
    unclaim(self, first, pages);
    (void)unmap_idle(self, first, end, 0);
    weir__error_put_back(&why);
    return status;
}

/* Begins what maps or unmaps, until weir__mutex_unlock(&self->mapping); false: the
 * range is stopped, and there is nothing to end. Who finds it so waits for nobody. */
static bool mapping_begin(weir__pages *self)
{
    if (weir__pages_is_stopped(self))
        return false;
    weir__mutex_lock(&self->mapping);
    if (!weir__pages_is_stopped(self))
        return true;
    weir__mutex_unlock(&self->mapping);
    return false;
}

/* ---- what growable.c calls ---- */

static weir_status fail_paused(void)
{
    return weir__fail(WEIR_PAUSED, "growable: the memory is paused; "
                                   "weir_growable_resume brings it back");
}

static weir_status fail_place(const weir__pages *self, size_t bytes)
{
    return weir__fail(WEIR_OUT_OF_MEMORY,
                      "growable: there are no %zu bytes of addresses in one piece: "
                      "%zu are reserved", bytes, self->count * PAGE);
}

bool weir__pages_take(weir__pages *self, size_t bytes, void **out)
{
    size_t pages = pages_for(bytes), largest;
    weir__mutex_lock(&self->lock);
    size_t first = best_fit(self, pages, &largest);
    bool found = first < self->count && !self->is_stopped;
    if (found)
        set_pages(self, first, pages, TAKEN);
    weir__mutex_unlock(&self->lock);
    if (found)
        *out = address_of(self, first);
    return found;
}

static weir_status pages_grow(weir__pages *self, size_t bytes, void **out)
{
    size_t pages = pages_for(bytes);
    if (pages > self->count)
        return fail_place(self, bytes);
    weir__mutex_lock(&self->lock);
    size_t first = cheapest_place(self, pages);
    if (first < self->count)
        set_pages(self, first, pages, TAKEN);
    weir__mutex_unlock(&self->lock);
    if (first == self->count)
        return fail_place(self, bytes);
    weir_status status = map_holes(self, first, pages);
    if (status == WEIR_OK)
        *out = address_of(self, first);
    return status;
}

weir_status weir__pages_grow(weir__pages *self, size_t bytes, void **out)
{
    if (!mapping_begin(self))
        return fail_paused();
    weir_status status = pages_grow(self, bytes, out);
    weir__mutex_unlock(&self->mapping);
    return status;
}

static weir_status pages_extend(weir__pages *self, void *ptr, size_t bytes,
                                size_t new_bytes)
{
    size_t first = page_of(self, ptr), end = first + pages_for(bytes);
    size_t pages = pages_for(new_bytes) - pages_for(bytes), found = 0;
    weir__mutex_lock(&self->lock);
    while (found < pages && end + found < self->count &&
           (self->pages[end + found] & TAKEN) == 0)
        found++;
    if (found == pages)
        set_pages(self, end, pages, TAKEN);
    weir__mutex_unlock(&self->lock);
    if (found < pages)
        return weir__fail(WEIR_OUT_OF_MEMORY,
                          "growable: a block of %zu bytes has room for %zu more, not "
                          "for %zu bytes", bytes, found * PAGE, new_bytes);
    return map_holes(self, end, pages);
}

weir_status weir__pages_extend(weir__pages *self, void *ptr, size_t bytes,
                               size_t new_bytes)
{
    if (!mapping_begin(self))
        return fail_paused();
    weir_status status = pages_extend(self, ptr, bytes, new_bytes);
    weir__mutex_unlock(&self->mapping);
    return status;
}

bool weir__pages_remap(const weir__pages *self)
{
    return self->remaps;
}

void weir__pages_keep(weir__pages *self, const void *ptr, size_t bytes)
{
    weir__mutex_lock(&self->lock);
    set_pages(self, page_of(self, ptr), pages_for(bytes), KEPT);
    weir__mutex_unlock(&self->lock);
}

void weir__pages_give(weir__pages *self, const void *ptr, size_t bytes)
{
    unclaim(self, page_of(self, ptr), pages_for(bytes));
}

bool weir__pages_could_unmap(weir__pages *self, const void *ptr, size_t bytes)
{
    bool could = false;
    size_t first = page_of(self, ptr), end = first + pages_for(bytes);
    weir__mutex_lock(&self->lock);
    if (!self->is_stopped) { /* else its chunks may be no more */
        for (size_t chunk = chunk_begin(self, first); !could && chunk < end;
             chunk = chunk_end(self, chunk))
            could = chunk_is_idle(self, chunk, true);
    }
    weir__mutex_unlock(&self->lock);
    return could;
}

/* Chunks are looked at from the end on: only the first that was met, and the last, may
 * have pages of others. */
void weir__pages_part(weir__pages *self, const void *ptr, size_t bytes,
                      size_t wanted_bytes, size_t *from, size_t *to)
{
    size_t first = page_of(self, ptr), all = pages_for(bytes);
    size_t low = first + pages_for(*from);
    size_t high = *to == bytes ? first + all : first + *to / PAGE;
    size_t begin = high, wanted = pages_for(wanted_bytes), chunk;
    weir__mutex_lock(&self->lock);
    if (self->is_stopped)
        low = high;
    for (size_t end = high; end > low && high - begin < wanted; end = chunk) {
        chunk = chunk_begin(self, end - 1);
        if (chunk_could_go(self, chunk, low, high))
            begin = chunk > low ? chunk : low;
        else if (begin == high)
            begin = high = chunk;
        else
            break;
    }
    weir__mutex_unlock(&self->lock);
    bool is_any = begin >= low && begin < high;
    *from = is_any ? (begin - first) * PAGE : 0;
    *to = !is_any ? 0 : high == first + all ? bytes : (high - first) * PAGE;
}

size_t weir__pages_trim(weir__pages *self, size_t keep_bytes)
{
    if (!mapping_begin(self))
        return 0;
    size_t pages = unmap_idle(self, 0, self->count, keep_bytes / PAGE);
    weir__mutex_unlock(&self->mapping);
    return pages * PAGE;
}

/* ---- what growable_pause.c calls ---- */

bool weir__pages_is_stopped(weir__pages *self)
{
    weir__mutex_lock(&self->lock);
    bool is = self->is_stopped;
    weir__mutex_unlock(&self->lock);
    return is;
}

void weir__pages_stop(weir__pages *self, bool is_stopped)
{
    weir__mutex_lock(&self->mapping);
    weir__mutex_lock(&self->lock);
    self->is_stopped = is_stopped;
    weir__mutex_unlock(&self->lock);
    weir__mutex_unlock(&self->mapping);
}

size_t weir__pages_top(weir__pages *self)
{
    weir__mutex_lock(&self->lock);
    size_t top = self->top;
    weir__mutex_unlock(&self->lock);
    return top;
}

void weir__pages_look(weir__pages *self, unsigned char *out, size_t count)
{
    weir__mutex_lock(&self->lock);
    memcpy(out, self->pages, count);
    weir__mutex_unlock(&self->lock);
}

weir__written *weir__pages_written(weir__pages *self)
{
    return &self->written;
}

void *weir__pages_address(const weir__pages *self, size_t page)
{
    return address_of(self, page);
}

weir_status weir__pages_map_chunk(weir__pages *self, size_t first, size_t pages)
{
    return chunk_map(self, first, pages);
}

weir_status weir__pages_unmap_chunk(weir__pages *self, size_t first, size_t pages)
{
    weir_status status = weir__range_unmap(self->device, address_of(self, first),
                                           pages * PAGE);
    if (status != WEIR_OK)
        return status;
    weir__mutex_lock(&self->lock);
    clear_pages(self, first, pages, MAPPED | FIRST);
    self->mapped -= pages;
    weir__mutex_unlock(&self->lock);
    return WEIR_OK;
}

weir__pages_counts weir__pages_count(weir__pages *self)
{
    size_t largest;
    weir__mutex_lock(&self->lock);
    (void)best_fit(self, SIZE_MAX, &largest);
    weir__pages_counts counts = { self->mapped * PAGE, self->peak * PAGE,
                                  largest * PAGE };
    weir__mutex_unlock(&self->lock);
    return counts;
}

weir_status weir__pages_open(weir_device *device, const weir_growable_options *options,
                             weir__pages **out)
{
    void *base;
    size_t count = options->reserve_bytes / PAGE;
    weir_status status = weir__range_reserve(device, options->reserve_bytes, &base);
    if (status != WEIR_OK)
        return status;
    weir__pages *self = weir__host_alloc(sizeof *self + count);
    if (self == NULL) {
        (void)weir__range_release(device, base, options->reserve_bytes);
        return weir__fail(WEIR_OUT_OF_HOST_MEMORY,
                          "growable: no memory for the records of %zu pages", count);
    }
    memset(self, 0, sizeof *self + count);
    self->device = device;
    self->base = base;
    self->count = count;
    self->chunk_pages = options->chunk_bytes / PAGE;
    self->remaps = options->remap;
    self->chunk_most = options->remap ? self->chunk_pages : CHUNK_PAGES_MOST;
    weir__written_init(&self->written, device);
    weir__mutex_init(&self->mapping, WEIR__RANK_MISS);
    weir__mutex_init(&self->lock, WEIR__RANK_GROWABLE);
    *out = self;
    return WEIR_OK;
}

size_t weir__pages_close(weir__pages *self)
{
    for (int round = 0; round < CLOSE_ROUNDS && self->mapped > 0; round++)
        (void)weir__pages_trim(self, 0);
    size_t left = self->mapped * PAGE;
    weir_status status = left > 0 ? WEIR_OK : WEIR_DEVICE_ERROR;
    for (int round = 0; round < CLOSE_ROUNDS && status != WEIR_OK; round++)
        status = weir__range_release(self->device, self->base, self->count * PAGE);
    weir__mutex_destroy(&self->lock);
    weir__mutex_destroy(&self->mapping);
    weir__written_end(&self->written);
    weir__host_free(self);
    return left;
}

void weir__pages_verify(weir__pages *self)
{
    size_t mapped = 0;
    weir__mutex_lock(&self->lock);
    for (size_t page = 0; page < self->count; page++) {
        unsigned bits = self->pages[page];
        bool follows = page > 0 && (self->pages[page - 1] & MAPPED) != 0;
        WEIR_CHECK((bits & KEPT) == 0 || (bits & TAKEN) != 0, "what is kept is taken");
        WEIR_CHECK((bits & FIRST) == 0 || (bits & MAPPED) != 0, "chunks are mapped");
        WEIR_CHECK((bits & MAPPED) == 0 || follows || (bits & FIRST) != 0,
                   "what is mapped is of a chunk");
        WEIR_CHECK(bits == 0 || page < self->top, "the top is above all");
        mapped += (bits & MAPPED) != 0;
    }
    WEIR_CHECK(mapped == self->mapped && mapped <= self->peak, "what is mapped counts");
    weir__mutex_unlock(&self->lock);
}
