/* Writes the records that agents report to the database. INGEST_THREADS threads decode and write the batches of all
 * Report streams; a rank always goes to the same thread. While one write runs, further batches wait for the next (group
 * commit). Acknowledgements go out after the commit.
 *
 * Memory is bounded: when more than INGEST_BYTES of batches wait, ingest_put returns INGEST_FULL, the stream stops
 * reading, and the agents' spools keep the records. The same happens while PostgreSQL is unreachable. */
#ifndef SERVICE_CONTROLLER_INGEST_H
#define SERVICE_CONTROLLER_INGEST_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/v1/dispatch.pb-c.h>

/* Memory of waiting batches: a few seconds of a thousand ranks. */
#define INGEST_BYTES   (64 << 20)
#define INGEST_THREADS 2

/* A Report stream. The ingest's threads may call its functions until ingest_source_stop has returned; they must not
 * block. */
struct ingest_source;
struct ingest_source_ops {
    void (*ack)(void *ctx, const Trainyard__V1__ReportAck *ack);
    void (*resume)(void *ctx); /* after INGEST_FULL: read again */
    /* Ends the stream. The agent opens another one, asks for the mark of each rank and continues from there. */
    void (*end)(void *ctx, status_t st, const char *why);
};

/* Called on the ingest's threads after a commit. The functions may block for a while. */
struct ingest_listener {
    void (*stored)(void *ctx, int64_t job, int attempt, int rank, int64_t sequence); /* see ingest_await */
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

/* Writes under this epoch from now on; 0: stops writing. Streams of an earlier epoch end, and rows are read again: they
 * may come from a backup. */
void ingest_lead(struct ingest *in, int64_t epoch);

struct ingest_source *ingest_source_start(struct ingest *in, const struct ingest_source_ops *ops, void *ctx);
/* Waits for a running callback; no callback follows. Batches that were put are still stored. */
void ingest_source_stop(struct ingest_source *source);

enum ingest_put {
    INGEST_TAKEN,
    INGEST_FULL,   /* the batch was taken; stop reading until resume() */
    INGEST_REFUSED /* not taken, no memory: end the stream, so that the agent sends the batch again */
};
/* The batch is copied. */
enum ingest_put ingest_put(struct ingest_source *source, const Trainyard__V1__ReportBatch *batch);

/* Calls listener.stored once all records of (job, attempt, rank) up to sequence are stored, perhaps at once. */
void ingest_await(struct ingest *in, int64_t job, int attempt, int rank, int64_t sequence);
/* The attempt is over: drops its waits. */
void ingest_forget(struct ingest *in, int64_t job);

#endif
