/* The variables of a rank's command, in this order, where a later one replaces an earlier one of the same name:
 *
 *   1. those that the agent gives to every worker (PATH, HOME, CUDA_VISIBLE_DEVICES, OMP_NUM_THREADS, ...), and
 *      PYTHONFAULTHANDLER=1, by which Python prints its stack when a signal kills it; in a sandbox a TMPDIR of its own
 *      With an image, PATH is IMAGE_PATH, HOME is a private folder, and the image's own variables follow
 *   2. spec: program.environment
 *      and the values of program.secrets
 *   3. of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ..., TORCHELASTIC_*, which PyTorch's env:// reads. With
 *      `launcher: host` instead PET_*, which torchrun reads, and the GPUs of all ranks of this host
 *   4. of Trainyard: TRAINYARD_JOB, _ATTEMPT, _RANK, _METRICS, _WORK, _CODE, _STOP,
 *      _CHECKPOINTS, _RESUME
 *      VIRTUAL_ENV, and PATH with the environment's programs first, if the spec has `python`
 *   5. with a GPU NCCL_RAS_ADDR, so that two jobs of a host do not share one; in an image also LD_LIBRARY_PATH and PATH
 *      with the folders of the driver's files
 *   6. of trackers (tracking/tracking.h), as far as none of the above decides otherwise
 *
 * docs/program.md has the whole list with meanings. */
#ifndef EXECUTOR_PROGRAM_ENVIRONMENT_H
#define EXECUTOR_PROGRAM_ENVIRONMENT_H

#include "executor/program/rendezvous.h"
#include "executor/program/scratch.h"
#include "executor/program/tracking/tracking.h"

#include <trainyard/v1/worker.pb-c.h>

/* NULL: there is none. */
struct program_paths {
    const char *python;          /* its Python environment */
    const char *code;            /* the folder with the program's files */
    const char *stop;            /* the file of the stop step */
    const char *checkpoints;     /* the folder for checkpoints */
    const char *resume;          /* the checkpoint to load */
    int nccl_port;               /* a free TCP port for NCCL's reports; 0: no GPU */
    const char *image_variables; /* each with a zero byte at its end, and another one after the last; NULL: none */
    int image;                   /* the root folder of its image, open; -1: it sees the host's files */
};

/* A NULL-terminated array for execve; the caller releases it with environment_free. */
char **environment_new(const Trainyard__V1__WorkerStart *start, const struct place *place,
                       const struct scratch *scratch, const struct tracking *tracking,
                       const struct program_paths *paths);
/* The value of a variable; NULL: it is not set. Valid as long as the environment. */
const char *environment_value(char *const *environment, const char *name);
char **environment_free(char **environment);

#endif
