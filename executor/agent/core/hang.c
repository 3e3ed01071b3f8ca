/* Kills ranks that hang. A silent rank is found before the ranks that wait for it, because the waiting ranks still send
 * signs of life. */
#include "base/limits.h"
#include "executor/agent/core/state.h"

#include <stdio.h>

/* If a check is late by more than this, the agent itself was stopped, and the time does not count against the ranks. */
enum { CHECK_LATE_MS = 500 };

void rank_progressed(struct agent_core *c, struct agent_rank *r) { r->progress_ms = r->seen_ms = c->now_ms; }

static void rank_check(struct agent_core *c, struct agent_attempt *at, struct agent_rank *r) {
    const int silent_ms = c->config.hang_ms, stuck_ms = silent_ms + HANG_WAITING_MS;
    char why[120];
    if (r->waits_for_spool) {
        rank_progressed(c, r);
        return;
    }
    if (c->now_ms - r->seen_ms >= silent_ms)
        snprintf(why, sizeof why, "gave no sign of life for %d s and was killed", silent_ms / 1000);
    else if (c->now_ms - r->progress_ms >= stuck_ms)
        snprintf(why, sizeof why,
                 "made no progress for %d s and was killed; --hang-timeout of its executor allows more",
                 stuck_ms / 1000);
    else
        return;
    rank_stop(c, at, r, 0, 0, why);
}

void hang_tick(struct agent_core *c) {
    const int64_t late_ms = c->now_ms - c->hang_check_ms;
    if (late_ms < 0)
        return;
    c->hang_check_ms = c->now_ms + HANG_CHECK_MS;
    EACH_ATTEMPT(c, at)
    EACH_RANK(at, r) {
        if (r->state != AGENT_RANK_RUNS)
            continue;
        if (late_ms > CHECK_LATE_MS) {
            r->seen_ms += late_ms;
            r->progress_ms += late_ms;
        }
        rank_check(c, at, r);
    }
}
