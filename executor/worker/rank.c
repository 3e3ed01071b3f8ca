/* One rank, from its start command to its end.
 *
 * rank_train resolves the spec once, converts it (config.h), checks that the checkpoint folders belong to this cluster,
 * and joins the other ranks: it sends its address as a record and waits for the Rendezvous command with all addresses,
 * since the controller carries this one exchange. Rank 0 then replaces `auto` by what its plan chooses. The engine
 * trains and calls the hooks at the top of this file, which turn its reports into records for the agent.
 *
 * A failure becomes a cause (WorkerEnd) in three steps: the engine's status gives the first cause; a failure to read
 * the checkpoint of a fork is the spec's fault; and after a stop, every cause that the stop may explain becomes
 * STOPPED. */
#include "executor/worker/rank.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/cluster_mark.h"
#include "base/limits.h"
#include "engine/collective/collective.h"
#include "engine/run/engine.h"
#include "executor/worker/config.h"
#include "executor/worker/data_list.h"
#include "executor/worker/data_wait.h"
#include "executor/worker/file_manifest.h"
#include "executor/worker/host_peak.h"
#include "executor/worker/job_roots.h"
#include "executor/worker/rank_folders.h"
#include "executor/worker/text_tokens.h"

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
    RENDEZVOUS_MAX_MS = 3600 * 1000, /* the controller may be away for half an hour, and then has to place the rest */
    RENDEZVOUS_DATA_MAX_MS = 24 * 3600 * 1000, /* other hosts may have to copy the data first */
    METRICS_A_ROW = 64,
};

struct rank {
    const Trainyard__V1__WorkerStart *start;
    struct control *control;
    struct emitter *emitter;
    bool exchanged;                     /* the controller carries one exchange */
    char peak_key[HOST_PEAK_KEY_BYTES]; /* "": not on rank 0, or not on a CPU */
    double peak_known;                  /* the highest FLOP/s that the agent knows of */
    char profile_directory[PATH_MAX];
    struct job_roots roots;
    struct data_list *copies; /* of remote data; NULL: the job has none */
    struct text_tokens texts;
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
    case ENGINE_HOST_FAULT: return TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
    case ENGINE_CHECKPOINT_UNREADABLE: return TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE;
    case ENGINE_INTERNAL: break;
    }
    return TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
}

/* ---- reports of the engine ---- */

static void on_joined(void *ctx, int64_t from_step, const char *numerics_id) {
    struct rank *r = ctx;
    control_joined(r->control);
    Trainyard__V1__RankJoined joined = TRAINYARD__V1__RANK_JOINED__INIT;
    joined.from_step = from_step;
    joined.numerics_id = text(numerics_id);
    emitter_put(r->emitter, WORKER_RECORD(JOINED, joined, &joined));
    emitter_log(r->emitter, "all ranks have joined: training from step %lld, numerics %s", (long long)from_step,
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
            emitter_log(r->emitter, "step %lld: validation loss %.4f", (long long)step, metrics[i].value);
    }
    emitter_put(r->emitter, WORKER_RECORD(METRICS, metrics, &row));
}

/* With the gradient norm of each parameter a step has hundreds of metrics. */
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
    emitter_put(r->emitter, WORKER_RECORD(NOTICE, notice, &notice));
    emitter_log(r->emitter, "step %lld: %s: %s", (long long)step, kind, message);
}

static bool uses_store(const struct rank *r) { return *r->start->checkpoint_uri != '\0'; }

/* The agent lets trainyard-data upload the files. */
static status_t on_keep(void *ctx, int64_t step, struct err *e) {
    struct rank *r = ctx;
    Trainyard__V1__ShardWritten written = TRAINYARD__V1__SHARD_WRITTEN__INIT;
    written.step = step;
    emitter_put(r->emitter, WORKER_RECORD(SHARD_WRITTEN, shard_written, &written));
    return control_shard(r->control, step, e);
}

/* The folder of the step, as others find it. */
static char *step_place(const struct rank *r, const struct engine_shard *s) {
    return uses_store(r) ? alloc_format("%s/step-%lld", r->start->checkpoint_uri, (long long)s->step)
                         : alloc_copy_text(s->directory);
}

static void on_shard(void *ctx, const struct engine_shard *s) {
    struct rank *r = ctx;
    CLEANUP(freep) char *directory = step_place(r, s);
    Trainyard__V1__ShardReport shard = TRAINYARD__V1__SHARD_REPORT__INIT;
    shard.step = s->step;
    shard.rank = s->rank;
    shard.world_size = s->world_size;
    shard.directory = directory;
    shard.file = text(s->file);
    shard.bytes = s->bytes;
    shard.sha256 = text(s->sha256);
    shard.weights_sha256 = text(s->weights_sha256);
    if (s->has_validation_loss) {
        shard._validation_loss_case = TRAINYARD__V1__SHARD_REPORT___VALIDATION_LOSS_VALIDATION_LOSS;
        shard.validation_loss = s->validation_loss;
    }
    shard.final = s->final;
    emitter_put(r->emitter, WORKER_RECORD(SHARD, shard, &shard));
    emitter_log(r->emitter, "step %lld: wrote %s/%s, %lld bytes", (long long)s->step, directory, s->file,
                (long long)s->bytes);
}

static void on_threads(void *ctx, int threads, int64_t step) {
    struct rank *r = ctx;
    emitter_log(r->emitter, "step %lld: computes with %d thread%s from here on", (long long)step, threads,
                threads == 1 ? "" : "s");
}

static void on_progress(void *ctx) {
    struct rank *r = ctx;
    emitter_progress(r->emitter);
}

/* ---- rendezvous ---- */

static status_t addresses_copy(const Trainyard__V1__Rendezvous *rendezvous, int world_size, struct bytes *all,
                               struct err *e) {
    if (rendezvous->n_addresses != (size_t)world_size)
        return err_set(e, ST_INTERNAL, "the rendezvous has %zu addresses for %d ranks", rendezvous->n_addresses,
                       world_size);
    for (int i = 0; i < world_size; i++)
        TRY(bytes_append(&all[i], rendezvous->addresses[i].data, rendezvous->addresses[i].len, e));
    return ST_OK;
}

/* collective_rendezvous_fn: the controller carries the addresses. */
static status_t exchange_addresses(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct rank *r = ctx;
    if (r->exchanged)
        return err_set(e, ST_INTERNAL, "a second rendezvous was requested; the controller carries one");
    r->exchanged = true;
    Trainyard__V1__RankAddress address = TRAINYARD__V1__RANK_ADDRESS__INIT;
    address.address = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)mine, .len = n };
    emitter_put(r->emitter, WORKER_RECORD(ADDRESS, address, &address));
    deadline_ms_t deadline = deadline_in(r->copies ? RENDEZVOUS_DATA_MAX_MS : RENDEZVOUS_MAX_MS);
    while (clock_mono_ms() < deadline) {
        const Trainyard__V1__Rendezvous *rendezvous = NULL;
        TRY(control_rendezvous(r->control, RENDEZVOUS_TICK_MS, &rendezvous, e));
        if (rendezvous)
            return addresses_copy(rendezvous, r->start->attempt->world_size, all, e);
        emitter_progress(r->emitter); /* this rank does not hang: it waits until the others are placed */
    }
    return err_set(e, ST_DEADLINE_EXCEEDED, "the other ranks did not all arrive within %s",
                   r->copies ? "a day" : "an hour");
}

static status_t collective_join(struct rank *r, struct collective **ret, struct err *e) {
    if (r->start->attempt->world_size == 1)
        return collective_open_alone(ret, e);
    struct collective_config config = {
        .rank = r->start->rank,
        .world_size = r->start->attempt->world_size,
        .address = r->start->address,
        .timeout_ms = 2 * r->start->hang_ms > COLLECTIVE_TIMEOUT_MS ? 2 * r->start->hang_ms : COLLECTIVE_TIMEOUT_MS,
        .rendezvous = exchange_addresses,
        .rendezvous_ctx = r,
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

/* Rank 0 chooses for all ranks and reports the choice, which is stored with the job. */
static status_t plan_choose(struct rank *r, struct config *c, struct collective *collective,
                            const struct engine_hooks *hooks, struct err *e) {
    bool chosen = false;
    TRY(config_resolve(c, collective, hooks, &chosen, e));
    if (!chosen || r->start->rank != 0)
        return ST_OK;
    const Trainyard__V1__TrainSpec *t = config_spec(c)->train;
    Trainyard__V1__PlanChosen plan = TRAINYARD__V1__PLAN_CHOSEN__INIT;
    plan.spec = (Trainyard__V1__JobSpec *)(uintptr_t)config_spec(c);
    emitter_put(r->emitter, WORKER_RECORD(CHOSEN, chosen, &plan));
    emitter_log(r->emitter, "auto: micro_batch %d, lanes %d, recompute %s", t->micro_batch, t->lanes, t->recompute);
    return ST_OK;
}

/* Tells the agent of more FLOP/s than this host has been known for. */
static void peak_report(struct rank *r, double flops) {
    if (flops <= r->peak_known)
        return;
    Trainyard__V1__HostPeak peak = TRAINYARD__V1__HOST_PEAK__INIT;
    peak.key = r->peak_key;
    peak.flops = r->peak_known = flops;
    emitter_put(r->emitter, WORKER_RECORD(PEAK, peak, &peak));
}

/* The larger of what is measured now, when the host may be busy, and what has been seen before. */
static status_t peak_find(struct rank *r, struct config *c, struct err *e) {
    struct engine_config *ec = config_engine(c);
    if (strcmp(ec->device, "cpu") != 0)
        return ST_OK;
    TRY(host_peak_key(ec, r->peak_key, e));
    r->peak_known = host_peak_find(r->start->peaks, r->start->n_peaks, r->peak_key);
    TRY(config_measure(c, e));
    peak_report(r, ec->peak_flops);
    ec->peak_flops = r->peak_known;
    return ST_OK;
}

static status_t config_make(struct rank *r, const Trainyard__V1__JobSpec *spec, struct config **ret, struct err *e) {
    const Trainyard__V1__WorkerStart *start = r->start;
    CLEANUP(config_closep) struct config *c = NULL;
    const struct config_copies copies = { .list = r->copies, .roots = &r->roots.copies };
    TRY(config_open(spec, &r->roots.data, r->copies ? &copies : NULL, &c, e));
    struct engine_config *ec = config_engine(c);
    ec->threads = start->threads > 0 ? start->threads : 1;
    ec->max_threads = start->max_threads;
    ec->threads_by_work = true;
    if (engine_ranks(&ec->layout) != start->attempt->world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "parallel: %d ranks, but the attempt has %d", engine_ranks(&ec->layout),
                       start->attempt->world_size);
    ec->checkpoint.directory = *start->attempt->checkpoint_directory ? start->attempt->checkpoint_directory : NULL;
    ec->checkpoint.resume_directory = *start->attempt->resume_directory ? start->attempt->resume_directory : NULL;
    ec->checkpoint.roots = &r->roots.checkpoints;
    ec->checkpoint.forked = start->attempt->forked;
    int64_t job, id;
    ec->train.init_checkpoint = *start->attempt->init_directory &&
                                spec_checkpoint_name(spec->train->init_from, &job, &id);
    if (*start->attempt->init_directory) {
        ec->train.init_from = start->attempt->init_directory;
        ec->train.init_roots = &r->roots.checkpoints;
    } else if (!*start->attempt->resume_directory)
        TRY(config_init_from(c, &r->roots.data, e));
    struct err why;
    if (start->rank == 0 && peak_find(r, c, &why) != ST_OK)
        emitter_log(r->emitter, "mfu is not reported: %s", why.msg);
    TRY(profile_place(r, ec, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

static void end_fail(struct rank_end *ret, status_t st) { ret->cause = cause_of(engine_outcome_of(st)); }

/* After a failure to read the checkpoint that the job resumes from. */
static void end_fail_resuming(struct rank *r, struct rank_end *ret, status_t st) {
    end_fail(ret, st);
    const bool bad = ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD;
    if (r->start->attempt->forked && (bad || ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE)) {
        if (bad)
            ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC; /* this job has no older one */
        status_ignore(err_prefix(&ret->why, st, "the checkpoint that this job was forked from cannot be read: "));
    }
}

static void log_memory(const struct rank *r, const struct engine *engine) {
    const double MiB = 1 << 20;
    struct engine_memory m;
    if (engine_memory(engine, &m, NULL) == ST_OK)
        emitter_log(r->emitter, "memory: at most %.1f MiB; planned %.1f MiB", (double)m.peak_bytes / MiB,
                    (double)m.planned_bytes / MiB);
}

static void engine_train(struct rank *r, struct config *config, struct collective *collective, struct rank_end *ret) {
    const struct engine_hooks hooks = { .ctx = r,
                                        .joined = on_joined,
                                        .metrics = on_metrics,
                                        .notice = on_notice,
                                        .shard = on_shard,
                                        .keep = uses_store(r) ? on_keep : NULL,
                                        .threads = on_threads,
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
    control_give_up_shards(r->control);
    ret->cause = st != ST_OK && outcome == ENGINE_FINISHED ? TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL
                                                           : cause_of(outcome);
    log_memory(r, engine);
    if (*r->peak_key)
        peak_report(r, engine_peak_flops(engine));
    ret->step = engine_step(engine);
    if (ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        snprintf(ret->weights_sha256, sizeof ret->weights_sha256, "%s", engine_weights_sha256(engine));
}

/* ---- whose checkpoints ---- */

static void end_unmarked(struct rank_end *ret, status_t st) {
    ret->cause = st == ST_FAILED_PRECONDITION || st == ST_DATA_LOSS
                     ? TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC /* another host sees the same folder */
                     : TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_WRITE;
}

static void path_replace(struct err *e, const char *path, const char *by) {
    const struct err why = *e;
    const char *at = strstr(why.msg, path);
    if (at)
        snprintf(e->msg, sizeof e->msg, "%.*s%s%s", (int)(at - why.msg), why.msg, by, at + strlen(path));
}

/* A sentence about a copy names its URI, which the user knows. */
static void copy_name(const struct rank *r, struct rank_end *ret) {
    const struct data_list_object *object = r->copies ? data_list_named(r->copies, ret->why.msg) : NULL;
    if (object)
        path_replace(&ret->why, object->path, object->name);
    if (*r->start->resume_uri)
        path_replace(&ret->why, r->start->attempt->resume_directory, r->start->resume_uri);
    if (*r->start->weights_uri)
        path_replace(&ret->why, r->start->attempt->init_directory, r->start->weights_uri);
}

static status_t copies_wait(struct rank *r, const Trainyard__V1__JobSpec *spec, struct rank_end *ret) {
    if (!*r->start->data_cache && !r->start->resume_fetched && !r->start->weights_fetched && !uses_store(r))
        return ST_OK;
    r->copies = data_list_new(spec);
    return data_wait(spec, r->control, r->emitter, r->copies, &ret->cause, &ret->why);
}

static void spec_train(struct rank *r, const Trainyard__V1__JobSpec *spec, struct rank_end *ret) {
    CLEANUP(config_closep) struct config *config = NULL;
    CLEANUP(collective_closep) struct collective *collective = NULL;
    if (copies_wait(r, spec, ret) != ST_OK)
        return;
    status_t st = config_make(r, spec, &config, &ret->why);
    bool taken = false;
    const status_t marked = st == ST_OK ? rank_folders_check(r->start, &r->roots.checkpoints, &taken, &ret->why)
                                        : ST_OK;
    if (taken)
        rank_folders_report(r->start, r->emitter);
    if (marked != ST_OK) {
        end_unmarked(ret, marked);
        return;
    }
    if (st == ST_OK && *r->start->attempt->checkpoint_directory) {
        CLEANUP(closep) int folder = -1;
        st = roots_make(&r->roots.checkpoints, r->start->attempt->checkpoint_directory, 0777, &folder, &ret->why);
        if (st != ST_OK) {
            ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_WRITE;
            return;
        }
    }
    if (st == ST_OK)
        st = text_tokens_prepare(&r->texts, r->start, config_engine(config), &ret->why);
    if (st == ST_OK)
        st = collective_join(r, &collective, &ret->why);
    if (st != ST_OK) {
        end_fail(ret, st);
        return;
    }
    control_set_collective(r->control, collective);
    engine_train(r, config, collective, ret);
    control_set_collective(r->control, NULL);
}

/* Whether files, bytes or this host are the cause, also if a signal arrives meanwhile: if this rank fails first, its
 * peers lose it, and the signal that all ranks then get must not hide the cause. */
static bool is_own(Trainyard__V1__WorkerEnd__Cause cause) {
    return cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED || cause == TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC ||
           cause == TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT ||
           cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_BAD ||
           cause == TRAINYARD__V1__WORKER_END__CAUSE__CHECKPOINT_UNREADABLE;
}

/* After SIGTERM every other failure is a consequence of it, and so is the loss of peers, which were asked to stop too.
 * After a stop alone the checkpoint is still written, and a failure to write it is reported as such. */
static void end_by_stop(struct control *control, struct rank_end *ret) {
    char reason[240];
    bool by_peers = ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__PEER_LOST ||
                    ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
    if (is_own(ret->cause) || !control_stopped(control, reason, sizeof reason) ||
        !(by_peers || control_terminated(control)))
        return;
    ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
    status_ignore(err_set(&ret->why, ST_CANCELLED, "asked to stop%s%s", *reason ? ": " : "", reason));
}

void rank_train(const Trainyard__V1__WorkerStart *start, struct control *control, struct emitter *emitter,
                struct rank_end *ret) {
    struct rank r = {
        .start = start, .control = control, .emitter = emitter, .texts = { .control = control, .emitter = emitter }
    };
    *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC };
    char host[64] = "";
    if (!start->attempt) { /* another host may have an agent of this release */
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__NOT_STARTED;
        status_ignore(err_set(&ret->why, ST_FAILED_PRECONDITION,
                              "the start command has no attempt: the agent is of an older release; restart it"));
        return;
    }
    if (!start->attempt->spec) {
        status_ignore(err_set(&ret->why, ST_INVALID_ARGUMENT, "the start command has no spec"));
        return;
    }
    gethostname(host, sizeof host - 1);
    emitter_log(emitter, "rank %d of %d, job %lld, attempt %d, on %s with %d thread%s", start->rank,
                start->attempt->world_size, (long long)start->attempt->job, start->attempt->attempt, host,
                start->threads, start->threads == 1 ? "" : "s");
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    job_roots_take(&(struct job_roots_given){ start->data_roots, start->n_data_roots, start->checkpoint_roots,
                                              start->n_checkpoint_roots, start->data_except, start->n_data_except },
                   &r.roots);
    job_roots_add_copies(&r.roots, start->data_cache);
    job_roots_add_checkpoints(&r.roots, start->checkpoint_local);
    if (spec_resolve(start->attempt->spec, &spec, NULL, &ret->why) == ST_OK)
        spec_train(&r, spec, ret);
    copy_name(&r, ret);
    data_list_free(r.copies);
    job_roots_done(&r.roots);
    end_by_stop(control, ret);
    if (ret->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        ret->why.msg[0] = '\0';
    else if (!*ret->why.msg)
        status_ignore(err_set(&ret->why, ST_INTERNAL, "the engine ended without a reason"));
    emitter_log(emitter, "%s after step %lld%s%s", *ret->why.msg ? "ended" : "finished", (long long)ret->step,
                *ret->why.msg ? ": " : "", ret->why.msg);
}

/* ---- samples ---- */

static bool on_piece(void *ctx, const char *piece) {
    struct rank *r = ctx;
    Trainyard__V1__SampleText sample = TRAINYARD__V1__SAMPLE_TEXT__INIT;
    sample.text = text(piece);
    emitter_put(r->emitter, WORKER_RECORD(SAMPLE, sample, &sample));
    return !control_stopped(r->control, NULL, 0);
}

static bool verify_continues(void *ctx) {
    struct rank *r = ctx;
    emitter_progress(r->emitter);
    return !control_stopped(r->control, NULL, 0);
}

static status_t program_checkpoint(struct rank *r, const Trainyard__V1__WorkerSample *sample, struct err *e) {
    const struct file_progress progress = { verify_continues, r };
    if (!sample->verify)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.300s' is a program's checkpoint: only a model writes samples",
                       sample->directory);
    return file_manifest_verify(&r->roots.checkpoints, sample->directory, &progress, NULL, e);
}

static status_t sample_run(struct rank *r, const Trainyard__V1__WorkerSample *sample, struct err *e) {
    const struct engine_sample_request request = {
        .directory = sample->directory,
        .roots = &r->roots.checkpoints,
        .prompt = sample->prompt,
        .tokens = sample->tokens,
        .temperature = sample->temperature,
        .seed = sample->seed,
        .average = sample->average,
        .threads = sample->threads > 0 ? sample->threads : 1,
        .write = on_piece,
        .ctx = r,
    };
    if (file_manifest_has(request.roots, sample->directory))
        return program_checkpoint(r, sample, e);
    return sample->verify ? engine_verify(sample->directory, request.roots, e) : engine_sample(&request, e);
}

/* No other cluster has the copy of a checkpoint in a store. */
static status_t sample_owner_check(const Trainyard__V1__WorkerSample *sample, const struct roots *checkpoints,
                                   struct err *e) {
    char folder[PATH_MAX];
    if (*sample->checkpoint_local)
        return ST_OK;
    TRY(cluster_mark_folder(sample->directory, 3, folder, sizeof folder, e));
    return cluster_mark(checkpoints, folder, sample->cluster, CLUSTER_MARK_CHECK, NULL, e);
}

void rank_sample(const Trainyard__V1__WorkerSample *sample, struct control *control, struct emitter *emitter,
                 struct rank_end *ret) {
    struct rank r = { .control = control, .emitter = emitter };
    *ret = (struct rank_end){ .cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED };
    job_roots_take(&(struct job_roots_given){ NULL, 0, sample->checkpoint_roots, sample->n_checkpoint_roots,
                                              sample->data_except, sample->n_data_except },
                   &r.roots);
    job_roots_add_checkpoints(&r.roots, sample->checkpoint_local);
    status_t st = sample_owner_check(sample, &r.roots.checkpoints, &ret->why);
    const bool of_other_cluster = st == ST_FAILED_PRECONDITION; /* no other host helps */
    if (st == ST_OK)
        st = sample_run(&r, sample, &ret->why);
    if (*sample->checkpoint_uri)
        path_replace(&ret->why, sample->directory, sample->checkpoint_uri);
    job_roots_done(&r.roots);
    if (of_other_cluster) {
        ret->cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
        return;
    }
    if (st != ST_OK)
        end_fail(ret, st);
    end_by_stop(control, ret);
}
