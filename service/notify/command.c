/* One run of a command: the notification is its standard input, and exit status 0 means that it was delivered.
 *
 * The command gets a session of its own, the environment below and nothing of the controller's, /dev/null as its
 * standard output, and a pipe as its standard error, of which the last bytes are kept for the log. After its time
 * limit, or when this controller stops, its whole process group is killed; also what it has left behind when it ends.
 * The command is reaped only after that, so that its process group keeps its number. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/process.h"
#include "base/utf8.h"
#include "service/notify/message.h"
#include "service/notify/receiver.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STOP_POLL_MS = 100, TAIL_BYTES = 256, VARIABLE_BYTES = 512 };

struct run {
    pid_t pid;
    int pidfd, err; /* err: the read end of its standard error; -1: closed */
    char tail[TAIL_BYTES];
    size_t n_tail;
};

/* The body is smaller than the buffer of a pipe, so that the write does not block. */
_Static_assert(NOTIFY_MESSAGE_BYTES < 64 << 10, "a notification fits into a pipe");

static status_t open_pipe(int ret[2], struct err *e) {
    return pipe2(ret, O_CLOEXEC) == 0 ? ST_OK : err_errno(e, "make a pipe for a command");
}

static status_t spawn(const struct notify_target *t, const struct store_notification *n, int in, int err, pid_t *ret,
                      struct err *e) {
    const Trainyard__V1__CommandReceiver *c = t->spec->command;
    char event[VARIABLE_BYTES], delivery[VARIABLE_BYTES], job[VARIABLE_BYTES];
    CLEANUP(freep) const char **variables = alloc_zeroed(c->n_environment + 8, sizeof *variables);
    CLEANUP(freep) const char **argv = alloc_zeroed(c->n_argv + 1, sizeof *argv);
    size_t v = 0;
    snprintf(event, sizeof event, "TRAINYARD_EVENT=%.64s", notify_event_name(n));
    snprintf(delivery, sizeof delivery, "TRAINYARD_DELIVERY=%s", n->delivery);
    snprintf(job, sizeof job, n->job ? "TRAINYARD_JOB=jobs/%lld" : "TRAINYARD_JOB=", (long long)n->job);
    variables[v++] = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    variables[v++] = "LANG=C.UTF-8";
    variables[v++] = event;
    variables[v++] = delivery;
    variables[v++] = job;
    for (size_t i = 0; i < c->n_environment; i++)
        variables[v++] = c->environment[i];
    for (size_t i = 0; i < c->n_argv; i++)
        argv[i] = c->argv[i];
    const struct process p = { .program = c->argv[0],
                               .argv = argv,
                               .environ = variables,
                               .fds = { { in, 0 }, { PROCESS_NULL, 1 }, { err, 2 } },
                               .n_fds = 3,
                               .group = PROCESS_OWN_SESSION };
    return process_start(&p, ret, e);
}

/* Keeps the last bytes of what the command writes. */
static void read_error(struct run *r) {
    char chunk[4096];
    ssize_t n = read(r->err, chunk, sizeof chunk);
    if (n <= 0) {
        if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
            close(r->err);
            r->err = -1;
        }
        return;
    }
    size_t take = (size_t)n < TAIL_BYTES - 1 ? (size_t)n : TAIL_BYTES - 1;
    if (r->n_tail + take > TAIL_BYTES - 1) {
        const size_t drop = r->n_tail + take - (TAIL_BYTES - 1);
        memmove(r->tail, r->tail + drop, r->n_tail - drop);
        r->n_tail -= drop;
    }
    memcpy(r->tail + r->n_tail, chunk + (size_t)n - take, take);
    r->n_tail += take;
}

/* Waits for the end of the command. False: its time is over, or `stop` has become true. */
static bool wait_end(struct run *r, int timeout_ms, const atomic_bool *stop) {
    const deadline_ms_t deadline = deadline_in(timeout_ms);
    while (!atomic_load(stop) && clock_mono_ms() < deadline) {
        struct pollfd fds[] = { { .fd = r->pidfd, .events = POLLIN }, { .fd = r->err, .events = POLLIN } };
        const int left = deadline_poll_ms(deadline);
        poll(fds, 2, left < STOP_POLL_MS ? left : STOP_POLL_MS);
        if (fds[1].revents)
            read_error(r);
        if (fds[0].revents)
            return true;
    }
    return false;
}

/* Kills what is left of the process group, and reaps the command. Returns its exit status; -1: a signal ended it. */
static int reap(struct run *r) {
    int status = 0;
    kill(-r->pid, SIGKILL);
    while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR) {
    }
    for (int i = 0; r->err >= 0 && i < 16; i++) { /* not for ever: a process in another group may hold the pipe */
        struct pollfd fd = { .fd = r->err, .events = POLLIN };
        if (poll(&fd, 1, 0) <= 0)
            break;
        read_error(r);
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void describe(struct run *r, const char *program, const char *how, struct err *ret_why) {
    char text[TAIL_BYTES] = "", last[TAIL_BYTES];
    r->tail[r->n_tail] = '\0';
    while (r->n_tail > 0 && r->tail[r->n_tail - 1] == '\n')
        r->tail[--r->n_tail] = '\0';
    const char *line = strrchr(r->tail, '\n');
    snprintf(last, sizeof last, "%s", line ? line + 1 : r->tail);
    utf8_printable(last, strlen(last), "", text);
    status_ignore(err_set(ret_why, ST_UNAVAILABLE, "%.200s %s%s%.200s", program, how, text[0] ? ": " : "", text));
}

static status_t start(const struct notify_target *t, const struct store_notification *n, const struct bytes *body,
                      struct run *ret, struct err *e) {
    int in[2], err[2];
    TRY(open_pipe(in, e));
    status_t st = open_pipe(err, e);
    if (st == ST_OK) {
        fcntl(err[0], F_SETFL, O_NONBLOCK);
        fcntl(in[1], F_SETFL, O_NONBLOCK);
        st = spawn(t, n, in[0], err[1], &ret->pid, e);
        close(err[1]);
        ret->err = err[0];
        if (st != ST_OK)
            close(err[0]);
    }
    if (st == ST_OK) {
        ssize_t written = write(in[1], body->data, body->len);
        (void)written; /* a command that does not read it decides itself */
        ret->pidfd = process_pidfd(ret->pid);
    }
    close(in[0]);
    close(in[1]);
    return st;
}

enum notify_result command_deliver(const struct notify_target *t, const struct store_notification *n,
                                   const struct bytes *body, const atomic_bool *stop, struct err *ret_why) {
    struct run r = { .err = -1 };
    char how[64];
    if (start(t, n, body, &r, ret_why) != ST_OK)
        return NOTIFY_FAILED;
    const bool ended = r.pidfd >= 0 && wait_end(&r, t->timeout_ms, stop);
    const int status = reap(&r);
    if (r.pidfd >= 0)
        close(r.pidfd);
    if (r.err >= 0)
        close(r.err);
    if (ended && status == 0)
        return NOTIFY_DELIVERED;
    if (!ended)
        snprintf(how, sizeof how, "did not end within %d seconds", t->timeout_ms / 1000);
    else if (status > 0)
        snprintf(how, sizeof how, "ended with status %d", status);
    else
        snprintf(how, sizeof how, "was killed");
    describe(&r, t->spec->command->argv[0], how, ret_why);
    return NOTIFY_FAILED;
}
