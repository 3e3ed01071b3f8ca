/* One program that `up` runs: how it starts, becomes ready, and stops.
 *
 * Each child has its own process group (so that Ctrl-C reaches only `up`), dies with `up`, and writes into a pipe that
 * `up` copies to DIR/logs/NAME.log. One line is kept as the reason to report if the child ends too early: the last
 * complaint ("trainyard-controller: ...", "FATAL: ...", "initdb: error: ..."), or else the last line. */
#ifndef CLI_UP_CHILD_H
#define CLI_UP_CHILD_H

#include "base/log_file.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_ARGUMENTS = 160, CHILD_LINE_BYTES = 480, CHILD_TEXT_BYTES = 16384, CHILD_LOG_BYTES = 8 << 20 };

struct child {
    /* Filled by child_init and child_argument. */
    char name[32]; /* "executor-1": names its log, and the child in messages */
    const char *argv[CHILD_ARGUMENTS + 1];
    int argc;
    char text[CHILD_TEXT_BYTES]; /* the arguments' text */
    size_t text_used;
    /* Set by the owner. */
    uid_t uid; /* (uid_t)-1: ours */
    gid_t gid;
    int directory_fd;       /* the child gets it as descriptor CHILD_DIRECTORY_FD; -1: none */
    const char *ready_text; /* begins the line that means ready; NULL: a task, ready when it has exited with 0 */
    int tier;               /* higher tiers are stopped first */
    int tries;              /* how often it may end before it was ever ready */
    int64_t start_limit_ms; /* to become ready for the first time; 0: no limit */
    int stop_signal;        /* asks it to end */
    int death_signal;       /* sent to it when `up` dies */
    int64_t stop_grace_ms;  /* from stop_signal to SIGKILL */
    /* Called with each line that the child writes after report_after_ms, except complaints, which the failure of the
     * start reports; NULL: not called. */
    void (*report_line)(void *ctx, const char *line);
    void *report_ctx;
    int64_t report_after_ms;
    /* State. */
    pid_t pid;      /* 0: not running */
    int out;        /* its stdout and stderr; -1: closed */
    bool ready;     /* now */
    bool was_ready; /* at least once; a task: done */
    int early_ends; /* ends before was_ready */
    int64_t started_ms, start_at_ms, backoff_ms, kill_at_ms;
    char line[CHILD_LINE_BYTES]; /* the line being read */
    size_t line_len;
    char reason[CHILD_LINE_BYTES];
    bool has_complaint; /* reason is one */
    struct log_file log;
};

/* The child's descriptor for directory_fd. High enough not to collide with others. */
enum { CHILD_DIRECTORY_FD = 9 };

MUST_CHECK status_t child_init(struct child *c, const char *name, const char *log_path, struct err *e);
void child_done(struct child *c);

/* Appends one argument; the first is the program's path. If they are too many or too long, child_start fails. */
void child_argument(struct child *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* self: this program's path, for exec-child. */
MUST_CHECK status_t child_start(struct child *c, const char *self, struct err *e);

/* Copies the child's output to its log; sets ready and reason. Returns false at the end of the pipe. */
bool child_read(struct child *c);

/* After waitpid: reads the rest of the output, and writes how the child ended: "exited with status 1", "was killed by
 * signal 9 (Killed)". */
void child_ended(struct child *c, int wait_status, char ret[96]);

/* Sends the stop signal once, and SIGKILL after the grace period. */
void child_stop(struct child *c, int64_t now_ms);

#endif
