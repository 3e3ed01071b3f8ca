#include "executor/agent/report.h"

#include "base/bytes.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "executor/agent/attach.h"
#include "executor/agent/attempts.h"
#include "executor/agent/link.h"

#include <stdlib.h>
#include <string.h>

enum {
    REPORT_DELAY_MS = 100,   /* between batches, unless they are full: a record waits no longer, so watch stays live */
    REDIAL_MS = 500,         /* the control stream redials on its own; this one follows it */
    BATCH_BYTES = 256 << 10, /* of records in a batch */
    BATCH_RECORDS = 4096,    /* in a batch */
    BATCHES_UNDER_WAY = 64,  /* of one log: 16 MiB that the controller has not stored */
    BATCHES_A_TURN = 16,     /* then the loop's other work has its turn */
    RECORDS_TAG = 7,         /* ReportBatch.records */
};

/* One log on the stream. */
struct flow {
    struct spool_log *log;
    int64_t sent;
    int64_t ends[BATCHES_UNDER_WAY]; /* last sequences of the batches under way, oldest first */
    int n_ends;
};

struct report {
    struct agent *agent;
    struct rpc_channel *channel;
    struct link *link;
    bool congested;
    struct reactor_timer pump, redial;
    int64_t pumped_ms; /* the pump last ran */
    struct flow *flows;
    size_t n_flows, turn;
    /* The batch that is being put together: packed records pass through unread, as a field that the message carries
     * without knowing it. */
    struct bytes packed;
    ProtobufCMessageUnknownField *records;
    size_t n_records;
};

static void link_drop(struct report *r);

/* ---- flows ---- */

static struct flow *flow_of(struct report *r, struct spool_log *log) {
    for (size_t i = 0; i < r->n_flows; i++)
        if (r->flows[i].log == log)
            return &r->flows[i];
    struct flow *grown = realloc(r->flows, (r->n_flows + 1) * sizeof *grown);
    if (!grown)
        return NULL;
    r->flows = grown;
    grown[r->n_flows] = (struct flow){ .log = log, .sent = spool_log_first(log) - 1 };
    return &grown[r->n_flows++];
}

void report_forget(struct report *r, const struct spool_log *log) {
    for (size_t i = 0; r && i < r->n_flows; i++)
        if (r->flows[i].log == log)
            r->flows[i--] = r->flows[--r->n_flows];
}

static void log_remove(struct report *r, struct spool_log *log) {
    report_forget(r, log);
    spool_log_remove(log);
}

static bool log_done(const struct report *r, const struct spool_log *log) {
    const struct spool_key *key = spool_log_key(log);
    return spool_log_acked(log) == spool_log_last(log) && !attempts_known(r->agent->attempts, key->job, key->attempt);
}

void report_sweep(struct report *r) {
    for (size_t i = spool_count(r->agent->spool); i-- > 0;)
        if (log_done(r, spool_at(r->agent->spool, i)))
            log_remove(r, spool_at(r->agent->spool, i));
}

bool report_drained(const struct report *r) {
    for (size_t i = 0; i < spool_count(r->agent->spool); i++) {
        const struct spool_log *log = spool_at(r->agent->spool, i);
        if (spool_log_acked(log) < spool_log_last(log))
            return false;
    }
    return true;
}

/* ---- up ---- */

static size_t varint(uint64_t value, uint8_t ret[10]) {
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        ret[n++] = (uint8_t)(value | 0x80);
    ret[n++] = (uint8_t)value;
    return n;
}

static bool record_visit(void *ctx, int64_t sequence, const uint8_t *data, size_t n) {
    (void)sequence;
    struct report *r = ctx;
    uint8_t length[10];
    size_t n_length = varint(n, length);
    if (r->n_records == BATCH_RECORDS || bytes_reserve(&r->packed, n_length + n, NULL) != ST_OK)
        return false;
    memcpy(r->packed.data + r->packed.len, length, n_length);
    memcpy(r->packed.data + r->packed.len + n_length, data, n);
    r->records[r->n_records++] = (ProtobufCMessageUnknownField){ .tag = RECORDS_TAG,
                                                                 .wire_type = PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED,
                                                                 .len = n_length + n };
    r->packed.len += n_length + n;
    return true;
}

static enum rpc_sent batch_send(struct report *r, const struct flow *f) {
    const struct spool_key *key = spool_log_key(f->log);
    size_t at = 0;
    for (size_t i = 0; i < r->n_records; at += r->records[i++].len)
        r->records[i].data = (uint8_t *)r->packed.data + at;
    Trainyard__V1__ReportBatch batch = TRAINYARD__V1__REPORT_BATCH__INIT;
    batch.executor = (char *)(uintptr_t)directory_id(r->agent->directory);
    batch.incarnation = directory_incarnation(r->agent->directory);
    batch.job = key->job;
    batch.attempt = key->attempt;
    batch.rank = key->rank;
    batch.first_sequence = f->sent + 1;
    batch.base.n_unknown_fields = (unsigned)r->n_records;
    batch.base.unknown_fields = r->records;
    return link_send(r->link, &batch.base);
}

/* One batch of one log; false when it has none to send now. */
static bool flow_send(struct report *r, struct flow *f) {
    if (f->n_ends == BATCHES_UNDER_WAY || f->sent >= spool_log_last(f->log))
        return false;
    bytes_clear(&r->packed);
    r->n_records = 0;
    struct err why;
    if (spool_read(f->log, f->sent + 1, BATCH_BYTES, record_visit, r, &why) != ST_OK)
        log_event(LOG_ERROR, "spool_read_failed", "message", LOG_STR(why.msg), NULL);
    if (r->n_records == 0)
        return false;
    enum rpc_sent sent = batch_send(r, f);
    if (sent == RPC_FULL)
        r->congested = true;
    if (sent != RPC_SENT)
        return false;
    f->sent += (int64_t)r->n_records;
    f->ends[f->n_ends++] = f->sent;
    return true;
}

static void pump_fire(void *ctx) {
    struct report *r = ctx;
    struct spool *spool = r->agent->spool;
    size_t idle = 0, n = spool_count(spool);
    r->pumped_ms = clock_mono_ms();
    int sent = 0;
    while (r->link && !r->congested && idle < n && sent < BATCHES_A_TURN) {
        struct flow *f = flow_of(r, spool_at(spool, r->turn++ % n));
        bool any = f && flow_send(r, f);
        idle = any ? 0 : idle + 1;
        sent += any;
    }
    if (sent == BATCHES_A_TURN)
        reactor_timer_set(r->agent->loop, &r->pump, 0);
}

static void dial(struct report *r);

void report_wake(struct report *r, bool urgent) {
    if (!r)
        return;
    if (!r->link && attach_attached(r->agent->attach) && !r->redial.armed)
        dial(r);
    if (!urgent && r->pump.armed)
        return;
    int64_t since = clock_mono_ms() - r->pumped_ms;
    reactor_timer_set(r->agent->loop, &r->pump, urgent || since >= REPORT_DELAY_MS ? 0 : REPORT_DELAY_MS - since);
}

/* ---- down ---- */

static void fenced(struct report *r, struct spool_log *log) {
    struct spool_key key = *spool_log_key(log);
    if (attempts_known(r->agent->attempts, key.job, key.attempt)) {
        attempts_fenced(r->agent->attempts, key.job, key.attempt);
        log_event(LOG_WARN, "attempt_fenced", "job", LOG_INT(key.job), "attempt", LOG_INT(key.attempt), NULL);
    } else {
        log_remove(r, log);
    }
}

static void on_message(void *ctx, const ProtobufCMessage *message) {
    struct report *r = ctx;
    const Trainyard__V1__ReportAck *ack = (const Trainyard__V1__ReportAck *)message;
    struct spool_key key = { ack->job, ack->attempt, ack->rank };
    struct spool_log *log = spool_log_find(r->agent->spool, &key);
    struct flow *f = log ? flow_of(r, log) : NULL;
    if (!f)
        return;
    if (ack->fenced) {
        fenced(r, log);
        return;
    }
    spool_ack(log, ack->sequence);
    if (ack->sequence > f->sent && ack->sequence <= spool_log_last(log))
        f->sent = ack->sequence; /* an earlier stream's batches were stored after all */
    int gone = 0;
    while (gone < f->n_ends && f->ends[gone] <= ack->sequence)
        gone++;
    f->n_ends -= gone;
    memmove(f->ends, f->ends + gone, (size_t)f->n_ends * sizeof *f->ends);
    if (log_done(r, log))
        log_remove(r, log);
    else if (f->sent < spool_log_last(log) && !r->pump.armed)
        reactor_timer_set(r->agent->loop, &r->pump, gone && f->n_ends >= BATCHES_UNDER_WAY / 2 ? 0 : REPORT_DELAY_MS);
}

static void on_writable(void *ctx) {
    struct report *r = ctx;
    r->congested = false;
    reactor_timer_set(r->agent->loop, &r->pump, 0);
}

static void link_drop(struct report *r) {
    r->link = link_close(r->link);
    reactor_timer_set(r->agent->loop, &r->redial, REDIAL_MS);
}

static void on_ended(void *ctx, status_t status, const char *why) {
    struct report *r = ctx;
    r->link = NULL;
    log_event(LOG_INFO, "report_stream_ended", "status", LOG_STR(status_name(status)), "message", LOG_STR(why), NULL);
    link_drop(r);
}

static void dial(struct report *r) {
    struct link_owner owner = { .ctx = r, .message = on_message, .writable = on_writable, .ended = on_ended };
    r->congested = false;
    for (size_t i = 0; i < r->n_flows; i++) {
        r->flows[i].sent = spool_log_acked(r->flows[i].log);
        r->flows[i].n_ends = 0;
    }
    struct err why;
    if (link_open(r->agent->loop, r->channel, &trainyard__v1__dispatch_service__descriptor, "Report", NULL, &owner,
                  &r->link, &why) != ST_OK) {
        log_event(LOG_ERROR, "report_stream_failed", "message", LOG_STR(why.msg), NULL);
        link_drop(r);
    }
}

static void redial_fire(void *ctx) { report_wake(ctx, true); }

status_t report_open(struct agent *agent, struct report **ret, struct err *e) {
    CLEANUP(report_closep) struct report *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the bulk stream");
    r->agent = agent;
    r->pump = (struct reactor_timer){ .fire = pump_fire, .ctx = r };
    r->redial = (struct reactor_timer){ .fire = redial_fire, .ctx = r };
    bytes_init(&r->packed, BATCH_BYTES + LIMIT_RECORD_BYTES + BATCH_RECORDS * 5);
    r->records = calloc(BATCH_RECORDS, sizeof *r->records);
    if (!r->records)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a batch");
    struct rpc_channel_config config = {
        .address = agent->options->controller,
        .tls = agent->options->tls,
        .token = agent->options->token,
        .token_file = agent->options->token_file,
    };
    TRY(rpc_channel_open(&config, &r->channel, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

struct report *report_close(struct report *r) {
    if (!r)
        return NULL;
    reactor_timer_cancel(r->agent->loop, &r->pump);
    reactor_timer_cancel(r->agent->loop, &r->redial);
    link_close(r->link);
    rpc_channel_close(r->channel);
    bytes_done(&r->packed);
    free(r->records);
    free(r->flows);
    free(r);
    return NULL;
}
