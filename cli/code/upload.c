/* The client asks which chunk of the archive is missing, sends it, and gets the next one that is missing as the answer,
 * until the archive is complete. So an upload continues where an earlier one ended, also where another client uploads
 * the same archive at the same time. Each call is repeated while the controller is unreachable. If the controller finds
 * other bytes than these, which another client has sent, or loses a race between clients, the upload starts again, at
 * most UPLOADS times in all. */
#include "cli/code/upload.h"

#include "api/code/entry.h"
#include "api/codec/text.h"
#include "base/alloc.h"
#include "base/limits.h"
#include "cli/code/git.h"
#include "cli/code/pack.h"
#include "cli/code/python.h"
#include "cli/progress.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/code.pb-c.h>
#include <unistd.h>

enum {
    UPLOADS = 5, /* of one archive, if the first ones are refused */
    SHOWN_BYTES = 8 << 20,
};

static const ProtobufCServiceDescriptor *const codes = &trainyard__v1__code_service__descriptor;

/* ---- upload ---- */

static status_t chunk_read(const struct code_pack *p, int chunk, uint8_t *data, size_t *ret_n, struct err *e) {
    const int64_t from = (int64_t)chunk * LIMIT_CODE_CHUNK_BYTES, rest = p->bytes - from;
    const size_t n = rest < LIMIT_CODE_CHUNK_BYTES ? (size_t)rest : LIMIT_CODE_CHUNK_BYTES;
    if (chunk < 0 || rest <= 0)
        return err_set(e, ST_INTERNAL, "the controller asks for chunk %d, which the archive does not have", chunk);
    for (size_t done = 0; done < n;) {
        const ssize_t got = pread(p->fd, data + done, n - done, from + (int64_t)done);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? err_errno(e, "read the archive") : err_set(e, ST_INTERNAL, "the archive became shorter");
        done += (size_t)got;
    }
    *ret_n = n;
    return ST_OK;
}

/* Sends chunks from next_chunk on; `answer` is what the controller has. If it has all of them and yet no complete
 * archive, it died before it compared them, or compares them now: the last chunk again makes it compare. */
static status_t send_chunks(struct cli *c, const struct code_pack *p, struct progress *bar,
                            Trainyard__V1__Archive **answer, struct err *e) {
    static uint8_t data[LIMIT_CODE_CHUNK_BYTES]; /* one thread (cli/command.h) */
    const int last = (int)((p->bytes - 1) / LIMIT_CODE_CHUNK_BYTES);
    while (!(*answer)->complete) {
        Trainyard__V1__UploadChunkRequest request = TRAINYARD__V1__UPLOAD_CHUNK_REQUEST__INIT;
        ProtobufCMessage *reply = NULL;
        request.archive = (char *)(uintptr_t)p->archive;
        request.bytes = p->bytes;
        request.chunk = (*answer)->next_chunk == last + 1 ? last : (*answer)->next_chunk;
        request.data.data = data;
        TRY(chunk_read(p, request.chunk, data, &request.data.len, e));
        TRY(client_call_again(c, codes, "UploadChunk", &request.base, &reply, e));
        progress_draw(bar, "upload", (uint64_t)request.chunk + 1, (uint64_t)last + 1, " MiB of code");
        trainyard__v1__archive__free_unpacked(*answer, NULL);
        *answer = (Trainyard__V1__Archive *)reply;
    }
    return ST_OK;
}

static status_t upload_once(struct cli *c, const struct code_pack *p, struct err *e) {
    Trainyard__V1__GetArchiveRequest request = TRAINYARD__V1__GET_ARCHIVE_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.archive = (char *)(uintptr_t)p->archive;
    TRY(client_call_again(c, codes, "GetArchive", &request.base, &reply, e));
    Trainyard__V1__Archive *answer = (Trainyard__V1__Archive *)reply;
    struct progress bar;
    progress_init(&bar);
    if (!answer->complete && p->bytes >= SHOWN_BYTES && !bar.terminal)
        fprintf(stderr, "trainyard: uploading %.1f MiB of code\n", (double)p->bytes / (1 << 20));
    status_t st = send_chunks(c, p, &bar, &answer, e);
    progress_clear(&bar);
    trainyard__v1__archive__free_unpacked(answer, NULL);
    return st;
}

static status_t upload(struct cli *c, const struct code_pack *p, struct err *e) {
    status_t st = ST_DATA_LOSS;
    for (int i = 0; i < UPLOADS && (st == ST_DATA_LOSS || st == ST_ABORTED); i++)
        st = upload_once(c, p, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "upload the code: ");
}

/* ---- the spec ---- */

/* A command with a relative path is a file of the folder. A link is not followed: its target may be made later. */
static status_t command_check(const Trainyard__V1__ProgramSpec *program, const char *folder,
                              const struct code_list *list, struct err *e) {
    const char *command = program->n_command ? program->command[0] : "", *name = command;
    if (!strchr(command, '/') || *command == '/')
        return ST_OK;
    while (strncmp(name, "./", 2) == 0)
        name += 2 + strspn(name + 2, "/");
    struct err why;
    if (code_name_check(name, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "program.command[0]: '%.200s' is not a path in the folder of the code",
                       command);
    const struct code_file *file = code_list_find(list, name);
    if (!file)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "program.command[0]: '%.120s' is not among the %zu files of '%.120s' that were packed (files "
                       "that git or .trainyardignore ignores are not)",
                       command, list->n, folder);
    if (!file->target && !file->executable)
        return err_set(e, ST_INVALID_ARGUMENT, "program.command[0]: '%.200s' is not executable: run chmod +x", command);
    return ST_OK;
}

/* Relative to the folder of the spec's file. The caller frees it. */
static char *folder_of(const struct code_request *request, const char *folder) {
    const char *file = request->spec_file, *slash = file && strcmp(file, "-") != 0 ? strrchr(file, '/') : NULL;
    if (request->folder)
        return alloc_copy_text(request->folder);
    if (!slash || *folder == '/')
        return alloc_copy_text(folder);
    return alloc_format("%.*s/%s", (int)(slash - file), file, folder);
}

static status_t packed_use(struct cli *c, Trainyard__V1__JobSpec *spec, const char *folder,
                           const struct code_request *request, const struct code_pack *p, struct err *e) {
    TRY(command_check(spec->program, folder, p->list, e));
    if (spec->program->python)
        TRY(code_python_check(spec->program->python, folder, p->list, e));
    if (p->list->without_git)
        fprintf(stderr, "trainyard: there is no git to say which files of '%s' it ignores: all were packed\n", folder);
    if (request->upload)
        TRY(upload(c, p, e));
    if (spec->program->code) { /* allocated as by unpack (api/codec/text.h) */
        free(spec->program->code->folder);
        spec->program->code->folder = NULL;
    }
    return codec_set_path(&spec->base, "program.code.archive", p->archive, NULL, e);
}

static status_t folder_resolve(struct cli *c, Trainyard__V1__JobSpec *spec, const char *folder,
                               const struct code_request *request, struct err *e) {
    struct code_pack p;
    TRY(code_pack(folder, &p, e));
    status_t st = packed_use(c, spec, folder, request, &p, e);
    code_pack_done(&p);
    return st;
}

static status_t commit_resolve(struct cli *c, Trainyard__V1__JobSpec *spec, const struct code_request *request,
                               struct err *e) {
    const Trainyard__V1__CodeGit *git = spec->program->code->git;
    struct git_checkout checkout;
    status_t st = git_checkout(git->url ? git->url : "", git->commit ? git->commit : "", &checkout, e);
    if (st == ST_OK)
        st = folder_resolve(c, spec, checkout.path, request, e);
    git_checkout_done(&checkout);
    return st;
}

/* --code replaces the commit of the spec. */
static void drop_git(Trainyard__V1__CodeSpec *code) {
    if (code && code->git)
        trainyard__v1__code_git__free_unpacked(code->git, NULL);
    if (code)
        code->git = NULL;
}

status_t code_resolve(struct cli *c, Trainyard__V1__JobSpec *spec, const struct code_request *request, struct err *e) {
    if (request->folder && !spec->program)
        return err_set(e, ST_INVALID_ARGUMENT, "--code: the job has no program");
    const Trainyard__V1__CodeSpec *code = spec->program ? spec->program->code : NULL;
    if (!request->folder && code && code->folder && code->git)
        return err_set(e, ST_INVALID_ARGUMENT, "program.code: give a folder or a commit of git, not both");
    if (request->folder || (code && code->folder)) {
        CLEANUP(freep) char *folder = folder_of(request, code ? code->folder : NULL);
        drop_git(spec->program->code);
        return folder_resolve(c, spec, folder, request, e);
    }
    return code && code->git && !code->archive ? commit_resolve(c, spec, request, e) : ST_OK;
}
