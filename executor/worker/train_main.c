/* trainyard-train: one spec on this machine, without a service. For hosts that have nothing else, and for debugging. */
#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/engine/run/engine.h"
#include "executor/worker/config.h"
#include "executor/worker/local.h"

#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_STOPPED = 3, SETS_MOST = 64, LINE_EVERY_MS = 1000 };

static const char HELP[] =
    "usage: trainyard-train SPEC [options]            train the job in this YAML or JSON file on this machine\n"
    "       trainyard-train sample CHECKPOINT [options]   write text from a checkpoint's step folder\n"
    "\n"
    "  --set KEY.PATH=VALUE   change one field of the spec; may be repeated\n"
    "  --checkpoints DIR      write DIR/step-<S>/ (default: the spec's checkpoint.directory, else none)\n"
    "  --resume DIR           start from the step folder DIR\n"
    "  --ranks N              data-parallel processes (sets parallel.data)\n"
    "  --threads N            compute threads of each rank (default: cores / ranks)\n"
    "  --plan                 print the plan of rank 0 and end\n"
    "  --json                 one JSON object a step on stdout, instead of a line a second\n"
    "  --prompt TEXT  --tokens N  --temperature T  --seed S     for `sample`\n"
    "  --help  --version\n"
    "\n"
    "example: trainyard-train job.yaml --set train.steps=200 --checkpoints /tmp/run\n"
    "         trainyard-train sample /tmp/run/step-200 --prompt 'ROMEO:' --tokens 200\n"
    "\n"
    "Ctrl-C ends at the next step, with a checkpoint. Exit: 0 done, 1 failed, 2 bad usage or spec, 3 stopped.\n";

struct arguments {
    const char *spec, *checkpoints, *resume;
    const char *sets[SETS_MOST];
    int n_sets, ranks, threads;
    bool plan, json;
    struct engine_sample_request sample;
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

/* --- what the engine tells ---*/

static void print_json(int64_t step, const struct engine_metric *m, int n) {
    printf("{\"step\":%lld", (long long)step);
    for (int i = 0; i < n; i++)
        printf(",\"%s\":%.17g", m[i].name, m[i].value);
    printf("}\n");
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
    if (per_rank)
        return;
    if (job->args->json) {
        print_json(step, m, n);
        return;
    }
    bool evaluated = strcmp(m[n - 1].name, "validation_loss") == 0;
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
    case ENGINE_BAD_SPEC: return EXIT_USAGE;
    default: return EXIT_FAILED;
    }
}

static int complain(const struct job *job, int code, const struct err *e) {
    fprintf(stderr, "trainyard-train: rank %d: %s\n", job->rank, e->msg);
    return code;
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
    *ret = job->args->checkpoints;
    if (*ret || !uri || !*uri)
        return ST_OK;
    TRY(spec_uri_path(uri, path, PATH_MAX, e));
    *ret = path;
    return ST_OK;
}

static int run_rank(void *ctx, int rank, struct collective *collective) {
    struct job job = *(struct job *)ctx;
    job.rank = rank;
    char path[PATH_MAX];
    struct err e = { "" };
    CLEANUP(config_closep) struct config *config = NULL;
    CLEANUP(engine_closep) struct engine *engine = NULL;
    if (config_open(job.spec, NULL, &config, &e) != ST_OK)
        return complain(&job, EXIT_USAGE, &e);
    struct engine_config *c = config_engine(config);
    if (directory_of(&job, path, &c->checkpoint.directory, &e) != ST_OK)
        return complain(&job, EXIT_USAGE, &e);
    c->checkpoint.resume_directory = job.args->resume;
    c->threads = job.args->threads;
    struct engine_hooks hooks = { .ctx = &job, .metrics = on_metrics, .notice = on_notice, .shard = on_shard };
    status_t st = engine_open(c, collective, &hooks, &engine, &e);
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
    return st == ST_OK ? exit_code(outcome) : complain(&job, exit_code(outcome), &e);
}

/* --- the spec ---*/

static status_t read_spec(const struct arguments *args, Trainyard__V1__JobSpec **ret, struct err *e) {
    struct bytes text;
    bytes_init(&text, LIMIT_SPEC_BYTES);
    ProtobufCMessage *given = NULL;
    status_t st = file_read(args->spec, &text, e);
    if (st == ST_OK)
        st = codec_parse(&trainyard__v1__job_spec__descriptor, text.data ? text.data : "", text.len, NULL, &given, e);
    bytes_done(&text);
    char ranks[16];
    snprintf(ranks, sizeof ranks, "%d", args->ranks);
    if (st == ST_OK && args->ranks)
        st = codec_set_path(given, "parallel.data", ranks, e);
    for (int i = 0; i < args->n_sets && st == ST_OK; i++) {
        CLEANUP(freep) char *path = strdup(args->sets[i]);
        char *equals = path ? strchr(path, '=') : NULL;
        if (!equals) {
            st = err_set(e, ST_INVALID_ARGUMENT, "--set %s: give KEY.PATH=VALUE", args->sets[i]);
            break;
        }
        *equals = 0;
        st = codec_set_path(given, path, equals + 1, e);
    }
    struct spec_problems problems = { 0 };
    if (st == ST_OK) {
        st = spec_resolve((Trainyard__V1__JobSpec *)given, ret, &problems, e);
        for (size_t i = 1; i < problems.n; i++)
            fprintf(stderr, "trainyard-train: %s\n", problems.lines[i]);
    }
    spec_problems_done(&problems);
    if (given)
        protobuf_c_message_free_unpacked(given, NULL);
    return st;
}

static int train(struct arguments *args) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    struct err e;
    if (read_spec(args, &spec, &e) != ST_OK) {
        fprintf(stderr, "trainyard-train: %s\n", e.msg);
        return EXIT_USAGE;
    }
    int ranks = spec_world_size(spec);
    if (args->threads < 1)
        args->threads = (int)sysconf(_SC_NPROCESSORS_ONLN) / ranks;
    if (args->threads < 1)
        args->threads = 1;
    struct job job = { .args = args, .spec = spec };
    int code = EXIT_FAILED;
    if (local_run(ranks, run_rank, &job, &code, &e) != ST_OK) {
        fprintf(stderr, "trainyard-train: %s\n", e.msg);
        return EXIT_FAILED;
    }
    return code;
}

/* --- sample ---*/

static bool write_piece(void *ctx, const char *piece) {
    (void)ctx;
    return fputs(piece, stdout) >= 0 && fflush(stdout) == 0;
}

static int sample(struct arguments *args) {
    struct err e;
    args->sample.directory = args->spec;
    args->sample.threads = args->threads > 0 ? args->threads : (int)sysconf(_SC_NPROCESSORS_ONLN);
    args->sample.write = write_piece;
    status_t st = engine_sample(&args->sample, &e);
    putchar('\n');
    if (st == ST_OK)
        return EXIT_DONE;
    fprintf(stderr, "trainyard-train: %s\n", e.msg);
    return st == ST_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}

/* --- arguments ---*/

enum option_code {
    OPTION_SET = 1,
    OPTION_CHECKPOINTS,
    OPTION_RESUME,
    OPTION_RANKS,
    OPTION_THREADS,
    OPTION_PLAN,
    OPTION_JSON,
    OPTION_PROMPT,
    OPTION_TOKENS,
    OPTION_TEMPERATURE,
    OPTION_SEED,
    OPTION_HELP,
    OPTION_VERSION
};

static const struct option OPTIONS[] = {
    { "set", required_argument, NULL, OPTION_SET },
    { "checkpoints", required_argument, NULL, OPTION_CHECKPOINTS },
    { "resume", required_argument, NULL, OPTION_RESUME },
    { "ranks", required_argument, NULL, OPTION_RANKS },
    { "threads", required_argument, NULL, OPTION_THREADS },
    { "plan", no_argument, NULL, OPTION_PLAN },
    { "json", no_argument, NULL, OPTION_JSON },
    { "prompt", required_argument, NULL, OPTION_PROMPT },
    { "tokens", required_argument, NULL, OPTION_TOKENS },
    { "temperature", required_argument, NULL, OPTION_TEMPERATURE },
    { "seed", required_argument, NULL, OPTION_SEED },
    { "help", no_argument, NULL, OPTION_HELP },
    { "version", no_argument, NULL, OPTION_VERSION },
    { 0 },
};

static bool parse_number(const char *text, long long least, long long *ret) {
    char *end;
    *ret = strtoll(text, &end, 10);
    return *text && !*end && *ret >= least;
}

static bool take_option(struct arguments *a, int code) {
    long long n = 0;
    char *end;
    switch (code) {
    case OPTION_SET:
        if (a->n_sets == SETS_MOST)
            return false;
        a->sets[a->n_sets++] = optarg;
        return true;
    case OPTION_CHECKPOINTS: a->checkpoints = optarg; return true;
    case OPTION_RESUME: a->resume = optarg; return true;
    case OPTION_PLAN: a->plan = true; return true;
    case OPTION_JSON: a->json = true; return true;
    case OPTION_PROMPT: a->sample.prompt = optarg; return true;
    case OPTION_TEMPERATURE: a->sample.temperature = strtod(optarg, &end); return *optarg && !*end;
    case OPTION_RANKS:
        a->ranks = parse_number(optarg, 1, &n) && n <= LOCAL_RANKS_MOST ? (int)n : -1;
        return a->ranks > 0;
    case OPTION_THREADS: a->threads = parse_number(optarg, 1, &n) && n <= 1024 ? (int)n : -1; return a->threads > 0;
    case OPTION_TOKENS:
        a->sample.tokens = parse_number(optarg, 1, &n) && n <= INT_MAX ? (int)n : -1;
        return a->sample.tokens > 0;
    case OPTION_SEED: return parse_number(optarg, LLONG_MIN, &n) && ((a->sample.seed = n), true);
    default: return false;
    }
}

/* libgomp reads its settings before main: start over with the one that fits a machine which others use too. Measured on
 * two busy cores: a step takes a quarter of what it takes when idle threads spin as long as libgomp has them by
 * default; on idle cores both take the same. */
static void settle_threads(char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0)
        execv("/proc/self/exe", argv);
}

int main(int argc, char **argv) {
    settle_threads(argv); /* goes on as it is where /proc is missing */
    bool sampling = argc > 1 && strcmp(argv[1], "sample") == 0;
    struct arguments args = { .sample = { .prompt = "", .tokens = 200, .temperature = 0.8, .seed = 1 } };
    optind = sampling ? 2 : 1;
    for (int code; (code = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        if (code == OPTION_HELP) {
            fputs(HELP, stdout);
            return EXIT_DONE;
        }
        if (code == OPTION_VERSION) {
            puts("trainyard-train " TRAINYARD_VERSION);
            return EXIT_DONE;
        }
        if (!take_option(&args, code)) {
            if (code != '?')
                fprintf(stderr, "trainyard-train: '%s' is no value for that option\n", optarg);
            return EXIT_USAGE;
        }
    }
    if (optind + 1 != argc) {
        fprintf(stderr, "trainyard-train: name one %s (see --help)\n", sampling ? "checkpoint" : "spec");
        return EXIT_USAGE;
    }
    args.spec = argv[optind];
    return sampling ? sample(&args) : train(&args);
}
