/* The PNG and JPEG files of a folder, recognised by name (.png, .jpg, .jpeg in any case) and sorted by the bytes of
 * their names, so that the order is the same everywhere. Names that begin with a dot are ignored. Symbolic links are
 * followed if they stay in the folder and roots is NULL (the user's own folder), else refused. Private to this
 * folder. */
#ifndef ENGINE_DATA_IMAGE_FILES_H
#define ENGINE_DATA_IMAGE_FILES_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/data/data_file.h"

#include <stdint.h>

struct image_file {
    char *path;
    char *name; /* within the folder: "cat/1.png"; points into path */
    int64_t bytes;
    int label; /* of its class; 0 without classes */
};

struct image_files {
    struct data_folder at; /* the folder itself: names are opened below it */
    struct image_file *files;
    int64_t n;
    char **classes; /* names, sorted */
    int n_classes;
};

/* Each folder in `path` is a class with its files, without the files of subfolders. known NULL: the folders define the
 * classes; else they must be classes of `known`. Errors name the folder: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT
 * (no class, a class without a file, a class that `known` does not have). */
MUST_CHECK status_t image_files_of_classes(const struct roots *roots, const char *path, const struct image_files *known,
                                           struct image_files **ret, struct err *e);

/* All files, including the files of subfolders, at most 16 levels deep. */
MUST_CHECK status_t image_files_search(const struct roots *roots, const char *path, struct image_files **ret,
                                       struct err *e);

/* Of memory: the names, and the list. */
size_t image_files_bytes(const struct image_files *f);

struct image_files *image_files_free(struct image_files *f);
CLEANUP_DEFINE(struct image_files *, image_files_free)

/* Moves `fraction` of the files of `f`, evenly spread, to a new list with the same classes. */
MUST_CHECK status_t image_files_split(struct image_files *f, double fraction, struct image_files **ret, struct err *e);

#endif
