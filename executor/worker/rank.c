#include "executor/worker/rank.h"

#include "api/spec/spec.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/engine/collective/collective.h"
#include "executor/engine/run/engine.h"
#include "executor/worker/config.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    /* A peer that is silent is its agent's to judge, and by its own name; this, or twice as long as that waits, is for
     * what it cannot see. */
    COLLECTIVE_TIMEOUT_MS = 60000,
    RENDEZVOUS_TICK_MS = 500,
    RENDEZVOUS_MOST_MS = 3600 * 1000, /* the controller may be away for half an hour, and then has to place the rest */
    METRICS_A_ROW = 64,
};

struct rank {
    const Trainyard__V1__WorkerStart *start;
    struct control *control;
    struct emitter *emitter;
    bool met; /* the one exchange has been made */
    char profile_directory[PATH_MAX];
};

static char *text(const char *s) { return (char *)(uintptr_t)(s ? s : ""); }

static Trainyard__V1__WorkerEnd__Cause cause_of(enum engine_outcome outcome) {
    switch (outcome) {
    case ENGINE_FINISHED: return TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    case ENGINE_STOPPED: return TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
    case ENGINE_BAD_SPEC: return TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC;
    case ENGINE_PEER_LOST: return TRAINYARD__V1__WORKER_END__CAUSE__PEER_LOST;
    case ENGINE_CHECKPOINT_BAD: return TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD;
    case ENGINE_CHECKPOINT_WRITE: return TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_WRITE;
    case ENGINE_NUMERIC: return TRAINYARD__V1__WORKER_END__CAUSE__NUMERIC;
    case ENGINE_INTERNAL: break;
    }
    return TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
}

/* ---- what the engine tells ---- */

static void on_joined(void *ctx, int64_t from_step, const char *numerics_id) {
    struct rank *r = ctx;
    control_joined(r->control);
    Trainyard__V1__RankJoined joined = TRAINYARD__V1__RANK_JOINED__INIT;
    joined.from_step = from_step;
    joined.numerics_id = text(numerics_id);
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED;
    record.joined = &joined;
    emitter_put(r->emitter, &record);
    emitter_say(r->emitter, "all ranks have met: training from step %lld, numerics %s", (long long)from_step,
                numerics_id);
}

static void put_metrics(struct rank *r, int64_t step, bool per_rank, const struct engine_metric *metrics, int n) {
    char *names[METRICS_A_ROW];
    double values[METRICS_A_ROW];
    Trainyard__V1__MetricRow row = TRAINYARD__V1__METRIC_ROW__INIT;
    row.step = step;
    row.per_rank = per_rank;
    row.names = names;
    row.values = values;
    for (int i = 0; i < n; i++) {
        names[row.n_names++] = text(metrics[i].name);
        values[row.n_values++] = metrics[i].value;
        if (strcmp(metrics[i].name, "validation_loss") == 0)
            emitter_say(r->emitter, "step %lld: validation loss %.4f", (long long)step, metrics[i].value);
    }
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    record.metrics = &row;
    emitter_put(r->emitter, &record);
}

/* With each parameter's gradient norm a step has hundreds. */
static void on_metrics(void *ctx, int64_t step, bool per_rank, const struct engine_metric *metrics, int n) {
    for (int i = 0; i < n; i += METRICS_A_ROW)
        put_metrics(ctx, step, per_rank, metrics + i, n - i < METRICS_A_ROW ? n - i : METRICS_A_ROW);
}

static void on_notice(void *ctx, const char *kind, const char *message, int64_t step) {
    struct rank *r = ctx;
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    notice.kind = text(kind);
    notice.message = text(message);
    notice.step = step;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE;
    record.notice = &notice;
    emitter_put(r->emitter, &record);
    emitter_say(r->emitter, "step %lld: %s: %s", (long long)step, kind, message);
}

static void on_shard(void *ctx, const struct engine_shard *s) {
    struct rank *r = ctx;
    Trainyard__V1__ShardReport shard = TRAINYARD__V1__SHARD_REPORT__INIT;
    shard.step = s->step;
    shard.rank = s->rank;
    shard.world_size = s->world_size;
    shard.directory = text(s->directory);
    shard.file = text(s->file);
    shard.bytes = s->bytes;
    shard.sha256 = text(s->sha256);
    shard.weights_sha256 = text(s->weights_sha256);
    if (s->has_validation_loss) {
        shard._validation_loss_case = TRAINYARD__V1__SHARD_REPORT___VALIDATION_LOSS_VALIDATION_LOSS;
        shard.validation_loss = s->validation_loss;
    }
    shard.final = s->final;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD;
    record.shard = &shard;
    emitter_put(r->emitter, &record);
    emitter_say(r->emitter, "step %lld: wrote %s/%s, %lld bytes", (long long)s->step, s->directory, s->file,
                (long long)s->bytes);
}

static void on_progress(void *ctx) {
    struct rank *r = ctx;
    emitter_progress(r->emitter);
}

/* ---- meeting the others ---- */

static status_t addresses_copy(const Trainyard__V1__Rendezvous *rendezvous, int world_size, struct bytes *all,
                               struct err *e) {
    if (rendezvous->n_addresses != (size_t)world_size)
        return err_set(e, ST_INTERNAL, "the rendezvous has %zu addresses for %d ranks", rendezvous->n_addresses,
                       world_size);
    for (int i = 0; i < world_size; i++)
        TRY(bytes_append(&all[i], rendezvous->addresses[i].data, rendezvous->addresses[i].len, e));
    return ST_OK;
}

/* collective_exchange_fn: the controller carries the addresses. */
static status_t exchange(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct rank *r = ctx;
    if (r->met)
        return err_set(e, ST_INTERNAL, "a second rendezvous was asked for; the controller carries one");
    r->met = true;
    Trainyard__V1__RankAddress address = TRAINYARD__V1__RANK_ADDRESS__INIT;
    address.address = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)mine, .len = n };
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS;
    record.address = &address;
    emitter_put(r->emitter, &record);
    deadline_ms_t deadline = deadline_in(RENDEZVOUS_MOST_MS);
    while (clock_mono_ms() < deadline) {
        const Trainyard__V1__Rendezvous *rendezvous = NULL;
        TRY(control_rendezvous(r->control, RENDEZVOUS_TICK_MS, &rendezvous, e));
        if (rendezvous)
            return addresses_copy(rendezvous, r->start->world_size, all, e);
        emitter_progress(r->emitter); /* waiting for others to be placed is no hang of this rank */
    }
    return err_set(e, ST_DEADLINE_EXCEEDED, "the other ranks were not all there within an hour");
}

static status_t collective_meet(struct rank *r, struct collective **ret, struct err *e) {
    if (r->start->world_size == 1)
        return collective_open_alone(ret, e);
    struct collective_config config = {
        .rank = r->start->rank,
        .world_size = r->start->world_size,
        .address = r->start->address,
        .timeout_ms = 2 * r->start->hang_ms > COLLECTIVE_TIMEOUT_MS ? 2 * r->start->hang_ms : COLLECTIVE_TIMEOUT_MS,
        .exchange = exchange,
        .exchange_ctx = r,
    };
    return collective_open_gloo(&config, ret, e);
}

/* ---- training ---- */

/* Beside the attempt's step folders, where the controller finds it. */
static status_t profile_place(struct rank *r, struct engine_config *ec, struct err *e) {
    if (ec->profile.from == 0)
        return ST_OK;
    if (!ec->checkpoint.directory)
        return err_set(e, ST_INVALID_ARGUMENT, "train.profile: needs a checkpoint directory to write to");
    int n = snprintf(r->profile_directory, sizeof r->profile_directory, "%s/profile", ec->checkpoint.directory);
    if (n < 0 || (size_t)n >= sizeof r->profile_directory)
        return err_set(e, ST_INVALID_ARGUMENT, "checkpoint.directory: too long a path");
    ec->profile.directory = r->profile_directory;
    return ST_OK;
}

/* Rank 0 chooses for all, and says what, so that it is stored with the job. */
static status_t plan_choose(struct rank *r, struct config *c, struct collective *collective,
                            const struct engine_hooks *hooks, struct err *e) {
    bool chosen = false;
    TRY(config_resolve(c, collective, hooks, &chosen, e));
    if (!chosen || r->start->rank != 0)
        return ST_OK;
    const Trainyard__V1__TrainSpec *t = config_spec(c)->train;
    Trainyard__V1__PlanChosen plan = TRAINYARD__V1__PLAN_CHOSEN__INIT;
    plan.spec = (Trainyard__V1__JobSpec *)(uintptr_t)config_spec(c);
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_CHOSEN;
    record.chosen = &plan;
    emitter_put(r->emitter, &record);
    emitter_say(r->emitter, "auto: micro_batch %d, lanes %d, recompute %s", t->micro_batch, t->lanes, t->recompute);
    return ST_OK;
}

static status_t config_make(struct rank *r, const Trainyard__V1__JobSpec *spec, struct config **ret, struct err *e) {
    const Trainyard__V1__WorkerStart *start = r->start;
    struct data_roots roots = { .paths = (const char *const *)start->data_roots, .n = start->n_data_roots };
    CLEANUP(config_closep) struct config *c = NULL;
    TRY(config_open(spec, &roots, &c, e));
    struct engine_config *ec = config_engine(c);
    ec->threads = start->threads > 0 ? start->threads : 1;
    if (engine_ranks(&ec->layout) != start->world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel: %d ranks, but the attempt has %d", engine_ranks(&ec->layout),
                       start->world_size);
    ec->checkpoint.directory = *start->checkpoint_directory ? start->checkpoint_directory : NULL;
    ec->checkpoint.resume_directory = *start->resume_directory ? start->resume_directory : NULL;
    if (*start->init_directory)
        ec->train.init_from = start->init_directory;
    else if (!*start->resume_directory)
        TRY(config_init_from(c, &roots, e));
    struct err why;
    if (start->rank == 0 && config_measure(c, &why) != ST_OK)
        emitter_say(r->emitter, "mfu is not told: %s", why.msg);
    TRY(profile_place(r, ec, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

static void end_fail(struct rank_end *ret, status_t st) { ret->cause = cause_of(engine_outcome_of(st)); }

/* Of what reads the checkpoint to go on from. */
static void end_fail_resuming(struct rank *r, struct rank_end *ret, status_t st) {
    end_fail(ret, st);
    if (r->start->forked && ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD) {
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC; /* this job has no older one */
        status_ignore(err_prefix(&ret->why, st, "the checkpoint that this job was forked from cannot be read: "));
    }
}

static void engine_train(struct rank *r, struct config *config, struct collective *collective, struct rank_end *ret) {
    const struct engine_hooks hooks = { .ctx = r,
                                        .joined = on_joined,
                                        .metrics = on_metrics,
                                        .notice = on_notice,
                                        .shard = on_shard,
                                        .progress = on_progress };
    CLEANUP(engine_closep) struct engine *engine = NULL;
    status_t st = plan_choose(r, config, collective, &hooks, &ret->why);
    if (st == ST_OK)
        st = engine_open(config_engine(config), collective, &hooks, &engine, &ret->why);
    if (st != ST_OK) {
        end_fail_resuming(r, ret, st);
        return;
    }
    control_set_engine(r->control, engine);
    enum engine_outcome outcome = ENGINE_INTERNAL;
    st = engine_run(engine, &outcome, &ret->why);
    control_set_engine(r->control, NULL);
    ret->cause = st != ST_OK && outcome == ENGINE_FINISHED ? TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL
                                                           : cause_of(outcome);
    ret->step = engine_step(engine);
    if (ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        snprintf(ret->weights_sha256, sizeof ret->weights_sha256, "%s", engine_weights_sha256(engine));
}

static void spec_train(struct rank *r, const Trainyard__V1__JobSpec *spec, struct rank_end *ret) {
    CLEANUP(config_closep) struct config *config = NULL;
    CLEANUP(collective_closep) struct collective *collective = NULL;
    status_t st = config_make(r, spec, &config, &ret->why);
    if (st == ST_OK && *r->start->checkpoint_directory) {
        st = dir_make(r->start->checkpoint_directory, 0755, &ret->why);
        if (st != ST_OK) {
            ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_WRITE;
            return;
        }
    }
    if (st == ST_OK)
        st = collective_meet(r, &collective, &ret->why);
    if (st != ST_OK) {
        end_fail(ret, st);
        return;
    }
    control_set_collective(r->control, collective);
    engine_train(r, config, collective, ret);
    control_set_collective(r->control, NULL);
}

/* What fails after SIGTERM, fails because of it; so does a rank that loses its peers, who were told to stop too. A stop
 * alone lets the checkpoint be written: what fails then is told as it is. */
static void end_by_stop(struct control *control, struct rank_end *ret) {
    char reason[240];
    bool by_peers = ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__PEER_LOST ||
                    ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
    if (ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED || !control_stopped(control, reason, sizeof reason) ||
        !(by_peers || control_terminated(control)))
        return;
    ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
    status_ignore(err_set(&ret->why, ST_CANCELLED, "told to stop%s%s", *reason ? ": " : "", reason));
}

void rank_train(const Trainyard__V1__WorkerStart *start, struct control *control, struct emitter *emitter,
                struct rank_end *ret) {
    struct rank r = { .start = start, .control = control, .emitter = emitter };
    *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC };
    char host[64] = "";
    gethostname(host, sizeof host - 1);
    emitter_say(emitter, "rank %d of %d, job %lld, attempt %d, on %s with %d thread%s", start->rank, start->world_size,
                (long long)start->job, start->attempt, host, start->threads, start->threads == 1 ? "" : "s");
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    if (!start->spec)
        status_ignore(err_set(&ret->why, ST_INVALID_ARGUMENT, "the start command has no spec"));
    else if (spec_resolve(start->spec, &spec, NULL, &ret->why) == ST_OK)
        spec_train(&r, spec, ret);
    end_by_stop(control, ret);
    if (ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        ret->why.msg[0] = '\0';
    else if (!*ret->why.msg)
        status_ignore(err_set(&ret->why, ST_INTERNAL, "the engine ended without a reason"));
    emitter_say(emitter, "%s after step %lld%s%s", *ret->why.msg ? "ended" : "finished", (long long)ret->step,
                *ret->why.msg ? ": " : "", ret->why.msg);
}

/* ---- samples ---- */

static bool on_piece(void *ctx, const char *piece) {
    struct rank *r = ctx;
    Trainyard__V1__SampleText sample = TRAINYARD__V1__SAMPLE_TEXT__INIT;
    sample.text = text(piece);
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_SAMPLE;
    record.sample = &sample;
    emitter_put(r->emitter, &record);
    return !control_stopped(r->control, NULL, 0);
}

void rank_sample(const Trainyard__V1__WorkerSample *sample, struct control *control, struct emitter *emitter,
                 struct rank_end *ret) {
    struct rank r = { .control = control, .emitter = emitter };
    struct engine_sample_request request = {
        .directory = sample->directory,
        .prompt = sample->prompt,
        .tokens = sample->tokens,
        .temperature = sample->temperature,
        .seed = sample->seed,
        .threads = sample->threads > 0 ? sample->threads : 1,
        .write = on_piece,
        .ctx = &r,
    };
    *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED };
    status_t st = engine_sample(&request, &ret->why);
    if (st == ST_NOT_FOUND)
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD;
    else if (st != ST_OK)
        end_fail(ret, st);
    end_by_stop(control, ret);
}
