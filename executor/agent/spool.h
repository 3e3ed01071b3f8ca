/* Records on disk: for each (job, attempt, rank) an append-only log of records, numbered 1, 2, ... without a gap, kept
 * until the controller has stored them. A kill -9 of the agent at any moment loses nothing that was appended.
 *
 *     spool_open("DIR/spool", limit, &spool, e);              // recovers every log: torn tails are cut off
 *     spool_log_open(spool, &key, &log, e);                   // the existing one, or a new one
 *     spool_append(log, bytes, n, &sequence, e);              // RESOURCE_EXHAUSTED: nothing was appended, try later
 *     spool_read(log, first, 256 << 10, visit, ctx, e);       // in order, from `first`
 *     spool_ack(log, sequence);                               // the controller has stored the records up to here
 *     spool_rewind(log, sequence);                            // it no longer has those after this sequence
 *     spool_log_remove(log);                                  // the attempt is over and acknowledged, or fenced
 *
 * On disk: DIR/<job>-<attempt>-<rank>/<first sequence> are segments of records (spool_record.h). A segment that is
 * acknowledged to its end is kept, since the controller's database may be set back to a backup; when kept segments take
 * more than a quarter of the limit, or their space is needed, the oldest of all logs is deleted first. Nothing is
 * fsynced: written records survive the death of the process, and records that are lost in a crash of the host belong to
 * steps that the next attempt repeats.
 *
 * Limits: all logs together take at most `limit` bytes of files. A full disk counts as a full spool. A damaged record
 * in the middle (a disk's fault: a crash only tears the tail) ends its log there, and spool_log_damage reports it.
 *
 * Owned by one thread. Logs belong to their spool and are freed by spool_log_remove or spool_close. */
#ifndef EXECUTOR_AGENT_SPOOL_H
#define EXECUTOR_AGENT_SPOOL_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct spool;
struct spool_log;

struct spool_key {
    int64_t job;
    int32_t attempt, rank;
};

/* limit_bytes: at least 64 KiB. Creates the folder if it is missing. */
MUST_CHECK status_t spool_open(const char *folder, int64_t limit_bytes, struct spool **ret, struct err *e);
/* Frees the memory; the files stay for the next start. */
struct spool *spool_close(struct spool *s);
CLEANUP_DEFINE(struct spool *, spool_close)

/* What a full spool did to the records of all relays, since spool_open. */
struct spool_full {
    int64_t samples_dropped, lines_dropped, waits;
};
struct spool_full *spool_full(struct spool *s);
int64_t spool_waiting(const struct spool *s); /* records that are not acknowledged */
int64_t spool_bytes(const struct spool *s);   /* that wait for an acknowledgement; kept segments do not count */
int64_t spool_limit(const struct spool *s);

/* All logs, in no particular order; valid until a log is opened or removed. */
size_t spool_count(const struct spool *s);
struct spool_log *spool_at(const struct spool *s, size_t i);

struct spool_log *spool_log_find(const struct spool *s, const struct spool_key *key); /* NULL if there is none */
MUST_CHECK status_t spool_log_open(struct spool *s, const struct spool_key *key, struct spool_log **ret, struct err *e);
/* Removes the log's files and frees its memory; the pointer is invalid afterwards. */
void spool_log_remove(struct spool_log *log);

const struct spool_key *spool_log_key(const struct spool_log *log);
int64_t spool_log_first(const struct spool_log *log); /* the oldest that can be read; last + 1 when empty */
int64_t spool_log_last(const struct spool_log *log);  /* 0 before the first append */
int64_t spool_log_acked(const struct spool_log *log); /* a restart forgets acks within the oldest segment */
/* A sentence if recovery or reading cut off records of this log that were not a torn tail; else NULL. */
const char *spool_log_damage(const struct spool_log *log);

/* n: 1 .. LIMIT_RECORD_BYTES. RESOURCE_EXHAUSTED when the spool or the disk is full; the log is then as it was. */
MUST_CHECK status_t spool_append(struct spool_log *log, const void *data, size_t n, int64_t *ret_sequence,
                                 struct err *e);

/* Calls visit for the records from sequence `first` on, until max_bytes of payload (at least one record, when there is
 * one), the end, or visit returning false. DATA_LOSS: the record at `first` or a later one was damaged on disk; the log
 * ends before it now. */
typedef bool (*spool_visit_fn)(void *ctx, int64_t sequence, const uint8_t *data, size_t n);
MUST_CHECK status_t spool_read(struct spool_log *log, int64_t first, size_t max_bytes, spool_visit_fn visit, void *ctx,
                               struct err *e);

/* Records up to this sequence are acknowledged. A sequence that is lower than before, or beyond the last, is ignored.
 * Never fails: a file that cannot be removed now is removed later. */
void spool_ack(struct spool_log *log, int64_t sequence);
/* Records after this sequence wait for an acknowledgement again, as far as the spool still has them: from
 * spool_log_acked + 1 on. No effect if they were not acknowledged. */
void spool_rewind(struct spool_log *log, int64_t sequence);

#endif
