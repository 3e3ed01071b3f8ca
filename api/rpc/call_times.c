#include "api/rpc/call_times.h"

#include "api/rpc/server_state.h"
#include "base/alloc.h"

struct rpc_call_times *call_times_new(bool unary) {
    struct rpc_call_times *t = alloc_zeroed(1, sizeof *t);
    *t = (struct rpc_call_times){ .unary = unary, .times = HISTOGRAM_OF_CALLS };
    return t;
}

void call_times_add(struct rpc_call_times *t, status_t status, int64_t ns) {
    atomic_fetch_add(&t->ended[(unsigned)status < RPC_STATUSES ? status : ST_UNKNOWN], 1);
    if (t->unary)
        histogram_add(&t->times, ns);
}

void rpc_server_call_times(const struct rpc_server *s, rpc_call_times_fn *each, void *ctx) {
    for (size_t i = 0; i < s->n_routes; i++)
        each(ctx, s->routes[i].service_name, s->routes[i].method->name, s->routes[i].times);
}
