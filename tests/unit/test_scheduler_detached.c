/* Executors whose stream has ended, and executors whose agents were asked to stop: both stop getting ranks immediately.
 */
#include "service/scheduler/explain.h"
#include "tests/unit/scheduler_bench.h"

static void detached(struct bench *b, const char *id, int64_t incarnation) {
    tell(b, (struct scheduler_event){
                .kind = EV_EXECUTOR_DETACHED, .executor = id, .attach = { .incarnation = incarnation } });
}

static void leaves(struct bench *b, const char *id) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_LEAVES, .executor = id, .attach = { .incarnation = 1 } });
}

static void drains(struct bench *b, const char *id) {
    tell(b, (struct scheduler_event){
                .kind = EV_EXECUTOR_LEAVES, .executor = id, .attach = { .incarnation = 1 }, .drain.now = true });
}

static void tick(struct bench *b) {
    b->now += SCHEDULER_TICK_MS;
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
}

static const char *placed_on(const struct bench *b, int64_t job) {
    const struct scheduler_action *a = find(b, ACT_ATTEMPT_CREATE);
    assert_true(a && a->job == job);
    return a->placement[0];
}

static const struct scheduler_reason *away_reason(struct bench *b, int64_t job, struct scheduler_explanation *x) {
    scheduler_explain(b->s, job, b->now, x);
    for (int i = 0; i < x->n_reasons; i++)
        if (x->reasons[i].kind == SCHEDULER_WAIT_DETACHED)
            return &x->reasons[i];
    fail_msg("job %lld does not wait for executors that are away", (long long)job);
    return NULL;
}

static void nothing_is_placed_where_the_stream_has_ended_until_the_executor_attaches_again(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    detached(b, "a", 1);
    submit(b, 1, 0, 1, 0);
    assert_string_equal(placed_on(b, 1), "b");
    submit(b, 2, 0, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    assert_string_equal(find(b, ACT_WAITING)->text,
                        "needs 1 cpu slot, 0 of 1 are free; 1 more is on disconnected executors");
    attach(b, "a", 1, 1, NULL);
    assert_string_equal(placed_on(b, 2), "a");
}

static void ranks_on_a_disconnected_executor_continue_and_are_lost_with_its_lease(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    run_one(b, 1, 1);
    detached(b, "a", 1);
    assert_int_equal(b->out.n, 0);
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1 });
    assert_null(find(b, ACT_ATTEMPT_END));
    detached(b, "a", 1);
    every_tick_for(b, LEASE_TTL_MS - 2 * SCHEDULER_TICK_MS);
    assert_int_equal(b->out.n, 0);
    every_tick_for(b, 1000);
    assert_string_equal(find(b, ACT_EXECUTOR_LOST)->text, "no heartbeat for 10 s");
    assert_non_null(find(b, ACT_ATTEMPT_END));
}

static void the_end_of_an_older_starts_stream_means_nothing(void **state) {
    struct bench *b = *state;
    attach(b, "a", 2, 1, NULL);
    detached(b, "a", 1);
    submit(b, 1, 0, 1, 0);
    assert_string_equal(placed_on(b, 1), "a");
}

static void a_job_of_a_stopping_executor_continues_elsewhere_without_waiting_for_a_lease(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    run_one(b, 1, 1);
    attach(b, "b", 1, 1, NULL);
    leaves(b, "a");
    end_part(b, "a", 1, 1, 0, RANK_END_AGENT_LOST, "stopped because its executor was told to leave");
    detached(b, "a", 1);
    tick(b);
    assert_null(find(b, ACT_EXECUTOR_LOST)); /* its last records may still come, with its next start */
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
    while (!find(b, ACT_ATTEMPT_CREATE)) {
        tick(b);
        if (find(b, ACT_EXECUTOR_LOST))
            assert_string_equal(find(b, ACT_EXECUTOR_LOST)->text, "its agent was stopped");
    }
    assert_string_equal(placed_on(b, 1), "b");
    assert_true(b->now < 1000);
}

static void an_executor_that_left_with_nothing_is_lost_at_once_and_no_sooner_than_its_stream_has_ended(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    leaves(b, "a");
    submit(b, 1, 0, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    tick(b);
    assert_null(find(b, ACT_EXECUTOR_LOST));
    detached(b, "a", 1);
    tick(b);
    assert_string_equal(find(b, ACT_EXECUTOR_LOST)->text, "its agent was stopped");
    attach(b, "a", 2, 1, NULL);
    assert_string_equal(placed_on(b, 1), "a");
}

static void a_job_of_a_draining_agent_writes_a_checkpoint_and_continues_elsewhere(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 3);
    run_one(b, 1, 1);
    attach(b, "b", 1, 1, NULL);
    drains(b, "a");
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_PREEMPTING);
    assert_string_equal(find(b, ACT_JOB_STATE)->text, "the agent of executor a drains");
    assert_non_null(find(b, ACT_SEND_STOP));
    attach(b, "a", 1, 1, &(struct scheduler_part_report){ .job = 1, .attempt = 1 }); /* a new stream */
    drains(b, "a");
    assert_null(find(b, ACT_JOB_STATE));
    submit(b, 2, 0, 1, 0);
    assert_string_equal(placed_on(b, 2), "b");
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_QUEUED);
    attach(b, "a", 2, 1, NULL); /* no mark is left */
    assert_string_equal(placed_on(b, 1), "a");
}

/* Otherwise each cut of a stream would let jobs of one rank take the slots for which the gang waits. */
static void a_gang_keeps_its_turn_while_one_of_its_hosts_is_cut_off(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    attach(b, "b", 1, 2, NULL);
    submit(b, 1, 0, 1, 0);
    submit(b, 2, 0, 4, 0);
    detached(b, "b", 1);
    submit(b, 3, 0, 1, 0);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    every_tick_for(b, LEASE_TTL_MS + 1000);
    assert_int_equal(find(b, ACT_EXECUTOR_LOST)->kind, ACT_EXECUTOR_LOST);
}

static void explain_reports_why_an_executor_is_detached(void **state) {
    struct bench *b = *state;
    struct scheduler_explanation x;
    attach(b, "a", 1, 1, NULL);
    detached(b, "a", 1);
    submit(b, 1, 0, 1, 0);
    const struct scheduler_reason *r = away_reason(b, 1, &x);
    assert_string_equal(r->message, "executor a is disconnected: its agent has ended, or the network has failed");
    assert_string_equal(r->remedy, "none is needed: it attaches again, or becomes LOST in 10 s");
    assert_int_equal(x.hosts[0].availability, SCHEDULER_HOST_DETACHED);
    assert_int_equal(x.hosts[0].detachment, SCHEDULER_DETACHED_STREAM_ENDED);
    attach(b, "b", 1, 1, NULL);
    submit(b, 2, 0, 1, 0);
    leaves(b, "b");
    r = away_reason(b, 2, &x);
    assert_string_equal(r->message, "2 executors are not attached, executor a among them");
    for (const int64_t end = b->now + LEASE_TTL_MS; b->now < end;) { /* b is heard, a is lost */
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "b", .last_seen_ms = b->now });
        tick(b);
    }
    r = away_reason(b, 2, &x);
    assert_string_equal(r->message, "executor b takes no more ranks: its agent is stopping");
    assert_int_equal(x.hosts[0].detachment, SCHEDULER_DETACHED_LEAVING);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(nothing_is_placed_where_the_stream_has_ended_until_the_executor_attaches_again),
        ON_BENCH(ranks_on_a_disconnected_executor_continue_and_are_lost_with_its_lease),
        ON_BENCH(the_end_of_an_older_starts_stream_means_nothing),
        ON_BENCH(a_job_of_a_stopping_executor_continues_elsewhere_without_waiting_for_a_lease),
        ON_BENCH(an_executor_that_left_with_nothing_is_lost_at_once_and_no_sooner_than_its_stream_has_ended),
        ON_BENCH(a_job_of_a_draining_agent_writes_a_checkpoint_and_continues_elsewhere),
        ON_BENCH(a_gang_keeps_its_turn_while_one_of_its_hosts_is_cut_off),
        ON_BENCH(explain_reports_why_an_executor_is_detached),
    };
    return cmocka_run_group_tests_name("scheduler away", tests, NULL, NULL);
}
