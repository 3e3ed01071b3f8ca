/* The controller's page for machines that watch it: /metrics in Prometheus' text format 0.0.4, and /healthz.
 *
 * /healthz is 200 "leading" while this controller leads and PostgreSQL answers, 200 "standby" while another one leads,
 * 503 with the reason otherwise. /metrics always answers; what needs PostgreSQL is left out while that is away
 * (trainyard_database_up 0). Anything else is 404; only GET and HEAD are served.
 *
 * Threads: libmicrohttpd's own, two; at most HTTP_CONNECTIONS at once. */
#ifndef SERVICE_HTTP_HTTP_H
#define SERVICE_HTTP_HTTP_H

#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/controller.h"

/* A scraper or two, a load balancer's checks, and room. */
#define HTTP_CONNECTIONS 64

struct http;

/* address: host:port, a numeric host; port 0 lets the system choose (http_port). ALREADY_EXISTS when it is in use. c
 * must outlive it. Plain HTTP without a password: FAILED_PRECONDITION unless the host is a loopback address. */
MUST_CHECK status_t http_open(const char *address, struct controller *c, struct http **ret, struct err *e);
int http_port(const struct http *h);
struct http *http_close(struct http *h);
CLEANUP_DEFINE(struct http *, http_close)

#endif
