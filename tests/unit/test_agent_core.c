/* Single decisions of the agent's core. */
#include "base/limits.h"
#include "executor/agent/core/agent_core.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

enum { SLOTS = 2, HANG_MS = 30000, JOB = 7 };

static struct agent_core *core;
static struct agent_actions actions;
static int64_t now;

static void step(struct agent_event ev) {
    actions.n = 0;
    ev.job = JOB;
    ev.wall_us = 1000 * now;
    agent_core_step(core, &ev, now, &actions);
}

static int count(enum agent_action_kind kind) {
    int n = 0;
    for (size_t i = 0; i < actions.n; i++)
        n += actions.items[i].kind == kind;
    return n;
}

static const struct agent_action *only(enum agent_action_kind kind) {
    const struct agent_action *found = NULL;
    assert_int_equal(count(kind), 1);
    for (size_t i = 0; i < actions.n; i++)
        if (actions.items[i].kind == kind)
            found = &actions.items[i];
    return found;
}

/* Advances the time by `ms`, with a tick at each deadline. Keeps the actions of the last tick that had any. */
static void wait_ms(int64_t ms) {
    const int64_t until = now + ms;
    actions.n = 0;
    while (agent_core_deadline_ms(core) <= until) {
        struct agent_event ev = { .kind = AGENT_EV_TICK };
        now = agent_core_deadline_ms(core) > now ? agent_core_deadline_ms(core) : now;
        agent_core_step(core, &ev, now, &actions);
    }
    now = until;
}

static void rank_event(enum agent_event_kind kind, int32_t attempt, int32_t rank) {
    step((struct agent_event){ .kind = kind, .attempt = attempt, .rank = rank });
}

static void order(int32_t attempt, size_t n, bool cuda) {
    static const int32_t ranks[] = { 0, 1, 2, 3 };
    const struct agent_start start = { .world_size = (int32_t)n, .ranks = ranks, .n_ranks = n, .cuda = cuda };
    step((struct agent_event){ .kind = AGENT_EV_START, .attempt = attempt, .start = &start });
}

static void run(int32_t attempt, size_t n, bool cuda) {
    order(attempt, n, cuda);
    only(AGENT_ACT_SPAWN);
    for (size_t i = 0; i < n; i++)
        step((struct agent_event){ .kind = AGENT_EV_SPAWNED, .attempt = attempt, .rank = (int32_t)i, .pid = 100 });
    step((struct agent_event){ .kind = AGENT_EV_STARTED, .attempt = attempt });
    assert_int_equal(count(AGENT_ACT_REPORT_STARTED), (int)n);
}

static void exits(int32_t attempt, int32_t rank, int code, int signal) {
    step((struct agent_event){ .kind = AGENT_EV_EXITED,
                               .attempt = attempt,
                               .rank = rank,
                               .status = { .exit_code = code, .signal = signal },
                               .flag = true });
}

static const char *message_of(int32_t attempt, int32_t rank) {
    return agent_core_find_rank(core, JOB, attempt, rank)->end.message;
}

static void an_attempt_ends_with_its_last_rank_and_is_removed_when_acknowledged(void **state) {
    (void)state;
    run(1, 2, false);
    exits(1, 0, 0, 0);
    only(AGENT_ACT_REPORT_ENDED);
    assert_int_equal(count(AGENT_ACT_REPORT_ATTEMPT_ENDED), 0);
    assert_int_equal(count(AGENT_ACT_TERM), 0); /* the other rank may still finish */
    exits(1, 1, 0, 0);
    only(AGENT_ACT_REPORT_ATTEMPT_ENDED);
    order(1, 2, false); /* a repeated order is answered by the end */
    only(AGENT_ACT_REPORT_ATTEMPT_ENDED);
    step((struct agent_event){ .kind = AGENT_EV_ACKNOWLEDGED, .attempt = 1 });
    only(AGENT_ACT_REMOVE);
    step((struct agent_event){ .kind = AGENT_EV_REMOVED, .attempt = 1 });
    assert_null(agent_core_first(core));
}

static void a_crash_ends_the_other_ranks_by_term_and_two_seconds_later_by_kill(void **state) {
    (void)state;
    run(1, 2, false);
    exits(1, 0, -1, SIGSEGV);
    assert_int_equal(only(AGENT_ACT_TERM)->rank, 1);
    wait_ms(KILL_ESCALATION_MS - 1);
    assert_int_equal(count(AGENT_ACT_KILL), 0);
    wait_ms(1);
    assert_int_equal(only(AGENT_ACT_KILL)->rank, 1);
    exits(1, 1, -1, SIGKILL);
    assert_string_equal(message_of(1, 1), "did not end after another rank's death and was killed");
    assert_string_equal(message_of(1, 0), "killed by signal 11 (Segmentation fault)");
}

static void a_stop_gives_term_two_seconds_before_the_end_of_its_grace(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_STOP, .attempt = 1, .grace_ms = 10000, .text = "cancelled" });
    assert_string_equal(only(AGENT_ACT_ORDER_STOP)->text, "cancelled");
    assert_int_equal(only(AGENT_ACT_ORDER_STOP)->grace_ms, 10000);
    rank_event(AGENT_EV_STOP_STEP, 1, 0);
    assert_int_equal(only(AGENT_ACT_REPORT_STOP_STEP)->rank, 0);
    for (int i = 0; i < 9; i++) { /* it still trains */
        wait_ms(8000 / 9);
        rank_event(AGENT_EV_ALIVE, 1, 0);
        assert_int_equal(count(AGENT_ACT_TERM), 0);
    }
    wait_ms(8);
    only(AGENT_ACT_TERM);
    wait_ms(2000);
    only(AGENT_ACT_KILL);
}

static void a_second_stop_ends_sooner_and_never_later(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_STOP, .attempt = 1, .grace_ms = 20000, .text = "paused" });
    step((struct agent_event){ .kind = AGENT_EV_STOP, .attempt = 1, .grace_ms = 200, .text = "cancelled" });
    step((struct agent_event){ .kind = AGENT_EV_STOP, .attempt = 1, .grace_ms = 20000, .text = "paused" });
    wait_ms(200);
    only(AGENT_ACT_KILL);
}

static void a_silent_rank_is_killed_unless_the_spool_or_the_agent_is_to_blame(void **state) {
    (void)state;
    run(1, 1, false);
    wait_ms(HANG_MS - 1000);
    assert_int_equal(count(AGENT_ACT_KILL), 0);
    rank_event(AGENT_EV_ALIVE, 1, 0);
    step((struct agent_event){ .kind = AGENT_EV_SPOOL_WAIT, .attempt = 1, .flag = true });
    wait_ms(3 * HANG_MS);
    assert_int_equal(count(AGENT_ACT_KILL), 0);
    step((struct agent_event){ .kind = AGENT_EV_SPOOL_WAIT, .attempt = 1, .flag = false });
    now += 2 * HANG_MS; /* the agent itself was stopped */
    wait_ms(HANG_MS - 2000);
    assert_int_equal(count(AGENT_ACT_KILL), 0);
    wait_ms(4000);
    assert_string_equal(only(AGENT_ACT_KILL)->text, "gave no sign of life for 30 s and was killed");
}

static void a_rank_that_lives_without_progress_is_killed_later(void **state) {
    (void)state;
    int64_t waited_ms = 0;
    run(1, 1, false);
    do {
        step((struct agent_event){ .kind = AGENT_EV_ALIVE, .attempt = 1, .progress = 5 });
        wait_ms(1000);
        waited_ms += 1000;
    } while (count(AGENT_ACT_KILL) == 0 && waited_ms < 2 * HANG_MS);
    assert_in_range(waited_ms, HANG_MS + HANG_WAITING_MS, HANG_MS + HANG_WAITING_MS + 2000);
}

static void a_fenced_attempt_is_killed_and_its_records_are_dropped(void **state) {
    (void)state;
    run(1, 2, false);
    step((struct agent_event){ .kind = AGENT_EV_FENCED, .attempt = 1 });
    assert_int_equal(count(AGENT_ACT_KILL), 2);
    assert_int_equal(count(AGENT_ACT_DISCARD), 2);
}

static void a_start_that_does_not_fit_ends_with_the_reason(void **state) {
    (void)state;
    order(1, SLOTS + 1, false);
    assert_int_equal(count(AGENT_ACT_SPAWN), 0);
    assert_int_equal(count(AGENT_ACT_REPORT_ENDED), SLOTS + 1);
    only(AGENT_ACT_REPORT_ATTEMPT_ENDED);
    assert_string_equal(message_of(1, 0), "3 ranks were to start on a host of 2 slots");
    run(2, SLOTS, false);
    run(3, SLOTS, false);
    order(4, 1, false);
    assert_string_equal(message_of(4, 0), "4 workers still run on this host of 2 slots");
    order(5, 3, true);
    assert_string_equal(message_of(5, 0), "none of this host's 2 GPUs is free, 0 are quarantined");
    run(6, 2, true); /* the refused order has returned its slots */
}

static void a_start_of_more_ranks_than_a_job_may_have_is_refused(void **state) {
    (void)state;
    enum { MANY = 4 * LIMIT_WORLD_SIZE };
    static int32_t ranks[MANY];
    for (int i = 0; i < MANY; i++)
        ranks[i] = i;
    const struct agent_start start = { .world_size = MANY, .ranks = ranks, .n_ranks = MANY, .cuda = true };
    step((struct agent_event){ .kind = AGENT_EV_START, .attempt = 1, .start = &start });
    assert_int_equal(count(AGENT_ACT_SPAWN), 0);
    assert_int_equal(count(AGENT_ACT_REPORT_ENDED), LIMIT_WORLD_SIZE);
    only(AGENT_ACT_REPORT_ATTEMPT_ENDED);
    assert_string_equal(message_of(1, 0), "the start order has 4096 ranks, at most 1024 are allowed");
}

static void a_start_that_fails_half_way_kills_what_runs(void **state) {
    (void)state;
    order(1, 2, false);
    rank_event(AGENT_EV_SPAWNED, 1, 0);
    step((struct agent_event){ .kind = AGENT_EV_START_FAILED, .attempt = 1, .text = "no process left" });
    assert_int_equal(only(AGENT_ACT_KILL)->rank, 0);
    assert_int_equal(only(AGENT_ACT_REPORT_ENDED)->rank, 1);
    exits(1, 0, -1, SIGKILL);
    only(AGENT_ACT_REPORT_ATTEMPT_ENDED);
    assert_string_equal(message_of(1, 1), "no process left");
    assert_int_equal(agent_core_find_rank(core, JOB, 1, 1)->end.cause, EXIT_CAUSE(NOT_STARTED));
}

static void a_failed_rank_is_reported_once_its_gpu_was_inspected(void **state) {
    (void)state;
    run(1, 1, true);
    exits(1, 0, 28, 0);
    assert_int_equal(only(AGENT_ACT_INSPECT)->device, 0);
    assert_int_equal(count(AGENT_ACT_REPORT_ENDED), 0);
    step((struct agent_event){ .kind = AGENT_EV_DEVICE_UNHEALTHY, .device = 0, .text = "Xid 79" });
    only(AGENT_ACT_QUARANTINE);
    only(AGENT_ACT_REPORT_ENDED);
    assert_int_equal(agent_core_find_rank(core, JOB, 1, 0)->end.cause, EXIT_CAUSE(DEVICE_LOST));
    assert_string_equal(message_of(1, 0), "lost its GPU 4, which is quarantined: Xid 79");
    run(2, 1, true);
    assert_int_equal(agent_core_find_rank(core, JOB, 2, 0)->device, 1);
    exits(2, 0, 28, 0);
    wait_ms(1000); /* the driver does not answer */
    only(AGENT_ACT_REPORT_ENDED);
}

static void a_new_stream_gets_the_reports_that_its_hello_lacks(void **state) {
    (void)state;
    run(1, 2, false);
    rank_event(AGENT_EV_JOINED, 1, 1);
    const struct final_report final = { .received = true, .cause = EXIT_CAUSE(FINISHED) };
    step((struct agent_event){ .kind = AGENT_EV_FINAL_REPORT, .attempt = 1, .final = &final });
    step((struct agent_event){ .kind = AGENT_EV_EXITED, .attempt = 1, .status = { .exit_code = 0 }, .flag = false });
    only(AGENT_ACT_REPORT_ENDED); /* reported although a full spool still holds its records */
    step((struct agent_event){ .kind = AGENT_EV_ATTACHED });
    assert_int_equal(only(AGENT_ACT_REPORT_ENDED)->rank, 0);
    assert_int_equal(only(AGENT_ACT_REPORT_JOINED)->rank, 1);
    assert_int_equal(only(AGENT_ACT_REPORT_THREADS)->rank, 1);
}

static void the_final_report_behind_a_full_spool_is_waited_for(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_EXITED, .attempt = 1, .status = { .exit_code = 0 }, .flag = false });
    assert_int_equal(count(AGENT_ACT_REPORT_ENDED), 0);
    const struct final_report final = { .received = true, .cause = EXIT_CAUSE(FINISHED), .message = "all done" };
    step((struct agent_event){ .kind = AGENT_EV_FINAL_REPORT, .attempt = 1, .final = &final });
    step((struct agent_event){ .kind = AGENT_EV_EXITED, .attempt = 1, .status = { .exit_code = 0 }, .flag = true });
    only(AGENT_ACT_REPORT_ENDED);
    assert_string_equal(message_of(1, 0), "all done");
}

static void a_killed_rank_has_no_report_to_wait_for(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_EXITED, .attempt = 1, .status = { .signal = 9 }, .flag = false });
    only(AGENT_ACT_REPORT_ENDED);
}

static void an_agent_that_leaves_exits_when_its_ranks_have_ended_and_all_is_sent(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_LEAVE });
    only(AGENT_ACT_TERM);
    order(2, 1, false);
    assert_int_equal(agent_core_find_rank(core, JOB, 2, 0)->end.cause, EXIT_CAUSE(AGENT_LOST));
    exits(1, 0, -1, SIGTERM);
    assert_string_equal(message_of(1, 0), "stopped because its executor is stopping");
    now = agent_core_deadline_ms(core);
    step((struct agent_event){ .kind = AGENT_EV_TICK, .uploaded = false });
    assert_int_equal(actions.n, 0);
    now = agent_core_deadline_ms(core);
    step((struct agent_event){ .kind = AGENT_EV_TICK, .uploaded = true });
    only(AGENT_ACT_END_STREAM);
    assert_int_equal(count(AGENT_ACT_EXIT), 0);
    now = agent_core_deadline_ms(core);
    step((struct agent_event){ .kind = AGENT_EV_TICK, .uploaded = true, .stream_ended = true });
    only(AGENT_ACT_EXIT);
}

static void an_agent_that_leaves_does_not_wait_for_ever(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_LEAVE });
    wait_ms(6000);
    assert_true(count(AGENT_ACT_EXIT) > 0);
    assert_int_equal(count(AGENT_ACT_KILL), 1);
}

static void an_agent_that_drains_leaves_its_ranks_to_the_controller(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_DRAIN });
    wait_ms(6000);
    assert_int_equal(count(AGENT_ACT_TERM) + count(AGENT_ACT_KILL) + count(AGENT_ACT_EXIT), 0);
    order(2, 1, false);
    assert_int_equal(agent_core_find_rank(core, JOB, 2, 0)->end.cause, EXIT_CAUSE(AGENT_LOST));
    exits(1, 0, -1, SIGSEGV);
    assert_int_not_equal(agent_core_find_rank(core, JOB, 1, 0)->end.cause, EXIT_CAUSE(AGENT_LOST));
    now = agent_core_deadline_ms(core);
    step((struct agent_event){ .kind = AGENT_EV_TICK, .uploaded = true, .stream_ended = true });
    assert_int_equal(actions.n, 0);
    now = agent_core_deadline_ms(core);
    step((struct agent_event){ .kind = AGENT_EV_TICK, .uploaded = true });
    only(AGENT_ACT_END_STREAM);
    now = agent_core_deadline_ms(core);
    step((struct agent_event){ .kind = AGENT_EV_TICK, .uploaded = true, .stream_ended = true });
    only(AGENT_ACT_EXIT);
}

static void an_agent_that_drains_can_be_asked_to_leave(void **state) {
    (void)state;
    run(1, 1, false);
    step((struct agent_event){ .kind = AGENT_EV_DRAIN });
    step((struct agent_event){ .kind = AGENT_EV_LEAVE });
    only(AGENT_ACT_TERM);
    wait_ms(6000);
    assert_true(count(AGENT_ACT_EXIT) > 0);
}

static void an_earlier_agents_attempt_has_ended_with_it(void **state) {
    (void)state;
    struct agent_rank ranks[2] = { { .rank = 0, .pid = 5 }, { .rank = 1, .pid = 6, .has_end = true } };
    const struct agent_attempt known = { .job = JOB, .attempt = 3, .world_size = 2, .ranks = ranks, .n_ranks = 2 };
    ranks[1].end.cause = EXIT_CAUSE(FINISHED);
    agent_core_load(core, &known, 9);
    assert_true(agent_core_find(core, JOB, 3)->ended);
    assert_int_equal(agent_core_find_rank(core, JOB, 3, 0)->end.cause, EXIT_CAUSE(AGENT_LOST));
    assert_int_equal(agent_core_find_rank(core, JOB, 3, 1)->end.cause, EXIT_CAUSE(FINISHED));
}

static void a_rank_that_was_handed_over_continues_beside_one_that_has_ended(void **state) {
    (void)state;
    struct agent_rank ranks[2] = {
        { .rank = 0, .pid = 5, .state = AGENT_RANK_RUNS, .device = 1, .joined = true },
        { .rank = 1, .pid = 6, .has_end = true },
    };
    const struct agent_attempt known = {
        .job = JOB, .attempt = 3, .world_size = 2, .ranks = ranks, .n_ranks = 2, .threads = 2
    };
    agent_core_load(core, &known, 9);
    assert_false(agent_core_find(core, JOB, 3)->ended);
    assert_int_equal(agent_core_ranks_open(core), 1);
    const struct agent_attempt *at;
    assert_int_equal(agent_core_rank_on(core, 1, &at)->pid, 5);
    order(4, 2, true);
    only(AGENT_ACT_REPORT_ATTEMPT_ENDED); /* one of the two GPUs is in use */
    step((struct agent_event){ .kind = AGENT_EV_ATTACHED });
    only(AGENT_ACT_REPORT_JOINED);
    wait_ms(HANG_MS / 2);
    assert_int_equal(count(AGENT_ACT_KILL), 0);
    exits(3, 0, 0, 0);
    assert_true(agent_core_find(core, JOB, 3)->ended);
}

static void only_a_core_whose_ranks_just_run_is_quiet(void **state) {
    (void)state;
    assert_true(agent_core_is_quiet(core));
    run(1, 2, false);
    assert_true(agent_core_is_quiet(core));
    step((struct agent_event){ .kind = AGENT_EV_SPOOL_WAIT, .attempt = 1, .flag = true });
    assert_false(agent_core_is_quiet(core));
    step((struct agent_event){ .kind = AGENT_EV_SPOOL_WAIT, .attempt = 1, .flag = false });
    assert_true(agent_core_is_quiet(core));
    const struct final_report final = { .received = true, .cause = EXIT_CAUSE(FINISHED) };
    step((struct agent_event){ .kind = AGENT_EV_FINAL_REPORT, .attempt = 1, .final = &final });
    assert_false(agent_core_is_quiet(core));
    exits(1, 0, 0, 0);
    assert_true(agent_core_is_quiet(core)); /* rank 1 still runs */
    step((struct agent_event){ .kind = AGENT_EV_STOP, .attempt = 1, .grace_ms = 5000, .text = "stop" });
    assert_false(agent_core_is_quiet(core));
    exits(1, 1, 0, 0);
    assert_true(agent_core_is_quiet(core)); /* an ended attempt waits for its acknowledgement */
    step((struct agent_event){ .kind = AGENT_EV_LEAVE });
    assert_false(agent_core_is_quiet(core));
}

static void run_pinned(int32_t attempt, int max_threads) {
    static const int32_t ranks[] = { 0 };
    const struct agent_start start = {
        .world_size = 1, .ranks = ranks, .n_ranks = 1, .pinned = true, .max_threads = max_threads
    };
    step((struct agent_event){ .kind = AGENT_EV_START, .attempt = attempt, .start = &start });
}

static void assert_cpus(const struct cpu_mask *m, int first, int end) {
    for (int i = 0; i < 8; i++)
        assert_int_equal(cpu_mask_has(m, i), i >= first && i < end);
}

/* Two nodes of two cores. A rank alone has all of them, and half when another starts, on a node of its own. */
static void ranks_are_bound_to_their_cores_and_moved_when_others_start_and_end(void **state) {
    (void)state;
    run_pinned(1, 0);
    assert_cpus(&agent_core_find_rank(core, JOB, 1, 0)->cpus, 0, 4);
    step((struct agent_event){ .kind = AGENT_EV_SPAWNED, .attempt = 1, .rank = 0, .pid = 100 });
    run_pinned(2, 0);
    assert_int_equal(only(AGENT_ACT_ORDER_THREADS)->threads, 2);
    assert_cpus(&only(AGENT_ACT_ORDER_THREADS)->cpus, 0, 2);
    assert_cpus(&agent_core_find_rank(core, JOB, 2, 0)->cpus, 2, 4);
    step((struct agent_event){ .kind = AGENT_EV_SPAWNED, .attempt = 2, .rank = 0, .pid = 101 });
    exits(2, 0, 0, 0);
    assert_int_equal(count(AGENT_ACT_ORDER_THREADS), 0);
    wait_ms(1000);
    assert_int_equal(only(AGENT_ACT_ORDER_THREADS)->threads, 4);
    assert_cpus(&only(AGENT_ACT_ORDER_THREADS)->cpus, 0, 4);
}

static void a_rank_gets_no_more_cores_than_it_wants(void **state) {
    (void)state;
    run_pinned(1, 1);
    assert_int_equal(agent_core_find(core, JOB, 1)->threads, 1);
    run_pinned(2, 0);
    assert_int_equal(agent_core_find(core, JOB, 2)->threads, 3);
}

static int open_core(void **state) {
    (void)state;
    static const struct agent_device devices[] = { { .index = 4 }, { .index = 5 } };
    static const struct cpu cpus[] = { { 0, 0, 0 }, { 1, 1, 0 }, { 2, 2, 1 }, { 3, 3, 1 } };
    const struct agent_core_config config = { .slots = SLOTS,
                                              .cores = 4,
                                              .cpus = cpus,
                                              .n_cpus = 4,
                                              .threads_per_rank = 2,
                                              .hang_ms = HANG_MS,
                                              .n_devices = 2,
                                              .devices = devices };
    now = 1;
    core = agent_core_new(&config, now);
    return 0;
}

static int close_core(void **state) {
    (void)state;
    core = agent_core_free(core);
    agent_actions_done(&actions);
    return 0;
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, open_core, close_core)

int main(void) {
    const struct CMUnitTest tests[] = {
        TEST(an_attempt_ends_with_its_last_rank_and_is_removed_when_acknowledged),
        TEST(a_crash_ends_the_other_ranks_by_term_and_two_seconds_later_by_kill),
        TEST(a_stop_gives_term_two_seconds_before_the_end_of_its_grace),
        TEST(a_second_stop_ends_sooner_and_never_later),
        TEST(a_silent_rank_is_killed_unless_the_spool_or_the_agent_is_to_blame),
        TEST(a_rank_that_lives_without_progress_is_killed_later),
        TEST(a_fenced_attempt_is_killed_and_its_records_are_dropped),
        TEST(a_start_that_does_not_fit_ends_with_the_reason),
        TEST(a_start_of_more_ranks_than_a_job_may_have_is_refused),
        TEST(a_start_that_fails_half_way_kills_what_runs),
        TEST(a_failed_rank_is_reported_once_its_gpu_was_inspected),
        TEST(ranks_are_bound_to_their_cores_and_moved_when_others_start_and_end),
        TEST(a_rank_gets_no_more_cores_than_it_wants),
        TEST(a_new_stream_gets_the_reports_that_its_hello_lacks),
        TEST(the_final_report_behind_a_full_spool_is_waited_for),
        TEST(a_killed_rank_has_no_report_to_wait_for),
        TEST(an_agent_that_leaves_exits_when_its_ranks_have_ended_and_all_is_sent),
        TEST(an_agent_that_leaves_does_not_wait_for_ever),
        TEST(an_agent_that_drains_leaves_its_ranks_to_the_controller),
        TEST(an_agent_that_drains_can_be_asked_to_leave),
        TEST(an_earlier_agents_attempt_has_ended_with_it),
        TEST(a_rank_that_was_handed_over_continues_beside_one_that_has_ended),
        TEST(only_a_core_whose_ranks_just_run_is_quiet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
