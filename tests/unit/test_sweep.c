/* What a sweep does next (service/scheduler/sweep.h): single decisions, and whole sweeps with jobs that end at random.
 * TRAINYARD_SEED=n replays a history. */
#include "service/scheduler/sweep.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MAX_OPEN = 64 };

static struct sweep_decision decide(const struct sweep_state *s, enum sweep_trial_action actions[MAX_OPEN]) {
    struct sweep_decision d;
    sweep_decide(s, actions, &d);
    return d;
}

static void trials_start_up_to_max_parallel_and_to_the_last_one(void **state) {
    (void)state;
    enum sweep_trial_action actions[MAX_OPEN];
    const enum sweep_trial_state open[] = { SWEEP_TRIAL_RUNS, SWEEP_TRIAL_SUCCEEDED, SWEEP_TRIAL_CANCELLING };
    struct sweep_state s = { .trials = 10, .max_parallel = 4, .max_failures = 3 };
    assert_int_equal(decide(&s, actions).start, 4);
    s = (struct sweep_state){ .trials = 10, .created = 3, .max_parallel = 4, .open = open, .n_open = 3 };
    struct sweep_decision d = decide(&s, actions);
    assert_int_equal(d.start, 2); /* a job that is being cancelled still counts, one that has ended does not */
    assert_int_equal(actions[0], SWEEP_TRIAL_KEEP);
    assert_int_equal(actions[1], SWEEP_TRIAL_STORE_END);
    assert_int_equal(actions[2], SWEEP_TRIAL_KEEP);
    s.trials = 4;
    assert_int_equal(decide(&s, actions).start, 1);
    s.trials = 3;
    d = decide(&s, actions);
    assert_int_equal(d.start, 0);
    assert_int_equal(d.end, SWEEP_GOES_ON);
}

static void a_trial_that_a_rung_has_stopped_is_cancelled_until_its_job_ends(void **state) {
    (void)state;
    enum sweep_trial_action actions[MAX_OPEN];
    enum sweep_trial_state open[] = { SWEEP_TRIAL_STOPPED, SWEEP_TRIAL_RUNS };
    const struct sweep_state s = {
        .trials = 3, .created = 2, .max_parallel = 2, .max_failures = 3, .open = open, .n_open = 2
    };
    assert_int_equal(decide(&s, actions).start, 0); /* its job still has its ranks */
    assert_int_equal(actions[0], SWEEP_TRIAL_CANCEL);
    assert_int_equal(actions[1], SWEEP_TRIAL_KEEP);
    open[0] = SWEEP_TRIAL_CANCELLED;
    assert_int_equal(decide(&s, actions).start, 1);
    assert_int_equal(actions[0], SWEEP_TRIAL_STORE_END);
}

static void a_sweep_ends_by_what_its_trials_did(void **state) {
    (void)state;
    enum sweep_trial_action actions[MAX_OPEN];
    const enum sweep_trial_state failed[] = { SWEEP_TRIAL_FAILED, SWEEP_TRIAL_CANCELLED },
                                 succeeded[] = { SWEEP_TRIAL_FAILED, SWEEP_TRIAL_SUCCEEDED };
    struct sweep_state s = { .trials = 2, .created = 2, .max_parallel = 1, .max_failures = 3, .n_open = 2 };
    s.open = succeeded;
    assert_int_equal(decide(&s, actions).end, SWEEP_END_SUCCEEDED);
    s.open = failed;
    struct sweep_decision d = decide(&s, actions);
    assert_int_equal(d.end, SWEEP_END_FAILED);
    assert_string_equal(d.reason, "none of the 2 trials SUCCEEDED");
    s.succeeded = 1; /* one whose end is stored */
    assert_int_equal(decide(&s, actions).end, SWEEP_END_SUCCEEDED);
}

static void too_many_failures_stop_a_sweep_and_a_stopped_one_fails(void **state) {
    (void)state;
    enum sweep_trial_action actions[MAX_OPEN];
    enum sweep_trial_state open[] = { SWEEP_TRIAL_FAILED, SWEEP_TRIAL_RUNS };
    struct sweep_state s = {
        .trials = 9, .created = 4, .failed = 2, .max_parallel = 2, .max_failures = 3, .open = open, .n_open = 2
    };
    struct sweep_decision d = decide(&s, actions);
    assert_false(d.stop);
    assert_int_equal(d.start, 1); /* a failed trial leaves its place to the next one */
    s.failed = 3;
    d = decide(&s, actions);
    assert_true(d.stop);
    assert_string_equal(d.reason, "4 trials FAILED, more than max_failures 3");
    assert_int_equal(d.start, 0);
    assert_int_equal(actions[0], SWEEP_TRIAL_STORE_END);
    assert_int_equal(actions[1], SWEEP_TRIAL_KEEP); /* it is cancelled once the stop is stored */
    s.cancelling = s.stopped = true;
    d = decide(&s, actions);
    assert_false(d.stop);
    assert_int_equal(actions[1], SWEEP_TRIAL_CANCEL);
    assert_int_equal(d.end, SWEEP_GOES_ON);
    open[1] = SWEEP_TRIAL_CANCELLED;
    assert_int_equal(decide(&s, actions).end, SWEEP_END_FAILED);
    s.stopped = false; /* cancelled by a user */
    assert_int_equal(decide(&s, actions).end, SWEEP_END_CANCELLED);
}

/* ---- whole sweeps ---- */

struct history {
    struct sweep_state s;
    enum sweep_trial_state open[MAX_OPEN];
    int succeeded, failed, cancelled, stored; /* of all jobs so far; ends stored */
    bool user_cancelled;
};

/* A running job ends, or fails; a cancelled one ends as it likes. */
static void jobs_move(struct history *h) {
    for (size_t i = 0; i < h->s.n_open; i++) {
        const int luck = rand() % 10;
        if (h->open[i] == SWEEP_TRIAL_RUNS && luck < 4)
            h->open[i] = luck == 0 ? SWEEP_TRIAL_FAILED : SWEEP_TRIAL_SUCCEEDED;
        else if (h->open[i] == SWEEP_TRIAL_CANCELLING && luck < 5)
            h->open[i] = SWEEP_TRIAL_CANCELLED;
    }
}

static void store_end(struct history *h, enum sweep_trial_state state) {
    h->s.succeeded += state == SWEEP_TRIAL_SUCCEEDED;
    h->s.failed += state == SWEEP_TRIAL_FAILED;
    h->stored++;
}

/* Carries out what was decided, but a crash may leave a part undone. */
static void carry_out(struct history *h, const struct sweep_decision *d, const enum sweep_trial_action *actions) {
    size_t kept = 0;
    for (size_t i = 0; i < h->s.n_open; i++) {
        const bool crashed = rand() % 8 == 0;
        if (actions[i] == SWEEP_TRIAL_STORE_END && !crashed) {
            assert_true(h->open[i] >= SWEEP_TRIAL_SUCCEEDED);
            store_end(h, h->open[i]);
            continue;
        }
        if (actions[i] == SWEEP_TRIAL_CANCEL && !crashed) {
            assert_int_equal(h->open[i], SWEEP_TRIAL_RUNS);
            h->open[i] = SWEEP_TRIAL_CANCELLING;
        }
        h->open[kept++] = h->open[i];
    }
    h->s.n_open = kept;
    if (d->stop)
        h->s.cancelling = h->s.stopped = true;
    for (int i = 0; i < d->start && rand() % 8; i++) {
        h->open[h->s.n_open++] = SWEEP_TRIAL_RUNS;
        h->s.created++;
    }
}

static void run_history(unsigned seed) {
    srand(seed);
    struct history h = { .s = {
                             .trials = 1 + rand() % 40, .max_parallel = 1 + rand() % 6, .max_failures = rand() % 5 } };
    struct sweep_decision d = { 0 };
    h.s.open = h.open;
    for (int pass = 0;; pass++) {
        enum sweep_trial_action actions[MAX_OPEN];
        int unfinished = 0;
        assert_true(pass < 10000); /* it always ends */
        jobs_move(&h);
        if (rand() % 200 == 0 && !h.s.cancelling)
            h.s.cancelling = h.user_cancelled = true;
        sweep_decide(&h.s, actions, &d);
        carry_out(&h, &d, actions);
        for (size_t i = 0; i < h.s.n_open; i++)
            unfinished += h.open[i] <= SWEEP_TRIAL_CANCELLING;
        assert_true(unfinished <= h.s.max_parallel);
        assert_true(h.s.created <= h.s.trials);
        if (d.end != SWEEP_GOES_ON && h.s.n_open == 0) /* the row's guard refuses an end before all ends are stored */
            break;
    }
    assert_int_equal(h.stored, h.s.created);
    if (h.user_cancelled)
        assert_int_equal(d.end, SWEEP_END_CANCELLED);
    else if (h.s.failed > h.s.max_failures || h.s.succeeded == 0)
        assert_int_equal(d.end, SWEEP_END_FAILED);
    else
        assert_int_equal(d.end, SWEEP_END_SUCCEEDED);
    if (d.end == SWEEP_END_SUCCEEDED)
        assert_int_equal(h.s.created, h.s.trials);
}

static void every_history_ends_and_keeps_the_limits(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    const unsigned first = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    print_message("seed %u\n", first);
    for (unsigned i = 0; i < (given ? 1 : 2000); i++)
        run_history(first + i);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trials_start_up_to_max_parallel_and_to_the_last_one),
        cmocka_unit_test(a_trial_that_a_rung_has_stopped_is_cancelled_until_its_job_ends),
        cmocka_unit_test(a_sweep_ends_by_what_its_trials_did),
        cmocka_unit_test(too_many_failures_stop_a_sweep_and_a_stopped_one_fails),
        cmocka_unit_test(every_history_ends_and_keeps_the_limits),
    };
    return cmocka_run_group_tests_name("sweeps", tests, NULL, NULL);
}
