/* fibers.c - part of baton.c in test builds: the threads of a stepped run as fibers of
 * the thread that begins it.
 *
 * Of those that take turns only one ever runs, and a turn that the system hands on
 * costs it more than most tests do with one. A fiber has what a thread has of its own:
 * a stack, errno, all thread-local storage of the program, and the values of the keys
 * that weir__key_make has made. The last two lie where those of the beginning thread
 * are, and are exchanged with each turn: nobody may know where another thread's lie.
 *
 * With WEIR_STEPPED=threads in the environment, and for the thread sanitizer, the
 * threads are the system's. What a run does is the same, but that with fibers keys'
 * destructors are called in the end, when nobody has a turn any more, and not as each
 * thread goes. */
#include "fibers.h"

#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "internal.h"
#include "jump.h"

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
static atomic_uint key_count; /* those before are whole */
static pthread_mutex_t key_lock = PTHREAD_MUTEX_INITIALIZER; /* for who makes one */

bool weir__key_make(pthread_key_t *key, void (*end)(void *value))
{
    if (pthread_key_create(key, end) != 0)
        return false;
    pthread_mutex_lock(&key_lock);
    const unsigned i = atomic_load(&key_count);
    WEIR_CHECK(i < KEYS_MAX, "there are more keys than fibers know of");
    keys[i].key = *key;
    keys[i].end = end;
    atomic_store(&key_count, i + 1);
    pthread_mutex_unlock(&key_lock);
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
    if (all == MAP_FAILED)
        return NULL;
    if (mprotect(all, GUARD, PROT_NONE) != 0) {
        (void)munmap(all, GUARD + STACK);
        return NULL;
    }
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
    jump_place place;
    storage here;
    int last_errno;
    void *values[KEYS_MAX];
    void (*firsts[FIRSTS_MAX])(void *);
    unsigned first_count;
    unsigned char own[];       /* what belongs there while it runs */
};

/* ---- turns ---- */

static _Thread_local weir__fiber *running; /* null: not in a run */

bool weir__fibers_are_on(void)
{
#ifdef WEIR_SANITIZE_THREAD
    return false;
#else
    const char *wanted = getenv("WEIR_STEPPED");
    return wanted == NULL || strcmp(wanted, "threads") != 0;
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
    self->here = here;
    running = self;
    return self;
}

static void change_to(weir__fiber *to)
{
    weir__fiber *from = running;
    const unsigned count = atomic_load(&key_count);
    from->last_errno = errno;
    for (unsigned i = 0; i < count; i++) {
        from->values[i] = pthread_getspecific(keys[i].key);
        (void)pthread_setspecific(keys[i].key, to->values[i]);
    }
    memcpy(from->own, from->here.at, from->here.bytes);
    memcpy(to->here.at, to->own, to->here.bytes);
}

void weir__fiber_go(weir__fiber *to)
{
    weir__fiber *from = running;
    change_to(to);
    jump(&from->place, &to->place);
    errno = from->last_errno;
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

static void fiber_main(void *argument)
{
    weir__fiber *self = argument;
    errno = 0;
    self->entry(self->argument);
    end_all(self);
    change_to(self->home);
    jump_off(&self->place, &self->home->place);
}

weir__fiber *weir__fiber_begin(weir__fiber *home, void (*entry)(void *argument),
                               void *argument)
{
    const storage here = home->here;
    weir__fiber *self = calloc(1, sizeof *self + here.bytes);
    unsigned char *stack = stack_take();
    if (self == NULL || stack == NULL) {
        free(self);
        if (stack != NULL)
            stack_give(stack);
        return NULL;
    }
    *self = (weir__fiber){ .home = home, .entry = entry, .argument = argument,
                           .stack = stack, .here = here };
    memcpy(self->own, here.image, here.image_bytes);
    memcpy(self->own + ((unsigned char *)&running - here.at), &self, sizeof self);

    jump_make(&self->place, stack, STACK, fiber_main, self);
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
