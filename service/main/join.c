#include "service/main/join.h"

#include "service/rpc/services.h"

#include <trainyard/descriptors.h>

#include <stdlib.h>
#include <string.h>

/* Anyone may connect: few calls at a time, so that strangers take little from the other server. */
enum { JOIN_WORKERS = 2, JOIN_QUEUE = 16, JOIN_CALLS = 64, JOIN_STREAMS = 4 };

int join_port(const char *address) {
    const char *colon = strrchr(address, ':');
    return colon ? (int)strtol(colon + 1, NULL, 10) : 0;
}

status_t join_open(const struct options *o, struct controller *c, struct access *access, const struct audit_log *audit,
                   struct authority *authority, int port, struct rpc_server **ret, struct err *e) {
    struct rpc_server_config config = { .workers = JOIN_WORKERS,
                                        .queue = JOIN_QUEUE,
                                        .calls = JOIN_CALLS,
                                        .streams = JOIN_STREAMS,
                                        .descriptors = trainyard_descriptors,
                                        .descriptors_len = trainyard_descriptors_len,
                                        .access = access_rules(access),
                                        .audit = audit_log_rules(audit) };
    CLEANUP(rpc_server_closep) struct rpc_server *server = NULL;
    struct rpc_tls tls = o->tls;
    char bound[RPC_ADDRESS_BYTES];
    if (!port)
        return err_set(e, ST_FAILED_PRECONDITION, "hosts that join need a --listen host:port to connect to");
    tls.for_new = true;
    TRY(rpc_server_open(&config, &server, e));
    TRY(rpc_server_add(server, rpc_join_service.descriptor, rpc_join_service.methods, rpc_join_service.n_methods, c,
                       e));
    TRY(rpc_server_listen(server, o->join, &tls, bound, e));
    TRY(rpc_server_start(server, e));
    authority_set_ports(authority, join_port(bound), port);
    *ret = take_ptr(&server);
    return ST_OK;
}
