#include "service/rpc/services.h"

#include "service/rpc/project_access.h"

/* A service that has only reading methods serves on a standby too. The others answer their reading calls there. */
static const struct {
    const struct rpc_service *service;
    bool needs_lead;
} services[] = {
    { &rpc_job_service, true },       { &rpc_dispatch_service, true }, { &rpc_checkpoint_service, true },
    { &rpc_executor_service, true },  { &rpc_token_service, true },    { &rpc_queue_service, true },
    { &rpc_metric_service, false },   { &rpc_log_service, false },     { &rpc_code_service, true },
    { &rpc_artifact_service, false }, { &rpc_secret_service, true },   { &rpc_import_service, true },
    { &rpc_sweep_service, true },     { &rpc_status_service, false },  { &rpc_audit_service, false },
};
#define N_SERVICES (sizeof services / sizeof *services)

status_t rpc_found(struct rpc_call *call, status_t st, const char *reason) {
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, reason);
    return st;
}

bool rpc_may_follow(struct rpc_call *call, struct controller *c) {
    int64_t epoch;
    struct err e;
    status_t st = controller_leads(c, &epoch, &e);
    if (st == ST_OK)
        return true;
    rpc_set_reason(call, RPC_NOT_SERVING);
    rpc_finish(call, st, e.msg);
    return false;
}

status_t rpc_services_add(struct rpc_server *server, struct controller *c, struct err *e) {
    for (size_t i = 0; i < N_SERVICES; i++) {
        const struct rpc_service *s = services[i].service;
        TRY(project_access_covers(s->descriptor, e));
        TRY(rpc_server_add(server, s->descriptor, s->methods, s->n_methods, c, e));
    }
    return ST_OK;
}

void rpc_services_set_leading(struct rpc_server *server, bool leads) {
    rpc_server_set_serving(server, "", leads);
    for (size_t i = 0; i < N_SERVICES; i++)
        if (services[i].needs_lead)
            rpc_server_set_serving(server, services[i].service->descriptor->name, leads);
}
