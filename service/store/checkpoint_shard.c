#include "service/store/checkpoint_shard.h"

#include "base/limits.h"
#include "service/store/job_lock.h"
#include "service/store/state.h"

#include <stdio.h>
#include <string.h>

/* The job's lock makes NOT EXISTS safe. ON CONFLICT would consume an id for each shard. */
static const struct sql CHECKPOINT_ADD = {
    "checkpoint_add", "INSERT INTO checkpoint (job, attempt, step, world_size, directory) SELECT $1, $2, $3, $4, $5 "
                      "WHERE NOT EXISTS (SELECT 1 FROM checkpoint WHERE job = $1 AND attempt = $2 AND step = $3)"
};
static const struct sql_query SHARD_ADD = {
    { "shard_add",
      "WITH k AS (SELECT id FROM checkpoint WHERE job = $1 AND attempt = $2 AND step = $3 "
      "AND state = " SQL_CHECKPOINT_WRITING " AND world_size = $4), "
      "s AS (INSERT INTO shard (checkpoint, rank, file, bytes, sha256) SELECT id, $5, $6, $7, $8 FROM k "
      "ON CONFLICT DO NOTHING RETURNING checkpoint) "
      "UPDATE checkpoint SET shards = shards + 1, bytes = bytes + $7, "
      "weights_sha256 = CASE WHEN $9 = '' THEN weights_sha256 ELSE $9 END, "
      "validation_loss = coalesce($10, validation_loss), final = final OR $11, "
      "state = CASE WHEN shards + 1 = world_size THEN " SQL_CHECKPOINT_COMMITTED " ELSE " SQL_CHECKPOINT_WRITING
      " END, commit_time = CASE WHEN shards + 1 = world_size THEN now() END "
      "FROM s WHERE id = s.checkpoint RETURNING {columns}" },
    SQL_SCALAR(int, "state")
};
struct checkpoint_row {
    int64_t id;
    enum store_checkpoint_state state;
    bool final;
    char weights_sha256[65];
};
static const struct sql_query SHARD_READ = {
    { "shard_read", "SELECT {columns} FROM checkpoint WHERE job = $1 AND attempt = $2 AND step = $3" },
    SQL_ROW(struct checkpoint_row, SQL_COLUMN(struct checkpoint_row, id, "id"),
            SQL_COLUMN(struct checkpoint_row, state, "state"), SQL_COLUMN(struct checkpoint_row, final, "final"),
            SQL_COLUMN(struct checkpoint_row, weights_sha256, "weights_sha256"))
};
static const struct sql JOB_WEIGHTS = { "job_weights", "UPDATE job SET weights_sha256 = $2 WHERE id = $1" };

/* 1 PiB: no file is larger, and the sum of LIMIT_WORLD_SIZE of them fits a bigint. */
#define MAX_SHARD_BYTES (INT64_C(1) << 50)

bool sha256_hex_valid(const char *text) { return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64; }

static status_t check(const struct store_batch *batch, const struct store_record *record, struct err *e) {
    if (record->shard.rank != batch->rank)
        return err_set(e, ST_INVALID_ARGUMENT, "rank %d reports a shard of rank %d", batch->rank, record->shard.rank);
    if (record->shard.world_size < 1 || record->shard.world_size > LIMIT_WORLD_SIZE ||
        record->shard.rank >= record->shard.world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "a shard of rank %d of %d", record->shard.rank,
                       record->shard.world_size);
    if (record->shard.step < 0 || record->shard.bytes < 0 || record->shard.bytes > MAX_SHARD_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "a shard of step %lld with %lld bytes", (long long)record->shard.step,
                       (long long)record->shard.bytes);
    if (!sha256_hex_valid(record->shard.sha256))
        return err_set(e, ST_INVALID_ARGUMENT, "a shard whose sha256 is not 64 hexadecimal digits");
    if (*record->shard.weights_sha256 && !sha256_hex_valid(record->shard.weights_sha256))
        return err_set(e, ST_INVALID_ARGUMENT, "a shard whose weights_sha256 is not 64 hexadecimal digits");
    return ST_OK;
}

/* The key of a checkpoint as three arguments of ARGS. */
#define ARGS_OF_KEY(b, r) arg_int8((b)->job), arg_int4((b)->attempt), arg_int8((r)->shard.step)

static status_t add_shard(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                          bool *ret_committed, struct err *e) {
    int state = 0;
    bool added;
    TRY(sql_find(c, NULL, &SHARD_ADD,
                 ARGS(ARGS_OF_KEY(batch, record), arg_int4(record->shard.world_size), arg_int4(record->shard.rank),
                      arg_text(record->shard.file), arg_int8(record->shard.bytes), arg_text(record->shard.sha256),
                      arg_text(record->shard.weights_sha256),
                      arg_if(record->shard.has_validation_loss, arg_double(record->shard.validation_loss)),
                      arg_bool(record->shard.final)),
                 &state, &added, e));
    *ret_committed = state == STORE_CHECKPOINT_COMMITTED;
    return ST_OK;
}

static status_t read_outcome(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                             struct shard_outcome *ret, struct checkpoint_row *row, struct err *e) {
    bool found;
    *row = (struct checkpoint_row){ 0 };
    TRY(sql_find(c, NULL, &SHARD_READ, ARGS(ARGS_OF_KEY(batch, record)), row, &found, e));
    *ret = (struct shard_outcome){ .checkpoint = row->id,
                                   .committed = row->state == STORE_CHECKPOINT_COMMITTED,
                                   .final = row->final };
    return ST_OK;
}

status_t checkpoint_shard_read(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                               struct shard_outcome *ret, struct err *e) {
    struct checkpoint_row row;
    return read_outcome(c, batch, record, ret, &row, e);
}

status_t checkpoint_shard_write(struct connection *c, const struct store_batch *batch,
                                const struct store_record *record, struct shard_outcome *ret, struct err *e) {
    struct checkpoint_row row;
    bool committed;
    TRY(check(batch, record, e));
    TRY(sql_execute(
        c, &CHECKPOINT_ADD,
        ARGS(ARGS_OF_KEY(batch, record), arg_int4(record->shard.world_size), arg_text(record->shard.directory)), NULL,
        e));
    TRY(add_shard(c, batch, record, &committed, e));
    TRY(read_outcome(c, batch, record, ret, &row, e));
    ret->changed = committed;
    if (!committed)
        return ST_OK;
    if (row.final && *row.weights_sha256)
        TRY(sql_execute(c, &JOB_WEIGHTS, ARGS(arg_int8(batch->job), arg_text(row.weights_sha256)), NULL, e));
    char sentence[64];
    snprintf(sentence, sizeof sentence, "step %lld", (long long)record->shard.step);
    return event_write(c, batch->job, batch->attempt, "checkpoint_committed", sentence, NULL, NULL, e);
}
