/* The text of /metrics. docs/monitoring.md lists all metrics; tests/e2e/test_prometheus.py compares the two. */
#ifndef SERVICE_HTTP_METRICS_H
#define SERVICE_HTTP_METRICS_H

#include "api/rpc/server.h"
#include "base/bytes.h"
#include "service/controller/controller.h"

/* The size of a page: a thousand jobs, and a thousand executors with eight devices each, fit. */
#define METRICS_BYTES (8 << 20)
/* Once a page has this size, samples of single sweeps, jobs, executors and devices are left out and counted. */
#define METRICS_OBJECT_BYTES (METRICS_BYTES - (64 << 10))
/* How many jobs have series of their own, unless the option says otherwise. */
#define METRICS_JOBS     1000
#define METRICS_JOBS_MAX 10000
/* How many sweeps have series of their own. */
#define METRICS_SWEEPS 100

struct metrics_source {
    struct controller *controller;
    const struct rpc_server *server;
    int max_jobs; /* so many jobs have series of their own, at most METRICS_JOBS_MAX */
    /* Since the start, by the reason. */
    _Atomic int64_t left_out_by_size, left_out_jobs, left_out_sweeps;
};

/* Appends all metrics; ret must accept METRICS_BYTES more. Does not wait for the loop. */
MUST_CHECK status_t metrics_write(struct metrics_source *source, struct bytes *ret, struct err *e);

#endif
