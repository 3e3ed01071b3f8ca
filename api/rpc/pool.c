#include "api/rpc/pool.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct pool_job *first, **last;
    int offered, queue; /* jobs by pool_offer that wait, and how many may */
    bool closing;
    int n_threads;
    pthread_t threads[];
};

static void *pool_main(void *arg) {
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->first && !p->closing)
            pthread_cond_wait(&p->wanted, &p->lock);
        struct pool_job *job = p->first;
        if (!job)
            break;
        p->first = job->next;
        if (!p->first)
            p->last = &p->first;
        p->offered -= job->offered;
        pthread_mutex_unlock(&p->lock);
        job->run(job);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

status_t pool_open(int threads, int queue, struct pool **ret, struct err *e) {
    CLEANUP(pool_closep) struct pool *p = calloc(1, sizeof *p + (size_t)threads * sizeof p->threads[0]);
    if (!p)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d RPC workers", threads);
    p->queue = queue;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wanted, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own thread */
    int failed = 0;
    while (p->n_threads < threads && !failed) {
        failed = pthread_create(&p->threads[p->n_threads], NULL, pool_main, p);
        p->n_threads += !failed;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for RPC worker %d: %s", p->n_threads, strerror(failed));
    *ret = take_ptr(&p);
    return ST_OK;
}

static void append(struct pool *p, struct pool_job *job) {
    job->next = NULL;
    *p->last = job;
    p->last = &job->next;
}

bool pool_offer(struct pool *p, struct pool_job *job) {
    pthread_mutex_lock(&p->lock);
    bool room = p->offered < p->queue;
    if (room) {
        job->offered = true;
        p->offered++;
        append(p, job);
    }
    pthread_mutex_unlock(&p->lock);
    if (room)
        pthread_cond_signal(&p->wanted); /* after the lock: the woken thread takes it next */
    return room;
}

void pool_post(struct pool *p, struct pool_job *job) {
    pthread_mutex_lock(&p->lock);
    job->offered = false;
    append(p, job);
    pthread_mutex_unlock(&p->lock);
    pthread_cond_signal(&p->wanted);
}

struct pool *pool_close(struct pool *p) {
    if (!p)
        return NULL;
    pthread_mutex_lock(&p->lock);
    p->closing = true;
    pthread_cond_broadcast(&p->wanted);
    pthread_mutex_unlock(&p->lock);
    for (int i = 0; i < p->n_threads; i++)
        pthread_join(p->threads[i], NULL);
    pthread_cond_destroy(&p->wanted);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}
