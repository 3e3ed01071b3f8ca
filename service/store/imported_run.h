/* Jobs that are runs of an experiment tracker: rows of a job that has ended, with one attempt that has ended too. Their
 * points are written with store_report_write, by batches with the executor STORE_IMPORT_EXECUTOR. */
#ifndef SERVICE_STORE_IMPORTED_RUN_H
#define SERVICE_STORE_IMPORTED_RUN_H

#include "service/store/job.h"
#include "service/store/state.h"
#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* No executor has this id: an id has no ':'. */
#define STORE_IMPORT_EXECUTOR ":import"

struct store_imported_run {
    const char *source, *id, *name;
    const char *user; /* who imports it; "": not known */
    const struct store_job_label *labels;
    size_t n_labels;            /* at most STORE_JOB_LABELS_MAX; no key twice */
    enum store_job_state state; /* a final one */
    int64_t start_time_us, end_time_us;
    const void *spec; /* a resolved JobSpec, packed */
    size_t spec_bytes;
    char *const *parameters, *const *tags; /* texts of events */
    size_t n_parameters, n_tags;
};
/* The job of the run; a new one if the source and id are new. A job that exists gets the end time, if that is later.
 * *ret_rows: the rows that it has. FAILED_PRECONDITION: the job is being deleted. INVALID_ARGUMENT: a source, id, time
 * or text that cannot be stored. */
MUST_CHECK status_t store_imported_run(struct store *s, int64_t epoch, const struct store_imported_run *run,
                                       int64_t *ret_job, int64_t *ret_rows, bool *ret_created, struct err *e);
/* Whether the job is such a run. */
MUST_CHECK status_t store_job_imported(struct store *s, int64_t job, bool *ret, struct err *e);

struct connection;
/* The same within a transaction. Internal to the store. */
MUST_CHECK status_t job_imported(struct connection *c, int64_t job, bool *ret, struct err *e);

#endif
