#include "tests/engine/nccl/device.h"

#include "executor/engine/collective/nccl_fold.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct job {
    void (*work)(void *);
    void *arg;
    struct job *next;
};

struct CUstream_st {
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
};

static _Thread_local int chosen; /* this thread's device: 0 until it has chosen */
static _Thread_local const char *failing;
static atomic_int failed, connections;

static void must_have_chosen(void) {
    if (chosen == DEVICE_ORDINAL)
        return;
    fprintf(stderr, "CUDA's stand-in: a call on device %d, which is not the gang's\n", chosen);
    abort();
}

void device_fail(const char *call) { failing = call; }
int device_failed(void) { return atomic_load(&failed); }
bool device_fault(const char *call) {
    const bool fails = failing && strcmp(failing, call) == 0;
    atomic_fetch_add(&failed, fails);
    return fails;
}

int device_connected(void) { return atomic_load(&connections); }
void device_connects(void) { atomic_fetch_add(&connections, 1); }

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
        job->work(job->arg);
        free(job);
        pthread_mutex_lock(&s->lock);
        s->done++;
        pthread_cond_broadcast(&s->changed);
    }
    pthread_mutex_unlock(&s->lock);
    return NULL;
}

void device_queue(cudaStream_t s, void (*work)(void *), void *arg) {
    struct job *job = malloc(sizeof *job);
    *job = (struct job){ work, arg, NULL };
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

cudaError_t cudaStreamQuery(cudaStream_t s) {
    must_have_chosen();
    pthread_mutex_lock(&s->lock);
    bool idle = s->done == s->queued;
    pthread_mutex_unlock(&s->lock);
    return idle ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamDestroy(cudaStream_t s) {
    must_have_chosen();
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
    pthread_mutex_lock(&event->lock);
    bool there = event->reached == event->recorded;
    pthread_mutex_unlock(&event->lock);
    return there ? cudaSuccess : cudaErrorNotReady;
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

cudaError_t nccl_fold_add(float *in, const float *arrived, size_t n, cudaStream_t stream) {
    return fold_queue(fold_add, in, arrived, n, stream);
}

cudaError_t nccl_fold_or(unsigned long long *in, const unsigned long long *arrived, size_t words, cudaStream_t stream) {
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
    pthread_mutex_lock(&s->lock);
    while (s->done < s->queued)
        pthread_cond_wait(&s->changed, &s->lock);
    pthread_mutex_unlock(&s->lock);
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

struct cuda *device_new(void) {
    struct cuda *c = calloc(1, sizeof *c);
    cudaSetDevice(DEVICE_ORDINAL);
    c->ordinal = DEVICE_ORDINAL;
    c->table.device = "cuda";
    c->table.memory_new = memory_new;
    c->table.memory_free = memory_free;
    c->table.upload = c->table.download = copy_later;
    c->table.fill = fill;
    c->table.finish = finish;
    cudaStreamCreateWithFlags(&c->stream, 0);
    return c;
}

void device_free(struct cuda *c) {
    cudaStreamDestroy(c->stream);
    free(c);
}
