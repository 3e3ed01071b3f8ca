/* What is mounted in a container, and where: the points and the order. Private to this folder. */
#ifndef EXECUTOR_CONTAINER_MOUNTS_H
#define EXECUTOR_CONTAINER_MOUNTS_H

#include "executor/container/container.h"

struct mounted {
    char *source; /* of the host */
    char *target; /* in the container; begins with '/' */
    char *at;     /* the same below the new root, as the host names it */
    bool writable;
    bool readable;  /* by everybody */
    bool temporary; /* the folder that becomes /tmp: it has not the host's paths */
};

struct mounts {
    struct mounted *all; /* a folder before what is mounted below it */
    size_t n;
    char **readable;
    size_t n_readable;
    struct err gpu_problem; /* as in gpu_files.h */
};

/* points: the folder of mount points. root: the new root, as the host names it. */
MUST_CHECK status_t mounts_make(const struct container_options *o, const char *points, const char *root,
                                struct mounts *ret, struct err *e);
void mounts_done(struct mounts *m);

#endif
