/* What the audit log has about a method: see audit.h. Internal to the runtime. */
#ifndef API_RPC_RECORDED_H
#define API_RPC_RECORDED_H

#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

enum { RECORDED_TEXT_BYTES = 64 }; /* of the option in the proto */

struct rpc_call;
struct rpc_server;

struct recorded {
    bool calls;    /* that ran; otherwise only refused ones */
    bool of_reply; /* `field` is one of the reply, not of the request */
    char prefix[RECORDED_TEXT_BYTES];
    const ProtobufCFieldDescriptor *field; /* a string: the object of a call, behind the prefix */
};

/* INVALID_ARGUMENT: the proto does not declare it, or names no string. */
MUST_CHECK status_t recorded_find(const struct rpc_server *, const ProtobufCServiceDescriptor *,
                                  const ProtobufCMethodDescriptor *, int rule, struct recorded *ret, struct err *e);
/* The reply may name the object. */
void recorded_note_reply(struct rpc_call *, const ProtobufCMessage *reply);
/* Records a call that the access check has not admitted, unless it was not a refusal. */
void recorded_refusal(struct rpc_call *, status_t st, const char *why);

#endif
