/* What a start order needs, kept in memory while an attempt lives: an order can then be given, or given again to an
 * agent that lost it, while the database is away. Bounded by live attempts. One thread owns it (the loop). */
#ifndef SERVICE_CONTROLLER_LAUNCH_H
#define SERVICE_CONTROLLER_LAUNCH_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <trainyard/v1/dispatch.pb-c.h>

struct launch {
    int64_t job; /* first: the tree's key */
    int attempt, world_size;
    char **executors;             /* [world_size] */
    Trainyard__V1__JobSpec *spec; /* resolved */
    char *checkpoint_directory;   /* of the attempt */
    char *resume_directory;       /* "" = from the start */
    bool forked;                  /* resume_directory is another job's */
    char *init_directory;         /* of the weights that it begins with; "" = none */
    int64_t resume_checkpoint;    /* 0 = none */
};

struct launches {
    void *by_job;
};
void launches_done(struct launches *l);

struct launch_order {
    int64_t job;
    int attempt, world_size;
    const char *const *executors;
    const void *spec; /* packed */
    size_t spec_bytes;
    const char *checkpoints; /* the directory of specs that name none */
    const char *resume_directory;
    int64_t resume_checkpoint;
    bool forked;
    const char *init_directory; /* NULL = "" */
};
/* Replaces the job's older one. DATA_LOSS when the stored spec cannot be read. */
MUST_CHECK status_t launch_put(struct launches *l, const struct launch_order *order, struct err *e);
const struct launch *launch_find(const struct launches *l, int64_t job, int attempt);
void launch_forget(struct launches *l, int64_t job);

/* DIR/<job>/attempt-<n> below the spec's own directory, or `checkpoints` when it names none. For free(). */
MUST_CHECK status_t launch_directory(const Trainyard__V1__JobSpec *spec, const char *checkpoints, int64_t job,
                                     int attempt, char **ret, struct err *e);

/* The ranks of one executor, into ret[world_size]; returns how many. */
size_t launch_ranks(const struct launch *launch, const char *executor, int32_t *ret);

#endif
