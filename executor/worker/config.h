/* A job spec becomes the engine's configuration: the one place where both trainyard-worker and trainyard-train convert.
 *
 *     struct config *c = NULL;
 *     TRY(config_open(spec, &roots, &c, e));      // any spec that spec_resolve accepts
 *     struct engine_config *ec = config_engine(c);
 *     ec->threads = ...;                          // what the spec does not say: threads, directories
 *     TRY(config_init_from(c, &roots, e));        // unless it goes on from a checkpoint
 *     TRY(config_resolve(c, collective, &hooks, &chosen, e)); // `auto` becomes what rank 0's plan chooses
 *     ... engine_open(ec, ...) ...
 *     c = config_close(c);                        // after engine_close: the engine's strings point into c
 *
 * Data is named by file:// URIs. Each must be a file or a folder that can be read and lie below one of `roots`, after
 * every symbolic link on the way is followed; NULL or no roots: whatever the process may read. The engine gets the path
 * without links. Errors are INVALID_ARGUMENT and begin with the field's path (`data.text.files[0]: ...`). The spec is
 * copied. */
#ifndef EXECUTOR_WORKER_CONFIG_H
#define EXECUTOR_WORKER_CONFIG_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct config;
struct collective;
struct engine_config;
struct engine_hooks;

/* Folders, as paths. A path that does not exist allows nothing. */
struct data_roots {
    const char *const *paths;
    size_t n;
};

MUST_CHECK status_t config_open(const Trainyard__V1__JobSpec *spec, const struct data_roots *roots, struct config **ret,
                                struct err *e);
struct config *config_close(struct config *c);
CLEANUP_DEFINE(struct config *, config_close)

/* Where train.init_from names a folder: opens it for the engine, under the rules of data. Only for a run that begins:
 * one that goes on from a checkpoint, and a plan, need no such folder, which may be gone by then. A checkpoint's name
 * means a folder only to a service, which then hands in the folder itself. */
MUST_CHECK status_t config_init_from(struct config *c, const struct data_roots *roots, struct err *e);

/* Fills in what the spec left to the plan, in the engine's configuration and in config_spec, alike on every rank of the
 * collective, which all call it. *ret_chosen: there was something to choose. Hooks and errors as engine_resolve. */
MUST_CHECK status_t config_resolve(struct config *c, struct collective *collective, const struct engine_hooks *hooks,
                                   bool *ret_chosen, struct err *e);

/* What this rank's CPU can do in the spec's precision, for the metric `mfu`, once threads are set: it is measured, for
 * 0.1 s; other devices' kernels say it themselves. Rank 0 alone reports it, and alone needs this. After a failure a run
 * only lacks the metric. */
MUST_CHECK status_t config_measure(struct config *c, struct err *e);

/* With every default, and after config_resolve with what `auto` became. Lives as long as c. */
const Trainyard__V1__JobSpec *config_spec(const struct config *c);

/* Borrowed and writable: the caller adds rank, world size, threads and directories. */
struct engine_config *config_engine(struct config *c);

#endif
