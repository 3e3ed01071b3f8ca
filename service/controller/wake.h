/* Who wants to know when something of a job is new: watchers and log tails. Waking is only a hint to look again; what
 * is new stands in the database and in progress.h.
 *
 *     sub = { .job = job, .wake = wake, .ctx = call };
 *     wake_subscribe(w, &sub);          // when the stream begins
 *     wake_unsubscribe(w, &sub);        // in its done: sub.wake is not called after this returns
 *
 * A subscription is the caller's memory; their number is bounded by the server's calls. Thread-safe. */
#ifndef SERVICE_CONTROLLER_WAKE_H
#define SERVICE_CONTROLLER_WAKE_H

#include "base/cleanup.h"

#include <stdbool.h>
#include <stdint.h>

struct wake_sub {
    int64_t job;
    void (*wake)(void *ctx); /* with the hub's lock held: must not block or call back */
    void *ctx;
    bool soon;
    struct wake_sub *next, *prev;
};

struct wakes;
struct wakes *wakes_new(void);
struct wakes *wakes_free(struct wakes *w); /* nobody may be subscribed */
CLEANUP_DEFINE(struct wakes *, wakes_free)

void wake_subscribe(struct wakes *w, struct wake_sub *sub);
void wake_unsubscribe(struct wakes *w, struct wake_sub *sub);

/* An event of the job is stored: at once. */
void wake_now(struct wakes *w, int64_t job);
/* Metrics or log lines are: with the next wake_flush, which the loop calls ten times a second, as fast as anyone reads.
 */
void wake_soon(struct wakes *w, int64_t job);
void wake_flush(struct wakes *w);

#endif
