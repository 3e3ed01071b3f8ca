/* The folders that a job may read and write, as a command of the agent names them, in the form of base/roots.h. */
#ifndef EXECUTOR_WORKER_JOB_ROOTS_H
#define EXECUTOR_WORKER_JOB_ROOTS_H

#include "base/roots.h"

#include <trainyard/v1/worker.pb-c.h>

/* Of the command; borrowed for as long as the roots are used. */
struct job_roots_given {
    char *const *data;
    size_t n_data;
    char *const *checkpoints;
    size_t n_checkpoints;
    Trainyard__V1__DataExcept *const *except;
    size_t n_except;
};

struct job_roots {
    struct roots data, checkpoints;
    struct roots copies;           /* data, and the folder of copies; without such a folder the same as data */
    struct roots_except *except;   /* of all; owned */
    const char **copy_paths;       /* of copies; owned */
    const char **checkpoint_paths; /* of checkpoints; owned, unless they are the command's */
};

/* RESOURCE_EXHAUSTED without memory. */
void job_roots_take(const struct job_roots_given *given, struct job_roots *ret);
/* The folder with the copies of remote data; "": none. It is borrowed. It may be in an excepted folder. */
void job_roots_add_copies(struct job_roots *roots, const char *folder);
/* The same for checkpoints that are on their way to a store, or from it. */
void job_roots_add_checkpoints(struct job_roots *roots, const char *folder);
void job_roots_done(struct job_roots *r);

#endif
