/* import_tensorboard lists the folders first, then reads each run twice: the first pass counts the points and finds the
 * times of the first and the last event, the second one sends the points that the job lacks.
 *
 * The files of a run are read in the order of their names, which begin with the time of the file. A file is read in
 * pieces of BUFFER_BYTES; larger records have no scalars and are skipped. A partial record at the end of a file is what
 * a writer was about to write.
 *
 * The id of a run is the SHA-256 of its folder's name, its first file's name and that file's first record, which have
 * the time, the host and the process of the writer. It stays the same if the folder is moved or copied. */
#include "cli/import/tensorboard.h"

#include "base/alloc.h"
#include "base/sha256.h"
#include "base/tfrecord.h"
#include "cli/import/run.h"
#include "tracking/event_scalars.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 1 << 20, RECORD_BYTES = 1 << 18 };

struct paths {
    char **all;
    size_t n;
};

/* The runs below a folder, and the state of the one that is read. */
struct reader {
    struct cli *c;
    const char *root;
    struct paths folders;
    uint8_t *buffer;        /* [BUFFER_BYTES] */
    struct import_run *run; /* NULL: the first pass */
    int64_t points, others, first_us, last_us;
    status_t status; /* of a point that could not be sent */
    struct err *e;
};

static void paths_add(struct paths *p, const char *path) {
    p->all = alloc_grow(p->all, p->n, sizeof *p->all);
    p->all[p->n++] = alloc_copy_text(path);
}

static void paths_done(struct paths *p) {
    for (size_t i = 0; i < p->n; i++)
        free(p->all[i]);
    free(p->all);
    *p = (struct paths){ 0 };
}

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* ---- files and folders ---- */

static unsigned char type_of(int folder, const struct dirent *entry) {
    struct stat st;
    if (entry->d_type != DT_UNKNOWN)
        return entry->d_type;
    if (fstatat(folder, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return DT_UNKNOWN;
    return S_ISDIR(st.st_mode) ? DT_DIR : S_ISREG(st.st_mode) ? DT_REG : DT_UNKNOWN;
}

/* Adds the entries of a folder: its event files to `files`, its folders to `folders`; either may be NULL. */
static status_t folder_list(const char *folder, struct paths *files, struct paths *folders, struct err *e) {
    DIR *d = opendir(folder);
    status_t st = ST_OK;
    if (!d)
        return err_errno(e, "read the folder '%s'", folder);
    for (const struct dirent *entry; st == ST_OK && (entry = readdir(d));) {
        const unsigned char type = *entry->d_name == '.' ? DT_UNKNOWN : type_of(dirfd(d), entry);
        CLEANUP(freep) char *path = alloc_format("%s/%s", folder, entry->d_name);
        if (type == DT_REG && files && strstr(entry->d_name, "tfevents"))
            paths_add(files, path);
        if (type == DT_DIR && folders)
            paths_add(folders, path);
        if ((files && files->n > IMPORT_TENSORBOARD_FILES) || (folders && folders->n > IMPORT_TENSORBOARD_FOLDERS))
            st = err_set(e, ST_INVALID_ARGUMENT,
                         "there are more than %d event files or folders below '%s': import its "
                         "folders one after the other",
                         IMPORT_TENSORBOARD_FILES, folder);
    }
    closedir(d);
    if (st == ST_OK && files && files->n > 1)
        qsort(files->all, files->n, sizeof *files->all, by_text);
    return st;
}

static size_t depth_of(const char *path) {
    size_t n = 0;
    for (const char *at = path; (at = strchr(at, '/')); at++)
        n++;
    return n;
}

/* Breadth first: the list grows while it is read. */
static status_t folders_find(struct reader *r, struct err *e) {
    const size_t depth = depth_of(r->root);
    paths_add(&r->folders, r->root);
    for (size_t i = 0; i < r->folders.n; i++)
        if (depth_of(r->folders.all[i]) - depth < IMPORT_TENSORBOARD_DEPTH)
            TRY(folder_list(r->folders.all[i], NULL, &r->folders, e));
    qsort(r->folders.all, r->folders.n, sizeof *r->folders.all, by_text);
    return ST_OK;
}

/* ---- events ---- */

static int64_t time_us(double seconds) {
    return seconds > 0 && seconds < 253402300800.0 ? (int64_t)llround(seconds * 1e6) : 0;
}

static void point_take(void *ctx, const char *tag, int64_t step, double wall_time, double value) {
    struct reader *r = ctx;
    const int64_t at = time_us(wall_time);
    r->points++;
    if (at > 0 && (r->first_us == 0 || at < r->first_us))
        r->first_us = at;
    if (at > r->last_us)
        r->last_us = at;
    if (r->run && r->status == ST_OK)
        r->status = import_run_add(r->run, step, at, tag, value, r->e);
}

/* Takes the whole records of n bytes. *ret_bytes: how far the next read begins behind these bytes' beginning. False:
 * nothing more of the file can be read; *ret_why says why, if that is a fault. */
static bool records_take(struct reader *r, size_t n, uint64_t *ret_bytes, const char **ret_why) {
    *ret_bytes = 0;
    while (r->status == ST_OK) {
        struct tfrecord record;
        const uint64_t at = *ret_bytes;
        if (at >= n)
            return true;
        switch (tfrecord_next(r->buffer + at, n - at, RECORD_BYTES, &record)) {
        case TFRECORD_WHOLE:
            if (!event_scalars(record.data, record.n, point_take, r, &r->others)) {
                *ret_why = "a record is no event";
                return false;
            }
            break;
        case TFRECORD_LARGE: r->others++; break;
        case TFRECORD_PARTIAL: return at > 0;
        case TFRECORD_CORRUPT: *ret_why = "a record is corrupt"; return false;
        }
        if (record.bytes > INT64_MAX / 2) {
            *ret_why = "a record is corrupt";
            return false;
        }
        *ret_bytes += record.bytes;
    }
    return false;
}

static status_t file_read(struct reader *r, const char *path, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const char *why = NULL;
    uint64_t at = 0, bytes;
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    for (;;) {
        const ssize_t n = pread(fd, r->buffer, BUFFER_BYTES, (off_t)at);
        if (n < 0)
            return err_errno(e, "read '%s'", path);
        if (n == 0 || !records_take(r, (size_t)n, &bytes, &why))
            break;
        if (bytes > (uint64_t)INT64_MAX - at) {
            why = "a record is corrupt";
            break;
        }
        at += bytes;
    }
    if (why && !r->run)
        fprintf(stderr, "trainyard: '%s' is read only up to byte %" PRIu64 " or a little behind it: %s\n", path, at,
                why);
    return r->status;
}

static status_t files_read(struct reader *r, const struct paths *files, struct err *e) {
    r->points = r->others = 0;
    r->e = e;
    for (size_t i = 0; i < files->n; i++)
        TRY(file_read(r, files->all[i], e));
    return ST_OK;
}

/* ---- a run ---- */

static status_t id_make(struct reader *r, const char *folder, const char *file, char ret[SHA256_HEX], struct err *e) {
    CLEANUP(closep) int fd = open(file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    CLEANUP(freep) char *real = realpath(folder, NULL);
    struct tfrecord record = { 0 };
    struct sha256 s;
    uint8_t digest[SHA256_BYTES];
    if (fd < 0 || !real)
        return err_errno(e, "open '%s'", file);
    const ssize_t n = pread(fd, r->buffer, BUFFER_BYTES, 0);
    if (n < 0)
        return err_errno(e, "read '%s'", file);
    if (tfrecord_next(r->buffer, (size_t)n, RECORD_BYTES, &record) != TFRECORD_WHOLE)
        record.n = 0;
    const char *names[] = { strrchr(real, '/') + 1, strrchr(file, '/') ? strrchr(file, '/') + 1 : file };
    sha256_begin(&s);
    for (size_t i = 0; i < 2; i++)
        sha256_update(&s, names[i], strlen(names[i]) + 1);
    if (record.n > 0)
        sha256_update(&s, record.data, record.n);
    sha256_final(&s, digest);
    sha256_hex(digest, ret);
    return ST_OK;
}

/* The first pass has found the times. */
static status_t run_send(struct reader *r, const struct paths *files, const char *folder, struct err *e) {
    Trainyard__V1__ImportedRun run = TRAINYARD__V1__IMPORTED_RUN__INIT;
    CLEANUP(import_run_freep) struct import_run *sender = NULL;
    CLEANUP(freep) char *real = realpath(folder, NULL);
    char id[SHA256_HEX], name[IMPORT_NAME_BYTES];
    const char *below = folder + strlen(r->root);
    Google__Protobuf__Timestamp start = import_run_time(r->first_us), end = import_run_time(r->last_us);
    TRY(id_make(r, folder, files->all[0], id, e));
    import_run_name(*below ? below : real ? strrchr(real, '/') + 1 : "run", name);
    run.source = (char *)"tensorboard";
    run.id = id;
    run.name = name;
    run.state = TRAINYARD__V1__JOB__STATE__SUCCEEDED;
    run.start_time = &start;
    run.end_time = &end;
    TRY(import_run_open(r->c, &run, &sender, e));
    r->run = sender;
    status_t st = files_read(r, files, e);
    r->run = NULL;
    TRY(st);
    return import_run_end(sender, e);
}

static status_t run_import(struct reader *r, const struct paths *files, const char *folder, struct err *e) {
    r->first_us = r->last_us = 0;
    TRY(files_read(r, files, e));
    if (r->others > 0)
        fprintf(stderr,
                "trainyard: %s: %" PRId64 " values are no scalars (images, histograms, text) and are not "
                "imported\n",
                folder, r->others);
    if (r->points == 0)
        return ST_OK;
    if (r->first_us == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "%s: no event has a time", folder);
    return run_send(r, files, folder, e);
}

static status_t folders_import(struct reader *r, struct err *e) {
    size_t runs = 0;
    TRY(folders_find(r, e));
    for (size_t i = 0; i < r->folders.n; i++) {
        CLEANUP(paths_done) struct paths files = { 0 };
        TRY(folder_list(r->folders.all[i], &files, NULL, e));
        if (files.n == 0)
            continue;
        TRY(run_import(r, &files, r->folders.all[i], e));
        runs += r->points > 0;
    }
    return runs > 0 ? ST_OK : err_set(e, ST_NOT_FOUND, "'%s' has no event files with scalars", r->root);
}

status_t import_tensorboard(struct cli *c, const char *path, struct err *e) {
    struct reader r = { .c = c, .buffer = alloc_zeroed(BUFFER_BYTES, 1) };
    struct stat st;
    status_t status;
    CLEANUP(freep) char *root = alloc_copy_text(path);
    for (size_t n = strlen(root); n > 1 && root[n - 1] == '/'; n--)
        root[n - 1] = '\0';
    char *end = strrchr(root, '/');
    r.root = root;
    if (stat(root, &st) < 0) {
        status = err_errno(e, "open '%s'", root);
    } else if (S_ISDIR(st.st_mode)) {
        status = folders_import(&r, e);
    } else {
        CLEANUP(freep)
        char *folder = end ? alloc_format("%.*s", end == root ? 1 : (int)(end - root), root) : alloc_copy_text(".");
        const struct paths files = { &root, 1 };
        r.root = folder;
        status = run_import(&r, &files, folder, e);
        if (status == ST_OK && r.points == 0)
            status = err_set(e, ST_NOT_FOUND, "'%s' has no scalars", root);
    }
    paths_done(&r.folders);
    free(r.buffer);
    return status;
}
