#include "api/rpc/call_times.h"

#include "api/rpc/server_state.h"

const double rpc_time_bounds[RPC_TIME_BUCKETS] = { 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 20 };

void call_times_add(struct rpc_call_times *t, status_t status, bool unary, int64_t ns) {
    atomic_fetch_add(&t->ended[(unsigned)status < RPC_STATUSES ? status : ST_UNKNOWN], 1);
    if (!unary)
        return;
    atomic_fetch_add(&t->unary, 1);
    atomic_fetch_add(&t->unary_ns, ns);
    for (int i = 0; i < RPC_TIME_BUCKETS; i++)
        if ((double)ns <= rpc_time_bounds[i] * 1e9) {
            atomic_fetch_add(&t->buckets[i], 1);
            return;
        }
}

void rpc_server_call_times(const struct rpc_server *s, rpc_call_times_fn *each, void *ctx) {
    for (size_t i = 0; i < s->n_routes; i++)
        each(ctx, s->routes[i].service_name, s->routes[i].method->name, s->routes[i].times);
}
