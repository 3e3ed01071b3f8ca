/* The points of a job's story (metric.h) one by one, none folded, in pages: by name, rank and step.
 *
 *     struct store_points_query q = { .job = job, .max_points = STORE_POINTS_MOST, .rank = -1 };
 *     for (bool more = true; more;)
 *         TRY(store_points_list(s, m, &q, &runs, &n, &more, e));     // and forget m's rows between pages
 *
 * All pages tell the story as it stood at the first one: points of an attempt that begins later are in none. A page
 * reads at most STORE_POINTS_CHUNKS rows, whatever the job has. */
#ifndef SERVICE_STORE_METRIC_POINTS_H
#define SERVICE_STORE_METRIC_POINTS_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* 24 bytes each in a message, and what a page's rows hold. */
#define STORE_POINTS_MOST   10000
#define STORE_POINTS_CHUNKS 64

/* Where a page begins; zeroed: at the first point. */
struct store_points_place {
    int attempts; /* of the story; 0: all that there are */
    int name;     /* its number; 0: the first one */
    int rank, attempt, chunk;
    int taken; /* points of that chunk that were in the page before */
};
struct store_points_query {
    int64_t job;
    const char *const *names; /* NULL or n_names = 0: all */
    size_t n_names;
    int rank;       /* < 0 = all */
    int max_points; /* 1..STORE_POINTS_MOST */
    struct store_points_place from;
};
/* Points of one series in a row, all of one attempt. Steps ascend from run to run. */
struct store_points {
    const char *name;
    int rank, attempt;
    size_t n;
    const int64_t *step;
    const double *value;
    const int64_t *time_us; /* of the report, by the rank's wall clock, to the millisecond; 0: not stored */
};
/* *ret_more: query->from is where the next page begins; it may be empty. NOT_FOUND without the job; INVALID_ARGUMENT
 * for a place that this query did not give. */
MUST_CHECK status_t store_points_list(struct store *s, struct store_memory *m, struct store_points_query *query,
                                      struct store_points **ret, size_t *ret_n, bool *ret_more, struct err *e);

#endif
