/* While a process of the builder runs, SIGTERM is blocked: an agent that dies sends it, but also closes the pipe, and
 * then what the builder has started is killed before this process ends. */
#include "executor/environment/builder.h"

#include "base/cleanup.h"
#include "base/privileges.h"
#include "base/process.h"
#include "executor/worker/user.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TICK_MS = 1000, POLL_MS = 100, KILL_MS = 10 * 1000, KILL_PAUSE_MS = 5, READ_BYTES = 16 << 10 };

/* In the child. Descriptors above 2 are close-on-exec. */
static void child_run(const struct builder *b, const struct builder_order *order, int output) {
    struct err why = { "" };
    sigset_t none;
    const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
    sigemptyset(&none);
    umask(022);
    status_t st = null >= 0 && dup2(null, 0) == 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2 && setsid() >= 0
                      ? ST_OK
                      : err_errno(&why, "prepare a process");
    if (st == ST_OK)
        st = b->user ? user_become(b->user, &why) : privileges_drop(0, &why);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of user clears it */
    if (st == ST_OK && chdir(order->directory) < 0)
        st = err_errno(&why, "enter the folder '%.200s'", order->directory);
    errno = st == ST_OK ? sandbox_apply(b->sandbox) : 0;
    if (errno)
        st = err_errno(&why, "enter the sandbox");
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    if (st == ST_OK && (!order->before || order->before(order->ctx))) {
        fflush(stdout);
        environ = (char **)(uintptr_t)b->variables; /* execvp searches the PATH of this process */
        execvp(order->argv[0], (char **)(uintptr_t)order->argv);
        st = err_errno(&why, "'%.200s' cannot be executed", order->argv[0]);
    }
    if (st != ST_OK)
        dprintf(1, "trainyard-environment: %s\n", why.msg);
    fflush(stdout);
    _exit(BUILDER_NOT_EXECUTED);
}

void builder_kill(void) {
    const deadline_ms_t end = deadline_in(KILL_MS);
    while (process_kill_children(NULL, NULL) > 0 && clock_mono_ms() < end)
        poll(NULL, 0, KILL_PAUSE_MS);
}

static bool output_read(int fd, const struct builder_order *order) {
    char data[READ_BYTES];
    const ssize_t n = read(fd, data, sizeof data);
    if (n > 0)
        order->output(order->owner, data, (size_t)n);
    return n > 0 || (n < 0 && (errno == EINTR || errno == EAGAIN));
}

/* Until the process has ended: others that it has started may keep the pipe open. */
static status_t process_wait(const struct builder *b, const struct builder_order *order, pid_t pid, int output,
                             int *ret_status, struct err *e) {
    deadline_ms_t tick = deadline_in(TICK_MS);
    bool open = true;
    for (pid_t ended = 0; ended != pid;) {
        struct pollfd p[] = { { .fd = open ? output : -1, .events = POLLIN }, { .fd = b->agent, .events = POLLIN } };
        const bool ready = poll(p, 2, POLL_MS) > 0;
        if (ready && p[0].revents)
            open = output_read(output, order);
        if (ready && p[1].revents)
            return err_set(e, ST_CANCELLED, "the attempt has ended");
        if (clock_mono_ms() > order->until)
            return err_set(e, ST_DEADLINE_EXCEEDED, "'%.60s' took too long", order->argv[0]);
        if (order->tick && clock_mono_ms() > tick) {
            TRY(order->tick(order->owner, e));
            tick = deadline_in(TICK_MS);
        }
        if (!ready || !open || p[0].revents & POLLHUP)
            while ((ended = waitpid(-1, ret_status, WNOHANG)) > 0 && ended != pid)
                continue;
        if (ended < 0)
            return err_errno(e, "wait for a process");
    }
    return ST_OK;
}

status_t builder_run(const struct builder *b, const struct builder_order *order, int *ret_status, struct err *e) {
    int ends[2];
    sigset_t term, before;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "open a pipe");
    CLEANUP(closep) int output = ends[0];
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, &before);
    const pid_t pid = fork();
    if (pid == 0)
        child_run(b, order, ends[1]);
    const int number = errno;
    close(ends[1]);
    errno = number;
    status_t st = pid < 0 ? err_errno(e, "start a process") : process_wait(b, order, pid, output, ret_status, e);
    builder_kill();
    sigprocmask(SIG_SETMASK, &before, NULL);
    fcntl(output, F_SETFL, O_NONBLOCK);
    char data[READ_BYTES];
    for (ssize_t n; st == ST_OK && (n = read(output, data, sizeof data)) > 0;)
        order->output(order->owner, data, (size_t)n);
    return st;
}
