#include "api/rpc/request_check.h"

#include "api/rpc/call_state.h"
#include "api/rpc/server_state.h"

bool request_check_due(const struct rpc_call *c) {
    return !c->judged && c->access && c->access->check_request && atomic_load(&c->admitted) && !streams_in(c);
}

status_t request_check(struct rpc_call *c, struct err *e) {
    TRY(c->access->check_request(c->access->ctx, c->token, c->route->service_name, c->route->method->name, c->request,
                                 c->scope, e));
    c->judged = true;
    return ST_OK;
}

const char *rpc_scope(const struct rpc_call *c) { return c->scope; }
