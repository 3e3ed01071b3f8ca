/* The step loop: executes the plan, evaluates, reports, and takes checkpoints at step boundaries. */
#include "base/clock.h"
#include "executor/engine/data/sampler.h"
#include "executor/engine/run/learning_rate.h"
#include "executor/engine/run/state.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { METRICS_MOST = 12 };

struct metric_row {
    struct engine_metric items[METRICS_MOST];
    int n;
};

static void metric(struct metric_row *row, const char *name, double value) {
    row->items[row->n++] = (struct engine_metric){ .name = name, .value = value };
}

/* --- what execute asks for ---*/

static size_t batch_bytes(const struct engine *engine) {
    return (size_t)engine->config.train.micro_batch * (size_t)engine->config.model.context * sizeof(int32_t);
}

status_t engine_load_train(void *ctx, int k, int32_t *tokens, int32_t *targets, struct err *e) {
    struct engine *engine = ctx;
    struct loader_batch batch;
    TRY(loader_next(engine->loader, engine_step(engine), k, &batch, e));
    memcpy(tokens, batch.tokens, batch_bytes(engine));
    memcpy(targets, batch.targets, batch_bytes(engine));
    return ST_OK;
}

status_t engine_load_validation(void *ctx, int k, int32_t *tokens, int32_t *targets, struct err *e) {
    struct engine *engine = ctx;
    int samples = engine->config.train.micro_batch;
    return loader_validation(engine->loader, (int64_t)k * samples, samples, tokens, targets, e);
}

/* Micro-batch k of the current step once more, beside the loader's order. */
static status_t load_again(void *ctx, int k, int32_t *tokens, int32_t *targets, struct err *e) {
    struct engine *engine = ctx;
    const struct engine_train *t = &engine->config.train;
    const int context = engine->config.model.context;
    int64_t starts = corpus_tokens(engine->corpus, CORPUS_TRAIN) - context;
    for (int j = 0; j < t->micro_batch; j++) {
        int64_t sample = engine_step(engine) * t->global_batch + (int64_t)k * t->micro_batch + j;
        int64_t start = sampler_start(t->seed, SAMPLER_TRAIN, starts, sample);
        TRY(corpus_read(engine->corpus, CORPUS_TRAIN, start, context, tokens + (int64_t)j * context, e));
        TRY(corpus_read(engine->corpus, CORPUS_TRAIN, start + 1, context, targets + (int64_t)j * context, e));
    }
    return ST_OK;
}

/* --- one step ---*/

static int64_t step_targets(const struct engine *engine) {
    return (int64_t)engine->config.train.global_batch * engine->graph->targets_per_sample;
}

static void prepare_step(struct engine *engine, int64_t step) {
    const struct engine_train *t = &engine->config.train;
    struct execution *x = &engine->execution;
    x->step = step;
    x->loss_scale = (float)(1.0 / (double)step_targets(engine));
    x->clip_norm = t->clip_norm;
    x->adamw = (struct adamw){ .learning_rate = learning_rate(t, step),
                               .beta1 = t->adamw.beta1,
                               .beta2 = t->adamw.beta2,
                               .epsilon = t->adamw.eps,
                               .weight_decay = t->adamw.weight_decay,
                               .gradient_scale = 1,
                               .updates = engine->updates + 1 };
    x->load = engine_load_train;
    x->load_ctx = engine;
    x->record->flags = 0;
    if (atomic_load(&engine->stop))
        x->record->flags |= RECORD_STOP;
    if (engine->snapshot && snapshot_take_failure(engine->snapshot))
        x->record->flags |= RECORD_CHECKPOINT_FAILED;
    if (engine->snapshot && snapshot_busy(engine->snapshot))
        x->record->flags |= RECORD_SKIP_CHECKPOINT;
}

/* The sentence of a step whose loss or norm is no number. */
static status_t numeric_failure(struct engine *engine, double loss, int bad, struct err *e) {
    struct execution *x = &engine->execution;
    long long step = (long long)engine_step(engine) + 1;
    if (bad < 0)
        return err_set(e, ST_OUT_OF_RANGE, "step %lld: the gradient norm is %g, the loss %g", step, x->grad_norm, loss);
    int owner = plan_owner(&engine->train->layout, bad);
    if (owner != engine->rank)
        return err_set(e, ST_OUT_OF_RANGE, "step %lld: the loss of micro-batch %d on rank %d is not finite", step, bad,
                       owner);
    const char *op = "";
    x->load = load_again;
    TRY(execute_find_bad_op(x, engine->train, bad, &op, e));
    return err_set(e, ST_OUT_OF_RANGE,
                   "step %lld: the loss of micro-batch %d is not finite; the first op to blame is %s", step, bad,
                   *op ? op : "unknown: once more it is finite");
}

static status_t evaluate(struct engine *engine, struct err *e) {
    if (!engine->evaluate)
        return ST_OK;
    struct execution *x = &engine->execution;
    x->load = engine_load_validation;
    TRY(execute(x, engine->evaluate, e));
    int bad;
    double targets = (double)engine->evaluate->layout.micro_batches * (double)engine->config.train.micro_batch *
                     (double)engine->graph->targets_per_sample;
    engine->validation_loss = execution_loss_sum(x, engine->evaluate, &bad) / targets;
    engine->has_validation_loss = true;
    return ST_OK;
}

static double resident_bytes(const struct engine *engine) {
    char text[64] = "";
    if (engine->statm_fd < 0 || pread(engine->statm_fd, text, sizeof text - 1, 0) <= 0)
        return (double)engine->arena.bytes;
    char *second = strchr(text, ' ');
    return second ? strtod(second, NULL) * (double)sysconf(_SC_PAGESIZE) : (double)engine->arena.bytes;
}

static void report(struct engine *engine, double loss, bool evaluated, int64_t step_ns, int64_t stall_ns) {
    if (!engine->hooks.metrics)
        return;
    double seconds = (double)step_ns * 1e-9;
    if (engine->rank == 0) {
        struct metric_row row = { .n = 0 };
        metric(&row, "loss", loss);
        metric(&row, "learning_rate", engine->execution.adamw.learning_rate);
        metric(&row, "grad_norm", engine->execution.grad_norm);
        metric(&row, "tokens_per_second", (double)step_targets(engine) / seconds);
        metric(&row, "step_seconds", seconds);
        if (engine->config.peak_flops > 0)
            metric(&row, "mfu",
                   graph_flops(engine->graph) * engine->train->layout.micro_batches /
                       (seconds * engine->config.peak_flops * engine->world_size));
        if (evaluated)
            metric(&row, "validation_loss", engine->validation_loss);
        engine->hooks.metrics(engine->hooks.ctx, engine_step(engine), false, row.items, row.n);
    }
    int64_t data = loader_wait_ns(engine->loader);
    int64_t communication = engine->channel ? channel_wait_ns(engine->channel) : 0;
    struct metric_row row = { .n = 0 };
    metric(&row, "memory_bytes", resident_bytes(engine));
    metric(&row, "data_wait_seconds", (double)(data - engine->data_wait_ns) * 1e-9);
    metric(&row, "communication_wait_seconds", (double)(communication - engine->communication_wait_ns) * 1e-9);
    metric(&row, "checkpoint_stall_seconds", (double)stall_ns * 1e-9);
    engine->hooks.metrics(engine->hooks.ctx, engine_step(engine), true, row.items, row.n);
    engine->data_wait_ns = data;
    engine->communication_wait_ns = communication;
}

/* One step and what follows it; *ret_flags: what the ranks have agreed on. */
static status_t train_step(struct engine *engine, int64_t stall_ns, uint64_t *ret_flags, struct err *e) {
    const struct engine_train *t = &engine->config.train;
    struct execution *x = &engine->execution;
    int64_t start = clock_mono_ns(), step = engine_step(engine);
    prepare_step(engine, step);
    TRY(execute(x, engine->train, e));
    int bad;
    double loss = execution_loss_sum(x, engine->train, &bad) / (double)step_targets(engine);
    if (bad >= 0 || !x->apply) {
        status_t st = numeric_failure(engine, loss, bad, e);
        /* Every rank comes to this verdict: none leaves, which would abort the others, before all have. */
        status_ignore(collective_barrier(engine->collective, COLLECTIVE_CONTROL, NULL));
        return st;
    }
    *ret_flags = execution_flags(x, engine->train);
    engine->updates++;
    atomic_store(&engine->step, ++step);
    int64_t step_ns = clock_mono_ns() - start;
    bool due = engine->evaluate && (step == t->steps || (t->eval.every > 0 && step % t->eval.every == 0));
    if (due)
        TRY(evaluate(engine, e));
    report(engine, loss, due, step_ns, stall_ns);
    return ST_OK;
}

/* --- the loop ---*/

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
            TRY(snapshot_take(engine->snapshot, false, &stall_ns, e));
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
