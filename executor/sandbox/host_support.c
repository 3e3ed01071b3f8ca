#include "executor/sandbox/host_support.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* PR_SET_SECCOMP with a NULL filter fails with EFAULT if filters are known. */
bool host_has_seccomp(void) {
    uint32_t action = SECCOMP_RET_ERRNO;
    return syscall(SYS_seccomp, SECCOMP_GET_ACTION_AVAIL, 0, &action) == 0;
}

size_t host_lacks(int abi, bool seccomp, const char *ret[HOST_LACKS_MAX]) {
    size_t n = 0;
    if (abi < LANDLOCK_ABI_FILES)
        ret[n++] = "no Landlock (Linux 5.13, turned on by lsm=): jobs reach all files of their user, and processes "
                   "of the same user";
    else if (abi < LANDLOCK_ABI_REFER)
        ret[n++] = "Landlock of ABI 1 (Linux 5.19 has 2): a program's renames and hard links between folders fail with "
                   "EXDEV";
    if (abi >= LANDLOCK_ABI_FILES && abi < LANDLOCK_ABI_TRUNCATE)
        ret[n++] = "Landlock below ABI 3 (Linux 6.2): jobs can truncate files that their user may write";
    if (abi >= LANDLOCK_ABI_FILES && abi < LANDLOCK_ABI_SCOPES)
        ret[n++] = "Landlock below ABI 6 (Linux 6.12): jobs can send signals to processes of their user, and use "
                   "abstract unix sockets";
    if (!seccomp)
        ret[n++] = "no seccomp: no system call is refused";
    return n;
}
