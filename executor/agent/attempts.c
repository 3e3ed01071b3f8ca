#include "executor/agent/attempts.h"
#include "executor/agent/attempt.h"
#include "executor/agent/child.h"
#include "executor/agent/devices.h"
#include "executor/agent/report.h"

#include <stdlib.h>

struct attempt *attempt_find(const struct attempts *a, int64_t job, int32_t attempt) {
    for (struct attempt *at = a->first; at; at = at->next)
        if (at->job == job && at->attempt == attempt)
            return at;
    return NULL;
}

bool attempts_known(const struct attempts *a, int64_t job, int32_t attempt) { return attempt_find(a, job, attempt); }

size_t attempts_running(const struct attempts *a) {
    size_t n = 0;
    for (const struct attempt *at = a->first; at; at = at->next)
        for (size_t i = 0; i < at->n_ranks; i++)
            n += at->ranks[i].child != NULL;
    return n;
}

static void attempt_free(struct attempt *at) {
    for (size_t i = 0; i < at->n_ranks; i++) {
        struct rank *r = &at->ranks[i];
        reactor_timer_cancel(at->owner->agent->loop, &r->look);
        child_close(r->child);
        free(r->address.data);
        message_free(r->joined);
        message_free(r->word);
    }
    free(at->ranks);
    free(at);
}

void attempt_remove(struct attempt *at) {
    struct attempts *a = at->owner;
    struct attempt **link = &a->first;
    while (*link != at)
        link = &(*link)->next;
    *link = at->next;
    directory_attempt_remove(a->agent->directory, at->job, at->attempt);
    attempt_free(at);
    report_sweep(a->agent->report);
}

struct attempt *attempt_new(struct attempts *a, int64_t job, int32_t number, int32_t world_size, size_t n) {
    struct attempt *at = calloc(1, sizeof *at);
    if (!at)
        return NULL;
    at->ranks = calloc(n + 1, sizeof *at->ranks);
    if (!at->ranks) {
        free(at);
        return NULL;
    }
    at->owner = a;
    at->job = job;
    at->attempt = number;
    at->world_size = world_size;
    at->n_ranks = n;
    for (size_t i = 0; i < n; i++) {
        at->ranks[i].attempt = at;
        at->ranks[i].device = DEVICE_NONE;
        at->ranks[i].look = (struct reactor_timer){ .fire = rank_look_over, .ctx = &at->ranks[i] };
    }
    at->next = a->first;
    a->first = at;
    return at;
}

status_t attempts_open(struct agent *agent, struct attempts **ret, struct err *e) {
    CLEANUP(attempts_closep) struct attempts *a = calloc(1, sizeof *a);
    if (!a)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the attempts");
    a->agent = agent;
    Trainyard__V1__AttemptStatus **list;
    size_t n;
    TRY(directory_attempts_read(agent->directory, &list, &n, e));
    status_t st = ST_OK;
    for (size_t i = 0; i < n; i++) {
        if (st == ST_OK)
            st = attempt_recover(a, list[i], e);
        message_free(list[i]);
    }
    free(list);
    if (st != ST_OK)
        return err_prefix(e, st, "end the workers of an earlier agent: ");
    attempts_watch(a);
    *ret = take_ptr(&a);
    return ST_OK;
}

struct attempts *attempts_close(struct attempts *a) {
    if (!a)
        return NULL;
    reactor_timer_cancel(a->agent->loop, &a->check);
    while (a->first) {
        struct attempt *at = a->first;
        a->first = at->next;
        attempt_free(at);
    }
    free(a);
    return NULL;
}
