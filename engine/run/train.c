/* The step loop. Each round begins steps, ends the oldest one, and takes a checkpoint if one is due:
 *
 *   begin_steps    issues a step's calls. If calls are deferred, a second step begins while the first one runs, so
 *                  the device never waits for the host, unless the host must read the state after the first one (a
 *                  checkpoint, an evaluation, a profile): is_boundary. This depends on the configuration alone, so it
 *                  is the same on all ranks
 *   end_step       waits for the oldest step, then, in this order: ends the run if too many steps in a row were not
 *                  finite, counts the step, evaluates, reports the metrics
 *   checkpoint     the snapshot is copied; the writer's thread writes it while training continues
 *
 * What the ranks must agree on (stop, skip a checkpoint) goes into the step results as flags, which are united
 * over all ranks. So a request of one rank takes effect at the same step on all. If calls are deferred that is one step
 * later. */
#include "engine/run/train.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/data/loader.h"
#include "engine/run/data_queue.h"
#include "engine/run/evaluate.h"
#include "engine/run/execute.h"
#include "engine/run/instructions.h"
#include "engine/run/learning_rate.h"
#include "engine/run/profiler.h"
#include "engine/run/snapshot.h"
#include "engine/run/thread_count.h"
#include "engine/run/transfers.h"
#include "kernels/step_decision.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Gradients that overflow at this scale overflow at any: fp16 has five bits of exponent. */
static const double MIN_LOSS_SCALE = 0x1p-14;

struct metric_row {
    struct engine_metric *items;
    int n;
};

static void metric(struct metric_row *row, const char *name, double value) {
    row->items[row->n++] = (struct engine_metric){ .name = name, .value = value };
}

/* --- batches --- */

static status_t load_train(void *ctx, int k, struct batch *ret, struct err *e) {
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

/* Micro-batch k of the current step again, outside the loader's order. */
static status_t load_again(void *ctx, int k, struct batch *ret, struct err *e) {
    struct engine *engine = ctx;
    const struct engine_train *t = &engine->config.train;
    int64_t first = engine_first_sample(engine, engine->execution.step) + (int64_t)k * t->micro_batch;
    *ret = engine->scratch_batch;
    return source_read(engine->source, SOURCE_TRAIN, t->seed, first, t->micro_batch, ret, e);
}

/* --- a step begins --- */

static int64_t step_targets(const struct engine *engine) {
    return (int64_t)engine->config.train.global_batch * engine->graph->targets_per_sample;
}

status_t train_start(struct engine *engine, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    struct execution *x = &engine->execution;
    x->decide = (struct decision_rules){ .clip_norm = t->clip_norm,
                                         .z_score = t->skip_spikes.z_score,
                                         .window = t->skip_spikes.window,
                                         .dynamic_scale = t->precision == ENGINE_FP16,
                                         .growth_interval = t->loss_scale.growth_interval,
                                         .targets = step_targets(engine),
                                         .max_not_finite = t->max_not_finite };
    x->clip_value = t->clip_value;
    x->ema_decay = t->ema.decay;
    x->optimizer = &t->optimizer;
    engine->in_flight.begun = engine_steps_done(engine);
    engine->threads.max = engine->kernels->max_threads;
    if (engine->config.threads_by_work && thread_count_useful(engine->graph) < engine->threads.max)
        engine->threads.max = thread_count_useful(engine->graph);
    engine->training.decision.loss_gradient = decide_loss_gradient(engine->training.decision.scale, x->decide.targets);
    return step_control_set(&x->control, &engine->training.decision, e);
}

static uint64_t own_flags(struct engine *engine) {
    uint64_t flags = 0;
    if (atomic_load(&engine->stop))
        flags |= STEP_FLAG_STOP;
    if (engine->snapshot && snapshot_take_failure(engine->snapshot))
        flags |= STEP_FLAG_CHECKPOINT_FAILED;
    if (engine->snapshot && snapshot_busy(engine->snapshot))
        flags |= STEP_FLAG_SKIP_CHECKPOINT;
    return flags;
}

static bool is_profiled(const struct engine *engine, int64_t step) {
    const struct engine_profile *p = &engine->config.profile;
    return engine->profiler && step >= p->from && step <= p->to;
}

/* A device that cannot capture a step runs it call by call. */
static void report_refusal(struct engine *engine) {
    const struct execution *x = &engine->execution;
    if (x->capture.refused && !engine->refusal_reported)
        engine_notice(engine, "graph_refused", engine->in_flight.begun + 1,
                      "the step could not be captured as a graph and runs call by call: %s", x->capture.refusal.msg);
    engine->refusal_reported = x->capture.refused;
}

static struct step_waits total_waits(const struct engine *engine) {
    const struct loader_waits data = engine->loader ? loader_waits(engine->loader) : (struct loader_waits){ 0 };
    return (struct step_waits){ .data_ns = data.ns,
                                .data_read_ns = data.read_ns,
                                .communication_ns = (engine->data_queue ? data_queue_wait_ns(engine->data_queue) : 0) +
                                                    (engine->transfers ? transfers_wait_ns(engine->transfers) : 0) };
}

/* Called between two steps, when nothing computes. A deferred device has its own threads. */
static void apply_threads(struct engine *engine) {
    const int requested = atomic_load(&engine->threads.requested), max = engine->threads.max;
    const int threads = requested < 1 ? 1 : requested > max ? max : requested;
    if (engine->kernels->deferred || threads == engine->kernels->threads)
        return;
    kernels_set_threads(engine->kernels, threads);
    omp_set_num_threads(threads);
    if (engine->hooks.threads)
        engine->hooks.threads(engine->hooks.ctx, threads, engine->in_flight.begun);
}

static status_t begin_step(struct engine *engine, struct err *e) {
    const int64_t step = engine->in_flight.begun;
    struct execution *x = &engine->execution;
    apply_threads(engine);
    engine->in_flight.begun_ns[step % CONTROL_STEPS] = clock_mono_ns();
    x->step = step;
    x->learning_rate = learning_rate(&engine->config.train, step);
    x->flags = own_flags(engine);
    x->load = load_train;
    x->load_ctx = engine;
    x->load_stays = true;
    x->profiler = is_profiled(engine, step + 1) ? engine->profiler : NULL;
    if (x->profiler)
        TRY(profiler_step_begin(x->profiler, step + 1, e));
    const struct step_waits before = total_waits(engine);
    TRY(execute(x, engine->train, e));
    const struct step_waits after = total_waits(engine);
    engine->in_flight.waits[step % CONTROL_STEPS] = (struct step_waits){
        .data_ns = after.data_ns - before.data_ns,
        .data_read_ns = after.data_read_ns - before.data_read_ns,
        .communication_ns = after.communication_ns - before.communication_ns,
    };
    report_refusal(engine);
    engine->in_flight.begun++;
    return ST_OK;
}

/* --- values that are not finite --- */

/* Runs the step that has just ended again, on all ranks at once, and scans all that every op writes. Nothing of this
 * step or of a later one that had begun was applied, so it computes the same values. *ret_rank: the rank that found the
 * first culprit; -1: all values were finite this time. */
static status_t find_culprit(struct engine *engine, uint64_t *ret, int *ret_rank, struct err *e) {
    struct execution *x = &engine->execution;
    CLEANUP(freep) uint64_t *all = alloc_zeroed((size_t)engine->world_size, sizeof *all);
    uint64_t mine = CULPRIT_NONE;
    const struct step_control *ignored;
    while (x->control.taken < x->control.begun)
        TRY(execute_take(x, &ignored, e));
    x->step = engine_steps_done(engine);
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

/* The chunk sums of the step that ran last, all parameters' on every rank. */
static status_t norms_download(struct engine *engine, struct err *e) {
    const struct kernels *k = engine->kernels;
    TRY(k->download(k, engine->metrics.norms, execution_chunk_sums(&engine->execution, engine->train),
                    (size_t)engine->train->norm_chunks * sizeof *engine->metrics.norms, e));
    return k->finish(k, e);
}

/* The sum of squares of parameter i's gradient, from the chunk sums; 0 for a statistic. */
static double norm_square(const struct engine *engine, int i) {
    const int64_t first = engine->train->parameter_norm[i];
    const int64_t n = (shape_elements(&engine->graph->parameters[i].shape) + PLAN_CHUNK - 1) / PLAN_CHUNK;
    double sum = 0;
    for (int64_t c = first; first >= 0 && c < first + n; c++)
        sum += engine->metrics.norms[c];
    return sum;
}

/* Every op wrote finite values when the step was run again: then a sum over micro-batches or ranks may have
 * overflowed. */
static status_t blame_sum(struct engine *engine, const char *what, struct err *e) {
    const long long step = (long long)engine_steps_done(engine) + 1;
    TRY(norms_download(engine, e));
    for (int i = 0; i < engine->graph->n_parameters; i++)
        if (!isfinite(norm_square(engine, i)))
            return err_set(e, ST_OUT_OF_RANGE,
                           "step %lld: %s; the gradient of %s is finite in every micro-batch, and its sum is not", step,
                           what, engine->graph->parameters[i].name);
    return err_set(e, ST_OUT_OF_RANGE,
                   "step %lld: %s; the failing op is unknown: all values were finite when the step was run again", step,
                   what);
}

/* The error of a step whose loss or norm is not finite: the same sentence on every rank. */
static status_t not_finite(struct engine *engine, double loss, double grad_norm, int bad, struct err *e) {
    long long step = (long long)engine_steps_done(engine) + 1;
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
        return blame_sum(engine, what, e);
    const struct culprit c = culprit_decode(engine->graph, number);
    const char *pass = c.weight ? "the parameter gradients of " : c.backward ? "the backward pass of " : "";
    return err_set(e, ST_OUT_OF_RANGE, "step %lld: %s; the first op to blame is %s%s, of micro-batch %d on rank %d",
                   step, what, pass, c.op, c.micro_batch, rank);
}

/* Fails if too many steps in a row have values that are not finite, or if this one overflowed at the smallest loss
 * scale. All ranks decide the same. The barrier keeps a rank from disconnecting, which would abort the others, before
 * all have decided. */
static status_t check_step(struct engine *engine, const struct step_control *c, double loss, int bad, struct err *e) {
    const double scale = engine->training.decision.scale;
    status_t st = ST_OK;
    if (c->decision.update.skip == STEP_FAILED)
        st = not_finite(engine, loss, c->decision.grad_norm, bad, e);
    else if (c->decision.update.skip == STEP_OVERFLOW && scale <= MIN_LOSS_SCALE)
        st = err_set(e, ST_OUT_OF_RANGE, "step %lld: the gradient overflows fp16 even at a loss scale of %g",
                     (long long)engine_steps_done(engine) + 1, scale);
    if (st != ST_OK)
        status_ignore(collective_barrier(engine->collective, COLLECTIVE_CONTROL, NULL));
    return st;
}

/* --- a step ends --- */

/* The metrics grad_norm/NAME of the step that has just ended, from its chunk sums. */
static status_t add_gradient_norms(struct engine *engine, double scale, struct metric_row *row, struct err *e) {
    TRY(norms_download(engine, e));
    for (int i = 0; i < engine->graph->n_parameters; i++)
        if (engine->train->parameter_norm[i] >= 0)
            metric(row, engine->metrics.norm_names[i], sqrt(norm_square(engine, i)) * (1 / scale));
    return ST_OK;
}

static double resident_bytes(const struct engine *engine) {
    char text[64] = "";
    if (engine->metrics.statm_fd < 0 || pread(engine->metrics.statm_fd, text, sizeof text - 1, 0) <= 0)
        return (double)engine->arena.bytes;
    char *second = strchr(text, ' ');
    return second ? strtod(second, NULL) * (double)sysconf(_SC_PAGESIZE) : (double)engine->arena.bytes;
}

/* A step's values for its report. */
struct step_result {
    double loss, learning_rate;
    bool evaluated;
    int64_t ns, stall_ns;
    struct step_waits waits;
};

/* The part of its peak that each rank's device has computed. The peak is the highest rate seen, so it is at most 1: a
 * step that is faster than the peak shows that the measurement was slowed down, and raises it. The CPU's peak is that
 * of the number of threads that the rank started with. */
static double utilization(struct engine *engine, double seconds) {
    struct engine_config *c = &engine->config;
    const double flops = graph_flops(engine->graph) * engine->train->layout.micro_batches / engine->world_size;
    const int measured = c->threads > 0 ? c->threads : 1;
    const double share = engine->kernels->deferred ? 1 : (double)engine->kernels->threads / measured;
    const double rate = flops / seconds / share;
    if (rate > c->peak_flops)
        c->peak_flops = rate;
    return rate / c->peak_flops;
}

/* Of a mixture: how many samples of each source the job has consumed, and the losses of their validation sets. */
static void add_mixed(struct engine *engine, bool evaluated, struct metric_row *row) {
    const struct source_info *info = source_info(engine->source);
    const int64_t consumed = engine_first_sample(engine, engine_steps_done(engine));
    for (int s = 0; s < info->n_mixed; s++) {
        const struct engine_mixed_names *names = &engine->metrics.mixed_names[s];
        metric(row, names->samples, (double)source_mixed_samples(engine->source, s, consumed));
        if (!evaluated || info->mixed[s].validation == 0)
            continue;
        metric(row, names->loss, engine->training.weights.mixed[s]);
        if (engine->averages)
            metric(row, names->average_loss, engine->training.averages.mixed[s]);
    }
}

static void fill_gang_row(struct engine *engine, const struct step_result *r, struct metric_row *row) {
    const struct engine_config *c = &engine->config;
    double seconds = (double)r->ns * 1e-9;
    metric(row, "loss", r->loss);
    metric(row, "learning_rate", r->learning_rate);
    metric(row, "grad_norm", engine->training.decision.grad_norm);
    if (engine->graph->tokens >= 0)
        metric(row, "tokens_per_second", (double)step_targets(engine) / seconds);
    else
        metric(row, "samples_per_second", (double)c->train.global_batch / seconds);
    metric(row, "step_seconds", seconds);
    if (c->peak_flops > 0)
        metric(row, "mfu", utilization(engine, seconds));
    if (c->train.precision == ENGINE_FP16)
        metric(row, "loss_scale", engine->training.decision.scale);
    if (c->train.precision == ENGINE_FP16 || c->train.skip_spikes.z_score > 0 || engine->training.skipped > 0)
        metric(row, "skipped_steps", (double)engine->training.skipped);
    add_mixed(engine, r->evaluated, row);
    if (!r->evaluated)
        return;
    metric(row, "validation_loss", engine->training.weights.loss);
    for (int i = 0; i < engine->graph->n_reports; i++)
        metric(row, engine->metrics.report_names[i], engine->training.weights.reports[i]);
    if (!engine->averages)
        return;
    metric(row, "ema_validation_loss", engine->training.averages.loss);
    for (int i = 0; i < engine->graph->n_reports; i++)
        metric(row, engine->metrics.average_names[i], engine->training.averages.reports[i]);
}

static void report(struct engine *engine, const struct step_result *r, struct metric_row *gang) {
    if (!engine->hooks.metrics)
        return;
    if (engine->rank == 0) {
        fill_gang_row(engine, r, gang);
        engine->hooks.metrics(engine->hooks.ctx, engine_steps_done(engine), false, gang->items, gang->n);
    }
    struct engine_metric items[5];
    struct metric_row row = { .items = items };
    metric(&row, "memory_bytes", resident_bytes(engine));
    metric(&row, "data_wait_seconds", (double)r->waits.data_ns * 1e-9);
    metric(&row, "data_read_seconds", (double)r->waits.data_read_ns * 1e-9);
    metric(&row, "communication_wait_seconds", (double)r->waits.communication_ns * 1e-9);
    metric(&row, "checkpoint_stall_seconds", (double)r->stall_ns * 1e-9);
    engine->hooks.metrics(engine->hooks.ctx, engine_steps_done(engine), true, row.items, row.n);
}

static const char *const SKIPPED[] = {
    [STEP_OVERFLOW] = "step %lld was skipped: its gradient overflowed (norm %g)",
    [STEP_SPIKE] = "step %lld was skipped: its gradient norm %g is far above the recent ones",
    [STEP_NOT_FINITE] = "step %lld was skipped: its loss or its gradient is not finite (norm %g)",
};

/* Counts a step that has ended. */
static void count_step(struct engine *engine, const struct decision *d) {
    const int64_t step = engine_steps_done(engine) + 1;
    engine->training.decision = *d;
    if (d->update.skip != STEP_APPLIED) {
        engine->training.skipped++;
        if (engine->rank == 0)
            engine_notice(engine, "step_skipped", step, SKIPPED[d->update.skip], (long long)step, d->grad_norm);
    }
    atomic_store(&engine->training.step, step);
}

static void end_profile(struct engine *engine) {
    const struct engine_profile *p = &engine->config.profile;
    struct err why;
    if (engine->execution.profiler)
        profiler_step_end(engine->execution.profiler);
    if (!engine->profiler || engine_steps_done(engine) != p->to)
        return;
    engine->execution.profiler = NULL;
    if (profiler_untraced(engine->profiler))
        engine_notice(engine, "profile_without_kernels", engine_steps_done(engine),
                      "the profile has no kernel names: %s", profiler_untraced(engine->profiler));
    if (profiler_write(engine->profiler, engine->config.checkpoint.roots, p->directory, engine->rank, &why) != ST_OK)
        engine_notice(engine, "profile_failed", engine_steps_done(engine), "the profile could not be written: %s",
                      why.msg);
}

static bool evaluates_after(const struct engine *engine, int64_t step) {
    const struct engine_train *t = &engine->config.train;
    return engine->evaluate && (step == t->steps || (t->eval.every > 0 && step % t->eval.every == 0));
}

static bool reports_norms_after(const struct engine *engine, int64_t step) {
    return engine->config.gradients_every > 0 && step % engine->config.gradients_every == 0;
}

/* Ends the oldest step in flight. *ret_flags: the flags of all ranks, united. */
static status_t end_step(struct engine *engine, int64_t stall_ns, uint64_t *ret_flags, struct err *e) {
    struct step_result r = { .stall_ns = stall_ns };
    struct metric_row row = { .items = engine->metrics.row };
    const struct step_control *c = NULL;
    const double scale = engine->training.decision.scale;
    const int64_t index = engine_steps_done(engine) % CONTROL_STEPS, begun_ns = engine->in_flight.begun_ns[index];
    r.waits = engine->in_flight.waits[index];
    TRY(execute_take(&engine->execution, &c, e));
    if (engine->execution.wait_clock)
        r.waits.communication_ns = engine->execution.kernels_waited_ns;
    int bad;
    r.loss = execute_loss_sum(c, engine->train, &bad) / (double)step_targets(engine);
    r.learning_rate = c->learning_rate[0];
    TRY(check_step(engine, c, r.loss, bad, e));
    *ret_flags = c->flags;
    count_step(engine, &c->decision);
    /* A step begins on the device when the one before has ended, even if its calls were issued earlier. */
    int64_t now = clock_mono_ns(), step = engine_steps_done(engine);
    r.ns = now - (begun_ns > engine->in_flight.last_end_ns ? begun_ns : engine->in_flight.last_end_ns);
    engine->in_flight.last_end_ns = now;
    engine->execution.step_ns = r.ns;
    if (engine->rank == 0 && reports_norms_after(engine, step))
        TRY(add_gradient_norms(engine, scale, &row, e));
    end_profile(engine);
    r.evaluated = evaluates_after(engine, step);
    if (r.evaluated)
        TRY(evaluate(engine, e));
    report(engine, &r, &row);
    return ST_OK;
}

/* --- the loop --- */

static status_t take_snapshot(struct engine *engine, int64_t *ret_stall_ns, struct err *e) {
    int64_t start = clock_mono_ns();
    TRY(snapshot_take(engine->snapshot, false, ret_stall_ns, e));
    if (engine->execution.profiler)
        profiler_span(engine->execution.profiler, PROFILER_CHECKPOINT, start, clock_mono_ns());
    return ST_OK;
}

/* Whether the host reads the state after this step, so that no later step may begin before it has ended. */
static bool is_boundary(const struct engine *engine, int64_t step) {
    const int64_t every = engine->config.checkpoint.every;
    return (every > 0 && step % every == 0) || evaluates_after(engine, step) || reports_norms_after(engine, step) ||
           is_profiled(engine, step) || is_profiled(engine, step + 1);
}

static status_t begin_steps(struct engine *engine, struct err *e) {
    const int64_t end = engine_steps_done(engine) + (engine->kernels->deferred ? CONTROL_STEPS : 1);
    while (engine->in_flight.begun < engine->config.train.steps && engine->in_flight.begun < end &&
           (engine->in_flight.begun == engine_steps_done(engine) || !is_boundary(engine, engine->in_flight.begun)))
        TRY(begin_step(engine, e));
    return ST_OK;
}

static status_t checkpoint_after(struct engine *engine, uint64_t flags, int64_t *ret_stall_ns, struct err *e) {
    const struct engine_config *c = &engine->config;
    const int64_t step = engine_steps_done(engine);
    /* A checkpoint that one rank could not write is never committed: the others must not wait for it. */
    if (flags & STEP_FLAG_CHECKPOINT_FAILED && engine->snapshot)
        snapshot_committed(engine->snapshot, step);
    if (!engine->snapshot || c->checkpoint.every <= 0 || step % c->checkpoint.every || step == c->train.steps)
        return ST_OK;
    if (!(flags & STEP_FLAG_SKIP_CHECKPOINT))
        return take_snapshot(engine, ret_stall_ns, e);
    engine_notice(engine, "checkpoint_skipped", step,
                  "the checkpoint of step %lld was skipped: an older one is not yet written or committed",
                  (long long)step);
    return ST_OK;
}

status_t train_run(struct engine *engine, bool *ret_stopped, struct err *e) {
    const int64_t steps = engine->config.train.steps;
    int64_t stall_ns = 0;
    bool stop = false;
    while (engine_steps_done(engine) < steps && !(stop && engine->in_flight.begun == engine_steps_done(engine))) {
        uint64_t flags = 0;
        if (!stop)
            TRY(begin_steps(engine, e));
        TRY(end_step(engine, stall_ns, &flags, e));
        stall_ns = 0;
        stop = stop || flags & STEP_FLAG_STOP;
        if (!stop)
            TRY(checkpoint_after(engine, flags, &stall_ns, e));
    }
    *ret_stopped = stop && engine_steps_done(engine) < steps;
    return ST_OK;
}
