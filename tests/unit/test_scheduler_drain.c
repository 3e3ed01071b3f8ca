/* Drained hosts: which ranks they still get, what happens to the ranks that run there, and how the next leader
 * continues. */
#include "service/scheduler/explain.h"
#include "tests/unit/scheduler_bench.h"

#include <stdlib.h>

static void drain(struct bench *b, const char *id, bool now, const char *reason) {
    tell(b, (struct scheduler_event){
                .kind = EV_EXECUTOR_DRAIN, .executor = id, .token = 7, .drain = { true, now, reason } });
    assert_int_equal(find(b, ACT_REPLY)->token, 7);
    assert_int_equal(find(b, ACT_REPLY)->status, ST_OK);
}

static void undrain(struct bench *b, const char *id) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = id, .token = 8 });
    assert_int_equal(find(b, ACT_REPLY)->token, 8);
}

/* The only action of its kind. */
static const struct scheduler_action *only(const struct bench *b, enum scheduler_action_kind kind) {
    const struct scheduler_action *a = find(b, kind);
    assert_non_null(a);
    for (size_t i = 0; i < b->out.n; i++)
        assert_true(b->out.items[i].kind != kind || &b->out.items[i] == a);
    return a;
}

static const struct scheduler_action *move_to(const struct bench *b, enum job_state to) {
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_JOB_STATE && b->out.items[i].to == to)
            return &b->out.items[i];
    fail_msg("no move to %s", job_state_name(to));
    return NULL;
}

static void end_one(struct bench *b, const char *executor, int attempt, enum rank_end_cause cause) {
    end_part(b, executor, 1, attempt, 0, cause, "");
    if (find(b, ACT_AWAIT_STORED))
        store(b, 1, attempt, 0);
}

/* Job 1 runs on `a`, with no other job. */
static void one_runs(struct bench *b) {
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    run_one(b, 1, 1);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RUNNING);
}

/* ---- which ranks a drained host gets ---- */

static void a_drained_host_gets_no_rank_and_the_next_job_goes_to_another(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 4, NULL);
    attach(b, "b", 1, 4, NULL);
    drain(b, "a", false, "new disk");
    for (int job = 1; job <= 4; job++) {
        submit(b, job, 0, 1, 0);
        assert_string_equal(only(b, ACT_SEND_START)->executor, "b");
    }
    submit(b, 5, 0, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void no_gang_reaches_into_a_drained_host(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    drain(b, "a", false, "");
    submit(b, 1, 0, 2, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void ranks_on_a_drained_host_continue_and_are_not_restarted_there(void **state) {
    struct bench *b = *state;
    one_runs(b);
    drain(b, "a", false, "");
    assert_null(find(b, ACT_SEND_STOP));
    assert_null(find(b, ACT_JOB_STATE));
    end_one(b, "a", 1, RANK_END_UNKNOWN);
    every_tick_for(b, 10000);
    assert_int_equal(move_to(b, JOB_STATE_QUEUED)->restarts, 1);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    attach(b, "b", 1, 1, NULL);
    assert_string_equal(only(b, ACT_SEND_START)->executor, "b");
}

static void a_job_that_waits_for_a_drained_host_names_it_and_blocks_no_job(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 4, 0);
    drain(b, "a", false, "new disk");
    assert_string_equal(only(b, ACT_WAITING)->text, "needs 4 cpu slots, more than the 1 of all attached executors; "
                                                    "2 more are drained: executor a (new disk)");
    submit(b, 2, 0, 1, 0);
    assert_int_equal(only(b, ACT_ATTEMPT_CREATE)->job, 2);
    attach(b, "c", 1, 3, NULL);
    drain(b, "c", false, "");
    assert_string_equal(only(b, ACT_WAITING)->text, "needs 4 cpu slots, more than the 1 of all attached executors; "
                                                    "5 more are drained: executor a (new disk) and 1 other");
    struct scheduler_explanation x;
    scheduler_explain(b->s, 1, b->now, &x);
    const struct scheduler_reason *why = NULL;
    for (int i = 0; i < x.n_reasons; i++)
        if (x.reasons[i].kind == SCHEDULER_WAIT_DRAINED)
            why = &x.reasons[i];
    assert_non_null(why);
    assert_string_equal(why->message, "5 cpu slots are drained: executor a (new disk) and 1 other");
    assert_string_equal(why->remedy, "trainyard undrain a");
}

static void attach_single_rank(struct bench *b, const char *id, int devices) {
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = id };
    ev.attach.incarnation = 1;
    ev.attach.slots[SCHEDULER_SLOT_CUDA] = devices;
    ev.attach.single_rank = true;
    tell(b, ev);
}

static void explain_omits_drained_slots_that_a_gang_could_not_use(void **state) {
    struct bench *b = *state;
    attach_single_rank(b, "a", 2);
    drain(b, "a", false, "");
    for (int world_size = 1; world_size <= 2; world_size++) {
        const struct scheduler_job_row row = {
            .job = 3 - world_size, .state = JOB_STATE_QUEUED, .world_size = world_size, .slot = SCHEDULER_SLOT_CUDA
        };
        tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
        assert_string_equal(only(b, ACT_WAITING)->text,
                            world_size == 1
                                ? "needs 1 cuda slot, more than the 0 of all attached executors; 2 more are "
                                  "drained: executor a"
                                : "needs 2 cuda slots, more than the 0 of all attached executors");
    }
}

static void an_undrained_host_gets_what_waits_at_once(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    drain(b, "a", false, "");
    submit(b, 1, 0, 1, 0);
    assert_non_null(find(b, ACT_WAITING));
    undrain(b, "a");
    assert_string_equal(only(b, ACT_SEND_START)->executor, "a");
}

static void draining_and_undraining_twice_is_doing_it_once(void **state) {
    struct bench *b = *state;
    one_runs(b);
    drain(b, "a", true, "");
    assert_non_null(find(b, ACT_SEND_STOP));
    drain(b, "a", true, "");
    assert_null(find(b, ACT_SEND_STOP));
    assert_null(find(b, ACT_JOB_STATE));
    undrain(b, "a");
    undrain(b, "a");
    undrain(b, "nobody");
}

static void slots_of_drained_hosts_are_counted_apart(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 4, NULL);
    attach(b, "b", 1, 2, NULL);
    drain(b, "a", false, "");
    struct scheduler_counts n = scheduler_counts(b->s);
    assert_int_equal(n.slots[SCHEDULER_SLOT_CPU], 6);
    assert_int_equal(n.drained[SCHEDULER_SLOT_CPU], 4);
}

/* ---- which ranks must leave it ---- */

static void a_job_that_must_leave_writes_a_checkpoint_and_continues_elsewhere_without_a_restart(void **state) {
    struct bench *b = *state;
    one_runs(b);
    attach(b, "b", 1, 1, NULL);
    drain(b, "a", true, "new disk");
    assert_int_equal(only(b, ACT_JOB_STATE)->to, JOB_STATE_PREEMPTING);
    assert_string_equal(only(b, ACT_SEND_STOP)->executor, "a");
    assert_string_equal(only(b, ACT_SEND_STOP)->text, "executor a is drained: new disk");
    assert_int_equal(only(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = 5 });
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "asked to stop: executor a is drained: new disk");
    assert_null(find(b, ACT_ATTEMPT_CREATE)); /* its last records may hold the checkpoint */
    store(b, 1, 1, 0);
    assert_int_equal(move_to(b, JOB_STATE_QUEUED)->restarts, 0);
    assert_string_equal(only(b, ACT_SEND_START)->executor, "b");
    assert_int_equal(only(b, ACT_ATTEMPT_CREATE)->attempt, 2);
}

static void a_gang_leaves_as_a_whole_and_its_first_end_stops_no_other_rank(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 3);
    for (int r = 0; r < 2; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = r });
    drain(b, "a", true, "");
    int stops = 0;
    for (size_t i = 0; i < b->out.n; i++)
        stops += b->out.items[i].kind == ACT_SEND_STOP && b->out.items[i].grace_ms == SCHEDULER_CHECKPOINT_GRACE_MS;
    assert_int_equal(stops, 2);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    assert_null(find(b, ACT_SEND_STOP));
    end_part(b, "b", 1, 1, 1, RANK_END_STOPPED, "");
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_int_equal(move_to(b, JOB_STATE_QUEUED)->restarts, 0);
}

static void a_rank_that_dies_while_a_gang_leaves_hurries_the_others_and_counts_for_nothing(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
    for (int r = 0; r < 2; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = r });
    drain(b, "a", true, "");
    end_part(b, "a", 1, 1, 0, RANK_END_UNKNOWN, "was killed by signal 9");
    const struct scheduler_action *last = find(b, ACT_SEND_STOP);
    for (size_t i = 0; i < b->out.n; i++)
        last = b->out.items[i].kind == ACT_SEND_STOP ? &b->out.items[i] : last;
    assert_non_null(last);
    assert_string_equal(last->executor, "b");
    assert_int_equal(last->grace_ms, SCHEDULER_STOP_GRACE_MS);
    end_part(b, "b", 1, 1, 1, RANK_END_PEER_LOST, "");
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_int_equal(move_to(b, JOB_STATE_QUEUED)->restarts, 0);
    assert_string_equal(move_to(b, JOB_STATE_QUEUED)->text, "rank 0: was killed by signal 9");
}

static void a_bad_checkpoint_that_is_found_meanwhile_is_reported(void **state) {
    struct bench *b = *state;
    one_runs(b);
    drain(b, "a", true, "");
    end_one(b, "a", 1, RANK_END_CHECKPOINT_BAD);
    assert_non_null(find(b, ACT_CHECKPOINT_CORRUPT));
    move_to(b, JOB_STATE_QUEUED);
}

/* It may have trained for long while no controller was reachable. If not, its ranks write nothing and end at once. */
static void a_job_that_starts_leaves_as_one_that_runs(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    drain(b, "a", true, "");
    assert_int_equal(only(b, ACT_JOB_STATE)->to, JOB_STATE_PREEMPTING);
    assert_int_equal(only(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
    end_one(b, "a", 1, RANK_END_STOPPED);
    assert_int_equal(move_to(b, JOB_STATE_QUEUED)->restarts, 0);
}

static void a_job_whose_last_step_ends_meanwhile_has_succeeded(void **state) {
    struct bench *b = *state;
    one_runs(b);
    drain(b, "a", true, "");
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = 9, .final = true });
    end_one(b, "a", 1, RANK_END_FINISHED);
    move_to(b, JOB_STATE_SUCCEEDED);
}

static void a_job_that_is_cancelled_while_it_leaves_is_stopped_soon(void **state) {
    struct bench *b = *state;
    one_runs(b);
    drain(b, "a", true, "");
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1 });
    assert_int_equal(only(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_STOP_GRACE_MS);
    end_one(b, "a", 1, RANK_END_STOPPED);
    move_to(b, JOB_STATE_CANCELLED);
}

static void an_attempt_that_fails_for_good_is_not_saved_by_a_drain(void **state) {
    struct bench *b = *state;
    one_runs(b);
    struct rank_end end = { .cause = RANK_END_NUMERIC };
    tell(b, (struct scheduler_event){
                .kind = EV_RANK_ENDED, .executor = "a", .job = 1, .attempt = 1, .ends = &end, .n_ends = 1 });
    drain(b, "a", true, "");
    assert_null(find(b, ACT_JOB_STATE));
    end_one(b, "a", 1, RANK_END_NUMERIC);
    move_to(b, JOB_STATE_FAILED);
}

static void a_drain_may_be_taken_back_while_it_waits(void **state) {
    struct bench *b = *state;
    one_runs(b);
    drain(b, "a", false, "");
    assert_null(find(b, ACT_SEND_STOP));
    drain(b, "a", true, "");
    assert_non_null(find(b, ACT_SEND_STOP));
}

/* ---- over starts and losses ---- */

static void a_host_stays_drained_if_it_is_lost_and_attaches_again(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    drain(b, "a", false, "");
    every_tick_for(b, 2 * LEASE_TTL_MS);
    assert_string_equal(only(b, ACT_EXECUTOR_LOST)->executor, "a");
    submit(b, 1, 0, 1, 0);
    attach(b, "a", 2, 1, NULL);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    undrain(b, "a");
    assert_non_null(find(b, ACT_ATTEMPT_CREATE));
}

static void a_forgotten_host_is_drained_when_it_attaches_again(void **state) {
    struct bench *b = *state;
    drain(b, "a", false, "");
    every_tick_for(b, 2 * LEASE_TTL_MS);
    assert_int_equal(b->out.n, 0); /* lost it was before */
    submit(b, 1, 0, 1, 0);
    attach(b, "a", 1, 1, NULL);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void load(struct bench *b, enum job_state state, bool attached, bool now) {
    static const char *const on[] = { "a" };
    const struct scheduler_job_row row = { .job = 1,
                                           .state = state,
                                           .world_size = 1,
                                           .max_restarts = 9,
                                           .attempt = 1,
                                           .placement = on,
                                           .committed_step = -1 };
    load_executor(b, "a", attached, &(struct scheduler_drain){ true, now, "new disk" });
    load_row(b, &row);
}

static void the_next_leader_keeps_a_host_drained(void **state) {
    struct bench *b = *state;
    load_executor(b, "a", true, &(struct scheduler_drain){ true, false, "" });
    load_executor(b, "b", false, &(struct scheduler_drain){ true, false, "" });
    submit(b, 1, 0, 1, 0);
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void the_next_leader_asks_what_runs_there_to_leave_where_the_last_one_had_not(void **state) {
    struct bench *b = *state;
    load(b, JOB_STATE_RUNNING, true, true);
    const struct scheduler_rank_report rank = { .joined = true };
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_int_equal(only(b, ACT_JOB_STATE)->to, JOB_STATE_PREEMPTING);
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &rank });
    assert_int_equal(only(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
}

/* The row holds only what the last leader had received: ranks may have joined since, and have trained for hours. */
static void the_next_leader_takes_no_job_for_one_that_has_not_trained(void **state) {
    struct bench *b = *state;
    load(b, JOB_STATE_STARTING, true, true);
    const struct scheduler_rank_report rank = { .joined = true };
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_int_equal(only(b, ACT_JOB_STATE)->to, JOB_STATE_PREEMPTING);
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &rank });
    assert_int_equal(only(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
}

static void the_next_leader_keeps_ranks_that_may_stay(void **state) {
    struct bench *b = *state;
    load(b, JOB_STATE_RUNNING, true, false);
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_int_equal(b->out.n, 0);
}

static void the_next_leader_repeats_a_stop_that_loses_nothing(void **state) {
    struct bench *b = *state;
    load(b, JOB_STATE_PREEMPTING, true, true);
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1 });
    assert_int_equal(only(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
    end_one(b, "a", 1, RANK_END_STOPPED);
    assert_int_equal(move_to(b, JOB_STATE_QUEUED)->restarts, 0);
}

static void a_host_that_its_row_calls_lost_has_a_lease_for_what_it_may_still_run(void **state) {
    struct bench *b = *state;
    load(b, JOB_STATE_RUNNING, false, false);
    every_tick_for(b, 2 * LEASE_TTL_MS);
    assert_string_equal(only(b, ACT_EXECUTOR_LOST)->executor, "a");
    move_to(b, JOB_STATE_RESTARTING);
}

/* A leader may die between the end of an attempt and the job's change of state. */
static void the_next_leader_makes_the_move_that_follows_from_an_end(void **state) {
    struct bench *b = *state;
    for (int finished = 0; finished < 2; finished++) {
        const struct scheduler_job_row row = { .job = 1 + finished,
                                               .state = JOB_STATE_PREEMPTING,
                                               .world_size = 1,
                                               .attempt = 1,
                                               .final_committed = finished,
                                               .committed_step = -1 };
        load_row(b, &row);
        every_tick_for(b, SCHEDULER_TICK_MS);
        move_to(b, finished ? JOB_STATE_SUCCEEDED : JOB_STATE_QUEUED);
    }
    attach(b, "a", 1, 1, NULL);
    assert_int_equal(only(b, ACT_ATTEMPT_CREATE)->job, 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_drained_host_gets_no_rank_and_the_next_job_goes_to_another),
        ON_BENCH(no_gang_reaches_into_a_drained_host),
        ON_BENCH(ranks_on_a_drained_host_continue_and_are_not_restarted_there),
        ON_BENCH(a_job_that_waits_for_a_drained_host_names_it_and_blocks_no_job),
        ON_BENCH(explain_omits_drained_slots_that_a_gang_could_not_use),
        ON_BENCH(an_undrained_host_gets_what_waits_at_once),
        ON_BENCH(draining_and_undraining_twice_is_doing_it_once),
        ON_BENCH(slots_of_drained_hosts_are_counted_apart),
        ON_BENCH(a_job_that_must_leave_writes_a_checkpoint_and_continues_elsewhere_without_a_restart),
        ON_BENCH(a_gang_leaves_as_a_whole_and_its_first_end_stops_no_other_rank),
        ON_BENCH(a_rank_that_dies_while_a_gang_leaves_hurries_the_others_and_counts_for_nothing),
        ON_BENCH(a_bad_checkpoint_that_is_found_meanwhile_is_reported),
        ON_BENCH(a_job_that_starts_leaves_as_one_that_runs),
        ON_BENCH(a_job_whose_last_step_ends_meanwhile_has_succeeded),
        ON_BENCH(a_job_that_is_cancelled_while_it_leaves_is_stopped_soon),
        ON_BENCH(an_attempt_that_fails_for_good_is_not_saved_by_a_drain),
        ON_BENCH(a_drain_may_be_taken_back_while_it_waits),
        ON_BENCH(a_host_stays_drained_if_it_is_lost_and_attaches_again),
        ON_BENCH(a_forgotten_host_is_drained_when_it_attaches_again),
        ON_BENCH(the_next_leader_keeps_a_host_drained),
        ON_BENCH(the_next_leader_asks_what_runs_there_to_leave_where_the_last_one_had_not),
        ON_BENCH(the_next_leader_takes_no_job_for_one_that_has_not_trained),
        ON_BENCH(the_next_leader_keeps_ranks_that_may_stay),
        ON_BENCH(the_next_leader_repeats_a_stop_that_loses_nothing),
        ON_BENCH(a_host_that_its_row_calls_lost_has_a_lease_for_what_it_may_still_run),
        ON_BENCH(the_next_leader_makes_the_move_that_follows_from_an_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
