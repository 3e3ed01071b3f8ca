/* What workers report, stored exactly once.
 *
 * A batch is a run of records of one (job, attempt, rank) with consecutive sequence numbers. Records up to the rank's
 * high-water mark are skipped; a gap is refused; the mark moves in the same transaction as the records' rows. Batches
 * of many ranks share one transaction: gather what has arrived while the last one ran, and store it all.
 *
 *     struct store_report *r;  TRY(store_report_open(s, epoch, &r, e));
 *     TRY(store_report_write(r, batches, n, results, e));      // committed, or nothing is stored
 *     for each result: acknowledge (sequence), or fence (fenced), or ask again (gap)
 *
 * UNAVAILABLE, DEADLINE_EXCEEDED and ABORTED: call again with the same batches; what was stored is then skipped.
 * FAILED_PRECONDITION: the epoch is over. Nothing in a record fails the call: what cannot be stored (a name too long,
 * more than STORE_SERIES_PER_RANK names, whatever PostgreSQL itself refuses) is dropped and told by an event
 * "records_dropped".
 *
 * A writer keeps the unfilled chunk of each live series in memory (at most STORE_REPORT_RANKS ranks; the longest unused
 * are forgotten, and read again from their rows when they report). It belongs to one thread; ranks may be divided over
 * several writers, as long as a rank always goes to the same one. */
#ifndef SERVICE_STORE_REPORT_H
#define SERVICE_STORE_REPORT_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* Points of one chunk's row, all of it inline: 1,920 bytes of values and most often less than 500 of times. */
#define STORE_CHUNK_POINTS 240
/* Names that one rank may report: the engine has some twenty, and when asked one for each parameter (80 layers of Llama
 * have 723). */
#define STORE_SERIES_PER_RANK 1024
/* Ranks whose unfilled chunks a writer keeps: 4,096 x 10 series x 5 KiB = 200 MiB; a rank that tells every
 * parameter's norm has up to 5 MiB. */
#define STORE_REPORT_RANKS 4096
/* Log text kept of one job; what comes after it is dropped and told. */
#define STORE_LOG_BYTES_PER_JOB (256LL << 20)

enum store_record_kind {
    STORE_RECORD_NONE, /* counts in the sequence, stores nothing */
    STORE_RECORD_METRICS,
    STORE_RECORD_LOG,
    STORE_RECORD_NOTICE,
    STORE_RECORD_SHARD,
    STORE_RECORD_END,
    STORE_RECORD_CHOSEN,
};

/* What a job's stored spec (n bytes) becomes by a plan: *ret newly allocated, NULL when it stays as it is.
 * INVALID_ARGUMENT: the plan does not fit. Called in a transaction, perhaps again. */
typedef status_t store_chosen_fn(const void *plan, const void *spec, size_t n, void **ret, size_t *ret_n,
                                 struct err *e);

/* All pointers belong to the caller and are read during the call only. */
struct store_record {
    enum store_record_kind kind;
    int64_t time_us;
    union {
        struct {
            int64_t step;
            size_t n;
            char *const *names; /* [n] */
            const double *values;
        } metrics;
        struct {
            const char *stream, *text;
        } log;
        struct {
            const char *kind, *message;
        } notice;
        struct {
            int64_t step;
            int rank, world_size;
            const char *directory, *file;
            int64_t bytes;
            const char *sha256, *weights_sha256; /* hex; weights_sha256 may be "" */
            bool has_validation_loss, final;
            double validation_loss;
        } shard;
        struct {
            store_chosen_fn *apply;
            const void *plan; /* its argument */
        } chosen;             /* of rank 0; another's is dropped */
        struct {
            int cause; /* WorkerEnd.Cause */
            const char *message;
            int64_t step;
            const char *weights_sha256; /* "" = not known */
        } end;
    };
};

struct store_batch {
    int64_t job;
    int attempt, rank;
    int64_t first_sequence;
    const struct store_record *records;
    size_t n;
};

/* Of the checkpoints that became COMMITTED: at most this many per batch are told; the agent's batches hold fewer. */
#define STORE_COMMITTED_PER_BATCH 8
struct store_batch_result {
    bool fenced;        /* the attempt is not the job's current one, or has ended: nothing was stored */
    bool gap;           /* the batch starts after sequence + 1: nothing was stored */
    int64_t sequence;   /* the rank's high-water mark now */
    int64_t last_event; /* the newest event of the job, after this write */
    int64_t step;       /* the highest step of its metric rows; 0 = none */
    int n_committed;    /* checkpoints of this batch whose last shard was in it */
    struct {
        int64_t checkpoint, step;
        bool final;
    } committed[STORE_COMMITTED_PER_BATCH];
};

struct store_report;
MUST_CHECK status_t store_report_open(struct store *s, int64_t epoch, struct store_report **ret, struct err *e);
struct store_report *store_report_close(struct store_report *r);
CLEANUP_DEFINE(struct store_report *, store_report_close)

/* results: [n]. Two batches of the same rank may stand in one call, in order. */
MUST_CHECK status_t store_report_write(struct store_report *r, const struct store_batch *batches, size_t n,
                                       struct store_batch_result *results, struct err *e);

#endif
