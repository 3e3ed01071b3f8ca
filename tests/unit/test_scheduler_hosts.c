/* Failures that a host may have caused: the job moves to another host, and the restart is not counted. If there is no
 * other host, the job ends with a list of what each host lacked. The scheduler waits for checkpoints that cannot be
 * read. */
#include "service/scheduler/explain.h"
#include "tests/unit/scheduler_bench.h"

static const char MISSING[] = "data.text.files[0]: open '/data/a': No such file or directory";
static const char AWAY[] = "open the checkpoint '/c/1/attempt-1/step-9': No such file or directory";

/* Ends the job's only rank on the host. Returns with the resulting actions. */
static void fail_on(struct bench *b, const char *host, int64_t job, int attempt, enum rank_end_cause cause,
                    const char *why) {
    struct scheduler_actions before = { 0 };
    end_part(b, host, job, attempt, 0, cause, why);
    before = b->out;
    b->out = (struct scheduler_actions){ 0 };
    store(b, job, attempt, 0);
    assert_true(before.n > 0);
    scheduler_actions_done(&before);
}

static const char *placed_on(struct bench *b, int64_t job, int attempt) {
    const struct scheduler_action *a = find(b, ACT_ATTEMPT_CREATE);
    assert_non_null(a);
    assert_int_equal(a->job, job);
    assert_int_equal(a->attempt, attempt);
    return a->placement[0];
}

static void a_host_fault_is_retried_elsewhere_at_once_and_does_not_count(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    attach(b, "b", 1, 1, NULL);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    const struct scheduler_action *fault = find(b, ACT_HOST_FAULT);
    assert_string_equal(fault->executor, "a");
    assert_int_equal(fault->blamed, RANK_END_HOST_FAULT);
    assert_string_equal(fault->text, MISSING);
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
    assert_null(find(b, ACT_CHECKPOINT_CORRUPT));
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_string_equal(placed_on(b, 1, 2), "b");
}

static void with_one_host_it_fails_at_once_with_the_workers_sentence(void **state) {
    struct bench *b = *state;
    char want[200];
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 9);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    snprintf(want, sizeof want, "rank 0: %s", MISSING);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED);
    assert_string_equal(find(b, ACT_JOB_STATE)->text, want);
    assert_int_equal(find(b, ACT_JOB_STATE)->restarts, 0);
}

static void when_no_host_is_left_each_one_is_named_with_what_it_lacked(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 9);
    attach(b, "b", 1, 1, NULL);
    attach(b, "c", 1, 1, NULL);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    every_tick_for(b, SCHEDULER_TICK_MS);
    const char *second = placed_on(b, 1, 2)[0] == 'b' ? "b" : "c", *third = *second == 'b' ? "c" : "b";
    fail_on(b, second, 1, 2, RANK_END_HOST_FAULT, "'/data/a' is outside of the folders");
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_string_equal(placed_on(b, 1, 3), third);
    fail_on(b, third, 1, 3, RANK_END_HOST_FAULT, MISSING);
    const struct scheduler_action *end = find(b, ACT_JOB_STATE);
    char want[400];
    snprintf(want, sizeof want, "no executor can run it: a, %s: %s; %s: '/data/a' is outside of the folders", third,
             MISSING, second);
    assert_int_equal(end->to, JOB_STATE_FAILED);
    assert_string_equal(end->text, want);
}

static void eight_hosts_that_lack_it_end_the_job_in_a_sentence_that_fits(void **state) {
    struct bench *b = *state;
    char name[32], why[200];
    for (int i = 0; i < 20; i++) {
        snprintf(name, sizeof name, "host-%02d", i);
        attach(b, name, 1, 1, NULL);
    }
    submit(b, 1, 0, 1, 9);
    for (int attempt = 1;; attempt++) {
        char host[32];
        snprintf(host, sizeof host, "%s", placed_on(b, 1, attempt));
        snprintf(why, sizeof why, "on %s: %s", host, MISSING);
        fail_on(b, host, 1, attempt, RANK_END_HOST_FAULT, why);
        const struct scheduler_action *end = find(b, ACT_JOB_STATE);
        if (end && end->to == JOB_STATE_FAILED) {
            assert_int_equal(attempt, SCHEDULER_MAX_AVOIDED);
            for (int i = 0; i < SCHEDULER_MAX_AVOIDED; i++) {
                snprintf(name, sizeof name, "host-%02d: on ", i);
                assert_non_null(strstr(end->text, name));
            }
            return;
        }
        every_tick_for(b, SCHEDULER_TICK_MS);
    }
}

static void a_busy_host_is_waited_for_and_a_lost_one_is_not(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 9); /* on a */
    attach(b, "b", 1, 1, NULL);
    submit(b, 2, 0, 1, 9); /* on b */
    run_one(b, 2, 1);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    assert_null(find(b, ACT_JOB_STATE)); /* it has been RESTARTING since the rank's end */
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    assert_non_null(strstr(find(b, ACT_WAITING)->text, "executor a: data.text.files[0]"));
    struct scheduler_explanation x;
    scheduler_explain(b->s, 1, b->now, &x);
    assert_int_equal(x.reasons[0].kind, SCHEDULER_WAIT_AVOIDED);
    assert_non_null(strstr(x.reasons[0].message, "1 cpu slot is on executors that have failed it, executor a among"));
    assert_string_equal(x.reasons[0].remedy, "give executor a what it lacks; the job avoids it for another 600 s");
    assert_int_equal(x.hosts[1].availability, SCHEDULER_HOST_AVOIDED);
    assert_string_equal(x.hosts[1].reason, MISSING);
    tell(b, (struct scheduler_event){ .kind = EV_COMMITTED, .job = 2, .attempt = 1, .step = 9, .final = true });
    end_part(b, "b", 2, 1, 0, RANK_END_FINISHED, "");
    assert_string_equal(placed_on(b, 1, 2), "b");
}

static void a_host_is_tried_again_after_the_time_that_it_is_avoided(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 9);
    attach(b, "b", 1, 1, NULL);
    submit(b, 2, 0, 1, 9);
    run_one(b, 2, 1);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    const int64_t from = b->now;
    while (!find(b, ACT_ATTEMPT_CREATE)) {
        b->now += SCHEDULER_TICK_MS;
        assert_true(b->now <= from + SCHEDULER_AVOID_MS);
        for (int i = 0; i < 2; i++)
            tell(b, (struct scheduler_event){
                        .kind = EV_EXECUTOR_SEEN, .executor = i ? "a" : "b", .last_seen_ms = b->now });
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    assert_int_equal(b->now, from + SCHEDULER_AVOID_MS);
    assert_string_equal(placed_on(b, 1, 2), "a");
}

static void one_host_without_the_data_costs_eight_jobs_nothing(void **state) {
    struct bench *b = *state;
    int succeeded = 0, attempts = 0, attempt_of[9] = { 0 };
    char host_of[9][SCHEDULER_EXECUTOR_ID_BYTES] = { "" };
    attach(b, "bad", 1, 1, NULL);
    attach(b, "good", 1, 1, NULL);
    for (int job = 1; job <= 8; job++) {
        submit(b, job, 0, 1, 0);
        for (const struct scheduler_action *a = find(b, ACT_ATTEMPT_CREATE); a; a = NULL) {
            attempt_of[a->job] = a->attempt;
            snprintf(host_of[a->job], sizeof *host_of, "%s", a->placement[0]);
        }
    }
    for (int round = 0; round < 100 && succeeded < 8; round++) {
        for (int job = 1; job <= 8; job++) {
            if (!*host_of[job])
                continue;
            const bool good = strcmp(host_of[job], "good") == 0;
            const int attempt = attempt_of[job];
            char host[SCHEDULER_EXECUTOR_ID_BYTES];
            memcpy(host, host_of[job], sizeof host);
            *host_of[job] = '\0';
            attempts++;
            if (good) {
                run_one(b, job, attempt);
                tell(b, (struct scheduler_event){
                            .kind = EV_COMMITTED, .job = job, .attempt = attempt, .step = 9, .final = true });
            }
            end_part(b, host, job, attempt, 0, good ? RANK_END_FINISHED : RANK_END_HOST_FAULT, good ? "" : MISSING);
            for (int told = 0; told < 3; told++) { /* the end, its records, a tick */
                for (size_t i = 0; i < b->out.n; i++) {
                    const struct scheduler_action *a = &b->out.items[i];
                    assert_false(a->kind == ACT_JOB_STATE && a->to == JOB_STATE_FAILED);
                    succeeded += a->kind == ACT_JOB_STATE && a->to == JOB_STATE_SUCCEEDED;
                    if (a->kind == ACT_JOB_STATE || a->kind == ACT_ATTEMPT_END)
                        assert_int_equal(a->restarts, 0);
                    if (a->kind != ACT_ATTEMPT_CREATE)
                        continue;
                    attempt_of[a->job] = a->attempt;
                    snprintf(host_of[a->job], sizeof *host_of, "%s", a->placement[0]);
                }
                if (told == 0)
                    store(b, job, attempt, 0);
                b->now += told == 1 ? SCHEDULER_TICK_MS : 0;
                if (told == 1)
                    tell(b, (struct scheduler_event){ .kind = EV_TICK });
            }
        }
    }
    assert_int_equal(succeeded, 8);
    assert_in_range(attempts, 9, 16); /* each was on the bad host once, at the most */
}

static void a_job_that_avoids_a_host_does_not_keep_it_from_those_behind(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 9);
    attach(b, "b", 1, 1, NULL);
    submit(b, 2, 0, 1, 9);
    run_one(b, 2, 1);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    every_tick_for(b, SCHEDULER_TICK_MS); /* job 1 waits for b */
    submit(b, 3, 0, 1, 9);
    assert_string_equal(placed_on(b, 3, 1), "a");
    submit(b, 4, 0, 1, 9);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    end_part(b, "b", 2, 1, 0, RANK_END_NUMERIC, "nan"); /* nor do they overtake it elsewhere */
    assert_string_equal(placed_on(b, 1, 2), "b");
}

static void a_host_that_has_failed_a_job_gets_the_next_ones_last(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 4, NULL);
    submit(b, 1, 0, 1, 9); /* on a */
    attach(b, "b", 1, 8, NULL);
    fail_on(b, "a", 1, 1, RANK_END_HOST_FAULT, MISSING);
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_string_equal(placed_on(b, 1, 2), "b");
    submit(b, 2, 0, 1, 9); /* a has the fewest free slots, and would be filled first */
    assert_string_equal(placed_on(b, 2, 1), "b");
    submit(b, 3, 0, 10, 9); /* which takes both */
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->world_size, 10);
}

static void a_gang_avoids_the_host_of_the_rank_that_blames_it(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
    attach(b, "c", 1, 1, NULL);
    end_part(b, "a", 1, 1, 0, RANK_END_PEER_LOST, "rank 1 went away");
    end_part(b, "b", 1, 1, 1, RANK_END_HOST_FAULT, MISSING);
    store(b, 1, 1, 0);
    store(b, 1, 1, 1);
    assert_string_equal(find(b, ACT_HOST_FAULT)->executor, "b");
    every_tick_for(b, SCHEDULER_TICK_MS);
    const struct scheduler_action *a = find(b, ACT_ATTEMPT_CREATE);
    assert_int_equal(a->attempt, 2);
    for (int r = 0; r < 2; r++)
        assert_string_not_equal(a->placement[r], "b");
}

static void a_full_disk_counts_only_where_there_is_no_other_host(void **state) {
    struct bench *b = *state;
    static const char full[] = "write '/c/rank-0.safetensors': No space left on device";
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 1);
    attach(b, "b", 1, 1, NULL);
    fail_on(b, "a", 1, 1, RANK_END_CHECKPOINT_WRITE, full);
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_string_equal(placed_on(b, 1, 2), "b");
    fail_on(b, "b", 1, 2, RANK_END_CHECKPOINT_WRITE, full); /* both may have room again */
    assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 1);
    every_tick_for(b, 1000);
    char host[8];
    snprintf(host, sizeof host, "%s", placed_on(b, 1, 3));
    fail_on(b, host, 1, 3, RANK_END_CHECKPOINT_WRITE, full);
    every_tick_for(b, 1000);
    snprintf(host, sizeof host, "%s", placed_on(b, 1, 4));
    fail_on(b, host, 1, 4, RANK_END_CHECKPOINT_WRITE, full);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED);
    assert_non_null(strstr(find(b, ACT_JOB_STATE)->text, "No space left on device (after 1 of 1 restarts)"));
}

/* Fails each attempt until the scheduler does something other than create the next one. Returns the number of attempts.
 */
static int fail_until(struct bench *b, enum scheduler_action_kind kind, int attempt) {
    const int first = attempt;
    for (;; attempt++) {
        for (int64_t limit = b->now + 120000; !find(b, ACT_ATTEMPT_CREATE) && b->now < limit;) {
            b->now += SCHEDULER_TICK_MS;
            for (int i = 0; i < 2; i++)
                tell(b, (struct scheduler_event){
                            .kind = EV_EXECUTOR_SEEN, .executor = i ? "a" : "b", .last_seen_ms = b->now });
            tell(b, (struct scheduler_event){ .kind = EV_TICK });
        }
        char host[SCHEDULER_EXECUTOR_ID_BYTES];
        snprintf(host, sizeof host, "%s", placed_on(b, 1, attempt));
        fail_on(b, host, 1, attempt, RANK_END_CHECKPOINT_UNREADABLE, AWAY);
        assert_int_equal(find(b, ACT_ATTEMPT_END)->restarts, 0);
        assert_null(find(b, ACT_CHECKPOINT_CORRUPT));
        const struct scheduler_action *end = find(b, ACT_JOB_STATE);
        assert_false(end && end->to == JOB_STATE_FAILED);
        if (find(b, kind))
            return attempt - first + 1;
    }
}

static void a_checkpoint_that_cannot_be_read_is_waited_for_until_the_limit(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    const int64_t from = b->now;
    const int attempts = fail_until(b, ACT_CHECKPOINT_MISSING, 1);
    assert_in_range(b->now - from, SCHEDULER_CHECKPOINT_WAIT_MS, SCHEDULER_CHECKPOINT_WAIT_MS + 31000);
    assert_in_range(attempts, 5, 40);
    assert_string_equal(find(b, ACT_CHECKPOINT_MISSING)->text, AWAY);
    const int64_t again = b->now; /* the older one has as long */
    fail_until(b, ACT_CHECKPOINT_MISSING, attempts + 1);
    assert_true(b->now - again >= SCHEDULER_CHECKPOINT_WAIT_MS);
}

static void a_second_host_that_cannot_read_it_shortens_the_wait(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    attach(b, "b", 1, 1, NULL);
    const int64_t from = b->now;
    fail_on(b, "a", 1, 1, RANK_END_CHECKPOINT_UNREADABLE, AWAY);
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_string_equal(placed_on(b, 1, 2), "b"); /* at once, with the same checkpoint */
    fail_until(b, ACT_CHECKPOINT_MISSING, 2);
    const int64_t limit = SCHEDULER_CHECKPOINT_WAIT_MS / SCHEDULER_CONFIRMED_DIVISOR;
    assert_in_range(b->now - from, limit, limit + 31000);
}

static void a_checkpoint_that_is_read_in_time_is_forgiven(void **state) {
    struct bench *b = *state;
    struct scheduler_explanation x;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    fail_on(b, "a", 1, 1, RANK_END_CHECKPOINT_UNREADABLE, AWAY);
    scheduler_explain(b->s, 1, b->now, &x);
    assert_int_equal(x.reasons[0].kind, SCHEDULER_WAIT_CHECKPOINT);
    assert_non_null(strstr(x.reasons[0].message, "on executor a: open the checkpoint"));
    assert_string_equal(x.reasons[0].remedy,
                        "restore its files; after 600 s in all it becomes MISSING, and an older one is used");
    every_tick_for(b, 1000);
    assert_string_equal(placed_on(b, 1, 2), "a");
    run_one(b, 1, 2);
    b->now += SCHEDULER_CHECKPOINT_WAIT_MS;
    fail_on(b, "a", 1, 2, RANK_END_CHECKPOINT_UNREADABLE, AWAY); /* another time: its own limit */
    assert_null(find(b, ACT_CHECKPOINT_MISSING));
}

static void a_new_leader_knows_the_hosts_and_since_when(void **state) {
    struct bench *b = *state;
    const struct scheduler_avoided avoided = {
        .executor = "a", .cause = RANK_END_HOST_FAULT, .left_ms = 5000, .why = MISSING
    };
    load_executor(b, "a", true, NULL);
    load_executor(b, "b", true, NULL);
    load_row(b, &(struct scheduler_job_row){ .job = 1,
                                             .state = JOB_STATE_RESTARTING,
                                             .world_size = 1,
                                             .attempt = 1,
                                             .n_avoided = 1,
                                             .avoided = &avoided,
                                             .unreadable_ms = SCHEDULER_CHECKPOINT_WAIT_MS });
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    every_tick_for(b, SCHEDULER_TICK_MS);
    assert_string_equal(placed_on(b, 1, 2), "b");
    fail_on(b, "b", 1, 2, RANK_END_CHECKPOINT_UNREADABLE, AWAY);
    assert_non_null(find(b, ACT_CHECKPOINT_MISSING));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_host_fault_is_retried_elsewhere_at_once_and_does_not_count),
        ON_BENCH(with_one_host_it_fails_at_once_with_the_workers_sentence),
        ON_BENCH(when_no_host_is_left_each_one_is_named_with_what_it_lacked),
        ON_BENCH(eight_hosts_that_lack_it_end_the_job_in_a_sentence_that_fits),
        ON_BENCH(a_busy_host_is_waited_for_and_a_lost_one_is_not),
        ON_BENCH(a_host_is_tried_again_after_the_time_that_it_is_avoided),
        ON_BENCH(one_host_without_the_data_costs_eight_jobs_nothing),
        ON_BENCH(a_job_that_avoids_a_host_does_not_keep_it_from_those_behind),
        ON_BENCH(a_host_that_has_failed_a_job_gets_the_next_ones_last),
        ON_BENCH(a_gang_avoids_the_host_of_the_rank_that_blames_it),
        ON_BENCH(a_full_disk_counts_only_where_there_is_no_other_host),
        ON_BENCH(a_checkpoint_that_cannot_be_read_is_waited_for_until_the_limit),
        ON_BENCH(a_second_host_that_cannot_read_it_shortens_the_wait),
        ON_BENCH(a_checkpoint_that_is_read_in_time_is_forgiven),
        ON_BENCH(a_new_leader_knows_the_hosts_and_since_when),
    };
    return cmocka_run_group_tests_name("scheduler hosts", tests, NULL, NULL);
}
