/* The row of a new job, from its spec: for CreateJob and for the trials of sweeps (controller_create). */
#ifndef SERVICE_CONTROLLER_JOB_CREATE_H
#define SERVICE_CONTROLLER_JOB_CREATE_H

#include "service/store/job.h"

#include <trainyard/v1/spec.pb-c.h>

/* The labels of a resolved spec, whose number and keys spec_resolve has checked, as rows. Returns ret, which points
 * into the spec. */
const struct store_job_label *job_labels(const Trainyard__V1__JobSpec *spec,
                                         struct store_job_label ret[STORE_JOB_LABELS_MAX]);

struct job_creation {
    const char *request_id;             /* not empty: the same one creates no second job */
    const uint8_t *request_digest;      /* 32 bytes; NULL: unknown */
    const char *user;                   /* who submits it; NULL: not known */
    const char *project;                /* NULL or "": the default one */
    const Trainyard__V1__JobSpec *spec; /* resolved */
    struct store_origin origin;         /* checkpoint 0: none */
    int64_t sweep;                      /* the job is a trial of it; 0: none */
    int trial;
};

struct job_created {
    int64_t job, time_us; /* time_us: of its creation; unset if it existed */
    bool existed;         /* the request was known, and this is its job */
    struct store_job row; /* unless it existed: what the scheduler reads of the row. Borrows the spec */
};

/* Stores the job. The statuses are those of store_job_create. */
MUST_CHECK status_t job_create(struct store *store, int64_t epoch, const struct job_creation *creation,
                               struct job_created *ret, struct err *e);

#endif
