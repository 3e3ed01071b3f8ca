#include "service/store/report_log.h"

#include "base/limits.h"
#include "service/store/job_lock.h"
#include "service/store/text.h"

#include <stdlib.h>
#include <string.h>

/* Of one row: as many lines as a page of TailLogs, and text that stays far below a message's limit. */
#define CHUNK_LINES 1000
#define CHUNK_BYTES (512 << 10)

static const struct sql LOG_ADD = {
    "log_add",
    "WITH h AS (INSERT INTO log_head AS l (job, last, bytes) VALUES ($1, 1, $7) "
    "ON CONFLICT (job) DO UPDATE SET last = l.last + 1, bytes = l.bytes + $7 WHERE l.bytes < $8 RETURNING last) "
    "INSERT INTO log_chunk (job, number, attempt, rank, times, streams, lines, bytes) "
    "SELECT $1, last, $2, $3, $4, $5, $6, $7 FROM h"
};
static const struct sql LOG_FULL = { "log_full",
                                     "UPDATE log_head SET full_told = true WHERE job = $1 AND NOT full_told" };

struct chunk {
    size_t n, n_text;
    int64_t times[CHUNK_LINES];
    const char *streams[CHUNK_LINES];
    const char *lines[CHUNK_LINES];
    char text[CHUNK_BYTES];
};

static status_t tell_full(struct connection *c, const struct store_batch *batch, struct err *e) {
    struct sql_args a = { 0 };
    sql_add_int8(&a, batch->job);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &LOG_FULL, &a, &r, e));
    if (atoi(PQcmdTuples(r)) == 0)
        return ST_OK;
    return event_write(c, batch->job, batch->attempt, "log_full", "the job's log is full; later lines are dropped",
                       NULL, NULL, e);
}

static status_t flush(struct connection *c, const struct store_batch *batch, struct chunk *k, int64_t *lines,
                      struct err *e) {
    if (k->n == 0)
        return ST_OK;
    struct sql_args a = { 0 };
    char times[SQL_ARRAY_HEAD_BYTES + CHUNK_LINES * 12];
    CLEANUP(freep) char *streams = NULL;
    CLEANUP(freep) char *texts = NULL;
    sql_add_int8(&a, batch->job);
    sql_add_int4(&a, batch->attempt);
    sql_add_int4(&a, batch->rank);
    sql_add_time_array(&a, times, k->times, k->n);
    TRY(sql_add_text_array(&a, k->streams, k->n, &streams, e));
    TRY(sql_add_text_array(&a, k->lines, k->n, &texts, e));
    sql_add_int8(&a, (int64_t)k->n_text);
    sql_add_int8(&a, STORE_LOG_BYTES_PER_JOB);
    CLEANUP(sql_clearp) PGresult *r = NULL;
    TRY(sql_run(c, &LOG_ADD, &a, &r, e));
    if (atoi(PQcmdTuples(r)) == 0)
        TRY(tell_full(c, batch, e));
    else
        *lines += (int64_t)k->n;
    k->n = k->n_text = 0;
    return ST_OK;
}

/* Four names are all there are: anything else is the agent's own. */
static const char *stream_of(const char *stream) {
    static const char *const known[] = { "stdout", "stderr", "worker" };
    for (size_t i = 0; i < 3; i++)
        if (strcmp(stream, known[i]) == 0)
            return known[i];
    return "agent";
}

status_t log_write(struct connection *c, const struct store_batch *batch, size_t from, int64_t *ret_lines,
                   struct err *e) {
    CLEANUP(freep) struct chunk *k = NULL;
    *ret_lines = 0;
    for (size_t i = from; i < batch->n; i++) {
        const struct store_record *record = &batch->records[i];
        if (record->kind != STORE_RECORD_LOG)
            continue;
        if (!k && !(k = calloc(1, sizeof *k)))
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for log lines");
        if (k->n == CHUNK_LINES || k->n_text + LIMIT_LOG_LINE_BYTES + 1 > CHUNK_BYTES)
            TRY(flush(c, batch, k, ret_lines, e));
        char *text = k->text + k->n_text;
        k->n_text += text_clean(record->log.text, text, LIMIT_LOG_LINE_BYTES + 1) + 1;
        k->times[k->n] = record->time_us;
        k->streams[k->n] = stream_of(record->log.stream);
        k->lines[k->n++] = text;
    }
    return k ? flush(c, batch, k, ret_lines, e) : ST_OK;
}
