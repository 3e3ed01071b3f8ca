/* What a token of a project may call. Such a token is for the jobs of one project: one table names for each RPC what it
 * is about, and from that follows the job whose project is compared. An RPC that is about the whole cluster, or about
 * something that belongs to no project yet (secrets, sweeps, imported runs), is refused.
 *
 * The role of the token is checked before, as for every token (access.h). */
#ifndef SERVICE_RPC_PROJECT_ACCESS_H
#define SERVICE_RPC_PROJECT_ACCESS_H

#include "base/status.h"
#include "service/store/store.h"

#include <protobuf-c/protobuf-c.h>

/* INVALID_ARGUMENT: a method of the service is not in the table. */
MUST_CHECK status_t project_access_covers(const ProtobufCServiceDescriptor *service, struct err *e);

/* A call with its request, and the token that it came with. */
struct project_call {
    const char *service, *method; /* those of the descriptors */
    const ProtobufCMessage *request;
    const char *token, *project; /* its name, and its project */
};
/* PERMISSION_DENIED with a sentence that names the project, if the call is about something else. A job that does not
 * exist is left to the handler. Reads the database. */
MUST_CHECK status_t project_access_judge(struct store *s, const struct project_call *call, struct err *e);

#endif
