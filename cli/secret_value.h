/* A value that must not be seen: from a file, from stdin, or from a terminal, where it is not shown. */
#ifndef CLI_SECRET_VALUE_H
#define CLI_SECRET_VALUE_H

#include "base/bytes.h"

/* file: NULL reads stdin. what, name: for the terminal, "value of " "HF_TOKEN". One newline at the end is no part of
 * the value. At most LIMIT_SECRET_BYTES + 1 bytes are kept of stdin, so that the caller can refuse a larger value.
 * CANCELLED: the terminal ended before Enter. */
MUST_CHECK status_t secret_value_read(const char *file, const char *what, const char *name, struct bytes *ret,
                                      struct err *e);

#endif
