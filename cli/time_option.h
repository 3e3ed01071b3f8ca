/* Times of options. */
#ifndef CLI_TIME_OPTION_H
#define CLI_TIME_OPTION_H

#include "base/status.h"

#include <google/protobuf/timestamp.pb-c.h>

/* "90m", "12h", "3d": so long ago; or a time in RFC 3339. INVALID_ARGUMENT names the option. */
MUST_CHECK status_t time_option_read(const char *option, const char *text, Google__Protobuf__Timestamp *ret,
                                     struct err *e);

#endif
