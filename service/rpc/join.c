/* JoinService. The caller is a token of role JOIN, whose name is the host's. The certificate is signed first: a request
 * that is wrong leaves the token as it is. Storing the new digest is what uses the token. */
#include "service/controller/authority.h"
#include "service/store/token.h"

#include "base/log.h"
#include "service/rpc/services.h"

#include <string.h>
#include <trainyard/v1/join.pb-c.h>

static status_t join(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__JoinRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(bytes_done) struct bytes certificate;
    char address[AUTHORITY_HOST_BYTES + 8];
    struct store_token row;
    int64_t epoch;
    bytes_init(&certificate, 4 * AUTHORITY_REQUEST_BYTES);
    const struct authority *a = controller_authority(service);
    if (in->token_sha256.len != STORE_TOKEN_DIGEST)
        return err_set(e, ST_INVALID_ARGUMENT, "token_sha256: %zu bytes are no SHA-256", in->token_sha256.len);
    TRY(authority_sign(a, in->certificate_request.data, in->certificate_request.len, rpc_caller(call), &certificate,
                       e));
    TRY(controller_leads(service, &epoch, e));
    status_t st = store_token_join(controller_store(service), m, epoch, rpc_caller(call), in->token_sha256.data, &row,
                                   e);
    TRY(controller_write_status(service, epoch, st, e));
    authority_address(a, address);
    Trainyard__V1__JoinResponse out = TRAINYARD__V1__JOIN_RESPONSE__INIT;
    out.name = (char *)(uintptr_t)row.name;
    out.certificate = certificate.data;
    out.controller = address;
    rpc_reply(call, &out.base);
    log_event(LOG_INFO, "host_joined", "token", LOG_STR(row.name), NULL);
    return ST_OK;
}

static const struct rpc_method methods[] = { { .name = "Join", .kind = RPC_UNARY, .unary = join } };

const struct rpc_service rpc_join_service = { &trainyard__v1__join_service__descriptor, methods, 1 };
