/* Which waiting jobs start, and where, beside a reference scheduler that walks all jobs and all hosts each time: random
 * histories of both kinds of slots, gangs, elastic jobs, features and hosts that leave, return and are drained. And
 * that a placing looks at few jobs, however many wait. A failure prints its seed: TRAINYARD_SEED=n replays it. */
#include "tests/unit/scheduler_bench.h"

#include <stdlib.h>
#include <time.h>

enum { HOSTS = 12, JOBS = 1200, RANKS = 48, STEPS = 6000 };

struct ref_host {
    char id[16];
    bool known, attached, drained, single;
    int64_t incarnation;
    uint32_t features;
    int order, slots[SCHEDULER_SLOT_KINDS], used[SCHEDULER_SLOT_KINDS];
};
struct ref_job {
    struct scheduler_job_row row;
    enum { REF_ABSENT, REF_WAITS, REF_RUNS, REF_ENDED } state;
    int ranks, at[RANKS]; /* hosts */
};
struct world {
    uint64_t seed, random;
    struct bench bench;
    struct ref_host hosts[HOSTS];
    struct ref_job jobs[JOBS + 1];
    int n_jobs, n_known, started, wide;
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

/* ---- the reference ---- */

static bool suits(const struct ref_host *h, const struct ref_job *job, bool gang) {
    return h->known && !h->drained && !(job->row.needs & ~h->features) &&
           !(gang && h->single && job->row.slot == SCHEDULER_SLOT_CUDA);
}

static int free_on(const struct ref_host *h, const struct ref_job *job, bool gang) {
    return suits(h, job, gang) && h->attached ? h->slots[job->row.slot] - h->used[job->row.slot] : 0;
}

static bool is_wider_than_all(const struct world *w, const struct ref_job *job) {
    int slots = 0;
    for (int i = 0; i < HOSTS; i++)
        slots += suits(&w->hosts[i], job, job->row.world_size > 1) ? w->hosts[i].slots[job->row.slot] : 0;
    return job->row.world_size > slots;
}

/* Up to max ranks, at least world_size: on the fullest host that holds all, else on the widest ones. */
static bool choose(struct world *w, struct ref_job *job, int max) {
    const bool gang = max > 1;
    int total = 0, one = -1;
    for (int i = 0; i < HOSTS; i++)
        total += free_on(&w->hosts[i], job, gang);
    job->ranks = total < max ? total : max;
    if (job->ranks < job->row.world_size)
        return gang && job->row.world_size == 1 && choose(w, job, 1);
    for (int i = 0; i < HOSTS; i++) {
        const int n = free_on(&w->hosts[i], job, gang), best = one < 0 ? 0 : free_on(&w->hosts[one], job, gang);
        if (n >= job->ranks && (one < 0 || n < best || (n == best && w->hosts[i].order < w->hosts[one].order)))
            one = i;
    }
    for (int r = 0; r < job->ranks; r++) {
        int widest = one;
        for (int i = 0; one < 0 && i < HOSTS; i++) {
            const bool begun = r > 0 && job->at[r - 1] == i;
            const int n = free_on(&w->hosts[i], job, gang);
            if (n > 0 && begun) { /* a host is filled before the next one */
                widest = i;
                break;
            }
            const int best = widest < 0 ? 0 : free_on(&w->hosts[widest], job, gang);
            if (n > best || (n == best && n > 0 && w->hosts[i].order < w->hosts[widest].order))
                widest = i;
        }
        job->at[r] = widest;
        w->hosts[widest].used[job->row.slot]++;
    }
    return true;
}

static void give_back(struct world *w, const struct ref_job *job) {
    for (int r = 0; r < job->ranks; r++)
        w->hosts[job->at[r]].used[job->row.slot]--;
}

/* The next waiting job in order after `after`. */
static struct ref_job *next_waiting(struct world *w, const struct ref_job *after) {
    struct ref_job *best = NULL;
    for (int id = 1; id <= w->n_jobs; id++) {
        struct ref_job *job = &w->jobs[id];
        if (job->state != REF_WAITS ||
            (after && (job->row.priority > after->row.priority ||
                       (job->row.priority == after->row.priority && job->row.job <= after->row.job))))
            continue;
        if (!best || job->row.priority > best->row.priority)
            best = job;
    }
    return best;
}

static bool any_free(const struct world *w, enum scheduler_slot slot) {
    for (int i = 0; i < HOSTS; i++)
        if (w->hosts[i].known && w->hosts[i].attached && !w->hosts[i].drained &&
            w->hosts[i].used[slot] < w->hosts[i].slots[slot])
            return true;
    return false;
}

static void place(struct world *w) {
    bool blocked[SCHEDULER_SLOT_KINDS] = { false };
    struct ref_job *started[JOBS];
    int n = 0;
    for (struct ref_job *job = next_waiting(w, NULL); job; job = next_waiting(w, job)) {
        if (blocked[job->row.slot])
            continue;
        if (choose(w, job, job->row.world_size))
            started[n++] = job;
        else
            blocked[job->row.slot] = !any_free(w, job->row.slot) || !is_wider_than_all(w, job);
    }
    for (int i = 0; i < n; i++) {
        started[i]->state = REF_RUNS;
        if (started[i]->row.max_world_size <= started[i]->row.world_size || blocked[started[i]->row.slot])
            continue;
        give_back(w, started[i]);
        assert_true(choose(w, started[i], started[i]->row.max_world_size));
    }
}

/* ---- the scheduler beside it ---- */

static int host_of(const struct world *w, const char *id) {
    for (int i = 0; i < HOSTS; i++)
        if (strcmp(w->hosts[i].id, id) == 0)
            return i;
    return -1;
}

/* Passes the event, lets the reference place, and compares the attempts that begin. */
static void step(struct world *w, struct scheduler_event ev) {
    bool waited[JOBS + 1];
    int begun = 0, seen = 0;
    for (int id = 1; id <= w->n_jobs; id++)
        waited[id] = w->jobs[id].state == REF_WAITS;
    place(w);
    tell(&w->bench, ev);
    for (int id = 1; id <= w->n_jobs; id++)
        begun += waited[id] && w->jobs[id].state == REF_RUNS;
    for (size_t i = 0; i < w->bench.out.n; i++) {
        const struct scheduler_action *a = &w->bench.out.items[i];
        if (a->kind != ACT_ATTEMPT_CREATE)
            continue;
        const struct ref_job *job = &w->jobs[a->job];
        seen++;
        REQUIRE(w, waited[a->job] && job->state == REF_RUNS, "job %lld starts\n", (long long)a->job);
        REQUIRE(w, job->ranks == a->world_size, "job %lld has %d ranks, not %d\n", (long long)a->job, a->world_size,
                job->ranks);
        for (int r = 0; r < job->ranks; r++)
            REQUIRE(w, host_of(w, a->placement[r]) == job->at[r], "job %lld, rank %d: %s, not %s\n", (long long)a->job,
                    r, a->placement[r], w->hosts[job->at[r]].id);
        w->wide += job->ranks > 1 && job->at[0] != job->at[job->ranks - 1];
    }
    REQUIRE(w, seen == begun, "%d jobs start, not %d\n", seen, begun);
    w->started += seen;
}

static void attach_host(struct world *w, int i) {
    struct ref_host *h = &w->hosts[i];
    static const int widths[] = { 0, 1, 2, 4, 4, 8 };
    if (!h->known)
        h->order = w->n_known++;
    h->known = h->attached = true;
    h->incarnation++;
    if (h->used[0] + h->used[1] == 0) {
        h->slots[SCHEDULER_SLOT_CPU] = widths[below(w, 6)];
        h->slots[SCHEDULER_SLOT_CUDA] = widths[below(w, 6)];
        h->single = below(w, 4) == 0;
        h->features = below(w, 3) ? UINT32_MAX : (uint32_t)below(w, 128);
    }
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = h->id };
    ev.attach.incarnation = h->incarnation;
    ev.attach.single_rank = h->single;
    ev.attach.features = h->features;
    memcpy(ev.attach.slots, h->slots, sizeof h->slots);
    step(w, ev);
}

static void submit_job(struct world *w) {
    if (w->n_jobs == JOBS)
        return;
    struct ref_job *job = &w->jobs[++w->n_jobs];
    const int n = 1 + (below(w, 8) ? below(w, 4) : below(w, RANKS / 2));
    *job = (struct ref_job){ .state = REF_WAITS,
                             .row = { .job = w->n_jobs,
                                      .state = JOB_STATE_QUEUED,
                                      .priority = below(w, 3),
                                      .world_size = n,
                                      .max_world_size = below(w, 4) ? n : n + below(w, 8),
                                      .slot = (enum scheduler_slot)below(w, 2),
                                      .needs = below(w, 2) ? 0
                                                           : (uint32_t)below(w, 128), /* more than there are classes */
                                      .no_final_checkpoint = true } };
    step(w, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &job->row });
}

/* Ends each part of the job, and stores its last records. */
static void end_job(struct world *w, struct ref_job *job) {
    for (int i = 0; i < HOSTS; i++) {
        struct rank_end ends[RANKS];
        int n = 0;
        for (int r = 0; r < job->ranks; r++)
            if (job->at[r] == i)
                ends[n++] = (struct rank_end){ .rank = r, .cause = RANK_END_FINISHED };
        w->hosts[i].used[job->row.slot] -= n;
        if (n > 0)
            step(w, (struct scheduler_event){ .kind = EV_PART_ENDED,
                                              .executor = w->hosts[i].id,
                                              .job = job->row.job,
                                              .attempt = 1,
                                              .ends = ends,
                                              .n_ends = n });
    }
    job->state = REF_ENDED;
    for (int r = 0; r < job->ranks; r++)
        step(w, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = job->row.job, .attempt = 1, .rank = r });
}

static void one_step(struct world *w) {
    const int host = below(w, HOSTS), act = below(w, 100);
    struct ref_host *h = &w->hosts[host];
    struct ref_job *job = w->n_jobs ? &w->jobs[1 + below(w, w->n_jobs)] : NULL;
    for (int i = 0; job && job->state == REF_ENDED && i < 20; i++)
        job = &w->jobs[1 + below(w, w->n_jobs)];
    if (act < 20) {
        submit_job(w);
    } else if (act < 90) {
        if (job && job->state == REF_RUNS)
            end_job(w, job);
        else if (job && job->state == REF_WAITS && below(w, 40) == 0) {
            job->state = REF_ENDED;
            step(w, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = job->row.job });
        }
    } else if (act < 94) {
        if (!h->attached)
            attach_host(w, host);
    } else if (act < 96) {
        if (h->attached) {
            h->attached = false;
            step(w, (struct scheduler_event){
                        .kind = EV_EXECUTOR_DETACHED, .executor = h->id, .attach.incarnation = h->incarnation });
        }
    } else if (h->known) {
        h->drained = below(w, 5) == 0;
        step(w, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = h->id, .drain.drained = h->drained });
    }
}

struct totals {
    int started, wide;
};

static void run_world(uint64_t seed, struct totals *ret) {
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->seed = w->random = seed;
    w->bench.s = scheduler_new(0);
    for (int i = 0; i < HOSTS; i++)
        snprintf(w->hosts[i].id, sizeof w->hosts[i].id, "host-%d", i);
    for (int i = 0; i < STEPS; i++)
        one_step(w);
    print_message("TRAINYARD_SEED=%llu: %d jobs, %d started, %d on several hosts\n", (unsigned long long)seed,
                  w->n_jobs, w->started, w->wide);
    ret->started += w->started;
    ret->wide += w->wide;
    scheduler_free(w->bench.s);
    scheduler_actions_done(&w->bench.out);
    free(w);
}

static void jobs_start_where_the_reference_scheduler_starts_them(void **state) {
    (void)state;
    struct totals totals = { 0 };
    const char *seed = getenv("TRAINYARD_SEED");
    if (seed) {
        run_world(strtoull(seed, NULL, 10), &totals);
        return;
    }
    for (uint64_t s = 1; s <= 8; s++)
        run_world(s, &totals);
    run_world((uint64_t)time(NULL), &totals);
    assert_true(totals.started > 2000 && totals.wide > 300); /* else it would prove little */
}

/* ---- many jobs ---- */

static int starts(const struct bench *b, int64_t *next_job) {
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++) {
        if (b->out.items[i].kind != ACT_ATTEMPT_CREATE)
            continue;
        assert_int_equal(b->out.items[i].job, ++*next_job);
        n++;
    }
    return n;
}

static void a_placing_starts_a_bounded_number_of_jobs_and_the_next_goes_on(void **state) {
    struct bench *b = *state;
    enum { N = 3 * SCHEDULER_STARTS_PER_PLACING / 2 };
    for (int64_t id = 1; id <= N; id++)
        submit(b, id, 0, 1, 0);
    int64_t last = 0;
    attach(b, "a", 1, N, NULL);
    assert_int_equal(starts(b, &last), SCHEDULER_STARTS_PER_PLACING);
    assert_true(scheduler_needs_placing(b->s));
    assert_int_equal(scheduler_waiting_priority(b->s, SCHEDULER_SLOT_CPU), INT32_MIN);
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    assert_int_equal(starts(b, &last), N - SCHEDULER_STARTS_PER_PLACING);
    assert_false(scheduler_needs_placing(b->s));
}

/* The placings since the last call look at this many jobs each, at most. */
static void assert_effort(const struct bench *b, struct scheduler_effort *before, int64_t jobs) {
    const struct scheduler_effort now = scheduler_effort(b->s);
    assert_true(now.placings > before->placings);
    assert_true(now.jobs - before->jobs <= jobs * (now.placings - before->placings));
    *before = now;
}

static void a_placing_looks_at_few_of_many_waiting_jobs(void **state) {
    struct bench *b = *state;
    enum { N = 20000 };
    attach(b, "a", 1, 4, NULL);
    for (int64_t id = 1; id <= N; id++)
        load_row(b, &(struct scheduler_job_row){ .job = id,
                                                 .state = JOB_STATE_QUEUED,
                                                 .world_size = 1 + (int)(id % 4),
                                                 .no_final_checkpoint = true });
    tell(b, (struct scheduler_event){ .kind = EV_TICK });
    struct scheduler_effort effort = scheduler_effort(b->s);
    int64_t running = find(b, ACT_ATTEMPT_CREATE)->job;
    for (int i = 0; i < 50; i++) {
        int64_t last = running;
        tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = N - i });
        const struct scheduler_action *start = find(b, ACT_ATTEMPT_CREATE);
        running = start ? start->job : last;
    }
    assert_effort(b, &effort, 2);
}

static int count(const struct bench *b, enum scheduler_action_kind kind) {
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.items[i].kind == kind;
    return n;
}

static void a_tick_loses_a_bounded_number_of_executors_and_the_next_goes_on(void **state) {
    struct bench *b = *state;
    enum { N = 3 * SCHEDULER_LOST_PER_TICK / 2 };
    for (int i = 0; i < N; i++) {
        char id[16];
        snprintf(id, sizeof id, "h%d", i);
        attach(b, id, 1, 1, NULL);
    }
    int lost[2] = { 0 }, ticks = 0;
    for (; ticks < 1000 && lost[1] == 0; ticks++) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
        if (count(b, ACT_EXECUTOR_LOST) > 0)
            lost[lost[0] > 0] = count(b, ACT_EXECUTOR_LOST);
    }
    assert_int_equal(lost[0], SCHEDULER_LOST_PER_TICK);
    assert_int_equal(lost[1], N - SCHEDULER_LOST_PER_TICK);
}

static void a_tick_restarts_a_bounded_number_of_jobs_and_the_next_goes_on(void **state) {
    struct bench *b = *state;
    enum { N = 3 * SCHEDULER_RESTARTS_PER_TICK / 2 };
    attach(b, "h", 1, N, NULL);
    for (int64_t id = 1; id <= N; id++)
        submit(b, id, 0, 1, 5);
    attach(b, "h", 2, 0, NULL); /* its agent came back without its ranks, and without slots */
    for (int64_t id = 1; id <= N; id++) {
        run_one(b, id, 1);
        end_part(b, "h", id, 1, 0, RANK_END_UNKNOWN, "was killed");
        store(b, id, 1, 0);
    }
    int waits[2] = { 0 };
    for (int ticks = 0; ticks < 1000 && waits[1] == 0; ticks++) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
        if (count(b, ACT_JOB_STATE) > 0) /* to QUEUED */
            waits[waits[0] > 0] = count(b, ACT_JOB_STATE);
    }
    assert_int_equal(waits[0], SCHEDULER_RESTARTS_PER_TICK);
    assert_int_equal(waits[1], N - SCHEDULER_RESTARTS_PER_TICK);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(jobs_start_where_the_reference_scheduler_starts_them),
        ON_BENCH(a_placing_starts_a_bounded_number_of_jobs_and_the_next_goes_on),
        ON_BENCH(a_placing_looks_at_few_of_many_waiting_jobs),
        ON_BENCH(a_tick_loses_a_bounded_number_of_executors_and_the_next_goes_on),
        ON_BENCH(a_tick_restarts_a_bounded_number_of_jobs_and_the_next_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
