/* Leadership, with the real program: which controller leads, how soon, and how clients can see it (a start over a long
 * history, a standby, a controller that cannot lead). Also a migration that is cancelled. */
#include "tests/rpc/service_fixture.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"
#include "service/http/http.h"
#include "service/store/migrate.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <grpc/health/v1/health.pb-c.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <trainyard/v1/executor.pb-c.h>
#include <unistd.h>

/* ---- the program ---- */

struct program {
    char address[128], log[160];
    pid_t pid;
    int out;
    struct rpc_channel *channel;
};

static void program_start(struct service_fixture *y, const char *name, struct program *ret) {
    char path[4200];
    int out[2];
    snprintf(path, sizeof path, "%s/bin/trainyard-controller", getenv("TRAINYARD_BUILD"));
    snprintf(ret->address, sizeof ret->address, "unix:%s/%s.sock", y->directory, name);
    snprintf(ret->log, sizeof ret->log, "%s/%s.log", y->directory, name);
    const char *argv[] = { path,         "--database",    y->conninfo,  "--listen",
                           ret->address, "--checkpoints", y->directory, NULL };
    int log = open(ret->log, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);
    assert_true(log >= 0);
    assert_int_equal(pipe2(out, O_CLOEXEC), 0);
    const struct process p = {
        .program = path, .argv = argv, .fds = { { PROCESS_NULL, 0 }, { out[1], 1 }, { log, 2 } }, .n_fds = 3
    };
    OK(process_start(&p, &ret->pid, &e));
    close(log);
    close(out[1]);
    ret->out = out[0];
    struct rpc_channel_config config = { .address = ret->address };
    OK(rpc_channel_open(&config, &ret->channel, &e));
}

static void program_await_ready(struct program *p) {
    char line[256];
    ssize_t n = read(p->out, line, sizeof line);
    assert_true(n > 6 && strncmp(line, "ready ", 6) == 0);
}

static void program_stop(struct program *p, int signal) {
    kill(p->pid, signal);
    waitpid(p->pid, NULL, 0);
    rpc_channel_close(p->channel);
    close(p->out);
    unlink(p->log);
    unlink(p->address + strlen("unix:"));
}

static void program_await_logged(const struct program *p, const char *text) {
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    for (bool seen = false; !seen;) {
        struct bytes all;
        bytes_init(&all, 1 << 20);
        OK(file_read(p->log, &all, &e));
        seen = all.data && memmem(all.data, all.len, text, strlen(text));
        bytes_done(&all);
        if (clock_mono_ms() > deadline)
            fail_msg("'%s' is not logged", text);
    }
}

/* ---- migrate ---- */

static void a_signal_cancels_migrate_which_ends_when_postgresql_has_ended_its_statement(void **state) {
    struct service_fixture *y = *state;
    char path[4200], log[160], conninfo[256];
    snprintf(conninfo, sizeof conninfo, "%s", pg_database(y->pg, false));
    OK(store_migrate(conninfo, 12, NULL, &e));
    struct pg_open *in_the_way = pg_begin(conninfo, "LOCK TABLE placement IN ACCESS EXCLUSIVE MODE");
    snprintf(path, sizeof path, "%s/bin/trainyard-controller", getenv("TRAINYARD_BUILD"));
    snprintf(log, sizeof log, "%s/migrate.log", y->directory);
    int out = open(log, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600), status;
    const char *argv[] = { path, "migrate", "--database", conninfo, "--wait", "60", NULL };
    const struct process p = {
        .program = path, .argv = argv, .fds = { { PROCESS_NULL, 0 }, { out, 1 }, { out, 2 } }, .n_fds = 3
    };
    pid_t pid;
    OK(process_start(&p, &pid, &e));
    pg_await_blocked(y->pg, conninfo, 1);
    kill(pid, SIGTERM);
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 1);
    assert_int_equal(pg_number(conninfo, "SELECT count(*) FROM pg_locks WHERE NOT granted"), 0);
    pg_commit(in_the_way);
    struct bytes all;
    bytes_init(&all, 1 << 20);
    OK(file_read(log, &all, &e));
    OK(bytes_append(&all, "", 1, &e));
    assert_non_null(strstr((const char *)all.data, "migration 0013_live_rows.up.sql: begins\n"));
    assert_non_null(strstr((const char *)all.data, "trainyard-controller: migrate: migration 0013_live_rows.up.sql was "
                                                   "cancelled"));
    bytes_done(&all);
    close(out);
    unlink(log);
}

/* ---- a start over a long history ---- */

/* Executors; jobs of 50 ranks that have ended; jobs of one rank that run; jobs that wait. */
struct fleet {
    int executors, ended, running, waiting;
};
static const struct fleet SMALL = { 1000, 20000, 2000, 5000 }; /* a million placements of ended attempts */
/* With TRAINYARD_FLEET=1: ten millions. It takes minutes and 5 GB of disk. */
static const struct fleet LARGE = { 10000, 200000, 10000, 100000 };

static void make_history(struct service_fixture *y, const struct fleet *f) {
    char sql[4000];
    snprintf(
        sql, sizeof sql,
        "SET session_replication_role = replica;" /* skips millions of checks of foreign keys */
        "INSERT INTO executor SELECT 'host-' || i, 1, 1, 'h', 'a', 'v', 8, '', now(), now() "
        "FROM generate_series(0, %1$d - 1) i;"
        "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, attempt, steps, "
        "keep_last, keep_best, start_time, end_time) SELECT 'old', 'q', 9, 0, 50, 'cpu', 0, 1, 1, 1, 0, now(), now() "
        "FROM generate_series(1, %2$d);"
        "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, attempt, steps, "
        "keep_last, keep_best, start_time) SELECT 'runs', 'q', 3, 0, 1, 'cpu', 0, 1, 1, 1, 0, now() "
        "FROM generate_series(1, %3$d);"
        "INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, "
        "keep_best) SELECT 'waits', 'q', 1, i %% 7, 8, 'cpu', 0, 1, 1, 0 FROM generate_series(1, %4$d) i;"
        "INSERT INTO job_spec SELECT id, '' FROM job;"
        "INSERT INTO attempt (job, number, state, epoch, from_step, start_time, end_time) "
        "SELECT id, 1, CASE WHEN state = 9 THEN 4 ELSE 2 END, 1, 0, now(), end_time FROM job WHERE attempt = 1;"
        "INSERT INTO placement (job, attempt, rank, executor, end_time, cause) "
        "SELECT j.id, 1, r, 'host-' || (j.id + r) %% %1$d, j.end_time, CASE WHEN j.state = 9 THEN 1 END "
        "FROM job j, generate_series(0, j.world_size - 1) r WHERE j.attempt = 1;"
        "ANALYZE;",
        f->executors, f->ended, f->running, f->waiting);
    pg_run(y->conninfo, sql);
}

/* A backend reports its counters before its row disappears. */
static void await_backends_gone(struct service_fixture *y) {
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (pg_number(y->conninfo, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
                                  "AND application_name = 'trainyard'") > 0)
        assert_true(clock_mono_ms() < deadline);
}

static long long rows_read(struct service_fixture *y, const char *table) {
    char sql[200];
    snprintf(sql, sizeof sql,
             "SELECT seq_tup_read + coalesce(idx_tup_fetch, 0) FROM pg_stat_user_tables WHERE relname = '%s'", table);
    return pg_number(y->conninfo, sql);
}

static void expect_executors(const struct program *p, int executors, int slots_used) {
    Trainyard__V1__ListExecutorsRequest request = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    char token[400] = "";
    int n = 0, used = 0;
    request.page_size = 1000;
    do {
        ProtobufCMessage *reply;
        request.page_token = token;
        OK(rpc_call_unary(p->channel, &trainyard__v1__executor_service__descriptor, "ListExecutors", &request.base,
                          FIXTURE_PATIENCE_MS, &reply, &e));
        const Trainyard__V1__ListExecutorsResponse *list = (const void *)reply;
        for (size_t i = 0; i < list->n_executors; i++, n++)
            used += list->executors[i]->slots_used;
        snprintf(token, sizeof token, "%s", list->next_page_token);
        protobuf_c_message_free_unpacked(reply, NULL);
    } while (token[0]);
    assert_int_equal(n, executors);
    assert_int_equal(used, slots_used);
}

/* The milliseconds that the leader took to read its rows, as it logged them. */
static long long recovered_ms(const struct program *p) {
    struct bytes all;
    bytes_init(&all, 1 << 20);
    OK(file_read(p->log, &all, &e));
    const char *line = strstr(all.data, " recovered "), *ms = line ? strstr(line, " ms=") : NULL;
    assert_non_null(ms);
    long long took = atoll(ms + strlen(" ms="));
    bytes_done(&all);
    return took;
}

static void a_start_reads_live_rows_only_however_long_the_history_is(void **state) {
    struct service_fixture *y = *state;
    const bool large = getenv("TRAINYARD_FLEET") != NULL;
    const struct fleet *f = large ? &LARGE : &SMALL;
    service_stop_controller(y);
    make_history(y, f);
    await_backends_gone(y);
    const long long placements = rows_read(y, "placement"), attempts = rows_read(y, "attempt");
    struct program p = { 0 };
    int64_t begun_ms = clock_mono_ms();
    program_start(y, "one", &p);
    program_await_ready(&p);
    print_message("# it led %lld ms after its start, and read its rows in %lld ms\n",
                  (long long)(clock_mono_ms() - begun_ms), recovered_ms(&p));
    if (large) /* a goal, on a quiet machine */
        assert_in_range(recovered_ms(&p), 0, 5000);
    expect_executors(&p, f->executors, f->running);
    program_stop(&p, SIGKILL);
    await_backends_gone(y);
    /* Each open one is read once for the scheduler and once for the list. The history has millions. */
    assert_in_range(rows_read(y, "placement") - placements, f->running, 10 * f->running);
    assert_in_range(rows_read(y, "attempt") - attempts, f->running, 10 * f->running);
    service_start_controller(y);
}

/* ---- probes ---- */

/* A standby does not report when it begins to listen, so it may still be unreachable. */
static int health_of(const struct program *p, const char *service) {
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.service = (char *)service;
    const deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    struct err e = { "" };
    status_t st;
    while ((st = rpc_call_unary(p->channel, &grpc__health__v1__health__descriptor, "Check", &request.base,
                                FIXTURE_PATIENCE_MS, &reply, &e)) == ST_UNAVAILABLE &&
           clock_mono_ms() < deadline)
        continue;
    if (st != ST_OK)
        fail_msg("%s", e.msg);
    int status = ((Grpc__Health__V1__HealthCheckResponse *)reply)->status;
    protobuf_c_message_free_unpacked(reply, NULL);
    return status;
}

#define SERVING     GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__SERVING
#define NOT_SERVING GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__NOT_SERVING

static void expect_health(const struct program *p, int of_what_needs_the_lead) {
    static const char *const needs_lead[] = { "",
                                              "trainyard.v1.JobService",
                                              "trainyard.v1.DispatchService",
                                              "trainyard.v1.CheckpointService",
                                              "trainyard.v1.ExecutorService",
                                              "trainyard.v1.QueueService",
                                              "trainyard.v1.TokenService" };
    static const char *const reads[] = { "trainyard.v1.MetricService", "trainyard.v1.LogService",
                                         "trainyard.v1.StatusService", "trainyard.v1.AuditService" };
    for (size_t i = 0; i < sizeof needs_lead / sizeof *needs_lead; i++)
        if (health_of(p, needs_lead[i]) != of_what_needs_the_lead)
            fail_msg("'%s' is not %d", needs_lead[i], of_what_needs_the_lead);
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++)
        assert_int_equal(health_of(p, reads[i]), SERVING);
}

static void expect_refused(struct rpc_channel *channel, const char *text) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.spec = service_spec(1, 0);
    FAILS(rpc_call_unary(channel, &trainyard__v1__job_service__descriptor, "CreateJob", &request.base,
                         FIXTURE_PATIENCE_MS, &reply, &e),
          ST_UNAVAILABLE, text);
}

static void a_standby_does_not_serve_what_needs_the_lead_until_it_leads(void **state) {
    struct service_fixture *y = *state;
    struct program one = { 0 }, two = { 0 };
    service_stop_controller(y);
    program_start(y, "one", &one);
    program_await_ready(&one);
    program_start(y, "two", &two);
    program_await_logged(&two, "standing_by reason=\"another controller leads\"");
    expect_health(&one, SERVING);
    expect_health(&two, NOT_SERVING);
    expect_refused(two.channel, "this controller does not lead: another one does");
    program_stop(&one, SIGKILL);
    program_await_ready(&two);
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (health_of(&two, "") != SERVING) /* its main thread sets it after it prints the line */
        assert_true(clock_mono_ms() < deadline);
    while (health_of(&two, "trainyard.v1.TokenService") != SERVING)
        assert_true(clock_mono_ms() < deadline);
    expect_health(&two, SERVING);
    program_stop(&two, SIGTERM);
    service_start_controller(y);
}

/* Sends one request on a new connection. Returns the whole answer. */
static const char *http_get(const struct http *h, const char *path) {
    static char answer[4096];
    struct sockaddr_in at = { .sin_family = AF_INET,
                              .sin_port = htons((uint16_t)http_port(h)),
                              .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&at, sizeof at), 0);
    assert_true(dprintf(fd, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path) > 0);
    size_t n = 0;
    for (ssize_t got; (got = read(fd, answer + n, sizeof answer - 1 - n)) > 0;)
        n += (size_t)got;
    answer[n] = '\0';
    close(fd);
    return answer;
}

static void expect_page(const struct http *h, const char *path, int code, const char *body) {
    const char *answer = http_get(h, path), *end = strstr(answer, "\r\n\r\n");
    if (!end || atoi(answer + strlen("HTTP/1.1 ")) != code || strcmp(end + 4, body) != 0)
        fail_msg("%s: not %d '%s' but: %s", path, code, body, answer);
}

static void await_page(const struct http *h, const char *path, const char *text) {
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (!strstr(http_get(h, path), text))
        if (clock_mono_ms() > deadline)
            fail_msg("%s does not say '%s' but: %s", path, text, http_get(h, path));
}

static void healthz_is_200_on_the_leader_alone(void **state) {
    struct service_fixture *y = *state;
    struct controller_options options = { .database = y->conninfo, .checkpoints = "/nowhere/checkpoints" };
    struct controller *standby;
    struct http *first, *second;
    OK(controller_open(&options, &standby, &e));
    OK(http_open(&(struct http_config){ .address = "127.0.0.1:0", .controller = y->controller, .server = y->server },
                 &first, &e));
    OK(http_open(&(struct http_config){ .address = "127.0.0.1:0", .controller = standby, .server = y->server }, &second,
                 &e));
    await_page(second, "/healthz", "standby");
    expect_page(first, "/healthz", 200, "leading\n");
    expect_page(second, "/healthz", 503, "standby: another controller leads\n");
    expect_page(first, "/livez", 200, "alive\n");
    expect_page(second, "/livez", 200, "alive\n");
    pg_kill(y->pg);
    await_page(first, "/healthz", "cannot lead: its database cannot be reached\n");
    await_page(second, "/healthz", "cannot lead: its database cannot be reached\n");
    expect_page(second, "/livez", 200, "alive\n");
    pg_restart(y->pg);
    http_close(first);
    http_close(second);
    controller_close(standby);
}

/* ---- a controller that cannot lead ---- */

/* The log lines that this process writes while they are captured. */
struct caught {
    FILE *file;
    int terminal;
};

static struct caught catch_log(void) {
    struct caught c = { tmpfile(), dup(STDERR_FILENO) };
    dup2(fileno(c.file), STDERR_FILENO);
    return c;
}

static const char *caught_log(struct caught *c) {
    static char text[1 << 16];
    dup2(c->terminal, STDERR_FILENO);
    close(c->terminal);
    rewind(c->file);
    text[fread(text, 1, sizeof text - 1, c->file)] = '\0';
    fclose(c->file);
    return text;
}

static size_t times_in(const char *text, const char *part) {
    size_t n = 0;
    for (; (text = strstr(text, part)) != NULL; text += strlen(part))
        n++;
    return n;
}

static void a_controller_that_cannot_lead_reports_why_in_the_log_in_healthz_and_to_clients(void **state) {
    struct service_fixture *y = *state;
    static const char why[] = "cannot lead: what jobs and executors there are could not be read: PostgreSQL: job_live: "
                              "relation \"job_spec\" does not exist (42P01)";
    struct controller_options options = { .database = y->conninfo, .checkpoints = "/nowhere/checkpoints" };
    struct http *h;
    char line[sizeof why + 32];
    service_stop_controller(y);
    pg_run(y->conninfo, "ALTER TABLE job_spec RENAME TO away");
    struct caught log = catch_log();
    OK(controller_open(&options, &y->controller, &e));
    OK(http_open(&(struct http_config){ .address = "127.0.0.1:0", .controller = y->controller, .server = y->server },
                 &h, &e));
    const long long epoch = pg_number(y->conninfo, "SELECT epoch FROM leader");
    const int64_t begun_ms = clock_mono_ms();
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (pg_number(y->conninfo, "SELECT epoch FROM leader") < epoch + 3) /* it tries again and again */
        assert_true(clock_mono_ms() < deadline);
    await_page(h, "/healthz", "cannot lead");
    snprintf(line, sizeof line, "%s\n", why);
    expect_page(h, "/healthz", 503, line);
    int64_t leads;
    FAILS(controller_leads(y->controller, &leads, &e), ST_UNAVAILABLE, why);
    pg_run(y->conninfo, "ALTER TABLE away RENAME TO job_spec");
    OK(controller_wait_leading(y->controller, deadline_in(FIXTURE_PATIENCE_MS), &e));
    const char *text = caught_log(&log);
    /* One line at once and one every 30 s, not one for each try. Three tries take less than a second. */
    assert_in_range(times_in(text, " error cannot_lead "), 1, 1 + (clock_mono_ms() - begun_ms) / 30000);
    assert_int_equal(times_in(text, " info leading "), 1);
    expect_page(h, "/healthz", 200, "leading\n");
    http_close(h);
    y->controller = controller_close(y->controller);
    service_start_controller(y);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(
            healthz_is_200_on_the_leader_alone), /* first, while the cluster is small: recovery syncs its files */
        FIXTURE_TEST(a_signal_cancels_migrate_which_ends_when_postgresql_has_ended_its_statement),
        FIXTURE_TEST(a_standby_does_not_serve_what_needs_the_lead_until_it_leads),
        FIXTURE_TEST(a_controller_that_cannot_lead_reports_why_in_the_log_in_healthz_and_to_clients),
        FIXTURE_TEST(a_start_reads_live_rows_only_however_long_the_history_is),
    };
    return cmocka_run_group_tests_name("lead", tests, service_group_setup, service_group_teardown);
}
