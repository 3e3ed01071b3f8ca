/* The checkpoints of one rank of a program. A thread of their own does everything that touches files, so that a slow
 * disk delays neither metrics nor commands.
 *
 *     TRY(checkpoints_open(start, &c, e));
 *     ... poll checkpoints_fd(c) for reading; while (checkpoints_take(c, &event)) ...
 *
 *   CHECKPOINTS_READY    the folder is there and the checkpoint to resume from is good: the command may start
 *   CHECKPOINTS_FAILED   the rank cannot start: `cause` and `text` are those of its end
 *   CHECKPOINTS_STORED   (rank 0) a checkpoint of the program is complete, durable and has a manifest
 *   CHECKPOINTS_NOTICE   `kind` and `text` become an event of the job
 *   CHECKPOINTS_ENDED    after FAILED, or after checkpoints_finish: nothing follows
 *
 * The caller takes events from one thread. The thread waits until its event was taken. */
#ifndef EXECUTOR_PROGRAM_CHECKPOINTS_H
#define EXECUTOR_PROGRAM_CHECKPOINTS_H

#include "executor/program/checkpoint_files.h"

#include <trainyard/v1/worker.pb-c.h>

enum checkpoints_event_kind {
    CHECKPOINTS_NONE,
    CHECKPOINTS_READY,
    CHECKPOINTS_FAILED,
    CHECKPOINTS_STORED,
    CHECKPOINTS_NOTICE,
    CHECKPOINTS_ENDED
};

struct checkpoints_event {
    enum checkpoints_event_kind event;
    Trainyard__V1__WorkerEnd__Cause cause;
    const char *kind; /* static storage */
    struct checkpoint_stored stored;
    int64_t step; /* of a notice */
    struct err text;
};

struct checkpoints;

MUST_CHECK status_t checkpoints_open(const Trainyard__V1__WorkerStart *start, struct checkpoints **ret, struct err *e);
/* Does not wait for the thread if it is blocked by a file system: then its memory stays until the process ends. */
struct checkpoints *checkpoints_close(struct checkpoints *c);
CLEANUP_DEFINE(struct checkpoints *, checkpoints_close)

int checkpoints_fd(const struct checkpoints *c);
bool checkpoints_take(struct checkpoints *c, struct checkpoints_event *ret);

/* After CHECKPOINTS_READY: the values of $TRAINYARD_CHECKPOINTS and $TRAINYARD_RESUME, or "", and the step. */
const char *checkpoints_folder(const struct checkpoints *c);
int checkpoints_job_folder(const struct checkpoints *c); /* of all attempts; -1: none. Borrowed */
const char *checkpoints_resume(const struct checkpoints *c);
int64_t checkpoints_resume_step(const struct checkpoints *c);

/* The command has ended: what is complete now is stored, then CHECKPOINTS_ENDED follows. */
void checkpoints_finish(struct checkpoints *c);
/* The step that is being read; -1: none. */
int64_t checkpoints_reading(struct checkpoints *c);

#endif
