#include "cli/up/supervise.h"

#include "base/cleanup.h"
#include "base/clock.h"

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
    BACKOFF_MOST_MS = 2000,
    /* A child that ran for so long did not fail at its start: the backoff begins anew. */
    STEADY_MS = 10000,
    /* How long orphans may take to vanish after SIGKILL. */
    ORPHANS_MS = 10000,
};

static void say(struct supervise *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void say(struct supervise *s, const char *fmt, ...) {
    char line[900];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    s->say(s->ctx, line);
}

/* The start has failed: everything is stopped, and this is what supervise_run returns. The first reason counts. */
static void give_up(struct supervise *s, status_t st) {
    if (s->failed == ST_OK)
        s->failed = st;
    s->stopping = true;
}

static void start_child(struct supervise *s, struct child *c) {
    struct err e;
    status_t st = child_start(c, s->self, &e);
    if (st == ST_OK)
        return;
    say(s, "%s", e.msg);
    if (!c->was_ready && s->failed == ST_OK)
        s->why = e;
    if (!c->was_ready)
        give_up(s, st);
    c->start_at_ms = clock_mono_ms() + BACKOFF_MOST_MS;
}

static bool is_task(const struct child *c) { return c->ready_text == NULL; }

/* Starts whatever is due. A child waits until all before it have been ready once. */
static void start_due(struct supervise *s, int64_t now) {
    for (int i = 0; i < s->n; i++) {
        struct child *c = s->children[i];
        bool done = is_task(c) && c->was_ready;
        if (c->pid == 0 && !done && now >= c->start_at_ms)
            start_child(s, c);
        if (c->pid && !c->was_ready && now > c->started_ms + c->start_limit_ms) {
            give_up(s, err_set(&s->why, ST_DEADLINE_EXCEEDED, "%s is not ready after %lld s; its log is %s", c->name,
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
            give_up(s, st);
    }
}

/* A child that was ready, or may try again: when, and what a person is told. */
static void plan_restart(struct supervise *s, struct child *c, const char *how, int64_t now) {
    if (now - c->started_ms > STEADY_MS)
        c->backoff_ms = 0;
    c->backoff_ms = c->backoff_ms == 0                    ? BACKOFF_FIRST_MS
                    : c->backoff_ms * 2 > BACKOFF_MOST_MS ? BACKOFF_MOST_MS
                                                          : c->backoff_ms * 2;
    c->start_at_ms = now + c->backoff_ms;
    if (c->was_ready)
        say(s, "%s %s; starting it again", c->name, how);
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
            give_up(s, st);
        return;
    }
    if (!c->was_ready && ++c->early_ends >= c->tries) {
        const char *colon = strncmp(c->reason, "trainyard-", 10) == 0 ? strstr(c->reason, ": ") : NULL;
        const char *line = colon ? colon + 2 : c->reason[0] ? c->reason : how;
        give_up(s, err_set(&s->why, ST_FAILED_PRECONDITION, "%s does not start: %.300s (its log is %.120s)", c->name,
                           line, c->log.path));
        return;
    }
    plan_restart(s, c, how, now);
}

/* Children, and orphans of theirs, which came to us because we are a subreaper. */
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
            s->hurried = true;
        else
            say(s, "stopping");
        s->stopping = true;
    }
    reap(s);
}

/* Asks the highest tier that still runs to end; true when nothing runs. */
static bool stop_highest(struct supervise *s, int64_t now) {
    int tier = -1;
    for (int i = 0; i < s->n; i++)
        if (s->children[i]->pid && s->children[i]->tier > tier)
            tier = s->children[i]->tier;
    for (int i = 0; i < s->n; i++) {
        struct child *c = s->children[i];
        if (c->pid == 0 || c->tier != tier)
            continue;
        if (s->hurried)
            c->kill_at_ms = now;
        child_stop(c, now);
    }
    return tier < 0;
}

static int64_t earlier(int64_t a, int64_t b) { return a < b ? a : b; }

/* When poll must return though nothing happens: the next start, or the deadline of a start or a stop. */
static int poll_timeout_ms(const struct supervise *s, int64_t now) {
    int64_t next = now + 60000;
    bool may_start = !s->stopping;
    for (int i = 0; i < s->n; i++) {
        const struct child *c = s->children[i];
        bool done = is_task(c) && c->was_ready;
        if (s->stopping && c->pid && c->kill_at_ms) /* when it is over, SIGKILL is on its way */
            next = earlier(next, c->kill_at_ms > now ? c->kill_at_ms : now + 100);
        if (may_start && c->pid == 0 && !done)
            next = earlier(next, c->start_at_ms);
        if (may_start && c->pid && !c->was_ready)
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
        s->stopping = true; /* whoever started us in the background has gone */
    if (fds[0].revents)
        on_signals(s);
}

/* Every process whose parent we are, from the kernel's list. */
static int kill_direct_children(void) {
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/children", (int)getpid());
    CLEANUP(fclosep) FILE *f = fopen(path, "re");
    int n = 0;
    for (int pid; f && fscanf(f, "%d", &pid) == 1; n++)
        kill(pid, SIGKILL);
    return n;
}

/* Ends what outlived its parent: each killed process may hand us its own children, so again until none is left. */
static void clear_orphans(void) {
    deadline_ms_t end = deadline_in(ORPHANS_MS);
    while (clock_mono_ms() < end) {
        kill_direct_children();
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
    signal(SIGPIPE, SIG_IGN); /* nobody may read what we say any longer: no reason to end */
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
