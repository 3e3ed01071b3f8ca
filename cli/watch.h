/* Following a job to its end, for `watch` and `submit --watch`. */
#ifndef CLI_WATCH_H
#define CLI_WATCH_H

#include "cli/command.h"

/* name: jobs/42. Progress and events go to stderr, or with -o json every update as one line to stdout. Survives a
 * restart of the controller: it goes on after the last event seen. Sets c->exit_code from the job's last state. */
MUST_CHECK status_t watch_job(struct cli *c, const char *name, struct err *e);

#endif
