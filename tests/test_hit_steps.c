/* test_hit_steps.c - every instruction of a hit, one by one: none is a locked
 * read-modify-write, a fence or a system call, and all of them are the library's. And
 * those of a tensor's round trip, which needs malloc, and two of the first kind.
 *
 * A child process warms a pool up and stops; from there to a second stop it is stepped
 * by ptrace, and what it is about to do is read from the parent's own memory, which
 * has the same libraries at the same addresses. The library is the one that ships. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef __x86_64__

#include <dlfcn.h>
#include <errno.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include "hits.h"

/* ---- one instruction ---- */

#define INT3       0xcc /* where a child stops */
#define STEPS_MOST 2000000

static bool is_prefix(uint8_t byte)
{
    static const uint8_t prefixes[] = { 0xf0, 0xf2, 0xf3, 0x2e, 0x36, 0x3e,
                                        0x26, 0x64, 0x65, 0x66, 0x67 };
    return memchr(prefixes, byte, sizeof prefixes) != NULL;
}

/* The operand that a ModRM byte names is in memory. */
static bool is_in_memory(uint8_t modrm)
{
    return (modrm & 0xc0) != 0xc0;
}

/* What an instruction is that no hit may have, or null. */
static const char *forbidden(const uint8_t *code)
{
    bool is_locked = false;
    for (; is_prefix(*code); code++)
        is_locked = is_locked || *code == 0xf0;
    if ((*code & 0xf0) == 0x40) /* REX */
        code++;
    if (is_locked)
        return "a locked read-modify-write";
    if ((code[0] == 0x86 || code[0] == 0x87) && is_in_memory(code[1]))
        return "an exchange with memory";
    if (code[0] == 0xcd)
        return "a system call";
    if (code[0] != 0x0f)
        return NULL;
    if (code[1] == 0x05 || code[1] == 0x34)
        return "a system call";
    if (code[1] == 0xa2)
        return "cpuid";
    if (code[1] == 0xae && !is_in_memory(code[2]) && ((code[2] >> 3) & 7) == 6)
        return "a fence";
    return NULL;
}

static void instructions_are_told_apart(void **state)
{
    (void)state;
    static const struct {
        uint8_t code[8];
        const char *is;
    } cases[] = {
        { { 0x89, 0x07 }, NULL },                         /* mov [rdi], eax */
        { { 0xf0, 0xff, 0x07 }, "a locked read-modify-write" },
        { { 0xf0, 0x48, 0x0f, 0xb1, 0x17 }, "a locked read-modify-write" },
        { { 0x66, 0xf0, 0x0f, 0xc1, 0x07 }, "a locked read-modify-write" },
        { { 0x64, 0xf0, 0xff, 0x07 }, "a locked read-modify-write" }, /* fs: */
        { { 0x87, 0x07 }, "an exchange with memory" },
        { { 0x86, 0x47, 0x08 }, "an exchange with memory" },
        { { 0x48, 0x87, 0x05, 0, 0, 0, 0 }, "an exchange with memory" },
        { { 0x48, 0x87, 0xc3 }, NULL },                   /* xchg rax, rbx */
        { { 0x66, 0x90 }, NULL },
        { { 0x0f, 0xae, 0xf0 }, "a fence" },
        { { 0x0f, 0xae, 0x38 }, NULL },                   /* clflush [rax] */
        { { 0x0f, 0xae, 0x30 }, NULL },                   /* xsaveopt [rax] */
        { { 0x0f, 0x05 }, "a system call" },
        { { 0x0f, 0x34 }, "a system call" },
        { { 0xcd, 0x80 }, "a system call" },
        { { 0x0f, 0xa2 }, "cpuid" },
        { { 0x0f, 0xb6, 0xf0 }, NULL },                   /* movzx esi, al */
        { { 0xb8, 0xf0, 0, 0, 0 }, NULL },                /* mov eax, 0xf0 */
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *is = forbidden(cases[i].code);
        if (cases[i].is == NULL)
            assert_null(is);
        else
            assert_string_equal(is, cases[i].is);
    }
}

/* ---- a stepped child ---- */

/* What was seen between the two stops. */
typedef struct seen {
    uint64_t steps;
    uint64_t in_library;
    uint64_t forbidden_in_library;
    uint64_t findings;
    char first[256]; /* of them, in words */
} seen;

static void find(seen *out, const char *what, uintptr_t at, const Dl_info *info)
{
    out->findings++;
    if (out->findings > 1)
        return;
    if (info == NULL)
        snprintf(out->first, sizeof out->first, "%s at %#zx", what, (size_t)at);
    else
        snprintf(out->first, sizeof out->first, "%s at %s+%#zx (near %s)", what,
                 info->dli_fname, (size_t)(at - (uintptr_t)info->dli_fbase),
                 info->dli_sname != NULL ? info->dli_sname : "nothing named");
}

/* Where they begin: the library that ships, and this program. */
static const void *library, *program;

static const void *base_of(const void *address)
{
    Dl_info info;
    return dladdr(address, &info) != 0 ? info.dli_fbase : NULL;
}

static int find_bases(void **state)
{
    static const char in_program;
    (void)state;
    library = base_of(dlsym(RTLD_NEXT, "weir_allocate"));
    program = base_of(&in_program);
    return library != NULL && program != NULL && library != program ? 0 : -1;
}

/* Judges the instruction at `at`. False: the child is about to stop. */
static bool look_at(uintptr_t at, seen *out)
{
    Dl_info info;
    out->steps++;
    if (dladdr((const void *)at, &info) == 0) {
        find(out, "code of no library", at, NULL);
        return true;
    }
    const uint8_t *code = (const uint8_t *)at;
    if (info.dli_fbase == library)
        out->in_library++;
    else if (info.dli_fbase != program)
        find(out, "a call", at, &info);
    else if (*code == INT3)
        return false;
    const char *is = forbidden(code);
    if (is != NULL)
        find(out, is, at, &info);
    if (is != NULL && info.dli_fbase == library)
        out->forbidden_in_library++;
    return true;
}

/* Waits until the child stops as it should. False: it has ended, or is about to. */
static bool await_stop(pid_t child, int *status)
{
    pid_t got;
    while ((got = waitpid(child, status, 0)) < 0 && errno == EINTR)
        continue;
    return got == child && WIFSTOPPED(*status) && WSTOPSIG(*status) == SIGTRAP;
}

/* Steps a child that has stopped to its next stop. False: it could not be done. */
static bool step_through(pid_t child, seen *out)
{
    struct user_regs_struct registers;
    int status;
    memset(out, 0, sizeof *out);
    while (out->steps < STEPS_MOST) {
        if (ptrace(PTRACE_GETREGS, child, NULL, &registers) != 0)
            return false;
        if (!look_at((uintptr_t)registers.rip, out))
            return true;
        if (ptrace(PTRACE_SINGLESTEP, child, NULL, NULL) != 0 ||
            !await_stop(child, &status))
            return false;
    }
    return false;
}

static inline void stop_here(void)
{
    __asm__ volatile("int3" ::: "memory");
}

/* Runs `body` in a child, which stops twice, and looks at what is between. False:
 * ptrace is refused here. */
static bool watch(void (*body)(const void *argument), const void *argument, seen *out)
{
    enum { REFUSED = 77 };
    fflush(NULL);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
            _exit(REFUSED);
        body(argument);
        _exit(0);
    }
    int status = 0;
    bool has_stopped = await_stop(child, &status);
    bool done = has_stopped && step_through(child, out);
    if (WIFSTOPPED(status)) {
        kill(child, SIGKILL);
        waitpid(child, NULL, 0);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == REFUSED)
        return false;
    assert_true(has_stopped);
    assert_true(done);
    return true;
}

static void leave_out_where_refused(bool was_watched)
{
    if (was_watched)
        return;
    print_message("ptrace is refused here: no instruction was looked at\n");
    skip();
}

/* ---- what must be found ---- */

static volatile uint32_t word;

static void body_of_nothing(const void *argument)
{
    (void)argument;
    stop_here();
    word++;
    stop_here();
}

static void body_of_a_lock(const void *argument)
{
    (void)argument;
    stop_here();
    __atomic_fetch_add(&word, 1, __ATOMIC_RELAXED);
    stop_here();
}

static void body_of_an_exchange(const void *argument)
{
    (void)argument;
    stop_here();
    (void)__atomic_exchange_n(&word, 1, __ATOMIC_RELAXED);
    stop_here();
}

static void body_of_a_fence(const void *argument)
{
    (void)argument;
    stop_here();
    __asm__ volatile("mfence" ::: "memory");
    stop_here();
}

static void body_of_a_call(const void *argument)
{
    void *volatile ptr = malloc(64);
    (void)argument;
    free(ptr);
    stop_here();
    ptr = malloc(64);
    stop_here();
    free(ptr);
}

static void what_no_hit_may_have_is_found(void **state)
{
    (void)state;
    seen out;
    leave_out_where_refused(watch(body_of_nothing, NULL, &out));
    assert_int_equal(out.findings, 0);
    assert_true(out.steps > 1);
    assert_true(watch(body_of_a_lock, NULL, &out));
    assert_int_equal(out.findings, 1);
    assert_non_null(strstr(out.first, "a locked read-modify-write"));
    assert_true(watch(body_of_an_exchange, NULL, &out));
    assert_int_equal(out.findings, 1);
    assert_non_null(strstr(out.first, "an exchange with memory"));
    assert_true(watch(body_of_a_fence, NULL, &out));
    assert_int_equal(out.findings, 1);
    assert_non_null(strstr(out.first, "a fence"));
    assert_true(watch(body_of_a_call, NULL, &out));
    assert_true(out.findings > 1);
    assert_non_null(strstr(out.first, "a call"));
    assert_int_equal(out.in_library, 0);
}

/* ---- hits ---- */

#define WARM_ROUNDS 200
#define PAIRS       64
#define LONGEST     540 /* instructions of the library's in a pair, where a compiler has
                           optimised them: half as many again as gcc's release has. May
                           only shrink */

typedef struct shape {
    size_t bytes;
    size_t depth;
    size_t streams; /* in turn */
} shape;

static void *sleep_on(void *gate)
{
    pthread_mutex_lock(gate);
    return NULL;
}

/* A second thread is alive: alone in the process, libc would leave its locks out. */
static void begin_a_sleeper(void)
{
    static pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    pthread_mutex_lock(&gate);
    if (pthread_create(&thread, NULL, sleep_on, &gate) != 0)
        hits_stop("no second thread");
}

static void body_of_hits(const void *argument)
{
    const shape *of = argument;
    begin_a_sleeper();
    hits_scene it = hits_open();
    hits_run(&it, of->streams, of->bytes, of->depth, WARM_ROUNDS);
    stop_here();
    hits_run(&it, of->streams, of->bytes, of->depth, PAIRS / of->depth / of->streams);
    stop_here();
}

static bool has_membarrier(void)
{
    long answer = syscall(SYS_membarrier, MEMBARRIER_CMD_QUERY, 0, 0);
    return answer > 0 && (answer & MEMBARRIER_CMD_PRIVATE_EXPEDITED) != 0;
}

static void hits_take_no_lock_and_call_nobody(void **state)
{
    (void)state;
    static const shape shapes[] = {
        { 256, 1, 1 },     { 256, 8, 1 },     { 4096, 1, 1 }, { 4096, 8, 1 },
        { 1 << 20, 1, 1 }, { 1 << 20, 8, 1 }, { 4096, 8, 4 },
    };
    uint64_t findings = 0;
    bool is_short = true;
    if (!has_membarrier()) {
        print_message("membarrier is refused here: a hit has a fence instead\n");
        skip();
    }
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const shape *of = &shapes[i];
        seen out;
        leave_out_where_refused(watch(body_of_hits, of, &out));
        print_message("%7zu bytes, depth %zu, %zu streams: %.1f instructions a pair\n",
                      of->bytes, of->depth, of->streams,
                      (double)out.in_library / PAIRS);
        if (out.findings > 0)
            print_message("    %.1f findings a pair, such as %s\n",
                          (double)out.findings / PAIRS, out.first);
        findings += out.findings;
        is_short = is_short && out.in_library <= LONGEST * PAIRS;
        assert_true(out.in_library >= 20 * PAIRS); /* it was the library that ran */
    }
    assert_int_equal(findings, 0);
#ifdef __OPTIMIZE__
    assert_true(is_short);
#else
    (void)is_short;
#endif
}

/* ---- a tensor handed over on its stream, and ended there ---- */

#define TRIPS        32
#define TRIP_LONGEST 1300 /* as LONGEST: a quarter more than gcc's release has */
#define TRIP_ATOMICS 2    /* one more holder of the bytes, and one less */

static void run_trips(const hits_scene *it, weir_buffer *buffer, size_t count)
{
    static const uint32_t version[2] = { 1, 3 };
    static const int64_t extents[2] = { 2, 512 };
    const weir_tensor tensor = { { WEIR_DTYPE_FLOAT, 32, 1 }, 2, extents, NULL, 0 };
    int64_t stream = (int64_t)(intptr_t)it->streams[0];
    weir_dlpack_request request = WEIR_DLPACK_REQUEST_INIT;
    weir_tensor seen_there;
    weir_buffer import;
    weir_dlpack out;
    request.max_version = version;
    request.stream = &stream;
    while (count-- > 0) {
        if (weir_dlpack_export(buffer, &tensor, &request, &out) != WEIR_OK ||
            weir_dlpack_import(it->device, it->streams[0], out, NULL, &import,
                               &seen_there) != WEIR_OK)
            hits_stop("no round trip");
        weir_buffer_reset(&import);
    }
}

static void body_of_trips(const void *argument)
{
    (void)argument;
    weir_buffer buffer;
    begin_a_sleeper();
    hits_scene it = hits_open();
    if (weir_buffer_allocate(it.pool, it.streams[0], 4096, WEIR_ALIGNMENT, &buffer) !=
        WEIR_OK)
        hits_stop("no buffer");
    run_trips(&it, &buffer, WARM_ROUNDS);
    stop_here();
    run_trips(&it, &buffer, TRIPS);
    stop_here();
}

static void a_round_trip_has_two_atomics(void **state)
{
    (void)state;
    seen out;
    leave_out_where_refused(watch(body_of_trips, NULL, &out));
    print_message("%.1f instructions a round trip, and the host allocator's\n",
                  (double)out.in_library / TRIPS);
    assert_true(out.in_library >= 100 * TRIPS);
    assert_int_equal(out.forbidden_in_library, TRIP_ATOMICS * TRIPS);
#ifdef __OPTIMIZE__
    assert_true(out.in_library <= TRIP_LONGEST * TRIPS);
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(instructions_are_told_apart),
        cmocka_unit_test(what_no_hit_may_have_is_found),
        cmocka_unit_test(hits_take_no_lock_and_call_nobody),
        cmocka_unit_test(a_round_trip_has_two_atomics),
    };
    return cmocka_run_group_tests(tests, find_bases, NULL);
}

#else

static void hits_are_not_looked_at_here(void **state)
{
    (void)state;
    print_message("only x86-64's instructions are known here\n");
    skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hits_are_not_looked_at_here),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

#endif
