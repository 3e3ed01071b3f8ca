#include "api/rpc/explain.h"

#include "api/rpc/details.h"
#include "api/rpc/request_id.h"

#include <grpc/support/alloc.h>
#include <stdio.h>
#include <string.h>

/* True if the trailing metadata contains a google.rpc.Status: the error then comes from the server's handler, and not
 * from gRPC. */
static bool read_details(const grpc_metadata_array *trailing, char ret_reason[RPC_REASON_BYTES]) {
    for (size_t i = 0; i < trailing->count; i++) {
        const grpc_metadata *m = &trailing->metadata[i];
        if (grpc_slice_str_cmp(m->key, "grpc-status-details-bin") == 0) {
            details_read(GRPC_SLICE_START_PTR(m->value), GRPC_SLICE_LENGTH(m->value), ret_reason);
            return true;
        }
    }
    return false;
}

/* Writes a clause with the id of the call, by which its line in the access log of the server can be found: for failures
 * that the caller cannot explain or repair. Others get "". */
static void find_id(status_t st, const grpc_metadata_array *trailing, char *ret, size_t n) {
    char id[RPC_REQUEST_ID_BYTES];
    ret[0] = '\0';
    if ((st == ST_INTERNAL || st == ST_UNKNOWN || st == ST_DATA_LOSS) && request_id_find(trailing, id))
        snprintf(ret, n, " (request %s)", id);
}

/* gRPC wraps the cause in its own layers: "failed to connect to all addresses; last error: UNKNOWN: ipv4:...: Failed to
 * connect to remote host: Connection refused". Returns the text after the last colon, which is the cause. */
static const char *innermost(const char *text) {
    const char *cause = text;
    for (const char *p = strstr(text, ": "); p; p = strstr(p + 2, ": "))
        cause = p + 2;
    return *cause ? cause : text;
}

/* True if gRPC has not sent the call, because it could not connect. */
static bool is_unreached(status_t st, const char *text) {
    return st == ST_UNAVAILABLE && (strstr(text, "empty address list") || strstr(text, "failed to connect") ||
                                    strstr(text, "DNS resolution failed") || strstr(text, "onnection refused"));
}

static status_t explain_transport(const char *peer, int64_t timeout_ms, status_t st, const char *text, struct err *e) {
    if (st == ST_DEADLINE_EXCEEDED)
        return err_set(e, st, "%s did not answer within %lld ms", peer, (long long)timeout_ms);
    if (st == ST_CANCELLED)
        return err_set(e, st, "the call to %s was cancelled", peer);
    if (st != ST_UNAVAILABLE)
        return err_set(e, st, "%s", text[0] ? text : status_name(st));
    if (strstr(text, "empty address list")) /* gRPC tried no address, because TLS could not be set up */
        return err_set(
            e, st, "%s cannot be reached: the files of TLS do not fit each other, or the name has no address", peer);
    if (is_unreached(st, text))
        return err_set(e, st, "%s cannot be reached: %s", peer, innermost(text));
    return err_set(e, st, "the connection to %s was lost: %s", peer, text[0] ? innermost(text) : "no reason was given");
}

bool explain(const char *peer, int64_t timeout_ms, grpc_status_code code, grpc_slice details,
             const grpc_metadata_array *trailing, status_t *ret_status, struct err *ret_why,
             char ret_reason[RPC_REASON_BYTES]) {
    ret_reason[0] = '\0';
    *ret_status = code >= GRPC_STATUS_OK && code <= GRPC_STATUS_UNAUTHENTICATED ? (status_t)code : ST_UNKNOWN;
    if (*ret_status == ST_OK)
        return false;
    bool spoken = read_details(trailing, ret_reason);
    char *text = grpc_slice_to_c_string(details), id[RPC_REQUEST_ID_BYTES + 32];
    find_id(*ret_status, trailing, id, sizeof id);
    if (spoken && text[0])
        snprintf(ret_why->msg, sizeof ret_why->msg, "%.*s%s", (int)(sizeof ret_why->msg - 1 - strlen(id)), text, id);
    else
        status_ignore(explain_transport(peer, timeout_ms, *ret_status, text, ret_why));
    const bool elsewhere = spoken ? !strcmp(ret_reason, RPC_NOT_SERVING) : is_unreached(*ret_status, text);
    gpr_free(text);
    return elsewhere;
}
