#include "service/store/report_log.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "service/store/job_lock.h"
#include "service/store/text.h"

#include <stdlib.h>
#include <string.h>

/* Of one row: the lines of a page of TailLogs, and text far below the limit of a message. */
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

static status_t report_full(struct connection *c, const struct store_batch *batch, struct err *e) {
    int64_t first;
    TRY(sql_execute(c, &LOG_FULL, ARGS(arg_int8(batch->job)), &first, e));
    if (!first)
        return ST_OK;
    return event_write(c, batch->job, batch->attempt, "log_full", "the job's log is full; later lines are dropped",
                       NULL, NULL, e);
}

static status_t flush(struct connection *c, const struct store_batch *batch, struct chunk *k, int64_t *lines,
                      struct err *e) {
    int64_t stored;
    if (k->n == 0)
        return ST_OK;
    TRY(sql_execute(c, &LOG_ADD,
                    ARGS(arg_int8(batch->job), arg_int4(batch->attempt), arg_int4(batch->rank),
                         arg_times(k->times, k->n), arg_texts(k->streams, k->n), arg_texts(k->lines, k->n),
                         arg_int8((int64_t)k->n_text), arg_int8(STORE_LOG_BYTES_PER_JOB)),
                    &stored, e));
    if (stored)
        *lines += (int64_t)k->n;
    else
        TRY(report_full(c, batch, e));
    k->n = k->n_text = 0;
    return ST_OK;
}

/* The names are fixed: any other stream is the agent's. */
static const char *stream_of(const char *stream) {
    static const char *const known[] = { "stdout", "stderr", "worker", "stacks", "environment" };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
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
        if (!k)
            k = alloc_zeroed(1, sizeof *k);
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
