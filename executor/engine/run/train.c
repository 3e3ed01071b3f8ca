/* The step loop: executes the plan, evaluates, reports, and takes checkpoints at step boundaries. */
#include "base/clock.h"
#include "executor/engine/run/learning_rate.h"
#include "executor/engine/run/state.h"
#include "kernels/decide.h"

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
    TRY(loader_next(engine->loader, engine->execution.step, k, &batch, e));
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
    int64_t first = engine->execution.step * t->global_batch + (int64_t)k * t->micro_batch;
    *ret = engine->evaluated;
    return source_read(engine->source, SOURCE_TRAIN, t->seed, first, t->micro_batch, ret, e);
}

/* --- a step begins ---*/

static int64_t step_targets(const struct engine *engine) {
    return (int64_t)engine->config.train.global_batch * engine->graph->targets_per_sample;
}

status_t engine_start(struct engine *engine, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    struct execution *x = &engine->execution;
    x->decide = (struct decide){ .clip_norm = t->clip_norm,
                                 .z_score = t->skip_spikes.z_score,
                                 .window = t->skip_spikes.window,
                                 .dynamic_scale = t->precision == ENGINE_FP16,
                                 .growth_interval = t->loss_scale.growth_interval,
                                 .targets = step_targets(engine) };
    x->clip_value = t->clip_value;
    x->ema_decay = t->ema_decay;
    x->optimizer = &t->optimizer;
    engine->begun = engine_step(engine);
    engine->decision.loss_gradient = decide_loss_gradient(engine->decision.scale, x->decide.targets);
    return step_control_set(&x->control, &engine->decision, e);
}

static uint64_t own_flags(struct engine *engine) {
    uint64_t flags = 0;
    if (atomic_load(&engine->stop))
        flags |= RECORD_STOP;
    if (engine->snapshot && snapshot_take_failure(engine->snapshot))
        flags |= RECORD_CHECKPOINT_FAILED;
    if (engine->snapshot && snapshot_busy(engine->snapshot))
        flags |= RECORD_SKIP_CHECKPOINT;
    return flags;
}

static bool is_profiled(const struct engine *engine, int64_t step) {
    const struct engine_profile *p = &engine->config.profile;
    return engine->profiler && step >= p->from && step <= p->to;
}

/* A device that cannot capture a step runs it call by call. */
static void tell_refusal(struct engine *engine) {
    const struct execution *x = &engine->execution;
    if (x->refused && !engine->refusal_told)
        engine_notice(engine, "graph_refused", engine->begun + 1,
                      "the step could not be captured as a graph and runs call by call: %s", x->refusal.msg);
    engine->refusal_told = x->refused;
}

static struct step_waits waits_so_far(const struct engine *engine) {
    return (struct step_waits){ .data_ns = engine->loader ? loader_wait_ns(engine->loader) : 0,
                                .communication_ns = (engine->channel ? channel_wait_ns(engine->channel) : 0) +
                                                    (engine->transfers ? transfers_wait_ns(engine->transfers) : 0) };
}

static status_t begin_step(struct engine *engine, struct err *e) {
    const int64_t step = engine->begun;
    struct execution *x = &engine->execution;
    engine->begun_ns[step % CONTROL_STEPS] = clock_mono_ns();
    x->step = step;
    x->learning_rate = learning_rate(&engine->config.train, step);
    x->flags = own_flags(engine);
    x->load = engine_load_train;
    x->load_ctx = engine;
    x->load_stays = true;
    x->profiler = is_profiled(engine, step + 1) ? engine->profiler : NULL;
    if (x->profiler)
        TRY(profiler_step_begin(x->profiler, step + 1, e));
    const struct step_waits before = waits_so_far(engine);
    TRY(execute(x, engine->train, e));
    const struct step_waits after = waits_so_far(engine);
    engine->waits[step % CONTROL_STEPS] = (struct step_waits){ after.data_ns - before.data_ns,
                                                               after.communication_ns - before.communication_ns };
    tell_refusal(engine);
    engine->begun++;
    return ST_OK;
}

/* --- numbers that are none --- */

/* The step that has just ended, once more, on all ranks at once, looking through what each op writes. Nothing of it was
 * applied, nor of one that had begun before this was known, so it is the same step. *ret_rank: who found the first
 * culprit; -1: once more all is finite. */
static status_t find_culprit(struct engine *engine, uint64_t *ret, int *ret_rank, struct err *e) {
    struct execution *x = &engine->execution;
    CLEANUP(freep) uint64_t *all = calloc((size_t)engine->world_size, sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the ranks' findings");
    uint64_t mine = CULPRIT_NONE;
    const struct step_control *ignored;
    while (x->control.taken < x->control.begun)
        TRY(execution_take(x, &ignored, e));
    x->step = engine_step(engine);
    x->flags = 0;
    x->load = load_again;
    x->load_stays = false;
    x->culprit = &mine;
    status_t st = execute_now(x, engine->train, &ignored, e);
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
static status_t not_finite(struct engine *engine, double loss, double grad_norm, int bad, struct err *e) {
    long long step = (long long)engine_step(engine) + 1;
    char what[120];
    uint64_t number = CULPRIT_NONE;
    int rank = -1;
    if (bad >= 0)
        snprintf(what, sizeof what, "the loss of micro-batch %d on rank %d is not finite", bad,
                 plan_owner(&engine->train->layout, bad));
    else
        snprintf(what, sizeof what, "the gradient norm is %g, the loss %g", grad_norm, loss);
    TRY(find_culprit(engine, &number, &rank, e));
    if (rank < 0)
        return err_set(e, ST_OUT_OF_RANGE, "step %lld: %s; the first op to blame is unknown: once more all is finite",
                       step, what);
    struct culprit c = execution_culprit(engine->graph, number);
    return err_set(e, ST_OUT_OF_RANGE, "step %lld: %s; the first op to blame is %s%s, of micro-batch %d on rank %d",
                   step, what, c.backward ? "the backward pass of " : "", c.op, c.micro_batch, rank);
}

/* Why a step can be the last one: its numbers are none, or it overflowed at the least scale. Every rank comes to this
 * verdict: none leaves, which would abort the others, before all have. */
static status_t judge(struct engine *engine, const struct step_control *c, double loss, int bad, struct err *e) {
    const double scale = engine->decision.scale;
    status_t st = ST_OK;
    if (bad >= 0 || c->decision.update.skip == STEP_NOT_FINITE)
        st = not_finite(engine, loss, c->decision.grad_norm, bad, e);
    else if (c->decision.update.skip == STEP_OVERFLOW && scale <= LEAST_LOSS_SCALE)
        st = err_set(e, ST_OUT_OF_RANGE, "step %lld: the gradient overflows fp16 even at a loss scale of %g",
                     (long long)engine_step(engine) + 1, scale);
    if (st != ST_OK)
        status_ignore(collective_barrier(engine->collective, COLLECTIVE_CONTROL, NULL));
    return st;
}

/* --- a step ends ---*/

static status_t evaluate(struct engine *engine, struct err *e) {
    struct execution *x = &engine->execution;
    struct profiler *profiler = x->profiler;
    const struct step_control *c = NULL;
    x->load = engine_load_validation;
    x->load_stays = false;
    x->flags = 0;
    x->profiler = NULL;
    status_t st = execute_now(x, engine->evaluate, &c, e);
    x->profiler = profiler;
    TRY(st);
    int bad;
    double samples = (double)engine->evaluate->layout.micro_batches * (double)engine->config.train.micro_batch;
    engine->validation_loss = execution_loss_sum(c, engine->evaluate, &bad) /
                              (samples * (double)engine->graph->targets_per_sample);
    engine->has_validation_loss = true;
    for (int r = 0; r < engine->graph->n_reports; r++)
        engine->reports[r] = execution_report_sum(c, engine->evaluate, r) / samples;
    return ST_OK;
}

static status_t norms_download(struct engine *engine, struct err *e) {
    const struct kernels *k = engine->kernels;
    TRY(k->download(k, engine->norms, execution_chunk_sums(&engine->execution, engine->train),
                    (size_t)engine->train->norm_chunks * sizeof *engine->norms, e));
    return k->finish(k, e);
}

/* The metrics grad_norm/NAME of the step that has just ended, from its chunk sums. */
static status_t note_gradient_norms(struct engine *engine, double scale, struct metric_row *row, struct err *e) {
    const struct graph *g = engine->graph;
    TRY(norms_download(engine, e));
    for (int i = 0; i < g->n_parameters; i++) {
        int64_t first = engine->train->parameter_norm[i];
        int64_t n = (shape_elements(&g->parameters[i].shape) + PLAN_CHUNK - 1) / PLAN_CHUNK;
        double sum = 0;
        if (first < 0)
            continue;
        for (int64_t c = first; c < first + n; c++)
            sum += engine->norms[c];
        metric(row, engine->norm_names[i], sqrt(sum) * (1 / scale));
    }
    return ST_OK;
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
    double loss, learning_rate;
    bool evaluated;
    int64_t ns, stall_ns;
    struct step_waits waits;
};

static void fill_gang_row(struct engine *engine, const struct step_result *r, struct metric_row *row) {
    const struct engine_config *c = &engine->config;
    double seconds = (double)r->ns * 1e-9;
    metric(row, "loss", r->loss);
    metric(row, "learning_rate", r->learning_rate);
    metric(row, "grad_norm", engine->decision.grad_norm);
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
        metric(row, "loss_scale", engine->decision.scale);
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
    struct engine_metric items[4];
    struct metric_row row = { .items = items };
    metric(&row, "memory_bytes", resident_bytes(engine));
    metric(&row, "data_wait_seconds", (double)r->waits.data_ns * 1e-9);
    metric(&row, "communication_wait_seconds", (double)r->waits.communication_ns * 1e-9);
    metric(&row, "checkpoint_stall_seconds", (double)r->stall_ns * 1e-9);
    engine->hooks.metrics(engine->hooks.ctx, engine_step(engine), true, row.items, row.n);
}

/* Counts a step that has ended. */
static void count_step(struct engine *engine, const struct decision *d) {
    const int64_t step = engine_step(engine) + 1;
    engine->decision = *d;
    if (d->update.skip != STEP_APPLIED) {
        engine->skipped++;
        if (engine->rank == 0)
            engine_notice(engine, "step_skipped", step,
                          d->update.skip == STEP_SPIKE
                              ? "step %lld was skipped: its gradient norm %g stands out of the last ones"
                              : "step %lld was skipped: its gradient overflowed (norm %g)",
                          (long long)step, d->grad_norm);
    }
    atomic_store(&engine->step, step);
}

static void end_profile(struct engine *engine) {
    const struct engine_profile *p = &engine->config.profile;
    struct err why;
    if (engine->execution.profiler)
        profiler_step_end(engine->execution.profiler);
    if (!engine->profiler || engine_step(engine) != p->to)
        return;
    engine->execution.profiler = NULL;
    if (profiler_untraced(engine->profiler))
        engine_notice(engine, "profile_without_kernels", engine_step(engine), "the profile names no kernels: %s",
                      profiler_untraced(engine->profiler));
    if (profiler_write(engine->profiler, p->directory, engine->rank, &why) != ST_OK)
        engine_notice(engine, "profile_failed", engine_step(engine), "the profile could not be written: %s", why.msg);
}

static bool evaluates_after(const struct engine *engine, int64_t step) {
    const struct engine_train *t = &engine->config.train;
    return engine->evaluate && (step == t->steps || (t->eval.every > 0 && step % t->eval.every == 0));
}

static bool inspects_after(const struct engine *engine, int64_t step) {
    return engine->config.gradients_every > 0 && step % engine->config.gradients_every == 0;
}

/* The oldest step under way, and what follows it; *ret_flags: what the ranks have agreed on. */
static status_t end_step(struct engine *engine, int64_t stall_ns, uint64_t *ret_flags, struct err *e) {
    struct step_result r = { .stall_ns = stall_ns };
    struct metric_row row = { .items = engine->metrics };
    const struct step_control *c = NULL;
    const double scale = engine->decision.scale;
    const int64_t slot = engine_step(engine) % CONTROL_STEPS, begun_ns = engine->begun_ns[slot];
    r.waits = engine->waits[slot];
    TRY(execution_take(&engine->execution, &c, e));
    if (engine->execution.wait_clock)
        r.waits.communication_ns = engine->execution.kernels_waited_ns;
    int bad;
    r.loss = execution_loss_sum(c, engine->train, &bad) / (double)step_targets(engine);
    r.learning_rate = c->learning_rate[0];
    TRY(judge(engine, c, r.loss, bad, e));
    *ret_flags = c->flags;
    count_step(engine, &c->decision);
    /* The device did not begin it before the last one had ended. */
    int64_t now = clock_mono_ns(), step = engine_step(engine);
    r.ns = now - (begun_ns > engine->ended_ns ? begun_ns : engine->ended_ns);
    engine->ended_ns = now;
    engine->execution.step_ns = r.ns;
    if (engine->rank == 0 && inspects_after(engine, step))
        TRY(note_gradient_norms(engine, scale, &row, e));
    end_profile(engine);
    r.evaluated = evaluates_after(engine, step);
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

/* The host reads the state after this step (checkpoint, evaluation, profile), so no later step may begin first. */
static bool is_boundary(const struct engine *engine, int64_t step) {
    const int64_t every = engine->config.checkpoint.every;
    return (every > 0 && step % every == 0) || evaluates_after(engine, step) || inspects_after(engine, step) ||
           is_profiled(engine, step) || is_profiled(engine, step + 1);
}

/* Where calls run later than they are made, a step begins while the one before runs: the device never waits for the
 * host, which learns what a step came to when the next one has begun. The same on all ranks. */
static status_t begin_steps(struct engine *engine, struct err *e) {
    const int64_t most = engine_step(engine) + (engine->kernels->deferred ? CONTROL_STEPS : 1);
    while (engine->begun < engine->config.train.steps && engine->begun < most &&
           (engine->begun == engine_step(engine) || !is_boundary(engine, engine->begun)))
        TRY(begin_step(engine, e));
    return ST_OK;
}

static status_t checkpoint_after(struct engine *engine, uint64_t flags, int64_t *ret_stall_ns, struct err *e) {
    const struct engine_config *c = &engine->config;
    const int64_t step = engine_step(engine);
    /* What one rank could not write is never committed: the others must not wait for it. */
    if (flags & RECORD_CHECKPOINT_FAILED && engine->snapshot)
        snapshot_committed(engine->snapshot, step);
    if (!engine->snapshot || c->checkpoint.every <= 0 || step % c->checkpoint.every || step == c->train.steps)
        return ST_OK;
    if (!(flags & RECORD_SKIP_CHECKPOINT))
        return take_snapshot(engine, ret_stall_ns, e);
    engine_notice(engine, "checkpoint_skipped", step,
                  "the checkpoint of step %lld was skipped: an older one is not yet written or committed",
                  (long long)step);
    return ST_OK;
}

static status_t train_steps(struct engine *engine, bool *ret_stopped, struct err *e) {
    const int64_t steps = engine->config.train.steps;
    int64_t stall_ns = 0;
    bool stop = false;
    while (engine_step(engine) < steps && !(stop && engine->begun == engine_step(engine))) {
        uint64_t flags = 0;
        if (!stop)
            TRY(begin_steps(engine, e));
        TRY(end_step(engine, stall_ns, &flags, e));
        stall_ns = 0;
        stop = stop || flags & RECORD_STOP;
        if (!stop)
            TRY(checkpoint_after(engine, flags, &stall_ns, e));
    }
    *ret_stopped = stop && engine_step(engine) < steps;
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
    st = collective_fail(engine->collective, st, &mine, e); /* so that every rank of the gang knows at once */
    *ret = engine_outcome_of(st);
    if (failed == ENGINE_CHECKPOINT_WRITE && *ret != ENGINE_PEER_LOST)
        *ret = failed;
    return st;
}
