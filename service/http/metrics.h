/* The text of /metrics. */
#ifndef SERVICE_HTTP_METRICS_H
#define SERVICE_HTTP_METRICS_H

#include "api/rpc/server.h"
#include "base/bytes.h"
#include "service/controller/controller.h"

/* Appends all metrics; ret must accept METRICS_BYTES more. */
#define METRICS_BYTES (1 << 20)
MUST_CHECK status_t metrics_write(struct controller *c, const struct rpc_server *server, struct bytes *ret,
                                  struct err *e);

#endif
