/* Lists of PNG and JPEG images, in an order that is the same everywhere:
 *
 *   a folder   its files, recognised by name (.png, .jpg, .jpeg in any case), sorted by the bytes of their names. Names
 *              that begin with a dot are ignored. Symbolic links are followed if they stay in the folder and roots is
 *              NULL (the user's own folder), else refused.
 *   files      of a pattern or of a store. The folder that a file is in is its class. Sorted by class, then by name, as
 *              if all classes were in one folder.
 *   archives   files whose names end with .tar, sorted by name: WebDatasets. A sample is the files of one name up to
 *              the first dot: an image (.png, .jpg, .jpeg), and its class as a number from 0 (.cls). Samples keep their
 *              order in the archive.
 *
 * Private to this folder. */
#ifndef ENGINE_DATA_IMAGE_FILES_H
#define ENGINE_DATA_IMAGE_FILES_H

#include "base/cleanup.h"
#include "base/member.h"
#include "base/status.h"
#include "engine/data/data_file.h"

#include <stdbool.h>
#include <stdint.h>

struct image_file {
    char *path;      /* of the file; NULL: in an archive */
    char *name;      /* in its class and folder: "cat/1.png"; points into path or follows it */
    int64_t offset;  /* of the image in the archive */
    int64_t bytes;   /* of the image */
    int32_t label;   /* of its class; 0 without classes */
    int32_t archive; /* which one */
};

struct image_archive {
    char *path, *name; /* name: without the folders; points into path or follows it */
};

struct image_files {
    struct data_folder at; /* the folder itself: names are opened below it; fd -1: files and archives have paths */
    struct image_file *files;
    int64_t n;
    struct image_archive *archives;
    int n_archives;
    char **classes; /* names, sorted; NULL: classes are numbers */
    int n_classes;
};

enum { IMAGE_FILES_MAX = 1 << 26, IMAGE_CLASSES_MAX = 1 << 20 };

/* Each folder in `path` is a class with its files, without the files of subfolders. known NULL: the folders define the
 * classes; else they must be classes of `known`. Errors name the folder: NOT_FOUND, PERMISSION_DENIED, INVALID_ARGUMENT
 * (no class, a class without a file, a class that `known` does not have). */
MUST_CHECK status_t image_files_of_classes(const struct roots *roots, const char *path, const struct image_files *known,
                                           struct image_files **ret, struct err *e);

/* All files, including the files of subfolders, at most 16 levels deep. */
MUST_CHECK status_t image_files_search(const struct roots *roots, const char *path, struct image_files **ret,
                                       struct err *e);

/* As listed above, from files that a URI names. classes: as known in image_files_of_classes; without them labels are 0,
 * and archives need no .cls. progress: called regularly; may be NULL. NOT_FOUND, PERMISSION_DENIED; INVALID_ARGUMENT
 * names the file, or the sample: a name that is neither that of an image nor of an archive, both kinds of names, a file
 * in no folder, a sample without an image or class. */
MUST_CHECK status_t image_files_of_list(const struct roots *roots, const struct member_files *list, bool classes,
                                        const struct image_files *known, void (*progress)(void *), void *ctx,
                                        struct image_files **ret, struct err *e);

/* Opens image i, and says where in the file it is. The caller closes the file, also after an error. */
MUST_CHECK status_t image_files_open(const struct image_files *f, int64_t i, struct data_file *ret, int64_t *ret_offset,
                                     int64_t *ret_bytes, struct err *e);

/* "the image '/data/cat/1.png'", or "the image at byte 1536 of '/data/1.tar'". */
enum { IMAGE_NAME_BYTES = 512 };
const char *image_files_name(const struct image_files *f, int64_t i, char ret[IMAGE_NAME_BYTES]);

/* ---- for image_list.c and image_archives.c ---- */

bool image_files_is_image(const char *name);
void image_files_add(struct image_files *f, const struct image_file *file);
struct image_archive image_archive_of(const char *path, const char *name);
/* -1: there is no such class. */
int image_files_class(const struct image_files *f, const char *name);
void image_files_add_class(struct image_files *f, const char *name);
MUST_CHECK status_t image_archives_list(struct image_files *f, const struct member_files *list, bool classes,
                                        const struct image_files *known, void (*progress)(void *), void *ctx,
                                        struct err *e);

/* Of memory: the names, and the list. */
size_t image_files_bytes(const struct image_files *f);

struct image_files *image_files_free(struct image_files *f);
CLEANUP_DEFINE(struct image_files *, image_files_free)

/* Moves `fraction` of the files of `f`, evenly spread, to a new list with the same classes. */
MUST_CHECK status_t image_files_split(struct image_files *f, double fraction, struct image_files **ret, struct err *e);

#endif
