/* Handles a start order: checks whether it fits on this host, and assigns a device and threads to each rank. */
#include "base/limits.h"
#include "executor/agent/core/state.h"

#include <stdio.h>

static status_t order_fits(const struct agent_core *c, const struct agent_start *order, struct err *e) {
    const size_t slots = (size_t)c->config.slots, open = (size_t)agent_core_ranks_open(c);
    if (c->leaving)
        return err_set(e, ST_UNAVAILABLE, "the executor is stopping");
    if (order->invalid)
        return err_set(e, ST_INVALID_ARGUMENT, "%s", order->invalid);
    if (order->n_ranks > LIMIT_WORLD_SIZE)
        return err_set(e, ST_INVALID_ARGUMENT, "the start order has %zu ranks, at most %d are allowed", order->n_ranks,
                       LIMIT_WORLD_SIZE);
    if (order->cuda) /* as many as there are devices: device_take counts them */
        return ST_OK;
    if (order->n_ranks > slots)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%zu ranks were to start on a host of %zu slots", order->n_ranks,
                       slots);
    /* Ranks of an attempt that is ending may still run next to the ranks of its successor: at most twice the slots. */
    if (open + order->n_ranks > 2 * slots)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%zu workers still run on this host of %zu slots", open, slots);
    return ST_OK;
}

static status_t resources_take(struct agent_core *c, struct agent_attempt *at, const struct agent_start *order,
                               struct err *e) {
    TRY(order_fits(c, order, e));
    if (order->cuda)
        EACH_RANK(at, r)
    TRY(device_take(c, &r->device, e));
    threads_take(c, at);
    return ST_OK;
}

void start_order(struct agent_core *c, const struct agent_event *ev) {
    const struct agent_start *order = ev->start;
    const struct agent_attempt *known = agent_core_find(c, ev->job, ev->attempt);
    struct err why;
    if (known) {
        if (known->ended)
            act(c, AGENT_ACT_REPORT_ATTEMPT_ENDED, known, NULL);
        return;
    }
    /* The first ranks of an order that is too long carry its refusal: memory does not grow with what a peer sends. */
    const size_t n = order->n_ranks < LIMIT_WORLD_SIZE ? order->n_ranks : LIMIT_WORLD_SIZE;
    struct agent_attempt *at = attempt_new(c, ev->job, ev->attempt, order->world_size, n);
    at->max_threads = order->max_threads;
    at->pinned = order->pinned;
    for (size_t i = 0; i < at->n_ranks; i++)
        at->ranks[i].rank = order->ranks[i];
    if (resources_take(c, at, order, &why) == ST_OK)
        act(c, AGENT_ACT_SPAWN, at, NULL)->order = order->order;
    else
        start_failed(c, at, why.msg);
}

void start_spawned(struct agent_core *c, struct agent_rank *r, const struct agent_event *ev) {
    r->state = AGENT_RANK_RUNS;
    r->pid = ev->pid;
    r->pid_start_time = ev->pid_start_time;
    rank_progressed(c, r);
}

void start_done(struct agent_core *c, struct agent_attempt *at) {
    EACH_RANK(at, r)
    act(c, AGENT_ACT_REPORT_STARTED, at, r);
}

void start_failed(struct agent_core *c, struct agent_attempt *at, const char *reason) {
    at->stopping = true;
    EACH_RANK(at, r) {
        if (r->state == AGENT_RANK_NEW)
            end_unstarted(c, at, r, reason);
        else
            rank_stop(c, at, r, 0, 0, "was killed because its attempt could not be started");
    }
    end_attempt_if_closed(c, at);
}
