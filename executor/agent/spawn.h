/* Starts one worker process. Called from the agent's main thread only: the parent-death signal that a worker sets for
 * itself is tied to the thread that made it.
 *
 * The child has exactly these descriptors and inherits no other descriptor of the agent:
 *
 *   0 /dev/null    1 stdout -> out    2 stderr -> err    3 commands <- commands    4 records -> records
 *
 * The child leads a process group of its own and has no signal blocked or ignored. Its environment is made here:
 * OMP_NUM_THREADS = threads, CUDA_VISIBLE_DEVICES = device, LD_LIBRARY_PATH = library_path, GOMP_SPINCOUNT so that an
 * idle OpenMP thread releases its core after about 50 us, and the few names of the agent's environment listed in
 * spawn.c. */
#ifndef EXECUTOR_AGENT_SPAWN_H
#define EXECUTOR_AGENT_SPAWN_H

#include "base/status.h"

#include <stdint.h>
#include <sys/types.h>

struct spawn_options {
    const char *program;     /* a path */
    const char *const *argv; /* NULL-terminated, with argv[0] */
    int threads;
    const char *device;       /* the only CUDA device that it sees, as CUDA_VISIBLE_DEVICES names it; NULL: none */
    const char *library_path; /* DIR[:DIR]..., used if device is not NULL; NULL: none */
    const char *const *kept;  /* further variables of the agent that it gets */
    size_t n_kept;
};

/* The agent's side; every descriptor is close-on-exec and non-blocking. */
struct spawned {
    pid_t pid;
    int64_t start_time; /* clock ticks since boot: field 22 of /proc/PID/stat. With pid it identifies the process */
    int pidfd;
    int commands, records, out, err;
};

/* NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED, ...: nothing was started, nothing is left open. */
MUST_CHECK status_t spawn_worker(const struct spawn_options *options, struct spawned *ret, struct err *e);

/* Closes all open descriptors in s. The caller must end and reap the process. */
void spawned_close(struct spawned *s);

/* The start time of a running process; NOT_FOUND if no process has this pid. */
MUST_CHECK status_t spawn_start_time(pid_t pid, int64_t *ret, struct err *e);

#endif
