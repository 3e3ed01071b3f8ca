/* One thread waits for commands of the agent, signals (SIGTERM, SIGCHLD), lines in the metrics FIFO, requests of
 * trackers, events of the thread for checkpoints, and the next deadline.
 *
 *   preparing    a thread makes the folder for checkpoints and verifies the one to resume from (checkpoints.h)
 *   rendezvous   a gang of several ranks sends its address and waits for all addresses; one rank needs none
 *                the code of the program, if it has any, is waited for, too
 *   joined       the Python environment, if the spec has one, is waited for
 *   running      the command runs in a session of its own. Metric lines become rows; progress is reported each second
 *   stopping     after a stop command: the command's process group gets SIGTERM, or, if the spec has `stop: step`, the
 *                stop step (stop_step.h). When the time for the stop is over, the agent sends SIGTERM to this process,
 *                and SIGKILL two seconds later. TERM_MS after that SIGTERM, this process kills every process that
 *                remains
 *   ended        the command has ended: remaining descendants are killed, the FIFO and the output are read to their
 *                last lines, the checkpoints that are complete are stored, and a failure gets its sentence (failure.h)
 *
 * The agent kills a rank that makes no progress. This process cannot see the program's progress, and reports progress
 * for as long as it runs itself. A program that reports nothing is the controller's concern (silence.h). */
#include "executor/program/rank.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "executor/program/checkpoint_report.h"
#include "executor/program/command_sandbox.h"
#include "executor/program/environment.h"
#include "executor/program/failure.h"
#include "executor/program/image.h"
#include "executor/program/launcher.h"
#include "executor/program/rank_state.h"
#include "executor/program/redact_record.h"
#include "executor/worker/exit_code.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    PROGRESS_MS = 1000,
    TERM_MS = 1500,   /* between the agent's SIGTERM and the end of all processes: the agent kills after two seconds */
    CHOOSING_MS = 50, /* the same while rank 0 is about to choose the stop step */
    LATE_METRICS_MS = 200,
    EARLY_MS = 60 * 1000, /* a command that fails so soon will fail again */
    OUTPUT_END_MS = 5000, /* for the agent to read the last lines */
    OUTPUT_STOPPED_MS = 400,
    STORE_MS = 600 * 1000, /* for the last checkpoint, after the command has ended by itself */
};

/* ---- commands and signals ---- */

static void environment_handle(struct rank *r, Trainyard__V1__WorkerCommand *command) {
    rank_put_environment(r, command->environment);
    python_environment_take(&r->python, command);
}

static void command_take(struct rank *r, Trainyard__V1__WorkerCommand *command) {
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_STACKS && r->output)
        rank_stop_for_stacks(r);
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP)
        rank_stop_handle(r, command->stop);
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP_STEP)
        rank_stop_step_handle(r, command->stop_step->step);
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS && !r->rendezvous)
        r->rendezvous = command; /* the agent may send it again: a second one is ignored */
    else if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_CODE_READY)
        code_take(&r->code, command);
    else if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENVIRONMENT)
        environment_handle(r, command);
    else
        trainyard__v1__worker_command__free_unpacked(command, NULL);
}

/* The end of the pipe means that the agent is gone. */
static void commands_take(struct rank *r) {
    ProtobufCMessage *message = NULL;
    status_t st;
    while ((st = frame_reader_next(r->reader, &trainyard__v1__worker_command__descriptor, &message, NULL)) == ST_OK &&
           message)
        command_take(r, (Trainyard__V1__WorkerCommand *)message);
    r->agent_gone |= st != ST_OK;
}

static void commands_read(struct rank *r) {
    bool ended = false;
    if (frame_reader_fill(r->reader, r->commands, &ended, NULL) != ST_OK || ended)
        r->agent_gone = true;
    else
        commands_take(r);
}

static void signals_read(struct rank *r) {
    struct signalfd_siginfo info;
    char reason[RANK_REASON_BYTES];
    while (read(r->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        snprintf(reason, sizeof reason, "by signal %u", info.ssi_signo);
        if (!r->stopped)
            rank_raised_keep(r);
        rank_stop_at_once(r, reason);
        r->kill_at = deadline_in(TERM_MS);
    }
}

/* ---- checkpoints ---- */

/* The metrics of the checkpoint's steps come first. */
static void checkpoint_put(struct rank *r, const struct checkpoints_event *event) {
    rank_fifo_drain(r);
    if (r->tree.group)
        tracking_settle(r->tracking);
    silence_sign(&r->silence);
    checkpoint_report(r->emitter, r->checkpoints, event);
}

/* Some frameworks report the metrics of a step just after its checkpoint. An attempt that continues from there does not
 * repeat them: while the command runs, a checkpoint is reported a little later than it is stored. */
static void late_put(struct rank *r) {
    size_t n = 0;
    while (n < r->n_late && (!r->tree.group || clock_mono_ms() >= r->late[n].at))
        checkpoint_put(r, &r->late[n++].event);
    memmove(r->late, r->late + n, (r->n_late - n) * sizeof *r->late);
    r->n_late -= n;
}

static void checkpoints_read(struct rank *r) {
    struct checkpoints_event event;
    while (r->n_late < RANK_LATE && checkpoints_take(r->checkpoints, &event)) {
        if (event.event == CHECKPOINTS_READY || event.event == CHECKPOINTS_FAILED)
            r->began = event;
        r->checkpoints_over |= event.event == CHECKPOINTS_ENDED;
        if (event.event == CHECKPOINTS_STORED)
            r->late[r->n_late++] = (struct late_checkpoint){ event, deadline_in(LATE_METRICS_MS) };
        else
            checkpoint_report(r->emitter, r->checkpoints, &event);
        if (!r->tree.group)
            late_put(r);
    }
}

/* Handles what has arrived, and returns after PROGRESS_MS at the latest. */
static void wait_once(struct rank *r) {
    const deadline_ms_t alive = deadline_in(r->choosing ? CHOOSING_MS : PROGRESS_MS);
    const bool takes = r->checkpoints && r->n_late < RANK_LATE;
    struct pollfd p[] = { { .fd = r->commands, .events = POLLIN },
                          { .fd = r->signals, .events = POLLIN },
                          { .fd = r->scratch.fifo, .events = POLLIN },
                          { .fd = r->tree.group ? tracking_fd(r->tracking) : -1, .events = POLLIN },
                          { .fd = r->leader, .events = POLLIN },
                          { .fd = takes ? checkpoints_fd(r->checkpoints) : -1, .events = POLLIN },
                          { .fd = r->tree.group ? tracking_files_fd(r->tracking) : -1, .events = POLLIN } };
    emitter_progress(r->emitter);
    rank_stop_step_sample(r);
    if (r->choosing)
        rank_stop_step_send(r);
    rank_stop_step_wait(r);
    deadline_ms_t until = r->kill_at < alive ? r->kill_at : alive;
    if (r->tree.group && tracking_due(r->tracking) < until)
        until = tracking_due(r->tracking);
    if (r->n_late > 0 && r->late[0].at < until)
        until = r->late[0].at;
    const bool ready = poll(p, 7, deadline_poll_ms(until)) > 0;
    if (r->tree.group)
        tracking_run(r->tracking);
    if (ready && p[2].revents)
        rank_fifo_read(r);
    if (ready && p[5].revents)
        checkpoints_read(r);
    late_put(r);
    if (ready && p[1].revents)
        signals_read(r);
    if (ready && p[0].revents)
        commands_read(r);
    if (ready && p[4].revents)
        closep(&r->leader);
}

/* ---- the parts of a run ---- */

/* Rank 0 reads all bytes of the checkpoint to resume from, which may take long, before the other ranks start. */
static status_t checkpoints_begin(struct rank *r, struct err *e) {
    TRY(checkpoints_open(r->start, &r->checkpoints, e));
    while (!r->checkpoints_over && !r->stopped && !r->agent_gone && r->began.event != CHECKPOINTS_READY)
        wait_once(r);
    if (r->began.event == CHECKPOINTS_READY)
        return ST_OK;
    return r->began.event == CHECKPOINTS_FAILED ? err_set(e, ST_INTERNAL, "%s", r->began.text.msg)
                                                : err_set(e, ST_CANCELLED, "stopped before the command was started");
}

/* Stores what the command completed before its end. A stop meanwhile shortens the time, but is not the reason of the
 * end. */
static void checkpoints_end(struct rank *r) {
    const bool stopped = r->stopped;
    const deadline_ms_t by = deadline_in(STORE_MS);
    char sentence[RANK_REASON_BYTES];
    late_put(r);
    checkpoints_finish(r->checkpoints);
    while (!r->checkpoints_over && !r->agent_gone && clock_mono_ms() < by && clock_mono_ms() < r->kill_at)
        wait_once(r);
    const int64_t step = checkpoints_reading(r->checkpoints);
    snprintf(sentence, sizeof sentence, "the time was over before all bytes of step %lld were read", (long long)step);
    if (step >= 0)
        rank_put_notice(r, "checkpoint_not_stored", sentence);
    r->stopped = stopped;
}

static status_t ranks_locate(struct rank *r, struct reserved_port *port, struct err *e) {
    const Trainyard__V1__AttemptStart *at = r->start->attempt;
    char address[RENDEZVOUS_ADDRESS_BYTES];
    TRY(rendezvous_reserve_port(port, e));
    const char *gpu = getenv("CUDA_VISIBLE_DEVICES");
    rendezvous_address(r->start->address, port->port, launcher_is_host(at->spec->program) ? gpu ? gpu : "" : NULL,
                       address);
    if (at->world_size > 1) {
        rank_put_address(r, address);
        while (!r->rendezvous && !r->stopped && !r->agent_gone)
            wait_once(r);
        return r->rendezvous ? rendezvous_place(r->rendezvous->rendezvous, r->start->rank, at->world_size, &r->place, e)
                             : err_set(e, ST_CANCELLED, "stopped before all ranks were there");
    }
    ProtobufCBinaryData own = { .data = (uint8_t *)address, .len = strlen(address) };
    Trainyard__V1__Rendezvous alone = TRAINYARD__V1__RENDEZVOUS__INIT;
    alone.n_addresses = 1;
    alone.addresses = &own;
    return rendezvous_place(&alone, 0, 1, &r->place, e);
}

/* The agent fetches the code while the ranks find each other. */
static status_t code_wait(struct rank *r, struct err *e) {
    while (code_is_missing(&r->code, r->start->attempt->spec->program) && !r->stopped && !r->agent_gone)
        wait_once(r);
    return code_status(&r->code, e);
}

/* A build may take longer than an attempt may take to start: the rank has joined before. */
static status_t environment_wait(struct rank *r, struct err *e) {
    while (python_environment_is_missing(&r->python, r->start->attempt->spec->program) && !r->stopped && !r->agent_gone)
        wait_once(r);
    return python_environment_status(&r->python, e);
}
/* The checkpoint of a fork's origin is another user's: only the group can read it. */
static bool reads_another_job(const Trainyard__V1__AttemptStart *at) { return at->forked && *at->resume_directory; }

/* For NCCL's reports on all ranks, if the command has a GPU: free now, and most likely when NCCL binds it. 0: none. */
static int nccl_port(const struct rank *r) {
    const char *gpu = getenv("CUDA_VISIBLE_DEVICES");
    struct reserved_port port = { .fd = -1 };
    if ((!gpu || !*gpu) && !*r->place.gpus)
        return 0;
    const int found = rendezvous_reserve_port(&port, NULL) == ST_OK ? port.port : 0;
    closep(&port.fd);
    return found;
}

static void nccl_address_keep(struct rank *r, char *const *environment) {
    const char *address = environment_value(environment, "NCCL_RAS_ADDR");
    if (r->start->rank == 0 && address)
        snprintf(r->nccl_address, sizeof r->nccl_address, "%s", address);
}

/* ret: -1 without an image. */
static status_t image_open(const struct rank *r, int *ret, char **ret_variables, struct err *e) {
    const Trainyard__V1__WorkerStart *s = r->start;
    const struct job_roots_given given = { s->data_roots,         s->n_data_roots, s->checkpoint_roots,
                                           s->n_checkpoint_roots, s->data_except,  s->n_data_except };
    const Trainyard__V1__ImageSpec *image = s->attempt->spec->program->image;
    if (!image)
        return ST_OK;
    return image->root ? image_root_open(image, &given, ret, e)
                       : image_unpacked_open(python_environment_path(&r->python), ret, ret_variables, e);
}

/* A root folder may be another one on another host. */
static status_t image_command_find(struct rank *r, int image, char *const *environment, struct err *e) {
    const Trainyard__V1__ProgramSpec *program = r->start->attempt->spec->program;
    const char *name = program->command[0], *search = environment_value(environment, "PATH");
    if (!program->image || program->image->root || strchr(name, '/'))
        return ST_OK;
    const int why = image_command_errno(image, name, search ? search : "");
    r->lacks_command = why != 0;
    return why == 0 ? ST_OK
                    : err_set(e, ST_FAILED_PRECONDITION,
                              "program.command: '%.120s' cannot be executed in the image: %s", name, strerror(why));
}

static status_t command_start(struct rank *r, struct err *e) {
    const Trainyard__V1__ProgramSpec *program = r->start->attempt->spec->program;
    CLEANUP(closep) int image = -1;
    CLEANUP(freep) char *image_variables = NULL;
    TRY(image_open(r, &image, &image_variables, e));
    char **argv = alloc_zeroed(program->n_command + 1, sizeof *argv); /* ends with NULL */
    memcpy(argv, program->command, program->n_command * sizeof *argv);
    const struct program_paths paths = { .code = code_folder(&r->code),
                                         .python = program->image ? NULL : python_environment_path(&r->python),
                                         .stop = r->stop_step.fd >= 0 ? r->stop_step.path : NULL,
                                         .checkpoints = checkpoints_folder(r->checkpoints),
                                         .resume = checkpoints_resume(r->checkpoints),
                                         .nccl_port = nccl_port(r),
                                         .image_variables = image_variables,
                                         .image = image };
    tracking_folder(r->tracking, checkpoints_job_folder(r->checkpoints), r->start->attempt->attempt, r->start->rank);
    char **environment = environment_new(r->start, &r->place, &r->scratch, r->tracking, &paths);
    nccl_address_keep(r, environment);
    secrets_wipe(r->start->attempt);
    CLEANUP(sandbox_closep) struct sandbox *sandbox = NULL;
    CLEANUP(container_closep) struct container *container = NULL;
    status_t st = image_command_find(r, image, environment, e);
    if (st == ST_OK)
        st = image_container_open(r->start, image, reads_another_job(r->start->attempt) ? getegid() : getgid(),
                                  &r->scratch, &paths, &container, e);
    if (container && container_gpu_problem(container))
        rank_put_notice(r, "gpu_libraries", container_gpu_problem(container));
    if (st == ST_OK)
        st = command_sandbox_open(r->start, &r->scratch, &paths, &sandbox, e);
    if (st == ST_OK)
        st = output_open(r->redactor, &r->output, e);
    if (st == ST_OK) {
        const int outputs[] = { output_command_end(r->output, 1), output_command_end(r->output, 2) };
        const struct process_tree_command command = { .container = container,
                                                      .directory = paths.code ? paths.code : r->scratch.work,
                                                      .argv = argv,
                                                      .variables = environment,
                                                      .sandbox = sandbox,
                                                      .keeps_group = reads_another_job(r->start->attempt) };
        st = process_tree_start(&r->tree, &command, outputs, e);
        output_started(r->output);
    }
    environment_free(environment);
    free(argv);
    return st;
}

/* The leader starts the command for this rank too. A stop reaches the leader at the same time. */
static status_t leader_follow(struct rank *r, struct err *e) {
    TRY(launcher_leader_open(&r->place, &r->leader, e));
    while (r->leader >= 0 && !r->agent_gone && clock_mono_ms() < r->kill_at) {
        silence_tick_follower(&r->silence);
        wait_once(r);
    }
    return ST_OK;
}

static void command_wait(struct rank *r) {
    r->started_ms = clock_mono_ms();
    while (!r->agent_gone && clock_mono_ms() < r->kill_at) {
        process_tree_reap(&r->tree);
        /* After a stop the rest of the group may still save its state, when a shell that began it has ended. */
        if (!r->tree.command && !(r->stopped && process_tree_group_lives(&r->tree)))
            break;
        silence_tick(&r->silence, r->output, r->measured ? r->step : -1);
        wait_once(r);
    }
    process_tree_kill(&r->tree);
    rank_fifo_end(r);
    tracking_end(r->tracking);
    output_end(r->output, r->stopped || r->agent_gone ? OUTPUT_STOPPED_MS : OUTPUT_END_MS);
    r->tree.group = 0; /* the trackers have ended */
    checkpoints_end(r);
}

static status_t command_run(struct rank *r, struct err *e) {
    silence_start(&r->silence, r->start->attempt->spec->program, r->emitter);
    if (launcher_follows(r->start->attempt->spec->program, &r->place)) {
        secrets_wipe(r->start->attempt); /* the leader's command has them */
        return leader_follow(r, e);
    }
    TRY(command_start(r, e));
    command_wait(r);
    return ST_OK;
}

/* Other ranks may report no metric at all, and a later attempt had a reason to begin. */
static bool is_early(const struct rank *r) {
    return r->start->rank == 0 && r->start->attempt->attempt == 1 && !r->measured &&
           clock_mono_ms() - r->started_ms < EARLY_MS;
}

static void end_describe(const struct rank *r, struct program_end *end) {
    static char tail[OUTPUT_TAIL_BYTES];
    const Trainyard__V1__AttemptStart *at = r->start->attempt;
    struct failure_facts facts = { .command = at->spec->program->command[0],
                                   .wait_status = r->tree.wait_status,
                                   .early = is_early(r),
                                   .has_peers = at->world_size > 1,
                                   .many = launcher_is_host(at->spec->program),
                                   .error_file = r->scratch.error_file,
                                   .redactor = r->redactor };
    end->step = r->step;
    if (r->agent_gone) {
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST;
        status_ignore(err_set(&end->why, ST_UNAVAILABLE, "the agent is gone"));
    } else if (r->stopped && *r->raised.msg && r->tree.wait_status != 0) {
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
        end->why = r->raised;
    } else if (r->stopped) {
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
        status_ignore(err_set(&end->why, ST_CANCELLED, "asked to stop%s%s", *r->reason ? ": " : "", r->reason));
    } else if (r->tree.wait_status == 0) {
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
    } else {
        facts.tail = tail;
        facts.n_tail = output_tail(r->output, tail);
        failure_describe(&facts, &end->cause, &end->why);
    }
}

static void end_fail(struct rank *r, struct program_end *end) {
    if (r->began.event == CHECKPOINTS_FAILED)
        end->cause = r->began.cause;
    else if (r->agent_gone || r->stopped)
        end_describe(r, end);
    else if (python_environment_status(&r->python, NULL) != ST_OK)
        end->cause = python_environment_cause(&r->python);
    else if (r->lacks_command)
        end->cause = TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC;
    else
        end->cause = code_cause(&r->code, r->start->attempt->spec->program);
}

static status_t rank_open(struct rank *r, struct err *e) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGCHLD);
    r->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (r->signals < 0)
        return err_errno(e, "open a descriptor for signals");
    TRY(scratch_open(&r->scratch, e));
    const bool whole = r->start->rank == 0; /* all ranks see the program's own folder */
    const struct tracking_options options = { .scratch = r->scratch.directory,
                                              .work = r->scratch.work,
                                              .tensorboard = whole ? r->start->attempt->spec->program->tensorboard : "",
                                              .sink = { r, rank_on_row, rank_on_event },
                                              .tick = rank_on_tick,
                                              .artifact = rank_on_artifact };
    r->tracking = tracking_open(&options);
    const char *how = r->start->attempt->spec->program->stop;
    return how && strcmp(how, "step") == 0 ? stop_step_open(&r->stop_step, r->scratch.directory, e) : ST_OK;
}

void program_run(const Trainyard__V1__WorkerStart *start, const struct redactor *redactor, int commands,
                 struct frame_reader *reader, struct emitter *emitter, struct program_end *end) {
    struct rank r = { .start = start,
                      .commands = commands,
                      .signals = -1,
                      .leader = -1,
                      .reader = reader,
                      .emitter = emitter,
                      .redactor = redactor,
                      .scratch = { .lock = -1, .fifo = -1 },
                      .stop_step = { .fd = -1 },
                      .step_by = DEADLINE_NEVER,
                      .kill_at = DEADLINE_NEVER };
    struct reserved_port port = { .fd = -1 };
    status_t st = rank_open(&r, &end->why);
    commands_take(&r);
    if (st == ST_OK)
        st = checkpoints_begin(&r, &end->why);
    if (st == ST_OK)
        st = ranks_locate(&r, &port, &end->why);
    closep(&port.fd);
    if (st == ST_OK)
        st = code_wait(&r, &end->why);
    if (st == ST_OK && !r.stopped && !r.agent_gone) {
        rank_put_joined(&r);
        st = environment_wait(&r, &end->why);
    }
    if (st == ST_OK && (r.stopped || r.agent_gone))
        st = err_set(&end->why, ST_CANCELLED, "stopped before the command was started");
    if (st == ST_OK)
        st = command_run(&r, &end->why);
    secrets_wipe(start->attempt);
    if (st == ST_OK)
        end_describe(&r, end);
    else
        end_fail(&r, end);
    if (r.rendezvous)
        trainyard__v1__worker_command__free_unpacked(r.rendezvous, NULL);
    tracking_close(r.tracking);
    code_done(&r.code);
    python_environment_done(&r.python);
    r.checkpoints = checkpoints_close(r.checkpoints);
    closep(&r.signals);
    closep(&r.leader);
    output_close(r.output);
    stop_step_close(&r.stop_step);
    end->scratch = r.scratch;
}
