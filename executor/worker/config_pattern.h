/* The files of a host that a pattern of a file:// URI matches. */
#ifndef EXECUTOR_WORKER_CONFIG_PATTERN_H
#define EXECUTOR_WORKER_CONFIG_PATTERN_H

#include "base/status.h"

#include <stddef.h>

struct roots;

struct matched_paths {
    char **all; /* sorted, each once */
    size_t n;
};
void matched_paths_done(struct matched_paths *paths);

/* Lists folders below the roots only, without following links there (base/roots.h). NOT_FOUND: no file matches;
 * RESOURCE_EXHAUSTED: more than LIMIT_DATA_OBJECTS do; and as roots_open. The files are not opened. */
MUST_CHECK status_t config_pattern_match(const char *uri, const struct roots *roots, struct matched_paths *ret,
                                         struct err *e);

#endif
