#include "executor/engine/collective/internal.h"

#include <assert.h>

/* Segments in flight in each direction: one arrives while the one before it is added. */
enum { AHEAD = COLLECTIVE_STAGING_BYTES / COLLECTIVE_SEGMENT_BYTES };
static_assert(2 * AHEAD <= TRANSPORT_TRANSFERS, "both directions fit in a channel's transfers");

struct stream {
    char *data;
    size_t n, begun, finished; /* bytes; segments */
    int handles[AHEAD];
};

static size_t stream_segments(const struct stream *s) {
    return (s->n + COLLECTIVE_SEGMENT_BYTES - 1) / COLLECTIVE_SEGMENT_BYTES;
}

static size_t stream_length(const struct stream *s, size_t segment) {
    size_t left = s->n - segment * COLLECTIVE_SEGMENT_BYTES;
    return left < COLLECTIVE_SEGMENT_BYTES ? left : COLLECTIVE_SEGMENT_BYTES;
}

/* a (n) += b (n). Tree order is fixed by who exchanges with whom; a + b = b + a in IEEE arithmetic. */
static void add_floats(float *restrict a, const float *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++)
        a[i] += b[i];
}

status_t collective_swap(struct collective *c, enum collective_channel channel, int peer, const void *out, size_t n_out,
                         void *in, size_t n_in, bool add, struct err *e) {
    struct transport *t = c->transport;
    const struct transport_ops *ops = t->ops;
    struct stream send = { .data = (char *)out, .n = n_out }, recv = { .data = in, .n = n_in };
    size_t sends = stream_segments(&send), recvs = stream_segments(&recv);

    while (recv.finished < recvs || send.finished < sends) {
        /* Receives first: a peer whose receive is known is sent to at once. */
        for (; recv.begun < recvs && recv.begun < recv.finished + AHEAD; recv.begun++) {
            char *to = add ? c->staging[channel] + recv.begun % AHEAD * COLLECTIVE_SEGMENT_BYTES
                           : recv.data + recv.begun * COLLECTIVE_SEGMENT_BYTES;
            TRY(ops->begin_recv(t, channel, peer, to, stream_length(&recv, recv.begun),
                                &recv.handles[recv.begun % AHEAD], e));
        }
        for (; send.begun < sends && send.begun < send.finished + AHEAD; send.begun++)
            TRY(ops->begin_send(t, channel, peer, send.data + send.begun * COLLECTIVE_SEGMENT_BYTES,
                                stream_length(&send, send.begun), &send.handles[send.begun % AHEAD], e));
        if (recv.finished < recvs) {
            size_t at = recv.finished++;
            TRY(ops->finish(t, channel, recv.handles[at % AHEAD], e));
            if (add)
                add_floats((float *)(void *)(recv.data + at * COLLECTIVE_SEGMENT_BYTES),
                           (const float *)(const void *)(c->staging[channel] + at % AHEAD * COLLECTIVE_SEGMENT_BYTES),
                           stream_length(&recv, at) / sizeof(float));
        }
        if (send.finished < sends)
            TRY(ops->finish(t, channel, send.handles[send.finished++ % AHEAD], e));
    }
    return ST_OK;
}
