#include "executor/agent/heartbeat.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"

#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <trainyard/v1/dispatch.pb-c.h>

/* Shorter stalls of the loop are not logged. */
enum { LOG_STALL_MS = LEASE_TTL_MS / 2 };

struct heartbeat {
    int stalled_ms;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    struct grpc_stream *stream;
    int64_t alive_ms, number;
    struct heartbeat_use use;
    deadline_ms_t beat_at;
    bool closing, silent; /* silent: the loop is stalled, so no heartbeat is sent */
};

/* How late the loop is with its next call of heartbeat_loop_alive. */
static int64_t late_ms(const struct heartbeat *h) { return clock_mono_ms() - h->alive_ms - HEARTBEAT_INTERVAL_MS; }

#define DEVICE_VALUE(m, name, NAME, value)                                                                             \
    do {                                                                                                               \
        if (!isnan(value)) {                                                                                           \
            (m)->_##name##_case = TRAINYARD__V1__DEVICE_USE___##NAME##_##NAME;                                         \
            (m)->name = (value);                                                                                       \
        }                                                                                                              \
    } while (0)

static void device_fill(Trainyard__V1__DeviceUse *m, int index, const struct nvml_sample *s) {
    trainyard__v1__device_use__init(m);
    m->index = index;
    DEVICE_VALUE(m, utilization, UTILIZATION, s->utilization);
    DEVICE_VALUE(m, memory_bytes, MEMORY_BYTES, s->memory_bytes);
    DEVICE_VALUE(m, power_watts, POWER_WATTS, s->power_watts);
    DEVICE_VALUE(m, temperature_celsius, TEMPERATURE_CELSIUS, s->temperature_celsius);
}

static void use_fill(Trainyard__V1__AgentUse *m, const struct heartbeat_use *u, Trainyard__V1__DeviceUse *devices,
                     Trainyard__V1__DeviceUse **list) {
    m->spool_limit_bytes = u->spool_limit_bytes;
    m->records_waiting = u->records_waiting;
    m->samples_dropped = u->samples_dropped;
    m->lines_dropped = u->lines_dropped;
    m->training_waits = u->training_waits;
    m->connects = u->connects;
    m->disconnects = u->disconnects;
    m->data_store_bytes = u->data_store_bytes;
    m->data_peer_bytes = u->data_peer_bytes;
    m->data_cache_bytes = u->data_cache_bytes;
    for (int i = 0; i < u->n_devices; i++) {
        device_fill(&devices[i], u->devices[i].index, &u->devices[i].sample);
        list[i] = &devices[i];
    }
    m->devices = list;
    m->n_devices = (size_t)u->n_devices;
}

static void heartbeat_send(struct heartbeat *h) {
    Trainyard__V1__AgentHeartbeat beat = TRAINYARD__V1__AGENT_HEARTBEAT__INIT;
    Trainyard__V1__AgentUse use = TRAINYARD__V1__AGENT_USE__INIT;
    Trainyard__V1__DeviceUse devices[NVML_DEVICES_MAX], *list[NVML_DEVICES_MAX];
    use_fill(&use, &h->use, devices, list);
    beat.number = ++h->number;
    beat.spool_bytes = h->use.spool_bytes;
    beat.use = &use;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HEARTBEAT;
    m.heartbeat = &beat;
    (void)grpc_stream_send(h->stream, &m.base);
}

/* Called under the lock; releases it while it logs, since the log may block too and the loop must not wait for it. */
static void log_silent(struct heartbeat *h) {
    h->silent = true;
    pthread_mutex_unlock(&h->lock);
    log_event(LOG_ERROR, "heartbeats_end", "message",
              LOG_STR("the agent's event loop is stalled, perhaps by its disk: the lease of this host will end"), NULL);
    pthread_mutex_lock(&h->lock);
}

static void *heartbeat_run(void *ctx) {
    struct heartbeat *h = ctx;
    pthread_mutex_lock(&h->lock);
    while (!h->closing) {
        if (clock_mono_ms() < h->beat_at) {
            struct timespec until = deadline_timespec(h->beat_at);
            pthread_cond_clockwait(&h->changed, &h->lock, CLOCK_MONOTONIC, &until);
            continue;
        }
        h->beat_at = deadline_in(HEARTBEAT_INTERVAL_MS);
        const bool stalled = late_ms(h) >= h->stalled_ms;
        if (!stalled && h->stream)
            heartbeat_send(h);
        else if (stalled && !h->silent)
            log_silent(h);
    }
    pthread_mutex_unlock(&h->lock);
    return NULL;
}

void heartbeat_loop_alive(struct heartbeat *h, const struct heartbeat_use *use) {
    pthread_mutex_lock(&h->lock);
    const int64_t late = late_ms(h);
    const bool worth_logging = h->silent || late >= LOG_STALL_MS;
    h->alive_ms = clock_mono_ms();
    h->use = *use;
    h->silent = false;
    pthread_mutex_unlock(&h->lock);
    if (worth_logging)
        log_event(LOG_WARN, "event_loop_stalled", "ms", LOG_INT(late), NULL);
}

void heartbeat_set_stream(struct heartbeat *h, struct grpc_stream *stream) {
    pthread_mutex_lock(&h->lock);
    h->stream = stream;
    h->beat_at = deadline_in(HEARTBEAT_INTERVAL_MS);
    pthread_mutex_unlock(&h->lock);
}

status_t heartbeat_open(int stalled_ms, struct heartbeat **ret, struct err *e) {
    struct heartbeat *h = alloc_zeroed(1, sizeof *h);
    h->stalled_ms = stalled_ms;
    h->alive_ms = clock_mono_ms();
    pthread_mutex_init(&h->lock, NULL);
    pthread_cond_init(&h->changed, NULL);
    errno = pthread_create(&h->thread, NULL, heartbeat_run, h);
    h->runs = errno == 0;
    if (!h->runs) {
        status_t st = err_errno(e, "start the heartbeat thread");
        heartbeat_close(h);
        return st;
    }
    *ret = h;
    return ST_OK;
}

struct heartbeat *heartbeat_close(struct heartbeat *h) {
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
