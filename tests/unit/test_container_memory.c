/* While a process with a secret enters a container, no other process of its user can read its memory. The kernel holds
 * the process at each of its system calls (seccomp), and an observer of the same user tries at each of them. */
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/container/container.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NOBODY = 65534 };

struct found {
    int readable_before, stops, readable, entered, errno_of_listener;
};

static char folder[PATH_MAX - 64];

static int setup(void **state) {
    (void)state;
    const char *given = getenv("TMPDIR");
    char name[PATH_MAX - 64];
    snprintf(name, sizeof name, "%s/test-container-memory-XXXXXX", given ? given : "/tmp");
    return mkdtemp(name) && chmod(name, 0777) == 0 && realpath(name, folder) ? 0 : -1;
}

static int teardown(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

/* ---- the process with the secret ---- */

/* Every call but sendmsg, by which the observer gets the listener, is held. */
static int listener_open(void) {
    struct sock_filter code[] = { BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
                                  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_sendmsg, 0, 1),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
                                  BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF) };
    const struct sock_fprog program = { .len = sizeof code / sizeof *code, .filter = code };
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return -1;
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void send_listener(int socket, int listener) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = { .bytes = "" };
    int why = listener < 0 ? errno : 0;
    struct iovec text = { &why, sizeof why };
    struct msghdr message = { .msg_iov = &text, .msg_iovlen = 1 };
    if (listener >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        control.header = (struct cmsghdr){ CMSG_LEN(sizeof listener), SOL_SOCKET, SCM_RIGHTS };
        memcpy(CMSG_DATA(&control.header), &listener, sizeof listener);
    }
    if (sendmsg(socket, &message, 0) < 0)
        _exit(1);
}

static _Noreturn void enter(int socket) {
    CLEANUP(freep) char *image = alloc_format("%s/image", folder);
    CLEANUP(freep) char *work = alloc_format("%s/work", folder);
    CLEANUP(freep) struct container_options *o = alloc_zeroed(1, sizeof *o);
    struct container *c = NULL;
    const char *step = "";
    char go;
    prctl(PR_SET_DUMPABLE, 1);
    if (mkdir(image, 0755) < 0 || mkdir(work, 0755) < 0 || write(socket, "", 1) != 1 || read(socket, &go, 1) != 1)
        _exit(1);
    o->root = open(image, O_PATH | O_DIRECTORY | O_CLOEXEC);
    o->work = work;
    o->temporary = folder;
    o->helper = open("/proc/self/exe", O_PATH | O_CLOEXEC);
    o->group = getegid();
    prctl(PR_SET_DUMPABLE, 0);
    send_listener(socket, listener_open());
    _exit(container_open(o, &c, NULL) == ST_OK && container_enter(c, &step) == 0 ? 0 : 1);
}

/* ---- the observer ---- */

static bool is_readable(pid_t pid) {
    static const char *const names[] = { "mem", "environ" };
    bool readable = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[40];
        snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, names[i]);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        readable |= fd >= 0;
        if (fd >= 0)
            close(fd);
    }
    return readable;
}

static int take_listener(int socket, int *ret_why) {
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = { .bytes = "" };
    struct iovec text = { ret_why, sizeof *ret_why };
    struct msghdr message = {
        .msg_iov = &text, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes
    };
    int listener = -1;
    if (recvmsg(socket, &message, 0) == sizeof *ret_why && CMSG_FIRSTHDR(&message))
        memcpy(&listener, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof listener);
    return listener;
}

/* The helper is held too, and may be read: it has no secret. */
static void observe(pid_t pid, int listener, struct found *ret) {
    for (;;) {
        struct seccomp_notif held = { 0 };
        if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &held) < 0) {
            if (errno == EINTR || (errno == ENOENT && waitpid(pid, NULL, WNOHANG | __WNOTHREAD) == 0))
                continue;
            return;
        }
        if ((pid_t)held.pid == pid) {
            ret->stops++;
            ret->readable += is_readable(pid);
        }
        const bool ends = (pid_t)held.pid == pid && held.data.nr == SYS_exit_group;
        struct seccomp_notif_resp answer = { .id = held.id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE };
        ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
        if (ends)
            return;
    }
}

static _Noreturn void observer_run(int report) {
    struct found found = { 0 };
    int ends[2], status;
    char byte;
    if ((geteuid() == 0 && (setgroups(0, NULL) < 0 || setgid(NOBODY) < 0 || setuid(NOBODY) < 0)) ||
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) < 0)
        _exit(1);
    const pid_t pid = fork();
    if (pid == 0)
        enter(ends[1]);
    close(ends[1]);
    if (read(ends[0], &byte, 1) != 1)
        _exit(1);
    found.readable_before = is_readable(pid);
    if (write(ends[0], "", 1) != 1)
        _exit(1);
    const int listener = take_listener(ends[0], &found.errno_of_listener);
    if (listener >= 0)
        observe(pid, listener, &found);
    found.entered = waitpid(pid, &status, 0) == pid && status == 0;
    _exit(write(report, &found, sizeof found) != sizeof found);
}

static void nobody_reads_the_memory_of_a_process_that_enters_a_container(void **state) {
    (void)state;
    struct err why;
    struct found found = { 0 };
    int report[2];
    if (container_probe(true, "/proc/self/exe", &why) != ST_OK) {
        fprintf(stderr, "skipped: %s\n", why.msg);
        skip();
    }
    assert_int_equal(pipe(report), 0);
    const pid_t pid = fork();
    if (pid == 0)
        observer_run(report[1]);
    close(report[1]);
    assert_int_equal(read(report[0], &found, sizeof found), sizeof found);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(report[0]);
    if (found.errno_of_listener) {
        fprintf(stderr, "skipped: seccomp holds no process here: %s\n", strerror(found.errno_of_listener));
        skip();
    }
    assert_true(found.readable_before); /* the observer could */
    assert_true(found.entered && found.stops > 20);
    assert_int_equal(found.readable, 0);
}

int main(int argc, char **argv) {
    const int helped = container_helper_run(argc, argv);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(nobody_reads_the_memory_of_a_process_that_enters_a_container, setup, teardown),
    };
    return helped >= 0 ? helped : cmocka_run_group_tests(tests, NULL, NULL);
}
