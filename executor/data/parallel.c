#include "executor/data/parallel.h"

#include <pthread.h>

struct work {
    int n, next;
    status_t (*each)(void *ctx, int i, struct http *h, struct err *e);
    void *ctx;
    pthread_mutex_t mutex;
    status_t st; /* the first failure */
    struct err why;
};

status_t parallel_run(int threads, void *(*run)(void *ctx), void *ctx, struct err *e) {
    pthread_t started[PARALLEL_THREADS];
    int n = 0;
    while (n < threads && n < PARALLEL_THREADS && pthread_create(&started[n], NULL, run, ctx) == 0)
        n++;
    for (int i = 0; i < n; i++)
        pthread_join(started[i], NULL);
    return n > 0 || threads == 0 ? ST_OK : err_set(e, ST_RESOURCE_EXHAUSTED, "the host allows no more threads");
}

static void fail(struct work *w, status_t st, const struct err *why) {
    pthread_mutex_lock(&w->mutex);
    if (w->st == ST_OK) {
        w->st = st;
        w->why = *why;
    }
    pthread_mutex_unlock(&w->mutex);
}

/* -1: there is nothing left to do. */
static int take(struct work *w) {
    pthread_mutex_lock(&w->mutex);
    const int i = w->st == ST_OK && w->next < w->n ? w->next++ : -1;
    pthread_mutex_unlock(&w->mutex);
    return i;
}

static void *run(void *ctx) {
    struct work *w = ctx;
    struct err why = { "" };
    CLEANUP(http_closep) struct http *h = NULL;
    status_t st = http_open(&h, &why);
    for (int i; st == ST_OK && (i = take(w)) >= 0;)
        st = w->each(w->ctx, i, h, &why);
    if (st != ST_OK)
        fail(w, st, &why);
    return NULL;
}

status_t parallel_each(int n, status_t (*each)(void *ctx, int i, struct http *h, struct err *e), void *ctx,
                       struct err *e) {
    struct work w = { .n = n, .each = each, .ctx = ctx, .mutex = PTHREAD_MUTEX_INITIALIZER };
    TRY(parallel_run(n < PARALLEL_THREADS ? n : PARALLEL_THREADS, run, &w, e));
    return w.st == ST_OK ? ST_OK : err_set(e, w.st, "%s", w.why.msg);
}
