/* NCCL's transport: waiting, detecting failures, aborting.
 *
 * Every wait ends with the first of: the work is done, NCCL reports an error, the host's transport reports a failure
 * (its sockets notice a death at once), or the deadline passes. The first failure aborts the host's transport, which
 * fails every other rank, and this rank's communicators.
 *
 * Two threads supervise queued work, for which no call of the host waits. The watch thread polls the communicators and
 * the host's transport every 10 ms and calls no function of CUDA, which could block with the device. The deadline
 * thread goes through the queued operations in order and counts the time for which an operation waits for other ranks
 * only.
 *
 * All communicators are aborted at the same time, each on a thread of its own: an abort frees memory, which waits for
 * the whole device, on which the receive of another communicator may wait for a lost rank. */
#include "engine/collective/nccl_transport.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

enum {
    SPIN_NS = 200000, /* a wait polls without pause for this long */
    PAUSE_NS = 20000, /* then at this interval */
    REASON_MS = 500,  /* how long the host's transport may take to report which rank failed */
    /* How often both threads check. A failure costs its gang a restart of seconds, compared with which this interval
     * is short. A check takes about ten microseconds, so the load is negligible. */
    WATCH_MS = 10,
    MAX_ABORTS = COLLECTIVE_MAX_LINKS + 2
};

void nccl_device_use(const struct nccl_transport *t) { (void)cudaSetDevice(t->ordinal); }

/* --- failing --- */

struct abort_job {
    const struct nccl_transport *transport;
    ncclComm_t comm;
    pthread_t thread;
    bool has_thread;
};

/* NCCL restores the device that the thread had before, which would open a context there. Device 0 is the default of a
 * new thread, so that no call of CUDA is needed for it. */
static void *abort_main(void *arg) {
    const struct abort_job *e = arg;
    if (e->transport->ordinal != 0)
        nccl_device_use(e->transport);
    (void)e->transport->nccl->ncclCommAbort(e->comm);
    return NULL;
}

static int abort_add(struct nccl_transport *t, ncclComm_t *comm, struct abort_job *all, int n) {
    ncclComm_t current = __atomic_load_n(comm, __ATOMIC_ACQUIRE);
    if (!current)
        return n;
    all[n] = (struct abort_job){ .transport = t, .comm = current };
    *comm = NULL;
    return n + 1;
}

/* Aborts all at the same time, each on a thread of its own. An abort frees memory, which waits for the whole device,
 * and queued work of another communicator may wait there for a lost rank until that communicator is aborted too. */
static void comms_abort(struct abort_job *all, int n) {
    for (int i = 0; i < n; i++)
        all[i].has_thread = pthread_create(&all[i].thread, NULL, abort_main, &all[i]) == 0;
    for (int i = 0; i < n; i++)
        if (!all[i].has_thread)
            abort_main(&all[i]);
    for (int i = 0; i < n; i++)
        if (all[i].has_thread)
            pthread_join(all[i].thread, NULL);
}

static void pause_briefly(void) { nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL); }

/* A split of the world in progress may write `shards` until the world has ended: nccl_close calls this again. */
void nccl_comms_end(struct nccl_transport *t) {
    struct abort_job all[MAX_ABORTS];
    int n = abort_add(t, &t->world.comm, all, 0);
    for (int i = 0; i < t->n_links; i++)
        n = abort_add(t, &t->links[i].communicator.comm, all, n);
    comms_abort(all, abort_add(t, &t->shards, all, n));
}

status_t nccl_fail(struct nccl_transport *t, status_t st, const struct err *why, struct err *e) {
    pthread_mutex_lock(&t->lock);
    if (t->status == ST_OK) {
        t->status = st;
        t->error = *why;
        t->host->ops->abort(t->host, why->msg);
        nccl_comms_end(t);
    }
    st = err_set(e, t->status, "%s", t->error.msg);
    pthread_mutex_unlock(&t->lock);
    return st;
}

status_t nccl_or_fail(struct nccl_transport *t, status_t st, const struct err *why, struct err *e) {
    return st == ST_OK ? ST_OK : nccl_fail(t, st, why, e);
}

status_t nccl_fail_after(struct collective_transport *transport, status_t st, const struct err *why, struct err *e) {
    struct nccl_transport *t = (struct nccl_transport *)transport;
    const int64_t until = clock_mono_ms() + REASON_MS;
    struct err error;
    status_t host;
    while ((host = t->host->ops->check(t->host, &error)) == ST_OK && clock_mono_ms() < until)
        pause_briefly();
    return host == ST_OK ? nccl_fail(t, st, why, e) : nccl_fail(t, host, &error, e);
}

status_t nccl_enter(struct nccl_transport *t, struct err *e) {
    pthread_mutex_lock(&t->lock);
    if (t->status == ST_OK)
        return ST_OK;
    status_t st = err_set(e, t->status, "%s", t->error.msg);
    pthread_mutex_unlock(&t->lock);
    return st;
}

status_t nccl_leave(struct nccl_transport *t, status_t st, const struct err *why, struct err *e) {
    pthread_mutex_unlock(&t->lock);
    return st == ST_OK ? ST_OK : nccl_fail_after(&t->transport, st, why, e);
}

status_t nccl_check(struct collective_transport *transport, struct err *e) {
    struct nccl_transport *t = (struct nccl_transport *)transport;
    TRY(nccl_enter(t, e));
    return nccl_leave(t, ST_OK, NULL, e);
}

static status_t deadline_error(const struct nccl_transport *t, int peer, struct err *e) {
    return peer < 0 ? err_set(e, ST_DEADLINE_EXCEEDED, "the other ranks did nothing for %d ms", t->timeout_ms)
                    : err_set(e, ST_DEADLINE_EXCEEDED, "rank %d did nothing for %d ms", peer, t->timeout_ms);
}

/* With the lock held. */
static status_t comm_check(const struct nccl_transport *t, ncclComm_t comm, bool *ret_busy, struct err *e) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t wanted = comm ? t->nccl->ncclCommGetAsyncError(comm, &state) : ncclSuccess;
    *ret_busy = state == ncclInProgress;
    return nccl_status(t->nccl, wanted != ncclSuccess ? wanted : state, "NCCL failed", e);
}

/* --- waiting --- */

struct nccl_wait nccl_wait_new(const struct nccl_transport *t, int peer) {
    const int64_t now = clock_mono_ns();
    return (struct nccl_wait){ now, now + (int64_t)t->timeout_ms * 1000000, peer };
}

/* Checks once everything that may end a wait; then pauses. */
static status_t wait_check(struct nccl_transport *t, const struct nccl_wait *w, ncclComm_t const *comm, bool *ret_busy,
                           struct err *e) {
    struct err why = { "" };
    TRY(nccl_enter(t, e));
    status_t st = comm_check(t, *comm, ret_busy, &why);
    TRY(nccl_leave(t, st, &why, e));
    st = t->host->ops->check(t->host, &why);
    if (st != ST_OK)
        return nccl_fail(t, st, &why, e);
    const int64_t now = clock_mono_ns();
    if (now > w->deadline_ns) {
        st = deadline_error(t, w->peer, &why);
        return nccl_fail(t, st, &why, e);
    }
    if (now - w->begun_ns > SPIN_NS)
        pause_briefly();
    return ST_OK;
}

status_t nccl_await_comm(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm, struct err *e) {
    for (bool busy = true; busy;)
        TRY(wait_check(t, &w, comm, &busy, e));
    return ST_OK;
}

status_t nccl_await_event(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm, cudaEvent_t event,
                          struct err *e) {
    cudaError_t state;
    while ((state = cudaEventQuery(event)) == cudaErrorNotReady) {
        bool busy;
        TRY(wait_check(t, &w, comm, &busy, e));
    }
    struct err why = { "" };
    TRY(nccl_or_fail(t, cuda_status(state, "waiting for other ranks", &why), &why, e));
    return nccl_check(&t->transport, e);
}

/* --- operations --- */

static status_t operation_make(struct nccl_transport *t, int stream, struct operation **ret, struct err *e) {
    const int n = t->streams[stream].n;
    struct operation *o = alloc_zeroed(1, sizeof *o);
    t->streams[stream].items = alloc_resize(t->streams[stream].items, (size_t)n + 1, sizeof(struct operation *));
    o->stream = stream;
    o->ticket = n;
    t->streams[stream].items[n] = o;
    t->streams[stream].n++;
    *ret = o;
    TRY(cuda_status(cudaEventCreateWithFlags(&o->before, cudaEventDisableTiming), "making an event", e));
    return cuda_status(cudaEventCreateWithFlags(&o->done, cudaEventDisableTiming), "making an event", e);
}

status_t nccl_operation_new(struct nccl_transport *t, int stream, struct communicator *communicator, int peer,
                            struct operation **ret, struct err *e) {
    pthread_mutex_lock(&t->queue);
    struct operation *o = t->streams[stream].free;
    if (o)
        t->streams[stream].free = o->next;
    pthread_mutex_unlock(&t->queue);
    if (!o)
        TRY(operation_make(t, stream, &o, e));
    o->communicator = communicator;
    o->peer = peer;
    o->since_ns = 0;
    *ret = o;
    return ST_OK;
}

/* With `queue` held. */
static void operation_free(struct nccl_transport *t, struct operation *o) {
    o->next = t->streams[o->stream].free;
    t->streams[o->stream].free = o;
}

void nccl_operation_release(struct nccl_transport *t, struct operation *o, bool watched) {
    pthread_mutex_lock(&t->queue);
    if (watched) {
        if (!t->first)
            pthread_cond_signal(&t->queued);
        o->next = NULL;
        *t->last = o;
        t->last = &o->next;
    } else {
        operation_free(t, o);
    }
    pthread_mutex_unlock(&t->queue);
}

void nccl_operations_free(struct nccl_transport *t) {
    for (int c = 0; c < COLLECTIVE_STREAMS; c++) {
        for (int i = 0; i < t->streams[c].n; i++) {
            struct operation *o = t->streams[c].items[i];
            if (o->before)
                (void)cudaEventDestroy(o->before);
            if (o->done)
                (void)cudaEventDestroy(o->done);
            free(o);
        }
        free(t->streams[c].items);
    }
}

/* --- the deadline thread --- */

/* The kernels report errors of the device; here an error means that the event is not reached. */
static bool reached(cudaEvent_t event) { return cudaEventQuery(event) == cudaSuccess; }

static struct operation *operation_at(struct nccl_transport *t, struct operation *const *at) {
    pthread_mutex_lock(&t->queue);
    struct operation *o = *at;
    pthread_mutex_unlock(&t->queue);
    return o;
}

static void operation_end(struct nccl_transport *t, struct operation **at) {
    pthread_mutex_lock(&t->queue);
    struct operation *o = *at;
    *at = o->next;
    if (!*at)
        t->last = at;
    operation_free(t, o);
    pthread_mutex_unlock(&t->queue);
}

/* Removes the operations that are done, and checks the deadlines of the others. The time of an operation runs when the
 * kernels' stream has reached its `before` and no earlier operation of its communicator is unfinished. The stream
 * reaches the `before` events in the order of the list, so the scan ends at the first one that is not reached. Other
 * threads only append to the list. */
static status_t operations_check(struct nccl_transport *t, int64_t now, struct err *e) {
    const int64_t limit = (int64_t)t->timeout_ms * 1000000;
    struct operation **at = &t->first, *o;
    t->scan++;
    while ((o = operation_at(t, at)) && reached(o->before)) {
        if (reached(o->done)) {
            operation_end(t, at);
            continue;
        }
        if (o->communicator->busy_scan != t->scan && o->since_ns == 0)
            o->since_ns = now;
        o->communicator->busy_scan = t->scan;
        if (o->since_ns > 0 && now - o->since_ns > limit)
            return deadline_error(t, o->peer, e);
        at = &o->next;
    }
    return ST_OK;
}

/* Waits for the signal, at most WATCH_MS. */
static void pause_on(pthread_cond_t *signal, pthread_mutex_t *lock) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WATCH_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(signal, lock, &until);
}

static void *deadline_main(void *arg) {
    struct nccl_transport *t = arg;
    struct err why, error;
    status_t st = ST_OK;
    nccl_device_use(t);
    pthread_mutex_lock(&t->queue);
    while (!t->closing && st == ST_OK) {
        if (!t->first) {
            pthread_cond_wait(&t->queued, &t->queue);
            continue;
        }
        pthread_mutex_unlock(&t->queue);
        st = operations_check(t, clock_mono_ns(), &why);
        if (st != ST_OK)
            status_ignore(nccl_fail(t, st, &why, &error)); /* nccl_fail keeps it */
        pthread_mutex_lock(&t->queue);
        if (!t->closing && st == ST_OK)
            pause_on(&t->queued, &t->queue);
    }
    pthread_mutex_unlock(&t->queue);
    return NULL;
}

/* --- the watch thread --- */

static status_t watch_check(struct nccl_transport *t, struct err *e) {
    struct err why = { "" };
    bool busy;
    status_t st = t->host->ops->check(t->host, &why);
    TRY(nccl_or_fail(t, st, &why, e));
    TRY(nccl_enter(t, e));
    st = comm_check(t, t->world.comm, &busy, &why);
    if (st == ST_OK)
        st = comm_check(t, t->shards, &busy, &why);
    for (int i = 0; i < t->n_links && st == ST_OK; i++)
        st = comm_check(t, t->links[i].communicator.comm, &busy, &why);
    return nccl_leave(t, st, &why, e);
}

static void *watch_main(void *arg) {
    struct nccl_transport *t = arg;
    struct err error;
    pthread_mutex_lock(&t->lock);
    while (!t->closing && t->status == ST_OK) {
        pthread_mutex_unlock(&t->lock);
        status_ignore(watch_check(t, &error)); /* nccl_fail keeps it */
        pthread_mutex_lock(&t->lock);
        if (!t->closing && t->status == ST_OK)
            pause_on(&t->ends, &t->lock);
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

static status_t start(pthread_t *thread, void *(*body)(void *), struct nccl_transport *t, bool *ret, struct err *e) {
    const int error = pthread_create(thread, NULL, body, t);
    *ret = error == 0;
    return error ? err_set(e, status_of_errno(error), "cannot start a thread that watches NCCL") : ST_OK;
}

status_t nccl_watch_open(struct nccl_transport *t, struct err *e) {
    TRY(start(&t->watch_thread, watch_main, t, &t->watch_runs, e));
    return start(&t->deadline_thread, deadline_main, t, &t->deadline_runs, e);
}

void nccl_watch_close(struct nccl_transport *t) {
    pthread_mutex_lock(&t->lock);
    pthread_mutex_lock(&t->queue);
    t->closing = true;
    pthread_cond_signal(&t->ends);
    pthread_cond_signal(&t->queued);
    pthread_mutex_unlock(&t->queue);
    pthread_mutex_unlock(&t->lock);
    if (t->watch_runs)
        pthread_join(t->watch_thread, NULL);
    if (t->deadline_runs)
        pthread_join(t->deadline_thread, NULL);
    t->watch_runs = t->deadline_runs = false;
}
