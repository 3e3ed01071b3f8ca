/* The agent's one thread: waits for descriptors, timers and messages from other threads, and calls one handler at a
 * time. Everything that the agent owns is touched only from here, so nothing in it needs a lock.
 *
 *     struct loop_watch w = { .fd = fd, .ready = on_readable, .ctx = self };
 *     TRY(loop_watch_add(loop, &w, EPOLLIN, e));
 *     struct loop_timer t = { .fire = on_tick, .ctx = self };
 *     loop_timer_set(loop, &t, 2000);
 *     loop_run(loop);                             // until loop_quit
 *
 * Watches and timers are the caller's memory; a handler may remove or free any of them, also its own. Only loop_post
 * may be called from another thread. */
#ifndef EXECUTOR_AGENT_LOOP_H
#define EXECUTOR_AGENT_LOOP_H

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

struct loop;

struct loop_watch {
    int fd;
    void (*ready)(void *ctx, uint32_t events); /* events: EPOLLIN, EPOLLOUT, EPOLLHUP, ... */
    void *ctx;
    bool added;      /* the loop's */
    uint32_t events; /* the loop's */
};

struct loop_timer {
    void (*fire)(void *ctx);
    void *ctx;
    deadline_ms_t at;        /* the loop's */
    struct loop_timer *next; /* the loop's */
    bool armed;              /* the loop's */
};

MUST_CHECK status_t loop_open(struct loop **ret, struct err *e);
struct loop *loop_close(struct loop *l);
CLEANUP_DEFINE(struct loop *, loop_close)

/* Level-triggered. events 0 pauses the watch: nothing is reported, not even a hang-up. */
MUST_CHECK status_t loop_watch_add(struct loop *l, struct loop_watch *w, uint32_t events, struct err *e);
void loop_watch_change(struct loop *l, struct loop_watch *w, uint32_t events);
void loop_watch_remove(struct loop *l, struct loop_watch *w); /* fine when it is not added; before its fd is closed */

/* Once, after ms; a timer that is already armed is moved. */
void loop_timer_set(struct loop *l, struct loop_timer *t, int64_t ms);
void loop_timer_cancel(struct loop *l, struct loop_timer *t);

/* fn(ctx, payload) on the loop's thread, in the order of the posts. Any thread. RESOURCE_EXHAUSTED when 4,096 posts
 * wait (the loop is stuck): nothing was posted. The payload's owner is fn once it is posted; posts that loop_close
 * finds are dropped by their `drop`, if there is one. */
struct loop_post {
    void (*fn)(void *ctx, void *payload);
    void (*drop)(void *payload);
    void *ctx, *payload;
};
MUST_CHECK status_t loop_post(struct loop *l, const struct loop_post *post, struct err *e);

MUST_CHECK status_t loop_run(struct loop *l, struct err *e);
void loop_quit(struct loop *l); /* loop_run returns after the present handler */

#endif
