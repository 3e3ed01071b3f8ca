/* The evaluation plan is one round: it computes the losses of one global batch, as far as this rank and its lanes do.
 * It is executed once for each batch of the evaluation, so its bytes and the time to build it do not depend on their
 * number. Round r computes samples r n .. r n + n - 1 of the validation set, n = global_batch. The last round may go
 * beyond the end of the set; what it computes there is not counted.
 *
 * The results have one loss for each sample. They are added in the order of the samples, so their sum depends neither
 * on the layout nor on the batch size. If calls are deferred, a round is begun while the device computes the one
 * before.
 *
 * Each source of a mixture is evaluated by itself, from its first sample on. The mean over the sources is weighted. */
#include "engine/run/evaluate.h"

#include "engine/data/source.h"
#include "engine/run/execute.h"

struct evaluation {
    struct engine *engine;
    int64_t first, samples;              /* to evaluate */
    int64_t begun, taken;                /* rounds */
    double loss, reports[GRAPH_REPORTS]; /* sums over the samples of the rounds taken */
};

static status_t load(void *ctx, int k, struct batch *ret, struct err *e) {
    const struct evaluation *v = ctx;
    struct engine *engine = v->engine;
    const struct engine_train *t = &engine->config.train;
    const int64_t first = v->first + v->begun * t->global_batch + (int64_t)k * t->micro_batch;
    *ret = engine->scratch_batch;
    return source_read(engine->source, SOURCE_VALIDATION, t->seed, first, t->micro_batch, ret, e);
}

static status_t begin_round(struct evaluation *v, struct err *e) {
    TRY(execute(&v->engine->execution, v->engine->evaluate, e));
    v->begun++;
    return ST_OK;
}

static status_t take_round(struct evaluation *v, struct err *e) {
    const struct plan *plan = v->engine->evaluate;
    const int64_t all = step_control_results(plan), left = v->samples - v->taken * all;
    const struct step_control *c = NULL;
    TRY(execute_take(&v->engine->execution, &c, e));
    v->taken++;
    for (int64_t i = 0; i < all && i < left; i++) {
        v->loss += c->losses[i];
        for (int r = 0; r < plan->graph->n_reports; r++)
            v->reports[r] += c->losses[(1 + r) * all + i];
    }
    return ST_OK;
}

static status_t run_rounds(struct evaluation *v, struct err *e) {
    const int64_t batch = v->engine->config.train.global_batch, rounds = (v->samples + batch - 1) / batch;
    const int64_t in_flight = v->engine->kernels->deferred ? CONTROL_STEPS : 1;
    while (v->taken < rounds) {
        while (v->begun < rounds && v->begun < v->taken + in_flight)
            TRY(begin_round(v, e));
        TRY(take_round(v, e));
    }
    return ST_OK;
}

/* A whole set, or its first batches: `all` samples from number `first` on. */
static status_t evaluate_set(struct engine *engine, int64_t first, int64_t all, struct engine_evaluation *ret,
                             struct err *e) {
    const int64_t limit = (int64_t)engine->config.train.eval.batches * engine->config.train.global_batch;
    struct evaluation v = { .engine = engine, .first = first, .samples = limit > 0 && limit < all ? limit : all };
    engine->execution.load_ctx = &v;
    TRY(run_rounds(&v, e));
    const double samples = (double)v.samples;
    ret->loss = v.loss / (samples * (double)engine->graph->targets_per_sample);
    for (int r = 0; r < engine->graph->n_reports; r++)
        ret->reports[r] = v.reports[r] / samples;
    return ST_OK;
}

/* Without weights, which are those of sources that are not trained on, the sources count alike. */
static double weight_of(const struct source_info *info, int s) {
    double sum = 0;
    int n = 0;
    for (int i = 0; i < info->n_mixed; i++) {
        sum += info->mixed[i].weight;
        n += info->mixed[i].validation > 0;
    }
    return sum > 0 ? info->mixed[s].weight : 1.0 / n;
}

static status_t evaluate_mixture(struct engine *engine, struct engine_evaluation *ret, struct err *e) {
    const struct source_info *info = source_info(engine->source);
    struct engine_evaluation mean = { .loss = 0 };
    for (int s = 0; s < info->n_mixed; s++) {
        const struct mixed_source *from = &info->mixed[s];
        struct engine_evaluation one = { .loss = 0 };
        if (from->validation == 0)
            continue;
        TRY(evaluate_set(engine, from->first, from->validation, &one, e));
        const double weight = weight_of(info, s);
        mean.mixed[s] = one.loss;
        mean.loss += weight * one.loss;
        for (int r = 0; r < engine->graph->n_reports; r++)
            mean.reports[r] += weight * one.reports[r];
    }
    *ret = mean;
    return ST_OK;
}

static status_t evaluate_now(struct engine *engine, struct engine_evaluation *ret, struct err *e) {
    const struct source_info *info = source_info(engine->source);
    engine->execution.load = load;
    return info->n_mixed > 0 ? evaluate_mixture(engine, ret, e)
                             : evaluate_set(engine, 0, info->samples[SOURCE_VALIDATION], ret, e);
}

/* Weights and averages change places for the second evaluation, and back. */
static status_t evaluate_all(struct engine *engine, struct err *e) {
    struct execution *x = &engine->execution;
    const struct step_control *ignored;
    TRY(evaluate_now(engine, &engine->training.weights, e));
    if (!engine->averages)
        return ST_OK;
    TRY(execute_now(x, engine->averages, &ignored, e));
    TRY(evaluate_now(engine, &engine->training.averages, e));
    return execute_now(x, engine->averages, &ignored, e);
}

status_t evaluate(struct engine *engine, struct err *e) {
    struct execution *x = &engine->execution;
    struct profiler *profiler = x->profiler;
    x->load_stays = false;
    x->flags = 0;
    x->profiler = NULL;
    const status_t st = evaluate_all(engine, e);
    x->profiler = profiler;
    x->load_ctx = engine;
    engine->training.evaluated = engine->training.evaluated || st == ST_OK;
    return st;
}
