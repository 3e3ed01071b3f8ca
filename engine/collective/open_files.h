/* The number of files that this process may open: a rank has a socket for each other rank. */
#ifndef ENGINE_COLLECTIVE_OPEN_FILES_H
#define ENGINE_COLLECTIVE_OPEN_FILES_H

#include "base/status.h"

/* Raises the soft limit, up to the hard one, so that `sockets` sockets fit beside a rank's other files.
 * FAILED_PRECONDITION: the hard limit is too low. */
MUST_CHECK status_t open_files_allow(int sockets, struct err *e);

#endif
