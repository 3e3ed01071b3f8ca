/* trainyard artifacts. A file is written under a temporary name, and renamed if its bytes have the SHA-256 of the
 * list. */
#include "base/alloc.h"
#include "base/beneath.h"
#include "base/file.h"
#include "base/sha256.h"
#include "cli/client.h"
#include "cli/job_name.h"
#include "cli/output.h"
#include "cli/progress.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/artifact.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const artifacts = &trainyard__v1__artifact_service__descriptor;

struct artifacts_args {
    const char *get, *all, *to;
};

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__Artifact *row = message;
    char size[24], age[24];
    output_bytes(row->bytes, size);
    output_between(row->create_time, NULL, age);
    table_cell(t, "%s", row->path);
    table_cell(t, "%s", size);
    table_cell(t, "%s", row->sha256);
    table_cell(t, "%d", row->attempt);
    table_cell(t, "%d", row->rank);
    table_cell(t, "%s", age);
}

static const struct output_columns columns = { { "PATH", "SIZE", "SHA-256", "ATTEMPT", "RANK", "AGE" }, add_row };

/* ---- a download ---- */

static status_t receive(struct rpc_stream *stream, int fd, const Trainyard__V1__Artifact *artifact,
                        struct progress *bar, struct err *e) {
    struct sha256 sha256;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    uint64_t done = 0;
    sha256_begin(&sha256);
    for (;;) {
        const ProtobufCMessage *message = NULL;
        TRY(rpc_stream_next(stream, &message, e));
        if (!message)
            break;
        const ProtobufCBinaryData *data = &((const Trainyard__V1__DownloadArtifactResponse *)message)->data;
        sha256_update(&sha256, data->data, data->len);
        TRY(fd_write_all(fd, data->data, data->len, e));
        done += data->len;
        progress_draw(bar, "download", done >> 10, (uint64_t)artifact->bytes >> 10, " KiB");
    }
    sha256_final(&sha256, digest);
    sha256_hex(digest, hex);
    if (strcmp(hex, artifact->sha256) != 0)
        return err_set(e, ST_DATA_LOSS,
                       "the bytes of '%.200s' do not have the SHA-256 of the list: the file was changed "
                       "after it was logged, or is logged again now",
                       artifact->path);
    return ST_OK;
}

/* folder: open. The path comes from the controller: beneath.h keeps it below the folder. */
static status_t download(struct cli *c, char *job, const Trainyard__V1__Artifact *artifact, int folder,
                         const char *name, struct err *e) {
    Trainyard__V1__DownloadArtifactRequest request = TRAINYARD__V1__DOWNLOAD_ARTIFACT_REQUEST__INIT;
    CLEANUP(rpc_stream_closep) struct rpc_stream *stream = NULL;
    CLEANUP(closep) int above = -1, fd = -1;
    struct progress bar;
    char temporary[64];
    const char *end = strrchr(name, '/');
    CLEANUP(freep) char *path = alloc_format("%.*s", end ? (int)(end - name) : 1, end ? name : ".");
    TRY(beneath_make(folder, path, 0755, name, &above, e));
    snprintf(temporary, sizeof temporary, ".trainyard-%d", (int)getpid());
    fd = openat(above, temporary, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return err_errno(e, "create the file of '%s'", name);
    request.parent = job;
    request.path = artifact->path;
    status_t st = client_stream(c, artifacts, "DownloadArtifact", &request.base, &stream, e);
    progress_init(&bar);
    if (st == ST_OK)
        st = receive(stream, fd, artifact, &bar, e);
    progress_clear(&bar);
    if (st == ST_OK && renameat(above, temporary, above, end ? end + 1 : name) < 0)
        st = err_errno(e, "rename the file of '%s'", name);
    if (st != ST_OK)
        unlinkat(above, temporary, 0);
    return st;
}

static status_t download_one(struct cli *c, char *job, const Trainyard__V1__ListArtifactsResponse *list,
                             const struct artifacts_args *args, struct err *e) {
    const Trainyard__V1__Artifact *found = NULL;
    for (size_t i = 0; i < list->n_artifacts; i++)
        if (strcmp(list->artifacts[i]->path, args->get) == 0)
            found = list->artifacts[i];
    if (!found)
        return err_set(e, ST_NOT_FOUND, "%s has no artifact '%.200s'", job, args->get);
    const char *base = strrchr(args->get, '/');
    const char *to = args->to ? args->to : base ? base + 1 : args->get, *end = strrchr(to, '/');
    CLEANUP(freep) char *directory = alloc_format("%.*s", !end ? 1 : end == to ? 1 : (int)(end - to), end ? to : ".");
    CLEANUP(closep) int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return err_errno(e, "open the folder '%s'", directory);
    return download(c, job, found, folder, end ? end + 1 : to, e);
}

static status_t download_all(struct cli *c, char *job, const Trainyard__V1__ListArtifactsResponse *list,
                             const char *directory, struct err *e) {
    TRY(dir_make(directory, 0755, e));
    CLEANUP(closep) int folder = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0)
        return err_errno(e, "open the folder '%s'", directory);
    for (size_t i = 0; i < list->n_artifacts; i++)
        TRY(download(c, job, list->artifacts[i], folder, list->artifacts[i]->path, e));
    printf("%zu files of %s are in %s\n", list->n_artifacts, job, directory);
    return ST_OK;
}

static status_t run_artifacts(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct artifacts_args *args = args_;
    Trainyard__V1__ListArtifactsRequest request = TRAINYARD__V1__LIST_ARTIFACTS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    char name[JOB_NAME_BYTES];
    if (args->get && args->all)
        return err_set(e, ST_INVALID_ARGUMENT, "artifacts: give one of --get and --all");
    if (args->to && !args->get)
        return err_set(e, ST_INVALID_ARGUMENT, "artifacts: --to is the file for --get");
    TRY(job_name_find(c, words[0], name, e));
    request.parent = name;
    TRY(client_list(c, artifacts, "ListArtifacts", &request.base, CLIENT_ALL, &reply, e));
    const Trainyard__V1__ListArtifactsResponse *list = (const Trainyard__V1__ListArtifactsResponse *)reply;
    if (args->get)
        return download_one(c, name, list, args, e);
    return args->all ? download_all(c, name, list, args->all, e) : output_list(c, reply, &columns, e);
}

static const struct option_row artifacts_options[] = {
    { "get", 0, "PATH", "download this file", OPTION_TEXT, offsetof(struct artifacts_args, get), NULL },
    { "to", 0, "FILE", "the name of the file for --get; by default the last part of PATH", OPTION_TEXT,
      offsetof(struct artifacts_args, to), NULL },
    { "all", 0, "DIR", "download all files into a folder", OPTION_TEXT, offsetof(struct artifacts_args, all), NULL },
    { 0 },
};

const struct command command_artifacts = {
    .name = "artifacts",
    .arguments = "JOB [--get PATH [--to FILE] | --all DIR]",
    .summary = "Lists the files that a job's program has logged to a tracker, or downloads them.",
    .details = "Images, tables and models that a program logs with MLflow's or W&B's client are kept with the job. The "
               "SHA-256 of each downloaded file is compared with the list.",
    .example = "trainyard artifacts 42\ntrainyard artifacts 42 --get model/MLmodel\ntrainyard artifacts 42 --all files",
    .options = artifacts_options,
    .args_bytes = sizeof(struct artifacts_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_artifacts,
};
