#include "api/rpc/call_state.h"
#include "api/rpc/request_check.h"
#include "api/rpc/server_state.h"

/* Whether the handler may run now. If the request is refused, the call ends. */
static bool may_run(struct rpc_call *c) {
    struct err e = { "" };
    if (!request_check_due(c))
        return true;
    if (!c->request)
        return false; /* woken too early: the request wakes the call again */
    status_t st = request_check(c, &e);
    if (st == ST_OK)
        return true;
    recorded_refusal(c, st, e.msg);
    rpc_finish(c, st, e.msg);
    return false;
}

/* The answer to a call that changed something must not be sent without its record. */
static status_t record(struct rpc_call *c, status_t st, struct err *e) {
    struct err why = { "" };
    status_t recorded = rpc_audit(c, st, e->msg, &why);
    return recorded == ST_OK ? st : err_set(e, recorded, "%s", why.msg);
}

static void unary_run(struct pool_job *job) {
    struct rpc_call *c = TAG_OWNER(job, struct rpc_call, work.job);
    if (!rpc_cancelled(c) && may_run(c)) {
        struct err e = { "" };
        status_t st = c->unary(c->service, c, c->request, &e);
        pthread_mutex_lock(&c->lock);
        bool replied = c->out.first != NULL;
        pthread_mutex_unlock(&c->lock);
        if (st == ST_OK && !replied)
            st = err_set(&e, ST_INTERNAL, "the method gave no answer");
        st = record(c, st, &e);
        if (!rpc_cancelled(c)) /* otherwise the client no longer waits: gRPC itself ends a late call */
            rpc_finish(c, st, e.msg);
    }
    pthread_mutex_lock(&c->lock);
    call_end_of(c);
}

void work_offer_unary(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    c->out.deferred = true; /* the reply is sent together with its status, in one batch */
    rpc_ref(c);
    c->running++;
    pthread_mutex_unlock(&c->lock);
    c->work.job.run = unary_run;
    if (pool_offer(c->work.pool, &c->work.job, c->work.limited))
        return;
    rpc_finish(c, ST_RESOURCE_EXHAUSTED, "the server is busy: too many calls wait already");
    pthread_mutex_lock(&c->lock);
    call_end_of(c);
}

void rpc_reply(struct rpc_call *c, const ProtobufCMessage *message) {
    recorded_note_reply(c, message);
    (void)send_queue(c, message);
}

static void work_run(struct pool_job *job) {
    struct rpc_call *c = TAG_OWNER(job, struct rpc_call, work.job);
    pthread_mutex_lock(&c->lock);
    c->work.queued = false;
    c->work.running = true;
    pthread_mutex_unlock(&c->lock);
    if (!atomic_load(&c->over) && may_run(c))
        c->events.work(c);
    pthread_mutex_lock(&c->lock);
    c->work.running = false;
    if (c->work.again && !atomic_load(&c->over)) {
        c->work.again = false;
        c->work.queued = true;
        pool_post(c->work.pool, &c->work.job,
                  c->work.limited); /* at the end of the queue, so that other jobs run first */
        pthread_mutex_unlock(&c->lock);
        return;
    }
    call_end_of(c);
}

void rpc_wake(struct rpc_call *c) {
    pthread_mutex_lock(&c->lock);
    if (c->work.pool && c->events.work && !c->work.queued && !atomic_load(&c->over)) {
        if (c->work.running) {
            c->work.again = true;
        } else {
            c->work.queued = true;
            rpc_ref(c);
            c->running++;
            c->work.job.run = work_run;
            pool_post(c->work.pool, &c->work.job, c->work.limited);
        }
    }
    pthread_mutex_unlock(&c->lock);
}
