/* The parts of a check run in order: files, data, model and memory, weights, plan, folder. A problem is reported and
 * the check continues with the next part that does not need what is wrong: without data the sizes of the data are
 * assumed, so that an impossible layout is still found. Only a lack of memory or an internal error ends the check
 * early. */
#include "executor/worker/check.h"

#include "api/codec/message.h"
#include "base/cleanup.h"
#include "engine/data/token_cache.h"
#include "engine/optimizer/optimizer.h"
#include "engine/run/job_model.h"
#include "executor/worker/check_parts.h"
#include "executor/worker/config.h"
#include "executor/worker/data_shape.h"
#include "executor/worker/plan_device.h"
#include "executor/worker/plan_message.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void check_part(const struct check *k, const char *part) { k->sink->part(k->sink->ctx, part); }

void check_problem(struct check *k, bool of_host, const char *fmt, ...) {
    char text[CHECK_PROBLEM_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (k->n_problems++ < CHECK_PROBLEMS)
        k->sink->problem(k->sink->ctx, text, of_host);
}

status_t check_judge(struct check *k, status_t st, const struct err *why, struct err *e) {
    switch (st) {
    case ST_OK: return ST_OK;
    case ST_RESOURCE_EXHAUSTED:
    case ST_INTERNAL: return err_set(e, st, "%s", why->msg);
    default: check_problem(k, st == ST_NOT_FOUND || st == ST_PERMISSION_DENIED, "%s", why->msg); return ST_OK;
    }
}

static void path_problem(void *ctx, const char *text) { check_problem(ctx, true, "%s", text); }

/* ---- memory and the plan ---- */

/* Bytes of a checkpoint: an fp32 number for each weight, for each of its states, and for its average. */
static double state_bytes(const struct engine_config *c, const struct graph *g) {
    double numbers = 0;
    for (int i = 0; i < g->n_parameters; i++) {
        const struct parameter *p = &g->parameters[i];
        const struct optimizer_kind *kind = c->train.optimizer.kind;
        numbers += (double)shape_elements(&p->shape) * (c->train.ema.decay > 0 ? 2 : 1);
        for (int s = 0; s < kind->n_states; s++)
            numbers += (double)optimizer_state_elements(kind, p, s);
    }
    return 4 * numbers;
}

static status_t compare_memory(struct check *k, const struct job_model *o, const struct graph *g,
                               const struct plan_layout *layout, struct err *e) {
    const double limit = (double)k->request->memory_bytes, GiB = 1 << 30;
    size_t bytes;
    int rank;
    if (limit <= 0)
        return ST_OK;
    TRY(plan_max_bytes(g, layout, job_model_host(o), &bytes, &rank, e));
    if ((double)bytes > limit)
        check_problem(k, true, "train.micro_batch: rank %d needs %.2f GiB, more than the %.2f GiB that a rank can have",
                      rank, (double)bytes / GiB, limit / GiB);
    return ST_OK;
}

static status_t make_plan(const struct check *k, struct job_model *o, const struct engine_config *c,
                          const struct bucket_choice *buckets, const struct graph *g, const struct plan_layout *layout,
                          struct err *e) {
    struct plan_profile profile;
    struct plan_report report;
    CLEANUP(message_freep) Trainyard__V1__Plan *message = NULL;
    char note[160] = "";
    TRY(plan_device_find(NULL, c, &profile, e));
    if (strcmp(c->device, "cpu") != 0)
        snprintf(note, sizeof note, "%s is assumed for times and the limit; bytes are any device's", profile.name);
    TRY(plan_report_make(g, layout, job_model_host(o), &profile, &report, e));
    struct plan_facts facts = { .report = &report,
                                .config = c,
                                .profile = &profile,
                                .note = note,
                                .buckets = *buckets,
                                .memory_bytes = plan_device_memory_bytes(c, &profile),
                                .tokens_per_sample = model_context(&c->model) };
    status_t st = facts.memory_bytes ? job_model_max_micro_batch(o, c, facts.memory_bytes, &facts.largest_micro_batch,
                                                                 &facts.larger_exceeds_memory, e)
                                     : ST_OK;
    if (st == ST_OK)
        message = plan_message_make(&facts);
    plan_report_done(&report);
    if (st == ST_OK)
        k->sink->plan(k->sink->ctx, message);
    return st;
}

/* ---- the model, by the data's shape ---- */

/* Without data: the plan is that of any data, and the data are only not here yet. */
static bool is_planned(const struct check *k, const struct engine_config *c) {
    return k->remote && k->n_problems == 0 && data_shape_is_known(c);
}

static status_t check_graph(struct check *k, struct engine_config *c, struct job_model *o, const struct source *source,
                            double *ret_bytes, struct err *e) {
    CLEANUP(graph_freep) struct graph *graph = NULL;
    size_t workspace = 0;
    TRY(job_model_resolve(o, c, e));
    TRY(job_model_build(o, c->train.micro_batch, &graph, &workspace, e));
    struct bucket_choice buckets;
    TRY(job_model_choose_buckets(c, graph, NULL, NULL, &buckets, e));
    const struct plan_layout layout = job_model_layout(c, workspace);
    if (!source && !is_planned(k, c))
        return ST_OK;
    *ret_bytes = state_bytes(c, graph);
    TRY(compare_memory(k, o, graph, &layout, e));
    check_part(k, "the weights that it begins with");
    TRY(check_origin(k, c, graph, source ? source_info(source)->sha256 : "", e));
    if (!k->request->plan || k->n_problems)
        return ST_OK;
    check_part(k, "what it takes");
    return make_plan(k, o, c, &buckets, graph, &layout, e);
}

/* Without data the sizes are assumed: an impossible layout is still found, but memory is not checked. */
static status_t check_model(struct check *k, struct engine_config *c, const struct source *source, double *ret_bytes,
                            struct err *e) {
    CLEANUP(job_model_closep) struct job_model *model = NULL;
    const struct model_data data = source ? model_data_of(source_info(source)) : data_shape_assumed(c);
    struct err why = { "" };
    check_part(k, "the model and its memory");
    if (!source && !is_planned(k, c)) {
        c->memory_bytes = 0;
        c->train.micro_batch = c->train.micro_batch ? c->train.micro_batch : 1;
    }
    status_t st = job_model_open_shaped(c, &data, NULL, &model, &why);
    if (st == ST_OK)
        st = check_graph(k, c, model, source, ret_bytes, &why);
    return check_judge(k, st, &why, e);
}

static void remote_report(const struct check *k, const struct engine_config *c) {
    static const char known[] = "the bytes of data that are not files of a host, and the memory that they take",
                      unknown[] = "the bytes of data that are not files of a host, and the memory, which follows from "
                                  "them: give the model's sizes to check it";
    k->sink->unchecked(k->sink->ctx, data_shape_is_known(c) ? known : unknown);
}

static status_t check_config(struct check *k, struct config *config, int data_problems, struct err *e) {
    struct engine_config *c = config_engine(config);
    CLEANUP(source_closep) struct source *source = NULL;
    const struct token_cache tokens = { .folder = k->request->token_cache };
    c->threads = k->request->threads;
    c->token_cache = tokens.folder && *tokens.folder ? &tokens : NULL;
    c->checkpoint.directory = "/"; /* a rank always has one: its snapshot counts */
    check_part(k, "the data");
    if (k->remote)
        remote_report(k, c);
    else if (data_problems == 0)
        TRY(check_data(k, c, &source, e));
    double bytes = 0;
    TRY(check_model(k, c, source, &bytes, e));
    check_part(k, "the folder for checkpoints");
    return check_folder(k, bytes, e);
}

status_t check_spec(const struct check_request *request, const struct check_sink *sink, struct err *e) {
    struct check k = { .request = request, .sink = sink };
    struct config_judge judge = { .problem = path_problem, .ctx = &k };
    CLEANUP(config_closep) struct config *config = NULL;
    struct err why = { "" };
    check_part(&k, "the files");
    status_t st = config_open_judged(request->spec, request->roots, &judge, &config, &why);
    const int data_problems = judge.n;
    k.remote = judge.n_remote > 0;
    if (st == ST_OK && !*request->fork_directory && !*request->init_directory)
        st = config_init_from(config, request->roots, &why);
    if (st != ST_OK)
        return check_judge(&k, st, &why, e);
    return check_config(&k, config, data_problems, e);
}
