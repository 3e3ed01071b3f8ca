#include "service/store/checkpoint_shard.h"

#include "base/limits.h"
#include "service/store/job_lock.h"
#include "service/store/state.h"

#include <stdio.h>
#include <string.h>

/* The job's lock makes this safe; ON CONFLICT would use up an id for each shard. */
static const struct sql CHECKPOINT_ADD = {
    "checkpoint_add", "INSERT INTO checkpoint (job, attempt, step, world_size, directory) SELECT $1, $2, $3, $4, $5 "
                      "WHERE NOT EXISTS (SELECT 1 FROM checkpoint WHERE job = $1 AND attempt = $2 AND step = $3)"
};
static const struct sql SHARD_ADD = {
    "shard_add",
    "WITH k AS (SELECT id FROM checkpoint WHERE job = $1 AND attempt = $2 AND step = $3 "
    "AND state = " SQL_CHECKPOINT_WRITING " AND world_size = $4), "
    "s AS (INSERT INTO shard (checkpoint, rank, file, bytes, sha256) SELECT id, $5, $6, $7, $8 FROM k "
    "ON CONFLICT DO NOTHING RETURNING checkpoint) "
    "UPDATE checkpoint SET shards = shards + 1, bytes = bytes + $7, "
    "weights_sha256 = CASE WHEN $9 = '' THEN weights_sha256 ELSE $9 END, "
    "validation_loss = coalesce($10, validation_loss), final = final OR $11, "
    "state = CASE WHEN shards + 1 = world_size THEN " SQL_CHECKPOINT_COMMITTED " ELSE " SQL_CHECKPOINT_WRITING " END, "
    "commit_time = CASE WHEN shards + 1 = world_size THEN now() END FROM s WHERE id = s.checkpoint RETURNING state"
};
static const struct sql SHARD_READ = {
    "shard_read",
    "SELECT id, state, final, weights_sha256 FROM checkpoint WHERE job = $1 AND attempt = $2 AND step = $3"
};
static const struct sql JOB_WEIGHTS = { "job_weights", "UPDATE job SET weights_sha256 = $2 WHERE id = $1" };

/* A file of a PiB is none, and the sum of LIMIT_WORLD_SIZE of them is still a bigint. */
#define SHARD_BYTES_MOST (INT64_C(1) << 50)

bool sha256_hex_valid(const char *text) { return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64; }

static status_t check(const struct store_batch *batch, const struct store_record *record, struct err *e) {
    if (record->shard.rank != batch->rank)
        return err_set(e, ST_INVALID_ARGUMENT, "rank %d reports a shard of rank %d", batch->rank, record->shard.rank);
    if (record->shard.world_size < 1 || record->shard.world_size > LIMIT_WORLD_SIZE ||
        record->shard.rank >= record->shard.world_size)
        return err_set(e, ST_INVALID_ARGUMENT, "a shard of rank %d of %d", record->shard.rank,
                       record->shard.world_size);
    if (record->shard.step < 0 || record->shard.bytes < 0 || record->shard.bytes > SHARD_BYTES_MOST)
        return err_set(e, ST_INVALID_ARGUMENT, "a shard of step %lld with %lld bytes", (long long)record->shard.step,
                       (long long)record->shard.bytes);
    if (!sha256_hex_valid(record->shard.sha256))
        return err_set(e, ST_INVALID_ARGUMENT, "a shard whose sha256 is not 64 hexadecimal digits");
    if (*record->shard.weights_sha256 && !sha256_hex_valid(record->shard.weights_sha256))
        return err_set(e, ST_INVALID_ARGUMENT, "a shard whose weights_sha256 is not 64 hexadecimal digits");
    return ST_OK;
}

static void add_key(struct sql_args *a, const struct store_batch *batch, const struct store_record *record) {
    sql_add_int8(a, batch->job);
    sql_add_int4(a, batch->attempt);
    sql_add_int8(a, record->shard.step);
}

static status_t add_checkpoint(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                               struct err *e) {
    struct sql_args a = { 0 };
    add_key(&a, batch, record);
    sql_add_int4(&a, record->shard.world_size);
    sql_add_text(&a, record->shard.directory);
    return sql_run(c, &CHECKPOINT_ADD, &a, NULL, e);
}

static status_t add_shard(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                          bool *ret_committed, struct err *e) {
    struct sql_args a = { 0 };
    add_key(&a, batch, record);
    sql_add_int4(&a, record->shard.world_size);
    sql_add_int4(&a, record->shard.rank);
    sql_add_text(&a, record->shard.file);
    sql_add_int8(&a, record->shard.bytes);
    sql_add_text(&a, record->shard.sha256);
    sql_add_text(&a, record->shard.weights_sha256);
    if (record->shard.has_validation_loss)
        sql_add_double(&a, record->shard.validation_loss);
    else
        sql_add_null_double(&a);
    sql_add_bool(&a, record->shard.final);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &SHARD_ADD, &a, &r, e));
    *ret_committed = PQntuples(r) > 0 && sql_int2(r, 0, 0) == STORE_CHECKPOINT_COMMITTED;
    return ST_OK;
}

static status_t read_outcome(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                             struct shard_outcome *ret, PGresult **ret_row, struct err *e) {
    struct sql_args a = { 0 };
    add_key(&a, batch, record);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &SHARD_READ, &a, &r, e));
    *ret = (struct shard_outcome){ 0 };
    if (PQntuples(r) > 0) {
        ret->checkpoint = sql_int8(r, 0, 0);
        ret->committed = sql_int2(r, 0, 1) == STORE_CHECKPOINT_COMMITTED;
        ret->final = sql_bool(r, 0, 2);
    }
    *ret_row = take_ptr(&r);
    return ST_OK;
}

status_t checkpoint_shard_read(struct connection *c, const struct store_batch *batch, const struct store_record *record,
                               struct shard_outcome *ret, struct err *e) {
    CLEANUP(sql_clearp) PGresult *r = NULL;
    return read_outcome(c, batch, record, ret, &r, e);
}

status_t checkpoint_shard_write(struct connection *c, const struct store_batch *batch,
                                const struct store_record *record, struct shard_outcome *ret, struct err *e) {
    TRY(check(batch, record, e));
    TRY(add_checkpoint(c, batch, record, e));
    bool committed = false;
    TRY(add_shard(c, batch, record, &committed, e));
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(read_outcome(c, batch, record, ret, &r, e));
    ret->changed = committed;
    if (!committed)
        return ST_OK;
    const char *weights = sql_text(r, 0, 3);
    if (ret->final && *weights) {
        struct sql_args a = { 0 };
        sql_add_int8(&a, batch->job);
        sql_add_text(&a, weights);
        TRY(sql_run(c, &JOB_WEIGHTS, &a, NULL, e));
    }
    char sentence[64];
    snprintf(sentence, sizeof sentence, "step %lld", (long long)record->shard.step);
    return event_write(c, batch->job, batch->attempt, "checkpoint_committed", sentence, NULL, NULL, e);
}
