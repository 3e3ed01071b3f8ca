/* A folder whose meta.yaml has a run_id is a run; its parent is its experiment. The folders are searched three levels
 * deep: mlruns, experiments, runs.
 *
 * The store has one file for each metric, to which the client appends. The points of all files are merged by their
 * times, as the program reported them. Each file is read in pieces of PIECE_BYTES and is open only while a piece is
 * read, so that neither the memory nor the number of open files grows with the run. A line that does not fit into a
 * piece is left out. If such lines, or what cannot be read, are left out, the import ends with DATA_LOSS after its last
 * run. */
#include "cli/import/mlflow.h"

#include "base/alloc.h"
#include "cli/import/mlflow_database.h"
#include "cli/import/run.h"
#include "cli/import/texts.h"
#include "tracking/mlflow_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 8 << 10, META_BYTES = 64 << 10 };

/* One metric's file, and its next point. */
struct series {
    char *path;
    const char *name;  /* points into path */
    int64_t at;        /* of the file: what follows the piece */
    size_t n, next;    /* bytes of the piece, and where its next line begins */
    bool has, in_long; /* in_long: what was read of this line is dropped */
    struct mlflow_point point;
    char piece[PIECE_BYTES + 1];
};

struct run {
    const char *folder;
    struct series **series;
    size_t n_series;
    int64_t bad;      /* lines that are no points */
    int64_t too_long; /* lines that do not fit into a piece */
    int64_t unread;   /* files and folders that cannot be read, or not to their ends */
    struct import_texts parameters, tags;
};

struct import {
    struct cli *c;
    const char *root, *experiment;
    size_t runs, running;
    size_t incomplete; /* runs of which something was left out */
};

/* The whole of a small file, as text; false: there is none. */
static bool file_text(const char *path, char *ret, size_t capacity) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : pread(fd, ret, capacity - 1, 0);
    if (n < 0)
        return false;
    ret[n] = '\0';
    return true;
}

static bool meta_read(const char *folder, char *ret) {
    CLEANUP(freep) char *path = alloc_format("%s/meta.yaml", folder);
    return file_text(path, ret, META_BYTES);
}

static bool is_dots(const char *name) { return strcmp(name, ".") == 0 || strcmp(name, "..") == 0; }

/* ---- the points of a run ---- */

/* Reads the next piece behind what is left of this one, which has no newline. False: the file has no more. */
static bool piece_read(struct run *r, struct series *s) {
    s->in_long = s->in_long || s->n - s->next == PIECE_BYTES;
    if (s->in_long)
        s->next = s->n;
    const size_t left = s->n - s->next;
    memmove(s->piece, s->piece + s->next, left);
    s->n = left;
    s->next = 0;
    CLEANUP(closep) int fd = open(s->path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t n = fd < 0 ? -1 : pread(fd, s->piece + left, PIECE_BYTES - left, s->at);
    r->unread += n < 0;
    if (n <= 0)
        return false;
    s->at += n;
    s->n += (size_t)n;
    return true;
}

/* The last line may have no newline: its writer was killed, and it is not read. */
static void series_next(struct run *r, struct series *s) {
    char *end;
    for (;;) {
        while (!(end = memchr(s->piece + s->next, '\n', s->n - s->next)))
            if (!piece_read(r, s)) {
                r->too_long += s->in_long;
                s->has = s->in_long = false;
                return;
            }
        *end = '\0';
        const char *line = s->piece + s->next;
        s->next = (size_t)(end - s->piece) + 1;
        if (s->in_long) {
            s->in_long = false;
            r->too_long++;
            continue;
        }
        if ((s->has = mlflow_metric_line(line, &s->point)))
            return;
        r->bad++;
    }
}

static status_t series_find(struct run *r, const char *folder, size_t base, int depth, struct err *e) {
    DIR *d = opendir(folder);
    status_t st = ST_OK;
    r->unread += !d && errno != ENOENT;
    for (const struct dirent *entry; d && st == ST_OK && (entry = readdir(d));) {
        CLEANUP(freep) char *path = alloc_format("%s/%s", folder, entry->d_name);
        struct stat info;
        if (is_dots(entry->d_name) || lstat(path, &info) < 0)
            continue;
        if (S_ISDIR(info.st_mode) && depth < IMPORT_MLFLOW_DEPTH)
            st = series_find(r, path, base, depth + 1, e);
        if (!S_ISREG(info.st_mode))
            continue;
        if (r->n_series == IMPORT_MLFLOW_METRICS) {
            st = err_set(e, ST_RESOURCE_EXHAUSTED, "%s: the run has more than %d metrics", r->folder,
                         IMPORT_MLFLOW_METRICS);
            break;
        }
        struct series *s = alloc_zeroed(1, sizeof *s);
        s->path = take_ptr(&path);
        s->name = s->path + base;
        r->series = alloc_grow(r->series, r->n_series, sizeof *r->series);
        r->series[r->n_series++] = s;
    }
    if (d)
        closedir(d);
    return st;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct series *const *)a)->name, (*(struct series *const *)b)->name);
}

static status_t points_send(struct run *r, struct import_run *to, struct err *e) {
    for (size_t i = 0; i < r->n_series; i++)
        series_next(r, r->series[i]);
    for (;;) {
        struct series *first = NULL;
        for (size_t i = 0; i < r->n_series; i++)
            if (r->series[i]->has && (!first || r->series[i]->point.time_ms < first->point.time_ms))
                first = r->series[i];
        if (!first)
            return ST_OK;
        const struct mlflow_point *p = &first->point;
        const int64_t time_us = p->time_ms > 0 && p->time_ms < INT64_C(253402300800000) ? p->time_ms * 1000 : 0;
        TRY(import_run_add(to, p->step, time_us, first->name, p->value, e));
        series_next(r, first);
    }
}

/* ---- parameters and tags ---- */

static int by_text(const struct dirent **a, const struct dirent **b) { return strcmp((*a)->d_name, (*b)->d_name); }

/* The files of a folder: each one's name and content. MLflow's own tags begin with "mlflow.". */
static void texts_read(const char *run, const char *kind, struct import_texts *texts) {
    CLEANUP(freep) char *folder = alloc_format("%s/%s", run, kind);
    struct dirent **entries = NULL;
    const int count = scandir(folder, &entries, NULL, by_text);
    for (int i = 0; i < count; i++) {
        char value[IMPORT_VALUE_BYTES];
        CLEANUP(freep) char *path = alloc_format("%s/%s", folder, entries[i]->d_name);
        if (!is_dots(entries[i]->d_name) && strncmp(entries[i]->d_name, "mlflow.", 7) != 0 &&
            file_text(path, value, sizeof value))
            import_texts_add(texts, entries[i]->d_name, value);
        free(entries[i]);
    }
    free(entries);
}

/* ---- a run ---- */

static void run_done(struct run *r) {
    for (size_t i = 0; i < r->n_series; i++) {
        free(r->series[i]->path);
        free(r->series[i]);
    }
    free(r->series);
    import_texts_done(&r->parameters);
    import_texts_done(&r->tags);
}

static int64_t meta_number(const char *meta, const char *key) {
    char text[32];
    return mlflow_meta_value(meta, key, text, sizeof text) ? strtoll(text, NULL, 10) : 0;
}

/* 1 RUNNING, 2 SCHEDULED, 3 FINISHED, 4 FAILED, 5 KILLED; 0: it has not ended. */
static Trainyard__V1__Job__State state_of(int64_t status) {
    switch (status) {
    case 3: return TRAINYARD__V1__JOB__STATE__SUCCEEDED;
    case 4: return TRAINYARD__V1__JOB__STATE__FAILED;
    case 5: return TRAINYARD__V1__JOB__STATE__CANCELLED;
    default: return TRAINYARD__V1__JOB__STATE__STATE_UNSPECIFIED;
    }
}

static status_t run_send(struct import *in, struct run *r, Trainyard__V1__ImportedRun *header, struct err *e) {
    CLEANUP(import_run_freep) struct import_run *to = NULL;
    CLEANUP(freep) char *metrics = alloc_format("%s/metrics", r->folder);
    TRY(series_find(r, metrics, strlen(metrics) + 1, 0, e));
    if (r->n_series > 1)
        qsort(r->series, r->n_series, sizeof *r->series, by_name);
    header->parameters = r->parameters.all;
    header->n_parameters = r->parameters.n;
    header->tags = r->tags.all;
    header->n_tags = r->tags.n;
    TRY(import_run_open(in->c, header, &to, e));
    TRY(points_send(r, to, e));
    if (r->bad > 0)
        fprintf(stderr, "trainyard: %s: %" PRId64 " lines of metrics are no points and are left out\n", r->folder,
                r->bad);
    if (r->too_long > 0)
        fprintf(stderr, "trainyard: %s: %" PRId64 " lines of metrics have %d bytes or more and are left out\n",
                r->folder, r->too_long, PIECE_BYTES);
    if (r->unread > 0)
        fprintf(stderr, "trainyard: %s: %" PRId64 " files or folders of metrics cannot be read to their ends\n",
                r->folder, r->unread);
    in->incomplete += r->too_long > 0 || r->unread > 0;
    in->runs++;
    return import_run_end(to, e);
}

static status_t run_import(struct import *in, const char *folder, const char *meta, const char *experiment,
                           struct err *e) {
    CLEANUP(run_done) struct run r = { .folder = folder };
    Trainyard__V1__ImportedRun header = TRAINYARD__V1__IMPORTED_RUN__INIT;
    char id[200], given[200], name[IMPORT_NAME_BYTES], stage[32] = "";
    const int64_t start_ms = meta_number(meta, "start_time"), end_ms = meta_number(meta, "end_time");
    header.state = state_of(meta_number(meta, "status"));
    mlflow_meta_value(meta, "lifecycle_stage", stage, sizeof stage);
    if (strcmp(stage, "deleted") == 0)
        return ST_OK;
    if (header.state == TRAINYARD__V1__JOB__STATE__STATE_UNSPECIFIED || end_ms <= 0) {
        in->running++;
        return ST_OK;
    }
    if (!mlflow_meta_value(meta, "run_id", id, sizeof id))
        return ST_OK;
    if (!mlflow_meta_value(meta, "run_name", given, sizeof given))
        snprintf(given, sizeof given, "%s", id);
    Google__Protobuf__Timestamp start = import_run_time(start_ms * 1000),
                                end = import_run_time((end_ms > start_ms ? end_ms : start_ms) * 1000);
    import_run_name(given, name);
    header.source = (char *)"mlflow";
    header.id = id;
    header.name = name;
    header.start_time = &start;
    header.end_time = &end;
    if (*experiment)
        import_texts_add(&r.tags, "experiment", experiment);
    texts_read(folder, "params", &r.parameters);
    texts_read(folder, "tags", &r.tags);
    return run_send(in, &r, &header, e);
}

/* ---- folders ---- */

static bool experiment_wanted(const struct import *in, const char *meta, const char *name) {
    char id[64] = "";
    mlflow_meta_value(meta, "experiment_id", id, sizeof id);
    return !in->experiment || strcmp(in->experiment, name) == 0 || strcmp(in->experiment, id) == 0;
}

/* levels: of folders that may be below this one. experiment: the name of the one that it is in; "": it is in none. */
static status_t folder_import(struct import *in, const char *folder, int levels, const char *experiment,
                              struct err *e) {
    CLEANUP(freep) char *meta = alloc_zeroed(META_BYTES, 1);
    char name[200] = "";
    struct dirent **entries = NULL;
    status_t st = ST_OK;
    if (meta_read(folder, meta)) {
        if (mlflow_meta_value(meta, "run_id", name, sizeof name))
            return experiment_wanted(in, meta, experiment) ? run_import(in, folder, meta, experiment, e) : ST_OK;
        mlflow_meta_value(meta, "name", name, sizeof name);
    }
    const int count = levels > 0 ? scandir(folder, &entries, NULL, by_text) : 0;
    for (int i = 0; i < count; i++) {
        CLEANUP(freep) char *path = alloc_format("%s/%s", folder, entries[i]->d_name);
        struct stat info;
        if (st == ST_OK && *entries[i]->d_name != '.' && lstat(path, &info) == 0 && S_ISDIR(info.st_mode))
            st = folder_import(in, path, levels - 1, name, e);
        free(entries[i]);
    }
    free(entries);
    return st;
}

status_t import_mlflow(struct cli *c, const char *path, const char *experiment, struct err *e) {
    struct import in = { .c = c, .root = path, .experiment = experiment };
    struct stat info;
    if (stat(path, &info) < 0)
        return err_errno(e, "open '%s'", path);
    if (import_is_database(path))
        return import_mlflow_database(c, path, experiment, e);
    if (!S_ISDIR(info.st_mode))
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is neither a folder nor a database of SQLite", path);
    TRY(folder_import(&in, path, 2, "", e));
    if (in.running > 0)
        fprintf(stderr, "trainyard: %zu runs have not ended, and are not imported\n", in.running);
    if (in.incomplete > 0)
        return err_set(e, ST_DATA_LOSS, "%zu of %zu runs are not imported in full: the lines above say what is missing",
                       in.incomplete, in.runs);
    return in.runs > 0 ? ST_OK
                       : err_set(e, ST_NOT_FOUND, "'%s' has no runs of MLflow's file store that have ended", path);
}
