/* The transport between threads of one process, each of which is a rank. Only tests use it.
 *
 * Between every two ranks each stream has a queue of posted transfers, which are all sends or all receives. A transfer
 * that meets its counterpart in the queue copies the bytes at once, in the thread that came second, and wakes the
 * other one; otherwise it joins the queue. One lock guards everything, the copies included, so that no memory is
 * touched after a failure. The first failure of a rank ends every rank. A rank that closes fails only the ranks that
 * wait for it.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "engine/collective/exchange.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct transfer {
    struct transfer *next; /* in its queue */
    char *data;
    size_t n;
    int peer;
    bool is_send, in_use, done; /* in_use: between begin and finish */
};

/* The transfers that wait on a stream between two ranks, oldest first: all are sends, or all are receives. */
struct queue {
    struct transfer *first, *last;
};

struct handles {
    struct transfer **items;
    int n;
};

/* The transport of one rank. */
struct member {
    struct collective_transport transport;
    struct world *world;
    int rank;
    pthread_cond_t changed;
    bool left;       /* closed */
    status_t status; /* the first failure, kept */
    struct err error;
    struct handles handles[COLLECTIVE_STREAMS];
};

/* Shared by all ranks; the last one that closes frees it. */
struct world {
    pthread_mutex_t lock;
    int size, open, timeout_ms;
    struct queue *queues; /* [from][to][stream] */
    struct member members[];
};

static struct queue *queue_between(struct world *w, int from, int to, int stream) {
    return &w->queues[((size_t)from * (size_t)w->size + (size_t)to) * COLLECTIVE_STREAMS + (size_t)stream];
}

static void queue_push(struct queue *q, struct transfer *t) {
    t->next = NULL;
    *(q->first ? &q->last->next : &q->first) = t;
    q->last = t;
}

static struct transfer *queue_pop(struct queue *q) {
    struct transfer *t = q->first;
    q->first = t->next;
    return t;
}

static void member_end(struct member *m, status_t st, const struct err *error) {
    if (m->left || m->status != ST_OK)
        return;
    m->status = st;
    m->error = *error;
    pthread_cond_broadcast(&m->changed);
}

/* Ends every rank with the first failure of this one. */
static status_t member_fail(struct member *m, status_t st, const struct err *error) {
    if (m->status == ST_OK) {
        member_end(m, st, error);
        struct err lost;
        st = err_set(&lost, ST_UNAVAILABLE, "rank %d went away: %s", m->rank, error->msg);
        for (int r = 0; r < m->world->size; r++)
            member_end(&m->world->members[r], st, &lost);
    }
    return m->status;
}

static status_t member_failure(const struct member *m, struct err *e) {
    return m->status == ST_OK ? ST_OK : err_set(e, m->status, "%s", m->error.msg);
}

static status_t fail_closed(struct member *m, int peer) {
    struct err error;
    status_t st = err_set(&error, ST_UNAVAILABLE, "rank %d went away: it has closed", peer);
    return member_fail(m, st, &error);
}

/* The lowest free handle of a stream. */
static struct transfer *handle_new(struct handles *h, int *ret) {
    for (*ret = 0; *ret < h->n; ++*ret)
        if (!h->items[*ret]->in_use)
            return h->items[*ret];
    h->items = alloc_resize(h->items, (size_t)h->n + 1, sizeof *h->items);
    return h->items[h->n++] = alloc_zeroed(1, sizeof(struct transfer));
}

/* Copies the bytes of a send to its receive. */
static status_t transfer_match(struct member *m, struct transfer *mine, struct transfer *other) {
    struct transfer *from = mine->is_send ? mine : other, *to = mine->is_send ? other : mine;
    if (from->n != to->n) {
        struct err error;
        status_t st = err_set(&error, ST_INTERNAL, "rank %d sends %zu bytes, but rank %d receives %zu", to->peer,
                              from->n, from->peer, to->n);
        return member_fail(m, st, &error);
    }
    memcpy(to->data, from->data, to->n);
    mine->done = other->done = true;
    pthread_cond_broadcast(&m->world->members[mine->peer].changed);
    return ST_OK;
}

static status_t begin_locked(struct member *m, int stream, const struct transfer *what, int *ret) {
    struct world *w = m->world;
    if (m->status != ST_OK)
        return m->status;
    if (w->members[what->peer].left)
        return fail_closed(m, what->peer);
    struct transfer *t = handle_new(&m->handles[stream], ret);
    *t = *what;
    struct queue *q = what->is_send ? queue_between(w, m->rank, what->peer, stream)
                                    : queue_between(w, what->peer, m->rank, stream);
    if (q->first && q->first->is_send != t->is_send)
        return transfer_match(m, t, queue_pop(q));
    queue_push(q, t);
    return ST_OK;
}

static status_t begin(struct collective_transport *transport, int stream, const struct transfer *what, int *ret,
                      struct err *e) {
    struct member *m = (struct member *)transport;
    pthread_mutex_lock(&m->world->lock);
    status_t st = begin_locked(m, stream, what, ret);
    if (st != ST_OK)
        st = member_failure(m, e);
    pthread_mutex_unlock(&m->world->lock);
    return st;
}

static status_t begin_send(struct collective_transport *t, int stream, int peer, const void *data, size_t n, int *ret,
                           struct err *e) {
    struct transfer what = { .data = (char *)data, .n = n, .peer = peer, .is_send = true, .in_use = true };
    return begin(t, stream, &what, ret, e);
}

static status_t begin_recv(struct collective_transport *t, int stream, int peer, void *data, size_t n, int *ret,
                           struct err *e) {
    struct transfer what = { .data = data, .n = n, .peer = peer, .in_use = true };
    return begin(t, stream, &what, ret, e);
}

static status_t finish(struct collective_transport *transport, int stream, int handle, struct err *e) {
    struct member *m = (struct member *)transport;
    struct world *w = m->world;
    int64_t until_ns = clock_mono_ns() + (int64_t)w->timeout_ms * 1000000;
    struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    pthread_mutex_lock(&w->lock);
    struct transfer *t = m->handles[stream].items[handle];
    while (!t->done && m->status == ST_OK)
        if (pthread_cond_timedwait(&m->changed, &w->lock, &until) == ETIMEDOUT && !t->done) {
            struct err error;
            status_t st = err_set(&error, ST_DEADLINE_EXCEEDED, "rank %d did nothing for %d ms", t->peer,
                                  w->timeout_ms);
            status_ignore(member_fail(m, st, &error));
        }
    t->in_use = false;
    status_t st = member_failure(m, e);
    pthread_mutex_unlock(&w->lock);
    return st;
}

static status_t check(struct collective_transport *transport, struct err *e) {
    struct member *m = (struct member *)transport;
    pthread_mutex_lock(&m->world->lock);
    status_t st = member_failure(m, e);
    pthread_mutex_unlock(&m->world->lock);
    return st;
}

static void abort_member(struct collective_transport *transport, const char *reason) {
    struct member *m = (struct member *)transport;
    struct err error;
    status_t st = err_set(&error, ST_CANCELLED, "rank %d gave up: %s", m->rank, reason);
    pthread_mutex_lock(&m->world->lock);
    status_ignore(member_fail(m, st, &error));
    pthread_mutex_unlock(&m->world->lock);
}

static void world_free(struct world *w) {
    for (int r = 0; r < w->size; r++)
        pthread_cond_destroy(&w->members[r].changed);
    pthread_mutex_destroy(&w->lock);
    free(w->queues);
    free(w);
}

/* Fails the ranks that wait for this one, and no others. */
static void leave(struct member *m) {
    struct world *w = m->world;
    m->left = true;
    for (int peer = 0; peer < w->size; peer++)
        for (int stream = 0; stream < COLLECTIVE_STREAMS; stream++) {
            struct queue *out = queue_between(w, m->rank, peer, stream), *in = queue_between(w, peer, m->rank, stream);
            if ((out->first && !out->first->is_send) || (in->first && in->first->is_send))
                status_ignore(fail_closed(&w->members[peer], m->rank));
            out->first = in->first = NULL;
        }
}

static void close_member(struct collective_transport *transport) {
    struct member *m = (struct member *)transport;
    struct world *w = m->world;
    pthread_mutex_lock(&w->lock);
    leave(m);
    for (int stream = 0; stream < COLLECTIVE_STREAMS; stream++) {
        for (int i = 0; i < m->handles[stream].n; i++)
            free(m->handles[stream].items[i]);
        free(m->handles[stream].items);
    }
    bool last = --w->open == 0;
    pthread_mutex_unlock(&w->lock);
    if (last)
        world_free(w);
}

static const struct collective_transport_ops OPS = { .begin_send = begin_send,
                                                     .begin_recv = begin_recv,
                                                     .finish = finish,
                                                     .exchange = exchange_segments,
                                                     .check = check,
                                                     .abort = abort_member,
                                                     .close = close_member };

void thread_transports_open(int world_size, int timeout_ms, struct collective_transport **ret) {
    const size_t n = (size_t)world_size;
    struct world *w = alloc_zeroed(1, sizeof *w + n * sizeof *w->members);
    w->queues = alloc_zeroed(n * n * COLLECTIVE_STREAMS, sizeof *w->queues);
    w->size = w->open = world_size;
    w->timeout_ms = timeout_ms;
    pthread_mutex_init(&w->lock, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (int r = 0; r < world_size; r++) {
        struct member *m = &w->members[r];
        m->transport.ops = &OPS;
        m->world = w;
        m->rank = r;
        pthread_cond_init(&m->changed, &monotonic);
        ret[r] = &m->transport;
    }
    pthread_condattr_destroy(&monotonic);
}
