/* The command is started by fork and exec, because posix_spawn sets neither the death signal nor the directory. A pipe
 * that closes at exec reports why exec failed. Between fork and exec no function runs that takes a lock, since another
 * thread may have held it at the fork.
 *
 * The container and then the sandbox are entered after all that this process itself needs, and before exec.
 *
 * To kill all descendants, SIGKILL goes to the command's process group and to every child. The children of a killed
 * child become children of this process, which is a subreaper, so the step repeats until none is left. */
#include "executor/program/process_tree.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/process.h"
#include "executor/worker/user.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_MS = 10000, KILL_PAUSE_MS = 5 };

/* What failed in the child. */
struct start_failure {
    int why; /* errno */
    bool by_sandbox;
    const char *container_step; /* in memory that both processes have; NULL: it was not the container */
};

/* What the container has in place of the host's files. errno. */
static int sandbox_enter(const struct process_tree_command *c) {
    const char *path;
    int why = c->container ? sandbox_grant_here(c->sandbox, "/", SANDBOX_LIST) : 0;
    for (size_t i = 0; c->container && why == 0 && (path = container_readable(c->container, i)); i++)
        why = sandbox_grant_here(c->sandbox, path, SANDBOX_READ);
    return why ? why : sandbox_apply(c->sandbox);
}

/* A new namespace may clear the death signal. */
static bool container_step(const struct process_tree_command *c, struct start_failure *ret) {
    if (!c->container)
        return true;
    errno = container_enter(c->container, &ret->container_step);
    if (errno)
        return false;
    ret->container_step = NULL;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    return true;
}

/* In the child. Writes the step that failed to `report`. */
static void exec_command(const struct process_tree_command *c, const int outputs[2], pid_t parent, int report) {
    struct start_failure failure = { 0 };
    sigset_t none;
    sigemptyset(&none);
    int null = open("/dev/null", O_RDONLY);
    const bool left = c->keeps_group || user_group_leave(); /* clears the death signal */
    const int why_left = errno;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    errno = why_left;
    if (left && setsid() >= 0 && null >= 0 && dup2(null, 0) == 0 && dup2(outputs[0], 1) == 1 &&
        dup2(outputs[1], 2) == 2 && container_step(c, &failure) && getppid() == parent && chdir(c->directory) == 0) {
        sigprocmask(SIG_SETMASK, &none, NULL);
        signal(SIGPIPE, SIG_DFL);
        environ = c->variables; /* execvp searches the PATH of this process */
        errno = sandbox_enter(c);
        failure.by_sandbox = errno != 0;
        if (!failure.by_sandbox)
            execvp(c->argv[0], c->argv);
    }
    failure.why = errno;
    ssize_t wrote = write(report, &failure, sizeof failure);
    (void)wrote;
    _exit(127);
}

status_t process_tree_start(struct process_tree *tree, const struct process_tree_command *command, const int outputs[2],
                            struct err *e) {
    int ends[2];
    *tree = (struct process_tree){ 0 };
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "open a pipe to the command");
    CLEANUP(closep) int readable = ends[0];
    const pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        exec_command(command, outputs, parent, ends[1]);
    const int fork_errno = errno;
    close(ends[1]);
    errno = fork_errno;
    if (pid < 0)
        return err_errno(e, "start the command");
    struct start_failure failure;
    if (read(readable, &failure, sizeof failure) == sizeof failure) {
        waitpid(pid, NULL, 0);
        if (failure.by_sandbox)
            return err_set(e, ST_INTERNAL, "the command cannot be started in a sandbox: %s", strerror(failure.why));
        if (failure.container_step)
            return err_prefix(e, container_failure(failure.container_step, failure.why, e), "program.image: ");
        return err_set(e, ST_FAILED_PRECONDITION, "program.command: '%.120s' cannot be executed: %s", command->argv[0],
                       strerror(failure.why));
    }
    tree->command = tree->group = pid;
    return ST_OK;
}

void process_tree_signal(const struct process_tree *tree, int signal) {
    if (tree->group)
        kill(-tree->group, signal);
}

bool process_tree_group_lives(const struct process_tree *tree) {
    return tree->group && (kill(-tree->group, 0) == 0 || errno == EPERM);
}

bool process_tree_reap(struct process_tree *tree) {
    bool ended = false;
    int status;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
        if (pid == tree->command) {
            tree->command = 0;
            tree->wait_status = status;
            ended = true;
        }
    return ended;
}

void process_tree_kill(struct process_tree *tree) {
    const deadline_ms_t end = deadline_in(KILL_MS);
    process_tree_signal(tree, SIGKILL);
    while (process_kill_children(NULL, NULL) > 0 && clock_mono_ms() < end)
        poll(NULL, 0, KILL_PAUSE_MS);
}
