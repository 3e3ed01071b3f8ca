#include "service/controller/background_task.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>

struct background_task {
    background_task_fn *pass;
    void *ctx;
    int64_t period_ms;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool runs, closing, asked;
    int64_t epoch;
    deadline_ms_t next; /* when the next pass over everything is due */
    int64_t again_ms;   /* the pause after an incomplete pass; 0: the last pass was complete */
};

/* With the lock held. Returns when a pass is due or requested, or when the task is being closed. */
static void wait_for_work(struct background_task *c) {
    while (!c->closing && c->epoch == 0)
        pthread_cond_wait(&c->work, &c->lock);
    while (!c->closing && !c->asked && clock_mono_ms() < c->next) {
        struct timespec next = deadline_timespec(c->next);
        pthread_cond_clockwait(&c->work, &c->lock, CLOCK_MONOTONIC, &next);
    }
}

/* With the lock held, after a pass. After an incomplete pass, the next one comes earlier than the period. */
static void plan_next(struct background_task *c, bool done) {
    c->again_ms = done ? 0 : c->again_ms == 0 ? BACKGROUND_TASK_RETRY_MS : 2 * c->again_ms;
    if (c->again_ms > c->period_ms)
        c->again_ms = c->period_ms;
    if (!done && c->next > deadline_in(c->again_ms))
        c->next = deadline_in(c->again_ms);
}

static void *run(void *arg) {
    struct background_task *c = arg;
    pthread_mutex_lock(&c->lock);
    for (;;) {
        wait_for_work(c);
        if (c->closing)
            break;
        int64_t epoch = c->epoch;
        if (epoch == 0)
            continue;
        bool all = clock_mono_ms() >= c->next;
        if (all)
            c->next = deadline_in(c->period_ms);
        c->asked = false;
        pthread_mutex_unlock(&c->lock);
        const bool done = c->pass(c, c->ctx, epoch, all);
        pthread_mutex_lock(&c->lock);
        plan_next(c, done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

status_t background_task_open(const char *what, int64_t period_ms, background_task_fn *pass, void *ctx,
                              struct background_task **ret, struct err *e) {
    struct background_task *c = alloc_zeroed(1, sizeof *c);
    c->pass = pass;
    c->ctx = ctx;
    c->period_ms = period_ms;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    c->runs = pthread_create(&c->thread, NULL, run, c) == 0;
    if (!c->runs) {
        background_task_close(c);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for %s", what);
    }
    *ret = c;
    return ST_OK;
}

struct background_task *background_task_close(struct background_task *c) {
    if (!c)
        return NULL;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
    if (c->runs)
        pthread_join(c->thread, NULL);
    pthread_cond_destroy(&c->work);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

void background_task_lead(struct background_task *c, int64_t epoch) {
    pthread_mutex_lock(&c->lock);
    c->epoch = epoch;
    c->next = 0;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

void background_task_wake(struct background_task *c) {
    pthread_mutex_lock(&c->lock);
    c->asked = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

bool background_task_continues(struct background_task *c, int64_t epoch) {
    pthread_mutex_lock(&c->lock);
    bool on = !c->closing && c->epoch == epoch;
    pthread_mutex_unlock(&c->lock);
    return on;
}
