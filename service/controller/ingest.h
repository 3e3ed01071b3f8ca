/* What agents report in bulk, on its way into the database: batches from Report streams are decoded and written by a
 * few threads, each with a store_report of its own; a rank always goes to the same thread. While one write runs, what
 * arrives gathers for the next (group commit). Acknowledgements go out after the commit.
 *
 * Memory is bounded: past INGEST_BYTES of waiting batches ingest_put says INGEST_FULL, the stream stops reading, and
 * the agents' spools hold what comes after. So it is while PostgreSQL is away. */
#ifndef SERVICE_CONTROLLER_INGEST_H
#define SERVICE_CONTROLLER_INGEST_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/v1/dispatch.pb-c.h>

/* Batches that wait in memory, counted as their packed bytes: seconds of a thousand ranks. */
#define INGEST_BYTES   (64 << 20)
#define INGEST_THREADS 2

/* Where acknowledgements go: one per Report stream. Functions may be called from the ingest's threads until
 * ingest_source_stop has returned; they must not block. */
struct ingest_source;
struct ingest_source_ops {
    void (*ack)(void *ctx, const Trainyard__V1__ReportAck *ack);
    void (*room)(void *ctx); /* after INGEST_FULL: read again */
};

/* What the loop learns, after the commit. Called on the ingest's threads. */
struct ingest_listener {
    void (*stored)(void *ctx, int64_t job, int attempt, int rank, int64_t sequence); /* what ingest_await asked for */
    void (*checkpoint)(void *ctx, int64_t job, int attempt, int64_t step, bool final);
    void (*changed)(void *ctx, int64_t job); /* events, metrics or logs are new */
    void (*metric)(void *ctx, int64_t job, int attempt, int64_t step, const char *name, double value); /* of rank 0 */
    void *ctx;
};

struct ingest;
MUST_CHECK status_t ingest_open(struct store *store, const struct ingest_listener *listener, struct ingest **ret,
                                struct err *e);
struct ingest *ingest_close(struct ingest *in); /* every source must be stopped */
CLEANUP_DEFINE(struct ingest *, ingest_close)

/* Writing begins, or goes on, under this epoch. */
void ingest_lead(struct ingest *in, int64_t epoch);

MUST_CHECK status_t ingest_source_start(struct ingest *in, const struct ingest_source_ops *ops, void *ctx,
                                        struct ingest_source **ret, struct err *e);
/* Waits for a callback that runs; none comes afterwards. What was put is still stored. */
void ingest_source_stop(struct ingest_source *source);

enum ingest_put { INGEST_TAKEN, INGEST_FULL /* taken too; do not read on before room() */ };
/* The batch is copied. */
enum ingest_put ingest_put(struct ingest_source *source, const Trainyard__V1__ReportBatch *batch);

/* listener.stored is called once all of (job, attempt, rank) up to sequence is in the database, maybe at once. */
void ingest_await(struct ingest *in, int64_t job, int attempt, int rank, int64_t sequence);
/* The attempt is over: its waits and marks are forgotten. */
void ingest_forget(struct ingest *in, int64_t job);

#endif
