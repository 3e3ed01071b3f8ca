/* The points of a job one by one, without downsampling, in pages ordered by name, rank and step. Points that a later
 * attempt repeats are left out, as in metric.h.
 *
 *     struct store_points_query q = { .job = job, .max_points = STORE_MAX_POINTS, .rank = -1 };
 *     for (bool more = true; more;)
 *         TRY(store_points_list(s, m, &q, &runs, &n, &more, e));     // free m between pages
 *
 * All pages show the attempts that existed at the first page. A page reads at most STORE_POINTS_CHUNKS rows, however
 * long the job is. */
#ifndef SERVICE_STORE_METRIC_POINTS_H
#define SERVICE_STORE_METRIC_POINTS_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* Of one page: points (24 bytes each in a message), and rows. */
#define STORE_MAX_POINTS    10000
#define STORE_POINTS_CHUNKS 64

/* Where a page begins. All zero: at the first point. */
struct store_points_place {
    int attempts; /* the first page's number of attempts; 0: all */
    int name;     /* the number of the metric's name; 0: the first one */
    int rank, attempt, chunk;
    int taken; /* points of that chunk that the previous page had */
};
struct store_points_query {
    int64_t job;
    const char *const *names; /* NULL or n_names = 0: all */
    size_t n_names;
    int rank;       /* < 0 = all */
    int max_points; /* 1..STORE_MAX_POINTS */
    struct store_points_place from;
};
/* Consecutive points of one series and one attempt. Steps ascend. */
struct store_points {
    const char *name;
    int rank, attempt;
    size_t n;
    const int64_t *step;
    const double *value;
    const int64_t *time_us; /* when the rank reported, by its wall clock, to the millisecond; 0: unknown */
};
/* If *ret_more, query->from is where the next page begins; that page may be empty. NOT_FOUND without the job.
 * INVALID_ARGUMENT for a place that this query did not return. */
MUST_CHECK status_t store_points_list(struct store *s, struct store_memory *m, struct store_points_query *query,
                                      struct store_points **ret, size_t *ret_n, bool *ret_more, struct err *e);

#endif
