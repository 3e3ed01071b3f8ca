/* The controller's commands, but the start. */
#include "executor/agent/attach.h"
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"
#include "executor/agent/report.h"

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

/* A word first; KILL at the end of the grace, and TERM shortly before: whoever writes a checkpoint has the rest for it.
 * A second stop may end sooner, never later. */
static void attempt_stop(struct attempt *at, int grace_ms, const char *reason) {
    at->stopping = true;
    Trainyard__V1__WorkerStop stop = TRAINYARD__V1__WORKER_STOP__INIT;
    stop.reason = (char *)(uintptr_t)reason;
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP;
    command.stop = &stop;
    if (grace_ms > 0)
        attempt_send(at, &command);
    const int ladder_ms = grace_ms / 2 < LADDER_MS ? grace_ms / 2 : LADDER_MS;
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child)
            child_end(at->ranks[i].child, grace_ms - ladder_ms, grace_ms, "did not stop in time and was killed");
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

static void log_drop(struct rank *r) {
    if (!r->log)
        return;
    report_forget(r->attempt->owner->agent->report, r->log);
    spool_log_remove(r->log);
    r->log = NULL;
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
