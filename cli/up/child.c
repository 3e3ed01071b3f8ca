/* One program that `up` runs.
 *
 * child_start() runs this program again as `exec-child` (exec_child.h), which sets the user and the parent-death signal
 * and then executes the real program. stdout and stderr of the child share one pipe. child_read() copies the pipe to
 * the child's log and splits it into lines. Each line is checked twice: a line that begins with ready_text marks the
 * child as ready, and a complaint (our programs' "trainyard-x: ...", PostgreSQL's severities) becomes the reason that
 * `up` reports if the child ends too early. Without a complaint the last line is the reason. child_stop() sends the
 * stop signal at the first call, and SIGKILL to the process group at calls after the grace period. */
#include "cli/up/child.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/process.h"
#include "cli/up/exec_child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

status_t child_init(struct child *c, const char *name, const char *log_path, struct err *e) {
    *c = (struct child){ .uid = (uid_t)-1,
                         .gid = (gid_t)-1,
                         .directory_fd = -1,
                         .tries = 3,
                         .start_limit_ms = 60000,
                         .stop_signal = SIGTERM,
                         .death_signal = SIGKILL,
                         .stop_grace_ms = 15000,
                         .out = -1,
                         .log = { .fd = -1 } };
    snprintf(c->name, sizeof c->name, "%s", name);
    return log_file_open(&c->log, log_path, CHILD_LOG_BYTES, 0644, e);
}

void child_done(struct child *c) {
    if (c->out >= 0)
        close(c->out);
    c->out = -1;
    if (c->directory_fd >= 0)
        close(c->directory_fd);
    c->directory_fd = -1;
    log_file_close(&c->log);
}

void child_argument(struct child *c, const char *fmt, ...) {
    size_t capacity = sizeof c->text - c->text_used;
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(c->text + c->text_used, capacity, fmt, args);
    va_end(args);
    if (c->argc <= CHILD_ARGUMENTS)
        c->argc++;
    if (n < 0 || (size_t)n >= capacity || c->argc > CHILD_ARGUMENTS) {
        c->argc = CHILD_ARGUMENTS + 1; /* child_start refuses */
        return;
    }
    c->argv[c->argc - 1] = c->text + c->text_used;
    c->text_used += (size_t)n + 1;
}

/* exec-child and its arguments, before the child's own arguments. */
struct prefixed {
    char parent[24], signal[16], uid[24], gid[24];
    const char *argv[CHILD_ARGUMENTS + 8];
};

static void prefix_arguments(const struct child *c, const char *self, struct prefixed *p) {
    snprintf(p->parent, sizeof p->parent, "%ld", (long)getpid());
    snprintf(p->signal, sizeof p->signal, "%d", c->death_signal);
    snprintf(p->uid, sizeof p->uid, "%ld", c->uid == (uid_t)-1 ? -1L : (long)c->uid);
    snprintf(p->gid, sizeof p->gid, "%ld", c->gid == (gid_t)-1 ? -1L : (long)c->gid);
    const char *const head[] = { self, EXEC_CHILD_COMMAND, p->parent, p->signal, p->uid, p->gid };
    int n = 0;
    for (size_t i = 0; i < sizeof head / sizeof *head; i++)
        p->argv[n++] = head[i];
    for (int i = 0; i < c->argc; i++)
        p->argv[n++] = c->argv[i];
    p->argv[n] = NULL;
}

status_t child_start(struct child *c, const char *self, struct err *e) {
    if (c->argc > CHILD_ARGUMENTS)
        return err_set(e, ST_INVALID_ARGUMENT, "the arguments of %s are too long", c->name);
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "a pipe for %s", c->name);
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    struct prefixed p;
    prefix_arguments(c, self, &p);
    const struct process child = {
        .program = self,
        .argv = p.argv,
        .fds = { { PROCESS_NULL, STDIN_FILENO },
                 { ends[1], STDOUT_FILENO },
                 { ends[1], STDERR_FILENO },
                 { c->directory_fd, CHILD_DIRECTORY_FD } },
        .n_fds = c->directory_fd >= 0 ? 4 : 3,
        .group = PROCESS_OWN_GROUP,
    };
    status_t st = process_start(&child, &c->pid, e);
    close(ends[1]);
    if (st != ST_OK) {
        c->pid = 0;
        close(ends[0]);
        return err_prefix(e, st, "%s: ", c->name);
    }
    if (c->out >= 0)
        close(c->out);
    c->out = ends[0];
    c->ready = false;
    c->line_len = 0;
    c->reason[0] = '\0';
    c->has_complaint = false;
    c->kill_at_ms = 0;
    c->started_ms = clock_mono_ms();
    return ST_OK;
}

/* The text must be at the start of the line or after a log prefix, which ends in two spaces: "already " contains
 * "ready ". */
static bool is_ready_line(const struct child *c) {
    const char *at = c->ready_text ? strstr(c->line, c->ready_text) : NULL;
    return at && (at == c->line || (at - c->line >= 2 && at[-1] == ' ' && at[-2] == ' '));
}

/* Our programs begin their last sentence with their name; PostgreSQL's lines have a severity. */
static bool is_complaint(const struct child *c) {
    static const char *const marks[] = { "trainyard-", "FATAL:", "PANIC:", "error:", " error " };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const char *at = strstr(c->line, marks[i]);
        if (at && (i > 0 || at == c->line))
            return true;
    }
    return false;
}

static void line_done(struct child *c) {
    c->line[c->line_len] = '\0';
    c->line_len = 0;
    if (c->line[0] == '\0')
        return;
    bool complaint = is_complaint(c);
    if (complaint || !c->has_complaint)
        memcpy(c->reason, c->line, sizeof c->line);
    c->has_complaint = c->has_complaint || complaint;
    if (c->report_line && !complaint && clock_mono_ms() - c->started_ms >= c->report_after_ms)
        c->report_line(c->report_ctx, c->line);
    if (is_ready_line(c))
        c->ready = c->was_ready = true;
}

static void take_text(struct child *c, const char *data, size_t n) {
    (void)log_file_write(&c->log, data, n);
    for (size_t i = 0; i < n; i++) {
        if (data[i] == '\n')
            line_done(c);
        else if (c->line_len + 1 < sizeof c->line)
            c->line[c->line_len++] = (unsigned char)data[i] < 0x20 ? ' ' : data[i];
    }
}

bool child_read(struct child *c) {
    char data[16384];
    for (int i = 0; i < 16; i++) { /* bounded, so that one busy child does not block the others */
        ssize_t n = read(c->out, data, sizeof data);
        if (n < 0)
            return errno == EAGAIN || errno == EINTR;
        if (n == 0)
            return false;
        take_text(c, data, (size_t)n);
    }
    return true;
}

void child_ended(struct child *c, int wait_status, char ret[96]) {
    if (c->out >= 0)
        child_read(c);
    if (c->line_len)
        line_done(c);
    if (WIFEXITED(wait_status))
        snprintf(ret, 96, "exited with status %d", WEXITSTATUS(wait_status));
    else
        snprintf(ret, 96, "was killed by signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    c->pid = 0;
    c->ready = false;
}

void child_stop(struct child *c, int64_t now_ms) {
    if (c->pid == 0)
        return;
    if (c->kill_at_ms == 0) {
        c->kill_at_ms = now_ms + c->stop_grace_ms;
        kill(c->pid, c->stop_signal);
    } else if (now_ms >= c->kill_at_ms) {
        kill(-c->pid, SIGKILL);
    }
}
