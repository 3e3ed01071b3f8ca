#include "service/rpc/profile.h"

#include "base/file.h"
#include "base/limits.h"
#include "service/controller/launch.h"
#include "service/controller/row_state.h"
#include "service/rpc/arena.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/store/job.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10 };

/* Where the reader stands: rank by rank, the table and then the trace. */
struct reader {
    char directory[PATH_MAX];
    int attempt, world_size;
    int file, fd;   /* file = 2 x rank + (1 for the trace); fd -1 = not open */
    uint8_t *piece; /* [PIECE_BYTES] */
    size_t n;       /* of the piece that waits to be sent */
    bool begun;     /* something was sent */
};

static void file_name(int file, char ret[32]) { snprintf(ret, 32, "rank-%d.%s", file / 2, file % 2 ? "json" : "txt"); }

static bool has_profile(const char *directory) {
    struct stat info;
    return stat(directory, &info) == 0 && S_ISDIR(info.st_mode);
}

/* The newest attempt's folder. */
static status_t find_directory(struct controller *c, const struct store_job *row, const Trainyard__V1__JobSpec *spec,
                               struct reader *ret, struct err *e) {
    for (int attempt = row->attempt; attempt >= 1; attempt--) {
        CLEANUP(freep) char *base = NULL;
        TRY(launch_directory(spec, controller_checkpoints(c), row->id, attempt, &base, e));
        int n = snprintf(ret->directory, sizeof ret->directory, "%s/profile", base);
        if (n > 0 && (size_t)n < sizeof ret->directory && has_profile(ret->directory)) {
            ret->attempt = attempt;
            return ST_OK;
        }
    }
    if (!spec->train || !spec->train->profile || spec->train->profile->from == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld has no profile: its spec asks for none",
                       (long long)row->id);
    const long long to = (long long)spec->train->profile->to;
    if (row->step > to || row_state_final(row->state))
        return err_set(e, ST_FAILED_PRECONDITION,
                       "jobs/%lld has no profile: no attempt wrote one of steps %lld to %lld", (long long)row->id,
                       (long long)spec->train->profile->from, to);
    return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld has no profile yet: it is written after step %lld",
                   (long long)row->id, to);
}

static status_t begin(struct rpc_call *call, struct reader *ret, struct err *e) {
    const Trainyard__V1__GetProfileRequest *in = (const void *)rpc_request(call);
    struct controller *c = rpc_service(call);
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(arena_freep) struct arena *a = arena_new();
    struct store_job row;
    int64_t job;
    TRY(name_job(in->name, &job, e));
    status_t st = store_job_get(controller_store(c), m, job, &row, e);
    if (st == ST_NOT_FOUND)
        rpc_set_reason(call, "JOB_NOT_FOUND");
    TRY(st);
    const Trainyard__V1__JobSpec *spec = arena_spec(a, row.spec, row.spec_bytes);
    TRY(arena_status(a, e));
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "jobs/%lld: its stored spec cannot be read", (long long)job);
    ret->world_size = row.world_size;
    ret->piece = malloc(PIECE_BYTES);
    if (!ret->piece)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a profile");
    return find_directory(c, &row, spec, ret, e);
}

/* The next piece, or *ret_over. A rank that wrote nothing is passed over. */
static status_t read_piece(struct reader *r, bool *ret_over, struct err *e) {
    while (r->n == 0) {
        *ret_over = r->file >= 2 * r->world_size;
        if (*ret_over)
            return ST_OK;
        if (r->fd < 0) {
            char name[32], path[PATH_MAX + 40];
            file_name(r->file, name);
            snprintf(path, sizeof path, "%s/%s", r->directory, name);
            r->fd = open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
            if (r->fd < 0 && errno != ENOENT)
                return err_errno(e, "open '%s'", path);
        }
        ssize_t n = r->fd < 0 ? 0 : read(r->fd, r->piece, PIECE_BYTES);
        if (n < 0)
            return err_errno(e, "read rank %d's profile", r->file / 2);
        if (n == 0) {
            closep(&r->fd);
            r->fd = -1;
            r->file++;
            continue;
        }
        r->n = (size_t)n;
    }
    return ST_OK;
}

/* Sends until the peer must read first (false) or all is sent (true). */
static status_t send_pieces(struct rpc_call *call, struct reader *r, bool *ret_over, struct err *e) {
    for (*ret_over = false;;) {
        TRY(read_piece(r, ret_over, e));
        if (*ret_over)
            return ST_OK;
        char name[32];
        file_name(r->file, name);
        Trainyard__V1__GetProfileResponse out = TRAINYARD__V1__GET_PROFILE_RESPONSE__INIT;
        out.attempt = r->attempt;
        out.file = name;
        out.data = (ProtobufCBinaryData){ .len = r->n, .data = r->piece };
        if (rpc_send(call, &out.base) != RPC_SENT)
            return ST_OK;
        r->begun = true;
        r->n = 0;
    }
}

void profile_work(struct rpc_call *call) {
    struct reader *r = rpc_user(call);
    struct err e = { "" };
    status_t st = ST_OK;
    bool over = false;
    if (!r) {
        r = calloc(1, sizeof *r);
        if (!r) {
            rpc_finish(call, ST_RESOURCE_EXHAUSTED, "no memory for a profile");
            return;
        }
        r->fd = -1;
        rpc_set_user(call, r);
        st = begin(call, r, &e);
    }
    if (st == ST_OK)
        st = send_pieces(call, r, &over, &e);
    if (st == ST_OK && over && !r->begun)
        st = err_set(&e, ST_FAILED_PRECONDITION, "the profile is being written: try again in a moment");
    if (st != ST_OK)
        rpc_finish(call, st, e.msg);
    else if (over)
        rpc_finish(call, ST_OK, NULL);
}

void profile_done(struct rpc_call *call, status_t status, const char *why) {
    (void)status;
    (void)why;
    struct reader *r = rpc_user(call);
    if (!r)
        return;
    closep(&r->fd);
    free(r->piece);
    free(r);
}
