/* A shard's report, inside the transaction that stores the report. Internal to the store. */
#ifndef SERVICE_STORE_CHECKPOINT_SHARD_H
#define SERVICE_STORE_CHECKPOINT_SHARD_H

#include "service/store/report.h"
#include "service/store/sql.h"

struct shard_outcome {
    bool committed; /* the checkpoint is COMMITTED now */
    bool changed;   /* by this shard: an event was written */
    int64_t checkpoint;
    bool final;
};
/* The job's row is locked. A shard that is known changes nothing. INVALID_ARGUMENT, with nothing stored, for a report
 * that cannot be true. */
MUST_CHECK status_t checkpoint_shard_write(struct connection *c, const struct store_batch *batch,
                                           const struct store_record *record, struct shard_outcome *ret, struct err *e);
/* The same answer for a shard that was stored before. */
MUST_CHECK status_t checkpoint_shard_read(struct connection *c, const struct store_batch *batch,
                                          const struct store_record *record, struct shard_outcome *ret, struct err *e);

/* 64 lower-case hexadecimal digits. */
bool sha256_hex_valid(const char *text);

#endif
