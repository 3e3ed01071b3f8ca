/* Files and folders below a folder that is already open, found by openat2(2) alone: no part of a name may be "..", a
 * symbolic link or a link of /proc, so that a user who can write below the folder cannot redirect a name out of it or
 * to another place in it, not even between two calls.
 *
 * `root` is the open folder (O_PATH is enough), `name` a path relative to it ("" and "." are the folder itself), `path`
 * the name for error sentences. Descriptors are close-on-exec.
 *
 * Errors: errno's status with the path; a symbolic link on the way is PERMISSION_DENIED and says so; a kernel without
 * openat2 (before Linux 5.6) is UNIMPLEMENTED. */
#ifndef BASE_BENEATH_H
#define BASE_BENEATH_H

#include "base/status.h"

/* flags as for open(2), without O_CREAT. A symbolic link is refused even with O_PATH | O_NOFOLLOW. */
MUST_CHECK status_t beneath_open(int root, const char *name, int flags, const char *path, int *ret, struct err *e);

/* mkdir -p: every missing folder gets this mode. *ret is open for reading (fsync, listing); NULL: not needed. A folder
 * on the way, the root included, to which all users may write is PERMISSION_DENIED: any user could take its names.
 * ALREADY_EXISTS: the name belongs to something else. */
MUST_CHECK status_t beneath_make(int root, const char *name, unsigned mode, const char *path, int *ret, struct err *e);

/* Opens the deepest existing part of a path that beneath_make would make, for reading. Makes nothing. The same errors.
 */
MUST_CHECK status_t beneath_find_made(int root, const char *name, const char *path, int *ret, struct err *e);

/* rm -r of a folder. A missing folder is OK. Anything else of that name, symbolic links included, is not removed:
 * FAILED_PRECONDITION. Symbolic links within the folder are removed, not followed. At most 64 folders deep. */
MUST_CHECK status_t beneath_remove(int root, const char *name, const char *path, struct err *e);

#endif
