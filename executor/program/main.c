/* trainyard-program: one rank of a user's program.
 *
 *   1. becomes another user, if --user is given
 *   2. makes itself the subreaper of all processes that it starts
 *   3. reads the first command, a start or a check, and carries it out
 *   4. sends WorkerEnd, and exits with a code that repeats the cause
 *
 * When its agent dies, the kernel sends this process SIGTERM, not SIGKILL, so that it can still kill the processes of
 * the command. */
#include "base/limits.h"
#include "base/utf8.h"
#include "executor/child/child.h"
#include "executor/container/container.h"
#include "executor/program/rank.h"
#include "executor/program/redact_record.h"
#include "executor/worker/exit_code.h"
#include "executor/worker/user.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    FLUSH_MS = 3600 * 1000, /* as of a worker: the last records are worth the wait */
    FLUSH_STOPPED_MS = 500,
};

static const char usage[] =
    "usage: trainyard-program [--user NAME | --job-user UID:GID[:GID]...] --agent-pid PID\n"
    "\n"
    "One rank of a job with a program: starts the command of its spec. trainyard-executor starts it, with commands on\n"
    "descriptor 3 and records on 4.\n"
    "\n"
    "  --agent-pid PID        the agent that started this program, which ends when the agent does\n"
    "  --user NAME            becomes this user before anything else, without any privilege; comes first\n"
    "  --job-user UID:GID[:GID]...\n"
    "                         the same with numbers: the user, its group and further groups; unless the job is a "
    "fork,\n"
    "                         its command does not have the group GID\n"
    "  --help, --version\n";

static void end_emit(struct emitter *emitter, const struct program_end *end) {
    Trainyard__V1__WorkerEnd last = TRAINYARD__V1__WORKER_END__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    last.cause = end->cause;
    char printable[sizeof end->why.msg]; /* it may name the command */
    utf8_copy_printable(end->why.msg, printable, sizeof printable);
    last.message = printable;
    last.step = end->step;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_END;
    record.end = &last;
    emitter_put(emitter, &record);
}

/* An agent that still runs after an upgrade of the files sends the start of its own release. */
static void refuse_older_agent(struct program_end *end) {
    end->cause = TRAINYARD__V1__WORKER_END__CAUSE__NOT_STARTED;
    status_ignore(err_set(&end->why, ST_FAILED_PRECONDITION,
                          "the executor is of an older release than this program: restart trainyard-executor"));
}

/* Such a controller has taken the lead during an upgrade. */
static void refuse_older_controller(const char *variable, struct program_end *end) {
    end->cause = TRAINYARD__V1__WORKER_END__CAUSE__NOT_STARTED;
    status_ignore(err_set(&end->why, ST_FAILED_PRECONDITION,
                          "program.secrets.%.128s: no value came, because the controller is of an older release than "
                          "this program: upgrade all controllers",
                          variable));
}

/* The redactor, which the emitter uses to its end. */
static struct redactor *start_run(const Trainyard__V1__WorkerStart *start, struct frame_reader *reader,
                                  struct emitter *emitter, struct program_end *end) {
    struct redactor *redactor = redactor_of_attempt(start->attempt);
    frame_reader_wipe(reader);
    if (start->attempt->n_secrets > 0) /* no core dump has a secret, and no process of the same user reads one here */
        prctl(PR_SET_DUMPABLE, 0);
    emitter_set_filter(emitter, redact_record, redactor);
    const char *lacking = secrets_lacking(start->attempt);
    if (lacking)
        refuse_older_controller(lacking, end);
    else
        program_run(start, redactor, CHILD_COMMANDS_FD, reader, emitter, end);
    return redactor;
}

static status_t work(struct frame_reader *reader, struct program_end *end, struct err *e) {
    struct emitter *emitter;
    struct redactor *redactor = NULL;
    Trainyard__V1__WorkerCommand *first;
    TRY(child_command_wait(reader, &first, e));
    status_t st = emitter_open(CHILD_RECORDS_FD, EMIT_QUEUE_BYTES, &emitter, e);
    if (st == ST_OK) {
        emitter_outlive_reader(emitter); /* the processes of the command must be killed first */
        if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK)
            program_check(first->check, emitter, end);
        else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_START && !first->start->attempt)
            refuse_older_agent(end);
        else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_START)
            redactor = start_run(first->start, reader, emitter, end);
        else
            status_ignore(err_set(&end->why, ST_INTERNAL, "the first command is neither a start nor a check"));
        end_emit(emitter, end);
        scratch_close(&end->scratch, emitter);
        const bool stopped = end->cause == TRAINYARD__V1__WORKER_END__CAUSE__STOPPED ||
                             end->cause == TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST;
        emitter_close(emitter, stopped ? FLUSH_STOPPED_MS : FLUSH_MS);
    }
    redactor_free(redactor);
    trainyard__v1__worker_command__free_unpacked(first, NULL);
    return st;
}

static void signals_block(void) {
    sigset_t blocked; /* before any thread starts: each of them inherits it */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    sigaddset(&blocked, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGPIPE, SIG_IGN);
}

int main(int argc, char **argv) {
    struct program_end end = { .cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL,
                               .scratch = { .lock = -1, .fifo = -1 } };
    const int helped = container_helper_run(argc, argv);
    if (helped >= 0)
        return helped;
    if (user_option_take(&argc, argv, true, &end.why) != ST_OK) {
        fprintf(stderr, "trainyard-program: --user: %s\n", end.why.msg);
        return 2;
    }
    signals_block();
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    const struct child child = { .name = "trainyard-program",
                                 .usage = usage,
                                 .orphaned = worker_exit_code(TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST) };
    int status;
    if (!child_begin(&child, argc, argv, &status))
        return status;
    struct frame_reader reader;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    status_t st = work(&reader, &end, &end.why);
    if (st != ST_OK && st != ST_UNAVAILABLE)
        fprintf(stderr, "trainyard-program: %s\n", end.why.msg);
    frame_reader_done(&reader);
    return worker_exit_code(st == ST_UNAVAILABLE ? TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST : end.cause);
}
