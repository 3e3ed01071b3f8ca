/* The controller's pages for programs that monitor it: /metrics in Prometheus' text format 0.0.4, /healthz and /livez.
 *
 * /healthz is 200 "leading" while this controller leads and PostgreSQL answers, else 503 with one line that gives the
 * reason: "standby: ..." while another controller leads, "cannot lead: ..." if its attempts to lead fail, "starting"
 * before its first attempt. It is for readiness probes and load balancers: only the leader accepts agents and changes.
 * /livez is 200 as long as the program answers, for liveness probes. /metrics always answers; while PostgreSQL is
 * unreachable, it omits the values from PostgreSQL (trainyard_database_up 0). Any other path is 404; only GET and HEAD
 * are served.
 *
 * Threads: libmicrohttpd's own, two; at most HTTP_CONNECTIONS at once. */
#ifndef SERVICE_HTTP_HTTP_H
#define SERVICE_HTTP_HTTP_H

#include "api/rpc/server.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/controller.h"

/* Enough for a few scrapers and the checks of a load balancer. */
#define HTTP_CONNECTIONS 64

struct http;

/* address: host:port with a numeric host; for port 0 the system chooses (http_port). ALREADY_EXISTS if the address is
 * in use. The pages are plain HTTP without a password: FAILED_PRECONDITION unless the host is a loopback address. Close
 * it before c and the server, whose calls /metrics counts. */
MUST_CHECK status_t http_open(const char *address, struct controller *c, const struct rpc_server *server,
                              struct http **ret, struct err *e);
int http_port(const struct http *h);
struct http *http_close(struct http *h);
CLEANUP_DEFINE(struct http *, http_close)

#endif
