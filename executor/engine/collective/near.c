#include "executor/engine/collective/near.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/uio.h>
#include <unistd.h>

/* Below it, words cost what copies do. */
enum { NEAR_BYTES = 64 << 10 };
/* That the peer has taken what was offered, that it has kept what it offered until it was taken. */
enum { WORDS = 2 };

/* Who says it is here: a process number and an address mean another process elsewhere, and there lies no such token. */
struct here {
    int64_t pid;
    uint64_t address;
    unsigned char token[16];
};

/* Where what is sent lies, and how much; n is checked, as by a socket. */
struct offer {
    uint64_t address, n;
};

static ssize_t read_memory(pid_t pid, uint64_t address, void *to, size_t n) {
    struct iovec local = { to, n }, remote = { (void *)(uintptr_t)address, n };
    return process_vm_readv(pid, &local, 1, &remote, 1, 0);
}

static bool may_read(const struct here *peer) {
    unsigned char found[sizeof peer->token];
    return read_memory((pid_t)peer->pid, peer->address, found, sizeof found) == sizeof found &&
           memcmp(found, peer->token, sizeof found) == 0;
}

status_t near_meet(struct collective *c, struct err *e) {
    const size_t P = (size_t)c->world_size;
    CLEANUP(freep) struct here *all = calloc(P, sizeof *all);
    CLEANUP(freep) unsigned char *reads = calloc(P, P); /* [reader][peer] */
    c->near = calloc(P, sizeof *c->near);
    if (!all || !reads || !c->near)
        return err_errno(e, "allocate what %zu ranks say of their hosts", P);
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); /* fails where there is no Yama to ask */
    struct here *mine = &all[c->rank];
    *mine = (struct here){ .pid = getpid(), .address = (uint64_t)(uintptr_t)mine->token };
    if (getrandom(mine->token, sizeof mine->token, 0) != sizeof mine->token)
        return err_errno(e, "draw a token");
    TRY(collective_all_gather(c, COLLECTIVE_CONTROL, mine, sizeof *mine, all, e));

    unsigned char *row = &reads[(size_t)c->rank * P];
    for (size_t r = 0; r < P; r++)
        row[r] = r != (size_t)c->rank && may_read(&all[r]);
    TRY(collective_all_gather(c, COLLECTIVE_CONTROL, row, P, reads, e));
    for (size_t r = 0; r < P; r++)
        c->near[r] = row[r] && reads[r * P + (size_t)c->rank] ? (pid_t)all[r].pid : 0;
    return ST_OK;
}

static bool goes_by_memory(const struct collective *c, int peer, size_t n, enum swap_kind kind) {
    return c->near[peer] && n >= NEAR_BYTES && kind != SWAP_OR;
}

/* The failure, when no thread uses this call's memory any more. */
static status_t end(struct collective *c, enum collective_channel channel, int peer, const char *reason,
                    struct err *e) {
    char never;
    c->host->ops->abort(c->host, reason);
    return collective_recv(c, channel, peer, &never, sizeof never, e);
}

/* A process that cannot be read because it has ended is known by its connection in a moment, and in better words; what
 * it had still sent is of no use. */
static status_t lost(struct collective *c, enum collective_channel channel, int peer, struct err *e) {
    const bool ended = errno == ESRCH || errno == EFAULT;
    char reason[100], word;
    snprintf(reason, sizeof reason, "the memory of rank %d cannot be read: %s", peer, strerrordesc_np(errno));
    for (int left = WORDS; ended && left > 0; left--)
        TRY(collective_recv(c, channel, peer, &word, sizeof word, e));
    return end(c, channel, peer, reason, e);
}

/* Piece by piece, so that what is added is still in the cache. */
static status_t take(struct collective *c, enum collective_channel channel, const struct swap *w,
                     const struct offer *offer, struct err *e) {
    const size_t most = COLLECTIVE_SEGMENT_BYTES;
    for (size_t at = 0; at < w->n_in; at += most) {
        TRY(c->host->ops->check(c->host, e));
        const size_t n = w->n_in - at < most ? w->n_in - at : most;
        char *in = (char *)w->in + at, *to = w->kind == SWAP_STORE ? in : c->staging[channel];
        for (size_t got = 0; got < n;) {
            ssize_t some = read_memory(c->near[w->from], offer->address + at + got, to + got, n - got);
            if (some <= 0)
                return lost(c, channel, w->from, e);
            got += (size_t)some;
        }
        swap_fold(w->kind, in, to, n);
    }
    return ST_OK;
}

static status_t differs(struct collective *c, enum collective_channel channel, const struct swap *w, uint64_t n,
                        struct err *e) {
    char reason[100];
    snprintf(reason, sizeof reason, "rank %d sends %llu bytes where %zu are expected", w->from, (unsigned long long)n,
             w->n_in);
    return end(c, channel, w->from, reason, e);
}

status_t near_swap(struct collective *c, enum collective_channel channel, const struct swap *w, struct err *e) {
    const bool gives = goes_by_memory(c, w->to, w->n_out, w->kind),
               takes = goes_by_memory(c, w->from, w->n_in, w->kind);
    const struct offer mine = { (uint64_t)(uintptr_t)w->out, w->n_out };
    struct offer its;
    struct swap rest = *w;
    char word = 0, its_word;
    int offered = 0, offers = 0, taken = 0, kept = 0;
    if (gives) {
        rest.n_out = 0;
        TRY(collective_post_send(c, channel, w->to, &mine, sizeof mine, &offered, e));
    }
    if (takes) {
        rest.n_in = 0;
        TRY(collective_post_recv(c, channel, w->from, &its, sizeof its, &offers, e));
    }
    TRY(swap_streams(c, channel, &rest, e));
    if (takes) {
        TRY(collective_finish(c, channel, offers, e));
        if (its.n != w->n_in)
            return differs(c, channel, w, its.n, e);
        TRY(take(c, channel, w, &its, e));
        TRY(collective_post_send(c, channel, w->from, &word, sizeof word, &taken, e));
    }
    if (gives) {
        TRY(collective_finish(c, channel, offered, e));
        TRY(collective_recv(c, channel, w->to, &its_word, sizeof its_word, e));
        TRY(collective_post_send(c, channel, w->to, &word, sizeof word, &kept, e));
    }
    if (takes) {
        TRY(collective_finish(c, channel, taken, e));
        TRY(collective_recv(c, channel, w->from, &its_word, sizeof its_word, e));
    }
    return gives ? collective_finish(c, channel, kept, e) : ST_OK;
}
