/* Takes the files of a complete checkpoint into Trainyard's care: lists, reads and syncs them, and writes their
 * manifest (executor/worker/file_manifest.h) beside them. Only then is the checkpoint reported.
 *
 * A checkpoint whose name is not "step-N" is first copied to the folder step-N by hard links, which take no space, so
 * that the program may remove its own when it likes.
 *
 * Blocks for as long as the file system does: called from a thread of its own. */
#ifndef EXECUTOR_PROGRAM_CHECKPOINT_FILES_H
#define EXECUTOR_PROGRAM_CHECKPOINT_FILES_H

#include "executor/worker/file_manifest.h"

struct checkpoint_entry {
    int folder;       /* the attempt's, open */
    const char *path; /* its name */
    const char *name; /* of the checkpoint in it */
    int64_t step;
};

struct checkpoint_stored {
    int64_t step, bytes;
    size_t files;
    char sha256[SHA256_HEX]; /* of the manifest */
};

/* ABORTED: a file changed meanwhile; try again. CANCELLED: progress->continues returned false. Any other error: the
 * checkpoint cannot be stored, and the sentence says why (a symbolic link, a FIFO, a file that cannot be read, more
 * than FILE_MANIFEST_FILES files, ...). After an error nothing of the call is left. */
MUST_CHECK status_t checkpoint_files_store(const struct checkpoint_entry *entry, const struct file_progress *progress,
                                           struct checkpoint_stored *ret, struct err *e);

#endif
