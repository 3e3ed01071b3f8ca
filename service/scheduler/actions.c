#include "service/scheduler/state.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void scheduler_actions_clear(struct scheduler_actions *a) {
    for (size_t i = 0; i < a->n; i++)
        free(a->items[i].placement);
    a->n = 0;
}

void scheduler_actions_done(struct scheduler_actions *a) {
    scheduler_actions_clear(a);
    free(a->items);
    *a = (struct scheduler_actions){ 0 };
}

status_t actions_reserve(struct scheduler_actions *out, size_t more, struct err *e) {
    size_t cap = out->cap ? out->cap : 16;
    while (cap - out->n < more)
        cap *= 2;
    if (cap == out->cap)
        return ST_OK;
    struct scheduler_action *items = reallocarray(out->items, cap, sizeof *items);
    if (!items)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for what %zu more actions need", more);
    out->items = items;
    out->cap = cap;
    return ST_OK;
}

/* A job that ends or moves says some ten things of itself, each host hears of it four times at the most, each rank is
 * awaited once. An executor is lost, and told of what it named itself. */
size_t actions_most(const struct scheduler *s, const struct scheduler_event *ev) {
    const size_t named = ev && ev->kind == EV_EXECUTOR_ATTACHED ? (size_t)ev->attach.n_parts : 0;
    return 16 * (s->n_active + 1) + 4 * (s->n_parts + named) + s->n_ranks + (size_t)s->n_all;
}

struct scheduler_action *action_add(struct scheduler_actions *out, enum scheduler_action_kind kind,
                                    const struct job *job) {
    assert(out->n < out->cap);
    struct scheduler_action *a = &out->items[out->n++];
    *a = (struct scheduler_action){ .kind = kind };
    if (job) {
        a->job = job->id;
        a->attempt = job->number;
        a->restarts = job->restarts;
    }
    return a;
}

void action_text(struct scheduler_action *a, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    vsnprintf(a->text, sizeof a->text, fmt, args);
    va_end(args);
}

void action_send(struct scheduler_actions *out, enum scheduler_action_kind kind, const struct job *job,
                 const struct executor *to) {
    struct scheduler_action *a = action_add(out, kind, job);
    memcpy(a->executor, to->id, sizeof a->executor);
    a->grace_ms = kind == ACT_SEND_STOP ? SCHEDULER_STOP_GRACE_MS : 0;
}

void action_reply(struct scheduler_actions *out, uint64_t token) {
    struct scheduler_action *a = action_add(out, ACT_REPLY, NULL);
    a->token = token;
    a->status = ST_OK;
}

void action_refuse(struct scheduler_actions *out, uint64_t token, const char *reason, const char *fmt, ...) {
    struct scheduler_action *a = action_add(out, ACT_REPLY, NULL);
    a->token = token;
    a->status = ST_FAILED_PRECONDITION;
    a->reason = reason;
    va_list args;
    va_start(args, fmt);
    vsnprintf(a->text, sizeof a->text, fmt, args);
    va_end(args);
}
