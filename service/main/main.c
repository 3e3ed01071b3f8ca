#include "api/rpc/server.h"
#include "base/log.h"
#include "service/controller/controller.h"
#include "service/controller/planner.h"
#include "service/http/http.h"
#include "service/main/options.h"
#include "service/rpc/access.h"
#include "service/rpc/services.h"
#include "service/store/migrate.h"

#include <trainyard/descriptors.h>

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

/* Handlers block on the database: more of them than cores. */
#define RPC_WORKERS 16
/* How often the main thread looks at leadership, beside signals. */
#define LOOK_MS 200
/* Replies on their way get out; streams are told before. */
#define STOP_GRACE_MS 1000

static int complain(const char *what, const struct err *e) {
    fprintf(stderr, "trainyard-controller: %s%s\n", what, e->msg);
    return 1;
}

static int migrate(const struct options *o) {
    struct err e;
    int from, to = o->to >= 0 ? o->to : store_schema_version();
    if (store_migrate(o->database, to, &from, &e) != ST_OK)
        return complain("migrate: ", &e);
    printf("schema %d -> %d\n", from, to);
    return 0;
}

static status_t start_server(const struct options *o, struct controller *c, struct access *access,
                             struct rpc_server **ret, char *ret_first, struct err *e) {
    struct rpc_server_config config = { .workers = RPC_WORKERS,
                                        .access = access_rules(access),
                                        .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len };
    CLEANUP(rpc_server_closep) struct rpc_server *server = NULL;
    TRY(rpc_server_open(&config, &server, e));
    TRY(rpc_services_add(server, c, e));
    for (int i = 0; i < o->n_listen; i++) {
        char bound[RPC_ADDRESS_BYTES];
        TRY(rpc_server_listen(server, o->listen[i], o->tls.cert ? &o->tls : NULL, i == 0 ? ret_first : bound, e));
    }
    TRY(rpc_server_start(server, e));
    TRY(access_watch(access, server, e));
    *ret = take_ptr(&server);
    return ST_OK;
}

/* Until SIGINT, SIGTERM, or the loss of leadership. Says `ready` when it first leads. */
static int stand_watch(struct controller *c, struct rpc_server *server, const char *address, const sigset_t *signals) {
    bool told = false, led = true;
    for (;;) {
        int64_t epoch;
        struct err e;
        bool leads = controller_leads(c, &epoch, &e) == ST_OK;
        if (leads && !told) {
            printf("ready %s\n", address);
            fflush(stdout);
            told = true;
        }
        if (leads != led)
            rpc_server_set_serving(server, "", leads);
        led = leads;
        if (controller_deposed(c))
            return 1;
        struct timespec look = { .tv_nsec = (told ? LOOK_MS : 10) * 1000000L };
        int signal = sigtimedwait(signals, NULL, &look);
        if (signal > 0) {
            log_event(LOG_INFO, "stopping", "signal", LOG_INT(signal), NULL);
            return 0;
        }
    }
}

static int serve(const struct options *o) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals, NULL); /* before any thread: all inherit it */
    signal(SIGPIPE, SIG_IGN);

    struct err e;
    CLEANUP(controller_closep) struct controller *c = NULL;
    struct controller_options options = { .database = o->database,
                                          .checkpoints = o->checkpoints,
                                          .data_roots = o->data_roots,
                                          .n_data_roots = (size_t)o->n_data_roots,
                                          .keep_ended_days = o->keep_ended_days };
    if (controller_open(&options, &c, &e) != ST_OK)
        return complain("", &e);
    CLEANUP(access_closep) struct access *access = NULL;
    if (access_open(controller_store(c), o->require_tokens, &access, &e) != ST_OK)
        return complain("", &e);
    struct rpc_server *server = NULL;
    char address[RPC_ADDRESS_BYTES];
    if (start_server(o, c, access, &server, address, &e) != ST_OK)
        return complain("", &e);
    struct http *http = NULL;
    if (o->http && http_open(o->http, c, &http, &e) != ST_OK) {
        access_unwatch(access);
        rpc_server_close(server);
        return complain("", &e);
    }
    int rc = stand_watch(c, server, address, &signals);
    access_unwatch(access);
    planner_stop(controller_planner(c));
    dispatch_close_all(controller_dispatch(c), ST_UNAVAILABLE, "the controller is stopping");
    rpc_server_stop(server, STOP_GRACE_MS);
    rpc_server_close(server);
    http_close(http);
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
    case OPTIONS_SERVE: return serve(&o);
    }
    return 0;
}
