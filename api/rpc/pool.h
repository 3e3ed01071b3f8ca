/* Worker threads for code that may block: unary handlers and the `work` of streams.
 *
 * A job is a function inside a larger struct. The struct contains the link of the queue, so posting allocates no
 * memory. pool_offer is bounded. pool_post is for jobs whose number is bounded elsewhere (one per call) and is never
 * refused. Jobs start in the order in which they were posted.
 *
 * At most `limit` limited jobs run at once, so that the others always find a thread soon. A limited job that must wait
 * for that lets later jobs that are not limited pass. */
#ifndef API_RPC_POOL_H
#define API_RPC_POOL_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>

struct pool;

struct pool_job {
    void (*run)(struct pool_job *);
    struct pool_job *next;
    unsigned long number; /* in the order of arrival */
    bool offered, limited;
};

/* limit: at least 1. */
MUST_CHECK status_t pool_open(int threads, int queue, int limit, struct pool **ret, struct err *e);
bool pool_offer(struct pool *, struct pool_job *, bool limited); /* false if `queue` offered jobs wait already */
void pool_post(struct pool *, struct pool_job *, bool limited);
/* Runs the waiting jobs, then joins the threads. NULL is fine; returns NULL. */
struct pool *pool_close(struct pool *);
CLEANUP_DEFINE(struct pool *, pool_close)

#endif
