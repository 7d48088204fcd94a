/* fibers.c - part of baton.c in test builds: the threads of a stepped run as fibers of
 * the thread that begins it.
 *
 * Of those that take turns only one ever runs, and a turn that the system hands on costs
 * it more than most tests do with one. A fiber has what a thread has of its own: a stack,
 * errno, all thread-local storage of the program, and the values of the keys that
 * weir__key_make has made. The last two lie where those of the beginning thread are, and
 * are exchanged with each turn: nobody may know where another thread's lie.
 *
 * With WEIR_STEPPED=threads in the environment, and for the thread sanitizer, the
 * threads are the system's. What a run does is the same, but that with fibers what keys' destructors do is done in the end,
 * when nobody has a turn any more, and not as each thread goes. */
#include "fibers.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "internal.h"

#ifdef WEIR_SANITIZE_ADDRESS
#include <sanitizer/asan_interface.h>
#endif

#define STACK      ((size_t)1 << 20)
#define GUARD      ((size_t)1 << 16) /* below it: whoever gets there is stopped */
#define SPARES     16
#define KEYS_MAX   8
#define FIRSTS_MAX 4

/* ---- keys ---- */

static struct {
    pthread_key_t key;
    void (*end)(void *value);
} keys[KEYS_MAX];
static atomic_uint key_count; /* made one at a time: each within a pthread_once */

bool weir__key_make(pthread_key_t *key, void (*end)(void *value))
{
    if (pthread_key_create(key, end) != 0)
        return false;
    const unsigned i = atomic_fetch_add(&key_count, 1);
    WEIR_CHECK(i < KEYS_MAX, "there are more keys than fibers know of");
    keys[i].key = *key;
    keys[i].end = end;
    return true;
}

/* ---- stacks ---- */

static _Atomic(unsigned char *) spares[SPARES];

static unsigned char *stack_take(void)
{
    for (size_t i = 0; i < SPARES; i++) {
        unsigned char *stack = atomic_exchange(&spares[i], NULL);
        if (stack != NULL)
            return stack;
    }
    void *all = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (all == MAP_FAILED || mprotect(all, GUARD, PROT_NONE) != 0)
        return NULL;
    return (unsigned char *)all + GUARD;
}

static void stack_give(unsigned char *stack)
{
    for (size_t i = 0; i < SPARES; i++) {
        unsigned char *none = NULL;
        if (atomic_compare_exchange_strong(&spares[i], &none, stack))
            return;
    }
    (void)munmap(stack - GUARD, GUARD + STACK);
}

/* ---- thread-local storage ---- */

/* The calling thread's, of the program; and what it is at first. */
typedef struct storage {
    unsigned char *at;
    size_t bytes;
    const void *image;
    size_t image_bytes;
} storage;

/* The program is the first. */
static int read_program(struct dl_phdr_info *info, size_t size, void *out)
{
    storage *it = out;
    (void)size;
    for (size_t i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        if (part->p_type == PT_TLS) {
            const uintptr_t image = info->dlpi_addr + part->p_vaddr;
            *it = (storage){ .at = info->dlpi_tls_data, .bytes = part->p_memsz,
                             .image = (const void *)image,
                             .image_bytes = part->p_filesz };
        }
    }
    return 1;
}

/* ---- fibers ---- */

struct weir__fiber {
    weir__fiber *home;
    void (*entry)(void *argument);
    void *argument;
    unsigned char *stack;      /* null: home's */
    ucontext_t context;
    unsigned char *at;         /* the thread's storage */
    size_t bytes;
    int last_errno;
    void *values[KEYS_MAX];
    void (*firsts[FIRSTS_MAX])(void *);
    unsigned first_count;
#ifdef WEIR_SANITIZE_ADDRESS
    void *fake_stack;
    const void *bottom;        /* of the stack, and its size */
    size_t stack_bytes;
#endif
    unsigned char own[];       /* what belongs there while it runs */
};

/* ---- what the address sanitizer is told ---- */

#ifdef WEIR_SANITIZE_ADDRESS
static void tell_begin(weir__fiber *self)
{
    self->bottom = self->stack;
    self->stack_bytes = STACK;
    ASAN_UNPOISON_MEMORY_REGION(self->stack, STACK);
    /* Where it knows of a stack, swapcontext clears what it holds of it each time. */
    self->context.uc_stack = (stack_t){ .ss_size = 0 };
}

/* Before the turn goes from the one to the other; `is_last`: it will not come back. */
static void tell_go(weir__fiber *from, const weir__fiber *to, bool is_last)
{
    __sanitizer_start_switch_fiber(is_last ? NULL : &from->fake_stack, to->bottom,
                                   to->stack_bytes);
}

/* After it has come to `self`; the first time it comes from home. */
static void tell_come(weir__fiber *self)
{
    const void *bottom;
    size_t bytes;
    __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &bytes);
    if (self->home->bottom == NULL) {
        self->home->bottom = bottom;
        self->home->stack_bytes = bytes;
    }
}
#else
#define tell_begin(self)              ((void)0)
#define tell_go(from, to, is_last)    ((void)(is_last))
#define tell_come(self)               ((void)0)
#endif

/* ---- turns ---- */

static _Thread_local weir__fiber *running; /* null: not in a run */
static atomic_bool are_off;

void weir__fibers_use(bool use)
{
    atomic_store(&are_off, !use);
}

bool weir__fibers_are_on(void)
{
#ifdef WEIR_SANITIZE_THREAD
    return false;
#else
    const char *wanted = getenv("WEIR_STEPPED");
    return !atomic_load(&are_off) && (wanted == NULL || strcmp(wanted, "threads") != 0);
#endif
}

/* A plain calloc, here and for the stacks: as if the system had made a thread. */
weir__fiber *weir__fiber_of_thread(void)
{
    storage here = { .at = NULL };
    (void)dl_iterate_phdr(read_program, &here);
    WEIR_CHECK(here.at != NULL, "the program's thread-local storage is not found");
    weir__fiber *self = calloc(1, sizeof *self + here.bytes);
    if (self == NULL)
        return NULL;
    self->home = self;
    self->at = here.at;
    self->bytes = here.bytes;
    running = self;
    return self;
}

static void go(weir__fiber *to, bool is_last)
{
    weir__fiber *from = running;
    const unsigned count = atomic_load(&key_count);
    from->last_errno = errno;
    for (unsigned i = 0; i < count; i++) {
        from->values[i] = pthread_getspecific(keys[i].key);
        (void)pthread_setspecific(keys[i].key, to->values[i]);
    }
    memcpy(from->own, from->at, from->bytes);
    memcpy(to->at, to->own, to->bytes);
    tell_go(from, to, is_last);
    const int failed = swapcontext(&from->context, &to->context);
    WEIR_CHECK(!failed, "the turn could not be given");
    tell_come(from);
    errno = from->last_errno;
}

void weir__fiber_go(weir__fiber *to)
{
    go(to, false);
}

/* What the system does where a thread ends. */
static void end_all(weir__fiber *self)
{
    while (self->first_count > 0)
        self->firsts[--self->first_count](NULL);
    for (int round = 0; round < PTHREAD_DESTRUCTOR_ITERATIONS; round++) {
        for (unsigned i = 0; i < atomic_load(&key_count); i++) {
            void *value = pthread_getspecific(keys[i].key);
            if (value != NULL) {
                (void)pthread_setspecific(keys[i].key, NULL);
                keys[i].end(value);
            }
        }
    }
}

static void fiber_main(unsigned high, unsigned low)
{
    weir__fiber *self = (weir__fiber *)((uintptr_t)high << 32 | low);
    tell_come(self);
    self->entry(self->argument);
    end_all(self);
    go(self->home, true);
}

weir__fiber *weir__fiber_begin(weir__fiber *home, void (*entry)(void *argument),
                               void *argument)
{
    storage here = { .at = NULL };
    (void)dl_iterate_phdr(read_program, &here);
    weir__fiber *self = calloc(1, sizeof *self + here.bytes);
    unsigned char *stack = stack_take();
    if (self == NULL || stack == NULL) {
        free(self);
        if (stack != NULL)
            stack_give(stack);
        return NULL;
    }
    *self = (weir__fiber){ .home = home, .entry = entry, .argument = argument,
                           .stack = stack, .at = here.at, .bytes = here.bytes };
    memcpy(self->own, here.image, here.image_bytes);
    memcpy(self->own + ((unsigned char *)&running - here.at), &self, sizeof self);

    (void)getcontext(&self->context);
    self->context.uc_stack = (stack_t){ .ss_sp = stack, .ss_size = STACK };
    const uintptr_t number = (uintptr_t)self;
    makecontext(&self->context, (void (*)(void))fiber_main, 2,
                (unsigned)(number >> 32), (unsigned)number);
    tell_begin(self);
    return self;
}

void weir__fiber_end(weir__fiber *self)
{
    if (self->home == self) {
        running = NULL;
    } else {
        weir__fiber_go(self);
        stack_give(self->stack);
    }
    free(self);
}

bool weir__fiber_runs(void)
{
    return running != NULL && running->home != running;
}

bool weir__fiber_watch_first(void (*end)(void *))
{
    if (running->first_count == FIRSTS_MAX)
        return false;
    running->firsts[running->first_count++] = end;
    return true;
}
