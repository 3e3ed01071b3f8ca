#include "executor/agent/monitor.h"

#include "base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { EVERY_MS = 1000, LOOK_MS = 100, LEAVE_S = 2 };

struct monitor {
    struct reactor *loop;
    struct nvml *nvml;
    monitor_fn *fn;
    void *ctx;
    pthread_t thread;
    atomic_bool closing;
};

struct posted {
    struct monitor *monitor;
    struct monitor_reading reading;
};

static void reading_take(void *ctx, void *payload) {
    struct monitor *m = ctx;
    const struct posted *p = payload;
    if (!atomic_load(&m->closing))
        m->fn(m->ctx, &p->reading);
    free(payload);
}

/* A loop that is stuck misses a reading. */
static void reading_post(struct monitor *m, const struct monitor_reading *reading) {
    struct posted *p = malloc(sizeof *p);
    if (!p)
        return;
    *p = (struct posted){ m, *reading };
    struct reactor_post post = { .fn = reading_take, .drop = free, .ctx = m, .payload = p };
    if (reactor_post(m->loop, &post, NULL) != ST_OK)
        free(p);
}

static void *monitor_main(void *arg) {
    struct monitor *m = arg;
    int64_t next_ms = clock_mono_ms();
    while (!atomic_load(&m->closing)) {
        struct monitor_reading r = { .xid = 0 };
        int64_t left = next_ms - clock_mono_ms();
        if (left > 0) {
            if (nvml_wait_xid(m->nvml, left < LOOK_MS ? (int)left : LOOK_MS, &r.device, &r.xid))
                reading_post(m, &r);
            continue;
        }
        next_ms += EVERY_MS;
        if (next_ms < clock_mono_ms())
            next_ms = clock_mono_ms() + EVERY_MS; /* what was missed is not made up for */
        for (r.device = 0; r.device < nvml_count(m->nvml) && !atomic_load(&m->closing); r.device++) {
            nvml_sample(m->nvml, r.device, &r.sample);
            reading_post(m, &r);
        }
    }
    return NULL;
}

status_t monitor_open(struct reactor *loop, struct nvml *nvml, monitor_fn *fn, void *ctx, struct monitor **ret,
                      struct err *e) {
    struct monitor *m = calloc(1, sizeof *m);
    if (!m) {
        nvml_close(nvml);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to watch the devices");
    }
    *m = (struct monitor){ .loop = loop, .nvml = nvml, .fn = fn, .ctx = ctx };
    errno = pthread_create(&m->thread, NULL, monitor_main, m);
    if (errno) {
        nvml_close(nvml);
        free(m);
        return err_errno(e, "start the thread that watches the devices");
    }
    *ret = m;
    return ST_OK;
}

struct monitor *monitor_close(struct monitor *m) {
    if (!m)
        return NULL;
    atomic_store(&m->closing, true);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVE_S;
    if (pthread_timedjoin_np(m->thread, NULL, &until) != 0)
        return NULL; /* in the driver; what it uses is not freed */
    nvml_close(m->nvml);
    free(m);
    return NULL;
}
