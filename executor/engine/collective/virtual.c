/* Opened by tests alone: no other program links this member of the archive. */
#include "base/clock.h"
#include "base/limits.h"
#include "executor/engine/collective/collective.h"
#include "executor/engine/collective/internal.h"

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
    bool is_send, under_way, done;
};

/* What waits on a channel between two ranks, oldest first: all of it sends, or all of it receives. */
struct queue {
    struct transfer *first, *last;
};

struct handles {
    struct transfer **items;
    int n;
};

/* One rank: a thread's transport. */
struct member {
    struct transport transport;
    struct world *world;
    int rank;
    pthread_cond_t changed;
    bool left;       /* closed */
    status_t status; /* the first failure, kept */
    struct err error;
    struct handles handles[COLLECTIVE_CHANNELS];
};

/* Freed by the last rank that closes. One lock for all of it, under which bytes are copied too: no memory is touched
 * after a failure. */
struct world {
    pthread_mutex_t lock;
    int size, open, timeout_ms;
    struct queue *queues; /* [from][to][channel] */
    struct member members[];
};

static struct queue *queue_between(struct world *w, int from, int to, int channel) {
    return &w->queues[((size_t)from * (size_t)w->size + (size_t)to) * COLLECTIVE_CHANNELS + (size_t)channel];
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

/* The first failure of a rank is the end of every other one too. */
static status_t member_fail(struct member *m, status_t st, const struct err *error) {
    if (m->status == ST_OK) {
        member_end(m, st, error);
        struct err away;
        st = err_set(&away, ST_UNAVAILABLE, "rank %d went away: %s", m->rank, error->msg);
        for (int r = 0; r < m->world->size; r++)
            member_end(&m->world->members[r], st, &away);
    }
    return m->status;
}

static status_t member_failure(const struct member *m, struct err *e) {
    return m->status == ST_OK ? ST_OK : err_set(e, m->status, "%s", m->error.msg);
}

static status_t missed(struct member *m, int peer) {
    struct err error;
    status_t st = err_set(&error, ST_UNAVAILABLE, "rank %d went away: it has closed", peer);
    return member_fail(m, st, &error);
}

/* The lowest free handle of a channel. */
static struct transfer *handle_new(struct handles *h, int *ret) {
    for (*ret = 0; *ret < h->n; ++*ret)
        if (!h->items[*ret]->under_way)
            return h->items[*ret];
    struct transfer **items = realloc(h->items, ((size_t)h->n + 1) * sizeof *items), *t = calloc(1, sizeof *t);
    if (items)
        h->items = items;
    if (!items || !t) {
        free(t);
        return NULL;
    }
    return h->items[h->n++] = t;
}

/* Two that match: the bytes move now, in the thread that came second. */
static status_t transfer_meet(struct member *m, struct transfer *mine, struct transfer *its) {
    struct transfer *from = mine->is_send ? mine : its, *to = mine->is_send ? its : mine;
    if (from->n != to->n) {
        struct err error;
        status_t st = err_set(&error, ST_INTERNAL, "rank %d sends %zu bytes where rank %d receives %zu", to->peer,
                              from->n, from->peer, to->n);
        return member_fail(m, st, &error);
    }
    memcpy(to->data, from->data, to->n);
    mine->done = its->done = true;
    pthread_cond_broadcast(&m->world->members[mine->peer].changed);
    return ST_OK;
}

static status_t begin_locked(struct member *m, int channel, const struct transfer *what, int *ret) {
    struct world *w = m->world;
    if (m->status != ST_OK)
        return m->status;
    if (w->members[what->peer].left)
        return missed(m, what->peer);
    struct transfer *t = handle_new(&m->handles[channel], ret);
    if (!t) {
        struct err error;
        status_t st = err_set(&error, ST_RESOURCE_EXHAUSTED, "no memory for a transfer");
        return member_fail(m, st, &error);
    }
    *t = *what;
    struct queue *q = what->is_send ? queue_between(w, m->rank, what->peer, channel)
                                    : queue_between(w, what->peer, m->rank, channel);
    if (q->first && q->first->is_send != t->is_send)
        return transfer_meet(m, t, queue_pop(q));
    queue_push(q, t);
    return ST_OK;
}

static status_t begin(struct transport *transport, int channel, const struct transfer *what, int *ret, struct err *e) {
    struct member *m = (struct member *)transport;
    pthread_mutex_lock(&m->world->lock);
    status_t st = begin_locked(m, channel, what, ret);
    if (st != ST_OK)
        st = member_failure(m, e);
    pthread_mutex_unlock(&m->world->lock);
    return st;
}

static status_t begin_send(struct transport *t, int channel, int peer, const void *data, size_t n, int *ret,
                           struct err *e) {
    struct transfer what = { .data = (char *)data, .n = n, .peer = peer, .is_send = true, .under_way = true };
    return begin(t, channel, &what, ret, e);
}

static status_t begin_recv(struct transport *t, int channel, int peer, void *data, size_t n, int *ret, struct err *e) {
    struct transfer what = { .data = data, .n = n, .peer = peer, .under_way = true };
    return begin(t, channel, &what, ret, e);
}

static status_t finish(struct transport *transport, int channel, int handle, struct err *e) {
    struct member *m = (struct member *)transport;
    struct world *w = m->world;
    int64_t until_ns = clock_mono_ns() + (int64_t)w->timeout_ms * 1000000;
    struct timespec until = { .tv_sec = until_ns / 1000000000, .tv_nsec = until_ns % 1000000000 };
    pthread_mutex_lock(&w->lock);
    struct transfer *t = m->handles[channel].items[handle];
    while (!t->done && m->status == ST_OK)
        if (pthread_cond_timedwait(&m->changed, &w->lock, &until) == ETIMEDOUT && !t->done) {
            struct err error;
            status_t st = err_set(&error, ST_DEADLINE_EXCEEDED, "rank %d did nothing for %d ms", t->peer,
                                  w->timeout_ms);
            status_ignore(member_fail(m, st, &error));
        }
    t->under_way = false;
    status_t st = member_failure(m, e);
    pthread_mutex_unlock(&w->lock);
    return st;
}

static status_t check(struct transport *transport, struct err *e) {
    struct member *m = (struct member *)transport;
    pthread_mutex_lock(&m->world->lock);
    status_t st = member_failure(m, e);
    pthread_mutex_unlock(&m->world->lock);
    return st;
}

static void abort_member(struct transport *transport, const char *reason) {
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

/* Whoever waits for the rank that leaves fails; the others are not disturbed. */
static void leave(struct member *m) {
    struct world *w = m->world;
    m->left = true;
    for (int peer = 0; peer < w->size; peer++)
        for (int channel = 0; channel < COLLECTIVE_CHANNELS; channel++) {
            struct queue *out = queue_between(w, m->rank, peer, channel),
                         *in = queue_between(w, peer, m->rank, channel);
            if ((out->first && !out->first->is_send) || (in->first && in->first->is_send))
                status_ignore(missed(&w->members[peer], m->rank));
            out->first = in->first = NULL;
        }
}

static void close_member(struct transport *transport) {
    struct member *m = (struct member *)transport;
    struct world *w = m->world;
    pthread_mutex_lock(&w->lock);
    leave(m);
    for (int channel = 0; channel < COLLECTIVE_CHANNELS; channel++) {
        for (int i = 0; i < m->handles[channel].n; i++)
            free(m->handles[channel].items[i]);
        free(m->handles[channel].items);
    }
    bool last = --w->open == 0;
    pthread_mutex_unlock(&w->lock);
    if (last)
        world_free(w);
}

static const struct transport_ops OPS = { .begin_send = begin_send,
                                          .begin_recv = begin_recv,
                                          .finish = finish,
                                          .check = check,
                                          .abort = abort_member,
                                          .close = close_member };

/* The transports of all ranks, ret[world_size]; each is closed on its own. */
static status_t transports_open(int world_size, int timeout_ms, struct transport **ret, struct err *e) {
    const size_t n = (size_t)world_size;
    struct world *w = calloc(1, sizeof *w + n * sizeof *w->members);
    if (w)
        w->queues = calloc(n * n * COLLECTIVE_CHANNELS, sizeof *w->queues);
    if (!w || !w->queues) {
        free(w);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d ranks", world_size);
    }
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
    return ST_OK;
}

status_t collective_open_virtual(int world_size, int timeout_ms, struct collective **ret, struct err *e) {
    TRY(collective_check_world_size(world_size, e));
    struct transport *transports[LIMIT_WORLD_SIZE] = { NULL };
    struct collective *all[LIMIT_WORLD_SIZE] = { NULL };
    status_t st = world_size == 1 ? ST_OK : transports_open(world_size, timeout_ms, transports, e);
    for (int r = 0; r < world_size && st == ST_OK; r++) {
        st = collective_new(r, world_size, timeout_ms, &all[r], e);
        if (st == ST_OK)
            all[r]->host = take_ptr(&transports[r]);
    }
    for (int r = 0; r < world_size && st != ST_OK; r++) {
        collective_close(all[r]);
        if (transports[r])
            transports[r]->ops->close(transports[r]);
    }
    if (st == ST_OK)
        memcpy(ret, all, (size_t)world_size * sizeof *ret);
    return st;
}
