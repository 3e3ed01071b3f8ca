/* Following a job to its end, for `watch` and `submit --watch`. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "cli/command.h"

/* name: jobs/42. Events and progress go to stderr; with -o json every update goes to stdout as one line. Continues
 * after the last event when the controller has restarted. Sets c->exit_code from the job's last state. */
MUST_CHECK status_t watch_job(struct cli *c, const char *name, struct err *e);

#endif
