/* GetProfile: sends the profile files of a job as a server stream.
 *
 * A rank writes two files into the folder `profile` of its attempt: a table (rank-N.txt) and a trace (rank-N.json). The
 * first `work` event finds the newest attempt that has such a folder. The files are then read in pieces of PIECE_BYTES,
 * rank by rank. A missing file is skipped: a rank may have written nothing.
 *
 * One piece is in memory at a time. If rpc_send reports that the queue is full, the piece is kept, and the next `work`
 * event sends it again; that event comes when the client has read. Folders and files are opened below the roots only,
 * because a user chooses the directory. */
#include "service/rpc/profile.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/limits.h"
#include "service/controller/checkpoint_files.h"
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
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

enum { PIECE_BYTES = 256 << 10 };

/* The position of the reader: rank by rank, first the table, then the trace. */
struct reader {
    int attempt, world_size;
    int folder;     /* the folder `profile`; -1 = not open */
    int file, fd;   /* file = 2 x rank + (1 for the trace); fd -1 = not open */
    uint8_t *piece; /* [PIECE_BYTES] */
    size_t n;       /* bytes of the piece that waits to be sent */
    bool begun;     /* something was sent */
};

static void file_name(int file, char ret[32]) { snprintf(ret, 32, "rank-%d.%s", file / 2, file % 2 ? "json" : "txt"); }

/* Opens the folder of the newest attempt that has one. */
static status_t find_directory(struct controller *c, const struct store_job *row, const Trainyard__V1__JobSpec *spec,
                               struct reader *ret, struct err *e) {
    for (int attempt = row->attempt; attempt >= 1; attempt--) {
        CLEANUP(freep) char *base = NULL;
        char path[PATH_MAX];
        const struct checkpoint_place *place = controller_place(c);
        TRY(checkpoint_attempt_directory(spec, place, row->id, attempt, &base, e));
        int n = snprintf(path, sizeof path, "%s/profile", base);
        if (n > 0 && (size_t)n < sizeof path &&
            roots_open(&place->roots, path, O_RDONLY | O_DIRECTORY, &ret->folder, NULL) == ST_OK) {
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
    TRY(rpc_found(call, store_job_get(controller_store(c), m, job, &row, e), "JOB_NOT_FOUND"));
    const Trainyard__V1__JobSpec *spec = arena_spec(a, row.spec, row.spec_bytes);
    if (!spec)
        return err_set(e, ST_DATA_LOSS, "jobs/%lld: its stored spec cannot be read", (long long)job);
    ret->world_size = row.world_size;
    ret->piece = alloc_zeroed(PIECE_BYTES, 1);
    return find_directory(c, &row, spec, ret, e);
}

/* Reads the next piece, or sets *ret_over after the last one. Missing files are skipped. */
static status_t read_piece(struct reader *r, bool *ret_over, struct err *e) {
    while (r->n == 0) {
        *ret_over = r->file >= 2 * r->world_size;
        if (*ret_over)
            return ST_OK;
        if (r->fd < 0) {
            char name[32];
            file_name(r->file, name);
            status_t st = beneath_open(r->folder, name, O_RDONLY | O_NONBLOCK, name, &r->fd, e);
            if (st != ST_OK && st != ST_NOT_FOUND)
                return st;
        }
        ssize_t n = r->fd < 0 ? 0 : read(r->fd, r->piece, PIECE_BYTES);
        if (n < 0)
            return err_errno(e, "read rank %d's profile", r->file / 2);
        if (n == 0) {
            closep(&r->fd);
            r->file++;
            continue;
        }
        r->n = (size_t)n;
    }
    return ST_OK;
}

/* Sends until the peer must read first (*ret_over is false) or everything is sent (*ret_over is true). */
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
        r = alloc_zeroed(1, sizeof *r);
        r->fd = r->folder = -1;
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
    closep(&r->folder);
    free(r->piece);
    free(r);
}
