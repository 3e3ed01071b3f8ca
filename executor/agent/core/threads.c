/* Shares out the host's cores again when ranks start and end: first how many each rank gets (thread_shares.h), then
 * which (cpu_sets.h). A running rank is ordered to change if either has changed for it. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "executor/agent/core/cpu_sets.h"
#include "executor/agent/core/state.h"
#include "executor/agent/core/thread_shares.h"

#include <stdlib.h>
#include <string.h>

/* Free cores are given out if no attempt has taken them for this long. Otherwise each job in a series of short jobs
 * would change the threads of a long job. */
enum { FREE_MS = 1000 };

static bool has_cores(const struct agent_rank *r) { return r->state == AGENT_RANK_NEW || r->state == AGENT_RANK_RUNS; }

/* The numbers, in the order of the attempts. starting: gets its share with its start order; NULL if no attempt starts.
 * While an attempt starts, the others only give up threads: additional threads are left for the next attempt. */
static void count_cores(struct agent_core *c, struct agent_attempt *starting, int *threads) {
    size_t n = 0, i = 0;
    EACH_ATTEMPT(c, at)
    n++;
    CLEANUP(freep) struct thread_share *shares = alloc_zeroed(n, sizeof *shares);
    EACH_ATTEMPT(c, at) {
        shares[i].max = at->max_threads;
        EACH_RANK(at, r)
        shares[i].ranks += has_cores(r);
        i++;
    }
    thread_shares_fill(c->config.cores, shares, n);
    i = 0;
    EACH_ATTEMPT(c, at) {
        const struct thread_share *share = &shares[i];
        const bool takes = at == starting || (share->ranks > 0 && (!starting || share->threads < at->threads));
        threads[i++] = takes ? share->threads : at->threads;
    }
}

static size_t ranks_with_cores(const struct agent_core *c) {
    size_t n = 0;
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r)
    n += has_cores(r);
    return n;
}

/* Which CPUs, for the ranks with cores in their order. */
static void choose_cpus(const struct agent_core *c, const int *threads, struct cpu_set_wish *ranks) {
    size_t i = 0, n = 0;
    EACH_ATTEMPT(c, at) {
        EACH_RANK(at, r)
        if (has_cores(r))
            ranks[n++].threads = threads[i] > 0 ? threads[i] : 1;
        i++;
    }
    cpu_sets_fill(c->config.cpus, c->config.n_cpus, ranks, n);
}

static void rank_order(struct agent_core *c, const struct agent_attempt *at, struct agent_rank *r, int threads,
                       const struct cpu_mask *cpus) {
    static const struct cpu_mask NONE;
    const struct cpu_mask *to = at->pinned && c->config.n_cpus > 0 ? cpus : &NONE;
    const bool moves = memcmp(&r->cpus, to, sizeof *to) != 0;
    r->cpus = *to;
    if (r->state != AGENT_RANK_RUNS || (!moves && threads == at->threads))
        return;
    struct agent_action *order = act(c, AGENT_ACT_ORDER_THREADS, at, r);
    order->threads = threads;
    order->cpus = *to;
    if (threads != at->threads)
        act(c, AGENT_ACT_REPORT_THREADS, at, r);
}

static void share_out(struct agent_core *c, struct agent_attempt *starting) {
    size_t n = 0, i = 0, next = 0;
    EACH_ATTEMPT(c, at)
    n++;
    CLEANUP(freep) int *threads = alloc_zeroed(n, sizeof *threads);
    CLEANUP(freep) struct cpu_set_wish *ranks = alloc_zeroed(ranks_with_cores(c) + 1, sizeof *ranks);
    count_cores(c, starting, threads);
    choose_cpus(c, threads, ranks);
    EACH_ATTEMPT(c, at) {
        EACH_RANK(at, r)
        if (has_cores(r))
            rank_order(c, at, r, threads[i], &ranks[next++].ret);
        at->threads = threads[i++];
    }
}

void threads_take(struct agent_core *c, struct agent_attempt *at) { share_out(c, at); }

void threads_freed(struct agent_core *c) {
    if (!c->leaving)
        c->share_cores_ms = c->now_ms + FREE_MS;
}

void threads_tick(struct agent_core *c) {
    if (!c->share_cores_ms || c->now_ms < c->share_cores_ms)
        return;
    c->share_cores_ms = 0;
    share_out(c, NULL);
}
