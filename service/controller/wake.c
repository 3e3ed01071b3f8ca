#include "service/controller/wake.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>

/* Few people watch at once, and each wake is two comparisons a watcher: a list is enough. */
struct wakes {
    pthread_mutex_t lock;
    struct wake_sub *all;
};

struct wakes *wakes_new(void) {
    struct wakes *w = calloc(1, sizeof *w);
    if (w)
        pthread_mutex_init(&w->lock, NULL);
    return w;
}

struct wakes *wakes_free(struct wakes *w) {
    if (!w)
        return NULL;
    assert(!w->all);
    pthread_mutex_destroy(&w->lock);
    free(w);
    return NULL;
}

void wake_subscribe(struct wakes *w, struct wake_sub *sub) {
    pthread_mutex_lock(&w->lock);
    sub->prev = NULL;
    sub->next = w->all;
    if (w->all)
        w->all->prev = sub;
    w->all = sub;
    pthread_mutex_unlock(&w->lock);
}

void wake_unsubscribe(struct wakes *w, struct wake_sub *sub) {
    pthread_mutex_lock(&w->lock);
    if (sub->next)
        sub->next->prev = sub->prev;
    if (sub->prev)
        sub->prev->next = sub->next;
    else
        w->all = sub->next;
    pthread_mutex_unlock(&w->lock);
}

void wake_now(struct wakes *w, int64_t job) {
    pthread_mutex_lock(&w->lock);
    for (struct wake_sub *sub = w->all; sub; sub = sub->next)
        if (sub->job == job)
            sub->wake(sub->ctx);
    pthread_mutex_unlock(&w->lock);
}

void wake_soon(struct wakes *w, int64_t job) {
    pthread_mutex_lock(&w->lock);
    for (struct wake_sub *sub = w->all; sub; sub = sub->next)
        sub->soon |= sub->job == job;
    pthread_mutex_unlock(&w->lock);
}

void wake_flush(struct wakes *w) {
    pthread_mutex_lock(&w->lock);
    for (struct wake_sub *sub = w->all; sub; sub = sub->next)
        if (sub->soon) {
            sub->soon = false;
            sub->wake(sub->ctx);
        }
    pthread_mutex_unlock(&w->lock);
}
