/* Calls are entries: those that succeeded are on the stack of their caller, in a list, and the caller waits; those that
 * failed are copied into a ring. A writer takes a batch of both, stores it without the lock, and wakes the callers with
 * the result. Failures that cannot be stored are counted as unrecorded, like those above the limit.
 *
 * The limit is a bucket of AUDIT_LOG_BURST failures, which fills up by AUDIT_LOG_PER_S a second. The ring has space for
 * a full bucket, and what finds no space is above the limit too. */
#include "service/rpc/audit_log.h"

#include "api/rpc/access.h"
#include "api/rpc/call.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/utf8.h"
#include "service/store/audit.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <trainyard/v1/access.pb-c.h>

/* The field of access.proto, as in access.c. */
#define OPTION_AUDIT 51701
enum { ADDRESS_BYTES = 96, CERTIFICATE_BYTES = 128, METHOD_BYTES = 80, MESSAGE_BYTES = 400 };
/* While one writer waits for its commit, another one stores what has arrived since. */
enum { WRITERS = 2 };
#define PER_FAILURE_NS (1000000000LL / AUDIT_LOG_PER_S)

struct entry {
    int64_t time_us, number, job, unrecorded;
    status_t status;
    char caller[RPC_CALLER_BYTES], address[ADDRESS_BYTES], certificate[CERTIFICATE_BYTES], method[METHOD_BYTES];
    char object[RPC_OBJECT_BYTES], request_id[RPC_REQUEST_ID_BYTES], message[MESSAGE_BYTES];
};

/* A caller that waits. */
struct waiter {
    struct waiter *next;
    struct entry entry;
    bool done;
    status_t st;
};

struct audit_log {
    struct rpc_audit rules;
    struct store *store;
    pthread_t writers[WRITERS];
    int n_writers;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work, stored;
    bool closing;
    struct waiter *first, **last;
    struct entry failures[AUDIT_LOG_BURST]; /* a ring */
    size_t at, n;
    int64_t unrecorded;
    int64_t full_ns; /* when the bucket was or will be full */
    int64_t next;    /* the number of the next entry: drawn, then counted */
    bool failing;    /* the last write failed, and the log says so */
};

/* ---- entries ---- */

static int64_t job_of(const char *object) {
    static const char JOBS[] = "jobs/";
    char *end;
    if (strncmp(object, JOBS, strlen(JOBS)) != 0)
        return 0;
    const long long job = strtoll(object + strlen(JOBS), &end, 10);
    return job > 0 && (*end == '\0' || *end == '/') ? job : 0;
}

static const char *after_dot(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

static void fill(struct entry *en, const struct rpc_audited_call *call) {
    *en = (struct entry){ .time_us = clock_wall_us(), .status = call->status, .job = job_of(call->object) };
    snprintf(en->method, sizeof en->method, "%s.%s", after_dot(call->service), call->method);
    utf8_copy_printable(call->caller, en->caller, sizeof en->caller);
    utf8_copy_printable(call->peer, en->address, sizeof en->address);
    utf8_copy_printable(call->certificate, en->certificate, sizeof en->certificate);
    utf8_copy_printable(call->object, en->object, sizeof en->object);
    utf8_copy_printable(call->request_id, en->request_id, sizeof en->request_id);
    utf8_copy_printable(call->why, en->message, sizeof en->message);
}

static struct store_audit row_of(const struct entry *en) {
    return (struct store_audit){ .time_us = en->time_us,
                                 .entry = en->number,
                                 .caller = en->caller,
                                 .address = en->address,
                                 .certificate = en->certificate,
                                 .method = en->method,
                                 .object = en->object,
                                 .job = en->job,
                                 .request_id = en->request_id,
                                 .result = status_name(en->status),
                                 .message = en->message,
                                 .unrecorded = en->unrecorded };
}

static int64_t next_number(struct audit_log *l) {
    l->next = l->next == INT64_MAX ? 1 : l->next + 1;
    return l->next;
}

/* ---- callers ---- */

/* With the lock held: whether the limit permits one more failure. */
static bool take_failure(struct audit_log *l, int64_t now_ns) {
    if (l->full_ns < now_ns)
        l->full_ns = now_ns;
    if (l->full_ns + PER_FAILURE_NS > now_ns + AUDIT_LOG_BURST * PER_FAILURE_NS || l->n == AUDIT_LOG_BURST)
        return false;
    l->full_ns += PER_FAILURE_NS;
    return true;
}

static void record_failure(struct audit_log *l, const struct rpc_audited_call *call) {
    pthread_mutex_lock(&l->lock);
    if (take_failure(l, clock_mono_ns())) {
        struct entry *en = &l->failures[(l->at + l->n++) % AUDIT_LOG_BURST];
        fill(en, call);
        en->number = next_number(l);
        en->unrecorded = l->unrecorded;
        l->unrecorded = 0;
        pthread_cond_signal(&l->work);
    } else {
        l->unrecorded++;
    }
    pthread_mutex_unlock(&l->lock);
}

static status_t record(void *ctx, const struct rpc_audited_call *call, struct err *e) {
    struct audit_log *l = ctx;
    if (call->status != ST_OK) {
        record_failure(l, call);
        return ST_OK;
    }
    struct waiter w = { .st = ST_OK };
    fill(&w.entry, call);
    pthread_mutex_lock(&l->lock);
    w.entry.number = next_number(l);
    *l->last = &w;
    l->last = &w.next;
    pthread_cond_signal(&l->work);
    while (!w.done)
        pthread_cond_wait(&l->stored, &l->lock);
    pthread_mutex_unlock(&l->lock);
    /* The cause may contain the database's host and user: only the log of the program has it. */
    return w.st == ST_OK ? ST_OK : err_set(e, ST_UNAVAILABLE, "PostgreSQL did not store the entry");
}

/* ---- the writer ---- */

struct batch {
    struct waiter *waiters; /* a list */
    struct entry failures[STORE_AUDIT_BATCH];
    size_t n_failures;
    struct store_audit rows[STORE_AUDIT_BATCH];
    size_t n;
};

/* With the lock held. Callers that wait come first. */
static void take_batch(struct audit_log *l, struct batch *b) {
    struct waiter **end = &b->waiters;
    *b = (struct batch){ 0 };
    while (l->first && b->n < STORE_AUDIT_BATCH) {
        *end = l->first;
        b->rows[b->n++] = row_of(&l->first->entry);
        l->first = l->first->next;
        end = &(*end)->next;
    }
    *end = NULL;
    if (!l->first)
        l->last = &l->first;
    for (; l->n > 0 && b->n < STORE_AUDIT_BATCH; l->n--) {
        struct entry *en = &b->failures[b->n_failures++];
        *en = l->failures[l->at];
        b->rows[b->n++] = row_of(en);
        l->at = (l->at + 1) % AUDIT_LOG_BURST;
    }
}

/* With the lock held. */
static void end_batch(struct audit_log *l, const struct batch *b, status_t st) {
    for (struct waiter *w = b->waiters, *next; w; w = next) {
        next = w->next; /* the caller may return once it is done */
        w->st = st;
        w->done = true;
    }
    for (size_t i = 0; i < b->n_failures && st != ST_OK; i++)
        l->unrecorded += 1 + b->failures[i].unrecorded;
    pthread_cond_broadcast(&l->stored);
}

/* With the lock held. One line for each outage. */
static void log_failure(struct audit_log *l, status_t st, const struct err *e) {
    if (st != ST_OK && !l->failing)
        log_event(LOG_WARN, "audit_not_written", "reason", LOG_STR(e->msg), NULL);
    l->failing = st != ST_OK;
}

static void *run(void *arg) {
    struct audit_log *l = arg;
    CLEANUP(freep) struct batch *b = alloc_zeroed(1, sizeof *b);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->closing && !l->first && l->n == 0)
            pthread_cond_wait(&l->work, &l->lock);
        if (!l->first && l->n == 0)
            break;
        take_batch(l, b);
        pthread_mutex_unlock(&l->lock);
        struct err e = { "" };
        status_t st = store_audit_add(l->store, b->rows, b->n, &e);
        pthread_mutex_lock(&l->lock);
        log_failure(l, st, &e);
        end_batch(l, b, st);
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

/* ---- open and close ---- */

status_t audit_log_open(struct store *store, struct audit_log **ret, struct err *e) {
    CLEANUP(audit_log_closep) struct audit_log *l = alloc_zeroed(1, sizeof *l);
    sigset_t all, before;
    l->store = store;
    l->last = &l->first;
    l->rules = (struct rpc_audit){
        .object_option = OPTION_AUDIT, .exempt_rule = TRAINYARD__V1__ROLE__VIEWER, .record = record, .ctx = l
    };
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    pthread_cond_init(&l->stored, NULL);
    if (getrandom(&l->next, sizeof l->next, 0) != sizeof l->next)
        return err_errno(e, "random bytes for the audit log");
    l->next &= INT64_MAX;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the main thread only */
    while (l->n_writers < WRITERS && pthread_create(&l->writers[l->n_writers], NULL, run, l) == 0)
        l->n_writers++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (l->n_writers < WRITERS)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the audit log");
    *ret = take_ptr(&l);
    return ST_OK;
}

const struct rpc_audit *audit_log_rules(const struct audit_log *l) { return &l->rules; }

struct audit_log *audit_log_close(struct audit_log *l) {
    if (!l)
        return NULL;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_broadcast(&l->work);
    pthread_mutex_unlock(&l->lock);
    for (int i = 0; i < l->n_writers; i++)
        pthread_join(l->writers[i], NULL);
    pthread_cond_destroy(&l->stored);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}
