/* The loader's threads make the batches i = 0, 1, 2, ... of this rank in a ring of buffers. Batch i is in buffer i
 * modulo the size of the ring. A thread takes the next number, makes the batch without the lock, and marks the buffer
 * as ready. loader_next waits until the batch it needs is ready.
 *
 * A buffer is free again when `valid` more batches have been taken, because the caller may still read the newest ones
 * (a device uploads from them). The ring has loader_ahead more buffers than `valid`, so the threads work ahead.
 *
 * After a failure no new batch is begun. Batches before the failed one are still returned; that one and later ones
 * return the error of the earliest failure, whichever thread was first. */
#include "engine/data/loader.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "engine/data/data_file.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct buffer {
    struct batch batch; /* (B, sample's shape) each */
    bool ready;
    int64_t made_ns, read_ns; /* it took to make it, and in files of that */
};

struct loader {
    const struct source *source;
    struct loader_memory memory;
    int64_t seed, first_step, steps, first_sample;
    int global_batch, micro_batch, n_micro_batches;
    int *micro_batches;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    struct buffer *ring; /* batch i is in ring[i % n_ring] */
    int n_ring, valid;
    int64_t begun, taken; /* batches so far */
    bool stop;
    status_t status; /* of batch `failed` */
    int64_t failed;
    struct err error;
    struct loader_waits waits;
    int n_threads;
    pthread_t threads[LOADER_MAX];
};

static status_t make_batch(const struct loader *l, int64_t i, const struct batch *to, struct err *e) {
    const int64_t step = i / l->n_micro_batches, k = l->micro_batches[i % l->n_micro_batches];
    const int64_t first = l->first_sample + step * l->global_batch + k * l->micro_batch;
    return source_read(l->source, SOURCE_TRAIN, l->seed, first, l->micro_batch, to, e);
}

/* Keeps the failure of the earliest batch. */
static void record_failure(struct loader *l, int64_t i, status_t st, const struct err *e) {
    if (l->status != ST_OK && l->failed < i)
        return;
    l->status = st;
    l->failed = i;
    l->error = *e;
}

static void *prefetch(void *arg) {
    struct loader *l = arg;
    int64_t all = (l->steps - l->first_step) * l->n_micro_batches;
    pthread_mutex_lock(&l->mutex);
    for (;;) {
        /* Waits until a buffer is free. */
        while (!l->stop && l->status == ST_OK && l->begun < all && l->begun - (l->taken - l->valid) >= l->n_ring)
            pthread_cond_wait(&l->changed, &l->mutex);
        if (l->stop || l->status != ST_OK || l->begun >= all)
            break;
        int64_t i = l->begun++;
        struct buffer *buffer = &l->ring[i % l->n_ring];
        buffer->ready = false;
        pthread_mutex_unlock(&l->mutex);

        struct err e;
        const int64_t begun_ns = clock_mono_ns(), before_ns = data_file_ns();
        status_t st = make_batch(l, i, &buffer->batch, &e);
        const int64_t read_ns = data_file_ns() - before_ns, made_ns = clock_mono_ns() - begun_ns;

        pthread_mutex_lock(&l->mutex);
        buffer->read_ns = read_ns;
        buffer->made_ns = made_ns;
        if (st == ST_OK)
            buffer->ready = true;
        else
            record_failure(l, i, st, &e);
        pthread_cond_broadcast(&l->changed);
    }
    pthread_mutex_unlock(&l->mutex);
    return NULL;
}

struct loader *loader_close(struct loader *l) {
    if (!l)
        return NULL;
    pthread_mutex_lock(&l->mutex);
    l->stop = true;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    for (int t = 0; t < l->n_threads; t++)
        pthread_join(l->threads[t], NULL);
    pthread_cond_destroy(&l->changed);
    pthread_mutex_destroy(&l->mutex);
    for (int i = 0; l->ring && i < l->n_ring; i++)
        for (int input = 0; input < BATCH_INPUTS; input++)
            l->memory.free(l->memory.ctx, l->ring[i].batch.of[input]);
    free(l->ring);
    free(l->micro_batches);
    free(l);
    return NULL;
}

static status_t malloc_make(void *ctx, size_t bytes, void **ret, struct err *e) {
    (void)ctx;
    void *p = malloc(bytes);
    if (!p)
        return err_errno(e, "allocate a batch of %zu bytes", bytes);
    *ret = p;
    return ST_OK;
}

static void malloc_free(void *ctx, void *p) {
    (void)ctx;
    free(p);
}

static bool wanted(const struct loader_config *config, enum batch_input input) {
    return !config->inputs || config->inputs >> input & 1;
}

static status_t allocate(struct loader *l, const struct loader_config *config, struct err *e) {
    const struct source_info *info = source_info(l->source);
    l->ring = alloc_zeroed((size_t)l->n_ring, sizeof *l->ring);
    for (int i = 0; i < info->n_inputs; i++) {
        enum batch_input input = info->inputs[i].input;
        size_t bytes = (size_t)config->micro_batch * (size_t)source_elements(l->source, input) * sizeof(float);
        for (int s = 0; wanted(config, input) && s < l->n_ring; s++)
            TRY(l->memory.make(l->memory.ctx, bytes, &l->ring[s].batch.of[input], e));
    }
    size_t bytes = (size_t)config->n_micro_batches * sizeof *l->micro_batches;
    if (!(l->micro_batches = malloc(bytes)))
        return err_errno(e, "allocate %zu bytes", bytes);
    memcpy(l->micro_batches, config->micro_batches, bytes);
    return ST_OK;
}

int loader_threads(const struct loader_config *config) {
    const struct source_info *info = source_info(config->source);
    int64_t numbers = 0;
    for (int i = 0; i < info->n_inputs; i++)
        if (wanted(config, info->inputs[i].input))
            numbers += config->micro_batch * source_elements(config->source, info->inputs[i].input);
    const int64_t for_numbers = (numbers + LOADER_THREAD_NUMBERS - 1) / LOADER_THREAD_NUMBERS,
                  n = for_numbers > info->reading_threads ? for_numbers : info->reading_threads;
    return n < 1 ? 1 : n > LOADER_THREADS ? LOADER_THREADS : (int)n;
}

int loader_ahead(int threads, int ahead) { return ahead ? ahead : threads > LOADER_AHEAD ? threads : LOADER_AHEAD; }

status_t loader_open(const struct loader_config *config, struct loader **ret, struct err *e) {
    assert(config->micro_batch >= 1 && config->n_micro_batches >= 1);
    assert(config->global_batch % config->micro_batch == 0 && config->first_step >= 0);
    assert(config->threads >= 0 && config->threads <= LOADER_MAX && config->valid >= 0);
    assert(config->ahead >= 0 && config->ahead <= LOADER_MAX);
    struct loader *new = alloc_zeroed(1, sizeof *new);
    pthread_mutex_init(&new->mutex, NULL);
    pthread_cond_init(&new->changed, NULL);
    CLEANUP(loader_closep) struct loader *l = new;
    l->source = config->source;
    l->seed = config->seed;
    l->first_step = config->first_step;
    l->first_sample = config->first_sample;
    l->steps = config->steps;
    l->global_batch = config->global_batch;
    l->micro_batch = config->micro_batch;
    l->n_micro_batches = config->n_micro_batches;
    l->valid = config->valid ? config->valid : 1;
    l->n_ring = loader_ahead(config->threads, config->ahead) + l->valid;
    l->memory = config->memory.make ? config->memory : (struct loader_memory){ malloc_make, malloc_free, NULL };
    TRY(allocate(l, config, e));
    const int threads = config->threads ? config->threads : loader_threads(config);
    for (int t = 0; t < threads; t++) {
        if ((errno = pthread_create(&l->threads[t], NULL, prefetch, l)) != 0)
            return err_errno(e, "start a thread that makes batches");
        l->n_threads++;
    }
    *ret = take_ptr(&l);
    return ST_OK;
}

static void count_wait(struct loader *l, const struct buffer *buffer, int64_t ns) {
    const double part = buffer->made_ns > 0 ? (double)buffer->read_ns / (double)buffer->made_ns : 0;
    l->waits.ns += ns;
    l->waits.read_ns += (int64_t)((double)ns * (part < 1 ? part : 1));
}

status_t loader_next(struct loader *l, int64_t step, int k, struct loader_batch *ret, struct err *e) {
    pthread_mutex_lock(&l->mutex);
    int64_t i = l->taken;
    const struct buffer *buffer = &l->ring[i % l->n_ring];
    assert(step == l->first_step + i / l->n_micro_batches && step < l->steps);
    assert(k == l->micro_batches[i % l->n_micro_batches]);
    (void)step, (void)k;
    int64_t begun = clock_mono_ns();
    bool waited = false;
    while ((l->begun <= i || !buffer->ready) && !(l->status != ST_OK && l->failed <= i)) {
        waited = true;
        pthread_cond_wait(&l->changed, &l->mutex);
    }
    if (waited)
        count_wait(l, buffer, clock_mono_ns() - begun);
    if (l->begun <= i || !buffer->ready) {
        status_t st = err_set(e, l->status, "%s", l->error.msg);
        pthread_mutex_unlock(&l->mutex);
        return st;
    }
    l->taken++;
    pthread_cond_broadcast(&l->changed);
    for (int input = 0; input < BATCH_INPUTS; input++)
        ret->of[input] = buffer->batch.of[input];
    pthread_mutex_unlock(&l->mutex);
    return ST_OK;
}

struct loader_waits loader_waits(const struct loader *l) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&l->mutex;
    pthread_mutex_lock(mutex);
    const struct loader_waits waits = l->waits;
    pthread_mutex_unlock(mutex);
    return waits;
}
