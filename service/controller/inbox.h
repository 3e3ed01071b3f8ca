/* The loop's inbox: a bounded queue of all messages and requests for the scheduler, in order of arrival. When the queue
 * is full, inbox_put fails, and the caller refuses its peer. Thread-safe. */
#ifndef SERVICE_CONTROLLER_INBOX_H
#define SERVICE_CONTROLLER_INBOX_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"
#include "service/controller/dispatch.h"
#include "service/scheduler/explain.h"

#include <stdbool.h>
#include <trainyard/v1/dispatch.pb-c.h>

/* A client's request id, with the kind of the request and the job before it. */
#define LOOP_REQUEST_ID_BYTES 192
/* A few seconds of the fastest senders. */
#define INBOX_MAX_ITEMS 65536
/* Packed size of all waiting messages. They accumulate while the database is unreachable. */
#define INBOX_BYTES (64 << 20)

/* A request to the loop, and its reply. The loop shares it with the caller, which may stop waiting. */
struct loop_request;
/* Returns a request with two references: the caller's and the loop's. request_id identifies the requested move, so that
 * a repeated request does not run it twice; "" = none. why: a sentence for the job's reason; "" = the usual one. */
#define LOOP_REQUEST_WHY_BYTES 256
struct loop_request *loop_request_new(const char *request_id, const char *why);
const char *loop_request_why(const struct loop_request *a);
const char *loop_request_id(const struct loop_request *a);
struct loop_request *loop_request_unref(struct loop_request *a);
/* The first reply counts. reason: why the request was refused, for programs; static storage. NULL = the status is
 * enough. */
void loop_request_reply(struct loop_request *a, status_t st, const char *reason, const char *text);
/* Replies to INBOX_EXPLAIN. The request owns the explanation from now on. */
void loop_request_reply_explanation(struct loop_request *a, struct scheduler_explanation *explanation);
/* After loop_request_wait returned ST_OK for INBOX_EXPLAIN. The caller frees the explanation. */
struct scheduler_explanation *loop_request_take_explanation(struct loop_request *a);
/* Waits for the reply and returns its status. DEADLINE_EXCEEDED: no reply in time. */
MUST_CHECK status_t loop_request_wait(struct loop_request *a, deadline_ms_t deadline, const char **ret_reason,
                                      struct err *e);

struct inbox_item {
    enum inbox_kind {
        INBOX_AGENT,     /* executor, incarnation, ticket, welcomed, message */
        INBOX_SUBMITTED, /* row */
        INBOX_CANCEL,    /* job, request */
        INBOX_PAUSE,     /* job, request */
        INBOX_RESUME,    /* job, request */
        INBOX_RETRY,     /* job, request; the loop fills in row */
        INBOX_EXPLAIN,   /* job, request */
        INBOX_FIT,       /* row (slot, world_size), request */
        INBOX_DRAIN,     /* executor, request: its drain mark has changed */
        INBOX_QUEUE,     /* row.queue, request: its settings have changed, or it was deleted */
        INBOX_STORED,    /* job, attempt, rank, sequence */
        INBOX_COMMITTED, /* job, attempt, step, final */
    } kind;
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t incarnation;                  /* of the executor that sent the message */
    uint64_t ticket;                      /* of its stream (dispatch.h) */
    bool welcomed;                        /* the stream was welcomed before the message came */
    Trainyard__V1__AgentMessage *message; /* owned */
    size_t message_bytes;                 /* packed */
    char token[DISPATCH_CALLER_BYTES];    /* of a hello: with which the executor attaches; "": none */
    bool stored;                          /* set by the loop: the row of this hello is written */
    struct scheduler_job_row row;
    struct loop_request *request; /* owned: one reference */
    int64_t job, sequence, step;
    int attempt, rank;
    bool final;
    bool low_priority;             /* it may wait for the next tick, because no action can follow from it now */
    struct inbox_item *next, **at; /* used by the inbox */
};

struct inbox;
struct inbox *inbox_new(void);
struct inbox *inbox_free(struct inbox *in);
CLEANUP_DEFINE(struct inbox *, inbox_free)

/* True for the first message of an executor on a stream. */
bool inbox_item_is_hello(const struct inbox_item *item);

/* Appends a copy of the item. On success the inbox owns what the item owned.
 *
 * A hello replaces the waiting hello of the same executor, because the older hello's stream has ended: while the
 * database is unreachable, an executor connects again and again.
 *
 * RESOURCE_EXHAUSTED: more than INBOX_MAX_ITEMS items or INBOX_BYTES of messages would wait. `force` ignores both
 * limits; it is for items that are sent once and whose number is bounded by live ranks.
 * UNAVAILABLE: the inbox is closed; the sentence is that of inbox_close. */
MUST_CHECK status_t inbox_put(struct inbox *in, const struct inbox_item *item, bool force, struct err *e);
/* Waits until an item that is not of low priority arrives, until the deadline or until inbox_wake. Returns the oldest
 * item of any priority, or NULL if there is none. The caller frees it. */
struct inbox_item *inbox_take(struct inbox *in, deadline_ms_t deadline);
struct inbox_item *inbox_item_free(struct inbox_item *item);
void inbox_wake(struct inbox *in); /* wakes a waiting inbox_take */
int inbox_count(struct inbox *in);
/* Frees the items that wait, replies UNAVAILABLE with the sentence `why` to their requests, and refuses later items.
 * `why` is a literal. */
void inbox_close(struct inbox *in, const char *why);

#endif
