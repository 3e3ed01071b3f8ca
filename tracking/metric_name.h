/* The names under which metrics of trackers are stored: 1 to LIMIT_METRIC_NAME_BYTES printable ASCII characters without
 * spaces, quotes and backslashes. Other characters become '_'. A longer name keeps its beginning, and ends in '~' and
 * eight digits of a checksum of the whole name. Pure. */
#ifndef TRACKING_METRIC_NAME_H
#define TRACKING_METRIC_NAME_H

#include "base/limits.h"

#include <stdbool.h>

/* True: *ret is not the name that was given. An empty name stays empty. */
bool metric_name_make(const char *whole, char ret[LIMIT_METRIC_NAME_BYTES + 1]);

#endif
