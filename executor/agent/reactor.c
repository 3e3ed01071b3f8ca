/* The event loop: epoll for descriptors, a sorted list for timers, and a ring of posts from other threads behind an
 * eventfd.
 *
 * Each turn waits for one event until the first timer is due, runs its handler or all posts, then runs the timers that
 * are due. epoll_wait returns one event at a time, since a handler may free any other watch. A paused watch is taken
 * out of the epoll set, because epoll reports a hang-up even for an empty mask. `reserved` places of the ring stay free
 * for posts that must not fail. */
#include "executor/agent/reactor.h"

#include "base/alloc.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Enough for some minutes of a loop that is stuck: streams post one message at a time, and each GPU one reading a
 * second.
 */
enum { POSTS_MAX = 4096 };

struct reactor {
    int epoll, wake;
    bool quit;
    struct reactor_timer *timers;
    pthread_mutex_t lock; /* guards the ring of posts below */
    struct reactor_post posts[POSTS_MAX];
    size_t head, count, reserved; /* count + reserved <= POSTS_MAX */
};

status_t reactor_open(struct reactor **ret, struct err *e) {
    CLEANUP(reactor_closep) struct reactor *l = alloc_zeroed(1, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    l->epoll = epoll_create1(EPOLL_CLOEXEC);
    l->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = { .events = EPOLLIN, .data.ptr = NULL };
    if (l->epoll < 0 || l->wake < 0 || epoll_ctl(l->epoll, EPOLL_CTL_ADD, l->wake, &event) < 0)
        return err_errno(e, "open the event loop");
    *ret = take_ptr(&l);
    return ST_OK;
}

struct reactor *reactor_close(struct reactor *l) {
    if (!l)
        return NULL;
    for (; l->count; l->count--, l->head = (l->head + 1) % POSTS_MAX)
        if (l->posts[l->head].drop)
            l->posts[l->head].drop(l->posts[l->head].payload);
    closep(&l->epoll);
    closep(&l->wake);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}

status_t reactor_watch_add(struct reactor *l, struct reactor_watch *w, uint32_t events, struct err *e) {
    struct epoll_event event = { .events = events, .data.ptr = w };
    if (events && epoll_ctl(l->epoll, EPOLL_CTL_ADD, w->fd, &event) < 0)
        return err_errno(e, "watch descriptor %d", w->fd);
    w->added = true;
    w->events = events;
    return ST_OK;
}

void reactor_watch_change(struct reactor *l, struct reactor_watch *w, uint32_t events) {
    if (!w->added || w->events == events)
        return;
    /* A pause takes the descriptor out, because epoll always reports EPOLLHUP. */
    int how = events == 0 ? EPOLL_CTL_DEL : w->events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
    struct epoll_event event = { .events = events, .data.ptr = w };
    epoll_ctl(l->epoll, how, w->fd, &event);
    w->events = events;
}

void reactor_watch_remove(struct reactor *l, struct reactor_watch *w) {
    reactor_watch_change(l, w, 0);
    w->added = false;
}

void reactor_timer_cancel(struct reactor *l, struct reactor_timer *t) {
    if (!t->armed)
        return;
    struct reactor_timer **at = &l->timers;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    t->armed = false;
}

void reactor_timer_set(struct reactor *l, struct reactor_timer *t, int64_t ms) {
    reactor_timer_cancel(l, t);
    t->at = deadline_in(ms);
    struct reactor_timer **at = &l->timers;
    while (*at && (*at)->at <= t->at)
        at = &(*at)->next;
    t->next = *at;
    t->armed = true;
    *at = t;
}

status_t reactor_reserve(struct reactor *l, struct err *e) {
    pthread_mutex_lock(&l->lock);
    bool full = l->count + l->reserved == POSTS_MAX;
    l->reserved += !full;
    pthread_mutex_unlock(&l->lock);
    return full ? err_set(e, ST_RESOURCE_EXHAUSTED, "the agent's loop has %d messages waiting", POSTS_MAX) : ST_OK;
}

void reactor_unreserve(struct reactor *l) {
    pthread_mutex_lock(&l->lock);
    l->reserved--;
    pthread_mutex_unlock(&l->lock);
}

void reactor_post_reserved(struct reactor *l, const struct reactor_post *post) {
    pthread_mutex_lock(&l->lock);
    l->reserved--;
    l->posts[(l->head + l->count++) % POSTS_MAX] = *post;
    pthread_mutex_unlock(&l->lock);
    uint64_t one = 1;
    ssize_t wrote = write(l->wake, &one, sizeof one); /* EAGAIN: the loop is awake already */
    (void)wrote;
}

status_t reactor_post(struct reactor *l, const struct reactor_post *post, struct err *e) {
    TRY(reactor_reserve(l, e));
    reactor_post_reserved(l, post);
    return ST_OK;
}

static bool post_next(struct reactor *l, struct reactor_post *ret) {
    pthread_mutex_lock(&l->lock);
    bool any = l->count > 0;
    if (any) {
        *ret = l->posts[l->head];
        l->head = (l->head + 1) % POSTS_MAX;
        l->count--;
    }
    pthread_mutex_unlock(&l->lock);
    return any;
}

static void posts_run(struct reactor *l) {
    uint64_t n;
    ssize_t got = read(l->wake, &n, sizeof n);
    (void)got;
    struct reactor_post post;
    while (!l->quit && post_next(l, &post))
        post.fn(post.ctx, post.payload);
}

static void timers_run(struct reactor *l) {
    int64_t now = clock_mono_ms();
    while (!l->quit && l->timers && l->timers->at <= now) {
        struct reactor_timer *t = l->timers;
        reactor_timer_cancel(l, t);
        t->fire(t->ctx);
    }
}

status_t reactor_run(struct reactor *l, struct err *e) {
    while (!l->quit) {
        /* One event at a time: a handler may free any other watch, of which a batch would still hold the pointer. */
        struct epoll_event event = { 0 };
        int n = epoll_wait(l->epoll, &event, 1, l->timers ? deadline_poll_ms(l->timers->at) : -1);
        if (n < 0 && errno != EINTR)
            return err_errno(e, "wait for events");
        struct reactor_watch *w = event.data.ptr;
        if (n > 0 && w)
            w->ready(w->ctx, event.events);
        else if (n > 0)
            posts_run(l);
        timers_run(l);
    }
    return ST_OK;
}

void reactor_quit(struct reactor *l) { l->quit = true; }
