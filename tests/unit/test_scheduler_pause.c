/* A user's pause and resume, as the scheduler decides them. */
#include "service/scheduler/explain.h"
#include "tests/unit/scheduler_bench.h"

static void ask(struct bench *b, enum scheduler_event_kind kind, int64_t job) {
    tell(b, (struct scheduler_event){ .kind = kind, .job = job, .token = 7 });
}

static void assert_done(struct bench *b) {
    assert_int_equal(find(b, ACT_REPLY)->status, ST_OK);
    assert_int_equal(find(b, ACT_REPLY)->token, 7);
}

static void assert_refused(struct bench *b, const char *reason, const char *text) {
    assert_int_equal(b->out.n, 1);
    assert_int_equal(find(b, ACT_REPLY)->status, ST_FAILED_PRECONDITION);
    assert_string_equal(find(b, ACT_REPLY)->reason, reason);
    assert_string_equal(find(b, ACT_REPLY)->text, text);
}

static const struct scheduler_action *moved(const struct bench *b, enum job_state to) {
    const struct scheduler_action *move = NULL;
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_JOB_STATE)
            move = &b->out.items[i]; /* the last one */
    assert_non_null(move);
    assert_string_equal(job_state_name(move->to), job_state_name(to));
    return move;
}

static void commit(struct bench *b, int64_t step, bool final) {
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = step, .final = final });
}

/* Reports that the attempt has no process left there and that its last record is stored. */
static void end(struct bench *b, const char *executor, int rank, enum rank_end_cause cause, int64_t step,
                const char *why) {
    struct rank_end how = { .rank = rank, .cause = cause, .step = step };
    snprintf(how.message, sizeof how.message, "%s", why);
    tell(b, (struct scheduler_event){
                .kind = EV_PART_ENDED, .executor = executor, .job = 1, .attempt = 1, .ends = &how, .n_ends = 1 });
    store(b, 1, 1, rank);
}

/* A gang of two, rank 0 on `a` and rank 1 on `b`, without restarts left. */
static void gang_starts(struct bench *b) {
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
}

static void gang_runs(struct bench *b) {
    gang_starts(b);
    for (int r = 0; r < 2; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = r });
    moved(b, JOB_STATE_RUNNING);
}

static void gang_pauses(struct bench *b) {
    gang_runs(b);
    ask(b, EV_JOB_PAUSE, 1);
    assert_done(b);
    moved(b, JOB_STATE_PAUSING);
}

static int stops(const struct bench *b, int grace_ms) {
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.items[i].kind == ACT_SEND_STOP && b->out.items[i].grace_ms == grace_ms;
    return n;
}

static void a_waiting_job_is_paused_at_once_and_resumes_at_its_old_place(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    submit(b, 2, 0, 1, 0);
    submit(b, 3, 0, 1, 0);
    ask(b, EV_JOB_PAUSE, 2);
    assert_done(b);
    assert_string_equal(moved(b, JOB_STATE_PAUSED)->text, "paused by its user while it waited");
    end(b, "a", 0, RANK_END_BAD_SPEC, 0, "bad");
    submit(b, 4, 0, 1, 0);
    ask(b, EV_JOB_RESUME, 2);
    assert_done(b);
    assert_string_equal(moved(b, JOB_STATE_QUEUED)->text, "resumed by its user");
    assert_null(find(b, ACT_ATTEMPT_CREATE)); /* 3 has the slot */
    end_part(b, "a", 3, 1, 0, RANK_END_BAD_SPEC, "bad");
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
}

static void a_wide_job_that_is_paused_blocks_no_job(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 1, 0);
    submit(b, 2, 0, 2, 0);
    submit(b, 3, 0, 1, 0);
    ask(b, EV_JOB_PAUSE, 2);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 3);
}

static void ranks_have_minutes_for_their_checkpoint_and_the_first_end_stops_no_other_rank(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    assert_int_equal(stops(b, SCHEDULER_CHECKPOINT_GRACE_MS), 2);
    commit(b, 120, false);
    end(b, "a", 0, RANK_END_STOPPED, 120, "asked to stop");
    assert_null(find(b, ACT_SEND_STOP));
    assert_null(find(b, ACT_JOB_STATE));
    end(b, "b", 1, RANK_END_STOPPED, 120, "asked to stop");
    const struct scheduler_action *paused = moved(b, JOB_STATE_PAUSED);
    assert_string_equal(paused->text, "paused by its user after step 120");
    assert_int_equal(paused->restarts, 0);
    assert_int_equal(scheduler_counts(b->s).used[SCHEDULER_SLOT_CPU], 0);
    submit(b, 2, 0, 2, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
    ask(b, EV_JOB_RESUME, 1);
    moved(b, JOB_STATE_QUEUED);
    scheduler_refused(b->s, 2, 1); /* its slots are free */
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 1);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 2);
}

static void a_job_that_starts_is_paused_too(void **state) {
    struct bench *b = *state;
    gang_starts(b);
    ask(b, EV_JOB_PAUSE, 1);
    moved(b, JOB_STATE_PAUSING);
    assert_int_equal(stops(b, SCHEDULER_CHECKPOINT_GRACE_MS),
                     2); /* it may have run for long: see a controller's absence */
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = 0 });
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = 1 });
    assert_null(find(b, ACT_JOB_STATE));
    end(b, "a", 0, RANK_END_STOPPED, 0, "");
    end(b, "b", 1, RANK_END_STOPPED, 0, "");
    assert_string_equal(moved(b, JOB_STATE_PAUSED)->text, "paused by its user while it started");
}

static void a_pause_without_its_checkpoint_says_what_is_lost_and_counts_for_nothing(void **state) {
    struct bench *b = *state;
    gang_runs(b);
    commit(b, 100, false);
    ask(b, EV_JOB_PAUSE, 1);
    end(b, "a", 0, RANK_END_CHECKPOINT_WRITE, 117, "write 'rank-0.safetensors': No space left on device");
    assert_int_equal(stops(b, SCHEDULER_STOP_GRACE_MS), 0); /* that was the answer to its record */
    end(b, "b", 1, RANK_END_STOPPED, 117, "");
    assert_string_equal(moved(b, JOB_STATE_PAUSED)->text,
                        "paused by its user; it will go on from step 100, without what was done after that (rank 0: "
                        "write 'rank-0.safetensors': No space left on device)");
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
}

static void a_rank_that_cannot_write_hurries_the_others(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    struct rank_end how = { .rank = 0, .cause = RANK_END_CHECKPOINT_WRITE, .step = 9 };
    tell(b, (struct scheduler_event){
                .kind = EV_RANK_ENDED, .executor = "a", .job = 1, .attempt = 1, .ends = &how, .n_ends = 1 });
    assert_int_equal(stops(b, SCHEDULER_STOP_GRACE_MS), 2);
    assert_null(find(b, ACT_JOB_STATE));
}

static void a_rank_that_is_killed_at_the_end_of_its_time_lets_the_job_pause(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    end(b, "a", 0, RANK_END_STOPPED, 9, "asked to stop");
    end(b, "b", 1, RANK_END_STOPPED, 9, "asked to stop");
    assert_string_equal(moved(b, JOB_STATE_PAUSED)->text,
                        "paused by its user; it will go on from its newest checkpoint, "
                        "without what was done after that (no checkpoint was written "
                        "in time)");
}

static void a_host_that_is_lost_while_the_job_pauses_does_not_restart_it(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    commit(b, 30, false);
    end(b, "a", 0, RANK_END_STOPPED, 30, "asked to stop");
    while (!find(b, ACT_EXECUTOR_LOST)) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "a", .last_seen_ms = b->now });
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    /* All shards were reported: nothing is lost with the host. */
    assert_string_equal(moved(b, JOB_STATE_PAUSED)->text, "paused by its user after step 30");
    every_tick_for(b, LEASE_TTL_MS / 2);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void what_is_done_before_it_pauses_has_succeeded_and_what_is_past_help_fails(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    commit(b, 500, true);
    end(b, "a", 0, RANK_END_FINISHED, 500, "");
    end(b, "b", 1, RANK_END_FINISHED, 500, "");
    moved(b, JOB_STATE_SUCCEEDED);
    teardown(state);
    setup(state);
    gang_pauses(b);
    end(b, "a", 0, RANK_END_NUMERIC, 17, "the loss of step 17 is not finite");
    end(b, "b", 1, RANK_END_STOPPED, 16, "");
    assert_string_equal(moved(b, JOB_STATE_FAILED)->text, "rank 0: the loss of step 17 is not finite");
}

static void a_checkpoint_that_proves_bad_meanwhile_is_not_gone_on_from(void **state) {
    struct bench *b = *state;
    gang_starts(b);
    ask(b, EV_JOB_PAUSE, 1);
    end(b, "a", 0, RANK_END_CHECKPOINT_BAD, 0, "shard 1 is truncated");
    end(b, "b", 1, RANK_END_STOPPED, 0, "");
    assert_string_equal(find(b, ACT_CHECKPOINT_CORRUPT)->text, "shard 1 is truncated");
    moved(b, JOB_STATE_PAUSED);
}

static void a_cancel_does_not_wait_for_the_checkpoint_of_a_pause(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    ask(b, EV_JOB_CANCEL, 1);
    assert_done(b);
    moved(b, JOB_STATE_CANCELLING);
    assert_int_equal(stops(b, SCHEDULER_STOP_GRACE_MS), 2);
    end(b, "a", 0, RANK_END_STOPPED, 9, "");
    end(b, "b", 1, RANK_END_STOPPED, 9, "");
    moved(b, JOB_STATE_CANCELLED);
    submit(b, 2, 0, 1, 0);
    submit(b, 3, 0, 3, 0);
    ask(b, EV_JOB_PAUSE, 3);
    ask(b, EV_JOB_CANCEL, 3);
    assert_done(b);
    moved(b, JOB_STATE_CANCELLED);
}

static void a_restart_is_paused_where_it_stands(void **state) {
    struct bench *b = *state;
    gang_starts(b);
    submit(b, 2, 0, 1, 3);
    end(b, "a", 0, RANK_END_BAD_SPEC, 0, "bad");
    end(b, "b", 1, RANK_END_STOPPED, 0, "");
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 2, .attempt = 1 });
    struct rank_end how = { .rank = 0, .cause = RANK_END_UNKNOWN, .message = "was killed" };
    tell(b, (struct scheduler_event){
                .kind = EV_RANK_ENDED, .executor = "a", .job = 2, .attempt = 1, .ends = &how, .n_ends = 1 });
    moved(b, JOB_STATE_RESTARTING);
    ask(b, EV_JOB_PAUSE, 2); /* the attempt has not ended */
    moved(b, JOB_STATE_PAUSING);
    assert_null(find(b, ACT_SEND_STOP));
    end_part(b, "a", 2, 1, 0, RANK_END_UNKNOWN, "was killed");
    store(b, 2, 1, 0);
    moved(b, JOB_STATE_PAUSED);
    ask(b, EV_JOB_RESUME, 2);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 2);
    end_part(b, "a", 2, 2, 0, RANK_END_UNKNOWN, "was killed");
    store(b, 2, 2, 0);
    ask(b, EV_JOB_PAUSE, 2); /* it waits for its next attempt */
    moved(b, JOB_STATE_PAUSED);
    every_tick_for(b, LEASE_TTL_MS / 2);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void a_job_that_leaves_a_drained_host_is_paused_on_its_way(void **state) {
    struct bench *b = *state;
    gang_runs(b);
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = "a", .drain = { true, true, "" } });
    moved(b, JOB_STATE_PREEMPTING);
    ask(b, EV_JOB_PAUSE, 1);
    moved(b, JOB_STATE_PAUSING);
    assert_null(find(b, ACT_SEND_STOP)); /* they have been told */
    commit(b, 40, false);
    end(b, "a", 0, RANK_END_STOPPED, 40, "");
    end(b, "b", 1, RANK_END_STOPPED, 40, "");
    moved(b, JOB_STATE_PAUSED);
}

static struct scheduler_job_row pausing_row(const char *const *placement) {
    return (struct scheduler_job_row){ .job = 1,
                                       .state = JOB_STATE_PAUSING,
                                       .world_size = 1,
                                       .attempt = 1,
                                       .placement = placement,
                                       .committed_step = -1 };
}

static void the_next_leader_completes_a_pause(void **state) {
    struct bench *b = *state;
    const char *const placement[] = { "a" };
    struct scheduler_job_row row = pausing_row(placement);
    load_row(b, &row);
    struct scheduler_rank_report rank = { .joined = true };
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &rank });
    assert_int_equal(stops(b, SCHEDULER_CHECKPOINT_GRACE_MS), 1);
    assert_null(find(b, ACT_JOB_STATE));
    commit(b, 5, false);
    end(b, "a", 0, RANK_END_STOPPED, 5, "");
    moved(b, JOB_STATE_PAUSED);
}

static void an_executor_that_attaches_again_without_the_pausing_job_completes_the_pause(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    end(b, "b", 1, RANK_END_STOPPED, 3, "");
    attach(b, "a", 2, 1, NULL);
    assert_null(find(b, ACT_SEND_START));
    assert_string_equal(
        moved(b, JOB_STATE_PAUSED)->text,
        "paused by its user; it will go on from its newest checkpoint, without what was done after that "
        "(rank 0: executor a came back without it)");
}

/* No rank is left that could report its last step. */
static void a_pause_without_reports_names_the_newest_checkpoint(void **state) {
    struct bench *b = *state;
    gang_pauses(b);
    commit(b, 30, false);
    attach(b, "a", 2, 1, NULL);
    attach(b, "b", 2, 1, NULL);
    assert_string_equal(moved(b, JOB_STATE_PAUSED)->text,
                        "paused by its user; it will go on from step 30, without what was done after that (rank 0: "
                        "executor a came back without it)");
}

/* The end of an attempt and the job's following change of state are two transactions. */
static void a_pause_whose_attempt_has_ended_is_made_by_the_next_leader(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = pausing_row(NULL);
    load_row(b, &row);
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    moved(b, JOB_STATE_PAUSED);
    row.job = 2;
    row.final_committed = true;
    load_row(b, &row);
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    moved(b, JOB_STATE_SUCCEEDED);
}

static void a_paused_job_waits_for_its_user_under_the_next_leader_too(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = { .job = 1, .state = JOB_STATE_PAUSED, .world_size = 1, .attempt = 3 };
    load_row(b, &row);
    attach(b, "a", 1, 1, NULL);
    every_tick_for(b, LEASE_TTL_MS / 2);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    struct scheduler_explanation why;
    scheduler_explain(b->s, 1, b->now, &why);
    assert_string_equal(why.summary, "until its user resumes it");
    ask(b, EV_JOB_RESUME, 1);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 4);
}

static void moves_that_cannot_be_are_refused_in_a_sentence(void **state) {
    struct bench *b = *state;
    ask(b, EV_JOB_PAUSE, 1);
    assert_refused(b, "JOB_ENDED", "job 1 has already ended");
    ask(b, EV_JOB_RESUME, 1);
    assert_refused(b, "JOB_ENDED", "job 1 has already ended");
    gang_pauses(b);
    ask(b, EV_JOB_PAUSE, 1);
    assert_refused(b, "JOB_NOT_PAUSABLE", "job 1 is already being paused");
    ask(b, EV_JOB_RESUME, 1);
    assert_refused(b, "JOB_NOT_PAUSED", "job 1 is still being paused: resume it when it is PAUSED");
    ask(b, EV_JOB_CANCEL, 1);
    ask(b, EV_JOB_PAUSE, 1);
    assert_refused(b, "JOB_NOT_PAUSABLE", "job 1 is being cancelled");
    submit(b, 2, 0, 1, 0);
    ask(b, EV_JOB_RESUME, 2);
    assert_refused(b, "JOB_NOT_PAUSED", "job 2 is QUEUED: only a PAUSED job is resumed");
    ask(b, EV_JOB_PAUSE, 2);
    ask(b, EV_JOB_PAUSE, 2);
    assert_refused(b, "JOB_NOT_PAUSABLE", "job 2 is already paused");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_waiting_job_is_paused_at_once_and_resumes_at_its_old_place),
        ON_BENCH(a_wide_job_that_is_paused_blocks_no_job),
        ON_BENCH(ranks_have_minutes_for_their_checkpoint_and_the_first_end_stops_no_other_rank),
        ON_BENCH(a_job_that_starts_is_paused_too),
        ON_BENCH(a_pause_without_its_checkpoint_says_what_is_lost_and_counts_for_nothing),
        ON_BENCH(a_rank_that_cannot_write_hurries_the_others),
        ON_BENCH(a_rank_that_is_killed_at_the_end_of_its_time_lets_the_job_pause),
        ON_BENCH(a_host_that_is_lost_while_the_job_pauses_does_not_restart_it),
        ON_BENCH(what_is_done_before_it_pauses_has_succeeded_and_what_is_past_help_fails),
        ON_BENCH(a_checkpoint_that_proves_bad_meanwhile_is_not_gone_on_from),
        ON_BENCH(a_cancel_does_not_wait_for_the_checkpoint_of_a_pause),
        ON_BENCH(a_restart_is_paused_where_it_stands),
        ON_BENCH(a_job_that_leaves_a_drained_host_is_paused_on_its_way),
        ON_BENCH(the_next_leader_completes_a_pause),
        ON_BENCH(an_executor_that_attaches_again_without_the_pausing_job_completes_the_pause),
        ON_BENCH(a_pause_without_reports_names_the_newest_checkpoint),
        ON_BENCH(a_pause_whose_attempt_has_ended_is_made_by_the_next_leader),
        ON_BENCH(a_paused_job_waits_for_its_user_under_the_next_leader_too),
        ON_BENCH(moves_that_cannot_be_are_refused_in_a_sentence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
