/* How ranks and attempts end. */
#include "base/clock.h"
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"
#include "executor/agent/devices.h"
#include "executor/agent/report.h"
#include "executor/agent/verdict.h"

#include <stdio.h>

enum { LOOK_MOST_MS = 900 }; /* a death is told within a second, whatever the driver does */

void attempt_check_ended(struct attempt *at) {
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child || !at->ranks[i].end)
            return;
    at->ended = true;
    status_ignore(attempt_record(at, NULL));
    attempt_tell_ended(at);
    if (at->acknowledged)
        attempt_remove(at);
}

static void others_end(struct attempt *at) {
    for (size_t i = 0; i < at->n_ranks; i++)
        if (at->ranks[i].child && !at->ranks[i].end)
            child_end(at->ranks[i].child, 0, LADDER_MS, "did not end after another rank's death and was killed");
}

void rank_end_keep(struct rank *r, const Trainyard__V1__RankEnd *end) {
    struct rank_end_room *room = &r->end_room;
    snprintf(room->message, sizeof room->message, "%s", end->message);
    snprintf(room->weights_sha256, sizeof room->weights_sha256, "%s", end->weights_sha256);
    room->end = *end;
    room->end.message = room->message;
    room->end.weights_sha256 = room->weights_sha256;
    room->end.base.n_unknown_fields = 0; /* which are another message's memory */
    room->end.base.unknown_fields = NULL;
    r->end = &room->end;
}

void rank_end_make(struct rank *r, const struct reaped *how, Trainyard__V1__WorkerEnd__Cause cause,
                   const char *sentence) {
    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT;
    end.rank = r->rank;
    end.exit_code = how ? how->exit_code : -1;
    end.signal = how ? how->signal : 0;
    end.cause = cause;
    end.message = (char *)(uintptr_t)sentence;
    end.last_sequence = r->log ? spool_log_last(r->log) : 0;
    end.time_us = r->ended_us ? r->ended_us : clock_wall_us();
    int64_t step = r->child ? child_step(r->child) : -1;
    end.step = r->word ? r->word->step : step < 0 ? 0 : step;
    if (r->word)
        end.weights_sha256 = r->word->weights_sha256;
    rank_end_keep(r, &end);
}

static void rank_verdict(const struct rank *r, struct verdict *ret) {
    const struct agent *agent = r->attempt->owner->agent;
    const struct verdict_facts facts = { .how = &r->how,
                                         .word = r->word,
                                         .killed_because = child_killed_because(r->child),
                                         .device = devices_index(agent->devices, r->device),
                                         .device_lost = r->device == DEVICE_NONE
                                                            ? NULL
                                                            : devices_reason(agent->devices, r->device),
                                         .leaving = r->left };
    verdict_reach(&facts, ret);
}

static void rank_judge(struct rank *r) {
    struct verdict v;
    rank_verdict(r, &v);
    if (!v.by_word)
        child_say(r->child, v.sentence);
    rank_end_make(r, &r->how, v.cause, v.sentence);
    rank_tell_ended(r);
    status_ignore(attempt_record(r->attempt, NULL));
}

/* Judged and drained: the rank lets go of what it has. */
static void rank_settle(struct rank *r) {
    struct agent *agent = r->attempt->owner->agent;
    if (!r->end || !r->drained)
        return;
    r->end->last_sequence = r->log ? spool_log_last(r->log) : 0;
    r->child = child_close(r->child);
    devices_release(agent->devices, r->device);
    r->device = DEVICE_NONE;
    report_wake(agent->report, true);
    attempt_check_ended(r->attempt);
}

/* The driver may tell a GPU's death after that of the worker which died of it. The job is not to pay for it: before the
 * worker's end is judged, the device is looked at. */
static bool needs_look(const struct rank *r, const struct verdict *v) {
    const struct agent *agent = r->attempt->owner->agent;
    return r->device != DEVICE_NONE && !devices_reason(agent->devices, r->device) && !r->left &&
           v->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED &&
           v->cause != TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
}

void rank_looked(struct rank *r) {
    if (!r->look.armed)
        return;
    reactor_timer_cancel(r->attempt->owner->agent->loop, &r->look);
    rank_judge(r);
    rank_settle(r);
}

void rank_look_over(void *ctx) {
    struct rank *r = ctx;
    rank_judge(r);
    rank_settle(r);
}

void rank_ended(void *ctx, const struct reaped *how, bool drained) {
    struct rank *r = ctx;
    struct agent *agent = r->attempt->owner->agent;
    r->drained = drained;
    if (!r->ended_us) {
        struct verdict v;
        r->how = *how;
        r->ended_us = clock_wall_us();
        r->left = agent->leaving;
        rank_verdict(r, &v);
        if (needs_look(r, &v)) {
            reactor_timer_set(agent->loop, &r->look, LOOK_MOST_MS);
            devices_look(agent->devices, r->device);
        } else {
            rank_judge(r);
        }
        if (v.cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED && !r->attempt->stopping)
            others_end(r->attempt);
    }
    rank_settle(r);
}

/* A rank that could not be started. */
void rank_fail(struct rank *r, Trainyard__V1__WorkerEnd__Cause cause, const char *sentence) {
    devices_release(r->attempt->owner->agent->devices, r->device);
    r->device = DEVICE_NONE;
    rank_end_make(r, NULL, cause, sentence);
    rank_tell_ended(r);
}
