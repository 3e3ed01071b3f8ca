#include "tests/engine/nccl/device.h"

#include "base/clock.h"
#include "engine/collective/nccl_accumulate.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STREAMS_MOST = 80 };

/* One for each thread that has a table: a rank's. */
struct device {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool lazy;
    int64_t queued, let; /* jobs on all of its streams, in one order; up to `let` they may run */
    struct CUstream_st *streams;
};

struct job {
    void (*work)(void *);
    void *arg;
    int64_t number; /* of the device's */
    struct job *next;
};

struct CUstream_st {
    struct device *device;    /* NULL: of a thread that has no table */
    struct CUstream_st *next; /* of the device's */
    void (*feed)(cudaStream_t s, void *arg);
    void *feed_arg;
    bool fed; /* just now */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct job *first, *last;
    int queued, done;
    bool closing;
};

/* Recorded so often, and come to so often. */
struct CUevent_st {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int recorded, reached;
    int64_t number; /* of the newest record, as its device counts */
};

static _Thread_local int chosen; /* this thread's device: 0 until it has chosen */
static _Thread_local const char *failing;
static _Atomic(const char *) failing_everywhere;
static int failed;
static pthread_mutex_t failed_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t failed_more = PTHREAD_COND_INITIALIZER;
static atomic_int connections;
static atomic_bool lazy;
static _Thread_local struct device *mine;
static _Thread_local int waits;

static void must_have_chosen(void) {
    if (chosen == DEVICE_ORDINAL)
        return;
    fprintf(stderr, "CUDA's stand-in: a call on device %d, which is not the gang's\n", chosen);
    abort();
}

void device_fail(const char *call) { failing = call; }
void device_fail_everywhere(const char *call) { atomic_store(&failing_everywhere, call); }
int device_failed(void) {
    pthread_mutex_lock(&failed_lock);
    const int so_far = failed;
    pthread_mutex_unlock(&failed_lock);
    return so_far;
}
void device_await_failure(int number) {
    pthread_mutex_lock(&failed_lock);
    while (failed < number)
        pthread_cond_wait(&failed_more, &failed_lock);
    pthread_mutex_unlock(&failed_lock);
}
bool device_fault(const char *call) {
    const char *everywhere = atomic_load(&failing_everywhere);
    const bool fails = (failing && strcmp(failing, call) == 0) || (everywhere && strcmp(everywhere, call) == 0);
    pthread_mutex_lock(&failed_lock);
    failed += fails;
    pthread_cond_broadcast(&failed_more);
    pthread_mutex_unlock(&failed_lock);
    return fails;
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n;
} communicators = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };

void device_communicates(int more) {
    pthread_mutex_lock(&communicators.lock);
    communicators.n += more;
    pthread_cond_broadcast(&communicators.changed);
    pthread_mutex_unlock(&communicators.lock);
}

int device_communicators(void) {
    pthread_mutex_lock(&communicators.lock);
    const int n = communicators.n;
    pthread_mutex_unlock(&communicators.lock);
    return n;
}

void device_await_silence(void) {
    pthread_mutex_lock(&communicators.lock);
    while (communicators.n > 0)
        pthread_cond_wait(&communicators.changed, &communicators.lock);
    pthread_mutex_unlock(&communicators.lock);
}

int device_connected(void) { return atomic_load(&connections); }
void device_connects(void) { atomic_fetch_add(&connections, 1); }

/* --- gates and clocks ---*/

void device_gate_pass(void *arg) {
    struct device_gate *g = arg;
    pthread_mutex_lock(&g->lock);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

void device_gate_open(struct device_gate *g) {
    pthread_mutex_lock(&g->lock);
    g->open = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int64_t forward_ns;
    int forwards, looked; /* looked: threads that have asked twice since the newest */
} clocks = { .lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER };
static _Thread_local int asked_since, asked;

static int64_t mono_ns(void *ctx) {
    struct timespec t;
    (void)ctx;
    clock_gettime(CLOCK_MONOTONIC, &t);
    pthread_mutex_lock(&clocks.lock);
    if (asked_since != clocks.forwards)
        asked = 0;
    asked_since = clocks.forwards;
    if (!mine && ++asked == 2) {
        clocks.looked++;
        pthread_cond_broadcast(&clocks.changed);
    }
    const int64_t forward_ns = clocks.forward_ns;
    pthread_mutex_unlock(&clocks.lock);
    return t.tv_sec * 1000000000 + t.tv_nsec + forward_ns;
}

static int64_t wall_us(void *ctx) {
    struct timespec t;
    (void)ctx;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void device_clocks_take(void) {
    static const struct clock_source source = { .mono_ns = mono_ns, .wall_us = wall_us };
    clock_override(&source);
}

void device_clocks_forward(int64_t ms, int threads) {
    pthread_mutex_lock(&clocks.lock);
    clocks.forward_ns += ms * 1000000;
    clocks.forwards++;
    clocks.looked = 0;
    while (clocks.looked < threads)
        pthread_cond_wait(&clocks.changed, &clocks.lock);
    pthread_mutex_unlock(&clocks.lock);
}

/* --- what the host waits for ---*/

void device_lazy(bool is) { atomic_store(&lazy, is); }

static pthread_mutex_t mute_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t mute_changed = PTHREAD_COND_INITIALIZER;
static bool mute;
static int unanswered;

void device_mute(bool is) {
    pthread_mutex_lock(&mute_lock);
    mute = is;
    pthread_cond_broadcast(&mute_changed);
    pthread_mutex_unlock(&mute_lock);
}

void device_await_unanswered(int n) {
    pthread_mutex_lock(&mute_lock);
    while (unanswered < n)
        pthread_cond_wait(&mute_changed, &mute_lock);
    pthread_mutex_unlock(&mute_lock);
}

static void await_answer(void) {
    pthread_mutex_lock(&mute_lock);
    unanswered++;
    pthread_cond_broadcast(&mute_changed);
    while (mute)
        pthread_cond_wait(&mute_changed, &mute_lock);
    unanswered--;
    pthread_mutex_unlock(&mute_lock);
}
int device_waits(void) { return waits; }
struct device *device_mine(void) {
    return mine;
}

static void let(struct device *d, int64_t number) {
    pthread_mutex_lock(&d->lock);
    number = number < d->queued ? number : d->queued;
    if (d->let < number)
        d->let = number;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

/* A rank's thread waits, or asks, which may be a turn of a wait: what was queued before runs now. */
static void host_waits(int64_t number) {
    if (!mine)
        return;
    waits++;
    let(mine, number);
}

static void await_let(struct device *d, int64_t number) {
    pthread_mutex_lock(&d->lock);
    while (d->lazy && d->let < number)
        pthread_cond_wait(&d->changed, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

static int64_t number_new(struct device *d) {
    pthread_mutex_lock(&d->lock);
    const int64_t number = ++d->queued;
    pthread_mutex_unlock(&d->lock);
    return number;
}

/* --- streams ---*/

static void *stream_main(void *arg) {
    cudaStream_t s = arg;
    pthread_mutex_lock(&s->lock);
    while (!s->closing || s->first) {
        struct job *job = s->first;
        if (!job) {
            pthread_cond_wait(&s->changed, &s->lock);
            continue;
        }
        s->first = job->next;
        pthread_mutex_unlock(&s->lock);
        if (s->device)
            await_let(s->device, job->number);
        job->work(job->arg);
        free(job);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void device_feed(cudaStream_t s, void (*feed)(cudaStream_t s, void *arg), void *arg) {
    s->feed = feed;
    s->feed_arg = arg;
}

static void feed(cudaStream_t s) {
    if (!s->feed || s->fed)
        return;
    s->fed = true;
    s->feed(s, s->feed_arg);
    s->fed = false;
}

void device_queue(cudaStream_t s, void (*work)(void *), void *arg) {
    feed(s);
    struct job *job = malloc(sizeof *job);
    *job = (struct job){ work, arg, s->device ? number_new(s->device) : 0, NULL };
    pthread_mutex_lock(&s->lock);
    *(s->first ? &s->last->next : &s->first) = job;
    s->last = job;
    s->queued++;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret, unsigned flags, int priority) {
    must_have_chosen();
    cudaStream_t s = calloc(1, sizeof *s);
    (void)flags, (void)priority;
    pthread_mutex_init(&s->lock, NULL);
    pthread_cond_init(&s->changed, NULL);
    if (mine) {
        pthread_mutex_lock(&mine->lock);
        s->device = mine;
        s->next = mine->streams;
        mine->streams = s;
        pthread_mutex_unlock(&mine->lock);
    }
    pthread_create(&s->thread, NULL, stream_main, s);
    *ret = s;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags) {
    return cudaStreamCreateWithPriority(ret, flags, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = *greatest = 0;
    return cudaSuccess;
}

/* Until the stream has done all that it has been given so far. */
static void stream_await(cudaStream_t s) {
    pthread_mutex_lock(&s->lock);
    const int queued = s->queued;
    while (s->done < queued)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

void device_settle(struct device *d) {
    cudaStream_t all[STREAMS_MOST];
    int n = 0;
    if (!d)
        return;
    must_have_chosen(); /* NCCL goes back to the device that the thread has */
    pthread_mutex_lock(&d->lock);
    d->lazy = false; /* there will be more, of the call that was overtaken */
    for (cudaStream_t s = d->streams; s && n < STREAMS_MOST; s = s->next)
        all[n++] = s;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    for (int i = 0; i < n; i++)
        stream_await(all[i]);
}

static void stream_leave(struct device *d, cudaStream_t s) {
    let(d, INT64_MAX); /* it does all that it was given */
    pthread_mutex_lock(&d->lock);
    struct CUstream_st **at = &d->streams;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    pthread_mutex_unlock(&d->lock);
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    must_have_chosen();
    if (s->device)
        stream_leave(s->device, s);
    pthread_mutex_lock(&s->lock);
    s->closing = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    pthread_join(s->thread, NULL);
    pthread_cond_destroy(&s->changed);
    pthread_mutex_destroy(&s->lock);
    free(s);
    return cudaSuccess;
}

/* --- events ---*/

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags) {
    must_have_chosen();
    cudaEvent_t event = calloc(1, sizeof *event);
    (void)flags;
    pthread_mutex_init(&event->lock, NULL);
    pthread_cond_init(&event->changed, NULL);
    *ret = event;
    return cudaSuccess;
}

struct mark {
    cudaEvent_t event;
    int number;
};

static struct mark *mark_new(cudaEvent_t event, bool records) {
    struct mark *m = malloc(sizeof *m);
    pthread_mutex_lock(&event->lock);
    event->recorded += records;
    *m = (struct mark){ event, event->recorded };
    pthread_mutex_unlock(&event->lock);
    return m;
}

static void mark_reach(void *arg) {
    struct mark *m = arg;
    pthread_mutex_lock(&m->event->lock);
    if (m->event->reached < m->number)
        m->event->reached = m->number;
    pthread_cond_broadcast(&m->event->changed);
    pthread_mutex_unlock(&m->event->lock);
    free(m);
}

static void mark_await(void *arg) {
    struct mark *m = arg;
    pthread_mutex_lock(&m->event->lock);
    while (m->event->reached < m->number)
        pthread_cond_wait(&m->event->changed, &m->event->lock);
    pthread_mutex_unlock(&m->event->lock);
    free(m);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t s) {
    must_have_chosen();
    device_queue(s, mark_reach, mark_new(event, true));
    pthread_mutex_lock(&event->lock);
    event->number = s->device ? number_new(s->device) : 0;
    pthread_mutex_unlock(&event->lock);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t s, cudaEvent_t event, unsigned flags) {
    must_have_chosen();
    (void)flags;
    device_queue(s, mark_await, mark_new(event, false));
    return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    must_have_chosen();
    await_answer();
    pthread_mutex_lock(&event->lock);
    bool there = event->reached == event->recorded;
    const int64_t number = event->number;
    pthread_mutex_unlock(&event->lock);
    host_waits(number);
    return there ? cudaSuccess : cudaErrorNotReady;
}

static void event_await(cudaEvent_t event) {
    pthread_mutex_lock(&event->lock);
    host_waits(event->number);
    while (event->reached < event->recorded)
        pthread_cond_wait(&event->changed, &event->lock);
    pthread_mutex_unlock(&event->lock);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    must_have_chosen();
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->lock);
    free(event);
    return cudaSuccess;
}

/* --- memory, and work on it ---*/

cudaError_t cudaSetDevice(int ordinal) {
    chosen = ordinal;
    return ordinal <= DEVICE_ORDINAL ? cudaSuccess : cudaErrorInvalidDevice;
}
cudaError_t cudaFree(void *p) {
    must_have_chosen();
    free(p);
    return cudaSuccess;
}
cudaError_t cudaMalloc(void **ret, size_t bytes) {
    must_have_chosen();
    *ret = malloc(bytes);
    memset(*ret, 0xff, bytes);
    return cudaSuccess;
}

status_t cuda_status(cudaError_t error, const char *what, struct err *e) {
    return error == cudaSuccess ? ST_OK : err_set(e, ST_INTERNAL, "%s: error %d", what, (int)error);
}

struct fold {
    void *in;
    const void *arrived;
    size_t n;
};

static void fold_add(void *arg) {
    struct fold *f = arg;
    for (size_t i = 0; i < f->n; i++)
        ((float *)f->in)[i] += ((const float *)f->arrived)[i];
    free(f);
}

static void fold_or(void *arg) {
    struct fold *f = arg;
    for (size_t i = 0; i < f->n; i++)
        ((unsigned long long *)f->in)[i] |= ((const unsigned long long *)f->arrived)[i];
    free(f);
}

static cudaError_t fold_queue(void (*work)(void *), void *in, const void *arrived, size_t n, cudaStream_t stream) {
    must_have_chosen();
    struct fold *f = malloc(sizeof *f);
    *f = (struct fold){ in, arrived, n };
    device_queue(stream, work, f);
    return cudaSuccess;
}

cudaError_t nccl_accumulate_add(float *in, const float *arrived, size_t n, cudaStream_t stream) {
    return fold_queue(fold_add, in, arrived, n, stream);
}

cudaError_t nccl_accumulate_or(unsigned long long *in, const unsigned long long *arrived, size_t words,
                               cudaStream_t stream) {
    return fold_queue(fold_or, in, arrived, words, stream);
}

/* --- the table ---*/

static void copy_now(void *arg) {
    struct fold *f = arg;
    memcpy(f->in, f->arrived, f->n);
    free(f);
}

static status_t memory_new(const struct kernels *k, size_t bytes, void **ret, struct err *e) {
    (void)k;
    return cuda_status(cudaMalloc(ret, bytes), "allocate", e);
}

static status_t finish(const struct kernels *k, struct err *e) {
    cudaStream_t s = cuda_of(k)->stream;
    (void)e;
    feed(s);
    host_waits(INT64_MAX);
    stream_await(cuda_of(k)->ahead);
    stream_await(s);
    return ST_OK;
}

static void memory_free(const struct kernels *k, void *p) {
    status_ignore(finish(k, NULL)); /* as cudaFree waits */
    free(p);
}

static status_t copy_later(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    return cuda_status(fold_queue(copy_now, to, from, bytes, cuda_of(k)->stream), "copy", e);
}

static void fill_now(void *arg) {
    struct fold *f = arg;
    for (size_t i = 0; i < f->n; i++)
        ((float *)f->in)[i] = 0;
    free(f);
}

static status_t fill(const struct kernels *k, float *a, float value, int64_t n, struct err *e) {
    (void)value; /* 0 */
    return cuda_status(fold_queue(fill_now, a, NULL, (size_t)n, cuda_of(k)->stream), "fill", e);
}

static status_t event_new(const struct kernels *k, void **ret, struct err *e) {
    cudaEvent_t event = NULL;
    (void)k;
    TRY(cuda_status(cudaEventCreateWithFlags(&event, 0), "make an event", e));
    *ret = event;
    return ST_OK;
}

static void event_free(const struct kernels *k, void *event) {
    (void)k;
    if (event)
        cudaEventDestroy(event);
}

static status_t event_record(const struct kernels *k, void *event, struct err *e) {
    return cuda_status(cudaEventRecord(event, cuda_of(k)->stream), "mark a place", e);
}

static status_t event_wait(const struct kernels *k, void *event, struct err *e) {
    if (device_fault("event_wait"))
        return err_set(e, ST_INTERNAL, "running the queued kernels: an illegal access");
    feed(cuda_of(k)->stream);
    event_await(event);
    return ST_OK;
}

static status_t upload_ahead(const struct kernels *k, void *to, const void *from, size_t bytes, struct err *e) {
    return cuda_status(fold_queue(copy_now, to, from, bytes, cuda_of(k)->ahead), "copy", e);
}

static status_t ahead_await(const struct kernels *k, struct err *e) {
    const struct cuda *c = cuda_of(k);
    TRY(cuda_status(cudaEventRecord(c->arrived, c->ahead), "mark a place", e));
    return cuda_status(cudaStreamWaitEvent(c->stream, c->arrived, 0), "order two streams", e);
}

static status_t ahead_release(const struct kernels *k, struct err *e) {
    const struct cuda *c = cuda_of(k);
    TRY(cuda_status(cudaEventRecord(c->released, c->stream), "mark a place", e));
    return cuda_status(cudaStreamWaitEvent(c->ahead, c->released, 0), "order two streams", e);
}

void device_open(struct cuda *c) {
    cudaSetDevice(DEVICE_ORDINAL);
    mine = calloc(1, sizeof *mine);
    pthread_mutex_init(&mine->lock, NULL);
    pthread_cond_init(&mine->changed, NULL);
    mine->lazy = atomic_load(&lazy);
    c->ordinal = DEVICE_ORDINAL;
    c->table.device = "cuda";
    c->table.memory_new = memory_new;
    c->table.memory_free = memory_free;
    c->table.finish = finish;
    c->table.event_new = event_new;
    c->table.event_free = event_free;
    c->table.event_record = event_record;
    c->table.event_wait = event_wait;
    c->table.upload_ahead = upload_ahead;
    c->table.ahead_await = ahead_await;
    c->table.ahead_release = ahead_release;
    cudaStreamCreateWithFlags(&c->stream, 0);
    cudaStreamCreateWithFlags(&c->ahead, 0);
    cudaEventCreateWithFlags(&c->arrived, 0);
    cudaEventCreateWithFlags(&c->released, 0);
}

void device_close(struct cuda *c) {
    struct device *d = c->stream->device;
    cudaStreamDestroy(c->ahead);
    cudaStreamDestroy(c->stream);
    cudaEventDestroy(c->arrived);
    cudaEventDestroy(c->released);
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
    free(d);
    mine = NULL;
}

struct cuda *device_new(void) {
    struct cuda *c = calloc(1, sizeof *c);
    device_open(c);
    c->table.upload = c->table.download = copy_later;
    c->table.fill = fill;
    return c;
}

void device_free(struct cuda *c) {
    device_close(c);
    free(c);
}
