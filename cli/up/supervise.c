/* Runs the children of `up` from one poll(2) loop.
 *
 * Each round starts the children that are due (start_due), or stops them (stop_highest), and then waits for output, for
 * signals, or for the next deadline (poll_timeout_ms). Signals arrive through a signalfd, so that there is no handler.
 *
 * Start: children start in the order of the array; the first one that was never ready blocks those after it. A child
 * that ends `tries` times before it was ever ready, or exceeds its start limit, fails the whole start. Later ends only
 * cause a restart, after a backoff that starts again once a child has run for STEADY_MS.
 *
 * Stop: children of the highest tier that runs are stopped first. At the end every remaining descendant is killed: `up`
 * is a subreaper, so orphans become its children, and killing continues until waitpid finds none. */
#include "cli/up/supervise.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/process.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    BACKOFF_FIRST_MS = 100,
    BACKOFF_MAX_MS = 2000,
    /* A child that ran for this long did not fail at its start: the backoff starts again. */
    STEADY_MS = 10000,
    /* How long orphans may take to vanish after SIGKILL. */
    ORPHANS_MS = 10000,
};

static void report(struct supervise *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void report(struct supervise *s, const char *fmt, ...) {
    char line[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    s->report(s->ctx, line);
}

/* Stops everything; supervise_run returns the first reason. */
static void fail_start(struct supervise *s, status_t st) {
    if (s->failed == ST_OK)
        s->failed = st;
    s->stopping = true;
}

static void start_child(struct supervise *s, struct child *c) {
    struct err e;
    status_t st = child_start(c, s->self, &e);
    if (st == ST_OK)
        return;
    report(s, "%s", e.msg);
    if (!c->was_ready && s->failed == ST_OK)
        s->why = e;
    if (!c->was_ready)
        fail_start(s, st);
    c->start_at_ms = clock_mono_ms() + BACKOFF_MAX_MS;
}

static bool is_task(const struct child *c) { return c->ready_text == NULL; }

/* Only a child that runs and was never ready has a limit. */
static bool has_start_limit(const struct child *c) { return c->pid && !c->was_ready && c->start_limit_ms > 0; }

/* Starts the children that are due. A child waits until all before it have been ready once. */
static void start_due(struct supervise *s, int64_t now) {
    for (int i = 0; i < s->n; i++) {
        struct child *c = s->children[i];
        bool done = is_task(c) && c->was_ready;
        if (c->pid == 0 && !done && now >= c->start_at_ms)
            start_child(s, c);
        if (has_start_limit(c) && now > c->started_ms + c->start_limit_ms) {
            fail_start(s, err_set(&s->why, ST_DEADLINE_EXCEEDED, "%s is not ready after %lld s; its log is %s", c->name,
                                  (long long)c->start_limit_ms / 1000, c->log.path));
            return;
        }
        if (!c->was_ready)
            return;
    }
    if (!s->announced && !s->stopping) {
        s->announced = true;
        status_t st = s->all_ready(s->ctx, &s->why);
        if (st != ST_OK)
            fail_start(s, st);
    }
}

/* Sets the time of the next start, and reports the end of a child that was ready. */
static void plan_restart(struct supervise *s, struct child *c, const char *how, int64_t now) {
    if (now - c->started_ms > STEADY_MS)
        c->backoff_ms = 0;
    c->backoff_ms = c->backoff_ms == 0                   ? BACKOFF_FIRST_MS
                    : c->backoff_ms * 2 > BACKOFF_MAX_MS ? BACKOFF_MAX_MS
                                                         : c->backoff_ms * 2;
    c->start_at_ms = now + c->backoff_ms;
    if (c->was_ready)
        report(s, "%s %s; restarting it", c->name, how);
}

static void on_end(struct supervise *s, struct child *c, int wait_status) {
    char how[96];
    int64_t now = clock_mono_ms();
    child_ended(c, wait_status, how);
    if (s->stopping)
        return;
    if (is_task(c) && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0) {
        status_t st = s->task_done(s->ctx, c, &s->why);
        c->was_ready = st == ST_OK;
        if (st != ST_OK)
            fail_start(s, st);
        return;
    }
    if (!c->was_ready && ++c->early_ends >= c->tries) {
        const char *colon = strncmp(c->reason, "trainyard-", 10) == 0 ? strstr(c->reason, ": ") : NULL;
        const char *line = colon ? colon + 2 : c->reason[0] ? c->reason : how;
        fail_start(s, err_set(&s->why, ST_FAILED_PRECONDITION, "%s does not start: %.300s (its log is %.120s)", c->name,
                              line, c->log.path));
        return;
    }
    plan_restart(s, c, how, now);
}

/* Reaps children, and orphans that became ours because we are a subreaper. */
static void reap(struct supervise *s) {
    int wait_status;
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;)
        for (int i = 0; i < s->n; i++)
            if (s->children[i]->pid == pid) {
                on_end(s, s->children[i], wait_status);
                break;
            }
}

static void on_signals(struct supervise *s) {
    struct signalfd_siginfo info;
    while (read(s->signal_fd, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        if (s->stopping)
            s->kill_now = true;
        else
            report(s, "stopping");
        s->stopping = true;
    }
    reap(s);
}

/* Stops the highest tier that still runs; returns true if nothing runs. */
static bool stop_highest(struct supervise *s, int64_t now) {
    int tier = -1;
    for (int i = 0; i < s->n; i++)
        if (s->children[i]->pid && s->children[i]->tier > tier)
            tier = s->children[i]->tier;
    for (int i = 0; i < s->n; i++) {
        struct child *c = s->children[i];
        if (c->pid == 0 || c->tier != tier)
            continue;
        if (s->kill_now)
            c->kill_at_ms = now;
        child_stop(c, now);
    }
    return tier < 0;
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* The time until the next start, or until the deadline of a start or a stop. */
static int poll_timeout_ms(const struct supervise *s, int64_t now) {
    int64_t next = now + 60000;
    bool may_start = !s->stopping;
    for (int i = 0; i < s->n; i++) {
        const struct child *c = s->children[i];
        bool done = is_task(c) && c->was_ready;
        if (s->stopping && c->pid && c->kill_at_ms) /* after it, SIGKILL was sent: poll for the end */
            next = earlier(next, c->kill_at_ms > now ? c->kill_at_ms : now + 100);
        if (may_start && c->pid == 0 && !done)
            next = earlier(next, c->start_at_ms);
        if (may_start && has_start_limit(c))
            next = earlier(next, c->started_ms + c->start_limit_ms + 1);
        may_start = may_start && c->was_ready;
    }
    return next > now ? (int)(next - now) : 0;
}

static void wait_for_events(struct supervise *s) {
    struct pollfd fds[SUPERVISE_CHILDREN + 2];
    fds[0] = (struct pollfd){ .fd = s->signal_fd, .events = POLLIN };
    fds[1] = (struct pollfd){ .fd = s->announced ? -1 : s->parent_pipe };
    for (int i = 0; i < s->n; i++)
        fds[i + 2] = (struct pollfd){ .fd = s->children[i]->out, .events = POLLIN };
    if (poll(fds, (nfds_t)s->n + 2, poll_timeout_ms(s, clock_mono_ms())) <= 0)
        return;
    for (int i = 0; i < s->n; i++) {
        struct child *c = s->children[i];
        if (!fds[i + 2].revents)
            continue;
        if (!child_read(c)) {
            close(c->out);
            c->out = -1;
        }
    }
    if (fds[1].revents & POLLERR)
        s->stopping = true; /* the process that started us in the background has died */
    if (fds[0].revents)
        on_signals(s);
}

/* Kills orphans. The children of a killed process become ours, so this repeats until none is left. */
static void clear_orphans(void) {
    deadline_ms_t end = deadline_in(ORPHANS_MS);
    while (clock_mono_ms() < end) {
        process_kill_children(NULL, NULL);
        pid_t pid = waitpid(-1, NULL, WNOHANG);
        if (pid < 0 && errno == ECHILD)
            return;
        if (pid == 0)
            poll(NULL, 0, 5);
    }
}

status_t supervise_open(struct supervise *s, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN); /* a closed stdout or stderr must not end the service */
    s->signal_fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->signal_fd < 0)
        return err_errno(e, "signalfd");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0)
        return err_errno(e, "becoming a subreaper");
    return ST_OK;
}

void supervise_close(struct supervise *s) {
    if (s->signal_fd >= 0)
        close(s->signal_fd);
    s->signal_fd = -1;
}

status_t supervise_run(struct supervise *s, struct err *e) {
    for (;;) {
        int64_t now = clock_mono_ms();
        if (!s->stopping)
            start_due(s, now);
        if (s->stopping && stop_highest(s, now))
            break;
        wait_for_events(s);
    }
    clear_orphans();
    return s->failed == ST_OK ? ST_OK : err_set(e, s->failed, "%s", s->why.msg);
}
