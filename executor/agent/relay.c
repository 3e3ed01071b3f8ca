/* Moves records from a worker's pipes into the spool, without the loss of a loss point and with bounded memory.
 *
 * The records pipe is read frame by frame. A record that the core needs is passed to the owner; a record that the
 * controller needs is appended to the rank's log, byte for byte. If the spool refuses it, device samples and log lines
 * are dropped and counted; any other record stays in the reader, the pipe is not read any more, and a timer tries
 * again: the worker then blocks in its write, and training waits. Lines of stdout and stderr become log records through
 * output_lines, which bounds their length and rate. Counts of dropped records are reported by a notice once the spool
 * has space again. */
#include "executor/agent/relay.h"

#include "api/codec/frame.h"
#include "api/rpc/wire.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "executor/agent/output_lines.h"

#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

enum {
    RETRY_MS = 100,         /* between appends to a full spool */
    DROPS_NOTICE_MS = 1000, /* between notices of dropped records */
    SAMPLES_UNTIL_PERCENT = 80,
    LINES_UNTIL_PERCENT = 90,
    READ_BYTES = 16 << 10, /* of stdout or stderr, in one turn */
};

struct stream {
    struct relay *relay;
    const char *name;
    struct reactor_watch watch;
    struct output_lines lines;
    bool over;
};

struct relay {
    struct relay_options o;
    struct reactor_watch watch;
    struct frame_reader reader;
    bool over; /* the records pipe has ended, or the worker broke the protocol */
    struct {
        const uint8_t *data; /* a record that the spool did not take; points into reader */
        size_t n;
        int64_t since_ms;
    } refused;
    struct reactor_timer retry, notice;
    int64_t step;
    int64_t dropped_samples, dropped_lines;
    struct stream streams[2];
};

int64_t relay_step(const struct relay *r) { return r->step; }

static bool spool_below(const struct relay *r, int percent) {
    return spool_bytes(r->o.spool) < spool_limit(r->o.spool) / 100 * percent;
}

static status_t record_append(struct relay *r, const Trainyard__V1__WorkerRecord *record, bool urgent) {
    uint8_t packed[LIMIT_LOG_LINE_BYTES + 512];
    size_t n = trainyard__v1__worker_record__get_packed_size(record);
    assert(n <= sizeof packed);
    trainyard__v1__worker_record__pack(record, packed);
    int64_t sequence;
    TRY(spool_append(r->o.log, packed, n, &sequence, NULL));
    r->o.owner.spooled(r->o.owner.ctx, urgent);
    return ST_OK;
}

static status_t notice_append(struct relay *r, const char *kind, const char *message) {
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    notice.kind = (char *)(uintptr_t)kind;
    notice.message = (char *)(uintptr_t)message;
    notice.step = r->step < 0 ? 0 : r->step;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE;
    record.notice = &notice;
    record.time_us = clock_wall_us();
    return record_append(r, &record, true);
}

/* ---- dropped records: counted, and reported by a notice ---- */

static void drops_notice(void *ctx) {
    struct relay *r = ctx;
    int64_t limited = r->streams[0].lines.dropped + r->streams[1].lines.dropped;
    if (!r->o.log || r->dropped_samples + r->dropped_lines + limited == 0)
        return;
    char text[200];
    snprintf(text, sizeof text,
             "%" PRId64 " device samples and %" PRId64 " log lines were dropped because the executor's spool is full, "
             "%" PRId64 " log lines because they came too fast",
             r->dropped_samples, r->dropped_lines, limited);
    if (!spool_below(r, LINES_UNTIL_PERCENT) || notice_append(r, "records_dropped", text) != ST_OK) {
        reactor_timer_set(r->o.loop, &r->notice, DROPS_NOTICE_MS);
        return;
    }
    r->dropped_samples = r->dropped_lines = 0;
    r->streams[0].lines.dropped = r->streams[1].lines.dropped = 0;
}

static void drops_notice_soon(struct relay *r) {
    if (!r->notice.armed)
        reactor_timer_set(r->o.loop, &r->notice, DROPS_NOTICE_MS);
}

/* ---- stdout and stderr ---- */

static void log_append(struct relay *r, const char *stream, const char *text) {
    if (!r->o.log)
        return;
    Trainyard__V1__LogText log = TRAINYARD__V1__LOG_TEXT__INIT;
    log.stream = (char *)(uintptr_t)stream;
    log.text = (char *)(uintptr_t)text;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_LOG;
    record.log = &log;
    record.time_us = clock_wall_us();
    if (!spool_below(r, LINES_UNTIL_PERCENT) || record_append(r, &record, false) != ST_OK) {
        r->dropped_lines++;
        spool_full(r->o.spool)->lines_dropped++;
        drops_notice_soon(r);
    }
}

static void line_spool(void *ctx, const char *text) {
    struct stream *s = ctx;
    log_append(s->relay, s->name, text);
}

void relay_sample(struct relay *r, const Trainyard__V1__MetricRow *row) {
    if (!r->o.log)
        return;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    record.metrics = (Trainyard__V1__MetricRow *)(uintptr_t)row;
    record.time_us = clock_wall_us();
    if (!spool_below(r, SAMPLES_UNTIL_PERCENT) || record_append(r, &record, false) != ST_OK) {
        r->dropped_samples++;
        spool_full(r->o.spool)->samples_dropped++;
        drops_notice_soon(r);
    }
}

void relay_notice(struct relay *r, const char *kind, const char *message) {
    if (r->o.log && spool_below(r, LINES_UNTIL_PERCENT))
        status_ignore(notice_append(r, kind, message));
}

void relay_log_line(struct relay *r, const char *text) { log_append(r, "agent", text); }

/* One read; false if there is nothing more now. */
static bool stream_read(struct stream *s) {
    char chunk[READ_BYTES];
    ssize_t n = s->over ? 0 : read(s->watch.fd, chunk, sizeof chunk);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0) {
        output_lines_feed(&s->lines, chunk, (size_t)n);
    } else if (!s->over) {
        output_lines_end(&s->lines);
        s->over = true;
        reactor_watch_remove(s->relay->o.loop, &s->watch);
    }
    if (s->lines.dropped)
        drops_notice_soon(s->relay);
    return !s->over;
}

static void stream_ready(void *ctx, uint32_t events) {
    (void)events;
    stream_read(ctx);
}

/* ---- records ---- */

static void wait_begin(struct relay *r, const uint8_t *data, size_t n) {
    if (!r->refused.data) {
        r->refused.since_ms = clock_mono_ms();
        spool_full(r->o.spool)->waits++;
        r->o.owner.waiting(r->o.owner.ctx, true);
    }
    r->refused.data = data;
    r->refused.n = n;
    reactor_watch_change(r->o.loop, &r->watch, 0);
    reactor_timer_set(r->o.loop, &r->retry, RETRY_MS);
}

static void record_spool(struct relay *r, const Trainyard__V1__WorkerRecord *record, const uint8_t *data, size_t n) {
    if (!r->o.log)
        return;
    bool sample = record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS && record->metrics->per_rank;
    bool line = record->record_case == TRAINYARD__V1__WORKER_RECORD__RECORD_LOG;
    bool urgent = !line && record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    int percent = sample ? SAMPLES_UNTIL_PERCENT : line ? LINES_UNTIL_PERCENT : 0;
    int64_t sequence;
    if ((!percent || spool_below(r, percent)) && spool_append(r->o.log, data, n, &sequence, NULL) == ST_OK) {
        r->o.owner.spooled(r->o.owner.ctx, urgent);
    } else if (percent) {
        r->dropped_samples += sample;
        r->dropped_lines += line;
        spool_full(r->o.spool)->samples_dropped += sample;
        spool_full(r->o.spool)->lines_dropped += line;
        drops_notice_soon(r);
    } else {
        wait_begin(r, data, n);
    }
}

static void relay_break(struct relay *r, const char *sentence) {
    r->over = true;
    reactor_watch_remove(r->o.loop, &r->watch);
    r->o.owner.broken(r->o.owner.ctx, sentence);
}

/* The controller refuses a batch with a record that is not valid, and would get it again and again from the spool. */
static void record_take(struct relay *r, const uint8_t *data, size_t n) {
    Trainyard__V1__WorkerRecord *record = NULL;
    if (wire_check(&trainyard__v1__worker_record__descriptor, data, n, NULL) == ST_OK)
        record = trainyard__v1__worker_record__unpack(NULL, n, data);
    if (!record) {
        relay_break(r, "wrote bytes to its records pipe that are no record");
        return;
    }
    switch (record->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS:
        if (record->metrics->step > r->step)
            r->step = record->metrics->step;
        record_spool(r, record, data, n);
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD:
    case TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE:
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ARTIFACT:
    case TRAINYARD__V1__WORKER_RECORD__RECORD_CHOSEN:
    case TRAINYARD__V1__WORKER_RECORD__RECORD_LOG: record_spool(r, record, data, n); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED:
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END:
        r->o.owner.record(r->o.owner.ctx, record);
        record_spool(r, record, data, n);
        break;
    default: r->o.owner.record(r->o.owner.ctx, record);
    }
    trainyard__v1__worker_record__free_unpacked(record, NULL);
}

/* Handles the complete records, until the spool refuses one. */
static void records_take(struct relay *r) {
    while (!r->over && !r->refused.data) {
        const uint8_t *data;
        size_t n;
        if (frame_reader_next_packed(&r->reader, &data, &n, NULL) != ST_OK)
            relay_break(r, "wrote a record that is too long");
        else if (data)
            record_take(r, data, n);
        else
            return;
    }
}

/* One read and its records; false if there is nothing more now. */
static bool records_read(struct relay *r) {
    records_take(r);
    if (r->over || r->refused.data)
        return false;
    bool ended = false;
    size_t before = r->reader.buf.len - r->reader.taken;
    status_t st = frame_reader_fill(&r->reader, r->watch.fd, &ended, NULL);
    bool grew = r->reader.buf.len - r->reader.taken != before;
    if (st != ST_OK || ended) {
        /* A worker that is killed during a write leaves an incomplete record. Its pidfd reports the death. */
        r->over = true;
        reactor_watch_remove(r->o.loop, &r->watch);
        return false;
    }
    records_take(r);
    return grew;
}

static void records_ready(void *ctx, uint32_t events) {
    (void)events;
    records_read(ctx);
}

static void retry_fire(void *ctx) {
    struct relay *r = ctx;
    int64_t sequence;
    if (r->o.log && spool_append(r->o.log, r->refused.data, r->refused.n, &sequence, NULL) != ST_OK) {
        reactor_timer_set(r->o.loop, &r->retry, RETRY_MS);
        return;
    }
    r->refused.data = NULL;
    if (r->o.log)
        r->o.owner.spooled(r->o.owner.ctx, true);
    records_take(r);
    if (r->refused.data)
        return;
    char text[160];
    snprintf(text, sizeof text, "training waited %" PRId64 " ms because the executor's spool was full",
             clock_mono_ms() - r->refused.since_ms);
    if (r->o.log)
        status_ignore(
            notice_append(r, "waited_for_spool", text)); /* if the notice does not fit, this wait is not reported */
    reactor_watch_change(r->o.loop, &r->watch, EPOLLIN);
    r->o.owner.waiting(r->o.owner.ctx, false);
}

void relay_discard(struct relay *r) {
    r->o.log = NULL;
    if (r->refused.data)
        reactor_timer_set(r->o.loop, &r->retry, 0);
}

bool relay_drain(struct relay *r) {
    for (int i = 0; i < 2; i++)
        while (r->streams[i].watch.fd >= 0 && stream_read(&r->streams[i])) {
        }
    while (records_read(r)) {
    }
    return !r->refused.data;
}

bool relay_rest(const struct relay *r, struct relay_rest *ret) {
    const struct bytes *buf = &r->reader.buf;
    *ret = (struct relay_rest){ .records = { .len = buf->len - r->reader.taken }, .step = r->step };
    if (buf->data)
        ret->records.data = (uint8_t *)buf->data + r->reader.taken;
    for (int i = 0; i < 2; i++)
        ret->lines[i] = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)r->streams[i].lines.text,
                                               .len = r->streams[i].lines.n };
    return !r->refused.data && !r->notice.armed;
}

/* No line has ended in it. */
static status_t rest_take(struct relay *r, const struct relay_rest *rest, struct err *e) {
    r->step = rest->step;
    for (int i = 0; i < 2; i++)
        if (rest->lines[i].len > 0)
            output_lines_feed(&r->streams[i].lines, (const char *)rest->lines[i].data, rest->lines[i].len);
    return rest->records.len > 0 ? frame_reader_feed(&r->reader, rest->records.data, rest->records.len, e) : ST_OK;
}

static status_t stream_open(struct relay *r, int i, const char *name, int fd, struct err *e) {
    struct stream *s = &r->streams[i];
    s->relay = r;
    s->name = name;
    s->watch = (struct reactor_watch){ .fd = fd, .ready = stream_ready, .ctx = s };
    output_lines_init(&s->lines, line_spool, s);
    if (fd >= 0)
        TRY(reactor_watch_add(r->o.loop, &s->watch, EPOLLIN, e));
    s->over = fd < 0;
    return ST_OK;
}

status_t relay_open(const struct relay_options *options, struct relay **ret, struct err *e) {
    CLEANUP(relay_closep) struct relay *r = alloc_zeroed(1, sizeof *r);
    r->o = *options;
    r->step = -1;
    r->retry = (struct reactor_timer){ .fire = retry_fire, .ctx = r };
    r->notice = (struct reactor_timer){ .fire = drops_notice, .ctx = r };
    frame_reader_init(&r->reader, LIMIT_RECORD_BYTES);
    r->watch = (struct reactor_watch){ .fd = options->records, .ready = records_ready, .ctx = r };
    TRY(stream_open(r, 0, "stdout", options->out, e));
    TRY(stream_open(r, 1, "stderr", options->err, e));
    if (options->rest)
        TRY(rest_take(r, options->rest, e));
    r->o.rest = NULL;
    TRY(reactor_watch_add(options->loop, &r->watch, EPOLLIN, e));
    *ret = take_ptr(&r);
    return ST_OK;
}

struct relay *relay_close(struct relay *r) {
    if (!r)
        return NULL;
    drops_notice(r);
    reactor_timer_cancel(r->o.loop, &r->retry);
    reactor_timer_cancel(r->o.loop, &r->notice);
    reactor_watch_remove(r->o.loop, &r->watch);
    for (int i = 0; i < 2; i++)
        reactor_watch_remove(r->o.loop, &r->streams[i].watch);
    frame_reader_done(&r->reader);
    free(r);
    return NULL;
}
