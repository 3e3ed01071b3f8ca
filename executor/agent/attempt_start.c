/* The ranks of an attempt are started. */
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"
#include "executor/agent/devices.h"
#include "executor/agent/worker.h"

#include <string.h>

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
    const char *device = cuda ? devices_uuid(agent->devices, r->device) : NULL;
    const struct child_owner owner = { .ctx = r, .record = rank_record, .spooled = rank_spooled, .ended = rank_ended };
    TRY(worker_open(agent, r->log, device, &owner, &r->child, e));
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
