#include "executor/worker/user.h"

#include "base/privileges.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { GROUPS_MAX = 8 };

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

static status_t ids_parse(const char *ids, uid_t *ret_uid, gid_t groups[GROUPS_MAX], size_t *ret_n, struct err *e) {
    unsigned long number[GROUPS_MAX + 1];
    size_t n = 0;
    for (const char *at = ids; n <= GROUPS_MAX; at++) {
        char *end;
        errno = 0;
        number[n++] = strtoul(at, &end, 10);
        if (errno || end == at || (*end && *end != ':') || number[n - 1] >= UINT32_MAX)
            break;
        at = end;
        if (*at)
            continue;
        if (n < 2 || number[0] == 0)
            break;
        *ret_uid = (uid_t)number[0];
        *ret_n = n - 1;
        for (size_t i = 1; i < n; i++)
            groups[i - 1] = (gid_t)number[i];
        return ST_OK;
    }
    return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not UID:GID[:GID]... with a UID above 0", ids);
}

/* The group is needed to reach the folder of all checkpoints. A command of a user's program must not have it, since all
 * jobs have the same. As the effective group alone it can be given up without a privilege, and a process that does not
 * have it cannot trace one that does. */
status_t user_become_ids(const char *ids, bool private_group, struct err *e) {
    uid_t uid = 0;
    gid_t groups[GROUPS_MAX];
    size_t n = 0;
    TRY(ids_parse(ids, &uid, groups, &n, e));
    const gid_t group = groups[0], own = private_group ? (gid_t)uid : group;
    if (setgroups(n - 1, groups + 1) < 0 || setresgid(own, group, own) < 0 || setresuid(uid, uid, uid) < 0)
        return err_errno(e, "become the user %u", (unsigned)uid);
    status_t st = privileges_drop(0, e);
    if (st != ST_OK)
        return err_prefix(e, st, "as the user %u: ", (unsigned)uid);
    umask(umask(0) | (S_IROTH | S_IWOTH));
    if (prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) < 0)
        return err_errno(e, "open this process to others of the user %u", (unsigned)uid);
    return ST_OK;
}

bool user_group_is_private(void) { return getgid() != getegid(); }

bool user_group_leave(void) {
    const gid_t own = getgid();
    if (!user_group_is_private())
        return true;
    umask(umask(0) | S_IRWXO);
    return syscall(SYS_setresgid, own, own, own) == 0; /* glibc's function takes a lock */
}

status_t user_option_take(int *argc, char **argv, bool private_group, struct err *e) {
    const bool name = *argc >= 3 && strcmp(argv[1], "--user") == 0;
    if (!name && (*argc < 3 || strcmp(argv[1], "--job-user") != 0))
        return ST_OK;
    TRY(name ? user_become(argv[2], e) : user_become_ids(argv[2], private_group, e));
    *argc -= 2;
    memmove(argv + 1, argv + 3, (size_t)*argc * sizeof *argv);
    return ST_OK;
}
