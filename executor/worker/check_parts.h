/* The parts of a check. Internal to check.c and its neighbours. */
#ifndef EXECUTOR_WORKER_CHECK_PARTS_H
#define EXECUTOR_WORKER_CHECK_PARTS_H

#include "engine/data/source.h"
#include "engine/graph/graph.h"
#include "engine/model/model.h"
#include "engine/run/engine.h"
#include "executor/worker/check.h"

struct check {
    const struct check_request *request;
    const struct check_sink *sink;
    int n_problems; /* reported */
    bool remote;    /* some of the data are no files of this host */
};

void check_part(const struct check *k, const char *part);
void check_problem(struct check *k, bool of_host, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Turns the failure of a step into a problem, after which the check continues, or into the end of the check. */
MUST_CHECK status_t check_judge(struct check *k, status_t st, const struct err *why, struct err *e);

/* check_data.c: opens the data of the configuration and reads some samples of each part. *ret stays NULL after a
 * problem. */
MUST_CHECK status_t check_data(struct check *k, const struct engine_config *c, struct source **ret, struct err *e);
/* check_origin.c: the weights or the state that the job begins with, against its model, which is resolved by the data
 * (and against that data: its digest; "": it is not known). */
MUST_CHECK status_t check_origin(struct check *k, const struct engine_config *c, const struct graph *graph,
                                 const char *data_sha256, struct err *e);

/* check_folder.c: checks that files can be written below the folder, which need not exist, that checkpoints of so
 * many bytes fit, and the folder belongs to no other cluster. */
MUST_CHECK status_t check_folder(struct check *k, double bytes, struct err *e);

/* The same file: whether the folder of all jobs belongs to this cluster or to none. FAILED_PRECONDITION and DATA_LOSS
 * as cluster_mark. ST_OK also if the folder cannot be opened: other steps of the check report that. */
MUST_CHECK status_t check_cluster(const struct check *k, const char *folder, struct err *e);

#endif
