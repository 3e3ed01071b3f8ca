/* The services of trainyard.v1 as tables for the runtime: one file per service, all with the controller as their
 * `service` pointer. */
#ifndef SERVICE_RPC_SERVICES_H
#define SERVICE_RPC_SERVICES_H

#include "api/rpc/server.h"
#include "base/status.h"
#include "service/controller/controller.h"

struct rpc_service {
    const ProtobufCServiceDescriptor *descriptor;
    const struct rpc_method *methods;
    size_t n_methods;
};

extern const struct rpc_service rpc_job_service;
extern const struct rpc_service rpc_dispatch_service;
extern const struct rpc_service rpc_checkpoint_service;
extern const struct rpc_service rpc_executor_service;
extern const struct rpc_service rpc_queue_service;
extern const struct rpc_service rpc_metric_service;
extern const struct rpc_service rpc_log_service;
extern const struct rpc_service rpc_token_service;
/* Not one of rpc_services_add: a server of its own serves it. */
extern const struct rpc_service rpc_join_service;
extern const struct rpc_service rpc_code_service;
extern const struct rpc_service rpc_artifact_service;
extern const struct rpc_service rpc_import_service;
extern const struct rpc_service rpc_secret_service;
extern const struct rpc_service rpc_sweep_service;
extern const struct rpc_service rpc_status_service;
extern const struct rpc_service rpc_audit_service;

/* The events of CheckpointService.VerifyCheckpoint (verify.c). */
void rpc_verify_open(struct rpc_call *call);
void rpc_verify_work(struct rpc_call *call);
void rpc_verify_done(struct rpc_call *call, status_t status, const char *why);
/* The events of CheckpointService.Sample (sample.c). The table of both is in checkpoint.c. */
void rpc_sample_open(struct rpc_call *call);
void rpc_sample_work(struct rpc_call *call);
void rpc_sample_done(struct rpc_call *call, status_t status, const char *why);
/* CheckpointService.GetCheckpointLinks (checkpoint_links.c). */
status_t rpc_checkpoint_links(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e);

/* DispatchService.DownloadCode (code.c). */
status_t rpc_code_download(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e);

/* A stream that follows a job needs the leader, which alone learns of changes. False on a standby: the call is finished
 * with UNAVAILABLE and the reason RPC_NOT_SERVING. */
bool rpc_may_follow(struct rpc_call *call, struct controller *c);

/* Returns st. If it is NOT_FOUND, the call's error gets `reason` for programs: JOB_NOT_FOUND. */
MUST_CHECK status_t rpc_found(struct rpc_call *call, status_t st, const char *reason);

/* Adds all services to the server. */
MUST_CHECK status_t rpc_services_add(struct rpc_server *server, struct controller *c, struct err *e);
/* Sets the answers of grpc.health.v1. A controller that does not lead reports NOT_SERVING for the server ("") and for
 * every service with a method that needs the lead. The other services only read, and always report SERVING. */
void rpc_services_set_leading(struct rpc_server *server, bool leads);

#endif
