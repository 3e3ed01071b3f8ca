#include "service/controller/follow.h"

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

/* A follower is on the hub's list from start to the end of its last serving. */
struct follower {
    struct follow_hub *hub;
    int64_t job;
    enum follow_next (*serve)(void *ctx);
    void (*release)(void *ctx);
    void *ctx;
    bool due, running, stopped, done;
    int64_t not_before_ms;
    struct follower *next, *prev;
};

struct follow_hub {
    pthread_mutex_t lock;
    pthread_cond_t work, empty;
    struct follower *all;
    int n, threads_n;
    bool closing;
    pthread_t *threads;
};

static void unlink_follower(struct follow_hub *hub, struct follower *f) {
    if (f->next)
        f->next->prev = f->prev;
    if (f->prev)
        f->prev->next = f->next;
    else
        hub->all = f->next;
    if (--hub->n == 0)
        pthread_cond_broadcast(&hub->empty);
}

/* One that may be served now; else when the next one may be. */
static struct follower *take_due(struct follow_hub *hub, int64_t *ret_wait_until) {
    int64_t now = clock_mono_ms();
    *ret_wait_until = DEADLINE_NEVER;
    for (struct follower *f = hub->all; f; f = f->next) {
        if (!f->due || f->running || f->stopped || f->done)
            continue;
        if (f->not_before_ms <= now)
            return f;
        if (f->not_before_ms < *ret_wait_until)
            *ret_wait_until = f->not_before_ms;
    }
    return NULL;
}

static void serve_one(struct follow_hub *hub, struct follower *f) {
    f->running = true;
    f->due = false;
    pthread_mutex_unlock(&hub->lock);
    enum follow_next next = f->serve(f->ctx);
    pthread_mutex_lock(&hub->lock);
    f->running = false;
    f->done = next == FOLLOW_DONE;
    f->due |= next == FOLLOW_AGAIN;
    f->not_before_ms = next == FOLLOW_LATER ? clock_mono_ms() + FOLLOW_LATER_MS : 0;
    if (f->stopped) {
        unlink_follower(hub, f);
        pthread_mutex_unlock(&hub->lock);
        f->release(f->ctx);
        free(f);
        pthread_mutex_lock(&hub->lock);
    }
}

static void *run(void *arg) {
    struct follow_hub *hub = arg;
    pthread_mutex_lock(&hub->lock);
    while (!hub->closing) {
        int64_t until;
        struct follower *f = take_due(hub, &until);
        if (f) {
            serve_one(hub, f);
        } else if (until == DEADLINE_NEVER) {
            pthread_cond_wait(&hub->work, &hub->lock);
        } else {
            struct timespec t = deadline_timespec(until);
            pthread_cond_clockwait(&hub->work, &hub->lock, CLOCK_MONOTONIC, &t);
        }
    }
    pthread_mutex_unlock(&hub->lock);
    return NULL;
}

status_t follow_hub_open(int threads, struct follow_hub **ret, struct err *e) {
    struct follow_hub *hub = calloc(1, sizeof *hub);
    pthread_t *ids = calloc((size_t)threads, sizeof *ids);
    if (!hub || !ids) {
        free(hub);
        free(ids);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the followers");
    }
    hub->threads = ids;
    pthread_mutex_init(&hub->lock, NULL);
    pthread_cond_init(&hub->work, NULL);
    pthread_cond_init(&hub->empty, NULL);
    for (; hub->threads_n < threads; hub->threads_n++)
        if (pthread_create(&ids[hub->threads_n], NULL, run, hub) != 0) {
            follow_hub_close(hub);
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the followers");
        }
    *ret = hub;
    return ST_OK;
}

struct follow_hub *follow_hub_close(struct follow_hub *hub) {
    if (!hub)
        return NULL;
    pthread_mutex_lock(&hub->lock);
    while (hub->n > 0)
        pthread_cond_wait(&hub->empty, &hub->lock);
    hub->closing = true;
    pthread_cond_broadcast(&hub->work);
    pthread_mutex_unlock(&hub->lock);
    for (int i = 0; i < hub->threads_n; i++)
        pthread_join(hub->threads[i], NULL);
    pthread_cond_destroy(&hub->work);
    pthread_cond_destroy(&hub->empty);
    pthread_mutex_destroy(&hub->lock);
    free(hub->threads);
    free(hub);
    return NULL;
}

status_t follow_start(struct follow_hub *hub, int64_t job, enum follow_next (*serve)(void *ctx),
                      void (*release)(void *ctx), void *ctx, struct follower **ret, struct err *e) {
    struct follower *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a follower of job %lld", (long long)job);
    *f = (struct follower){ .hub = hub, .job = job, .serve = serve, .release = release, .ctx = ctx, .due = true };
    pthread_mutex_lock(&hub->lock);
    if (hub->n >= FOLLOW_MOST || hub->closing) {
        pthread_mutex_unlock(&hub->lock);
        free(f);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "%d streams follow jobs already", FOLLOW_MOST);
    }
    f->next = hub->all;
    if (hub->all)
        hub->all->prev = f;
    hub->all = f;
    hub->n++;
    *ret = f;
    pthread_cond_signal(&hub->work);
    pthread_mutex_unlock(&hub->lock);
    return ST_OK;
}

void follow_poke(struct follower *f) {
    pthread_mutex_lock(&f->hub->lock);
    f->due = true;
    pthread_cond_signal(&f->hub->work);
    pthread_mutex_unlock(&f->hub->lock);
}

void follow_stop(struct follower *f) {
    struct follow_hub *hub = f->hub;
    pthread_mutex_lock(&hub->lock);
    f->stopped = true;
    bool mine = !f->running;
    if (mine)
        unlink_follower(hub, f);
    pthread_mutex_unlock(&hub->lock);
    if (mine) {
        f->release(f->ctx);
        free(f);
    }
}

void follow_wake(struct follow_hub *hub, int64_t job) {
    bool any = false;
    pthread_mutex_lock(&hub->lock);
    for (struct follower *f = hub->all; f; f = f->next)
        if (f->job == job) {
            f->due = true;
            any = true;
        }
    if (any)
        pthread_cond_broadcast(&hub->work);
    pthread_mutex_unlock(&hub->lock);
}
