/* A program hangs if none of its ranks has reported anything for the time that its spec allows. A single rank may be
 * silent for ever, since many programs report from rank 0 alone.
 *
 * Each silent rank says so every few seconds, and once more when it is silent no longer. So no state has to survive a
 * controller: a report that is not repeated expires. When the reports of all ranks that have not ended are valid at the
 * same time, the attempt fails, and its ranks log their stacks before they end.
 *
 * The attempt's cause names the rank that is behind. If two ranks have reported different steps, it is the rank with
 * the lowest one; otherwise the rank that has been silent for the longest time. */
#include "service/scheduler/state.h"

#include <inttypes.h>
#include <stdio.h>

struct silent_gang {
    const struct rank *lowest, *highest; /* by step; NULL: no rank has reported one */
    const struct rank *first;            /* the one that is silent for the longest time */
    int64_t ms;                          /* for so long all ranks are silent */
};

/* False: a rank is not silent. */
static bool gang_read(const struct attempt *a, int64_t now_ms, struct silent_gang *ret) {
    *ret = (struct silent_gang){ .ms = INT64_MAX };
    for (int i = 0; i < a->n_ranks; i++) {
        const struct rank *r = &a->ranks[i];
        if (r->ended || r->silence.follows)
            continue;
        if (now_ms >= r->silence.until_ms)
            return false;
        if (!ret->first || r->silence.ms > ret->first->silence.ms)
            ret->first = r;
        if (r->silence.ms < ret->ms)
            ret->ms = r->silence.ms;
        if (r->silence.step < 0)
            continue;
        if (!ret->lowest || r->silence.step < ret->lowest->silence.step)
            ret->lowest = r;
        if (!ret->highest || r->silence.step > ret->highest->silence.step)
            ret->highest = r;
    }
    return ret->first != NULL;
}

static struct rank_end end_of(const struct attempt *a, const struct silent_gang *gang) {
    struct rank_end end = { .cause = RANK_END_INTERNAL };
    const int64_t seconds = gang->ms / 1000;
    if (gang->lowest && gang->lowest->silence.step < gang->highest->silence.step) {
        end.rank = (int)(gang->lowest - a->ranks);
        end.step = gang->lowest->silence.step;
        snprintf(end.message, sizeof end.message,
                 "is behind at step %" PRId64 ", rank %d is at step %" PRId64
                 ": no rank has reported anything for %" PRId64 " s (program.progress.timeout)",
                 end.step, (int)(gang->highest - a->ranks), gang->highest->silence.step, seconds);
        return end;
    }
    end.rank = (int)(gang->first - a->ranks);
    end.step = gang->first->silence.step > 0 ? gang->first->silence.step : 0;
    if (a->n_ranks == 1)
        snprintf(end.message, sizeof end.message, "has reported nothing for %" PRId64 " s (program.progress.timeout)",
                 seconds);
    else
        snprintf(end.message, sizeof end.message,
                 "was silent first, for %" PRId64 " s: no rank has reported anything for %" PRId64
                 " s (program.progress.timeout)",
                 gang->first->silence.ms / 1000, seconds);
    return end;
}

void attempt_silent(struct scheduler *s, struct job *job, const struct scheduler_event *ev, int64_t now_ms,
                    struct scheduler_actions *out) {
    struct attempt *a = job->attempt;
    struct rank *rank = &a->ranks[ev->rank];
    struct silent_gang gang;
    rank->silence.follows = ev->follows;
    rank->silence.ms = ev->silent_ms;
    rank->silence.step = ev->step;
    rank->silence.until_ms = ev->silent_ms > 0 ? now_ms + SCHEDULER_SILENCE_MS : 0;
    if (a->ending || job->state != JOB_STATE_RUNNING || !gang_read(a, now_ms, &gang))
        return;
    const struct rank_end end = end_of(a, &gang);
    const size_t before = out->n;
    attempt_fail(s, job, &end, out);
    for (size_t i = before; i < out->n; i++)
        if (out->items[i].kind == ACT_SEND_STOP)
            out->items[i].collect_stacks = true;
}
