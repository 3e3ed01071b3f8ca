/* Unpacks an archive of code into an empty folder. The archive may come from any client: it may contain only files and
 * symbolic links, with the names that api/code/entry.h allows, at most LIMIT_CODE_FILES of them with LIMIT_CODE_BYTES
 * in total. Files get the mode 0444 or 0555, folders 0555, and the owner of this process. */
#ifndef EXECUTOR_CODE_UNPACK_H
#define EXECUTOR_CODE_UNPACK_H

#include "base/status.h"

/* archive: open, from its current offset. folder: a path; it exists and is empty. Changes the working directory of the
 * process during the call, and its umask. INVALID_ARGUMENT: the archive is not allowed; any other failure is one of
 * this host. After a failure the folder has a part of the files. */
MUST_CHECK status_t code_unpack(int archive, const char *folder, struct err *e);

#endif
