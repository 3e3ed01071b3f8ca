/* Report streams put batches into the queue of a writer thread; a rank always has the same writer, so that its records
 * stay in order. A writer repeats:
 *
 *   take_turn       up to WRITE_BATCHES batches from its queue
 *   decode_turn     the records of each batch; a batch with a bad record ends its stream and is dropped
 *   write_turn      all of them in one transaction (group commit), tried until PostgreSQL takes it
 *   report_result   acknowledges each batch, and notifies the loop of checkpoints, awaited sequences and progress
 *
 * The memory of waiting batches is counted in `bytes`. A stream that exceeds INGEST_BYTES stops reading and resumes
 * when half of the memory is free again.
 *
 * Locks: in->lock guards the queues and lists; source->lock is held over a callback, so that ingest_source_stop can
 * wait for it. in->lock is never held over a callback. */
#include "service/controller/ingest.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "service/controller/ingest_decode.h"
#include "service/store/attempt.h"
#include "service/store/report.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* At most this much in one transaction, which then takes some ten milliseconds. */
#define WRITE_BATCHES 256
#define WRITE_BYTES   (8 << 20)
/* Between tries while PostgreSQL is unreachable. */
#define RETRY_MS 200

struct ingest_source {
    struct ingest *in;
    pthread_mutex_t lock; /* held over a callback, so that stop can wait for it */
    struct ingest_source_ops ops;
    void *ctx;
    bool stopped, full;
    int refs; /* guarded by in->lock: the stream's, and one per waiting batch */
    struct ingest_source *next_full;
    struct ingest_source *next_ended; /* only the loop's thread ends all of them */
    struct ingest_source *next, **at; /* in->sources, until it is stopped; guarded by in->lock */
};

/* A batch that waits for its writer, in one block: the data that `batch` points to follows the struct. */
struct waiting {
    struct ingest_source *source;
    size_t bytes;
    struct waiting *next;
    Trainyard__V1__ReportBatch batch;
    ProtobufCBinaryData records[];
};

struct await {
    int64_t job, sequence;
    int attempt, rank;
    bool checked;
    struct await *next;
};

/* One writing thread, with its queue of batches and the sequences that the loop waits for. */
struct writer {
    struct ingest *in;
    pthread_t thread;
    bool runs;
    pthread_cond_t work;
    struct waiting *first, **last;
    struct await *awaits;
    /* Only the thread uses these. */
    struct store_report *report;
    int64_t report_epoch;
};

struct ingest {
    struct store *store;
    struct ingest_listener listener;
    pthread_mutex_t lock;
    int64_t epoch; /* 0: not leading yet */
    size_t bytes;
    bool closing;
    struct ingest_source *full;
    struct ingest_source *sources;
    struct writer writers[INGEST_THREADS];
};

/* The batches of one transaction. */
struct turn {
    struct waiting *items[WRITE_BATCHES];
    struct decoded decoded[WRITE_BATCHES];
    struct store_batch batches[WRITE_BATCHES];
    struct store_batch_result results[WRITE_BATCHES];
    size_t n;
};

static struct writer *writer_of(struct ingest *in, int64_t job, int rank) {
    return &in->writers[((uint64_t)job * 31 + (uint64_t)rank) % INGEST_THREADS];
}

static void unref_locked(struct ingest_source *source) {
    if (--source->refs > 0)
        return;
    pthread_mutex_destroy(&source->lock);
    free(source);
}

static void end_source(struct ingest_source *source, status_t st, const char *why) {
    pthread_mutex_lock(&source->lock);
    if (!source->stopped)
        source->ops.end(source->ctx, st, why);
    pthread_mutex_unlock(&source->lock);
}

static void send_ack(struct ingest_source *source, const struct store_batch *batch,
                     const struct store_batch_result *result) {
    Trainyard__V1__ReportAck ack = TRAINYARD__V1__REPORT_ACK__INIT;
    ack.job = batch->job;
    ack.attempt = batch->attempt;
    ack.rank = batch->rank;
    ack.sequence = result->sequence;
    ack.fenced = result->fenced;
    ack.gap = result->gap;
    pthread_mutex_lock(&source->lock);
    if (!source->stopped)
        source->ops.ack(source->ctx, &ack);
    pthread_mutex_unlock(&source->lock);
}

/* Streams that stopped reading resume when half of the memory is free again. Called and returns with the lock held. */
static void resume_sources(struct ingest *in) {
    while (in->full && in->bytes <= INGEST_BYTES / 2) {
        struct ingest_source *source = in->full;
        in->full = source->next_full;
        source->full = false;
        pthread_mutex_unlock(&in->lock);
        pthread_mutex_lock(&source->lock);
        if (!source->stopped)
            source->ops.resume(source->ctx);
        pthread_mutex_unlock(&source->lock);
        pthread_mutex_lock(&in->lock);
        unref_locked(source);
    }
}

static void take_turn(struct writer *writer, struct turn *turn) {
    size_t bytes = 0;
    turn->n = 0;
    while (writer->first && turn->n < WRITE_BATCHES && (turn->n == 0 || bytes + writer->first->bytes <= WRITE_BYTES)) {
        struct waiting *w = writer->first;
        writer->first = w->next;
        if (!writer->first)
            writer->last = &writer->first;
        bytes += w->bytes;
        turn->items[turn->n++] = w;
    }
}

/* A batch that cannot be decoded leaves the turn and ends its stream: the agent's next stream sends it again. */
static void decode_turn(struct turn *turn) {
    for (size_t i = 0; i < turn->n; i++) {
        struct err e;
        turn->decoded[i] = (struct decoded){ 0 };
        turn->batches[i] = (struct store_batch){ 0 };
        status_t st = ingest_decode(&turn->items[i]->batch, &turn->decoded[i], &turn->batches[i], &e);
        if (st == ST_OK)
            continue;
        log_event(LOG_WARN, "report_dropped", "reason", LOG_STR(e.msg), NULL);
        end_source(turn->items[i]->source, st, e.msg);
    }
}

static bool is_progress(const char *name) {
    static const char *const names[] = { "loss", "validation_loss", "tokens_per_second", "samples_per_second",
                                         "step_seconds" };
    for (size_t k = 0; k < sizeof names / sizeof *names; k++)
        if (strcmp(name, names[k]) == 0)
            return true;
    return false;
}

/* The first value of a row is told whatever its name is: its step is progress. */
static void notify_metrics(const struct ingest *in, const struct store_batch *b) {
    for (size_t r = 0; b->rank == 0 && r < b->n; r++) {
        const struct store_record *record = &b->records[r];
        if (record->kind != STORE_RECORD_METRICS)
            continue;
        for (size_t i = 0; i < record->metrics.n; i++)
            if (i == 0 || is_progress(record->metrics.names[i]))
                in->listener.metric(in->listener.ctx, b->job, b->attempt, record->metrics.step,
                                    record->metrics.names[i], record->metrics.values[i]);
    }
}

static void settle_awaits(struct writer *writer, int64_t job, int attempt, int rank, int64_t sequence) {
    struct ingest *in = writer->in;
    struct await *settled = NULL;
    pthread_mutex_lock(&in->lock);
    for (struct await **at = &writer->awaits; *at;) {
        struct await *a = *at;
        if (a->job != job || a->attempt != attempt || a->rank != rank || a->sequence > sequence) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        a->next = settled;
        settled = a;
    }
    pthread_mutex_unlock(&in->lock);
    for (struct await *a = settled, *next; a; a = next) { /* not under the lock: the listener may block */
        next = a->next;
        free(a);
        in->listener.stored(in->listener.ctx, job, attempt, rank, sequence);
    }
}

static void report_result(struct writer *writer, struct ingest_source *source, const struct store_batch *b,
                          const struct store_batch_result *result) {
    const struct ingest_listener *l = &writer->in->listener;
    send_ack(source, b, result);
    if (result->fenced)
        return;
    if (result->lost > 0)
        log_event(LOG_ERROR, "records_lost", "job", LOG_INT(b->job), "attempt", LOG_INT(b->attempt), "rank",
                  LOG_INT(b->rank), "records", LOG_INT(result->lost), NULL);
    for (int i = 0; i < result->n_committed; i++)
        l->checkpoint(l->ctx, b->job, b->attempt, result->committed[i].step, result->committed[i].final);
    if (!result->gap)
        notify_metrics(writer->in, b);
    settle_awaits(writer, b->job, b->attempt, b->rank, result->sequence);
    l->changed(l->ctx, b->job);
}

static bool pause_retry(struct ingest *in) {
    struct timespec until = deadline_timespec(deadline_in(RETRY_MS));
    pthread_cond_t never = PTHREAD_COND_INITIALIZER;
    pthread_mutex_lock(&in->lock);
    if (!in->closing)
        pthread_cond_clockwait(&never, &in->lock, CLOCK_MONOTONIC, &until);
    bool closing = in->closing;
    pthread_mutex_unlock(&in->lock);
    pthread_cond_destroy(&never);
    return !closing;
}

/* Opens the store's report for the current epoch. False: the ingest is closing. */
static bool open_report(struct writer *writer) {
    for (;;) {
        pthread_mutex_lock(&writer->in->lock);
        int64_t epoch = writer->in->epoch;
        pthread_mutex_unlock(&writer->in->lock);
        if (writer->report && writer->report_epoch == epoch)
            return true;
        writer->report = store_report_free(writer->report);
        writer->report_epoch = epoch;
        if (epoch != 0) {
            writer->report = store_report_new(writer->in->store, epoch);
            return true;
        }
        if (!pause_retry(writer->in))
            return false;
    }
}

/* False: the ingest is closing. Records that are not stored remain in the agents' spools. */
static bool write_turn(struct writer *writer, struct turn *turn) {
    bool logged = false;
    while (open_report(writer)) {
        struct err e = { "" };
        if (store_report_write(writer->report, turn->batches, turn->n, turn->results, &e) == ST_OK)
            return true;
        if (!logged)
            log_event(LOG_WARN, "reports_wait", "reason", LOG_STR(e.msg), NULL);
        logged = true;
        if (!pause_retry(writer->in))
            break;
    }
    return false;
}

static void drop_empty(struct turn *turn) {
    size_t kept = 0;
    for (size_t i = 0; i < turn->n; i++) {
        if (!turn->decoded[i].records)
            continue;
        if (kept != i) {
            struct waiting *w = turn->items[kept];
            turn->items[kept] = turn->items[i];
            turn->items[i] = w;
            turn->decoded[kept] = turn->decoded[i];
            turn->decoded[i] = (struct decoded){ 0 };
            turn->batches[kept] = turn->batches[i];
        }
        kept++;
    }
    turn->n = kept;
}

static void run_turn(struct writer *writer, struct turn *turn) {
    size_t taken = turn->n;
    decode_turn(turn);
    drop_empty(turn);
    bool written = turn->n == 0 || write_turn(writer, turn);
    for (size_t i = 0; i < turn->n; i++) {
        if (written)
            report_result(writer, turn->items[i]->source, &turn->batches[i], &turn->results[i]);
        ingest_decoded_done(&turn->decoded[i]);
    }
    pthread_mutex_lock(&writer->in->lock);
    for (size_t i = 0; i < taken; i++) {
        writer->in->bytes -= turn->items[i]->bytes;
        unref_locked(turn->items[i]->source);
        free(turn->items[i]);
    }
    resume_sources(writer->in);
    pthread_mutex_unlock(&writer->in->lock);
}

/* An awaited sequence may have been stored before the wait began: reads it from the rows. */
static void check_awaits(struct writer *writer) {
    struct ingest *in = writer->in;
    for (;;) {
        pthread_mutex_lock(&in->lock);
        struct await *a = writer->awaits;
        while (a && a->checked)
            a = a->next;
        struct await found = a ? *a : (struct await){ 0 };
        if (a)
            a->checked = true;
        pthread_mutex_unlock(&in->lock);
        if (!a)
            return;
        int64_t sequence = 0;
        struct err e;
        while (store_rank_sequence(in->store, found.job, found.attempt, found.rank, &sequence, &e) != ST_OK)
            if (!pause_retry(in))
                return;
        settle_awaits(writer, found.job, found.attempt, found.rank, sequence);
    }
}

static bool has_unchecked(const struct writer *writer) {
    for (const struct await *a = writer->awaits; a; a = a->next)
        if (!a->checked)
            return true;
    return false;
}

static void *run_writer(void *arg) {
    struct writer *writer = arg;
    struct ingest *in = writer->in;
    struct turn *turn = alloc_zeroed(1, sizeof *turn);
    for (;;) {
        pthread_mutex_lock(&in->lock);
        while (!in->closing && !writer->first && !has_unchecked(writer))
            pthread_cond_wait(&writer->work, &in->lock);
        bool closing = in->closing;
        take_turn(writer, turn);
        pthread_mutex_unlock(&in->lock);
        if (turn->n > 0)
            run_turn(writer, turn);
        if (closing)
            break;
        check_awaits(writer);
    }
    writer->report = store_report_free(writer->report);
    free(turn);
    return NULL;
}

status_t ingest_open(struct store *store, const struct ingest_listener *listener, struct ingest **ret, struct err *e) {
    struct ingest *in = alloc_zeroed(1, sizeof *in);
    in->store = store;
    in->listener = *listener;
    pthread_mutex_init(&in->lock, NULL);
    for (int i = 0; i < INGEST_THREADS; i++) {
        struct writer *writer = &in->writers[i];
        writer->in = in;
        writer->last = &writer->first;
        pthread_cond_init(&writer->work, NULL);
    }
    for (int i = 0; i < INGEST_THREADS; i++) {
        in->writers[i].runs = pthread_create(&in->writers[i].thread, NULL, run_writer, &in->writers[i]) == 0;
        if (!in->writers[i].runs) {
            ingest_close(in);
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the ingest");
        }
    }
    *ret = in;
    return ST_OK;
}

struct ingest *ingest_close(struct ingest *in) {
    if (!in)
        return NULL;
    pthread_mutex_lock(&in->lock);
    in->closing = true;
    for (int i = 0; i < INGEST_THREADS; i++)
        pthread_cond_broadcast(&in->writers[i].work);
    pthread_mutex_unlock(&in->lock);
    for (int i = 0; i < INGEST_THREADS; i++) {
        struct writer *writer = &in->writers[i];
        if (writer->runs)
            pthread_join(writer->thread, NULL);
        for (struct waiting *w = writer->first, *next; w; w = next) {
            next = w->next;
            unref_locked(w->source);
            free(w);
        }
        for (struct await *a = writer->awaits, *next; a; a = next) {
            next = a->next;
            free(a);
        }
        pthread_cond_destroy(&writer->work);
    }
    while (in->full) {
        struct ingest_source *source = in->full;
        in->full = source->next_full;
        unref_locked(source);
    }
    pthread_mutex_destroy(&in->lock);
    free(in);
    return NULL;
}

/* Called and returns with the lock held. */
static void end_sources(struct ingest *in, const char *why) {
    struct ingest_source *ended = NULL;
    for (struct ingest_source *source = in->sources; source; source = source->next) {
        source->refs++;
        source->next_ended = ended;
        ended = source;
    }
    while (ended) {
        struct ingest_source *source = ended;
        ended = source->next_ended;
        pthread_mutex_unlock(&in->lock);
        end_source(source, ST_UNAVAILABLE, why);
        pthread_mutex_lock(&in->lock);
        unref_locked(source);
    }
}

void ingest_lead(struct ingest *in, int64_t epoch) {
    pthread_mutex_lock(&in->lock);
    const bool again = in->epoch != 0 && in->epoch != epoch;
    in->epoch = epoch;
    for (int i = 0; i < INGEST_THREADS; i++)
        pthread_cond_broadcast(&in->writers[i].work);
    if (again)
        end_sources(in, epoch ? "the controller leads under a new epoch: ask for the marks again"
                              : "this controller no longer leads");
    pthread_mutex_unlock(&in->lock);
}

struct ingest_source *ingest_source_start(struct ingest *in, const struct ingest_source_ops *ops, void *ctx) {
    struct ingest_source *source = alloc_zeroed(1, sizeof *source);
    *source = (struct ingest_source){ .in = in, .ops = *ops, .ctx = ctx, .refs = 1 };
    pthread_mutex_init(&source->lock, NULL);
    pthread_mutex_lock(&in->lock);
    source->next = in->sources;
    source->at = &in->sources;
    if (source->next)
        source->next->at = &source->next;
    in->sources = source;
    pthread_mutex_unlock(&in->lock);
    return source;
}

void ingest_source_stop(struct ingest_source *source) {
    struct ingest *in = source->in;
    pthread_mutex_lock(&source->lock);
    source->stopped = true;
    pthread_mutex_unlock(&source->lock);
    pthread_mutex_lock(&in->lock);
    *source->at = source->next;
    if (source->next)
        source->next->at = source->at;
    unref_locked(source);
    pthread_mutex_unlock(&in->lock);
}

static struct waiting *copy_batch(const Trainyard__V1__ReportBatch *batch) {
    const size_t n_executor = strlen(batch->executor) + 1;
    size_t n = sizeof(struct waiting) + batch->n_records * sizeof(ProtobufCBinaryData) + n_executor;
    for (size_t i = 0; i < batch->n_records; i++)
        n += batch->records[i].len;
    struct waiting *w = malloc(n);
    if (!w)
        return NULL;
    *w = (struct waiting){ .bytes = n, .batch = *batch };
    w->batch.records = w->records;
    uint8_t *at = (uint8_t *)&w->records[batch->n_records];
    for (size_t i = 0; i < batch->n_records; at += batch->records[i++].len) {
        w->records[i] = (ProtobufCBinaryData){ .len = batch->records[i].len, .data = at };
        if (batch->records[i].len > 0) /* else its data may be NULL */
            memcpy(at, batch->records[i].data, batch->records[i].len);
    }
    w->batch.executor = memcpy(at, batch->executor, n_executor);
    return w;
}

enum ingest_put ingest_put(struct ingest_source *source, const Trainyard__V1__ReportBatch *batch) {
    struct ingest *in = source->in;
    struct waiting *w = copy_batch(batch);
    if (!w)
        return INGEST_REFUSED;
    w->source = source;
    struct writer *writer = writer_of(in, batch->job, batch->rank);
    pthread_mutex_lock(&in->lock);
    *writer->last = w;
    writer->last = &w->next;
    source->refs++;
    in->bytes += w->bytes;
    bool full = in->bytes > INGEST_BYTES;
    if (full && !source->full) {
        source->full = true;
        source->refs++;
        source->next_full = in->full;
        in->full = source;
    }
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&in->lock);
    return full ? INGEST_FULL : INGEST_TAKEN;
}

void ingest_await(struct ingest *in, int64_t job, int attempt, int rank, int64_t sequence) {
    struct await *a = alloc_zeroed(1, sizeof *a);
    *a = (struct await){ .job = job, .attempt = attempt, .rank = rank, .sequence = sequence };
    struct writer *writer = writer_of(in, job, rank);
    pthread_mutex_lock(&in->lock);
    a->next = writer->awaits;
    writer->awaits = a;
    pthread_cond_signal(&writer->work);
    pthread_mutex_unlock(&in->lock);
}

void ingest_forget(struct ingest *in, int64_t job) {
    pthread_mutex_lock(&in->lock);
    for (int i = 0; i < INGEST_THREADS; i++)
        for (struct await **at = &in->writers[i].awaits; *at;) {
            struct await *a = *at;
            if (a->job == job) {
                *at = a->next;
                free(a);
            } else {
                at = &a->next;
            }
        }
    pthread_mutex_unlock(&in->lock);
}
