/* An entry is an attempt with at most one process of trainyard-environment, which lives as long as the attempt: its
 * locks keep the environment. If that process is killed, it is started again, a few times. The entry is freed when the
 * attempt has ended and the process too. */
#include "executor/agent/environments.h"

#include "api/codec/message.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/data_exclusions.h"
#include "executor/agent/job_sandboxes.h"
#include "executor/agent/job_user.h"
#include "executor/agent/worker_process.h"

#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { VARIABLES_MAX = 256, STARTS_MAX = 3 };

struct environment {
    struct environments *list;
    struct environment *next;
    int64_t job;
    int32_t attempt;
    Trainyard__V1__ProgramSpec *program;
    char *code;                     /* NULL: it is not there yet */
    struct worker_process *process; /* NULL: none runs */
    int starts;
    bool has_reported; /* the last report has arrived */
    bool ready;        /* it was good: the process keeps the environment in use */
    bool unwanted;     /* the attempt has ended */
};

struct environments {
    const struct host *host;
    struct environments_owner owner;
    struct environment *first;
};

static void environment_free(struct environment *k) {
    for (struct environment **link = &k->list->first; *link; link = &(*link)->next)
        if (*link == k) {
            *link = k->next;
            break;
        }
    worker_process_close(k->process);
    trainyard__v1__program_spec__free_unpacked(k->program, NULL);
    free(k->code);
    free(k);
}

static struct environment *environment_find(const struct environments *es, int64_t job, int32_t attempt) {
    for (struct environment *k = es->first; k; k = k->next)
        if (k->job == job && k->attempt == attempt && !k->unwanted)
            return k;
    return NULL;
}

/* ---- reports ---- */

/* The sentence of a failure names the field that it is about. */
static void last_report(struct environment *k, Trainyard__V1__WorkerEnd__Cause cause, const char *path,
                        const char *why) {
    Trainyard__V1__EnvironmentReport report = TRAINYARD__V1__ENVIRONMENT_REPORT__INIT;
    char message[500];
    snprintf(message, sizeof message, "program.%s: %.460s", k->program->image ? "image" : "python", why);
    report.last = true;
    report.cause = cause;
    report.path = (char *)(uintptr_t)path;
    report.message = message;
    k->has_reported = true;
    k->ready = cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    if (cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        log_event(LOG_WARN, "environment_failed", "job", LOG_INT(k->job), "attempt", LOG_INT(k->attempt), "reason",
                  LOG_STR(why), NULL);
    if (!k->unwanted)
        k->list->owner.report(k->list->owner.ctx, k->job, k->attempt, &report);
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct environment *k = ctx;
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_ENVIRONMENT || k->has_reported)
        return;
    Trainyard__V1__EnvironmentReport *report = record->environment;
    if (report->last)
        last_report(k, report->cause, report->path, report->message);
    else if (!k->unwanted)
        k->list->owner.report(k->list->owner.ctx, k->job, k->attempt, report);
}

static void on_spooled(void *ctx, bool urgent) {
    (void)ctx;
    (void)urgent;
}

static status_t environment_start(struct environment *k, struct err *e);

/* The process was killed before it could say how the build ended, or while it kept the environment: another one may
 * well succeed. */
static bool started_again(struct environment *k) {
    struct err why;
    if (k->unwanted || (k->has_reported && !k->ready) || k->starts >= STARTS_MAX)
        return false;
    if (environment_start(k, &why) != ST_OK && !k->has_reported)
        last_report(k, TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT, "", why.msg);
    return true;
}

static void on_ended(void *ctx, const struct exit_status *exit, bool drained) {
    struct environment *k = ctx;
    if (!drained)
        return;
    char sentence[160], why[200];
    exit_status_sentence(exit, worker_process_killed_because(k->process), sentence, sizeof sentence);
    snprintf(why, sizeof why, "trainyard-environment %s", sentence);
    k->process = worker_process_close(k->process);
    if (!started_again(k) && !k->unwanted && !k->has_reported)
        last_report(k, TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT, "", why);
    if (k->unwanted)
        environment_free(k);
}

/* ---- start ---- */

bool environments_needed(const Trainyard__V1__ProgramSpec *program) {
    return program->python || (program->image && !program->image->root);
}

/* What pip, uv and skopeo read, and how they reach a network. */
static bool is_for_installers(const char *variable) {
    static const char *const begins[] = {
        "PIP_",           "UV_",           "http_proxy=",         "https_proxy=",        "HTTP_PROXY=",
        "HTTPS_PROXY=",   "no_proxy=",     "NO_PROXY=",           "all_proxy=",          "ALL_PROXY=",
        "SSL_CERT_FILE=", "SSL_CERT_DIR=", "REQUESTS_CA_BUNDLE=", "REGISTRY_AUTH_FILE=", "CONTAINERS_"
    };
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++)
        if (strncmp(variable, begins[i], strlen(begins[i])) == 0)
            return true;
    return false;
}

static const char *builder_of(const struct agent_options *o) {
    return o->environment_user ? o->environment_user : o->worker_user;
}

static bool may_chown(void) {
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3] = { 0 };
    return syscall(SYS_capget, &header, have) == 0 && (have[0].effective & 1u << CAP_CHOWN);
}

status_t environments_check(const struct agent_options *o, const char *field, struct err *e) {
    if (builder_of(o) && !o->environment_cache)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "%s: this executor keeps no environments: its --worker-user does not reach its "
                       "directory, and it was started without --environment-cache",
                       field);
    if (job_user_is_own(o) && !o->environment_user)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "%s: this executor keeps no environments: with --job-users it needs --environment-user", field);
    if (builder_of(o) && !may_chown())
        return err_set(e, ST_FAILED_PRECONDITION,
                       "%s: this executor keeps no environments: it may not own what its --worker-user or "
                       "--environment-user builds, which needs CAP_CHOWN",
                       field);
    return ST_OK;
}

static status_t process_begin(struct environment *k, Trainyard__V1__EnvironmentBuild *build, struct err *e) {
    const struct host *host = k->list->host;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *const argv[] = { host->options->environment, "--agent-pid", parent, NULL };
    const struct worker_process_options options = {
        .loop = host->loop,
        .spool = host->spool,
        .orphans = host->orphans,
        .spawn = { .program = host->options->environment, .argv = argv, .threads = 1 },
        .owner = { .ctx = k, .record = on_record, .spooled = on_spooled, .ended = on_ended },
    };
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_BUILD_ENVIRONMENT;
    command.build_environment = build;
    TRY(worker_process_open(&options, &k->process, e));
    return worker_process_send(k->process, &command, e);
}

static status_t cache_path(const struct host *host, char ret[PATH_MAX], struct err *e) {
    const char *own = host->options->environment_cache;
    if (snprintf(ret, PATH_MAX, "%s%s", own ? own : directory_path(host->directory), own ? "" : "/environments") >=
        PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "--environment-cache: the path is too long");
    return dir_make(ret, 0755, e);
}

static status_t environment_start(struct environment *k, struct err *e) {
    const struct agent_options *o = k->list->host->options;
    Trainyard__V1__EnvironmentBuild build = TRAINYARD__V1__ENVIRONMENT_BUILD__INIT;
    char cache[PATH_MAX], *variables[VARIABLES_MAX];
    k->starts++;
    TRY(environments_check(o, k->program->image ? "program.image" : "program.python", e));
    TRY(cache_path(k->list->host, cache, e));
    for (char **at = environ; *at && build.n_variables < VARIABLES_MAX; at++)
        if (is_for_installers(*at))
            variables[build.n_variables++] = *at;
    build.variables = variables;
    struct data_exclusions exclusions;
    Trainyard__V1__SandboxOrder sandbox;
    data_exclusions_find(k->list->host, &exclusions);
    build.sandbox = job_sandbox_order(o, &sandbox);
    build.n_data_except = exclusions.n;
    build.data_except = exclusions.list;
    build.n_data_roots = o->n_data_roots;
    build.data_roots = (char **)(uintptr_t)o->data_roots;
    build.n_checkpoint_roots = o->n_checkpoint_roots;
    build.checkpoint_roots = (char **)(uintptr_t)o->checkpoint_roots;
    build.python = k->program->python;
    build.image = k->program->image;
    build.code = k->code;
    if (k->program->code && k->program->code->archive)
        build.archive = k->program->code->archive;
    build.cache = cache;
    build.cache_bytes = o->environment_cache_bytes;
    build.limit_s = o->environment_limit_s;
    if (builder_of(o))
        build.user = (char *)(uintptr_t)builder_of(o);
    return process_begin(k, &build, e);
}

status_t environments_add(struct environments *es, int64_t job, int32_t attempt,
                          const Trainyard__V1__ProgramSpec *program, struct err *e) {
    Trainyard__V1__ProgramSpec *own = NULL;
    TRY(message_copy(&program->base, &own, e));
    struct environment *k = alloc_zeroed(1, sizeof *k);
    *k = (struct environment){ .list = es, .next = es->first, .job = job, .attempt = attempt, .program = own };
    es->first = k;
    return ST_OK;
}

void environments_start(struct environments *es, int64_t job, int32_t attempt, const char *code) {
    struct environment *k = environment_find(es, job, attempt);
    struct err why;
    if (!k || k->code)
        return;
    k->code = alloc_copy_text(code);
    if (environment_start(k, &why) != ST_OK)
        last_report(k, TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT, "", why.msg);
}

void environments_remove(struct environments *es, int64_t job, int32_t attempt) {
    struct environment *k = environment_find(es, job, attempt);
    if (!k)
        return;
    k->unwanted = true;
    if (k->process)
        worker_process_kill(k->process, "was killed because the attempt has ended");
    else
        environment_free(k);
}

bool environments_is_empty(const struct environments *es) { return !es->first; }

struct environments *environments_new(const struct host *host, const struct environments_owner *owner) {
    struct environments *es = alloc_zeroed(1, sizeof *es);
    *es = (struct environments){ .host = host, .owner = *owner };
    return es;
}

struct environments *environments_free(struct environments *es) {
    while (es && es->first)
        environment_free(es->first);
    free(es);
    return NULL;
}
