/* Stores the reports of workers exactly once.
 *
 * A batch has records of one (job, attempt, rank) with consecutive sequence numbers. Each rank has a high-water mark:
 * the number of its last stored record. Records up to the mark are skipped. A batch that starts after mark + 1 is a gap
 * and is refused. The mark moves in the transaction that stores the records. Batches of many ranks share one
 * transaction: collect the batches that arrive while a transaction runs, and store all of them with the next one.
 *
 * A gap appears if the database was rolled back to a time before an acknowledgement, or if a batch was lost on its way.
 * The sender then repeats the records after the mark. It declares the records that it no longer has in `lost`: the mark
 * skips them, an event "records_lost" names the missing records and steps, and the job's row counts them.
 *
 *     struct store_report *r = store_report_new(s, epoch);
 *     TRY(store_report_write(r, batches, n, results, e));      // committed, or nothing is stored
 *     for each result: acknowledge (sequence), or fence (fenced), or ask for the records again (gap)
 *
 * UNAVAILABLE, DEADLINE_EXCEEDED and ABORTED: call again with the same batches; records that were stored are skipped.
 * FAILED_PRECONDITION: the epoch is over. The content of a record never fails the call: a record that cannot be stored
 * (a name that is too long, more than STORE_SERIES_PER_RANK names, a value that PostgreSQL refuses) is dropped, and an
 * event "records_dropped" reports it.
 *
 * A writer keeps the unfilled chunk of each series in memory, in at most STORE_REPORT_BYTES and what one call needs.
 * The rank that was unused for longest is evicted, and read again from its rows when it reports. A writer belongs to
 * one thread. Ranks may be divided over several writers if each rank always uses the same one. */
#ifndef SERVICE_STORE_REPORT_H
#define SERVICE_STORE_REPORT_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* Points of one chunk. Its row is stored inline: 1,920 bytes of values, and usually less than 500 of times. */
#define STORE_CHUNK_POINTS 240
/* Names that one rank may report. The engine has about twenty, and on request one for each parameter: a Llama of 80
 * layers has 723. */
#define STORE_SERIES_PER_RANK 1024
/* Memory of the unfilled chunks that a writer keeps: those of 10,000 ranks with 10 series of 5 KiB. A rank that reports
 * the norm of every parameter uses up to 5 MiB. */
#define STORE_REPORT_BYTES ((size_t)512 << 20)
/* Log text stored of one job. Later lines are dropped, and an event reports that. */
#define STORE_LOG_BYTES_PER_JOB (256LL << 20)

enum store_record_kind {
    STORE_RECORD_NONE, /* counts in the sequence, stores nothing */
    STORE_RECORD_METRICS,
    STORE_RECORD_LOG,
    STORE_RECORD_NOTICE,
    STORE_RECORD_SHARD,
    STORE_RECORD_END,
    STORE_RECORD_RESOLVED_PLAN,
    STORE_RECORD_ARTIFACT,
    STORE_RECORD_JOINED, /* the rank has joined: only its time counts */
};

/* Applies a resolved plan to a job's stored spec (n bytes): *ret is the new spec, newly allocated, or NULL if nothing
 * changes. INVALID_ARGUMENT: the plan does not fit the spec. Called in a transaction, perhaps several times. */
typedef status_t store_apply_plan_fn(const void *plan, const void *spec, size_t n, void **ret, size_t *ret_n,
                                     struct err *e);

/* All pointers belong to the caller and are read only during the call. */
struct store_record {
    enum store_record_kind kind;
    int64_t time_us;
    union {
        struct {
            int64_t step;
            size_t n;
            char *const *names; /* [n] */
            const double *values;
            bool per_rank; /* of this rank alone; else of the whole gang */
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
            const char *path, *sha256; /* sha256: hex */
            int64_t bytes;
        } artifact;
        struct {
            store_apply_plan_fn *apply;
            const void *plan; /* its argument */
        } resolved_plan;      /* of rank 0; that of another rank is dropped */
        struct {
            int cause; /* WorkerEnd.Cause */
            const char *message;
            int64_t step;
            const char *weights_sha256; /* "" = not known */
            bool as_asked;              /* all steps done, or stopped on request: the last checkpoint is written */
        } end;
    };
};

struct store_batch {
    int64_t job;
    int attempt, rank;
    int64_t first_sequence; /* of records[0], from 1 on; a batch without records reads the mark */
    const struct store_record *records;
    size_t n;
    int64_t lost;         /* number of records before the first one that no longer exist; below first_sequence */
    const char *executor; /* the sender; never NULL */
};

/* How many checkpoints that became COMMITTED a result can report. An agent's batch completes fewer. */
#define STORE_COMMITTED_PER_BATCH 8
struct store_batch_result {
    bool fenced;        /* the attempt is not the job's current one, or has ended, or placed the rank on another
                           executor: nothing was stored */
    bool gap;           /* the batch starts after sequence + 1, or its number is invalid: nothing was stored */
    int64_t lost;       /* records that the mark skipped */
    int64_t sequence;   /* the rank's high-water mark now */
    int64_t last_event; /* the newest event of the job, after this write */
    int64_t step;       /* the highest step of its metric rows; 0 = none */
    int n_committed;    /* checkpoints whose last shard was in this batch */
    struct {
        int64_t checkpoint, step;
        bool final;
    } committed[STORE_COMMITTED_PER_BATCH];
};

struct store_report;
struct store_report *store_report_new(struct store *s, int64_t epoch);
struct store_report *store_report_free(struct store_report *r);
CLEANUP_DEFINE(struct store_report *, store_report_free)

/* results: [n]. One call may have several batches of the same rank, in order. */
MUST_CHECK status_t store_report_write(struct store_report *r, const struct store_batch *batches, size_t n,
                                       struct store_batch_result *results, struct err *e);

#endif
