/* The agent waits for a moment in which nothing is under way but ranks that run. Then it packs what the other program
 * cannot read from the directory, and executes it. Streams are not closed first: exec ends them, which is like any
 * break of a stream for the controller. What the agent has not yet read stays in the pipes of the ranks, and what it
 * has read is in the spool or in the state.
 *
 * Processes that serve a request, and the server of the cache, are not handed over: the new agent finds them as orphans
 * and kills them. */
#include "executor/agent/agent_restart.h"

#include "base/alloc.h"
#include "base/log.h"
#include "executor/agent/attempt_messages.h"

#include <stdlib.h>
#include <string.h>

enum {
    AGAIN_MS = 20,
    LOGGED_AFTER = 250, /* of these pauses */
    AGAIN_LATER_MS = 500,
};

/* ---- what is handed over ---- */

static Trainyard__Handover__HandedRank *rank_new(const struct agent *a, const struct agent_rank *r) {
    Trainyard__Handover__HandedRank *h = alloc_zeroed(1, sizeof *h);
    trainyard__handover__handed_rank__init(h);
    h->process = alloc_zeroed(1, sizeof *h->process);
    h->joined = r->joined;
    h->progress = r->progress;
    h->cpus = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)&r->cpus, .len = sizeof r->cpus };
    if (r->device != AGENT_NO_DEVICE)
        h->device = (char *)(uintptr_t)devices_uuid(a->devices, r->device);
    return h;
}

static bool attempt_add(const struct agent *a, const struct agent_attempt *at, Trainyard__Handover__Handover *to) {
    Trainyard__Handover__HandedAttempt *h = alloc_zeroed(1, sizeof *h);
    bool good = true;
    trainyard__handover__handed_attempt__init(h);
    h->job = at->job;
    h->attempt = at->attempt;
    h->threads = at->threads;
    h->max_threads = at->max_threads;
    h->pinned = at->pinned;
    to->attempts = alloc_grow(to->attempts, to->n_attempts, sizeof *to->attempts);
    to->attempts[to->n_attempts++] = h;
    for (const struct agent_rank *r = at->ranks; r < at->ranks + at->n_ranks; r++) {
        const struct rank_worker *w = rank_workers_find(a->workers, at->job, at->attempt, r->rank);
        if (r->state != AGENT_RANK_RUNS)
            continue;
        h->ranks = alloc_grow(h->ranks, h->n_ranks, sizeof *h->ranks);
        h->ranks[h->n_ranks] = rank_new(a, r);
        good &= rank_worker_hand_over(w, h->ranks[h->n_ranks++]);
    }
    return good;
}

/* What the messages borrow is not freed. */
static void state_done(Trainyard__Handover__Handover *h) {
    for (size_t i = 0; i < h->n_attempts; i++) {
        for (size_t k = 0; k < h->attempts[i]->n_ranks; k++) {
            free(h->attempts[i]->ranks[k]->join.data);
            free(h->attempts[i]->ranks[k]->process);
            free(h->attempts[i]->ranks[k]);
        }
        free(h->attempts[i]->ranks);
        free(h->attempts[i]);
    }
    free(h->attempts);
    for (size_t i = 0; i < h->n_code; i++)
        trainyard__handover__handed_code__free_unpacked(h->code[i], NULL);
    free(h->code);
}

static bool state_fill(const struct agent *a, Trainyard__Handover__Handover *h) {
    bool good = agent_core_is_quiet(a->core) && environments_is_empty(a->environments) &&
                data_copies_is_empty(a->data) && shard_uploads_is_empty(a->uploads) &&
                text_encoders_is_empty(a->encoders);
    h->version = HANDOVER_VERSION;
    for (const struct agent_attempt *at = agent_core_first(a->core); at && good; at = at->next)
        good = at->ended || attempt_add(a, at, h);
    return good && code_copies_hand_over(a->code, h);
}

static void later(struct agent *a) {
    if (a->restart_tries++ == LOGGED_AFTER)
        log_event(
            LOG_INFO, "restart_waits", "message",
            LOG_STR("the agent executes its program again when no rank is about to end or waits for the spool, no "
                    "code is being copied, and no attempt has a Python environment, remote data or checkpoints "
                    "in a store"),
            NULL);
    reactor_timer_set(a->host.loop, &a->restart, a->restart_tries <= LOGGED_AFTER ? AGAIN_MS : AGAIN_LATER_MS);
}

void agent_restart_tick(void *ctx) {
    struct agent *a = ctx;
    struct err why;
    Trainyard__Handover__Handover state = TRAINYARD__HANDOVER__HANDOVER__INIT;
    const bool quiet = state_fill(a, &state);
    if (quiet) {
        log_event(LOG_INFO, "restarting", "program", LOG_STR(a->restart_program), "workers",
                  LOG_INT(agent_core_ranks_open(a->core)), NULL);
        status_ignore(handover_exec(a->restart_program, a->restart_argv, &state, &why));
        log_event(LOG_ERROR, "not_restarted", "reason", LOG_STR(why.msg), NULL);
        a->restart_program = NULL;
    }
    state_done(&state);
    if (!quiet)
        later(a);
}

/* ---- what was handed over ---- */

static status_t device_find(const struct agent *a, const char *uuid, int *ret, struct err *e) {
    for (*ret = 0; *ret < devices_count(a->devices); ++*ret)
        if (strcmp(devices_uuid(a->devices, *ret), uuid) == 0)
            return ST_OK;
    return err_set(e, ST_NOT_FOUND, "the GPU %s of a rank is no longer there", uuid);
}

static status_t rank_load(const struct agent *a, const Trainyard__Handover__HandedRank *from, struct agent_rank *ret,
                          struct err *e) {
    *ret = (struct agent_rank){ .rank = from->rank,
                                .state = AGENT_RANK_RUNS,
                                .device = AGENT_NO_DEVICE,
                                .joined = from->joined,
                                .progress = from->progress };
    if (from->cpus.len == sizeof ret->cpus)
        memcpy(&ret->cpus, from->cpus.data, sizeof ret->cpus);
    if (!*from->device)
        return ST_OK;
    TRY(device_find(a, from->device, &ret->device, e));
    devices_rank_starts(a->devices, ret->device);
    return ST_OK;
}

status_t agent_attempt_load(struct agent *a, const Trainyard__V1__AttemptStatus *record, struct err *e) {
    const Trainyard__Handover__HandedAttempt *h = handover_attempt(a->host.handed, record->job, record->attempt);
    if (!h)
        return attempt_recover(a->core, record, NULL, e);
    CLEANUP(freep) struct agent_rank *ranks = alloc_zeroed(h->n_ranks, sizeof *ranks);
    const struct agent_attempt running = {
        .ranks = ranks, .n_ranks = h->n_ranks, .threads = h->threads, .max_threads = h->max_threads, .pinned = h->pinned
    };
    for (size_t i = 0; i < h->n_ranks; i++) {
        TRY(rank_load(a, h->ranks[i], &ranks[i], e));
        TRY(rank_workers_resume(a->workers, record->job, record->attempt, h->ranks[i], e));
    }
    return attempt_recover(a->core, record, &running, e);
}
