/* The files of an environment: what they are, and whose. */
#ifndef EXECUTOR_ENVIRONMENT_TREE_H
#define EXECUTOR_ENVIRONMENT_TREE_H

#include "base/sha256.h"
#include "base/status.h"

#include <stdint.h>

struct tree_facts {
    int64_t bytes; /* on the disk */
    /* Changes when a file changes, appears, disappears or gets another owner. It covers names, modes, owners, inodes,
     * sizes and times of change, which no program can set, and reads no file. Folders __pycache__ are left out: Python
     * may write them if it has the right to. */
    char print[SHA256_HEX];
};

/* Files that disappear meanwhile are no error. */
MUST_CHECK status_t tree_measure(const char *path, struct tree_facts *ret, struct err *e);

/* Makes the folder and everything in it read-only, and gives it to this process's user. Whatever is neither a file, a
 * folder nor a symbolic link is removed. Nobody may change the folder meanwhile. */
MUST_CHECK status_t tree_claim(const char *path, struct err *e);

#endif
