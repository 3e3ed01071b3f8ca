#include "executor/agent/reap.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/process.h"
#include "executor/agent/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>

/* A worker ends at once when its agent's pipes are closed. The worker of a program kills the program's processes first;
 * SIGKILL would leave them behind. */
enum { STRANGER_TERM_MS = 5000 };

status_t reap_process(pid_t pid, struct exit_status *ret, struct err *e) {
    int status;
    pid_t got = waitpid(pid, &status, WNOHANG);
    if (got < 0)
        return err_errno(e, "wait for worker %d", (int)pid);
    if (got == 0)
        return err_set(e, ST_UNAVAILABLE, "worker %d still runs", (int)pid);
    bool signaled = WIFSIGNALED(status);
    *ret = (struct exit_status){ .exit_code = signaled ? -1 : WEXITSTATUS(status),
                                 .signal = signaled ? WTERMSIG(status) : 0 };
    return ST_OK;
}

/* 1: the process has ended, 0: it has not within timeout_ms, -1 with errno. */
static int wait_for_end(int handle, int timeout_ms) {
    const deadline_ms_t deadline = deadline_in(timeout_ms);
    struct pollfd p = { .fd = handle, .events = POLLIN };
    int n;
    do
        n = poll(&p, 1, deadline_poll_ms(deadline));
    while (n < 0 && errno == EINTR);
    return n;
}

status_t reap_stranger(pid_t pid, int64_t start_time, int timeout_ms, struct err *e) {
    CLEANUP(closep) int handle = process_pidfd(pid);
    if (handle < 0)
        return errno == ESRCH || errno == EINVAL ? ST_OK : err_errno(e, "open a handle of process %d", (int)pid);
    /* The start time is read after the pidfd is open: from here on, the pidfd and the pid name the same process. */
    int64_t now_there;
    if (spawn_start_time(pid, &now_there, NULL) != ST_OK || now_there != start_time)
        return ST_OK;
    if (process_pidfd_signal(handle, SIGTERM) < 0 && errno != ESRCH)
        return err_errno(e, "stop process %d", (int)pid);
    int ended = wait_for_end(handle, timeout_ms < STRANGER_TERM_MS ? timeout_ms : STRANGER_TERM_MS);
    if (ended == 0 && process_pidfd_signal(handle, SIGKILL) < 0 && errno != ESRCH)
        return err_errno(e, "kill process %d", (int)pid);
    if (ended == 0)
        ended = wait_for_end(handle, timeout_ms);
    if (ended < 0)
        return err_errno(e, "wait for process %d", (int)pid);
    return ended ? ST_OK
                 : err_set(e, ST_DEADLINE_EXCEEDED, "process %d of an earlier agent does not end after SIGKILL",
                           (int)pid);
}
