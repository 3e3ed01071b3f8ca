/* Connects the workers of ranks with the core's events and the controller's commands.
 *
 * A record that is meant for the agent (address, joined, alive, end) becomes one event of the core. Records that only
 * the controller needs (metrics, shards, logs) do not come here: the relay writes them to the spool, and `spooled`
 * wakes the report stream.
 *
 * The address and the join of a rank are kept in their own form, because the agent sends them to the controller again
 * after each attach; the core only knows that they arrived. */
#include "executor/agent/rank_workers.h"

#include "api/codec/message.h"
#include "base/alloc.h"
#include "base/cores.h"
#include "base/limits.h"
#include "executor/agent/data_copies.h"
#include "executor/agent/data_exclusions.h"
#include "executor/agent/job_sandboxes.h"
#include "executor/agent/job_user.h"
#include "executor/agent/shard_folders.h"
#include "executor/agent/worker_launch.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct rank_workers {
    const struct host *host;
    struct rank_workers_owner owner;
    struct rank_worker *first;
};

/* ---- from a worker ---- */

static struct agent_event event_of(const struct rank_worker *w, enum agent_event_kind kind) {
    return (struct agent_event){ .kind = kind, .job = w->job, .attempt = w->attempt, .rank = w->rank };
}

static void event_send(const struct rank_worker *w, struct agent_event *ev) {
    w->list->owner.event(w->list->owner.ctx, ev);
}

static void on_broken(void *ctx, const char *sentence) {
    struct agent_event ev = event_of(ctx, AGENT_EV_BROKEN);
    ev.text = sentence;
    event_send(ctx, &ev);
}

static void handle_address(struct rank_worker *w, const ProtobufCBinaryData *address) {
    if (address->len > LIMIT_RENDEZVOUS_BYTES) {
        on_broken(w, "offered an address that is too long and was killed");
        return;
    }
    uint8_t *copy = alloc_zeroed(address->len, 1);
    if (address->len)
        memcpy(copy, address->data, address->len);
    free(w->address.data);
    w->address = (ProtobufCBinaryData){ .data = copy, .len = address->len };
    struct agent_event ev = event_of(w, AGENT_EV_ADDRESS);
    event_send(w, &ev);
}

static void joined_free(struct rank_worker *w) {
    if (w->joined)
        trainyard__v1__rank_joined__free_unpacked(w->joined, NULL);
    w->joined = NULL;
}

static void handle_joined(struct rank_worker *w, const Trainyard__V1__RankJoined *joined) {
    joined_free(w);
    status_ignore(message_copy(&joined->base, &w->joined, NULL));
    /* If memory runs out, the rank has not joined: the controller's start deadline ends the attempt. */
    struct agent_event ev = event_of(w, w->joined ? AGENT_EV_JOINED : AGENT_EV_ALIVE);
    event_send(w, &ev);
}

static void handle_stop_step(struct rank_worker *w, const Trainyard__V1__StopStep *chosen) {
    struct agent_event ev = event_of(w, AGENT_EV_STOP_STEP);
    w->stop_step = chosen->step;
    event_send(w, &ev);
}

static void handle_end(struct rank_worker *w, const Trainyard__V1__WorkerEnd *end) {
    struct final_report final = { .received = true, .cause = end->cause, .step = end->step };
    snprintf(final.message, sizeof final.message, "%s", end->message);
    snprintf(final.weights_sha256, sizeof final.weights_sha256, "%s", end->weights_sha256);
    struct agent_event ev = event_of(w, AGENT_EV_FINAL_REPORT);
    ev.final = &final;
    event_send(w, &ev);
}

static void handle_silence(const struct rank_worker *w, Trainyard__V1__RankSilence *silence) {
    Trainyard__V1__RankSilent silent = TRAINYARD__V1__RANK_SILENT__INIT;
    silent.job = w->job;
    silent.attempt = w->attempt;
    silent.rank = w->rank;
    silent.silence = silence;
    w->list->owner.silent(w->list->owner.ctx, &silent);
}

/* A figure that cannot be written is found again by a later rank. */
static void handle_peak(const struct rank_worker *w, const Trainyard__V1__HostPeak *peak) {
    status_ignore(peaks_add(w->list->host->peaks, peak->key, peak->flops, NULL));
}

static void on_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct rank_worker *w = ctx;
    struct agent_event alive = event_of(w, AGENT_EV_ALIVE);
    switch (record->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS: handle_address(w, &record->address->address); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED: handle_joined(w, record->joined); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_STOP_STEP: handle_stop_step(w, record->stop_step); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END: handle_end(w, record->end); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_SILENCE: handle_silence(w, record->silence); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_PEAK: handle_peak(w, record->peak); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD_WRITTEN:
        w->list->owner.shard_written(w->list->owner.ctx, w->job, w->attempt, w->rank, record->shard_written->step);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ENCODE_TEXT:
        w->list->owner.encode_text(w->list->owner.ctx, w->job, w->attempt, w->rank, record->encode_text);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ALIVE:
        alive.progress = record->alive->progress;
        alive.flag = record->alive->waiting_for_spool;
        event_send(w, &alive);
        break;
    default: break;
    }
}

static void on_waiting(void *ctx, bool waits) {
    struct agent_event ev = event_of(ctx, AGENT_EV_SPOOL_WAIT);
    ev.flag = waits;
    event_send(ctx, &ev);
}

static void on_ended(void *ctx, const struct exit_status *status, bool drained) {
    const struct rank_worker *w = ctx;
    struct agent_event ev = event_of(w, AGENT_EV_EXITED);
    ev.status = *status;
    ev.step = worker_process_step(w->process);
    ev.flag = drained;
    ev.memory.fatal = worker_process_memory(w->process, ev.memory.sentence, sizeof ev.memory.sentence,
                                            &ev.memory.age_ms) == CGROUP_MEMORY_OWN;
    event_send(w, &ev);
}

static void on_spooled(void *ctx, bool urgent) {
    const struct rank_worker *w = ctx;
    w->list->owner.spooled(w->list->owner.ctx, urgent);
}

/* ---- to a worker ---- */

static struct rank_worker *worker_new(struct rank_workers *ws, int64_t job, int32_t attempt, int32_t rank) {
    struct rank_worker *w = alloc_zeroed(1, sizeof *w);
    *w = (struct rank_worker){ .list = ws, .job = job, .attempt = attempt, .rank = rank, .next = ws->first };
    return ws->first = w;
}

/* Of a program the spec limits the memory. A model's limit is that of its plan, which is an estimate of its process
 * within some MiB: it is no limit to kill a process by. */
static int64_t memory_limit(const Trainyard__V1__JobSpec *spec) {
    return spec->program && spec->resources ? spec->resources->memory_bytes : 0;
}

/* A launcher's command is started by the lowest rank of the host, for all of them. */
static int32_t ranks_started(const Trainyard__V1__JobSpec *spec, const struct agent_attempt *at,
                             const struct agent_rank *r) {
    if (!spec->program || !spec->program->launcher || strcmp(spec->program->launcher, "host") != 0)
        return 1;
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].rank < r->rank)
            return 1;
    return (int32_t)at->n_ranks;
}

/* Processes of one user can end and trace each other. */
static status_t user_is_free(const struct rank_workers *ws, int64_t job, struct err *e) {
    const struct agent_options *o = ws->host->options;
    for (const struct rank_worker *w = ws->first; job_user_is_own(o) && w; w = w->next)
        if (w->process && w->job != job && job_user_of(o, w->job) == job_user_of(o, job))
            return err_set(e, ST_RESOURCE_EXHAUSTED,
                           "job %" PRId64 ", which runs on this host, has the same user %u: try again when it has "
                           "ended, or give --job-users more users",
                           w->job, (unsigned)job_user_of(o, job));
    return ST_OK;
}

static struct worker_process_owner owner_of(struct rank_worker *w) {
    return (struct worker_process_owner){ .ctx = w,
                                          .record = on_record,
                                          .spooled = on_spooled,
                                          .waiting = on_waiting,
                                          .broken = on_broken,
                                          .ended = on_ended };
}

status_t rank_workers_spawn(struct rank_workers *ws, const struct agent_attempt *at, const struct agent_rank *r,
                            const Trainyard__V1__JobSpec *spec, const char *device, struct rank_worker **ret,
                            struct err *e) {
    const struct spool_key key = { at->job, at->attempt, r->rank };
    struct spool_log *log;
    TRY(user_is_free(ws, at->job, e));
    struct rank_worker *w = worker_new(ws, at->job, at->attempt, r->rank);
    const struct worker_process_owner owner = owner_of(w);
    TRY(spool_log_open(ws->host->spool, &key, &log, e));
    char group[64];
    snprintf(group, sizeof group, "job-%" PRId64 "-attempt-%d-rank-%d", at->job, (int)at->attempt, (int)r->rank);
    TRY(worker_launch(ws->host,
                      &(struct worker_launch){ .spec = spec,
                                               .job = at->job,
                                               .threads = at->threads,
                                               .log = log,
                                               .device = device,
                                               .group = group,
                                               .memory_bytes = memory_limit(spec),
                                               .n_ranks = ranks_started(spec, at, r) },
                      &owner, &w->process, e));
    *ret = w;
    return ST_OK;
}

/* ---- handed over ---- */

bool rank_worker_hand_over(const struct rank_worker *w, Trainyard__Handover__HandedRank *ret) {
    ret->rank = w->rank;
    ret->address = w->address;
    ret->stop_step = w->stop_step;
    if (w->joined) {
        ret->join.len = trainyard__v1__rank_joined__get_packed_size(w->joined);
        ret->join.data = alloc_zeroed(ret->join.len, 1);
        trainyard__v1__rank_joined__pack(w->joined, ret->join.data);
    }
    return worker_process_hand_over(w->process, ret->process);
}

status_t rank_workers_resume(struct rank_workers *ws, int64_t job, int32_t attempt,
                             const Trainyard__Handover__HandedRank *handed, struct err *e) {
    const struct host *host = ws->host;
    const Trainyard__Handover__HandedProcess *process = handed->process;
    const struct spool_key key = { job, attempt, handed->rank };
    struct rank_worker *w = worker_new(ws, job, attempt, handed->rank);
    struct worker_process_options options = {
        .loop = host->loop, .spool = host->spool, .orphans = host->orphans, .owner = owner_of(w)
    };
    w->stop_step = handed->stop_step;
    w->address = (ProtobufCBinaryData){ .data = alloc_zeroed(handed->address.len, 1), .len = handed->address.len };
    if (handed->address.len > 0)
        memcpy(w->address.data, handed->address.data, handed->address.len);
    if (handed->joined)
        w->joined = trainyard__v1__rank_joined__unpack(NULL, handed->join.len, handed->join.data);
    TRY(spool_log_open(host->spool, &key, &options.log, e));
    const struct cgroup_limits limits = { .memory_bytes = process->memory_bytes,
                                          .processes_max = process->processes_max };
    options.cgroup = *process->group ? cgroup_reopen(host->cgroups, process->group, &limits) : NULL;
    const status_t st = worker_process_resume(&options, process, &w->process, e);
    if (st != ST_OK)
        cgroup_close(options.cgroup);
    return st;
}

static int max_threads(const struct host *host, const struct agent_attempt *at) {
    const int share = cores_per_rank(host->inventory.cores, (int)at->n_ranks);
    return at->max_threads > 0 && at->max_threads < share ? at->max_threads : share;
}

/* The rank works with folders of this host. A rank that resumes needs no initial weights. */
static void shards_redirect(struct shard_folders *f, Trainyard__V1__AttemptStart *own, Trainyard__V1__WorkerStart *s) {
    s->checkpoint_local = f->local;
    s->resume_fetched = *f->resume != '\0';
    s->weights_fetched = *f->weights != '\0';
    if (*f->written) {
        s->checkpoint_uri = own->checkpoint_directory;
        own->checkpoint_directory = f->written;
    }
    if (s->resume_fetched) {
        s->resume_uri = own->resume_directory;
        own->resume_directory = f->resume;
    }
    if (s->weights_fetched)
        s->weights_uri = *own->init_directory ? own->init_directory : own->spec->train->init_from;
    if (s->weights_fetched || *own->init_directory != '/')
        own->init_directory = f->weights;
}

status_t rank_worker_send_start(struct rank_worker *w, const struct agent_attempt *at,
                                const Trainyard__V1__AttemptStart *order, struct err *e) {
    const struct host *host = w->list->host;
    Trainyard__V1__WorkerStart s = TRAINYARD__V1__WORKER_START__INIT;
    Trainyard__V1__AttemptStart own = *order; /* shallow */
    if (!order->spec->program)                /* the secrets of a model are for stores, which its ranks do not reach */
        own.n_secrets = 0;
    own.n_cache_peers = 0;
    own.cache_url = (char *)(uintptr_t) "";
    s.attempt = &own;
    struct shard_folders folders;
    shard_folders_of(host, order, &folders);
    shards_redirect(&folders, &own, &s);
    if (data_copies_needed(order->spec))
        s.data_cache = (char *)(uintptr_t)host->data_cache;
    s.token_cache = (char *)(uintptr_t)host->token_cache;
    s.token_cache_bytes = host->options->token_cache_bytes;
    s.rank = w->rank;
    s.threads = at->threads;
    s.max_threads = max_threads(host, at);
    s.hang_ms = host->options->hang_ms;
    s.address = (char *)(uintptr_t)host->options->address;
    s.n_data_roots = host->options->n_data_roots;
    s.data_roots = (char **)(uintptr_t)host->options->data_roots;
    s.n_checkpoint_roots = host->options->n_checkpoint_roots;
    s.checkpoint_roots = (char **)(uintptr_t)host->options->checkpoint_roots;
    s.cluster = (char *)(uintptr_t)directory_cluster(host->directory);
    struct data_exclusions exclusions;
    data_exclusions_find(host, &exclusions);
    s.n_data_except = exclusions.n;
    s.data_except = exclusions.list;
    Trainyard__V1__SandboxOrder sandbox;
    s.sandbox = job_sandbox_order(host->options, &sandbox);
    s.peaks = peaks_list(host->peaks, &s.n_peaks);
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_START;
    command.start = &s;
    return worker_process_send(w->process, &command, e);
}

void rank_workers_send(struct rank_workers *ws, int64_t job, int32_t attempt,
                       const Trainyard__V1__WorkerCommand *command) {
    for (struct rank_worker *w = ws->first; w; w = w->next)
        if (w->job == job && w->attempt == attempt && w->process)
            status_ignore(worker_process_send(w->process, command, NULL));
}

void rank_workers_send_all(struct rank_workers *ws, int64_t job, int32_t attempt,
                           const Trainyard__V1__WorkerCommand *command) {
    for (struct rank_worker *w = ws->first; w; w = w->next)
        if (w->job == job && w->attempt == attempt && w->process &&
            worker_process_send(w->process, command, NULL) != ST_OK)
            worker_process_kill(w->process, "did not read its commands and was killed");
}

void rank_workers_send_first(struct rank_workers *ws, int64_t job, int32_t attempt,
                             const Trainyard__V1__WorkerCommand *command) {
    struct rank_worker *first = NULL;
    for (struct rank_worker *w = ws->first; w; w = w->next)
        if (w->job == job && w->attempt == attempt && w->process && (!first || w->rank < first->rank))
            first = w;
    if (first)
        status_ignore(worker_process_send(first->process, command, NULL));
}

/* ---- the list ---- */

struct rank_worker *rank_workers_find(const struct rank_workers *ws, int64_t job, int32_t attempt, int32_t rank) {
    for (struct rank_worker *w = ws->first; w; w = w->next)
        if (w->job == job && w->attempt == attempt && w->rank == rank)
            return w;
    return NULL;
}

static void worker_free(struct rank_worker *w) {
    worker_process_close(w->process);
    free(w->address.data);
    joined_free(w);
    free(w);
}

void rank_workers_remove(struct rank_workers *ws, int64_t job, int32_t attempt) {
    for (struct rank_worker **link = &ws->first, *w; (w = *link);) {
        if (w->job != job || w->attempt != attempt) {
            link = &w->next;
            continue;
        }
        *link = w->next;
        worker_free(w);
    }
}

struct rank_workers *rank_workers_new(const struct host *host, const struct rank_workers_owner *owner) {
    struct rank_workers *ws = alloc_zeroed(1, sizeof *ws);
    *ws = (struct rank_workers){ .host = host, .owner = *owner };
    return ws;
}

void rank_workers_free(struct rank_workers *ws) {
    for (struct rank_worker *w; ws && (w = ws->first);) {
        ws->first = w->next;
        worker_free(w);
    }
    free(ws);
}
