/* trainyard-environment: finds or builds the Python environment of one attempt, and keeps it in use. The agent starts
 * it, with commands on descriptor 3 and records on 4, as a worker. It gets one command, and reports until its last
 * report; then it waits for the end of the pipe, which comes with the end of the attempt. It runs as the agent's user,
 * who owns the environments; what builds them is another process, without any privilege (builder.h). */
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/privileges.h"
#include "executor/child/child.h"
#include "executor/environment/build.h"
#include "executor/environment/builder_sandbox.h"
#include "executor/environment/cache.h"
#include "executor/environment/image_key.h"

#include <linux/capability.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { EVENT_BYTES = 256 };

static const char usage[] =
    "usage: trainyard-environment --agent-pid PID\n"
    "\n"
    "Builds the Python environment of a program for trainyard-executor, which starts it with commands on descriptor 3\n"
    "and records on 4.\n"
    "\n"
    "  --agent-pid PID        the agent that started this program, which ends when the agent does\n"
    "  --help, --version\n";

static const struct child child = { .name = "trainyard-environment", .usage = usage, .orphaned = 1 };

struct work {
    const Trainyard__V1__EnvironmentBuild *order;
    struct builder builder;
    struct environment_key key;
    int image; /* of an archive: open */
    int64_t since_ms;
    bool waited;
};

/* ---- records ---- */

static char *text(const char *s) { return (char *)(uintptr_t)s; }

/* The end of the agent is found by those who wait for it. */
static void report(Trainyard__V1__EnvironmentReport *r) {
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ENVIRONMENT;
    record.environment = r;
    record.time_us = clock_wall_us();
    status_ignore(frame_write(CHILD_RECORDS_FD, &record.base, NULL));
}

static void report_event(const char *event, const char *message) {
    Trainyard__V1__EnvironmentReport r = TRAINYARD__V1__ENVIRONMENT_REPORT__INIT;
    r.event = text(event);
    r.message = text(message);
    report(&r);
}

static void on_log(void *ctx, char **lines, size_t n) {
    (void)ctx;
    Trainyard__V1__EnvironmentReport r = TRAINYARD__V1__ENVIRONMENT_REPORT__INIT;
    r.lines = lines;
    r.n_lines = n;
    report(&r);
}

static void on_wait(void *ctx, enum environment_wait what) {
    static const char *const python[] = {
        [ENVIRONMENT_BUILDS] = "is built",
        [ENVIRONMENT_BUILDS_AGAIN] = "is built again, because its files have changed",
        [ENVIRONMENT_BUILDS_FOR_ANOTHER] = "is being built for another attempt",
        [ENVIRONMENT_TURN] = "waits until another environment is built",
    };
    static const char *const image[] = {
        [ENVIRONMENT_BUILDS] = "is fetched and unpacked",
        [ENVIRONMENT_BUILDS_AGAIN] = "is fetched and unpacked again, because its files have changed",
        [ENVIRONMENT_BUILDS_FOR_ANOTHER] = "is being unpacked for another attempt",
        [ENVIRONMENT_TURN] = "waits until another one is unpacked",
    };
    struct work *w = ctx;
    const Trainyard__V1__ImageSpec *i = w->order->image;
    char message[EVENT_BYTES], host[64] = "";
    gethostname(host, sizeof host - 1);
    if (i)
        snprintf(message, sizeof message, "host %s: the image %.140s %s", host, i->name ? i->name : i->archive,
                 image[what]);
    else
        snprintf(message, sizeof message, "host %s: the Python environment %.12s of %.100s %s", host, w->key.id,
                 w->order->python->requirements, python[what]);
    w->waited = true;
    report_event(i ? "image_pulling" : "environment_building", message);
}

static void report_last(const struct work *w, status_t st, bool refused, const struct environment_use *use,
                        const struct err *why) {
    Trainyard__V1__EnvironmentReport r = TRAINYARD__V1__ENVIRONMENT_REPORT__INIT;
    char message[EVENT_BYTES], host[64] = "";
    gethostname(host, sizeof host - 1);
    snprintf(message, sizeof message, "host %s: the %s %.12s is ready after %.1f s (%lld MiB)", host,
             w->order->image ? "image" : "Python environment", w->key.id,
             (double)(clock_mono_ms() - w->since_ms) / 1000, (long long)(use->bytes >> 20));
    if (st == ST_OK && w->waited)
        report_event(w->order->image ? "image_ready" : "environment_ready", message);
    r.last = true;
    r.path = text(use->path);
    r.message = text(why->msg);
    r.cause = st == ST_OK ? TRAINYARD__V1__WORKER_END__CAUSE__FINISHED
              : refused   ? TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC
                          : TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
    report(&r);
}

/* ---- the order ---- */

/* A builder with a user or a sandbox of its own has a home that no other build has written to. */
static status_t on_build(void *ctx, const char *folder, bool *ret_refused, struct err *e) {
    struct work *w = ctx;
    char temporary[PATH_MAX];
    const char *home = getenv("HOME");
    if (snprintf(temporary, sizeof temporary, "%s/tmp", folder) >= (int)sizeof temporary)
        return err_set(e, ST_INTERNAL, "the path of the cache of environments is too long");
    CLEANUP(sandbox_closep) struct sandbox *sandbox = NULL;
    TRY(builder_sandbox_open(w->order, folder, &sandbox, e));
    const bool is_private = w->builder.user || sandbox || !home;
    char **variables = build_variables_new(w->order, is_private ? temporary : home, temporary);
    struct builder builder = w->builder;
    builder.variables = variables;
    builder.sandbox = sandbox;
    const struct build_options options = { .builder = &builder,
                                           .order = w->order,
                                           .key = &w->key,
                                           .image = w->image,
                                           .folder = folder,
                                           .log = on_log,
                                           .ctx = w };
    status_t st = environment_build(&options, ret_refused, e);
    build_variables_free(variables);
    return st;
}

static status_t key_find(struct work *w, bool *ret_refused, struct err *e) {
    CLEANUP(sandbox_closep) struct sandbox *sandbox = NULL;
    *ret_refused = false;
    if (w->order->image)
        return image_key_find(w->order, &w->key, &w->image, e);
    TRY(builder_sandbox_open(w->order, NULL, &sandbox, e));
    char **variables = build_variables_new(w->order, "/", NULL);
    struct builder reader = w->builder;
    reader.variables = variables;
    reader.sandbox = sandbox;
    status_t st = environment_key_find(&reader, w->order, &w->key, ret_refused, e);
    build_variables_free(variables);
    return st;
}

static status_t order_do(struct work *w, bool *ret_refused, struct environment_use *ret, struct err *e) {
    const struct environment_cache cache = { .path = w->order->cache,
                                             .max_bytes = w->order->cache_bytes,
                                             .user = w->builder.user,
                                             .build = on_build,
                                             .wait = on_wait,
                                             .ctx = w };
    TRY(key_find(w, ret_refused, e));
    return environment_cache_open(&cache, w->key.id, ret, ret_refused, e);
}

static void order_take(const Trainyard__V1__EnvironmentBuild *order) {
    struct work w = { .order = order,
                      .builder = { .user = *order->user ? order->user : NULL, .agent = CHILD_COMMANDS_FD },
                      .image = -1,
                      .since_ms = clock_mono_ms() };
    struct environment_use use = { .lock = -1 };
    struct err why = { "" };
    bool refused = false;
    status_t st = order_do(&w, &refused, &use, &why);
    closep(&w.image);
    report_last(&w, st, refused, &use, &why);
    struct pollfd end = { .fd = CHILD_COMMANDS_FD }; /* without events: the end of the pipe alone */
    while (st == ST_OK && poll(&end, 1, -1) < 1)
        continue;
    closep(&use.lock);
}

/* To become the builder's user and end its processes, and to own what they leave. */
static status_t give_up_privileges(const Trainyard__V1__EnvironmentBuild *order, struct err *e) {
    uint64_t keep = geteuid() == 0 ? PRIVILEGE(CAP_DAC_OVERRIDE) | PRIVILEGE(CAP_FOWNER) : 0;
    if (*order->user)
        keep |= PRIVILEGE(CAP_SETUID) | PRIVILEGE(CAP_SETGID) | PRIVILEGE(CAP_KILL) | PRIVILEGE(CAP_CHOWN);
    return privileges_drop(keep, e);
}

static status_t work(struct frame_reader *reader, struct err *e) {
    Trainyard__V1__WorkerCommand *command;
    TRY(child_command_wait(reader, &command, e));
    status_t st = ST_OK;
    if (command->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_BUILD_ENVIRONMENT)
        st = err_set(e, ST_INTERNAL, "the first command is of another release: restart trainyard-executor");
    if (st == ST_OK)
        st = give_up_privileges(command->build_environment, e);
    if (st == ST_OK)
        order_take(command->build_environment);
    trainyard__v1__worker_command__free_unpacked(command, NULL);
    return st;
}

int main(int argc, char **argv) {
    int status;
    struct err why = { "" };
    struct frame_reader reader;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGTERM); /* while a builder runs, this is blocked (builder.c) */
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (!child_begin(&child, argc, argv, &status))
        return status;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    status_t st = work(&reader, &why);
    frame_reader_done(&reader);
    if (st != ST_OK)
        fprintf(stderr, "trainyard-environment: %s\n", why.msg);
    return st == ST_OK ? 0 : 1;
}
