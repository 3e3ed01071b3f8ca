/* libseccomp writes the program for the kernel to a file in memory: its function for a buffer is newer than Debian
 * 12. */
#include "executor/sandbox/system_calls.h"

#include "base/cleanup.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <seccomp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILTER_INSTRUCTIONS_MAX = 4096, OPTIMIZE_AS_TREE = 2 };

/* A call that this architecture lacks is left out. */
static const char *const REFUSED[] = {
    /* mounts and namespaces */
    "mount",
    "umount",
    "umount2",
    "pivot_root",
    "chroot",
    "setns",
    "fsopen",
    "fsconfig",
    "fsmount",
    "fspick",
    "move_mount",
    "open_tree",
    "mount_setattr",
    /* the kernel itself */
    "kexec_load",
    "kexec_file_load",
    "init_module",
    "finit_module",
    "delete_module",
    "create_module",
    "query_module",
    "get_kernel_syms",
    "bpf",
    "perf_event_open",
    "lookup_dcookie",
    "syslog",
    "_sysctl",
    "sysfs",
    "ustat",
    "uselib",
    "nfsservctl",
    "reboot",
    "iopl",
    "ioperm",
    "vm86",
    "vm86old",
    "modify_ldt",
    /* keys, and memory and files of others */
    "keyctl",
    "add_key",
    "request_key",
    "userfaultfd",
    "kcmp",
    "open_by_handle_at",
    "fanotify_init",
    /* the host's clocks, names and accounts */
    "settimeofday",
    "clock_settime",
    "clock_settime64",
    "clock_adjtime",
    "clock_adjtime64",
    "adjtimex",
    "stime",
    "swapon",
    "swapoff",
    "acct",
    "quotactl",
    "quotactl_fd",
    "sethostname",
    "setdomainname",
    "vhangup",
    /* calls without a check of each: their kernel code has had many faults */
    "io_uring_setup",
    "io_uring_enter",
    "io_uring_register",
};
/* Newer than the list of names of Debian 12's libseccomp; their numbers are the same on all architectures. */
static const int REFUSED_NUMBERS[] = { 467 /* open_tree_attr */ };

static const uint64_t NAMESPACES[] = { CLONE_NEWNS,   CLONE_NEWCGROUP, CLONE_NEWUTS, CLONE_NEWIPC,
                                       CLONE_NEWUSER, CLONE_NEWPID,    CLONE_NEWNET };

static int refuse_names(scmp_filter_ctx filter) {
    for (size_t i = 0; i < sizeof REFUSED / sizeof *REFUSED; i++) {
        const int number = seccomp_syscall_resolve_name(REFUSED[i]);
        const int why = number < 0 ? 0 : seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 0);
        if (why < 0)
            return why;
    }
    for (size_t i = 0; i < sizeof REFUSED_NUMBERS / sizeof *REFUSED_NUMBERS; i++) {
        const int why = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), REFUSED_NUMBERS[i], 0);
        if (why < 0)
            return why;
    }
    return 0;
}

static int refuse_bits(scmp_filter_ctx filter, int number, uint64_t bits) {
    return seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), number, 1, SCMP_A0(SCMP_CMP_MASKED_EQ, bits, bits));
}

static int refuse_namespaces(scmp_filter_ctx filter) {
    for (size_t i = 0; i < sizeof NAMESPACES / sizeof *NAMESPACES; i++) {
        int why = refuse_bits(filter, SCMP_SYS(clone), NAMESPACES[i]);
        if (why == 0)
            why = refuse_bits(filter, SCMP_SYS(unshare), NAMESPACES[i]);
        if (why < 0)
            return why;
    }
    const int why = refuse_bits(filter, SCMP_SYS(unshare), CLONE_NEWTIME); /* a signal's number, for clone */
    return why < 0 ? why : seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

static int refuse_arguments(scmp_filter_ctx filter) {
    const uint64_t low = UINT32_MAX; /* the kernel looks at 32 bits of both */
    int why = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                               SCMP_A1(SCMP_CMP_MASKED_EQ, low, TIOCSTI));
    if (why == 0)
        why = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(ioctl), 1,
                               SCMP_A1(SCMP_CMP_MASKED_EQ, low, TIOCLINUX));
    if (why == 0)
        why = seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1,
                               SCMP_A0(SCMP_CMP_MASKED_EQ, low, AF_VSOCK));
    return why;
}

static status_t filter_read(int fd, struct sock_fprog *ret, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return err_errno(e, "read the filter of system calls");
    const size_t n = (size_t)st.st_size / sizeof(struct sock_filter);
    if (n == 0 || n > FILTER_INSTRUCTIONS_MAX)
        return err_set(e, ST_INTERNAL, "the filter of system calls has %zu instructions; the kernel takes 1 to %d", n,
                       FILTER_INSTRUCTIONS_MAX);
    CLEANUP(freep) struct sock_filter *all = malloc(n * sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the filter of system calls");
    if (pread(fd, all, n * sizeof *all, 0) != (ssize_t)(n * sizeof *all))
        return err_errno(e, "read the filter of system calls");
    *ret = (struct sock_fprog){ .len = (unsigned short)n, .filter = take_ptr(&all) };
    return ST_OK;
}

status_t system_calls_filter(struct sock_fprog *ret, struct err *e) {
    CLEANUP(closep) int fd = memfd_create("trainyard-filter", MFD_CLOEXEC);
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    int why = fd < 0 ? -errno : filter ? 0 : -ENOMEM;
    if (why == 0)
        why = seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (why == 0)
        why = seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, OPTIMIZE_AS_TREE);
    if (why == 0)
        why = refuse_names(filter);
    if (why == 0)
        why = refuse_namespaces(filter);
    if (why == 0)
        why = refuse_arguments(filter);
    if (why == 0)
        why = seccomp_export_bpf(filter, fd);
    if (filter)
        seccomp_release(filter);
    if (why < 0) {
        errno = -why;
        return err_errno(e, "make the filter of system calls");
    }
    return filter_read(fd, ret, e);
}
