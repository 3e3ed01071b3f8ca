#include "api/rpc/pool.h"

#include "base/alloc.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct pool_job *first, **last;
    int offered, queue; /* waiting jobs of pool_offer, and their limit */
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
    CLEANUP(pool_closep) struct pool *p = alloc_zeroed(1, sizeof *p + (size_t)threads * sizeof p->threads[0]);
    p->queue = queue;
    p->last = &p->first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->wanted, NULL);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the main thread only */
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
    bool accepted = p->offered < p->queue;
    if (accepted) {
        job->offered = true;
        p->offered++;
        append(p, job);
    }
    pthread_mutex_unlock(&p->lock);
    if (accepted)
        pthread_cond_signal(&p->wanted); /* after the unlock, because the woken thread takes the lock next */
    return accepted;
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
