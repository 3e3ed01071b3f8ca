/* Watchers of jobs: streams that are woken when their job has new events, metrics or logs. Waking is only a hint to
 * read again; the new data is in the database and in progress.h.
 *
 *     watcher = { .job = job, .wake = wake, .ctx = call };
 *     job_watchers_add(w, &watcher);       // when the stream begins
 *     job_watchers_remove(w, &watcher);    // in its done: watcher.wake is not called after this returns
 *
 * The caller owns the memory of a watcher. The server's limit on calls bounds their number. Thread-safe. */
#ifndef SERVICE_CONTROLLER_JOB_WATCHERS_H
#define SERVICE_CONTROLLER_JOB_WATCHERS_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

struct job_watcher {
    int64_t job;
    void (*wake)(void *ctx); /* called with the lock held: must not block or call back */
    void *ctx;
    bool soon;
    struct job_watcher *next, *prev;
};

struct job_watchers;
struct job_watchers *job_watchers_new(void);
struct job_watchers *job_watchers_free(struct job_watchers *w); /* the list must be empty */
CLEANUP_DEFINE(struct job_watchers *, job_watchers_free)

void job_watchers_add(struct job_watchers *w, struct job_watcher *sub);
void job_watchers_remove(struct job_watchers *w, struct job_watcher *sub);

/* Wakes the job's watchers at once, after an event was stored. */
void job_watchers_notify(struct job_watchers *w, int64_t job);
/* Wakes all watchers: this controller no longer leads. */
void job_watchers_notify_all(struct job_watchers *w);
/* Wakes them at the next job_watchers_flush, after metrics or log lines were stored. The loop flushes ten times a
 * second. */
void job_watchers_notify_later(struct job_watchers *w, int64_t job);
/* The same for one watcher, which has held something back. */
void job_watchers_wake_later(struct job_watchers *w, struct job_watcher *sub);
void job_watchers_flush(struct job_watchers *w);

#endif
