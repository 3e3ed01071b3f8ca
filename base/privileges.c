#include "base/privileges.h"

#include <errno.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

int privileges_limit(uint64_t keep) {
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3];
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 || syscall(SYS_capget, &header, sets) < 0)
        return errno;
    for (int i = 0; i < _LINUX_CAPABILITY_U32S_3; i++) {
        sets[i].permitted &= (uint32_t)(keep >> (32 * i));
        sets[i].effective &= sets[i].permitted;
        sets[i].inheritable = 0;
    }
    if (syscall(SYS_capset, &header, sets) < 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0)
        return errno;
    return 0;
}

status_t privileges_drop(uint64_t keep, struct err *e) {
    errno = privileges_limit(keep);
    return errno ? err_errno(e, "give up privileges") : ST_OK;
}
