/* Records on their way to the agent: a bounded queue that one thread writes out, so that an agent that stands still
 * costs no step until the queue is full.
 *
 *     emitter_open(RECORDS_FD, EMIT_QUEUE_BYTES, &em, e);
 *     emitter_put(em, &record);            // any thread; blocks while the queue is full, which the agent is told of
 *     emitter_progress(em);                // the compute thread got on
 *     emitter_close(em, 10000);            // everything is in the pipe, or ten seconds are over
 *
 * Once a second the thread says WorkerAlive with the progress counter. When the pipe's reader is gone the process ends
 * with the exit code of AGENT_LOST: there is nobody left to tell. */
#ifndef EXECUTOR_WORKER_EMIT_H
#define EXECUTOR_WORKER_EMIT_H

#include "base/cleanup.h"
#include "base/status.h"

#include <trainyard/v1/worker.pb-c.h>

/* At 300 bytes a step and 500 steps a second: a minute and three quarters of a stopped agent. */
enum { EMIT_QUEUE_BYTES = 16 << 20, EMIT_ALIVE_MS = 1000 };

struct emitter;

/* fd is borrowed. queue_bytes: EMIT_QUEUE_BYTES but in tests. */
MUST_CHECK status_t emitter_open(int fd, size_t queue_bytes, struct emitter **ret, struct err *e);
/* Stops the thread once the queue is empty or timeout_ms is over; what is left then is lost. No other thread may use
 * the emitter any more. */
struct emitter *emitter_close(struct emitter *em, int timeout_ms);

/* Stamps the record's time and queues it. A record that is larger than LIMIT_RECORD_BYTES is dropped (none is). */
void emitter_put(struct emitter *em, Trainyard__V1__WorkerRecord *record);
void emitter_progress(struct emitter *em);

/* A line for a person who reads the job's log, as LogText of the stream "worker". */
void emitter_say(struct emitter *em, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
