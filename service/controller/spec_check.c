/* A check is an entry of a small table. spec_check_run takes a free entry (it waits for one if the executor has
 * SPEC_CHECK_MAX_PER_HOST checks or the table is full), sends StartCheck with a new number, and waits on the condition
 * `changed` until the check is done, the deadline has come or the controller stops. After a deadline it sends
 * StopCheck.
 *
 * The executor's stream reports findings one by one through spec_check_handle_output, which appends them to the
 * caller's result. An output whose number or executor does not match an entry is ignored: it belongs to a check that
 * was given up. All texts from executors are made printable, because users see them.
 *
 * One lock guards everything. A caller waits without it, so that outputs can be handled meanwhile. */
#include "service/controller/spec_check.h"

#include "api/codec/message.h"
#include "api/codec/text.h"
#include "base/alloc.h"
#include "base/utf8.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known {
    int64_t id; /* 0: free */
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    struct spec_check_result *answer; /* owned by the caller of spec_check_run */
    bool done;
    status_t status;
    char why[240];
};

struct spec_checks {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a check is done, or free */
    struct dispatch *dispatch;
    int64_t next;
    int callers;
    bool stopped;
    struct known all[SPEC_CHECK_MAX];
};

struct spec_checks *spec_checks_new(struct dispatch *d) {
    struct spec_checks *c = alloc_zeroed(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->dispatch = d;
    c->next = clock_wall_us(); /* a time, so that no number of an earlier controller is used again */
    return c;
}

struct spec_checks *spec_checks_free(struct spec_checks *c) {
    if (!c)
        return NULL;
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

void spec_check_result_done(struct spec_check_result *a) {
    free(a->problems);
    if (a->plan)
        trainyard__v1__plan__free_unpacked(a->plan, NULL);
    *a = (struct spec_check_result){ 0 };
}

bool spec_checks_enter(struct spec_checks *c) {
    pthread_mutex_lock(&c->lock);
    const bool admitted = c->callers < SPEC_CHECK_MAX_CALLERS;
    c->callers += admitted;
    pthread_mutex_unlock(&c->lock);
    return admitted;
}

void spec_checks_leave(struct spec_checks *c) {
    pthread_mutex_lock(&c->lock);
    assert(c->callers > 0);
    c->callers--;
    pthread_mutex_unlock(&c->lock);
}

/* ---- requests ---- */

static struct known *find(struct spec_checks *c, int64_t id) {
    for (int i = 0; i < SPEC_CHECK_MAX; i++)
        if (c->all[i].id == id)
            return &c->all[i];
    return NULL;
}

/* NULL: the executor has SPEC_CHECK_MAX_PER_HOST checks, or the table is full. */
static struct known *find_free(struct spec_checks *c, const char *executor) {
    int there = 0;
    for (int i = 0; i < SPEC_CHECK_MAX; i++)
        there += c->all[i].id != 0 && strcmp(c->all[i].executor, executor) == 0;
    return there < SPEC_CHECK_MAX_PER_HOST ? find(c, 0) : NULL;
}

/* With the lock held. False: the deadline has come. */
static bool wait_changed(struct spec_checks *c, deadline_ms_t deadline) {
    const struct timespec until = deadline_timespec(deadline);
    return pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until) != ETIMEDOUT;
}

static status_t take_free(struct spec_checks *c, const char *executor, deadline_ms_t deadline, struct known **ret,
                          struct err *e) {
    while (!c->stopped && !(*ret = find_free(c, executor)))
        if (!wait_changed(c, deadline))
            return err_set(e, ST_RESOURCE_EXHAUSTED, "others are being checked");
    return c->stopped ? err_set(e, ST_UNAVAILABLE, "the controller is stopping") : ST_OK;
}

/* With the lock held, so that no output is handled before the entry exists. The lock of dispatch is taken inside this
 * lock, never the other way round. */
static status_t order(struct spec_checks *c, struct known *en, const Trainyard__V1__WorkerCheck *request,
                      struct err *e) {
    Trainyard__V1__StartCheck start = TRAINYARD__V1__START_CHECK__INIT;
    start.check = c->next;
    start.request = (Trainyard__V1__WorkerCheck *)(uintptr_t)request;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_CHECK;
    m.start_check = &start;
    if (!dispatch_send(c->dispatch, en->executor, &m))
        return err_set(e, ST_UNAVAILABLE, "the executor went away");
    en->id = c->next++;
    return ST_OK;
}

static void order_stop(struct spec_checks *c, const struct known *en) {
    Trainyard__V1__StopCheck stop = TRAINYARD__V1__STOP_CHECK__INIT;
    stop.check = en->id;
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_CHECK;
    m.stop_check = &stop;
    dispatch_send(c->dispatch, en->executor, &m);
}

static status_t wait_done(struct spec_checks *c, const struct known *en, deadline_ms_t deadline, struct err *e) {
    while (!en->done && !c->stopped)
        if (!wait_changed(c, deadline))
            break;
    if (en->done)
        return en->status == ST_OK ? ST_OK : err_set(e, en->status, "%s", en->why);
    order_stop(c, en);
    return c->stopped ? err_set(e, ST_UNAVAILABLE, "the controller is stopping")
                      : err_set(e, ST_DEADLINE_EXCEEDED, "that took too long");
}

static status_t run(struct spec_checks *c, const char *executor, const Trainyard__V1__WorkerCheck *request,
                    deadline_ms_t deadline, struct spec_check_result *ret, struct err *e) {
    struct known *en = NULL;
    TRY(take_free(c, executor, deadline, &en, e));
    *en = (struct known){ .answer = ret };
    snprintf(en->executor, sizeof en->executor, "%s", executor);
    TRY(order(c, en, request, e));
    status_t st = wait_done(c, en, deadline, e);
    *en = (struct known){ 0 };
    pthread_cond_broadcast(&c->changed);
    return st;
}

status_t spec_check_run(struct spec_checks *c, const char *executor, const Trainyard__V1__WorkerCheck *request,
                        deadline_ms_t deadline, struct spec_check_result *ret, struct err *e) {
    *ret = (struct spec_check_result){ .part = "the spec" };
    ret->problems = alloc_zeroed(SPEC_CHECK_MAX_PROBLEMS, sizeof *ret->problems);
    pthread_mutex_lock(&c->lock);
    status_t st = run(c, executor, request, deadline, ret, e);
    pthread_mutex_unlock(&c->lock);
    return st;
}

/* ---- answers ---- */

static void take_unchecked(struct spec_check_result *a, const char *text) {
    const size_t n = strlen(a->unchecked);
    const size_t used = n ? n + (size_t)snprintf(a->unchecked + n, sizeof a->unchecked - n, "; ") : 0;
    if (used < sizeof a->unchecked)
        utf8_copy_printable(text, a->unchecked + used, sizeof a->unchecked - used);
}

static void take_finding(struct spec_check_result *a, const Trainyard__V1__CheckFinding *f) {
    switch (f->finding_case) {
    case TRAINYARD__V1__CHECK_FINDING__FINDING_PART: utf8_copy_printable(f->part, a->part, sizeof a->part); break;
    case TRAINYARD__V1__CHECK_FINDING__FINDING_PROBLEM:
        if (a->n == SPEC_CHECK_MAX_PROBLEMS)
            break;
        utf8_copy_printable(f->problem->text, a->problems[a->n].text, sizeof a->problems[a->n].text);
        a->problems[a->n++].of_host = f->problem->of_host;
        break;
    case TRAINYARD__V1__CHECK_FINDING__FINDING_PLAN:
        if (!a->plan)
            status_ignore(message_copy(&f->plan->base, &a->plan, NULL)); /* without memory, there is no plan */
        break;
    case TRAINYARD__V1__CHECK_FINDING__FINDING_UNCHECKED: take_unchecked(a, f->unchecked); break;
    default: break; /* from a newer version of the executor */
    }
}

static void end(struct spec_checks *c, struct known *en, status_t st, const char *why) {
    en->done = true;
    en->status = st;
    utf8_copy_printable(why, en->why, sizeof en->why);
    pthread_cond_broadcast(&c->changed);
}

void spec_check_handle_output(struct spec_checks *c, const char *executor, const Trainyard__V1__CheckOutput *output) {
    pthread_mutex_lock(&c->lock);
    struct known *en = output->check > 0 ? find(c, output->check) : NULL;
    if (en && !en->done && strcmp(en->executor, executor) == 0) {
        if (output->finding)
            take_finding(en->answer, output->finding);
        if (output->last)
            end(c, en, (status_t)output->status, output->message);
    }
    pthread_mutex_unlock(&c->lock);
}

void spec_checks_executor_detached(struct spec_checks *c, const char *executor) {
    pthread_mutex_lock(&c->lock);
    for (int i = 0; i < SPEC_CHECK_MAX; i++)
        if (c->all[i].id != 0 && !c->all[i].done && strcmp(c->all[i].executor, executor) == 0)
            end(c, &c->all[i], ST_UNAVAILABLE, "the executor went away");
    pthread_mutex_unlock(&c->lock);
}

void spec_checks_stop(struct spec_checks *c) {
    pthread_mutex_lock(&c->lock);
    c->stopped = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}
