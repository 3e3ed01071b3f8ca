/* Metrics as downsampled series.
 *
 * An attempt that starts from step S hides the points after S of all earlier attempts. Downsampling divides a series
 * into at most max_points entries. Each entry covers the same number of consecutive points (the last may cover fewer)
 * and has their last step, mean, minimum and maximum. The last value of a series is exact. A series of more than 120
 * points for each entry may be divided at the boundaries of its chunks, so that its values need not be read; of more
 * than 240, it is. */
#ifndef SERVICE_STORE_METRIC_H
#define SERVICE_STORE_METRIC_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

#define STORE_METRIC_MAX_POINTS 10000
/* Entries of all series of one reply: with their times 3 MiB, below the limit of a message. If a query has more, each
 * series gets fewer entries. */
#define STORE_METRIC_MAX_TOTAL 73728

/* What one call reads at most, so that its memory is bounded: 50 MiB of headers, of 24 million points. */
#define STORE_METRIC_MAX_CHUNKS 100000
#define STORE_METRIC_MAX_SERIES 8192

struct store_metric_query {
    int64_t job;
    const char *const *names; /* NULL or n_names = 0: all */
    size_t n_names;
    int64_t after_step, until_step; /* points of the steps between, and of until_step; 0: no limit */
    int max_points;                 /* 1..STORE_METRIC_MAX_POINTS */
    int rank;                       /* < 0: all */
    bool with_time;                 /* fills time_us */
};
struct store_series {
    const char *name;
    int rank;
    int64_t points; /* in the range, before downsampling */
    int64_t last_step;
    double last_value;
    size_t n; /* entries of the columns */
    const int64_t *step;
    const double *mean, *min, *max;
    /* When the last point of the entry was reported, as in metric_points.h; NULL without with_time. Of a series that is
     * divided at its chunks, the time may be that of the point after it. */
    const int64_t *time_us;
};
/* Ordered by name, then rank. NOT_FOUND without the job. A job without points has no series. RESOURCE_EXHAUSTED: there
 * is more than STORE_METRIC_MAX_CHUNKS or STORE_METRIC_MAX_SERIES. */
MUST_CHECK status_t store_metric_query(struct store *s, struct store_memory *m, const struct store_metric_query *query,
                                       struct store_series **ret, size_t *ret_n, struct err *e);

/* ret[i]: the newest value of names[i] of rank 0, for progress lines; NAN if there is none. One index lookup each. */
MUST_CHECK status_t store_metric_last(struct store *s, int64_t job, const char *const *names, size_t n, double *ret,
                                      struct err *e);

#endif
