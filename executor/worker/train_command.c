/* `trainyard-train SPEC`: reads the spec, starts the ranks (local.h) and trains in each of them. Rank 0 prints a
 * line a second, or one JSON object for each step with --json. SIGINT and SIGTERM request a stop, so that the run
 * ends at the next step with a checkpoint; a second signal ends the process. The exit code is the engine's outcome,
 * so that scripts can distinguish a wrong spec from a failure. */
#include "api/codec/text.h"
#include "api/spec/data_uri.h"
#include "api/spec/spec.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/file.h"
#include "engine/data/token_cache.h"
#include "engine/run/engine.h"
#include "executor/worker/commands.h"
#include "executor/worker/config.h"
#include "executor/worker/local.h"
#include "executor/worker/spec_read.h"

#include <getopt.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_EVERY_MS = 1000, TOKEN_CACHE_MIB = 10240 };

struct arguments {
    const char *checkpoints, *resume;
    struct spec_changes changes;
    int threads;
    bool threads_by_work;
    bool plan, json;
    const char *token_cache;
    long long token_cache_mib;
    char ranks[40], from[48], to[48]; /* as changes of the spec */
};

struct job {
    const struct arguments *args;
    const Trainyard__V1__JobSpec *spec;
    int rank;
    int64_t line_due_ms;
};

static struct engine *running; /* what a signal stops */

static void on_signal(int number) {
    if (running)
        engine_stop_request(running);
    signal(number, SIG_DFL); /* the second one ends at once */
}

/* --- reports of the engine ---*/

/* JSON has no infinity: the norm of a step that overflowed. */
static void print_members(const struct engine_metric *m, int n) {
    for (int i = 0; i < n; i++)
        if (isfinite(m[i].value))
            printf(",\"%s\":%.17g", m[i].name, m[i].value);
        else
            printf(",\"%s\":null", m[i].name);
}

/* Rank 0's: its own values follow the gang's, and end the object. */
static void print_json(int64_t step, bool per_rank, const struct engine_metric *m, int n) {
    if (!per_rank)
        printf("{\"step\":%lld", (long long)step);
    print_members(m, n);
    if (!per_rank)
        return;
    printf(",\"arena_bytes\":%zu}\n", engine_arena_bytes(running));
    fflush(stdout);
}

static void print_line(int64_t step, const struct engine_metric *m, int n) {
    printf("step %6lld", (long long)step);
    for (int i = 0; i < n; i++)
        printf("  %s %.5g", m[i].name, m[i].value);
    printf("\n");
    fflush(stdout);
}

static void on_metrics(void *ctx, int64_t step, bool per_rank, const struct engine_metric *m, int n) {
    struct job *job = ctx;
    bool evaluated = false;
    if (job->rank == 0 && job->args->json)
        print_json(step, per_rank, m, n);
    if (per_rank || job->args->json)
        return;
    for (int i = 0; i < n; i++)
        evaluated |= strncmp(m[i].name, "validation_", 11) == 0;
    if (!evaluated && clock_mono_ms() < job->line_due_ms)
        return;
    job->line_due_ms = clock_mono_ms() + LINE_EVERY_MS;
    print_line(step, m, n);
}

static void on_notice(void *ctx, const char *kind, const char *message, int64_t step) {
    (void)kind;
    const struct job *job = ctx;
    fprintf(stderr, "trainyard-train: rank %d, step %lld: %s\n", job->rank, (long long)step, message);
}

static void on_shard(void *ctx, const struct engine_shard *s) {
    const struct job *job = ctx;
    if (running)
        engine_checkpoint_committed(running, s->step);
    if (job->rank == 0)
        fprintf(stderr, "wrote %s (weights_sha256 %s)\n", s->directory, s->weights_sha256);
}

/* --- one rank ---*/

static int exit_code(enum engine_outcome outcome) {
    switch (outcome) {
    case ENGINE_FINISHED: return EXIT_DONE;
    case ENGINE_STOPPED: return EXIT_STOPPED;
    case ENGINE_BAD_SPEC:
    case ENGINE_HOST_FAULT: return EXIT_USAGE;
    default: return EXIT_FAILED;
    }
}

static int complain(const struct job *job, int code, const struct err *e) {
    fprintf(stderr, "trainyard-train: rank %d: %s\n", job->rank, e->msg);
    return code;
}

/* With --json: what this rank was planned to need of the host, and what it needed. */
static void print_memory(const struct job *job, const struct engine *engine) {
    struct engine_memory m;
    if (job->args->json && engine_memory(engine, &m, NULL) == ST_OK)
        fprintf(stderr,
                "{\"rank\":%d,\"planned_bytes\":%zu,\"peak_bytes\":%lld,\"anonymous_bytes\":%lld,"
                "\"file_bytes\":%lld}\n",
                job->rank, m.planned_bytes, (long long)m.peak_bytes, (long long)m.anonymous_bytes,
                (long long)m.file_bytes);
}

static int print_plan(const struct job *job, const struct engine *engine) {
    CLEANUP(freep) char *text = NULL;
    struct err e;
    if (engine_plan_text(engine, &text, &e) != ST_OK)
        return complain(job, EXIT_FAILED, &e);
    if (job->rank == 0)
        fputs(text, stdout);
    return EXIT_DONE;
}

static status_t directory_of(const struct job *job, char path[PATH_MAX], const char **ret, struct err *e) {
    const char *uri = job->spec->checkpoint ? job->spec->checkpoint->directory : "";
    if (spec_checkpoints_in_store(job->spec))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "checkpoint.store: this program writes no objects: submit the job to a service, or remove the "
                       "field and give --checkpoints");
    *ret = job->args->checkpoints;
    if (*ret || !uri || !*uri)
        return ST_OK;
    TRY(spec_uri_path(uri, path, PATH_MAX, e));
    *ret = path;
    return ST_OK;
}

static status_t place_profile(struct engine_config *c, char path[PATH_MAX], struct err *e) {
    int n = snprintf(path, PATH_MAX, "%s/profile", c->checkpoint.directory ? c->checkpoint.directory : ".");
    if (n < 0 || n >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "--checkpoints: too long a path");
    c->profile.directory = path;
    return ST_OK;
}

static void print_chosen(const Trainyard__V1__TrainSpec *t) {
    fprintf(stderr, "trainyard-train: auto: micro_batch %d, lanes %d, recompute %s\n", t->micro_batch, t->lanes,
            t->recompute);
}

/* On cuda each rank has a device of its own. */
static void place_device(struct engine_config *c, int rank, char device[static 16]) {
    if (strcmp(c->device, "cuda") != 0)
        return;
    snprintf(device, 16, "cuda:%d", rank);
    c->device = device;
}

static void on_tokens(void *ctx, const char *kind, const char *message) {
    (void)kind;
    const struct job *job = ctx;
    fprintf(stderr, "trainyard-train: rank %d: %s\n", job->rank, message);
}

static int run_rank(void *ctx, int rank, struct collective *collective) {
    struct job job = *(struct job *)ctx;
    job.rank = rank;
    char path[PATH_MAX], profile[PATH_MAX], device[16];
    int64_t id;
    struct err e = { "" };
    CLEANUP(config_closep) struct config *config = NULL;
    CLEANUP(engine_closep) struct engine *engine = NULL;
    if (config_open(job.spec, NULL, NULL, &config, &e) != ST_OK)
        return complain(&job, EXIT_USAGE, &e);
    struct engine_config *c = config_engine(config);
    if (directory_of(&job, path, &c->checkpoint.directory, &e) != ST_OK)
        return complain(&job, EXIT_USAGE, &e);
    c->checkpoint.resume_directory = job.args->resume;
    c->threads = job.args->threads;
    c->threads_by_work = job.args->threads_by_work;
    const struct token_cache tokens = { .folder = job.args->token_cache,
                                        .max_bytes = job.args->token_cache_mib << 20,
                                        .writes = true,
                                        .notice = on_tokens,
                                        .ctx = &job };
    c->token_cache = tokens.folder ? &tokens : NULL;
    place_device(c, rank, device);
    if (!job.args->resume && spec_checkpoint_name(job.spec->train->init_from, &id, &id)) {
        status_ignore(err_set(&e, ST_INVALID_ARGUMENT,
                              "train.init_from: %s is known to a service; name its folder here",
                              job.spec->train->init_from));
        return complain(&job, EXIT_USAGE, &e);
    }
    if (!job.args->resume && data_uri_is_remote(job.spec->train->init_from)) {
        status_ignore(err_set(&e, ST_INVALID_ARGUMENT,
                              "train.init_from: only the hosts of a service copy '%.200s': submit the job to one, or "
                              "copy the folder and name it by file:///PATH",
                              job.spec->train->init_from));
        return complain(&job, EXIT_USAGE, &e);
    }
    if (!job.args->resume && config_init_from(config, NULL, &e) != ST_OK)
        return complain(&job, EXIT_USAGE, &e);
    if (c->profile.from && place_profile(c, profile, &e) != ST_OK)
        return complain(&job, EXIT_USAGE, &e);
    if (rank == 0 && !job.args->plan && config_measure(config, &e) != ST_OK)
        fprintf(stderr, "trainyard-train: mfu is not reported: %s\n", e.msg);
    struct engine_hooks hooks = { .ctx = &job, .metrics = on_metrics, .notice = on_notice, .shard = on_shard };
    bool chosen = false;
    status_t st = config_resolve(config, collective, &hooks, &chosen, &e);
    if (st != ST_OK)
        return complain(&job, exit_code(engine_outcome_of(st)), &e);
    if (chosen && rank == 0)
        print_chosen(config_spec(config)->train);
    st = engine_open(c, collective, &hooks, &engine, &e);
    if (st != ST_OK)
        return complain(&job, exit_code(engine_outcome_of(st)), &e);
    if (job.args->plan)
        return print_plan(&job, engine);
    running = engine;
    sigaction(SIGINT, &(struct sigaction){ .sa_handler = on_signal }, NULL);
    sigaction(SIGTERM, &(struct sigaction){ .sa_handler = on_signal }, NULL);
    enum engine_outcome outcome;
    st = engine_run(engine, &outcome, &e);
    running = NULL;
    print_memory(&job, engine);
    return st == ST_OK ? exit_code(outcome) : complain(&job, exit_code(outcome), &e);
}

/* --- the command ---*/

static int train(const char *file, struct arguments *args) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct err e;
    if (spec_read_resumed(file, &args->changes, args->resume, &spec, &e) != ST_OK) {
        fprintf(stderr, "trainyard-train: %s\n", e.msg);
        return EXIT_USAGE;
    }
    int ranks = spec_world_size(spec);
    args->threads_by_work = args->threads < 1;
    if (args->threads_by_work)
        args->threads = spec_threads(spec, ranks);
    if (args->token_cache && dir_make(args->token_cache, 0777, &e) != ST_OK) {
        fprintf(stderr, "trainyard-train: --token-cache: %s\n", e.msg);
        return EXIT_USAGE;
    }
    struct job job = { .args = args, .spec = spec };
    int code = EXIT_FAILED;
    if (local_run(ranks, run_rank, &job, &code, &e) != ST_OK) {
        fprintf(stderr, "trainyard-train: %s\n", e.msg);
        return EXIT_FAILED;
    }
    return code;
}

enum option_code {
    OPTION_SET = 1,
    OPTION_CHECKPOINTS,
    OPTION_RESUME,
    OPTION_RANKS,
    OPTION_THREADS,
    OPTION_PROFILE,
    OPTION_PLAN,
    OPTION_JSON,
    OPTION_TOKEN_CACHE,
    OPTION_TOKEN_CACHE_MIB
};

static const struct option OPTIONS[] = {
    { "set", required_argument, NULL, OPTION_SET },
    { "checkpoints", required_argument, NULL, OPTION_CHECKPOINTS },
    { "resume", required_argument, NULL, OPTION_RESUME },
    { "ranks", required_argument, NULL, OPTION_RANKS },
    { "threads", required_argument, NULL, OPTION_THREADS },
    { "profile", required_argument, NULL, OPTION_PROFILE },
    { "plan", no_argument, NULL, OPTION_PLAN },
    { "json", no_argument, NULL, OPTION_JSON },
    { "token-cache", required_argument, NULL, OPTION_TOKEN_CACHE },
    { "token-cache-mib", required_argument, NULL, OPTION_TOKEN_CACHE_MIB },
    { 0 },
};

/* FROM..TO */
static bool take_profile(struct arguments *a, const char *range) {
    const char *dots = strstr(range, "..");
    if (!dots || dots - range > 20 || strlen(dots) > 22)
        return false;
    snprintf(a->from, sizeof a->from, "train.profile.from=%.*s", (int)(dots - range), range);
    snprintf(a->to, sizeof a->to, "train.profile.to=%s", dots + 2);
    return spec_changes_add(&a->changes, a->from) && spec_changes_add(&a->changes, a->to);
}

static bool take_ranks(struct arguments *a, const char *text) {
    long long n = 0;
    if (!command_number(text, 1, LOCAL_RANKS_MAX, &n))
        return false;
    snprintf(a->ranks, sizeof a->ranks, "parallel.data=%lld", n);
    return spec_changes_add(&a->changes, a->ranks);
}

static bool take_option(struct arguments *a, int code) {
    long long n = 0;
    switch (code) {
    case OPTION_SET: return spec_changes_add(&a->changes, optarg);
    case OPTION_CHECKPOINTS: a->checkpoints = optarg; return true;
    case OPTION_RESUME: a->resume = optarg; return true;
    case OPTION_PLAN: a->plan = true; return true;
    case OPTION_JSON: a->json = true; return true;
    case OPTION_TOKEN_CACHE: a->token_cache = optarg; return true;
    case OPTION_TOKEN_CACHE_MIB: return command_number(optarg, 1, 1 << 30, &a->token_cache_mib);
    case OPTION_RANKS: return take_ranks(a, optarg);
    case OPTION_PROFILE: return take_profile(a, optarg);
    case OPTION_THREADS: a->threads = command_number(optarg, 1, 1024, &n) ? (int)n : 0; return a->threads > 0;
    default: return false;
    }
}

int train_command(int argc, char **argv) {
    struct arguments args = { .token_cache_mib = TOKEN_CACHE_MIB };
    for (int code; (code = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        if (!take_option(&args, code))
            return code == '?' ? EXIT_USAGE : command_wrong_value(optarg);
    if (optind + 1 != argc) {
        fprintf(stderr, "trainyard-train: name one spec (see --help)\n");
        return EXIT_USAGE;
    }
    return train(argv[optind], &args);
}
