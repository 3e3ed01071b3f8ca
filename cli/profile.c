/* trainyard profile. */
#include "base/file.h"
#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/output.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/v1/job.pb-c.h>
#include <unistd.h>

struct profile_args {
    const char *save;
    int64_t rank;
};

struct profile_reader {
    const struct cli *c;
    const struct profile_args *args;
    char file[40];     /* of the last piece; "" before the first */
    int fd;            /* the file to save to; -1 = none */
    bool shown, found; /* shown: a table was printed. found: the requested rank has a profile */
};

/* "rank-3.txt" -> 3. The peer's name becomes a path, so every other form is refused. */
static bool rank_of(const char *file, int64_t *ret_rank, bool *ret_table) {
    int rank, end = 0;
    if (sscanf(file, "rank-%4d.%n", &rank, &end) != 1 || end == 0 || rank < 0)
        return false;
    *ret_rank = rank;
    *ret_table = strcmp(file + end, "txt") == 0;
    return *ret_table || strcmp(file + end, "json") == 0;
}

static status_t open_file(struct profile_reader *t, const char *file, struct err *e) {
    closep(&t->fd);
    t->fd = -1;
    snprintf(t->file, sizeof t->file, "%s", file);
    if (!t->args->save)
        return ST_OK;
    char path[PATH_MAX];
    int n = snprintf(path, sizeof path, "%s/%s", t->args->save, file);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(e, ST_INVALID_ARGUMENT, "--save: the path is too long");
    t->fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    return t->fd >= 0 ? ST_OK : err_errno(e, "create '%s'", path);
}

static status_t receive_piece(struct profile_reader *t, const Trainyard__V1__GetProfileResponse *piece, struct err *e) {
    int64_t rank;
    bool table;
    if (!rank_of(piece->file, &rank, &table))
        return err_set(e, ST_DATA_LOSS, "the controller sent a file that is not part of a profile");
    if (t->args->rank != OPTION_ABSENT && rank != t->args->rank)
        return ST_OK;
    t->found = true;
    if (t->c->output == OUTPUT_JSON)
        return output_json_line(&piece->base, e);
    bool first = strcmp(t->file, piece->file) != 0;
    if (first)
        TRY(open_file(t, piece->file, e));
    if (t->fd >= 0)
        return fd_write_all(t->fd, piece->data.data, piece->data.len, e);
    if (!table)
        return ST_OK;
    if (first && t->shown)
        putchar('\n');
    if (first)
        printf("rank %lld, attempt %d\n", (long long)rank, piece->attempt);
    t->shown = true;
    fwrite(piece->data.data, 1, piece->data.len, stdout);
    return ST_OK;
}

static status_t run_profile(struct cli *c, const void *args_, char *const words[], struct err *e) {
    struct profile_reader t = { .c = c, .args = args_, .fd = -1 };
    char name[JOB_NAME_BYTES];
    Trainyard__V1__GetProfileRequest request = TRAINYARD__V1__GET_PROFILE_REQUEST__INIT;
    if (c->output == OUTPUT_YAML || c->output == OUTPUT_NAME)
        return err_set(e, ST_INVALID_ARGUMENT, "-o: a profile is printed as table or json");
    if (c->output == OUTPUT_JSON && t.args->save)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "profile: -o json prints the files that --save writes: use one of the two");
    TRY(job_name_find(c, words[0], name, e));
    request.name = name;
    if (t.args->save)
        TRY(dir_make(t.args->save, 0755, e));
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    TRY(client_stream(c, &trainyard__v1__job_service__descriptor, "GetProfile", &request.base, &stream, e));
    status_t st = ST_OK;
    for (;;) {
        const ProtobufCMessage *message = NULL;
        st = rpc_stream_next(stream, &message, e);
        if (st != ST_OK || !message)
            break;
        st = receive_piece(&t, (const Trainyard__V1__GetProfileResponse *)message, e);
        if (st != ST_OK)
            break;
    }
    closep(&t.fd);
    if (st == ST_OK && !t.found && t.args->rank != OPTION_ABSENT)
        return err_set(e, ST_NOT_FOUND, "%s has no profile of rank %" PRId64, name, t.args->rank);
    return st;
}

static const struct option_row profile_options[] = {
    { "save", 0, "DIR", "write tables and traces instead: rank-<r>.txt, rank-<r>.json", OPTION_TEXT,
      offsetof(struct profile_args, save), NULL },
    { "rank", 'r', "R", "only this rank", OPTION_INT, offsetof(struct profile_args, rank), NULL },
    { 0 },
};

const struct command command_profile = {
    .name = "profile",
    .arguments = "JOB [--rank R] [--save DIR]",
    .summary =
        "Prints the most expensive operations of each rank in the profiled steps, or saves them with the traces.",
    .details = "Open a trace in Perfetto (ui.perfetto.dev) or in Chrome's about:tracing.",
    .example = "trainyard submit job.yaml --profile 10..19 --watch\ntrainyard profile 42 --save /tmp/profile",
    .options = profile_options,
    .args_bytes = sizeof(struct profile_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_profile,
};
