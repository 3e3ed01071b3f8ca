/* Shares out the host's cores again when ranks start and end. */
#include "base/alloc.h"
#include "executor/agent/core/state.h"
#include "executor/agent/core/thread_shares.h"

#include <stdlib.h>

/* Free cores are given out if no attempt has taken them for this long. Otherwise each job in a series of short jobs
 * would change the threads of a long job. */
enum { FREE_MS = 1000 };

static void threads_order(struct agent_core *c, struct agent_attempt *at, int threads) {
    at->threads = threads;
    EACH_RANK(at, r)
    if (r->state == AGENT_RANK_RUNS) {
        act(c, AGENT_ACT_ORDER_THREADS, at, r)->threads = threads;
        act(c, AGENT_ACT_REPORT_THREADS, at, r);
    }
}

/* starting: gets its share with its start order; NULL if no attempt starts. While an attempt starts, the others only
 * give up threads: additional threads are left for the next attempt. */
static void share_out(struct agent_core *c, struct agent_attempt *starting) {
    size_t n = 0, i = 0;
    EACH_ATTEMPT(c, at)
    n++;
    struct thread_share *shares = alloc_zeroed(n, sizeof *shares);
    if (starting)
        starting->threads = c->config.threads_per_rank;
    EACH_ATTEMPT(c, at) {
        EACH_RANK(at, r)
        shares[i].ranks += r->state == AGENT_RANK_NEW || r->state == AGENT_RANK_RUNS;
        i++;
    }
    thread_shares_fill(c->config.cores, shares, n);
    i = 0;
    EACH_ATTEMPT(c, at) {
        const struct thread_share *share = &shares[i++];
        if (at == starting)
            at->threads = share->threads;
        else if (share->ranks > 0 && (starting ? share->threads < at->threads : share->threads != at->threads))
            threads_order(c, at, share->threads);
    }
    free(shares);
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
