/* The order of the page: what exists once, calls by method, then sweeps, jobs, executors and devices, whose number may
 * be large (metrics_objects.c). The values come from memory, except the counts, the sweeps and the jobs, which are
 * queries. */
#include "service/http/metrics.h"

#include "api/rpc/call_times.h"
#include "base/alloc.h"
#include "service/http/exposition.h"
#include "service/http/metrics_objects.h"
#include "service/notify/notifier.h"
#include "service/store/executor.h"
#include "service/store/job.h"
#include "service/store/sweep.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

static void put_state(struct exposition *x, const char *family, const char *state, int64_t n) {
    char labels[64] = "state=\"";
    size_t at = strlen(labels);
    for (size_t i = 0; state[i] && at < sizeof labels - 2; i++)
        labels[at++] = (char)tolower((unsigned char)state[i]);
    labels[at] = '"';
    exposition_value(x, family, labels, (double)n);
}

static void put_counts(struct exposition *x, const int64_t jobs[12], const int64_t executors[3]) {
    exposition_family(x, "trainyard_jobs", "gauge", "Jobs by state.");
    for (int state = STORE_JOB_QUEUED; state <= STORE_JOB_CANCELLED; state++)
        put_state(x, "trainyard_jobs", store_job_state_name(state), jobs[state]);
    exposition_family(x, "trainyard_executors", "gauge", "Executors by state.");
    put_state(x, "trainyard_executors", "attached", executors[STORE_EXECUTOR_ATTACHED]);
    put_state(x, "trainyard_executors", "lost", executors[STORE_EXECUTOR_LOST]);
}

static void put_slot_family(struct exposition *x, const char *name, const char *help, const int n[]) {
    static const char *const labels[SCHEDULER_SLOT_KINDS] = { "kind=\"cpu\"", "kind=\"cuda\"" };
    exposition_family(x, name, "gauge", help);
    for (int kind = 0; kind < SCHEDULER_SLOT_KINDS; kind++)
        exposition_value(x, name, labels[kind], n[kind]);
}

static void put_restarts(struct exposition *x, const int64_t restarts[RANK_END_CAUSES]) {
    char labels[64];
    exposition_family(x, "trainyard_restarts_total", "counter",
                      "Attempts of jobs that followed a failed one, by the cause of the failure.");
    for (int cause = 0; cause < RANK_END_CAUSES; cause++) {
        snprintf(labels, sizeof labels, "cause=\"%s\"", rank_end_name((enum rank_end_cause)cause));
        exposition_value(x, "trainyard_restarts_total", labels, (double)restarts[cause]);
    }
}

static void put_controller(struct exposition *x, const struct controller_stats *s, const struct controller_times *t) {
    exposition_single(x, "trainyard_leader", "gauge", "1 while this controller leads.", s->leads);
    exposition_single(x, "trainyard_epoch", "gauge", "The epoch of its leadership.", (double)s->epoch);
    exposition_single(x, "trainyard_agents_attached", "gauge", "Control streams of agents.", s->attached);
    exposition_single(x, "trainyard_queued_jobs", "gauge", "Jobs that wait for slots.", s->scheduler.queued);
    exposition_single_histogram(x, "trainyard_job_queue_seconds", "Time that a job was queued before an attempt.",
                                &t->queued);
    put_restarts(x, s->restarts);
    exposition_single(x, "trainyard_loop_events_waiting", "gauge", "Events that wait for the loop.", s->events_waiting);
    exposition_single(x, "trainyard_loop_events_total", "counter", "Events the loop has taken.", (double)s->events);
    exposition_single(x, "trainyard_loop_actions_total", "counter", "Actions it has done.", (double)s->actions);
    exposition_single(x, "trainyard_loop_busy_seconds_total", "counter", "Time it was not waiting.",
                      (double)s->loop_busy_ns / 1e9);
    exposition_single_histogram(x, "trainyard_loop_turn_seconds", "Time of a turn of the loop.", &t->turns);
    put_slot_family(x, "trainyard_slots", "Slots of attached executors.", s->scheduler.slots);
    put_slot_family(x, "trainyard_slots_used", "Slots with a rank.", s->scheduler.used);
    put_slot_family(x, "trainyard_slots_drained", "Slots of attached executors that get no more ranks.",
                    s->scheduler.drained);
}

static void put_store(struct exposition *x, const struct store_stats *s, const struct store_times *t) {
    exposition_single(x, "trainyard_database_connections", "gauge", "Connections to PostgreSQL.", s->connections);
    exposition_single(x, "trainyard_database_connections_busy", "gauge", "Those in use.", s->busy);
    exposition_single(x, "trainyard_database_reconnects_total", "counter", "Connects after a failed one.",
                      (double)s->reconnects);
    exposition_single(x, "trainyard_store_failures_total", "counter", "Transactions that did not end well.",
                      (double)s->failures);
    exposition_single_histogram(x, "trainyard_store_seconds", "Time of a transaction.", &t->transactions);
    exposition_single_histogram(x, "trainyard_store_statement_seconds", "Time of a statement outside of a pipeline.",
                                &t->statements);
    exposition_single_histogram(x, "trainyard_ingest_seconds", "Time of a write of reports.", &t->reports);
    exposition_single(x, "trainyard_ingest_records_total", "counter", "Records of workers stored.", (double)s->records);
    exposition_single(x, "trainyard_ingest_points_total", "counter", "Metric points stored.", (double)s->points);
    exposition_single(x, "trainyard_ingest_log_lines_total", "counter", "Log lines stored.", (double)s->log_lines);
}

/* ---- notifications ---- */

struct notifications {
    struct exposition *x;
    bool waiting; /* else the counts */
};

static void put_target(void *ctx, const struct notifier_counts *n) {
    const struct notifications *of = ctx;
    static const char *const results[] = { "delivered", "failed_try", "given_up", "dropped" };
    const int64_t counts[] = { n->delivered, n->failed_tries, n->given_up, n->dropped };
    char labels[160];
    snprintf(labels, sizeof labels, "target=\"%s\"", n->target);
    if (of->waiting)
        exposition_value(of->x, "trainyard_notifications_waiting", labels, (double)n->waiting);
    for (size_t i = 0; i < sizeof counts / sizeof *counts && !of->waiting; i++) {
        snprintf(labels, sizeof labels, "target=\"%s\",result=\"%s\"", n->target, results[i]);
        exposition_value(of->x, "trainyard_notifications_total", labels, (double)counts[i]);
    }
}

static void put_notifications(struct exposition *x, struct notifier *n) {
    exposition_family(x, "trainyard_notifications_total", "counter", "Notifications and tries, by their result.");
    notifier_each(n, put_target, &(struct notifications){ x, false });
    exposition_family(x, "trainyard_notifications_waiting", "gauge",
                      "Notifications that wait, as of the last minute; on the leader.");
    notifier_each(n, put_target, &(struct notifications){ x, true });
}

/* ---- calls ---- */

struct calls {
    struct exposition *x;
    bool times; /* else the counts: all samples of a family must follow each other */
};

static void put_ended(struct exposition *x, const char *method, const struct rpc_call_times *t) {
    char labels[200];
    for (int st = 0; st < RPC_STATUSES; st++) {
        const int64_t n = atomic_load(&t->ended[st]);
        snprintf(labels, sizeof labels, "%s,status=\"%s\"", method, status_name((status_t)st));
        if (n > 0)
            exposition_value(x, "trainyard_rpc_calls_total", labels, (double)n);
    }
}

static bool was_called(const struct rpc_call_times *t) {
    bool called = false;
    for (int st = 0; st < RPC_STATUSES && !called; st++)
        called = atomic_load(&t->ended[st]) > 0;
    return called;
}

/* Methods that were never called are left out. */
static void put_method(void *ctx, const char *service, const char *method, const struct rpc_call_times *t) {
    const struct calls *c = ctx;
    char labels[160];
    const char *short_name = strrchr(service, '.');
    if (!was_called(t))
        return;
    snprintf(labels, sizeof labels, "service=\"%s\",method=\"%s\"", short_name ? short_name + 1 : service, method);
    if (!c->times)
        put_ended(c->x, labels, t);
    else if (t->unary)
        exposition_histogram(c->x, "trainyard_rpc_seconds", labels, &t->times);
}

static void put_calls(struct exposition *x, const struct rpc_server *server) {
    exposition_family(x, "trainyard_rpc_calls_total", "counter", "Calls that have ended, by status.");
    rpc_server_call_times(server, put_method, &(struct calls){ x, false });
    exposition_family(x, "trainyard_rpc_seconds", "histogram", "Time of a unary call in the controller.");
    rpc_server_call_times(server, put_method, &(struct calls){ x, true });
}

/* ---- the page ---- */

struct live_jobs {
    struct store_job_brief *briefs;
    struct store_job_seconds *seconds;
    size_t n, n_seconds;
};

static status_t read_jobs(struct store *store, struct store_memory *m, int max, struct live_jobs *ret) {
    TRY(store_job_briefs(store, m, max, &ret->briefs, &ret->n, NULL));
    CLEANUP(freep) int64_t *ids = alloc_zeroed(ret->n + 1, sizeof *ids);
    for (size_t i = 0; i < ret->n; i++)
        ids[i] = ret->briefs[i].id;
    return store_job_seconds(store, m, ids, ret->n, &ret->seconds, &ret->n_seconds, NULL);
}

struct open_sweeps {
    struct store_sweep_brief *briefs;
    size_t n;
};

/* Live jobs beyond max_jobs and open sweeps beyond METRICS_SWEEPS have no series. */
static void count_left_out(struct metrics_source *source, const int64_t counts[12], size_t n_jobs,
                           const struct open_sweeps *sweeps, struct exposition *x) {
    int64_t live = 0;
    if (sweeps->n > 0)
        atomic_fetch_add(&source->left_out_sweeps, sweeps->briefs[0].open - (int64_t)sweeps->n);
    for (int state = STORE_JOB_QUEUED; state < STORE_JOB_SUCCEEDED; state++)
        live += counts[state];
    if (live > (int64_t)n_jobs && n_jobs == (size_t)source->max_jobs)
        atomic_fetch_add(&source->left_out_jobs, live - (int64_t)n_jobs);
    atomic_fetch_add(&source->left_out_by_size, x->left_out);
    exposition_single(
        x, "trainyard_metrics_jobs_left_out_total", "counter",
        "Jobs without series of their own, because there are more than --metrics-jobs; summed over pages.",
        (double)atomic_load(&source->left_out_jobs));
    exposition_single(x, "trainyard_metrics_sweeps_left_out_total", "counter",
                      "Sweeps without series of their own, because there are many; summed over pages.",
                      (double)atomic_load(&source->left_out_sweeps));
    exposition_single(
        x, "trainyard_metrics_samples_left_out_total", "counter",
        "Samples of sweeps, jobs, executors and devices that did not fit into the page; summed over pages.",
        (double)atomic_load(&source->left_out_by_size));
}

status_t metrics_write(struct metrics_source *source, struct bytes *ret, struct err *e) {
    struct controller *c = source->controller;
    struct store *store = controller_store(c);
    struct controller_stats loop;
    struct store_stats stats;
    int64_t counts[12] = { 0 }, executors[3];
    struct live_jobs jobs = { 0 };
    struct open_sweeps sweeps = { 0 };
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct exposition x = { .text = ret, .e = e, .object_bytes = ret->len + METRICS_OBJECT_BYTES };
    controller_stats(c, &loop);
    store_stats(store, &stats);
    const bool has_jobs = loop.leads && source->max_jobs > 0; /* a standby has no series of jobs */
    const bool up = store_job_counts(store, counts, NULL) == ST_OK &&
                    store_executor_counts(store, executors, NULL) == ST_OK &&
                    (!loop.leads ||
                     store_sweep_briefs(store, m, METRICS_SWEEPS, &sweeps.briefs, &sweeps.n, NULL) == ST_OK) &&
                    (!has_jobs || read_jobs(store, m, source->max_jobs, &jobs) == ST_OK);
    exposition_family(&x, "trainyard_info", "gauge", "The program.");
    exposition_value(&x, "trainyard_info", "version=\"" TRAINYARD_VERSION "\"", 1);
    exposition_single(&x, "trainyard_database_up", "gauge", "1 while PostgreSQL answers.", up);
    if (up)
        put_counts(&x, counts, executors);
    put_controller(&x, &loop, controller_times(c));
    put_store(&x, &stats, store_times(store));
    put_notifications(&x, controller_notifier(c));
    put_calls(&x, source->server);
    if (!loop.leads)
        memset(counts, 0, sizeof counts);
    metrics_put_sweeps(&x, sweeps.briefs, sweeps.n);
    metrics_put_jobs(&x, controller_progress(c), jobs.briefs, jobs.n);
    metrics_put_rank_seconds(&x, jobs.briefs, jobs.n, jobs.seconds, jobs.n_seconds);
    metrics_put_executors(&x, controller_dispatch(c));
    count_left_out(source, counts, jobs.n, &sweeps, &x);
    return x.st;
}
