/* Reads the agent's commands after the first one, in a thread of its own, until the process ends.
 *
 *   rendezvous            wakes control_rendezvous
 *   data                  wakes control_data; after the last report they are dropped
 *   text_encoded          wakes control_text
 *   checkpoint_committed  is passed to the engine
 *   threads               is passed to the engine, for its next step
 *   stop                  asks the engine to stop at its next step; before all ranks have joined it acts as SIGTERM
 *   SIGTERM               aborts the collective; a process that still runs 1.5 s later exits
 *   end of the pipe       the agent is gone: the process exits with AGENT_LOST at once
 *
 * The process blocks SIGTERM before any thread starts. */
#ifndef EXECUTOR_WORKER_CONTROL_H
#define EXECUTOR_WORKER_CONTROL_H

#include "api/codec/frame.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdbool.h>
#include <trainyard/v1/worker.pb-c.h>

struct collective;
struct control;
struct engine;

/* The reader may hold commands that came with the first one; it belongs to the thread from now on. */
MUST_CHECK status_t control_open(int fd, struct frame_reader *reader, struct control **ret, struct err *e);
/* The thread has no engine and no collective any more, and the process is about to exit. */
struct control *control_close(struct control *c);
CLEANUP_DEFINE(struct control *, control_close)

/* The receivers of commands; NULL before each is open, and again before it is closed. An earlier stop or number of
 * threads is passed on at once. */
void control_set_engine(struct control *c, struct engine *engine);
void control_set_collective(struct control *c, struct collective *collective);
/* All ranks have joined with their state: from now on a stop lets them write a checkpoint. */
void control_joined(struct control *c);

/* Waits for the rendezvous. The message stays valid until control_close. OK with NULL after tick_ms without one: call
 * again. CANCELLED after a stop. */
MUST_CHECK status_t control_rendezvous(struct control *c, int tick_ms, const Trainyard__V1__Rendezvous **ret,
                                       struct err *e);

/* The next report about the job's data, which the caller frees. OK with NULL after tick_ms without one: call again.
 * CANCELLED after a stop. */
MUST_CHECK status_t control_data(struct control *c, int tick_ms, Trainyard__V1__WorkerCommand **ret, struct err *e);

/* The same for the next report about a text that the rank has asked for. */
MUST_CHECK status_t control_text(struct control *c, int tick_ms, Trainyard__V1__WorkerCommand **ret, struct err *e);

/* Waits until the agent has reported what became of the shard of this step: an error if it is not in the store.
 * CANCELLED after SIGTERM, and after control_give_up_shards. */
MUST_CHECK status_t control_shard(struct control *c, int64_t step, struct err *e);
/* The rank ends: nobody waits for a shard any more. */
void control_give_up_shards(struct control *c);

/* Whether a stop or SIGTERM has come, and why ("" when none was given). ret has n bytes. */
bool control_stopped(struct control *c, char *ret, size_t n);
/* Whether SIGTERM has come, or a stop before all ranks had joined: the rank waits for nothing. */
bool control_terminated(struct control *c);

#endif
