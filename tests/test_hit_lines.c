/* test_hit_lines.c - a hit stores to no line that another thread's hits use.
 *
 * Two threads in one pool, each with a stream of its own or both on one, warm up by
 * turns, block by block; then one of them makes hits alone, and after it the other. The
 * program runs under valgrind's lackey, which prints every load and store, and with
 * what the program itself prints in between it is known whose they are: of all that is
 * the library's doing, for what else a thread does to pass its turn on has no end that
 * the other could wait for. What one of them has stored to, the other may not have
 * touched.
 *
 * The library is the one that ships. Where valgrind refuses membarrier the gates'
 * owners fence: by an exchange, and else by the same accesses.
 *
 * WEIR_CI in the environment: where valgrind is absent the test fails. */
#include <dlfcn.h>
#include <link.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "hits.h"

#define THREADS 2
#define DEPTH   8
#define SIZES   3
#define WARM_ROUNDS 2
#define ROUNDS  2

static const size_t sizes[SIZES] = { 256, 4096, 1 << 20 };

/* ---- the program under valgrind ---- */

typedef struct actor {
    size_t number;
    size_t stream;          /* its number */
    pthread_barrier_t *end; /* nobody ends while another is at work */
    hits_scene *scene;
    void (*work)(struct actor *self);
} actor;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static size_t turn; /* whose it is; guarded by lock */

static void take_turn(const actor *self)
{
    pthread_mutex_lock(&lock);
    while (turn != self->number)
        pthread_cond_wait(&passed, &lock);
    pthread_mutex_unlock(&lock);
}

static void pass_turn(const actor *self)
{
    pthread_mutex_lock(&lock);
    turn = (self->number + 1) % THREADS;
    pthread_cond_broadcast(&passed);
    pthread_mutex_unlock(&lock);
}

/* Says so into the midst of what lackey prints, by one call that stores nothing. */
static void say(const char *what)
{
    size_t length = strlen(what);
    if (write(STDOUT_FILENO, what, length) != (ssize_t)length)
        hits_stop("nothing can be said");
}

static void say_begin(const actor *self)
{
    say(self->number == 0 ? "\n== begin 0\n" : "\n== begin 1\n");
}

static void warm_up(actor *self, size_t bytes)
{
    void *blocks[DEPTH];
    for (size_t i = 0; i < DEPTH; i++) {
        take_turn(self);
        blocks[i] = hits_take(self->scene, self->stream, bytes);
        pass_turn(self);
    }
    for (size_t i = 0; i < DEPTH; i++) {
        take_turn(self);
        hits_give(self->scene, self->stream, blocks[i], bytes);
        pass_turn(self);
    }
}

static void work_on_hits(actor *self)
{
    for (size_t i = 0; i < SIZES; i++)
        hits_run_on(self->scene, self->stream, sizes[i], DEPTH, ROUNDS);
}

/* Two lines; a request for no bytes stores its null where it is told to, and nowhere
 * else. */
static _Alignas(64) void *answers[2 * 8];

static void ask_for_nothing(actor *self, void **out)
{
    if (weir_allocate(self->scene->pool, self->scene->streams[self->stream], 0,
                      WEIR_ALIGNMENT, out) != WEIR_OK)
        hits_stop("no nothing");
}

static void work_on_one_line(actor *self)
{
    ask_for_nothing(self, &answers[self->number]);
}

static void work_on_two_lines(actor *self)
{
    ask_for_nothing(self, &answers[self->number * 8]);
}

static void *act(void *argument)
{
    actor *self = argument;
    size_t rounds = self->work == work_on_hits ? WARM_ROUNDS : 0;
    for (size_t round = 0; round < rounds; round++) {
        for (size_t i = 0; i < SIZES; i++)
            warm_up(self, sizes[i]);
    }
    for (size_t warm = 0; warm < 2; warm++) {
        take_turn(self);
        if (warm == 1)
            say_begin(self);
        self->work(self);
        if (warm == 1)
            say("\n== end\n");
        pass_turn(self);
    }
    pthread_barrier_wait(self->end);
    return NULL;
}

/* Says where the library's code is. */
static int say_where(struct dl_phdr_info *object, size_t size, void *symbol)
{
    uintptr_t at = (uintptr_t)symbol - object->dlpi_addr;
    (void)size;
    for (size_t i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0 &&
            at - part->p_vaddr < part->p_memsz) {
            char line[64];
            uintptr_t first = object->dlpi_addr + part->p_vaddr;
            snprintf(line, sizeof line, "\n== library %zx %zx\n", (size_t)first,
                     (size_t)(first + part->p_memsz));
            say(line);
            return 1;
        }
    }
    return 0;
}

static int run_program(void (*work)(actor *self), bool on_one_stream)
{
    hits_scene scene = hits_open();
    pthread_t threads[THREADS];
    pthread_barrier_t end;
    actor actors[THREADS];
    if (dl_iterate_phdr(say_where, dlsym(RTLD_NEXT, "weir_allocate")) != 1 ||
        pthread_barrier_init(&end, NULL, THREADS) != 0)
        hits_stop("no library, or no barrier");
    for (size_t i = 0; i < THREADS; i++) {
        actors[i] = (actor){ i, on_one_stream ? 0 : i, &end, &scene, work };
        if (pthread_create(&threads[i], NULL, act, &actors[i]) != 0)
            hits_stop("no thread");
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&end);
    hits_close(&scene);
    return 0;
}

/* ---- what lackey prints ---- */

#define LINE_BITS 6
#define LINES_MAX 4096 /* that hits touch; a power of two */

typedef struct line {
    uint64_t number;             /* address >> LINE_BITS; 0: none */
    bool is_touched[THREADS];
    uint64_t stored_by[THREADS]; /* the last instruction to store there, or 0 */
} line;

typedef struct account {
    line lines[LINES_MAX]; /* open addressing */
    size_t count;
    uint64_t accesses[THREADS];
    uint64_t begun;        /* actors */
} account;

static line *line_of(account *self, uint64_t number)
{
    size_t at = (size_t)(number * UINT64_C(0x9e3779b97f4a7c15) >> 40) % LINES_MAX;
    while (self->lines[at].number != 0 && self->lines[at].number != number)
        at = (at + 1) % LINES_MAX;
    if (self->lines[at].number == 0) {
        self->lines[at].number = number;
        self->count++;
        assert_true(self->count < LINES_MAX / 2);
    }
    return &self->lines[at];
}

static void note(account *self, size_t who, char kind, uint64_t address, uint64_t bytes,
                 uint64_t instruction)
{
    uint64_t last = (address + bytes - 1) >> LINE_BITS;
    self->accesses[who]++;
    for (uint64_t number = address >> LINE_BITS; number <= last; number++) {
        line *at = line_of(self, number);
        at->is_touched[who] = true;
        if (kind != 'L')
            at->stored_by[who] = instruction;
    }
}

/* Lines such as `I  04001090,3` and ` S 1ffeffe7e,8`. */
static void read_trace(FILE *trace, account *self)
{
    char text[256];
    size_t who = THREADS; /* nobody */
    uint64_t instruction = 0, library_begin = 0, library_end = 0;
    memset(self, 0, sizeof *self);
    while (fgets(text, sizeof text, trace) != NULL) {
        unsigned long long address, bytes;
        char kind;
        if (sscanf(text, "== library %llx %llx", &address, &bytes) == 2) {
            library_begin = address;
            library_end = bytes;
        } else if (sscanf(text, "== begin %zu", &who) == 1) {
            assert_true(who < THREADS);
            self->begun++;
        } else if (strncmp(text, "== end", 6) == 0) {
            who = THREADS;
        } else if (who < THREADS &&
                   sscanf(text, " %c %llx,%llu", &kind, &address, &bytes) == 3) {
            if (kind == 'I')
                instruction = address;
            else if (instruction >= library_begin && instruction < library_end)
                note(self, who, kind, address, bytes, instruction);
        }
    }
}

/* Prints the first lines that one has stored to and another has touched. */
static uint64_t count_shared(const account *self)
{
    uint64_t count = 0;
    for (size_t i = 0; i < LINES_MAX; i++) {
        const line *at = &self->lines[i];
        if (!at->is_touched[0] || !at->is_touched[1] ||
            (at->stored_by[0] == 0 && at->stored_by[1] == 0))
            continue;
        if (++count <= 8)
            print_message("    shared: the line at %#llx, stored to at %#llx, %#llx\n",
                          (unsigned long long)(at->number << LINE_BITS),
                          (unsigned long long)at->stored_by[0],
                          (unsigned long long)at->stored_by[1]);
    }
    return count;
}

/* ---- valgrind ---- */

static void leave_out_without_valgrind(void)
{
    if (system("valgrind --version > /dev/null 2>&1") == 0)
        return;
    assert_null(getenv("WEIR_CI"));
    print_message("there is no valgrind here: no line was looked at\n");
    skip();
}

static uint64_t shared_lines_of(const char *work)
{
    static account found;
    char own_path[1024], command[1200];
    ssize_t length = readlink("/proc/self/exe", own_path, sizeof own_path - 1);
    assert_true(length > 0);
    own_path[length] = '\0';
    snprintf(command, sizeof command,
             "exec valgrind --tool=lackey --trace-mem=yes --log-fd=1 '%s' %s", own_path,
             work);
    fflush(NULL);
    FILE *trace = popen(command, "r");
    assert_non_null(trace);
    read_trace(trace, &found);
    int status = pclose(trace);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_int_equal(found.begun, THREADS);
    uint64_t count = count_shared(&found);
    print_message("%s: %zu lines, %llu and %llu accesses, %llu lines shared\n", work,
                  found.count, (unsigned long long)found.accesses[0],
                  (unsigned long long)found.accesses[1], (unsigned long long)count);
    for (size_t i = 0; i < THREADS; i++)
        assert_true(found.accesses[i] > 0);
    return count;
}

/* ---- tests ---- */

static void a_shared_line_is_found(void **state)
{
    (void)state;
    leave_out_without_valgrind();
    assert_int_equal(shared_lines_of("one_line"), 1);
    assert_int_equal(shared_lines_of("two_lines"), 0);
}

static void hits_of_two_threads_share_no_line(void **state)
{
    (void)state;
    leave_out_without_valgrind();
    assert_int_equal(shared_lines_of("hits"), 0);
}

static void hits_on_one_stream_share_no_line(void **state)
{
    (void)state;
    leave_out_without_valgrind();
    assert_int_equal(shared_lines_of("hits_on_one_stream"), 0);
}

int main(int count, char **arguments)
{
    if (count == 2 && strcmp(arguments[1], "hits") == 0)
        return run_program(work_on_hits, false);
    if (count == 2 && strcmp(arguments[1], "hits_on_one_stream") == 0)
        return run_program(work_on_hits, true);
    if (count == 2 && strcmp(arguments[1], "one_line") == 0)
        return run_program(work_on_one_line, false);
    if (count == 2 && strcmp(arguments[1], "two_lines") == 0)
        return run_program(work_on_two_lines, false);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shared_line_is_found),
        cmocka_unit_test(hits_of_two_threads_share_no_line),
        cmocka_unit_test(hits_on_one_stream_share_no_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
