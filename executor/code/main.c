/* trainyard-code: fetches and unpacks the code of one attempt, or removes it. The agent starts it, so that its own
 * thread never waits for the disk or the network: with commands on descriptor 3 and records on 4, as a worker. Its only
 * command is the first one; its only record is the final report. It runs as the agent's user, because workers must not
 * be able to change what it unpacks, but without the agent's capabilities, because it parses files that come from
 * clients. */
#include "base/cleanup.h"
#include "base/file.h"
#include "base/limits.h"
#include "base/privileges.h"
#include "executor/child/child.h"
#include "executor/code/cache.h"
#include "executor/code/download.h"
#include "executor/code/unpack.h"

#include <linux/capability.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usage[] =
    "usage: trainyard-code --agent-pid PID\n"
    "\n"
    "Fetches the code of a program for trainyard-executor, which starts it with commands on descriptor 3 and records "
    "on\n"
    "4.\n"
    "\n"
    "  --agent-pid PID        the agent that started this program, which ends when the agent does\n"
    "  --help, --version\n";

static const struct child child = { .name = "trainyard-code", .usage = usage, .orphaned = 1 };

/* *ret_refused: no host can do it, because of the archive. */
static status_t fetch(const Trainyard__V1__CodeFetch *f, bool *ret_refused, struct err *e) {
    const struct code_cache cache = {
        .path = f->cache, .max_bytes = f->cache_bytes, .download = code_download, .ctx = (void *)(uintptr_t)f
    };
    CLEANUP(closep) int archive = -1;
    status_t st = code_cache_open(&cache, f->archive, &archive, e);
    *ret_refused = st == ST_NOT_FOUND || st == ST_DATA_LOSS || st == ST_INVALID_ARGUMENT;
    TRY(st);
    if (mkdir(f->copy, 0700) < 0)
        return err_errno(e, "create the folder '%.200s'", f->copy);
    st = code_unpack(archive, f->copy, e);
    *ret_refused = st == ST_INVALID_ARGUMENT;
    if (st != ST_OK)
        status_ignore(dir_remove_readonly(f->copy, NULL));
    return st;
}

static Trainyard__V1__WorkerEnd__Cause command_do(const Trainyard__V1__WorkerCommand *command, struct err *e) {
    bool refused = false;
    status_t st;
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_FETCH_CODE)
        st = fetch(command->fetch_code, &refused, e);
    else if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_REMOVE_CODE)
        st = dir_remove_readonly(command->remove_code->path, e);
    else
        st = err_set(e, ST_INTERNAL, "the first command is of another release: restart trainyard-executor");
    if (st == ST_OK)
        return TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    return refused ? TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC : TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
}

/* An agent that is root may have files of other users: tokens, keys, folders. */
static status_t give_up_privileges(struct err *e) {
    return privileges_drop(geteuid() == 0 ? PRIVILEGE(CAP_DAC_OVERRIDE) | PRIVILEGE(CAP_FOWNER) : 0, e);
}

static status_t work(struct frame_reader *reader, struct err *e) {
    Trainyard__V1__WorkerEnd end = TRAINYARD__V1__WORKER_END__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    Trainyard__V1__WorkerCommand *command;
    struct err why = { "" };
    TRY(child_command_wait(reader, &command, e));
    end.cause = command_do(command, &why);
    trainyard__v1__worker_command__free_unpacked(command, NULL);
    end.message = why.msg;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_END;
    record.end = &end;
    return frame_write(CHILD_RECORDS_FD, &record.base, e);
}

int main(int argc, char **argv) {
    int status;
    struct err why = { "" };
    struct frame_reader reader;
    signal(SIGPIPE, SIG_IGN);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!child_begin(&child, argc, argv, &status))
        return status;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    status_t st = give_up_privileges(&why);
    if (st == ST_OK)
        st = work(&reader, &why);
    frame_reader_done(&reader);
    if (st != ST_OK)
        fprintf(stderr, "trainyard-code: %s\n", why.msg);
    return st == ST_OK ? 0 : 1;
}
