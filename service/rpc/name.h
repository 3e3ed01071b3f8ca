/* Resource names: `jobs/42` (a client may also give `42`), `jobs/42/checkpoints/7`, `tokens/ci` (or `ci`),
 * `secrets/HF_TOKEN` and `sweeps/lr`. */
#ifndef SERVICE_RPC_NAME_H
#define SERVICE_RPC_NAME_H

#include "base/status.h"

#include <stdint.h>

/* Capacity for any name that the services write. */
#define NAME_BYTES 64

/* INVALID_ARGUMENT with the text if it is not such a name. */
MUST_CHECK status_t name_job(const char *name, int64_t *ret_job, struct err *e);
MUST_CHECK status_t name_checkpoint(const char *name, int64_t *ret_job, int64_t *ret_id, struct err *e);
/* A job or a checkpoint: *ret_id is 0 for a job. */
MUST_CHECK status_t name_job_or_checkpoint(const char *name, int64_t *ret_job, int64_t *ret_id, struct err *e);

/* `executors/<id>`, or the id alone. ret_id points into name. */
MUST_CHECK status_t name_executor(const char *name, const char **ret_id, struct err *e);

/* A name of 1 to 63 letters, digits, '.', '_' and '-', the first a letter or digit. field: of the request. */
MUST_CHECK status_t name_queue(const char *name, const char *field, struct err *e);

/* Like name_job_or_checkpoint, and also a job's state at a step, `jobs/42@300`. *ret_step is -1 without a step. */
MUST_CHECK status_t name_fork(const char *name, int64_t *ret_job, int64_t *ret_id, int64_t *ret_step, struct err *e);

/* *ret is the part after `tokens/`. It points into name. */
MUST_CHECK status_t name_token(const char *name, const char **ret, struct err *e);

/* The same for `sweeps/`. */
MUST_CHECK status_t name_sweep(const char *name, const char **ret, struct err *e);

/* The same for `secrets/`. */
MUST_CHECK status_t name_secret(const char *name, const char **ret, struct err *e);

#endif
