/* emitter_put packs a record as a frame at the end of the queue, or waits while the queue is full. The thread takes
 * the whole queue, leaves an empty one, and writes the frames without the lock, so that training waits only while a
 * record is packed. Once a second it appends WorkerAlive to the frames that it writes. When a wait was longer than a
 * second, the thread that waited adds a notice with its length. */
#include "executor/worker/emit.h"

#include "api/codec/frame.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/limits.h"
#include "executor/worker/exit_code.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    WAIT_WORTH_A_NOTICE_MS = 1000,
    LINE_BYTES = 640, /* a sentence of struct err and a few words around it */
};

struct emitter {
    int fd;
    atomic_llong progress;
    atomic_bool outlives_reader;
    emitter_filter *filter; /* NULL: none */
    void *filter_ctx;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t filled, emptied;
    struct bytes queue; /* frames that wait; the thread takes all of them at a time */
    int waiting;        /* threads in emitter_put that found it full */
    bool closing;
    deadline_ms_t close_by;
};

/* ---- the thread ---- */

/* Writes everything, unless the deadline of a close passes. The process ends when the reader is gone. */
static void write_out(struct emitter *em, const char *data, size_t n) {
    while (n) {
        struct pollfd p = { .fd = em->fd, .events = POLLOUT };
        pthread_mutex_lock(&em->lock);
        deadline_ms_t by = em->closing ? em->close_by : deadline_in(EMIT_ALIVE_MS);
        bool closing = em->closing;
        pthread_mutex_unlock(&em->lock);
        int ready = poll(&p, 1, deadline_poll_ms(by));
        if (ready == 0 && closing)
            return;
        if (ready <= 0)
            continue;
        /* After POLLOUT a pipe takes PIPE_BUF bytes at once; a longer write might block. */
        ssize_t wrote = write(em->fd, data, n < PIPE_BUF ? n : PIPE_BUF);
        if (wrote < 0 && errno != EINTR && errno != EAGAIN) {
            if (!atomic_load(&em->outlives_reader))
                _exit(worker_exit_code(TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST));
            return;
        }
        if (wrote > 0) {
            data += wrote;
            n -= (size_t)wrote;
        }
    }
}

static void alive_append(struct emitter *em, struct bytes *out) {
    Trainyard__V1__WorkerAlive alive = TRAINYARD__V1__WORKER_ALIVE__INIT;
    alive.progress = atomic_load_explicit(&em->progress, memory_order_relaxed);
    alive.waiting_for_spool = em->waiting > 0;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_ALIVE;
    record.alive = &alive;
    record.time_us = clock_wall_us();
    status_ignore(frame_pack(&record.base, out, NULL)); /* a full queue is itself a sign of life */
}

static void *emitter_run(void *ctx) {
    struct emitter *em = ctx;
    size_t limit = em->queue.limit;
    deadline_ms_t alive_at = deadline_in(0);
    pthread_mutex_lock(&em->lock);
    for (;;) {
        while (em->queue.len == 0 && !em->closing && clock_mono_ms() < alive_at) {
            struct timespec t = deadline_timespec(alive_at);
            pthread_cond_clockwait(&em->filled, &em->lock, CLOCK_MONOTONIC, &t);
        }
        if (em->queue.len == 0 && em->closing)
            break;
        struct bytes batch = em->queue;
        bytes_init(&em->queue, limit);
        if (clock_mono_ms() >= alive_at) {
            batch.limit += 256;
            alive_append(em, &batch);
            alive_at = deadline_in(EMIT_ALIVE_MS);
        }
        pthread_cond_broadcast(&em->emptied);
        pthread_mutex_unlock(&em->lock);
        write_out(em, batch.data, batch.len);
        bytes_done(&batch);
        pthread_mutex_lock(&em->lock);
        if (em->closing && clock_mono_ms() >= em->close_by)
            break;
    }
    pthread_mutex_unlock(&em->lock);
    return NULL;
}

/* ---- the other threads ---- */

void emitter_outlive_reader(struct emitter *em) { atomic_store(&em->outlives_reader, true); }

void emitter_set_filter(struct emitter *em, emitter_filter *filter, void *ctx) {
    em->filter = filter;
    em->filter_ctx = ctx;
}

void emitter_progress(struct emitter *em) { atomic_fetch_add_explicit(&em->progress, 1, memory_order_relaxed); }

static void notice_waited(struct emitter *em, int64_t waited_ms) {
    char text[120];
    snprintf(text, sizeof text, "training waited %" PRId64 " ms because the executor's agent took no records",
             waited_ms);
    Trainyard__V1__WorkerNotice notice = TRAINYARD__V1__WORKER_NOTICE__INIT;
    notice.kind = (char *)(uintptr_t) "waited_for_agent";
    notice.message = text;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE;
    record.notice = &notice;
    record.time_us = clock_wall_us();
    status_ignore(frame_pack(&record.base, &em->queue, NULL)); /* full again: the next wait reports it */
}

static void put(struct emitter *em, Trainyard__V1__WorkerRecord *record) {
    record->time_us = clock_wall_us();
    size_t n = protobuf_c_message_get_packed_size(&record->base) + FRAME_HEADER_BYTES;
    if (n > LIMIT_RECORD_BYTES)
        return;
    int64_t begun_ms = 0;
    pthread_mutex_lock(&em->lock);
    while (em->queue.len + n > em->queue.limit) {
        if (begun_ms == 0)
            begun_ms = clock_mono_ms();
        em->waiting++;
        pthread_cond_wait(&em->emptied, &em->lock);
        em->waiting--;
    }
    status_ignore(frame_pack(&record->base, &em->queue, NULL)); /* there is space */
    if (begun_ms && clock_mono_ms() - begun_ms >= WAIT_WORTH_A_NOTICE_MS)
        notice_waited(em, clock_mono_ms() - begun_ms);
    pthread_cond_signal(&em->filled);
    pthread_mutex_unlock(&em->lock);
}

void emitter_put(struct emitter *em, Trainyard__V1__WorkerRecord *record) {
    ProtobufCMessage *changed = em->filter ? em->filter(em->filter_ctx, record) : NULL;
    put(em, changed ? (Trainyard__V1__WorkerRecord *)changed : record);
    if (changed)
        protobuf_c_message_free_unpacked(changed, NULL);
}

void emitter_log(struct emitter *em, const char *fmt, ...) {
    char line[LINE_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    Trainyard__V1__LogText log = TRAINYARD__V1__LOG_TEXT__INIT;
    log.stream = (char *)(uintptr_t) "worker";
    log.text = line;
    emitter_put(em, WORKER_RECORD(LOG, log, &log));
}

status_t emitter_open(int fd, size_t queue_bytes, struct emitter **ret, struct err *e) {
    CLEANUP(freep) struct emitter *em = alloc_zeroed(1, sizeof *em);
    em->fd = fd;
    bytes_init(&em->queue, queue_bytes);
    pthread_mutex_init(&em->lock, NULL);
    pthread_cond_init(&em->filled, NULL);
    pthread_cond_init(&em->emptied, NULL);
    errno = pthread_create(&em->thread, NULL, emitter_run, em);
    if (errno)
        return err_errno(e, "start the record thread");
    *ret = take_ptr(&em);
    return ST_OK;
}

struct emitter *emitter_close(struct emitter *em, int timeout_ms) {
    if (!em)
        return NULL;
    pthread_mutex_lock(&em->lock);
    em->closing = true;
    em->close_by = deadline_in(timeout_ms);
    pthread_cond_signal(&em->filled);
    pthread_mutex_unlock(&em->lock);
    pthread_join(em->thread, NULL);
    bytes_done(&em->queue);
    pthread_cond_destroy(&em->filled);
    pthread_cond_destroy(&em->emptied);
    pthread_mutex_destroy(&em->lock);
    free(em);
    return NULL;
}
