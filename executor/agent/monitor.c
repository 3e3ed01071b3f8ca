#include "executor/agent/monitor.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { EVERY_MS = 1000, LISTEN_MS = 100, LOOK_MS = 200, LEAVE_MS = 2000 };

/* The thread, the owner and each reading under way hold one reference; the last one frees it. */
struct monitor {
    struct nvml *nvml;
    monitor_fn *fn;
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t ended;
    struct reactor *loop; /* NULL: closed, and perhaps gone */
    bool has_ended;       /* the thread */
    int64_t asked;        /* looks */
    int refs;
};

struct posted {
    struct monitor *monitor;
    struct monitor_reading reading;
};

static void monitor_unref(struct monitor *m) {
    pthread_mutex_lock(&m->lock);
    bool last = --m->refs == 0;
    pthread_mutex_unlock(&m->lock);
    if (!last)
        return;
    nvml_close(m->nvml);
    pthread_cond_destroy(&m->ended);
    pthread_mutex_destroy(&m->lock);
    free(m);
}

static void reading_drop(void *payload) {
    monitor_unref(((struct posted *)payload)->monitor);
    free(payload);
}

/* False once it is closed. *ret_asked: looks, so far. */
static bool is_open(struct monitor *m, int64_t *ret_asked) {
    pthread_mutex_lock(&m->lock);
    bool open = m->loop != NULL;
    *ret_asked = m->asked;
    pthread_mutex_unlock(&m->lock);
    return open;
}

static void reading_take(void *ctx, void *payload) {
    struct monitor *m = ctx;
    int64_t asked;
    if (is_open(m, &asked))
        m->fn(m->ctx, &((struct posted *)payload)->reading);
    reading_drop(payload);
}

/* A loop that is stuck misses a reading. Under the lock, so that it cannot be closed meanwhile. */
static void reading_post(struct monitor *m, const struct monitor_reading *reading) {
    struct posted *p = malloc(sizeof *p);
    if (!p)
        return;
    *p = (struct posted){ m, *reading };
    struct reactor_post post = { .fn = reading_take, .drop = reading_drop, .ctx = m, .payload = p };
    pthread_mutex_lock(&m->lock);
    bool posted = m->loop && reactor_post(m->loop, &post, NULL) == ST_OK;
    m->refs += posted;
    pthread_mutex_unlock(&m->lock);
    if (!posted)
        free(p);
}

static void xid_await(struct monitor *m, int64_t ms) {
    struct monitor_reading r = { .kind = MONITOR_XID };
    if (nvml_wait_xid(m->nvml, (int)ms, &r.device, &r.xid))
        reading_post(m, &r);
}

static void samples_take(struct monitor *m) {
    struct monitor_reading r = { .kind = MONITOR_SAMPLE };
    int64_t asked;
    for (; r.device < nvml_count(m->nvml) && is_open(m, &asked); r.device++) {
        nvml_sample(m->nvml, r.device, &r.sample);
        reading_post(m, &r);
    }
}

static void *monitor_main(void *arg) {
    struct monitor *m = arg;
    int64_t next_ms = clock_mono_ms(), looked = 0, asked;
    while (is_open(m, &asked)) {
        int64_t now_ms = clock_mono_ms();
        if (asked > looked) {
            for (deadline_ms_t until = now_ms + LOOK_MS; (now_ms = clock_mono_ms()) < until;)
                xid_await(m, until - now_ms);
            samples_take(m);
            looked = asked;
            reading_post(m, &(struct monitor_reading){ .kind = MONITOR_LOOKED, .look = looked });
        } else if (now_ms < next_ms) {
            xid_await(m, next_ms - now_ms < LISTEN_MS ? next_ms - now_ms : LISTEN_MS);
        } else {
            next_ms = next_ms + EVERY_MS < now_ms ? now_ms + EVERY_MS : next_ms + EVERY_MS; /* nothing is made up for */
            samples_take(m);
        }
    }
    pthread_mutex_lock(&m->lock);
    m->has_ended = true;
    pthread_cond_signal(&m->ended);
    pthread_mutex_unlock(&m->lock);
    monitor_unref(m);
    return NULL;
}

status_t monitor_open(struct reactor *loop, struct nvml *nvml, monitor_fn *fn, void *ctx, struct monitor **ret,
                      struct err *e) {
    struct monitor *m = calloc(1, sizeof *m);
    if (!m) {
        nvml_close(nvml);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to watch the devices");
    }
    *m = (struct monitor){ .loop = loop, .nvml = nvml, .fn = fn, .ctx = ctx, .refs = 2 };
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->ended, NULL);
    errno = pthread_create(&m->thread, NULL, monitor_main, m);
    if (errno) {
        status_t st = err_errno(e, "start the thread that watches the devices");
        m->refs = 1;
        monitor_unref(m);
        return st;
    }
    *ret = m;
    return ST_OK;
}

struct monitor *monitor_close(struct monitor *m) {
    if (!m)
        return NULL;
    struct timespec until = deadline_timespec(deadline_in(LEAVE_MS));
    int rc = 0;
    pthread_mutex_lock(&m->lock);
    m->loop = NULL;
    while (!m->has_ended && rc == 0)
        rc = pthread_cond_clockwait(&m->ended, &m->lock, CLOCK_MONOTONIC, &until);
    bool ended = m->has_ended;
    pthread_mutex_unlock(&m->lock);
    if (ended)
        pthread_join(m->thread, NULL);
    else
        pthread_detach(m->thread); /* in the driver */
    monitor_unref(m);
    return NULL;
}

int64_t monitor_look(struct monitor *m) {
    pthread_mutex_lock(&m->lock);
    int64_t number = ++m->asked;
    pthread_mutex_unlock(&m->lock);
    return number;
}
