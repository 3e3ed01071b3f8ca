#include "executor/engine/data/loader.h"

#include "base/clock.h"
#include "executor/engine/data/sampler.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct slot {
    int32_t *tokens, *targets; /* (B,T) each */
};

struct loader {
    const struct corpus *corpus;
    int64_t seed, first_step, steps;
    int context, global_batch, micro_batch, n_micro_batches;
    int *micro_batches;
    int64_t train_windows, validation_windows; /* possible starts; validation: 0 = too short */
    struct slot slots[LOADER_RING];
    int32_t *window; /* (context + 1), of the prefetch thread */
    int32_t *validation_window;

    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t changed;
    int64_t made, taken; /* batches so far; slot of batch i: i % LOADER_RING */
    bool stop;
    status_t status;
    struct err error;
    int64_t wait_ns;
    bool started;
    pthread_t thread;
};

/* Samples first .. first + B - 1 of a stream into tokens and targets (B,T). */
static status_t make_batch(const struct loader *l, enum sampler_stream stream, int64_t first, int B, int32_t *window,
                           int32_t *tokens, int32_t *targets, struct err *e) {
    bool train = stream == SAMPLER_TRAIN;
    int64_t windows = train ? l->train_windows : l->validation_windows;
    size_t T = (size_t)l->context;
    for (int b = 0; b < B; b++) {
        int64_t start = sampler_start(l->seed, stream, windows, first + b);
        TRY(corpus_read(l->corpus, train ? CORPUS_TRAIN : CORPUS_VALIDATION, start, l->context + 1, window, e));
        memcpy(tokens + (size_t)b * T, window, T * sizeof *window);
        memcpy(targets + (size_t)b * T, window + 1, T * sizeof *window);
    }
    return ST_OK;
}

static void *prefetch(void *arg) {
    struct loader *l = arg;
    int64_t all = (l->steps - l->first_step) * l->n_micro_batches;
    for (int64_t i = 0; i < all; i++) {
        pthread_mutex_lock(&l->mutex);
        /* The newest batch taken is still being read: its slot is free only when the next one is taken. */
        while (!l->stop && i - (l->taken - 1) >= LOADER_RING)
            pthread_cond_wait(&l->changed, &l->mutex);
        bool stop = l->stop;
        pthread_mutex_unlock(&l->mutex);
        if (stop)
            return NULL;

        int64_t step = l->first_step + i / l->n_micro_batches;
        int k = l->micro_batches[i % l->n_micro_batches];
        struct slot *slot = &l->slots[i % LOADER_RING];
        struct err e;
        status_t st = make_batch(l, SAMPLER_TRAIN, step * l->global_batch + (int64_t)k * l->micro_batch, l->micro_batch,
                                 l->window, slot->tokens, slot->targets, &e);

        pthread_mutex_lock(&l->mutex);
        if (st == ST_OK) {
            l->made++;
        } else {
            l->status = st;
            l->error = e;
        }
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->mutex);
        if (st != ST_OK)
            return NULL;
    }
    return NULL;
}

struct loader *loader_close(struct loader *l) {
    if (!l)
        return NULL;
    if (l->started) {
        pthread_mutex_lock(&l->mutex);
        l->stop = true;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->mutex);
        pthread_join(l->thread, NULL);
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->mutex);
    }
    for (int i = 0; i < LOADER_RING; i++) {
        free(l->slots[i].tokens);
        free(l->slots[i].targets);
    }
    free(l->micro_batches);
    free(l->window);
    free(l->validation_window);
    free(l);
    return NULL;
}

static status_t allocate(struct loader *l, const struct loader_config *config, struct err *e) {
    size_t batch = (size_t)config->micro_batch * (size_t)config->context * sizeof(int32_t);
    size_t window = ((size_t)config->context + 1) * sizeof(int32_t);
    bool ok = true;
    for (int i = 0; i < LOADER_RING; i++)
        ok = ok && (l->slots[i].tokens = malloc(batch)) && (l->slots[i].targets = malloc(batch));
    l->micro_batches = malloc((size_t)config->n_micro_batches * sizeof *l->micro_batches);
    ok = ok && l->micro_batches && (l->window = malloc(window)) && (l->validation_window = malloc(window));
    if (!ok)
        return err_errno(e, "allocate %d batches of %zu bytes", LOADER_RING, batch);
    memcpy(l->micro_batches, config->micro_batches, (size_t)config->n_micro_batches * sizeof *l->micro_batches);
    return ST_OK;
}

status_t loader_open(const struct loader_config *config, struct loader **ret, struct err *e) {
    assert(config->context >= 1 && config->micro_batch >= 1 && config->n_micro_batches >= 1);
    assert(config->global_batch % config->micro_batch == 0 && config->first_step >= 0);
    int64_t train = corpus_tokens(config->corpus, CORPUS_TRAIN);
    int64_t validation = corpus_tokens(config->corpus, CORPUS_VALIDATION);
    if (train < config->context + 1)
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "the data has %lld tokens for training (and %lld for validation); a sample of context %d needs %d",
            (long long)train, (long long)validation, config->context, config->context + 1);
    CLEANUP(loader_closep) struct loader *l = calloc(1, sizeof *l);
    if (!l)
        return err_errno(e, "allocate a loader");
    l->corpus = config->corpus;
    l->seed = config->seed;
    l->first_step = config->first_step;
    l->steps = config->steps;
    l->context = config->context;
    l->global_batch = config->global_batch;
    l->micro_batch = config->micro_batch;
    l->n_micro_batches = config->n_micro_batches;
    l->train_windows = train - config->context;
    l->validation_windows = validation > config->context ? validation - config->context : 0;
    TRY(allocate(l, config, e));
    pthread_mutex_init(&l->mutex, NULL);
    pthread_cond_init(&l->changed, NULL);
    if ((errno = pthread_create(&l->thread, NULL, prefetch, l)) != 0)
        return err_errno(e, "start the prefetch thread");
    l->started = true;
    *ret = take_ptr(&l);
    return ST_OK;
}

status_t loader_next(struct loader *l, int64_t step, int k, struct loader_batch *ret, struct err *e) {
    pthread_mutex_lock(&l->mutex);
    int64_t i = l->taken;
    assert(step == l->first_step + i / l->n_micro_batches && step < l->steps);
    assert(k == l->micro_batches[i % l->n_micro_batches]);
    (void)step, (void)k;
    int64_t begun = clock_mono_ns();
    bool waited = l->made <= i;
    while (l->made <= i && l->status == ST_OK)
        pthread_cond_wait(&l->changed, &l->mutex);
    if (waited)
        l->wait_ns += clock_mono_ns() - begun;
    if (l->made <= i) {
        status_t st = err_set(e, l->status, "%s", l->error.msg);
        pthread_mutex_unlock(&l->mutex);
        return st;
    }
    l->taken++;
    pthread_cond_broadcast(&l->changed);
    pthread_mutex_unlock(&l->mutex);
    ret->tokens = l->slots[i % LOADER_RING].tokens;
    ret->targets = l->slots[i % LOADER_RING].targets;
    return ST_OK;
}

bool loader_has_validation(const struct loader *l) { return l->validation_windows > 0; }

status_t loader_validation(struct loader *l, int64_t first, int B, int32_t *tokens, int32_t *targets, struct err *e) {
    if (!l->validation_windows)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the data has %lld tokens for validation; a sample of context %d needs %d",
                       (long long)corpus_tokens(l->corpus, CORPUS_VALIDATION), l->context, l->context + 1);
    return make_batch(l, SAMPLER_VALIDATION, first, B, l->validation_window, tokens, targets, e);
}

int64_t loader_wait_ns(const struct loader *l) {
    pthread_mutex_t *mutex = (pthread_mutex_t *)&l->mutex;
    pthread_mutex_lock(mutex);
    int64_t ns = l->wait_ns;
    pthread_mutex_unlock(mutex);
    return ns;
}
