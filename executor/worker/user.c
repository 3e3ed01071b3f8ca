#include "executor/worker/user.h"

#include "base/privileges.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

status_t user_become(const char *name, struct err *e) {
    errno = 0;
    const struct passwd *found = getpwnam(name);
    if (!found)
        return errno ? err_errno(e, "look up the user '%s'", name)
                     : err_set(e, ST_NOT_FOUND, "there is no user '%s'", name);
    const uid_t uid = found->pw_uid;
    const gid_t gid = found->pw_gid;
    if (uid == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the user '%s' is root, which a worker must not be", name);
    if (initgroups(name, gid) < 0 || setresgid(gid, gid, gid) < 0 || setresuid(uid, uid, uid) < 0)
        return err_errno(e, "become the user '%s'", name);
    status_t st = privileges_drop(0, e); /* the kernel takes capabilities away only from a process that was root */
    if (st != ST_OK)
        return err_prefix(e, st, "as the user '%s': ", name);
    /* The change of user has made its memory closed to others of that user, with whom it shares sums. */
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return err_errno(e, "open this process to others of the user '%s'", name);
    return ST_OK;
}

status_t user_option_take(int *argc, char **argv, struct err *e) {
    if (*argc < 3 || strcmp(argv[1], "--user") != 0)
        return ST_OK;
    TRY(user_become(argv[2], e));
    *argc -= 2;
    memmove(argv + 1, argv + 3, (size_t)*argc * sizeof *argv);
    return ST_OK;
}
