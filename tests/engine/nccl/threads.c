/* Stands for NCCL between threads of one process, whose streams are device.c's. A send is done when its receiver has
 * taken it; the operations of a group go on together; an abort ends what waits. Communicators are told apart by their
 * id's first bytes and, after a split, by colour. What it cannot do it does not pretend to. */
#include "tests/engine/nccl/device.h"

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 16, GROUP_MOST = 64 };

/* One direction between two ranks of a communicator: what is offered, and how much of it was taken. */
struct lane {
    const void *data;
    size_t bytes;
    bool offered;
};

struct world {
    char key[32];
    int color;                                 /* -1: not of a split */
    int size, joined;                          /* size 0: not known yet */
    int split;                                 /* how many of its ranks have asked for a split */
    struct lane lanes[RANKS_MOST][RANKS_MOST]; /* [from][to] */
    /* Of a call of all. */
    const void *given[RANKS_MOST];
    int arrived;
    unsigned meetings;
    bool broken; /* one has aborted: the others get on only by aborting too */
    struct world *next;
};

struct ncclComm {
    struct world *world;
    int rank;
    bool aborted;
    struct ncclComm *next; /* all there ever were: what is under way may still look at one */
};

struct operation {
    enum { SEND, RECV, REDUCE, BROADCAST, ALL_REDUCE } kind;
    struct ncclComm *comm;
    const void *from;
    void *to;
    size_t bytes;
    int peer; /* or root */
    bool sent;
};

struct group {
    struct operation items[GROUP_MOST];
    int n;
    cudaStream_t stream;
};

/* nccl.h declares them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static struct world *worlds;
static struct ncclComm *comms;
static _Thread_local struct group *open_group;
static _Thread_local int depth;
static atomic_int ids;

/* --- work, on a stream's thread ---*/

static bool send_offer(struct operation *o) {
    struct lane *lane = &o->comm->world->lanes[o->comm->rank][o->peer];
    if (o->sent)
        return !lane->offered;
    if (lane->offered)
        return false;
    *lane = (struct lane){ o->from, o->bytes, true };
    o->sent = true;
    pthread_cond_broadcast(&changed);
    return false;
}

static bool recv_take(struct operation *o) {
    struct lane *lane = &o->comm->world->lanes[o->peer][o->comm->rank];
    if (!lane->offered)
        return false;
    if (lane->bytes != o->bytes)
        abort(); /* real NCCL would hang, or worse */
    memcpy(o->to, lane->data, o->bytes);
    lane->offered = false;
    pthread_cond_broadcast(&changed);
    return true;
}

static void meet(struct ncclComm *comm) {
    struct world *w = comm->world;
    const unsigned meeting = w->meetings;
    if (++w->arrived == w->size) {
        w->arrived = 0;
        w->meetings++;
        pthread_cond_broadcast(&changed);
    }
    while ((w->meetings == meeting || w->broken) && !comm->aborted)
        pthread_cond_wait(&changed, &lock);
}

/* Each makes the result for itself, of what all have given; nobody writes before all have read. */
static void all_do(struct operation *o) {
    struct world *w = o->comm->world;
    w->given[o->comm->rank] = o->from;
    meet(o->comm);
    if (o->comm->aborted)
        return;
    float *result = calloc(1, o->bytes);
    if (o->kind == BROADCAST)
        memcpy(result, w->given[o->peer], o->bytes);
    for (int r = w->size - 1; r >= 0 && o->kind != BROADCAST; r--)
        for (size_t i = 0; i < o->bytes / sizeof *result; i++)
            result[i] += ((const float *)w->given[r])[i];
    meet(o->comm);
    if (!o->comm->aborted && (o->kind != REDUCE || o->peer == o->comm->rank))
        memcpy(o->to, result, o->bytes);
    free(result);
}

/* What was offered goes with its sender. */
static void withdraw(struct operation *o) {
    if (o->kind == SEND && o->sent)
        o->comm->world->lanes[o->comm->rank][o->peer].offered = false;
}

static void group_run(void *arg) {
    struct group *g = arg;
    bool done[GROUP_MOST] = { false };
    pthread_mutex_lock(&lock);
    for (bool waits = true; waits;) {
        waits = false;
        for (int i = 0; i < g->n; i++) {
            struct operation *o = &g->items[i];
            if (done[i])
                continue;
            if (o->comm->aborted) {
                withdraw(o);
                done[i] = true;
            } else if (o->kind == SEND || o->kind == RECV)
                done[i] = o->kind == SEND ? send_offer(o) : recv_take(o);
            else {
                all_do(o);
                done[i] = true;
            }
            waits = waits || !done[i];
        }
        if (waits)
            pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    free(g);
}

static ncclResult_t operation_add(struct operation o, cudaStream_t stream) {
    bool alone = depth == 0;
    if (alone)
        ncclGroupStart();
    if (open_group->n == GROUP_MOST)
        return ncclInternalError;
    open_group->items[open_group->n++] = o;
    open_group->stream = stream;
    return alone ? ncclGroupEnd() : ncclSuccess;
}

/* --- what nccl.c calls ---*/

ncclResult_t ncclGetVersion(int *version) {
    *version = NCCL_VERSION_CODE;
    return ncclSuccess;
}
const char *ncclGetErrorString(ncclResult_t result) { return result == ncclSuccess ? "no error" : "an error"; }
const char *ncclGetLastError(ncclComm_t comm) { return comm ? "" : ""; }

ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    memset(id, 0, sizeof *id);
    int number = atomic_fetch_add(&ids, 1) + 1;
    memcpy(id->internal, &number, sizeof number);
    return ncclSuccess;
}

static struct world *world_find(const char *key, int color) {
    struct world *w = worlds;
    while (w && (memcmp(w->key, key, sizeof w->key) != 0 || w->color != color))
        w = w->next;
    if (w)
        return w;
    w = calloc(1, sizeof *w);
    memcpy(w->key, key, sizeof w->key);
    w->color = color;
    w->next = worlds;
    return worlds = w;
}

/* In the background, as one that does not block: complete when all have joined. With the lock held. */
static ncclResult_t join(struct world *w, int rank, ncclComm_t *ret) {
    struct ncclComm *comm = calloc(1, sizeof *comm);
    w->joined++;
    *comm = (struct ncclComm){ .world = w, .rank = rank, .next = comms };
    comms = *ret = comm;
    pthread_cond_broadcast(&changed);
    return ncclInProgress;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (config->blocking != 0)
        return ncclInvalidUsage;
    pthread_mutex_lock(&lock);
    struct world *w = world_find(id.internal, -1);
    w->size = size;
    ncclResult_t result = join(w, rank, comm);
    pthread_mutex_unlock(&lock);
    return result;
}

/* Keys are a permutation. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *ret, ncclConfig_t *config) {
    (void)config;
    pthread_mutex_lock(&lock);
    struct world *parent = comm->world;
    ncclResult_t result = join(world_find(parent->key, color), key, ret);
    if (++parent->split == parent->size)
        for (struct world *w = worlds; w; w = w->next)
            if (memcmp(w->key, parent->key, sizeof w->key) == 0 && w->color >= 0)
                w->size = w->joined;
    pthread_mutex_unlock(&lock);
    return result;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    pthread_mutex_lock(&lock);
    *state = comm->world->size == 0 || comm->world->joined < comm->world->size ? ncclInProgress : ncclSuccess;
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    pthread_mutex_lock(&lock);
    comm->aborted = comm->world->broken = true;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) { return comm ? ncclSuccess : ncclInvalidArgument; }
ncclResult_t ncclCommDestroy(ncclComm_t comm) { return comm ? ncclSuccess : ncclInvalidArgument; }

ncclResult_t ncclGroupStart(void) {
    if (depth++ == 0)
        open_group = calloc(1, sizeof *open_group);
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void) {
    if (--depth > 0)
        return ncclSuccess;
    if (open_group->n > 0)
        device_queue(open_group->stream, group_run, open_group);
    else
        free(open_group);
    open_group = NULL;
    return ncclSuccess;
}

ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return type != ncclInt8 ? ncclInvalidArgument
                            : operation_add((struct operation){ SEND, comm, data, NULL, n, peer, false }, stream);
}
ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return type != ncclInt8 ? ncclInvalidArgument
                            : operation_add((struct operation){ RECV, comm, NULL, data, n, peer, false }, stream);
}
ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return type != ncclFloat32 || op != ncclSum
               ? ncclInvalidArgument
               : operation_add((struct operation){ REDUCE, comm, from, to, 4 * n, root, false }, stream);
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return type != ncclFloat32 || op != ncclSum
               ? ncclInvalidArgument
               : operation_add((struct operation){ ALL_REDUCE, comm, from, to, 4 * n, -1, false }, stream);
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return type != ncclInt8 ? ncclInvalidArgument
                            : operation_add((struct operation){ BROADCAST, comm, from, to, n, root, false }, stream);
}
