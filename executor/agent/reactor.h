/* The agent's one thread: waits for descriptors, timers and messages from other threads, and calls one handler at a
 * time. Only this thread uses the data of the agent, so the data needs no lock.
 *
 *     struct reactor_watch w = { .fd = fd, .ready = on_readable, .ctx = self };
 *     TRY(reactor_watch_add(loop, &w, EPOLLIN, e));
 *     struct reactor_timer t = { .fire = on_tick, .ctx = self };
 *     reactor_timer_set(loop, &t, 2000);
 *     reactor_run(loop, e);                          // until reactor_quit
 *
 * The caller owns the memory of watches and timers; a handler may remove or free any of them, also its own. Only the
 * functions that post may be called from another thread. */
#ifndef EXECUTOR_AGENT_REACTOR_H
#define EXECUTOR_AGENT_REACTOR_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct reactor;

struct reactor_watch {
    int fd;
    void (*ready)(void *ctx, uint32_t events); /* events: EPOLLIN, EPOLLOUT, EPOLLHUP, ... */
    void *ctx;
    bool added;      /* the loop's */
    uint32_t events; /* the loop's */
};

struct reactor_timer {
    void (*fire)(void *ctx);
    void *ctx;
    deadline_ms_t at;           /* the loop's */
    struct reactor_timer *next; /* the loop's */
    bool armed;                 /* the loop's */
};

MUST_CHECK status_t reactor_open(struct reactor **ret, struct err *e);
struct reactor *reactor_close(struct reactor *l);
CLEANUP_DEFINE(struct reactor *, reactor_close)

/* Level-triggered. events 0 pauses the watch: nothing is reported, not even a hang-up. */
MUST_CHECK status_t reactor_watch_add(struct reactor *l, struct reactor_watch *w, uint32_t events, struct err *e);
void reactor_watch_change(struct reactor *l, struct reactor_watch *w, uint32_t events);
void reactor_watch_remove(struct reactor *l,
                          struct reactor_watch *w); /* allowed if it is not added; call it before the fd is closed */

/* Fires once, after ms; if the timer is already armed, this replaces its time. */
void reactor_timer_set(struct reactor *l, struct reactor_timer *t, int64_t ms);
void reactor_timer_cancel(struct reactor *l, struct reactor_timer *t);

/* fn(ctx, payload) on the loop's thread, in the order of the posts. Any thread. RESOURCE_EXHAUSTED if 4,096 posts
 * wait (the loop is stuck): nothing was posted. fn owns the payload once it is posted; reactor_close gives posts that
 * still wait to their `drop`, if there is one. */
struct reactor_post {
    void (*fn)(void *ctx, void *payload);
    void (*drop)(void *payload);
    void *ctx, *payload;
};
MUST_CHECK status_t reactor_post(struct reactor *l, const struct reactor_post *post, struct err *e);
/* Reserves one of the 4,096 places for a post that must not be lost. reactor_post_reserved uses the place and cannot
 * fail; reactor_unreserve gives it back. Any thread. RESOURCE_EXHAUSTED if no place is free. */
MUST_CHECK status_t reactor_reserve(struct reactor *l, struct err *e);
void reactor_post_reserved(struct reactor *l, const struct reactor_post *post);
void reactor_unreserve(struct reactor *l);

MUST_CHECK status_t reactor_run(struct reactor *l, struct err *e);
void reactor_quit(struct reactor *l); /* reactor_run returns after the current handler */

#endif
