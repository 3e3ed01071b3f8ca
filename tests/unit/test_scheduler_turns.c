/* No job waits for ever because narrower jobs pass it: a job that the limit of its user, the quota of its queue or its
 * cohort keeps back is left what it waits for. The last test drives random queues with endless narrow jobs, and checks
 * the bound of docs/operate.md. A failure prints its seed: TRAINYARD_SEED=n replays it. */
#include "tests/unit/scheduler_queue_bench.h"

#include <stdlib.h>
#include <time.h>

static void set_queue(struct bench *b, const char *name, const char *cohort, int quota, int user_slots) {
    struct scheduler_queue queue = { NO_LIMITS(name), .cohort = cohort };
    queue.quota[SCHEDULER_SLOT_CPU] = quota;
    queue.user_slots[SCHEDULER_SLOT_CPU] = user_slots;
    tell(b, (struct scheduler_event){ .kind = EV_QUEUE_SET, .queue = queue });
}

static void narrow_jobs_of_a_user_do_not_pass_a_wide_one_of_that_user(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 8, NULL);
    set_queue(b, "a", NULL, -1, 3);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a", .user = "ann" });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .user = "ann", .world_size = 3 });
    enqueue(b, (struct submitted){ .job = 3, .queue = "a", .user = "ann" });
    assert_int_equal(started(b), 0);
    const struct scheduler_reason r = first_reason(b, 3);
    assert_int_equal(r.kind, SCHEDULER_WAIT_USER);
    assert_string_equal(r.message,
                        "needs 1 cpu slot, and job 2 is before it, which waits for slots of user 'ann' in queue 'a'");
    assert_string_equal(r.remedy, "its turn comes when job 2 has started or is cancelled");
    enqueue(b, (struct submitted){ .job = 7, .queue = "a", .user = "ann", .world_size = 3 });
    assert_string_equal(first_reason(b, 3).remedy, r.remedy); /* job 2 is first, not job 7 */
    enqueue(b, (struct submitted){ .job = 4, .queue = "a", .user = "ben" });
    assert_int_equal(started(b), 4);
    enqueue(b, (struct submitted){ .job = 5, .queue = "b", .user = "ann" });
    assert_int_equal(started(b), 5);
    enqueue(b, (struct submitted){ .job = 6, .queue = "a", .user = "ann", .priority = 1 });
    assert_int_equal(started(b), 6); /* it is before job 2 */
    assert_int_equal(end_on(b, "h", 1, 1), 0);
    assert_int_equal(end_on(b, "h", 6, 1), 2);
    assert_int_equal(end_on(b, "h", 2, 3), 3);
}

static void a_job_wider_than_its_user_may_have_stops_no_job_of_the_user(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 8, NULL);
    set_queue(b, "a", NULL, -1, 3);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a", .user = "ann", .world_size = 4 });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .user = "ann" });
    assert_int_equal(started(b), 2);
}

static void a_job_wider_than_all_executors_stops_no_job_of_its_user_or_cohort(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 4, NULL);
    set_queue(b, "a", NULL, -1, 6);
    set_queue(b, "lender", "x", 6, -1);
    set_queue(b, "c", "x", 0, -1);
    enqueue(b, (struct submitted){ .job = 1, .queue = "a", .user = "ann" });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .user = "ann", .world_size = 6 });
    enqueue(b, (struct submitted){ .job = 3, .queue = "a", .user = "ann" });
    assert_int_equal(started(b), 3);
    enqueue(b, (struct submitted){ .job = 4, .queue = "c" });
    enqueue(b, (struct submitted){ .job = 5, .queue = "c", .world_size = 6 });
    enqueue(b, (struct submitted){ .job = 6, .queue = "c" });
    assert_int_equal(started(b), 6);
}

static void narrow_jobs_of_a_cohort_do_not_borrow_past_a_wide_one(void **state) {
    struct bench *b = *state;
    attach(b, "h", 1, 16, NULL);
    set_queue(b, "lender", "x", 4, -1);
    set_queue(b, "a", "x", 0, -1);
    set_queue(b, "b", "x", 0, -1);
    enqueue(b, (struct submitted){ .job = 1, .queue = "b" });
    enqueue(b, (struct submitted){ .job = 2, .queue = "a", .priority = 1, .world_size = 4 });
    enqueue(b, (struct submitted){ .job = 3, .queue = "b" });
    assert_int_equal(started(b), 0);
    const struct scheduler_reason r = first_reason(b, 3);
    assert_int_equal(r.kind, SCHEDULER_WAIT_QUOTA);
    assert_string_equal(r.message, "needs 1 cpu slot, more than the quota of queue 'b' leaves (1 of 0 are used), and "
                                   "cohort 'x' lends none until job 2 has started, which is before it");
    assert_string_equal(r.remedy, "its turn comes when job 2 has started or is cancelled");
    enqueue(b, (struct submitted){ .job = 4, .queue = "lender" });
    assert_int_equal(started(b), 4); /* its own quota */
    enqueue(b, (struct submitted){ .job = 5, .queue = "b", .priority = 2 });
    assert_int_equal(started(b), 5); /* it is before job 2 */
    assert_int_equal(end_on(b, "h", 1, 1), 0);
    assert_int_equal(end_on(b, "h", 4, 1), 0);
    assert_int_equal(end_on(b, "h", 5, 1), 2);
    assert_int_equal(end_on(b, "h", 2, 4), 3);
}

static void a_placing_looks_at_few_jobs_of_users_that_have_too_many_slots(void **state) {
    struct bench *b = *state;
    enum { N = 2000, ROUNDS = 50 };
    attach(b, "h", 1, 16, NULL);
    set_queue(b, "a", NULL, -1, 1);
    for (int64_t id = 1; id <= N; id++)
        enqueue(b, (struct submitted){ .job = id, .queue = "a", .user = id % 2 ? "ann" : "ben" });
    const struct scheduler_effort before = scheduler_effort(b->s);
    for (int64_t round = 0; round < ROUNDS; round++)
        assert_int_equal(end_on(b, "h", 1 + round, 1), 3 + round); /* the next one of the same user */
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = N });
    enqueue(b, (struct submitted){ .job = N + 1, .queue = "a", .user = "eve" });
    assert_int_equal(started(b), N + 1);
    const struct scheduler_effort after = scheduler_effort(b->s);
    assert_true(after.placings > before.placings + ROUNDS);
    /* Only eve's job is behind all the others. */
    assert_true(after.jobs - before.jobs <= 4 * (after.placings - before.placings) + N);
}

/* ---- random queues with endless narrow jobs ---- */

enum { QUEUES = 4, USERS = 3, WAITING = 6, JOBS = 60000, LONGEST_MS = 600000, BOUND = 3, WIDE = 12 };

struct sim_job {
    int queue, user, ranks;
    int64_t ends_ms; /* 0: it waits; -1: it has ended */
};
struct world {
    uint64_t seed, random;
    struct bench bench;
    char names[QUEUES][8];
    struct sim_job *jobs; /* by id, from 1 */
    int n_jobs, first, waiting[QUEUES][USERS];
    int64_t wide; /* the job that the others must not pass for long */
};

static uint64_t draw(struct world *w) { /* splitmix64 */
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int below(struct world *w, int n) { return (int)(draw(w) % (uint64_t)n); }

static void step(struct world *w, struct scheduler_event ev) {
    tell(&w->bench, ev);
    for (size_t i = 0; i < w->bench.out.n; i++) {
        const struct scheduler_action *a = &w->bench.out.items[i];
        if (a->kind != ACT_ATTEMPT_CREATE)
            continue;
        struct sim_job *job = &w->jobs[a->job];
        job->ends_ms = w->bench.now + 1 + below(w, LONGEST_MS);
        w->waiting[job->queue][job->user]--;
    }
}

static int64_t submit_one(struct world *w, int queue, int user, int ranks, int priority) {
    const int id = ++w->n_jobs;
    assert_true(id < JOBS);
    w->jobs[id] = (struct sim_job){ .queue = queue, .user = user, .ranks = ranks };
    w->waiting[queue][user]++;
    struct scheduler_job_row row = {
        .job = id, .state = JOB_STATE_QUEUED, .priority = priority, .world_size = ranks, .no_final_checkpoint = true
    };
    snprintf(row.queue, sizeof row.queue, "%s", w->names[queue]);
    snprintf(row.user, sizeof row.user, "user-%d", user);
    step(w, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
    return id;
}

/* Queue 0 has the wide job. The quota of the last queue, which has no jobs, is what the others borrow. */
static void make_queues(struct world *w, int *widest) {
    const int own = below(w, 6), lent = 4 + below(w, 8);
    for (int i = 0; i < QUEUES; i++) {
        snprintf(w->names[i], sizeof w->names[i], "q%d", i);
        struct scheduler_queue queue = { NO_LIMITS(w->names[i]), .cohort = "x" };
        queue.quota[SCHEDULER_SLOT_CPU] = i == 0 ? own : i == QUEUES - 1 ? lent : 0;
        if (i == 0) {
            queue.borrow[SCHEDULER_SLOT_CPU] = below(w, 2) ? -1 : 1 + below(w, lent);
            queue.user_slots[SCHEDULER_SLOT_CPU] = below(w, 2) ? -1 : 2 + below(w, 6);
            const int borrow = queue.borrow[SCHEDULER_SLOT_CPU], user = queue.user_slots[SCHEDULER_SLOT_CPU];
            *widest = own + (borrow < 0 || borrow > lent ? lent : borrow);
            *widest = user >= 0 && user < *widest ? user : *widest;
            *widest = *widest < WIDE ? *widest : WIDE;
        }
        step(w, (struct scheduler_event){ .kind = EV_QUEUE_SET, .queue = queue });
    }
}

/* Keeps the queues filled with narrow jobs, all of them behind the wide one. */
static void fill(struct world *w) {
    for (int q = 0; q < QUEUES - 1; q++)
        for (int u = 0; u < USERS; u++)
            while (w->waiting[q][u] < WAITING)
                submit_one(w, q, u, 1 + (below(w, 4) == 0), q ? 0 : w->wide ? 2 : 1);
}

/* Ends the job that ends next. */
static void advance(struct world *w) {
    int next = 0;
    while (w->first < w->n_jobs && w->jobs[w->first + 1].ends_ms < 0)
        w->first++;
    for (int id = w->first + 1; id <= w->n_jobs; id++)
        if (w->jobs[id].ends_ms > 0 && (!next || w->jobs[id].ends_ms < w->jobs[next].ends_ms))
            next = id;
    assert_true(next > 0);
    struct sim_job *job = &w->jobs[next];
    w->bench.now = job->ends_ms;
    job->ends_ms = -1;
    step(w, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = "h", .last_seen_ms = w->bench.now });
    struct rank_end ends[WIDE];
    for (int r = 0; r < job->ranks; r++)
        ends[r] = (struct rank_end){ .rank = r, .cause = RANK_END_FINISHED };
    step(w,
         (struct scheduler_event){
             .kind = EV_PART_ENDED, .executor = "h", .job = next, .attempt = 1, .ends = ends, .n_ends = job->ranks });
    for (int r = 0; r < job->ranks; r++)
        step(w, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = next, .attempt = 1, .rank = r });
}

/* Returns how long the wide job has waited. */
static int64_t run_world(uint64_t seed) {
    struct world w = { .seed = seed, .random = seed, .bench.s = scheduler_new(0) };
    int widest = 0;
    w.jobs = calloc(JOBS, sizeof *w.jobs);
    assert_non_null(w.jobs);
    attach(&w.bench, "h", 1, 4 + WIDE + below(&w, 8), NULL);
    make_queues(&w, &widest);
    fill(&w);
    for (int i = 0; i < 50; i++) {
        advance(&w);
        fill(&w);
    }
    const int ranks = widest - below(&w, widest > 2 ? 2 : 1);
    w.wide = submit_one(&w, 0, 0, ranks, 2);
    const int64_t since = w.bench.now;
    while (w.jobs[w.wide].ends_ms == 0) {
        fill(&w);
        advance(&w);
        if (w.bench.now - since > (int64_t)BOUND * LONGEST_MS) {
            print_error("TRAINYARD_SEED=%llu: a job of %d ranks waits for more than %d times the longest job\n",
                        (unsigned long long)seed, ranks, BOUND);
            fail();
        }
    }
    scheduler_free(w.bench.s);
    scheduler_actions_done(&w.bench.out);
    free(w.jobs);
    return w.bench.now - since;
}

static void a_wide_job_waits_at_most_three_times_as_long_as_the_longest_job_runs(void **state) {
    (void)state;
    int64_t longest = 0;
    const char *seed = getenv("TRAINYARD_SEED");
    if (seed) {
        run_world(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t s = 1; s <= 200; s++) {
        const uint64_t world = s < 200 ? s : (uint64_t)time(NULL);
        if (s == 200)
            print_message("# TRAINYARD_SEED=%llu\n", (unsigned long long)world);
        const int64_t waited = run_world(world);
        longest = waited > longest ? waited : longest;
    }
    print_message("the longest wait was %.2f times the longest job\n", (double)longest / LONGEST_MS);
    assert_true(longest > LONGEST_MS / 4); /* else it would prove little */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        ON_BENCH(narrow_jobs_of_a_user_do_not_pass_a_wide_one_of_that_user),
        ON_BENCH(a_job_wider_than_its_user_may_have_stops_no_job_of_the_user),
        ON_BENCH(a_placing_looks_at_few_jobs_of_users_that_have_too_many_slots),
        ON_BENCH(narrow_jobs_of_a_cohort_do_not_borrow_past_a_wide_one),
        ON_BENCH(a_job_wider_than_all_executors_stops_no_job_of_its_user_or_cohort),
        cmocka_unit_test(a_wide_job_waits_at_most_three_times_as_long_as_the_longest_job_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
