/* What ends a wait, and what ends all: with the work done, with NCCL's error, with the failure of the host's transport,
 * whose sockets know of a death at once, or with the deadline. Whatever comes first aborts this rank's communicators
 * and the host's transport, and so every other rank. */
#include "executor/engine/collective/nccl_transport.h"

#include "base/clock.h"

#include <stdlib.h>
#include <time.h>

enum {
    SPIN_NS = 200000, /* a wait asks without pause for so long */
    PAUSE_NS = 20000, /* then this often */
    WORD_MS = 500,    /* the device may know of a failure before the host's transport tells whose it is */
    /* The watch and the clock ask so often: a failure costs its gang a restart of seconds, of which this is nothing;
     * and a turn takes some ten microseconds, of which a processor notices nothing. */
    WATCH_MS = 10,
    ENDINGS_MOST = COLLECTIVE_LINKS_MOST + 2
};

void nccl_device_use(const struct nccl_transport *t) { (void)cudaSetDevice(t->ordinal); }

/* --- failing --- */

struct ending {
    const struct nccl_transport *transport;
    ncclComm_t comm;
    pthread_t thread;
    bool apart;
};

/* NCCL goes back to the device that the thread had, which would open a context there. The first is a new thread's own:
 * it asks CUDA for nothing that might have to wait. */
static void *ending_main(void *arg) {
    const struct ending *e = arg;
    if (e->transport->ordinal != 0)
        nccl_device_use(e->transport);
    (void)e->transport->nccl->ncclCommAbort(e->comm);
    return NULL;
}

static int ending_add(struct nccl_transport *t, ncclComm_t *comm, struct ending *all, int n) {
    ncclComm_t there = __atomic_load_n(comm, __ATOMIC_ACQUIRE);
    if (!there)
        return n;
    all[n] = (struct ending){ .transport = t, .comm = there };
    *comm = NULL;
    return n + 1;
}

/* All at once, each on a thread: an abort gives memory back, which waits for the whole device, and there what another
 * communicator has queued waits for ranks that are no more until that one is aborted too. */
static void comms_abort(struct ending *all, int n) {
    for (int i = 0; i < n; i++)
        all[i].apart = pthread_create(&all[i].thread, NULL, ending_main, &all[i]) == 0;
    for (int i = 0; i < n; i++)
        if (!all[i].apart)
            ending_main(&all[i]);
    for (int i = 0; i < n; i++)
        if (all[i].apart)
            pthread_join(all[i].thread, NULL);
}

static void pause_briefly(void) { nanosleep(&(struct timespec){ .tv_nsec = PAUSE_NS }, NULL); }

/* A split of the world that is under way may write `pieces` until the world has ended: nccl_close comes here again. */
void nccl_comms_end(struct nccl_transport *t) {
    struct ending all[ENDINGS_MOST];
    int n = ending_add(t, &t->world.comm, all, 0);
    for (int i = 0; i < t->n_links; i++)
        n = ending_add(t, &t->links[i].line.comm, all, n);
    comms_abort(all, ending_add(t, &t->pieces, all, n));
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

status_t nccl_fail_after(struct transport *transport, status_t st, const struct err *why, struct err *e) {
    struct nccl_transport *t = (struct nccl_transport *)transport;
    const int64_t until = clock_mono_ms() + WORD_MS;
    struct err told;
    status_t host;
    while ((host = t->host->ops->check(t->host, &told)) == ST_OK && clock_mono_ms() < until)
        pause_briefly();
    return host == ST_OK ? nccl_fail(t, st, why, e) : nccl_fail(t, host, &told, e);
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

status_t nccl_check(struct transport *transport, struct err *e) {
    struct nccl_transport *t = (struct nccl_transport *)transport;
    TRY(nccl_enter(t, e));
    return nccl_leave(t, ST_OK, NULL, e);
}

static status_t late(const struct nccl_transport *t, int peer, struct err *e) {
    return peer < 0 ? err_set(e, ST_DEADLINE_EXCEEDED, "the other ranks did nothing for %d ms", t->timeout_ms)
                    : err_set(e, ST_DEADLINE_EXCEEDED, "rank %d did nothing for %d ms", peer, t->timeout_ms);
}

/* With the lock held. */
static status_t ask(const struct nccl_transport *t, ncclComm_t comm, bool *ret_busy, struct err *e) {
    ncclResult_t state = ncclSuccess;
    ncclResult_t asked = comm ? t->nccl->ncclCommGetAsyncError(comm, &state) : ncclSuccess;
    *ret_busy = state == ncclInProgress;
    return nccl_status(t->nccl, asked != ncclSuccess ? asked : state, "NCCL failed", e);
}

/* --- waiting --- */

struct nccl_wait nccl_wait_new(const struct nccl_transport *t, int peer) {
    const int64_t now = clock_mono_ns();
    return (struct nccl_wait){ now, now + (int64_t)t->timeout_ms * 1000000, peer };
}

/* One look at what may end a wait; then a pause. */
static status_t wait_turn(struct nccl_transport *t, const struct nccl_wait *w, ncclComm_t const *comm, bool *ret_busy,
                          struct err *e) {
    struct err why = { "" };
    TRY(nccl_enter(t, e));
    status_t st = ask(t, *comm, ret_busy, &why);
    TRY(nccl_leave(t, st, &why, e));
    st = t->host->ops->check(t->host, &why);
    if (st != ST_OK)
        return nccl_fail(t, st, &why, e);
    const int64_t now = clock_mono_ns();
    if (now > w->deadline_ns) {
        st = late(t, w->peer, &why);
        return nccl_fail(t, st, &why, e);
    }
    if (now - w->begun_ns > SPIN_NS)
        pause_briefly();
    return ST_OK;
}

status_t nccl_await_comm(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm, struct err *e) {
    for (bool busy = true; busy;)
        TRY(wait_turn(t, &w, comm, &busy, e));
    return ST_OK;
}

status_t nccl_await_event(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm, cudaEvent_t event,
                          struct err *e) {
    cudaError_t there;
    while ((there = cudaEventQuery(event)) == cudaErrorNotReady) {
        bool busy;
        TRY(wait_turn(t, &w, comm, &busy, e));
    }
    struct err why = { "" };
    TRY(nccl_or_fail(t, cuda_status(there, "waiting for other ranks", &why), &why, e));
    return nccl_check(&t->transport, e);
}

/* --- operations --- */

static status_t operation_make(struct nccl_transport *t, int channel, struct operation **ret, struct err *e) {
    const int n = t->channels[channel].n;
    struct operation **items = realloc(t->channels[channel].items, ((size_t)n + 1) * sizeof(struct operation *));
    struct operation *o = calloc(1, sizeof *o);
    if (items)
        t->channels[channel].items = items;
    if (!items || !o) {
        free(o);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a transfer");
    }
    o->channel = channel;
    o->ticket = n;
    items[n] = o;
    t->channels[channel].n++;
    *ret = o;
    TRY(cuda_status(cudaEventCreateWithFlags(&o->before, cudaEventDisableTiming), "making an event", e));
    return cuda_status(cudaEventCreateWithFlags(&o->done, cudaEventDisableTiming), "making an event", e);
}

status_t nccl_operation_new(struct nccl_transport *t, int channel, struct line *line, int peer, struct operation **ret,
                            struct err *e) {
    pthread_mutex_lock(&t->queue);
    struct operation *o = t->channels[channel].free;
    if (o)
        t->channels[channel].free = o->next;
    pthread_mutex_unlock(&t->queue);
    if (!o)
        TRY(operation_make(t, channel, &o, e));
    o->line = line;
    o->peer = peer;
    o->since_ns = 0;
    *ret = o;
    return ST_OK;
}

/* With `queue` held. */
static void operation_free(struct nccl_transport *t, struct operation *o) {
    o->next = t->channels[o->channel].free;
    t->channels[o->channel].free = o;
}

void nccl_operation_let(struct nccl_transport *t, struct operation *o, bool watched) {
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
    for (int c = 0; c < COLLECTIVE_CHANNELS; c++) {
        for (int i = 0; i < t->channels[c].n; i++) {
            struct operation *o = t->channels[c].items[i];
            if (o->before)
                (void)cudaEventDestroy(o->before);
            if (o->done)
                (void)cudaEventDestroy(o->done);
            free(o);
        }
        free(t->channels[c].items);
    }
}

/* --- the clock --- */

/* Errors of the device are the kernels' to tell: what it cannot say is not done. */
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

/* Of what has been queued those that are done leave. The others' clocks run when the kernels' stream has come to where
 * they may begin or somebody waits for them, and nothing before them on their line is under way. That stream comes to
 * one `before` after the other. Others add at the end alone. */
static status_t operations_look(struct nccl_transport *t, int64_t now, struct err *e) {
    const int64_t most = (int64_t)t->timeout_ms * 1000000;
    struct operation **at = &t->first, *o;
    t->turn++;
    while ((o = operation_at(t, at)) && reached(o->before)) {
        if (reached(o->done)) {
            operation_end(t, at);
            continue;
        }
        if (o->line->seen != t->turn && o->since_ns == 0)
            o->since_ns = now;
        o->line->seen = t->turn;
        if (o->since_ns > 0 && now - o->since_ns > most)
            return late(t, o->peer, e);
        at = &o->next;
    }
    return ST_OK;
}

/* Until it is signalled or a turn's time is over. */
static void pause_on(pthread_cond_t *signal, pthread_mutex_t *lock) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += WATCH_MS * 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_cond_timedwait(signal, lock, &until);
}

static void *clock_main(void *arg) {
    struct nccl_transport *t = arg;
    struct err why, told;
    status_t st = ST_OK;
    nccl_device_use(t);
    pthread_mutex_lock(&t->queue);
    while (!t->closing && st == ST_OK) {
        if (!t->first) {
            pthread_cond_wait(&t->queued, &t->queue);
            continue;
        }
        pthread_mutex_unlock(&t->queue);
        st = operations_look(t, clock_mono_ns(), &why);
        if (st != ST_OK)
            status_ignore(nccl_fail(t, st, &why, &told)); /* it is kept */
        pthread_mutex_lock(&t->queue);
        if (!t->closing && st == ST_OK)
            pause_on(&t->queued, &t->queue);
    }
    pthread_mutex_unlock(&t->queue);
    return NULL;
}

/* --- the watch --- */

static status_t watch_turn(struct nccl_transport *t, struct err *e) {
    struct err why = { "" };
    bool busy;
    status_t st = t->host->ops->check(t->host, &why);
    TRY(nccl_or_fail(t, st, &why, e));
    TRY(nccl_enter(t, e));
    st = ask(t, t->world.comm, &busy, &why);
    if (st == ST_OK)
        st = ask(t, t->pieces, &busy, &why);
    for (int i = 0; i < t->n_links && st == ST_OK; i++)
        st = ask(t, t->links[i].line.comm, &busy, &why);
    return nccl_leave(t, st, &why, e);
}

static void *watch_main(void *arg) {
    struct nccl_transport *t = arg;
    struct err told;
    pthread_mutex_lock(&t->lock);
    while (!t->closing && t->status == ST_OK) {
        pthread_mutex_unlock(&t->lock);
        status_ignore(watch_turn(t, &told)); /* it is kept */
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
    return error ? err_set(e, status_of_errno(error), "a thread that watches NCCL could not be started") : ST_OK;
}

status_t nccl_watch_open(struct nccl_transport *t, struct err *e) {
    TRY(start(&t->watch, watch_main, t, &t->watching, e));
    return start(&t->clock, clock_main, t, &t->timing, e);
}

void nccl_watch_close(struct nccl_transport *t) {
    pthread_mutex_lock(&t->lock);
    pthread_mutex_lock(&t->queue);
    t->closing = true;
    pthread_cond_signal(&t->ends);
    pthread_cond_signal(&t->queued);
    pthread_mutex_unlock(&t->queue);
    pthread_mutex_unlock(&t->lock);
    if (t->watching)
        pthread_join(t->watch, NULL);
    if (t->timing)
        pthread_join(t->clock, NULL);
    t->watching = t->timing = false;
}
