/* The text of /metrics. */
#ifndef SERVICE_HTTP_METRICS_H
#define SERVICE_HTTP_METRICS_H

#include "base/bytes.h"
#include "service/controller/controller.h"

/* Appends all metrics; ret must accept METRICS_BYTES more. */
#define METRICS_BYTES (64 << 10)
MUST_CHECK status_t metrics_write(struct controller *c, struct bytes *ret, struct err *e);

#endif
