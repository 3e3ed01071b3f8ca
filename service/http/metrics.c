#include "service/http/metrics.h"

#include "api/rpc/call_times.h"
#include "service/store/executor.h"
#include "service/store/job.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* One metric without labels. */
static status_t put(struct bytes *b, const char *name, const char *type, const char *help, double value,
                    struct err *e) {
    return bytes_printf(b, e, "# HELP %s %s\n# TYPE %s %s\n%s %.17g\n", name, help, name, type, name, value);
}

static status_t put_head(struct bytes *b, const char *name, const char *type, const char *help, struct err *e) {
    return bytes_printf(b, e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

static status_t put_jobs(struct bytes *b, const int64_t counts[12], struct err *e) {
    TRY(put_head(b, "trainyard_jobs", "gauge", "Jobs by state.", e));
    for (int state = STORE_JOB_QUEUED; state <= STORE_JOB_CANCELLED; state++) {
        char name[32] = "";
        const char *from = store_job_state_name(state);
        for (size_t i = 0; from[i] && i < sizeof name - 1; i++)
            name[i] = (char)tolower((unsigned char)from[i]);
        TRY(bytes_printf(b, e, "trainyard_jobs{state=\"%s\"} %lld\n", name, (long long)counts[state]));
    }
    return ST_OK;
}

static status_t put_executors(struct bytes *b, const int64_t counts[3], struct err *e) {
    TRY(put_head(b, "trainyard_executors", "gauge", "Executors by state.", e));
    return bytes_printf(b, e,
                        "trainyard_executors{state=\"attached\"} %lld\ntrainyard_executors{state=\"lost\"} %lld\n",
                        (long long)counts[STORE_EXECUTOR_ATTACHED], (long long)counts[STORE_EXECUTOR_LOST]);
}

static status_t put_slots(struct bytes *b, const struct scheduler_counts *n, struct err *e) {
    static const char *const kinds[SCHEDULER_SLOT_KINDS] = { "cpu", "cuda" };
    TRY(put_head(b, "trainyard_slots", "gauge", "Slots of attached executors.", e));
    for (int kind = 0; kind < SCHEDULER_SLOT_KINDS; kind++)
        TRY(bytes_printf(b, e, "trainyard_slots{kind=\"%s\"} %d\n", kinds[kind], n->slots[kind]));
    TRY(put_head(b, "trainyard_slots_used", "gauge", "Slots with a rank.", e));
    for (int kind = 0; kind < SCHEDULER_SLOT_KINDS; kind++)
        TRY(bytes_printf(b, e, "trainyard_slots_used{kind=\"%s\"} %d\n", kinds[kind], n->used[kind]));
    TRY(put_head(b, "trainyard_slots_drained", "gauge", "Slots of attached executors that get no more ranks.", e));
    for (int kind = 0; kind < SCHEDULER_SLOT_KINDS; kind++)
        TRY(bytes_printf(b, e, "trainyard_slots_drained{kind=\"%s\"} %d\n", kinds[kind], n->drained[kind]));
    return ST_OK;
}

static status_t put_controller(struct bytes *b, const struct controller_stats *s, struct err *e) {
    TRY(put(b, "trainyard_leader", "gauge", "1 while this controller leads.", s->leads, e));
    TRY(put(b, "trainyard_epoch", "gauge", "The epoch of its leadership.", (double)s->epoch, e));
    TRY(put(b, "trainyard_agents_attached", "gauge", "Control streams of agents.", s->attached, e));
    TRY(put(b, "trainyard_queued_jobs", "gauge", "Jobs that wait for slots.", s->scheduler.queued, e));
    TRY(put(b, "trainyard_loop_events_waiting", "gauge", "Events that wait for the loop.", s->events_waiting, e));
    TRY(put(b, "trainyard_loop_events_total", "counter", "Events the loop has taken.", (double)s->events, e));
    TRY(put(b, "trainyard_loop_actions_total", "counter", "Actions it has done.", (double)s->actions, e));
    TRY(put(b, "trainyard_loop_busy_seconds_total", "counter", "Time it was not waiting.",
            (double)s->loop_busy_ns / 1e9, e));
    return put_slots(b, &s->scheduler, e);
}

static status_t put_store(struct bytes *b, const struct store_stats *s, struct err *e) {
    TRY(put(b, "trainyard_database_connections", "gauge", "Connections to PostgreSQL.", s->connections, e));
    TRY(put(b, "trainyard_database_connections_busy", "gauge", "Those in use.", s->busy, e));
    TRY(put(b, "trainyard_database_reconnects_total", "counter", "Connects after a failed one.", (double)s->reconnects,
            e));
    TRY(put(b, "trainyard_store_failures_total", "counter", "Transactions that did not end well.", (double)s->failures,
            e));
    TRY(put_head(b, "trainyard_store_seconds", "summary", "Time of a transaction.", e));
    TRY(bytes_printf(b, e, "trainyard_store_seconds_sum %.9f\ntrainyard_store_seconds_count %lld\n",
                     (double)s->busy_ns / 1e9, (long long)(s->transactions + s->failures)));
    TRY(put_head(b, "trainyard_ingest_seconds", "summary", "Time of a write of reports.", e));
    TRY(bytes_printf(b, e, "trainyard_ingest_seconds_sum %.9f\ntrainyard_ingest_seconds_count %lld\n",
                     (double)s->report_ns / 1e9, (long long)s->report_transactions));
    TRY(put(b, "trainyard_ingest_records_total", "counter", "Records of workers stored.", (double)s->records, e));
    TRY(put(b, "trainyard_ingest_points_total", "counter", "Metric points stored.", (double)s->points, e));
    return put(b, "trainyard_ingest_log_lines_total", "counter", "Log lines stored.", (double)s->log_lines, e);
}

/* ---- calls ---- */

struct calls {
    struct bytes *b;
    struct err *e;
    status_t st;
    int part; /* 0: the counter, 1: the histogram; all samples of a metric must follow each other */
};

static status_t put_times(struct bytes *b, const char *method, const struct rpc_call_times *t, struct err *e) {
    int64_t below = 0;
    for (int i = 0; i < RPC_TIME_BUCKETS; i++) {
        below += atomic_load(&t->buckets[i]);
        TRY(bytes_printf(b, e, "trainyard_rpc_seconds_bucket{%s,le=\"%g\"} %lld\n", method, rpc_time_bounds[i],
                         (long long)below));
    }
    const long long n = (long long)atomic_load(&t->unary);
    return bytes_printf(b, e,
                        "trainyard_rpc_seconds_bucket{%s,le=\"+Inf\"} %lld\ntrainyard_rpc_seconds_sum{%s} %.9f\n"
                        "trainyard_rpc_seconds_count{%s} %lld\n",
                        method, n > below ? n : (long long)below, method, (double)atomic_load(&t->unary_ns) / 1e9,
                        method, n > below ? n : (long long)below);
}

static status_t put_ended(struct bytes *b, const char *method, const struct rpc_call_times *t, struct err *e) {
    for (int st = 0; st < RPC_STATUSES; st++) {
        const long long n = (long long)atomic_load(&t->ended[st]);
        if (n > 0)
            TRY(bytes_printf(b, e, "trainyard_rpc_calls_total{%s,status=\"%s\"} %lld\n", method,
                             status_name((status_t)st), n));
    }
    return ST_OK;
}

/* Methods that were never called are left out. */
static void put_method(void *ctx, const char *service, const char *method, const struct rpc_call_times *t) {
    struct calls *c = ctx;
    char labels[160];
    const char *short_name = strrchr(service, '.');
    snprintf(labels, sizeof labels, "service=\"%s\",method=\"%s\"", short_name ? short_name + 1 : service, method);
    if (c->st != ST_OK)
        return;
    if (c->part == 0)
        c->st = put_ended(c->b, labels, t, c->e);
    else if (atomic_load(&t->unary) > 0)
        c->st = put_times(c->b, labels, t, c->e);
}

static status_t put_calls(struct bytes *b, const struct rpc_server *server, struct err *e) {
    struct calls c = { .b = b, .e = e };
    TRY(put_head(b, "trainyard_rpc_calls_total", "counter", "Calls that have ended, by status.", e));
    rpc_server_call_times(server, put_method, &c);
    TRY(c.st);
    TRY(put_head(b, "trainyard_rpc_seconds", "histogram", "Time of a unary call in the controller.", e));
    c.part = 1;
    rpc_server_call_times(server, put_method, &c);
    return c.st;
}

status_t metrics_write(struct controller *c, const struct rpc_server *server, struct bytes *ret, struct err *e) {
    struct controller_stats loop;
    struct store_stats store;
    int64_t jobs[12], executors[3];
    controller_stats(c, &loop);
    store_stats(controller_store(c), &store);
    bool up = store_job_counts(controller_store(c), jobs, NULL) == ST_OK &&
              store_executor_counts(controller_store(c), executors, NULL) == ST_OK;
    TRY(put_head(ret, "trainyard_info", "gauge", "The program.", e));
    TRY(bytes_printf(ret, e, "trainyard_info{version=\"" TRAINYARD_VERSION "\"} 1\n"));
    TRY(put(ret, "trainyard_database_up", "gauge", "1 while PostgreSQL answers.", up, e));
    if (up) {
        TRY(put_jobs(ret, jobs, e));
        TRY(put_executors(ret, executors, e));
    }
    TRY(put_controller(ret, &loop, e));
    TRY(put_store(ret, &store, e));
    return put_calls(ret, server, e);
}
