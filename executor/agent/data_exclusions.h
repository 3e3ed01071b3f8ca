/* Files and folders that no job of this host may read as data, even below a data root: the agent's token, key and
 * directory, and the paths that its options name. They are resolved again for each worker, because files with secrets
 * are replaced while an agent runs. */
#ifndef EXECUTOR_AGENT_DATA_EXCLUSIONS_H
#define EXECUTOR_AGENT_DATA_EXCLUSIONS_H

#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

enum { DATA_EXCLUSIONS_OWN = 5, DATA_EXCLUSIONS_MAX = DATA_EXCLUSIONS_OWN + AGENT_PATHS_MAX };

/* Strings are borrowed from the agent's options. */
struct data_exclusions {
    Trainyard__V1__DataExcept all[DATA_EXCLUSIONS_MAX], *list[DATA_EXCLUSIONS_MAX];
    size_t n;
};

void data_exclusions_find(const struct host *host, struct data_exclusions *ret);

#endif
