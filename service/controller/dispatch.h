/* The attached executors: one link per executor, which carries orders to its agent. A link is two function pointers, so
 * that this file does not depend on the transport of messages. A newer incarnation of an executor replaces the link of
 * the older one. A second link of the same incarnation replaces the first, whose stream may be half-open.
 *
 * Orders are small and few. If an agent does not read them and the queue of its link is full, the link is closed. The
 * agent attaches again, and the scheduler compares everything (service/scheduler/adopt.c).
 *
 * Thread-safe. A link's functions are called with the registry's lock held and must neither block nor call back. */
#ifndef SERVICE_CONTROLLER_DISPATCH_H
#define SERVICE_CONTROLLER_DISPATCH_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/scheduler/scheduler.h"

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/v1/dispatch.pb-c.h>

struct dispatch;
struct dispatch *dispatch_new(void);
struct dispatch *dispatch_free(struct dispatch *d); /* every link must be detached */
CLEANUP_DEFINE(struct dispatch *, dispatch_free)

enum { DISPATCH_CALLER_BYTES = 72 };

/* What agents of older releases cannot do outside the slots. */
enum dispatch_ability {
    DISPATCH_SAMPLE_AVERAGE = 1, /* samples of averaged weights */
    DISPATCH_STORE_SAMPLES = 2,  /* samples and verifications of checkpoints in a store; needs a cache of data */
};

/* The cache of data that it serves to other executors, as CachePeer of worker.proto; url "": it does not. */
enum { DISPATCH_URL_BYTES = 280, DISPATCH_TOKEN_BYTES = 68, DISPATCH_KEY_BYTES = 48, DISPATCH_PEERS_MAX = 16 };
struct dispatch_cache {
    char url[DISPATCH_URL_BYTES], token[DISPATCH_TOKEN_BYTES], key[DISPATCH_KEY_BYTES];
};

/* The part of the executor's hello that matters for work outside the slots. */
struct dispatch_host {
    char hostname[64];
    bool cpu, cuda; /* it has slots of the kind */
    bool checks;    /* it takes StartCheck */
    bool stores;    /* it removes objects of stores */
    unsigned abilities;
    struct dispatch_cache cache;
};

struct dispatch_link {
    bool (*send)(void *ctx, const Trainyard__V1__ControllerMessage *m); /* false: full or closed */
    void (*close)(void *ctx, status_t st, const char *why);             /* detach follows from the stream's end */
    void *ctx;
    const char *caller; /* the name of the token, or of the user at a unix socket; copied. "": unknown */
    bool token;         /* `caller` is the name of a token */
    struct dispatch_host host;
};

/* Whether a caller may attach an executor: not while the executor is attached by the token of another caller. */
bool dispatch_admits(struct dispatch *d, const char *executor, const char *caller);
/* Whether a caller may report for this incarnation of an executor: while the executor is welcomed with the same
 * caller's token, and not by a newer incarnation. A caller without a token may report if dispatch_admits allows it. */
bool dispatch_admits_reports(struct dispatch *d, const char *executor, int64_t incarnation, const char *caller);

/* Whether the executor's directory seems to have been copied to this host: the executor is attached from another host,
 * ret_other, which was seen in the last half of a lease. Two agents with one id would end each other's ranks. */
bool dispatch_is_copy(struct dispatch *d, const char *executor, const char *hostname,
                      char ret_other[sizeof((struct dispatch_host *)0)->hostname]);

/* Sets the executor's link. No message is sent on the link before its welcome. Returns a ticket, never 0, that names
 * this link in the calls below. Returns 0 if a newer incarnation of the executor is attached, if dispatch_admits
 * refuses link->caller, or if the host is a copy (dispatch_is_copy). */
uint64_t dispatch_attach(struct dispatch *d, const char *executor, int64_t incarnation,
                         const struct dispatch_link *link);
/* The name of the token with which the link was attached; "": without one. False: the link is gone. */
bool dispatch_token(struct dispatch *d, uint64_t ticket, char ret[DISPATCH_CALLER_BYTES]);
/* The stream has ended. The link is not called after this returns. */
void dispatch_detach(struct dispatch *d, uint64_t ticket);
/* A message has arrived: the lease is extended from now on the monotonic clock. */
void dispatch_mark_seen(struct dispatch *d, uint64_t ticket);
/* Keeps what a heartbeat reports, for dispatch_use. */
void dispatch_heartbeat(struct dispatch *d, uint64_t ticket, const Trainyard__V1__AgentHeartbeat *beat);
/* The agent has sent its goodbye: the executor gets no checks until it attaches again. */
void dispatch_leave(struct dispatch *d, uint64_t ticket);

/* Sends the first message on the link, once. The caller has stored the executor's row before, which checks that the
 * token of the link may speak for the executor. */
void dispatch_welcome(struct dispatch *d, uint64_t ticket, Trainyard__V1__ControllerMessage *m);
/* False also if the link is gone. What a link that is not welcomed says may come from another executor's token. */
bool dispatch_is_welcomed(struct dispatch *d, uint64_t ticket);

/* Sends a message and fills in the epoch and its nonce. False: the executor is not attached or not welcomed yet, or its
 * link did not take the message. */
bool dispatch_send(struct dispatch *d, const char *executor, Trainyard__V1__ControllerMessage *m);
void dispatch_set_epoch(struct dispatch *d, int64_t epoch, const char *nonce);

/* Closes the executor's link, if it has one. The agent must attach again. */
void dispatch_close(struct dispatch *d, const char *executor, status_t st, const char *why);
/* Closes this link. */
void dispatch_refuse(struct dispatch *d, uint64_t ticket, status_t st, const char *why);
/* Closes every link: the controller no longer leads, or stops. */
void dispatch_close_all(struct dispatch *d, status_t st, const char *why);

/* Calls fn, without the lock, for each executor whose stream has ended since the last call of this function and that is
 * not attached again. fn may be called twice for one executor. */
void dispatch_take_detached(struct dispatch *d, void (*fn)(void *ctx, const char *executor, int64_t incarnation),
                            void *ctx);
bool dispatch_attached(struct dispatch *d, const char *executor);
int dispatch_count(struct dispatch *d);
/* Calls fn for each welcomed executor that has sent something since the last call of this function. */
void dispatch_take_seen(struct dispatch *d, void (*fn)(void *ctx, const char *executor, int64_t last_seen_ms),
                        void *ctx);
/* Writes every attached executor and when it last sent something; at most cap. Returns their number. */
struct dispatch_last_seen {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t last_seen_ms;
};
size_t dispatch_list(struct dispatch *d, struct dispatch_last_seen *ret, size_t cap);
/* What the last heartbeat of an attached executor reported. */
enum { DISPATCH_DEVICES_MAX = 64 };
struct dispatch_device {
    int index;
    double utilization, memory_bytes, power_watts, temperature_celsius; /* NAN = not known */
};
struct dispatch_use {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES], hostname[64];
    int64_t last_seen_ms; /* on the monotonic clock */
    bool reported;        /* a heartbeat with its measurements has arrived; else the rest is 0 */
    int64_t spool_bytes, spool_limit_bytes, records_waiting, samples_dropped, lines_dropped, training_waits;
    int64_t connects, disconnects;
    int64_t data_store_bytes, data_peer_bytes, data_cache_bytes;
    size_t first_device, n_devices; /* in the devices of the list */
};
struct dispatch_uses {
    struct dispatch_use *items; /* [n], by executor */
    size_t n;
    struct dispatch_device *devices;
};
/* Copies the reports of all attached executors; dispatch_uses_done frees them. */
void dispatch_use(struct dispatch *d, struct dispatch_uses *ret);
void dispatch_uses_done(struct dispatch_uses *uses);

/* The caches that an executor asks before it reads a store. The hosts of an attempt read each object of a store once:
 * the first ones that serve a cache, at most DISPATCH_PEERS_MAX, are its readers, and all hosts of the attempt know
 * them. A cache without TLS is told only to executors with the hostname of its own, which must not be empty. */
struct dispatch_peers {
    struct dispatch_cache items[DISPATCH_PEERS_MAX];
    int n, n_gang;                /* the first n_gang are the other readers of the attempt */
    char own[DISPATCH_URL_BYTES]; /* "": the executor is no reader */
};
/* executors: [n] of the attempt, in the order of ranks, with repetitions. The other peers are the executors for which
 * this function was called last, since they have copied data. */
void dispatch_find_peers(struct dispatch *d, const char *executor, char *const *executors, int n,
                         struct dispatch_peers *ret);

/* Picks an executor with these abilities for work outside the slots: the one that was picked least often. False: none
 * is attached. */
bool dispatch_pick(struct dispatch *d, unsigned abilities, char *ret, size_t cap);

struct dispatch_picked {
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    char hostname[64];
};
/* Whether there is an executor that checks specs and has slots of the kind, on another host than the n picked ones. */
bool dispatch_has_checker(struct dispatch *d, bool cuda, const struct dispatch_picked *picked, size_t n);
/* Picks among the executors that remove objects of stores the one that was picked least often. False: there is none. */
bool dispatch_pick_remover(struct dispatch *d, struct dispatch_picked *ret);
/* Picks among these executors the one that was picked least often. False: there is none. */
bool dispatch_pick_checker(struct dispatch *d, bool cuda, const struct dispatch_picked *picked, size_t n,
                           struct dispatch_picked *ret);

#endif
