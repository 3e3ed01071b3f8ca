/* An exchange of two ranks by segments. Each direction keeps up to IN_FLIGHT segments in flight, so that one segment
 * arrives while the one before is added. Bytes that are added or or-ed arrive in staging first; bytes that replace
 * `in` arrive in place. */
#include "engine/collective/exchange.h"

#include <string.h>

enum { IN_FLIGHT = COLLECTIVE_STAGING_BYTES / COLLECTIVE_SEGMENT_BYTES };

/* One direction of an exchange. */
struct direction {
    char *data;
    size_t n, begun, finished; /* bytes; segments */
    int handles[IN_FLIGHT];
};

static size_t direction_segments(const struct direction *d) {
    return (d->n + COLLECTIVE_SEGMENT_BYTES - 1) / COLLECTIVE_SEGMENT_BYTES;
}

static size_t segment_length(const struct direction *d, size_t segment) {
    size_t left = d->n - segment * COLLECTIVE_SEGMENT_BYTES;
    return left < COLLECTIVE_SEGMENT_BYTES ? left : COLLECTIVE_SEGMENT_BYTES;
}

/* a (n) += b (n). The reduction tree fixes which ranks are added; a + b = b + a in IEEE arithmetic. */
static void add_floats(float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++)
        a[i] += b[i];
}

static void or_words(uint64_t *restrict a, const uint64_t *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++)
        a[i] |= b[i];
}

void exchange_accumulate(enum exchange_kind kind, char *in, const char *staging, size_t n) {
    if (kind == EXCHANGE_ADD)
        add_floats((float *)(void *)in, (const float *)(const void *)staging, n / sizeof(float));
    else if (kind == EXCHANGE_OR)
        or_words((uint64_t *)(void *)in, (const uint64_t *)(const void *)staging, n / sizeof(uint64_t));
}

status_t exchange_segments(struct collective_transport *t, int stream, const struct exchange *x, char *staging,
                           struct err *e) {
    const struct collective_transport_ops *ops = t->ops;
    struct direction send = { .data = (char *)x->out, .n = x->n_out }, recv = { .data = x->in, .n = x->n_in };
    size_t sends = direction_segments(&send), recvs = direction_segments(&recv);

    while (recv.finished < recvs || send.finished < sends) {
        /* Receives first: a sender whose receiver is ready sends at once. */
        for (; recv.begun < recvs && recv.begun < recv.finished + IN_FLIGHT; recv.begun++) {
            char *to = x->kind != EXCHANGE_STORE ? staging + recv.begun % IN_FLIGHT * COLLECTIVE_SEGMENT_BYTES
                                                 : recv.data + recv.begun * COLLECTIVE_SEGMENT_BYTES;
            TRY(ops->begin_recv(t, stream, x->from, to, segment_length(&recv, recv.begun),
                                &recv.handles[recv.begun % IN_FLIGHT], e));
        }
        for (; send.begun < sends && send.begun < send.finished + IN_FLIGHT; send.begun++)
            TRY(ops->begin_send(t, stream, x->to, send.data + send.begun * COLLECTIVE_SEGMENT_BYTES,
                                segment_length(&send, send.begun), &send.handles[send.begun % IN_FLIGHT], e));
        if (recv.finished < recvs) {
            size_t at = recv.finished++;
            TRY(ops->finish(t, stream, recv.handles[at % IN_FLIGHT], e));
            /* EXCHANGE_OR may send from the memory that it changes: send a segment before changing it. */
            if (x->kind == EXCHANGE_OR && send.finished < sends)
                TRY(ops->finish(t, stream, send.handles[send.finished++ % IN_FLIGHT], e));
            exchange_accumulate(x->kind, recv.data + at * COLLECTIVE_SEGMENT_BYTES,
                                staging + at % IN_FLIGHT * COLLECTIVE_SEGMENT_BYTES, segment_length(&recv, at));
        }
        if (send.finished < sends)
            TRY(ops->finish(t, stream, send.handles[send.finished++ % IN_FLIGHT], e));
    }
    return ST_OK;
}

/* A ring: each rank passes on the block that it received last. */
status_t exchange_all_gather(struct collective_transport *t, int stream, int rank, int world_size, const void *mine,
                             size_t n, void *all, char *staging, struct err *e) {
    const int P = world_size;
    char *blocks = all;
    if (n && mine != blocks + (size_t)rank * n)
        memmove(blocks + (size_t)rank * n, mine, n);
    for (int round = 0; round < P - 1; round++) {
        int give = (rank - round + P) % P, get = (give + P - 1) % P;
        struct exchange x = { .to = (rank + 1) % P,
                              .from = (rank + P - 1) % P,
                              .out = blocks + (size_t)give * n,
                              .n_out = n,
                              .in = blocks + (size_t)get * n,
                              .n_in = n };
        TRY(t->ops->exchange(t, stream, &x, staging, e));
    }
    return ST_OK;
}
