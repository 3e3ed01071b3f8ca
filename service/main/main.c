/* trainyard-controller: runs the controller and its servers, or migrates the database.
 *
 * serve opens the parts in this order: the controller, the access check, the RPC server on every address, the HTTP
 * pages, the web page, which makes its calls on a connection of this process to the RPC server. Calls are served from
 * then on, but grpc.health.v1 reports NOT_SERVING until the controller leads. The main thread then waits for a signal,
 * gives the supervisor signs of life while the controller's loop goes on, and polls leadership: it prints `ready` when
 * the controller first leads. A controller that has lost the lead does not try again; the program ends with status 1,
 * and a supervisor starts a new one.
 *
 * The end has an order too. First the waiting work is stopped (planner, spec checks, control streams of agents),
 * because a handler that waits would delay rpc_server_stop. After that the servers are closed, and the controller last.
 *
 * migrate handles signals with a pipe: the first signal asks the migration to stop, and a second one kills the
 * program. */
#include "api/rpc/server.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/supervisor.h"
#include "service/controller/controller.h"
#include "service/controller/keyring.h"
#include "service/controller/planner.h"
#include "service/controller/spec_check.h"
#include "service/http/http.h"
#include "service/main/access_log.h"
#include "service/main/join.h"
#include "service/main/options.h"
#include "service/rpc/access.h"
#include "service/rpc/audit_log.h"
#include "service/rpc/services.h"
#include "service/store/migrate.h"
#include "web/server/web.h"

#include <trainyard/descriptors.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

/* Handlers block on the database, so there are more of them than cores. */
#define RPC_WORKERS 16
/* Reads of viewers use at most these. The others are there for calls that change something. */
#define RPC_READERS 12
_Static_assert(2 * SPEC_CHECK_MAX_CALLERS <= RPC_WORKERS, "checks of specs leave half of the workers free");
/* Two streams of each of 10,000 executors, those of watchers, and as many again while all of them dial anew. */
#define RPC_CALLS 65536
/* A connection of each executor and client, and what the controller opens itself. */
#define OPEN_FILES 65536
/* How often the main thread polls leadership. */
#define POLL_MS 200
/* Time for replies to reach their clients; the control streams of agents are closed before. */
#define STOP_GRACE_MS 1000

static int complain(const char *what, const struct err *e) {
    fprintf(stderr, "trainyard-controller: %s%s\n", what, e->msg);
    return 1;
}

/* ---- migrate ---- */

static int cancel_pipe[2] = { -1, -1 };

/* SA_RESETHAND: a second signal of the same kind ends the program. PostgreSQL then rolls the transaction back. */
static void on_cancel(int signal) {
    (void)signal;
    ssize_t written = write(cancel_pipe[1], "", 1);
    (void)written;
}

static status_t cancel_by_signals(struct err *e) {
    static const int signals[] = { SIGINT, SIGTERM, SIGHUP };
    const struct sigaction action = { .sa_handler = on_cancel, .sa_flags = (int)(SA_RESETHAND | SA_RESTART) };
    if (pipe2(cancel_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        return err_errno(e, "make a pipe for signals");
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (sigaction(signals[i], &action, NULL) != 0)
            return err_errno(e, "take signal %d", signals[i]);
    return ST_OK;
}

static void print_line(void *ctx, const char *line) {
    (void)ctx;
    puts(line);
    fflush(stdout);
}

static int migrate(const struct options *o) {
    struct err e;
    int from, to = o->to >= 0 ? o->to : store_schema_version();
    if (cancel_by_signals(&e) != ST_OK)
        return complain("migrate: ", &e);
    const struct store_migrate_watch watch = { .wait_ms = o->wait_s * 1000,
                                               .cancel_fd = cancel_pipe[0],
                                               .report = print_line };
    if (store_migrate_watched(o->database, to, &watch, &from, &e) != ST_OK)
        return complain("migrate: ", &e);
    printf("schema %d -> %d\n", from, to);
    return 0;
}

/* ---- serve ---- */

struct bound {
    char first[RPC_ADDRESS_BYTES];  /* of the first --listen */
    char within[RPC_ADDRESS_BYTES]; /* for calls of this process; "" without --web */
    int port;                       /* of the first TCP address; 0 without one */
};

/* *log: the access log, if there is one, which must outlive the server. */
static status_t start_server(const struct options *o, struct controller *c, struct access *access,
                             const struct audit_log *audit, struct access_log **log, struct rpc_server **ret,
                             struct bound *ret_bound, struct err *e) {
    status_t opened = o->access_log ? access_log_open(o->access_log, log, e) : ST_OK;
    if (opened != ST_OK)
        return err_prefix(e, opened, "--access-log: ");
    struct rpc_server_config config = { .workers = RPC_WORKERS,
                                        .readers = RPC_READERS,
                                        .calls = RPC_CALLS,
                                        .sockets_for_all = o->sockets_for_all,
                                        .ended = *log ? access_log_add : NULL,
                                        .ended_ctx = *log,
                                        .access = access_rules(access),
                                        .audit = audit_log_rules(audit),
                                        .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len };
    CLEANUP(rpc_server_closep) struct rpc_server *server = NULL;
    TRY(rpc_server_open(&config, &server, e));
    TRY(rpc_services_add(server, c, e));
    rpc_services_set_leading(server, false);
    for (int i = 0; i < o->n_listen; i++) {
        char bound[RPC_ADDRESS_BYTES];
        TRY(rpc_server_listen(server, o->listen[i], o->tls.cert ? &o->tls : NULL, bound, e));
        if (i == 0)
            memcpy(ret_bound->first, bound, sizeof bound);
        if (!ret_bound->port && strncmp(bound, "unix:", 5) != 0)
            ret_bound->port = join_port(bound);
    }
    if (o->web)
        TRY(rpc_server_listen_within(server, ret_bound->within, e));
    TRY(rpc_server_start(server, e));
    TRY(access_watch(access, server, e));
    *ret = take_ptr(&server);
    return ST_OK;
}

/* The command line, for SIGHUP, and what it changes. */
struct reloadable {
    int argc;
    char **argv;
    struct controller *controller;
    struct rpc_server *server, *join;
    struct supervisor *supervisor;
};

/* The files of TLS first: if they cannot be used, the other options change all the same, and the reason is logged. */
static void reload(const struct reloadable *r) {
    struct options fresh;
    struct err e = { "" }, tls = { "" };
    supervisor_notify(r->supervisor, "RELOADING=1");
    status_t st_tls = rpc_server_reload_tls(r->server, &tls);
    if (st_tls == ST_OK && r->join)
        st_tls = rpc_server_reload_tls(r->join, &tls);
    status_t st = options_parse(r->argc, r->argv, &fresh, &e);
    if (st == ST_OK) {
        log_setup(fresh.log_format, fresh.log_level);
        controller_set_max_jobs(r->controller, fresh.max_jobs);
        options_done(&fresh);
    }
    if (st_tls == ST_OK && st == ST_OK)
        log_event(LOG_INFO, "reloaded", NULL);
    else
        log_event(LOG_ERROR, "not_reloaded", "tls", LOG_STR(tls.msg), "options", LOG_STR(e.msg), NULL);
    supervisor_notify(r->supervisor, "READY=1");
}

/* Waits for SIGINT, SIGTERM, or the loss of leadership; SIGHUP reloads. Prints `ready` when the controller first leads.
 * Returns the exit status. */
static int stand_watch(const struct reloadable *r, const char *address, const sigset_t *signals) {
    struct controller *c = r->controller;
    struct rpc_server *server = r->server;
    bool printed = false, led = false;
    for (;;) {
        int64_t epoch;
        struct err e;
        bool leads = controller_leads(c, &epoch, &e) == ST_OK;
        if (leads && !printed) {
            printf("ready %s\n", address);
            fflush(stdout);
            printed = true;
        }
        if (leads != led)
            rpc_services_set_leading(server, leads);
        led = leads;
        if (controller_deposed(c))
            return 1;
        supervisor_watch(r->supervisor, controller_beats(c), clock_mono_ms());
        struct timespec poll = { .tv_nsec = (printed ? POLL_MS : 10) * 1000000L };
        int signal = sigtimedwait(signals, NULL, &poll);
        if (signal == SIGHUP) {
            reload(r);
        } else if (signal > 0) {
            log_event(LOG_INFO, "stopping", "signal", LOG_INT(signal), NULL);
            return 0;
        }
    }
}

/* What browsers and monitors see. NULL: not asked for. */
struct pages {
    struct http *http;
    struct rpc_channel *channel; /* of the web page's calls */
    struct web *web;
};

static void pages_close(struct pages *p) {
    p->web = web_close(p->web);
    p->channel = rpc_channel_close(p->channel);
    p->http = http_close(p->http);
}

static status_t pages_open(const struct options *o, struct controller *c, const struct access *access,
                           const struct rpc_server *server, const char *within, struct pages *p, struct err *e) {
    const struct http_config config = { .address = o->http,
                                        .controller = c,
                                        .server = server,
                                        .metrics_jobs = o->metrics_jobs,
                                        .tls = &o->tls,
                                        .access = access_rules(access) };
    const struct rpc_channel_config channel = { .address = within, .within = true };
    if (o->http) {
        TRY(http_open(&config, &p->http, e));
        log_event(LOG_INFO, "http_listens", "address", LOG_STR(http_address(p->http)), NULL);
    }
    if (!o->web)
        return ST_OK;
    TRY(rpc_channel_open(&channel, &p->channel, e));
    const struct web_config web = { .address = o->web, .channel = p->channel, .tokens = true, .tls = o->tls };
    TRY(web_open(&web, &p->web, e));
    log_event(LOG_INFO, "web_listens", "address", LOG_STR(web_address(p->web)), NULL);
    return ST_OK;
}

/* A shell or a container often allows 1,024, which a thousand executors use up, and more on request. */
static void raise_open_files(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= OPEN_FILES)
        return;
    limit.rlim_cur = limit.rlim_max < OPEN_FILES ? limit.rlim_max : OPEN_FILES;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur < OPEN_FILES)
        log_event(LOG_WARN, "few_open_files", "limit", LOG_INT((int64_t)limit.rlim_cur), "reason",
                  LOG_STR("each executor and client needs one: raise the hard limit (LimitNOFILE) to 65536"), NULL);
}

/* Before the first thread starts, because threads inherit the mask of signals. */
static void prepare_process(sigset_t *ret_signals) {
    sigemptyset(ret_signals);
    sigaddset(ret_signals, SIGHUP);
    sigaddset(ret_signals, SIGINT);
    sigaddset(ret_signals, SIGTERM);
    sigprocmask(SIG_BLOCK, ret_signals, NULL);
    signal(SIGPIPE, SIG_IGN);
    raise_open_files();
    prctl(PR_SET_DUMPABLE, 0); /* no core dump has a key or a secret, and no process of the same user reads them */
}

enum { MAX_EXCEPT = 2 * OPTIONS_MAX_ROOTS + 2 };

/* The files that no job reads as data. Returns their number. */
static size_t list_except(const struct options *o, const char *ret[MAX_EXCEPT]) {
    size_t n = 0;
    for (int i = 0; i < o->n_data_except; i++)
        ret[n++] = o->data_except[i];
    for (int i = 0; i < o->n_secret_keys; i++)
        ret[n++] = o->secret_keys[i];
    if (o->tls.key)
        ret[n++] = o->tls.key;
    if (o->ca_key)
        ret[n++] = o->ca_key;
    return n;
}

static struct controller_options controller_options_of(const struct options *o, const char *const *except,
                                                       size_t n_except) {
    return (struct controller_options){ .database = o->database,
                                        .checkpoints = o->checkpoints,
                                        .checkpoint_roots = o->checkpoint_roots,
                                        .n_checkpoint_roots = (size_t)o->n_checkpoint_roots,
                                        .plan_data = { .roots = o->data_roots,
                                                       .n_roots = (size_t)o->n_data_roots,
                                                       .except = except,
                                                       .n_except = n_except },
                                        .keep_ended_days = o->keep_ended_days,
                                        .forget_lost_days = o->forget_lost_days,
                                        .audit_days = o->audit_days,
                                        .max_jobs = o->max_jobs,
                                        .checkpoint_wait_s = o->checkpoint_wait_s,
                                        .elastic_settle_s = o->elastic_settle_s,
                                        .fixed_queues = o->fixed_queues,
                                        .code_bytes = (int64_t)o->code_mib << 20,
                                        .notify_file = o->notify,
                                        .secret_key_files = o->secret_keys,
                                        .n_secret_key_files = (size_t)o->n_secret_keys };
}

static int serve(const struct options *o, int argc, char **argv) {
    CLEANUP(supervisor_done) struct supervisor supervisor;
    supervisor_init(&supervisor);
    sigset_t signals;
    prepare_process(&signals);

    struct err e;
    CLEANUP(authority_closep) struct authority *authority = NULL;
    CLEANUP(controller_closep) struct controller *c = NULL;
    const char *except[MAX_EXCEPT];
    struct controller_options options = controller_options_of(o, except, list_except(o, except));
    if (o->ca_key && authority_open(&o->tls, o->ca_key, &authority, &e) != ST_OK)
        return complain("--ca-key: ", &e);
    options.authority = authority;
    if (controller_open(&options, &c, &e) != ST_OK)
        return complain("", &e);
    CLEANUP(access_log_closep) struct access_log *access_log = NULL;
    CLEANUP(audit_log_closep) struct audit_log *audit = NULL;
    if (audit_log_open(controller_store(c), &audit, &e) != ST_OK)
        return complain("", &e);
    CLEANUP(access_freep) struct access *access = access_new(controller_store(c), &o->users);
    struct rpc_server *server = NULL;
    CLEANUP(rpc_server_closep) struct rpc_server *join = NULL;
    struct bound bound = { 0 };
    if (start_server(o, c, access, audit, &access_log, &server, &bound, &e) != ST_OK)
        return complain("", &e);
    if (o->join && join_open(o, c, access, audit, authority, bound.port, &join, &e) != ST_OK) {
        access_unwatch(access);
        rpc_server_close(server);
        return complain("--join: ", &e);
    }
    struct pages pages = { 0 };
    if (pages_open(o, c, access, server, bound.within, &pages, &e) != ST_OK) {
        pages_close(&pages);
        access_unwatch(access);
        rpc_server_close(server);
        return complain("", &e);
    }
    const struct reloadable reloadable = { argc, argv, c, server, join, &supervisor };
    supervisor_notify(&supervisor, "READY=1");
    int rc = stand_watch(&reloadable, bound.first, &signals);
    supervisor_notify(&supervisor, "STOPPING=1");
    access_unwatch(access);
    planner_stop(controller_planner(c));
    spec_checks_stop(controller_spec_checks(c));
    dispatch_close_all(controller_dispatch(c), ST_UNAVAILABLE, "the controller is stopping");
    rpc_server_stop(server, STOP_GRACE_MS);
    pages_close(&pages); /* the calls of the web page have ended with the server */
    rpc_server_close(server);
    return rc;
}

int main(int argc, char **argv) {
    struct options o;
    struct err e;
    if (options_parse(argc, argv, &o, &e) != ST_OK) {
        complain("", &e);
        return 2;
    }
    log_setup(o.log_format, o.log_level);
    switch (o.what) {
    case OPTIONS_HELP: fputs(options_help(), stdout); return 0;
    case OPTIONS_VERSION: puts("trainyard-controller " TRAINYARD_VERSION); return 0;
    case OPTIONS_MIGRATE: return migrate(&o);
    case OPTIONS_MAKE_KEY:
        if (keyring_make_file(o.key_path, &e) == ST_OK)
            return 0;
        return complain("make-secret-key: ", &e);
    case OPTIONS_SERVE: return serve(&o, argc, argv);
    }
    return 0;
}
