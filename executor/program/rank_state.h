/* What rank.c, rank_records.c and rank_stop.c share: the state of one rank, and the functions that they call of each
 * other. For these files only. */
#ifndef EXECUTOR_PROGRAM_RANK_STATE_H
#define EXECUTOR_PROGRAM_RANK_STATE_H

#include "api/codec/frame.h"
#include "base/clock.h"
#include "base/status.h"
#include "executor/program/checkpoints.h"
#include "executor/program/code.h"
#include "executor/program/metric_lines.h"
#include "executor/program/output.h"
#include "executor/program/process_tree.h"
#include "executor/program/python_environment.h"
#include "executor/program/redact.h"
#include "executor/program/rendezvous.h"
#include "executor/program/scratch.h"
#include "executor/program/silence.h"
#include "executor/program/stop_step.h"
#include "executor/program/tracking/tracking.h"
#include "executor/worker/emit.h"

#include <stdbool.h>
#include <stdint.h>
#include <trainyard/v1/worker.pb-c.h>

enum { RANK_REASON_BYTES = 240, RANK_NCCL_BYTES = 80, RANK_LATE = 16 };

/* Stored, and reported at that time. */
struct late_checkpoint {
    struct checkpoints_event event;
    deadline_ms_t at;
};

struct rank {
    const Trainyard__V1__WorkerStart *start;
    int commands, signals;
    int leader; /* a rank that starts no command: readable when the leader of its host has ended; else -1 */
    struct frame_reader *reader;
    struct emitter *emitter;
    const struct redactor *redactor;
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
    struct python_environment python;
    struct place place;
    char nccl_address[RANK_NCCL_BYTES]; /* rank 0: where its NCCL reports on all ranks; else "" */
    struct checkpoints *checkpoints;
    struct checkpoints_event began; /* CHECKPOINTS_READY or CHECKPOINTS_FAILED; else the rank still prepares */
    bool checkpoints_over;
    struct late_checkpoint late[RANK_LATE]; /* the oldest first */
    size_t n_late;
    bool stopped, measured, agent_gone;
    bool lacks_command; /* the image, which is the same on all hosts, has no such command */
    struct err raised;  /* by the command before the stop; empty: nothing */
    char reason[RANK_REASON_BYTES];
    deadline_ms_t kill_at;
    int64_t started_ms;
    int64_t step;
    int refused;
};

/* ---- rank_records.c ---- */

/* kind: of the event, in snake_case. message: one sentence. */
void rank_put_notice(struct rank *r, const char *kind, const char *message);
void rank_put_address(struct rank *r, const char *address);
void rank_put_environment(struct rank *r, const Trainyard__V1__EnvironmentReport *report);
void rank_put_joined(struct rank *r);

/* For tracking_options; ctx is the rank. */
void rank_on_row(void *ctx, int64_t step, char *const *names, const double *values, size_t n);
void rank_on_event(void *ctx, const char *kind, const char *message);
void rank_on_tick(void *ctx);
void rank_on_artifact(void *ctx, const char *path, int64_t bytes, const char *sha256);

/* Reads the metrics FIFO once; false: it was empty. */
bool rank_fifo_read(struct rank *r);
/* Reads the FIFO until it is empty; bounded. */
void rank_fifo_drain(struct rank *r);
/* The same, when no writer is left. */
void rank_fifo_end(struct rank *r);

/* ---- rank_stop.c ---- */

/* Keeps the exception that the command has raised just before the stop, if it has raised one. */
void rank_raised_keep(struct rank *r);
/* The command's process group gets SIGTERM. reason: of the first stop, which is kept. */
void rank_stop_at_once(struct rank *r, const char *reason);
/* Orders of the agent. */
void rank_stop_handle(struct rank *r, const Trainyard__V1__WorkerStop *command);
void rank_stop_step_handle(struct rank *r, int64_t step);
void rank_stop_for_stacks(struct rank *r);
/* Notes the step that the program has finished. */
void rank_stop_step_sample(struct rank *r);
/* Chooses and sends the stop step, if rank 0 knows enough for it. Called again while r->choosing. */
void rank_stop_step_send(struct rank *r);
/* Gives up waiting for the stop step when its time is over. */
void rank_stop_step_wait(struct rank *r);

#endif
