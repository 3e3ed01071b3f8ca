/* NCCL's transport: opening, connecting and closing.
 *
 * Opening shares rank 0's id over the host's transport and makes two communicators: one of all ranks, for exchanges,
 * and a split of it for the data group. collective_connect makes one communicator of two ranks for each direction of
 * each link of a pipeline.
 *
 * Warm-up: NCCL connects two ranks at their first transfer, and blocks each caller until the other one calls, too.
 * Ranks of a pipeline post all their receives first and would wait for each other forever. So every connection that
 * will be used is used once before step 1: a byte with every peer of DATA, each size class of an all-reduce, and a
 * byte over each link, link by link in an order that is the same on all ranks.
 *
 * Closing finalizes the communicators in order, or aborts all of them if one fails. */
#include "engine/collective/nccl_transport.h"
#include "engine/collective/plugin.h"

#include "base/alloc.h"
#include "base/limits.h"

#include <assert.h>
#include <stdlib.h>

enum {
    MAX_LINK_CTAS = 4,   /* multiprocessors that a receive occupies while it waits for its sender */
    KERNELS_STREAMS = 2, /* CUDA streams of computation and of uploads */
    DATA_STREAMS = 2,    /* CUDA streams of the world and of accumulation */
    DEFAULT_QUEUES = 8,  /* hardware queues without CUDA_DEVICE_MAX_CONNECTIONS */
};
static_assert(KERNELS_STREAMS + DATA_STREAMS + COLLECTIVE_MAX_LINKS <= 32, "CUDA has at most 32 hardware queues");

static ncclConfig_t comm_config(const char *name, int max_ctas) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    config.commName = name;
    if (max_ctas)
        config.maxCTAs = max_ctas;
    return config;
}

/* Sends each link's id from its sender to its receiver over the host's transport, on the link's own stream. */
static status_t links_share_ids(struct nccl_transport *t, struct link *links, int n, struct err *e) {
    const struct collective_transport_ops *host = t->host->ops;
    int handles[COLLECTIVE_MAX_LINKS];
    for (int i = 0; i < n; i++) {
        struct link *l = &links[i];
        if (l->is_send) {
            TRY(nccl_status(t->nccl, t->nccl->ncclGetUniqueId(&l->id), "make an NCCL id for two ranks", e));
            TRY(host->begin_send(t->host, (int)l->stream, l->peer, &l->id, sizeof l->id, &handles[i], e));
        } else {
            TRY(host->begin_recv(t->host, (int)l->stream, l->peer, &l->id, sizeof l->id, &handles[i], e));
        }
    }
    for (int i = 0; i < n; i++)
        TRY(host->finish(t->host, (int)links[i].stream, handles[i], e));
    return ST_OK;
}

static status_t stream_new(const struct nccl_transport *t, cudaStream_t *ret, struct err *e) {
    return cuda_status(cudaStreamCreateWithPriority(ret, cudaStreamNonBlocking, t->priority), "making a stream", e);
}

static status_t link_open(struct nccl_transport *t, struct link *l, struct err *e) {
    TRY(stream_new(t, &l->communicator.cuda_stream, e));
    ncclConfig_t config = comm_config("pipeline", MAX_LINK_CTAS);
    struct err why = { "" };
    TRY(nccl_enter(t, e));
    ncclResult_t result = t->nccl->ncclCommInitRankConfig(&l->communicator.comm, 2, l->id, l->is_send ? 0 : 1, &config);
    return nccl_leave(t, nccl_status(t->nccl, result, "connect two ranks", &why), &why, e);
}

static char *warm_up_bytes(const struct nccl_transport *t) { return t->staging + (size_t)SEGMENTS * SEGMENT_BYTES; }

/* One byte; after it both ends are connected. */
static status_t link_warm_up(struct nccl_transport *t, struct nccl_wait w, const struct link *l, struct err *e) {
    const cudaEvent_t done = t->streams[l->stream].ready;
    TRY(nccl_link_transfer(t, w, l, warm_up_bytes(t) + l->is_send, 1, done, e));
    return nccl_await_event(t, w, &l->communicator.comm, done, e);
}

static int by_order(const void *a, const void *b) {
    const int64_t x = ((const struct link *)a)->order, y = ((const struct link *)b)->order;
    return (x > y) - (x < y);
}

static void links_take(struct nccl_transport *t, struct link *links, const struct collective_link *wanted, int n) {
    const int64_t P = t->world_size;
    for (int i = 0; i < n; i++) {
        const int from = wanted[i].is_send ? t->rank : wanted[i].peer,
                  to = wanted[i].is_send ? wanted[i].peer : t->rank;
        links[i] = (struct link){ .stream = wanted[i].stream,
                                  .peer = wanted[i].peer,
                                  .is_send = wanted[i].is_send,
                                  .order = ((int64_t)wanted[i].stream * P + from) * P + to };
    }
    qsort(links, (size_t)n, sizeof *links, by_order);
    pthread_mutex_lock(&t->lock); /* the watch thread polls all links */
    t->links = links;
    t->n_links = n;
    pthread_mutex_unlock(&t->lock);
}

/* Starts all communicators before it waits for any, because the peer of one may be waiting for a third rank. The
 * warm-up goes link by link in the same order on all ranks: connecting may wait until the device is idle, so no other
 * transfer may be waiting on the device for its peer. */
static status_t links_open(struct nccl_transport *t, struct nccl_wait w, struct err *e) {
    TRY(links_share_ids(t, t->links, t->n_links, e));
    for (int i = 0; i < t->n_links; i++)
        TRY(link_open(t, &t->links[i], e));
    for (int i = 0; i < t->n_links; i++) {
        w.peer = t->links[i].peer;
        TRY(nccl_await_comm(t, w, &t->links[i].communicator.comm, e));
    }
    for (int i = 0; i < t->n_links; i++) {
        w.peer = t->links[i].peer;
        TRY(link_warm_up(t, w, &t->links[i], e));
    }
    return ST_OK;
}

/* CUDA has read the variable by now; collective_device_environment sets it unless the user has. */
static status_t check_queues(int links, struct err *e) {
    const char *text = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    const int queues = text ? atoi(text) : DEFAULT_QUEUES, streams = KERNELS_STREAMS + DATA_STREAMS + links;
    return streams <= queues
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION,
                         "a rank of this pipeline uses %d CUDA streams, but CUDA_DEVICE_MAX_CONNECTIONS allows "
                         "only %d hardware queues, so that a receive could wait for ever: unset the variable",
                         streams, queues);
}

status_t nccl_connect(struct collective_transport *transport, const struct collective_link *wanted, int n,
                      struct err *e) {
    struct nccl_transport *t = nccl_of(transport);
    struct err why = { "" };
    assert(!t->links && n <= COLLECTIVE_MAX_LINKS);
    nccl_device_use(t);
    if (n == 0)
        return nccl_check(transport, e);
    TRY(nccl_or_fail(t, check_queues(n, &why), &why, e));
    struct link *links = alloc_zeroed((size_t)n, sizeof *links);
    links_take(t, links, wanted, n);
    return nccl_or_fail(t, links_open(t, nccl_wait_new(t, -1), &why), &why, e);
}

/* Waits until the device has done all work on the world's CUDA stream. */
static status_t await_world(struct nccl_transport *t, struct nccl_wait w, ncclComm_t const *comm, struct err *e) {
    TRY(nccl_event_record(t->world.cuda_stream, t->warmed_up, e));
    return nccl_await_event(t, w, comm, t->warmed_up, e);
}

/* Sends one byte to and receives one byte from every rank of `peers`, each of which does the same with this rank. */
static status_t world_warm_up(struct nccl_transport *t, struct nccl_wait w, const bool *peers, struct err *e) {
    const struct nccl_library *nccl = t->nccl;
    char *in = warm_up_bytes(t), *out = in + t->world_size;
    ncclResult_t result = ncclSuccess;
    TRY(nccl_group_begin(t, e));
    for (int r = 0; r < t->world_size && nccl_goes_on(result); r++) {
        if (peers[r])
            result = nccl->ncclRecv(in + r, 1, ncclInt8, r, t->world.comm, t->world.cuda_stream);
        if (peers[r] && nccl_goes_on(result))
            result = nccl->ncclSend(out + r, 1, ncclInt8, r, t->world.comm, t->world.cuda_stream);
    }
    TRY(nccl_group_end(t, result, "connect the ranks that swap", e));
    TRY(nccl_await_comm(t, w, &t->world.comm, e));
    return await_world(t, w, &t->world.comm, e);
}

/* NCCL selects an algorithm by the size and connects for each selection, so the warm-up adds arrays of all sizes up
 * to the largest at which the selection may change. */
static status_t shards_warm_up(struct nccl_transport *t, struct nccl_wait w, struct err *e) {
    int64_t offsets[LIMIT_WORLD_SIZE + 1];
    for (int j = 0; j <= t->data; j++)
        offsets[j] = j;
    TRY(nccl_run_now(t, w, TRANSPORT_ALL_GATHER, warm_up_bytes(t), 1, offsets, e));
    TRY(await_world(t, w, &t->shards, e));
    const int64_t largest = (int64_t)SEGMENTS * SEGMENT_BYTES / (int64_t)sizeof(float);
    for (int64_t n = 1, last = 0; t->native && last < largest; last = n, n = n < largest / 8 ? n * 8 : largest) {
        offsets[t->data] = n;
        TRY(nccl_run_now(t, w, TRANSPORT_ALL_REDUCE, t->staging, sizeof(float), offsets, e));
        TRY(await_world(t, w, &t->shards, e));
    }
    return ST_OK;
}

static status_t world_open(struct nccl_transport *t, const ncclUniqueId *id, const bool *peers, struct err *e) {
    const struct nccl_wait w = nccl_wait_new(t, -1);
    struct err why = { "" };
    ncclConfig_t config = comm_config("world", 0);
    TRY(nccl_enter(t, e));
    ncclResult_t result = t->nccl->ncclCommInitRankConfig(&t->world.comm, t->world_size, *id, t->rank, &config);
    TRY(nccl_leave(t, nccl_status(t->nccl, result, "connect the ranks", &why), &why, e));
    TRY(nccl_await_comm(t, w, &t->world.comm, e));
    config = comm_config("data", 0);
    TRY(nccl_enter(t, e));
    result = t->nccl->ncclCommSplit(t->world.comm, t->rank / t->data, t->shard, &t->shards, &config);
    TRY(nccl_leave(t, nccl_status(t->nccl, result, "connect the data ranks", &why), &why, e));
    TRY(nccl_await_comm(t, w, &t->world.comm, e)); /* which sets `shards` */
    TRY(nccl_await_comm(t, w, &t->shards, e));
    TRY(world_warm_up(t, w, peers, e));
    return t->data > 1 ? shards_warm_up(t, w, e) : ST_OK;
}

static status_t event_new(cudaEvent_t *ret, struct err *e) {
    return cuda_status(cudaEventCreateWithFlags(ret, cudaEventDisableTiming), "making an event", e);
}

static status_t device_prepare(struct nccl_transport *t, struct err *e) {
    int lowest = 0;
    const size_t staging = (size_t)SEGMENTS * SEGMENT_BYTES + 2 * (size_t)t->world_size;
    TRY(cuda_status(cudaSetDevice(t->ordinal), "choosing the device", e));
    TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&lowest, &t->priority), "asking for stream priorities", e));
    TRY(stream_new(t, &t->world.cuda_stream, e));
    TRY(stream_new(t, &t->accumulating, e));
    TRY(cuda_status(cudaMalloc((void **)&t->staging, staging), "allocating staging", e));
    for (int i = 0; i < SEGMENTS; i++) {
        TRY(event_new(&t->arrived[i], e));
        TRY(event_new(&t->accumulated[i], e));
    }
    TRY(event_new(&t->streams[COLLECTIVE_FORWARD].ready, e));
    TRY(event_new(&t->streams[COLLECTIVE_BACKWARD].ready, e));
    return event_new(&t->warmed_up, e);
}

/* --- closing --- */

/* ncclCommFinalize completes pending work without blocking. No other thread is left that could abort. */
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

void nccl_close(struct collective_transport *transport) {
    struct nccl_transport *t = nccl_of(transport);
    nccl_watch_close(t);
    nccl_device_use(t);
    /* All communicators are finalized before any CUDA stream is destroyed: a failure here aborts work on all
     * streams. */
    for (int i = 0; i < t->n_links; i++)
        comm_close(t, &t->links[i].communicator.comm);
    comm_close(t, &t->shards);
    comm_close(t, &t->world.comm);
    for (int i = 0; i < t->n_links; i++)
        stream_free(t->links[i].communicator.cuda_stream);
    stream_free(t->world.cuda_stream);
    stream_free(t->accumulating);
    nccl_operations_free(t);
    for (int c = 0; c < COLLECTIVE_STREAMS; c++)
        event_free(t->streams[c].ready);
    for (int i = 0; i < SEGMENTS; i++) {
        event_free(t->arrived[i]);
        event_free(t->accumulated[i]);
    }
    event_free(t->warmed_up);
    (void)cudaFree(t->staging);
    pthread_cond_destroy(&t->ends);
    pthread_cond_destroy(&t->queued);
    pthread_mutex_destroy(&t->queue);
    pthread_mutex_destroy(&t->lock);
    free(t->links);
    free(t);
}

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
                                    struct collective_transport **ret, struct err *e) {
    const struct nccl_library *nccl;
    ncclUniqueId id;
    struct err why = { "" };
    TRY(nccl_library_open(&nccl, e));
    TRY(nccl_tune(nccl, &device->tuning, e));
    TRY(nccl_share_id(nccl, gang, &id, e));
    struct nccl_transport *t = alloc_zeroed(1, sizeof *t);
    t->transport.ops = &nccl_transport_ops;
    t->host = gang->host;
    t->nccl = nccl;
    t->compute = cuda_of(device->kernels)->stream;
    t->ordinal = cuda_of(device->kernels)->ordinal;
    t->rank = gang->rank;
    t->world_size = gang->world_size;
    t->data = device->data;
    t->shard = gang->shard;
    t->native = device->native;
    t->timeout_ms = gang->timeout_ms;
    t->last = &t->first;
    locks_open(t);
    status_t st = device_prepare(t, e);
    if (st == ST_OK)
        st = nccl_or_fail(t, world_open(t, &id, gang->peers, &why), &why, e);
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
