/* ArtifactService: the files that a job's program has logged to a tracker.
 *
 * The list comes from the rows. A page token is the number of rows before the page, so that a file that is stored
 * meanwhile may shift the pages.
 *
 * A download reads the folder artifacts/attempt-N of the attempt that the row names, in pieces of PIECE_BYTES: one is
 * in memory at a time. If rpc_send reports that the queue is full, the piece is kept, and the next `work` event sends
 * it again. The file is opened below the roots only, because a user chooses the directory, and only if a row
 * names it. */
#include "service/store/artifact.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/limits.h"
#include "service/controller/checkpoint_files.h"
#include "service/rpc/arena.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/page.h"
#include "service/rpc/services.h"
#include "service/store/job.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/v1/artifact.pb-c.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10 };

/* ---- the list ---- */

static void convert(struct arena *a, const struct store_artifact *row, Trainyard__V1__Artifact **ret) {
    Trainyard__V1__Artifact *artifact = *ret = arena_message(a, &trainyard__v1__artifact__descriptor);
    artifact->path = (char *)row->path;
    artifact->bytes = row->bytes;
    artifact->sha256 = (char *)row->sha256;
    artifact->attempt = row->attempt;
    artifact->rank = row->rank;
    artifact->create_time = convert_timestamp(a, row->time_us);
}

static status_t list_artifacts(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ListArtifactsRequest *in = (const void *)request;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store *store = controller_store(service);
    struct store_artifact *rows;
    struct store_job row;
    int64_t job, skip;
    size_t n;
    int limit;
    TRY(name_job(in->parent, &job, e));
    TRY(page_size(in->page_size, &limit, e));
    TRY(page_token_read(in->page_token, in->parent, &skip, e));
    TRY(rpc_found(call, store_job_get(store, m, job, &row, e), "JOB_NOT_FOUND"));
    TRY(store_artifact_list(store, m, job, skip, limit, &rows, &n, e));
    char token[PAGE_TOKEN_BYTES] = "";
    if (n == (size_t)limit)
        page_token_write(skip + limit, in->parent, token);
    Trainyard__V1__ListArtifactsResponse out = TRAINYARD__V1__LIST_ARTIFACTS_RESPONSE__INIT;
    out.next_page_token = token;
    out.artifacts = arena_alloc(a, n, sizeof *out.artifacts);
    out.n_artifacts = n;
    for (size_t i = 0; i < out.n_artifacts; i++)
        convert(a, &rows[i], &out.artifacts[i]);
    rpc_reply(call, &out.base);
    return ST_OK;
}

/* ---- a download ---- */

struct download {
    int fd;
    uint8_t *piece; /* [PIECE_BYTES] */
    size_t n;
    bool waits, begun; /* the piece was not sent yet; some piece was */
};

/* The files of an attempt, where executor/program/tracking/artifact_place.h keeps them. */
static status_t folder_of(struct controller *c, const struct store_job *row, int number, char ret[PATH_MAX],
                          struct err *e) {
    CLEANUP(arena_freep) struct arena *a = arena_new();
    CLEANUP(freep) char *attempt = NULL;
    const Trainyard__V1__JobSpec *spec = arena_spec(a, row->spec, row->spec_bytes);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "jobs/%lld: its stored spec cannot be read", (long long)row->id);
    TRY(checkpoint_attempt_directory(spec, controller_place(c), row->id, 1, &attempt, e));
    const int n = (int)(strrchr(attempt, '/') - attempt);
    if (snprintf(ret, PATH_MAX, "%.*s/artifacts/attempt-%d", n, attempt, number) >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the path of the job's folder is too long");
    return ST_OK;
}

static status_t file_open(struct controller *c, const struct store_job *row, int attempt, const char *path, int *ret,
                          struct err *e) {
    CLEANUP(closep) int folder = -1;
    char directory[PATH_MAX];
    struct stat st;
    TRY(folder_of(c, row, attempt, directory, e));
    TRY(roots_open(&controller_place(c)->roots, directory, O_RDONLY | O_DIRECTORY, &folder, e));
    TRY(beneath_open(folder, path, O_RDONLY | O_NONBLOCK, path, ret, e));
    if (fstat(*ret, &st) < 0 || !S_ISREG(st.st_mode))
        return err_set(e, ST_NOT_FOUND, "jobs/%lld: '%.200s' is no file", (long long)row->id, path);
    return ST_OK;
}

static status_t begin(struct rpc_call *call, struct download *d, struct err *e) {
    const Trainyard__V1__DownloadArtifactRequest *in = (const void *)rpc_request(call);
    struct controller *c = rpc_service(call);
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_job row;
    int64_t job;
    int attempt;
    TRY(name_job(in->parent, &job, e));
    TRY(rpc_found(call, store_job_get(controller_store(c), m, job, &row, e), "JOB_NOT_FOUND"));
    TRY(store_artifact_attempt(controller_store(c), job, in->path, &attempt, e));
    if (attempt == 0)
        return err_set(e, ST_NOT_FOUND, "jobs/%lld has no artifact '%.200s'", (long long)job, in->path);
    d->piece = alloc_zeroed(PIECE_BYTES, 1);
    return file_open(c, &row, attempt, in->path, &d->fd, e);
}

/* Sends until the peer must read first (*ret_over is false) or everything is sent. */
static status_t send_pieces(struct rpc_call *call, struct download *d, bool *ret_over, struct err *e) {
    for (*ret_over = false;;) {
        if (!d->waits) {
            const ssize_t n = read(d->fd, d->piece, PIECE_BYTES);
            if (n < 0)
                return err_errno(e, "read the artifact");
            *ret_over = n == 0 && d->begun;
            if (*ret_over)
                return ST_OK;
            d->n = (size_t)n;
            d->waits = true;
        }
        Trainyard__V1__DownloadArtifactResponse out = TRAINYARD__V1__DOWNLOAD_ARTIFACT_RESPONSE__INIT;
        out.data = (ProtobufCBinaryData){ .len = d->n, .data = d->piece };
        if (rpc_send(call, &out.base) != RPC_SENT)
            return ST_OK;
        d->waits = false;
        d->begun = true;
    }
}

static void download_work(struct rpc_call *call) {
    struct download *d = rpc_user(call);
    struct err e = { "" };
    status_t st = ST_OK;
    bool over = false;
    if (!d) {
        d = alloc_zeroed(1, sizeof *d);
        d->fd = -1;
        rpc_set_user(call, d);
        st = begin(call, d, &e);
    }
    if (st == ST_OK)
        st = send_pieces(call, d, &over, &e);
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
    else if (over)
        rpc_finish(call, ST_OK, NULL);
}

static void download_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct download *d = rpc_user(call);
    if (!d)
        return;
    closep(&d->fd);
    free(d->piece);
    free(d);
}

static const struct rpc_method methods[] = {
    { .name = "ListArtifacts", .kind = RPC_UNARY, .unary = list_artifacts },
    { .name = "DownloadArtifact",
      .kind = RPC_SERVER_STREAM,
      .events = { .work = download_work, .writable = rpc_wake, .done = download_done } },
};

const struct rpc_service rpc_artifact_service = { &trainyard__v1__artifact_service__descriptor, methods,
                                                  sizeof methods / sizeof *methods };
