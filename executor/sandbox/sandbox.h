/* A process that obeys a user: it reads and writes only the files that it is meant to, gains no privilege, and cannot
 * reach the processes outside.
 *
 *     CLEANUP(sandbox_closep) struct sandbox *s = NULL;
 *     TRY(sandbox_open(&policy, &s, e));       // allocates, opens files, reads folders
 *     if (fork() == 0) {
 *         errno = sandbox_apply(s);            // only system calls: safe between fork and exec
 *         ...
 *
 * sandbox_apply restricts the calling thread and all threads and processes that it starts from then on, for good:
 *
 *     privileges   no_new_privs: set-user-ID files and file capabilities have no effect. Of root's capabilities only
 *                  those about the owner and mode of files, users, low ports and locked memory remain
 *     files        Landlock: as the policy says
 *     processes    Landlock: no ptrace, /proc/PID/mem, environ or fd of a process outside, also of the same user. From
 *                  ABI 6 no signal to one
 *     calls        seccomp: those of system_calls.h fail with EPERM. A call of another architecture kills the process
 *
 * Files. Landlock only grants: what is granted for a folder holds for all that is below it, and nothing below can be
 * taken away again. "Everything but H" is therefore made from the root folder downwards: each entry beside the path to
 * H gets a rule of its own, and the folders on the path get none. It follows that
 *   - an entry that is made later beside a folder on such a path cannot be read: a policy that hides /var/lib/a/b
 *     grants nothing to a later /var/lib/c or /var/lib/a/c;
 *   - the folders on such a path can be passed through, but not listed, unless the policy lists them (`listed`);
 *   - what is hidden is found by its path: another mount of it elsewhere is not.
 * At most SANDBOX_RULES entries get a rule; more are an error, because a sandbox with missing files would be a riddle.
 * Of a folder on such a path in which all users may make files (sticky, as /tmp) only SANDBOX_SHARED_ENTRIES entries
 * get one, in the order of the folder, and the others cannot be read: no user can stop the jobs of all others.
 *
 * Any thread may open a sandbox. */
#ifndef EXECUTOR_SANDBOX_SANDBOX_H
#define EXECUTOR_SANDBOX_SANDBOX_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { SANDBOX_RULES = 16384, SANDBOX_SHARED_ENTRIES = 4096, SANDBOX_GRANTS = 256, SANDBOX_HIDDEN = 256 };

enum sandbox_right {
    SANDBOX_READ,  /* read and execute; a folder: with all that is below it, but for what is hidden there */
    SANDBOX_WRITE, /* the same, and change; below /dev also ioctl */
    SANDBOX_OPEN,  /* read the files in a folder and in all folders below it, by names that the process knows */
    SANDBOX_LIST,  /* the names in a folder and in all folders below it, hidden ones too; no file */
};

/* A path that does not exist is left out. */
struct sandbox_grant {
    const char *path;
    enum sandbox_right right;
};

/* Paths are absolute and borrowed until sandbox_open returns. */
struct sandbox_policy {
    struct sandbox_grant grants[SANDBOX_GRANTS];
    size_t n_grants;
    /* Files and folders that no grant from above them contains. A grant for such a path itself, or for a path below it,
     * holds. A path that ends in '*' hides all names that begin with it. */
    const char *hidden[SANDBOX_HIDDEN];
    size_t n_hidden;
    /* Folders whose names, and all names below them, hidden ones too, may be listed. */
    const char *listed[SANDBOX_GRANTS];
    size_t n_listed;
    bool gpus;             /* also the device files of NVIDIA's driver and of InfiniBand */
    bool terminals;        /* also /dev/ptmx and /dev/pts: pseudo-terminals, those of other processes of its user too */
    bool abstract_sockets; /* may use those of processes outside: NCCL's ranks of one host do */
    bool no_files;         /* no Landlock: everything that the user of the process may */
    bool only_grants;      /* of the host's files, nothing beside the grants: the process gets other files */
};

/* False: the policy is full. A NULL or empty path is left out. */
bool sandbox_grant(struct sandbox_policy *p, const char *path, enum sandbox_right right);
bool sandbox_hide(struct sandbox_policy *p, const char *path);
bool sandbox_list(struct sandbox_policy *p, const char *path);

/* All that is outside of /dev can be read (but with only_grants), and the usual files of /dev, /dev/shm among them, can
 * be read and written; the policy hides and grants more. What the host lacks (host_support.h) is left out.
 * RESOURCE_EXHAUSTED: more than SANDBOX_RULES entries beside the paths to what is hidden. FAILED_PRECONDITION: a folder
 * on such a path can be entered by this user but not listed. Other errors: of files and of libseccomp. */
struct sandbox;
MUST_CHECK status_t sandbox_open(const struct sandbox_policy *policy, struct sandbox **ret, struct err *e);
struct sandbox *sandbox_close(struct sandbox *s);
CLEANUP_DEFINE(struct sandbox *, sandbox_close)

/* Between fork and sandbox_apply, which it resembles: grants a path of the files that the process has now. 0, or errno.
 * NULL, or a path that does not exist or is a symbolic link: nothing. */
int sandbox_grant_here(const struct sandbox *s, const char *path, enum sandbox_right right);

/* 0, or errno. After an error the process may be restricted in part: it must end. NULL: nothing is restricted. */
int sandbox_apply(const struct sandbox *s);

#endif
