/* Finds complete checkpoints in an attempt's folder, in which the program makes, renames and removes entries at any
 * time.
 *
 *     checkpoint_scan_wait(scan, wake);                  // something may have changed, or a moment has passed
 *     checkpoint_scan_refresh(scan);
 *     while (checkpoint_scan_next(scan, ended, &found))
 *         ... store it ...; checkpoint_scan_done(scan, &found);
 *
 * inotify reports changes at once, but loses events, and reports nothing that another host does on a shared file
 * system. Every refresh therefore reads the whole folder, and the events only shorten the waits, and show whether an
 * entry got its name by a rename. One thread. */
#ifndef EXECUTOR_PROGRAM_CHECKPOINT_SCAN_H
#define EXECUTOR_PROGRAM_CHECKPOINT_SCAN_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/program/checkpoint_format.h"

#include <limits.h>

enum { CHECKPOINT_ENTRIES = 1024 }; /* checkpoints in the folder at a time; further ones are ignored */

struct checkpoint_found {
    char name[NAME_MAX + 1];
    int64_t step;
};

struct checkpoint_scan;

/* folder is borrowed; path: its name, for inotify. */
struct checkpoint_scan *checkpoint_scan_open(int folder, const char *path, const struct checkpoint_format *format,
                                             int world_size);
struct checkpoint_scan *checkpoint_scan_close(struct checkpoint_scan *s);
CLEANUP_DEFINE(struct checkpoint_scan *, checkpoint_scan_close)

/* Waits for a change, until the descriptor `wake` is readable, or for at most a second. */
void checkpoint_scan_wait(struct checkpoint_scan *s, int wake);
void checkpoint_scan_refresh(struct checkpoint_scan *s);

/* The complete checkpoint with the lowest step that is not done. ended: the command has ended; then the highest step
 * comes first, since the time left may not suffice for all. */
bool checkpoint_scan_next(struct checkpoint_scan *s, bool ended, struct checkpoint_found *ret);
/* The entry is not returned again, unless it is replaced. */
void checkpoint_scan_done(struct checkpoint_scan *s, const struct checkpoint_found *found);
/* A checkpoint changed while it was read. True: it will be returned again; false: it has changed too often. */
bool checkpoint_scan_try_later(struct checkpoint_scan *s, const struct checkpoint_found *found);

/* An entry that was made under its final name, although the format wants a rename; each is returned once. */
bool checkpoint_scan_misnamed(struct checkpoint_scan *s, struct checkpoint_found *ret);

/* Whether an entry is there that is not complete. */
bool checkpoint_scan_incomplete(const struct checkpoint_scan *s);

#endif
