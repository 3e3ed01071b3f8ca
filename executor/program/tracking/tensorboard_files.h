/* Reads the TensorBoard event files below some folders while a program writes them.
 *
 *     struct tensorboard_files *t = tensorboard_files_new(points, tick, ctx);
 *     tensorboard_files_watch(t, "/data/run", true);    // files that are there now are not read
 *     more = tensorboard_files_read(t);                 // each second, or at once if it returned true
 *     tensorboard_files_end(t);                         // reads everything to its end, and reports what was counted
 *
 * A file whose name contains "tfevents" is read from its beginning, when it appears, and is read on while it grows. An
 * incomplete record waits for its rest. A corrupt record is reported by an event, and its file is not read any further.
 * Values that are no scalars are counted, and reported by one event at the end. Symbolic links are not followed, and
 * hidden folders are not entered.
 *
 * Names: the metrics of the first folder with an event file are named after their tags. A metric of a folder below it
 * has the path between them before its tag, and a metric of another folder the last part of its folder's path:
 * validation/loss.
 *
 * One thread. A read takes about 300 ms at most, so that the caller can do other work in between, unless the file
 * system does not answer. tick is called for each folder, entry and piece of a file. */
#ifndef EXECUTOR_PROGRAM_TRACKING_TENSORBOARD_FILES_H
#define EXECUTOR_PROGRAM_TRACKING_TENSORBOARD_FILES_H

#include "executor/program/tracking/points.h"

#include <stdbool.h>

enum {
    TENSORBOARD_FOLDERS = 1024,
    TENSORBOARD_FILES = 256,
    TENSORBOARD_DEPTH = 12,             /* folders below a watched one */
    TENSORBOARD_ENTRIES = 20000,        /* of one folder; the others are ignored */
    TENSORBOARD_RECORD_BYTES = 1 << 18, /* larger records have no scalars: graphs, images */
    TENSORBOARD_READ_BYTES = 8 << 20,
};

struct tensorboard_files;
struct tensorboard_files *tensorboard_files_new(struct points *points, void (*tick)(void *ctx), void *ctx);
struct tensorboard_files *tensorboard_files_free(struct tensorboard_files *t);
CLEANUP_DEFINE(struct tensorboard_files *, tensorboard_files_free)

/* The folder need not exist yet. skip, for one folder: event files that exist now belong to earlier runs and are never
 * read. Neither are files that come later but were written long before. Takes ten seconds at most. */
void tensorboard_files_watch(struct tensorboard_files *t, const char *folder, bool skip);
/* Looks for new files, and reads what was added to the known ones. True: there is more to read now. */
bool tensorboard_files_read(struct tensorboard_files *t);
/* The next read looks for new files. Without this call, a read does so only from time to time if that takes long. */
void tensorboard_files_rescan(struct tensorboard_files *t);
/* No process writes to the files any more. Takes a minute at most. */
void tensorboard_files_end(struct tensorboard_files *t);

#endif
