/* The server of JoinService: a port of its own, because a host that joins has no certificate yet. */
#ifndef SERVICE_MAIN_JOIN_H
#define SERVICE_MAIN_JOIN_H

#include "api/rpc/server.h"
#include "service/controller/authority.h"
#include "service/controller/controller.h"
#include "service/main/options.h"
#include "service/rpc/access.h"
#include "service/rpc/audit_log.h"

/* The port of an address "host:port". */
int join_port(const char *address);
/* Serves at o->join. `port` is that of the other services, where executors connect; FAILED_PRECONDITION without one.
 * The caller closes the server before `c`. */
MUST_CHECK status_t join_open(const struct options *o, struct controller *c, struct access *access,
                              const struct audit_log *audit, struct authority *authority, int port,
                              struct rpc_server **ret, struct err *e);

#endif
