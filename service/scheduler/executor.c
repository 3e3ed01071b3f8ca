#include "base/array.h"
#include "base/limits.h"
#include "service/scheduler/state.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

struct executor *executor_find(const struct scheduler *s, const char *id) {
    void *const *node = tfind(id, &s->executors, by_name);
    return node ? *node : NULL;
}

status_t executor_add(struct scheduler *s, const char *id, int64_t now_ms, struct executor **ret, struct err *e) {
    struct executor *ex = *ret = executor_find(s, id);
    if (ex)
        return ST_OK;
    TRY(array_grow(&s->all, s->n_all, e));
    TRY(array_new(&ex, 1, e));
    snprintf(ex->id, sizeof ex->id, "%s", id);
    ex->lease_until_ms = now_ms + LEASE_TTL_MS;
    if (!tsearch(ex, &s->executors, by_name)) {
        free(ex);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for executor %s", id);
    }
    ex->order = s->next_order++;
    s->all[s->n_all++] = *ret = ex;
    return ST_OK;
}

enum scheduler_host executor_judge(const struct executor *ex, enum scheduler_slot slot, int world_size) {
    if (!ex->attached)
        return SCHEDULER_HOST_AWAY;
    if (ex->slots[slot] <= 0)
        return SCHEDULER_HOST_WITHOUT;
    if (world_size > 1 && slot == SCHEDULER_SLOT_CUDA && ex->lone)
        return SCHEDULER_HOST_LONE;
    if (ex->drained)
        return SCHEDULER_HOST_DRAINED;
    if (ex->n_held > 0)
        return SCHEDULER_HOST_HELD;
    return ex->used[slot] < ex->slots[slot] ? SCHEDULER_HOST_TAKES : SCHEDULER_HOST_FULL;
}

int executor_free(const struct executor *ex, enum scheduler_slot slot, int world_size) {
    return executor_judge(ex, slot, world_size) == SCHEDULER_HOST_TAKES ? ex->slots[slot] - ex->used[slot] : 0;
}

void executor_forget_if_gone(struct scheduler *s, struct executor *ex) {
    if (!ex->lost || ex->parts > 0 || ex->drained) /* a drained one is still so when it comes back */
        return;
    int at = 0;
    while (s->all[at] != ex)
        at++;
    s->n_all--;
    memmove(s->all + at, s->all + at + 1, (size_t)(s->n_all - at) * sizeof(struct executor *));
    tdelete(ex, &s->executors, by_name);
    free(ex->held);
    free(ex);
}

void executor_release(struct executor *ex, int64_t job, int attempt) {
    for (int i = 0; i < ex->n_held; i++)
        if (ex->held[i].job == job && ex->held[i].attempt == attempt) {
            ex->held[i] = ex->held[--ex->n_held];
            return;
        }
}

static void lose(struct scheduler *s, struct executor *ex, int64_t now_ms, struct scheduler_actions *out) {
    struct scheduler_action *a = action_add(out, ACT_EXECUTOR_LOST, NULL);
    memcpy(a->executor, ex->id, sizeof a->executor);
    action_text(a, "no heartbeat for %d s", LEASE_TTL_MS / 1000);
    ex->attached = false;
    ex->lost = true;
    ex->n_held = 0; /* it tells them again if it comes back */
    s->dirty = true;
    char why[160];
    snprintf(why, sizeof why, "executor %s was lost: no heartbeat for %d s", ex->id, LEASE_TTL_MS / 1000);
    /* Kept until the walk is over: closing the last attempt that names it would free it. */
    ex->parts++;
    for (struct job *job = s->active, *next; job; job = next) {
        next = job->next;
        struct part *part = job->attempt ? attempt_part(job->attempt, ex) : NULL;
        if (!part)
            continue;
        attempt_part_lost(s, job, part, RANK_END_HOST_LOST, why, out);
        attempt_try_close(s, job, now_ms, out);
    }
    ex->parts--;
    executor_forget_if_gone(s, ex);
}

void executor_judge_leases(struct scheduler *s, int64_t now_ms, struct scheduler_actions *out) {
    /* A tick that is late heard nothing meanwhile either: that is no executor's fault. */
    int64_t late = now_ms - s->last_tick_ms - SCHEDULER_TICK_MS;
    s->last_tick_ms = now_ms;
    for (int i = 0; late > 0 && i < s->n_all; i++)
        s->all[i]->lease_until_ms += late;
    for (int i = 0; i < s->n_all;) {
        struct executor *ex = s->all[i];
        if (!ex->lost && now_ms >= ex->lease_until_ms)
            lose(s, ex, now_ms, out);
        if (i < s->n_all && s->all[i] == ex)
            i++;
    }
}
