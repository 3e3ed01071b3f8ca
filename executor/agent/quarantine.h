/* DIR/quarantine: the GPUs that get no rank, by UUID, as lines of `UUID reason`.
 *
 * The agent reads the file at its start and only adds lines. A line stays, whether its GPU is present or has fallen off
 * the bus, until a person removes it. */
#ifndef EXECUTOR_AGENT_QUARANTINE_H
#define EXECUTOR_AGENT_QUARANTINE_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>

/* The file's text; "" if there is no file. Initialises ret, also on failure; the caller releases it. A file that exists
 * but cannot be read is a failure: it may list an unhealthy GPU. */
MUST_CHECK status_t quarantine_read(const char *directory, struct bytes *ret, struct err *e);
/* The reason in a UUID's line, cut to n - 1 bytes; false and "" if there is none. */
bool quarantine_find(const struct bytes *text, const char *uuid, char *ret, size_t n);

/* Adds a line. The other lines stay as they are in the file now. */
MUST_CHECK status_t quarantine_add(const char *directory, const char *uuid, const char *reason, struct err *e);

#endif
