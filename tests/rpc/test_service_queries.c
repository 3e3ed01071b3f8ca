/* MetricService, LogService, CheckpointService, ExecutorService and the HTTP pages, over a real controller and
 * PostgreSQL. */
#include "tests/rpc/service_fixture.h"

#include "base/clock.h"
#include "service/http/http.h"
#include "service/store/report.h"

#include <arpa/inet.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <trainyard/v1/checkpoint.pb-c.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/log.pb-c.h>
#include <trainyard/v1/metric.pb-c.h>
#include <unistd.h>

/* ---- a running job whose records the test stores ---- */

struct run {
    struct agent *agent;
    int64_t job, epoch, sequence;
    struct store_report *report;
};

static struct run run_start(struct service_fixture *y) {
    struct run r = { .agent = agent_new(y, "host-a", 1, 1) };
    agent_attach(r.agent, NULL);
    r.job = service_submit(y, 1, 0);
    service_run(y, &r.agent, 1, r.job, 1);
    OK(controller_leads(y->controller, &r.epoch, &e));
    r.report = store_report_new(controller_store(y->controller), r.epoch);
    return r;
}

static void run_report(struct run *r, const struct store_record *records, size_t n) {
    struct store_batch batch = { r->job, 1, 0, r->sequence + 1, records, n, 0, "host-a" };
    struct store_batch_result result;
    OK(store_report_write(r->report, &batch, 1, &result, &e));
    r->sequence += (int64_t)n;
    assert_int_equal(result.sequence, r->sequence);
}

static void run_stop(struct run *r) {
    store_report_free(r->report);
    agent_free(r->agent);
}

static char *job_name(int64_t job) {
    static char name[32];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    return name;
}

static void *call(struct service_fixture *y, const ProtobufCServiceDescriptor *service, const char *method,
                  const ProtobufCMessage *request) {
    ProtobufCMessage *reply = NULL;
    OK(rpc_call_unary(y->channel, service, method, request, FIXTURE_PATIENCE_MS, &reply, &e));
    return reply;
}

static void refused(struct service_fixture *y, const ProtobufCServiceDescriptor *service, const char *method,
                    const ProtobufCMessage *request, status_t status, const char *reason, const char *text) {
    ProtobufCMessage *reply = NULL;
    char found[RPC_REASON_BYTES];
    FAILS(rpc_call_unary_reason(y->channel, service, method, request, FIXTURE_PATIENCE_MS, &reply, found, &e), status,
          text);
    assert_string_equal(found, reason);
}

/* ---- metrics ---- */

#define METRICS &trainyard__v1__metric_service__descriptor

static void metrics_are_queried_by_name_and_downsampled(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    static char *const names[] = { "loss", "grad_norm" };
    static struct store_record records[2500];
    static double values[2500][2];
    for (int i = 0; i < 2500; i++) {
        values[i][0] = i;
        values[i][1] = -i;
        records[i] = record_metrics(i + 1, 2, names, values[i]);
    }
    run_report(&r, records, 2500);
    Trainyard__V1__QueryMetricsRequest in = TRAINYARD__V1__QUERY_METRICS_REQUEST__INIT;
    in.job = job_name(r.job);
    Trainyard__V1__QueryMetricsResponse *out = call(y, METRICS, "QueryMetrics", &in.base);
    assert_int_equal(out->n_series, 2);
    assert_string_equal(out->series[0]->name, "grad_norm");
    assert_int_equal(out->series[0]->n_mean, 834); /* of the default 1,000: runs of 3 */
    protobuf_c_message_free_unpacked(&out->base, NULL);
    in.names = (char **)names;
    in.n_names = 1;
    in.max_points = 100;
    in.after_step = 500;
    out = call(y, METRICS, "QueryMetrics", &in.base);
    assert_int_equal(out->n_series, 1);
    assert_int_equal(out->series[0]->points, 2000);
    assert_int_equal(out->series[0]->n_step, 100);
    assert_int_equal(out->series[0]->last_step, 2500);
    assert_true(out->series[0]->last_value == 2499 && out->series[0]->max[99] == 2499 && out->series[0]->min[0] == 500);
    protobuf_c_message_free_unpacked(&out->base, NULL);
    in.max_points = 10001;
    refused(y, METRICS, "QueryMetrics", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "max_points");
    in.max_points = 0;
    in.job = "jobs/999";
    refused(y, METRICS, "QueryMetrics", &in.base, ST_NOT_FOUND, "JOB_NOT_FOUND", "jobs/999 does not exist");
    in.job = "job 9";
    refused(y, METRICS, "QueryMetrics", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "'job 9'");
    run_stop(&r);
}

#define JOBS &trainyard__v1__job_service__descriptor

static void rank_seconds_are_summed_by_attempt_and_listed_by_rank(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    static char *const names[] = { "data_wait_seconds" };
    const double wait = 0.25;
    struct store_record records[] = { { .kind = STORE_RECORD_JOINED }, record_metrics(1, 1, names, &wait) };
    records[0].time_us = clock_wall_us();
    records[1].time_us = records[0].time_us + 1000000;
    records[1].metrics.per_rank = true;
    run_report(&r, records, 2);
    /* A clock of a host that is a second ahead: its step fits only into a wall time of more than a second. */
    pg_run(y->conninfo, "UPDATE attempt SET create_time = create_time - interval '1 hour'");
    Trainyard__V1__GetRankSecondsRequest in = TRAINYARD__V1__GET_RANK_SECONDS_REQUEST__INIT;
    in.name = job_name(r.job);
    Trainyard__V1__GetRankSecondsResponse *out = call(y, JOBS, "GetRankSeconds", &in.base);
    assert_int_equal(out->n_attempts, 1);
    assert_int_equal(out->n_ranks, 0);
    assert_int_equal(out->attempts[0]->attempt, 1);
    assert_int_equal(out->attempts[0]->ranks, 1);
    assert_true(out->attempts[0]->wall_seconds > 3600);
    assert_true(fabs(out->attempts[0]->sum->data - wait) < 1e-6 && out->total->data == out->attempts[0]->sum->data);
    assert_true(out->total->start > 3598 && out->total->compute >= 0.75);
    protobuf_c_message_free_unpacked(&out->base, NULL);
    in.attempt = 1;
    out = call(y, JOBS, "GetRankSeconds", &in.base);
    assert_int_equal(out->n_ranks, 1);
    assert_true(fabs(out->ranks[0]->sum->data - wait) < 1e-6);
    protobuf_c_message_free_unpacked(&out->base, NULL);
    in.attempt = 2;
    refused(y, JOBS, "GetRankSeconds", &in.base, ST_NOT_FOUND, "NOT_FOUND", "has no attempt 2");
    in.attempt = -1;
    refused(y, JOBS, "GetRankSeconds", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "attempt: -1");
    in.name = "jobs/999";
    in.attempt = 0;
    refused(y, JOBS, "GetRankSeconds", &in.base, ST_NOT_FOUND, "JOB_NOT_FOUND", "jobs/999 does not exist");
    run_stop(&r);
}

/* A thousand steps of loss, of which the first is NaN, and of grad_norm. */
static void report_points(struct run *r) {
    static char *const names[] = { "loss", "grad_norm" };
    static struct store_record records[1000];
    static double values[1000][2];
    for (int i = 0; i < 1000; i++) {
        values[i][0] = i ? i : (double)NAN;
        values[i][1] = -i;
        records[i] = record_metrics(i + 1, 2, names, values[i]);
        records[i].time_us = 1795363200000000 + i * 1000000LL;
    }
    run_report(r, records, 1000);
}

/* Checks the points from number `seen` on, by name and step. */
static int check_points(const Trainyard__V1__MetricPoints *run, int seen) {
    assert_true(run->n_step == run->n_value && run->n_step == run->n_time_us && run->attempt == 1);
    for (size_t i = 0; i < run->n_step; i++, seen++) {
        int64_t step = seen % 1000 + 1;
        assert_string_equal(run->name, seen < 1000 ? "grad_norm" : "loss");
        assert_int_equal(run->step[i], step);
        assert_int_equal(run->time_us[i], 1795363199000000 + step * 1000000);
        if (seen == 1000)
            assert_true(isnan(run->value[i]));
        else
            assert_true(run->value[i] == (double)(seen < 1000 ? 1 - step : step - 1));
    }
    return seen;
}

static void points_are_listed_page_by_page(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    Trainyard__V1__ListPointsRequest in = TRAINYARD__V1__LIST_POINTS_REQUEST__INIT;
    Trainyard__V1__ListPointsResponse *out;
    char token[200] = "", second[200] = "";
    int seen = 0;
    report_points(&r);
    in.job = job_name(r.job);
    in.page_size = 300;
    in.page_token = token;
    do {
        int before = seen;
        out = call(y, METRICS, "ListPoints", &in.base);
        for (size_t k = 0; k < out->n_runs; k++)
            seen = check_points(out->runs[k], seen);
        assert_true(seen - before <= 300);
        snprintf(token, sizeof token, "%s", out->next_page_token);
        protobuf_c_message_free_unpacked(&out->base, NULL);
        if (before == 0)
            snprintf(second, sizeof second, "%s", token);
    } while (*token);
    assert_int_equal(seen, 2000);
    char *loss = (char *)"loss";
    in.names = &loss;
    in.n_names = 1;
    in.page_token = second;
    refused(y, METRICS, "ListPoints", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "other filters");
    in.page_token = (char *)"";
    in.page_size = 0;
    in._rank_case = TRAINYARD__V1__LIST_POINTS_REQUEST___RANK_RANK;
    out = call(y, METRICS, "ListPoints", &in.base);
    assert_string_equal(out->next_page_token, "");
    assert_int_equal(check_points(out->runs[0], 1000), 1240);
    protobuf_c_message_free_unpacked(&out->base, NULL);
    run_stop(&r);
}

static void a_request_for_points_that_cannot_be_is_refused(void **state) {
    struct service_fixture *y = *state;
    Trainyard__V1__ListPointsRequest in = TRAINYARD__V1__LIST_POINTS_REQUEST__INIT;
    in.job = job_name(service_submit(y, 1, 0));
    in._rank_case = TRAINYARD__V1__LIST_POINTS_REQUEST___RANK_RANK;
    in.rank = -1;
    refused(y, METRICS, "ListPoints", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "rank: -1");
    in.rank = 0;
    static const char *const tokens[] = { "abcdef1-2-3", "abcdef0-0-0-0-0-100000000" };
    for (size_t i = 0; i < sizeof tokens / sizeof *tokens; i++) {
        in.page_token = (char *)tokens[i];
        refused(y, METRICS, "ListPoints", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "page_token");
    }
    in.page_token = (char *)"";
    in.page_size = -1;
    refused(y, METRICS, "ListPoints", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "page_size: -1");
    in.page_size = 0;
    in.job = "jobs/999";
    refused(y, METRICS, "ListPoints", &in.base, ST_NOT_FOUND, "JOB_NOT_FOUND", "jobs/999 does not exist");
}

/* ---- logs ---- */

#define LOGS &trainyard__v1__log_service__descriptor

static const Trainyard__V1__TailLogsResponse *next(struct rpc_stream *s) {
    const ProtobufCMessage *message;
    OK(rpc_stream_next(s, &message, &e));
    return (const void *)message;
}

static void logs_are_read_on_from_a_cursor(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    struct store_record lines[] = { record_log("one"), record_log("two") };
    run_report(&r, lines, 2);
    Trainyard__V1__TailLogsRequest in = TRAINYARD__V1__TAIL_LOGS_REQUEST__INIT;
    in.job = job_name(r.job);
    char cursor[32];
    struct rpc_stream *s;
    OK(rpc_stream_open(y->channel, LOGS, "TailLogs", &in.base, FIXTURE_PATIENCE_MS, &s, &e));
    const Trainyard__V1__TailLogsResponse *page = next(s);
    assert_int_equal(page->n_lines, 2);
    assert_string_equal(page->lines[1]->text, "two");
    assert_string_equal(page->lines[1]->stream, "stdout");
    assert_int_equal(page->lines[1]->attempt, 1);
    snprintf(cursor, sizeof cursor, "%s", page->cursor);
    assert_null(next(s));
    rpc_stream_close(s);
    run_report(&r, &(struct store_record){ .kind = STORE_RECORD_LOG, .log = { "stderr", "three" } }, 1);
    in.cursor = cursor;
    OK(rpc_stream_open(y->channel, LOGS, "TailLogs", &in.base, FIXTURE_PATIENCE_MS, &s, &e));
    page = next(s);
    assert_int_equal(page->n_lines, 1);
    assert_string_equal(page->lines[0]->text, "three");
    assert_null(next(s));
    rpc_stream_close(s);
    in.cursor = "-5";
    const ProtobufCMessage *none;
    OK(rpc_stream_open(y->channel, LOGS, "TailLogs", &in.base, FIXTURE_PATIENCE_MS, &s, &e));
    FAILS(rpc_stream_next(s, &none, &e), ST_INVALID_ARGUMENT, "cursor");
    rpc_stream_close(s);
    run_stop(&r);
}

static void a_followed_log_ends_with_its_job(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    run_report(&r, &(struct store_record){ .kind = STORE_RECORD_LOG, .log = { "stdout", "first" } }, 1);
    Trainyard__V1__TailLogsRequest in = TRAINYARD__V1__TAIL_LOGS_REQUEST__INIT;
    in.job = job_name(r.job);
    in.follow = true;
    struct rpc_stream *s;
    OK(rpc_stream_open(y->channel, LOGS, "TailLogs", &in.base, FIXTURE_PATIENCE_MS, &s, &e));
    assert_string_equal(next(s)->lines[0]->text, "first");
    run_report(&r, &(struct store_record){ .kind = STORE_RECORD_LOG, .log = { "stdout", "second" } }, 1);
    job_watchers_notify_later(controller_job_watchers(y->controller), r.job);
    assert_string_equal(next(s)->lines[0]->text, "second");
    Trainyard__V1__CancelJobRequest cancel = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    cancel.name = in.job;
    ProtobufCMessage *reply;
    OK(service_call(y, "CancelJob", &cancel.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    agent_expect(r.agent, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_say_ended(r.agent, r.job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, r.sequence);
    assert_null(next(s));
    rpc_stream_close(s);
    service_await_state(y, r.job, TRAINYARD__V1__JOB__STATE__CANCELLED);
    run_stop(&r);
}

/* ---- checkpoints ---- */

#define CHECKPOINTS &trainyard__v1__checkpoint_service__descriptor

static void checkpoints_are_listed_in_pages_newest_first(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    for (int i = 1; i <= 3; i++) {
        struct store_record shard = record_shard(i * 10, 0, 1, false);
        shard.shard.has_validation_loss = i == 3;
        shard.shard.validation_loss = 1.5;
        run_report(&r, &shard, 1);
    }
    Trainyard__V1__ListCheckpointsRequest in = TRAINYARD__V1__LIST_CHECKPOINTS_REQUEST__INIT;
    in.parent = job_name(r.job);
    in.page_size = 2;
    Trainyard__V1__ListCheckpointsResponse *first = call(y, CHECKPOINTS, "ListCheckpoints", &in.base);
    assert_int_equal(first->n_checkpoints, 2);
    assert_int_equal(first->checkpoints[0]->step, 30);
    assert_true(first->checkpoints[0]->validation_loss == 1.5);
    assert_int_equal(first->checkpoints[0]->state, TRAINYARD__V1__CHECKPOINT__STATE__COMMITTED);
    assert_non_null(first->checkpoints[0]->commit_time);
    in.page_token = first->next_page_token;
    Trainyard__V1__ListCheckpointsResponse *second = call(y, CHECKPOINTS, "ListCheckpoints", &in.base);
    assert_int_equal(second->n_checkpoints, 1);
    assert_int_equal(second->checkpoints[0]->step, 10);
    assert_string_equal(second->next_page_token, "");
    Trainyard__V1__GetCheckpointRequest get = TRAINYARD__V1__GET_CHECKPOINT_REQUEST__INIT;
    get.name = second->checkpoints[0]->name;
    Trainyard__V1__Checkpoint *one = call(y, CHECKPOINTS, "GetCheckpoint", &get.base);
    assert_int_equal(one->step, 10);
    protobuf_c_message_free_unpacked(&one->base, NULL);
    get.name = "jobs/1/checkpoints/99999";
    refused(y, CHECKPOINTS, "GetCheckpoint", &get.base, ST_NOT_FOUND, "CHECKPOINT_NOT_FOUND", "does not exist");
    in.page_token = "nonsense";
    refused(y, CHECKPOINTS, "ListCheckpoints", &in.base, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "page_token");
    in.page_token = "";
    in.parent = "jobs/999";
    refused(y, CHECKPOINTS, "ListCheckpoints", &in.base, ST_NOT_FOUND, "JOB_NOT_FOUND", "jobs/999");
    protobuf_c_message_free_unpacked(&first->base, NULL);
    protobuf_c_message_free_unpacked(&second->base, NULL);
    run_stop(&r);
}

/* ---- executors ---- */

static void a_welcomed_executor_is_listed_at_once(void **state) {
    struct service_fixture *y = *state;
    struct agent *agents[40];
    Trainyard__V1__ListExecutorsRequest in = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    for (size_t i = 0; i < 40; i++) {
        char id[32];
        snprintf(id, sizeof id, "host-%zu", i);
        agents[i] = agent_new(y, id, 1, 1);
        agent_attach(agents[i], NULL);
        Trainyard__V1__ListExecutorsResponse *all = call(y, &trainyard__v1__executor_service__descriptor,
                                                         "ListExecutors", &in.base);
        assert_int_equal(all->n_executors, i + 1);
        protobuf_c_message_free_unpacked(&all->base, NULL);
    }
    for (size_t i = 0; i < 40; i++)
        agent_free(agents[i]);
}

/* While the controller waits for the first executor's row, it collects the other rows and then writes them together. */
static void rows_of_a_storm_of_executors_are_written_together(void **state) {
    struct service_fixture *y = *state;
    struct agent *agents[40];
    agents[0] = agent_new(y, "host-0", 1, 1);
    agent_attach(agents[0], NULL);
    struct pg_open *open = pg_begin(y->conninfo, "SELECT 1 FROM executor FOR UPDATE");
    agent_free(agents[0]);
    agents[0] = agent_new(y, "host-0", 2, 1);
    agent_hello(agents[0], NULL);
    pg_await_blocked(y->pg, y->conninfo, 1);
    for (size_t i = 1; i < 40; i++) {
        char id[32];
        snprintf(id, sizeof id, "host-%zu", i);
        agents[i] = agent_new(y, id, 1, 1);
        agent_hello(agents[i], NULL);
    }
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (dispatch_count(controller_dispatch(y->controller)) < 40)
        assert_true(clock_mono_ms() < deadline);
    pg_commit(open);
    for (size_t i = 0; i < 40; i++)
        agent_expect(agents[i], TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM executor"), 40);
    /* All that arrived while the loop waited for the row's lock, except for the first and perhaps one on its way. */
    assert_in_range(pg_number(y->conninfo, "SELECT count(DISTINCT attach_time) FROM executor"), 1, 3);
    for (size_t i = 0; i < 40; i++)
        agent_free(agents[i]);
}

static void an_older_incarnation_is_refused_with_a_message_that_is_also_logged(void **state) {
    struct service_fixture *y = *state;
    static char text[1 << 16];
    FILE *log = tmpfile();
    int terminal = dup(STDERR_FILENO);
    struct agent *newer = agent_new(y, "host", 2, 1), *older = agent_new(y, "host", 1, 1);
    agent_attach(newer, NULL);
    agent_free(newer);
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (dispatch_count(controller_dispatch(y->controller)) > 0)
        assert_true(clock_mono_ms() < deadline);
    dup2(fileno(log), STDERR_FILENO);
    agent_hello(older, NULL);
    const char *told = agent_await_closed(older);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    rewind(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    fclose(log);
    assert_non_null(strstr(told, "a newer start than 1 of it has attached"));
    assert_non_null(strstr(text, "warn executor_refused executor=host incarnation=1"));
    assert_true(agent_idle(older));
    agent_free(older);
}

/* Both wait while the loop writes the first one's row, and are then sent to the database together. */
static void a_hello_that_is_refused_keeps_out_none_that_came_with_it(void **state) {
    struct service_fixture *y = *state;
    struct agent *first = agent_new(y, "host-a", 1, 1), *older = agent_new(y, "host-b", 1, 1),
                 *other = agent_new(y, "host-c", 1, 1);
    pg_run(y->conninfo, "INSERT INTO executor VALUES ('host-b', 9, 2, 'h', 'a', 'v', 0, '', now(), now(), now())");
    struct pg_open *open = pg_begin(y->conninfo, "LOCK TABLE executor IN SHARE MODE");
    agent_hello(first, NULL);
    pg_await_blocked(y->pg, y->conninfo, 1);
    agent_hello(older, NULL);
    agent_hello(other, NULL);
    struct controller_stats stats = { 0 };
    for (deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS); stats.events_waiting < 2;) {
        assert_true(clock_mono_ms() < deadline);
        controller_stats(y->controller, &stats);
    }
    pg_commit(open);
    agent_expect(first, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME);
    agent_expect(other, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME);
    assert_non_null(strstr(agent_await_closed(older), "a newer start than 1 of it has attached"));
    assert_true(agent_idle(older));
    agent_free(first);
    agent_free(older);
    agent_free(other);
}

static void executors_are_listed_in_pages_by_name(void **state) {
    struct service_fixture *y = *state;
    struct agent *agents[] = { agent_new(y, "host-b", 1, 2), agent_new(y, "host-a", 1, 1) };
    agent_attach(agents[0], NULL);
    agent_attach(agents[1], NULL);
    Trainyard__V1__ListExecutorsRequest in = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    in.page_size = 1;
    char token[80] = "";
    static const char *const names[] = { "executors/host-a", "executors/host-b" };
    for (int i = 0; i < 2; i++) {
        in.page_token = token;
        Trainyard__V1__ListExecutorsResponse *page = call(y, &trainyard__v1__executor_service__descriptor,
                                                          "ListExecutors", &in.base);
        assert_int_equal(page->n_executors, 1);
        assert_string_equal(page->executors[0]->name, names[i]);
        assert_int_equal(page->executors[0]->slots, i + 1);
        assert_int_equal(page->executors[0]->state, TRAINYARD__V1__EXECUTOR__STATE__ATTACHED);
        snprintf(token, sizeof token, "%s", page->next_page_token);
        protobuf_c_message_free_unpacked(&page->base, NULL);
    }
    agent_free(agents[0]);
    agent_free(agents[1]);
}

/* ---- pages ---- */

/* Sends one request on a new connection. Returns the whole answer. */
static const char *http_get(int port, const char *line) {
    static char answer[64 << 10];
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)port),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_true(dprintf(fd, "%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", line) > 0);
    size_t n = 0;
    for (ssize_t got; (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
        n += (size_t)got;
    answer[n] = '\0';
    close(fd);
    return answer;
}

static void contains(const char *text, const char *part) {
    if (!strstr(text, part))
        fail_msg("'%.2000s' does not contain '%s'", text, part);
}

static void the_http_pages_show_health_and_metrics(void **state) {
    struct service_fixture *y = *state;
    struct run r = run_start(y);
    run_report(&r, &(struct store_record){ .kind = STORE_RECORD_LOG, .log = { "stdout", "a line" } }, 1);
    struct http *h, *second;
    OK(http_open(&(struct http_config){ .address = "127.0.0.1:0", .controller = y->controller, .server = y->server },
                 &h, &e));
    contains(http_get(http_port(h), "GET /healthz"), "leading");
    const char *metrics = http_get(http_port(h), "GET /metrics");
    contains(metrics, "HTTP/1.1 200 OK");
    contains(metrics, "trainyard_jobs{state=\"running\"} 1\n");
    contains(metrics, "trainyard_executors{state=\"attached\"} 1\n");
    contains(metrics, "trainyard_slots_drained{kind=\"cpu\"} 0\n");
    contains(metrics, "trainyard_ingest_log_lines_total 1\n");
    contains(metrics, "trainyard_database_up 1\n");
    contains(metrics, "trainyard_leader 1\n");
    contains(metrics, "trainyard_rpc_calls_total{service=\"JobService\",method=\"CreateJob\",status=\"OK\"} 1\n");
    contains(metrics, "trainyard_rpc_seconds_bucket{service=\"JobService\",method=\"CreateJob\",le=\"+Inf\"} 1\n");
    contains(http_get(http_port(h), "GET /other"), "404");
    contains(http_get(http_port(h), "DELETE /metrics"), "405");
    char taken[32];
    snprintf(taken, sizeof taken, "127.0.0.1:%d", http_port(h));
    FAILS(http_open(&(struct http_config){ .address = taken, .controller = y->controller, .server = y->server },
                    &second, &e),
          ST_ALREADY_EXISTS, "in use");
    FAILS(http_open(&(struct http_config){ .address = "0.0.0.0:0", .controller = y->controller, .server = y->server },
                    &second, &e),
          ST_FAILED_PRECONDITION, "--tls-cert");
    FAILS(http_open(&(struct http_config){ .address = "nonsense", .controller = y->controller, .server = y->server },
                    &second, &e),
          ST_INVALID_ARGUMENT, "not host:port");
    run_stop(&r);
    pg_kill(y->pg);
    contains(http_get(http_port(h), "GET /healthz"), "503");
    contains(http_get(http_port(h), "GET /metrics"), "trainyard_database_up 0\n");
    pg_restart(y->pg);
    contains(http_get(http_port(h), "GET /metrics"), "trainyard_database_up 1\n");
    http_close(h);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        /* Runs first, while the cluster is small: recovery syncs each of its files. */
        FIXTURE_TEST(the_http_pages_show_health_and_metrics),
        FIXTURE_TEST(metrics_are_queried_by_name_and_downsampled),
        FIXTURE_TEST(rank_seconds_are_summed_by_attempt_and_listed_by_rank),
        FIXTURE_TEST(points_are_listed_page_by_page),
        FIXTURE_TEST(a_request_for_points_that_cannot_be_is_refused),
        FIXTURE_TEST(logs_are_read_on_from_a_cursor),
        FIXTURE_TEST(a_followed_log_ends_with_its_job),
        FIXTURE_TEST(checkpoints_are_listed_in_pages_newest_first),
        FIXTURE_TEST(a_hello_that_is_refused_keeps_out_none_that_came_with_it),
        FIXTURE_TEST(executors_are_listed_in_pages_by_name),
        FIXTURE_TEST(a_welcomed_executor_is_listed_at_once),
        FIXTURE_TEST(rows_of_a_storm_of_executors_are_written_together),
        FIXTURE_TEST(an_older_incarnation_is_refused_with_a_message_that_is_also_logged),
    };
    return cmocka_run_group_tests_name("service queries", tests, service_group_setup, service_group_teardown);
}
