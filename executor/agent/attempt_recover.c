/* A start on what an earlier agent left. */
#include "executor/agent/attempt.h"

#include <signal.h>

enum { STRANGER_MS = 10000 }; /* a killed process of an earlier agent is gone by then, or its host is ill */

static status_t rank_recover(struct rank *r, const Trainyard__V1__RankStatus *status,
                             const Trainyard__V1__AttemptEnded *known, struct err *e) {
    struct spool_key key = { r->attempt->job, r->attempt->attempt, status->rank };
    r->rank = status->rank;
    r->pid = status->pid;
    r->start_time = status->pid_start_time;
    r->log = spool_log_find(r->attempt->owner->agent->spool, &key);
    for (size_t i = 0; known && i < known->n_ranks && !r->end; i++)
        if (known->ranks[i]->rank == r->rank)
            rank_end_keep(r, known->ranks[i]);
    if (r->end) {
        if (r->log)
            r->end->last_sequence = spool_log_last(r->log);
        return ST_OK;
    }
    if (r->pid > 0)
        TRY(reap_stranger(r->pid, r->start_time, STRANGER_MS, e));
    struct reaped how = { .exit_code = -1, .signal = SIGKILL };
    rank_end_make(r, &how, TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST, "died with its executor's agent");
    return ST_OK;
}

status_t attempt_recover(struct attempts *a, const Trainyard__V1__AttemptStatus *status, struct err *e) {
    struct attempt *at = attempt_new(a, status->job, status->attempt, status->world_size, status->n_ranks);
    if (!at)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an attempt");
    for (size_t i = 0; i < at->n_ranks; i++)
        TRY(rank_recover(&at->ranks[i], status->ranks[i], status->end, e));
    at->ended = true;
    return attempt_record(at, e);
}
