#include "executor/container/users.h"

#include "base/cleanup.h"
#include "base/process.h"
#include "executor/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the helper: this program, and the socket on which it answers with errno and the namespace. */
enum { ANSWER_FD = 3, SELF_FD = 4 };

static const char OPTION[] = "--make-user-namespace";

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
};

/* ---- the helper ---- */

static bool write_text(const char *path, const char *text) {
    CLEANUP(closep) int fd = open(path, O_WRONLY | O_CLOEXEC);
    const size_t n = strlen(text);
    return fd >= 0 && write(fd, text, n) == (ssize_t)n;
}

static bool map_write(const char *path, unsigned id) {
    char text[40];
    snprintf(text, sizeof text, "%u %u 1", id, id);
    return write_text(path, text);
}

/* 0, or errno. A process whose effective group is not its real one is not dumpable after exec. */
static int namespace_make(gid_t group, int *ret) {
    const uid_t user = geteuid();
    if (setresgid(group, group, group) < 0 || prctl(PR_SET_DUMPABLE, 1) < 0 || unshare(CLONE_NEWUSER) < 0 ||
        !write_text("/proc/self/setgroups", "deny") || !map_write("/proc/self/uid_map", user) ||
        !map_write("/proc/self/gid_map", group))
        return errno;
    *ret = open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC);
    return *ret < 0 ? errno : 0;
}

static int answer(int why, int namespace) {
    union control control = { .bytes = "" };
    struct iovec text = { &why, sizeof why };
    struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1 };
    if (why == 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.header = (struct cmsghdr){ CMSG_LEN(sizeof namespace), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.header), &namespace, sizeof namespace);
    }
    return sendmsg(ANSWER_FD, &message, 0) == sizeof why ? 0 : 1;
}

int container_helper_run(int argc, char **argv) {
    char *end = NULL;
    if (argc != 3 || strcmp(argv[1], OPTION) != 0)
        return -1;
    const unsigned long group = strtoul(argv[2], &end, 10);
    int namespace = -1;
    if (end == argv[2] || *end || group > UINT_MAX)
        return 2;
    const int why = namespace_make((gid_t)group, &namespace);
    return answer(why, namespace);
}

/* ---- this process ---- */

static status_t helper_start(int helper, unsigned group, int socket, pid_t *ret, struct err *e) {
    static const char *const no_variables[] = { NULL };
    char number[16];
    snprintf(number, sizeof number, "%u", group);
    const char *const argv[] = { "trainyard-program", OPTION, number, NULL };
    const struct process p = { .program = "/proc/self/fd/4",
                               .argv = argv,
                               .environ = no_variables,
                               .fds = { { helper, SELF_FD }, { socket, ANSWER_FD } },
                               .n_fds = 2 };
    return process_start(&p, ret, e);
}

/* Returns false if the answer has another length, or if a success lacks the namespace. */
static bool answer_take(int socket, int *ret, int *ret_why) {
    union control control = { .bytes = "" };
    struct iovec text = { ret_why, sizeof *ret_why };
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
    };
    ssize_t n;
    while ((n = recvmsg(socket, &message, MSG_CMSG_CLOEXEC)) < 0 && errno == EINTR)
        continue;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS && header->cmsg_len == CMSG_LEN(sizeof *ret))
        memcpy(ret, CMSG_DATA(header), sizeof *ret);
    return n == sizeof *ret_why && (*ret_why != 0 || *ret >= 0);
}

status_t users_open(int helper, unsigned group, int *ret, int *ret_why, struct err *e) {
    int ends[2];
    pid_t pid;
    *ret = -1;
    *ret_why = 0;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
        return err_errno(e, "open a socket");
    CLEANUP(closep) int own = fcntl(ends[0], F_DUPFD_CLOEXEC, SELF_FD + 1);
    CLEANUP(closep) int other = fcntl(ends[1], F_DUPFD_CLOEXEC, SELF_FD + 1);
    CLEANUP(closep) int program = fcntl(helper, F_DUPFD_CLOEXEC, SELF_FD + 1);
    close(ends[0]);
    close(ends[1]);
    if (own < 0 || other < 0 || program < 0)
        return err_errno(e, "duplicate a descriptor");
    TRY(helper_start(program, group, other, &pid, e));
    closep(&other);
    const bool answered = answer_take(own, ret, ret_why);
    while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    return answered ? ST_OK : err_set(e, ST_INTERNAL, "the process that makes a namespace of users did not answer");
}
