/* Reads a job spec or a sweep from a file, and applies changes from a command line.
 *
 *     TRY(spec_file_read("job.yaml", &spec, e));                                    // "-" is standard input
 *     TRY(spec_change(spec, (const char *[]){ "train.steps=200" }, 1, e));
 *
 * The spec is not resolved: call spec_resolve (spec.h) or sweep_resolve (sweep.h). Every error is INVALID_ARGUMENT,
 * also for a file that cannot be read, and names the file, or --set and the field. */
#ifndef API_SPEC_FILE_H
#define API_SPEC_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/sweep_spec.pb-c.h>

/* YAML or JSON. Free it with spec_free. */
MUST_CHECK status_t spec_file_read(const char *file, Trainyard__V1__JobSpec **ret, struct err *e);

/* The file's name for messages: the path, or "standard input". Borrowed. */
const char *spec_file_name(const char *file);

/* Sets each "key.path=value", in this order. */
MUST_CHECK status_t spec_change(Trainyard__V1__JobSpec *spec, const char *const *changes, size_t n, struct err *e);

/* A sweep, and the file that its `job` names. Sets each "key.path=value" too: a field of the job is job.train.steps.
 * ret_job_file: the file with the job spec, which is `file` if the job is part of it. Free the sweep with
 * sweep_free. */
enum { SWEEP_FILE_BYTES = 4096 };
MUST_CHECK status_t sweep_file_read(const char *file, const char *const *changes, size_t n,
                                    Trainyard__V1__SweepSpec **ret, char ret_job_file[SWEEP_FILE_BYTES], struct err *e);

#endif
