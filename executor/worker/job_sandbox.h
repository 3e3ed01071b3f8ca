/* The sandbox of one rank, check or sample, as a command of the agent orders it.
 *
 * Hidden are: the excepted files of the order (among them the agent's directory, token and key), all checkpoint roots,
 * and in TMPDIR the folders of all ranks and of all copies of code. The caller grants what belongs to its job. */
#ifndef EXECUTOR_WORKER_JOB_SANDBOX_H
#define EXECUTOR_WORKER_JOB_SANDBOX_H

#include "executor/sandbox/sandbox.h"
#include "executor/worker/job_roots.h"

#include <limits.h>

/* Must not be moved: `policy` points into it, and into the order. */
struct job_sandbox {
    struct sandbox_policy policy;
    char folders[PATH_MAX], fresh_folders[PATH_MAX], code_copies[PATH_MAX];
    char owned[8][PATH_MAX];
    size_t n_owned;
};

void job_sandbox_init(struct job_sandbox *s, const struct job_roots_given *given,
                      const Trainyard__V1__SandboxOrder *order);

/* The right to read the data roots, for a policy that grants nothing else (only_grants). Call it after job_sandbox_init
 * with the same roots. */
void job_sandbox_grant_data(struct job_sandbox *s, const struct job_roots_given *given);

/* The folder `levels` above the path, or nothing for an empty path. */
void job_sandbox_grant_above(struct job_sandbox *s, const char *path, int levels, enum sandbox_right right);
/* The right to read the file `name` in that folder. */
void job_sandbox_grant_entry(struct job_sandbox *s, const char *path, int levels, const char *name);

#endif
