/* Which environment a program needs. */
#ifndef EXECUTOR_ENVIRONMENT_KEY_H
#define EXECUTOR_ENVIRONMENT_KEY_H

#include "api/code/requirements.h"
#include "executor/environment/builder.h"

#include <limits.h>
#include <trainyard/v1/worker.pb-c.h>

enum { KEY_BYTES = 33 }; /* 128 bits of a SHA-256 in hexadecimal digits */

struct environment_key {
    char id[KEY_BYTES];
    enum requirements_kind kind;
    bool hashed;           /* the requirements have hashes */
    bool local;            /* what is installed depends on other files of the code */
    bool sources;          /* it is also built from them */
    char python[PATH_MAX]; /* the interpreter */
    char file[PATH_MAX];   /* the requirements */
};

/* The SHA-256 of: the requirements and all files that they include; the archive of the code, if what is installed
 * depends on other files of it; the path, version and platform of Python; PIP_* and UV_* of the variables. Files are
 * read as the builder's user. *ret_refused: no host can do it. */
MUST_CHECK status_t environment_key_find(const struct builder *b, const Trainyard__V1__EnvironmentBuild *order,
                                         struct environment_key *ret, bool *ret_refused, struct err *e);

#endif
