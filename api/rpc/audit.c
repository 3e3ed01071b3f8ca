#include "api/rpc/audit.h"

#include "api/rpc/call_state.h"
#include "api/rpc/peer.h"
#include "api/rpc/server_state.h"

#include <stdio.h>
#include <string.h>

static const char REPLY[] = "reply.";

static const ProtobufCFieldDescriptor *text_field(const ProtobufCMessageDescriptor *d, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(d, name);
    return f && f->type == PROTOBUF_C_TYPE_STRING && f->label != PROTOBUF_C_LABEL_REPEATED ? f : NULL;
}

/* text: PREFIX{FIELD} or PREFIX{reply.FIELD}. */
static bool parse(const char *text, const ProtobufCMethodDescriptor *m, struct recorded *ret) {
    const char *open = strchr(text, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!close || close[1] || (size_t)(open - text) >= sizeof ret->prefix)
        return false;
    const char *name = open + 1;
    ret->of_reply = strncmp(name, REPLY, strlen(REPLY)) == 0;
    name += ret->of_reply ? strlen(REPLY) : 0;
    char field[RECORDED_TEXT_BYTES];
    snprintf(field, sizeof field, "%.*s", (int)(close - name), name);
    snprintf(ret->prefix, sizeof ret->prefix, "%.*s", (int)(open - text), text);
    ret->field = text_field(ret->of_reply ? m->output : m->input, field);
    ret->calls = true;
    return ret->field != NULL;
}

status_t recorded_find(const struct rpc_server *s, const ProtobufCServiceDescriptor *d,
                       const ProtobufCMethodDescriptor *m, int rule, struct recorded *ret, struct err *e) {
    char text[RECORDED_TEXT_BYTES];
    *ret = (struct recorded){ 0 };
    if (!s->config.audit || rule == s->config.audit->exempt_rule)
        return ST_OK;
    if (!descriptors_method_text(s->descriptors, d->name, m->name, s->config.audit->object_option, text, sizeof text))
        return err_set(e, ST_INVALID_ARGUMENT, "the proto of %s does not declare what the audit log has about %s",
                       d->name, m->name);
    if (strcmp(text, "none") == 0 || parse(text, m, ret))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT,
                   "the proto of %s declares '%s' for the audit log about %s, which names no "
                   "string of its %s",
                   d->name, text, m->name, ret->of_reply ? "reply" : "request");
}

static void set_object(struct rpc_call *c, const ProtobufCMessage *message) {
    const struct recorded *r = &c->route->recorded;
    const char *value = *(char *const *)((const char *)message + r->field->offset);
    if (!value || !*value)
        return;
    const bool whole = strncmp(value, r->prefix, strlen(r->prefix)) == 0;
    snprintf(c->object, sizeof c->object, "%s%s", whole ? "" : r->prefix, value);
}

void recorded_note_reply(struct rpc_call *c, const ProtobufCMessage *reply) {
    if (c->route && c->route->recorded.calls && c->route->recorded.of_reply)
        set_object(c, reply);
}

static status_t record(struct rpc_call *c, status_t st, const char *why, struct err *e) {
    const struct rpc_audit *audit = c->server->config.audit;
    char address[PEER_ADDRESS_BYTES];
    char certificate[RPC_PEER_NAME_BYTES];
    peer_address(c->owned.call, address);
    peer_certificate(c->owned.call, certificate);
    const struct rpc_audited_call call = { .service = c->route->service_name,
                                           .method = c->route->method->name,
                                           .caller = c->caller,
                                           .peer = address,
                                           .certificate = certificate,
                                           .request_id = c->request_id,
                                           .object = c->object,
                                           .status = st,
                                           .why = st == ST_OK ? "" : why };
    status_t recorded = audit->record(audit->ctx, &call, e);
    return st == ST_OK ? recorded : ST_OK;
}

status_t rpc_audit(struct rpc_call *c, status_t st, const char *why, struct err *e) {
    if (!c->route->recorded.calls)
        return ST_OK;
    if (!c->route->recorded.of_reply && c->request)
        set_object(c, c->request);
    struct err cause = { "" };
    if (record(c, st, why, &cause) == ST_OK)
        return ST_OK;
    return err_set(e, ST_UNAVAILABLE,
                   "%s took effect, but the audit log cannot record it at the moment: %s; repeat the call",
                   c->route->method->name, cause.msg);
}

void recorded_refusal(struct rpc_call *c, status_t st, const char *why) {
    struct err ignored;
    const bool refused = st == ST_UNAUTHENTICATED || st == ST_PERMISSION_DENIED;
    if (c->request && c->route->recorded.calls && !c->route->recorded.of_reply)
        set_object(c, c->request);
    if (refused && c->server->config.audit)
        status_ignore(record(c, st, why, &ignored));
}
