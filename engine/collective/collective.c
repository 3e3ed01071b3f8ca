/* The public functions of collective.h.
 *
 * A collective has one transport of the host (Gloo, shared memory above Gloo, or threads of one process) and, with a
 * device attached, one of the device (NCCL). transport_of chooses by the stream: DATA, FORWARD and BACKWARD carry the
 * device's memory, all other streams the host's. Point-to-point calls go straight to the transport; gathers, the
 * barrier and the reductions (reduce.c) are sequences of exchanges. The device's transport is loaded from the CUDA
 * plugin, and the host's transport stays open below it to find each other and to detect deaths. */
#include "engine/collective/collective.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "engine/collective/exchange.h"
#include "engine/collective/internal.h"
#include "engine/collective/open_files.h"
#include "engine/collective/plugin.h"
#include "engine/collective/shm_transport.h"
#include "kernels/plugin.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct collective *collective_close(struct collective *c) {
    if (!c)
        return NULL;
    collective_detach(c);
    if (c->host)
        c->host->ops->close(c->host);
    for (int i = 0; i < COLLECTIVE_STREAMS; i++)
        free(c->staging[i]);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

status_t collective_new(int rank, int world_size, int timeout_ms, struct collective **ret, struct err *e) {
    CLEANUP(collective_closep) struct collective *c = alloc_zeroed(1, sizeof *c);
    pthread_mutex_init(&c->lock, NULL);
    c->rank = rank;
    c->world_size = world_size;
    c->timeout_ms = timeout_ms;
    for (int i = 0; world_size > 1 && i < COLLECTIVE_STREAMS; i++)
        if ((errno = posix_memalign((void **)&c->staging[i], 64, COLLECTIVE_STAGING_BYTES)))
            return err_errno(e, "allocate %d bytes of staging", COLLECTIVE_STAGING_BYTES);
    *ret = take_ptr(&c);
    return ST_OK;
}

status_t collective_open_alone(struct collective **ret, struct err *e) { return collective_new(0, 1, 0, ret, e); }

status_t collective_check_world_size(int P, struct err *e) {
    return P >= 1 && P <= LIMIT_WORLD_SIZE
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "world size %d is outside 1 to %d", P, LIMIT_WORLD_SIZE);
}

status_t collective_open_gloo(const struct collective_config *config, struct collective **ret, struct err *e) {
    int P = config->world_size;
    TRY(collective_check_world_size(P, e));
    if (config->rank < 0 || config->rank >= P)
        return err_set(e, ST_INVALID_ARGUMENT, "rank %d is outside a world size of %d", config->rank, P);
    CLEANUP(collective_closep) struct collective *c = NULL;
    TRY(collective_new(config->rank, P, config->timeout_ms, &c, e));
    TRY(open_files_allow(P - 1, e));
    if (P > 1)
        TRY(gloo_transport_open(config, &c->host, e));
    if (P > 1 && !config->sockets_only)
        TRY(shm_transport_open(c->rank, P, c->staging[COLLECTIVE_CONTROL], &c->host, e));
    *ret = take_ptr(&c);
    return ST_OK;
}

/* collective_rendezvous_fn */
static status_t gather_ids(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    return collective_all_gather_blobs(ctx, COLLECTIVE_CONTROL, mine, n, all, e);
}

static void device_set(struct collective *c, struct collective_transport *device) {
    pthread_mutex_lock(&c->lock);
    c->device = device;
    pthread_mutex_unlock(&c->lock);
}

status_t collective_attach_plugin(struct collective *c, const struct collective_plugin *plugin,
                                  const struct collective_device *device, struct err *e) {
    const int P = c->world_size, D = device->data;
    const struct collective_group groups[] = { { c->rank / D * D, 1, D }, { c->rank % D, D, P / D }, { 0, 1, P } };
    bool peers[LIMIT_WORLD_SIZE] = { false };
    struct collective_transport *opened;
    assert(P % D == 0 && !(D & (D - 1)));
    for (size_t i = 0; i < sizeof groups / sizeof *groups; i++)
        group_peers(c, &groups[i], peers);
    struct device_gang gang = { .rank = c->rank,
                                .world_size = P,
                                .timeout_ms = c->timeout_ms,
                                .shard = collective_shard(c->rank % D, D),
                                .peers = peers,
                                .host = c->host,
                                .rendezvous = gather_ids,
                                .rendezvous_ctx = c };
    TRY(plugin->open(&gang, device, &opened, e));
    device_set(c, opened);
    return ST_OK;
}

static status_t plugin_find(const struct collective_plugin **ret, struct err *e) {
    TRY(kernels_plugin_cuda_symbol(COLLECTIVE_PLUGIN_NAME, (const void **)ret, e));
    return (*ret)->abi == COLLECTIVE_PLUGIN_ABI ? ST_OK
                                                : err_set(e, ST_FAILED_PRECONDITION,
                                                          "the collective of the CUDA plugin belongs to another build "
                                                          "than this program: install both from one build");
}

status_t collective_attach(struct collective *c, const struct collective_device *device, struct err *e) {
    const struct collective_plugin *plugin = NULL;
    if (c->world_size == 1)
        return ST_OK;
    TRY(plugin_find(&plugin, e));
    return collective_attach_plugin(c, plugin, device, e);
}

status_t collective_device_check(struct err *e) {
    const struct collective_plugin *plugin = NULL;
    TRY(plugin_find(&plugin, e));
    return plugin->check(e);
}

/* An abort in progress ends first. A later abort reaches the host's transport alone, which also ends the waits of
 * closing the device's. */
void collective_detach(struct collective *c) {
    struct collective_transport *device = c ? c->device : NULL;
    if (!device)
        return;
    device_set(c, NULL);
    device->ops->close(device);
}

status_t collective_device_environment(bool pipeline, struct err *e) {
    static const char *const variables[][2] = { { "CUDA_DEVICE_MAX_CONNECTIONS", "32" },
                                                { "CUDA_MODULE_LOADING", "EAGER" } };
    for (size_t i = 0; i < (pipeline ? 2 : 1); i++)
        if (setenv(variables[i][0], variables[i][1], 0) < 0)
            return err_errno(e, "set %s=%s", variables[i][0], variables[i][1]);
    return ST_OK;
}

status_t collective_connect(struct collective *c, const struct collective_link *links, int n, struct err *e) {
    return c->device ? c->device->ops->connect(c->device, links, n, e) : ST_OK;
}

int collective_rank(const struct collective *c) { return c->rank; }
int collective_world_size(const struct collective *c) { return c->world_size; }
struct collective_group collective_world(const struct collective *c) {
    return (struct collective_group){ .first = 0, .stride = 1, .count = c->world_size };
}

void collective_abort(struct collective *c, const char *reason) {
    pthread_mutex_lock(&c->lock);
    struct collective_transport *t = c->device ? c->device : c->host; /* the device's transport aborts the host's too */
    if (t)
        t->ops->abort(t, reason);
    pthread_mutex_unlock(&c->lock);
}

status_t collective_fail(struct collective *c, status_t st, const struct err *why, struct err *e) {
    if (c->device && st == ST_INTERNAL)
        return c->device->ops->fail(c->device, st, why, e);
    collective_abort(c, why->msg);
    return err_set(e, st, "%s", why->msg);
}

status_t collective_post_send(struct collective *c, enum collective_stream stream, int peer, const void *data, size_t n,
                              int *ret_ticket, struct err *e) {
    assert(peer >= 0 && peer < c->world_size && peer != c->rank && n > 0);
    struct collective_transport *t = transport_of(c, stream);
    return t->ops->begin_send(t, stream, peer, data, n, ret_ticket, e);
}

status_t collective_post_recv(struct collective *c, enum collective_stream stream, int peer, void *data, size_t n,
                              int *ret_ticket, struct err *e) {
    assert(peer >= 0 && peer < c->world_size && peer != c->rank && n > 0);
    struct collective_transport *t = transport_of(c, stream);
    return t->ops->begin_recv(t, stream, peer, data, n, ret_ticket, e);
}

status_t collective_finish(struct collective *c, enum collective_stream stream, int ticket, struct err *e) {
    struct collective_transport *t = transport_of(c, stream);
    return t->ops->finish(t, stream, ticket, e);
}

bool collective_deferred(const struct collective *c) { return c->device != NULL; }

status_t collective_mark(struct collective *c, int *ret_ticket, struct err *e) {
    return c->device->ops->mark(c->device, ret_ticket, e);
}

/* Every failure aborts the host's transport before it aborts work of the device. So no rank that passes this barrier
 * has aborted work. */
status_t collective_confirm(struct collective *c, struct err *e) {
    struct err why = { "" };
    if (!c->device)
        return ST_OK;
    status_t st = collective_barrier(c, COLLECTIVE_CONTROL, &why);
    if (st == ST_OK)
        return ST_OK;
    TRY(c->device->ops->check(c->device, e)); /* its error names the cause */
    return err_set(e, st, "%s", why.msg);
}

status_t collective_send(struct collective *c, enum collective_stream stream, int peer, const void *data, size_t n,
                         struct err *e) {
    int ticket;
    if (n == 0)
        return ST_OK;
    TRY(collective_post_send(c, stream, peer, data, n, &ticket, e));
    return collective_finish(c, stream, ticket, e);
}

status_t collective_recv(struct collective *c, enum collective_stream stream, int peer, void *data, size_t n,
                         struct err *e) {
    int ticket;
    if (n == 0)
        return ST_OK;
    TRY(collective_post_recv(c, stream, peer, data, n, &ticket, e));
    return collective_finish(c, stream, ticket, e);
}

status_t collective_all_gather(struct collective *c, enum collective_stream stream, const void *mine, size_t n,
                               void *all, struct err *e) {
    return exchange_all_gather(transport_of(c, stream), (int)stream, c->rank, c->world_size, mine, n, all,
                               c->staging[stream], e);
}

/* First every blob's length, then in round `hop` this rank's blob to the rank `hop` places ahead. */
status_t collective_all_gather_blobs(struct collective *c, enum collective_stream stream, const void *mine, size_t n,
                                     struct bytes *all, struct err *e) {
    const int P = c->world_size;
    CLEANUP(freep) uint64_t *sizes = alloc_zeroed((size_t)P, sizeof *sizes);
    uint64_t size = n;
    TRY(collective_all_gather(c, stream, &size, sizeof size, sizes, e));
    TRY(bytes_append(&all[c->rank], mine, n, e));
    for (int hop = 1; hop < P; hop++) {
        int from = (c->rank + P - hop) % P;
        struct bytes *in = &all[from];
        status_t st = bytes_reserve(in, sizes[from], e);
        if (st != ST_OK) {
            collective_abort(c, "a blob is too large");
            return err_prefix(e, st, "the blob of rank %d: ", from);
        }
        struct exchange x = { .to = (c->rank + hop) % P,
                              .from = from,
                              .out = mine,
                              .n_out = n,
                              .in = in->data + in->len,
                              .n_in = sizes[from] };
        TRY(collective_exchange(c, stream, &x, e));
        in->len += sizes[from];
        in->data[in->len] = '\0';
    }
    return ST_OK;
}

/* Dissemination (Hensgen, Finkel, Manber 1988): after the round of distance d a rank has a message, direct or indirect,
 * from each of the 2 d - 1 ranks before it. */
status_t collective_barrier(struct collective *c, enum collective_stream stream, struct err *e) {
    const int P = c->world_size;
    uint64_t out = 0, in;
    for (int d = 1; d < P; d *= 2) {
        struct exchange x = { .to = (c->rank + d) % P,
                              .from = (c->rank + P - d) % P,
                              .out = &out,
                              .n_out = sizeof out,
                              .in = &in,
                              .n_in = sizeof in };
        TRY(collective_exchange(c, stream, &x, e));
    }
    return ST_OK;
}
