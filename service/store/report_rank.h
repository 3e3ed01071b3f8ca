/* The memory of a writer of reports: for each rank its high-water mark, its time by cause, and the unfilled chunk of
 * each series. Internal
 * to the store.
 *
 * The memory is a copy of rows. After a transaction that may not have committed, all of it is dropped, and read again
 * when the ranks report. */
#ifndef SERVICE_STORE_REPORT_RANK_H
#define SERVICE_STORE_REPORT_RANK_H

#include "base/limits.h"
#include "service/store/metric_times.h"
#include "service/store/report.h"
#include "service/store/report_seconds.h"
#include "service/store/sql.h"

/* One series' last chunk. */
struct series {
    char name[LIMIT_METRIC_NAME_BYTES + 1];
    int name_id;
    int number; /* of the chunk */
    int n;
    bool stored;  /* a row of this number exists */
    bool unsaved; /* points were added after the row was written */
    int64_t steps[STORE_CHUNK_POINTS];
    double values[STORE_CHUNK_POINTS];
    int64_t first_time_us;
    int32_t times_ms[STORE_CHUNK_POINTS]; /* after first_time_us */
    /* Of an attempt that repeats steps: report_repeat.c. NULL: not compared yet; no chunk of an earlier attempt. */
    struct repeated *repeated;
    struct repeated_points *repeated_points;
    bool never_repeated; /* its values differ in each attempt */
};

struct rank_memory {
    int64_t job;
    int attempt, rank;
    char *executor; /* where the attempt placed the rank; NULL: the attempt has no such rank */
    int64_t sequence;
    bool of_program;       /* its job is that of a program */
    int64_t repeats_until; /* of its attempt */
    struct rank_time time;
    uint64_t used; /* the write that used it last */
    int64_t used_ms;
    bool dropped_reported;
    bool repeat_reported;   /* a point that differs from an earlier attempt's was found */
    struct series **series; /* [n_series], in order of first use */
    size_t n_series;
    struct rank_memory *next;          /* in its bucket */
    struct rank_memory *older, *newer; /* by their last use */
    struct rank_table *table;
};

/* A table that evicts ranks while it has more than so many bytes, and ranks that were unused for UNUSED_MS. */
#define RANK_UNUSED_MS INT64_C(600000)
struct rank_table;
struct rank_table *rank_table_new(size_t max_bytes);
struct rank_table *rank_table_free(struct rank_table *t);
CLEANUP_DEFINE(struct rank_table *, rank_table_free)
void rank_table_forget(struct rank_table *t); /* everything */

size_t rank_table_bytes(const struct rank_table *t);

/* The rank's memory; it is read from the rank's rows if the table lacks it. A full table evicts ranks that this write
 * has not used, those that were unused for longest first. now_ms: the monotonic clock. */
MUST_CHECK status_t rank_table_get(struct rank_table *t, struct connection *c, const struct store_batch *batch,
                                   uint64_t write, int64_t now_ms, struct rank_memory **ret, struct err *e);

/* The series of a name; NULL: the rank has none. hint: its index in the last record, usually the same. */
struct series *rank_series_find(const struct rank_memory *k, const char *name, size_t hint);
/* Adds a series, and its name to the job's metrics. RESOURCE_EXHAUSTED beyond STORE_SERIES_PER_RANK, INVALID_ARGUMENT
 * for a name that cannot be stored. */
MUST_CHECK status_t rank_series_add(struct rank_memory *k, struct connection *c, const char *name, struct series **ret,
                                    struct err *e);

/* Whether a point of this step and time fits into the chunk: the chunk is not full, and its steps and times stay close
 * enough for 32-bit offsets. */
bool series_fits(const struct series *s, int64_t step, int64_t time_us);
void series_append(struct series *s, int64_t step, double value, int64_t time_us);
/* The chunk is complete and stored. The next one begins. */
void series_next_chunk(struct series *s);

/* The arguments of a chunk's statement, and what they point to beside the series. */
struct chunk_args {
    struct sql_arg args[17];
    int32_t offsets[STORE_CHUNK_POINTS];
    uint8_t times[STORE_CHUNK_POINTS * TIMES_POINT_BYTES];
};
/* The statement that stores the chunk as it is. */
const struct sql *series_statement(const struct series *s);
/* Fills a, and returns a->args. They borrow from s and a. */
const struct sql_arg *series_arguments(const struct rank_memory *k, const struct series *s, struct chunk_args *a);
/* Prepares the statements for a pipeline. */
MUST_CHECK status_t series_prepare(struct connection *c, struct err *e);

#endif
