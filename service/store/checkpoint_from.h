/* The SQL expression for the checkpoint that attempt $2 of job $1 began with: the one that it resumed, or the one of
 * the job's first weights. Internal to the store. */
#ifndef SERVICE_STORE_CHECKPOINT_FROM_H
#define SERVICE_STORE_CHECKPOINT_FROM_H

#define CHECKPOINT_FROM                                                                                                \
    "coalesce((SELECT from_checkpoint FROM attempt WHERE job = $1 AND number = $2), "                                  \
    "(SELECT checkpoint FROM job_origin WHERE job = $1))"

#endif
