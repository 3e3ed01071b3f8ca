#include "executor/engine/collective/internal.h"
#include "executor/engine/collective/near.h"

#include <assert.h>

/* Segments in flight in each direction: one arrives while the one before it is added. */
enum { AHEAD = COLLECTIVE_STAGING_BYTES / COLLECTIVE_SEGMENT_BYTES };

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

static void or_words(uint64_t *restrict a, const uint64_t *restrict b, size_t n) {
    for (size_t i = 0; i < n; i++)
        a[i] |= b[i];
}

void swap_fold(enum swap_kind kind, char *in, const char *staging, size_t n) {
    if (kind == SWAP_ADD)
        add_floats((float *)(void *)in, (const float *)(const void *)staging, n / sizeof(float));
    else if (kind == SWAP_OR)
        or_words((uint64_t *)(void *)in, (const uint64_t *)(const void *)staging, n / sizeof(uint64_t));
}

status_t swap_streams(struct collective *c, enum collective_channel channel, const struct swap *w, struct err *e) {
    struct transport *t = transport_of(c, channel);
    const struct transport_ops *ops = t->ops;
    struct stream send = { .data = (char *)w->out, .n = w->n_out }, recv = { .data = w->in, .n = w->n_in };
    size_t sends = stream_segments(&send), recvs = stream_segments(&recv);

    while (recv.finished < recvs || send.finished < sends) {
        /* Receives first: a peer whose receive is known is sent to at once. */
        for (; recv.begun < recvs && recv.begun < recv.finished + AHEAD; recv.begun++) {
            char *to = w->kind != SWAP_STORE ? c->staging[channel] + recv.begun % AHEAD * COLLECTIVE_SEGMENT_BYTES
                                             : recv.data + recv.begun * COLLECTIVE_SEGMENT_BYTES;
            TRY(ops->begin_recv(t, channel, w->from, to, stream_length(&recv, recv.begun),
                                &recv.handles[recv.begun % AHEAD], e));
        }
        for (; send.begun < sends && send.begun < send.finished + AHEAD; send.begun++)
            TRY(ops->begin_send(t, channel, w->to, send.data + send.begun * COLLECTIVE_SEGMENT_BYTES,
                                stream_length(&send, send.begun), &send.handles[send.begun % AHEAD], e));
        if (recv.finished < recvs) {
            size_t at = recv.finished++;
            TRY(ops->finish(t, channel, recv.handles[at % AHEAD], e));
            /* What is or-ed to may be what is sent: not before it has left. */
            if (w->kind == SWAP_OR && send.finished < sends)
                TRY(ops->finish(t, channel, send.handles[send.finished++ % AHEAD], e));
            swap_fold(w->kind, recv.data + at * COLLECTIVE_SEGMENT_BYTES,
                      c->staging[channel] + at % AHEAD * COLLECTIVE_SEGMENT_BYTES, stream_length(&recv, at));
        }
        if (send.finished < sends)
            TRY(ops->finish(t, channel, send.handles[send.finished++ % AHEAD], e));
    }
    return ST_OK;
}

status_t collective_swap(struct collective *c, enum collective_channel channel, const struct swap *w, struct err *e) {
    struct transport *t = transport_of(c, channel);
    if (t->ops->swap)
        return t->ops->swap(t, channel, w, e);
    return c->near && t == c->host ? near_swap(c, channel, w, e) : swap_streams(c, channel, w, e);
}
