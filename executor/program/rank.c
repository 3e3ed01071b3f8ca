/* One thread waits for commands of the agent, signals (SIGTERM, SIGCHLD), lines in the metrics FIFO, requests of
 * trackers, events of the thread for checkpoints, and the next deadline.
 *
 *   preparing    a thread makes the folder for checkpoints and verifies the one to resume from (checkpoints.h)
 *   rendezvous   a gang of several ranks sends its address and waits for all addresses; one rank needs none
 *                the code of the program, if it has any, is waited for, too
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
#include "base/utf8.h"
#include "executor/program/checkpoint_report.h"
#include "executor/program/code.h"
#include "executor/program/environment.h"
#include "executor/program/failure.h"
#include "executor/program/launcher.h"
#include "executor/program/metric_lines.h"
#include "executor/program/output.h"
#include "executor/program/process_tree.h"
#include "executor/program/silence.h"
#include "executor/program/stacks.h"
#include "executor/program/stop_step.h"
#include "executor/program/tracking/tracking.h"
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
    REFUSED_MAX = 10,
    FIFO_READ_BYTES = 64 << 10,
    FIFO_READS = 16, /* a FIFO holds at most 1 MiB; a writer outside the rank's processes must not keep it open */
    REASON_BYTES = 240,
    REFUSED_BYTES = 400,
    EARLY_MS = 60 * 1000,           /* a command that fails so soon will fail again */
    STOP_STEP_GRACE_MS = 60 * 1000, /* with less time, as for a cancel, a program is not asked to finish a step */
    STOP_STEP_WAIT_MS = 10 * 1000,  /* from the stop to the stop step, which usually takes half a second */
    OUTPUT_END_MS = 5000,           /* for the agent to read the last lines */
    OUTPUT_STOPPED_MS = 400,
    RAISED_MS = 30 * 1000, /* an exception may be that old when a stop meets the end of its command */
    STORE_MS = 600 * 1000, /* for the last checkpoint, after the command has ended by itself */
};

struct rank {
    const Trainyard__V1__WorkerStart *start;
    int commands, signals;
    int leader; /* a rank that starts no command: readable when the leader of its host has ended; else -1 */
    struct frame_reader *reader;
    struct emitter *emitter;
    struct scratch scratch;
    struct metric_lines lines;
    struct tracking *tracking;
    struct process_tree tree;
    struct output *output;
    struct silence silence;
    struct stop_step stop_step; /* fd -1: the spec wants a signal */
    bool choosing;              /* this is rank 0, and it has to send the stop step */
    bool chosen;                /* stop_at is the choice: a second stop repeats it */
    int64_t stop_at;
    deadline_ms_t step_by; /* without a stop step until then, the program gets SIGTERM */
    Trainyard__V1__WorkerCommand *rendezvous;
    struct code code;
    struct place place;
    struct checkpoints *checkpoints;
    struct checkpoints_event began; /* CHECKPOINTS_READY or CHECKPOINTS_FAILED; else the rank still prepares */
    bool checkpoints_over;
    bool stopped, measured, agent_gone;
    struct err raised; /* by the command before the stop; empty: nothing */
    char reason[REASON_BYTES];
    deadline_ms_t kill_at;
    int64_t started_ms;
    int64_t step;
    int refused;
};

static char *text(const char *s) { return (char *)(uintptr_t)s; }

/* ---- records ---- */

static void put_notice(struct rank *r, const char *kind, const char *message) {
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    notice.kind = text(kind);
    notice.message = text(message);
    notice.step = r->step;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE;
    record.notice = &notice;
    emitter_put(r->emitter, &record);
}

/* The rows of rank 0 are metrics of the job. The rows of another rank are stored under the number of that rank. */
static void on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct rank *r = ctx;
    Trainyard__V1__MetricRow row = TRAINYARD__V1__METRIC_ROW__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    row.step = step;
    row.n_names = row.n_values = n;
    row.names = (char **)(uintptr_t)names;
    row.values = (double *)(uintptr_t)values;
    row.per_rank = r->start->rank != 0;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS;
    record.metrics = &row;
    emitter_put(r->emitter, &record);
    r->measured = true;
    silence_sign(&r->silence);
    if (step > r->step)
        r->step = step;
}

static void on_line(void *ctx, int64_t step, char *const *names, const double *values, size_t n) {
    struct rank *r = ctx;
    tracking_row(r->tracking, step, names, values, n);
}

static void on_event(void *ctx, const char *kind, const char *message) { put_notice(ctx, kind, message); }

static void tick(void *ctx) {
    struct rank *r = ctx;
    emitter_progress(r->emitter);
}

/* The sentence has bytes of the program. */
static void on_refused(void *ctx, const char *sentence) {
    struct rank *r = ctx;
    char printable[REFUSED_BYTES];
    utf8_copy_printable(sentence, printable, sizeof printable);
    if (++r->refused <= REFUSED_MAX)
        put_notice(r, "metric_refused", printable);
    if (r->refused == REFUSED_MAX)
        put_notice(r, "metric_refused", "further lines that are refused are not reported");
}

static bool fifo_read(struct rank *r) {
    static char data[FIFO_READ_BYTES];
    const struct metric_sink sink = { r, on_line, on_refused };
    ssize_t n = read(r->scratch.fifo, data, sizeof data);
    if (n > 0)
        silence_sign(&r->silence);
    if (n > 0)
        metric_lines_feed(&r->lines, data, (size_t)n, &sink);
    return n > 0;
}

static void fifo_drain(struct rank *r) {
    for (int i = 0; i < FIFO_READS && fifo_read(r); i++)
        continue;
}

/* A last line may have no newline. */
static void fifo_end(struct rank *r) {
    const struct metric_sink sink = { r, on_line, on_refused };
    fifo_drain(r);
    metric_lines_feed(&r->lines, "\n", 1, &sink);
}

static void put_address(struct rank *r, const char *address) {
    Trainyard__V1__RankAddress offered = TRAINYARD__V1__RANK_ADDRESS__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    offered.address = (ProtobufCBinaryData){ .data = (uint8_t *)text(address), .len = strlen(address) };
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ADDRESS;
    record.address = &offered;
    emitter_put(r->emitter, &record);
}

static void put_joined(struct rank *r) {
    Trainyard__V1__RankJoined joined = TRAINYARD__V1__RANK_JOINED__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    joined.from_step = checkpoints_resume_step(r->checkpoints);
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED;
    record.joined = &joined;
    emitter_put(r->emitter, &record);
}

/* ---- stops ---- */

/* The ranks that lose another rank may end before that rank has ended: then it is stopped, but it is the cause. */
static void raised_keep(struct rank *r) {
    static char tail[OUTPUT_TAIL_BYTES];
    if (r->output && clock_mono_ms() - output_last_ms(r->output, 2) < RAISED_MS)
        failure_raised(tail, output_tail(r->output, tail), &r->raised);
}

static void stop_note(struct rank *r, const char *reason) {
    if (!r->stopped)
        snprintf(r->reason, sizeof r->reason, "%s", reason);
    r->stopped = true;
}

static void stop_at_once(struct rank *r, const char *reason) {
    stop_note(r, reason);
    process_tree_signal(&r->tree, SIGTERM);
}

/* Rank 0 has no step if its command does not run. */
static void stop_step_send(struct rank *r) {
    Trainyard__V1__StopStep step = TRAINYARD__V1__STOP_STEP__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    if (!r->chosen && !r->tree.command)
        r->stop_at = -1;
    else if (!r->chosen && !stop_step_choose(&r->stop_step, clock_mono_ms(), &r->stop_at))
        return;
    r->chosen = true;
    r->choosing = false;
    step.step = r->stop_at;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_STOP_STEP;
    record.stop_step = &step;
    emitter_put(r->emitter, &record);
}

/* All ranks stop after the same step: rank 0 chooses it, the others wait for the choice. A stop with a long grace is a
 * pause or a drain: no rank has failed before it. */
static void stop_handle(struct rank *r, const Trainyard__V1__WorkerStop *command) {
    const bool at_leisure = command->grace_ms >= STOP_STEP_GRACE_MS, agreed = at_leisure && r->stop_step.fd >= 0;
    const bool first = !r->stopped;
    if (first && !at_leisure)
        raised_keep(r);
    r->choosing = agreed && r->start->rank == 0;
    if (agreed && r->tree.command) {
        stop_note(r, command->reason);
        if (first) /* a second order comes after an attach: this rank may know the step and save its state */
            r->step_by = deadline_in(STOP_STEP_WAIT_MS);
    } else {
        stop_at_once(r, command->reason);
    }
    if (r->choosing)
        stop_step_send(r);
}

/* Rank 0 may have ended before it could choose, or the step was lost with a connection. */
static void stop_step_wait(struct rank *r) {
    if (clock_mono_ms() < r->step_by)
        return;
    r->step_by = DEADLINE_NEVER;
    put_notice(r, "stop_step_missed", "the step after which all ranks stop did not arrive: the program got SIGTERM");
    stop_at_once(r, "");
}

static void stop_step_handle(struct rank *r, int64_t step) {
    if (r->stop_step.fd < 0 || !r->stopped)
        return;
    r->step_by = DEADLINE_NEVER;
    if (step < 0)
        stop_at_once(r, "");
    else if (!stop_step_set(&r->stop_step, step))
        put_notice(r, "stop_step_missed", "the program had finished the step after which all ranks stop");
}

/* The collection ends the command. The stop order follows, and may come later than the command's end. */
static void stop_for_stacks(struct rank *r) {
    stop_note(r, "no rank made progress");
    stacks_collect(r->output, r->emitter);
}

/* ---- commands and signals ---- */

static void command_take(struct rank *r, Trainyard__V1__WorkerCommand *command) {
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_STACKS && r->output)
        stop_for_stacks(r);
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP)
        stop_handle(r, command->stop);
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP_STEP)
        stop_step_handle(r, command->stop_step->step);
    if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS && !r->rendezvous)
        r->rendezvous = command; /* the agent may send it again: a second one is ignored */
    else if (command->command_case == TRAINYARD__V1__WORKER_COMMAND__COMMAND_CODE_READY)
        code_take(&r->code, command);
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
    char reason[REASON_BYTES];
    while (read(r->signals, &info, sizeof info) == sizeof info) {
        if (info.ssi_signo == SIGCHLD)
            continue;
        snprintf(reason, sizeof reason, "by signal %u", info.ssi_signo);
        if (!r->stopped)
            raised_keep(r);
        stop_at_once(r, reason);
        r->kill_at = deadline_in(TERM_MS);
    }
}

/* ---- checkpoints ---- */

static void checkpoints_read(struct rank *r) {
    struct checkpoints_event event;
    while (checkpoints_take(r->checkpoints, &event)) {
        if (event.event == CHECKPOINTS_READY || event.event == CHECKPOINTS_FAILED)
            r->began = event;
        r->checkpoints_over |= event.event == CHECKPOINTS_ENDED;
        if (event.event == CHECKPOINTS_STORED) {
            fifo_drain(r); /* the metrics of its steps come first */
            silence_sign(&r->silence);
        }
        checkpoint_report(r->emitter, r->checkpoints, &event);
    }
}

/* Handles what has arrived, and returns after PROGRESS_MS at the latest. */
static void wait_once(struct rank *r) {
    const deadline_ms_t alive = deadline_in(r->choosing ? CHOOSING_MS : PROGRESS_MS);
    struct pollfd p[] = { { .fd = r->commands, .events = POLLIN },
                          { .fd = r->signals, .events = POLLIN },
                          { .fd = r->scratch.fifo, .events = POLLIN },
                          { .fd = r->tree.group ? tracking_fd(r->tracking) : -1, .events = POLLIN },
                          { .fd = r->leader, .events = POLLIN },
                          { .fd = r->checkpoints ? checkpoints_fd(r->checkpoints) : -1, .events = POLLIN } };
    emitter_progress(r->emitter);
    if (r->stop_step.fd >= 0)
        stop_step_sample(&r->stop_step, r->measured ? r->step : -1, clock_mono_ms());
    if (r->choosing)
        stop_step_send(r);
    stop_step_wait(r);
    deadline_ms_t until = r->kill_at < alive ? r->kill_at : alive;
    if (r->tree.group && tracking_due(r->tracking) < until)
        until = tracking_due(r->tracking);
    const bool ready = poll(p, 6, deadline_poll_ms(until)) > 0;
    if (r->tree.group)
        tracking_run(r->tracking);
    if (ready && p[2].revents)
        fifo_read(r);
    if (ready && p[5].revents)
        checkpoints_read(r);
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
    char sentence[REASON_BYTES];
    checkpoints_finish(r->checkpoints);
    while (!r->checkpoints_over && !r->agent_gone && clock_mono_ms() < by && clock_mono_ms() < r->kill_at)
        wait_once(r);
    const int64_t step = checkpoints_reading(r->checkpoints);
    snprintf(sentence, sizeof sentence, "the time was over before all bytes of step %lld were read", (long long)step);
    if (step >= 0)
        put_notice(r, "checkpoint_not_stored", sentence);
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
        put_address(r, address);
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

static status_t command_start(struct rank *r, struct err *e) {
    const Trainyard__V1__ProgramSpec *program = r->start->attempt->spec->program;
    char **argv = alloc_zeroed(program->n_command + 1, sizeof *argv); /* ends with NULL */
    memcpy(argv, program->command, program->n_command * sizeof *argv);
    const struct program_paths paths = { .code = code_folder(&r->code),
                                         .stop = r->stop_step.fd >= 0 ? r->stop_step.path : NULL,
                                         .checkpoints = checkpoints_folder(r->checkpoints),
                                         .resume = checkpoints_resume(r->checkpoints) };
    char **environment = environment_new(r->start, &r->place, &r->scratch, r->tracking, &paths);
    status_t st = output_open(&r->output, e);
    if (st == ST_OK) {
        const int outputs[] = { output_command_end(r->output, 1), output_command_end(r->output, 2) };
        const char *folder = paths.code ? paths.code : r->scratch.work;
        st = process_tree_start(&r->tree, folder, argv, environment, outputs, e);
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
    fifo_end(r);
    tracking_end(r->tracking);
    output_end(r->output, r->stopped || r->agent_gone ? OUTPUT_STOPPED_MS : OUTPUT_END_MS);
    r->tree.group = 0; /* the trackers have ended */
    checkpoints_end(r);
}

static status_t command_run(struct rank *r, struct err *e) {
    put_joined(r);
    silence_start(&r->silence, r->start->attempt->spec->program, r->emitter);
    if (launcher_follows(r->start->attempt->spec->program, &r->place))
        return leader_follow(r, e);
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
                                   .error_file = r->scratch.error_file };
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
                                              .sink = { r, on_row, on_event },
                                              .tick = tick };
    r->tracking = tracking_open(&options);
    const char *how = r->start->attempt->spec->program->stop;
    return how && strcmp(how, "step") == 0 ? stop_step_open(&r->stop_step, r->scratch.directory, e) : ST_OK;
}

void program_run(const Trainyard__V1__WorkerStart *start, int commands, struct frame_reader *reader,
                 struct emitter *emitter, struct program_end *end) {
    struct rank r = { .start = start,
                      .commands = commands,
                      .signals = -1,
                      .leader = -1,
                      .reader = reader,
                      .emitter = emitter,
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
    if (st == ST_OK && (r.stopped || r.agent_gone))
        st = err_set(&end->why, ST_CANCELLED, "stopped before the command was started");
    if (st == ST_OK)
        st = command_run(&r, &end->why);
    if (st == ST_OK)
        end_describe(&r, end);
    else
        end_fail(&r, end);
    if (r.rendezvous)
        trainyard__v1__worker_command__free_unpacked(r.rendezvous, NULL);
    tracking_close(r.tracking);
    code_done(&r.code);
    r.checkpoints = checkpoints_close(r.checkpoints);
    closep(&r.signals);
    closep(&r.leader);
    output_close(r.output);
    stop_step_close(&r.stop_step);
    end->scratch = r.scratch;
}
