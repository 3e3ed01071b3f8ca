/* The core's list of attempts, the queries on it, and the list of actions.
 *
 * The attempts are in a linked list, oldest first. An attempt stays in the list, with the ends of its ranks, until the
 * controller has acknowledged its end and AGENT_EV_REMOVED reports that its files are gone. So every action about an
 * attempt finds the attempt. The list is short, so queries search it from the start. `act` appends an action to the
 * list that the caller passed for the current step. */
#include "executor/agent/core/state.h"

#include "base/alloc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct agent_action *act(struct agent_core *c, enum agent_action_kind kind, const struct agent_attempt *at,
                         const struct agent_rank *r) {
    struct agent_actions *a = c->actions;
    if (a->n == a->capacity) {
        a->capacity = a->capacity ? 2 * a->capacity : 16;
        a->items = alloc_resize(a->items, a->capacity, sizeof *a->items);
    }
    a->items[a->n] = (struct agent_action){ .kind = kind,
                                            .job = at ? at->job : 0,
                                            .attempt = at ? at->attempt : 0,
                                            .rank = r ? r->rank : 0,
                                            .device = AGENT_NO_DEVICE };
    return &a->items[a->n++];
}

void agent_actions_done(struct agent_actions *a) {
    free(a->items);
    *a = (struct agent_actions){ 0 };
}

/* ---- the list ---- */

struct agent_attempt *attempt_find(const struct agent_core *c, int64_t job, int32_t attempt) {
    EACH_ATTEMPT(c, at)
    if (at->job == job && at->attempt == attempt)
        return at;
    return NULL;
}

struct agent_rank *rank_find(struct agent_attempt *at, int32_t rank) {
    if (at)
        EACH_RANK(at, r)
    if (r->rank == rank)
        return r;
    return NULL;
}

const struct agent_attempt *agent_core_first(const struct agent_core *c) { return c->first; }

const struct agent_attempt *agent_core_find(const struct agent_core *c, int64_t job, int32_t attempt) {
    return attempt_find(c, job, attempt);
}

const struct agent_rank *agent_core_find_rank(const struct agent_core *c, int64_t job, int32_t attempt, int32_t rank) {
    return rank_find(attempt_find(c, job, attempt), rank);
}

struct agent_rank *rank_on(const struct agent_core *c, int device, struct agent_attempt **ret) {
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r)
    if (r->device == device && (r->state == AGENT_RANK_RUNS || r->state == AGENT_RANK_DEAD)) {
        *ret = at;
        return r;
    }
    return NULL;
}

const struct agent_rank *agent_core_rank_on(const struct agent_core *c, int device, const struct agent_attempt **ret) {
    struct agent_attempt *at = NULL;
    const struct agent_rank *r = rank_on(c, device, &at);
    *ret = at;
    return r;
}

int agent_core_ranks_open(const struct agent_core *c) {
    int n = 0;
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r)
    n += r->state == AGENT_RANK_RUNS || r->state == AGENT_RANK_DEAD;
    return n;
}

struct agent_attempt *attempt_new(struct agent_core *c, int64_t job, int32_t number, int32_t world_size, size_t n) {
    struct agent_attempt *at = alloc_zeroed(1, sizeof *at), **last = &c->first;
    at->ranks = alloc_zeroed(n, sizeof *at->ranks);
    at->job = job;
    at->attempt = number;
    at->world_size = world_size;
    at->n_ranks = n;
    EACH_RANK(at, r) {
        r->device = AGENT_NO_DEVICE;
        r->step = -1;
    }
    while (*last)
        last = &(*last)->next;
    *last = at;
    return at;
}

static void attempt_free(struct agent_attempt *at) {
    free(at->ranks);
    free(at);
}

void attempt_removed(struct agent_core *c, struct agent_attempt *at) {
    struct agent_attempt **link = &c->first;
    while (*link != at)
        link = &(*link)->next;
    *link = at->next;
    attempt_free(at);
}

/* ---- from start to end ---- */

struct agent_core *agent_core_new(const struct agent_core_config *config, int64_t now_ms) {
    struct agent_core *c = alloc_zeroed(1, sizeof *c);
    const size_t n = (size_t)config->n_devices;
    c->config = *config;
    c->devices = alloc_zeroed(n, sizeof *c->devices);
    if (n)
        memcpy(c->devices, config->devices, n * sizeof *c->devices);
    c->config.devices = c->devices;
    c->cpus = alloc_zeroed((size_t)config->n_cpus, sizeof *c->cpus);
    if (config->n_cpus)
        memcpy(c->cpus, config->cpus, (size_t)config->n_cpus * sizeof *c->cpus);
    c->config.cpus = c->cpus;
    c->now_ms = now_ms;
    c->hang_check_ms = now_ms + HANG_CHECK_MS;
    return c;
}

struct agent_core *agent_core_free(struct agent_core *c) {
    while (c && c->first) {
        struct agent_attempt *at = c->first;
        c->first = at->next;
        attempt_free(at);
    }
    if (c) {
        free(c->devices);
        free(c->cpus);
    }
    free(c);
    return NULL;
}

static void load_running(struct agent_core *c, struct agent_rank *r, const struct agent_rank *from) {
    r->state = AGENT_RANK_RUNS;
    r->device = from->device;
    r->joined = from->joined;
    r->cpus = from->cpus;
    r->progress = from->progress;
    r->progress_ms = r->seen_ms = c->now_ms;
    c->share_cores_ms = c->now_ms + 1; /* cores that were free may not have been given out yet */
    if (r->device != AGENT_NO_DEVICE)
        c->devices[r->device].in_use = true;
}

static void load_ended(struct agent_rank *r, const struct agent_rank *from, int64_t wall_us) {
    r->state = AGENT_RANK_CLOSED;
    r->end = from->end;
    r->has_end = true;
    if (from->has_end)
        return;
    r->end = (struct agent_rank_end){ .status = { .exit_code = -1, .signal = 9 },
                                      .cause = EXIT_CAUSE(AGENT_LOST),
                                      .time_us = wall_us };
    snprintf(r->end.message, sizeof r->end.message, "died with its executor's agent");
}

void agent_core_load(struct agent_core *c, const struct agent_attempt *known, int64_t wall_us) {
    struct agent_attempt *at = attempt_new(c, known->job, known->attempt, known->world_size, known->n_ranks);
    at->threads = known->threads;
    at->max_threads = known->max_threads;
    at->pinned = known->pinned;
    at->ended = true;
    for (size_t i = 0; i < at->n_ranks; i++) {
        const struct agent_rank *from = &known->ranks[i];
        struct agent_rank *r = &at->ranks[i];
        r->rank = from->rank;
        r->pid = from->pid;
        r->pid_start_time = from->pid_start_time;
        if (from->state == AGENT_RANK_RUNS)
            load_running(c, r, from);
        else
            load_ended(r, from, wall_us);
        at->ended &= r->state == AGENT_RANK_CLOSED;
    }
}

static bool rank_is_quiet(const struct agent_rank *r) {
    return r->state == AGENT_RANK_CLOSED || (r->state == AGENT_RANK_RUNS && !r->kill.killed && !r->kill.term_at_ms &&
                                             !r->kill.kill_at_ms && !r->final.received && !r->waits_for_spool);
}

bool agent_core_is_quiet(const struct agent_core *c) {
    if (c->leaving)
        return false;
    EACH_ATTEMPT(c, at) {
        if (!at->ended && (at->stopping || at->acknowledged))
            return false;
        EACH_RANK(at, r)
        if (!rank_is_quiet(r))
            return false;
    }
    return true;
}
