/* Reads a job spec from a file, and applies changes from a command line.
 *
 *     TRY(spec_file_read("job.yaml", &spec, e));                                    // "-" is standard input
 *     TRY(spec_change(spec, (const char *[]){ "train.steps=200" }, 1, e));
 *
 * The spec is not resolved: call spec_resolve (spec.h). Every error is INVALID_ARGUMENT, also for a file that cannot
 * be read, and names the file, or --set and the field. */
#ifndef API_SPEC_FILE_H
#define API_SPEC_FILE_H

#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

/* YAML or JSON. Free it with spec_free. */
MUST_CHECK status_t spec_file_read(const char *file, Trainyard__V1__JobSpec **ret, struct err *e);

/* The file's name for messages: the path, or "standard input". Borrowed. */
const char *spec_file_name(const char *file);

/* Sets each "key.path=value", in this order. */
MUST_CHECK status_t spec_change(Trainyard__V1__JobSpec *spec, const char *const *changes, size_t n, struct err *e);

#endif
