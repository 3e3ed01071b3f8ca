/* Files that a program logs to a tracker: images, tables, models. They are kept in a folder of the job, which is
 * deleted with the job.
 *
 *     struct artifacts *a = artifacts_new(points, &sink);    artifacts_folder(a, fd, attempt, rank);
 *     struct artifact *f = artifacts_begin(a, "model/weights.bin");
 *     if (artifact_write(f, piece, n)) ... poll artifacts_fd(a); artifacts_run(a) until sink.advanced(f) ...
 *     if (artifact_end(f)) ...                  // as above; then sink.stored(path) was called; or artifact_drop(f)
 *
 * A thread of their own writes the files: a file system that stalls delays the uploads, and nothing else.
 *
 * Each attempt keeps its files in a folder of its own (artifact_place.h). A file of the same name replaces the older
 * one, also that of an earlier attempt. Bounds: ARTIFACT_BYTES a file, ARTIFACTS_BYTES and ARTIFACTS_MAX for the job
 * with all of its ranks and attempts, and ARTIFACTS_OPEN uploads at a time. A file beyond a bound, or with a name that
 * is no path below the folder, is read and dropped; an event artifact_refused says why.
 *
 * A rank other than 0 has its files in rank-R/. A name has at most ARTIFACT_PATH_BYTES bytes of printable UTF-8, and no
 * part of it begins with '.'.
 *
 * The caller uses one thread, in which artifacts_run calls the sink. */
#ifndef EXECUTOR_PROGRAM_TRACKING_ARTIFACTS_H
#define EXECUTOR_PROGRAM_TRACKING_ARTIFACTS_H

#include "executor/program/tracking/artifact_place.h"
#include "executor/program/tracking/points.h"

#include <jansson.h>
#include <stdbool.h>

enum {
    ARTIFACT_BYTES = 256 << 20,
    ARTIFACTS_OPEN = 16,
    ARTIFACT_PATH_BYTES = 400,
    ARTIFACTS_LISTED = 1000, /* entries of one folder */
};

struct artifact;

struct artifacts_sink {
    /* A file was stored and is durable. path: below the attempt's folder; sha256: hexadecimal digits. Valid during the
     * call. */
    void (*stored)(void *ctx, const char *path, int64_t bytes, const char *sha256);
    void *ctx;
    /* What artifact_write or artifact_end has begun is done. ended: the upload is freed after the call. */
    void (*advanced)(void *server, struct artifact *f, bool ended);
    void *server;
};

struct artifacts;
struct artifacts *artifacts_new(struct points *points, const struct artifacts_sink *sink);
/* Drops unfinished uploads. Does not wait for the thread if it is blocked by a file system: then its memory stays until
 * the process ends. */
struct artifacts *artifacts_free(struct artifacts *a);
CLEANUP_DEFINE(struct artifacts *, artifacts_free)

/* Where files go to from now on, before the first upload: a folder of the attempt in `job`, an open folder, which is
 * copied; -1: there is none, and every file is refused. */
void artifacts_folder(struct artifacts *a, int job, int attempt, int rank);

int artifacts_fd(const struct artifacts *a); /* readable: artifacts_run has something to do */
void artifacts_run(struct artifacts *a);
bool artifacts_busy(const struct artifacts *a); /* there are uploads */
/* The program has ended and the time is over: an event says which whole files were not stored. */
void artifacts_end(struct artifacts *a);

/* Never NULL: a file that is refused takes its bytes, too. */
struct artifact *artifacts_begin(struct artifacts *a, const char *path);
/* True: the next call for the upload comes after sink.advanced; the piece is copied. False: it is done. */
bool artifact_write(struct artifact *f, const char *piece, size_t n);
/* The same. After false the upload is freed. */
bool artifact_end(struct artifact *f);
void artifact_drop(struct artifact *f); /* the upload was cut off; at any time, also before sink.advanced */

/* Opens a file that this attempt has stored, for reading. -1: there is none. */
int artifacts_read(struct artifacts *a, const char *path, int64_t *ret_bytes);
/* The files and folders in a folder, "" for all: [{"path": NAME, "is_dir": true}, {..., "file_size": N}]. */
json_t *artifacts_list(struct artifacts *a, const char *path);

#endif
