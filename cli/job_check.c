#include "cli/job_check.h"

#include "api/spec/spec.h"
#include "cli/output.h"

#include <stdio.h>
#include <string.h>

enum { SERIES_NAMED = 20 };

static bool has_ended(const Trainyard__V1__Job *job) {
    return job->state == TRAINYARD__V1__JOB__STATE__SUCCEEDED || job->state == TRAINYARD__V1__JOB__STATE__FAILED ||
           job->state == TRAINYARD__V1__JOB__STATE__CANCELLED;
}

static status_t check_rank(const Trainyard__V1__Job *job, int64_t rank, int64_t attempt, struct err *e) {
    const int ranks = job->spec ? spec_max_world_size(job->spec) : 0;
    if (rank != OPTION_ABSENT && ranks == 1 && rank != 0)
        return err_set(e, ST_NOT_FOUND, "%s has no rank %lld: it has only rank 0", job->name, (long long)rank);
    if (rank != OPTION_ABSENT && ranks > 0 && (rank < 0 || rank >= ranks))
        return err_set(e, ST_NOT_FOUND, "%s has no rank %lld: it has ranks 0 to %d", job->name, (long long)rank,
                       ranks - 1);
    if (attempt != OPTION_ABSENT && (attempt < 1 || (attempt > job->attempt && has_ended(job))))
        return err_set(e, ST_NOT_FOUND, "%s has no attempt %lld: it has had %d", job->name, (long long)attempt,
                       job->attempt);
    return ST_OK;
}

status_t job_check_rank(struct cli *c, const char *name, int64_t rank, int64_t attempt, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__Job *job = NULL;
    if (rank == OPTION_ABSENT && attempt == OPTION_ABSENT)
        return ST_OK;
    TRY(client_get_job(c, name, &job, e));
    return check_rank(job, rank, attempt, e);
}

static bool has_series(const Trainyard__V1__QueryMetricsResponse *all, const char *name) {
    for (size_t i = 0; i < all->n_series; i++)
        if (strcmp(all->series[i]->name, name) == 0)
            return true;
    return false;
}

/* "grad_norm, loss and 9 more". The series are sorted by name and rank. */
static void series_list(const Trainyard__V1__QueryMetricsResponse *all, char *ret, size_t n) {
    size_t used = 0, named = 0, more = 0;
    *ret = '\0';
    for (size_t i = 0; i < all->n_series; i++) {
        const char *name = all->series[i]->name;
        if (i > 0 && strcmp(all->series[i - 1]->name, name) == 0)
            continue;
        if (named == SERIES_NAMED || used + strlen(name) + 32 > n)
            more++;
        else
            used += (size_t)snprintf(ret + used, n - used, "%s%s", named++ ? ", " : "", name);
    }
    if (more)
        snprintf(ret + used, n - used, " and %zu more", more);
    else if (named == 0)
        snprintf(ret, n, "none");
}

static status_t report_missing(struct cli *c, const char *name, const char *missing,
                               const Trainyard__V1__QueryMetricsResponse *all, struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__Job *job = NULL;
    char list[400];
    TRY(client_get_job(c, name, &job, e));
    series_list(all, list, sizeof list);
    if (has_ended(job))
        return err_set(e, ST_NOT_FOUND, "%s has no series '%.64s'; it has: %s", name, missing, list);
    fprintf(stderr, "%s has no series '", name);
    output_text(stderr, missing);
    fprintf(stderr, "' so far; it has: %s\n", list);
    return ST_OK;
}

status_t job_check_series(struct cli *c, const char *job, char *const *names, size_t n,
                          const Trainyard__V1__QueryMetricsResponse *answer, struct err *e) {
    size_t missing = 0;
    while (missing < n && has_series(answer, names[missing]))
        missing++;
    if (missing == n)
        return ST_OK;
    Trainyard__V1__QueryMetricsRequest request = TRAINYARD__V1__QUERY_METRICS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.job = (char *)job;
    request.max_points = 1;
    TRY(client_call(c, &trainyard__v1__metric_service__descriptor, "QueryMetrics", &request.base, &reply, e));
    const Trainyard__V1__QueryMetricsResponse *all = (const Trainyard__V1__QueryMetricsResponse *)reply;
    for (size_t i = missing; i < n; i++)
        if (!has_series(all, names[i])) /* else it has no points after --since or for this rank */
            TRY(report_missing(c, job, names[i], all, e));
    return ST_OK;
}
