#include "service/controller/chore.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdlib.h>

struct chore {
    chore_look_t *look;
    void *ctx;
    int64_t period_ms;
    pthread_mutex_t lock;
    pthread_cond_t work;
    pthread_t thread;
    bool runs, closing, asked;
    int64_t epoch;
    deadline_ms_t next; /* when all is looked at */
    int64_t again_ms;   /* the last pause before it, where a look left something undone; else 0 */
};

/* Under the lock; returns when there is something to do. */
static void wait_for_work(struct chore *c) {
    while (!c->closing && c->epoch == 0)
        pthread_cond_wait(&c->work, &c->lock);
    while (!c->closing && !c->asked && clock_mono_ms() < c->next) {
        struct timespec next = deadline_timespec(c->next);
        pthread_cond_clockwait(&c->work, &c->lock, CLOCK_MONOTONIC, &next);
    }
}

/* Under the lock, after a look. */
static void plan_next(struct chore *c, bool done) {
    c->again_ms = done ? 0 : c->again_ms == 0 ? CHORE_AGAIN_MS : 2 * c->again_ms;
    if (c->again_ms > c->period_ms)
        c->again_ms = c->period_ms;
    if (!done && c->next > deadline_in(c->again_ms))
        c->next = deadline_in(c->again_ms);
}

static void *run(void *arg) {
    struct chore *c = arg;
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
        const bool done = c->look(c, c->ctx, epoch, all);
        pthread_mutex_lock(&c->lock);
        plan_next(c, done);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

status_t chore_open(const char *what, int64_t period_ms, chore_look_t *look, void *ctx, struct chore **ret,
                    struct err *e) {
    struct chore *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %s", what);
    c->look = look;
    c->ctx = ctx;
    c->period_ms = period_ms;
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->work, NULL);
    c->runs = pthread_create(&c->thread, NULL, run, c) == 0;
    if (!c->runs) {
        chore_close(c);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for %s", what);
    }
    *ret = c;
    return ST_OK;
}

struct chore *chore_close(struct chore *c) {
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

void chore_lead(struct chore *c, int64_t epoch) {
    pthread_mutex_lock(&c->lock);
    c->epoch = epoch;
    c->next = 0;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

void chore_ask(struct chore *c) {
    pthread_mutex_lock(&c->lock);
    c->asked = true;
    pthread_cond_signal(&c->work);
    pthread_mutex_unlock(&c->lock);
}

bool chore_goes_on(struct chore *c, int64_t epoch) {
    pthread_mutex_lock(&c->lock);
    bool on = !c->closing && c->epoch == epoch;
    pthread_mutex_unlock(&c->lock);
    return on;
}
