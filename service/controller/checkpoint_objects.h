/* Removes the objects of checkpoints that are in a store (checkpoint.store). The controller has no access to stores: an
 * executor with the keys of the job does it. Blocks for at most CHECKPOINT_OBJECTS_MS. Thread-safe. */
#ifndef SERVICE_CONTROLLER_CHECKPOINT_OBJECTS_H
#define SERVICE_CONTROLLER_CHECKPOINT_OBJECTS_H

#include "base/status.h"

#include <trainyard/v1/spec.pb-c.h>

enum { CHECKPOINT_OBJECTS_MS = 60 * 1000 };

struct dispatch;
struct keyring;
struct spec_checks;
struct store;

struct checkpoint_objects {
    struct store *store;
    const struct keyring *keyring;
    struct dispatch *dispatch;
    struct spec_checks *checks;
};

/* ST_OK only if no object is left that the pattern names (s3://). UNAVAILABLE: no executor could do it now.
 * FAILED_PRECONDITION: a secret of the job, which is needed for that, cannot be read. */
MUST_CHECK status_t checkpoint_objects_remove(const struct checkpoint_objects *o, const Trainyard__V1__JobSpec *spec,
                                              const char *pattern, struct err *e);

#endif
