#include "service/scheduler/state.h"

#include <limits.h>
#include <search.h>
#include <string.h>

struct scheduler_counts scheduler_counts(const struct scheduler *s) {
    struct scheduler_counts c = {
        .jobs = s->n_jobs, .queued = (int)s->n_queue, .queues = s->n_queues, .executors = s->n_all
    };
    for (int i = 0; i < s->n_all; i++) {
        const bool attached = s->all[i]->attached && !s->all[i]->leaving;
        c.attached += attached;
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
            c.slots[k] += attached ? s->all[i]->slots[k] : 0;
            c.used[k] += s->all[i]->used[k];
            c.drained[k] += attached && s->all[i]->drained ? s->all[i]->slots[k] : 0;
        }
    }
    return c;
}

bool scheduler_has_rank(const struct scheduler *s, const char *executor, int64_t job, int attempt, int rank,
                        bool *ret_current) {
    const struct job *found = job_find(s, job);
    const struct attempt *a = found ? found->attempt : NULL;
    const bool current = a && a->number == attempt && rank >= 0 && rank < a->n_ranks;
    if (ret_current)
        *ret_current = current;
    return current && strcmp(a->ranks[rank].executor->id, executor) == 0;
}

struct walk {
    void (*fn)(void *ctx, const struct scheduler_job_view *);
    void *ctx;
};

static void view_job(const void *node, VISIT visit, void *walk) {
    const struct job *job = *(struct job *const *)node;
    const struct walk *w = walk;
    if (visit != postorder && visit != leaf)
        return;
    w->fn(w->ctx, &(struct scheduler_job_view){ .job = job->id,
                                                .state = job->state,
                                                .attempt = job->number,
                                                .restarts = job->restarts,
                                                .world_size = job->world_size,
                                                .max_world_size = job->max_world_size,
                                                .ranks = job->ranks,
                                                .attempt_open = job->attempt != NULL,
                                                .slot = job->slot });
}

void scheduler_each_job(const struct scheduler *s, void (*fn)(void *, const struct scheduler_job_view *), void *ctx) {
    twalk_r(s->jobs, view_job, &(struct walk){ fn, ctx });
}

void scheduler_each_queue(struct scheduler *s, int64_t now_ms, void (*fn)(void *, const struct scheduler_queue_view *),
                          void *ctx) {
    s->now_ms = now_ms;
    for (int i = 0; i < s->n_queues; i++) {
        struct queue *q = s->queues[i];
        (void)queue_share(s, q, SCHEDULER_SLOT_CPU); /* updates the averages */
        struct scheduler_queue_view view = { .name = q->name, .has_row = q->has_row, .jobs = q->n_jobs };
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
            view.used[k] = q->used[k];
            view.average[k] = q->average[k];
        }
        fn(ctx, &view);
    }
}

void scheduler_each_executor(const struct scheduler *s, void (*fn)(void *, const struct scheduler_executor_view *),
                             void *ctx) {
    for (int i = 0; i < s->n_all; i++) {
        const struct executor *ex = s->all[i];
        struct scheduler_executor_view view = { .id = ex->id,
                                                .attached = ex->attached,
                                                .leaving = ex->leaving,
                                                .lost = ex->lost,
                                                .drained = ex->drained,
                                                .fenced = ex->n_fenced };
        for (int k = 0; k < SCHEDULER_SLOT_KINDS; k++) {
            view.slots[k] = ex->slots[k];
            view.used[k] = ex->used[k];
        }
        fn(ctx, &view);
    }
}

static int offered(const struct scheduler *s, struct capacity all, enum scheduler_slot kind, int world_size) {
    const struct job job = { .slot = kind, .world_size = world_size };
    const struct capacity capacity = queue_capacity_for(s, all, &job);
    return capacity.slots + capacity.drained + capacity.detached;
}

int scheduler_offered(const struct scheduler *s, enum scheduler_slot kind, bool gang) {
    return offered(s, s->capacity[kind], kind, gang ? 2 : 1);
}

void scheduler_fit(const struct scheduler *s, enum scheduler_slot kind, int world_size, struct scheduler_fit *ret) {
    const struct capacity all = s->capacity[kind];
    const struct job job = { .slot = kind, .world_size = world_size };
    *ret = (struct scheduler_fit){ .fits = offered(s, all, kind, world_size) >= world_size };
    for (int i = 0; i < s->n_all && !ret->fits; i++) {
        const enum scheduler_detachment detachment = executor_detachment(s->all[i]);
        ret->fits = detachment == SCHEDULER_DETACHED_SINCE_START ||
                    (detachment == SCHEDULER_DETACHED_STREAM_ENDED && s->all[i]->drained);
    }
    if (!ret->fits)
        queue_capacity_text(&job, queue_capacity_for(s, all, &job), ret->why, sizeof ret->why);
}

int scheduler_waiting_priority(const struct scheduler *s, enum scheduler_slot kind) {
    return s->needs_placing || !s->blocker[kind] ? INT_MIN : s->blocker[kind]->priority;
}
