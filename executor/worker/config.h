/* A job spec becomes the engine's configuration: the one place where both trainyard-worker and trainyard-train convert.
 *
 *     struct config *c = NULL;
 *     TRY(config_open(spec, &roots, &c, e));      // spec: resolved by spec_resolve, every default filled in
 *     struct engine_config *ec = config_engine(c);
 *     ec->threads = ...;                          // what the spec does not say: rank, world size, threads, directories
 *     ... engine_open(ec, ...) ...
 *     c = config_close(c);                        // after engine_close: the engine's strings point into c and into
 * spec
 *
 * Data files are file:// URIs. Each must be a regular file that can be read and lie below one of `roots`, after every
 * symbolic link on the way is followed; NULL or no roots: whatever the process may read. The engine gets the path
 * without links. Errors are INVALID_ARGUMENT and begin with the field's path (`data.text.files[0]: ...`). The spec is
 * not copied and must outlive the configuration. */
#ifndef EXECUTOR_WORKER_CONFIG_H
#define EXECUTOR_WORKER_CONFIG_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/spec.pb-c.h>

struct config;
struct engine_config;

/* Folders, as paths. A path that does not exist allows nothing. */
struct data_roots {
    const char *const *paths;
    size_t n;
};

MUST_CHECK status_t config_open(const Trainyard__V1__JobSpec *spec, const struct data_roots *roots, struct config **ret,
                                struct err *e);
struct config *config_close(struct config *c);
CLEANUP_DEFINE(struct config *, config_close)

/* Borrowed and writable: the caller adds rank, world size, threads and directories. */
struct engine_config *config_engine(struct config *c);

#endif
