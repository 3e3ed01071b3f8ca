/* One program that `up` runs: how it is started, known to be ready, watched, and stopped.
 *
 * Each child has a process group of its own (so that Ctrl-C reaches only `up`), dies with `up`, and writes into a pipe
 * that `up` copies to DIR/logs/NAME.log. One line is kept as the reason told when it dies too early: the last that is a
 * complaint ("trainyard-controller: ...", "FATAL: ...", "initdb: error: ..."), else the last. */
#ifndef CLI_UP_CHILD_H
#define CLI_UP_CHILD_H

#include "base/status.h"
#include "cli/up/log_file.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum { CHILD_ARGUMENTS = 40, CHILD_LINE_BYTES = 480, CHILD_TEXT_BYTES = 8192 };

struct child {
    /* Filled by child_init and child_argument. */
    char name[32]; /* "executor-1": of its log and in sentences */
    const char *argv[CHILD_ARGUMENTS + 1];
    int argc;
    char text[CHILD_TEXT_BYTES]; /* what argv points into */
    size_t text_used;
    /* Filled by the owner. */
    uid_t uid; /* (uid_t)-1: ours */
    gid_t gid;
    int directory_fd;       /* given to the child as descriptor CHILD_DIRECTORY_FD; -1: none */
    const char *ready_text; /* a line that begins with it means ready; NULL: ready when it has ended with 0 (a task) */
    int tier;               /* all of a higher tier are stopped before it */
    int tries;              /* ends before it was ever ready, before `up` gives up */
    int64_t start_limit_ms; /* to become ready, at first */
    int stop_signal;        /* asks it to end */
    int death_signal;       /* it gets this when `up` dies */
    int64_t stop_grace_ms;  /* from stop_signal to SIGKILL */
    /* State. */
    pid_t pid;      /* 0: not running */
    int out;        /* its stdout and stderr; -1: closed */
    bool ready;     /* now */
    bool was_ready; /* at least once; a task: done */
    int early_ends; /* before that */
    int64_t started_ms, start_at_ms, backoff_ms, kill_at_ms;
    char line[CHILD_LINE_BYTES]; /* the line being read */
    size_t line_len;
    char reason[CHILD_LINE_BYTES];
    bool has_complaint; /* reason is one */
    struct log_file log;
};

/* Where the child finds directory_fd. High enough for no program to stumble over it. */
enum { CHILD_DIRECTORY_FD = 9 };

MUST_CHECK status_t child_init(struct child *c, const char *name, const char *log_path, struct err *e);
void child_done(struct child *c);

/* Appends one argument (the first is the program's path). Too many or too long ones fail at child_start. */
void child_argument(struct child *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* self: this program's path, for exec-child. */
MUST_CHECK status_t child_start(struct child *c, const char *self, struct err *e);

/* Copies what the child wrote to its log; sets ready and reason. Returns false at the pipe's end. */
bool child_read(struct child *c);

/* After waitpid: reads the rest, and says how it ended: "exited with status 1", "was killed by signal 9 (Killed)". */
void child_ended(struct child *c, int wait_status, char ret[96]);

/* Sends the stop signal once, and SIGKILL when the grace is over. */
void child_stop(struct child *c, int64_t now_ms);

#endif
