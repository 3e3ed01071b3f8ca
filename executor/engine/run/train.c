/* The step loop: executes the plan, evaluates, reports, and takes checkpoints at step boundaries. */
#include "base/clock.h"
#include "executor/engine/run/learning_rate.h"
#include "executor/engine/run/state.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Gradients that overflow at this scale overflow at any: fp16 has five bits of exponent. */
static const double LEAST_LOSS_SCALE = 0x1p-14;

struct metric_row {
    struct engine_metric *items;
    int n;
};

static void metric(struct metric_row *row, const char *name, double value) {
    row->items[row->n++] = (struct engine_metric){ .name = name, .value = value };
}

/* --- what execute asks for ---*/

status_t engine_load_train(void *ctx, int k, struct batch *ret, struct err *e) {
    struct engine *engine = ctx;
    struct loader_batch batch;
    int64_t start = clock_mono_ns();
    TRY(loader_next(engine->loader, engine_step(engine), k, &batch, e));
    if (engine->execution.profiler)
        profiler_span(engine->execution.profiler, PROFILER_DATA_WAIT, start, clock_mono_ns());
    for (int i = 0; i < BATCH_INPUTS; i++)
        ret->of[i] = (void *)batch.of[i];
    return ST_OK;
}

status_t engine_load_validation(void *ctx, int k, struct batch *ret, struct err *e) {
    struct engine *engine = ctx;
    const struct engine_train *t = &engine->config.train;
    *ret = engine->evaluated;
    return source_read(engine->source, SOURCE_VALIDATION, t->seed, (int64_t)k * t->micro_batch, t->micro_batch, ret, e);
}

/* Micro-batch k of the current step once more, beside the loader's order. */
static status_t load_again(void *ctx, int k, struct batch *ret, struct err *e) {
    struct engine *engine = ctx;
    const struct engine_train *t = &engine->config.train;
    int64_t first = engine_step(engine) * t->global_batch + (int64_t)k * t->micro_batch;
    *ret = engine->evaluated;
    return source_read(engine->source, SOURCE_TRAIN, t->seed, first, t->micro_batch, ret, e);
}

/* --- one step ---*/

static int64_t step_targets(const struct engine *engine) {
    return (int64_t)engine->config.train.global_batch * engine->graph->targets_per_sample;
}

static void prepare_step(struct engine *engine, int64_t step) {
    const struct engine_train *t = &engine->config.train;
    struct execution *x = &engine->execution;
    const struct engine_profile *p = &engine->config.profile;
    x->step = step;
    x->loss_scale = (float)(engine->loss_scale.scale / (double)step_targets(engine));
    x->gradient_scale = 1 / engine->loss_scale.scale;
    x->skip_overflows = t->precision == ENGINE_FP16;
    x->clip_norm = t->clip_norm;
    x->clip_value = t->clip_value;
    x->ema_decay = t->ema_decay;
    x->spikes = t->skip_spikes.z_score > 0 ? &engine->spikes : NULL;
    x->optimizer = &t->optimizer;
    x->learning_rate = learning_rate(t, step);
    x->updates = engine->updates + 1;
    x->load = engine_load_train;
    x->load_ctx = engine;
    x->culprit = NULL;
    x->profiler = engine->profiler && step + 1 >= p->from && step + 1 <= p->to ? engine->profiler : NULL;
    if (x->profiler)
        profiler_step(x->profiler, step + 1, clock_mono_ns());
    x->record->flags = 0;
    if (atomic_load(&engine->stop))
        x->record->flags |= RECORD_STOP;
    if (engine->snapshot && snapshot_take_failure(engine->snapshot))
        x->record->flags |= RECORD_CHECKPOINT_FAILED;
    if (engine->snapshot && snapshot_busy(engine->snapshot))
        x->record->flags |= RECORD_SKIP_CHECKPOINT;
}

/* The step that was just computed, once more, on all ranks at once, looking through what each op writes. Nothing of it
 * was applied, so it is the same step. *ret_rank: who found the first culprit; -1: once more all is finite. */
static status_t find_culprit(struct engine *engine, uint64_t *ret, int *ret_rank, struct err *e) {
    struct execution *x = &engine->execution;
    CLEANUP(freep) uint64_t *all = calloc((size_t)engine->world_size, sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the ranks' findings");
    uint64_t mine = CULPRIT_NONE;
    x->load = load_again;
    x->culprit = &mine;
    x->record->flags = 0;
    status_t st = execute(x, engine->train, e);
    x->culprit = NULL;
    TRY(st);
    TRY(collective_all_gather(engine->collective, COLLECTIVE_CONTROL, &mine, sizeof mine, all, e));
    *ret = CULPRIT_NONE;
    *ret_rank = -1;
    for (int r = 0; r < engine->world_size; r++)
        if (all[r] < *ret) {
            *ret = all[r];
            *ret_rank = r;
        }
    return ST_OK;
}

/* The sentence of a step whose loss or norm is no number: the same on every rank. */
static status_t numeric_failure(struct engine *engine, double loss, int bad, struct err *e) {
    long long step = (long long)engine_step(engine) + 1;
    char what[120];
    uint64_t number = CULPRIT_NONE;
    int rank = -1;
    if (bad >= 0)
        snprintf(what, sizeof what, "the loss of micro-batch %d on rank %d is not finite", bad,
                 plan_owner(&engine->train->layout, bad));
    else
        snprintf(what, sizeof what, "the gradient norm is %g, the loss %g", engine->execution.grad_norm, loss);
    TRY(find_culprit(engine, &number, &rank, e));
    if (rank < 0)
        return err_set(e, ST_OUT_OF_RANGE, "step %lld: %s; the first op to blame is unknown: once more all is finite",
                       step, what);
    struct culprit c = execution_culprit(engine->graph, number);
    return err_set(e, ST_OUT_OF_RANGE, "step %lld: %s; the first op to blame is %s%s, of micro-batch %d on rank %d",
                   step, what, c.backward ? "the backward pass of " : "", c.op, c.micro_batch, rank);
}

static status_t evaluate(struct engine *engine, struct err *e) {
    struct execution *x = &engine->execution;
    struct profiler *profiler = x->profiler;
    x->load = engine_load_validation;
    x->profiler = NULL;
    status_t st = execute(x, engine->evaluate, e);
    x->profiler = profiler;
    TRY(st);
    int bad;
    double samples = (double)engine->evaluate->layout.micro_batches * (double)engine->config.train.micro_batch;
    engine->validation_loss = execution_loss_sum(x, engine->evaluate, &bad) /
                              (samples * (double)engine->graph->targets_per_sample);
    engine->has_validation_loss = true;
    for (int r = 0; r < engine->graph->n_reports; r++)
        engine->reports[r] = execution_report_sum(x, engine->evaluate, r) / samples;
    return ST_OK;
}

/* The metrics grad_norm/NAME of the step that was just computed, from its chunk sums. */
static void note_gradient_norms(struct engine *engine, struct metric_row *row) {
    const struct graph *g = engine->graph;
    const double *sums = engine->execution.norms;
    for (int i = 0; i < g->n_parameters; i++) {
        int64_t first = engine->train->parameter_norm[i];
        int64_t n = (shape_elements(&g->parameters[i].shape) + PLAN_CHUNK - 1) / PLAN_CHUNK;
        double sum = 0;
        if (first < 0)
            continue;
        for (int64_t c = first; c < first + n; c++)
            sum += sums[c];
        metric(row, engine->norm_names[i], sqrt(sum) * engine->execution.gradient_scale);
    }
}

static double resident_bytes(const struct engine *engine) {
    char text[64] = "";
    if (engine->statm_fd < 0 || pread(engine->statm_fd, text, sizeof text - 1, 0) <= 0)
        return (double)engine->arena.bytes;
    char *second = strchr(text, ' ');
    return second ? strtod(second, NULL) * (double)sysconf(_SC_PAGESIZE) : (double)engine->arena.bytes;
}

/* What a step was, for its report. */
struct step_result {
    double loss;
    bool evaluated;
    int64_t ns, stall_ns;
};

static void fill_gang_row(struct engine *engine, const struct step_result *r, struct metric_row *row) {
    const struct engine_config *c = &engine->config;
    double seconds = (double)r->ns * 1e-9;
    metric(row, "loss", r->loss);
    metric(row, "learning_rate", engine->execution.learning_rate);
    metric(row, "grad_norm", engine->execution.grad_norm);
    if (engine->graph->tokens >= 0)
        metric(row, "tokens_per_second", (double)step_targets(engine) / seconds);
    else
        metric(row, "samples_per_second", (double)c->train.global_batch / seconds);
    metric(row, "step_seconds", seconds);
    if (c->peak_flops > 0)
        metric(row, "mfu",
               graph_flops(engine->graph) * engine->train->layout.micro_batches /
                   (seconds * c->peak_flops * engine->world_size));
    if (c->train.precision == ENGINE_FP16)
        metric(row, "loss_scale", engine->loss_scale.scale);
    if (c->train.precision == ENGINE_FP16 || c->train.skip_spikes.z_score > 0)
        metric(row, "skipped_steps", (double)engine->skipped);
    if (!r->evaluated)
        return;
    metric(row, "validation_loss", engine->validation_loss);
    for (int i = 0; i < engine->graph->n_reports; i++)
        metric(row, engine->report_names[i], engine->reports[i]);
}

static void report(struct engine *engine, const struct step_result *r, struct metric_row *gang) {
    if (!engine->hooks.metrics)
        return;
    if (engine->rank == 0) {
        fill_gang_row(engine, r, gang);
        engine->hooks.metrics(engine->hooks.ctx, engine_step(engine), false, gang->items, gang->n);
    }
    int64_t data = engine->loader ? loader_wait_ns(engine->loader) : 0;
    int64_t communication = (engine->channel ? channel_wait_ns(engine->channel) : 0) +
                            (engine->transfers ? transfers_wait_ns(engine->transfers) : 0);
    struct engine_metric items[4];
    struct metric_row row = { .items = items };
    metric(&row, "memory_bytes", resident_bytes(engine));
    metric(&row, "data_wait_seconds", (double)(data - engine->data_wait_ns) * 1e-9);
    metric(&row, "communication_wait_seconds", (double)(communication - engine->communication_wait_ns) * 1e-9);
    metric(&row, "checkpoint_stall_seconds", (double)r->stall_ns * 1e-9);
    engine->hooks.metrics(engine->hooks.ctx, engine_step(engine), true, row.items, row.n);
    engine->data_wait_ns = data;
    engine->communication_wait_ns = communication;
}

/* After a step: counts it, and adjusts what depends on how it went. */
static void count_step(struct engine *engine) {
    const struct engine_train *t = &engine->config.train;
    const struct execution *x = &engine->execution;
    const int64_t step = engine_step(engine) + 1;
    struct loss_scale *s = &engine->loss_scale;
    if (x->skip == STEP_APPLIED) {
        engine->updates++;
        if (x->spikes)
            spikes_add(x->spikes, x->grad_norm);
    } else {
        engine->skipped++;
        if (engine->rank == 0)
            engine_notice(engine, "step_skipped", step,
                          x->skip == STEP_SPIKE
                              ? "step %lld was skipped: its gradient norm %g stands out of the last ones"
                              : "step %lld was skipped: its gradient overflowed (norm %g)",
                          (long long)step, x->grad_norm);
    }
    if (x->skip == STEP_OVERFLOW) {
        s->scale /= 2;
        s->growth_count = 0;
    } else if (t->precision == ENGINE_FP16 && ++s->growth_count >= t->loss_scale.growth_interval) {
        s->scale *= 2;
        s->growth_count = 0;
    }
    atomic_store(&engine->step, step);
}

static void end_profile(struct engine *engine) {
    const struct engine_profile *p = &engine->config.profile;
    struct err why;
    if (!engine->profiler || engine_step(engine) != p->to)
        return;
    engine->execution.profiler = NULL;
    if (profiler_write(engine->profiler, p->directory, engine->rank, &why) != ST_OK)
        engine_notice(engine, "profile_failed", engine_step(engine), "the profile could not be written: %s", why.msg);
}

/* One step and what follows it; *ret_flags: what the ranks have agreed on. */
static status_t train_step(struct engine *engine, int64_t stall_ns, uint64_t *ret_flags, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    struct execution *x = &engine->execution;
    struct step_result r = { .stall_ns = stall_ns };
    struct metric_row row = { .items = engine->metrics };
    int64_t start = clock_mono_ns();
    prepare_step(engine, engine_step(engine));
    TRY(execute(x, engine->train, e));
    int bad;
    r.loss = execution_loss_sum(x, engine->train, &bad) / (double)step_targets(engine);
    if (bad >= 0 || x->skip == STEP_NOT_FINITE) {
        status_t st = numeric_failure(engine, r.loss, bad, e);
        /* Every rank comes to this verdict: none leaves, which would abort the others, before all have. */
        status_ignore(collective_barrier(engine->collective, COLLECTIVE_CONTROL, NULL));
        return st;
    }
    if (x->skip == STEP_OVERFLOW && engine->loss_scale.scale <= LEAST_LOSS_SCALE) {
        status_ignore(collective_barrier(engine->collective, COLLECTIVE_CONTROL, NULL));
        return err_set(e, ST_OUT_OF_RANGE, "step %lld: the gradient overflows fp16 even at a loss scale of %g",
                       (long long)engine_step(engine) + 1, engine->loss_scale.scale);
    }
    *ret_flags = x->record->flags;
    count_step(engine);
    r.ns = clock_mono_ns() - start;
    int64_t step = engine_step(engine);
    if (engine->rank == 0 && engine->config.gradients_every > 0 && step % engine->config.gradients_every == 0)
        note_gradient_norms(engine, &row);
    end_profile(engine);
    r.evaluated = engine->evaluate && (step == t->steps || (t->eval.every > 0 && step % t->eval.every == 0));
    if (r.evaluated)
        TRY(evaluate(engine, e));
    report(engine, &r, &row);
    return ST_OK;
}

/* --- the loop ---*/

static status_t take_snapshot(struct engine *engine, int64_t *ret_stall_ns, struct err *e) {
    int64_t start = clock_mono_ns();
    TRY(snapshot_take(engine->snapshot, false, ret_stall_ns, e));
    if (engine->execution.profiler)
        profiler_span(engine->execution.profiler, PROFILER_CHECKPOINT, start, clock_mono_ns());
    return ST_OK;
}

static status_t train_steps(struct engine *engine, bool *ret_stopped, struct err *e) {
    const struct engine_config *c = &engine->config;
    int64_t stall_ns = 0;
    while (engine_step(engine) < c->train.steps) {
        uint64_t flags = 0;
        TRY(train_step(engine, stall_ns, &flags, e));
        stall_ns = 0;
        int64_t step = engine_step(engine);
        if (flags & RECORD_STOP && step < c->train.steps) {
            *ret_stopped = true;
            return ST_OK;
        }
        /* What one rank could not write is never committed: the others must not wait for it. */
        if (flags & RECORD_CHECKPOINT_FAILED && engine->snapshot)
            snapshot_committed(engine->snapshot, step);
        if (!engine->snapshot || c->checkpoint.every <= 0 || step % c->checkpoint.every || step == c->train.steps)
            continue;
        if (flags & RECORD_SKIP_CHECKPOINT)
            engine_notice(engine, "checkpoint_skipped", step,
                          "the checkpoint of step %lld was skipped: an older one is not yet written or committed",
                          (long long)step);
        else
            TRY(take_snapshot(engine, &stall_ns, e));
    }
    return ST_OK;
}

static status_t final_checkpoint(struct engine *engine, enum engine_outcome *ret_failed, struct err *e) {
    if (!engine->snapshot)
        return ST_OK;
    int64_t stall_ns;
    *ret_failed = ENGINE_CHECKPOINT_WRITE;
    status_ignore(snapshot_wait(engine->snapshot, NULL)); /* an older one's failure was told by a notice */
    TRY(snapshot_take(engine->snapshot, true, &stall_ns, e));
    return snapshot_wait(engine->snapshot, e);
}

status_t engine_run(struct engine *engine, enum engine_outcome *ret, struct err *e) {
    struct err mine = { "" };
    bool stopped = false;
    enum engine_outcome failed = ENGINE_INTERNAL;
    status_t st = train_steps(engine, &stopped, &mine);
    if (st == ST_OK) {
        st = final_checkpoint(engine, &failed, &mine);
        if (st == ST_OK)
            st = collective_barrier(engine->collective, COLLECTIVE_CONTROL, &mine);
    }
    if (st == ST_OK) {
        *ret = stopped ? ENGINE_STOPPED : ENGINE_FINISHED;
        return ST_OK;
    }
    collective_abort(engine->collective, mine.msg); /* so that every rank of the gang knows at once */
    *ret = engine_outcome_of(st);
    if (failed == ENGINE_CHECKPOINT_WRITE && *ret != ENGINE_PEER_LOST)
        *ret = failed;
    return err_set(e, st, "%s", mine.msg);
}
