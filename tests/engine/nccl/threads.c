/* Stands for NCCL between threads of one process, whose streams are device.c's. A send is done when its receiver has
 * taken it; the operations of a group go on together; an abort ends what waits. Communicators are told apart by their
 * id's first bytes and, after a split, by colour. What it cannot do it does not pretend to.
 *
 * As in NCCL 2.28, with communicators that do not block:
 * - a group's end only begins it: the communicator is in progress, and refuses all other calls, until what the group
 *   needs is connected and the stream has it. NCCL has a thread for this; here whoever asks for the state does it, at
 *   the second time of asking
 * - two ranks are connected, for one direction, when both have called for it; and all ranks, for calls of all
 * - a split writes its communicator when it is complete, or while its own is aborted
 * - a call that fails makes its group's end fail too, without which nothing else is done on that thread: none may end
 *   in a group
 * - nothing is called on a communicator that was aborted or destroyed
 * - an abort gives memory of the device back, which waits for all that the device has been given
 * - who does not abort learns of a rank that did as of an error of the network */
#include "tests/engine/nccl/device.h"

#include <nccl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS_MOST = 16, GROUP_MOST = 64 };

/* One direction between two ranks of a communicator. */
struct lane {
    bool sender_asks, receiver_asks; /* both: it is connected */
    const void *data;                /* what is offered */
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
    int asked; /* ranks that have made one */
    const void *given[RANKS_MOST];
    int arrived;
    unsigned meetings;
    bool broken; /* one has aborted: the others get on only by aborting too */
    struct world *next;
};

struct ncclComm {
    struct world *world;
    int rank;
    enum { READY, JOINING, SPLITTING, LAUNCHING, FINALIZING } doing;
    bool seen;             /* its state, since this began */
    bool asked;            /* for calls of all */
    bool aborted, gone;    /* gone: destroyed, or aborted */
    ncclResult_t failure;  /* kept */
    struct group *pending; /* of LAUNCHING */
    ncclComm_t *split_to;  /* of SPLITTING */
    int split_color, split_key;
    const char *split_name;
    struct device *device; /* its thread's */
    const char *name;
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
static _Thread_local ncclResult_t group_failure;
static _Thread_local int depth;
static atomic_int ids;

/* --- work, on a stream's thread ---*/

static bool send_offer(struct operation *o) {
    struct lane *lane = &o->comm->world->lanes[o->comm->rank][o->peer];
    if (o->sent)
        return !lane->offered;
    if (lane->offered)
        return false;
    lane->data = o->from;
    lane->bytes = o->bytes;
    lane->offered = true;
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

/* --- what a communicator is in the midst of; with the lock held ---*/

static struct lane *lane_of(const struct operation *o) {
    struct lane(*lanes)[RANKS_MOST] = o->comm->world->lanes;
    return o->kind == SEND ? &lanes[o->comm->rank][o->peer] : &lanes[o->peer][o->comm->rank];
}

static void ask(const struct operation *o) {
    struct lane *lane = lane_of(o);
    bool *asks = o->kind == SEND ? &lane->sender_asks : o->kind == RECV ? &lane->receiver_asks : &o->comm->asked;
    if (*asks)
        return;
    *asks = true;
    o->comm->world->asked += o->kind != SEND && o->kind != RECV;
    device_connects();
}

static bool connected(const struct operation *o) {
    const struct world *w = o->comm->world;
    if (o->kind != SEND && o->kind != RECV)
        return w->asked == w->size;
    return lane_of(o)->sender_asks && lane_of(o)->receiver_asks;
}

static bool launch(struct ncclComm *comm) {
    struct group *g = comm->pending;
    for (int i = 0; i < g->n; i++)
        if (!connected(&g->items[i]))
            return false;
    device_queue(g->stream, group_run, g);
    comm->pending = NULL;
    return true;
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

static ncclComm_t comm_new(struct world *w, int rank) {
    struct ncclComm *comm = calloc(1, sizeof *comm);
    *comm = (struct ncclComm){ .world = w, .rank = rank, .next = comms };
    device_communicates(1);
    return comms = comm;
}

static void split_end(struct ncclComm *comm) {
    struct world *w = world_find(comm->world->key, comm->split_color);
    w->size = w->joined; /* all have joined by now, but where it is aborted */
    *comm->split_to = comm_new(w, comm->split_key);
    (*comm->split_to)->device = comm->device;
    (*comm->split_to)->name = comm->split_name;
}

static bool split(struct ncclComm *comm) {
    if (comm->world->split < comm->world->size)
        return false;
    split_end(comm);
    return true;
}

static void go_on(struct ncclComm *comm) {
    const struct world *w = comm->world;
    bool done = true;
    switch (comm->doing) {
    case READY: return;
    case JOINING: done = w->size > 0 && w->joined == w->size; break;
    case SPLITTING: done = split(comm); break;
    case LAUNCHING: done = comm->seen && launch(comm); break;
    case FINALIZING: break;
    }
    comm->seen = true;
    if (done)
        comm->doing = READY;
}

static void begin(struct ncclComm *comm, int doing) {
    comm->doing = doing;
    comm->seen = false;
}

static void must(bool as_it_should_be, const char *what) {
    if (as_it_should_be)
        return;
    fprintf(stderr, "NCCL's stand-in: %s\n", what);
    abort();
}

/* May this be called on it? With the lock taken. */
static ncclResult_t enter(struct ncclComm *comm, const char *call) {
    pthread_mutex_lock(&lock);
    must(!comm->gone, "a call on a communicator that is no more");
    if (device_fault(call) || device_fault(comm->name))
        comm->failure = ncclInternalError;
    return comm->failure != ncclSuccess ? comm->failure : comm->doing != READY ? ncclInvalidArgument : ncclSuccess;
}

static ncclResult_t leave(ncclResult_t result) {
    pthread_mutex_unlock(&lock);
    return result;
}

static ncclResult_t operation_add(const char *call, struct operation o, cudaStream_t stream) {
    const bool alone = depth == 0;
    if (alone)
        ncclGroupStart();
    ncclResult_t result = leave(enter(o.comm, call));
    if (result == ncclSuccess && open_group->n == GROUP_MOST)
        result = ncclInternalError;
    if (result != ncclSuccess) {
        group_failure = result;
    } else {
        must(open_group->n == 0 || open_group->items[0].comm == o.comm, "a group of two communicators");
        open_group->items[open_group->n++] = o;
        open_group->stream = stream;
    }
    return alone ? ncclGroupEnd() : result;
}

/* --- what nccl_transport.c calls ---*/

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

ncclResult_t ncclCommInitRankConfig(ncclComm_t *comm, int size, ncclUniqueId id, int rank, ncclConfig_t *config) {
    if (config->blocking != 0)
        return ncclInvalidUsage;
    pthread_mutex_lock(&lock);
    struct world *w = world_find(id.internal, -1);
    w->size = size;
    w->joined++;
    *comm = comm_new(w, rank);
    (*comm)->device = device_mine();
    (*comm)->name = config->commName;
    begin(*comm, JOINING);
    return leave(ncclInProgress);
}

/* Keys are a permutation. */
ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t *ret, ncclConfig_t *config) {
    ncclResult_t result = enter(comm, "ncclCommSplit");
    *ret = NULL;
    if (result != ncclSuccess || config->blocking != 0)
        return leave(result != ncclSuccess ? result : ncclInvalidUsage);
    comm->split_to = ret;
    comm->split_color = color;
    comm->split_key = key;
    comm->split_name = config->commName;
    comm->world->split++;
    world_find(comm->world->key, color)->joined++;
    begin(comm, SPLITTING);
    return leave(ncclSuccess);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *state) {
    enter(comm, "ncclCommGetAsyncError");
    if (comm->failure == ncclSuccess && comm->world->broken)
        comm->failure = ncclRemoteError;
    if (comm->failure == ncclSuccess)
        go_on(comm);
    *state = comm->failure != ncclSuccess ? comm->failure : comm->doing != READY ? ncclInProgress : ncclSuccess;
    return leave(ncclSuccess);
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    must(depth == 0, "an abort in a group, which would wait for the group's end");
    enter(comm, "ncclCommAbort");
    comm->aborted = comm->gone = comm->world->broken = true;
    if (comm->doing == SPLITTING)
        split_end(comm);
    free(comm->pending);
    device_communicates(-1);
    pthread_cond_broadcast(&changed);
    leave(ncclSuccess);
    device_settle(comm->device);
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    ncclResult_t result = enter(comm, "ncclCommFinalize");
    if (result != ncclSuccess)
        return leave(result);
    begin(comm, FINALIZING);
    return leave(ncclInProgress);
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    must(enter(comm, "ncclCommDestroy") == ncclSuccess, "a communicator is destroyed in the midst of something");
    comm->gone = true;
    device_communicates(-1);
    return leave(ncclSuccess);
}

static pthread_key_t group_key;
static void group_left_open(void *group) {
    (void)group;
    must(false, "a thread ends in a group");
}
static void group_key_new(void) { must(pthread_key_create(&group_key, group_left_open) == 0, "no key"); }

ncclResult_t ncclGroupStart(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, group_key_new);
    if (depth++ == 0) {
        open_group = calloc(1, sizeof *open_group);
        group_failure = ncclSuccess;
        pthread_setspecific(group_key, open_group);
    }
    return ncclSuccess;
}

static ncclResult_t group_launch(struct group *g) {
    struct ncclComm *comm = g->items[0].comm;
    ncclResult_t result = enter(comm, "ncclGroupEnd");
    if (result != ncclSuccess) {
        free(g);
        return leave(result);
    }
    for (int i = 0; i < g->n; i++)
        ask(&g->items[i]);
    comm->pending = g;
    begin(comm, LAUNCHING);
    return leave(ncclInProgress);
}

ncclResult_t ncclGroupEnd(void) {
    must(depth > 0, "the end of a group that was not begun");
    if (--depth > 0)
        return ncclSuccess;
    pthread_setspecific(group_key, NULL);
    if (group_failure == ncclSuccess && open_group->n > 0)
        return group_launch(open_group);
    free(open_group);
    return group_failure;
}

ncclResult_t ncclSend(const void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return type != ncclInt8
               ? ncclInvalidArgument
               : operation_add("ncclSend", (struct operation){ SEND, comm, data, NULL, n, peer, false }, stream);
}
ncclResult_t ncclRecv(void *data, size_t n, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return type != ncclInt8
               ? ncclInvalidArgument
               : operation_add("ncclRecv", (struct operation){ RECV, comm, NULL, data, n, peer, false }, stream);
}
ncclResult_t ncclReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return type != ncclFloat32 || op != ncclSum
               ? ncclInvalidArgument
               : operation_add("ncclReduce", (struct operation){ REDUCE, comm, from, to, 4 * n, root, false }, stream);
}
ncclResult_t ncclAllReduce(const void *from, void *to, size_t n, ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                           cudaStream_t stream) {
    return type != ncclFloat32 || op != ncclSum
               ? ncclInvalidArgument
               : operation_add("ncclAllReduce", (struct operation){ ALL_REDUCE, comm, from, to, 4 * n, -1, false },
                               stream);
}
ncclResult_t ncclBroadcast(const void *from, void *to, size_t n, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return type != ncclInt8 ? ncclInvalidArgument
                            : operation_add("ncclBroadcast",
                                            (struct operation){ BROADCAST, comm, from, to, n, root, false }, stream);
}
