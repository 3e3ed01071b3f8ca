/* The code of attempts on this host: each attempt gets a folder of its own with the files of its archive, which its
 * ranks share and cannot change. trainyard-code (executor/code) fetches and unpacks it, so that the agent's thread does
 * not wait, and removes it after the attempt.
 *
 *     DIRECTORY/code/cache     archives, for later attempts
 *     DIRECTORY/code/copies    a file with the path of the next folder
 *     TMPDIR/trainyard-code-XXXXXX/JOB-ATTEMPT-XXXXXXXX    a copy
 *
 * The copies are outside of the agent's directory, which a --worker-user cannot enter. Other users of the host can
 * neither list the folder of the copies nor know the name of one. An agent removes all copies when it ends, and when it
 * starts those of an agent that was killed.
 *
 * Runs on the agent's loop. */
#ifndef EXECUTOR_AGENT_CODE_COPIES_H
#define EXECUTOR_AGENT_CODE_COPIES_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/agent/host.h"

#include <trainyard/v1/worker.pb-c.h>

struct code_copies;

struct code_copies_owner {
    void *ctx;
    /* The copy is complete, or cannot be made. Not called within code_copies_start. */
    void (*ready)(void *ctx, int64_t job, int32_t attempt, Trainyard__V1__CodeReady *ready);
};

/* Removes what an earlier agent left, unless it was handed over. */
MUST_CHECK status_t code_copies_open(const struct host *host, const struct code_copies_owner *owner,
                                     struct code_copies **ret, struct err *e);
struct code_copies *code_copies_close(struct code_copies *cs);

/* Adds the copies to what is handed over. False: not now, because one is being made or removed. */
bool code_copies_hand_over(const struct code_copies *cs, Trainyard__Handover__Handover *to);

/* Begins to make the copy of an attempt. archive: the name of its archive. */
MUST_CHECK status_t code_copies_start(struct code_copies *cs, int64_t job, int32_t attempt, const char *archive,
                                      struct err *e);
/* The attempt has ended: removes its copy, if it has one. */
void code_copies_remove(struct code_copies *cs, int64_t job, int32_t attempt);

#endif
