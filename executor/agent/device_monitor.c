/* A thread that samples devices and listens for Xids.
 *
 * Each turn of the thread does one of three things. If an inspection was requested, it listens for Xids for INSPECT_MS,
 * samples all devices, and posts the number of the inspection after those readings. If the next second has begun, it
 * samples all devices. Otherwise it listens for Xids, at most LISTEN_MS at a time, so that it soon sees a request or
 * the close.
 *
 * The driver may block the thread in any of these calls, and the owner must not wait. The monitor therefore has a
 * reference count: device_monitor_close clears `loop`, waits at most LEAVE_MS and detaches a thread that has not ended.
 * That thread posts nothing more, and frees the monitor and the library when the driver returns. */
#include "executor/agent/device_monitor.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

enum { EVERY_MS = 1000, LISTEN_MS = 100, INSPECT_MS = 200, LEAVE_MS = 2000 };

/* The thread, the owner and each posted reading hold one reference; the last one frees it. */
struct device_monitor {
    struct nvml *nvml;
    device_monitor_fn *fn;
    void *ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t ended;
    struct reactor *loop; /* NULL: the monitor is closed, and the loop may be freed */
    bool has_ended;       /* the thread has ended */
    int64_t asked;        /* number of the last requested inspection */
    int refs;
};

struct posted {
    struct device_monitor *monitor;
    struct device_monitor_reading reading;
};

static void device_monitor_unref(struct device_monitor *m) {
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
    device_monitor_unref(((struct posted *)payload)->monitor);
    free(payload);
}

/* False once the monitor is closed. *ret_asked: the number of the last requested inspection. */
static bool is_open(struct device_monitor *m, int64_t *ret_asked) {
    pthread_mutex_lock(&m->lock);
    bool open = m->loop != NULL;
    *ret_asked = m->asked;
    pthread_mutex_unlock(&m->lock);
    return open;
}

static void reading_take(void *ctx, void *payload) {
    struct device_monitor *m = ctx;
    int64_t asked;
    if (is_open(m, &asked))
        m->fn(m->ctx, &((struct posted *)payload)->reading);
    reading_drop(payload);
}

/* Posts under the lock, so that the loop cannot be closed at the same time. If the loop is stuck and its ring is full,
 * the reading is lost. */
static void reading_post(struct device_monitor *m, const struct device_monitor_reading *reading) {
    struct posted *p = alloc_zeroed(1, sizeof *p);
    *p = (struct posted){ m, *reading };
    struct reactor_post post = { .fn = reading_take, .drop = reading_drop, .ctx = m, .payload = p };
    pthread_mutex_lock(&m->lock);
    bool posted = m->loop && reactor_post(m->loop, &post, NULL) == ST_OK;
    m->refs += posted;
    pthread_mutex_unlock(&m->lock);
    if (!posted)
        free(p);
}

static void xid_await(struct device_monitor *m, int64_t ms) {
    struct device_monitor_reading r = { .kind = DEVICE_MONITOR_XID };
    if (nvml_wait_xid(m->nvml, (int)ms, &r.device, &r.xid))
        reading_post(m, &r);
}

static void samples_take(struct device_monitor *m) {
    struct device_monitor_reading r = { .kind = DEVICE_MONITOR_SAMPLE };
    int64_t asked;
    for (; r.device < nvml_count(m->nvml) && is_open(m, &asked); r.device++) {
        nvml_sample(m->nvml, r.device, &r.sample);
        reading_post(m, &r);
    }
}

static void *device_monitor_main(void *arg) {
    struct device_monitor *m = arg;
    int64_t next_ms = clock_mono_ms(), inspected = 0, asked;
    while (is_open(m, &asked)) {
        int64_t now_ms = clock_mono_ms();
        if (asked > inspected) {
            for (deadline_ms_t until = now_ms + INSPECT_MS; (now_ms = clock_mono_ms()) < until;)
                xid_await(m, until - now_ms);
            samples_take(m);
            inspected = asked;
            reading_post(m,
                         &(struct device_monitor_reading){ .kind = DEVICE_MONITOR_INSPECTED, .inspection = inspected });
        } else if (now_ms < next_ms) {
            xid_await(m, next_ms - now_ms < LISTEN_MS ? next_ms - now_ms : LISTEN_MS);
        } else {
            next_ms = next_ms + EVERY_MS < now_ms ? now_ms + EVERY_MS
                                                  : next_ms + EVERY_MS; /* missed seconds are not made up for */
            samples_take(m);
        }
    }
    pthread_mutex_lock(&m->lock);
    m->has_ended = true;
    pthread_cond_signal(&m->ended);
    pthread_mutex_unlock(&m->lock);
    device_monitor_unref(m);
    return NULL;
}

status_t device_monitor_open(struct reactor *loop, struct nvml *nvml, device_monitor_fn *fn, void *ctx,
                             struct device_monitor **ret, struct err *e) {
    struct device_monitor *m = alloc_zeroed(1, sizeof *m);
    *m = (struct device_monitor){ .loop = loop, .nvml = nvml, .fn = fn, .ctx = ctx, .refs = 2 };
    pthread_mutex_init(&m->lock, NULL);
    pthread_cond_init(&m->ended, NULL);
    errno = pthread_create(&m->thread, NULL, device_monitor_main, m);
    if (errno) {
        status_t st = err_errno(e, "start the thread of the device monitor");
        m->refs = 1;
        device_monitor_unref(m);
        return st;
    }
    *ret = m;
    return ST_OK;
}

struct device_monitor *device_monitor_close(struct device_monitor *m) {
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
        pthread_detach(m->thread); /* the thread is still in a call of the driver */
    device_monitor_unref(m);
    return NULL;
}

int64_t device_monitor_inspect(struct device_monitor *m) {
    pthread_mutex_lock(&m->lock);
    int64_t number = ++m->asked;
    pthread_mutex_unlock(&m->lock);
    return number;
}
