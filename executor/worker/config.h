/* Converts a job spec into the engine's configuration, for both trainyard-worker and trainyard-train.
 *
 *     struct config *c = NULL;
 *     TRY(config_open(spec, &roots, NULL, &c, e)); // a resolved spec (spec_resolve)
 *     struct engine_config *ec = config_engine(c);
 *     ec->threads = ...;                          // not part of a spec: threads, directories
 *     TRY(config_init_from(c, &roots, e));        // unless the run resumes from a checkpoint
 *     TRY(config_resolve(c, collective, &hooks, &chosen, e)); // replaces `auto` by the choice of rank 0's plan
 *     ... engine_open(ec, ...) ...
 *     c = config_close(c);                        // after engine_close: the engine's strings point into c
 *
 * URIs name data: files of this host, patterns of such files, or remote objects, of which this host has copies. A file
 * must be readable and below `roots` (base/roots.h). NULL admits every path that the process may read; empty roots
 * admit none. The engine gets the roots with each path and opens the path by them again, so a path that changes in
 * between cannot lead it elsewhere. Errors begin with the field's path (`data.text.files[0]: ...`): INVALID_ARGUMENT if
 * the spec is wrong on every host; NOT_FOUND and PERMISSION_DENIED for a file or folder that this host lacks, cannot
 * read or may not read. The spec is copied; the roots are borrowed until config_close. */
#ifndef EXECUTOR_WORKER_CONFIG_H
#define EXECUTOR_WORKER_CONFIG_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct config;
struct collective;
struct data_list;
struct engine_config;
struct engine_hooks;
struct roots;

/* The copies of remote data on this host. */
struct config_copies {
    const struct data_list *list;
    const struct roots *roots; /* of config_open, and the folder of the copies as one more: the engine opens by them */
};

/* For a check of a spec: every path that cannot be opened is reported and left out. */
struct config_judge {
    void (*problem)(void *ctx, const char *text);
    void *ctx;
    int n;        /* paths reported */
    int n_remote; /* remote URIs, which are left out without a report */
};
/* As config_open. After problems the configuration is valid for its model and layout, but not for its data. */
MUST_CHECK status_t config_open_judged(const Trainyard__V1__JobSpec *spec, const struct roots *roots,
                                       struct config_judge *judge, struct config **ret, struct err *e);

/* copies: NULL without any; remote data are then INVALID_ARGUMENT. Borrowed until config_close. */
MUST_CHECK status_t config_open(const Trainyard__V1__JobSpec *spec, const struct roots *roots,
                                const struct config_copies *copies, struct config **ret, struct err *e);
struct config *config_close(struct config *c);
CLEANUP_DEFINE(struct config *, config_close)

/* If train.init_from names a folder: opens it for the engine, under the rules of data. Call it only for a run that
 * begins: a run that resumes, and a plan, do not need the folder, which may be gone. The name of a checkpoint has a
 * meaning only for a service, which passes the folder itself. */
MUST_CHECK status_t config_init_from(struct config *c, const struct roots *roots, struct err *e);

/* Replaces every `auto` in the engine's configuration and in config_spec. All ranks of the collective call it and
 * get the same values. *ret_chosen: the spec had an `auto`. Hooks and errors as engine_resolve. */
MUST_CHECK status_t config_resolve(struct config *c, struct collective *collective, const struct engine_hooks *hooks,
                                   bool *ret_chosen, struct err *e);

/* Measures for 0.1 s the FLOP/s of this rank's CPU in the spec's precision, for the metric `mfu`: engine_config's
 * peak_flops. Other work on the host makes the figure smaller. Call it on rank 0, which reports the metric, after the
 * threads are set. Other devices' kernels know their FLOP/s. After a failure a run only lacks the metric. */
MUST_CHECK status_t config_measure(struct config *c, struct err *e);

/* With every default, and after config_resolve without `auto`. Lives as long as c. */
const Trainyard__V1__JobSpec *config_spec(const struct config *c);

/* Borrowed and writable: the caller adds rank, world size, threads and directories. */
struct engine_config *config_engine(struct config *c);

#endif
