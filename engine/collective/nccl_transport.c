/* NCCL's transport: queueing work on the device.
 *
 * Order: every call only queues work. The work begins after all work that the kernels' CUDA stream had when the call
 * was made, and runs on a CUDA stream of its own: one for DATA, one for each link of a pipeline. The kernels continue
 * without waiting until `finish` makes their stream wait for a transfer, on the device. The host waits only until
 * NCCL's own thread has issued the work, and for other ranks only while connecting (nccl_connect.c).
 *
 * No deadlock follows from queueing ahead: the device waits exactly where a host that blocks would have waited, and
 * plan_verify has proved that this order ends on all ranks together. A receive that waits on the device delays only the
 * work behind it on its own CUDA stream, and the kernels after its WAIT.
 *
 * An exchange moves segments of 16 MiB: ncclSend and ncclRecv in one group, then a kernel adds the segment while the
 * next one arrives.
 *
 * Failures: communicators do not block, so that every wait ends. nccl_watch.c watches the queued work. No call of NCCL
 * runs during an abort: each call holds the lock, except while opening and closing, when no other thread can abort. */
#include "engine/collective/nccl_transport.h"
#include "engine/collective/internal.h"
#include "engine/collective/nccl_accumulate.h"

status_t nccl_group_begin(struct nccl_transport *t, struct err *e) {
    struct err why = { "" };
    TRY(nccl_enter(t, e));
    status_t st = nccl_status(t->nccl, t->nccl->ncclGroupStart(), "begin a group", &why);
    return st == ST_OK ? ST_OK : nccl_leave(t, st, &why, e);
}

status_t nccl_group_end(struct nccl_transport *t, ncclResult_t result, const char *what, struct err *e) {
    struct err why = { "" };
    status_t st = nccl_status(t->nccl, result, what, &why);
    result = t->nccl->ncclGroupEnd();
    if (st == ST_OK)
        st = nccl_status(t->nccl, result, what, &why);
    return nccl_leave(t, st, &why, e);
}

/* --- order on the device --- */

status_t nccl_event_record(cudaStream_t stream, cudaEvent_t event, struct err *e) {
    return cuda_status(cudaEventRecord(event, stream), "marking the place in a stream", e);
}

/* Makes later work on `stream` wait for all work queued on `before` so far. */
static status_t order(cudaStream_t before, cudaEvent_t event, cudaStream_t stream, struct err *e) {
    TRY(nccl_event_record(before, event, e));
    return cuda_status(cudaStreamWaitEvent(stream, event, 0), "ordering two streams", e);
}

/* Operations of DATA run on the world's CUDA stream, one after the other. */
static status_t operation_begin(struct nccl_transport *t, int peer, struct operation **ret, struct err *e) {
    TRY(nccl_operation_new(t, COLLECTIVE_DATA, &t->world, peer, ret, e));
    return order(t->compute, (*ret)->before, t->world.cuda_stream, e);
}

static status_t operation_end(struct nccl_transport *t, struct operation *o, struct err *e) {
    TRY(nccl_event_record(t->world.cuda_stream, o->done, e));
    nccl_operation_release(t, o, true);
    return ST_OK;
}

/* --- exchanges --- */

struct segment {
    size_t at, out, in; /* bytes of this segment; 0: that direction has ended */
};

static bool segment_next(const struct exchange *w, struct segment *s) {
    s->at += SEGMENT_BYTES;
    s->out = s->at < w->n_out ? w->n_out - s->at : 0;
    s->in = s->at < w->n_in ? w->n_in - s->at : 0;
    s->out = s->out < SEGMENT_BYTES ? s->out : SEGMENT_BYTES;
    s->in = s->in < SEGMENT_BYTES ? s->in : SEGMENT_BYTES;
    return s->out > 0 || s->in > 0;
}

static status_t segment_send(struct nccl_transport *t, const struct exchange *w, const struct segment *s, char *to,
                             struct err *e) {
    const struct nccl_library *nccl = t->nccl;
    const char *out = (const char *)w->out + s->at;
    ncclResult_t result = ncclSuccess;
    TRY(nccl_group_begin(t, e));
    if (s->in)
        result = nccl->ncclRecv(to, s->in, ncclInt8, w->from, t->world.comm, t->world.cuda_stream);
    if (s->out && nccl_goes_on(result))
        result = nccl->ncclSend(out, s->out, ncclInt8, w->to, t->world.comm, t->world.cuda_stream);
    TRY(nccl_group_end(t, result, "exchange a segment", e));
    return nccl_await_comm(t, nccl_wait_new(t, w->from), &t->world.comm, e);
}

static status_t segment_accumulate(struct nccl_transport *t, const struct exchange *w, const struct segment *s,
                                   int slot, cudaEvent_t *ret, struct err *e) {
    char *in = (char *)w->in + s->at, *arrived = t->staging + (size_t)slot * SEGMENT_BYTES;
    TRY(order(t->world.cuda_stream, t->arrived[slot], t->accumulating, e));
    cudaError_t error = w->kind == EXCHANGE_ADD
                            ? nccl_accumulate_add((float *)(void *)in, (const float *)(const void *)arrived,
                                                  s->in / sizeof(float), t->accumulating)
                            : nccl_accumulate_or((unsigned long long *)(void *)in,
                                                 (const unsigned long long *)(const void *)arrived,
                                                 s->in / sizeof(unsigned long long), t->accumulating);
    TRY(cuda_status(error, "adding what has arrived", e));
    *ret = t->accumulated[slot];
    return nccl_event_record(t->accumulating, t->accumulated[slot], e);
}

static status_t exchange_in_segments(struct nccl_transport *t, const struct exchange *w, struct err *e) {
    struct segment s = { .at = (size_t)0 - SEGMENT_BYTES };
    struct operation *o = NULL;
    cudaEvent_t accumulated = NULL; /* the last one */
    TRY(operation_begin(t, w->from, &o, e));
    for (int number = 0; segment_next(w, &s); number++) {
        const int slot = number % SEGMENTS;
        const bool accumulate = w->kind != EXCHANGE_STORE && s.in > 0;
        if (accumulate && number >= SEGMENTS)
            TRY(cuda_status(cudaStreamWaitEvent(t->world.cuda_stream, t->accumulated[slot], 0), "ordering two streams",
                            e));
        TRY(segment_send(t, w, &s, accumulate ? t->staging + (size_t)slot * SEGMENT_BYTES : (char *)w->in + s.at, e));
        if (accumulate)
            TRY(segment_accumulate(t, w, &s, slot, &accumulated, e));
    }
    if (accumulated) /* the next call sends what this one has added */
        TRY(cuda_status(cudaStreamWaitEvent(t->world.cuda_stream, accumulated, 0), "ordering two streams", e));
    return operation_end(t, o, e);
}

static status_t nccl_exchange(struct collective_transport *transport, int stream, const struct exchange *w,
                              char *staging, struct err *e) {
    struct nccl_transport *t = nccl_of(transport);
    struct err why = { "" };
    (void)stream;  /* COLLECTIVE_DATA: the only stream of a device that has exchanges */
    (void)staging; /* the device has its own */
    nccl_device_use(t);
    return nccl_or_fail(t, exchange_in_segments(t, w, &why), &why, e);
}

/* --- NCCL's own collective operations --- */

/* Shards differ in length: one operation for each shard, in one group. */
static ncclResult_t collective_queue(struct nccl_transport *t, enum transport_collective what, char *x, size_t element,
                                     const int64_t *offsets) {
    const struct nccl_library *nccl = t->nccl;
    if (what == TRANSPORT_ALL_REDUCE)
        return nccl->ncclAllReduce(x, x, (size_t)offsets[t->data], ncclFloat32, ncclSum, t->shards,
                                   t->world.cuda_stream);
    ncclResult_t result = ncclSuccess;
    for (int j = 0; j < t->data && nccl_goes_on(result); j++) {
        char *shard = x + (size_t)offsets[j] * element;
        const size_t n = (size_t)(offsets[j + 1] - offsets[j]);
        if (n == 0)
            continue;
        result = what == TRANSPORT_ALL_GATHER
                     ? nccl->ncclBroadcast(shard, shard, n * element, ncclInt8, j, t->shards, t->world.cuda_stream)
                     : nccl->ncclReduce(shard, shard, n, ncclFloat32, ncclSum, j, t->shards, t->world.cuda_stream);
    }
    return result;
}

status_t nccl_run_now(struct nccl_transport *t, struct nccl_wait w, enum transport_collective what, void *x,
                      size_t element, const int64_t *offsets, struct err *e) {
    TRY(nccl_group_begin(t, e));
    TRY(nccl_group_end(t, collective_queue(t, what, x, element, offsets), "a collective call", e));
    return nccl_await_comm(t, w, &t->shards, e);
}

static status_t collective_run(struct nccl_transport *t, enum transport_collective what, void *x, size_t element,
                               const int64_t *offsets, struct err *e) {
    struct operation *o = NULL;
    TRY(operation_begin(t, -1, &o, e));
    TRY(nccl_run_now(t, nccl_wait_new(t, -1), what, x, element, offsets, e));
    return operation_end(t, o, e);
}

static status_t nccl_run(struct collective_transport *transport, enum transport_collective what, void *x,
                         size_t element, const int64_t *offsets, struct err *e) {
    struct nccl_transport *t = nccl_of(transport);
    struct err why = { "" };
    nccl_device_use(t);
    return nccl_or_fail(t, collective_run(t, what, x, element, offsets, &why), &why, e);
}

static bool nccl_supports(const struct collective_transport *transport, enum transport_collective what,
                          const struct collective_group *g) {
    const struct nccl_transport *t = (const struct nccl_transport *)transport;
    return (what == TRANSPORT_ALL_GATHER || t->native) && g->stride == 1 && g->count == t->data &&
           g->first % t->data == 0;
}

/* --- a pipeline's transfers --- */

static struct link *link_find(const struct nccl_transport *t, int stream, int peer, bool is_send) {
    for (int i = 0; i < t->n_links; i++)
        if ((int)t->links[i].stream == stream && t->links[i].peer == peer && t->links[i].is_send == is_send)
            return &t->links[i];
    return NULL;
}

/* In a group of its own. The event is recorded after NCCL's own thread has issued the transfer to the device. */
status_t nccl_link_transfer(struct nccl_transport *t, struct nccl_wait w, const struct link *link, void *data, size_t n,
                            cudaEvent_t done, struct err *e) {
    const struct communicator *communicator = &link->communicator;
    TRY(nccl_group_begin(t, e));
    ncclResult_t result = link->is_send
                              ? t->nccl->ncclSend(data, n, ncclInt8, 1, communicator->comm, communicator->cuda_stream)
                              : t->nccl->ncclRecv(data, n, ncclInt8, 0, communicator->comm, communicator->cuda_stream);
    TRY(nccl_group_end(t, result, link->is_send ? "send" : "receive", e));
    TRY(nccl_await_comm(t, w, &communicator->comm, e));
    return nccl_event_record(communicator->cuda_stream, done, e);
}

static status_t post(struct nccl_transport *t, int stream, struct link *link, void *data, size_t n, int *ret,
                     struct err *e) {
    struct operation *o = NULL;
    TRY(nccl_operation_new(t, stream, &link->communicator, link->peer, &o, e));
    TRY(order(t->compute, t->streams[stream].ready, link->communicator.cuda_stream, e));
    *ret = o->ticket;
    return nccl_link_transfer(t, nccl_wait_new(t, link->peer), link, data, n, o->done, e);
}

static status_t begin(struct collective_transport *transport, int stream, int peer, bool is_send, void *data, size_t n,
                      int *ret, struct err *e) {
    struct nccl_transport *t = nccl_of(transport);
    struct err why = { "" };
    nccl_device_use(t);
    TRY(nccl_check(transport, e));
    struct link *link = link_find(t, stream, peer, is_send);
    if (!link) {
        status_t st = err_set(&why, ST_INTERNAL,
                              "rank %d %s rank %d without a connection: collective_connect did not name this link",
                              t->rank, is_send ? "sends to" : "receives from", peer);
        return nccl_fail(t, st, &why, e);
    }
    return nccl_or_fail(t, post(t, stream, link, data, n, ret, &why), &why, e);
}

static status_t begin_send(struct collective_transport *t, int stream, int peer, const void *data, size_t n, int *ret,
                           struct err *e) {
    return begin(t, stream, peer, true, (void *)data, n, ret, e);
}

static status_t begin_recv(struct collective_transport *t, int stream, int peer, void *data, size_t n, int *ret,
                           struct err *e) {
    return begin(t, stream, peer, false, data, n, ret, e);
}

/* A handle for all work of DATA so far. */
static status_t nccl_mark(struct collective_transport *transport, int *ret, struct err *e) {
    struct nccl_transport *t = nccl_of(transport);
    struct operation *o = NULL;
    struct err why = { "" };
    nccl_device_use(t);
    TRY(nccl_check(transport, e));
    TRY(nccl_or_fail(t, nccl_operation_new(t, COLLECTIVE_DATA, &t->world, -1, &o, &why), &why, e));
    *ret = o->ticket;
    return nccl_or_fail(t, nccl_event_record(t->world.cuda_stream, o->done, &why), &why, e);
}

/* Makes later work of the kernels wait for the operation. The deadline of a transfer starts here, because transfers are
 * posted early. The operations behind a mark are under the deadline already. */
static status_t finish(struct collective_transport *transport, int stream, int handle, struct err *e) {
    struct nccl_transport *t = nccl_of(transport);
    struct operation *o = t->streams[stream].items[handle];
    struct err why = { "" };
    nccl_device_use(t);
    TRY(nccl_check(transport, e));
    const bool watched = stream != COLLECTIVE_DATA;
    status_t st = watched ? nccl_event_record(t->compute, o->before, &why) : ST_OK;
    if (st == ST_OK)
        st = cuda_status(cudaStreamWaitEvent(t->compute, o->done, 0), "ordering two streams", &why);
    TRY(nccl_or_fail(t, st, &why, e));
    nccl_operation_release(t, o, watched);
    return ST_OK;
}

static void nccl_abort(struct collective_transport *transport, const char *reason) {
    struct nccl_transport *t = nccl_of(transport);
    struct err why = { "" };
    status_t st = err_set(&why, ST_CANCELLED, "rank %d gave up: %s", t->rank, reason);
    /* The host's transport reports the same sentence to the other ranks. */
    t->host->ops->abort(t->host, reason);
    status_ignore(nccl_fail(t, st, &why, NULL));
}

const struct collective_transport_ops nccl_transport_ops = {
    .begin_send = begin_send,
    .begin_recv = begin_recv,
    .finish = finish,
    .mark = nccl_mark,
    .check = nccl_check,
    .abort = nccl_abort,
    .fail = nccl_fail_after,
    .close = nccl_close,
    .exchange = nccl_exchange,
    .connect = nccl_connect,
    .supports = nccl_supports,
    .run = nccl_run,
};
