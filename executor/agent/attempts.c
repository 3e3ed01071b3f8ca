#include "executor/agent/attempts.h"

#include "base/clock.h"
#include "base/limits.h"
#include "executor/agent/attach.h"
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"
#include "executor/agent/devices.h"
#include "executor/agent/report.h"
#include "executor/agent/verdict.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LADDER_MS = 2000,    /* from TERM to KILL: a worker in a checkpoint's write gets out of it */
    STRANGER_MS = 10000, /* a killed process of an earlier agent is gone by then, or its host is ill */
    CHECK_MS = 1000,     /* how often progress is looked at */
    CHECK_LATE_MS = 500, /* this process itself was stopped: nobody else may be blamed for the time */
    LOOK_MOST_MS = 900,  /* a death is told within a second, whatever the driver does */
};

static struct attempt *attempt_find(const struct attempts *a, int64_t job, int32_t attempt) {
    for (struct attempt *at = a->first; at; at = at->next)
        if (at->job == job && at->attempt == attempt)
            return at;
    return NULL;
}

bool attempts_known(const struct attempts *a, int64_t job, int32_t attempt) { return attempt_find(a, job, attempt); }

size_t attempts_running(const struct attempts *a) {
    size_t n = 0;
    for (const struct attempt *at = a->first; at; at = at->next)
        for (size_t i = 0; i < at->n_ranks; i++)
            n += at->ranks[i].child != NULL;
    return n;
}

/* ---- the end of ranks and attempts ---- */

static void log_drop(struct rank *r) {
    if (!r->log)
        return;
    report_forget(r->attempt->owner->agent->report, r->log);
    spool_log_remove(r->log);
    r->log = NULL;
}

static void attempt_free(struct attempt *at) {
    for (size_t i = 0; i < at->n_ranks; i++) {
        struct rank *r = &at->ranks[i];
        reactor_timer_cancel(at->owner->agent->loop, &r->look);
        child_close(r->child);
        free(r->address.data);
        message_free(r->joined);
        message_free(r->word);
        message_free(r->end);
    }
    free(at->ranks);
    free(at);
}

static void attempt_remove(struct attempt *at) {
    struct attempts *a = at->owner;
    struct attempt **link = &a->first;
    while (*link != at)
        link = &(*link)->next;
    *link = at->next;
    directory_attempt_remove(a->agent->directory, at->job, at->attempt);
    attempt_free(at);
    report_sweep(a->agent->report);
}

/* All ranks are gone: tells it, and forgets the attempt when the controller has done so already. */
static void attempt_check_ended(struct attempt *at) {
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child || !at->ranks[i].end)
            return;
    at->ended = true;
    status_ignore(attempt_record(at, NULL));
    attempt_tell_ended(at);
    if (at->acknowledged)
        attempt_remove(at);
}

static void others_end(struct attempt *at) {
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child && !at->ranks[i].end)
            child_end(at->ranks[i].child, 0, LADDER_MS, "did not end after another rank's death and was killed");
}

/* r->end, from how the process ended (NULL: it never started) and its last word. */
static status_t rank_end_make(struct rank *r, const struct reaped *how, Trainyard__V1__WorkerEnd__Cause cause,
                              const char *sentence) {
    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT;
    end.rank = r->rank;
    end.exit_code = how ? how->exit_code : -1;
    end.signal = how ? how->signal : 0;
    end.cause = cause;
    end.message = (char *)(uintptr_t)sentence;
    end.last_sequence = r->log ? spool_log_last(r->log) : 0;
    end.time_us = r->ended_us ? r->ended_us : clock_wall_us();
    int64_t step = r->child ? child_step(r->child) : -1;
    end.step = r->word ? r->word->step : step < 0 ? 0 : step;
    if (r->word)
        end.weights_sha256 = r->word->weights_sha256;
    r->end = message_copy(&end.base);
    return r->end ? ST_OK : ST_RESOURCE_EXHAUSTED;
}

static void rank_verdict(const struct rank *r, struct verdict *ret) {
    const struct agent *agent = r->attempt->owner->agent;
    const struct verdict_facts facts = { .how = &r->how,
                                         .word = r->word,
                                         .killed_because = child_killed_because(r->child),
                                         .device = devices_index(agent->devices, r->device),
                                         .device_lost = r->device == DEVICE_NONE
                                                            ? NULL
                                                            : devices_reason(agent->devices, r->device),
                                         .leaving = r->left };
    verdict_reach(&facts, ret);
}

static void rank_judge(struct rank *r) {
    struct verdict v;
    rank_verdict(r, &v);
    if (!v.by_word)
        child_say(r->child, v.sentence);
    if (rank_end_make(r, &r->how, v.cause, v.sentence) != ST_OK)
        abort(); /* 200 bytes were refused: the next start tells the end from the directory's record */
    rank_tell_ended(r);
    status_ignore(attempt_record(r->attempt, NULL));
}

/* Judged and drained: the rank lets go of what it has. */
static void rank_settle(struct rank *r) {
    struct agent *agent = r->attempt->owner->agent;
    if (!r->end || !r->drained)
        return;
    r->end->last_sequence = r->log ? spool_log_last(r->log) : 0;
    r->child = child_close(r->child);
    devices_release(agent->devices, r->device);
    r->device = DEVICE_NONE;
    report_wake(agent->report, true);
    attempt_check_ended(r->attempt);
}

/* The driver may tell a GPU's death after that of the worker which died of it. The job is not to pay for it: before the
 * worker's end is judged, the device is looked at. */
static bool needs_look(const struct rank *r, const struct verdict *v) {
    const struct agent *agent = r->attempt->owner->agent;
    return r->device != DEVICE_NONE && !devices_reason(agent->devices, r->device) && !r->left &&
           v->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED &&
           v->cause != TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
}

static void rank_looked(struct rank *r) {
    if (!r->look.armed)
        return;
    reactor_timer_cancel(r->attempt->owner->agent->loop, &r->look);
    rank_judge(r);
    rank_settle(r);
}

static void look_fire(void *ctx) {
    struct rank *r = ctx;
    rank_judge(r);
    rank_settle(r);
}

static void rank_ended(void *ctx, const struct reaped *how, bool drained) {
    struct rank *r = ctx;
    struct agent *agent = r->attempt->owner->agent;
    r->drained = drained;
    if (!r->ended_us) {
        struct verdict v;
        r->how = *how;
        r->ended_us = clock_wall_us();
        r->left = agent->leaving;
        rank_verdict(r, &v);
        if (needs_look(r, &v)) {
            reactor_timer_set(agent->loop, &r->look, LOOK_MOST_MS);
            devices_look(agent->devices, r->device);
        } else {
            rank_judge(r);
        }
        if (v.cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED && !r->attempt->stopping)
            others_end(r->attempt);
    }
    rank_settle(r);
}

/* A rank that could not be started. */
static void rank_fail(struct rank *r, Trainyard__V1__WorkerEnd__Cause cause, const char *sentence) {
    devices_release(r->attempt->owner->agent->devices, r->device);
    r->device = DEVICE_NONE;
    if (rank_end_make(r, NULL, cause, sentence) != ST_OK)
        abort();
    rank_tell_ended(r);
}

/* ---- what a rank says ---- */

static void rank_moved(struct rank *r) { r->moved_ms = r->seen_ms = clock_mono_ms(); }

static void rank_address(struct rank *r, const ProtobufCBinaryData *address) {
    if (address->len > LIMIT_RENDEZVOUS_BYTES) {
        child_end(r->child, 0, 0, "offered an address that is too long and was killed");
        return;
    }
    uint8_t *copy = malloc(address->len + 1);
    if (!copy) {
        child_end(r->child, 0, 0, "was killed: its executor has no memory for its address");
        return;
    }
    if (address->len)
        memcpy(copy, address->data, address->len);
    free(r->address.data);
    r->address = (ProtobufCBinaryData){ .data = copy, .len = address->len };
    rank_tell_offer(r);
}

static void rank_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct rank *r = ctx;
    switch (record->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS:
        rank_moved(r);
        rank_address(r, &record->address->address);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED:
        rank_moved(r);
        message_free(r->joined);
        r->joined = message_copy(&record->joined->base);
        if (r->joined)
            rank_tell_ready(r);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ALIVE:
        r->seen_ms = clock_mono_ms();
        if (record->alive->progress != r->progress || record->alive->waiting_for_spool)
            rank_moved(r);
        r->progress = record->alive->progress;
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END:
        message_free(r->word);
        r->word = message_copy(&record->end->base);
        break;
    default: break;
    }
}

static void rank_spooled(void *ctx, bool urgent) {
    struct rank *r = ctx;
    report_wake(r->attempt->owner->agent->report, urgent);
}

/* ---- hangs ---- */

static void rank_check(struct rank *r, int64_t now) {
    int silent_ms = r->attempt->owner->agent->options->hang_ms, still_ms = silent_ms + HANG_WAITING_MS;
    char why[120];
    if (child_waiting(r->child)) {
        rank_moved(r);
        return;
    }
    if (now - r->seen_ms >= silent_ms)
        snprintf(why, sizeof why, "gave no sign of life for %d s and was killed", silent_ms / 1000);
    else if (now - r->moved_ms >= still_ms)
        snprintf(why, sizeof why,
                 "made no progress for %d s and was killed; --hang-timeout of its executor allows more",
                 still_ms / 1000);
    else
        return;
    child_end(r->child, 0, 0, why);
}

static void check_fire(void *ctx) {
    struct attempts *a = ctx;
    int64_t now = clock_mono_ms(), late = now - a->checked_ms - CHECK_MS;
    a->checked_ms = now;
    reactor_timer_set(a->agent->loop, &a->check, CHECK_MS);
    for (struct attempt *at = a->first; at; at = at->next)
        for (size_t i = 0; i < at->n_ranks; i++) {
            struct rank *r = &at->ranks[i];
            if (!r->child || r->ended_us)
                continue;
            if (late > CHECK_LATE_MS) {
                r->seen_ms += late;
                r->moved_ms += late;
            }
            rank_check(r, now);
        }
}

/* ---- start ---- */

static bool is_cuda(const Trainyard__V1__StartAttempt *start) {
    const Trainyard__V1__ResourcesSpec *resources = start->spec->resources;
    return resources && resources->accelerator && strcmp(resources->accelerator, "cuda") == 0;
}

static status_t rank_spawn(struct rank *r, bool cuda, struct err *e) {
    struct agent *agent = r->attempt->owner->agent;
    struct spool_key key = { r->attempt->job, r->attempt->attempt, r->rank };
    if (cuda)
        TRY(devices_take(agent->devices, &r->device, e));
    TRY(spool_log_open(agent->spool, &key, &r->log, e));
    char parent[16];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *argv[] = { agent->options->worker, "--agent-pid", parent, NULL };
    struct child_options options = {
        .loop = agent->loop,
        .spool = agent->spool,
        .log = r->log,
        .spawn = { .program = agent->options->worker,
                   .argv = argv,
                   .threads = agent->inventory.threads_per_rank,
                   .device = cuda ? devices_uuid(agent->devices, r->device) : NULL,
                   .library_path = agent->options->library_path },
        .owner = { .ctx = r, .record = rank_record, .spooled = rank_spooled, .ended = rank_ended },
    };
    TRY(child_open(&options, &r->child, e));
    r->pid = child_pid(r->child);
    r->start_time = child_start_time(r->child);
    rank_moved(r);
    return ST_OK;
}

static status_t rank_send_start(struct rank *r, const Trainyard__V1__StartAttempt *start, struct err *e) {
    struct agent *agent = r->attempt->owner->agent;
    Trainyard__V1__WorkerStart s = TRAINYARD__V1__WORKER_START__INIT;
    s.job = start->job;
    s.attempt = start->attempt;
    s.rank = r->rank;
    s.world_size = start->world_size;
    s.spec = start->spec;
    s.checkpoint_directory = start->checkpoint_directory;
    s.resume_directory = start->resume_directory;
    s.resume_checkpoint = start->resume_checkpoint;
    s.init_directory = start->init_directory;
    s.forked = start->forked;
    s.threads = agent->inventory.threads_per_rank;
    s.hang_ms = agent->options->hang_ms;
    s.address = (char *)(uintptr_t)agent->options->address;
    s.n_data_roots = agent->options->n_data_roots;
    s.data_roots = (char **)(uintptr_t)agent->options->data_roots;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_START;
    command.start = &s;
    return child_send(r->child, &command, e);
}

static status_t attempt_spawn(struct attempt *at, const Trainyard__V1__StartAttempt *start, struct err *e) {
    const struct agent *agent = at->owner->agent;
    if (agent->leaving)
        return err_set(e, ST_UNAVAILABLE, "the executor was told to leave");
    if (!start->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "the start has no spec");
    const bool cuda = is_cuda(start); /* as many as there are devices, which devices_take counts */
    if (!cuda && start->n_ranks > (size_t)agent->inventory.slots)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%zu ranks were to start on a host of %d slots", start->n_ranks,
                       agent->inventory.slots);
    /* Ranks of an attempt that is being ended may still die beside those of its successor: twice the slots, no more. */
    if (!cuda && attempts_running(at->owner) + start->n_ranks > 2 * (size_t)agent->inventory.slots)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%zu workers still run on this host of %d slots",
                       attempts_running(at->owner), agent->inventory.slots);
    for (size_t i = 0; i < at->n_ranks; i++)
        TRY(rank_spawn(&at->ranks[i], cuda, e));
    TRY(attempt_record(at, e));
    for (size_t i = 0; i < at->n_ranks; i++)
        TRY(rank_send_start(&at->ranks[i], start, e));
    return ST_OK;
}

static struct attempt *attempt_new(struct attempts *a, int64_t job, int32_t number, int32_t world_size, size_t n) {
    struct attempt *at = calloc(1, sizeof *at);
    if (!at)
        return NULL;
    at->ranks = calloc(n + 1, sizeof *at->ranks);
    if (!at->ranks) {
        free(at);
        return NULL;
    }
    at->owner = a;
    at->job = job;
    at->attempt = number;
    at->world_size = world_size;
    at->n_ranks = n;
    for (size_t i = 0; i < n; i++) {
        at->ranks[i].attempt = at;
        at->ranks[i].device = DEVICE_NONE;
        at->ranks[i].look = (struct reactor_timer){ .fire = look_fire, .ctx = &at->ranks[i] };
    }
    at->next = a->first;
    a->first = at;
    return at;
}

void attempts_start(struct attempts *a, const Trainyard__V1__StartAttempt *start) {
    struct attempt *at = attempt_find(a, start->job, start->attempt);
    if (at) {
        if (at->ended)
            attempt_tell_ended(at);
        return;
    }
    at = attempt_new(a, start->job, start->attempt, start->world_size, start->n_ranks);
    if (!at)
        return; /* the controller's start deadline speaks: there is no memory to answer with */
    for (size_t i = 0; i < at->n_ranks; i++)
        at->ranks[i].rank = start->ranks[i];
    struct err why;
    if (attempt_spawn(at, start, &why) == ST_OK) {
        for (size_t i = 0; i < at->n_ranks; i++)
            rank_tell_started(&at->ranks[i]);
        return;
    }
    at->stopping = true;
    for (size_t i = 0; i < at->n_ranks; i++) {
        struct rank *r = &at->ranks[i];
        if (r->child)
            child_end(r->child, 0, 0, "was killed because its attempt could not be started");
        else
            rank_fail(r, TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL, why.msg);
    }
    attempt_check_ended(at);
}

/* ---- devices ---- */

static struct rank *rank_on(const struct attempts *a, int device) {
    for (const struct attempt *at = a->first; at; at = at->next)
        for (size_t i = 0; i < at->n_ranks; i++)
            if (at->ranks[i].device == device && at->ranks[i].child)
                return &at->ranks[i];
    return NULL;
}

int64_t attempts_device_step(const struct attempts *a, int device) {
    const struct rank *r = rank_on(a, device);
    return r ? child_step(r->child) : -1;
}

void attempts_device_sample(struct attempts *a, int device, const Trainyard__V1__MetricRow *row) {
    struct rank *r = rank_on(a, device);
    if (r)
        child_sample(r->child, row);
}

void attempts_device_lost(struct attempts *a, int device, const char *reason) {
    struct rank *r = rank_on(a, device);
    char why[120];
    snprintf(why, sizeof why, "was killed because its GPU is quarantined: %s", reason);
    if (r && !r->end)
        child_end(r->child, 0, 0, why);
    if (r)
        rank_looked(r);
}

void attempts_device_looked(struct attempts *a, int device) {
    struct rank *r = rank_on(a, device);
    if (r)
        rank_looked(r);
}

/* ---- the controller's other commands ---- */

/* A queue that is full, or no memory: the worker does not read, which the hang check ends. */
static void attempt_send(struct attempt *at, const Trainyard__V1__WorkerCommand *command) {
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child)
            status_ignore(child_send(at->ranks[i].child, command, NULL));
}

void attempts_rendezvous(struct attempts *a, const Trainyard__V1__AttemptRendezvous *rendezvous) {
    struct attempt *at = attempt_find(a, rendezvous->job, rendezvous->attempt);
    if (!at || !rendezvous->rendezvous)
        return;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS;
    command.rendezvous = rendezvous->rendezvous;
    attempt_send(at, &command);
}

void attempts_committed(struct attempts *a, const Trainyard__V1__AttemptCommitted *committed) {
    struct attempt *at = attempt_find(a, committed->job, committed->attempt);
    if (!at || !committed->checkpoint)
        return;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECKPOINT_COMMITTED;
    command.checkpoint_committed = committed->checkpoint;
    attempt_send(at, &command);
}

/* A word first, TERM in the middle of the grace, KILL at its end. */
static void attempt_stop(struct attempt *at, int grace_ms, const char *reason) {
    at->stopping = true;
    Trainyard__V1__WorkerStop stop = TRAINYARD__V1__WORKER_STOP__INIT;
    stop.reason = (char *)(uintptr_t)reason;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP;
    command.stop = &stop;
    if (grace_ms > 0)
        attempt_send(at, &command);
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child)
            child_end(at->ranks[i].child, grace_ms / 2, grace_ms, "did not stop in time and was killed");
}

void attempts_stop(struct attempts *a, const Trainyard__V1__StopAttempt *stop) {
    struct attempt *at = attempt_find(a, stop->job, stop->attempt);
    if (at && !at->ended) {
        attempt_stop(at, stop->grace_ms > 0 ? stop->grace_ms : 0, stop->reason);
    } else if (at) {
        attempt_tell_ended(at);
    } else {
        Trainyard__V1__AttemptEnded ended = TRAINYARD__V1__ATTEMPT_ENDED__INIT;
        ended.job = stop->job;
        ended.attempt = stop->attempt;
        Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
        m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_ATTEMPT_ENDED;
        m.attempt_ended = &ended;
        attach_send(a->agent->attach, &m);
    }
}

void attempts_leave(struct attempts *a) {
    for (struct attempt *at = a->first; at; at = at->next) {
        at->stopping = true;
        for (size_t i = 0; i < at->n_ranks; i++)
            if (at->ranks[i].child)
                child_end(at->ranks[i].child, 0, LADDER_MS, NULL);
    }
}

static void attempt_kill(struct attempt *at, const char *why) {
    at->stopping = true;
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child)
            child_end(at->ranks[i].child, 0, 0, why);
}

void attempts_acknowledged(struct attempts *a, int64_t job, int32_t attempt) {
    struct attempt *at = attempt_find(a, job, attempt);
    if (!at)
        return;
    at->acknowledged = true;
    if (at->ended)
        attempt_remove(at);
    else
        attempt_kill(at, "was killed because the controller has closed its attempt");
}

void attempts_fenced(struct attempts *a, int64_t job, int32_t attempt) {
    struct attempt *at = attempt_find(a, job, attempt);
    if (!at)
        return;
    attempt_kill(at, "was killed because its attempt is over");
    for (size_t i = 0; i < at->n_ranks; i++) {
        if (at->ranks[i].child)
            child_discard(at->ranks[i].child);
        log_drop(&at->ranks[i]);
    }
}

/* ---- a start on what an earlier agent left ---- */

static status_t rank_recover(struct rank *r, const Trainyard__V1__RankStatus *status,
                             const Trainyard__V1__AttemptEnded *known, struct err *e) {
    struct spool_key key = { r->attempt->job, r->attempt->attempt, status->rank };
    r->rank = status->rank;
    r->pid = status->pid;
    r->start_time = status->pid_start_time;
    r->log = spool_log_find(r->attempt->owner->agent->spool, &key);
    for (size_t i = 0; known && i < known->n_ranks && !r->end; i++)
        if (known->ranks[i]->rank == r->rank)
            r->end = message_copy(&known->ranks[i]->base);
    if (r->end) {
        if (r->log)
            r->end->last_sequence = spool_log_last(r->log);
        return ST_OK;
    }
    if (r->pid > 0)
        TRY(reap_stranger(r->pid, r->start_time, STRANGER_MS, e));
    struct reaped how = { .exit_code = -1, .signal = SIGKILL };
    if (rank_end_make(r, &how, TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST, "died with its executor's agent") != ST_OK)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a rank's end");
    return ST_OK;
}

static status_t attempt_recover(struct attempts *a, const Trainyard__V1__AttemptStatus *status, struct err *e) {
    struct attempt *at = attempt_new(a, status->job, status->attempt, status->world_size, status->n_ranks);
    if (!at)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an attempt");
    for (size_t i = 0; i < at->n_ranks; i++)
        TRY(rank_recover(&at->ranks[i], status->ranks[i], status->end, e));
    at->ended = true;
    return attempt_record(at, e);
}

status_t attempts_open(struct agent *agent, struct attempts **ret, struct err *e) {
    CLEANUP(attempts_closep) struct attempts *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the attempts");
    a->agent = agent;
    a->check = (struct reactor_timer){ .fire = check_fire, .ctx = a };
    a->checked_ms = clock_mono_ms();
    Trainyard__V1__AttemptStatus **list;
    size_t n;
    TRY(directory_attempts_read(agent->directory, &list, &n, e));
    status_t st = ST_OK;
    for (size_t i = 0; i < n; i++) {
        if (st == ST_OK)
            st = attempt_recover(a, list[i], e);
        message_free(list[i]);
    }
    free(list);
    if (st != ST_OK)
        return err_prefix(e, st, "end the workers of an earlier agent: ");
    reactor_timer_set(agent->loop, &a->check, CHECK_MS);
    *ret = take_ptr(&a);
    return ST_OK;
}

struct attempts *attempts_close(struct attempts *a) {
    if (!a)
        return NULL;
    reactor_timer_cancel(a->agent->loop, &a->check);
    while (a->first) {
        struct attempt *at = a->first;
        a->first = at->next;
        attempt_free(at);
    }
    free(a);
    return NULL;
}
