/* sandbox_open makes the ruleset (file_rules.c) and the filter of system calls (system_calls.c). sandbox_apply gives up
 * capabilities, enters the Landlock domain, and loads the filter, in this order: each step needs calls that the next
 * one may forbid. */
#include "executor/sandbox/sandbox.h"

#include "base/alloc.h"
#include "base/privileges.h"
#include "executor/sandbox/file_rules.h"
#include "executor/sandbox/host_support.h"
#include "executor/sandbox/landlock_rights.h"
#include "executor/sandbox/system_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <linux/seccomp.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Those of root that concern nothing but the modes and owners of files, users, and resources of the process itself. */
static const uint64_t KEPT = PRIVILEGE(CAP_CHOWN) | PRIVILEGE(CAP_DAC_OVERRIDE) | PRIVILEGE(CAP_DAC_READ_SEARCH) |
                             PRIVILEGE(CAP_FOWNER) | PRIVILEGE(CAP_FSETID) | PRIVILEGE(CAP_SETGID) |
                             PRIVILEGE(CAP_SETUID) | PRIVILEGE(CAP_NET_BIND_SERVICE) | PRIVILEGE(CAP_IPC_LOCK);

struct sandbox {
    int ruleset; /* -1: none */
    struct landlock_rights rights;
    struct sock_fprog filter; /* len 0: none */
};

static bool path_add(const char **list, size_t *n, size_t max, const char *path) {
    if (!path || !*path)
        return true;
    if (*n == max)
        return false;
    list[(*n)++] = path;
    return true;
}

bool sandbox_grant(struct sandbox_policy *p, const char *path, enum sandbox_right right) {
    if (!path || !*path)
        return true;
    if (p->n_grants == SANDBOX_GRANTS)
        return false;
    p->grants[p->n_grants++] = (struct sandbox_grant){ path, right };
    return true;
}

bool sandbox_hide(struct sandbox_policy *p, const char *path) {
    return path_add(p->hidden, &p->n_hidden, SANDBOX_HIDDEN, path);
}

bool sandbox_list(struct sandbox_policy *p, const char *path) {
    return path_add(p->listed, &p->n_listed, SANDBOX_GRANTS, path);
}

status_t sandbox_open(const struct sandbox_policy *policy, struct sandbox **ret, struct err *e) {
    CLEANUP(sandbox_closep) struct sandbox *s = alloc_zeroed(1, sizeof *s);
    const int abi = policy->no_files ? 0 : landlock_abi();
    s->ruleset = -1;
    s->rights = landlock_rights_of(abi);
    if (abi > 0)
        TRY(file_rules_open(policy, abi, &s->ruleset, e));
    if (host_has_seccomp())
        TRY(system_calls_filter(&s->filter, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

struct sandbox *sandbox_close(struct sandbox *s) {
    if (!s)
        return NULL;
    closep(&s->ruleset);
    free(s->filter.filter);
    free(s);
    return NULL;
}

int sandbox_grant_here(const struct sandbox *s, const char *path, enum sandbox_right right) {
    struct stat st;
    if (!s || s->ruleset < 0)
        return 0;
    const int fd = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return errno == ENOENT ? 0 : errno;
    const uint64_t rights = right == SANDBOX_READ    ? s->rights.read
                            : right == SANDBOX_WRITE ? s->rights.write
                            : right == SANDBOX_OPEN  ? s->rights.open
                                                     : s->rights.list;
    int why = fstat(fd, &st) < 0 ? errno : 0;
    struct landlock_path_beneath_attr rule = { .allowed_access = S_ISDIR(st.st_mode) ? rights : rights & s->rights.file,
                                               .parent_fd = fd };
    if (why == 0 && !S_ISLNK(st.st_mode) && rule.allowed_access &&
        syscall(SYS_landlock_add_rule, s->ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0) < 0 && errno != EBADFD)
        why = errno;
    close(fd);
    return why;
}

int sandbox_apply(const struct sandbox *s) {
    if (!s)
        return 0;
    int why = privileges_limit(KEPT);
    if (why == 0 && s->ruleset >= 0 && syscall(SYS_landlock_restrict_self, s->ruleset, 0) < 0)
        why = errno;
    if (why == 0 && s->filter.len && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &s->filter, 0, 0) < 0)
        why = errno;
    return why;
}
