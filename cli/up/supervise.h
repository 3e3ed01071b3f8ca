/* Runs children in order, keeps them running, and stops them in reverse order.
 *
 *   start   child i starts when every child before it has been ready once; a child that ends too often before it was
 *           ever ready fails the whole start, with its last line as the reason
 *   run     a child that ends is restarted, after 100 ms, then up to 2 s; a task (ready_text NULL) is not
 *   stop    on SIGINT, SIGTERM or SIGHUP: tier by tier, highest first; each child gets its stop signal, and SIGKILL
 *           after its grace period. A second signal ends the grace periods. Then every remaining descendant is killed
 *           and reaped: `up` is a subreaper, so orphans of its children become its children.
 *
 * One thread, one loop over poll(2). */
#ifndef CLI_UP_SUPERVISE_H
#define CLI_UP_SUPERVISE_H

#include "base/status.h"
#include "cli/up/child.h"

enum { SUPERVISE_CHILDREN = 72 };

struct supervise {
    const char *self; /* this program's path */
    struct child *children[SUPERVISE_CHILDREN];
    int n;
    /* Called once, when every child has been ready. */
    status_t (*all_ready)(void *ctx, struct err *e);
    /* Called when a task has exited with 0. */
    status_t (*task_done)(void *ctx, const struct child *c, struct err *e);
    /* Prints one line, given without a newline. */
    void (*report)(void *ctx, const char *line);
    void *ctx;
    int parent_pipe; /* until all are ready, closing this pipe's other end stops the run; -1: none */

    int signal_fd;
    bool announced, stopping, kill_now; /* kill_now: without grace periods */
    status_t failed;
    struct err why;
};

/* Blocks the signals, so that a signal from now on stops the run and is not lost, and becomes a subreaper. */
MUST_CHECK status_t supervise_open(struct supervise *s, struct err *e);
void supervise_close(struct supervise *s);

/* Returns when everything has stopped: ST_OK after a signal, else the reason of the failed start. */
MUST_CHECK status_t supervise_run(struct supervise *s, struct err *e);

#endif
