#include "service/store/artifact.h"

#include "base/utf8.h"
#include "service/store/checkpoint_shard.h"
#include "service/store/pool.h"
#include "service/store/sql.h"

#include <string.h>

/* The number of rows is counted only if the path is new. */
static const struct sql ARTIFACT_PUT = {
    "artifact_put", "INSERT INTO artifact (job, path, attempt, rank, bytes, sha256, time) "
                    "SELECT $1, $2, $3, $4, $5, $6, $7 WHERE EXISTS (SELECT 1 FROM artifact WHERE job = $1 "
                    "AND path = $2) OR (SELECT count(*) FROM artifact WHERE job = $1) < $8 "
                    "ON CONFLICT (job, path) DO UPDATE SET attempt = $3, rank = $4, bytes = $5, sha256 = $6, time = $7"
};
static const struct sql_query ARTIFACT_LIST = {
    { "artifact_list", "SELECT {columns} FROM artifact WHERE job = $1 ORDER BY path OFFSET $2 LIMIT $3" },
    SQL_ROW(struct store_artifact, SQL_COLUMN(struct store_artifact, path, "path"),
            SQL_COLUMN(struct store_artifact, sha256, "sha256"), SQL_COLUMN(struct store_artifact, bytes, "bytes"),
            SQL_COLUMN(struct store_artifact, time_us, "time"), SQL_COLUMN(struct store_artifact, attempt, "attempt"),
            SQL_COLUMN(struct store_artifact, rank, "rank"))
};
static const struct sql_query ARTIFACT_ATTEMPT = { { "artifact_attempt",
                                                     "SELECT {columns} FROM artifact WHERE job = $1 AND path = $2" },
                                                   SQL_SCALAR(int, "coalesce(max(attempt), 0)") };

status_t artifact_write(struct connection *c, int64_t job, int attempt, int rank, const struct store_record *record,
                        struct err *e) {
    const char *path = record->artifact.path;
    const size_t n = strlen(path);
    int64_t rows;
    if (n == 0 || n > STORE_ARTIFACT_PATH || !utf8_valid(path, n) || !sha256_hex_valid(record->artifact.sha256) ||
        record->artifact.bytes < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "an artifact has a path of 1 to %d bytes, a size and a SHA-256",
                       STORE_ARTIFACT_PATH);
    TRY(sql_execute(c, &ARTIFACT_PUT,
                    ARGS(arg_int8(job), arg_text(path), arg_int4(attempt), arg_int4(rank),
                         arg_int8(record->artifact.bytes), arg_text(record->artifact.sha256), arg_time(record->time_us),
                         arg_int8(STORE_ARTIFACTS_PER_JOB)),
                    &rows, e));
    return rows > 0 ? ST_OK
                    : err_set(e, ST_RESOURCE_EXHAUSTED, "a job lists at most %d artifacts", STORE_ARTIFACTS_PER_JOB);
}

status_t store_artifact_list(struct store *s, struct store_memory *m, int64_t job, int64_t skip, int limit,
                             struct store_artifact **ret, size_t *ret_n, struct err *e) {
    return store_rows(s, m, &ARTIFACT_LIST, ARGS(arg_int8(job), arg_int8(skip), arg_int4(limit)), ret, ret_n, e);
}

static status_t read_attempt(struct connection *c, int64_t job, const char *path, int *ret, struct err *e) {
    return sql_get(c, NULL, &ARTIFACT_ATTEMPT, ARGS(arg_int8(job), arg_text(path)), ret, "PostgreSQL returned no count",
                   e);
}

status_t store_artifact_attempt(struct store *s, int64_t job, const char *path, int *ret, struct err *e) {
    return STORE_READ(s, c, read_attempt(c, job, path, ret, e), e);
}
