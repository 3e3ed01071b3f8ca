/* The scheduler alone, without a database: 10,000 executors and 100,000 waiting jobs of both kinds, with gangs,
 * priorities, features and some hosts that lack them. Measures, in processor time of this thread, each event of each
 * kind and each placing of waiting jobs.
 *
 *     bench_scheduler [executors [jobs]]
 *
 * Prints one line for each kind of event: its number, the median, the 99th percentile and the longest.
 * bench/scheduler.py makes a table of them. */
#include "base/alloc.h"
#include "service/scheduler/explain.h"

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
        free(t->ms);
    }
}

int main(int argc, char **argv) {
    struct run *x = alloc_zeroed(1, sizeof *x);
    const int64_t jobs = argc > 2 ? atoll(argv[2]) : 100000;
    x->seed = 1;
    x->n_executors = argc > 1 ? atoi(argv[1]) : 10000;
    begin(x, jobs);
    work(x, jobs);
    /* A rack goes silent, then all. */
    for (int i = 0; i < 400; i++) {
        see(x, x->n_executors / 100, i < 110 ? x->n_executors : 0);
        tick(x);
    }
    print(x);
    for (int64_t i = 0; i < x->cap_jobs; i++)
        free(x->placed[i].executors);
    free(x->placed);
    free(x->running);
    scheduler_actions_done(&x->out);
    scheduler_free(x->s);
    free(x);
    return 0;
}
