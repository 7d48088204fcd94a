/* model_order.c - the protocol between host threads, model-checked: small programs
 * of two threads on the real stream order, in every order in which their locks and
 * device calls can interleave.
 *
 * Nothing here goes through a pool: the threads call stream order itself, put reads
 * and writes of the same bytes on their streams, and the ledger says whether the
 * second is ordered behind the first. */
#include "device/device.h"
#include "stream_order.h"
#include "support.h"
#include "support_explore.h"
#include "support_scene.h"
#include "sync.h"

#define BYTES ((size_t)4096)

typedef struct stage {
    weir_device *device;
    weir__order *order;
    void *x;                    /* the bytes that are at stake */
    weir_stream s, t, u;
    uint64_t clock_s, clock_t, clock_u;
    weir__mark mark;            /* of s, behind the write of x */
    void *y;                    /* as x, of u and behind `other` */
    weir__mark other;
    weir__order_listener listener; /* of what is kept for s, as a cache would */
    weir__mutex keeping;        /* guards kept */
    uint32_t kept;
    bool is_told;               /* a call of the listener is under way */
    bool has_left;
    uint32_t heard;             /* how often of a clock of s that begins */
} stage;

static void does_nothing(void *argument, void *const views[])
{
    (void)argument;
    (void)views;
}

static void touch_at(stage *at, weir_stream stream, void *ptr,
                     weir_emulated_access access)
{
    const weir_emulated_range range = { ptr, BYTES, access };
    must_ok(weir__launch(at->device, stream, does_nothing, NULL, &range, 1));
}

static void touch(stage *at, weir_stream stream, weir_emulated_access access)
{
    touch_at(at, stream, at->x, access);
}

/* The stage is new for each run, but for the device. */
static void stage_begin(stage *at, void (*prepare)(stage *))
{
    at->s = make_stream(at->device, WEIR_STREAM_NON_BLOCKING);
    at->t = make_stream(at->device, WEIR_STREAM_NON_BLOCKING);
    at->u = make_stream(at->device, WEIR_STREAM_NON_BLOCKING);
    must_ok(weir__order_clock(at->order, at->s, &at->clock_s));
    must_ok(weir__order_clock(at->order, at->t, &at->clock_t));
    must_ok(weir__order_clock(at->order, at->u, &at->clock_u));
    must_ok(weir__malloc(at->device, BYTES, &at->x));
    must_ok(weir__malloc(at->device, BYTES, &at->y));
    /* One event before the mark's, so that the mark's is neither oldest nor newest. */
    (void)weir__order_mark_here(at->order, at->clock_s);
    must_ok(weir__order_close(at->order, at->clock_s));
    touch(at, at->s, WEIR_EMULATED_WRITE);
    at->mark = weir__order_mark_here(at->order, at->clock_s);
    if (prepare != NULL)
        prepare(at);
}

static void stage_end(stage *at)
{
    must_ok(weir_device_sync(at->device));
    weir__order_verify(at->order);
    must_be_quiet(at->device);
    must_ok(weir__free(at->device, at->x));
    must_ok(weir__free(at->device, at->y));
    if (at->s != NULL)
        end_stream(at->device, at->s);
    end_stream(at->device, at->t);
    end_stream(at->device, at->u);
}

/* Runs the two threads in every way they can interleave with at most so many
 * switches of one for the other (0: any number); then `conclude`. */
static void explore_to(const char *what, uint32_t most_switches,
                       void (*prepare)(stage *), void (*first)(void *),
                       void (*second)(void *), void (*conclude)(stage *))
{
    static explorer self;
    self = (explorer){ .most_switches = most_switches };
    weir_emulated_options emulated = WEIR_EMULATED_OPTIONS_INIT;
    emulated.scheduler = WEIR_EMULATED_STEPPED;
    emulated.choose = explore_choose;
    emulated.choose_context = &self;
    emulated.memory_bytes = (size_t)1 << 20;
    weir_device_options options = WEIR_DEVICE_OPTIONS_INIT;
    options.emulated = &emulated;

    stage at = { .device = open_with("emulated:0", &options) };
    at.order = at.device->order;
    do {
        stage_begin(&at, prepare);
        self.active = true;
        run_both(at.device, first, second, &at);
        self.active = false;
        if (conclude != NULL)
            conclude(&at);
        stage_end(&at);
    } while (explore_next(&self));
    close_emulated(at.device);
    print_message("%s: %llu interleavings, all there are with %s%u switches\n", what,
                  (unsigned long long)self.runs,
                  most_switches ? "at most " : "more than ",
                  (unsigned)most_switches);
}

static void explore(const char *what, uint32_t most_switches, void (*prepare)(stage *),
                    void (*first)(void *), void (*second)(void *))
{
    explore_to(what, most_switches, prepare, first, second, NULL);
}

static uint32_t switches(void)
{
    return (uint32_t)support_bound("model_order.switches", 3, 4);
}

/* ---- what a thread does ---- */

static void closes_s(void *argument)
{
    stage *at = argument;
    must_ok(weir__order_close(at->order, at->clock_s));
}

static void lets_t_wait_and_write(void *argument)
{
    stage *at = argument;
    must_ok(weir__order_wait(at->order, at->clock_t, at->t, at->mark));
    touch(at, at->t, WEIR_EMULATED_WRITE);
}

static void writes_on_t_if_it_may(void *argument)
{
    stage *at = argument;
    if (weir__order_may_take(at->order, at->clock_t, at->mark))
        touch(at, at->t, WEIR_EMULATED_WRITE);
}

static void writes_on_t_if_it_is_done(void *argument)
{
    stage *at = argument;
    if (weir__order_is_done(at->order, at->clock_t, at->mark))
        touch(at, at->t, WEIR_EMULATED_WRITE);
}

static void marks_later_and_lets_t_wait(void *argument)
{
    stage *at = argument;
    touch(at, at->s, WEIR_EMULATED_WRITE);
    at->mark = weir__order_mark_here(at->order, at->clock_s);
    lets_t_wait_and_write(at);
}

static void lets_s_wait_for_u_and_marks(void *argument)
{
    stage *at = argument;
    must_ok(weir__order_wait(at->order, at->clock_s, at->s, at->other));
}

/* What t has waited for an event of s says of u only what s knew at the event. */
static void lets_t_wait_and_touches_what_u_wrote(void *argument)
{
    stage *at = argument;
    must_ok(weir__order_wait(at->order, at->clock_t, at->t, at->mark));
    if (weir__order_may_take(at->order, at->clock_t, at->other))
        touch_at(at, at->t, at->y, WEIR_EMULATED_WRITE);
}

/* Uses up events, so that one that nobody holds is recorded anew, on another stream. */
static void records_many_events(void *argument)
{
    stage *at = argument;
    for (int i = 0; i < 2; i++) {
        (void)weir__order_mark_here(at->order, at->clock_s);
        must_ok(weir__order_close(at->order, at->clock_s));
    }
    (void)weir__order_mark_here(at->order, at->clock_u);
    must_ok(weir__order_close(at->order, at->clock_u));
}

static void retires_s(void *argument)
{
    stage *at = argument;
    must_ok(weir_stream_destroy(at->device, at->s));
    at->s = NULL;
}

/* ---- the programs ---- */

static void covers_the_mark(stage *at)
{
    must_ok(weir__order_close(at->order, at->clock_s));
}

static void writes_on_u_too(stage *at)
{
    touch_at(at, at->u, at->y, WEIR_EMULATED_WRITE);
    at->other = weir__order_mark_here(at->order, at->clock_u);
    must_ok(weir__order_close(at->order, at->clock_u));
}

static void event_is_published_after_its_record(void **state)
{
    (void)state;
    explore("close against a taker", switches(), NULL, closes_s, lets_t_wait_and_write);
}

static void event_covers_what_was_marked_before_its_record(void **state)
{
    (void)state;
    explore("close against a later mark", switches(), NULL, closes_s,
            marks_later_and_lets_t_wait);
}

static void two_takers_do_not_disturb_each_other(void **state)
{
    (void)state;
    explore("two takers on one stream", switches(), NULL, lets_t_wait_and_write,
            writes_on_t_if_it_may);
}

static void stream_is_behind_only_once_it_waits(void **state)
{
    (void)state;
    explore("a wait against a taker", 0, covers_the_mark, lets_t_wait_and_write,
            writes_on_t_if_it_may);
}

static void answer_of_one_thread_serves_another(void **state)
{
    (void)state;
    explore("a question against a reader", 0, covers_the_mark,
            writes_on_t_if_it_is_done, writes_on_t_if_it_may);
}

static void event_tells_what_its_stream_knew(void **state)
{
    (void)state;
    explore("a wait against what is learnt later", switches(), writes_on_u_too,
            lets_s_wait_for_u_and_marks, lets_t_wait_and_touches_what_u_wrote);
}

static void held_event_is_not_recorded_anew(void **state)
{
    (void)state;
    explore("a wait against new records", switches(), covers_the_mark,
            lets_t_wait_and_write, records_many_events);
}

static void retirement_lets_takers_end(void **state)
{
    (void)state;
    explore("a retirement against a taker", switches(), NULL, retires_s,
            lets_t_wait_and_write);
}

/* ---- what is kept per stream ---- */

static stage *stage_of(weir__order_listener *listener)
{
    return (stage *)((char *)listener - offsetof(stage, listener));
}

static void gives_up_what_is_kept(weir__order_listener *listener, weir_stream stream,
                                  uint64_t clock)
{
    stage *at = stage_of(listener);
    must(!at->has_left);
    must(stream == at->s && clock == at->clock_s);
    at->is_told = true;
    weir__mutex_lock(&at->keeping);
    at->kept = 0;
    weir__mutex_unlock(&at->keeping);
    at->is_told = false;
}

static void listens(stage *at)
{
    at->listener.stream_changes = gives_up_what_is_kept;
    at->kept = 0;
    at->is_told = at->has_left = false;
    weir__mutex_init(&at->keeping, WEIR__RANK_RESOURCE);
    must_ok(weir__order_listen(at->order, &at->listener));
}

static void leaves(void *argument)
{
    stage *at = argument;
    weir__order_unlisten(at->order, &at->listener);
    must(!at->is_told);
    at->has_left = true;
}

/* Keeps more for s wherever that is allowed. */
static void keeps_for_s(void *argument)
{
    stage *at = argument;
    uint64_t clock;
    const _Atomic uint64_t *counter;
    for (int i = 0; i < 3; i++) {
        weir__mutex_lock(&at->keeping);
        at->kept += weir__order_steady(at->order, at->s, &clock, &counter);
        weir__mutex_unlock(&at->keeping);
    }
}

static void retires_s_with_nothing_kept(void *argument)
{
    stage *at = argument;
    must_ok(weir_stream_retire(at->device, at->s));
}

static void nothing_stays_behind(stage *at)
{
    must_equal(at->kept, 0);
    must_ok(weir__stream_destroy(at->device, at->s));
    at->s = NULL;
    leaves(at);
}

static void nothing_is_kept_for_what_has_retired(void **state)
{
    (void)state;
    explore_to("a retirement against who keeps", switches(), listens,
               retires_s_with_nothing_kept, keeps_for_s, nothing_stays_behind);
}

static void nobody_is_told_who_has_left(void **state)
{
    (void)state;
    explore("a retirement against who leaves", 0, listens, retires_s, leaves);
}

static weir_status hears_of_a_clock(weir__order_listener *listener, weir_stream stream,
                                    uint64_t clock)
{
    stage *at = stage_of(listener);
    must(clock != at->clock_s); /* that was another life */
    at->heard += stream == at->s;
    return WEIR_OK;
}

static void ends_a_life_of_s(stage *at)
{
    at->heard = 0;
    must_ok(weir_stream_retire(at->device, at->s));
    must_ok(weir_device_sync(at->device));
    for (int i = 0; i < 8; i++) /* its clock is dropped */
        end_stream(at->device, make_stream(at->device, WEIR_STREAM_NON_BLOCKING));
    must(!weir__order_has_clock(at->order, at->clock_s));
}

static void begins_a_life_of_s(void *argument)
{
    stage *at = argument;
    must_ok(weir_stream_register(at->device, at->s));
}

static void begins_to_listen(void *argument)
{
    stage *at = argument;
    at->listener.clock_begins = hears_of_a_clock;
    at->listener.stream_changes = gives_up_what_is_kept;
    must_ok(weir__order_listen(at->order, &at->listener));
}

static void s_was_heard_of_once(stage *at)
{
    must_equal(at->heard, 1);
    weir__order_unlisten(at->order, &at->listener);
    must_ok(weir_stream_retire(at->device, at->s));
    must_ok(weir__stream_destroy(at->device, at->s));
    at->s = NULL;
}

static void clock_is_heard_of_once(void **state)
{
    (void)state;
    explore_to("a clock that begins against who begins to listen", switches(),
               ends_a_life_of_s, begins_a_life_of_s, begins_to_listen,
               s_was_heard_of_once);
}

/* Frees x as who keeps memory outside of the order does: its mark is a number that was
 * read, and what makes a mark of it comes later. */
static void frees_by_number_and_lets_t_wait(void *argument)
{
    stage *at = argument;
    uint64_t clock;
    const _Atomic uint64_t *counter;
    must(weir__order_steady(at->order, at->s, &clock, &counter));
    touch(at, at->s, WEIR_EMULATED_WRITE);
    weir__yield();
    at->mark = (weir__mark){ clock, *counter + 1 };
    weir__yield();
    (void)weir__order_mark_here(at->order, clock);
    must_ok(weir__order_close(at->order, clock));
    lets_t_wait_and_write(at);
}

static void marks_and_closes_s(void *argument)
{
    stage *at = argument;
    for (int i = 0; i < 2; i++) {
        (void)weir__order_mark_here(at->order, at->clock_s);
        must_ok(weir__order_close(at->order, at->clock_s));
    }
}

static void number_that_is_read_is_a_mark(void **state)
{
    (void)state;
    explore("a free by number against other marks", switches(), NULL,
            frees_by_number_and_lets_t_wait, marks_and_closes_s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(event_is_published_after_its_record),
        cmocka_unit_test(event_covers_what_was_marked_before_its_record),
        cmocka_unit_test(two_takers_do_not_disturb_each_other),
        cmocka_unit_test(stream_is_behind_only_once_it_waits),
        cmocka_unit_test(answer_of_one_thread_serves_another),
        cmocka_unit_test(event_tells_what_its_stream_knew),
        cmocka_unit_test(held_event_is_not_recorded_anew),
        cmocka_unit_test(retirement_lets_takers_end),
        cmocka_unit_test(nothing_is_kept_for_what_has_retired),
        cmocka_unit_test(nobody_is_told_who_has_left),
        cmocka_unit_test(clock_is_heard_of_once),
        cmocka_unit_test(number_that_is_read_is_a_mark),
    };
    return cmocka_run_group_tests_name("protocol between threads", tests, NULL, NULL);
}
