/* The folders in which the paths of a job may be. A path of a spec comes from a user; the operator of a program sets by
 * options which folders are allowed.
 *
 *     struct roots roots = { .option = "--data-root", .paths = paths, .n = n };
 *     TRY(roots_open(&roots, "/data/text/a.txt", O_RDONLY, &fd, e));
 *
 * A path is admitted if it begins with one of the roots, as given or by its real path; of several roots the longest
 * counts. The root itself may be reached by symbolic links, because the operator chose it; below it no
 * link is followed (beneath.h). A path outside all roots is not accessed: the result is the same whether it exists or
 * not. Without roots no path is admitted. A NULL `struct roots *` admits every path, for programs that a user runs on
 * files of their own.
 *
 * Files of /proc and /sys, private keys and tokens (secret.h) and the files in `except` are always refused.
 *
 * All strings are borrowed; nothing here allocates. Any thread may use one. */
#ifndef BASE_ROOTS_H
#define BASE_ROOTS_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A file, by its device and inode, or a folder with all that is in it, by its real path as well. */
struct roots_except {
    const char *path;
    uint64_t device, inode;
};

struct roots {
    const char *option; /* which names a root, for sentences: "--data-root of this executor" */
    const char *const *paths;
    size_t n;
    const struct roots_except *except;
    size_t n_except;
    const char *opened; /* a folder in an excepted one that is not refused with it; NULL: none */
};

/* Fills device and inode; NOT_FOUND: no such file. */
MUST_CHECK status_t roots_except_find(const char *path, struct roots_except *ret, struct err *e);

/* flags as for open(2), without O_CREAT. PERMISSION_DENIED: outside of all roots, a symbolic link on the way, or
 * a file that is always refused. INVALID_ARGUMENT: not an absolute path, or ".." in it. */
MUST_CHECK status_t roots_open(const struct roots *r, const char *path, int flags, int *ret, struct err *e);

/* Whether the path exists, refused files included. */
bool roots_has(const struct roots *r, const char *path);

/* As file_read of base/file.h. */
struct bytes;
MUST_CHECK status_t roots_read(const struct roots *r, const char *path, struct bytes *ret, struct err *e);

/* Which root `path` lies below, and the rest of the path, which points into it. Nothing is opened; the path need not
 * exist. PERMISSION_DENIED: below no root; INVALID_ARGUMENT: not an absolute path, or ".." in it. */
MUST_CHECK status_t roots_locate(const struct roots *r, const char *path, const char **ret_root, const char **ret_name,
                                 struct err *e);

/* The open folder of the root that `path` lies below (O_PATH), and the rest of the path, which points into it: for
 * beneath.h. The same errors, except those about the rest of the path. */
MUST_CHECK status_t roots_find(const struct roots *r, const char *path, int *ret_root, const char **ret_name,
                               struct err *e);

/* mkdir -p below a root, as beneath_make; *ret is the open folder. r NULL: anywhere, and by any links. */
MUST_CHECK status_t roots_make(const struct roots *r, const char *path, unsigned mode, int *ret, struct err *e);

/* beneath_find_made for a folder that roots_make would make. r is not NULL. */
MUST_CHECK status_t roots_find_made(const struct roots *r, const char *path, int *ret, struct err *e);

/* Checks whether an open file is always refused; `path` is for the sentence. r NULL: no file is. */
MUST_CHECK status_t roots_check(const struct roots *r, int fd, const char *path, struct err *e);

#endif
