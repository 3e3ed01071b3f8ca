/* Followers of jobs: watchers and log tails that wait for something new, and then may block on the database to fetch
 * it. A few threads serve any number of them; a follower that waits costs no thread and no query.
 *
 *     f = follow_start(hub, job, serve, release, ctx);   // serve(ctx) runs soon, and after each follow_wake(hub, job)
 *     follow_poke(f);                                    // its peer can take more
 *     follow_stop(f);                                    // release(ctx) runs once, when no serve runs any more
 *
 * serve is never called twice at once for the same follower. Bounded by FOLLOW_MOST followers; each holds no more than
 * its ctx. Thread-safe. */
#ifndef SERVICE_CONTROLLER_FOLLOW_H
#define SERVICE_CONTROLLER_FOLLOW_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdint.h>

/* Streams that one controller follows at once: each is a person or a page. */
#define FOLLOW_MOST 4096
/* Between two servings that asked for FOLLOW_LATER: ten lines a second are as fast as anyone reads. */
#define FOLLOW_LATER_MS 100

enum follow_next {
    FOLLOW_WAIT,  /* until the job or the follower is woken */
    FOLLOW_LATER, /* the same, or at most FOLLOW_LATER_MS after a wake that came just now */
    FOLLOW_AGAIN, /* there is more already */
    FOLLOW_DONE,  /* never again; follow_stop is still called by the owner */
};

struct follow_hub;
struct follower;

MUST_CHECK status_t follow_hub_open(int threads, struct follow_hub **ret, struct err *e);
/* Every follower must be stopped, or be stopped by its owner while this waits. */
struct follow_hub *follow_hub_close(struct follow_hub *hub);
CLEANUP_DEFINE(struct follow_hub *, follow_hub_close)

/* RESOURCE_EXHAUSTED past FOLLOW_MOST; nothing was called then. job 0: woken by pokes only. */
MUST_CHECK status_t follow_start(struct follow_hub *hub, int64_t job, enum follow_next (*serve)(void *ctx),
                                 void (*release)(void *ctx), void *ctx, struct follower **ret, struct err *e);
void follow_poke(struct follower *f);
void follow_stop(struct follower *f); /* does not wait for a serve that runs; f is invalid afterwards */

/* Something of the job is new in the database or in its progress. Cheap when nobody follows it. */
void follow_wake(struct follow_hub *hub, int64_t job);

#endif
