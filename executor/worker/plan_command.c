/* `trainyard-train plan SPEC`: plans every rank of a spec without weights and without data but its counts. The
 * device is this machine's CPU, which is measured, or a profile of another one. With --ranks the layout becomes N
 * data-parallel ranks of the spec's pipeline, each with as many samples as before. The report becomes the message
 * Plan, which is printed as JSON or as a table, or the step's timeline as an SVG. */
#include "api/codec/message.h"
#include "api/codec/text.h"
#include "api/spec/data_uri.h"
#include "api/spec/spec.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/roots.h"
#include "engine/model/model.h"
#include "engine/plan/cost/timeline_svg.h"
#include "engine/run/job_model.h"
#include "executor/worker/commands.h"
#include "executor/worker/config.h"
#include "executor/worker/data_shape.h"
#include "executor/worker/plan_device.h"
#include "executor/worker/plan_message.h"
#include "executor/worker/spec_read.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MAX = 1 << 16, TEXT_BYTES = 64 << 20, TIMELINE_COLUMNS = 96, STAGES_DRAWN = 16, ROOTS_MAX = 64 };

enum option_code {
    OPTION_SET = 1,
    OPTION_RANKS,
    OPTION_DEVICE,
    OPTION_MEMORY,
    OPTION_THREADS,
    OPTION_SVG,
    OPTION_ROOT,
    OPTION_EXCEPT,
    OPTION_JSON
};

static const struct option OPTIONS[] = {
    { "set", required_argument, NULL, OPTION_SET },
    { "ranks", required_argument, NULL, OPTION_RANKS },
    { "device", required_argument, NULL, OPTION_DEVICE },
    { "memory", required_argument, NULL, OPTION_MEMORY },
    { "threads", required_argument, NULL, OPTION_THREADS },
    { "data-root", required_argument, NULL, OPTION_ROOT },
    { "data-except", required_argument, NULL, OPTION_EXCEPT },
    { "svg", required_argument, NULL, OPTION_SVG },
    { "json", no_argument, NULL, OPTION_JSON },
    { 0 },
};

struct arguments {
    struct spec_changes changes;
    const char *roots[ROOTS_MAX];
    size_t n_roots;
    bool only_roots; /* --data-root was given, be it '' */
    struct roots_except except[ROOTS_MAX];
    size_t n_except;
    int ranks, threads;
    long long memory;
    const char *device, *svg;
    bool json;
};

static bool except_add(struct arguments *a, const char *path) {
    if (a->n_except == ROOTS_MAX)
        return false;
    struct roots_except *x = &a->except[a->n_except++];
    if (roots_except_find(path, x, NULL) != ST_OK)
        *x = (struct roots_except){ .path = path };
    return true;
}

static bool take_option(struct arguments *a, int code) {
    long long n = 0;
    switch (code) {
    case OPTION_SET: return spec_changes_add(&a->changes, optarg);
    case OPTION_RANKS: a->ranks = command_number(optarg, 1, RANKS_MAX, &n) ? (int)n : 0; return a->ranks > 0;
    case OPTION_THREADS: a->threads = command_number(optarg, 1, 1024, &n) ? (int)n : 0; return a->threads > 0;
    case OPTION_MEMORY: return command_number(optarg, 1, LLONG_MAX, &a->memory);
    case OPTION_DEVICE: a->device = optarg; return true;
    case OPTION_ROOT:
        if (a->n_roots == ROOTS_MAX)
            return false;
        a->only_roots = true;
        if (*optarg)
            a->roots[a->n_roots++] = optarg;
        return true;
    case OPTION_EXCEPT: return except_add(a, optarg);
    case OPTION_SVG: a->svg = optarg; return true;
    case OPTION_JSON: a->json = true; return true;
    default: return false;
    }
}

static int positive(int n) { return n > 1 ? n : 1; }

/* --ranks: more or fewer data ranks, each with as many samples as before. */
static status_t set_ranks(struct engine_config *c, int ranks, char *note, size_t size, struct err *e) {
    int stages = positive(c->layout.pipeline), before = positive(c->layout.data), data = ranks / stages;
    if (ranks % stages || data < 1 || (data & (data - 1)))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--ranks %d: parallel.pipeline %d times a power of two of data ranks is what can be", ranks,
                       stages);
    c->layout.data = data;
    if (data == before)
        return ST_OK;
    if (c->train.global_batch > INT_MAX / data)
        return err_set(e, ST_INVALID_ARGUMENT, "--ranks %d: the global batch would be too large", ranks);
    int global = c->train.global_batch, lanes = c->train.lanes;
    if (lanes && lanes < data)
        c->train.lanes = data;
    if (data > before)
        c->train.global_batch = global / before * data;
    snprintf(note, size, "for %d ranks: global_batch %d (the spec's: %d), lanes %d (%d)", ranks, c->train.global_batch,
             global, c->train.lanes, lanes);
    return ST_OK;
}

/* Finds the device of the plan. The plan counts the kernels of this device, even if the spec has another one. */
static status_t find_profile(const struct arguments *a, struct engine_config *c, struct plan_profile *ret,
                             struct err *e) {
    TRY(plan_device_find(a->device, c, ret, e));
    if (*ret->accelerator)
        c->device = ret->accelerator;
    return ST_OK;
}

static void note_assumption(const struct arguments *a, const struct plan_profile *p, char *note, size_t size) {
    const size_t n = strlen(note);
    if (!a->device && strcmp(p->accelerator, "cuda") == 0)
        snprintf(note + n, size - n, "%sno --device: %s is assumed for times and the limit; bytes are any device's",
                 n ? "; " : "", p->name);
}

static size_t limit_of(const struct arguments *a, const struct engine_config *c, const struct plan_profile *p) {
    return a->memory ? (size_t)a->memory : plan_device_memory_bytes(c, p);
}

/* --- output ---*/

static status_t draw(const struct arguments *a, const struct plan_report *r, struct err *e) {
    struct bytes svg;
    char title[160];
    const struct plan_layout *l = &r->layout;
    const int own = plan_own_micro_batches(l);
    snprintf(title, sizeof title, "%d stage%s x %d data rank%s, zero %d, %d micro-batch%s a rank", l->stages,
             l->stages == 1 ? "" : "s", l->data, l->data == 1 ? "" : "s", l->zero, own, own == 1 ? "" : "es");
    bytes_init(&svg, TEXT_BYTES);
    status_t st = timeline_svg(&r->timeline, title, &svg, e);
    if (st == ST_OK)
        st = file_write_atomic(a->svg, svg.data, svg.len, 0644, e);
    bytes_done(&svg);
    return st;
}

static status_t print(const struct arguments *a, const struct plan_facts *facts, struct bytes *text, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__Plan *message = plan_message_make(facts);
    status_t st = a->json ? codec_print_json(&message->base, 2, text, e) : plan_message_table(message, text, e);
    if (st == ST_OK && a->json)
        st = bytes_append(text, "\n", 1, e);
    int stages = facts->report->n_stages;
    if (st == ST_OK && !a->json && stages > 1 && stages <= STAGES_DRAWN) {
        st = bytes_append(text, "\n", 1, e);
        if (st == ST_OK)
            st = timeline_text(&facts->report->timeline, TIMELINE_COLUMNS, text, e);
    }
    return st;
}

static status_t report_plan(const struct arguments *a, struct job_model *o, struct plan_facts facts, struct bytes *text,
                            struct err *e) {
    if (facts.memory_bytes)
        TRY(job_model_max_micro_batch(o, facts.config, facts.memory_bytes, &facts.largest_micro_batch,
                                      &facts.larger_exceeds_memory, e));
    TRY(print(a, &facts, text, e));
    return a->svg ? draw(a, facts.report, e) : ST_OK;
}

static status_t report(const struct arguments *a, struct job_model *o, const struct engine_config *given,
                       const struct plan_profile *profile, const char *note, struct bytes *text, struct err *e) {
    struct engine_config config = *given;
    CLEANUP(graph_freep) struct graph *graph = NULL;
    size_t workspace = 0;
    struct plan_report r;
    config.memory_bytes = a->memory ? a->memory : config.memory_bytes;
    TRY(job_model_resolve(o, &config, e));
    TRY(job_model_build(o, config.train.micro_batch, &graph, &workspace, e));
    struct bucket_choice buckets;
    TRY(job_model_choose_buckets(&config, graph, NULL, NULL, &buckets, e));
    struct plan_layout layout = job_model_layout(&config, workspace);
    TRY(plan_report_make(graph, &layout, job_model_host(o), profile, &r, e));
    status_t st = report_plan(a, o,
                              (struct plan_facts){ .report = &r,
                                                   .config = &config,
                                                   .profile = profile,
                                                   .note = note,
                                                   .buckets = buckets,
                                                   .memory_bytes = limit_of(a, &config, profile),
                                                   .tokens_per_sample = model_context(&config.model) },
                              text, e);
    plan_report_done(&r);
    return st;
}

/* ---- the model ---- */

static void first_problem(void *ctx, const char *text) {
    struct err *first = ctx;
    if (!*first->msg)
        status_ignore(err_set(first, ST_INVALID_ARGUMENT, "%s", text));
}

/* Remote data are not read. */
static status_t open_remote(const Trainyard__V1__JobSpec *spec, const struct roots *roots, struct config **ret,
                            struct err *e) {
    struct err first = { "" };
    struct config_judge judge = { .problem = first_problem, .ctx = &first };
    TRY(config_open_judged(spec, roots, &judge, ret, e));
    return judge.n == 0 ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "%s", first.msg);
}

static status_t model_open_remote(struct engine_config *c, char *note, size_t size, struct job_model **ret,
                                  struct err *e) {
    const struct model_data data = data_shape_assumed(c);
    const size_t n = strlen(note);
    if (!data_shape_is_known(c))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "data: they are no files of this machine, and the sizes of the model follow from them: give its "
                       "`vocabulary` to plan it");
    snprintf(note + n, size - n, "%sthe memory that the data take is not counted: they are no files of this machine",
             n ? "; " : "");
    return job_model_open_shaped(c, &data, NULL, ret, e);
}

static status_t model_open(struct engine_config *c, bool remote, char *note, size_t size, struct source **ret_source,
                           struct job_model **ret, struct err *e) {
    if (remote)
        return model_open_remote(c, note, size, ret, e);
    TRY(job_model_source(c, NULL, NULL, ret_source, e));
    return job_model_open(c, *ret_source, NULL, ret, e);
}

static bool is_remote(const Trainyard__V1__JobSpec *spec) {
    size_t n;
    free(data_uris_remote(spec, &n));
    return n > 0;
}

static status_t plan(const struct arguments *a, const char *file, struct bytes *text, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    CLEANUP(config_closep) struct config *config = NULL;
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(job_model_closep) struct job_model *model = NULL;
    struct plan_profile profile;
    char note[256] = "";
    TRY(spec_read(file, &a->changes, &spec, e));
    const struct roots roots = {
        .option = "--data-root", .paths = a->roots, .n = a->n_roots, .except = a->except, .n_except = a->n_except
    };
    const struct roots *only = a->only_roots ? &roots : NULL;
    const bool remote = is_remote(spec);
    TRY(remote ? open_remote(spec, only, &config, e) : config_open(spec, only, NULL, &config, e));
    struct engine_config *c = config_engine(config);
    if (a->ranks)
        TRY(set_ranks(c, a->ranks, note, sizeof note, e));
    c->threads = a->threads ? a->threads : spec_threads(spec, engine_ranks(&c->layout));
    c->checkpoint.directory = "/"; /* a rank of a service always has one: its snapshot counts */
    TRY(find_profile(a, c, &profile, e));
    note_assumption(a, &profile, note, sizeof note);
    TRY(model_open(c, remote, note, sizeof note, &source, &model, e));
    return report(a, model, c, &profile, note, text, e);
}

int plan_command(int argc, char **argv) {
    struct arguments args = { 0 };
    for (int code; (code = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        if (!take_option(&args, code))
            return code == '?' ? EXIT_USAGE : command_wrong_value(optarg);
    if (optind + 1 != argc) {
        fprintf(stderr, "trainyard-train: name one spec (see --help)\n");
        return EXIT_USAGE;
    }
    struct bytes text;
    struct err e;
    bytes_init(&text, TEXT_BYTES);
    status_t st = plan(&args, argv[optind], &text, &e);
    if (st == ST_OK && text.len)
        fwrite(text.data, 1, text.len, stdout);
    else if (st != ST_OK)
        fprintf(stderr, "trainyard-train: %s\n", e.msg);
    bytes_done(&text);
    return st == ST_OK ? EXIT_DONE : st == ST_INVALID_ARGUMENT || st == ST_NOT_FOUND ? EXIT_USAGE : EXIT_FAILED;
}
