/* What every use of oneDNN needs: its statuses as ours, and its number of threads. */
#ifndef KERNELS_CPU_ONEDNN_H
#define KERNELS_CPU_ONEDNN_H

#include "base/status.h"

#include <oneapi/dnnl/dnnl.h>

/* RESOURCE_EXHAUSTED when it is out of memory, else INTERNAL: "oneDNN could not WHAT (why)". */
MUST_CHECK status_t onednn_check(dnnl_status_t st, const char *what, struct err *e);

/* oneDNN takes its number of threads from the caller's OpenMP setting, when a primitive is built and when it runs.
 * Returns what it was, to be set back. */
int onednn_threads(int threads);

#endif
