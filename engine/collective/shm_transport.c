/* Shared memory between ranks of one host.
 *
 * Finding the readable ranks: each rank publishes its process number, the address of a random token and the token. A
 * rank may read a peer's memory if it finds the token there; equal process numbers of different hosts or namespaces do
 * not pass. A pair of ranks uses shared memory only if both may read each other.
 *
 * A long message: the sockets of the transport below carry three short messages, so that deaths, deadlines and aborts
 * are noticed as with sockets alone:
 *
 *     sender -> receiver    the offer: address and length
 *     receiver -> sender    taken: the receiver has read all of it
 *     sender -> receiver    kept: the memory was unchanged until `taken` arrived
 *
 * Without `kept`, a receiver could use bytes of a sender that failed and overwrote its memory during the read. */
#include "engine/collective/shm_transport.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/collective/exchange.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

/* For shorter messages the three short messages cost as much as a copy. */
enum { MIN_BYTES = 64 << 10 };
/* Short messages that a peer may still have to send after its memory became unreadable: `taken` and `kept`. */
enum { PENDING_REPLIES = 2, END_MS = 2000 };

struct shm_transport {
    struct collective_transport transport;
    struct collective_transport *below;
    pid_t readable[]; /* [world_size] the process of a rank whose memory is shared with this rank, else 0 */
};

static struct shm_transport *self(struct collective_transport *t) { return (struct shm_transport *)t; }

/* What a rank publishes so that others can test whether they may read its memory. */
struct identity {
    int64_t pid;
    uint64_t address; /* of `token`, in that process */
    unsigned char token[16];
};

/* The receiver checks n as a socket would. */
struct offer {
    uint64_t address, n;
};

static ssize_t read_memory(pid_t pid, uint64_t address, void *to, size_t n) {
    struct iovec local = { to, n }, remote = { (void *)(uintptr_t)address, n };
    return process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

static bool may_read(const struct identity *peer) {
    unsigned char found[sizeof peer->token];
    return read_memory((pid_t)peer->pid, peer->address, found, sizeof found) == sizeof found &&
           memcmp(found, peer->token, sizeof found) == 0;
}

/* --- transfers: all of them go over the transport below --- */

static status_t begin_send(struct collective_transport *t, int stream, int peer, const void *data, size_t n, int *ret,
                           struct err *e) {
    struct collective_transport *below = self(t)->below;
    return below->ops->begin_send(below, stream, peer, data, n, ret, e);
}

static status_t begin_recv(struct collective_transport *t, int stream, int peer, void *data, size_t n, int *ret,
                           struct err *e) {
    struct collective_transport *below = self(t)->below;
    return below->ops->begin_recv(below, stream, peer, data, n, ret, e);
}

static status_t finish(struct collective_transport *t, int stream, int handle, struct err *e) {
    struct collective_transport *below = self(t)->below;
    return below->ops->finish(below, stream, handle, e);
}

static status_t check(struct collective_transport *t, struct err *e) {
    struct collective_transport *below = self(t)->below;
    return below->ops->check(below, e);
}

static void abort_below(struct collective_transport *t, const char *reason) {
    struct collective_transport *below = self(t)->below;
    below->ops->abort(below, reason);
}

static void shm_close(struct collective_transport *t) {
    struct collective_transport *below = self(t)->below;
    below->ops->close(below);
    free(t);
}

static status_t recv_byte(struct collective_transport *t, int stream, int peer, struct err *e) {
    char byte;
    int handle;
    TRY(begin_recv(t, stream, peer, &byte, sizeof byte, &handle, e));
    return finish(t, stream, handle, e);
}

/* --- exchanges --- */

/* Both ends must decide alike. EXCHANGE_OR is excluded because it may overwrite what it sends. */
static bool is_shared(const struct shm_transport *s, int peer, size_t n, enum exchange_kind kind) {
    return s->readable[peer] && n >= MIN_BYTES && kind != EXCHANGE_OR;
}

/* Aborts, and returns the failure once no other thread uses this call's memory. */
static status_t fail(struct collective_transport *t, int stream, int peer, const char *reason, struct err *e) {
    abort_below(t, reason);
    return recv_byte(t, stream, peer, e);
}

/* OK, or the failure once no other thread uses this call's memory: until the connections are closed, a posted send may
 * still read its offer from the caller's stack. */
static status_t check_settled(struct collective_transport *t, int stream, int peer, struct err *e) {
    return check(t, e) == ST_OK ? ST_OK : recv_byte(t, stream, peer, e);
}

/* Waits until the transport below has learned of the end of a peer, for at most END_MS. */
static status_t await_end(struct collective_transport *t, int stream, int peer, struct err *e) {
    const deadline_ms_t until = deadline_in(END_MS);
    while (clock_mono_ms() < until) {
        TRY(check_settled(t, stream, peer, e));
        poll(NULL, 0, 1);
    }
    return ST_OK;
}

/* If the process has ended, or has given up and freed its memory, the transport below reports a better error shortly.
 * The pending replies of the peer are dropped. */
static status_t fail_unreadable(struct collective_transport *t, int stream, int peer, struct err *e) {
    const bool ended = errno == ESRCH || errno == EFAULT;
    char reason[100];
    snprintf(reason, sizeof reason, "the memory of rank %d cannot be read: %s", peer, strerrordesc_np(errno));
    if (ended)
        TRY(await_end(t, stream, peer, e));
    for (int left = PENDING_REPLIES; ended && left > 0; left--)
        TRY(recv_byte(t, stream, peer, e));
    return fail(t, stream, peer, reason, e);
}

static status_t fail_length(struct collective_transport *t, int stream, const struct exchange *x, uint64_t n,
                            struct err *e) {
    char reason[100];
    snprintf(reason, sizeof reason, "rank %d sends %llu bytes, but %zu are expected", x->from, (unsigned long long)n,
             x->n_in);
    return fail(t, stream, x->from, reason, e);
}

/* Segment by segment, so that the bytes that are added are still in the cache. */
static status_t read_offer(struct collective_transport *t, int stream, const struct exchange *x,
                           const struct offer *offer, char *staging, struct err *e) {
    const size_t segment = COLLECTIVE_SEGMENT_BYTES;
    for (size_t at = 0; at < x->n_in; at += segment) {
        TRY(check_settled(t, stream, x->from, e));
        const size_t n = x->n_in - at < segment ? x->n_in - at : segment;
        char *in = (char *)x->in + at, *to = x->kind == EXCHANGE_STORE ? in : staging;
        for (size_t done = 0; done < n;) {
            ssize_t some = read_memory(self(t)->readable[x->from], offer->address + at + done, to + done, n - done);
            if (some <= 0)
                return fail_unreadable(t, stream, x->from, e);
            done += (size_t)some;
        }
        exchange_accumulate(x->kind, in, to, n);
    }
    return ST_OK;
}

/* A direction that is not shared goes over the transport below, between the offers and the reads. */
static status_t shm_exchange(struct collective_transport *t, int stream, const struct exchange *x, char *staging,
                             struct err *e) {
    const struct shm_transport *s = self(t);
    const bool sends = is_shared(s, x->to, x->n_out, x->kind), receives = is_shared(s, x->from, x->n_in, x->kind);
    const struct offer mine = { (uint64_t)(uintptr_t)x->out, x->n_out };
    struct offer offer;
    struct exchange rest = *x;
    char byte = 0;
    int offer_sent = 0, offer_received = 0, taken = 0, kept = 0;
    if (sends) {
        rest.n_out = 0;
        TRY(begin_send(t, stream, x->to, &mine, sizeof mine, &offer_sent, e));
    }
    if (receives) {
        rest.n_in = 0;
        TRY(begin_recv(t, stream, x->from, &offer, sizeof offer, &offer_received, e));
    }
    TRY(s->below->ops->exchange(s->below, stream, &rest, staging, e));
    if (receives) {
        TRY(finish(t, stream, offer_received, e));
        if (offer.n != x->n_in)
            return fail_length(t, stream, x, offer.n, e);
        TRY(read_offer(t, stream, x, &offer, staging, e));
        TRY(begin_send(t, stream, x->from, &byte, sizeof byte, &taken, e));
    }
    if (sends) {
        TRY(finish(t, stream, offer_sent, e));
        TRY(recv_byte(t, stream, x->to, e));
        TRY(begin_send(t, stream, x->to, &byte, sizeof byte, &kept, e));
    }
    if (receives) {
        TRY(finish(t, stream, taken, e));
        TRY(recv_byte(t, stream, x->from, e));
    }
    return sends ? finish(t, stream, kept, e) : ST_OK;
}

/* --- opening --- */

static const struct collective_transport_ops OPS = { .begin_send = begin_send,
                                                     .begin_recv = begin_recv,
                                                     .finish = finish,
                                                     .exchange = shm_exchange,
                                                     .check = check,
                                                     .abort = abort_below,
                                                     .close = shm_close };

static status_t find_readable(struct shm_transport *s, int rank, int world_size, char *staging, struct err *e) {
    const size_t P = (size_t)world_size;
    CLEANUP(freep) struct identity *all = alloc_zeroed(P, sizeof *all);
    CLEANUP(freep) unsigned char *reads = alloc_zeroed(P, P); /* [reader][peer] */
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);       /* fails without Yama, which then refuses nothing */
    struct identity *mine = &all[rank];
    *mine = (struct identity){ .pid = getpid(), .address = (uint64_t)(uintptr_t)mine->token };
    if (getrandom(mine->token, sizeof mine->token, 0) != sizeof mine->token)
        return err_errno(e, "draw a token");
    TRY(exchange_all_gather(s->below, COLLECTIVE_CONTROL, rank, world_size, mine, sizeof *mine, all, staging, e));

    unsigned char *row = &reads[(size_t)rank * P];
    for (size_t r = 0; r < P; r++)
        row[r] = r != (size_t)rank && may_read(&all[r]);
    TRY(exchange_all_gather(s->below, COLLECTIVE_CONTROL, rank, world_size, row, P, reads, staging, e));
    for (size_t r = 0; r < P; r++)
        s->readable[r] = row[r] && reads[r * P + (size_t)rank] ? (pid_t)all[r].pid : 0;
    return ST_OK;
}

status_t shm_transport_open(int rank, int world_size, char *staging, struct collective_transport **t, struct err *e) {
    struct shm_transport *s = alloc_zeroed(1, sizeof *s + (size_t)world_size * sizeof *s->readable);
    s->transport.ops = &OPS;
    s->below = *t;
    status_t st = find_readable(s, rank, world_size, staging, e);
    if (st != ST_OK) {
        free(s);
        return st;
    }
    *t = &s->transport;
    return ST_OK;
}

bool shm_transport_shares(const struct collective_transport *t, int peer) {
    return t->ops == &OPS && ((const struct shm_transport *)t)->readable[peer];
}
