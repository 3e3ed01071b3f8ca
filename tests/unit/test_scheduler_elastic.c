/* Elastic jobs: how many ranks an attempt gets, and when a running one is stopped in order to grow. */
#include "service/scheduler/feature.h"
#include "tests/unit/scheduler_bench.h"

#include <stdlib.h>
#include <time.h>

enum { SETTLE_MS = SCHEDULER_ELASTIC_SETTLE_MS };

static struct scheduler_job_row elastic_row(int64_t job, int min, int max) {
    return (struct scheduler_job_row){ .job = job,
                                       .state = JOB_STATE_QUEUED,
                                       .world_size = min,
                                       .max_world_size = max,
                                       .stops_at_step = true,
                                       .max_restarts = 3 };
}

static void submit_elastic(struct bench *b, int64_t job, int min, int max) {
    const struct scheduler_job_row row = elastic_row(job, min, max);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

static void drain_now(struct bench *b, const char *id, bool drained) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = id, .drain = { drained, drained, "" } });
}

static void commit(struct bench *b, int64_t job, int attempt, int64_t step) {
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = job, .attempt = attempt, .step = step });
}

/* All records of an attempt that has ended on its hosts are stored. */
static void store_all(struct bench *b, int64_t job, int attempt, int ranks) {
    for (int r = 0; r < ranks; r++)
        store(b, job, attempt, r);
}

static int created(const struct bench *b, int64_t job) {
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_ATTEMPT_CREATE && b->out.items[i].job == job)
            return b->out.items[i].world_size;
    return 0;
}

static bool noted(const struct bench *b, const char *note) {
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_NOTE && strcmp(b->out.items[i].note, note) == 0)
            return true;
    return false;
}

static const struct scheduler_action *moved_to(const struct bench *b, enum job_state to) {
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == ACT_JOB_STATE && b->out.items[i].to == to)
            return &b->out.items[i];
    return NULL;
}

static void join_all(struct bench *b, int64_t job, int attempt, int ranks) {
    for (int r = 0; r < ranks; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = job, .attempt = attempt, .rank = r });
    for (int r = 0; r < ranks; r++)
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = job, .attempt = attempt, .rank = r });
}

static void seen(struct bench *b, const char *id) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = id, .last_seen_ms = b->now });
}

/* Ticks with heartbeats of these executors, until an action follows or the time is over. */
static bool tick_for(struct bench *b, int64_t ms, const char *const *ids) {
    for (int64_t end = b->now + ms; b->now < end;) {
        b->now += SCHEDULER_TICK_MS;
        for (const char *const *id = ids; *id; id++)
            seen(b, *id);
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
        if (b->out.n > 0)
            return true;
    }
    return false;
}

static const char *const ONE[] = { "a", NULL }, *const TWO[] = { "a", "b", NULL };

/* A running job with 2 of up to 4 ranks on executor a. */
static void two_of_four(struct bench *b) {
    attach(b, "a", 1, 2, NULL);
    submit_elastic(b, 1, 2, 4);
    assert_int_equal(created(b, 1), 2);
    join_all(b, 1, 1, 2);
}

static void an_attempt_gets_the_free_slots_up_to_the_most_ranks(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 8, NULL);
    submit_elastic(b, 1, 2, 5);
    assert_int_equal(created(b, 1), 5);
    submit_elastic(b, 2, 2, 5);
    assert_int_equal(created(b, 2), 3);
    submit_elastic(b, 3, 1, 5);
    assert_int_equal(created(b, 3), 0);
}

static void slots_that_a_waiting_job_needs_are_not_taken_in_addition(void **state) {
    struct bench *b = *state;
    submit_elastic(b, 1, 2, 8);
    submit(b, 2, 0, 4, 0);
    attach(b, "a", 1, 8, NULL);
    assert_int_equal(created(b, 2), 4);
    assert_int_equal(created(b, 1), 4); /* the other two were free */
    submit_elastic(b, 3, 2, 8);
    submit(b, 4, 0, 6, 0);
    attach(b, "b", 1, 6, NULL);
    assert_int_equal(created(b, 3), 2); /* job 4 waits for six */
    assert_int_equal(created(b, 4), 0);
}

static void a_job_grows_after_the_slots_were_free_for_the_settle_time(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    b->now += SETTLE_MS;
    attach(b, "b", 1, 2, NULL);
    const int64_t free_ms = b->now;
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    assert_true(b->now - free_ms >= SETTLE_MS);
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    assert_int_equal(find(b, ACT_SEND_STOP)->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = 7 });
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store(b, 1, 1, 0);
    assert_int_equal(created(b, 1), 0);
    store(b, 1, 1, 1);
    assert_int_equal(created(b, 1), 4);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->restarts, 0);
    assert_true(noted(b, "elastic_grown"));
}

static void a_job_does_not_grow_while_another_one_waits(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    submit(b, 2, 0, 4, 0);
    attach(b, "b", 1, 2, NULL);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 2 });
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
}

static void the_slots_of_a_growing_job_are_kept_for_it(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 2, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    submit(b, 2, 100, 2, 0);
    assert_int_equal(created(b, 2), 2); /* the spare slots */
    submit(b, 3, 100, 2, 0);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    assert_int_equal(created(b, 3), 0);
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_int_equal(created(b, 1), 2);
    assert_int_equal(created(b, 3), 0);
}

static void a_pause_gives_up_the_slots_that_were_kept(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 2, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    tell(b, (struct scheduler_event){ .kind = EV_JOB_PAUSE, .job = 1 });
    submit(b, 2, 0, 4, 0);
    assert_int_equal(created(b, 2), 4);
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_non_null(moved_to(b, JOB_STATE_PAUSED));
}

static void a_job_that_lost_a_host_starts_with_fewer_ranks_at_once(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    attach(b, "b", 1, 2, NULL);
    submit_elastic(b, 1, 2, 4);
    assert_int_equal(created(b, 1), 4);
    join_all(b, 1, 1, 4);
    while (!moved_to(b, JOB_STATE_RESTARTING))
        assert_true(tick_for(b, 10 * LEASE_TTL_MS, ONE));
    end_part(b, "a", 1, 1, 0, RANK_END_PEER_LOST, "");
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_true(tick_for(b, 5000, ONE));
    assert_int_equal(created(b, 1), 2);
    assert_true(noted(b, "elastic_shrunk"));
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->restarts, 0);
}

static void a_loaded_job_that_was_growing_keeps_its_slots(void **state) {
    struct bench *b = *state;
    const char *const placement[] = { "a", "a" };
    const struct scheduler_job_row row = { .job = 1,
                                           .state = JOB_STATE_PREEMPTING,
                                           .world_size = 1,
                                           .max_world_size = 4,
                                           .ranks = 2,
                                           .attempt = 3,
                                           .placement = placement,
                                           .committed_step = -1 };
    load_row(b, &row);
    attach(b, "b", 1, 1, NULL);
    const struct scheduler_part_report part = { .job = 1, .attempt = 3 };
    attach(b, "a", 1, 2, &part);
    submit(b, 2, 100, 2, 0);
    end_part(b, "a", 1, 3, 0, RANK_END_STOPPED, "");
    assert_int_equal(created(b, 2), 0);
    store(b, 1, 3, 0);
    store(b, 1, 3, 1);
    assert_int_equal(created(b, 1), 2);
}

static void an_attempt_has_never_fewer_ranks_than_the_job_needs(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit_elastic(b, 1, 3, 6);
    assert_int_equal(created(b, 1), 0);
    attach(b, "b", 1, 2, NULL);
    assert_int_equal(created(b, 1), 4);
    join_all(b, 1, 1, 4);
    drain_now(b, "b", true);
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    end_part(b, "b", 1, 1, 2, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 4);
    assert_int_equal(created(b, 1), 0);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
    drain_now(b, "b", false);
    assert_int_equal(created(b, 1), 4);
}

static void a_growth_stops_at_the_most_ranks(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 8, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    commit(b, 1, 1, 7);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 2);
    assert_int_equal(created(b, 1), 4);
    join_all(b, 1, 2, 4);
    assert_false(tick_for(b, 3 * SCHEDULER_GROWTH_MAX_MS, TWO));
}

static void one_job_grows_in_each_settle_time(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit_elastic(b, 1, 1, 1);
    submit_elastic(b, 2, 1, 2);
    join_all(b, 1, 1, 1);
    join_all(b, 2, 1, 1);
    attach(b, "c", 1, 1, NULL);
    submit_elastic(b, 3, 1, 2);
    assert_int_equal(created(b, 3), 1);
    join_all(b, 3, 1, 1);
    attach(b, "b", 1, 2, NULL);
    const char *const all[] = { "a", "b", "c", NULL };
    assert_true(tick_for(b, 2 * SETTLE_MS, all));
    assert_int_equal(moved_to(b, JOB_STATE_PREEMPTING)->job, 2);
    const int64_t first_ms = b->now;
    commit(b, 2, 1, 7);
    assert_true(tick_for(b, 2 * SETTLE_MS, all)); /* job 2 has not ended yet: its deadline is later */
    assert_int_equal(moved_to(b, JOB_STATE_PREEMPTING)->job, 3);
    assert_true(b->now - first_ms >= SETTLE_MS);
}

static void an_attempt_that_has_not_begun_to_run_does_not_grow(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit_elastic(b, 1, 2, 4);
    attach(b, "b", 1, 2, NULL);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
    join_all(b, 1, 1, 2);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
}

static void the_job_that_is_first_in_the_queues_order_grows_first(void **state) {
    struct bench *b = *state;
    for (int64_t job = 1; job <= 3; job++) {
        const char id[] = { (char)('a' + job - 1), '\0' };
        struct scheduler_job_row row = elastic_row(job, 1, 2);
        row.priority = job == 2 ? 5 : 0;
        attach(b, id, 1, 1, NULL);
        tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
        assert_int_equal(created(b, job), 1);
        join_all(b, job, 1, 1);
    }
    attach(b, "d", 1, 3, NULL);
    const char *const all[] = { "a", "b", "c", "d", NULL };
    assert_true(tick_for(b, 2 * SETTLE_MS, all));
    assert_int_equal(moved_to(b, JOB_STATE_PREEMPTING)->job, 2);
}

static void a_job_grows_by_the_fewest_slots_if_their_number_changes_all_the_time(void **state) {
    struct bench *b = *state;
    const char *const all[] = { "a", "b", "c", NULL };
    two_of_four(b);
    attach(b, "b", 1, 1, NULL);
    attach(b, "c", 1, 1, NULL);
    const int64_t free_ms = b->now;
    for (bool drained = true; !moved_to(b, JOB_STATE_PREEMPTING); drained = !drained) {
        drain_now(b, "c", drained);
        tick_for(b, SETTLE_MS / 2, all);
        assert_true(b->now - free_ms <= (SCHEDULER_SETTLE_MAX + 1) * SETTLE_MS);
    }
    assert_true(b->now - free_ms >= SCHEDULER_SETTLE_MAX * SETTLE_MS);
    assert_non_null(strstr(moved_to(b, JOB_STATE_PREEMPTING)->text, "from 2 to 3 ranks"));
}

static void attach_single_rank(struct bench *b, const char *id, int gpus) {
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = id };
    ev.attach.incarnation = 1;
    ev.attach.slots[SCHEDULER_SLOT_CUDA] = gpus;
    ev.attach.single_rank = true;
    tell(b, ev);
}

static void a_host_that_takes_no_gangs_gives_an_elastic_job_one_rank(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = elastic_row(1, 1, 4);
    row.slot = SCHEDULER_SLOT_CUDA;
    attach_single_rank(b, "a", 2);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_int_equal(created(b, 1), 1);
    join_all(b, 1, 1, 1);
    attach_single_rank(b, "b", 2);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
}

static void slots_on_a_host_that_the_job_cannot_use_are_no_reason_to_stop_it(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = elastic_row(1, 2, 4);
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = "a" };
    row.needs = SCHEDULER_FEATURE_CODE;
    ev.attach.incarnation = 1;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = 2;
    ev.attach.features = SCHEDULER_FEATURE_CODE;
    tell(b, ev);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_int_equal(created(b, 1), 2);
    join_all(b, 1, 1, 2);
    attach(b, "b", 1, 2, NULL);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
}

/* Without `stop: step`. */
static void a_job_that_saves_by_itself_grows_right_after_a_checkpoint(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = elastic_row(1, 2, 4);
    row.stops_at_step = false;
    attach(b, "a", 1, 2, NULL);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    join_all(b, 1, 1, 2);
    attach(b, "b", 1, 2, NULL);
    b->now++; /* not at 0, which means none */
    commit(b, 1, 1, 1);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
    commit(b, 1, 1, 2);
    const int64_t committed_ms = b->now;
    assert_true(tick_for(b, SETTLE_MS, TWO));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    assert_true(b->now - committed_ms <= SCHEDULER_GROWTH_AFTER_CHECKPOINT_MS);
}

static void a_stop_that_saved_nothing_makes_later_growths_wait_for_a_checkpoint(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 1, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 2);
    assert_int_equal(created(b, 1), 3);
    join_all(b, 1, 2, 3);
    attach(b, "c", 1, 1, NULL);
    const char *const all[] = { "a", "b", "c", NULL };
    assert_false(tick_for(b, 3 * SETTLE_MS, all));
    commit(b, 1, 2, 1);
    assert_true(tick_for(b, SETTLE_MS, all));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
}

static void a_growth_in_vain_doubles_the_time_until_the_next_one(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 2, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    commit(b, 1, 1, 7);
    submit(b, 2, 0, 2, 0);
    assert_int_equal(created(b, 2), 2);
    join_all(b, 2, 1, 2);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 2);
    assert_int_equal(created(b, 1), 2);
    assert_false(noted(b, "elastic_grown"));
    join_all(b, 1, 2, 2);
    const int64_t joined_ms = b->now;
    attach(b, "c", 1, 2, NULL);
    const char *const all[] = { "a", "b", "c", NULL };
    assert_true(tick_for(b, 10 * SETTLE_MS, all));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    assert_true(b->now - joined_ms >= 2 * SETTLE_MS);
}

static void a_job_leaves_a_drained_host_and_continues_with_fewer_ranks(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    attach(b, "b", 1, 2, NULL);
    submit_elastic(b, 1, 2, 4);
    join_all(b, 1, 1, 4);
    drain_now(b, "b", true);
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
    commit(b, 1, 1, 7);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    end_part(b, "b", 1, 1, 2, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 4);
    assert_int_equal(created(b, 1), 2);
    assert_true(noted(b, "elastic_shrunk"));
    join_all(b, 1, 2, 2);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO)); /* the slots of a drained host are not free */
    drain_now(b, "b", false);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
}

static void a_host_that_is_drained_while_its_job_grows_gets_no_rank(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 3, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    drain_now(b, "a", true);
    commit(b, 1, 1, 7);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 2);
    assert_int_equal(created(b, 1), 3);
    for (int r = 0; r < 3; r++)
        assert_string_equal(find(b, ACT_ATTEMPT_CREATE)->placement[r], "b");
}

static void a_host_that_is_lost_while_its_job_grows_gets_no_rank(void **state) {
    struct bench *b = *state;
    static const char *const only_b[] = { "b", NULL };
    two_of_four(b);
    attach(b, "b", 1, 3, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    commit(b, 1, 1, 7);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store(b, 1, 1, 0); /* the other rank's records are with host a */
    while (created(b, 1) == 0)
        assert_true(tick_for(b, 10 * LEASE_TTL_MS, only_b));
    assert_int_equal(created(b, 1), 3);
    attach(b, "a", 2, 2, NULL);
    submit(b, 2, 0, 2, 0); /* the slots that were kept there are free again */
    assert_int_equal(created(b, 2), 2);
}

static void a_job_that_the_quota_of_its_queue_keeps_back_does_not_keep_another_one_from_growing(void **state) {
    for (int queue = 0; queue < 2; queue++) { /* of the waiting job: another one, or that of the growing job */
        struct bench *b = *state;
        tell(b, (struct scheduler_event){ .kind = EV_QUEUE_SET,
                                          .queue = { .name = queue ? "" : "small",
                                                     .weight = 1,
                                                     .max_priority = 100,
                                                     .quota = { queue ? 4 : 1, -1 },
                                                     .borrow = { -1, -1 },
                                                     .lend = { -1, -1 },
                                                     .user_slots = { -1, -1 } } });
        struct scheduler_job_row waits = { .job = 2, .state = JOB_STATE_QUEUED, .world_size = queue ? 3 : 2 };
        snprintf(waits.queue, sizeof waits.queue, "%s", queue ? "" : "small");
        two_of_four(b);
        tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &waits });
        attach(b, "b", 1, 4, NULL);
        assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
        assert_non_null(moved_to(b, JOB_STATE_PREEMPTING));
        commit(b, 1, 1, 7);
        end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
        store_all(b, 1, 1, 2);
        assert_int_equal(created(b, 1), 4);
        teardown(state);
        setup(state);
    }
}

static void a_growing_job_that_finds_too_few_slots_waits_in_the_queue(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 1, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    drain_now(b, "a", true);
    commit(b, 1, 1, 7);
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 2);
    assert_int_equal(created(b, 1), 0);
    drain_now(b, "a", false);
    assert_int_equal(created(b, 1), 3);
}

static void a_loaded_job_that_was_leaving_a_drained_host_waits_in_the_queue(void **state) {
    struct bench *b = *state;
    const char *const placement[] = { "a", "a" };
    struct scheduler_job_row row = elastic_row(1, 2, 4);
    row.state = JOB_STATE_PREEMPTING;
    row.ranks = 2;
    row.attempt = 3;
    row.placement = placement;
    load_executor(b, "a", true, &(struct scheduler_drain){ true, true, "" });
    load_row(b, &row);
    const struct scheduler_part_report part = { .job = 1, .attempt = 3 };
    attach(b, "b", 1, 2, NULL);
    attach(b, "c", 1, 2, NULL);
    attach(b, "a", 1, 2, &part);
    submit(b, 2, 0, 2, 0);
    assert_int_equal(created(b, 2), 2);
    submit(b, 3, 100, 4, 0); /* before job 1 in the queue */
    end_part(b, "a", 1, 3, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 3, 2);
    assert_non_null(moved_to(b, JOB_STATE_QUEUED));
    assert_int_equal(created(b, 1), 0);
}

static void a_cancelled_job_gives_up_the_slots_that_were_kept(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    attach(b, "b", 1, 2, NULL);
    assert_true(tick_for(b, 2 * SETTLE_MS, TWO));
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1 });
    submit(b, 2, 0, 4, 0);
    assert_int_equal(created(b, 2), 4);
    store_all(b, 1, 1, 2);
    assert_non_null(moved_to(b, JOB_STATE_CANCELLED));
}

static void a_resumed_job_gets_the_slots_that_are_free_then(void **state) {
    struct bench *b = *state;
    two_of_four(b);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_PAUSE, .job = 1 });
    end_part(b, "a", 1, 1, 0, RANK_END_STOPPED, "");
    store_all(b, 1, 1, 2);
    assert_non_null(moved_to(b, JOB_STATE_PAUSED));
    attach(b, "b", 1, 1, NULL);
    assert_false(tick_for(b, 3 * SETTLE_MS, TWO));
    tell(b, (struct scheduler_event){ .kind = EV_JOB_RESUME, .job = 1 });
    assert_int_equal(created(b, 1), 3);
    assert_true(noted(b, "elastic_grown"));
}

/* The row of a failed job does not have the number of ranks of its last attempt. */
static void a_retried_job_is_not_said_to_have_grown_or_shrunk(void **state) {
    struct bench *b = *state;
    struct scheduler_job_row row = elastic_row(1, 2, 4);
    row.state = JOB_STATE_FAILED;
    row.attempt = 3;
    attach(b, "a", 1, 8, NULL);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_RETRY, .job = 1, .row = &row });
    assert_int_equal(created(b, 1), 4);
    assert_false(noted(b, "elastic_grown"));
    assert_false(noted(b, "elastic_shrunk"));
}

/* ---- any history ---- */

enum { JOBS = 5, HOSTS = 4 };

struct sim_job {
    int min, max, ranks, attempt;
    bool stopping, begun;
    char hosts[8][2];
};

struct sim {
    struct bench *b;
    struct sim_job jobs[JOBS + 1];
    bool attached[HOSTS];
    int64_t incarnation, last_growth_ms;
    int growths;
};

static void sim_read(struct sim *m) {
    for (size_t i = 0; i < m->b->out.n; i++) {
        const struct scheduler_action *a = &m->b->out.items[i];
        struct sim_job *j = a->job > 0 && a->job <= JOBS ? &m->jobs[a->job] : NULL;
        if (a->kind == ACT_ATTEMPT_CREATE) {
            assert_in_range(a->world_size, j->min, j->max);
            *j = (struct sim_job){
                .min = j->min, .max = j->max, .ranks = a->world_size, .attempt = a->attempt, .begun = true
            };
            for (int r = 0; r < a->world_size; r++)
                memcpy(j->hosts[r], a->placement[r], 2);
        } else if (a->kind == ACT_SEND_STOP && j && a->attempt == j->attempt) {
            j->stopping = true;
        } else if (a->kind == ACT_JOB_STATE && a->to == JOB_STATE_PREEMPTING) {
            assert_true(m->growths == 0 || m->b->now - m->last_growth_ms >= SETTLE_MS);
            m->last_growth_ms = m->b->now;
            m->growths++;
        }
    }
}

static void sim_tell(struct sim *m, struct scheduler_event ev) {
    tell(m->b, ev);
    sim_read(m);
}

static void sim_attach(struct sim *m, int host) {
    const char id[] = { (char)('a' + host), '\0' };
    attach(m->b, id, ++m->incarnation, 2, NULL);
    sim_read(m);
    m->attached[host] = true;
}

/* The attempt has ended everywhere, and all records are stored. */
static void sim_end(struct sim *m, int64_t job, enum rank_end_cause cause) {
    const struct sim_job j = m->jobs[job];
    struct rank_end ends[8];
    m->jobs[job].ranks = 0;
    for (int r = 0; r < j.ranks; r++)
        ends[r] = (struct rank_end){ .rank = r, .cause = cause };
    for (int h = 0; h < HOSTS; h++) {
        const char id[] = { (char)('a' + h), '\0' };
        bool there = false;
        for (int r = 0; r < j.ranks; r++)
            there |= j.hosts[r][0] == id[0];
        if (there && m->attached[h])
            sim_tell(m, (struct scheduler_event){ .kind = EV_PART_ENDED,
                                                  .executor = id,
                                                  .job = job,
                                                  .attempt = j.attempt,
                                                  .ends = ends,
                                                  .n_ends = j.ranks });
    }
    for (int r = 0; r < j.ranks; r++)
        sim_tell(m, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = job, .attempt = j.attempt, .rank = r });
}

static void sim_run(struct sim *m, int64_t ms) {
    for (int64_t end = m->b->now + ms; m->b->now < end;) {
        m->b->now += SCHEDULER_TICK_MS;
        for (int h = 0; h < HOSTS; h++) {
            const char id[] = { (char)('a' + h), '\0' };
            if (m->attached[h])
                seen(m->b, id);
        }
        sim_tell(m, (struct scheduler_event){ .kind = EV_TICK });
        for (int64_t job = 1; job <= JOBS; job++)
            if (m->jobs[job].ranks && m->jobs[job].stopping)
                sim_end(m, job, RANK_END_STOPPED);
            else if (m->jobs[job].ranks)
                for (int r = 0; r < m->jobs[job].ranks; r++) {
                    sim_tell(m, (struct scheduler_event){
                                    .kind = EV_RANK_OFFERED, .job = job, .attempt = m->jobs[job].attempt, .rank = r });
                    sim_tell(m, (struct scheduler_event){
                                    .kind = EV_RANK_JOINED, .job = job, .attempt = m->jobs[job].attempt, .rank = r });
                }
    }
}

static void sim_check_job(void *ctx, const struct scheduler_job_view *v) {
    (void)ctx;
    if (v->attempt_open)
        assert_in_range(v->ranks, v->world_size, v->max_world_size);
}

static void sim_check_executor(void *ctx, const struct scheduler_executor_view *v) {
    (void)ctx;
    if (!v->lost)
        assert_in_range(v->used[SCHEDULER_SLOT_CPU], 0, v->slots[SCHEDULER_SLOT_CPU]);
}

static void any_history_keeps_the_bounds_starts_every_job_and_does_not_thrash(void **state) {
    const char *given = getenv("TRAINYARD_SEED");
    const unsigned first = given ? (unsigned)strtoul(given, NULL, 10) : (unsigned)time(NULL);
    printf("TRAINYARD_SEED=%u\n", first);
    srand(first);
    int growths = 0;
    for (int history = 0; history < 60; history++) {
        teardown(state); /* of the last history */
        setup(state);
        struct sim m = { .b = *state };
        for (int64_t job = 1; job <= JOBS; job++) {
            m.jobs[job].min = 1 + rand() % 4;
            m.jobs[job].max = m.jobs[job].min + rand() % 4;
        }
        int next = 1;
        for (int step = 0; step < 60; step++) {
            const int host = rand() % HOSTS;
            const int64_t job = 1 + rand() % JOBS;
            switch (rand() % 5) {
            case 0:
                sim_attach(&m, host);
                for (int64_t j = 1; j <= JOBS; j++) /* an agent that comes back has no ranks */
                    for (int r = 0; r < m.jobs[j].ranks; r++)
                        m.jobs[j].stopping |= m.jobs[j].hosts[r][0] == 'a' + host;
                break;
            case 1: m.attached[host] = false; break; /* no heartbeats any more */
            case 2:
                if (next <= JOBS) {
                    submit_elastic(m.b, next, m.jobs[next].min, m.jobs[next].max);
                    sim_read(&m);
                    next++;
                }
                break;
            case 3:
                if (m.jobs[job].ranks && !m.jobs[job].stopping)
                    sim_end(&m, job, RANK_END_HOST_LOST);
                break;
            default: break;
            }
            sim_run(&m, rand() % 20000);
            scheduler_each_job(m.b->s, sim_check_job, NULL);
            scheduler_each_executor(m.b->s, sim_check_executor, NULL);
        }
        for (; next <= JOBS; next++) {
            submit_elastic(m.b, next, m.jobs[next].min, m.jobs[next].max);
            sim_read(&m);
        }
        for (int h = 0; h < HOSTS; h++)
            if (!m.attached[h])
                sim_attach(&m, h);
        for (int64_t job = 1; job <= JOBS; job++) { /* in turn, as jobs end that run */
            sim_run(&m, 60000);
            assert_true(m.jobs[job].begun);
            if (m.jobs[job].ranks)
                sim_end(&m, job, RANK_END_FINISHED);
            tell(m.b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = job });
            sim_read(&m);
            if (m.jobs[job].ranks)
                sim_end(&m, job, RANK_END_STOPPED);
        }
        growths += m.growths;
    }
    assert_true(growths > 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(an_attempt_gets_the_free_slots_up_to_the_most_ranks),
        ON_BENCH(slots_that_a_waiting_job_needs_are_not_taken_in_addition),
        ON_BENCH(a_job_grows_after_the_slots_were_free_for_the_settle_time),
        ON_BENCH(a_job_does_not_grow_while_another_one_waits),
        ON_BENCH(the_slots_of_a_growing_job_are_kept_for_it),
        ON_BENCH(a_pause_gives_up_the_slots_that_were_kept),
        ON_BENCH(a_job_that_lost_a_host_starts_with_fewer_ranks_at_once),
        ON_BENCH(a_loaded_job_that_was_growing_keeps_its_slots),
        ON_BENCH(an_attempt_has_never_fewer_ranks_than_the_job_needs),
        ON_BENCH(a_growth_stops_at_the_most_ranks),
        ON_BENCH(one_job_grows_in_each_settle_time),
        ON_BENCH(an_attempt_that_has_not_begun_to_run_does_not_grow),
        ON_BENCH(the_job_that_is_first_in_the_queues_order_grows_first),
        ON_BENCH(a_job_grows_by_the_fewest_slots_if_their_number_changes_all_the_time),
        ON_BENCH(a_host_that_takes_no_gangs_gives_an_elastic_job_one_rank),
        ON_BENCH(slots_on_a_host_that_the_job_cannot_use_are_no_reason_to_stop_it),
        ON_BENCH(a_job_that_the_quota_of_its_queue_keeps_back_does_not_keep_another_one_from_growing),
        ON_BENCH(a_growing_job_that_finds_too_few_slots_waits_in_the_queue),
        ON_BENCH(a_loaded_job_that_was_leaving_a_drained_host_waits_in_the_queue),
        ON_BENCH(a_job_that_saves_by_itself_grows_right_after_a_checkpoint),
        ON_BENCH(a_stop_that_saved_nothing_makes_later_growths_wait_for_a_checkpoint),
        ON_BENCH(a_growth_in_vain_doubles_the_time_until_the_next_one),
        ON_BENCH(a_job_leaves_a_drained_host_and_continues_with_fewer_ranks),
        ON_BENCH(a_host_that_is_drained_while_its_job_grows_gets_no_rank),
        ON_BENCH(a_host_that_is_lost_while_its_job_grows_gets_no_rank),
        ON_BENCH(a_cancelled_job_gives_up_the_slots_that_were_kept),
        ON_BENCH(a_resumed_job_gets_the_slots_that_are_free_then),
        ON_BENCH(a_retried_job_is_not_said_to_have_grown_or_shrunk),
        ON_BENCH(any_history_keeps_the_bounds_starts_every_job_and_does_not_thrash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
