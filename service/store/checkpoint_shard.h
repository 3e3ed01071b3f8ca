/* Reports of shards, inside the transaction that stores them. Internal to the store. */
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
/* The caller has locked the job's row. A shard that is stored already changes nothing. INVALID_ARGUMENT, with nothing
 * stored, for a report with impossible values. */
MUST_CHECK status_t checkpoint_shard_write(struct connection *c, const struct store_batch *batch,
                                           const struct store_record *record, struct shard_outcome *ret, struct err *e);
/* The same result for a shard that was stored before. */
MUST_CHECK status_t checkpoint_shard_read(struct connection *c, const struct store_batch *batch,
                                          const struct store_record *record, struct shard_outcome *ret, struct err *e);

/* 64 lower-case hexadecimal digits. */
bool sha256_hex_valid(const char *text);

#endif
