/* DIR/quarantine: the GPUs that get no rank, by UUID, as lines of `UUID reason`.
 *
 * A line stays, whether its GPU is there or has fallen off the bus, until a person takes it out: nothing here removes
 * one. What is in the file counts at the agent's start. */
#ifndef EXECUTOR_AGENT_QUARANTINE_H
#define EXECUTOR_AGENT_QUARANTINE_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>

/* The file's text, "" without a file. ret: not initialised before, the caller's to end, also on failure. A file that is
 * there and cannot be read is a failure: an ill GPU may stand in it. */
MUST_CHECK status_t quarantine_read(const char *directory, struct bytes *ret, struct err *e);
/* The reason of a UUID's line, cut to n - 1 bytes; false and "" when there is none. */
bool quarantine_find(const struct bytes *text, const char *uuid, char *ret, size_t n);

/* One more line. The others stay as they are now, whoever wrote them. */
MUST_CHECK status_t quarantine_add(const char *directory, const char *uuid, const char *reason, struct err *e);

#endif
