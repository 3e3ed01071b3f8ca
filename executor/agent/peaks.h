/* The fastest matrix products that ranks have seen on this host, in FLOP/s, by processor, library, precision and number
 * of threads: what `mfu` is a part of. A rank measures products when it starts, and its steps show more; both only ever
 * see less than the processor can do, because other work slows them down, so the largest figure is kept.
 *
 * The file `peaks` of the agent's directory has a line for each: the FLOP/s, a space, and the key. */
#ifndef EXECUTOR_AGENT_PEAKS_H
#define EXECUTOR_AGENT_PEAKS_H

#include "base/status.h"

#include <stddef.h>
#include <trainyard/v1/worker.pb-c.h>

enum { PEAKS_MAX = 128, PEAK_KEY_BYTES = 320 };

struct peaks;

/* A file that cannot be read, or has wrong lines, counts as missing them. */
struct peaks *peaks_open(const char *directory);
struct peaks *peaks_close(struct peaks *p);

/* Keeps the figure if it is larger than the known one of this key. With PEAKS_MAX keys the one that was changed first
 * is dropped. Errors are those of writing the file; the figure is kept until the agent ends anyway. */
MUST_CHECK status_t peaks_add(struct peaks *p, const char *key, double flops, struct err *e);

/* All of them, for an order to a worker; valid until the next peaks_add. */
Trainyard__V1__HostPeak **peaks_list(const struct peaks *p, size_t *ret_n);

#endif
