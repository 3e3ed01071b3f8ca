/* CodeService, and DispatchService.DownloadCode.
 *
 * The upload is one call for each chunk, so that messages are small and a client continues after a lost controller. The
 * call that stores the last missing chunk compares the archive with its name: it reads all chunks from the database, so
 * that the comparison is of what was stored. If two clients store the last chunks at the same time, both compare. A
 * wrong archive is dropped as a whole, since nothing says which chunk is wrong. Another upload of the same archive may
 * do so, or complete it, during a comparison: the call then fails with ABORTED, and the client goes on with what is
 * stored.
 *
 * A download compares the checksum of each chunk. The executor compares the SHA-256 of the whole. */
#include "service/store/code.h"
#include "api/code/entry.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "base/log.h"
#include "service/rpc/services.h"

#include <string.h>
#include <trainyard/v1/code.pb-c.h>

static status_t read_name(const char *archive, uint8_t ret[SHA256_BYTES], struct err *e) {
    if (code_archive_name_read(archive, ret))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "archive: is not a SHA-256 in 64 hexadecimal digits");
}

static void reply(struct rpc_call *call, const char *archive, const struct store_code *found) {
    Trainyard__V1__Archive out = TRAINYARD__V1__ARCHIVE__INIT;
    out.archive = (char *)(uintptr_t)archive;
    out.bytes = found->bytes;
    out.complete = found->complete;
    out.next_chunk = found->next_chunk;
    rpc_reply(call, &out.base);
}

static status_t get_archive(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__GetArchiveRequest *in = (const void *)request;
    uint8_t archive[SHA256_BYTES];
    struct store_code found;
    int64_t epoch;
    TRY(read_name(in->archive, archive, e));
    TRY(controller_leads(service, &epoch, e));
    status_t st = store_code_get(controller_store(service), epoch, archive, &found, e);
    TRY(controller_write_status(service, epoch, st, e));
    reply(call, in->archive, &found);
    return ST_OK;
}

/* *ret_same: the stored bytes have this SHA-256. */
static status_t compare(struct controller *c, const uint8_t archive[SHA256_BYTES], int chunks, bool *ret_same,
                        struct err *e) {
    uint8_t digest[SHA256_BYTES];
    struct sha256 s;
    sha256_begin(&s);
    for (int i = 0; i < chunks; i++) {
        CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
        struct store_code_chunk chunk;
        TRY(store_code_chunk(controller_store(c), m, archive, i, &chunk, e));
        sha256_update(&s, chunk.data, chunk.n);
    }
    sha256_final(&s, digest);
    *ret_same = memcmp(digest, archive, SHA256_BYTES) == 0;
    return ST_OK;
}

static status_t finish(struct controller *c, int64_t epoch, const uint8_t archive[SHA256_BYTES],
                       struct store_code *found, struct err *e) {
    status_t st = compare(c, archive, found->chunks, &found->complete, e);
    if (st == ST_OK && found->complete)
        st = store_code_complete(controller_store(c), epoch, archive, e);
    if (st == ST_NOT_FOUND || st == ST_ABORTED)
        return err_set(e, ST_ABORTED, "another upload of the same archive was refused meanwhile: continue this one");
    if (st != ST_OK || found->complete)
        return st;
    TRY(store_code_restart(controller_store(c), epoch, archive, e));
    return err_set(e, ST_DATA_LOSS, "the uploaded chunks do not have the SHA-256 of the archive: upload them again");
}

static status_t upload_chunk(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__UploadChunkRequest *in = (const void *)request;
    uint8_t archive[SHA256_BYTES];
    struct store_code found;
    int64_t epoch;
    TRY(read_name(in->archive, archive, e));
    TRY(controller_leads(service, &epoch, e));
    const struct store_code_put put = { .archive = archive,
                                        .bytes = in->bytes,
                                        .total_bytes = controller_code_bytes(service),
                                        .chunk = in->chunk,
                                        .data = in->data.data,
                                        .n = in->data.len };
    status_t st = store_code_put(controller_store(service), epoch, &put, &found, e);
    if (st == ST_OK && !found.complete && found.next_chunk == found.chunks)
        st = finish(service, epoch, archive, &found, e);
    TRY(controller_write_status(service, epoch, st, e));
    reply(call, in->archive, &found);
    return ST_OK;
}

/* The archive is no longer complete, so that the next submission of the same folder uploads it again. */
static status_t refuse_damaged(struct controller *c, const uint8_t archive[SHA256_BYTES], const char *name,
                               struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    log_event(LOG_ERROR, "code_damaged", "archive", LOG_STR(name), NULL);
    TRY(controller_write_status(c, epoch, store_code_drop(controller_store(c), epoch, archive, e), e));
    return err_set(e, ST_DATA_LOSS,
                   "the bytes of the archive of code %.12s have changed in the database: submit its folder again",
                   name);
}

status_t rpc_code_download(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__DownloadCodeRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    uint8_t archive[SHA256_BYTES];
    struct store_code_chunk chunk;
    TRY(read_name(in->archive, archive, e));
    status_t st = store_code_chunk(controller_store(service), m, archive, in->chunk, &chunk, e);
    if (st == ST_NOT_FOUND || (st == ST_OK && !chunk.complete))
        return err_set(e, ST_NOT_FOUND,
                       "the controller does not have the archive of code %.12s: submit its folder again", in->archive);
    TRY(st);
    if (crc32c(0, chunk.data, chunk.n) != chunk.crc32c)
        return refuse_damaged(service, archive, in->archive, e);
    Trainyard__V1__DownloadCodeResponse out = TRAINYARD__V1__DOWNLOAD_CODE_RESPONSE__INIT;
    out.bytes = chunk.bytes;
    out.data = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)chunk.data, .len = chunk.n };
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "GetArchive", .kind = RPC_UNARY, .unary = get_archive },
    { .name = "UploadChunk", .kind = RPC_UNARY, .unary = upload_chunk },
};

const struct rpc_service rpc_code_service = { &trainyard__v1__code_service__descriptor, methods,
                                              sizeof methods / sizeof *methods };
