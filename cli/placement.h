/* Reports on stderr where the ranks of a submitted job have started. */
#ifndef CLI_PLACEMENT_H
#define CLI_PLACEMENT_H

#include "cli/client.h"

#include <trainyard/v1/job.pb-c.h>

/* Prints "2 ranks on host vm, 1 core each". Waits at most half a second for the ranks to start, and at most 50 ms for
 * the job to leave QUEUED. Prints nothing after that, if a call fails, or with -o. */
void placement_print(struct cli *c, const char *job);

#endif
