/* The variables of a rank's command, in this order, where a later one replaces an earlier one of the same name:
 *
 *   1. those that the agent gives to every worker (PATH, HOME, CUDA_VISIBLE_DEVICES, OMP_NUM_THREADS, ...), and
 *      PYTHONFAULTHANDLER=1, by which Python prints its stack when a signal kills it; in a sandbox a TMPDIR of its own
 *   2. spec: program.environment
 *      and the values of program.secrets
 *   3. of torchrun: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, ..., TORCHELASTIC_*, which PyTorch's env:// reads. With
 *      `launcher: host` instead PET_*, which torchrun reads, and the GPUs of all ranks of this host
 *   4. of Trainyard: TRAINYARD_JOB, _ATTEMPT, _RANK, _METRICS, _WORK, _CODE, _STOP,
 *      _CHECKPOINTS, _RESUME
 *      VIRTUAL_ENV, and PATH with the environment's programs first, if the spec has `python`
 *   5. of trackers (tracking/tracking.h), as far as none of the above decides otherwise
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
    const char *python;      /* its Python environment */
    const char *code;        /* the folder with the program's files */
    const char *stop;        /* the file of the stop step */
    const char *checkpoints; /* the folder for checkpoints */
    const char *resume;      /* the checkpoint to load */
};

/* A NULL-terminated array for execve; the caller releases it with environment_free. */
char **environment_new(const Trainyard__V1__WorkerStart *start, const struct place *place,
                       const struct scratch *scratch, const struct tracking *tracking,
                       const struct program_paths *paths);
char **environment_free(char **environment);

#endif
