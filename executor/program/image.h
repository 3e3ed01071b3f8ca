/* The image of a program: what its command sees in place of the host's files (docs/program.md, "Images"). */
#ifndef EXECUTOR_PROGRAM_IMAGE_H
#define EXECUTOR_PROGRAM_IMAGE_H

#include "executor/container/container.h"
#include "executor/program/environment.h"
#include "executor/worker/job_roots.h"

#include <sys/types.h>

/* Opens the folder with the image's files (O_PATH): a root folder of the spec. Errors name program.image. */
MUST_CHECK status_t image_root_open(const Trainyard__V1__ImageSpec *image, const struct job_roots_given *given,
                                    int *ret, struct err *e);
/* The archive or layout of the spec, likewise. */
MUST_CHECK status_t image_archive_open(const Trainyard__V1__ImageSpec *image, const struct job_roots_given *given,
                                       int *ret, struct err *e);
/* The same for an image that was unpacked into the folder. *ret_variables: those of the image, each with a zero byte at
 * its end, and another one after the last; the caller frees it. */
MUST_CHECK status_t image_unpacked_open(const char *folder, int *ret, char **ret_variables, struct err *e);

/* The container of a rank's command. *ret is NULL if the program has no image. root: from image_root_open. group: that
 * of the command. */
MUST_CHECK status_t image_container_open(const Trainyard__V1__WorkerStart *start, int root, gid_t group,
                                         const struct scratch *scratch, const struct program_paths *paths,
                                         struct container **ret, struct err *e);

/* As execvp would find it, but in the image: 0, or errno of the first reason why not. search: a list as PATH. */
int image_command_errno(int root, const char *name, const char *search);

/* Where commands of an image are searched if neither the image nor the spec has a PATH. */
extern const char IMAGE_PATH[];

#endif
