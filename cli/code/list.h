/* The files of a folder that belong to an archive.
 *
 * In a work tree of git: the files that git tracks, and those that it neither tracks nor ignores (`git ls-files
 * --cached --others --exclude-standard`). Otherwise, or without the program git: all files. In both cases without
 * folders named .git, without what .trainyardignore leaves out, and without folders that contain no file. */
#ifndef CLI_CODE_LIST_H
#define CLI_CODE_LIST_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct code_file {
    char *path;   /* relative to the folder */
    char *target; /* of a symbolic link; NULL: a file */
    int64_t bytes;
    bool executable;
};

struct code_list {
    struct code_file *files; /* by path, in the order of strcmp */
    size_t n;
    bool without_git;  /* the folder is in a work tree, but there is no program git */
    bool git_has_none; /* git lists no file of the folder */
};

/* folder: open, for listing; path: its name in sentences, and for git. INVALID_ARGUMENT with a sentence for the user:
 * something that cannot be packed, or more than LIMIT_CODE_FILES files. */
MUST_CHECK status_t code_list_read(int folder, const char *path, struct code_list **ret, struct err *e);
struct code_list *code_list_free(struct code_list *list);
CLEANUP_DEFINE(struct code_list *, code_list_free)

/* NULL: the list has no file or link of this path. */
const struct code_file *code_list_find(const struct code_list *list, const char *path);

/* Writes the entries at the top of the folder that have the most bytes (by_files: the most files), at most three:
 * "data/ (700 MiB), run.log (20 MiB)". */
void code_list_largest(const struct code_list *list, bool by_files, char *ret, size_t cap);

#endif
