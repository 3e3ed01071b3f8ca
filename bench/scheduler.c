/* The scheduler alone, without a database: 10,000 executors and 100,000 waiting jobs of both kinds, with gangs,
 * priorities, features and some hosts that lack them. Measures, in processor time of this thread, each event of each
 * kind and each placing of waiting jobs.
 *
 *     bench_scheduler [executors [jobs]]
 *     bench_scheduler kueue
 *
 * The second form runs the jobs of Kueue's performance test (test/performance/scheduler, baseline): 5 cohorts of 6
 * queues with a quota of 20 slots and up to 100 borrowed ones; in each queue 350 jobs of 1 slot and 200 ms every
 * 100 ms, 100 of 5 slots and 500 ms every 500 ms, and 50 of 20 slots and 1 s every 1,200 ms, with rising priorities.
 * Time is virtual; one executor has slots for all quotas. No job is preempted, as Kueue's are.
 *
 * Prints one line for each kind of event: its number, the median, the 99th percentile and the longest.
 * bench/scheduler.py makes a table of them. */
#include "base/alloc.h"
#include "service/scheduler/explain.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum kind { LOAD, ATTACH, SUBMIT, CANCEL, JOIN, END, SEEN, TICK, PLACE, PLACE_STARTS, LOST, EXPLAIN, KINDS };
static const char *const names[KINDS] = { "load",
                                          "attach",
                                          "submit",
                                          "cancel",
                                          "offer and join of a rank",
                                          "end of a part, stored records",
                                          "heartbeat",
                                          "tick",
                                          "placing in which no job starts",
                                          "placing in which jobs start",
                                          "tick in which executors are lost",
                                          "explain" };

struct times {
    double *ms;
    size_t n, cap;
};
struct run {
    uint64_t seed;
    struct scheduler *s;
    struct scheduler_actions out;
    int64_t now_ms;
    struct times times[KINDS];
    struct placed { /* by job */
        int attempt, world_size;
        char (*executors)[SCHEDULER_EXECUTOR_ID_BYTES];
    } * placed;
    int64_t *running; /* [n_running] jobs */
    size_t n_running;
    int n_executors;
    int64_t n_jobs, cap_jobs;
};

static uint64_t draw(struct run *x) { /* splitmix64 */
    uint64_t z = x->seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int below(struct run *x, int n) { return (int)(draw(x) % (uint64_t)n); }

static double cpu_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void add_time(struct run *x, enum kind kind, double ms) {
    struct times *t = &x->times[kind];
    if (t->n == t->cap) {
        t->cap = t->cap ? 2 * t->cap : 1024;
        t->ms = alloc_resize(t->ms, t->cap, sizeof *t->ms);
    }
    t->ms[t->n++] = ms;
}

/* What the controller's rows would keep. Returns the number of attempts that begin, which are the last ones of
 * x->running. */
static int keep(struct run *x) {
    int begun = 0;
    for (size_t i = 0; i < x->out.n; i++) {
        struct scheduler_action *a = &x->out.items[i];
        if (a->kind != ACT_ATTEMPT_CREATE)
            continue;
        struct placed *p = &x->placed[a->job];
        free(p->executors);
        *p = (struct placed){ a->attempt, a->world_size, a->placement };
        a->placement = NULL;
        if (x->n_running < (size_t)x->cap_jobs)
            x->running[x->n_running++] = a->job;
        begun++;
    }
    scheduler_actions_clear(&x->out);
    return begun;
}

static void pass(struct run *x, enum kind kind, const struct scheduler_event *ev) {
    struct scheduler_event event = *ev;
    event.more = kind != PLACE && kind != TICK; /* placings have times of their own */
    const double begun = cpu_ms();
    scheduler_step(x->s, &event, x->now_ms, &x->out);
    const double took = cpu_ms() - begun;
    const bool lost = kind == TICK && x->out.n > 0 && x->out.items[0].kind == ACT_EXECUTOR_LOST;
    const int starts = keep(x);
    add_time(x, kind == PLACE && starts ? PLACE_STARTS : lost ? LOST : kind, took);
}

/* The ranks of the jobs that have just started join. */
static void join(struct run *x, size_t from) {
    for (size_t i = from; i < x->n_running; i++)
        for (int kind = EV_RANK_OFFERED; kind <= EV_RANK_JOINED; kind++)
            for (int r = 0; r < x->placed[x->running[i]].world_size; r++)
                pass(x, JOIN,
                     &(struct scheduler_event){ .kind = (enum scheduler_event_kind)kind,
                                                .job = x->running[i],
                                                .attempt = x->placed[x->running[i]].attempt,
                                                .rank = r });
}

static void place(struct run *x) {
    while (scheduler_needs_placing(x->s)) {
        const size_t running = x->n_running;
        pass(x, PLACE, &(struct scheduler_event){ .kind = EV_PLACE });
        join(x, running);
    }
}

static void name_of(int executor, char ret[SCHEDULER_EXECUTOR_ID_BYTES]) {
    snprintf(ret, SCHEDULER_EXECUTOR_ID_BYTES, "executor-%05d", executor);
}

static struct scheduler_job_row row_of(struct run *x) {
    static const int widths[] = { 1, 1, 1, 1, 2, 4, 8, 8, 16, 64 };
    const int id = (int)++x->n_jobs, world_size = below(x, 2000) ? widths[below(x, 10)] : 1024;
    return (struct scheduler_job_row){ .job = id,
                                       .state = JOB_STATE_QUEUED,
                                       .priority = below(x, 10),
                                       .world_size = world_size,
                                       .max_world_size = world_size,
                                       .slot = (enum scheduler_slot)below(x, 2),
                                       .needs = below(x, 4) ? 0 : 1u << below(x, 4),
                                       .no_final_checkpoint = true };
}

static void attach(struct run *x, int executor) {
    char id[SCHEDULER_EXECUTOR_ID_BYTES];
    name_of(executor, id);
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = id };
    ev.attach.incarnation = 1;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = ev.attach.slots[SCHEDULER_SLOT_CUDA] = 8;
    ev.attach.features = executor % 10 ? UINT32_MAX : UINT32_MAX & ~7u;
    pass(x, ATTACH, &ev);
}

/* Ends a running job: all of its parts, and the last records of its ranks. */
static void end_job(struct run *x, size_t at) {
    const int64_t id = x->running[at];
    const struct placed *p = &x->placed[id];
    x->running[at] = x->running[--x->n_running];
    for (int r = 0, next; r < p->world_size; r = next) {
        struct rank_end ends[64];
        int n = 0;
        for (next = r; next < p->world_size && n < 64 && strcmp(p->executors[next], p->executors[r]) == 0; next++)
            ends[n++] = (struct rank_end){ .rank = next, .cause = RANK_END_FINISHED };
        pass(x, END,
             &(struct scheduler_event){ .kind = EV_PART_ENDED,
                                        .executor = p->executors[r],
                                        .job = id,
                                        .attempt = p->attempt,
                                        .ends = ends,
                                        .n_ends = n });
    }
    for (int r = 0; r < p->world_size; r++)
        pass(x, END, &(struct scheduler_event){ .kind = EV_RANK_STORED, .job = id, .attempt = p->attempt, .rank = r });
}

static void tick(struct run *x) {
    x->now_ms += SCHEDULER_TICK_MS;
    pass(x, TICK, &(struct scheduler_event){ .kind = EV_TICK });
    place(x);
}

static void explain(struct run *x) {
    static struct scheduler_explanation ret;
    const double begun = cpu_ms();
    scheduler_explain(x->s, 1 + below(x, (int)x->n_jobs), x->now_ms, &ret);
    add_time(x, EXPLAIN, cpu_ms() - begun);
}

static void see(struct run *x, int from, int to) {
    char id[SCHEDULER_EXECUTOR_ID_BYTES];
    for (int i = from; i < to; i++) {
        name_of(i, id);
        pass(x, SEEN, &(struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = id, .last_seen_ms = x->now_ms });
    }
}

static void begin(struct run *x, int64_t jobs) {
    x->s = scheduler_new(0);
    x->cap_jobs = 2 * jobs + 1;
    x->placed = alloc_zeroed((size_t)x->cap_jobs, sizeof *x->placed);
    x->running = alloc_zeroed((size_t)x->cap_jobs, sizeof *x->running);
    for (int64_t i = 0; i < jobs; i++) {
        const struct scheduler_job_row row = row_of(x);
        const double begun = cpu_ms();
        scheduler_load(x->s, &row, 0);
        add_time(x, LOAD, cpu_ms() - begun);
    }
    for (int i = 0; i < x->n_executors; i++) {
        attach(x, i);
        place(x);
    }
}

/* Jobs end, are cancelled and submitted, so that the number of waiting jobs stays the same. */
static void work(struct run *x, int64_t jobs) {
    for (int i = 0; i < 20000 && x->n_jobs < 2 * jobs; i++) {
        end_job(x, draw(x) % x->n_running);
        place(x);
        const struct scheduler_job_row row = row_of(x);
        pass(x, SUBMIT, &(struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
        place(x);
        pass(x, CANCEL, &(struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 1 + below(x, (int)x->n_jobs) });
        place(x);
        if (i % 100 == 0) {
            see(x, 0, x->n_executors);
            tick(x);
            explain(x);
        }
    }
}

static int by_number(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(struct run *x) {
    for (int k = 0; k < KINDS; k++) {
        struct times *t = &x->times[k];
        if (t->n == 0)
            continue;
        qsort(t->ms, t->n, sizeof *t->ms, by_number);
        printf("%s\t%zu\t%.4f\t%.4f\t%.4f\n", names[k], t->n, t->ms[t->n / 2], t->ms[t->n * 99 / 100], t->ms[t->n - 1]);
    }
}

/* ---- Kueue's jobs ---- */

enum { COHORTS = 5, QUEUES = 6, PER_QUEUE = 500, KUEUE_JOBS = COHORTS * QUEUES * PER_QUEUE, TURN_MS = 100 };

static const struct class {
    int jobs, every_ms, slots, runtime_ms, priority;
} classes[] = { { 350, 100, 1, 200, 50 }, { 100, 500, 5, 500, 100 }, { 50, 1200, 20, 1000, 200 } };

struct kueue_job {
    int queue, class;
    int64_t arrives_ms, ends_ms; /* ends_ms 0: it has not started */
};

static void queue_name(int queue, char ret[SCHEDULER_QUEUE_BYTES]) {
    snprintf(ret, SCHEDULER_QUEUE_BYTES, "cohort-%d-queue-%d", queue / QUEUES, queue % QUEUES);
}

static void kueue_queues(struct run *x) {
    for (int i = 0; i < COHORTS * QUEUES; i++) {
        char name[SCHEDULER_QUEUE_BYTES], cohort[SCHEDULER_QUEUE_BYTES];
        queue_name(i, name);
        snprintf(cohort, sizeof cohort, "cohort-%d", i / QUEUES);
        struct scheduler_event ev = { .kind = EV_QUEUE_SET,
                                      .queue = { .name = name,
                                                 .cohort = cohort,
                                                 .weight = 1,
                                                 .max_priority = INT_MAX,
                                                 .quota = { 20, -1 },
                                                 .borrow = { 100, -1 },
                                                 .lend = { -1, -1 },
                                                 .user_slots = { -1, -1 } } };
        pass(x, SUBMIT, &ev);
    }
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = "executor-00000" };
    ev.attach.incarnation = 1;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = COHORTS * QUEUES * 20;
    pass(x, ATTACH, &ev);
}

static void kueue_submit(struct run *x, const struct kueue_job *job) {
    const struct class *class = &classes[job->class];
    struct scheduler_job_row row = { .job = ++x->n_jobs,
                                     .state = JOB_STATE_QUEUED,
                                     .priority = class->priority,
                                     .world_size = class->slots,
                                     .max_world_size = class->slots,
                                     .no_final_checkpoint = true };
    queue_name(job->queue, row.queue);
    pass(x, SUBMIT, &(struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

static int by_arrival(const void *a, const void *b) {
    const struct kueue_job *x = a, *y = b;
    return x->arrives_ms != y->arrives_ms ? (x->arrives_ms > y->arrives_ms) - (x->arrives_ms < y->arrives_ms)
                                          : x->queue - y->queue;
}

static struct kueue_job *kueue_jobs(void) {
    struct kueue_job *jobs = alloc_zeroed(KUEUE_JOBS, sizeof *jobs);
    int n = 0;
    for (int q = 0; q < COHORTS * QUEUES; q++)
        for (int c = 0; c < 3; c++)
            for (int i = 0; i < classes[c].jobs; i++)
                jobs[n++] = (struct kueue_job){ q, c, (int64_t)i * classes[c].every_ms, 0 };
    qsort(jobs, KUEUE_JOBS, sizeof *jobs, by_arrival);
    return jobs;
}

/* Prints the virtual time until all jobs have ended, and the scheduler's processor time. */
static void kueue(struct run *x) {
    struct kueue_job *jobs = kueue_jobs();
    double waited_ms[3] = { 0 }, cpu = 0;
    int ended = 0;
    size_t known = 0;
    x->s = scheduler_new(0);
    x->cap_jobs = KUEUE_JOBS + 1;
    x->placed = alloc_zeroed((size_t)x->cap_jobs, sizeof *x->placed);
    x->running = alloc_zeroed((size_t)x->cap_jobs, sizeof *x->running);
    kueue_queues(x);
    for (; ended < KUEUE_JOBS; x->now_ms += TURN_MS) {
        for (size_t i = x->n_running; i-- > 0;)
            if (jobs[x->running[i] - 1].ends_ms <= x->now_ms) {
                end_job(x, i);
                ended++;
            }
        for (; x->n_jobs < KUEUE_JOBS && jobs[x->n_jobs].arrives_ms <= x->now_ms;)
            kueue_submit(x, &jobs[x->n_jobs]);
        known = x->n_running;
        place(x);
        pass(x, SEEN,
             &(struct scheduler_event){
                 .kind = EV_EXECUTOR_SEEN, .executor = "executor-00000", .last_seen_ms = x->now_ms });
        pass(x, TICK, &(struct scheduler_event){ .kind = EV_TICK });
        for (size_t i = known; i < x->n_running; i++) {
            struct kueue_job *job = &jobs[x->running[i] - 1];
            job->ends_ms = x->now_ms + classes[job->class].runtime_ms;
            waited_ms[job->class] += (double)(x->now_ms - job->arrives_ms);
        }
    }
    for (int k = 0; k < KINDS; k++)
        for (size_t i = 0; i < x->times[k].n; i++)
            cpu += x->times[k].ms[i];
    printf("jobs\t%d\nvirtual s\t%.1f\nprocessor s\t%.3f\n", KUEUE_JOBS, (double)x->now_ms / 1e3, cpu / 1e3);
    for (int c = 0; c < 3; c++)
        printf("mean wait of %d slots, s\t%.2f\n", classes[c].slots,
               waited_ms[c] / 1e3 / (classes[c].jobs * COHORTS * QUEUES));
    free(jobs);
}

static void large(struct run *x, int64_t jobs) {
    begin(x, jobs);
    work(x, jobs);
    /* A rack goes silent, then all. */
    for (int i = 0; i < 400; i++) {
        see(x, x->n_executors / 100, i < 110 ? x->n_executors : 0);
        tick(x);
    }
    print(x);
}

int main(int argc, char **argv) {
    struct run *x = alloc_zeroed(1, sizeof *x);
    x->seed = 1;
    if (argc > 1 && strcmp(argv[1], "kueue") == 0) {
        kueue(x);
    } else {
        x->n_executors = argc > 1 ? atoi(argv[1]) : 10000;
        large(x, argc > 2 ? atoll(argv[2]) : 100000);
    }
    for (int k = 0; k < KINDS; k++)
        free(x->times[k].ms);
    for (int64_t i = 0; i < x->cap_jobs; i++)
        free(x->placed[i].executors);
    free(x->placed);
    free(x->running);
    scheduler_actions_done(&x->out);
    scheduler_free(x->s);
    free(x);
    return 0;
}
