/* Sends records to the agent: a bounded queue, and one thread that writes it to a pipe, so that an agent that does not
 * read costs no step until the queue is full.
 *
 *     emitter_open(RECORDS_FD, EMIT_QUEUE_BYTES, &em, e);
 *     emitter_put(em, WORKER_RECORD(JOINED, joined, &joined)); // any thread; blocks while the queue is full
 *     emitter_progress(em);                                    // the compute thread made progress
 *     emitter_close(em, 10000);                                // everything is in the pipe, or ten seconds have passed
 *
 * Once a second the thread sends WorkerAlive with the progress counter, and whether a thread waits for the queue. When
 * the reader of the pipe is gone, the process ends with the exit code of AGENT_LOST. */
#ifndef EXECUTOR_WORKER_EMIT_H
#define EXECUTOR_WORKER_EMIT_H

#include "base/cleanup.h"
#include "base/status.h"

#include <trainyard/v1/worker.pb-c.h>

/* At 300 bytes for each of 500 steps a second, an agent may stop for a minute and three quarters. */
enum { EMIT_QUEUE_BYTES = 16 << 20, EMIT_ALIVE_MS = 1000 };

struct emitter;

/* fd is borrowed. queue_bytes: EMIT_QUEUE_BYTES but in tests. */
MUST_CHECK status_t emitter_open(int fd, size_t queue_bytes, struct emitter **ret, struct err *e);
/* Stops the thread when the queue is empty or timeout_ms have passed; records left in the queue are lost. No other
 * thread may use the emitter any more. */
struct emitter *emitter_close(struct emitter *em, int timeout_ms);

/* A record that lives as long as its block: WORKER_RECORD(JOINED, joined, &joined). */
#define WORKER_RECORD(CASE, member, value)                                                                             \
    (&(Trainyard__V1__WorkerRecord){ .base = PROTOBUF_C_MESSAGE_INIT(&trainyard__v1__worker_record__descriptor),       \
                                     .record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_##CASE,                       \
                                     .member = (value) })

/* Stamps the record's time and queues it. A record that is larger than LIMIT_RECORD_BYTES is dropped; no record of
 * this program is. */
void emitter_put(struct emitter *em, Trainyard__V1__WorkerRecord *record);
void emitter_progress(struct emitter *em);
/* From now on the process does not end when the reader is gone: later records are lost, and the caller learns of it
 * from the other pipe. */
void emitter_outlive_reader(struct emitter *em);

/* Replaces records before they are queued. Returns a changed copy, for protobuf_c_message_free_unpacked, or NULL: the
 * record is queued as it is. Any thread that puts a record calls it. */
typedef ProtobufCMessage *emitter_filter(void *ctx, const Trainyard__V1__WorkerRecord *record);
/* Before another thread uses the emitter. */
void emitter_set_filter(struct emitter *em, emitter_filter *filter, void *ctx);

/* A line for a person who reads the job's log, as LogText of the stream "worker". */
void emitter_log(struct emitter *em, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#endif
