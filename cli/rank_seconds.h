/* Prints where the time of a job's ranks went: tables of seconds by cause. */
#ifndef CLI_RANK_SECONDS_H
#define CLI_RANK_SECONDS_H

#include "cli/client.h"

/* A blank line and one line for each attempt. Nothing for a job without attempts, an imported run, or a controller of
 * an older release. name: "jobs/42". */
MUST_CHECK status_t rank_seconds_print_attempts(struct cli *c, const char *name, struct err *e);

/* The attempts, and the ranks of one of them; 0: of the newest. In the format of -o. */
MUST_CHECK status_t rank_seconds_print(struct cli *c, const char *name, int attempt, struct err *e);

#endif
