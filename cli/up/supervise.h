/* Runs children in order, keeps them running, and stops them in reverse order.
 *
 *   start   child i starts when every child before it has been ready once; a child that ends too often before it was
 *           ever ready ends the whole start, with its last line as the reason
 *   run     whatever ends is started again, after 100 ms, then up to 2 s; a task (ready_text NULL) is not
 *   stop    on SIGINT, SIGTERM or SIGHUP: tier by tier, highest first, each child by its stop signal and after its
 *           grace by SIGKILL; a second signal ends the graces. Then whatever is left below us is killed and reaped:
 *           `up` is a subreaper, so orphans of its children come to it.
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
    /* Called once when every child has been ready. */
    status_t (*all_ready)(void *ctx, struct err *e);
    /* Called when a task has ended well. */
    status_t (*task_done)(void *ctx, const struct child *c, struct err *e);
    /* One line for a person, without a newline. */
    void (*say)(void *ctx, const char *line);
    void *ctx;
    int parent_pipe; /* a pipe whose reader's end stops us until all are ready; -1: none */

    int signal_fd;
    bool announced, stopping, hurried;
    status_t failed;
    struct err why;
};

/* Blocks the signals, so that one that comes from now on is not lost but stops the run, and becomes a subreaper. */
MUST_CHECK status_t supervise_open(struct supervise *s, struct err *e);
void supervise_close(struct supervise *s);

/* Returns when everything has stopped: ST_OK after a signal, else why the start failed. */
MUST_CHECK status_t supervise_run(struct supervise *s, struct err *e);

#endif
