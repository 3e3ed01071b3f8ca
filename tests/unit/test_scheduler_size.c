/* The scheduler at the size of a large fleet: 10,000 executors, 100,000 jobs that wait, 10,000 that run. Prints what
 * each kind of event costs; the assertions are about decisions, not about time. */
#include "base/clock.h"
#include "tests/unit/scheduler_bench.h"

enum { EXECUTORS = 10000, WAITING = 100000, TOGETHER = 1024 };

static char ids[EXECUTORS][16];

/* Prints the time of one of n events since *begun_ns, and begins anew. */
static void note(const char *what, int n, int64_t *begun_ns) {
    const int64_t now_ns = clock_mono_ns();
    print_message("# %s: %.1f us each of %d\n", what, (double)(now_ns - *begun_ns) / 1e3 / n, n);
    *begun_ns = clock_mono_ns();
}

static int started(const struct bench *b) {
    int n = 0;
    for (size_t i = 0; i < b->out.n; i++)
        n += b->out.items[i].kind == ACT_ATTEMPT_CREATE;
    return n;
}

static int attach_all(struct bench *b) {
    int n = 0;
    for (int i = 0; i < EXECUTORS; i++) {
        struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = ids[i] };
        ev.attach.incarnation = 1;
        ev.attach.slots[SCHEDULER_SLOT_CPU] = 1;
        ev.more = (i + 1) % TOGETHER != 0 && i + 1 < EXECUTORS;
        tell(b, ev);
        n += started(b);
    }
    while (scheduler_needs_placing(b->s)) { /* one placing starts a bounded number of jobs */
        tell(b, (struct scheduler_event){ .kind = EV_PLACE });
        n += started(b);
    }
    return n;
}

static void run_all(struct bench *b, int n) {
    for (int64_t job = 1; job <= n; job++) {
        tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = job, .attempt = 1, .more = true });
        tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = job, .attempt = 1, .more = true });
    }
}

static void a_large_fleet_starts_runs_ends_and_cancels_jobs(void **state) {
    struct bench *b = *state;
    int64_t ns = clock_mono_ns();
    for (int i = 0; i < EXECUTORS; i++)
        snprintf(ids[i], sizeof ids[i], "host-%d", i);
    for (int64_t job = 1; job <= WAITING; job++) {
        const struct scheduler_job_row row = {
            .job = job, .state = JOB_STATE_QUEUED, .world_size = 1, .max_restarts = 1, .no_final_checkpoint = true
        };
        load_row(b, &row);
    }
    note("load a job that waits", WAITING, &ns);
    assert_int_equal(attach_all(b), EXECUTORS);
    note("attach, and start a job", EXECUTORS, &ns);
    run_all(b, EXECUTORS);
    note("two messages of a rank", EXECUTORS, &ns);
    for (int i = 0; i < 100; i++)
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    note("tick", 100, &ns);
    for (int i = 0; i < EXECUTORS; i++)
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = ids[i], .last_seen_ms = b->now });
    note("heartbeat", EXECUTORS, &ns);
    for (int64_t job = WAITING; job > WAITING - 1000; job--)
        tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = job, .more = job % TOGETHER != 0 });
    tell(b, (struct scheduler_event){ .kind = EV_PLACE });
    note("cancel a job that waits", 1000, &ns);
    int restarted = 0;
    for (int i = 0; i < 1000; i++) { /* all executors attach again: a new leader, or a network that came back */
        struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = ids[i] };
        ev.attach.incarnation = 2;
        ev.attach.slots[SCHEDULER_SLOT_CPU] = 1;
        ev.more = (i + 1) % TOGETHER != 0;
        tell(b, ev);
        restarted += find(b, ACT_ATTEMPT_END) != NULL;
    }
    tell(b, (struct scheduler_event){ .kind = EV_PLACE });
    note("attach without its rank, which has ended", 1000, &ns);
    assert_int_equal(restarted, 1000);
    assert_int_equal(scheduler_counts(b->s).jobs, WAITING - 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = { ON_BENCH(a_large_fleet_starts_runs_ends_and_cancels_jobs) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
