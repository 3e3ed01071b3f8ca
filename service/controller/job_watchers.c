#include "service/controller/job_watchers.h"

#include "base/alloc.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* Few clients watch at the same time, and a notification costs two comparisons per watcher: a list is enough. */
struct job_watchers {
    pthread_mutex_t lock;
    struct job_watcher *all;
};

struct job_watchers *job_watchers_new(void) {
    struct job_watchers *w = alloc_zeroed(1, sizeof *w);
    pthread_mutex_init(&w->lock, NULL);
    return w;
}

struct job_watchers *job_watchers_free(struct job_watchers *w) {
    if (!w)
        return NULL;
    assert(!w->all);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void job_watchers_add(struct job_watchers *w, struct job_watcher *sub) {
    pthread_mutex_lock(&w->lock);
    sub->prev = NULL;
    sub->next = w->all;
    if (w->all)
        w->all->prev = sub;
    w->all = sub;
    pthread_mutex_unlock(&w->lock);
}

void job_watchers_remove(struct job_watchers *w, struct job_watcher *sub) {
    pthread_mutex_lock(&w->lock);
    if (sub->next)
        sub->next->prev = sub->prev;
    if (sub->prev)
        sub->prev->next = sub->next;
    else
        w->all = sub->next;
    pthread_mutex_unlock(&w->lock);
}

void job_watchers_notify(struct job_watchers *w, int64_t job) {
    pthread_mutex_lock(&w->lock);
    for (struct job_watcher *sub = w->all; sub; sub = sub->next)
        if (sub->job == job)
            sub->wake(sub->ctx);
    pthread_mutex_unlock(&w->lock);
}

void job_watchers_notify_all(struct job_watchers *w) {
    pthread_mutex_lock(&w->lock);
    for (struct job_watcher *sub = w->all; sub; sub = sub->next)
        sub->wake(sub->ctx);
    pthread_mutex_unlock(&w->lock);
}

void job_watchers_notify_later(struct job_watchers *w, int64_t job) {
    pthread_mutex_lock(&w->lock);
    for (struct job_watcher *sub = w->all; sub; sub = sub->next)
        sub->soon |= sub->job == job;
    pthread_mutex_unlock(&w->lock);
}

void job_watchers_wake_later(struct job_watchers *w, struct job_watcher *sub) {
    pthread_mutex_lock(&w->lock);
    sub->soon = true;
    pthread_mutex_unlock(&w->lock);
}

void job_watchers_flush(struct job_watchers *w) {
    pthread_mutex_lock(&w->lock);
    for (struct job_watcher *sub = w->all; sub; sub = sub->next)
        if (sub->soon) {
            sub->soon = false;
            sub->wake(sub->ctx);
        }
    pthread_mutex_unlock(&w->lock);
}
