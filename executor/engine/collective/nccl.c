/* Ranks on CUDA, one process and one device each, over NCCL.
 *
 * Calls only queue work: each after all that the kernels' stream has been given so far, and on lines of their own, so
 * that the kernels wait for none of it but where `finish` says so, on the device. The host waits for NCCL to hand its
 * kernels over, which it does on a thread of its own, and for other ranks while connecting alone.
 *
 * Queueing ahead adds no deadlock: the device waits exactly where a blocking host would have, and plan_verify has
 * proved that this order ends on all ranks together. On a line calls end in their order; a call begins after what the
 * kernels had been given when it was made, and what they are given after `finish` begins when it has ended. A receive
 * that spins keeps what is on its own line waiting, and kernels behind its WAIT, and nothing else.
 *
 * Communicators do not block, so that every wait ends, and what is queued is watched (nccl_watch.c). No NCCL call runs
 * beside an abort: each is made with the lock held, but when nobody else can abort: while opening and closing.
 *
 * NCCL connects two ranks when both have called for it, and until then the caller gets no further: a pipeline's ranks,
 * each with its receives first, would wait for each other for ever. So all that will be used is tried while connecting.
 */
#include "executor/engine/collective/internal.h"
#include "executor/engine/collective/nccl_fold.h"
#include "executor/engine/collective/nccl_transport.h"

#include "base/limits.h"

#include <assert.h>
#include <stdlib.h>

enum {
    LINK_CTAS_MOST = 4,  /* a receive that waits for its sender keeps these multiprocessors */
    KERNELS_STREAMS = 2, /* what computes, and batches on their way */
    DATA_STREAMS = 2,    /* the world's, and folds */
    QUEUES_DEFAULT = 8,
};
static_assert(KERNELS_STREAMS + DATA_STREAMS + COLLECTIVE_LINKS_MOST <= 32, "CUDA has 32 queues at most");

static struct nccl_transport *self(struct transport *t) { return (struct nccl_transport *)t; }

static status_t group_begin(struct nccl_transport *t, struct err *e) {
    struct err why = { "" };
    TRY(nccl_enter(t, e));
    status_t st = nccl_status(t->nccl, t->nccl->ncclGroupStart(), "begin a group", &why);
    return st == ST_OK ? ST_OK : nccl_leave(t, st, &why, e);
}

/* `result`: of the last call in the group. What was begun is ended, also when that call failed: all that follows on
 * this thread would otherwise wait for the group's end. */
static status_t group_end(struct nccl_transport *t, ncclResult_t result, const char *what, struct err *e) {
    struct err why = { "" };
    status_t st = nccl_status(t->nccl, result, what, &why);
    result = t->nccl->ncclGroupEnd();
    if (st == ST_OK)
        st = nccl_status(t->nccl, result, what, &why);
    return nccl_leave(t, st, &why, e);
}

/* --- the device's order --- */

static status_t mark(cudaStream_t stream, cudaEvent_t event, struct err *e) {
    return cuda_status(cudaEventRecord(event, stream), "marking the place in a stream", e);
}

/* What follows on `stream` comes after all that has been given to `before` so far. */
static status_t order(cudaStream_t before, cudaEvent_t event, cudaStream_t stream, struct err *e) {
    TRY(mark(before, event, e));
    return cuda_status(cudaStreamWaitEvent(stream, event, 0), "ordering two streams", e);
}

/* A call of DATA: all of them are on the world's stream, one after the other. */
static status_t operation_begin(struct nccl_transport *t, int peer, struct operation **ret, struct err *e) {
    TRY(nccl_operation_new(t, COLLECTIVE_DATA, &t->world, peer, ret, e));
    return order(t->compute, (*ret)->before, t->world.stream, e);
}

static status_t operation_end(struct nccl_transport *t, struct operation *o, struct err *e) {
    TRY(mark(t->world.stream, o->done, e));
    nccl_operation_let(t, o, true);
    return ST_OK;
}

/* --- swaps --- */

struct segment {
    size_t at, out, in; /* bytes of this one; 0 = that direction is over */
};

static bool segment_next(const struct swap *w, struct segment *s) {
    s->at += SEGMENT_BYTES;
    s->out = s->at < w->n_out ? w->n_out - s->at : 0;
    s->in = s->at < w->n_in ? w->n_in - s->at : 0;
    s->out = s->out < SEGMENT_BYTES ? s->out : SEGMENT_BYTES;
    s->in = s->in < SEGMENT_BYTES ? s->in : SEGMENT_BYTES;
    return s->out > 0 || s->in > 0;
}

static status_t segment_send(struct nccl_transport *t, const struct swap *w, const struct segment *s, char *to,
                             struct err *e) {
    const struct nccl_library *nccl = t->nccl;
    const char *out = (const char *)w->out + s->at;
    ncclResult_t result = ncclSuccess;
    TRY(group_begin(t, e));
    if (s->in)
        result = nccl->ncclRecv(to, s->in, ncclInt8, w->from, t->world.comm, t->world.stream);
    if (s->out && nccl_goes_on(result))
        result = nccl->ncclSend(out, s->out, ncclInt8, w->to, t->world.comm, t->world.stream);
    TRY(group_end(t, result, "swap a segment", e));
    return nccl_await_comm(t, nccl_wait_new(t, w->from), &t->world.comm, e);
}

static status_t segment_fold(struct nccl_transport *t, const struct swap *w, const struct segment *s, int slot,
                             cudaEvent_t *ret, struct err *e) {
    char *in = (char *)w->in + s->at, *arrived = t->staging + (size_t)slot * SEGMENT_BYTES;
    TRY(order(t->world.stream, t->arrived[slot], t->folds, e));
    cudaError_t error = w->kind == SWAP_ADD ? nccl_fold_add((float *)(void *)in, (const float *)(const void *)arrived,
                                                            s->in / sizeof(float), t->folds)
                                            : nccl_fold_or((unsigned long long *)(void *)in,
                                                           (const unsigned long long *)(const void *)arrived,
                                                           s->in / sizeof(unsigned long long), t->folds);
    TRY(cuda_status(error, "adding what has arrived", e));
    *ret = t->folded[slot];
    return mark(t->folds, t->folded[slot], e);
}

static status_t swap_segments(struct nccl_transport *t, const struct swap *w, struct err *e) {
    struct segment s = { .at = (size_t)0 - SEGMENT_BYTES };
    struct operation *o = NULL;
    cudaEvent_t folded = NULL; /* the last one */
    TRY(operation_begin(t, w->from, &o, e));
    for (int number = 0; segment_next(w, &s); number++) {
        const int slot = number % SEGMENTS;
        const bool fold = w->kind != SWAP_STORE && s.in > 0;
        if (fold && number >= SEGMENTS)
            TRY(cuda_status(cudaStreamWaitEvent(t->world.stream, t->folded[slot], 0), "ordering two streams", e));
        TRY(segment_send(t, w, &s, fold ? t->staging + (size_t)slot * SEGMENT_BYTES : (char *)w->in + s.at, e));
        if (fold)
            TRY(segment_fold(t, w, &s, slot, &folded, e));
    }
    if (folded) /* the next call sends what this one has added */
        TRY(cuda_status(cudaStreamWaitEvent(t->world.stream, folded, 0), "ordering two streams", e));
    return operation_end(t, o, e);
}

static status_t nccl_swap(struct transport *transport, enum collective_channel channel, const struct swap *w,
                          struct err *e) {
    struct nccl_transport *t = self(transport);
    struct err why = { "" };
    (void)channel; /* one device channel has swaps: COLLECTIVE_DATA */
    nccl_device_use(t);
    return nccl_or_fail(t, swap_segments(t, w, &why), &why, e);
}

/* --- whole calls of NCCL --- */

/* Pieces differ in length: one operation for each, in one group. */
static ncclResult_t whole_call(struct nccl_transport *t, enum transport_whole what, char *x, size_t element,
                               const int64_t *cut) {
    const struct nccl_library *nccl = t->nccl;
    if (what == TRANSPORT_SUM)
        return nccl->ncclAllReduce(x, x, (size_t)cut[t->data], ncclFloat32, ncclSum, t->pieces, t->world.stream);
    ncclResult_t result = ncclSuccess;
    for (int j = 0; j < t->data && nccl_goes_on(result); j++) {
        char *piece = x + (size_t)cut[j] * element;
        const size_t n = (size_t)(cut[j + 1] - cut[j]);
        if (n == 0)
            continue;
        result = what == TRANSPORT_GATHER
                     ? nccl->ncclBroadcast(piece, piece, n * element, ncclInt8, j, t->pieces, t->world.stream)
                     : nccl->ncclReduce(piece, piece, n, ncclFloat32, ncclSum, j, t->pieces, t->world.stream);
    }
    return result;
}

static status_t whole_give(struct nccl_transport *t, struct nccl_wait w, enum transport_whole what, void *x,
                           size_t element, const int64_t *cut, struct err *e) {
    TRY(group_begin(t, e));
    TRY(group_end(t, whole_call(t, what, x, element, cut), "a collective call", e));
    return nccl_await_comm(t, w, &t->pieces, e);
}

static status_t whole(struct nccl_transport *t, enum transport_whole what, void *x, size_t element, const int64_t *cut,
                      struct err *e) {
    struct operation *o = NULL;
    TRY(operation_begin(t, -1, &o, e));
    TRY(whole_give(t, nccl_wait_new(t, -1), what, x, element, cut, e));
    return operation_end(t, o, e);
}

static status_t nccl_whole(struct transport *transport, enum transport_whole what, void *x, size_t element,
                           const int64_t *cut, struct err *e) {
    struct nccl_transport *t = self(transport);
    struct err why = { "" };
    nccl_device_use(t);
    return nccl_or_fail(t, whole(t, what, x, element, cut, &why), &why, e);
}

static bool nccl_does(const struct transport *transport, enum transport_whole what, const struct collective_group *g) {
    const struct nccl_transport *t = (const struct nccl_transport *)transport;
    return (what == TRANSPORT_GATHER || t->native) && g->stride == 1 && g->count == t->data && g->first % t->data == 0;
}

/* --- a pipeline's transfers --- */

static struct link *link_find(const struct nccl_transport *t, int channel, int peer, bool is_send) {
    for (int i = 0; i < t->n_links; i++)
        if ((int)t->links[i].channel == channel && t->links[i].peer == peer && t->links[i].is_send == is_send)
            return &t->links[i];
    return NULL;
}

/* In a group of its own, and marked once the communicator has given it to the device: NCCL does that on a thread of
 * its own. */
static status_t transfer(struct nccl_transport *t, struct nccl_wait w, const struct link *link, void *data, size_t n,
                         cudaEvent_t done, struct err *e) {
    const struct line *line = &link->line;
    TRY(group_begin(t, e));
    ncclResult_t result = link->is_send ? t->nccl->ncclSend(data, n, ncclInt8, 1, line->comm, line->stream)
                                        : t->nccl->ncclRecv(data, n, ncclInt8, 0, line->comm, line->stream);
    TRY(group_end(t, result, link->is_send ? "send" : "receive", e));
    TRY(nccl_await_comm(t, w, &line->comm, e));
    return mark(line->stream, done, e);
}

static status_t post(struct nccl_transport *t, int channel, struct link *link, void *data, size_t n, int *ret,
                     struct err *e) {
    struct operation *o = NULL;
    TRY(nccl_operation_new(t, channel, &link->line, link->peer, &o, e));
    TRY(order(t->compute, t->channels[channel].ready, link->line.stream, e));
    *ret = o->ticket;
    return transfer(t, nccl_wait_new(t, link->peer), link, data, n, o->done, e);
}

static status_t begin(struct transport *transport, int channel, int peer, bool is_send, void *data, size_t n, int *ret,
                      struct err *e) {
    struct nccl_transport *t = self(transport);
    struct err why = { "" };
    nccl_device_use(t);
    TRY(nccl_check(transport, e));
    struct link *link = link_find(t, channel, peer, is_send);
    if (!link) {
        status_t st = err_set(&why, ST_INTERNAL, "no connection was asked for by which rank %d %s rank %d", t->rank,
                              is_send ? "sends to" : "receives from", peer);
        return nccl_fail(t, st, &why, e);
    }
    return nccl_or_fail(t, post(t, channel, link, data, n, ret, &why), &why, e);
}

static status_t begin_send(struct transport *t, int channel, int peer, const void *data, size_t n, int *ret,
                           struct err *e) {
    return begin(t, channel, peer, true, (void *)data, n, ret, e);
}

static status_t begin_recv(struct transport *t, int channel, int peer, void *data, size_t n, int *ret, struct err *e) {
    return begin(t, channel, peer, false, data, n, ret, e);
}

/* All that DATA has been given so far. */
static status_t nccl_mark(struct transport *transport, int *ret, struct err *e) {
    struct nccl_transport *t = self(transport);
    struct operation *o = NULL;
    struct err why = { "" };
    nccl_device_use(t);
    TRY(nccl_check(transport, e));
    TRY(nccl_or_fail(t, nccl_operation_new(t, COLLECTIVE_DATA, &t->world, -1, &o, &why), &why, e));
    *ret = o->ticket;
    return nccl_or_fail(t, mark(t->world.stream, o->done, &why), &why, e);
}

/* What the kernels are given from now on comes after it. Only from here on is a transfer's other rank waited for: it
 * was posted as early as there was room. A mark's operations are on the watch already. */
static status_t finish(struct transport *transport, int channel, int handle, struct err *e) {
    struct nccl_transport *t = self(transport);
    struct operation *o = t->channels[channel].items[handle];
    struct err why = { "" };
    nccl_device_use(t);
    TRY(nccl_check(transport, e));
    const bool watched = channel != COLLECTIVE_DATA;
    status_t st = watched ? mark(t->compute, o->before, &why) : ST_OK;
    if (st == ST_OK)
        st = cuda_status(cudaStreamWaitEvent(t->compute, o->done, 0), "ordering two streams", &why);
    TRY(nccl_or_fail(t, st, &why, e));
    nccl_operation_let(t, o, watched);
    return ST_OK;
}

/* --- connecting --- */

static ncclConfig_t comm_config(const char *name, int ctas_most) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = name;
    if (ctas_most)
        config.maxCTAs = ctas_most;
    return config;
}

/* Both ends learn the sender's id over the host's transport, on the channel that the link is for. */
static status_t links_meet(struct nccl_transport *t, struct link *links, int n, struct err *e) {
    const struct transport_ops *host = t->host->ops;
    int handles[COLLECTIVE_LINKS_MOST];
    for (int i = 0; i < n; i++) {
        struct link *l = &links[i];
        if (l->is_send) {
            TRY(nccl_status(t->nccl, t->nccl->ncclGetUniqueId(&l->id), "make an id for two ranks to meet by", e));
            TRY(host->begin_send(t->host, (int)l->channel, l->peer, &l->id, sizeof l->id, &handles[i], e));
        } else {
            TRY(host->begin_recv(t->host, (int)l->channel, l->peer, &l->id, sizeof l->id, &handles[i], e));
        }
    }
    for (int i = 0; i < n; i++)
        TRY(host->finish(t->host, (int)links[i].channel, handles[i], e));
    return ST_OK;
}

static status_t stream_new(const struct nccl_transport *t, cudaStream_t *ret, struct err *e) {
    return cuda_status(cudaStreamCreateWithPriority(ret, cudaStreamNonBlocking, t->priority), "making a stream", e);
}

static status_t link_open(struct nccl_transport *t, struct link *l, struct err *e) {
    TRY(stream_new(t, &l->line.stream, e));
    ncclConfig_t config = comm_config("pipeline", LINK_CTAS_MOST);
    struct err why = { "" };
    TRY(nccl_enter(t, e));
    ncclResult_t result = t->nccl->ncclCommInitRankConfig(&l->line.comm, 2, l->id, l->is_send ? 0 : 1, &config);
    return nccl_leave(t, nccl_status(t->nccl, result, "connect two ranks", &why), &why, e);
}

static char *trial_bytes(const struct nccl_transport *t) { return t->staging + (size_t)SEGMENTS * SEGMENT_BYTES; }

/* One byte: then both ends are connected. */
static status_t link_try(struct nccl_transport *t, struct nccl_wait w, const struct link *l, struct err *e) {
    const cudaEvent_t done = t->channels[l->channel].ready;
    TRY(transfer(t, w, l, trial_bytes(t) + l->is_send, 1, done, e));
    return nccl_await_event(t, w, &l->line.comm, done, e);
}

static int by_turn(const void *a, const void *b) {
    const int64_t x = ((const struct link *)a)->turn, y = ((const struct link *)b)->turn;
    return (x > y) - (x < y);
}

static void links_take(struct nccl_transport *t, struct link *links, const struct collective_link *asked, int n) {
    const int64_t P = t->world_size;
    for (int i = 0; i < n; i++) {
        const int from = asked[i].is_send ? t->rank : asked[i].peer, to = asked[i].is_send ? asked[i].peer : t->rank;
        links[i] = (struct link){ .channel = asked[i].channel,
                                  .peer = asked[i].peer,
                                  .is_send = asked[i].is_send,
                                  .turn = ((int64_t)asked[i].channel * P + from) * P + to };
    }
    qsort(links, (size_t)n, sizeof *links, by_turn);
    pthread_mutex_lock(&t->lock); /* the watch asks them all */
    t->links = links;
    t->n_links = n;
    pthread_mutex_unlock(&t->lock);
}

/* Communicators are all begun before any is waited for: whom a rank waits for may itself wait for a third. Trials are
 * made one after the other, by all ranks in one order: what connects may wait for the device to be idle, and so must
 * not meet a transfer that waits for its peer. */
static status_t links_open(struct nccl_transport *t, struct nccl_wait w, struct err *e) {
    TRY(links_meet(t, t->links, t->n_links, e));
    for (int i = 0; i < t->n_links; i++)
        TRY(link_open(t, &t->links[i], e));
    for (int i = 0; i < t->n_links; i++) {
        w.peer = t->links[i].peer;
        TRY(nccl_await_comm(t, w, &t->links[i].line.comm, e));
    }
    for (int i = 0; i < t->n_links; i++) {
        w.peer = t->links[i].peer;
        TRY(link_try(t, w, &t->links[i], e));
    }
    return ST_OK;
}

/* CUDA has read the variable, which collective_device_environment sets where nobody else has. */
static status_t queues_suffice(int links, struct err *e) {
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const int queues = text ? atoi(text) : QUEUES_DEFAULT, streams = KERNELS_STREAMS + DATA_STREAMS + links;
    return streams <= queues
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION,
                         "a rank of this pipeline has %d streams, but CUDA_DEVICE_MAX_CONNECTIONS gives "
                         "its device %d queues for them, in which a receive could wait for ever: unset it",
                         streams, queues);
}

static status_t nccl_connect(struct transport *transport, const struct collective_link *asked, int n, struct err *e) {
    struct nccl_transport *t = self(transport);
    struct err why = { "" };
    assert(!t->links && n <= COLLECTIVE_LINKS_MOST);
    nccl_device_use(t);
    if (n == 0)
        return nccl_check(transport, e);
    TRY(nccl_or_fail(t, queues_suffice(n, &why), &why, e));
    struct link *links = calloc((size_t)n, sizeof *links);
    if (!links)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d connections", n);
    links_take(t, links, asked, n);
    return nccl_or_fail(t, links_open(t, nccl_wait_new(t, -1), &why), &why, e);
}

/* What has been queued on the world's stream has gone through. */
static status_t await_world(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm, struct err *e) {
    TRY(mark(t->world.stream, t->tried, e));
    return nccl_await_event(t, w, comm, t->tried, e);
}

/* One byte each way with every rank of `swaps`, which is of as many as ask for this one. */
static status_t world_try(struct nccl_transport *t, struct nccl_wait w, const bool *swaps, struct err *e) {
    const struct nccl_library *nccl = t->nccl;
    char *in = trial_bytes(t), *out = in + t->world_size;
    ncclResult_t result = ncclSuccess;
    TRY(group_begin(t, e));
    for (int r = 0; r < t->world_size && nccl_goes_on(result); r++) {
        if (swaps[r])
            result = nccl->ncclRecv(in + r, 1, ncclInt8, r, t->world.comm, t->world.stream);
        if (swaps[r] && nccl_goes_on(result))
            result = nccl->ncclSend(out + r, 1, ncclInt8, r, t->world.comm, t->world.stream);
    }
    TRY(group_end(t, result, "connect the ranks that swap", e));
    TRY(nccl_await_comm(t, w, &t->world.comm, e));
    return await_world(t, w, &t->world.comm, e);
}

/* NCCL chooses how to add by the size, and connects for each choice: what is larger than these it adds as the last. */
static status_t pieces_try(struct nccl_transport *t, struct nccl_wait w, struct err *e) {
    int64_t cut[LIMIT_WORLD_SIZE + 1];
    for (int j = 0; j <= t->data; j++)
        cut[j] = j;
    TRY(whole_give(t, w, TRANSPORT_GATHER, trial_bytes(t), 1, cut, e));
    TRY(await_world(t, w, &t->pieces, e));
    const int64_t most = (int64_t)SEGMENTS * SEGMENT_BYTES / (int64_t)sizeof(float);
    for (int64_t n = 1, last = 0; t->native && last < most; last = n, n = n < most / 8 ? n * 8 : most) {
        cut[t->data] = n;
        TRY(whole_give(t, w, TRANSPORT_SUM, t->staging, sizeof(float), cut, e));
        TRY(await_world(t, w, &t->pieces, e));
    }
    return ST_OK;
}

static status_t world_open(struct nccl_transport *t, const ncclUniqueId *id, const bool *swaps, struct err *e) {
    const struct nccl_wait w = nccl_wait_new(t, -1);
    struct err why = { "" };
    ncclConfig_t config = comm_config("world", 0);
    TRY(nccl_enter(t, e));
    ncclResult_t result = t->nccl->ncclCommInitRankConfig(&t->world.comm, t->world_size, *id, t->rank, &config);
    TRY(nccl_leave(t, nccl_status(t->nccl, result, "connect the ranks", &why), &why, e));
    TRY(nccl_await_comm(t, w, &t->world.comm, e));
    config = comm_config("data", 0);
    TRY(nccl_enter(t, e));
    result = t->nccl->ncclCommSplit(t->world.comm, t->rank / t->data, t->piece, &t->pieces, &config);
    TRY(nccl_leave(t, nccl_status(t->nccl, result, "connect the data ranks", &why), &why, e));
    TRY(nccl_await_comm(t, w, &t->world.comm, e)); /* which sets `pieces` */
    TRY(nccl_await_comm(t, w, &t->pieces, e));
    TRY(world_try(t, w, swaps, e));
    return t->data > 1 ? pieces_try(t, w, e) : ST_OK;
}

static status_t event_new(cudaEvent_t *ret, struct err *e) {
    return cuda_status(cudaEventCreateWithFlags(ret, cudaEventDisableTiming), "making an event", e);
}

static status_t device_prepare(struct nccl_transport *t, struct err *e) {
    int least = 0;
    const size_t staging = (size_t)SEGMENTS * SEGMENT_BYTES + 2 * (size_t)t->world_size;
    TRY(cuda_status(cudaSetDevice(t->ordinal), "choosing the device", e));
    TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &t->priority), "asking for stream priorities", e));
    TRY(stream_new(t, &t->world.stream, e));
    TRY(stream_new(t, &t->folds, e));
    TRY(cuda_status(cudaMalloc((void **)&t->staging, staging), "allocating staging", e));
    for (int i = 0; i < SEGMENTS; i++) {
        TRY(event_new(&t->arrived[i], e));
        TRY(event_new(&t->folded[i], e));
    }
    TRY(event_new(&t->channels[COLLECTIVE_FORWARD].ready, e));
    TRY(event_new(&t->channels[COLLECTIVE_BACKWARD].ready, e));
    return event_new(&t->tried, e);
}

/* --- closing --- */

/* In order: NCCL's finalize ends what is under way, without blocking. No other thread is left that could abort. */
static void comm_close(struct nccl_transport *t, ncclComm_t *comm) {
    if (!*comm)
        return;
    if (nccl_goes_on(t->nccl->ncclCommFinalize(*comm)) &&
        nccl_await_comm(t, nccl_wait_new(t, -1), comm, NULL) == ST_OK) {
        (void)t->nccl->ncclCommDestroy(*comm);
        *comm = NULL;
    } else {
        nccl_comms_end(t);
    }
}

static void event_free(cudaEvent_t event) {
    if (event)
        (void)cudaEventDestroy(event);
}

static void stream_free(cudaStream_t stream) {
    if (stream)
        (void)cudaStreamDestroy(stream);
}

static void nccl_close(struct transport *transport) {
    struct nccl_transport *t = self(transport);
    nccl_watch_close(t);
    nccl_device_use(t);
    /* All of them, before any stream: a failure here aborts what is on those of all. */
    for (int i = 0; i < t->n_links; i++)
        comm_close(t, &t->links[i].line.comm);
    comm_close(t, &t->pieces);
    comm_close(t, &t->world.comm);
    for (int i = 0; i < t->n_links; i++)
        stream_free(t->links[i].line.stream);
    stream_free(t->world.stream);
    stream_free(t->folds);
    nccl_operations_free(t);
    for (int c = 0; c < COLLECTIVE_CHANNELS; c++)
        event_free(t->channels[c].ready);
    for (int i = 0; i < SEGMENTS; i++) {
        event_free(t->arrived[i]);
        event_free(t->folded[i]);
    }
    event_free(t->tried);
    (void)cudaFree(t->staging);
    pthread_cond_destroy(&t->ends);
    pthread_cond_destroy(&t->queued);
    pthread_mutex_destroy(&t->queue);
    pthread_mutex_destroy(&t->lock);
    free(t->links);
    free(t);
}

static void nccl_abort(struct transport *transport, const char *reason) {
    struct nccl_transport *t = self(transport);
    struct err why = { "" };
    status_t st = err_set(&why, ST_CANCELLED, "rank %d gave up: %s", t->rank, reason);
    /* The host's transport says the same of this rank, in the same words. */
    t->host->ops->abort(t->host, reason);
    status_ignore(nccl_fail(t, st, &why, NULL));
}

static const struct transport_ops OPS = {
    .begin_send = begin_send,
    .begin_recv = begin_recv,
    .finish = finish,
    .mark = nccl_mark,
    .check = nccl_check,
    .abort = nccl_abort,
    .fail = nccl_fail_after,
    .close = nccl_close,
    .swap = nccl_swap,
    .connect = nccl_connect,
    .does = nccl_does,
    .whole = nccl_whole,
};

static void locks_open(struct nccl_transport *t) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->ends, &monotonic);
    pthread_cond_init(&t->queued, &monotonic);
    pthread_mutex_init(&t->queue, NULL);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&t->lock, NULL);
}

static status_t transport_open_nccl(const struct device_gang *gang, const struct collective_device *device,
                                    struct transport **ret, struct err *e) {
    const struct nccl_library *nccl;
    ncclUniqueId id;
    struct err why = { "" };
    TRY(nccl_library_open(&nccl, e));
    TRY(nccl_tune(nccl, &device->tuning, e));
    TRY(nccl_meet(nccl, gang, &id, e));
    struct nccl_transport *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a transport");
    t->transport.ops = &OPS;
    t->host = gang->host;
    t->nccl = nccl;
    t->compute = cuda_of(device->kernels)->stream;
    t->ordinal = cuda_of(device->kernels)->ordinal;
    t->rank = gang->rank;
    t->world_size = gang->world_size;
    t->data = device->data;
    t->piece = gang->piece;
    t->native = device->native;
    t->timeout_ms = gang->timeout_ms;
    t->last = &t->first;
    locks_open(t);
    status_t st = device_prepare(t, e);
    if (st == ST_OK)
        st = nccl_or_fail(t, world_open(t, &id, gang->swaps, &why), &why, e);
    if (st == ST_OK)
        st = nccl_or_fail(t, nccl_watch_open(t, &why), &why, e);
    if (st != ST_OK) {
        nccl_close(&t->transport);
        return st;
    }
    *ret = &t->transport;
    return ST_OK;
}

static status_t library_check(struct err *e) {
    const struct nccl_library *nccl;
    return nccl_library_open(&nccl, e);
}

__attribute__((visibility("default"))) extern const struct collective_plugin collective_plugin;
const struct collective_plugin collective_plugin = { .abi = COLLECTIVE_PLUGIN_ABI,
                                                     .open = transport_open_nccl,
                                                     .check = library_check };
