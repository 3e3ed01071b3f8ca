/* The loop's inbox: everything that the scheduler is told comes through here, in order. Bounded: a sender learns that
 * it is full and says so to its peer. Thread-safe. */
#ifndef SERVICE_CONTROLLER_INBOX_H
#define SERVICE_CONTROLLER_INBOX_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"
#include "service/scheduler/explain.h"

#include <stdbool.h>
#include <trainyard/v1/dispatch.pb-c.h>

/* A client's id, with the kind of the question and the job before it. */
#define ASK_REQUEST_BYTES 192
/* Some seconds of the fastest senders. */
#define INBOX_MOST 65536
/* Of messages that wait, counted as their packed bytes. They gather while the database is away. */
#define INBOX_BYTES (64 << 20)

/* A question to the loop, and its answer. Shared by the asker, who may give up, and the loop. */
struct ask;
/* Two references: the asker's and the loop's. request_id: of the move that is asked for, so that asking again does not
 * make it twice; "" = none. */
struct ask *ask_new(const char *request_id);
const char *ask_request_id(const struct ask *a);
struct ask *ask_unref(struct ask *a);
/* reason: of a refusal, for programs; static, NULL = the status says enough. */
void ask_answer(struct ask *a, status_t st, const char *reason, const char *text);
/* The answer to INBOX_EXPLAIN, which the question owns from now on; NULL: there was no memory for it. */
void ask_explained(struct ask *a, struct scheduler_explanation *explanation);
/* After ask_wait has answered ST_OK to INBOX_EXPLAIN: the caller's to free. */
struct scheduler_explanation *ask_take_explanation(struct ask *a);
/* DEADLINE_EXCEEDED when there is no answer in time. */
MUST_CHECK status_t ask_wait(struct ask *a, deadline_ms_t deadline, const char **ret_reason, struct err *e);

struct inbox_item {
    enum inbox_kind {
        INBOX_AGENT,     /* executor, incarnation, message */
        INBOX_SUBMITTED, /* row */
        INBOX_CANCEL,    /* job, ask */
        INBOX_PAUSE,     /* job, ask */
        INBOX_RESUME,    /* job, ask */
        INBOX_RETRY,     /* job, ask; row: the loop's */
        INBOX_EXPLAIN,   /* job, ask */
        INBOX_DRAIN,     /* executor, ask: its row has another mark */
        INBOX_STORED,    /* job, attempt, rank, sequence */
        INBOX_COMMITTED, /* job, attempt, step, final */
    } kind;
    char executor[SCHEDULER_EXECUTOR_ID_BYTES];
    int64_t incarnation;                  /* of the executor's start that says it */
    Trainyard__V1__AgentMessage *message; /* owned */
    size_t message_bytes;                 /* packed */
    bool stored;                          /* the loop's: the row of a hello is */
    struct scheduler_job_row row;
    struct ask *ask; /* owned: one reference */
    int64_t job, sequence, step;
    int attempt, rank;
    bool final;
    bool unhurried;                /* may wait for the next tick: nothing could be done about it now */
    struct inbox_item *next, **at; /* the inbox's */
};

struct inbox;
struct inbox *inbox_new(void);
struct inbox *inbox_free(struct inbox *in);
CLEANUP_DEFINE(struct inbox *, inbox_free)

/* What an executor says first on a stream. */
bool inbox_item_is_hello(const struct inbox_item *item);

/* Copies the item. A hello drops the one of its executor that waits, whose stream has ended (while the database is
 * away, an executor dials again and again), and comes last: what that stream still said is older. What the item owns
 * changes owner on success only. RESOURCE_EXHAUSTED when there would be more than INBOX_MOST items or INBOX_BYTES of
 * messages. `force` ignores both, for what is told once and is itself bounded by live ranks. */
MUST_CHECK status_t inbox_put(struct inbox *in, const struct inbox_item *item, bool force, struct err *e);
/* Waits for a hurried item until the deadline or inbox_stir, and returns the oldest of any kind; NULL when there is
 * none. The caller frees it. */
struct inbox_item *inbox_take(struct inbox *in, deadline_ms_t deadline);
struct inbox_item *inbox_item_free(struct inbox_item *item);
void inbox_stir(struct inbox *in); /* wakes a waiting inbox_take */
int inbox_count(struct inbox *in);

#endif
