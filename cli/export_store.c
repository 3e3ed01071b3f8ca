/* trainyard-data gets the links as an order of https:// URIs, with a cache in the new folder: it repeats requests, goes
 * on where an answer was torn, and knows an object that changes meanwhile. The copies get their names as hard links;
 * what reads the checkpoint proves its bytes. */
#include "cli/export_store.h"

#include "api/codec/frame.h"
#include "base/alloc.h"
#include "base/beneath.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <trainyard/v1/worker.pb-c.h>
#include <unistd.h>

enum { COMMANDS_FD = 3, RECORDS_FD = 4, PID_BYTES = 16 };

void export_store_done(struct export_store *s) {
    struct err why;
    const char *slash = strrchr(s->folder, '/');
    if (!slash)
        return;
    CLEANUP(freep) char *parent = alloc_format("%.*s/", (int)(slash - s->folder), s->folder);
    CLEANUP(closep) int fd = open(parent, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0 || beneath_remove(fd, slash + 1, s->folder, &why) != ST_OK)
        fprintf(stderr, "trainyard: the folder '%s' cannot be removed\n", s->folder);
    *s->folder = '\0';
}

static status_t folder_make(struct export_store *s, struct err *e) {
    const char *all = getenv("TMPDIR");
    if (snprintf(s->folder, sizeof s->folder - 16, "%s/trainyard-export-XXXXXX", all && *all ? all : "/tmp") >=
        (int)sizeof s->folder - 16)
        return err_set(e, ST_INVALID_ARGUMENT, "TMPDIR: the path is too long");
    if (!mkdtemp(s->folder)) {
        *s->folder = '\0';
        return err_errno(e, "make a folder for the checkpoint");
    }
    snprintf(s->step, sizeof s->step, "%.*s/step", (int)sizeof s->step - 8, s->folder);
    return dir_make(s->step, 0700, e);
}

/* ---- trainyard-data ---- */

struct fetching {
    pid_t pid;
    int commands, records; /* our ends */
};

static void fetching_done(struct fetching *f) {
    closep(&f->commands); /* it ends then */
    closep(&f->records);
    while (f->pid > 0 && waitpid(f->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
}

static status_t program_start(struct fetching *f, struct err *e) {
    char path[PATH_MAX], parent[PID_BYTES];
    int in[2] = { -1, -1 }, out[2] = { -1, -1 };
    TRY(process_beside("trainyard-data", path, sizeof path, e));
    if (pipe2(in, O_CLOEXEC) < 0)
        return err_errno(e, "make a pipe");
    f->commands = in[1];
    if (pipe2(out, O_CLOEXEC) < 0) {
        closep(&in[0]);
        return err_errno(e, "make a pipe");
    }
    f->records = out[0];
    snprintf(parent, sizeof parent, "%d", (int)getpid());
    const char *const argv[] = { path, "--agent-pid", parent, NULL };
    const struct process p = {
        .program = path, .argv = argv, .fds = { { in[0], COMMANDS_FD }, { out[1], RECORDS_FD } }, .n_fds = 2
    };
    status_t st = process_start(&p, &f->pid, e);
    closep(&in[0]);
    closep(&out[1]);
    return st == ST_OK
               ? ST_OK
               : err_prefix(e, st, "trainyard-data, which copies the checkpoint (package trainyard-executor): ");
}

/* http:// is accepted from the endpoint alone. */
static status_t order_send(const struct fetching *f, const Trainyard__V1__CheckpointLinks *links, const char *folder,
                           struct err *e) {
    Trainyard__V1__WorkerCommand command = TRAINYARD__V1__WORKER_COMMAND__INIT;
    Trainyard__V1__DataFetch order = TRAINYARD__V1__DATA_FETCH__INIT;
    Trainyard__V1__DataStore https = TRAINYARD__V1__DATA_STORE__INIT, *stores[] = { &https };
    CLEANUP(freep) char *cache = alloc_format("%s/cache", folder);
    CLEANUP(freep) char **uris = alloc_zeroed(links->n_links + 1, sizeof *uris);
    for (size_t i = 0; i < links->n_links; i++)
        uris[i] = links->links[i]->url;
    https.scheme = (char[]){ "https" };
    https.endpoint = links->endpoint;
    order.stores = stores;
    order.n_stores = 1;
    order.uris = uris;
    order.n_uris = links->n_links;
    order.cache = cache;
    order.cache_bytes = INT64_MAX / 2;
    command.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_FETCH_DATA;
    command.fetch_data = &order;
    TRY(dir_make(cache, 0700, e));
    return frame_write(f->commands, &command.base, e);
}

/* ---- what it has copied ---- */

static status_t names_make(const Trainyard__V1__CheckpointLinks *links, const Trainyard__V1__DataReport *report,
                           const char *step, struct err *e) {
    for (size_t i = 0; i < report->n_objects; i++) {
        const Trainyard__V1__DataObject *o = report->objects[i];
        if (o->uri < 0 || (size_t)o->uri >= links->n_links || strchr(links->links[o->uri]->file, '/'))
            return err_set(e, ST_INTERNAL, "trainyard-data reports an object that it was not asked for");
        CLEANUP(freep) char *copy = alloc_format("%s/%s", report->folder, o->sha256);
        CLEANUP(freep) char *name = alloc_format("%s/%s", step, links->links[o->uri]->file);
        if (link(copy, name) < 0)
            return err_errno(e, "name the copy '%s'", name);
    }
    return ST_OK;
}

static status_t record_take(const Trainyard__V1__CheckpointLinks *links, const Trainyard__V1__WorkerRecord *record,
                            const char *step, bool *ret_last, struct err *e) {
    if (record->record_case != TRAINYARD__V1__WORKER_RECORD__RECORD_DATA)
        return ST_OK;
    const Trainyard__V1__DataReport *report = record->data;
    *ret_last = report->last;
    if (report->last && report->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED)
        return err_set(e, ST_UNAVAILABLE, "the checkpoint cannot be copied from its store: %s", report->message);
    return names_make(links, report, step, e);
}

static status_t records_take(const struct fetching *f, const Trainyard__V1__CheckpointLinks *links, const char *step,
                             struct err *e) {
    struct frame_reader reader;
    status_t st = ST_OK;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    for (bool last = false; st == ST_OK && !last;) {
        ProtobufCMessage *record = NULL;
        st = frame_reader_wait(&reader, f->records, &trainyard__v1__worker_record__descriptor, &record, e);
        if (st == ST_OK && !record)
            st = err_set(e, ST_INTERNAL, "trainyard-data has ended before the checkpoint was copied");
        if (st == ST_OK)
            st = record_take(links, (Trainyard__V1__WorkerRecord *)record, step, &last, e);
        if (record)
            protobuf_c_message_free_unpacked(record, NULL);
    }
    frame_reader_done(&reader);
    return st;
}

static status_t copy(const Trainyard__V1__CheckpointLinks *links, struct export_store *s, struct err *e) {
    CLEANUP(fetching_done) struct fetching f = { .commands = -1, .records = -1 };
    TRY(folder_make(s, e));
    TRY(program_start(&f, e));
    signal(SIGPIPE, SIG_IGN);
    TRY(order_send(&f, links, s->folder, e));
    return records_take(&f, links, s->step, e);
}

status_t export_store_fetch(struct cli *c, const char *checkpoint, struct export_store *ret, struct err *e) {
    Trainyard__V1__GetCheckpointLinksRequest request = TRAINYARD__V1__GET_CHECKPOINT_LINKS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *links = NULL;
    *ret = (struct export_store){ .folder = "" };
    request.name = (char *)(uintptr_t)checkpoint;
    TRY(client_call(c, &trainyard__v1__checkpoint_service__descriptor, "GetCheckpointLinks", &request.base, &links, e));
    return copy((Trainyard__V1__CheckpointLinks *)links, ret, e);
}
