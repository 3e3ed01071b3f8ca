/* trainyard-worker. It becomes another user if --user asks so, makes sure that it dies with its agent, blocks
 * signals before any thread inherits them, and reads the first command, which decides what the process does: train a
 * rank, sample or verify a checkpoint, check a spec, or encode a text. It enters its sandbox, if it is ordered to. It
 * then starts the emitter and the control thread, does that work, sends WorkerEnd, and exits with a code that repeats
 * the cause.
 * `--check-cuda` reports whether GPUs can be used and exits. */
#include "base/limits.h"
#include "engine/collective/collective.h"
#include "executor/child/child.h"
#include "executor/worker/control.h"
#include "executor/worker/emit.h"
#include "executor/worker/exit_code.h"
#include "executor/worker/rank.h"
#include "executor/worker/rank_folders.h"
#include "executor/worker/user.h"
#include "executor/worker/worker_sandbox.h"
#include "kernels/plugin.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum {
    /* An agent that is stopped for so long has been noticed; the last records are worth the wait. */
    FLUSH_MS = 3600 * 1000,
    FLUSH_TERMINATED_MS = 500,
    EXIT_CUDA_MISSING = 3,
    EXIT_CUDA_SINGLE_RANK = 4,
    WITHOUT_BYTES = 512,
};

static const char usage[] =
    "usage: trainyard-worker [--user NAME | --job-user UID:GID[:GID]...] --agent-pid PID\n"
    "       trainyard-worker [--user NAME] --check-cuda\n"
    "\n"
    "One rank of a training job. trainyard-executor starts it, with commands on descriptor 3 and records on 4;\n"
    "to train without a service see trainyard-train.\n"
    "\n"
    "  --agent-pid PID        the agent that started this program, which ends when the agent does\n"
    "  --user NAME            becomes this user before anything else, without any privilege; comes first\n"
    "  --job-user UID:GID[:GID]...\n"
    "                         the same with numbers: the user, its group and further groups\n"
    "  --check-cuda           prints in one sentence what jobs on GPUs lack, or nothing. Exit status: 3 if none can\n"
    "                         run, 4 if only jobs with one rank can, 0 if all can, perhaps more slowly\n"
    "  --help, --version\n"
    "\n"
    "example: trainyard-worker --agent-pid 4711 3<commands 4>records\n";

static void end_emit(struct emitter *emitter, const struct rank_end *end) {
    Trainyard__V1__WorkerEnd last = TRAINYARD__V1__WORKER_END__INIT;
    last.cause = end->cause;
    last.message = (char *)(uintptr_t)end->why.msg;
    last.step = end->step;
    last.weights_sha256 = (char *)(uintptr_t)end->weights_sha256;
    emitter_put(emitter, WORKER_RECORD(END, end, &last));
}

/* The first command says what this process is for; the rest goes to the control thread. */
static status_t work(const Trainyard__V1__WorkerCommand *first, bool taken, struct frame_reader *reader,
                     struct rank_end *end, struct err *e) {
    struct emitter *emitter;
    struct control *control;
    TRY(emitter_open(CHILD_RECORDS_FD, EMIT_QUEUE_BYTES, &emitter, e));
    TRY(control_open(CHILD_COMMANDS_FD, reader, &control, e));
    if (taken)
        rank_folders_report(first->start, emitter);
    if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE)
        rank_sample(first->sample, control, emitter, end);
    else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK)
        rank_check(first->check, emitter, end);
    else if (first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENCODE)
        rank_encode(first->encode, emitter, end);
    else
        rank_train(first->start, control, emitter, end);
    end_emit(emitter, end);
    emitter_close(emitter, control_terminated(control) ? FLUSH_TERMINATED_MS : FLUSH_MS);
    control_close(control);
    return ST_OK;
}

static status_t first_command(struct frame_reader *reader, Trainyard__V1__WorkerCommand **ret, struct err *e) {
    Trainyard__V1__WorkerCommand *command;
    TRY(child_command_wait(reader, &command, e));
    if (command->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_START &&
        command->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE &&
        command->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK &&
        command->command_case != TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENCODE) {
        trainyard__v1__worker_command__free_unpacked(command, NULL);
        return err_set(e, ST_INVALID_ARGUMENT, "the first command is neither a start, a sample, a check nor a text");
    }
    *ret = command;
    return ST_OK;
}

static int check_cuda(void) {
    const struct kernels_plugin *plugin = NULL;
    struct err why;
    char without[WITHOUT_BYTES];
    status_t st = kernels_plugin_cuda(&plugin, &why);
    if (st == ST_OK)
        st = plugin->check(without, sizeof without, &why);
    if (st != ST_OK) {
        puts(why.msg);
        return EXIT_CUDA_MISSING;
    }
    const bool single = collective_device_check(&why) != ST_OK;
    if (single)
        printf("no jobs of several ranks: %s%s", why.msg, *without ? "; " : "");
    if (single || *without)
        puts(without);
    return single ? EXIT_CUDA_SINGLE_RANK : 0;
}

int main(int argc, char **argv) {
    struct err refused;
    if (user_option_take(&argc, argv, false, &refused) != ST_OK) {
        fprintf(stderr, "trainyard-worker: --user: %s\n", refused.msg);
        return 2;
    }
    /* From here on this process dies with its agent. Only then is it known whether that already has. */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (argc == 2 && strcmp(argv[1], "--check-cuda") == 0)
        return check_cuda();
    const struct child child = { .name = "trainyard-worker",
                                 .usage = usage,
                                 .orphaned = worker_exit_code(TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST) };
    int status;
    if (!child_begin(&child, argc, argv, &status))
        return status;
    sigset_t blocked; /* before any thread starts: each of them inherits it */
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGTERM);
    sigaddset(&blocked, SIGINT);
    pthread_sigmask(SIG_BLOCK, &blocked, NULL);
    signal(SIGPIPE, SIG_IGN);

    struct frame_reader reader;
    frame_reader_init(&reader, LIMIT_RPC_MESSAGE_BYTES);
    Trainyard__V1__WorkerCommand *first = NULL;
    struct rank_end end = { .cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL };
    status_t st = first_command(&reader, &first, &end.why);
    if (st == ST_UNAVAILABLE)
        end.cause = TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST;
    bool taken = false;
    if (st == ST_OK && first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK)
        rank_check_prepare();
    if (st == ST_OK && first->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_START && first->start->sandbox)
        taken = rank_folders_make(first->start);
    if (st == ST_OK)
        st = worker_sandbox_enter(first, &end.why);
    if (st == ST_OK)
        st = work(first, taken, &reader, &end, &end.why);
    if (st != ST_OK && st != ST_UNAVAILABLE)
        fprintf(stderr, "trainyard-worker: %s\n", end.why.msg);
    if (first)
        trainyard__v1__worker_command__free_unpacked(first, NULL);
    frame_reader_done(&reader);
    return worker_exit_code(end.cause);
}
