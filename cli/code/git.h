/* The files of a folder that git would keep. */
#ifndef CLI_CODE_GIT_H
#define CLI_CODE_GIT_H

#include "base/status.h"

#include <limits.h>

enum git_state {
    GIT_OUTSIDE, /* the folder is in no work tree */
    GIT_MISSING, /* it is in one, but there is no program git */
    GIT_LISTED,
};

typedef status_t git_name_fn(void *ctx, const char *name, struct err *e);

/* Calls `add` for each file below the folder that git tracks, or neither tracks nor ignores: a path relative to the
 * folder. Runs no hook and no monitor of the repository. The first failure of `add` ends the list. FAILED_PRECONDITION
 * with the first line of its message: git cannot read the repository. */
MUST_CHECK status_t git_list(const char *folder, git_name_fn *add, void *ctx, enum git_state *ret, struct err *e);

/* A commit, checked out into a new folder in TMPDIR. */
struct git_checkout {
    char path[PATH_MAX]; /* "": none */
};
/* Fetches only this commit if the server allows that, otherwise all branches and tags. Runs no hook, and fetches no
 * submodule. INVALID_ARGUMENT: commit is not 40 hexadecimal digits. FAILED_PRECONDITION with the first line of git's
 * message: git cannot fetch it, or takes longer than GIT_FETCH_MS. Always call git_checkout_done. */
enum { GIT_FETCH_MS = 10 * 60 * 1000 };
MUST_CHECK status_t git_checkout(const char *url, const char *commit, struct git_checkout *ret, struct err *e);
void git_checkout_done(struct git_checkout *c);

#endif
