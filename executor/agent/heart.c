#include "executor/agent/heart.h"

#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <trainyard/v1/dispatch.pb-c.h>

enum { WORTH_TELLING_MS = LEASE_TTL_MS / 2 };

struct heart {
    int still_ms;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct link *link;
    int64_t turned_ms, spool_bytes, number;
    deadline_ms_t beat_at;
    bool closing, silent; /* since the loop stands still for too long */
};

/* For how long the loop has stood still, by what it has promised. */
static int64_t late_ms(const struct heart *h) { return clock_mono_ms() - h->turned_ms - HEARTBEAT_INTERVAL_MS; }

static void beat(struct heart *h) {
    Trainyard__V1__AgentHeartbeat beat = TRAINYARD__V1__AGENT_HEARTBEAT__INIT;
    beat.number = ++h->number;
    beat.spool_bytes = h->spool_bytes;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HEARTBEAT;
    m.heartbeat = &beat;
    (void)link_send(h->link, &m.base);
}

/* Under the lock. A log that stands still too must not hold up the loop. */
static void tell_silent(struct heart *h) {
    h->silent = true;
    pthread_mutex_unlock(&h->lock);
    log_event(LOG_ERROR, "heartbeats_end", "message",
              LOG_STR("the agent's loop stands still, perhaps with its disk: the host's lease will end"), NULL);
    pthread_mutex_lock(&h->lock);
}

static void *heart_run(void *ctx) {
    struct heart *h = ctx;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        if (clock_mono_ms() < h->beat_at) {
            struct timespec until = deadline_timespec(h->beat_at);
            pthread_cond_clockwait(&h->changed, &h->lock, CLOCK_MONOTONIC, &until);
            continue;
        }
        h->beat_at = deadline_in(HEARTBEAT_INTERVAL_MS);
        const bool still = late_ms(h) >= h->still_ms;
        if (!still && h->link)
            beat(h);
        else if (still && !h->silent)
            tell_silent(h);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

void heart_turn(struct heart *h, int64_t spool_bytes) {
    pthread_mutex_lock(&h->lock);
    const int64_t late = late_ms(h);
    const bool tell = h->silent || late >= WORTH_TELLING_MS;
    h->turned_ms = clock_mono_ms();
    h->spool_bytes = spool_bytes;
    h->silent = false;
    pthread_mutex_unlock(&h->lock);
    if (tell)
        log_event(LOG_WARN, "stood_still", "ms", LOG_INT(late), NULL);
}

void heart_follow(struct heart *h, struct link *link) {
    pthread_mutex_lock(&h->lock);
    h->link = link;
    h->beat_at = deadline_in(HEARTBEAT_INTERVAL_MS);
    pthread_mutex_unlock(&h->lock);
}

status_t heart_open(int still_ms, struct heart **ret, struct err *e) {
    struct heart *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the heartbeats");
    h->still_ms = still_ms;
    h->turned_ms = clock_mono_ms();
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    errno = pthread_create(&h->thread, NULL, heart_run, h);
    h->runs = errno == 0;
    if (!h->runs) {
        status_t st = err_errno(e, "start the thread of the heartbeats");
        heart_close(h);
        return st;
    }
    *ret = h;
    return ST_OK;
}

struct heart *heart_close(struct heart *h) {
    if (!h)
        return NULL;
    pthread_mutex_lock(&h->lock);
    h->closing = true;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->lock);
    if (h->runs)
        pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->lock);
    free(h);
    return NULL;
}
