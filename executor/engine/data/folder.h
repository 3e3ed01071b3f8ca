/* The PNG and JPEG files of a folder, by their names (.png, .jpg, .jpeg in any case), in one order everywhere: by
 * bytes. Names that begin with a dot are passed over, symbolic links are followed. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_FOLDER_H
#define EXECUTOR_ENGINE_DATA_FOLDER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdint.h>

struct folder_file {
    char *path;
    char *name; /* within the folder: "cat/1.png"; points into path */
    int64_t bytes;
    int label; /* of its class; 0 where classes do not matter */
};

struct folder {
    int fd; /* of the folder itself: names are opened below it */
    struct folder_file *files;
    int64_t n;
    char **classes; /* names, sorted */
    int n_classes;
};

/* One folder below `path` is a class: its files, not those in further folders. Errors name the folder: NOT_FOUND,
 * PERMISSION_DENIED, INVALID_ARGUMENT (no class, a class without a file, a class that `known` lacks; known NULL = this
 * folder says which classes there are, else `known` does). */
MUST_CHECK status_t folder_classes(const char *path, const struct folder *known, struct folder **ret, struct err *e);

/* All files, in further folders too, at most 16 folders deep. */
MUST_CHECK status_t folder_search(const char *path, struct folder **ret, struct err *e);

struct folder *folder_free(struct folder *f);
CLEANUP_DEFINE(struct folder *, folder_free)

/* Takes every file out of `f` whose turn it is, so that `fraction` of all are evenly spread out of it: returns them as
 * a folder of their own, with the same classes. */
MUST_CHECK status_t folder_split(struct folder *f, double fraction, struct folder **ret, struct err *e);

#endif
