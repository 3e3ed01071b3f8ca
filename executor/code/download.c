#include "executor/code/download.h"

#include "api/rpc/client.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/limits.h"

#include <poll.h>
#include <trainyard/v1/dispatch.pb-c.h>

static const ProtobufCServiceDescriptor *const dispatch = &trainyard__v1__dispatch_service__descriptor;

static status_t chunk_get(struct rpc_channel *channel, const char *archive, int chunk,
                          Trainyard__V1__DownloadCodeResponse **ret, struct err *e) {
    const deadline_ms_t end = deadline_in(DOWNLOAD_WAIT_MS);
    Trainyard__V1__DownloadCodeRequest request = TRAINYARD__V1__DOWNLOAD_CODE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.archive = (char *)(uintptr_t)archive;
    request.chunk = chunk;
    for (int pause_ms = REDIAL_FIRST_MS;; pause_ms = pause_ms * 2 < REDIAL_MAX_MS ? pause_ms * 2 : REDIAL_MAX_MS) {
        status_t st = rpc_call_unary(channel, dispatch, "DownloadCode", &request.base, 0, &reply, e);
        *ret = (Trainyard__V1__DownloadCodeResponse *)reply;
        const bool again = st == ST_UNAVAILABLE || st == ST_DEADLINE_EXCEEDED || st == ST_ABORTED ||
                           st == ST_RESOURCE_EXHAUSTED; /* too many calls wait in the controller */
        if (!again || clock_mono_ms() > end)
            return st;
        poll(NULL, 0, pause_ms);
    }
}

/* The first chunk says how large the archive is. */
static status_t chunk_write(const struct code_cache *cache, int file, int64_t from,
                            const Trainyard__V1__DownloadCodeResponse *reply, struct err *e) {
    const int64_t rest = reply->bytes - from, n = rest < LIMIT_CODE_CHUNK_BYTES ? rest : LIMIT_CODE_CHUNK_BYTES;
    if (reply->bytes > LIMIT_CODE_BYTES || rest <= 0 || (int64_t)reply->data.len != n)
        return err_set(e, ST_DATA_LOSS, "the controller's archive of code has a chunk of the wrong size");
    if (from == 0)
        TRY(code_cache_reserve(cache, file, reply->bytes, e));
    return fd_write_all(file, reply->data.data, reply->data.len, e);
}

static status_t chunks_get(struct rpc_channel *channel, const struct code_cache *cache, const char *archive, int file,
                           struct err *e) {
    int64_t from = 0, bytes = 1;
    for (int chunk = 0; from < bytes; chunk++) {
        Trainyard__V1__DownloadCodeResponse *reply = NULL;
        TRY(chunk_get(channel, archive, chunk, &reply, e));
        status_t st = chunk_write(cache, file, from, reply, e);
        bytes = reply->bytes;
        from += (int64_t)reply->data.len;
        trainyard__v1__download_code_response__free_unpacked(reply, NULL);
        TRY(st);
    }
    return ST_OK;
}

status_t code_download(void *ctx, const struct code_cache *cache, const char *archive, int file, struct err *e) {
    const Trainyard__V1__CodeFetch *fetch = ctx;
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = NULL;
    const struct rpc_channel_config config = {
        .address = fetch->controller,
        .tls = { .ca = fetch->tls_ca, .cert = fetch->tls_cert, .key = fetch->tls_key },
        .token = fetch->token,
        .token_file = fetch->token_file,
    };
    /* Whatever is wrong with the token and the certificates of this host is no answer of the controller. */
    if (rpc_channel_open(&config, &channel, e) != ST_OK)
        return err_prefix(e, ST_INTERNAL, "open the connection to the controller: ");
    return chunks_get(channel, cache, archive, file, e);
}
