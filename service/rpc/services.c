#include "service/rpc/services.h"

status_t rpc_services_add(struct rpc_server *server, struct controller *c, struct err *e) {
    static const struct rpc_service *const services[] = { &rpc_job_service,        &rpc_dispatch_service,
                                                          &rpc_checkpoint_service, &rpc_executor_service,
                                                          &rpc_queue_service,      &rpc_metric_service,
                                                          &rpc_log_service,        &rpc_token_service };
    for (size_t i = 0; i < sizeof services / sizeof *services; i++)
        TRY(rpc_server_add(server, services[i]->descriptor, services[i]->methods, services[i]->n_methods, c, e));
    return ST_OK;
}
