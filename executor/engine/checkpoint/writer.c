#include "executor/engine/checkpoint/writer.h"

#include "base/clock.h"
#include "base/file.h"
#include "executor/engine/checkpoint/durable.h"
#include "executor/engine/checkpoint/gather.h"
#include "executor/engine/checkpoint/manifest.h"
#include "executor/engine/checkpoint/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { WRITE_BYTES = 1 << 20, FOLDER_TRIES = 3 };

struct checkpoint_writer {
    struct checkpoint_writer_config config;
    pthread_t thread;
    bool started;
    atomic_bool busy;

    pthread_mutex_t mutex; /* of everything below */
    pthread_cond_t changed;
    bool stop;
    struct checkpoint_snapshot snapshot; /* while busy */
    double norms[CHECKPOINT_NORMS];      /* the snapshot's */
    status_t status;                     /* of the newest snapshot that is done */
    struct err error;
};

/* One snapshot in work, of the writer's thread. */
struct job {
    const struct checkpoint_writer_config *config;
    const struct checkpoint_snapshot *snapshot;
    char directory[PATH_MAX], file[CHECKPOINT_FILE_BYTES], table[CHECKPOINT_FILE_BYTES];
    digest_t *digests; /* (n_tensors) */
    int64_t bytes;
    char sha256[SHA256_HEX], weights_sha256[SHA256_HEX];
};

/* This rank's files, the last one first, so that a folder with a manifest never has fewer files than it had. */
static void remove_files(const struct job *job) {
    const char *names[] = { CHECKPOINT_MANIFEST, job->table, job->file };
    for (int i = job->config->rank == 0 ? 0 : 1; i < 3; i++) {
        char path[PATH_MAX + CHECKPOINT_FILE_BYTES];
        snprintf(path, sizeof path, "%s/%s", job->directory, names[i]);
        unlink(path);
    }
}

static status_t write_data(struct job *job, struct err *e) {
    const struct checkpoint_snapshot *s = job->snapshot;
    struct bytes header;
    bytes_init(&header, SAFETENSORS_HEADER_BYTES + 8);
    CLEANUP(durable_closep) struct durable *file = NULL;
    status_t st = safetensors_header(s->tensors, s->pieces, s->n_pieces, s->step, job->config->rank,
                                     job->config->world_size, &header, e);
    if (st == ST_OK)
        st = durable_open(job->directory, job->file, &file, e);
    if (st == ST_OK)
        st = durable_write(file, header.data, header.len, e);
    bytes_done(&header);
    if (st != ST_OK)
        return st;
    for (int i = 0; i < s->n_pieces; i++) {
        const char *data = (const char *)s->data[i];
        size_t left = (size_t)s->pieces[i].count * sizeof(float);
        while (left) { /* bit by bit: what was written is still in the cache when it is hashed */
            size_t n = left < WRITE_BYTES ? left : WRITE_BYTES;
            TRY(durable_write(file, data, n, e));
            data += n;
            left -= n;
        }
    }
    TRY(durable_commit(file, e));
    job->bytes = durable_bytes(file);
    memcpy(job->sha256, durable_sha256(file), sizeof job->sha256);
    return ST_OK;
}

static status_t write_json(const struct job *job, const char *name, const struct bytes *text, struct err *e) {
    CLEANUP(durable_closep) struct durable *file = NULL;
    TRY(durable_open(job->directory, name, &file, e));
    TRY(durable_write(file, text->data, text->len, e));
    return durable_commit(file, e);
}

static status_t write_table(const struct job *job, struct err *e) {
    const struct checkpoint_snapshot *s = job->snapshot;
    CLEANUP(freep) struct rank_piece *pieces = calloc((size_t)s->n_pieces + 1, sizeof *pieces);
    if (!pieces)
        return err_errno(e, "allocate %d pieces", s->n_pieces);
    for (int i = 0; i < s->n_pieces; i++)
        pieces[i] = (struct rank_piece){ s->tensors[s->pieces[i].tensor], s->pieces[i].first, s->pieces[i].count };
    struct rank_table table = { .step = s->step,
                                .rank = job->config->rank,
                                .world_size = job->config->world_size,
                                .bytes = job->bytes,
                                .sha256 = job->sha256,
                                .pieces = pieces,
                                .n_pieces = s->n_pieces,
                                .record = s->record ? s->record : "" };
    struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    status_t st = rank_table_write(&table, &text, e);
    if (st == ST_OK)
        st = write_json(job, job->table, &text, e);
    bytes_done(&text);
    return st;
}

struct named {
    struct checkpoint_tensor tensor;
    digest_t digest;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->tensor.name, ((const struct named *)b)->tensor.name);
}

static status_t write_manifest(const struct job *job, struct err *e) {
    const struct checkpoint_snapshot *s = job->snapshot;
    const struct checkpoint_writer_config *c = job->config;
    CLEANUP(freep) struct named *named = calloc((size_t)s->n_tensors + 1, sizeof *named);
    CLEANUP(freep) struct checkpoint_tensor *tensors = calloc((size_t)s->n_tensors + 1, sizeof *tensors);
    CLEANUP(freep) digest_t *digests = calloc((size_t)s->n_tensors + 1, sizeof *digests);
    if (!named || !tensors || !digests)
        return err_errno(e, "allocate %d tensors", s->n_tensors);
    for (int i = 0; i < s->n_tensors; i++) {
        named[i].tensor = s->tensors[i];
        memcpy(named[i].digest, job->digests[i], sizeof(digest_t));
    }
    qsort(named, (size_t)s->n_tensors, sizeof *named, by_name);
    for (int i = 0; i < s->n_tensors; i++) {
        tensors[i] = named[i].tensor;
        memcpy(digests[i], named[i].digest, sizeof(digest_t));
    }
    struct manifest manifest = { .step = s->step,
                                 .updates = s->updates,
                                 .skipped = s->skipped,
                                 .loss_scale = s->loss_scale,
                                 .growth_count = s->growth_count,
                                 .spike_norms = s->spike_norms,
                                 .n_spike_norms = s->n_spike_norms,
                                 .world_size = c->world_size,
                                 .numerics_id = c->numerics_id,
                                 .data_sha256 = c->data_sha256,
                                 .weights_sha256 = job->weights_sha256,
                                 .spec_json = c->spec_json,
                                 .layout_json = c->layout_json,
                                 .tokenizer_json = c->tokenizer_json,
                                 .tensors = tensors,
                                 .digests = (const digest_t *)digests,
                                 .n_tensors = s->n_tensors };
    struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    status_t st = manifest_write(&manifest, &text, e);
    if (st == ST_OK)
        st = write_json(job, CHECKPOINT_MANIFEST, &text, e);
    bytes_done(&text);
    return st;
}

static status_t write_files(struct job *job, struct err *e) {
    TRY(dir_make(job->directory, 0755, e));
    TRY(dir_sync(job->config->directory, e));
    remove_files(job);
    TRY(write_data(job, e));
    TRY(write_table(job, e));
    return job->config->rank == 0 ? write_manifest(job, e) : ST_OK;
}

static bool folder_is_gone(const struct job *job) { return access(job->directory, F_OK) < 0 && errno == ENOENT; }

static status_t write_snapshot(struct job *job, struct err *e) {
    /* The exchange comes first and on every rank, whatever becomes of a rank's files. */
    job->digests = calloc((size_t)job->snapshot->n_tensors + 1, sizeof *job->digests);
    if (!job->digests)
        return err_errno(e, "allocate the digests of %d tensors", job->snapshot->n_tensors);
    TRY(gather_digests(job->config, job->snapshot, GATHER_BATCH, job->digests, job->weights_sha256, e));
    status_t st = write_files(job, e);
    /* Another rank that failed may have removed the folder before a file of this one stood in it. What keeps this one
     * from writing is told, not that. */
    for (int again = 0; st != ST_OK && again < FOLDER_TRIES && folder_is_gone(job); again++)
        st = write_files(job, e);
    if (st != ST_OK) {
        remove_files(job);
        rmdir(job->directory); /* only when no rank has left anything in it */
    }
    return st;
}

/* Writes the snapshot in w, reports it, and returns how it went. */
static status_t do_job(struct checkpoint_writer *w, struct err *e) {
    struct job job = { .config = &w->config, .snapshot = &w->snapshot };
    checkpoint_data_file(w->config.rank, job.file);
    checkpoint_table_file(w->config.rank, job.table);
    int length = snprintf(job.directory, sizeof job.directory, "%s/step-%lld", w->config.directory,
                          (long long)w->snapshot.step);
    status_t st = length < (int)sizeof job.directory
                      ? write_snapshot(&job, e)
                      : err_set(e, ST_INVALID_ARGUMENT, "the path '%.80s...' is too long", w->config.directory);
    struct checkpoint_result result = { .status = st,
                                        .message = st == ST_OK ? "" : e->msg,
                                        .step = w->snapshot.step,
                                        .directory = job.directory,
                                        .file = job.file,
                                        .bytes = job.bytes,
                                        .sha256 = job.sha256,
                                        .weights_sha256 = job.weights_sha256,
                                        .tag = w->snapshot.tag };
    if (w->config.done)
        w->config.done(w->config.done_ctx, &result);
    free(job.digests);
    return st;
}

static void *work(void *arg) {
    struct checkpoint_writer *w = arg;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!atomic_load(&w->busy) && !w->stop)
            pthread_cond_wait(&w->changed, &w->mutex);
        if (!atomic_load(&w->busy))
            break;
        pthread_mutex_unlock(&w->mutex);
        struct err e = { "" };
        status_t st = do_job(w, &e);
        pthread_mutex_lock(&w->mutex);
        w->status = st;
        w->error = e;
        atomic_store(&w->busy, false);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

struct checkpoint_writer *checkpoint_writer_close(struct checkpoint_writer *w) {
    if (!w)
        return NULL;
    if (w->started) {
        pthread_mutex_lock(&w->mutex);
        w->stop = true;
        pthread_cond_broadcast(&w->changed);
        pthread_mutex_unlock(&w->mutex);
        pthread_join(w->thread, NULL);
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
    }
    free(w);
    return NULL;
}

status_t checkpoint_writer_open(const struct checkpoint_writer_config *config, struct checkpoint_writer **ret,
                                struct err *e) {
    assert(config->rank >= 0 && config->rank < config->world_size && (config->exchange || config->world_size == 1));
    TRY(dir_make(config->directory, 0755, e));
    CLEANUP(checkpoint_writer_closep) struct checkpoint_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_errno(e, "allocate a checkpoint writer");
    w->config = *config;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    if ((errno = pthread_create(&w->thread, NULL, work, w)) != 0)
        return err_errno(e, "start the checkpoint thread");
    w->started = true;
    *ret = take_ptr(&w);
    return ST_OK;
}

bool checkpoint_writer_busy(const struct checkpoint_writer *w) { return atomic_load(&w->busy); }

status_t checkpoint_writer_submit(struct checkpoint_writer *w, const struct checkpoint_snapshot *snapshot,
                                  struct err *e) {
    if (snapshot->n_tensors > CHECKPOINT_TENSORS)
        return err_set(e, ST_INVALID_ARGUMENT, "a checkpoint of %d tensors is over the limit of %d",
                       snapshot->n_tensors, CHECKPOINT_TENSORS);
    if (snapshot->record && strnlen(snapshot->record, CHECKPOINT_RECORD_BYTES) == CHECKPOINT_RECORD_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "a checkpoint's record of %d bytes or more is over the limit",
                       CHECKPOINT_RECORD_BYTES);
    assert(snapshot->n_spike_norms >= 0 && snapshot->n_spike_norms <= CHECKPOINT_NORMS);
    for (int i = 0; i < snapshot->n_tensors; i++)
        TRY(checkpoint_tensor_check(&snapshot->tensors[i], e));
    pthread_mutex_lock(&w->mutex);
    bool busy = atomic_load(&w->busy);
    if (!busy) {
        w->snapshot = *snapshot;
        memcpy(w->norms, snapshot->spike_norms ? snapshot->spike_norms : w->norms,
               (size_t)snapshot->n_spike_norms * sizeof *w->norms);
        w->snapshot.spike_norms = w->norms;
        atomic_store(&w->busy, true);
        pthread_cond_broadcast(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return busy ? err_set(e, ST_FAILED_PRECONDITION, "the checkpoint of step %lld is still being written",
                          (long long)w->snapshot.step)
                : ST_OK;
}

bool checkpoint_writer_wait_ms(struct checkpoint_writer *w, int ms) {
    struct timespec at = deadline_timespec(deadline_in(ms));
    int timed_out = 0;
    pthread_mutex_lock(&w->mutex);
    while (atomic_load(&w->busy) && !timed_out)
        timed_out = pthread_cond_clockwait(&w->changed, &w->mutex, CLOCK_MONOTONIC, &at);
    bool idle = !atomic_load(&w->busy);
    pthread_mutex_unlock(&w->mutex);
    return idle;
}

status_t checkpoint_writer_wait(struct checkpoint_writer *w, struct err *e) {
    pthread_mutex_lock(&w->mutex);
    while (atomic_load(&w->busy))
        pthread_cond_wait(&w->changed, &w->mutex);
    status_t st = w->status == ST_OK ? ST_OK : err_set(e, w->status, "%s", w->error.msg);
    pthread_mutex_unlock(&w->mutex);
    return st;
}
