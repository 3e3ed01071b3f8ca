/* Lists of jobs: filtered, ordered and read page by page by PostgreSQL. */
#ifndef SERVICE_STORE_JOB_LIST_H
#define SERVICE_STORE_JOB_LIST_H

#include "service/store/job.h"

enum { STORE_JOB_FILTER_LABELS = 16 };

enum store_job_order {
    STORE_JOBS_BY_ID,    /* newest first */
    STORE_JOBS_BY_START, /* only jobs that have run; last started first */
    STORE_JOBS_BY_END,   /* only jobs that have ended; last ended first */
    STORE_JOBS_BY_NAME,  /* by name, then oldest first; the following ones too */
    STORE_JOBS_BY_STATE,
    STORE_JOBS_BY_USER,
};

/* A job must match all conditions. */
struct store_job_filter {
    int state;                                   /* 0 = all */
    const char *queue, *name, *user, *project;   /* NULL or "" = all */
    const char *search;                          /* in the name, in any case of its letters; NULL or "" = all */
    const struct store_job_label *labels;        /* a value of NULL: any */
    size_t n_labels;                             /* at most STORE_JOB_FILTER_LABELS */
    int64_t created_after_us, created_before_us; /* at or after, and before; 0: no limit */
    enum store_job_order order;
    bool reverse; /* the opposite order */
    struct store_job_place {
        int64_t id;     /* 0: the first page */
        int64_t number; /* start_time_us, end_time_us or state, by the order; else 0 */
    } after;            /* the last job of the page before */
    int limit;          /* 1..LIMIT_PAGE_SIZE */
    bool with_spec;
};

/* The place of a job in an order, for the next page. */
struct store_job_place store_job_place(const struct store_job *job, enum store_job_order order);

/* FAILED_PRECONDITION: the job at `after` was deleted, so that its place in an order by name or user is not known. */
MUST_CHECK status_t store_job_list(struct store *s, struct store_memory *m, const struct store_job_filter *filter,
                                   struct store_job **ret, size_t *ret_n, struct err *e);

#endif
