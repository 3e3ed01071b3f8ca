/* trainyard-train plan SPEC: what a job would take, without training it. */
#include "api/codec/text.h"
#include "api/spec/spec.h"
#include "base/cores.h"
#include "base/file.h"
#include "executor/engine/model/model.h"
#include "executor/engine/plan/picture.h"
#include "executor/engine/run/outline.h"
#include "executor/worker/commands.h"
#include "executor/worker/config.h"
#include "executor/worker/plan_message.h"
#include "executor/worker/spec_read.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Where a spec for GPUs is planned and nobody says which. */
static const char CUDA_ASSUMED[] = "h200";

enum { RANKS_MOST = 1 << 16, TEXT_BYTES = 64 << 20, PICTURE_COLUMNS = 96, STAGES_DRAWN = 16, ROOTS_MOST = 64 };

enum option_code {
    OPTION_SET = 1,
    OPTION_RANKS,
    OPTION_DEVICE,
    OPTION_MEMORY,
    OPTION_THREADS,
    OPTION_SVG,
    OPTION_ROOT,
    OPTION_JSON
};

static const struct option OPTIONS[] = {
    { "set", required_argument, NULL, OPTION_SET },
    { "ranks", required_argument, NULL, OPTION_RANKS },
    { "device", required_argument, NULL, OPTION_DEVICE },
    { "memory", required_argument, NULL, OPTION_MEMORY },
    { "threads", required_argument, NULL, OPTION_THREADS },
    { "data-root", required_argument, NULL, OPTION_ROOT },
    { "svg", required_argument, NULL, OPTION_SVG },
    { "json", no_argument, NULL, OPTION_JSON },
    { 0 },
};

struct arguments {
    struct spec_changes changes;
    const char *roots[ROOTS_MOST];
    size_t n_roots;
    int ranks, threads;
    long long memory;
    const char *device, *svg;
    bool json;
};

static bool take_option(struct arguments *a, int code) {
    long long n = 0;
    switch (code) {
    case OPTION_SET: return spec_changes_add(&a->changes, optarg);
    case OPTION_RANKS: a->ranks = command_number(optarg, 1, RANKS_MOST, &n) ? (int)n : 0; return a->ranks > 0;
    case OPTION_THREADS: a->threads = command_number(optarg, 1, 1024, &n) ? (int)n : 0; return a->threads > 0;
    case OPTION_MEMORY: return command_number(optarg, 1, LLONG_MAX, &a->memory);
    case OPTION_DEVICE: a->device = optarg; return true;
    case OPTION_ROOT:
        if (a->n_roots == ROOTS_MOST)
            return false;
        a->roots[a->n_roots++] = optarg;
        return true;
    case OPTION_SVG: a->svg = optarg; return true;
    case OPTION_JSON: a->json = true; return true;
    default: return false;
    }
}

static int at_least_one(int n) { return n > 1 ? n : 1; }

/* --ranks: more or fewer data ranks, each with as many samples as before. */
static status_t set_ranks(struct engine_config *c, int ranks, char *note, size_t size, struct err *e) {
    int stages = at_least_one(c->layout.pipeline), before = at_least_one(c->layout.data), data = ranks / stages;
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

/* The device of the plan; its kernels are what the plan counts, whatever the spec's accelerator. */
static status_t find_profile(const struct arguments *a, struct engine_config *c, struct plan_profile *ret,
                             struct err *e) {
    const char *name = a->device ? a->device : strcmp(c->device, "cuda") == 0 ? CUDA_ASSUMED : "cpu";
    if (strcmp(name, "cpu") == 0) {
        TRY(plan_profile_measure(c->threads, ret, e));
        ret->memory_bytes /= (size_t)engine_ranks(&c->layout); /* they share it */
    } else {
        TRY(plan_profile_find(name, ret, e));
    }
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
    if (a->memory)
        return (size_t)a->memory;
    if (c->memory_bytes > 0)
        return (size_t)c->memory_bytes;
    return p->memory_bytes > p->allowance_bytes ? p->memory_bytes - p->allowance_bytes : 0;
}

/* --- what is told ---*/

static status_t draw(const struct arguments *a, const struct plan_report *r, struct err *e) {
    struct bytes svg;
    char title[160];
    const struct plan_layout *l = &r->layout;
    snprintf(title, sizeof title, "%d stages x %d data ranks, zero %d, %d micro-batches a rank", l->stages, l->data,
             l->zero, plan_own_micro_batches(l));
    bytes_init(&svg, TEXT_BYTES);
    status_t st = picture_svg(&r->timeline, title, &svg, e);
    if (st == ST_OK)
        st = file_write_atomic(a->svg, svg.data, svg.len, 0644, e);
    bytes_done(&svg);
    return st;
}

static status_t tell(const struct arguments *a, const struct plan_facts *facts, struct bytes *text, struct err *e) {
    CLEANUP(plan_message_freep) Trainyard__V1__Plan *message = NULL;
    TRY(plan_message_make(facts, &message, e));
    status_t st = a->json ? codec_print_json(&message->base, 2, text, e) : plan_message_table(message, text, e);
    if (st == ST_OK && a->json)
        st = bytes_append(text, "\n", 1, e);
    int stages = facts->report->n_stages;
    if (st == ST_OK && !a->json && stages > 1 && stages <= STAGES_DRAWN) {
        st = bytes_append(text, "\n", 1, e);
        if (st == ST_OK)
            st = picture_text(&facts->report->timeline, PICTURE_COLUMNS, text, e);
    }
    return st;
}

static status_t tell_report(const struct arguments *a, struct outline *o, struct plan_facts facts, struct bytes *text,
                            struct err *e) {
    if (facts.memory_bytes)
        TRY(outline_largest(o, facts.config, facts.memory_bytes, &facts.largest_micro_batch, e));
    TRY(tell(a, &facts, text, e));
    return a->svg ? draw(a, facts.report, e) : ST_OK;
}

static status_t report(const struct arguments *a, struct outline *o, const struct engine_config *given,
                       const struct plan_profile *profile, const char *note, struct bytes *text, struct err *e) {
    struct engine_config config = *given;
    CLEANUP(graph_freep) struct graph *graph = NULL;
    size_t workspace = 0;
    struct plan_report r;
    config.memory_bytes = a->memory ? a->memory : config.memory_bytes;
    TRY(outline_resolve(o, &config, e));
    TRY(outline_build(o, config.train.micro_batch, &graph, &workspace, e));
    struct plan_layout layout = outline_layout(&config, workspace);
    TRY(plan_report_make(graph, &layout, profile, &r, e));
    status_t st = tell_report(a, o,
                              (struct plan_facts){ .report = &r,
                                                   .config = &config,
                                                   .profile = profile,
                                                   .note = note,
                                                   .memory_bytes = limit_of(a, &config, profile),
                                                   .tokens_per_sample = model_context(&config.model) },
                              text, e);
    plan_report_done(&r);
    return st;
}

static status_t plan(const struct arguments *a, const char *file, struct bytes *text, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    CLEANUP(config_closep) struct config *config = NULL;
    CLEANUP(source_closep) struct source *source = NULL;
    CLEANUP(outline_closep) struct outline *outline = NULL;
    struct plan_profile profile;
    char note[256] = "";
    TRY(spec_read(file, &a->changes, &spec, e));
    TRY(config_open(spec, &(struct data_roots){ .paths = a->roots, .n = a->n_roots }, &config, e));
    struct engine_config *c = config_engine(config);
    if (a->ranks)
        TRY(set_ranks(c, a->ranks, note, sizeof note, e));
    int cores = cores_allowed();
    c->threads = a->threads ? a->threads : at_least_one(cores / engine_ranks(&c->layout));
    TRY(find_profile(a, c, &profile, e));
    note_assumption(a, &profile, note, sizeof note);
    TRY(outline_source(c, NULL, NULL, &source, e));
    TRY(outline_open(c, source, NULL, &outline, e));
    return report(a, outline, c, &profile, note, text, e);
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
