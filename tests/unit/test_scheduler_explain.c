/* The scheduler's explanation of a waiting job, compared with its decisions about the job. */
#include "service/scheduler/explain.h"
#include "tests/unit/scheduler_bench.h"

#include <stdlib.h>

static const struct scheduler_explanation *explain(const struct bench *b, int64_t job) {
    static struct scheduler_explanation x;
    scheduler_explain(b->s, job, b->now, &x);
    return &x;
}

static const struct scheduler_reason *reason(const struct scheduler_explanation *x, enum scheduler_wait kind) {
    for (int i = 0; i < x->n_reasons; i++)
        if (x->reasons[i].kind == kind)
            return &x->reasons[i];
    return NULL;
}

static void submit_cuda(struct bench *b, int64_t job, int world_size) {
    struct scheduler_job_row row = {
        .job = job, .state = JOB_STATE_QUEUED, .world_size = world_size, .slot = SCHEDULER_SLOT_CUDA
    };
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

static void attach_cuda(struct bench *b, const char *id, int healthy, int quarantined, bool single_rank) {
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = id };
    ev.attach.incarnation = 1;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = 4;
    ev.attach.slots[SCHEDULER_SLOT_CUDA] = healthy;
    ev.attach.quarantined = quarantined;
    ev.attach.single_rank = single_rank;
    tell(b, ev);
}

static void cancel(struct bench *b, int64_t job) {
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = job });
}

static void a_job_that_it_does_not_know_is_not_live(void **state) {
    struct bench *b = *state;
    assert_false(explain(b, 1)->live);
    submit(b, 1, 0, 1, 0);
    assert_true(explain(b, 1)->live);
    cancel(b, 1);
    assert_false(explain(b, 1)->live);
}

static void without_an_executor_the_jobs_reason_and_the_first_one_here_are_the_same_sentence(void **state) {
    struct bench *b = *state;
    submit(b, 1, 0, 2, 0);
    const struct scheduler_action *told = find(b, ACT_WAITING);
    assert_string_equal(told->text, "needs 2 cpu slots, and no executor is attached");
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_NO_EXECUTOR);
    assert_string_equal(x->reasons[0].message, told->text);
    assert_string_equal(x->reasons[0].remedy,
                        "start trainyard-executor on a host with 2 cpu slots or more, or on several");
    assert_string_equal(x->summary, "waits for 2 cpu slots, more than executors offer it");
    submit(b, 2, 9, 1, 0);
    assert_string_equal(explain(b, 1)->summary, "waits for 2 cpu slots, more than executors offer it");
}

static void a_gang_wider_than_all_executors_names_the_missing_slots_and_blocks_no_job(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    submit(b, 1, 0, 3, 0);
    char told[400];
    snprintf(told, sizeof told, "%s", find(b, ACT_WAITING)->text);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_TOO_WIDE);
    assert_string_equal(x->reasons[0].message, told);
    assert_string_equal(x->reasons[0].remedy, "attach executors with 1 more cpu slot (trainyard-executor --slots), or "
                                              "submit it again with fewer ranks (parallel)");
    submit(b, 2, 0, 2, 0);
    submit(b, 3, 0, 1, 0);
    x = explain(b, 3);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BUSY);
    assert_int_equal(x->position, 1);
    assert_int_equal(x->waiting, 2);
    assert_string_equal(x->summary, "waits for 1 cpu slot, as number 1 of 2 waiting jobs");
    attach(b, "b", 1, 1, NULL);
    x = explain(b, 3); /* with the new slot the wide one has a turn */
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ORDER);
    assert_int_equal(x->position, 2);
    x = explain(b, 1);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BUSY);
    assert_string_equal(x->reasons[0].remedy, "2 more must become free: job 2 has 2");
}

static void a_job_behind_a_wide_one_waits_despite_free_slots_and_has_that_reason(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 4, NULL);
    submit(b, 1, 0, 2, 0);
    submit(b, 2, 3, 4, 0);
    submit(b, 3, 0, 1, 0);
    submit(b, 4, 0, 1, 0);
    const struct scheduler_explanation *x = explain(b, 3);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ORDER);
    assert_string_equal(x->reasons[0].message, "waits behind job 2 (priority 3), which needs 4 cpu slots, 2 of 4 are "
                                               "free; cpu jobs start strictly in order, without backfill");
    assert_string_equal(x->reasons[0].remedy, "its turn comes when job 2 has started or is cancelled");
    assert_int_equal(x->position, 2);
    assert_int_equal(x->waiting, 3);
    assert_int_equal(x->free, 2);
    x = explain(b, 4);
    assert_string_equal(x->reasons[0].remedy,
                        "its turn comes when the 2 jobs before it, job 2 first, have started or are cancelled");
    cancel(b, 2);
    assert_false(explain(b, 2)->live);
    assert_int_equal(explain(b, 3)->state, JOB_STATE_STARTING);
}

static void order_comes_before_room_where_both_are_missing_and_other_kinds_are_not_in_the_way(void **state) {
    struct bench *b = *state;
    attach_cuda(b, "a", 1, 0, false);
    submit(b, 1, 0, 4, 0);
    submit(b, 2, 0, 4, 0);
    submit(b, 3, 0, 1, 0);
    submit_cuda(b, 4, 1);
    assert_int_equal(explain(b, 4)->state, JOB_STATE_STARTING);
    submit_cuda(b, 5, 1);
    const struct scheduler_explanation *x = explain(b, 3);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ORDER);
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_BUSY);
    x = explain(b, 5);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BUSY);
    assert_int_equal(x->position, 1);
    assert_int_equal(x->n_holders, 1);
    assert_int_equal(x->holders[0].job, 4);
}

static void holders_and_hosts_are_listed_by_their_weight_and_not_without_end(void **state) {
    struct bench *b = *state;
    char id[8];
    for (int i = 0; i < 20; i++) {
        snprintf(id, sizeof id, "x%d", i);
        attach(b, id, 1, 2, NULL);
        submit(b, i + 1, 0, 1, 0);
    }
    submit(b, 21, 0, 3, 0);
    submit(b, 50, 0, 40, 0);
    const struct scheduler_explanation *x = explain(b, 50);
    assert_int_equal(x->n_holders, SCHEDULER_LISTED);
    assert_int_equal(x->more_holders, 5);
    assert_int_equal(x->holders[0].job, 21);
    assert_int_equal(x->holders[0].slots, 3);
    for (int i = 1; i < x->n_holders; i++)
        assert_int_equal(x->holders[i].job, i);
    assert_int_equal(x->n_hosts, SCHEDULER_LISTED);
    assert_int_equal(x->more_hosts, 4);
    for (int i = 1; i < x->n_hosts; i++)
        assert_true(
            x->hosts[i - 1].availability < x->hosts[i].availability ||
            (x->hosts[i - 1].availability == x->hosts[i].availability && x->hosts[i - 1].free >= x->hosts[i].free));
    assert_string_equal(reason(x, SCHEDULER_WAIT_BUSY)->remedy,
                        "23 more must become free: job 21 has 3, job 1 has 1, job 2 has 1, and so have 18 more jobs");
}

static void a_job_for_gpus_on_hosts_without_says_so_of_each_host(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 8, NULL);
    submit_cuda(b, 1, 2);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_NO_SLOTS);
    assert_string_equal(
        x->reasons[0].remedy,
        "attach executors with 2 more CUDA devices, or submit it again with resources.accelerator: cpu");
    assert_int_equal(x->n_hosts, 1);
    assert_int_equal(x->hosts[0].availability, SCHEDULER_HOST_WITHOUT);
}

static void quarantined_devices_and_hosts_that_take_no_gangs_are_reasons_of_their_own(void **state) {
    struct bench *b = *state;
    attach_cuda(b, "a", 1, 1, false);
    attach_cuda(b, "b", 3, 0, true);
    submit_cuda(b, 1, 2);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 3);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_TOO_WIDE);
    assert_string_equal(reason(x, SCHEDULER_WAIT_QUARANTINED)->message,
                        "1 CUDA device of attached executors is quarantined");
    assert_string_equal(
        reason(x, SCHEDULER_WAIT_SINGLE_RANK)->message,
        "3 cuda slots are on executors that take only jobs with one rank, because their ranks cannot communicate");
    assert_int_equal(x->hosts[0].availability, SCHEDULER_HOST_TAKES);
    assert_int_equal(x->hosts[1].availability, SCHEDULER_HOST_SINGLE_RANK);
    assert_int_equal(x->hosts[0].quarantined, 1);
    submit_cuda(b, 2, 1);
    assert_int_equal(explain(b, 2)->state, JOB_STATE_STARTING);
}

static void slots_on_a_host_that_still_ends_an_old_attempt_are_counted_as_fenced(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, &(struct scheduler_part_report){ .job = 7, .attempt = 3 });
    submit(b, 8, 0, 1, 0);
    const struct scheduler_explanation *x = explain(b, 8);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BUSY);
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_FENCED);
    assert_string_equal(x->reasons[1].message,
                        "2 more slots are fenced: attempt 3 of job 7 may still run on executor a");
    assert_int_equal(x->hosts[0].availability, SCHEDULER_HOST_FENCED);
    tell(b, (struct scheduler_event){ .kind = EV_PART_ENDED, .executor = "a", .job = 7, .attempt = 3 });
    assert_int_equal(explain(b, 8)->state, JOB_STATE_STARTING);
}

static void executors_that_have_not_come_back_are_named_until_their_lease_is_over(void **state) {
    struct bench *b = *state;
    load_executor(b, "a", true, NULL);
    submit(b, 1, 0, 1, 0);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_NO_EXECUTOR);
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_DETACHED);
    assert_string_equal(x->reasons[1].message, "executor a has not attached since this controller leads");
    every_tick_for(b, LEASE_TTL_MS + 1000);
    assert_null(reason(explain(b, 1), SCHEDULER_WAIT_DETACHED));
}

static void an_executor_that_is_lost_is_not_listed_though_a_gang_still_names_it(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
    submit(b, 2, 0, 1, 0);
    assert_int_equal(explain(b, 2)->n_hosts, 2);
    while (explain(b, 1)->state == JOB_STATE_STARTING) { /* a is heard, b is not */
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "a", .last_seen_ms = b->now });
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    const struct scheduler_explanation *x = explain(b, 2);
    assert_int_equal(x->n_hosts, 1);
    assert_string_equal(x->hosts[0].id, "a");
    assert_int_equal(x->holders[0].job, 1);
    assert_int_equal(x->holders[0].slots, 1);
    x = explain(b, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ENDING);
    assert_string_equal(x->reasons[0].message, "attempt 1 has not ended on 1 of 2 executors: a");
}

static void a_drained_executor_is_a_reason_and_says_why(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 2, NULL);
    tell(b, (struct scheduler_event){
                .kind = EV_EXECUTOR_DRAIN, .executor = "a", .drain = { .drained = true, .reason = "new disk" } });
    submit(b, 1, 0, 1, 0);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_NO_SLOTS);
    assert_string_equal(
        x->reasons[0].remedy,
        "take drained executors into use again (trainyard undrain), or attach others with 1 more cpu slot");
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_DRAINED);
    assert_string_equal(x->reasons[1].remedy, "trainyard undrain a");
    assert_int_equal(x->hosts[0].availability, SCHEDULER_HOST_DRAINED);
    assert_string_equal(x->hosts[0].reason, "new disk");
    submit(b, 2, 0, 3, 0); /* what is drained would not do */
    assert_non_null(strstr(explain(b, 2)->reasons[0].remedy, "attach executors with 3 more cpu slots"));
}

static void slots_in_use_on_a_drained_executor_are_no_reason_to_give_it_back(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    attach(b, "b", 1, 1, NULL);
    submit(b, 2, 0, 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = "a", .drain = { .drained = true } });
    submit(b, 3, 0, 1, 0);
    const struct scheduler_explanation *x = explain(b, 3);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BUSY);
    cancel(b, 3);
    attach(b, "c", 1, 1, NULL);
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = "c", .drain = { .drained = true } });
    submit(b, 4, 0, 1, 0);
    x = explain(b, 4);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_DRAINED);
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_BUSY);
}

static void backoff_is_first_and_then_what_it_would_find_now(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 5);
    run_one(b, 1, 1);
    end_part(b, "a", 1, 1, 0, RANK_END_INTERNAL, "broke");
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_RESTARTING);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ENDING);
    assert_string_equal(x->reasons[0].message, "the last records of rank 0 of attempt 1 are not stored yet");
    store(b, 1, 1, 0);
    x = explain(b, 1);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BACKOFF);
    assert_true(x->next_attempt_ms > b->now);
    assert_string_equal(x->reasons[0].message,
                        "attempt 2 begins in 1 s, after 1 attempt in a row that made no checkpoint");
    assert_string_equal(x->reasons[0].remedy, "none is needed: it begins then; 1 of 5 restarts are used");
    assert_int_equal(x->waiting, 1);
    submit(b, 2, 0, 1, 0); /* takes the slot */
    x = explain(b, 1);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BACKOFF);
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_BUSY);
    assert_int_equal(x->holders[0].job, 2);
    every_tick_for(b, 1000);
    x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_QUEUED);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_BUSY);
}

static void an_attempt_that_starts_names_the_rank_that_is_missing_and_one_that_runs_gives_no_reason(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    attach(b, "b", 1, 1, NULL);
    submit(b, 1, 0, 2, 0);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_GATHERING);
    assert_string_equal(x->reasons[0].message,
                        "2 of 2 ranks have not joined; the first of them, rank 0 on executor a, has no process yet");
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = 1, .attempt = 1 });
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1 });
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STARTED, .job = 1, .attempt = 1, .rank = 1 });
    assert_string_equal(explain(b, 1)->reasons[0].message,
                        "1 of 2 ranks has not joined: rank 1 on executor b has a process, which loads its data");
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = 1, .attempt = 1, .rank = 1 });
    x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_RUNNING);
    assert_int_equal(x->n_reasons, 0);
    assert_string_equal(x->summary, "attempt 1 runs: 2 ranks on 2 executors");
    cancel(b, 1);
    x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_CANCELLING);
    assert_string_equal(x->reasons[0].message, "attempt 1 has not ended on 2 of 2 executors: a and others");
}

static void a_paused_job_names_its_remedy_and_blocks_no_job(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 9, 0, 1, 0);
    submit(b, 1, 5, 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_PAUSE, .job = 1 });
    submit(b, 2, 0, 1, 0);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_PAUSED);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_PAUSED);
    assert_non_null(strstr(x->reasons[0].remedy, "trainyard resume 1"));
    assert_int_equal(x->waiting, 0);
    assert_int_equal(explain(b, 2)->position, 1);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_RESUME, .job = 1 });
    assert_int_equal(explain(b, 1)->position, 1);
    assert_int_equal(explain(b, 2)->position, 2);
}

static void an_attempt_that_is_to_lose_nothing_is_given_the_longer_grace(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_PAUSE, .job = 1 });
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_PAUSING);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ENDING);
    assert_string_equal(
        x->reasons[0].remedy,
        "its ranks end their step and write a checkpoint; ranks that remain after 600 s are ended by force");
}

static void a_job_that_has_done_its_steps_waits_for_its_last_records_and_says_so(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    submit(b, 1, 0, 1, 0);
    run_one(b, 1, 1);
    end_part(b, "a", 1, 1, 0, RANK_END_FINISHED, "");
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->state, JOB_STATE_RUNNING);
    assert_string_equal(x->summary, "attempt 1 has ended on its hosts: 1 rank on 1 executor");
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ENDING);
    assert_string_equal(x->reasons[0].message, "the last records of rank 0 of attempt 1 are not stored yet");
}

/* Follows the explanation: cancels each job that it names as blocking, and attaches the slots that it names as missing,
 * first with one too few. Whatever the history, the job must then start, and not earlier. */
static void what_is_said_to_be_missing_is_what_starts_the_job(void **state) {
    struct bench *b = *state;
    for (unsigned seed = 1; seed <= 300; seed++) {
        scheduler_free(b->s);
        b->s = scheduler_new(b->now);
        unsigned random = seed;
        char id[16];
        int jobs = 3 + rand_r(&random) % 8, executors = rand_r(&random) % 4;
        for (int i = 0; i < executors; i++) {
            snprintf(id, sizeof id, "x%d", i);
            attach(b, id, 1, 1 + rand_r(&random) % 3, NULL);
        }
        for (int i = 1; i <= jobs; i++)
            submit(b, i, rand_r(&random) % 3, 1 + rand_r(&random) % 5, 0);
        const int64_t job = 1 + rand_r(&random) % jobs;
        const struct scheduler_explanation *x = explain(b, job);
        for (int turn = 0; x->state == JOB_STATE_QUEUED; x = explain(b, job), turn++) {
            assert_true(turn < 3 * jobs);
            assert_true(x->n_reasons > 0);
            long long first;
            const enum scheduler_wait kind = x->reasons[0].kind;
            snprintf(id, sizeof id, "y%d", turn);
            if (kind == SCHEDULER_WAIT_ORDER) {
                assert_int_equal(sscanf(x->reasons[0].message, "waits behind job %lld", &first), 1);
                cancel(b, first);
                continue;
            }
            const int lacking = x->world_size - (kind == SCHEDULER_WAIT_BUSY ? x->free : x->slots);
            assert_true(lacking > 0);
            if (lacking > 1) {
                attach(b, id, 1, lacking - 1, NULL);
                assert_int_equal(explain(b, job)->state, JOB_STATE_QUEUED);
                continue;
            }
            const bool next = x->n_reasons == 1 && kind == SCHEDULER_WAIT_BUSY;
            attach(b, id, 1, 1, NULL);
            x = explain(b, job); /* unless the slot gave a turn to one before it that was too wide */
            if (next && x->state == JOB_STATE_QUEUED)
                assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_ORDER);
        }
        assert_int_equal(x->state, JOB_STATE_STARTING);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_job_that_it_does_not_know_is_not_live),
        ON_BENCH(without_an_executor_the_jobs_reason_and_the_first_one_here_are_the_same_sentence),
        ON_BENCH(a_gang_wider_than_all_executors_names_the_missing_slots_and_blocks_no_job),
        ON_BENCH(a_job_behind_a_wide_one_waits_despite_free_slots_and_has_that_reason),
        ON_BENCH(order_comes_before_room_where_both_are_missing_and_other_kinds_are_not_in_the_way),
        ON_BENCH(holders_and_hosts_are_listed_by_their_weight_and_not_without_end),
        ON_BENCH(a_job_for_gpus_on_hosts_without_says_so_of_each_host),
        ON_BENCH(quarantined_devices_and_hosts_that_take_no_gangs_are_reasons_of_their_own),
        ON_BENCH(slots_on_a_host_that_still_ends_an_old_attempt_are_counted_as_fenced),
        ON_BENCH(executors_that_have_not_come_back_are_named_until_their_lease_is_over),
        ON_BENCH(an_executor_that_is_lost_is_not_listed_though_a_gang_still_names_it),
        ON_BENCH(a_drained_executor_is_a_reason_and_says_why),
        ON_BENCH(slots_in_use_on_a_drained_executor_are_no_reason_to_give_it_back),
        ON_BENCH(backoff_is_first_and_then_what_it_would_find_now),
        ON_BENCH(an_attempt_that_starts_names_the_rank_that_is_missing_and_one_that_runs_gives_no_reason),
        ON_BENCH(a_paused_job_names_its_remedy_and_blocks_no_job),
        ON_BENCH(an_attempt_that_is_to_lose_nothing_is_given_the_longer_grace),
        ON_BENCH(a_job_that_has_done_its_steps_waits_for_its_last_records_and_says_so),
        ON_BENCH(what_is_said_to_be_missing_is_what_starts_the_job),
    };
    return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
