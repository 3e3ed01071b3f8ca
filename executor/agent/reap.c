#include "executor/agent/reap.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "executor/agent/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>

enum { EXIT_CODE_OF_CAUSE = 20 };

status_t reap_process(pid_t pid, struct reaped *ret, struct err *e) {
    int status;
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got < 0)
        return err_errno(e, "wait for worker %d", (int)pid);
    if (got == 0)
        return err_set(e, ST_UNAVAILABLE, "worker %d still runs", (int)pid);
    bool signaled = WIFSIGNALED(status);
    *ret = (struct reaped){ .exit_code = signaled ? -1 : WEXITSTATUS(status),
                            .signal = signaled ? WTERMSIG(status) : 0 };
    return ST_OK;
}

Trainyard__V1__WorkerEnd__Cause reap_cause(const struct reaped *r) {
    int cause = r->exit_code - EXIT_CODE_OF_CAUSE;
    if (r->signal == 0 && r->exit_code == 0)
        return TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    if (r->signal == 0 && cause >= TRAINYARD__V1__WORKER_END__CAUSE__STOPPED &&
        cause <= TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST)
        return (Trainyard__V1__WorkerEnd__Cause)cause;
    return TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
}

void reap_sentence(const struct reaped *r, const char *killed_because, char *ret, size_t n) {
    if (killed_because)
        snprintf(ret, n, "%s", killed_because);
    else if (r->signal == SIGKILL)
        snprintf(ret, n, "killed by signal 9 (Killed): by someone, or by the kernel for want of memory");
    else if (r->signal)
        snprintf(ret, n, "killed by signal %d (%s)", r->signal, strsignal(r->signal));
    else if (r->exit_code == 0)
        snprintf(ret, n, "finished");
    else
        snprintf(ret, n, "exited with status %d and no last word", r->exit_code);
}

status_t reap_stranger(pid_t pid, int64_t start_time, int timeout_ms, struct err *e) {
    CLEANUP(closep) int handle = pidfd_open(pid, 0);
    if (handle < 0)
        return errno == ESRCH || errno == EINVAL ? ST_OK : err_errno(e, "open a handle of process %d", (int)pid);
    /* Read after the handle is open: from here on the pid cannot come to mean another process unnoticed. */
    int64_t now_there;
    if (spawn_start_time(pid, &now_there, NULL) != ST_OK || now_there != start_time)
        return ST_OK;
    if (pidfd_send_signal(handle, SIGKILL, NULL, 0) < 0 && errno != ESRCH)
        return err_errno(e, "kill process %d", (int)pid);
    deadline_ms_t deadline = deadline_in(timeout_ms);
    for (;;) {
        struct pollfd p = { .fd = handle, .events = POLLIN };
        int n = poll(&p, 1, deadline_poll_ms(deadline));
        if (n > 0)
            return ST_OK;
        if (n == 0)
            return err_set(e, ST_DEADLINE_EXCEEDED, "process %d does not die", (int)pid);
        if (errno != EINTR)
            return err_errno(e, "wait for process %d", (int)pid);
    }
}
