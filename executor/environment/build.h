/* Builds one environment: a virtual environment of Python with the packages that the requirements name; or the files
 * of an image, with "root" and "variables" (executor/image/unpack.h) in the folder "env". */
#ifndef EXECUTOR_ENVIRONMENT_BUILD_H
#define EXECUTOR_ENVIRONMENT_BUILD_H

#include "executor/environment/builder.h"
#include "executor/environment/key.h"

struct build_options {
    const struct builder *builder; /* its variables: see build_variables_new */
    const Trainyard__V1__EnvironmentBuild *order;
    const struct environment_key *key;
    int image;          /* of an archive: what image_key_find has opened */
    const char *folder; /* exists, is empty and belongs to the builder's user; the environment is its folder "env" */
    /* Lines of output. */
    void (*log)(void *ctx, char **lines, size_t n);
    void *ctx;
};

/* *ret_refused: no host can do it. The environment's paths contain the folder: it cannot be moved. */
MUST_CHECK status_t environment_build(const struct build_options *options, bool *ret_refused, struct err *e);

/* PATH of this process, those of the order, and HOME, which is `home`. TMPDIR: `temporary`, unless NULL. */
char **build_variables_new(const Trainyard__V1__EnvironmentBuild *order, const char *home, const char *temporary);
char **build_variables_free(char **variables); /* NULL is fine; returns NULL */

#endif
