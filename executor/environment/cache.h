/* The environments that this host has, in one folder:
 *
 *   ID-XXXXXX/env    an environment, or what is left of a build
 *   .state/ID        which folder is the environment ID, its size and its print (tree.h); its time is the last use
 *   .state/ID.failed why the last build failed
 *   .state/ID.lock   locked by each process that uses or builds the environment; exclusively, to remove it
 *   .state/ID.build  locked by the process that builds it
 *   .state/build     locked during each build, if a user of its own builds: no build can then disturb another one
 *
 * A build has a new folder, and becomes the environment when .state/ID is written: a process that is killed leaves a
 * folder that the next build removes. Processes of several executors may use the cache at the same time. */
#ifndef EXECUTOR_ENVIRONMENT_CACHE_H
#define EXECUTOR_ENVIRONMENT_CACHE_H

#include "executor/environment/key.h"

#include <stdint.h>

enum environment_wait {
    ENVIRONMENT_BUILDS,
    ENVIRONMENT_BUILDS_AGAIN,       /* its files have changed */
    ENVIRONMENT_BUILDS_FOR_ANOTHER, /* attempt */
    ENVIRONMENT_TURN,               /* another environment is built first */
};

struct environment_cache {
    const char *path;  /* exists */
    int64_t max_bytes; /* of all environments */
    const char *user;  /* that builds; NULL: this process's */
    /* Builds into a folder that belongs to the user, as build.h says. */
    status_t (*build)(void *ctx, const char *folder, bool *ret_refused, struct err *e);
    void (*wait)(void *ctx, enum environment_wait what); /* something takes time */
    void *ctx;
};

struct environment_use {
    char path[PATH_MAX];
    int lock; /* keeps the environment in the cache; the caller closes it */
    int64_t bytes;
    bool built;   /* by this call */
    bool changed; /* the cache had it, but its files had changed, so it was built again */
};

/* Finds or builds the environment. *ret_refused: no host can do it. A failure is also the answer to those who waited
 * for that build, and, if it was refused, to others for FAILED_MS. */
MUST_CHECK status_t environment_cache_open(const struct environment_cache *c, const char *id,
                                           struct environment_use *ret, bool *ret_refused, struct err *e);

enum { ENVIRONMENT_FAILED_MS = 30 * 1000 };

#endif
