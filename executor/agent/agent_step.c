/* Carries out the core's actions: one function for each kind of action that needs more than one call.
 *
 * agent_step is the only function that steps the core. It passes the event, does the actions in their order, and sets
 * one timer to the core's next deadline. An action may lead to further events before it returns: SPAWN answers with
 * SPAWNED for each rank and then STARTED or START_FAILED; REMOVE answers with REMOVED. Their actions are appended to
 * the same list, so the order of reports is the order of decisions. */
#include "base/clock.h"
#include "base/log.h"
#include "executor/agent/agent_state.h"
#include "executor/agent/attempt_messages.h"
#include "executor/agent/pinning.h"
#include "executor/agent/shard_folders.h"

status_t agent_save_attempt(const struct agent *a, const struct agent_attempt *at, struct err *e) {
    struct attempt_status s;
    attempt_status_init(&s, at, &a->host, a->workers);
    status_t st = directory_attempt_write(a->host.directory, &s.message, e);
    attempt_status_done(&s);
    return st;
}

static void log_drop(struct agent *a, const struct agent_action *act) {
    const struct spool_key key = { act->job, act->attempt, act->rank };
    struct spool_log *log = spool_log_find(a->host.spool, &key);
    if (!log)
        return;
    report_stream_forget(a->report, log);
    spool_log_remove(log);
}

/* A rank that cannot be bound to its CPUs runs wherever the kernel places it. */
static void worker_pin(const struct rank_worker *w, const struct cpu_mask *cpus) {
    static bool reported;
    struct err why;
    if (process_pin(worker_process_pid(w->process), cpus, &why) == ST_OK || reported)
        return;
    reported = true;
    log_event(LOG_WARN, "not_pinned", "reason", LOG_STR(why.msg), NULL);
}

/* ---- start ---- */

static status_t rank_spawn(struct agent *a, const struct agent_attempt *at, const struct agent_rank *r,
                           const Trainyard__V1__JobSpec *spec, struct err *e) {
    const struct agent_action log = { .job = at->job, .attempt = at->attempt, .rank = r->rank };
    struct rank_worker *w;
    log_drop(a, &log); /* left by an attempt of this number that the controller's database no longer has */
    if (r->device != AGENT_NO_DEVICE)
        devices_rank_starts(a->devices, r->device);
    TRY(rank_workers_spawn(a->workers, at, r, spec,
                           r->device == AGENT_NO_DEVICE ? NULL : devices_uuid(a->devices, r->device), &w, e));
    worker_pin(w, &r->cpus);
    struct agent_event ev = { .kind = AGENT_EV_SPAWNED, .job = at->job, .attempt = at->attempt, .rank = r->rank };
    ev.pid = worker_process_pid(w->process);
    ev.pid_start_time = worker_process_start_time(w->process);
    agent_step(a, &ev);
    return ST_OK;
}

/* The pids are written to the directory before a worker gets its order, so that the next agent knows every worker even
 * if this agent is killed. */
static status_t attempt_spawn(struct agent *a, const struct agent_attempt *at, const Trainyard__V1__AttemptStart *order,
                              struct err *e) {
    TRY(shard_folders_make(&a->host, order, e));
    shard_uploads_add(a->uploads, order);
    for (size_t i = 0; i < at->n_ranks; i++)
        TRY(rank_spawn(a, at, &at->ranks[i], order->spec, e));
    TRY(agent_save_attempt(a, at, e));
    for (size_t i = 0; i < at->n_ranks; i++) {
        struct rank_worker *w = rank_workers_find(a->workers, at->job, at->attempt, at->ranks[i].rank);
        TRY(rank_worker_send_start(w, at, order, e));
    }
    const Trainyard__V1__ProgramSpec *program = order->spec->program;
    TRY(data_copies_start(a->data, order, e));
    if (program && environments_needed(program))
        TRY(environments_add(a->environments, at->job, at->attempt, program, e));
    if (program && program->code && program->code->archive)
        return code_copies_start(a->code, at->job, at->attempt, program->code->archive, e);
    environments_start(a->environments, at->job, at->attempt, "");
    return ST_OK;
}

static void do_spawn(struct agent *a, const struct agent_action *act) {
    struct err why;
    struct agent_event ev = { .job = act->job, .attempt = act->attempt, .text = why.msg };
    const bool started = attempt_spawn(a, agent_core_find(a->core, act->job, act->attempt), act->order, &why) == ST_OK;
    ev.kind = started ? AGENT_EV_STARTED : AGENT_EV_START_FAILED;
    agent_step(a, &ev);
}

/* ---- to a worker ---- */

static void order_send(struct rank_worker *w, const Trainyard__V1__WorkerCommand *command) {
    /* The queue is full: the worker does not read, and the hang check will find it. */
    status_ignore(worker_process_send(w->process, command, NULL));
}

static void do_order_stop(struct rank_worker *w, const struct agent_action *act) {
    Trainyard__V1__WorkerStop stop = TRAINYARD__V1__WORKER_STOP__INIT;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    stop.reason = (char *)(uintptr_t)act->text;
    stop.grace_ms = act->grace_ms;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP;
    command.stop = &stop;
    order_send(w, &command);
}

static void do_order_threads(struct rank_worker *w, const struct agent_action *act) {
    Trainyard__V1__WorkerThreads threads = TRAINYARD__V1__WORKER_THREADS__INIT;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    worker_pin(w, &act->cpus);
    threads.threads = act->threads;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_THREADS;
    command.threads = &threads;
    order_send(w, &command);
}

static void do_worker(struct agent *a, const struct agent_action *act) {
    struct rank_worker *w = rank_workers_find(a->workers, act->job, act->attempt, act->rank);
    if (!w || !w->process)
        return;
    switch (act->kind) {
    case AGENT_ACT_ORDER_STOP: do_order_stop(w, act); break;
    case AGENT_ACT_ORDER_THREADS: do_order_threads(w, act); break;
    case AGENT_ACT_TERM: worker_process_terminate(w->process); break;
    case AGENT_ACT_KILL: worker_process_kill(w->process, act->text); break;
    case AGENT_ACT_LOG: worker_process_log_line(w->process, act->text); break;
    case AGENT_ACT_DISCARD: worker_process_discard(w->process); break;
    default: /* AGENT_ACT_CLOSE */ w->process = worker_process_close(w->process); report_stream_wake(a->report, true);
    }
}

/* ---- to the rest ---- */

static void do_report(struct agent *a, const struct agent_action *act) {
    const struct attempt_reporter p = { .host = &a->host, .stream = a->control, .workers = a->workers };
    const struct agent_attempt *at = agent_core_find(a->core, act->job, act->attempt);
    const struct agent_rank *r = agent_core_find_rank(a->core, act->job, act->attempt, act->rank);
    switch (act->kind) {
    case AGENT_ACT_REPORT_STARTED: report_rank_started(&p, at, r); break;
    case AGENT_ACT_REPORT_ADDRESS: report_rank_address(&p, at, r); break;
    case AGENT_ACT_REPORT_JOINED: report_rank_joined(&p, at, r); break;
    case AGENT_ACT_REPORT_STOP_STEP: report_rank_stop_step(&p, at, r); break;
    case AGENT_ACT_REPORT_THREADS: report_rank_threads(&p, at, r); break;
    case AGENT_ACT_REPORT_ENDED: report_rank_ended(&p, at, r); break;
    default: report_attempt_ended(&p, act->job, act->attempt, at);
    }
}

static void do_remove(struct agent *a, const struct agent_action *act) {
    struct agent_event ev = { .kind = AGENT_EV_REMOVED, .job = act->job, .attempt = act->attempt };
    directory_attempt_remove(a->host.directory, act->job, act->attempt);
    rank_workers_remove(a->workers, act->job, act->attempt);
    environments_remove(a->environments, act->job, act->attempt);
    data_copies_remove(a->data, act->job, act->attempt);
    shard_uploads_remove(a->uploads, act->job, act->attempt);
    text_encoders_remove(a->encoders, act->job, act->attempt);
    shard_folders_remove(&a->host, act->job, act->attempt);
    code_copies_remove(a->code, act->job, act->attempt);
    agent_step(a, &ev);
    report_stream_sweep(a->report);
}

static void do_quarantine(struct agent *a, const struct agent_action *act) {
    Trainyard__V1__DevicesChanged changed = TRAINYARD__V1__DEVICES_CHANGED__INIT;
    devices_quarantine(a->devices, act->device, act->text);
    changed.n_devices = devices_list(a->devices, &changed.devices);
    control_stream_send(a->control, AGENT_MESSAGE(DEVICES_CHANGED, devices_changed, &changed));
}

static void do_action(struct agent *a, const struct agent_action *act) {
    switch (act->kind) {
    case AGENT_ACT_SPAWN: do_spawn(a, act); break;
    case AGENT_ACT_DISCARD:
        do_worker(a, act);
        log_drop(a, act);
        break;
    case AGENT_ACT_SAVE:
        status_ignore(agent_save_attempt(a, agent_core_find(a->core, act->job, act->attempt), NULL));
        break;
    case AGENT_ACT_REMOVE: do_remove(a, act); break;
    case AGENT_ACT_INSPECT: devices_inspect(a->devices, act->device); break;
    case AGENT_ACT_QUARANTINE: do_quarantine(a, act); break;
    case AGENT_ACT_END_STREAM: control_stream_end(a->control); break;
    case AGENT_ACT_EXIT: reactor_quit(a->host.loop); break;
    case AGENT_ACT_REPORT_STARTED:
    case AGENT_ACT_REPORT_ADDRESS:
    case AGENT_ACT_REPORT_JOINED:
    case AGENT_ACT_REPORT_STOP_STEP:
    case AGENT_ACT_REPORT_THREADS:
    case AGENT_ACT_REPORT_ENDED:
    case AGENT_ACT_REPORT_ATTEMPT_ENDED: do_report(a, act); break;
    default: do_worker(a, act);
    }
}

void agent_step(struct agent *a, struct agent_event *event) {
    event->wall_us = clock_wall_us();
    agent_core_step(a->core, event, clock_mono_ms(), &a->actions);
    if (a->acting)
        return;
    a->acting = true;
    for (size_t i = 0; i < a->actions.n; i++) {
        const struct agent_action act = a->actions.items[i]; /* the list may grow and move */
        do_action(a, &act);
    }
    a->actions.n = 0;
    a->acting = false;
    const int64_t left_ms = agent_core_deadline_ms(a->core) - clock_mono_ms();
    reactor_timer_set(a->host.loop, &a->tick, left_ms > 0 ? left_ms : 0);
}

void agent_tick(void *ctx) {
    struct agent *a = ctx;
    struct agent_event ev = { .kind = AGENT_EV_TICK };
    ev.uploaded = report_stream_drained(a->report) || !control_stream_attached(a->control);
    ev.stream_ended = control_stream_ended(a->control);
    agent_step(a, &ev);
}
