/* The spec with which `submit` and `validate` start: from a file, or from the job that is forked. */
#ifndef CLI_FORK_H
#define CLI_FORK_H

#include "cli/client.h"

#include <trainyard/v1/spec.pb-c.h>

/* The spec's name in messages: the path of the file, truncated to fit, or "--fork 42@300". */
enum { FORK_FILE_BYTES = 512 };

/* Reads `file`. If it is NULL, gets the spec of the job in `fork` (JOB, JOB@STEP or JOB/checkpoints/ID) from the
 * controller. If both are NULL, returns INVALID_ARGUMENT with the command's name. Free the spec with spec_free. */
MUST_CHECK status_t fork_or_file_read(struct cli *c, const char *command, const char *fork, const char *file,
                                      Trainyard__V1__JobSpec **ret, char ret_shown[FORK_FILE_BYTES], struct err *e);

#endif
