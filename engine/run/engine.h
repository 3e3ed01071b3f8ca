/* One rank's training, from a resolved configuration to its last step. This is all that a program needs to train: fill
 * a configuration, open, run, close.
 *
 *     struct engine_config config = { .model = { .kind = &model_gpt, .gpt = { .layers = 4, ... } }, ... };
 *     TRY(engine_open(&config, collective, &hooks, &engine, e));     // plans, allocates, loads: the rank has joined
 *     status_t st = engine_run(engine, &outcome, e);                 // all steps; outcome is set on failure, too
 *     engine = engine_close(engine);
 *
 * The engine knows no jobs, pipes or protobuf. It opens no socket (the collective is handed in) and never logs or
 * exits.
 *
 * Threads: open, run and close belong to one thread, the compute thread. engine_stop_request, engine_set_threads and
 * engine_checkpoint_committed may be called from any thread between open and close. Hooks are called from the compute
 * thread, `shard` and `notice` also from the checkpoint writer's thread. A hook that blocks stops the step loop: a full
 * spool slows training down this way.
 *
 * Memory: everything is allocated in engine_open; the step loop allocates nothing. */
#ifndef ENGINE_RUN_ENGINE_H
#define ENGINE_RUN_ENGINE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "engine/run/engine_config.h"

struct engine;

/* Chooses what the configuration leaves open: micro_batch 0, lanes 0, recompute AUTO. The result determines the bits.
 *
 * Every rank of the collective calls it before engine_open, with the same fields open. Every rank reads the data. Rank
 * 0 plans for the largest max_threads and the smallest memory_bytes of all ranks, and sends the result to the others. A
 * run that resumes from a checkpoint keeps the checkpoint's micro_batch and lanes, even if the memory has changed;
 * recompute, which changes no bits, is then chosen to fit. hooks may be NULL; only `progress` is called.
 *
 * Errors: all ranks get the same sentence. INVALID_ARGUMENT: `auto` without memory_bytes, or nothing fits (the sentence
 * says what would fit); those of the data; DATA_LOSS and ABORTED of the checkpoint's manifest. NOT_FOUND,
 * PERMISSION_DENIED and ABORTED are returned on the rank whose host is at fault, and UNAVAILABLE on the others. */
MUST_CHECK status_t engine_resolve(struct engine_config *config, struct collective *collective,
                                   const struct engine_hooks *hooks, struct err *e);

/* How a run ended. On failure the status and its sentence say more. */
enum engine_outcome {
    ENGINE_FINISHED,         /* all steps are done, the final checkpoint is written */
    ENGINE_STOPPED,          /* as requested, at a step boundary that all ranks agreed on; a checkpoint is written */
    ENGINE_BAD_SPEC,         /* the configuration or the data cannot be trained */
    ENGINE_PEER_LOST,        /* another rank disconnected or failed */
    ENGINE_CHECKPOINT_BAD,   /* the resume checkpoint's bytes are not those that were written */
    ENGINE_CHECKPOINT_WRITE, /* the final checkpoint could not be written */
    ENGINE_NUMERIC,          /* NaN or infinite loss or gradient norm */
    ENGINE_INTERNAL,
    ENGINE_HOST_FAULT,            /* this host lacks a file, folder, device or library that another may have */
    ENGINE_CHECKPOINT_UNREADABLE, /* this host cannot read the resume checkpoint's files now */
};

/* What a failed engine_open (or engine_run) means: INVALID_ARGUMENT, UNIMPLEMENTED -> BAD_SPEC; NOT_FOUND,
 * PERMISSION_DENIED, FAILED_PRECONDITION -> HOST_FAULT; ABORTED -> CHECKPOINT_UNREADABLE; UNAVAILABLE,
 * DEADLINE_EXCEEDED, CANCELLED -> PEER_LOST; DATA_LOSS -> CHECKPOINT_BAD; OUT_OF_RANGE -> NUMERIC; else INTERNAL. */
enum engine_outcome engine_outcome_of(status_t st);

/* Reads the data, builds graph and plan, verifies the plan, allocates the arena, loads or initialises the state, and
 * checks that all ranks agree. The collective is borrowed until engine_close; the caller must not use it meanwhile,
 * except for collective_abort. Errors: as engine_outcome_of says; INVALID_ARGUMENT names the field of the spec. */
MUST_CHECK status_t engine_open(const struct engine_config *config, struct collective *collective,
                                const struct engine_hooks *hooks, struct engine **ret, struct err *e);

/* Trains from the loaded step to the last one. *ret is always set. After a failure only engine_close is allowed. */
MUST_CHECK status_t engine_run(struct engine *engine, enum engine_outcome *ret, struct err *e);

/* Ends the run at the next step boundary that all ranks agree on, with a checkpoint. Any thread. */
void engine_stop_request(struct engine *engine);

/* From the next step on this rank computes with this number of threads, limited to 1 .. max_threads. Changes no bits
 * and no byte of the plan. Any thread. */
void engine_set_threads(struct engine *engine, int threads);

/* The checkpoint of this step is durable for the gang. While two are uncommitted, further checkpoints are skipped.
 * Any thread. */
void engine_checkpoint_committed(struct engine *engine, int64_t step);

/* Steps done so far. Any thread. */
int64_t engine_step(const struct engine *engine);

/* The size of the plan in the device's memory, exact to the byte. */
size_t engine_arena_bytes(const struct engine *engine);

/* On rank 0 the highest FLOP/s seen of its device, as engine_config.peak_flops: what was given, or a faster step's. */
double engine_peak_flops(const struct engine *engine);

/* The memory of the host that this rank was planned to need, and that its process has had so far, at most. Resident
 * bytes: backed by files (code, libraries), the rest is anonymous. */
struct engine_memory {
    size_t planned_bytes;
    int64_t peak_bytes, anonymous_bytes, file_bytes;
};
MUST_CHECK status_t engine_memory(const struct engine *engine, struct engine_memory *ret, struct err *e);

/* Of the state after the last step, hex, on every rank. "" before engine_run ended with FINISHED or STOPPED, and if no
 * checkpoints are written (the checkpoint writer computes it). Valid until engine_close. */
const char *engine_weights_sha256(const struct engine *engine);

/* The plan of this rank as text, and its bytes by family. The caller frees the text with free(). */
MUST_CHECK status_t engine_plan_text(const struct engine *engine, char **ret, struct err *e);

struct engine *engine_close(struct engine *engine);
CLEANUP_DEFINE(struct engine *, engine_close)

/* Generates text from a checkpoint. `write` is called with the text as it is generated: whole UTF-8 characters,
 * NUL-terminated, valid during the call; it returns false to stop early. temperature 0 = always the likeliest token.
 * The same seed gives the same text. Errors: NOT_FOUND and DATA_LOSS of the checkpoint; FAILED_PRECONDITION: it has no
 * averaged weights; INVALID_ARGUMENT for a prompt that the tokenizer cannot encode. */
struct engine_sample_request {
    const char *directory;     /* a checkpoint's step folder */
    const struct roots *roots; /* that it must lie below (base/roots.h); NULL: anywhere */
    const char *prompt;        /* may be "": starts from a newline */
    int tokens;
    double temperature;
    int64_t seed;
    bool average; /* the averaged weights (train.ema) instead of the last ones */
    int threads;
    bool (*write)(void *ctx, const char *text);
    void *ctx;
};
MUST_CHECK status_t engine_sample(const struct engine_sample_request *request, struct err *e);

/* Reads and checks all bytes of a checkpoint, as a run that resumes from it does. roots: as above. DATA_LOSS: they are
 * not those that were written; NOT_FOUND, PERMISSION_DENIED: they cannot be read here. */
MUST_CHECK status_t engine_verify(const char *directory, const struct roots *roots, struct err *e);

#endif
