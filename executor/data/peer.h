/* The caches of other hosts, from the view of a host that copies (README.md). Which host has an object is asked
 * once before the copying, for all objects together. Of the objects that no host has, each belongs to one host of
 * the attempt, by rendezvous hashing: that host reads it from the store, and the others wait for it, as long as it
 * makes progress.
 *
 * A peer costs at most a bounded time. One that fails PEER_FAILURES_MAX times (no answer, a slow one, a refusal),
 * or once sends wrong bytes, is not asked again in this order; without progress for PEER_WAIT_S none of its
 * objects is waited for. What no peer has is read from the store. Thread-safe, unless said otherwise. */
#ifndef EXECUTOR_DATA_PEER_H
#define EXECUTOR_DATA_PEER_H

#include "executor/data/object.h"

#include <pthread.h>
#include <trainyard/v1/worker.pb-c.h>

enum { PEERS_MAX = 16, PEER_FAILURES_MAX = 3, PEER_ASK_MS = 100 };
/* For how long a peer may not connect, be slow, or make no progress, unless TRAINYARD_PEER_PATIENCE_S says for all. */
enum { PEER_CONNECT_S = 5, PEER_SLOW_S = 10, PEER_WAIT_S = 30, PEER_PATIENCE_MAX_S = 3600 };

struct peer {
    struct store store; /* as http.h reads it */
    struct store_peer tls;
    bool in_gang;
    int failures;
    bool is_waited_for, is_late; /* objects wait for it; too long */
    int64_t progress_ms;         /* when it last had something new */
    uint64_t progress;           /* the sum of what it has said about objects that are being copied */
    int64_t bytes;               /* that it is to send, for an even load */
};

struct peers {
    struct peer items[PEERS_MAX];
    int n;
    int64_t wait_ms;     /* for one without progress */
    const char *own_url; /* "": this host serves no cache */
    pthread_mutex_t mutex;
};

/* The order must stay valid. More than PEERS_MAX peers are not asked. */
void peers_init(struct peers *ps, const Trainyard__V1__DataFetch *order, const atomic_bool *end);
void peers_done(struct peers *ps); /* overwrites the tokens */

/* Asks all peers for the n objects, whose keys are set. */
void peers_find(struct peers *ps, struct data_object *const *objects, int n);

/* Where to read an object: HAS sets o->peer; WAIT: not yet; NONE: from its store. */
enum peer_choice { PEER_NONE, PEER_HAS, PEER_WAIT };
enum peer_choice peers_choose(struct peers *ps, struct data_object *o);

/* The object could not be had from o->peer. From then on it is not waited for. wrong: its bytes are not those of the
 * digest. */
void peers_fail(struct peers *ps, struct data_object *o, bool wrong);
/* The object has another version now, of which no peer was asked. */
void peers_forget(struct peers *ps, struct data_object *o);

/* Asks again about the objects for which peers_choose says WAIT. One thread at a time. */
void peers_ask(struct peers *ps, struct data_object *const *objects, int n, struct http *h);

#endif
