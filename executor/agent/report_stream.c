/* Sends batches of records from the spool to the controller, and handles its high-water marks.
 *
 * Each log of the spool is a flow. On a new stream a flow first sends an empty batch, which asks for the controller's
 * mark; from the answer on it sends the records after the mark, at most BATCHES_IN_FLIGHT batches ahead of the last
 * acknowledgement. The pump serves the flows in turn, one batch each. It runs at once for an urgent record, else
 * REPORT_DELAY_MS after its last run, so that records gather into batches; a congested stream stops it until the stream
 * is writable.
 *
 * An acknowledgement trims the spool. One with `gap` means that the controller's database was set back: the flow
 * returns to that mark, as far as the spool still has the records, and declares the others as lost with its next
 * batch. */
#include "executor/agent/report_stream.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "executor/agent/dialer.h"
#include "executor/agent/grpc_stream.h"

#include <stdlib.h>
#include <string.h>

enum {
    REPORT_DELAY_MS = 100,   /* between batches that are not full: the maximum delay of `watch` */
    REDIAL_MS = 500,         /* after the stream has ended, while the control stream is attached */
    BATCH_BYTES = 256 << 10, /* of records in a batch */
    BATCHES_IN_FLIGHT = 64,  /* of one log: 16 MiB that the controller has not stored */
    BATCHES_PER_TURN = 16,   /* then the loop handles other events */
};

/* One log on the stream. */
struct flow {
    struct spool_log *log;
    bool requested, known; /* the controller's mark, on this stream */
    int64_t sent;
    int64_t lost;    /* records before sent + 1 that the controller misses and the spool no longer has */
    int64_t rewound; /* the mark of the last rewind, until more is stored; -1: none. Batches in flight repeat its gap */
    int64_t ends[BATCHES_IN_FLIGHT]; /* last sequences of the batches in flight, oldest first */
    int n_ends;
};

struct report_stream {
    const struct host *host;
    struct report_stream_owner owner;
    struct dialer dialer;
    struct grpc_stream *stream;
    bool attached; /* the control stream is attached */
    bool congested;
    struct reactor_timer pump, redial;
    int64_t pumped_ms; /* when the pump last ran */
    struct flow *flows;
    size_t n_flows, turn;
    /* The batch that is being built: records pass from the spool to the stream without being decoded. */
    struct bytes packed;
    ProtobufCBinaryData *records; /* [LIMIT_BATCH_RECORDS], into packed */
    size_t n_records;
};

/* ---- flows ---- */

/* Nothing of the log is sent on this stream yet. */
static struct flow flow_begin(struct spool_log *log) {
    return (struct flow){ .log = log, .sent = spool_log_acked(log), .rewound = -1 };
}

static struct flow *flow_of(struct report_stream *r, struct spool_log *log) {
    for (size_t i = 0; i < r->n_flows; i++)
        if (r->flows[i].log == log)
            return &r->flows[i];
    r->flows = alloc_grow(r->flows, r->n_flows, sizeof *r->flows);
    r->flows[r->n_flows] = flow_begin(log);
    return &r->flows[r->n_flows++];
}

void report_stream_forget(struct report_stream *r, const struct spool_log *log) {
    for (size_t i = 0; i < r->n_flows; i++)
        if (r->flows[i].log == log)
            r->flows[i--] = r->flows[--r->n_flows];
}

static void log_remove(struct report_stream *r, struct spool_log *log) {
    report_stream_forget(r, log);
    spool_log_remove(log);
}

static bool log_finished(const struct report_stream *r, const struct spool_log *log) {
    const struct spool_key *key = spool_log_key(log);
    return spool_log_acked(log) == spool_log_last(log) && !r->owner.is_known(r->owner.ctx, key->job, key->attempt);
}

void report_stream_sweep(struct report_stream *r) {
    for (size_t i = spool_count(r->host->spool); i-- > 0;)
        if (log_finished(r, spool_at(r->host->spool, i)))
            log_remove(r, spool_at(r->host->spool, i));
}

bool report_stream_drained(const struct report_stream *r) {
    for (size_t i = 0; i < spool_count(r->host->spool); i++) {
        const struct spool_log *log = spool_at(r->host->spool, i);
        if (spool_log_acked(log) < spool_log_last(log))
            return false;
    }
    return true;
}

/* ---- to the controller ---- */

static bool record_visit(void *ctx, int64_t sequence, const uint8_t *data, size_t n) {
    (void)sequence;
    struct report_stream *r = ctx;
    if (r->n_records == LIMIT_BATCH_RECORDS || bytes_append(&r->packed, data, n, NULL) != ST_OK)
        return false;
    r->records[r->n_records++].len = n;
    return true;
}

static enum rpc_sent batch_send(struct report_stream *r, const struct flow *f) {
    const struct spool_key *key = spool_log_key(f->log);
    size_t at = 0;
    for (size_t i = 0; i < r->n_records; at += r->records[i++].len)
        r->records[i].data = (uint8_t *)r->packed.data + at;
    Trainyard__V1__ReportBatch batch = TRAINYARD__V1__REPORT_BATCH__INIT;
    batch.executor = (char *)(uintptr_t)directory_id(r->host->directory);
    batch.incarnation = directory_incarnation(r->host->directory);
    batch.job = key->job;
    batch.attempt = key->attempt;
    batch.rank = key->rank;
    batch.first_sequence = f->sent + 1;
    batch.lost = f->lost;
    batch.records = r->records;
    batch.n_records = r->n_records;
    return grpc_stream_send(r->stream, &batch.base);
}

static bool batch_sent(struct report_stream *r, const struct flow *f) {
    enum rpc_sent sent = batch_send(r, f);
    if (sent == RPC_FULL)
        r->congested = true;
    return sent == RPC_SENT;
}

/* Sends one batch of one log; false if the log has no records to send now. */
static bool flow_send(struct report_stream *r, struct flow *f) {
    bytes_clear(&r->packed);
    r->n_records = 0;
    if (!f->known)
        return !f->requested && (f->requested = batch_sent(r, f));
    if (f->n_ends == BATCHES_IN_FLIGHT || (f->sent >= spool_log_last(f->log) && f->lost == 0))
        return false;
    struct err why;
    if (spool_read(f->log, f->sent + 1, BATCH_BYTES, record_visit, r, &why) != ST_OK)
        log_event(LOG_ERROR, "spool_read_failed", "message", LOG_STR(why.msg), NULL);
    if ((r->n_records == 0 && f->lost == 0) || !batch_sent(r, f))
        return false;
    f->sent += (int64_t)r->n_records;
    f->ends[f->n_ends++] = f->sent;
    f->lost = 0;
    return true;
}

static void pump_fire(void *ctx) {
    struct report_stream *r = ctx;
    struct spool *spool = r->host->spool;
    size_t idle = 0, n = spool_count(spool);
    r->pumped_ms = clock_mono_ms();
    int sent = 0;
    while (r->stream && !r->congested && idle < n && sent < BATCHES_PER_TURN) {
        struct flow *f = flow_of(r, spool_at(spool, r->turn++ % n));
        bool any = flow_send(r, f);
        idle = any ? 0 : idle + 1;
        sent += any;
    }
    if (sent == BATCHES_PER_TURN)
        reactor_timer_set(r->host->loop, &r->pump, 0);
}

void report_stream_set_attached(struct report_stream *r, bool attached) {
    r->attached = attached;
    if (attached)
        report_stream_wake(r, true);
}

static void dial(struct report_stream *r);

void report_stream_wake(struct report_stream *r, bool urgent) {
    if (!r->stream && r->attached && !r->redial.armed)
        dial(r);
    if (!urgent && r->pump.armed)
        return;
    int64_t since = clock_mono_ms() - r->pumped_ms;
    reactor_timer_set(r->host->loop, &r->pump, urgent || since >= REPORT_DELAY_MS ? 0 : REPORT_DELAY_MS - since);
}

/* ---- from the controller ---- */

static void fenced(struct report_stream *r, struct spool_log *log) {
    struct spool_key key = *spool_log_key(log);
    if (r->owner.is_known(r->owner.ctx, key.job, key.attempt)) {
        r->owner.fenced(r->owner.ctx, key.job, key.attempt);
        log_event(LOG_WARN, "attempt_fenced", "job", LOG_INT(key.job), "attempt", LOG_INT(key.attempt), NULL);
    } else {
        log_remove(r, log);
    }
}

/* The controller has stored less than this stream has sent, or than was acknowledged before: sends again from its mark.
 */
static void flow_rewind(struct flow *f, int64_t mark) {
    const struct spool_key *key = spool_log_key(f->log);
    if (f->rewound == mark)
        return;
    spool_rewind(f->log, mark);
    f->sent = spool_log_acked(f->log);
    f->lost = f->sent > mark ? f->sent - mark : 0;
    f->rewound = mark;
    f->n_ends = 0;
    log_event(f->lost ? LOG_ERROR : LOG_WARN, f->lost ? "records_lost" : "records_sent_again", "job", LOG_INT(key->job),
              "attempt", LOG_INT(key->attempt), "rank", LOG_INT(key->rank), "stored", LOG_INT(mark), "lost",
              LOG_INT(f->lost), NULL);
}

static void flow_advance(struct flow *f, int64_t mark) {
    spool_ack(f->log, mark);
    if (mark > f->sent && mark <= spool_log_last(f->log))
        f->sent = mark; /* an earlier stream's batches were stored after all */
    if (mark > f->rewound)
        f->rewound = -1;
}

static void on_message(void *ctx, const ProtobufCMessage *message) {
    struct report_stream *r = ctx;
    const Trainyard__V1__ReportAck *ack = (const Trainyard__V1__ReportAck *)message;
    struct spool_key key = { ack->job, ack->attempt, ack->rank };
    struct spool_log *log = spool_log_find(r->host->spool, &key);
    if (!log)
        return;
    if (ack->fenced) {
        fenced(r, log);
        return;
    }
    struct flow *f = flow_of(r, log);
    f->known = true;
    if (ack->gap)
        flow_rewind(f, ack->sequence);
    else
        flow_advance(f, ack->sequence);
    int stored = 0;
    while (stored < f->n_ends && f->ends[stored] <= ack->sequence)
        stored++;
    f->n_ends -= stored;
    memmove(f->ends, f->ends + stored, (size_t)f->n_ends * sizeof *f->ends);
    if (log_finished(r, log))
        log_remove(r, log);
    else if ((f->sent < spool_log_last(log) || f->lost > 0) && !r->pump.armed)
        reactor_timer_set(r->host->loop, &r->pump, stored && f->n_ends >= BATCHES_IN_FLIGHT / 2 ? 0 : REPORT_DELAY_MS);
}

static void on_writable(void *ctx) {
    struct report_stream *r = ctx;
    r->congested = false;
    reactor_timer_set(r->host->loop, &r->pump, 0);
}

static void stream_drop(struct report_stream *r) {
    r->stream = grpc_stream_close(r->stream);
    reactor_timer_set(r->host->loop, &r->redial, REDIAL_MS);
}

static void on_ended(void *ctx, status_t status, const char *why) {
    struct report_stream *r = ctx;
    r->stream = NULL;
    log_event(LOG_INFO, "report_stream_ended", "status", LOG_STR(status_name(status)), "message", LOG_STR(why), NULL);
    stream_drop(r);
}

static void dial(struct report_stream *r) {
    struct grpc_stream_owner owner = { .ctx = r, .message = on_message, .writable = on_writable, .ended = on_ended };
    r->congested = false;
    for (size_t i = 0; i < r->n_flows; i++)
        r->flows[i] = flow_begin(r->flows[i].log);
    struct err why;
    if (grpc_stream_open(r->host->loop, dialer_channel(&r->dialer), &trainyard__v1__dispatch_service__descriptor,
                         "Report", NULL, &owner, &r->stream, &why) != ST_OK) {
        log_event(LOG_ERROR, "report_stream_failed", "message", LOG_STR(why.msg), NULL);
        stream_drop(r);
    }
}

static void redial_fire(void *ctx) { report_stream_wake(ctx, true); }

status_t report_stream_open(const struct host *host, const struct report_stream_owner *owner,
                            struct report_stream **ret, struct err *e) {
    CLEANUP(report_stream_closep) struct report_stream *r = alloc_zeroed(1, sizeof *r);
    r->host = host;
    r->owner = *owner;
    r->pump = (struct reactor_timer){ .fire = pump_fire, .ctx = r };
    r->redial = (struct reactor_timer){ .fire = redial_fire, .ctx = r };
    bytes_init(&r->packed, BATCH_BYTES + LIMIT_RECORD_BYTES);
    r->records = alloc_zeroed(LIMIT_BATCH_RECORDS, sizeof *r->records);
    TRY(dialer_open(&r->dialer, host->options, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

status_t report_stream_reload(struct report_stream *r, struct err *e) { return dialer_reload(&r->dialer, e); }

struct report_stream *report_stream_close(struct report_stream *r) {
    if (!r)
        return NULL;
    reactor_timer_cancel(r->host->loop, &r->pump);
    reactor_timer_cancel(r->host->loop, &r->redial);
    grpc_stream_close(r->stream);
    dialer_close(&r->dialer);
    bytes_done(&r->packed);
    free(r->records);
    free(r->flows);
    free(r);
    return NULL;
}
