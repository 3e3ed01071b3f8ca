/* Which image a program needs, as an environment of the cache. */
#ifndef EXECUTOR_ENVIRONMENT_IMAGE_KEY_H
#define EXECUTOR_ENVIRONMENT_IMAGE_KEY_H

#include "executor/environment/key.h"

/* The SHA-256 of the name with its digest; or of the path, size, time and inode of the archive, which must lie below a
 * data root. Only `id` of the key is set. *ret_source: the archive, open (O_PATH); -1 for a name. */
MUST_CHECK status_t image_key_find(const Trainyard__V1__EnvironmentBuild *order, struct environment_key *ret,
                                   int *ret_source, struct err *e);

/* The same archive to be read, if the user of this process may reach it by its path. INTERNAL: another file is there by
 * now. */
MUST_CHECK status_t image_key_open(const Trainyard__V1__EnvironmentBuild *order, int source, int *ret, struct err *e);

/* After its files were read from `source`: INTERNAL if the archive has another key by now. */
MUST_CHECK status_t image_key_check(const Trainyard__V1__EnvironmentBuild *order, const struct environment_key *key,
                                    int source, struct err *e);

#endif
