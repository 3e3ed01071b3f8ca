/* Connects the agent's parts.
 *
 * The core decides (core/agent_core.h); every other part only reports events and carries out actions. The parts do not
 * know each other: each is opened with an owner, a struct of functions, and those functions are here. Most of them
 * convert a report of a part into an event for agent_step. Three kinds of messages need no decision and are passed on
 * directly: the rendezvous and the committed checkpoints, from the controller to the workers; the orders for samples
 * and checks; and the samples of a device, from the devices to the rank that has it. */
#include "executor/agent/agent.h"

#include "base/alloc.h"
#include "base/log.h"
#include "executor/agent/agent_restart.h"
#include "executor/agent/agent_state.h"
#include "executor/agent/attempt_messages.h"
#include "executor/agent/cgroups.h"
#include "executor/agent/cuda_libraries.h"
#include "executor/agent/data_order.h"
#include "executor/agent/job_sandboxes.h"
#include "executor/agent/job_user.h"
#include "executor/agent/orphans.h"
#include "executor/agent/shard_folders.h"
#include "executor/container/container.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- from the controller ---- */

static void handle_start(struct agent *a, const Trainyard__V1__AttemptStart *m) {
    const Trainyard__V1__ResourcesSpec *resources = m->spec ? m->spec->resources : NULL;
    const struct agent_start start = {
        .world_size = m->world_size,
        .ranks = m->ranks,
        .n_ranks = m->n_ranks,
        .cuda = resources && resources->accelerator && strcmp(resources->accelerator, "cuda") == 0,
        .max_threads = resources ? resources->cores : 0,
        .pinned = m->spec && !m->spec->program,
        .invalid = m->spec ? NULL : "the start order has no spec",
        .order = m,
    };
    agent_step(a,
               &(struct agent_event){ .kind = AGENT_EV_START, .job = m->job, .attempt = m->attempt, .start = &start });
    attempt_secrets_wipe(m->secrets, m->n_secrets);
}

static void handle_rendezvous(struct agent *a, const Trainyard__V1__AttemptRendezvous *m) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS;
    command.rendezvous = m->rendezvous;
    if (m->rendezvous)
        rank_workers_send(a->workers, m->job, m->attempt, &command);
}

static void handle_committed(struct agent *a, const Trainyard__V1__AttemptCommitted *m) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECKPOINT_COMMITTED;
    command.checkpoint_committed = m->checkpoint;
    if (m->checkpoint)
        rank_workers_send(a->workers, m->job, m->attempt, &command);
}

static void handle_stop_step(struct agent *a, const Trainyard__V1__AttemptStopStep *m) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP_STEP;
    command.stop_step = m->stop_step;
    if (m->stop_step)
        rank_workers_send(a->workers, m->job, m->attempt, &command);
}

static void handle_stop(struct agent *a, const Trainyard__V1__StopAttempt *m) {
    Trainyard__V1__WorkerStacks stacks = TRAINYARD__V1__WORKER_STACKS__INIT;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_STACKS;
    command.stacks = &stacks;
    if (m->collect_stacks)
        rank_workers_send(a->workers, m->job, m->attempt, &command);
    agent_step(
        a,
        &(struct agent_event){
            .kind = AGENT_EV_STOP, .job = m->job, .attempt = m->attempt, .grace_ms = m->grace_ms, .text = m->reason });
}

static void attempt_event(struct agent *a, enum agent_event_kind kind, int64_t job, int32_t attempt) {
    agent_step(a, &(struct agent_event){ .kind = kind, .job = job, .attempt = attempt });
}

/* Remote data are looked for first. */
static void handle_start_check(struct agent *a, const Trainyard__V1__StartCheck *m) {
    if (m->request && *m->request->remove && *a->host.no_data.msg)
        spec_check_kind.send_last(a->control, m->check, ST_FAILED_PRECONDITION, a->host.no_data.msg);
    else if (!m->request || *a->host.no_data.msg || !data_checks_needed(m->request))
        spec_check_start(a->checks, &a->host, m);
    else if (data_checks_count(a->data_checks) == spec_check_kind.max)
        spec_check_kind.send_last(a->control, m->check, ST_RESOURCE_EXHAUSTED, spec_check_kind.full);
    else
        data_checks_start(a->data_checks, m);
    if (m->request)
        attempt_secrets_wipe(m->request->secrets, m->request->n_secrets);
}

/* A checkpoint in a store is copied first. */
static void handle_start_sample(struct agent *a, const Trainyard__V1__StartSample *m) {
    if (sample_copies_needed(m))
        sample_copies_start(a->sample_copies, m);
    else
        text_sample_start(a->samples, &a->host, m, NULL);
    if (m->request)
        attempt_secrets_wipe(m->request->secrets, m->request->n_secrets);
}

static void handle_stop_sample(struct agent *a, const Trainyard__V1__StopSample *m) {
    request_workers_stop(a->samples, m->sample);
    sample_copies_end(a->sample_copies, m->sample);
}

static void on_command(void *ctx, const Trainyard__V1__ControllerMessage *m) {
    struct agent *a = ctx;
    switch (m->message_case) {
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START: handle_start(a, m->start); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_RENDEZVOUS: handle_rendezvous(a, m->rendezvous); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP: handle_stop(a, m->stop); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_STEP: handle_stop_step(a, m->stop_step); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_COMMITTED: handle_committed(a, m->committed); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED:
        attempt_event(a, AGENT_EV_ACKNOWLEDGED, m->acknowledged->job, m->acknowledged->attempt);
        break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_SAMPLE: handle_start_sample(a, m->start_sample); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_SAMPLE: handle_stop_sample(a, m->stop_sample); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_CHECK: handle_start_check(a, m->start_check); break;
    case TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_CHECK:
        data_checks_stop(a->data_checks, m->stop_check->check);
        request_workers_stop(a->checks, m->stop_check->check);
        break;
    default: break; /* of a newer controller */
    }
}

static void on_attached(void *ctx) {
    struct agent *a = ctx;
    a->attached(a);
    agent_step(a, &(struct agent_event){ .kind = AGENT_EV_ATTACHED });
    report_stream_set_attached(a->report, true);
}

static void requests_stop(struct agent *a) {
    request_workers_stop_all(a->samples);
    request_workers_stop_all(a->checks);
    sample_copies_end_all(a->sample_copies);
    data_checks_stop_all(a->data_checks);
}

/* The requests for samples and checks ended with the stream, so their results have no receiver. */
static void on_detached(void *ctx) {
    struct agent *a = ctx;
    report_stream_set_attached(a->report, false);
    requests_stop(a);
}

static void hello_end(void *ctx, Trainyard__V1__AgentHello *hello) {
    (void)ctx;
    for (size_t i = 0; i < hello->n_attempts; i++) {
        struct attempt_status *s = (struct attempt_status *)hello->attempts[i]; /* its first member */
        attempt_status_done(s);
        free(s);
    }
    free(hello->attempts);
}

static void hello_begin(void *ctx, Trainyard__V1__AgentHello *hello) {
    struct agent *a = ctx;
    hello->n_devices = devices_list(a->devices, &hello->devices);
    for (const struct agent_attempt *at = agent_core_first(a->core); at; at = at->next) {
        struct attempt_status *s = alloc_zeroed(1, sizeof *s);
        attempt_status_init(s, at, &a->host, a->workers);
        if (!at->ended)
            s->message.end = NULL;
        hello->attempts = alloc_grow(hello->attempts, hello->n_attempts, sizeof *hello->attempts);
        hello->attempts[hello->n_attempts++] = &s->message;
    }
}

static bool on_is_known(void *ctx, int64_t job, int32_t attempt) {
    const struct agent *a = ctx;
    return agent_core_find(a->core, job, attempt) != NULL;
}

static void on_fenced(void *ctx, int64_t job, int32_t attempt) { attempt_event(ctx, AGENT_EV_FENCED, job, attempt); }

/* ---- from the workers ---- */

static void on_worker_event(void *ctx, struct agent_event *event) { agent_step(ctx, event); }

static void on_spooled(void *ctx, bool urgent) {
    struct agent *a = ctx;
    report_stream_wake(a->report, urgent);
}

static void on_code_ready(void *ctx, int64_t job, int32_t attempt, Trainyard__V1__CodeReady *ready) {
    const struct agent *a = ctx;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_CODE_READY;
    command.code_ready = ready;
    rank_workers_send(a->workers, job, attempt, &command);
    if (ready->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        environments_start(a->environments, job, attempt, ready->path);
}

static void on_environment(void *ctx, int64_t job, int32_t attempt, Trainyard__V1__EnvironmentReport *report) {
    const struct agent *a = ctx;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENVIRONMENT;
    command.environment = report;
    if (report->last)
        rank_workers_send(a->workers, job, attempt, &command);
    else
        rank_workers_send_first(a->workers, job, attempt, &command);
}

static void on_data(void *ctx, int64_t job, int32_t attempt, Trainyard__V1__DataReport *report) {
    const struct agent *a = ctx;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_DATA;
    command.data = report;
    if (report->last || report->n_objects > 0)
        rank_workers_send_all(a->workers, job, attempt, &command);
    else
        rank_workers_send_first(a->workers, job, attempt, &command);
}

static void on_shard_written(void *ctx, int64_t job, int32_t attempt, int32_t rank, int64_t step) {
    const struct agent *a = ctx;
    shard_uploads_start(a->uploads, job, attempt, rank, step);
}

/* To a rank, if it still runs. */
static void command_send(const struct agent *a, int64_t job, int32_t attempt, int32_t rank,
                         const Trainyard__V1__WorkerCommand *command) {
    const struct rank_worker *w = rank_workers_find(a->workers, job, attempt, rank);
    if (w && w->process && worker_process_send(w->process, command, NULL) != ST_OK)
        worker_process_kill(w->process, "did not read its commands and was killed");
}

static void on_shard_uploaded(void *ctx, int64_t job, int32_t attempt, int32_t rank,
                              Trainyard__V1__ShardUploaded *answer) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_SHARD_UPLOADED;
    command.shard_uploaded = answer;
    command_send(ctx, job, attempt, rank, &command);
}

static void on_encode_text(void *ctx, int64_t job, int32_t attempt, int32_t rank,
                           const Trainyard__V1__EncodeText *text) {
    const struct agent *a = ctx;
    text_encoders_start(a->encoders, job, attempt, rank, text);
}

static void on_text_encoded(void *ctx, int64_t job, int32_t attempt, int32_t rank, Trainyard__V1__TextEncoded *report) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_TEXT_ENCODED;
    command.text_encoded = report;
    command_send(ctx, job, attempt, rank, &command);
}

static void on_data_finding(void *ctx, int64_t check, Trainyard__V1__CheckFinding *finding) {
    const struct agent *a = ctx;
    spec_check_finding(a->checks, check, finding);
}

static void on_data_checked(void *ctx, const Trainyard__V1__StartCheck *start) {
    struct agent *a = ctx;
    if (*start->request->remove)
        spec_check_kind.send_last(a->control, start->check, ST_OK, "");
    else
        spec_check_start(a->checks, &a->host, start);
}

static void on_sample_ended(void *ctx, int64_t sample) {
    const struct agent *a = ctx;
    sample_copies_end(a->sample_copies, sample);
}

static void on_sample_copied(void *ctx, const Trainyard__V1__StartSample *start, const char *local,
                             const char *folder) {
    struct agent *a = ctx;
    text_sample_start(
        a->samples, &a->host, start,
        &(struct text_sample_copy){ .local = local, .folder = folder, .ended = on_sample_ended, .ctx = a });
}

static void on_sample_failed(void *ctx, int64_t sample, status_t st, const char *why) {
    const struct agent *a = ctx;
    text_sample_kind.send_last(a->control, sample, st, why);
}

/* ---- from the devices ---- */

static struct worker_process *process_on(const struct agent *a, int device) {
    const struct agent_attempt *at;
    const struct agent_rank *r = agent_core_rank_on(a->core, device, &at);
    struct rank_worker *w = r ? rank_workers_find(a->workers, at->job, at->attempt, r->rank) : NULL;
    return w ? w->process : NULL;
}

static int64_t on_rank_step(void *ctx, int device) {
    const struct worker_process *p = process_on(ctx, device);
    return p ? worker_process_step(p) : -1;
}

static void on_device_sample(void *ctx, int device, const Trainyard__V1__MetricRow *row) {
    struct worker_process *p = process_on(ctx, device);
    if (p)
        worker_process_sample(p, row);
}

static void on_device_unhealthy(void *ctx, int device, const char *reason) {
    agent_step(ctx, &(struct agent_event){ .kind = AGENT_EV_DEVICE_UNHEALTHY, .device = device, .text = reason });
}

static void on_device_inspected(void *ctx, int device) {
    agent_step(ctx, &(struct agent_event){ .kind = AGENT_EV_DEVICE_INSPECTED, .device = device });
}

/* ---- from the server of the cache ---- */

static void on_cache_changed(void *ctx) {
    const struct agent *a = ctx;
    control_stream_renew(a->control);
}

/* ---- from start to end ---- */

/* The goodbye is sent before the workers end, so that their jobs are not placed here again. */
static void stop_begin(struct agent *a, const char *event, const char *signal, bool drain) {
    log_event(LOG_INFO, event, "signal", LOG_STR(signal), "workers", LOG_INT(agent_core_ranks_open(a->core)), NULL);
    reactor_timer_cancel(a->host.loop, &a->restart);
    control_stream_goodbye(a->control, signal, drain);
    requests_stop(a);
    agent_step(a, &(struct agent_event){ .kind = drain ? AGENT_EV_DRAIN : AGENT_EV_LEAVE });
}

void agent_leave(struct agent *a, const char *signal) { stop_begin(a, "leaving", signal, false); }

void agent_drain(struct agent *a, const char *signal) { stop_begin(a, "draining", signal, true); }

status_t agent_reload(struct agent *a, struct err *e) {
    TRY(control_stream_reload(a->control, e));
    TRY(report_stream_reload(a->report, e));
    cache_server_reload(a->cache);
    return ST_OK;
}

void agent_restart(struct agent *a, const char *program, char **argv) {
    if (a->restart_program)
        return;
    a->restart_program = program;
    a->restart_argv = argv;
    a->restart_tries = 0;
    reactor_timer_set(a->host.loop, &a->restart, 0);
}

const struct host *agent_host(const struct agent *a) { return &a->host; }

/* GPUs that workers cannot use are not offered. The reason is shown in the same place as that of a missing driver. */
static void check_cuda_libraries(struct agent *a) {
    struct inventory *inv = &a->host.inventory;
    const struct agent_options *o = a->host.options;
    struct cuda_libraries found;
    struct err why;
    if (inv->n_devices == 0)
        return;
    if (cuda_libraries_check(o->worker, o->worker_user, o->library_path, CUDA_LIBRARIES_MAX_MS, &found, &why) ==
        ST_OK) {
        inv->devices_single_rank = found.single_rank;
        snprintf(inv->device_reason, sizeof inv->device_reason, "%s", found.without);
        return;
    }
    snprintf(inv->device_reason, sizeof inv->device_reason, "%d GPU%s, which workers cannot use: %.400s",
             inv->n_devices, inv->n_devices == 1 ? "" : "s", why.msg);
    inv->n_devices = 0;
    a->nvml = nvml_close(a->nvml);
}

static status_t spool_open_in(struct host *host, struct err *e) {
    char path[PATH_MAX];
    if (snprintf(path, sizeof path, "%s/spool", directory_path(host->directory)) >= (int)sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
    TRY(spool_open(path, host->options->spool_bytes, &host->spool, e));
    for (size_t i = 0; i < spool_count(host->spool); i++) {
        const char *damage = spool_log_damage(spool_at(host->spool, i));
        if (damage)
            log_event(LOG_ERROR, "spool_damaged", "message", LOG_STR(damage), NULL);
    }
    return ST_OK;
}

static void not_enforced_log(const char *sentence) {
    log_event(LOG_WARN, "not_enforced", "message", LOG_STR(sentence), NULL);
}

static void cgroups_open_for(struct host *host) {
    char record[PATH_MAX];
    const struct agent_options *o = host->options;
    snprintf(record, sizeof record, "%.4000s/control_groups", directory_path(host->directory));
    host->cgroups = cgroups_open(&(struct cgroups_options){ .loop = host->loop,
                                                            .id = directory_id(host->directory),
                                                            .record = record,
                                                            .memory_bytes = o->memory_bytes,
                                                            .cores = o->cores,
                                                            .keep = host->handed != NULL,
                                                            .same_user = !o->worker_user && !job_user_is_own(o) });
    const char *sentence = job_user_missing(o);
    if (sentence)
        not_enforced_log(sentence);
    for (size_t i = 0; (sentence = cgroups_missing(host->cgroups, i)); i++)
        not_enforced_log(sentence);
}

/* A rank is another user than the agent if it has one of its own. */
static void images_probe(struct host *host) {
    const struct agent_options *o = host->options;
    if (!o->allow_programs ||
        container_probe(o->worker_user || job_user_is_own(o), o->program, &host->no_images) == ST_OK)
        return;
    log_event(LOG_WARN, "no_images", "reason", LOG_STR(host->no_images.msg), NULL);
}

static status_t core_open(struct agent *a, struct err *e) {
    const struct inventory *inv = &a->host.inventory;
    struct agent_device devices[INVENTORY_DEVICES_MAX] = { { 0 } };
    for (int i = 0; i < inv->n_devices; i++) {
        devices[i].index = devices_index(a->devices, i);
        snprintf(devices[i].reason, sizeof devices[i].reason, "%s", devices_reason(a->devices, i));
    }
    const struct agent_core_config config = { .slots = inv->slots,
                                              .cores = inv->cores,
                                              .cpus = inv->cpus,
                                              .n_cpus = inv->n_cpus,
                                              .threads_per_rank = inv->threads_per_rank,
                                              .hang_ms = a->host.options->hang_ms,
                                              .n_devices = inv->n_devices,
                                              .devices = devices };
    Trainyard__V1__AttemptStatus **records;
    size_t n;
    a->core = agent_core_new(&config, clock_mono_ms());
    TRY(directory_attempts_read(a->host.directory, &records, &n, e));
    status_t st = ST_OK;
    for (size_t i = 0; i < n; i++) {
        if (st == ST_OK)
            st = agent_attempt_load(a, records[i], e);
        trainyard__v1__attempt_status__free_unpacked(records[i], NULL);
    }
    free(records);
    for (const struct agent_attempt *at = agent_core_first(a->core); at && st == ST_OK; at = at->next)
        st = agent_save_attempt(a, at, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "end the workers of an earlier agent: ");
}

static void on_measure(void *ctx, struct heartbeat_use *ret) {
    const struct agent *a = ctx;
    const struct data_copies_bytes data = data_copies_bytes(a->data);
    ret->data_store_bytes = data.store;
    ret->data_peer_bytes = data.peer;
    ret->data_cache_bytes = data.cache;
    ret->n_devices = devices_count(a->devices);
    for (int i = 0; i < ret->n_devices; i++) {
        ret->devices[i].index = devices_index(a->devices, i);
        ret->devices[i].sample = *devices_sample(a->devices, i);
    }
}

static status_t streams_open(struct agent *a, struct err *e) {
    const struct control_stream_owner control = { .ctx = a,
                                                  .hello_begin = hello_begin,
                                                  .hello_end = hello_end,
                                                  .measure = on_measure,
                                                  .attached = on_attached,
                                                  .command = on_command,
                                                  .detached = on_detached };
    const struct report_stream_owner report = { .ctx = a, .is_known = on_is_known, .fenced = on_fenced };
    TRY(control_stream_open(&a->host, &control, &a->control, e));
    TRY(report_stream_open(&a->host, &report, &a->report, e));
    a->samples = request_workers_new(&a->host, a->control, &text_sample_kind);
    a->checks = request_workers_new(&a->host, a->control, &spec_check_kind);
    return ST_OK;
}

/* The rank repeats it: a report that is dropped, because there is no stream, is only late. */
static void on_silent(void *ctx, const Trainyard__V1__RankSilent *silent) {
    struct agent *a = ctx;
    Trainyard__V1__RankSilent *report = (Trainyard__V1__RankSilent *)(uintptr_t)silent;
    control_stream_send(a->control, AGENT_MESSAGE(RANK_SILENT, rank_silent, report));
}

static status_t parts_open(struct agent *a, struct err *e) {
    const struct agent_options *o = a->host.options;
    const struct rank_workers_owner workers = {
        .ctx = a,
        .event = on_worker_event,
        .spooled = on_spooled,
        .silent = on_silent,
        .shard_written = on_shard_written,
        .encode_text = on_encode_text,
    };
    const struct devices_owner devices = { .ctx = a,
                                           .rank_step = on_rank_step,
                                           .sample = on_device_sample,
                                           .unhealthy = on_device_unhealthy,
                                           .inspected = on_device_inspected };
    inventory_take(&a->host.inventory, o->cores, o->slots, o->nvml, o->gpu_part, &a->nvml);
    check_cuda_libraries(a);
    TRY(directory_open(o->directory, &a->host.directory, e));
    a->host.peaks = peaks_open(o->directory);
    TRY(spool_open_in(&a->host, e));
    TRY(orphans_open(a->host.loop, &a->host.orphans, e));
    cgroups_open_for(&a->host);
    TRY(job_sandboxes_begin(&a->host, e));
    images_probe(&a->host);
    data_cache_open(&a->host);
    text_encoders_open_cache(&a->host);
    a->workers = rank_workers_new(&a->host, &workers);
    TRY(code_copies_open(&a->host, &(struct code_copies_owner){ .ctx = a, .ready = on_code_ready }, &a->code, e));
    a->data_checks = data_checks_new(
        &a->host, &(struct data_checks_owner){ .ctx = a, .finding = on_data_finding, .done = on_data_checked });
    shard_folders_begin(&a->host);
    a->sample_copies = sample_copies_new(
        &a->host, &(struct sample_copies_owner){ .ctx = a, .ready = on_sample_copied, .failed = on_sample_failed });
    a->uploads = shard_uploads_new(&a->host, &(struct shard_uploads_owner){ .ctx = a, .uploaded = on_shard_uploaded });
    a->encoders = text_encoders_new(&a->host, &(struct text_encoders_owner){ .ctx = a, .encoded = on_text_encoded });
    TRY(cache_server_open(&a->host, &(struct cache_server_owner){ .ctx = a, .changed = on_cache_changed }, &a->cache,
                          e));
    a->data = data_copies_new(&a->host, &(struct data_copies_owner){ .ctx = a, .report = on_data });
    a->environments = environments_new(&a->host, &(struct environments_owner){ .ctx = a, .report = on_environment });
    TRY(devices_open(&a->host, &a->nvml, &devices, &a->devices, e));
    TRY(core_open(a, e));
    return streams_open(a, e);
}

status_t agent_open(const struct agent_options *options, struct reactor *loop,
                    const Trainyard__Handover__Handover *handed, void (*attached)(const struct agent *a),
                    struct agent **ret, struct err *e) {
    CLEANUP(agent_closep) struct agent *a = alloc_zeroed(1, sizeof *a);
    a->host.options = options;
    a->host.loop = loop;
    a->host.handed = handed;
    a->attached = attached;
    a->tick = (struct reactor_timer){ .fire = agent_tick, .ctx = a };
    a->restart = (struct reactor_timer){ .fire = agent_restart_tick, .ctx = a };
    TRY(parts_open(a, e));
    orphans_kill(a->host.orphans); /* what the program before did not hand over */
    reactor_timer_set(loop, &a->tick, 0);
    *ret = take_ptr(&a);
    return ST_OK;
}

struct agent *agent_close(struct agent *a) {
    if (!a)
        return NULL;
    request_workers_free(a->samples);
    request_workers_free(a->checks);
    rank_workers_free(a->workers);
    environments_free(a->environments);
    cache_server_close(a->cache);
    data_copies_free(a->data);
    shard_uploads_free(a->uploads);
    text_encoders_free(a->encoders);
    data_checks_free(a->data_checks);
    sample_copies_free(a->sample_copies);
    code_copies_close(a->code);
    orphans_close(a->host.orphans);
    devices_close(a->devices);
    nvml_close(a->nvml);
    report_stream_close(a->report);
    control_stream_close(a->control);
    reactor_timer_cancel(a->host.loop, &a->tick);
    reactor_timer_cancel(a->host.loop, &a->restart);
    agent_core_free(a->core);
    agent_actions_done(&a->actions);
    cgroups_close(a->host.cgroups);
    spool_close(a->host.spool);
    peaks_close(a->host.peaks);
    directory_close(a->host.directory);
    free(a);
    return NULL;
}
