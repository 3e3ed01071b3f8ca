/* The record of calls that change something, and of calls that were refused. The protos define which calls are
 * recorded: a method whose rule is not that of all callers has an option, an extension of
 * google.protobuf.MethodOptions, that says what the record calls the object of the call:
 *
 *     option (audit) = "jobs/{name}";      // text, and a string field of the request
 *     option (audit) = "{reply.name}";     // a string field of the reply
 *     option (audit) = "none";             // only refused calls are recorded
 *
 * The text is not repeated in front of a value that begins with it. rpc_server_add refuses a method without the option,
 * and an option that names no such field.
 *
 * A unary call is recorded after its handler has returned and before its answer is sent. If a successful call cannot be
 * recorded, its answer is UNAVAILABLE instead, so that no caller knows of a change without a record. A handler of a
 * stream calls rpc_audit itself, before it sends the result. */
#ifndef API_RPC_AUDIT_H
#define API_RPC_AUDIT_H

#include "base/status.h"

#define RPC_OBJECT_BYTES 128

struct rpc_call;

/* The strings are valid during the call of the function. */
struct rpc_audited_call {
    const char *service, *method; /* those of the descriptors */
    const char *caller;           /* "": unknown */
    const char *peer;             /* "ipv4:10.0.0.7:41812", "unix:uid=1000" */
    const char *certificate;      /* the first name in the client's certificate; "": none */
    const char *request_id;
    const char *object; /* "": the call was refused before its request was read, or it has none */
    status_t status;
    const char *why; /* the sentence of a failure; may be cut inside a character */
};

struct rpc_audit {
    unsigned object_option; /* the extension's number */
    int exempt_rule;        /* methods of this rule change nothing, and need no option */
    /* Records a call. Runs on a worker thread. May block if the status is ST_OK, and then returns when the record is
     * safe; for another status it must not block, and its result is ignored. */
    status_t (*record)(void *ctx, const struct rpc_audited_call *call, struct err *e);
    void *ctx;
};

/* Records the call with this result, if its method is recorded. For handlers of streams; on a worker thread.
 * UNAVAILABLE: st is ST_OK, and the record could not be written. */
MUST_CHECK status_t rpc_audit(struct rpc_call *, status_t st, const char *why, struct err *e);

#endif
