/* Queues with settings: quotas, cohorts, limits of users, priority ceilings and shares. The last test drives random
 * queues and checks the limits after each step; a failure prints its seed: TRAINYARD_SEED=n replays it. */
#include "tests/unit/scheduler_queue_bench.h"

#include <stdlib.h>
#include <time.h>

static void set_queue(struct bench *b, struct scheduler_queue queue) {
    tell(b, (struct scheduler_event){ .kind = EV_QUEUE_SET, .queue = queue });
}

static void quota(struct bench *b, const char *name, const char *cohort, int slots) {
    struct scheduler_queue queue = { NO_LIMITS(name), .cohort = cohort };
    queue.quota[SCHEDULER_SLOT_CPU] = slots;
    set_queue(b, queue);
}

static void a_queue_uses_no_more_than_its_quota_and_holds_back_no_other(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 4, NULL);
    quota(b, "a", NULL, 2);
    for (int64_t id = 1; id <= 2; id++) {
        enqueue(b, (struct submitted){ .job = id, .queue = "a" });
        assert_int_equal(started(b), id);
    }
    enqueue(b, (struct submitted){ .job = 3, .queue = "a" });
    assert_int_equal(started(b), 0);
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 1 cpu slot, and queue 'a' uses 2 of its quota of 2");
    const struct scheduler_reason r = first_reason(b, 3);
    assert_int_equal(r.kind, SCHEDULER_WAIT_QUOTA);
    assert_string_equal(r.remedy, "its turn comes when jobs of queue 'a' have ended, or: trainyard queue set a "
                                  "--quota-cpu N");
    enqueue(b, (struct submitted){ .job = 4, .queue = "b" });
    assert_int_equal(started(b), 4);
    assert_int_equal(end_on(b, "h", 1, 1), 3);
}

static void a_wide_job_keeps_its_turn_within_the_quota(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 8, NULL);
    quota(b, "a", NULL, 3);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a", .world_size = 2 });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .world_size = 3 });
    enqueue(b, (struct submitted){ .job = 3, .queue = "a", .world_size = 1 });
    assert_int_equal(started(b), 0); /* it would fit, and waits for its turn */
    assert_int_equal(end_on(b, "h", 1, 2), 2);
    assert_int_equal(end_on(b, "h", 2, 3), 3);
}

static void a_job_that_its_queue_can_never_hold_blocks_no_job(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 8, NULL);
    quota(b, "a", NULL, 3);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a", .world_size = 4 });
    assert_string_equal(find(b, ACT_WAITING)->text, "needs 4 cpu slots, more than the 3 that queue 'a' can ever have");
    enqueue(b, (struct submitted){ .job = 2, .queue = "a" });
    assert_int_equal(started(b), 2);
    quota(b, "a", NULL, 5);
    assert_int_equal(started(b), 1);
}

static void queues_of_a_cohort_borrow_within_their_limits(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 16, NULL);
    quota(b, "a", "x", 2);
    quota(b, "b", "x", 4);
    for (int64_t id = 1; id <= 6; id++) {
        enqueue(b, (struct submitted){ .job = id, .queue = "a" });
        assert_int_equal(started(b), id); /* four of them are lent by b */
    }
    enqueue(b, (struct submitted){ .job = 7, .queue = "a" });
    assert_int_equal(started(b), 0);
    assert_int_equal(first_reason(b, 7).kind, SCHEDULER_WAIT_QUOTA);
    enqueue(b, (struct submitted){ .job = 8, .queue = "b" });
    assert_int_equal(started(b), 0);
    assert_string_equal(first_reason(b, 8).message,
                        "needs 1 cpu slot of queue 'b', which uses 0 of its quota of 4, and cohort 'x' has 0 left: "
                        "queue 'a' has borrowed 4");
    assert_int_equal(end_on(b, "h", 1, 1), 8); /* job 7 is older, and would borrow */
    assert_int_equal(end_on(b, "h", 2, 1), 7);
}

static void a_queue_lends_and_borrows_at_most_what_it_may(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 16, NULL);
    struct scheduler_queue lender = { NO_LIMITS("lender"), .cohort = "x" };
    lender.quota[SCHEDULER_SLOT_CPU] = 6;
    lender.lend[SCHEDULER_SLOT_CPU] = 3;
    set_queue(b, lender);
    struct scheduler_queue borrower = { NO_LIMITS("borrower"), .cohort = "x" };
    borrower.quota[SCHEDULER_SLOT_CPU] = 1;
    set_queue(b, borrower);
    for (int64_t id = 1; id <= 4; id++) {
        enqueue(b, (struct submitted){ .job = id, .queue = "borrower" });
        assert_int_equal(started(b), id);
    }
    enqueue(b, (struct submitted){ .job = 5, .queue = "borrower" });
    assert_int_equal(started(b), 0);
    for (int64_t id = 11; id <= 13; id++) { /* what it does not lend is there at once */
        enqueue(b, (struct submitted){ .job = id, .queue = "lender" });
        assert_int_equal(started(b), id);
    }
    enqueue(b, (struct submitted){ .job = 14, .queue = "lender" });
    assert_int_equal(started(b), 0);
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 14 });
    borrower.borrow[SCHEDULER_SLOT_CPU] = 2;
    set_queue(b, borrower);
    assert_int_equal(end_on(b, "h", 1, 1), 0); /* it has three, as many as it may */
    assert_string_equal(first_reason(b, 5).message, "needs 1 cpu slot, and queue 'borrower' uses 3 of its quota of 1 "
                                                    "and of 2 more that it may borrow");
    assert_int_equal(end_on(b, "h", 2, 1), 5);
}

static void the_jobs_of_one_user_wait_and_those_of_others_pass(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 4, NULL);
    struct scheduler_queue queue = { NO_LIMITS("a") };
    queue.user_slots[SCHEDULER_SLOT_CPU] = 2;
    set_queue(b, queue);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a", .user = "ann", .world_size = 2 });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .user = "ann" });
    assert_string_equal(find(b, ACT_WAITING)->text,
                        "needs 1 cpu slot, and user 'ann' uses 2 of the 2 of one user in queue 'a'");
    enqueue(b, (struct submitted){ .job = 3, .queue = "a", .user = "ben" });
    assert_int_equal(started(b), 3);
    enqueue(b, (struct submitted){ .job = 4, .queue = "b", .user = "ann" }); /* of another queue */
    assert_int_equal(started(b), 4);
    enqueue(b, (struct submitted){ .job = 5, .queue = "a", .user = "ben", .world_size = 3 });
    assert_int_equal(first_reason(b, 5).kind, SCHEDULER_WAIT_USER);
    assert_int_equal(end_on(b, "h", 1, 2), 2);
}

static void a_ceiling_lowers_priorities_also_of_jobs_that_wait(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 1, NULL);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a" });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .priority = 5 });
    enqueue(b, (struct submitted){ .job = 3, .queue = "a", .priority = 9 });
    enqueue(b, (struct submitted){ .job = 4, .queue = "b", .priority = 7 });
    set_queue(b, (struct scheduler_queue){ .name = "a",
                                           .weight = 1,
                                           .max_priority = 5,
                                           .quota = { -1, -1 },
                                           .borrow = { -1, -1 },
                                           .lend = { -1, -1 },
                                           .user_slots = { -1, -1 } });
    assert_int_equal(end_on(b, "h", 1, 1), 4);
    assert_int_equal(end_on(b, "h", 4, 1), 2); /* both have 5 */
    tell(b, (struct scheduler_event){ .kind = EV_QUEUE_DELETED, .queue.name = "a" });
    enqueue(b, (struct submitted){ .job = 5, .queue = "a", .priority = 8 });
    assert_int_equal(end_on(b, "h", 2, 1), 3); /* without the ceiling it has 9 again */
}

static int used_by(struct bench *b, const char *name);

static void queues_share_the_slots_by_their_weights(void **state) {
    struct bench *b = *state;
    set_queue(b, (struct scheduler_queue){ NO_LIMITS("one") });
    struct scheduler_queue two = { NO_LIMITS("two") };
    two.weight = 2;
    set_queue(b, two);
    for (int64_t id = 1; id <= 20; id++)
        enqueue(b, (struct submitted){ .job = id, .queue = id <= 10 ? "one" : "two" });
    attach(b, "h", 1, 9, NULL);
    assert_int_equal(used_by(b, "one"), 3);
    assert_int_equal(used_by(b, "two"), 6);
}

struct use {
    const char *name;
    int used;
    double average;
};

static void read_use(void *ctx, const struct scheduler_queue_view *v) {
    struct use *u = ctx;
    if (strcmp(v->name, u->name) != 0)
        return;
    u->used = v->used[SCHEDULER_SLOT_CPU];
    u->average = v->average[SCHEDULER_SLOT_CPU];
}

static struct use use_of(struct bench *b, const char *name) {
    struct use u = { .name = name };
    scheduler_each_queue(b->s, b->now, read_use, &u);
    return u;
}

static int used_by(struct bench *b, const char *name) { return use_of(b, name).used; }

static void see(struct bench *b, const char *executor) {
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = executor, .last_seen_ms = b->now });
}

static void a_queue_that_used_more_waits_and_half_of_it_is_forgotten_after_the_half_time(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 4, NULL);
    for (int64_t id = 1; id <= 4; id++)
        enqueue(b, (struct submitted){ .job = id, .queue = "a" });
    b->now += SCHEDULER_HALF_TIME_MS;
    see(b, "h");
    assert_true(use_of(b, "a").average > 1.99 && use_of(b, "a").average < 2.01); /* half of 4 */
    for (int64_t id = 5; id <= 8; id++)
        enqueue(b, (struct submitted){ .job = id, .queue = "a" });
    for (int64_t id = 9; id <= 12; id++)
        enqueue(b, (struct submitted){ .job = id, .queue = "b" });
    for (int64_t id = 1; id <= 3; id++) /* until b has as much as a has and has had */
        assert_int_equal(end_on(b, "h", id, 1), 8 + id);
    assert_int_equal(end_on(b, "h", 4, 1), 5);
    b->now += SCHEDULER_HALF_TIME_MS;
    assert_true(use_of(b, "a").average > 1.49 && use_of(b, "a").average < 1.51); /* one slot since */
}

static void the_order_of_queues_changes_with_time_alone(void **state) {
    struct bench *b = *state;
    const double much[2] = { 3 };
    attach(b, "h", 1, 3, NULL);
    scheduler_load_queue(b->s, &(struct scheduler_queue){ NO_LIMITS("b") }, much, 0, b->now);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a" });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .world_size = 3 });
    enqueue(b, (struct submitted){ .job = 3, .queue = "b" });
    assert_int_equal(started(b), 0); /* it would fit, behind job 2, whose queue has the lower share */
    for (int day = 0; day < 3 && started(b) == 0; day++) {
        b->now += SCHEDULER_HALF_TIME_MS;
        see(b, "h");
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    assert_int_equal(started(b), 3);
}

static void what_a_queue_used_counts_under_the_next_leader(void **state) {
    struct bench *b = *state;
    b->now = 1000;
    const double none[2] = { 0 }, much[2] = { 8 };
    scheduler_load_queue(b->s, &(struct scheduler_queue){ NO_LIMITS("a") }, much, SCHEDULER_HALF_TIME_MS, b->now);
    scheduler_load_queue(b->s, &(struct scheduler_queue){ NO_LIMITS("b") }, none, 0, b->now);
    assert_true(use_of(b, "a").average > 3.99 && use_of(b, "a").average < 4.01);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a" });
    enqueue(b, (struct submitted){ .job = 2, .queue = "b" });
    attach(b, "h", 1, 1, NULL);
    assert_int_equal(started(b), 2);
    const struct scheduler_reason r = first_reason(b, 1);
    assert_int_equal(r.kind, SCHEDULER_WAIT_BUSY);
    enqueue(b, (struct submitted){ .job = 3, .queue = "c" });
    assert_string_equal(
        first_reason(b, 1).message,
        "waits behind job 3 (priority 0), which needs 1 cpu slot, 0 of 1 are free; its queue 'c' has the "
        "lower share: 0.0 cpu slots by weight, in use and in the past; queue 'a' has 4.0");
}

static void an_elastic_job_takes_spare_slots_within_the_quota_alone(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 8, NULL);
    quota(b, "a", NULL, 3);
    struct scheduler_job_row row = { .job = 1, .state = JOB_STATE_QUEUED, .world_size = 1, .max_world_size = 8 };
    strcpy(row.queue, "a");
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->world_size, 3);
}

/* ---- random queues ---- */

enum { QUEUES = 5, JOBS = 400, SLOTS = 24, STEPS = 8000 };

struct sim_job {
    int queue, user, ranks;
    enum { SIM_WAITS, SIM_RUNS, SIM_ENDED } state;
};
struct world {
    uint64_t seed, random;
    struct bench bench;
    struct scheduler_queue queues[QUEUES];
    char names[QUEUES][8];
    struct sim_job jobs[JOBS + 1];
    int n_jobs, started, borrowed;
};

static uint64_t draw(struct world *w) { /* splitmix64 */
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int below(struct world *w, int n) { return (int)(draw(w) % (uint64_t)n); }

#define REQUIRE(w, cond, ...)                                                                                          \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            print_error("TRAINYARD_SEED=%llu: ", (unsigned long long)(w)->seed);                                       \
            print_error(__VA_ARGS__);                                                                                  \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

static int sum(const struct world *w, int queue, int user) {
    int n = 0;
    for (int id = 1; id <= w->n_jobs; id++)
        if (w->jobs[id].state == SIM_RUNS && w->jobs[id].queue == queue && (user < 0 || w->jobs[id].user == user))
            n += w->jobs[id].ranks;
    return n;
}

/* Whether the job may have started: the limits hold with its slots. Written from the definitions, not from quota.c. */
static void check_start(struct world *w, const struct sim_job *job) {
    const struct scheduler_queue *q = &w->queues[job->queue];
    const int used = sum(w, job->queue, -1);
    if (q->user_slots[0] >= 0)
        REQUIRE(w, sum(w, job->queue, job->user) <= q->user_slots[0], "a user has too many slots\n");
    if (q->quota[0] < 0)
        return;
    if (!q->cohort) {
        REQUIRE(w, used <= q->quota[0], "queue %s uses %d of %d\n", q->name, used, q->quota[0]);
        return;
    }
    if (q->borrow[0] >= 0)
        REQUIRE(w, used <= q->quota[0] + q->borrow[0], "queue %s uses %d\n", q->name, used);
    int pool = 0, taken = 0;
    for (int i = 0; i < QUEUES; i++) {
        const struct scheduler_queue *other = &w->queues[i];
        if (!other->cohort || other->quota[0] < 0)
            continue;
        const int kept = other->lend[0] < 0 || other->lend[0] > other->quota[0] ? 0 : other->quota[0] - other->lend[0];
        pool += other->quota[0] - kept;
        taken += sum(w, i, -1) > kept ? sum(w, i, -1) - kept : 0;
    }
    REQUIRE(w, taken <= pool, "the cohort uses %d of %d\n", taken, pool);
    w->borrowed += used > q->quota[0];
}

static void step(struct world *w, struct scheduler_event ev) {
    tell(&w->bench, ev);
    for (size_t i = 0; i < w->bench.out.n; i++) {
        const struct scheduler_action *a = &w->bench.out.items[i];
        if (a->kind != ACT_ATTEMPT_CREATE)
            continue;
        struct sim_job *job = &w->jobs[a->job];
        REQUIRE(w, job->state == SIM_WAITS, "job %lld starts\n", (long long)a->job);
        job->state = SIM_RUNS;
        w->started++;
        check_start(w, job);
    }
}

static int maybe(struct world *w, int n) { return below(w, 3) ? below(w, n) : -1; }

static void change_queue(struct world *w, int i) {
    struct scheduler_queue *q = &w->queues[i];
    snprintf(w->names[i], sizeof w->names[i], "q%d", i);
    *q = (struct scheduler_queue){ NO_LIMITS(w->names[i]), .cohort = i % 3 ? "x" : NULL };
    q->weight = 1 + below(w, 3);
    q->quota[0] = maybe(w, 10);
    q->borrow[0] = maybe(w, 6);
    q->lend[0] = maybe(w, 6);
    q->user_slots[0] = maybe(w, 8);
    /* Settings may be lowered below what is in use: then no check holds for what runs, so they change while idle. */
    step(w, (struct scheduler_event){ .kind = EV_QUEUE_SET, .queue = *q });
}

static void submit_one(struct world *w) {
    struct sim_job *job = &w->jobs[++w->n_jobs];
    *job = (struct sim_job){ .queue = below(w, QUEUES), .user = below(w, 3), .ranks = 1 + below(w, 4) };
    struct scheduler_job_row row = { .job = w->n_jobs,
                                     .state = JOB_STATE_QUEUED,
                                     .priority = below(w, 2),
                                     .world_size = job->ranks,
                                     .no_final_checkpoint = true };
    snprintf(row.queue, sizeof row.queue, "q%d", job->queue);
    snprintf(row.user, sizeof row.user, "u%d", job->user);
    step(w, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

static void end_one(struct world *w, int64_t id) {
    struct sim_job *job = &w->jobs[id];
    struct rank_end ends[4];
    for (int r = 0; r < job->ranks; r++)
        ends[r] = (struct rank_end){ .rank = r, .cause = RANK_END_FINISHED };
    job->state = SIM_ENDED;
    step(w, (struct scheduler_event){
                .kind = EV_PART_ENDED, .executor = "h", .job = id, .attempt = 1, .ends = ends, .n_ends = job->ranks });
    for (int r = 0; r < job->ranks; r++)
        step(w, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = id, .attempt = 1, .rank = r });
}

static void run_world(uint64_t seed) {
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->seed = w->random = seed;
    w->bench.s = scheduler_new(0);
    attach(&w->bench, "h", 1, SLOTS, NULL);
    for (int i = 0; i < QUEUES; i++)
        change_queue(w, i);
    for (int i = 0; i < STEPS && w->n_jobs < JOBS; i++) {
        w->bench.now += below(w, 600000);
        if (below(w, 3) == 0)
            submit_one(w);
        const int64_t id = w->n_jobs ? 1 + below(w, w->n_jobs) : 0;
        if (id && w->jobs[id].state == SIM_RUNS)
            end_one(w, id);
        see(&w->bench, "h");
    }
    /* Every job that its queue can hold ends: all jobs do when the limits are gone. */
    for (int i = 0; i < QUEUES; i++) {
        w->queues[i] = (struct scheduler_queue){ NO_LIMITS(w->names[i]) };
        step(w, (struct scheduler_event){ .kind = EV_QUEUE_SET, .queue = w->queues[i] });
    }
    for (int round = 0; round < w->n_jobs; round++) /* at least one job ends in each */
        for (int64_t id = 1; id <= w->n_jobs; id++)
            if (w->jobs[id].state == SIM_RUNS)
                end_one(w, id);
    REQUIRE(w, w->started == w->n_jobs, "%d of %d jobs started\n", w->started, w->n_jobs);
    print_message("TRAINYARD_SEED=%llu: %d jobs, %d of them on borrowed slots\n", (unsigned long long)seed, w->n_jobs,
                  w->borrowed);
    scheduler_free(w->bench.s);
    scheduler_actions_done(&w->bench.out);
    free(w);
}

static void no_job_starts_beyond_a_limit_and_all_jobs_end(void **state) {
    (void)state;
    const char *seed = getenv("TRAINYARD_SEED");
    if (seed) {
        run_world(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t s = 1; s <= 30; s++)
        run_world(s);
    run_world((uint64_t)time(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(a_queue_uses_no_more_than_its_quota_and_holds_back_no_other),
        ON_BENCH(a_wide_job_keeps_its_turn_within_the_quota),
        ON_BENCH(a_job_that_its_queue_can_never_hold_blocks_no_job),
        ON_BENCH(queues_of_a_cohort_borrow_within_their_limits),
        ON_BENCH(a_queue_lends_and_borrows_at_most_what_it_may),
        ON_BENCH(the_jobs_of_one_user_wait_and_those_of_others_pass),
        ON_BENCH(a_ceiling_lowers_priorities_also_of_jobs_that_wait),
        ON_BENCH(queues_share_the_slots_by_their_weights),
        ON_BENCH(a_queue_that_used_more_waits_and_half_of_it_is_forgotten_after_the_half_time),
        ON_BENCH(the_order_of_queues_changes_with_time_alone),
        ON_BENCH(what_a_queue_used_counts_under_the_next_leader),
        ON_BENCH(an_elastic_job_takes_spare_slots_within_the_quota_alone),
        cmocka_unit_test(no_job_starts_beyond_a_limit_and_all_jobs_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
