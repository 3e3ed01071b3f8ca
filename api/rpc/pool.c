#include "api/rpc/pool.h"

#include "base/alloc.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

struct queue {
    struct pool_job *first, **last;
};

struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wanted;
    struct queue queues[2]; /* [1]: of limited jobs */
    unsigned long n;        /* jobs so far */
    int limited, limit;     /* limited jobs that run, and their limit */
    int offered, queue;     /* waiting jobs of pool_offer, and their limit */
    bool closing;
    int n_threads;
    pthread_t threads[];
};

/* The next job that may run, removed from its queue; NULL: none. */
static struct pool_job *take(struct pool *p) {
    const struct pool_job *other = p->queues[0].first, *limited = p->queues[1].first;
    const bool may = limited && p->limited < p->limit;
    struct queue *from = &p->queues[may && (!other || limited->number < other->number)];
    struct pool_job *job = from->first;
    if (!job)
        return NULL;
    from->first = job->next;
    if (!from->first)
        from->last = &from->first;
    p->offered -= job->offered;
    p->limited += job->limited;
    return job;
}

static void *pool_main(void *arg) {
    struct pool *p = arg;
    pthread_mutex_lock(&p->lock);
    for (;;) {
        struct pool_job *job;
        while (!(job = take(p)) && !(p->closing && !p->queues[1].first))
            pthread_cond_wait(&p->wanted, &p->lock);
        if (!job)
            break;
        const bool limited = job->limited;
        pthread_mutex_unlock(&p->lock);
        job->run(job); /* the job may be gone afterwards, or be posted again */
        pthread_mutex_lock(&p->lock);
        p->limited -= limited;
        if (limited && (p->queues[1].first || p->closing))
            pthread_cond_broadcast(&p->wanted);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

status_t pool_open(int threads, int queue, int limit, struct pool **ret, struct err *e) {
    CLEANUP(pool_closep) struct pool *p = alloc_zeroed(1, sizeof *p + (size_t)threads * sizeof p->threads[0]);
    p->queue = queue;
    p->limit = limit;
    for (int i = 0; i < 2; i++)
        p->queues[i].last = &p->queues[i].first;
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

static void append(struct pool *p, struct pool_job *job, bool offered, bool limited) {
    struct queue *to = &p->queues[limited];
    job->offered = offered;
    job->limited = limited;
    job->number = p->n++;
    job->next = NULL;
    *to->last = job;
    to->last = &job->next;
    p->offered += offered;
}

bool pool_offer(struct pool *p, struct pool_job *job, bool limited) {
    pthread_mutex_lock(&p->lock);
    bool accepted = p->offered < p->queue;
    if (accepted)
        append(p, job, true, limited);
    pthread_mutex_unlock(&p->lock);
    if (accepted)
        pthread_cond_signal(&p->wanted); /* after the unlock, because the woken thread takes the lock next */
    return accepted;
}

void pool_post(struct pool *p, struct pool_job *job, bool limited) {
    pthread_mutex_lock(&p->lock);
    append(p, job, false, limited);
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
