/* The peak of this host's CPU for `mfu`: the larger of what is measured now and what its ranks have seen before. */
#ifndef EXECUTOR_WORKER_HOST_PEAK_H
#define EXECUTOR_WORKER_HOST_PEAK_H

#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/worker.pb-c.h>

struct engine_config;

enum { HOST_PEAK_KEY_BYTES = 320 };

/* Names what the FLOP/s of products depend on: the processor, the library and its instruction set, the precision, the
 * number of threads. */
MUST_CHECK status_t host_peak_key(const struct engine_config *config, char ret[HOST_PEAK_KEY_BYTES], struct err *e);

/* The known figure; 0: none. */
double host_peak_find(Trainyard__V1__HostPeak *const *peaks, size_t n, const char *key);

#endif
