/* Archives of program code.
 *
 * The row of an archive is the lock of its chunks: each function that writes locks it first, then the row of the sum.
 * store_code_put inserts the archive's row if it is the first call, and adds its size to the sum under the limit; then
 * it inserts the chunk. A chunk that exists is left as it is, so that uploads at the same time and repeated calls
 * agree.
 *
 * store_code_collect locks the row of an old archive before it searches for a job that refers to it. A job that is
 * being created locks the same row by its foreign key: either that row is gone, and the creation fails, or the search
 * finds the job. */
#include "service/store/code.h"

#include "base/crc32c.h"
#include "base/limits.h"
#include "service/store/job_code.h"
#include "service/store/pool.h"

#define TEXT_OF(n)  TEXT_OF_(n)
#define TEXT_OF_(n) #n

static const struct sql CODE_USE = { "code_use",
                                     "UPDATE code_archive SET use_time = now() WHERE sha256 = $1 AND "
                                     "use_time < now() - interval '1 minute' * " TEXT_OF(STORE_CODE_USE_MINUTES) };
struct archive {
    int64_t bytes;
    bool complete;
};
#define ARCHIVE                                                                                                        \
    SQL_ROW(struct archive, SQL_COLUMN(struct archive, bytes, "bytes"),                                                \
            SQL_COLUMN(struct archive, complete, "complete_time IS NOT NULL"))
static const struct sql_query CODE_GET = { { "code_get", "SELECT {columns} FROM code_archive WHERE sha256 = $1" },
                                           ARCHIVE };
static const struct sql_query CODE_LOCK = {
    { "code_lock", "SELECT {columns} FROM code_archive WHERE sha256 = $1 FOR UPDATE" }, ARCHIVE
};
static const struct sql_query CODE_NEXT = { { "code_next",
                                              "SELECT {columns} FROM generate_series(0, $2 - 1) n WHERE NOT EXISTS "
                                              "(SELECT 1 FROM code_chunk WHERE archive = $1 AND number = n)" },
                                            SQL_SCALAR(int, "coalesce(min(n), $2)") };
static const struct sql CODE_BEGIN = {
    "code_begin", "INSERT INTO code_archive (sha256, bytes) VALUES ($1, $2) ON CONFLICT DO NOTHING"
};
static const struct sql CODE_ADD = { "code_add", "UPDATE code_total SET bytes = bytes + $1 WHERE bytes + $1 <= $2" };
static const struct sql CODE_PUT = {
    "code_put", "INSERT INTO code_chunk (archive, number, crc32c, data) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING"
};
static const struct sql_query CODE_CHUNK = {
    { "code_chunk", "SELECT {columns} FROM code_archive a JOIN code_chunk c ON c.archive = a.sha256 "
                    "WHERE a.sha256 = $1 AND c.number = $2" },
    SQL_ROW(struct store_code_chunk, SQL_COLUMN(struct store_code_chunk, bytes, "a.bytes"),
            SQL_COLUMN(struct store_code_chunk, complete, "a.complete_time IS NOT NULL"),
            SQL_COLUMN_BYTES(struct store_code_chunk, data, n, "c.data"),
            SQL_COLUMN(struct store_code_chunk, crc32c, "c.crc32c"))
};
static const struct sql CODE_COMPLETE = {
    "code_complete", "UPDATE code_archive a SET complete_time = coalesce(complete_time, now()) WHERE sha256 = $1 AND "
                     "(SELECT sum(length(data)) FROM code_chunk WHERE archive = $1) = a.bytes"
};
static const struct sql CODE_INCOMPLETE = {
    "code_incomplete", "UPDATE code_archive SET complete_time = NULL, use_time = now() WHERE sha256 = $1"
};
static const struct sql CODE_RESTART = {
    "code_restart", "UPDATE code_archive SET use_time = now() WHERE sha256 = $1 AND complete_time IS NULL"
};
static const struct sql CODE_DROP = { "code_drop", "DELETE FROM code_chunk WHERE archive = $1" };
/* The locked rows are in other hands: a job is being created, or a chunk stored. */
struct unused {
    const uint8_t *archive;
    int64_t bytes;
};
#define UNUSED "NOT EXISTS (SELECT 1 FROM job_code j WHERE j.archive = a.sha256)"
static const struct sql_query CODE_UNUSED = {
    { "code_unused",
      "SELECT {columns} FROM code_archive a WHERE use_time < now() - CASE WHEN complete_time IS NULL "
      "THEN interval '1 minute' * " TEXT_OF(STORE_CODE_UNFINISHED_MINUTES) " ELSE interval '1 hour' * " TEXT_OF(
          STORE_CODE_KEEP_HOURS) " END AND " UNUSED " ORDER BY use_time LIMIT 1 FOR UPDATE SKIP LOCKED" },
    SQL_ROW(struct unused, SQL_COLUMN(struct unused, archive, "sha256"), SQL_COLUMN(struct unused, bytes, "bytes"))
};
static const struct sql CODE_DELETE = { "code_delete", "DELETE FROM code_archive a WHERE sha256 = $1 AND " UNUSED };
static const struct sql CODE_SUBTRACT = { "code_subtract", "UPDATE code_total SET bytes = bytes - $1" };
static const struct sql_query CODE_TOTAL = { { "code_total", "SELECT {columns} FROM code_total" },
                                             SQL_SCALAR(int64_t, "bytes") };
static const struct sql JOB_CODE = { "job_code",
                                     "INSERT INTO job_code (job, archive) SELECT $1, sha256 FROM code_archive "
                                     "WHERE sha256 = $2 AND complete_time IS NOT NULL FOR KEY SHARE" };

static struct sql_arg arg_archive(const uint8_t *archive) { return arg_bytes(archive, STORE_CODE_DIGEST); }

static int chunks_of(int64_t bytes) { return (int)((bytes + LIMIT_CODE_CHUNK_BYTES - 1) / LIMIT_CODE_CHUNK_BYTES); }

static status_t describe(struct connection *c, const uint8_t *archive, const struct archive *row,
                         struct store_code *ret, struct err *e) {
    *ret = (struct store_code){ .bytes = row->bytes, .complete = row->complete, .chunks = chunks_of(row->bytes) };
    ret->next_chunk = ret->chunks;
    if (row->complete)
        return ST_OK;
    return sql_get(c, NULL, &CODE_NEXT, ARGS(arg_archive(archive), arg_int4(ret->chunks)), &ret->next_chunk,
                   "PostgreSQL returned no number of a chunk", e);
}

static status_t get_code(struct connection *c, const uint8_t *archive, struct store_code *ret, struct err *e) {
    struct archive row;
    bool found;
    *ret = (struct store_code){ 0 };
    TRY(sql_execute(c, &CODE_USE, ARGS(arg_archive(archive)), NULL, e));
    TRY(sql_find(c, NULL, &CODE_GET, ARGS(arg_archive(archive)), &row, &found, e));
    return found ? describe(c, archive, &row, ret, e) : ST_OK;
}

status_t store_code_get(struct store *s, int64_t epoch, const uint8_t *archive, struct store_code *ret, struct err *e) {
    return STORE_WRITE(s, epoch, c, get_code(c, archive, ret, e), e);
}

/* ---- upload ---- */

static status_t begin_code(struct connection *c, const struct store_code_put *put, struct err *e) {
    int64_t n;
    TRY(sql_execute(c, &CODE_BEGIN, ARGS(arg_archive(put->archive), arg_int8(put->bytes)), &n, e));
    if (n == 0)
        return ST_OK;
    TRY(sql_execute(c, &CODE_ADD, ARGS(arg_int8(put->bytes), arg_int8(put->total_bytes)), &n, e));
    return n ? ST_OK
             : err_set(e, ST_RESOURCE_EXHAUSTED,
                       "the archives of code have %lld MiB, their maximum (--code-mib): delete jobs that are no longer "
                       "needed; an archive is deleted when it was not used for %d hours",
                       (long long)(put->total_bytes >> 20), STORE_CODE_KEEP_HOURS);
}

static status_t put_code(struct connection *c, const struct store_code_put *put, struct store_code *ret,
                         struct err *e) {
    struct archive row;
    bool found;
    TRY(begin_code(c, put, e));
    TRY(sql_find(c, NULL, &CODE_LOCK, ARGS(arg_archive(put->archive)), &row, &found, e));
    if (!found)
        return err_set(e, ST_ABORTED, "the archive was deleted meanwhile");
    if (row.bytes != put->bytes)
        return err_set(e, ST_INVALID_ARGUMENT, "bytes: the archive was begun with %lld bytes, not %lld",
                       (long long)row.bytes, (long long)put->bytes);
    if (!row.complete) {
        TRY(sql_execute(c, &CODE_PUT,
                        ARGS(arg_archive(put->archive), arg_int4(put->chunk), arg_int8(crc32c(0, put->data, put->n)),
                             arg_bytes(put->data, put->n)),
                        NULL, e));
        TRY(sql_execute(c, &CODE_USE, ARGS(arg_archive(put->archive)), NULL, e));
    }
    return describe(c, put->archive, &row, ret, e);
}

static status_t check_put(const struct store_code_put *put, struct err *e) {
    if (put->bytes < 1 || put->bytes > LIMIT_CODE_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "bytes: %lld is not from 1 to %lld", (long long)put->bytes,
                       LIMIT_CODE_BYTES);
    if (put->chunk < 0 || put->chunk >= chunks_of(put->bytes))
        return err_set(e, ST_INVALID_ARGUMENT, "chunk: %d is not from 0 to %d", put->chunk, chunks_of(put->bytes) - 1);
    const int64_t rest = put->bytes - (int64_t)put->chunk * LIMIT_CODE_CHUNK_BYTES;
    const int64_t expected = rest < LIMIT_CODE_CHUNK_BYTES ? rest : LIMIT_CODE_CHUNK_BYTES;
    if ((int64_t)put->n != expected)
        return err_set(e, ST_INVALID_ARGUMENT, "data: chunk %d has %lld bytes, not %zu", put->chunk,
                       (long long)expected, put->n);
    return ST_OK;
}

status_t store_code_put(struct store *s, int64_t epoch, const struct store_code_put *put, struct store_code *ret,
                        struct err *e) {
    TRY(check_put(put, e));
    return STORE_WRITE(s, epoch, c, put_code(c, put, ret, e), e);
}

status_t store_code_complete(struct store *s, int64_t epoch, const uint8_t *archive, struct err *e) {
    int64_t n;
    TRY(STORE_WRITE(s, epoch, c, sql_execute(c, &CODE_COMPLETE, ARGS(arg_archive(archive)), &n, e), e));
    return n ? ST_OK : err_set(e, ST_ABORTED, "a chunk of the archive is missing");
}

static status_t drop_code(struct connection *c, const uint8_t *archive, struct err *e) {
    TRY(sql_execute(c, &CODE_INCOMPLETE, ARGS(arg_archive(archive)), NULL, e));
    return sql_execute(c, &CODE_DROP, ARGS(arg_archive(archive)), NULL, e);
}

status_t store_code_drop(struct store *s, int64_t epoch, const uint8_t *archive, struct err *e) {
    return STORE_WRITE(s, epoch, c, drop_code(c, archive, e), e);
}

static status_t restart_code(struct connection *c, const uint8_t *archive, struct err *e) {
    int64_t n;
    TRY(sql_execute(c, &CODE_RESTART, ARGS(arg_archive(archive)), &n, e));
    if (n == 0)
        return err_set(e, ST_ABORTED, "the archive was completed or deleted meanwhile");
    return sql_execute(c, &CODE_DROP, ARGS(arg_archive(archive)), NULL, e);
}

status_t store_code_restart(struct store *s, int64_t epoch, const uint8_t *archive, struct err *e) {
    return STORE_WRITE(s, epoch, c, restart_code(c, archive, e), e);
}

/* ---- download ---- */

status_t store_code_chunk(struct store *s, struct store_memory *m, const uint8_t *archive, int chunk,
                          struct store_code_chunk *ret, struct err *e) {
    bool found;
    TRY(store_find(s, m, &CODE_CHUNK, ARGS(arg_archive(archive), arg_int4(chunk)), ret, &found, e));
    return found ? ST_OK : err_set(e, ST_NOT_FOUND, "chunk %d of the archive is not stored", chunk);
}

/* ---- jobs, and garbage collection ---- */

status_t job_code_insert(struct connection *c, int64_t job, const uint8_t *archive, struct err *e) {
    int64_t n;
    TRY(sql_execute(c, &JOB_CODE, ARGS(arg_int8(job), arg_archive(archive)), &n, e));
    return n ? ST_OK
             : err_set(e, ST_FAILED_PRECONDITION,
                       "program.code.archive: the controller does not have this archive: submit the job again with "
                       "program.code.folder");
}

static status_t collect_code(struct connection *c, bool *ret_deleted, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct unused row;
    int64_t n;
    *ret_deleted = false;
    TRY(sql_find(c, m, &CODE_UNUSED, NULL, &row, ret_deleted, e));
    if (!*ret_deleted)
        return ST_OK;
    TRY(sql_execute(c, &CODE_DELETE, ARGS(arg_archive(row.archive)), &n, e));
    return n ? sql_execute(c, &CODE_SUBTRACT, ARGS(arg_int8(row.bytes)), NULL, e) : ST_OK;
}

status_t store_code_collect(struct store *s, int64_t epoch, bool *ret_deleted, struct err *e) {
    return STORE_WRITE(s, epoch, c, collect_code(c, ret_deleted, e), e);
}

status_t store_code_total(struct store *s, int64_t *ret, struct err *e) {
    bool found;
    TRY(store_find(s, NULL, &CODE_TOTAL, NULL, ret, &found, e));
    return found ? ST_OK : err_set(e, ST_INTERNAL, "the row of code_total is missing");
}
