#include "service/controller/ingest.h"

#include "base/clock.h"
#include "base/log.h"
#include "service/controller/ingest_decode.h"
#include "service/store/attempt.h"
#include "service/store/report.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* One write takes at most so much: a transaction of some ten milliseconds. */
#define WRITE_BATCHES 256
#define WRITE_BYTES   (8 << 20)
/* While PostgreSQL is away. */
#define RETRY_MS 200

struct ingest_source {
    struct ingest *in;
    pthread_mutex_t lock; /* held over a callback, so that stop can wait for it */
    struct ingest_source_ops ops;
    void *ctx;
    bool stopped, full;
    int refs; /* guarded by in->lock: the stream's, and one per waiting batch */
    struct ingest_source *next_full;
};

struct waiting {
    struct ingest_source *source;
    size_t bytes;
    struct waiting *next;
    uint8_t packed[];
};

struct await {
    int64_t job, sequence;
    int attempt, rank;
    bool looked_up;
    struct await *next;
};

/* One writing thread and what waits for it. */
struct lane {
    struct ingest *in;
    pthread_t thread;
    bool runs;
    pthread_cond_t work;
    struct waiting *first, **last;
    struct await *awaits;
    /* The thread's own. */
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
    struct lane lanes[INGEST_THREADS];
};

/* A write's batches, while they are decoded. */
struct turn {
    struct waiting *items[WRITE_BATCHES];
    struct decoded decoded[WRITE_BATCHES];
    struct store_batch batches[WRITE_BATCHES];
    struct store_batch_result results[WRITE_BATCHES];
    size_t n;
};

static struct lane *lane_of(struct ingest *in, int64_t job, int rank) {
    return &in->lanes[((uint64_t)job * 31 + (uint64_t)rank) % INGEST_THREADS];
}

static void unref_locked(struct ingest_source *source) {
    if (--source->refs > 0)
        return;
    pthread_mutex_destroy(&source->lock);
    free(source);
}

static void say_ack(struct ingest_source *source, const struct store_batch *batch, int64_t sequence, bool fenced) {
    Trainyard__V1__ReportAck ack = TRAINYARD__V1__REPORT_ACK__INIT;
    ack.job = batch->job;
    ack.attempt = batch->attempt;
    ack.rank = batch->rank;
    ack.sequence = sequence;
    ack.fenced = fenced;
    pthread_mutex_lock(&source->lock);
    if (!source->stopped)
        source->ops.ack(source->ctx, &ack);
    pthread_mutex_unlock(&source->lock);
}

/* Streams that stopped reading go on when half of the room is free again. Called and returns with the lock held. */
static void give_room(struct ingest *in) {
    while (in->full && in->bytes <= INGEST_BYTES / 2) {
        struct ingest_source *source = in->full;
        in->full = source->next_full;
        source->full = false;
        pthread_mutex_unlock(&in->lock);
        pthread_mutex_lock(&source->lock);
        if (!source->stopped)
            source->ops.room(source->ctx);
        pthread_mutex_unlock(&source->lock);
        pthread_mutex_lock(&in->lock);
        unref_locked(source);
    }
}

static void take_turn(struct lane *lane, struct turn *turn) {
    size_t bytes = 0;
    turn->n = 0;
    while (lane->first && turn->n < WRITE_BATCHES && (turn->n == 0 || bytes + lane->first->bytes <= WRITE_BYTES)) {
        struct waiting *w = lane->first;
        lane->first = w->next;
        if (!lane->first)
            lane->last = &lane->first;
        bytes += w->bytes;
        turn->items[turn->n++] = w;
    }
}

/* Out of a turn go batches that cannot be decoded: their agent sends them again, or its stream ends. */
static void decode_turn(struct turn *turn) {
    for (size_t i = 0; i < turn->n; i++) {
        struct err e;
        turn->decoded[i] = (struct decoded){ 0 };
        turn->batches[i] = (struct store_batch){ 0 };
        if (ingest_decode(turn->items[i]->packed, turn->items[i]->bytes, &turn->decoded[i], &turn->batches[i], &e) !=
            ST_OK)
            log_event(LOG_WARN, "report_dropped", "reason", LOG_STR(e.msg), NULL);
    }
}

static void tell_metrics(const struct ingest *in, const struct store_batch *b) {
    static const char *const names[] = { "loss", "validation_loss", "tokens_per_second", "samples_per_second" };
    for (size_t r = 0; b->rank == 0 && r < b->n; r++) {
        const struct store_record *record = &b->records[r];
        if (record->kind != STORE_RECORD_METRICS)
            continue;
        for (size_t i = 0; i < record->metrics.n; i++)
            for (size_t k = 0; k < sizeof names / sizeof *names; k++)
                if (strcmp(record->metrics.names[i], names[k]) == 0)
                    in->listener.metric(in->listener.ctx, b->job, b->attempt, record->metrics.step, names[k],
                                        record->metrics.values[i]);
    }
}

static void settle_awaits(struct lane *lane, int64_t job, int attempt, int rank, int64_t sequence) {
    struct ingest *in = lane->in;
    pthread_mutex_lock(&in->lock);
    for (struct await **at = &lane->awaits; *at;) {
        struct await *a = *at;
        if (a->job != job || a->attempt != attempt || a->rank != rank || a->sequence > sequence) {
            at = &a->next;
            continue;
        }
        *at = a->next;
        free(a);
        in->listener.stored(in->listener.ctx, job, attempt, rank, sequence);
    }
    pthread_mutex_unlock(&in->lock);
}

static void tell_result(struct lane *lane, struct ingest_source *source, const struct store_batch *b,
                        const struct store_batch_result *result) {
    const struct ingest_listener *l = &lane->in->listener;
    say_ack(source, b, result->sequence, result->fenced);
    if (result->fenced)
        return;
    for (int i = 0; i < result->n_committed; i++)
        l->checkpoint(l->ctx, b->job, b->attempt, result->committed[i].step, result->committed[i].final);
    if (!result->gap)
        tell_metrics(lane->in, b);
    settle_awaits(lane, b->job, b->attempt, b->rank, result->sequence);
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

/* A writer belongs to one epoch. False when the ingest is closing. */
static bool ready_writer(struct lane *lane) {
    for (;;) {
        pthread_mutex_lock(&lane->in->lock);
        int64_t epoch = lane->in->epoch;
        pthread_mutex_unlock(&lane->in->lock);
        if (lane->report && lane->report_epoch == epoch)
            return true;
        lane->report = store_report_close(lane->report);
        lane->report_epoch = epoch;
        struct err e;
        if (epoch != 0 && store_report_open(lane->in->store, epoch, &lane->report, &e) == ST_OK)
            return true;
        if (!pause_retry(lane->in))
            return false;
    }
}

/* False when the ingest is closing: what was not stored is in the agents' spools. */
static bool write_turn(struct lane *lane, struct turn *turn) {
    bool told = false;
    while (ready_writer(lane)) {
        struct err e = { "" };
        if (store_report_write(lane->report, turn->batches, turn->n, turn->results, &e) == ST_OK)
            return true;
        if (!told)
            log_event(LOG_WARN, "reports_wait", "reason", LOG_STR(e.msg), NULL);
        told = true;
        if (!pause_retry(lane->in))
            break;
    }
    return false;
}

static void drop_empty(struct turn *turn) {
    size_t kept = 0;
    for (size_t i = 0; i < turn->n; i++) {
        if (!turn->decoded[i].message)
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

static void run_turn(struct lane *lane, struct turn *turn) {
    size_t taken = turn->n;
    decode_turn(turn);
    drop_empty(turn);
    bool written = turn->n == 0 || write_turn(lane, turn);
    for (size_t i = 0; i < turn->n; i++) {
        if (written)
            tell_result(lane, turn->items[i]->source, &turn->batches[i], &turn->results[i]);
        ingest_decoded_done(&turn->decoded[i]);
    }
    pthread_mutex_lock(&lane->in->lock);
    for (size_t i = 0; i < taken; i++) {
        lane->in->bytes -= turn->items[i]->bytes;
        unref_locked(turn->items[i]->source);
        free(turn->items[i]);
    }
    give_room(lane->in);
    pthread_mutex_unlock(&lane->in->lock);
}

/* A wait that was asked for after the last batch was stored: the rows know. */
static void look_up(struct lane *lane) {
    struct ingest *in = lane->in;
    for (;;) {
        pthread_mutex_lock(&in->lock);
        struct await *a = lane->awaits;
        while (a && a->looked_up)
            a = a->next;
        struct await found = a ? *a : (struct await){ 0 };
        if (a)
            a->looked_up = true;
        pthread_mutex_unlock(&in->lock);
        if (!a)
            return;
        int64_t sequence = 0;
        struct err e;
        while (store_rank_sequence(in->store, found.job, found.attempt, found.rank, &sequence, &e) != ST_OK)
            if (!pause_retry(in))
                return;
        settle_awaits(lane, found.job, found.attempt, found.rank, sequence);
    }
}

static bool has_lookup(const struct lane *lane) {
    for (const struct await *a = lane->awaits; a; a = a->next)
        if (!a->looked_up)
            return true;
    return false;
}

static void *run_lane(void *arg) {
    struct lane *lane = arg;
    struct ingest *in = lane->in;
    struct turn *turn = calloc(1, sizeof *turn);
    assert(turn);
    for (;;) {
        pthread_mutex_lock(&in->lock);
        while (!in->closing && !lane->first && !has_lookup(lane))
            pthread_cond_wait(&lane->work, &in->lock);
        bool closing = in->closing;
        take_turn(lane, turn);
        pthread_mutex_unlock(&in->lock);
        if (turn->n > 0)
            run_turn(lane, turn);
        if (closing)
            break;
        look_up(lane);
    }
    lane->report = store_report_close(lane->report);
    free(turn);
    return NULL;
}

status_t ingest_open(struct store *store, const struct ingest_listener *listener, struct ingest **ret, struct err *e) {
    struct ingest *in = calloc(1, sizeof *in);
    if (!in)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the ingest");
    in->store = store;
    in->listener = *listener;
    pthread_mutex_init(&in->lock, NULL);
    for (int i = 0; i < INGEST_THREADS; i++) {
        struct lane *lane = &in->lanes[i];
        lane->in = in;
        lane->last = &lane->first;
        pthread_cond_init(&lane->work, NULL);
    }
    for (int i = 0; i < INGEST_THREADS; i++) {
        in->lanes[i].runs = pthread_create(&in->lanes[i].thread, NULL, run_lane, &in->lanes[i]) == 0;
        if (!in->lanes[i].runs) {
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
        pthread_cond_broadcast(&in->lanes[i].work);
    pthread_mutex_unlock(&in->lock);
    for (int i = 0; i < INGEST_THREADS; i++) {
        struct lane *lane = &in->lanes[i];
        if (lane->runs)
            pthread_join(lane->thread, NULL);
        for (struct waiting *w = lane->first, *next; w; w = next) {
            next = w->next;
            unref_locked(w->source);
            free(w);
        }
        for (struct await *a = lane->awaits, *next; a; a = next) {
            next = a->next;
            free(a);
        }
        pthread_cond_destroy(&lane->work);
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

void ingest_lead(struct ingest *in, int64_t epoch) {
    pthread_mutex_lock(&in->lock);
    in->epoch = epoch;
    for (int i = 0; i < INGEST_THREADS; i++)
        pthread_cond_broadcast(&in->lanes[i].work);
    pthread_mutex_unlock(&in->lock);
}

status_t ingest_source_start(struct ingest *in, const struct ingest_source_ops *ops, void *ctx,
                             struct ingest_source **ret, struct err *e) {
    struct ingest_source *source = calloc(1, sizeof *source);
    if (!source)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a report stream");
    *source = (struct ingest_source){ .in = in, .ops = *ops, .ctx = ctx, .refs = 1 };
    pthread_mutex_init(&source->lock, NULL);
    *ret = source;
    return ST_OK;
}

void ingest_source_stop(struct ingest_source *source) {
    struct ingest *in = source->in;
    pthread_mutex_lock(&source->lock);
    source->stopped = true;
    pthread_mutex_unlock(&source->lock);
    pthread_mutex_lock(&in->lock);
    unref_locked(source);
    pthread_mutex_unlock(&in->lock);
}

enum ingest_put ingest_put(struct ingest_source *source, const Trainyard__V1__ReportBatch *batch) {
    struct ingest *in = source->in;
    size_t n = trainyard__v1__report_batch__get_packed_size(batch);
    struct waiting *w = malloc(sizeof *w + n);
    if (!w)
        return INGEST_FULL; /* not taken: the agent sends it again on its next stream */
    *w = (struct waiting){ .source = source, .bytes = n };
    trainyard__v1__report_batch__pack(batch, w->packed);
    struct lane *lane = lane_of(in, batch->job, batch->rank);
    pthread_mutex_lock(&in->lock);
    *lane->last = w;
    lane->last = &w->next;
    source->refs++;
    in->bytes += n;
    bool full = in->bytes > INGEST_BYTES;
    if (full && !source->full) {
        source->full = true;
        source->refs++;
        source->next_full = in->full;
        in->full = source;
    }
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&in->lock);
    return full ? INGEST_FULL : INGEST_TAKEN;
}

void ingest_await(struct ingest *in, int64_t job, int attempt, int rank, int64_t sequence) {
    struct await *a = calloc(1, sizeof *a);
    assert(a);
    *a = (struct await){ .job = job, .attempt = attempt, .rank = rank, .sequence = sequence };
    struct lane *lane = lane_of(in, job, rank);
    pthread_mutex_lock(&in->lock);
    a->next = lane->awaits;
    lane->awaits = a;
    pthread_cond_signal(&lane->work);
    pthread_mutex_unlock(&in->lock);
}

void ingest_forget(struct ingest *in, int64_t job) {
    pthread_mutex_lock(&in->lock);
    for (int i = 0; i < INGEST_THREADS; i++)
        for (struct await **at = &in->lanes[i].awaits; *at;) {
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
