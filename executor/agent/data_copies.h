/* The remote data of attempts on this host. trainyard-data (executor/data) copies the objects that the URIs of a spec
 * name into the cache, which several executors may share, reports to the ranks where they are, and keeps them in use
 * until the attempt ends.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_DATA_COPIES_H
#define EXECUTOR_AGENT_DATA_COPIES_H

#include "base/status.h"
#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct data_copies;

struct data_copies_owner {
    void *ctx;
    void (*report)(void *ctx, int64_t job, int32_t attempt, Trainyard__V1__DataReport *report);
};

struct data_copies *data_copies_new(const struct host *host, const struct data_copies_owner *owner);
struct data_copies *data_copies_free(struct data_copies *ds); /* NULL is fine; returns NULL */

/* Makes the folder of the copies. If this host cannot have copies, host->no_data says why, and so does the log. */
void data_cache_open(struct host *host);

/* Where the bytes of all copies since the start of the agent came from. */
struct data_copies_bytes {
    int64_t store, peer, cache;
};
struct data_copies_bytes data_copies_bytes(const struct data_copies *ds);

/* Whether the job has remote data. */
bool data_copies_needed(const Trainyard__V1__JobSpec *spec);

/* Begins to copy, if the job of the attempt has remote data. The keys of the order are copied. A failure that comes
 * later is reported. FAILED_PRECONDITION: this host cannot have copies. */
MUST_CHECK status_t data_copies_start(struct data_copies *ds, const Trainyard__V1__AttemptStart *order, struct err *e);
/* No attempt has remote data. */
bool data_copies_is_empty(const struct data_copies *ds);
/* The attempt has ended: copying stops, and the copies are no longer in use. */
void data_copies_remove(struct data_copies *ds, int64_t job, int32_t attempt);

#endif
