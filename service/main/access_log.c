#include "service/main/access_log.h"

#include "api/codec/text.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/log_file.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PEER_BYTES = 96, LINE_BYTES = 2048, BATCH = 64 };

struct entry {
    const char *service, *method; /* static */
    char caller[RPC_CALLER_BYTES], peer[PEER_BYTES], request_id[RPC_REQUEST_ID_BYTES];
    status_t status;
    int64_t ns, time_us;
};

struct access_log {
    struct log_file file; /* unless to_log */
    bool to_log;
    pthread_t thread;
    bool runs;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t work;
    bool closing;
    size_t first, n; /* of the ring */
    int64_t dropped;
    struct entry ring[ACCESS_LOG_WAITING];
};

static const char *after_dot(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot ? dot + 1 : name;
}

void access_log_add(void *ctx, const struct rpc_ended_call *call) {
    struct access_log *l = ctx;
    const int64_t now_us = clock_wall_us();
    pthread_mutex_lock(&l->lock);
    if (l->n == ACCESS_LOG_WAITING) {
        l->dropped++;
    } else {
        struct entry *en = &l->ring[(l->first + l->n++) % ACCESS_LOG_WAITING];
        *en = (struct entry){ .service = after_dot(call->service),
                              .method = call->method,
                              .status = call->status,
                              .ns = call->ns,
                              .time_us = now_us };
        snprintf(en->caller, sizeof en->caller, "%s", call->caller);
        snprintf(en->peer, sizeof en->peer, "%s", call->peer);
        snprintf(en->request_id, sizeof en->request_id, "%s", call->request_id);
        pthread_cond_signal(&l->work);
    }
    pthread_mutex_unlock(&l->lock);
}

static void put_time(int64_t us, char ret[40]) {
    const time_t seconds = (time_t)(us / 1000000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    const size_t n = strftime(ret, 40, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret + n, 40 - n, ".%03dZ", (int)(us / 1000 % 1000));
}

static status_t put_member(struct bytes *b, const char *name, const char *value, struct err *e) {
    TRY(bytes_printf(b, e, "\"%s\":", name));
    TRY(codec_json_string(value, strlen(value), b, e));
    return bytes_append(b, ",", 1, e);
}

static status_t put_entry(struct bytes *b, const struct entry *en, struct err *e) {
    char when[40];
    put_time(en->time_us, when);
    TRY(bytes_printf(b, e, "{\"time\":\"%s\",\"service\":\"%s\",\"method\":\"%s\",", when, en->service, en->method));
    TRY(put_member(b, "caller", en->caller, e));
    TRY(put_member(b, "peer", en->peer, e));
    return bytes_printf(b, e, "\"status\":\"%s\",\"milliseconds\":%.3f,\"request_id\":\"%s\"}\n",
                        status_name(en->status), (double)en->ns / 1e6, en->request_id);
}

static void log_entry(const struct entry *en) {
    log_event(LOG_INFO, "call", "service", LOG_STR(en->service), "method", LOG_STR(en->method), "caller",
              LOG_STR(en->caller), "peer", LOG_STR(en->peer), "status", LOG_STR(status_name(en->status)),
              "milliseconds", LOG_DOUBLE((double)en->ns / 1e6), "request_id", LOG_STR(en->request_id), NULL);
}

static bool write_file(struct access_log *l, const struct entry *entries, size_t n, int64_t dropped) {
    CLEANUP(bytes_done) struct bytes text;
    char when[40];
    bytes_init(&text, (size_t)(BATCH + 1) * LINE_BYTES);
    for (size_t i = 0; i < n; i++)
        status_ignore(put_entry(&text, &entries[i], NULL)); /* each line is shorter than LINE_BYTES */
    put_time(clock_wall_us(), when);
    if (dropped > 0)
        status_ignore(
            bytes_printf(&text, NULL, "{\"time\":\"%s\",\"dropped_lines\":%lld}\n", when, (long long)dropped));
    return log_file_write(&l->file, text.data, text.len);
}

/* Returns how many lines are dropped now. */
static int64_t write_entries(struct access_log *l, const struct entry *entries, size_t n, int64_t dropped) {
    if (!l->to_log)
        return write_file(l, entries, n, dropped) ? 0 : (int64_t)n + dropped;
    for (size_t i = 0; i < n; i++)
        log_entry(&entries[i]);
    if (dropped > 0)
        log_event(LOG_WARN, "calls_not_logged", "calls", LOG_INT(dropped), NULL);
    return 0;
}

static void *run(void *arg) {
    struct access_log *l = arg;
    CLEANUP(freep) struct entry *batch = alloc_zeroed(BATCH, sizeof *batch);
    pthread_mutex_lock(&l->lock);
    for (;;) {
        while (!l->closing && l->n == 0)
            pthread_cond_wait(&l->work, &l->lock);
        if (l->n == 0)
            break;
        size_t n = 0;
        for (; n < BATCH && l->n > 0; n++, l->n--) {
            batch[n] = l->ring[l->first];
            l->first = (l->first + 1) % ACCESS_LOG_WAITING;
        }
        int64_t dropped = l->dropped;
        l->dropped = 0;
        pthread_mutex_unlock(&l->lock);
        dropped = write_entries(l, batch, n, dropped);
        pthread_mutex_lock(&l->lock);
        l->dropped += dropped;
    }
    pthread_mutex_unlock(&l->lock);
    return NULL;
}

status_t access_log_open(const char *path, struct access_log **ret, struct err *e) {
    CLEANUP(access_log_closep) struct access_log *l = alloc_zeroed(1, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_cond_init(&l->work, NULL);
    l->file.fd = -1;
    l->to_log = strcmp(path, "-") == 0;
    if (!l->to_log)
        TRY(log_file_open(&l->file, path, ACCESS_LOG_BYTES, 0640, e));
    l->runs = pthread_create(&l->thread, NULL, run, l) == 0;
    if (!l->runs)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread for the access log");
    *ret = take_ptr(&l);
    return ST_OK;
}

struct access_log *access_log_close(struct access_log *l) {
    if (!l)
        return NULL;
    pthread_mutex_lock(&l->lock);
    l->closing = true;
    pthread_cond_signal(&l->work);
    pthread_mutex_unlock(&l->lock);
    if (l->runs)
        pthread_join(l->thread, NULL);
    log_file_close(&l->file);
    pthread_cond_destroy(&l->work);
    pthread_mutex_destroy(&l->lock);
    free(l);
    return NULL;
}
