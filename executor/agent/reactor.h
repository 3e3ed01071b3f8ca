/* The agent's one thread: waits for descriptors, timers and messages from other threads, and calls one handler at a
 * time. Everything that the agent owns is touched only from here, so nothing in it needs a lock.
 *
 *     struct reactor_watch w = { .fd = fd, .ready = on_readable, .ctx = self };
 *     TRY(reactor_watch_add(loop, &w, EPOLLIN, e));
 *     struct reactor_timer t = { .fire = on_tick, .ctx = self };
 *     reactor_timer_set(loop, &t, 2000);
 *     reactor_run(loop, e);                          // until reactor_quit
 *
 * Watches and timers are the caller's memory; a handler may remove or free any of them, also its own. Only what posts
 * may be called from another thread. */
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
                          struct reactor_watch *w); /* fine when it is not added; before its fd is closed */

/* Once, after ms; a timer that is already armed is moved. */
void reactor_timer_set(struct reactor *l, struct reactor_timer *t, int64_t ms);
void reactor_timer_cancel(struct reactor *l, struct reactor_timer *t);

/* fn(ctx, payload) on the loop's thread, in the order of the posts. Any thread. RESOURCE_EXHAUSTED when 4,096 posts
 * wait (the loop is stuck): nothing was posted. The payload's owner is fn once it is posted; posts that reactor_close
 * finds are dropped by their `drop`, if there is one. */
struct reactor_post {
    void (*fn)(void *ctx, void *payload);
    void (*drop)(void *payload);
    void *ctx, *payload;
};
MUST_CHECK status_t reactor_post(struct reactor *l, const struct reactor_post *post, struct err *e);
/* Keeps one of those places for a post that must not be lost, until reactor_post_reserved uses it, which cannot fail,
 * or reactor_unreserve gives it back. Any thread. RESOURCE_EXHAUSTED when no place is free. */
MUST_CHECK status_t reactor_reserve(struct reactor *l, struct err *e);
void reactor_post_reserved(struct reactor *l, const struct reactor_post *post);
void reactor_unreserve(struct reactor *l);

MUST_CHECK status_t reactor_run(struct reactor *l, struct err *e);
void reactor_quit(struct reactor *l); /* reactor_run returns after the present handler */

#endif
