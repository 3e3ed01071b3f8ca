#include "base/alloc.h"
#include "service/scheduler/state.h"

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

struct scheduler_action *action_add(struct scheduler_actions *out, enum scheduler_action_kind kind,
                                    const struct job *job) {
    if (out->n == out->cap) {
        out->cap = out->cap ? 2 * out->cap : 16;
        out->items = alloc_resize(out->items, out->cap, sizeof *out->items);
    }
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
