/* Why a command failed, as a cause and one sentence. In this order, the first that says something:
 *
 *   1. the file of torch.distributed.elastic ($TORCHELASTIC_ERROR_FILE), which @record writes
 *   2. the last exception on stderr (traceback.h)
 *   3. the exit status
 *
 * The cause decides about a retry, and whose sentence becomes the job's reason (service/scheduler/failure.h):
 *
 *   memory ran out, a module is missing, the code is no Python   BAD_SPEC: a retry would fail in the same way
 *   the exception is the consequence of another rank's end       PEER_LOST: any other rank's failure is preferred
 *   the command exited early (see below)                         BAD_SPEC
 *   otherwise                                                    INTERNAL: the job is retried */
#ifndef EXECUTOR_PROGRAM_FAILURE_H
#define EXECUTOR_PROGRAM_FAILURE_H

#include "base/status.h"
#include "executor/program/redact.h"

#include <stdbool.h>
#include <stddef.h>
#include <trainyard/v1/worker.pb-c.h>

struct failure_facts {
    const char *command; /* argv[0] */
    int wait_status;     /* not that of a success */
    bool early;          /* rank 0 of the first attempt, within a minute and before its first metric */
    bool has_peers;      /* the job has other ranks */
    bool many;           /* the command starts several processes of the job: a launcher */
    const char *error_file;
    const char *tail; /* the last bytes of stderr */
    size_t n_tail;
    const struct redactor *redactor; /* for error_file; the tail has no secrets */
};

void failure_describe(const struct failure_facts *facts, Trainyard__V1__WorkerEnd__Cause *ret_cause,
                      struct err *ret_why);

/* Whether the command has raised an exception, not the consequence of another rank's end, and has written nothing
 * else since. For a command that is stopped while it ends by itself, since other ranks lost it and ended first. */
bool failure_raised(const char *tail, size_t n_tail, struct err *ret_why);

#endif
