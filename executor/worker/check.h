/* Checks whether a job could run on this host, without running it: opens its data and reads samples, reads the headers
 * of the weights that the job begins with, plans its ranks, and checks the folder of its checkpoints. Writes nothing.
 * Remote data are not read.
 *
 *     TRY(check_spec(&request, &sink, e));        // reports each part and each problem when it reaches it
 *
 * ST_OK: every part was checked, with or without problems. RESOURCE_EXHAUSTED, INTERNAL: the part that was reported
 * last and all later parts were not checked. */
#ifndef EXECUTOR_WORKER_CHECK_H
#define EXECUTOR_WORKER_CHECK_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/v1/plan.pb-c.h>
#include <trainyard/v1/spec.pb-c.h>

struct roots;

/* Later problems are not reported. */
enum { CHECK_PROBLEMS = 64, CHECK_PROBLEM_BYTES = 480 };

struct check_request {
    const Trainyard__V1__JobSpec *spec;   /* resolved */
    const struct roots *roots;            /* that data and weights must lie below; NULL: anywhere */
    const struct roots *checkpoint_roots; /* that each of the following must lie below */
    const char *checkpoint_directory;     /* a folder below which checkpoints would be written; "" = not checked */
    const char *init_directory;           /* a checkpoint's step folder, for its weights; "" = none */
    const char *fork_directory;           /* the same, for its whole state */
    const char *cluster;                  /* whose checkpoints these must be (base/cluster_mark.h); "" = any */
    const char *token_cache;              /* a folder, whose texts need not be encoded (token_cache.h); "" = none */
    int threads;                          /* of a rank; at least 1 */
    long long memory_bytes;               /* that one rank can have on this host; 0 = not known */
    bool plan;                            /* make a Plan, which takes 0.2 s more on a CPU */
};

struct check_sink {
    void *ctx;
    void (*part)(void *ctx, const char *part); /* the part that is checked next, for "not checked: ..." */
    /* of_host: another host may not have it. */
    void (*problem)(void *ctx, const char *text, bool of_host);
    void (*plan)(void *ctx, const Trainyard__V1__Plan *plan); /* at most once */
    void (*unchecked)(void *ctx, const char *text);           /* what is not checked, and why; at most once */
};

MUST_CHECK status_t check_spec(const struct check_request *request, const struct check_sink *sink, struct err *e);

#endif
