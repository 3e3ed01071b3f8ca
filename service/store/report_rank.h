/* What a writer of reports remembers of each rank: its high-water mark and the unfilled chunk of each series. Internal
 * to the store.
 *
 * The memory is a copy of rows: after a transaction that did not commit for certain all of it is forgotten, and read
 * again when the ranks report. */
#ifndef SERVICE_STORE_REPORT_RANK_H
#define SERVICE_STORE_REPORT_RANK_H

#include "base/limits.h"
#include "service/store/metric_times.h"
#include "service/store/report.h"
#include "service/store/sql.h"

/* One series' last chunk. */
struct series {
    char name[LIMIT_METRIC_NAME_BYTES + 1];
    int name_id;
    int number; /* of the chunk */
    int n;
    bool stored; /* a row of this number exists */
    bool dirty;  /* points were added since */
    int64_t steps[STORE_CHUNK_POINTS];
    double values[STORE_CHUNK_POINTS];
    int64_t first_time_us;
    int32_t times_ms[STORE_CHUNK_POINTS]; /* after it */
};

struct rank_memory {
    int64_t job;
    int attempt, rank;
    int64_t sequence;
    uint64_t used; /* the write that used it last */
    bool dropped_told;
    struct series **series; /* [n_series], in order of first use */
    size_t n_series, series_cap;
    struct rank_memory *next; /* in its bucket */
};

struct rank_table;
struct rank_table *rank_table_new(void);
struct rank_table *rank_table_free(struct rank_table *t);
CLEANUP_DEFINE(struct rank_table *, rank_table_free)
void rank_table_forget(struct rank_table *t); /* everything */

/* The rank's memory, read from its rows when it is not there. Makes room by forgetting ranks that this write (`now`)
 * has not used. */
MUST_CHECK status_t rank_table_get(struct rank_table *t, struct connection *c, const struct store_batch *batch,
                                   uint64_t now, struct rank_memory **ret, struct err *e);

/* The series of a name. hint: where it stood last time, usually right. NULL: the rank does not have it yet. */
struct series *rank_series_find(const struct rank_memory *k, const char *name, size_t hint);
/* Adds one, interning the name. RESOURCE_EXHAUSTED past STORE_SERIES_PER_RANK, INVALID_ARGUMENT for a name that cannot
 * be stored. */
MUST_CHECK status_t rank_series_add(struct rank_memory *k, struct connection *c, const char *name, struct series **ret,
                                    struct err *e);

/* Does a point of this step and time fit into the chunk? No: it is full, or its steps or times would lie too far
 * apart. */
bool series_has_room(const struct series *s, int64_t step, int64_t time_us);
void series_append(struct series *s, int64_t step, double value, int64_t time_us);
/* The chunk is stored for good: the next one begins. */
void series_turn(struct series *s);

/* The statement that stores the chunk as it is, and its arguments. */
struct chunk_args {
    struct sql_args args;
    char values[SQL_ARRAY_HEAD_BYTES + STORE_CHUNK_POINTS * 12];
    char offsets[SQL_ARRAY_HEAD_BYTES + STORE_CHUNK_POINTS * 8];
    uint8_t times[STORE_CHUNK_POINTS * TIMES_POINT_BYTES];
};
const struct sql *series_statement(const struct series *s);
void series_arguments(const struct rank_memory *k, const struct series *s, struct chunk_args *ret);
/* Both statements, for sql_prepare. */
MUST_CHECK status_t series_prepare(struct connection *c, struct err *e);

#endif
