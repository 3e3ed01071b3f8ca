/* The sandbox: rights by the number of Landlock's ABI, what a host lacks, and what a process in one may do. */
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/sandbox/host_support.h"
#include "executor/sandbox/mode.h"
#include "executor/sandbox/sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/auto_fs.h>
#include <pty.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NEWEST_ABI = 7 };

static void no_abi_has_no_rights(void **state) {
    (void)state;
    const struct landlock_rights none = landlock_rights_of(0);
    assert_int_equal(none.handled | none.read | none.write | none.device | none.file | none.list | none.open, 0);
    assert_int_equal(none.scope_signals | none.scope_abstract, 0);
}

/* The values are those of <linux/landlock.h>: a kernel refuses a bit that its ABI does not have. */
static void each_abi_has_the_rights_that_its_kernel_knows(void **state) {
    (void)state;
    static const uint64_t handled[] = { 0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff, 0xffff };
    for (int abi = 1; abi <= NEWEST_ABI; abi++) {
        const struct landlock_rights r = landlock_rights_of(abi);
        assert_int_equal(r.handled, handled[abi]);
        assert_int_equal(r.read, 0xd);
        assert_int_equal(r.list, 0x8);
        assert_int_equal(r.open, 0x4);
        assert_int_equal((r.write | r.device | r.file) & ~r.handled, 0);
        assert_int_equal(r.scope_signals, abi >= 6 ? 2 : 0);
        assert_int_equal(r.scope_abstract, abi >= 6 ? 1 : 0);
    }
}

static void a_right_to_write_makes_no_device_files(void **state) {
    (void)state;
    for (int abi = 1; abi <= NEWEST_ABI; abi++) {
        const struct landlock_rights r = landlock_rights_of(abi);
        assert_int_equal(r.write & (1 << 6 | 1 << 11 | 1 << 15), 0); /* character and block devices, ioctl */
        assert_int_equal(!!(r.write & 1 << 13), abi >= 2);           /* renames between folders */
        assert_int_equal(!!(r.write & 1 << 14), abi >= 3);           /* truncation */
        assert_int_equal(!!(r.device & 1 << 15), abi >= 5);
    }
}

static void a_host_lacks_what_its_kernel_is_too_old_for(void **state) {
    (void)state;
    const char *lacks[HOST_LACKS_MAX];
    static const size_t counts[] = { 1, 3, 2, 1, 1, 1, 0, 0 };
    for (int abi = 0; abi <= NEWEST_ABI; abi++) {
        assert_int_equal(host_lacks(abi, true, lacks), counts[abi]);
        assert_int_equal(host_lacks(abi, false, lacks), counts[abi] + 1);
        assert_non_null(strstr(lacks[counts[abi]], "seccomp"));
    }
    host_lacks(0, true, lacks);
    assert_non_null(strstr(lacks[0], "no Landlock"));
}

static void modes_have_names(void **state) {
    (void)state;
    assert_int_equal(sandbox_mode_parse("off"), SANDBOX_OFF);
    assert_int_equal(sandbox_mode_parse("available"), SANDBOX_AVAILABLE);
    assert_int_equal(sandbox_mode_parse("require"), SANDBOX_REQUIRE);
    assert_int_equal(sandbox_mode_parse("on"), -1);
}

/* ---- a process in a sandbox ---- */

static char folder[PATH_MAX];

static int folder_make(void **state) {
    (void)state;
    /* Not below /dev/shm, all of which is open to a sandbox. */
    snprintf(folder, sizeof folder, "/var/tmp/trainyard-sandbox-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int folder_remove(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static const char *in_folder(const char *name) {
    static char paths[8][PATH_MAX + 64];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static void make_file(const char *name) {
    const int fd = open(in_folder(name), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "x", 1), 1);
    close(fd);
}

static void make_folder(const char *name) { assert_int_equal(mkdir(in_folder(name), 0700), 0); }

/* errno of the open in a process in the sandbox; 0: it succeeded. */
static int open_inside(const struct sandbox_policy *policy, const char *path, int flags) {
    CLEANUP(sandbox_closep) struct sandbox *s = NULL;
    struct err e;
    assert_int_equal(sandbox_open(policy, &s, &e), ST_OK);
    const pid_t pid = fork();
    if (pid == 0) {
        if (sandbox_apply(s) != 0)
            _exit(255);
        _exit(open(path, flags, 0600) < 0 ? errno : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_not_equal(WEXITSTATUS(status), 255);
    return WEXITSTATUS(status);
}

static void need_landlock(void) {
    if (landlock_abi() < 1)
        skip();
}

static void hidden_files_cannot_be_read_and_others_can(void **state) {
    (void)state;
    need_landlock();
    make_folder("a");
    make_folder("a/hidden");
    make_folder("a/open");
    make_file("a/hidden/file");
    make_file("a/open/file");
    make_file("a/beside");
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_hide(&p, in_folder("a/hidden")));
    assert_int_equal(open_inside(&p, in_folder("a/hidden/file"), O_RDONLY), EACCES);
    assert_int_equal(open_inside(&p, in_folder("a/open/file"), O_RDONLY), 0);
    assert_int_equal(open_inside(&p, in_folder("a/beside"), O_RDONLY), 0);
    assert_int_equal(open_inside(&p, in_folder("a/open/file"), O_WRONLY), EACCES);
    assert_int_equal(open_inside(&p, in_folder("a/open/new"), O_WRONLY | O_CREAT), EACCES);
    assert_int_equal(open_inside(&p, "/etc/passwd", O_RDONLY), 0);
}

static void a_hidden_path_may_be_named_by_a_link(void **state) {
    (void)state;
    need_landlock();
    make_folder("real");
    make_file("real/file");
    assert_int_equal(symlink(in_folder("real"), in_folder("link")), 0);
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_hide(&p, in_folder("link")));
    assert_int_equal(open_inside(&p, in_folder("real/file"), O_RDONLY), EACCES);
    assert_int_equal(open_inside(&p, in_folder("link/file"), O_RDONLY), EACCES);
}

static void a_star_hides_all_names_that_begin_so(void **state) {
    (void)state;
    need_landlock();
    make_folder("rank-1");
    make_folder("rank-2");
    make_folder("other");
    make_file("rank-1/file");
    make_file("rank-2/file");
    make_file("other/file");
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_hide(&p, in_folder("rank-*")));
    assert_true(sandbox_grant(&p, in_folder("rank-2"), SANDBOX_WRITE));
    assert_int_equal(open_inside(&p, in_folder("rank-1/file"), O_RDONLY), EACCES);
    assert_int_equal(open_inside(&p, in_folder("rank-2/file"), O_RDWR), 0);
    assert_int_equal(open_inside(&p, in_folder("other/file"), O_RDONLY), 0);
}

static void a_grant_from_above_does_not_open_what_is_hidden(void **state) {
    (void)state;
    need_landlock();
    make_folder("root");
    make_folder("root/secret");
    make_file("root/secret/file");
    make_file("root/file");
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_hide(&p, in_folder("root/secret")));
    assert_true(sandbox_grant(&p, in_folder("root"), SANDBOX_WRITE));
    assert_int_equal(open_inside(&p, in_folder("root/secret/file"), O_RDONLY), EACCES);
    assert_int_equal(open_inside(&p, in_folder("root/file"), O_WRONLY), 0);
}

static void only_listed_folders_above_hidden_ones_can_be_listed(void **state) {
    (void)state;
    need_landlock();
    make_folder("names");
    make_folder("names/hidden");
    make_file("names/hidden/file");
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_hide(&p, in_folder("names/hidden")));
    assert_int_equal(open_inside(&p, in_folder("names"), O_RDONLY | O_DIRECTORY), EACCES);
    assert_true(sandbox_list(&p, in_folder("names")));
    assert_int_equal(open_inside(&p, in_folder("names"), O_RDONLY | O_DIRECTORY), 0);
    assert_int_equal(open_inside(&p, in_folder("names/hidden/file"), O_RDONLY), EACCES);
}

static void devices_and_shared_memory_are_open(void **state) {
    (void)state;
    need_landlock();
    struct sandbox_policy p = { .n_grants = 0 };
    assert_int_equal(open_inside(&p, "/dev/null", O_RDWR), 0);
    assert_int_equal(open_inside(&p, "/dev/shm", O_TMPFILE | O_RDWR), 0);
    assert_int_equal(open_inside(&p, "/dev/kmsg", O_RDONLY), EACCES);
}

static int status_of(pid_t pid) {
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* errno of the first step that fails: a terminal, its other end, an ioctl on it; 0: none. */
static int terminal_inside(const struct sandbox_policy *policy) {
    CLEANUP(sandbox_closep) struct sandbox *s = NULL;
    struct err e;
    assert_int_equal(sandbox_open(policy, &s, &e), ST_OK);
    const pid_t pid = fork();
    if (pid == 0) {
        struct winsize size = { .ws_row = 24, .ws_col = 80 };
        int first = -1, second = -1;
        if (sandbox_apply(s) != 0)
            _exit(255);
        _exit(openpty(&first, &second, NULL, NULL, NULL) < 0 || ioctl(second, TIOCSWINSZ, &size) < 0 ? errno : 0);
    }
    return status_of(pid);
}

static void need_terminals(void) {
    int first = -1, second = -1;
    need_landlock();
    if (openpty(&first, &second, NULL, NULL, NULL) < 0)
        skip();
    close(first);
    close(second);
}

static void a_policy_may_permit_terminals(void **state) {
    (void)state;
    need_terminals();
    const struct sandbox_policy none = { .n_grants = 0 }, terminals = { .terminals = true };
    assert_int_not_equal(terminal_inside(&none), 0);
    assert_int_equal(terminal_inside(&terminals), 0);
}

static void a_device_that_may_be_written_takes_ioctls(void **state) {
    (void)state;
    need_terminals();
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_grant(&p, "/dev/ptmx", SANDBOX_WRITE));
    assert_true(sandbox_grant(&p, "/dev/pts", SANDBOX_WRITE));
    assert_int_equal(terminal_inside(&p), 0);
}

/* In a /dev of its own, which has one channel: it opens as /dev/null does. */
static void channels_between_gpus_of_hosts_are_open_to_jobs_on_gpus(void **state) {
    (void)state;
    need_landlock();
    static const char channels[] = "/dev/nvidia-caps-imex-channels",
                      channel[] = "/dev/nvidia-caps-imex-channels/channel0";
    const pid_t pid = fork();
    if (pid == 0) {
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("none", "/dev", "tmpfs", 0, NULL) < 0 || mkdir(channels, 0755) < 0 ||
            mknod(channel, S_IFCHR | 0666, makedev(1, 3)) < 0 || open(channel, O_RDWR) < 0)
            _exit(255);
        const struct sandbox_policy without = { .n_grants = 0 }, with = { .gpus = true };
        _exit(open_inside(&without, channel, O_RDWR) == EACCES ? open_inside(&with, channel, O_RDWR) : 254);
    }
    const int status = status_of(pid);
    if (status == 255)
        skip(); /* no privilege to mount, or no device files */
    assert_int_equal(status, 0);
}

/* Without Landlock the filter alone is left. */
static void a_policy_without_files_still_refuses_calls(void **state) {
    (void)state;
    CLEANUP(sandbox_closep) struct sandbox *s = NULL;
    const struct sandbox_policy p = { .no_files = true };
    struct err e;
    assert_int_equal(sandbox_open(&p, &s, &e), ST_OK);
    if (!host_has_seccomp())
        skip();
    const pid_t pid = fork();
    if (pid == 0) {
        if (sandbox_apply(s) != 0 || prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 || open("/etc/passwd", O_RDONLY) < 0)
            _exit(255);
        _exit(syscall(SYS_keyctl, 0, 0, 0, 0, 0) < 0 ? errno : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(WEXITSTATUS(status), EPERM);
}

static void too_many_entries_beside_a_hidden_path_are_an_error(void **state) {
    (void)state;
    need_landlock();
    make_folder("many");
    const int fd = open(in_folder("many"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (int i = 0; i <= SANDBOX_RULES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(mknodat(fd, name, S_IFREG | 0600, 0), 0);
    }
    close(fd);
    struct sandbox_policy p = { .n_grants = 0 };
    CLEANUP(sandbox_closep) struct sandbox *s = NULL;
    struct err e;
    assert_true(sandbox_hide(&p, in_folder("many/hidden")));
    assert_int_equal(sandbox_open(&p, &s, &e), ST_RESOURCE_EXHAUSTED);
    assert_non_null(strstr(e.msg, in_folder("many")));
}

static void files_of_others_in_a_shared_folder_do_not_stop_jobs(void **state) {
    (void)state;
    need_landlock();
    make_folder("shared");
    assert_int_equal(chmod(in_folder("shared"), 01777), 0);
    make_folder("shared/own");
    make_folder("shared/hidden");
    make_file("shared/own/file");
    make_file("shared/hidden/file");
    const int fd = open(in_folder("shared"), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    for (int i = 0; i <= SANDBOX_RULES; i++) {
        char name[16];
        snprintf(name, sizeof name, "%d", i);
        assert_int_equal(mknodat(fd, name, S_IFREG | 0600, 0), 0);
    }
    close(fd);
    struct sandbox_policy p = { .n_grants = 0 };
    assert_true(sandbox_hide(&p, in_folder("shared/hidden")));
    assert_true(sandbox_grant(&p, in_folder("shared/own"), SANDBOX_WRITE));
    assert_int_equal(open_inside(&p, in_folder("shared/own/file"), O_RDWR), 0);
    assert_int_equal(open_inside(&p, in_folder("shared/hidden/file"), O_RDONLY), EACCES);
}

/* As a user without privileges. */
static void a_folder_above_what_is_hidden_that_cannot_be_listed_is_an_error(void **state) {
    (void)state;
    need_landlock();
    make_folder("closed");
    make_folder("closed/hidden");
    const mode_t modes[] = { 0311, 0400, 0755 };
    const int expected[] = { ST_FAILED_PRECONDITION, ST_OK, ST_OK };
    for (int i = 0; i < 3; i++) {
        assert_int_equal(chmod(in_folder("closed"), modes[i]), 0);
        const pid_t pid = fork();
        if (pid == 0) {
            CLEANUP(sandbox_closep) struct sandbox *s = NULL;
            struct sandbox_policy p = { .n_grants = 0 };
            struct err e = { 0 };
            sandbox_hide(&p, in_folder("closed/hidden"));
            if (chmod(folder, 0755) < 0 || (geteuid() == 0 && seteuid(65534) < 0))
                _exit(255);
            const status_t st = sandbox_open(&p, &s, &e);
            _exit(st != ST_OK && !strstr(e.msg, in_folder("closed")) ? 254 : (int)st);
        }
        assert_int_equal(status_of(pid), expected[i]);
    }
    assert_int_equal(chmod(in_folder("closed"), 0700), 0);
}

/* An automounter: at the first use of the folder it mounts a file system there, with a file. Runs in a process group of
 * its own, whose processes see the folder as it is. */
static pid_t automounter_start(const char *target) {
    int requests[2], ready[2];
    char byte = 0;
    assert_int_equal(pipe(requests), 0);
    assert_int_equal(pipe(ready), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        char options[128], file[PATH_MAX];
        struct autofs_v5_packet packet;
        setpgid(0, 0);
        snprintf(options, sizeof options, "fd=%d,pgrp=%d,minproto=5,maxproto=5,direct", requests[1], (int)getpid());
        if (mount("test", target, "autofs", 0, options) < 0)
            _exit(1);
        const int control = open(target, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (write(ready[1], &byte, 1) != 1 || read(requests[0], &packet, sizeof packet) <= 0 ||
            mount("test", target, "tmpfs", 0, NULL) < 0)
            _exit(1);
        snprintf(file, sizeof file, "%.1000s/file", target);
        const int made = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        _exit(made < 0 || ioctl(control, AUTOFS_IOC_READY, packet.wait_queue_token) < 0);
    }
    close(requests[0]);
    close(requests[1]);
    close(ready[1]);
    const bool works = read(ready[0], &byte, 1) == 1;
    close(ready[0]);
    return works ? pid : -1;
}

static void an_automatic_mount_beside_what_is_hidden_can_be_read(void **state) {
    (void)state;
    need_landlock();
    make_folder("automatic");
    make_folder("automatic/hidden");
    make_folder("automatic/data");
    const pid_t pid = fork();
    if (pid == 0) {
        alarm(60); /* an automounter that fails leaves its users waiting */
        if (unshare(CLONE_NEWNS) < 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            automounter_start(in_folder("automatic/data")) < 0)
            _exit(255);
        struct sandbox_policy p = { .n_grants = 0 };
        sandbox_hide(&p, in_folder("automatic/hidden"));
        _exit(open_inside(&p, in_folder("automatic/data/file"), O_RDONLY));
    }
    const int status = status_of(pid);
    if (status == 255)
        skip(); /* no privilege to mount, or no autofs */
    assert_int_equal(status, 0);
}

static void a_full_policy_says_so(void **state) {
    (void)state;
    struct sandbox_policy p = { .n_grants = SANDBOX_GRANTS, .n_hidden = SANDBOX_HIDDEN };
    assert_false(sandbox_grant(&p, "/x", SANDBOX_READ));
    assert_false(sandbox_hide(&p, "/x"));
    assert_true(sandbox_hide(&p, NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_abi_has_no_rights),
        cmocka_unit_test(each_abi_has_the_rights_that_its_kernel_knows),
        cmocka_unit_test(a_right_to_write_makes_no_device_files),
        cmocka_unit_test(a_host_lacks_what_its_kernel_is_too_old_for),
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(hidden_files_cannot_be_read_and_others_can),
        cmocka_unit_test(a_hidden_path_may_be_named_by_a_link),
        cmocka_unit_test(a_star_hides_all_names_that_begin_so),
        cmocka_unit_test(a_grant_from_above_does_not_open_what_is_hidden),
        cmocka_unit_test(only_listed_folders_above_hidden_ones_can_be_listed),
        cmocka_unit_test(devices_and_shared_memory_are_open),
        cmocka_unit_test(a_policy_may_permit_terminals),
        cmocka_unit_test(a_device_that_may_be_written_takes_ioctls),
        cmocka_unit_test(channels_between_gpus_of_hosts_are_open_to_jobs_on_gpus),
        cmocka_unit_test(a_policy_without_files_still_refuses_calls),
        cmocka_unit_test(too_many_entries_beside_a_hidden_path_are_an_error),
        cmocka_unit_test(files_of_others_in_a_shared_folder_do_not_stop_jobs),
        cmocka_unit_test(a_folder_above_what_is_hidden_that_cannot_be_listed_is_an_error),
        cmocka_unit_test(an_automatic_mount_beside_what_is_hidden_can_be_read),
        cmocka_unit_test(a_full_policy_says_so),
    };
    return cmocka_run_group_tests(tests, folder_make, folder_remove);
}
