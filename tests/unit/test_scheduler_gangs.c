/* Reports of several hosts about one attempt: late, repeated, from a lost host, or under the next leader. */
#include "tests/unit/scheduler_bench.h"

static int count(const struct bench *b, enum scheduler_action_kind kind) {
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.items[i].kind == kind;
    return n;
}

/* A running gang of two: rank 0 on `a` and rank 1 on `b`. */
static void gang_of_two(struct bench *b) {
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 3);
    for (int r = 0; r < 2; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = r });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RUNNING);
}

static void end_rank(struct bench *b, const char *executor, int rank, enum rank_end_cause cause, const char *why) {
    struct rank_end end = { .rank = rank, .cause = cause };
    snprintf(end.message, sizeof end.message, "%s", why);
    tell(b, (struct scheduler_event){
                .kind = EV_RANK_ENDED, .executor = executor, .job = 1, .attempt = 1, .ends = &end, .n_ends = 1 });
}

static void commit(struct bench *b, int64_t step, bool final) {
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = step, .final = final });
}

/* Returns with what is said of the host. */
static void executor_lose(struct bench *b, const char *lost, const char *heard) {
    for (int64_t end = b->now + 2 * LEASE_TTL_MS; b->now < end && !find(b, ACT_EXECUTOR_LOST);) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = heard, .last_seen_ms = b->now });
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    assert_string_equal(find(b, ACT_EXECUTOR_LOST)->executor, lost);
}

static void a_host_without_ranks_of_an_attempt_is_ordered_to_stop_it(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    attach(b, "b", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1 });
    assert_string_equal(find(b, ACT_SEND_STOP)->executor, "b");
    submit(b, 2, 0, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE)); /* until it has ended there */
    end_part(b, "b", 1, 1, 0, RANK_END_STOPPED, "");
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
}

static void a_host_speaks_for_its_own_ranks_alone(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 3);
    const struct scheduler_rank_report ranks[] = {
        { .rank = -1, .joined = true }, { .rank = 0, .joined = true }, { .rank = 1, .joined = true }, { .rank = 2 }
    };
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 4, .ranks = ranks });
    assert_null(find(b, ACT_JOB_STATE));
    end_rank(b, "a", 1, RANK_END_UNKNOWN, "was killed");
    assert_int_equal(b->out.n, 0);
    end_rank(b, "a", -1, RANK_END_UNKNOWN, "was killed");
    end_rank(b, "a", 2, RANK_END_UNKNOWN, "was killed");
    assert_int_equal(b->out.n, 0);
    end_part(b, "nobody", 1, 1, 0, RANK_END_UNKNOWN, "was killed");
    assert_int_equal(b->out.n, 0);
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = 1 });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RUNNING);
    commit(b, 9, true);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    assert_int_equal(count(b, ACT_AWAIT_STORED), 1);
    assert_int_equal(find(b, ACT_AWAIT_STORED)->rank, 0);
    assert_null(find(b, ACT_JOB_STATE));
}

static void an_older_start_of_an_executor_changes_nothing(void **state) {
    struct bench *b = *state;
    attach(b, "a", 2, 1, NULL);
    attach(b, "a", 1, 8, NULL);
    assert_int_equal(b->out.n, 0);
    submit(b, 1, 0, 2, 0);
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 2 cpu slots, more than the 1 of all attached executors");
}

static void hosts_get_one_stop_order_and_only_if_something_runs(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    end_rank(b, "a", 0, RANK_END_PEER_LOST, "rank 1 went away");
    assert_int_equal(count(b, ACT_SEND_STOP), 2);
    end_rank(b, "b", 1, RANK_END_UNKNOWN, "was killed");
    assert_int_equal(count(b, ACT_SEND_STOP), 0);
}

static void a_host_whose_part_is_over_gets_no_stops_and_no_checkpoints(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    assert_int_equal(count(b, ACT_AWAIT_STORED), 0); /* it has been heard */
    end_rank(b, "a", 0, RANK_END_UNKNOWN, "was killed");
    assert_int_equal(b->out.n, 0);
    commit(b, 9, false);
    assert_int_equal(count(b, ACT_SEND_COMMITTED), 1);
    assert_string_equal(find(b, ACT_SEND_COMMITTED)->executor, "b");
    end_rank(b, "b", 1, RANK_END_UNKNOWN, "was killed");
    assert_int_equal(count(b, ACT_SEND_STOP), 1);
    assert_string_equal(find(b, ACT_SEND_STOP)->executor, "b");
}

static void workers_have_started_when_all_have_and_an_attempt_that_ends_meets_no_more(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 2, 3);
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STARTED, .job = 1, .attempt = 1, .rank = 0 });
    assert_null(find(b, ACT_NOTE));
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STARTED, .job = 1, .attempt = 1, .rank = 1 });
    assert_string_equal(find(b, ACT_NOTE)->note, "workers_started");
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1, .rank = 0 });
    end_rank(b, "a", 0, RANK_END_UNKNOWN, "was killed");
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1, .rank = 1 });
    assert_int_equal(b->out.n, 0);
}

static void a_later_consequence_is_not_reported_either(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    end_part(b, "b", 1, 1, 1, RANK_END_UNKNOWN, "was killed");
    end_part(b, "a", 1, 1, 0, RANK_END_PEER_LOST, "rank 1 went away");
    store(b, 1, 1, 1);
    store(b, 1, 1, 0);
    assert_string_equal(find(b, ACT_ATTEMPT_END)->text, "rank 1: was killed");
}

static void an_attempt_ends_when_its_hosts_have_said_so_not_when_its_records_are_stored(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    run_one(b, 1, 1);
    end_rank(b, "a", 0, RANK_END_UNKNOWN, "was killed");
    store(b, 1, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_END));
    end_part(b, "a", 1, 1, 0, RANK_END_UNKNOWN, "was killed");
    assert_non_null(find(b, ACT_ATTEMPT_END));
}

/* Otherwise the next attempt would begin before a checkpoint whose report has not arrived. */
static void a_lost_host_ends_no_rank_of_another_whose_records_are_awaited(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    executor_lose(b, "a", "b");
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = 1, .attempt = 1, .rank = 1, .sequence = 5 });
    struct rank_end end = { .rank = 1, .cause = RANK_END_STOPPED, .last_sequence = 9 };
    tell(b, (struct scheduler_event){
                .kind = EV_PART_ENDED, .executor = "b", .job = 1, .attempt = 1, .ends = &end, .n_ends = 1 });
    assert_int_equal(find(b, ACT_AWAIT_STORED)->sequence, 9);
    assert_null(find(b, ACT_ATTEMPT_END));
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = 1, .attempt = 1, .rank = 1, .sequence = 8 });
    assert_null(find(b, ACT_ATTEMPT_END));
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = 1, .attempt = 1, .rank = 1, .sequence = 9 });
    assert_non_null(find(b, ACT_ATTEMPT_END));
    assert_int_equal(count(b, ACT_SEND_ACKNOWLEDGE), 1);
    assert_string_equal(find(b, ACT_SEND_ACKNOWLEDGE)->executor, "b");
}

static void a_host_that_is_lost_after_all_was_stored_takes_no_success_with_it(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    commit(b, 9, true);
    end_rank(b, "a", 0, RANK_END_FINISHED, "");
    store(b, 1, 1, 0);
    end_part(b, "b", 1, 1, 1, RANK_END_FINISHED, "");
    store(b, 1, 1, 1);
    executor_lose(b, "a", "b");
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_SUCCEEDED);
}

static void a_rank_that_failed_after_the_final_checkpoint_does_not_report_success(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    commit(b, 9, true);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    end_part(b, "b", 1, 1, 1, RANK_END_NUMERIC, "no");
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED);
}

static void a_lost_hosts_slots_are_not_counted_and_the_reason_is_reported_once(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    executor_lose(b, "a", "b"); /* it is known until `b` has ended its part */
    submit(b, 2, 0, 3, 0);
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 3 cpu slots, more than the 1 of all attached executors");
    attach(b, "c", 1, 0, NULL); /* all is placed again */
    assert_int_equal(b->out.n, 0);
}

static void the_highest_number_that_a_rank_has_reported_is_awaited(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    struct rank_end end = { .cause = RANK_END_FINISHED, .last_sequence = 3 };
    struct scheduler_event ev = {
        .kind = EV_RANK_ENDED, .executor = "a", .job = 1, .attempt = 1, .ends = &end, .n_ends = 1
    };
    tell(b, ev);
    end.last_sequence = 9;
    ev.kind = EV_PART_ENDED;
    tell(b, ev);
    assert_int_equal(find(b, ACT_AWAIT_STORED)->sequence, 9);
}

static void the_ends_on_a_lost_host_are_acknowledged_when_it_attaches_again(void **state) {
    struct bench *b = *state;
    gang_of_two(b);
    executor_lose(b, "a", "b");
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1 });
    assert_int_equal(count(b, ACT_SEND_STOP), 1);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    assert_int_equal(count(b, ACT_SEND_ACKNOWLEDGE), 1);
    assert_string_equal(find(b, ACT_SEND_ACKNOWLEDGE)->executor, "a");
}

static void the_newest_committed_step_is_reported_even_after_an_older_one(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    commit(b, 40, false);
    commit(b, 20, false);
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1 });
    assert_int_equal(find(b, ACT_SEND_COMMITTED)->step, 40);
}

static void an_older_heartbeat_shortens_no_lease_and_an_attach_begins_a_new_one(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    every_tick_for(b, 5000);
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "a", .last_seen_ms = 5000 });
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "a", .last_seen_ms = 100 });
    every_tick_for(b, 5000 + LEASE_TTL_MS - 2 * SCHEDULER_TICK_MS - b->now);
    assert_null(find(b, ACT_EXECUTOR_LOST));
    attach(b, "a", 1, 1, NULL);
    every_tick_for(b, LEASE_TTL_MS - 2 * SCHEDULER_TICK_MS);
    assert_null(find(b, ACT_EXECUTOR_LOST));
}

/* Ends attempt `n`; returns how long the next one waits. */
static int64_t backoff_after(struct bench *b, int n, bool committed) {
    if (committed)
        tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = n, .step = n });
    end_part(b, "a", 1, n, 0, RANK_END_UNKNOWN, "was killed");
    store(b, 1, n, 0);
    const int64_t begun = b->now;
    while (!find(b, ACT_ATTEMPT_CREATE)) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "a", .last_seen_ms = b->now });
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    return b->now - begun;
}

static void a_checkpoint_between_two_failures_makes_the_second_a_first_one(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 9);
    const int64_t first = backoff_after(b, 1, false), second = backoff_after(b, 2, false);
    assert_true(second > first);
    assert_int_equal(backoff_after(b, 3, true), first);
}

static void a_short_job_whose_start_was_not_reported_succeeds_through_running(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    commit(b, 9, true);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RUNNING);
    assert_int_equal(b->out.items[b->out.n - 2].to, JOB_STATE_SUCCEEDED);
}

static void addresses_that_were_lost_with_a_stream_are_sent_again_until_all_have_met(void **state) {
    struct bench *b = *state;
    const struct scheduler_rank_report offered = { .offered = true }, joined = { .offered = true, .joined = true };
    const struct scheduler_part_report offers = { .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &offered };
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    attach(b, "a", 1, 1, &offers);
    assert_int_equal(count(b, ACT_SEND_RENDEZVOUS), 1);
    attach(b, "a", 1, 1, &offers);
    assert_int_equal(count(b, ACT_SEND_RENDEZVOUS), 1);
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &joined });
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &joined });
    assert_int_equal(count(b, ACT_SEND_RENDEZVOUS), 0);
}

/* --- under the next leader ---*/

static void load(struct bench *b, enum job_state state) {
    static const char *const on[] = { "a", "a" };
    const struct scheduler_job_row row = { .job = 1,
                                           .state = state,
                                           .world_size = 2,
                                           .max_restarts = 9,
                                           .attempt = 1,
                                           .placement = on,
                                           .final_committed = true,
                                           .committed_step = 9 };
    load_executor(b, "a", true, NULL);
    load_row(b, &row);
}

static void an_attempt_that_is_cancelled_is_stopped_and_meets_no_more(void **state) {
    struct bench *b = *state;
    const struct scheduler_rank_report ranks[] = { { .rank = 0, .offered = true }, { .rank = 1 } };
    load(b, JOB_STATE_CANCELLING);
    attach(b, "a", 1, 2, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 2, .ranks = ranks });
    assert_int_equal(count(b, ACT_SEND_STOP), 1);
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1, .rank = 1 });
    assert_int_equal(count(b, ACT_SEND_RENDEZVOUS), 0);
}

static void an_attempt_that_was_to_be_tried_again_is_no_success_though_all_of_it_has_finished(void **state) {
    struct bench *b = *state;
    const struct rank_end ends[] = { { .rank = 0, .cause = RANK_END_FINISHED },
                                     { .rank = 1, .cause = RANK_END_FINISHED } };
    load(b, JOB_STATE_RESTARTING);
    attach(b, "a", 1, 2,
           &(struct scheduler_part_report){ .job = 1, .attempt = 1, .ended = true, .ends = ends, .n_ends = 2 });
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_non_null(find(b, ACT_ATTEMPT_END));
    every_tick_for(b, 1000);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_host_without_ranks_of_an_attempt_is_ordered_to_stop_it),
        ON_BENCH(a_host_speaks_for_its_own_ranks_alone),
        ON_BENCH(an_older_start_of_an_executor_changes_nothing),
        ON_BENCH(hosts_get_one_stop_order_and_only_if_something_runs),
        ON_BENCH(a_host_whose_part_is_over_gets_no_stops_and_no_checkpoints),
        ON_BENCH(workers_have_started_when_all_have_and_an_attempt_that_ends_meets_no_more),
        ON_BENCH(a_later_consequence_is_not_reported_either),
        ON_BENCH(an_attempt_ends_when_its_hosts_have_said_so_not_when_its_records_are_stored),
        ON_BENCH(a_lost_host_ends_no_rank_of_another_whose_records_are_awaited),
        ON_BENCH(a_host_that_is_lost_after_all_was_stored_takes_no_success_with_it),
        ON_BENCH(a_rank_that_failed_after_the_final_checkpoint_does_not_report_success),
        ON_BENCH(a_lost_hosts_slots_are_not_counted_and_the_reason_is_reported_once),
        ON_BENCH(the_highest_number_that_a_rank_has_reported_is_awaited),
        ON_BENCH(the_ends_on_a_lost_host_are_acknowledged_when_it_attaches_again),
        ON_BENCH(the_newest_committed_step_is_reported_even_after_an_older_one),
        ON_BENCH(an_older_heartbeat_shortens_no_lease_and_an_attach_begins_a_new_one),
        ON_BENCH(a_checkpoint_between_two_failures_makes_the_second_a_first_one),
        ON_BENCH(a_short_job_whose_start_was_not_reported_succeeds_through_running),
        ON_BENCH(addresses_that_were_lost_with_a_stream_are_sent_again_until_all_have_met),
        ON_BENCH(an_attempt_that_is_cancelled_is_stopped_and_meets_no_more),
        ON_BENCH(an_attempt_that_was_to_be_tried_again_is_no_success_though_all_of_it_has_finished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
