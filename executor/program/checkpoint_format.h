/* Which entries of $TRAINYARD_CHECKPOINTS are checkpoints, of which step, and when they are complete.
 *
 * | format       | entry                                    | complete                                                |
 * |--------------|------------------------------------------|---------------------------------------------------------|
 * | rename       | step-N, a folder or a file               | when it gets this name by a rename                      |
 * | marker: FILE | step-N, a folder                         | when FILE is in it                                      |
 * | hugging_face | checkpoint-N, a folder                   | when trainer_state.json is whole, and the random state  |
 * |              |                                          | of every rank, if there is one of rank 0                |
 * | lightning    | *.ckpt with "step=N" in its name, a file | when the zip archive is whole                           |
 * | dcp          | step-N, a folder                         | when .metadata is in it                                 |
 * | orbax        | N, a folder                              | when it gets this name by a rename                      |
 * | torch_save   | *.pt or *.pth with "stepN", "step-N",    | when the zip archive is whole                           |
 * |              | "step_N" or "step=N" in its name, a file |                                                         |
 *
 * N may have leading zeros. */
#ifndef EXECUTOR_PROGRAM_CHECKPOINT_FORMAT_H
#define EXECUTOR_PROGRAM_CHECKPOINT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/v1/spec.pb-c.h>

struct checkpoint_format {
    const char *name;
    bool by_rename;
    bool folder, file; /* what an entry may be */
    bool (*step)(const char *name, int64_t *ret);
    bool (*complete)(int entry, const char *marker, int world_size); /* NULL: as soon as it has its name */
    const char *marker;                                              /* for `complete` */
};

/* spec: NULL: rename. Its texts are borrowed. */
struct checkpoint_format checkpoint_format_of(const Trainyard__V1__ProgramCheckpoints *spec);

/* Whether the entry `name` of an open folder is complete. False if it cannot be read. */
bool checkpoint_format_complete(const struct checkpoint_format *f, int folder, const char *name, int world_size);

#endif
