/* The controller's pages for programs that monitor it: /metrics in Prometheus' text format 0.0.4, /healthz and /livez.
 *
 * /healthz is 200 "leading" while this controller leads and PostgreSQL answers, else 503 with one line that gives the
 * reason: "standby: ..." while another controller leads, "cannot lead: ..." if its attempts to lead fail, "starting"
 * before its first attempt. It is for readiness probes and load balancers: only the leader accepts agents and changes.
 * /livez is 200 as long as the program answers, for liveness probes. /metrics always answers to a caller who may see
 * it; while PostgreSQL is unreachable, it omits the values from PostgreSQL (trainyard_database_up 0). Any other path is
 * 404; only GET and HEAD are served.
 *
 * On a loopback address the pages are plain HTTP. On any other address they are HTTPS, and /metrics needs a token whose
 * role allows VIEWER, as `Authorization: Bearer TOKEN`; /healthz and /livez need none, as the health check of gRPC.
 *
 * Threads: libmicrohttpd's own, two; at most HTTP_CONNECTIONS at once. */
#ifndef SERVICE_HTTP_HTTP_H
#define SERVICE_HTTP_HTTP_H

#include "api/rpc/access.h"
#include "api/rpc/server.h"
#include "api/rpc/tls.h"
#include "base/cleanup.h"
#include "base/status.h"
#include "service/controller/controller.h"

/* Enough for a few scrapers and the checks of a load balancer. */
#define HTTP_CONNECTIONS 64

struct http;

struct http_config {
    const char *address; /* host:port with a numeric host; for port 0 the system chooses (http_address) */
    struct controller *controller;
    const struct rpc_server *server; /* whose calls /metrics counts */
    int metrics_jobs;                /* so many jobs have series of their own */
    const struct rpc_tls *tls;       /* the files of the certificate and its key; not used on loopback */
    const struct rpc_access *access; /* who may see /metrics; not used on loopback */
};
/* ALREADY_EXISTS if the address is in use. FAILED_PRECONDITION if other machines can reach it and there is no
 * certificate, or no access check. Close it before the controller and the server. The config may be dropped; `access`
 * must stay valid. */
MUST_CHECK status_t http_open(const struct http_config *config, struct http **ret, struct err *e);
int http_port(const struct http *h);
const char *http_address(const struct http *h); /* with the port that the system chose */
struct http *http_close(struct http *h);
CLEANUP_DEFINE(struct http *, http_close)

#endif
