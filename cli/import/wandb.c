/* import_wandb lists the files first, then reads each one twice: the first pass finds the run, its end and the time of
 * its last point, the second one sends the points.
 *
 * A file is read in blocks of WANDB_BLOCK_BYTES. Only scalars of the history are read. A partial record at the end of a
 * file is what a client was about to write, or could not write because it was killed.
 *
 * The id of a run is its project and its id. A run that was resumed has several files, whose points get into one
 * job. */
#include "cli/import/wandb.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "cli/import/run.h"
#include "cli/import/texts.h"
#include "tracking/wandb_log.h"
#include "tracking/wandb_record.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { ID_BYTES = 201 }; /* of ImportedRun.id, with its NUL */

/* What is known of the run of a file, and the pass that reads it. */
struct reader {
    struct cli *c;
    char **files;
    size_t n_files, runs, running, incomplete;
    struct import_run *run; /* NULL: the first pass */
    char id[ID_BYTES], name[ID_BYTES];
    struct import_texts parameters, tags;
    int64_t start_us, last_us, points, others;
    bool ended;
    int exit_code;
    status_t status; /* of a point that could not be sent */
    struct err *e;
};

/* ---- records ---- */

static void take_run(void *ctx, const struct wandb_run *given) {
    struct reader *r = ctx;
    if (r->run)
        return;
    snprintf(r->id, sizeof r->id, "%.99s/%.99s", given->project, given->id);
    snprintf(r->name, sizeof r->name, "%.200s", *given->name ? given->name : given->id);
    if (r->start_us == 0)
        r->start_us = given->start_us;
    if (*given->project)
        import_texts_add(&r->tags, "project", given->project);
    if (*given->notes)
        import_texts_add(&r->tags, "notes", given->notes);
}

static void take_parameter(void *ctx, const char *name, const char *value) {
    struct reader *r = ctx;
    if (!r->run)
        import_texts_add(&r->parameters, name, value);
}

static void take_tag(void *ctx, const char *name, const char *value) {
    struct reader *r = ctx;
    if (!r->run)
        import_texts_add(&r->tags, name, value);
}

static void take_point(void *ctx, int64_t step, int64_t time_us, const char *name, double value) {
    struct reader *r = ctx;
    r->points++;
    if (time_us > r->last_us)
        r->last_us = time_us;
    if (r->run && r->status == ST_OK)
        r->status = import_run_add(r->run, step, time_us, name, value, r->e);
}

static void take_exit(void *ctx, int code) {
    struct reader *r = ctx;
    r->ended = true;
    r->exit_code = code;
}

static void take_record(void *ctx, const uint8_t *data, size_t n) {
    struct reader *r = ctx;
    const struct wandb_taker taker = { r, take_run, take_parameter, take_tag, take_point, take_exit };
    if (!wandb_record_take(data, n, &taker, &r->others))
        r->others++;
}

/* ---- a file ---- */

static status_t file_read(struct reader *r, const char *path, int fd, struct err *e) {
    CLEANUP(freep) uint8_t *block = alloc_zeroed(WANDB_BLOCK_BYTES, 1);
    CLEANUP(wandb_log_done) struct wandb_log log = { .add = take_record, .ctx = r };
    r->points = r->others = 0;
    r->e = e;
    for (off_t at = 0;; at += WANDB_BLOCK_BYTES) {
        const ssize_t n = pread(fd, block, WANDB_BLOCK_BYTES, at);
        if (n < 0)
            return err_errno(e, "read '%s'", path);
        if (n == 0 || !wandb_log_block(&log, block, (size_t)n) || r->status != ST_OK)
            break;
    }
    r->others += log.large;
    if (log.why && !r->run) {
        fprintf(stderr, "trainyard: '%s' is not read to its end: %s\n", path, log.why);
        r->incomplete++;
    }
    return r->status;
}

static status_t run_send(struct reader *r, const char *path, int fd, struct err *e) {
    Trainyard__V1__ImportedRun run = TRAINYARD__V1__IMPORTED_RUN__INIT;
    CLEANUP(import_run_freep) struct import_run *sender = NULL;
    char name[IMPORT_NAME_BYTES];
    if (r->start_us == 0)
        r->start_us = r->last_us;
    Google__Protobuf__Timestamp start = import_run_time(r->start_us),
                                end = import_run_time(r->last_us > r->start_us ? r->last_us : r->start_us);
    import_run_name(r->name, name);
    run.source = (char *)"wandb";
    run.id = r->id;
    run.name = name;
    run.state = r->ended && r->exit_code == 0 ? TRAINYARD__V1__JOB__STATE__SUCCEEDED
                                              : TRAINYARD__V1__JOB__STATE__FAILED;
    run.start_time = &start;
    run.end_time = &end;
    run.parameters = r->parameters.all;
    run.n_parameters = r->parameters.n;
    run.tags = r->tags.all;
    run.n_tags = r->tags.n;
    TRY(import_run_open(r->c, &run, &sender, e));
    r->run = sender;
    const status_t st = file_read(r, path, fd, e);
    r->run = NULL;
    TRY(st);
    return import_run_end(sender, e);
}

static void run_forget(struct reader *r) {
    import_texts_done(&r->parameters);
    import_texts_done(&r->tags);
    *r->id = *r->name = '\0';
    r->start_us = r->last_us = 0;
    r->ended = false;
    r->exit_code = 0;
}

static status_t file_import(struct reader *r, const char *path, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat info;
    if (fd < 0 || fstat(fd, &info) < 0)
        return err_errno(e, "open '%s'", path);
    run_forget(r);
    TRY(file_read(r, path, fd, e));
    if (!r->ended && clock_wall_us() / 1000000 - info.st_mtim.tv_sec < IMPORT_WANDB_IDLE_S) {
        r->running++;
        return ST_OK;
    }
    if (r->others > 0)
        fprintf(stderr, "trainyard: %s: %" PRId64 " values are no scalars (media, tables, text) and are not imported\n",
                path, r->others);
    if (!*r->id || (r->start_us == 0 && r->last_us == 0))
        return ST_OK;
    r->runs++;
    return run_send(r, path, fd, e);
}

/* ---- folders ---- */

static bool is_run_file(const char *name) {
    const char *end = strrchr(name, '.');
    return end && strcmp(end, ".wandb") == 0;
}

static int by_text(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

static status_t folder_list(struct reader *r, const char *folder, int levels, struct err *e) {
    struct dirent **entries = NULL;
    status_t st = ST_OK;
    const int count = scandir(folder, &entries, NULL, by_text);
    if (count < 0)
        return err_errno(e, "read the folder '%s'", folder);
    for (int i = 0; i < count; i++) {
        CLEANUP(freep) char *path = alloc_format("%s/%s", folder, entries[i]->d_name);
        struct stat info;
        if (st == ST_OK && *entries[i]->d_name != '.' && lstat(path, &info) == 0) {
            if (S_ISDIR(info.st_mode) && levels > 0)
                st = folder_list(r, path, levels - 1, e);
            if (S_ISREG(info.st_mode) && is_run_file(path)) {
                r->files = alloc_grow(r->files, r->n_files, sizeof *r->files);
                r->files[r->n_files++] = take_ptr(&path);
            }
        }
        if (st == ST_OK && r->n_files > IMPORT_WANDB_FILES)
            st = err_set(e, ST_INVALID_ARGUMENT,
                         "there are more than %d runs below '%s': import its folders one after "
                         "the other",
                         IMPORT_WANDB_FILES, folder);
        free(entries[i]);
    }
    free(entries);
    return st;
}

static void reader_done(struct reader *r) {
    run_forget(r);
    for (size_t i = 0; i < r->n_files; i++)
        free(r->files[i]);
    free(r->files);
}

status_t import_wandb(struct cli *c, const char *path, struct err *e) {
    CLEANUP(reader_done) struct reader r = { .c = c };
    struct stat info;
    if (stat(path, &info) < 0)
        return err_errno(e, "open '%s'", path);
    if (S_ISDIR(info.st_mode)) {
        TRY(folder_list(&r, path, IMPORT_WANDB_DEPTH, e));
    } else {
        r.files = alloc_grow(NULL, 0, sizeof *r.files);
        r.files[r.n_files++] = alloc_copy_text(path);
    }
    for (size_t i = 0; i < r.n_files; i++)
        TRY(file_import(&r, r.files[i], e));
    if (r.running > 0)
        fprintf(stderr, "trainyard: %zu runs have not ended, and are not imported\n", r.running);
    if (r.incomplete > 0)
        return err_set(e, ST_DATA_LOSS, "%zu of %zu files are not imported in full: the lines above say why",
                       r.incomplete, r.n_files);
    return r.runs > 0 ? ST_OK : err_set(e, ST_NOT_FOUND, "'%s' has no runs of W&B that have ended", path);
}
