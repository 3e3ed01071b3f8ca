/* Single decisions of the scheduler. test_scheduler_gangs.c tests several hosts, and test_scheduler_simulation.c random
 * histories. */
#include "service/scheduler/placement.h"
#include "service/scheduler/retry.h"
#include "tests/unit/scheduler_bench.h"

static void no_final_state_has_an_edge_but_a_failed_jobs_retry(void **state) {
    (void)state;
    int edges = 0;
    for (int from = 1; from <= JOB_STATE_CANCELLED; from++)
        for (int to = 1; to <= JOB_STATE_CANCELLED; to++)
            for (int cause = 0; cause <= JOB_CAUSE_RETRY_ASKED; cause++) {
                if (!job_state_edge(from, to, cause))
                    continue;
                edges++;
                assert_true(from != to);
                if (job_state_final(from))
                    assert_true(from == JOB_STATE_FAILED && to == JOB_STATE_QUEUED && cause == JOB_CAUSE_RETRY_ASKED);
            }
    assert_int_equal(edges, 34);
}

static void the_first_retry_comes_within_half_a_second_and_delays_double_to_a_ceiling(void **state) {
    (void)state;
    assert_true(retry_delay_ms(1) <= 500);
    for (int n = 1; n < 6; n++)
        assert_int_equal(retry_delay_ms(n + 1), 2 * retry_delay_ms(n));
    assert_int_equal(retry_delay_ms(1000000), RETRY_MAX_MS);
}

static bool any_host(const void *ctx, const struct executor *ex) { return ctx != (const void *)ex; }

static void a_gang_goes_to_the_fullest_host_that_holds_it_else_to_the_widest_ones(void **state) {
    (void)state;
    char hosts[3]; /* only their addresses count */
    struct executor *const a = (void *)&hosts[0], *const b = (void *)&hosts[1], *const c = (void *)&hosts[2];
    CLEANUP(placement_index_done) struct placement_index x = { 0 };
    struct executor *at[10];
    placement_index_move(&x, 0, (struct placement_host){ 4, 0, a });
    placement_index_move(&x, 0, (struct placement_host){ 2, 1, b });
    placement_index_move(&x, 0, (struct placement_host){ 3, 2, c });
    assert_int_equal(placement_choose(&x, 2, 2, any_host, NULL, at), 2);
    assert_ptr_equal(at[0], b);
    assert_ptr_equal(at[1], b);
    assert_int_equal(placement_choose(&x, 6, 6, any_host, NULL, at), 6);
    struct executor *const wide[] = { a, a, a, a, c, c };
    assert_memory_equal(at, wide, sizeof wide);
    assert_int_equal(placement_choose(&x, 10, 10, any_host, NULL, at), 0);
    assert_int_equal(placement_choose(&x, 6, 10, any_host, NULL, at), 9); /* as many as there are */
    assert_int_equal(placement_choose(&x, 2, 2, any_host, b, at), 2);     /* b is refused */
    assert_ptr_equal(at[0], c);
    placement_index_move(&x, 2, (struct placement_host){ 0, 1, b });
    assert_int_equal(placement_choose(&x, 1, 10, any_host, NULL, at), 7);
}

static void gpus_of(struct bench *b, const char *id, int64_t incarnation, int healthy, int quarantined) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DEVICES,
                                      .executor = id,
                                      .attach = { .incarnation = incarnation,
                                                  .slots = { [SCHEDULER_SLOT_CUDA] = healthy },
                                                  .quarantined = quarantined } });
}

static void gpus(struct bench *b, const char *id, int healthy, int quarantined) {
    gpus_of(b, id, 1, healthy, quarantined);
}

static void a_quarantined_device_is_no_slot_and_explain_reports_it(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = {
        .job = 1, .state = JOB_STATE_QUEUED, .world_size = 2, .slot = SCHEDULER_SLOT_CUDA
    };
    attach(b, "a", 1, 8, NULL);
    gpus(b, "a", 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 2 cuda slots, more than the 1 of all attached executors");
    gpus(b, "a", 0, 1);
    assert_string_equal(find(b, ACT_WAITING)->text,
                        "needs 2 cuda slots, more than the 0 of all attached executors; 1 more is quarantined");
    gpus(b, "a", 2, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 1);
}

static void attach_single_rank(struct bench *b, const char *id, int slots, bool single_rank) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_ATTACHED,
                                      .executor = id,
                                      .attach = { .incarnation = 1,
                                                  .slots = { slots, [SCHEDULER_SLOT_CUDA] = slots },
                                                  .single_rank = single_rank } });
}

static void a_gang_on_gpus_waits_for_hosts_whose_ranks_can_communicate_and_blocks_no_job(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = {
        .job = 1, .state = JOB_STATE_QUEUED, .world_size = 2, .slot = SCHEDULER_SLOT_CUDA
    };
    attach_single_rank(b, "a", 2, true);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 2 cuda slots, more than the 0 of all attached executors; 2 "
                                                    "more take jobs of one rank only");
    row = (struct scheduler_job_row){
        .job = 2, .state = JOB_STATE_QUEUED, .world_size = 1, .slot = SCHEDULER_SLOT_CUDA
    };
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
    row = (struct scheduler_job_row){
        .job = 3, .state = JOB_STATE_QUEUED, .world_size = 2, .slot = SCHEDULER_SLOT_CPU
    };
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 3); /* on CPUs they talk otherwise */

    attach_single_rank(b, "b", 1, false);
    assert_null(find(b, ACT_ATTEMPT_CREATE)); /* not one rank here and one there */
    attach_single_rank(b, "c", 1, false);
    const struct scheduler_action *created = find(b, ACT_ATTEMPT_CREATE);
    assert_int_equal(created->job, 1);
    for (int r = 0; r < 2; r++)
        assert_string_not_equal(created->placement[r], "a");
}

static void an_older_starts_word_of_its_devices_comes_too_late(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = {
        .job = 1, .state = JOB_STATE_QUEUED, .world_size = 1, .slot = SCHEDULER_SLOT_CUDA
    };
    attach(b, "a", 2, 8, NULL);
    gpus_of(b, "a", 1, 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 1 cuda slot, more than the 0 of all attached executors");
    gpus_of(b, "a", 2, 1, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 1);
}

/* The end does not count as a restart, and the newest event names the reason why the job waits again. */
static void a_rank_that_lost_its_device_waits_for_another_and_says_so(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = {
        .job = 1, .state = JOB_STATE_QUEUED, .world_size = 1, .slot = SCHEDULER_SLOT_CUDA
    };
    attach(b, "a", 1, 8, NULL);
    gpus(b, "a", 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    run_one(b, 1, 1);
    gpus(b, "a", 0, 1);
    end_part(b, "a", 1, 1, 0, RANK_END_DEVICE_LOST, "lost its GPU");
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RESTARTING);
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
    every_tick_for(b, 1000);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_QUEUED);
    const struct scheduler_action *waiting = find(b, ACT_WAITING);
    assert_true(waiting > find(b, ACT_JOB_STATE));
    assert_string_equal(waiting->text,
                        "needs 1 cuda slot, more than the 0 of all attached executors; 1 more is quarantined");
}

static void higher_priority_goes_first_and_equals_in_order_of_submission(void **state) {
    struct bench *b = *state;
    submit(b, 1, 0, 1, 0);
    submit(b, 2, 5, 1, 0);
    submit(b, 3, 5, 1, 0);
    attach(b, "a", 1, 1, NULL);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
    end_part(b, "a", 2, 1, 0, RANK_END_BAD_SPEC, "bad"); /* its slot is free, though its records are on their way */
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 3);
}

static void a_narrow_job_does_not_overtake_a_wide_one_that_waits(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 1, 0);
    submit(b, 2, 0, 2, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    submit(b, 3, 0, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void a_job_wider_than_all_hosts_blocks_no_job_and_has_a_reason(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 3, 0);
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 3 cpu slots, more than the 2 of all attached executors");
    submit(b, 2, 0, 1, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
}

static void the_addresses_go_out_once_all_ranks_have_offered(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 2, 0);
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1, .rank = 0 });
    assert_null(find(b, ACT_SEND_RENDEZVOUS));
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1, .rank = 1 });
    assert_non_null(find(b, ACT_SEND_RENDEZVOUS));
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1, .rank = 1 });
    assert_null(find(b, ACT_SEND_RENDEZVOUS));
}

static void the_sentence_names_the_cause_and_not_its_echo(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
    end_part(b, "a", 1, 1, 0, RANK_END_PEER_LOST, "rank 1 went away");
    end_part(b, "b", 1, 1, 1, RANK_END_UNKNOWN, "was killed by signal 9");
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    const struct scheduler_action *end = find(b, ACT_JOB_STATE);
    assert_int_equal(end->to, JOB_STATE_FAILED);
    assert_string_equal(end->text, "rank 1: was killed by signal 9 (after 0 of 0 restarts)");
}

/* A controller that was unreachable receives all ends of a part at once. */
static void of_simultaneous_ends_the_cause_is_reported_and_not_its_consequence(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 3, NULL);
    submit(b, 1, 0, 3, 9);
    struct rank_end ends[] = { { .rank = 0, .cause = RANK_END_PEER_LOST, .message = "rank 1 went away" },
                               { .rank = 1, .cause = RANK_END_UNKNOWN, .message = "was killed by signal 9" },
                               { .rank = 2, .cause = RANK_END_PEER_LOST, .message = "rank 0 went away" } };
    tell(b, (struct scheduler_event){
                .kind = EV_PART_ENDED, .executor = "a", .job = 1, .attempt = 1, .ends = ends, .n_ends = 3 });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RESTARTING);
    assert_string_equal(find(b, ACT_JOB_STATE)->text, "rank 1: was killed by signal 9");
}

static void a_bad_spec_and_bad_numbers_fail_without_a_retry(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    const enum rank_end_cause causes[] = { RANK_END_BAD_SPEC, RANK_END_NUMERIC };
    for (int i = 0; i < 2; i++) {
        submit(b, i + 1, 0, 1, 9);
        run_one(b, i + 1, 1);
        end_part(b, "a", i + 1, 1, 0, causes[i], "no");
        store(b, i + 1, 1, 0);
        assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED);
    }
}

static void a_bad_checkpoint_is_marked_and_does_not_count(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    end_part(b, "a", 1, 1, 0, RANK_END_CHECKPOINT_BAD, "shard 1 is truncated");
    store(b, 1, 1, 0);
    assert_string_equal(find(b, ACT_CHECKPOINT_CORRUPT)->text, "shard 1 is truncated");
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
    every_tick_for(b, 500);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 2);
}

static void a_job_that_the_store_refused_is_forgotten_and_its_slots_are_free(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 2, 9);
    submit(b, 2, 0, 2, 9);
    scheduler_refused(b->s, 1, 2); /* not its attempt */
    scheduler_refused(b->s, 2, 1); /* it waits */
    scheduler_refused(b->s, 3, 1); /* there is no such job */
    assert_int_equal(scheduler_counts(b->s).jobs, 2);
    scheduler_refused(b->s, 1, 1);
    assert_int_equal(scheduler_counts(b->s).jobs, 1);
    assert_int_equal(scheduler_counts(b->s).used[SCHEDULER_SLOT_CPU], 0);
    every_tick_for(b, 500);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1 }); /* a late word of it */
    assert_int_equal(b->out.n, 0);
}

static void the_next_attempt_waits_for_the_last_record_of_the_old_one(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 1);
    run_one(b, 1, 1);
    end_part(b, "a", 1, 1, 0, RANK_END_UNKNOWN, "was killed");
    assert_non_null(find(b, ACT_AWAIT_STORED));
    b->now += 5000;
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "a", .last_seen_ms = b->now });
    every_tick_for(b, 5000);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    store(b, 1, 1, 0);
    every_tick_for(b, 500);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 2);
}

static void a_silent_executor_is_lost_after_its_lease_and_its_jobs_restart_uncounted(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    int64_t begun = b->now;
    every_tick_for(b, 3 * LEASE_TTL_MS);
    assert_non_null(find(b, ACT_EXECUTOR_LOST));
    assert_in_range(b->now - begun, LEASE_TTL_MS, LEASE_TTL_MS + 2 * SCHEDULER_TICK_MS);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RESTARTING);
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
}

static void an_executor_of_the_last_leader_is_lost_when_it_stays_away(void **state) {
    struct bench *b = *state;
    load_executor(b, "a", true, NULL);
    every_tick_for(b, 2 * LEASE_TTL_MS);
    assert_string_equal(find(b, ACT_EXECUTOR_LOST)->executor, "a");
    assert_int_equal(scheduler_counts(b->s).executors, 0);
}

/* The end of an attempt and the job's following change of state are two transactions. */
static void a_job_whose_attempt_has_ended_continues_under_the_next_leader(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = {
        .job = 1, .state = JOB_STATE_RUNNING, .world_size = 1, .attempt = 1, .final_committed = true
    };
    load_row(b, &row);
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_SUCCEEDED);
    assert_int_equal(scheduler_counts(b->s).jobs, 0);

    row = (struct scheduler_job_row){ .job = 2, .state = JOB_STATE_RUNNING, .world_size = 1, .attempt = 1 };
    load_row(b, &row);
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RESTARTING);
    attach(b, "a", 1, 1, NULL);
    every_tick_for(b, 1000);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->attempt, 2);
}

static void a_late_tick_extends_the_leases(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    b->now += 10 * LEASE_TTL_MS;
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    assert_null(find(b, ACT_EXECUTOR_LOST));
    every_tick_for(b, 2 * LEASE_TTL_MS);
    assert_non_null(find(b, ACT_EXECUTOR_LOST));
}

static void an_order_that_was_lost_with_its_stream_is_given_again(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    assert_non_null(find(b, ACT_SEND_START));
    attach(b, "a", 1, 1, NULL);
    assert_non_null(find(b, ACT_SEND_START));
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void a_started_part_that_is_missing_after_an_attach_is_lost(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    attach(b, "a", 2, 1, NULL);
    assert_null(find(b, ACT_SEND_START));
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_RESTARTING);
}

static void an_attach_repeats_the_newest_committed_step(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = 40 });
    assert_int_equal(find(b, ACT_SEND_COMMITTED)->step, 40);
    struct scheduler_rank_report rank = { .offered = true, .joined = true };
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1, .n_ranks = 1, .ranks = &rank });
    assert_int_equal(find(b, ACT_SEND_COMMITTED)->step, 40);
}

static void words_of_an_older_attempt_change_nothing(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    end_part(b, "a", 1, 1, 0, RANK_END_UNKNOWN, "was killed");
    store(b, 1, 1, 0);
    every_tick_for(b, 500);
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1 });
    assert_int_equal(b->out.n, 0);
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = 9, .final = true });
    assert_int_equal(b->out.n, 0);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    assert_int_equal(b->out.n, 1);
    assert_non_null(find(b, ACT_SEND_ACKNOWLEDGE));
}

static void success_needs_the_final_checkpoint(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED);
}

static void a_cancel_with_a_reason_gives_it_to_the_job_once(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    submit(b, 2, 0, 1, 3);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1, .reason = "its sweep was cancelled" });
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_CANCELLING);
    assert_string_equal(find(b, ACT_JOB_STATE)->text, "its sweep was cancelled");
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "stopped");
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_CANCELLED);
    assert_string_equal(find(b, ACT_JOB_STATE)->text, ""); /* the row keeps its reason */
    submit(b, 3, 0, 1, 3);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 3, .reason = "" });
    assert_string_equal(find(b, ACT_JOB_STATE)->text, "cancelled while it was queued");
}

static void a_cancel_in_the_backoff_ends_the_job_at_once(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    end_part(b, "a", 1, 1, 0, RANK_END_UNKNOWN, "was killed");
    store(b, 1, 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1, .token = 7 });
    assert_int_equal(b->out.items[1].to, JOB_STATE_CANCELLED);
    assert_int_equal(find(b, ACT_REPLY)->status, ST_OK);
    assert_int_equal(find(b, ACT_REPLY)->token, 7);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1 });
    assert_int_equal(find(b, ACT_REPLY)->status, ST_FAILED_PRECONDITION);
    assert_string_equal(find(b, ACT_REPLY)->reason, "JOB_ENDED");
}

/* Events that arrive together. */
static void jobs_start_once_after_events_that_arrive_together_and_in_order_of_priority(void **state) {
    struct bench *b = *state;
    const struct scheduler_job_row rows[] = { { .job = 1, .state = JOB_STATE_QUEUED, .priority = 0, .world_size = 1 },
                                              { .job = 2, .state = JOB_STATE_QUEUED, .priority = 5, .world_size = 1 },
                                              { .job = 3, .state = JOB_STATE_QUEUED, .priority = 9, .world_size = 1 } };
    struct scheduler_event attach = { .kind = EV_EXECUTOR_ATTACHED, .executor = "a", .more = true };
    attach.attach.slots[SCHEDULER_SLOT_CPU] = 2;
    tell(b, attach);
    for (int i = 0; i < 3; i++) {
        tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &rows[i], .more = true });
        assert_int_equal(b->out.n, 0);
    }
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 3, .more = true });
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    tell(b, (struct scheduler_event){ .kind = EV_PLACE });
    int64_t started[2];
    size_t n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_ATTEMPT_CREATE)
            started[n++] = b->out.items[i].job;
    assert_int_equal(n, 2);
    assert_int_equal(started[0], 2);
    assert_int_equal(started[1], 1);
    tell(b, (struct scheduler_event){ .kind = EV_PLACE });
    assert_int_equal(b->out.n, 0);
}

static void only_the_executor_of_a_current_rank_has_it(void **state) {
    struct bench *b = *state;
    bool current;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
    attach(b, "b", 1, 1, NULL); /* attempt 1 starts */
    assert_true(scheduler_has_rank(b->s, "a", 1, 1, 0, &current) && current);
    assert_true(scheduler_has_rank(b->s, "b", 1, 1, 1, NULL));
    assert_false(scheduler_has_rank(b->s, "b", 1, 1, 0, &current));
    assert_true(current);
    static const struct {
        int64_t job;
        int attempt, rank;
    } none[] = { { 2, 1, 0 }, { 1, 2, 0 }, { 1, 0, 0 }, { 1, 1, 2 }, { 1, 1, -1 } };
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        assert_false(scheduler_has_rank(b->s, "a", none[i].job, none[i].attempt, none[i].rank, &current));
        assert_false(current);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_final_state_has_an_edge_but_a_failed_jobs_retry),
        cmocka_unit_test(the_first_retry_comes_within_half_a_second_and_delays_double_to_a_ceiling),
        cmocka_unit_test(a_gang_goes_to_the_fullest_host_that_holds_it_else_to_the_widest_ones),
        ON_BENCH(a_quarantined_device_is_no_slot_and_explain_reports_it),
        ON_BENCH(a_gang_on_gpus_waits_for_hosts_whose_ranks_can_communicate_and_blocks_no_job),
        ON_BENCH(an_older_starts_word_of_its_devices_comes_too_late),
        ON_BENCH(a_rank_that_lost_its_device_waits_for_another_and_says_so),
        ON_BENCH(jobs_start_once_after_events_that_arrive_together_and_in_order_of_priority),
        ON_BENCH(only_the_executor_of_a_current_rank_has_it),
        ON_BENCH(higher_priority_goes_first_and_equals_in_order_of_submission),
        ON_BENCH(a_narrow_job_does_not_overtake_a_wide_one_that_waits),
        ON_BENCH(a_job_wider_than_all_hosts_blocks_no_job_and_has_a_reason),
        ON_BENCH(the_addresses_go_out_once_all_ranks_have_offered),
        ON_BENCH(the_sentence_names_the_cause_and_not_its_echo),
        ON_BENCH(of_simultaneous_ends_the_cause_is_reported_and_not_its_consequence),
        ON_BENCH(a_bad_spec_and_bad_numbers_fail_without_a_retry),
        ON_BENCH(a_bad_checkpoint_is_marked_and_does_not_count),
        ON_BENCH(a_job_that_the_store_refused_is_forgotten_and_its_slots_are_free),
        ON_BENCH(the_next_attempt_waits_for_the_last_record_of_the_old_one),
        ON_BENCH(a_silent_executor_is_lost_after_its_lease_and_its_jobs_restart_uncounted),
        ON_BENCH(an_executor_of_the_last_leader_is_lost_when_it_stays_away),
        ON_BENCH(a_late_tick_extends_the_leases),
        ON_BENCH(a_job_whose_attempt_has_ended_continues_under_the_next_leader),
        ON_BENCH(an_order_that_was_lost_with_its_stream_is_given_again),
        ON_BENCH(a_started_part_that_is_missing_after_an_attach_is_lost),
        ON_BENCH(an_attach_repeats_the_newest_committed_step),
        ON_BENCH(words_of_an_older_attempt_change_nothing),
        ON_BENCH(success_needs_the_final_checkpoint),
        ON_BENCH(a_cancel_with_a_reason_gives_it_to_the_job_once),
        ON_BENCH(a_cancel_in_the_backoff_ends_the_job_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
