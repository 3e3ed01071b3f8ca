#include "api/rpc/details.h"

#include "api/rpc/decode.h"

#include <google/rpc/status.pb-c.h>
#include <stdio.h>
#include <string.h>

static const char domain[] = "trainyard";
static const char type_url[] = "type.googleapis.com/google.rpc.ErrorInfo";
/* Enough: a Status of Trainyard has a few hundred bytes, and metadata is limited to 8 KiB. */
enum { DECODE_BYTES = 64 << 10 };

grpc_slice details_pack(status_t st, const char *message, const char *reason) {
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    uint8_t packed[256];
    info.reason = (char *)(reason[0] ? reason : status_name(st));
    info.domain = (char *)domain;
    Google__Rpc__StatusDetail detail = GOOGLE__RPC__STATUS_DETAIL__INIT, *details[] = { &detail };
    detail.type_url = (char *)type_url;
    detail.value = (ProtobufCBinaryData){ google__rpc__error_info__pack(&info, packed), packed };
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    status.code = (int)st;
    status.message = (char *)message;
    status.n_details = 1;
    status.details = details;
    grpc_slice bytes = grpc_slice_malloc(google__rpc__status__get_packed_size(&status));
    google__rpc__status__pack(&status, GRPC_SLICE_START_PTR(bytes));
    return bytes;
}

static void read_info(const Google__Rpc__StatusDetail *detail, struct arena *arena, char *ret_reason) {
    ProtobufCMessage *m;
    if (strcmp(detail->type_url, type_url) != 0 ||
        decode_message(&google__rpc__error_info__descriptor, detail->value.data, detail->value.len, arena, &m, NULL))
        return;
    const Google__Rpc__ErrorInfo *info = (const void *)m;
    if (!strcmp(info->domain, domain))
        snprintf(ret_reason, RPC_REASON_BYTES, "%s", info->reason);
}

void details_read(const void *data, size_t n, char ret_reason[RPC_REASON_BYTES]) {
    struct arena arena;
    arena_init(&arena, DECODE_BYTES);
    ProtobufCMessage *m;
    ret_reason[0] = '\0';
    if (decode_message(&google__rpc__status__descriptor, data, n, &arena, &m, NULL) == ST_OK) {
        const Google__Rpc__Status *status = (const void *)m;
        for (size_t i = 0; i < status->n_details && !ret_reason[0]; i++)
            read_info(status->details[i], &arena, ret_reason);
    }
    arena_done(&arena);
}
