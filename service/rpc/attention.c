/* Each sentence names one thing and since when. Executors that are lost, disconnected, drained or faulty, and devices
 * in quarantine follow from the rows of executors. Of the jobs, those that failed within the last day are counted, and
 * the oldest waiting job is named if it has waited for longer than WAIT_US, with the reason that the scheduler has
 * stored. */
#include "service/rpc/attention.h"

#include "base/clock.h"
#include "service/store/job_list.h"
#include "service/store/queue.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { FAILED_MAX = 100 };
#define US_PER_S INT64_C(1000000)
#define DAY_US   (86400 * US_PER_S)
#define WAIT_US  (600 * US_PER_S)

void attention_add(struct attention *ret, struct arena *a, const char *fmt, ...) {
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (ret->n < ATTENTION_MAX)
        ret->sentences[ret->n++] = arena_printf(a, "%s", text);
}

/* "3 minutes", "2 hours", "5 days". */
static const char *since(struct arena *a, int64_t time_us) {
    static const struct {
        const char *unit;
        int64_t seconds;
    } units[] = { { "day", 86400 }, { "hour", 3600 }, { "minute", 60 }, { "second", 1 } };
    const int64_t seconds = (clock_wall_us() - time_us) / US_PER_S;
    size_t i = 0;
    while (i < 3 && seconds < 2 * units[i].seconds)
        i++;
    const long long n = seconds > 0 ? (long long)(seconds / units[i].seconds) : 0;
    return arena_printf(a, "%lld %s%s", n, units[i].unit, n == 1 ? "" : "s");
}

void attention_add_executor(struct attention *ret, struct arena *a, const struct store_executor *x) {
    int quarantined = 0;
    for (size_t i = 0; i < x->n_devices; i++)
        quarantined += x->devices[i].quarantined;
    if (x->state == STORE_EXECUTOR_LOST)
        attention_add(ret, a, "executor %s on host %s is lost; its last heartbeat came %s ago", x->id, x->hostname,
                      since(a, x->heartbeat_time_us));
    else if (x->detach_time_us)
        attention_add(ret, a, "executor %s on host %s is %s since %s", x->id, x->hostname,
                      x->leaving ? "stopping" : "disconnected", since(a, x->detach_time_us));
    if (quarantined > 0 && x->state != STORE_EXECUTOR_LOST)
        attention_add(ret, a, "%d of %zu GPUs of host %s %s quarantined", quarantined, x->n_devices, x->hostname,
                      quarantined == 1 ? "is" : "are");
    if (x->fault_time_us)
        attention_add(ret, a, "host %s has failed %d job%s, the last one %s ago: %s", x->hostname, x->fault_jobs,
                      x->fault_jobs == 1 ? "" : "s", since(a, x->fault_time_us), x->fault_reason);
    if (x->drain_time_us)
        attention_add(ret, a, "host %s is drained since %s%s%s%s%s", x->hostname, since(a, x->drain_time_us),
                      *x->drain_requester ? ", by " : "", x->drain_requester, *x->drain_reason ? ": " : "",
                      x->drain_reason);
}

static status_t add_failed(struct attention *ret, struct arena *a, struct store *s, struct store_memory *m,
                           struct err *e) {
    const struct store_job_filter filter = { .state = STORE_JOB_FAILED,
                                             .order = STORE_JOBS_BY_END,
                                             .limit = FAILED_MAX };
    const int64_t after_us = clock_wall_us() - DAY_US;
    struct store_job *jobs;
    size_t n, failed = 0;
    TRY(store_job_list(s, m, &filter, &jobs, &n, e));
    while (failed < n && jobs[failed].end_time_us >= after_us)
        failed++;
    if (failed > 0)
        attention_add(ret, a, "%s%zu job%s failed within the last day, the last one is job %lld: %s",
                      failed == FAILED_MAX ? "at least " : "", failed, failed == 1 ? "" : "s", (long long)jobs[0].id,
                      jobs[0].reason);
    return ST_OK;
}

static status_t add_waiting(struct attention *ret, struct arena *a, struct store *s, struct store_memory *m,
                            int64_t queued, struct err *e) {
    const struct store_job_filter filter = { .state = STORE_JOB_QUEUED, .reverse = true, .limit = 1 };
    struct store_job *jobs;
    size_t n;
    TRY(store_job_list(s, m, &filter, &jobs, &n, e));
    if (n > 0 && clock_wall_us() - jobs[0].create_time_us > WAIT_US)
        attention_add(ret, a, "%lld job%s; job %lld is the oldest, submitted %s ago%s%s", (long long)queued,
                      queued == 1 ? " waits" : "s wait", (long long)jobs[0].id, since(a, jobs[0].create_time_us),
                      *jobs[0].reason ? ": " : "", jobs[0].reason);
    return ST_OK;
}

status_t attention_add_jobs(struct attention *ret, struct arena *a, struct store *s, int64_t queued, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    TRY(add_failed(ret, a, s, m, e));
    return queued > 0 ? add_waiting(ret, a, s, m, queued, e) : ST_OK;
}
