/* The writer's thread sleeps until a snapshot is submitted. For each snapshot:
 *
 *   1. gather_digests with all ranks. This comes first and on every rank, even if a rank's disk is full: a rank that
 *      left out the exchange would block the others
 *   2. open the folders by their paths, because a network file system may have been remounted since
 *   3. remove this rank's files of the same step from an earlier attempt, the manifest first
 *   4. write the data file, then the table, then (rank 0) the manifest
 *   5. on a failure, remove this rank's files, and the folder if it is empty. Another rank may have removed the empty
 *      folder just before this rank writes to it; then the writing is repeated
 *   6. if the caller keeps the files elsewhere: call `keep`, and remove them
 *   7. call `done` with the result
 *
 * `busy` is set by submit and cleared by the thread, so at most one snapshot is in work. */
#include "engine/checkpoint/writer.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/clock.h"
#include "base/roots.h"
#include "engine/checkpoint/durable.h"
#include "engine/checkpoint/gather.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/safetensors.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { WRITE_BYTES = 1 << 20, FOLDER_TRIES = 3 };

struct checkpoint_writer {
    struct checkpoint_writer_config config;
    pthread_t thread;
    bool started;
    atomic_bool busy;

    pthread_mutex_t mutex; /* guards the members below */
    pthread_cond_t changed;
    bool stop;
    struct checkpoint_snapshot snapshot; /* while busy */
    double norms[CHECKPOINT_NORMS];      /* the snapshot's */
    status_t status;                     /* of the newest snapshot that is done */
    struct err error;
};

/* One snapshot that is being written. */
struct writing {
    const struct checkpoint_writer_config *config;
    const struct checkpoint_snapshot *snapshot;
    int attempt, folder; /* config->directory and the step's folder, open while it is written */
    char name[32], directory[PATH_MAX], file[CHECKPOINT_FILE_BYTES], table[CHECKPOINT_FILE_BYTES];
    digest_t *digests; /* (n_tensors) */
    int64_t bytes;
    char sha256[SHA256_HEX], weights_sha256[SHA256_HEX];
};

/* Removes this rank's files, the last written first: a folder that has a manifest has all other files. */
static void remove_files(const struct writing *job) {
    const char *names[] = { CHECKPOINT_MANIFEST, job->table, job->file };
    for (int i = job->config->rank == 0 ? 0 : 1; i < 3; i++) {
        unlinkat(job->folder, names[i], 0);
    }
}

static status_t write_data(struct writing *job, struct err *e) {
    const struct checkpoint_snapshot *s = job->snapshot;
    CLEANUP(bytes_done) struct bytes header;
    bytes_init(&header, SAFETENSORS_HEADER_BYTES + 8);
    CLEANUP(durable_closep) struct durable *file = NULL;
    TRY(safetensors_header(s->tensors, s->segments, s->n_segments, s->step, job->config->rank, job->config->world_size,
                           &header, e));
    TRY(durable_open(job->folder, job->directory, job->file, &file, e));
    TRY(durable_write(file, header.data, header.len, e));
    for (int i = 0; i < s->n_segments; i++) {
        const char *data = (const char *)s->data[i];
        size_t left = (size_t)s->segments[i].count * sizeof(float);
        while (left) { /* in small steps: the bytes are still in the CPU's cache when they are hashed */
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

static status_t write_json(const struct writing *job, const char *name, const struct bytes *text, struct err *e) {
    CLEANUP(durable_closep) struct durable *file = NULL;
    TRY(durable_open(job->folder, job->directory, name, &file, e));
    TRY(durable_write(file, text->data, text->len, e));
    return durable_commit(file, e);
}

static status_t write_table(const struct writing *job, struct err *e) {
    const struct checkpoint_snapshot *s = job->snapshot;
    CLEANUP(freep) struct rank_segment *segments = alloc_zeroed((size_t)s->n_segments + 1, sizeof *segments);
    for (int i = 0; i < s->n_segments; i++)
        segments[i] = (struct rank_segment){ s->tensors[s->segments[i].tensor], s->segments[i].first,
                                             s->segments[i].count };
    struct rank_table table = { .step = s->step,
                                .rank = job->config->rank,
                                .world_size = job->config->world_size,
                                .bytes = job->bytes,
                                .sha256 = job->sha256,
                                .segments = segments,
                                .n_segments = s->n_segments,
                                .tuning_cache = s->tuning_cache ? s->tuning_cache : "" };
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    TRY(rank_table_write(&table, &text, e));
    return write_json(job, job->table, &text, e);
}

struct named {
    struct checkpoint_tensor tensor;
    digest_t digest;
};

static int by_name(const void *a, const void *b) {
    return strcmp(((const struct named *)a)->tensor.name, ((const struct named *)b)->tensor.name);
}

static status_t write_manifest(const struct writing *job, struct err *e) {
    const struct checkpoint_snapshot *s = job->snapshot;
    const struct checkpoint_writer_config *c = job->config;
    CLEANUP(freep) struct named *named = alloc_zeroed((size_t)s->n_tensors + 1, sizeof *named);
    CLEANUP(freep) struct checkpoint_tensor *tensors = alloc_zeroed((size_t)s->n_tensors + 1, sizeof *tensors);
    CLEANUP(freep) digest_t *digests = alloc_zeroed((size_t)s->n_tensors + 1, sizeof *digests);
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
                                 .samples = s->samples,
                                 .not_finite = s->not_finite,
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
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    TRY(manifest_write(&manifest, &text, e));
    return write_json(job, CHECKPOINT_MANIFEST, &text, e);
}

static status_t make_folder(int parent, const char *name, const char *path, int *ret, struct err *e) {
    if (mkdirat(parent, name, 0777) < 0 && errno != EEXIST)
        return err_errno(e, "create folder '%s'", path);
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open folder '%s'", path);
    *ret = fd;
    return ST_OK;
}

static status_t open_folders(struct writing *job, struct err *e) {
    closep(&job->attempt);
    closep(&job->folder);
    TRY(roots_make(job->config->roots, job->config->directory, 0777, &job->attempt, e));
    return job->config->roots ? beneath_make(job->attempt, job->name, 0777, job->directory, &job->folder, e)
                              : make_folder(job->attempt, job->name, job->directory, &job->folder, e);
}

static status_t write_files(struct writing *job, struct err *e) {
    TRY(open_folders(job, e));
    if (fsync(job->attempt) < 0)
        return err_errno(e, "fsync folder '%s'", job->config->directory);
    remove_files(job);
    TRY(write_data(job, e));
    TRY(write_table(job, e));
    return job->config->rank == 0 ? write_manifest(job, e) : ST_OK;
}

static bool folder_is_gone(const struct writing *job) {
    return job->attempt >= 0 && faccessat(job->attempt, job->name, F_OK, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT;
}

static status_t write_snapshot(struct writing *job, struct err *e) {
    job->digests = alloc_zeroed((size_t)job->snapshot->n_tensors + 1, sizeof *job->digests);
    TRY(gather_digests(job->config, job->snapshot, NULL, GATHER_BATCH, job->digests, job->weights_sha256, e));
    status_t st = write_files(job, e);
    /* Another rank that failed may have removed the empty folder. This is not an error of this rank. */
    for (int again = 0; st != ST_OK && again < FOLDER_TRIES && folder_is_gone(job); again++)
        st = write_files(job, e);
    const bool elsewhere = st == ST_OK && job->config->keep;
    if (elsewhere)
        st = job->config->keep(job->config->done_ctx, job->snapshot->step, e);
    if ((st != ST_OK || elsewhere) && job->folder >= 0) {
        remove_files(job);
        unlinkat(job->attempt, job->name, AT_REMOVEDIR); /* fails if another rank's files are in it */
    }
    return st;
}

/* Writes w->snapshot and calls `done`. */
static status_t write_and_report(struct checkpoint_writer *w, struct err *e) {
    struct writing job = { .config = &w->config, .snapshot = &w->snapshot, .attempt = -1, .folder = -1 };
    checkpoint_data_file(w->config.rank, job.file);
    checkpoint_table_file(w->config.rank, job.table);
    snprintf(job.name, sizeof job.name, "step-%lld", (long long)w->snapshot.step);
    int length = snprintf(job.directory, sizeof job.directory, "%s/%s", w->config.directory, job.name);
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
    closep(&job.attempt);
    closep(&job.folder);
    free(job.digests);
    return st;
}

static void *thread_main(void *arg) {
    struct checkpoint_writer *w = arg;
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!atomic_load(&w->busy) && !w->stop)
            pthread_cond_wait(&w->changed, &w->mutex);
        if (!atomic_load(&w->busy))
            break;
        pthread_mutex_unlock(&w->mutex);
        struct err e = { "" };
        status_t st = write_and_report(w, &e);
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
    CLEANUP(closep) int folder = -1;
    TRY(roots_make(config->roots, config->directory, 0777, &folder, e));
    CLEANUP(checkpoint_writer_closep) struct checkpoint_writer *w = alloc_zeroed(1, sizeof *w);
    w->config = *config;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    if ((errno = pthread_create(&w->thread, NULL, thread_main, w)) != 0)
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
    if (snapshot->tuning_cache &&
        strnlen(snapshot->tuning_cache, CHECKPOINT_TUNING_CACHE_BYTES) == CHECKPOINT_TUNING_CACHE_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "a tuning cache of %d bytes or more is over the limit",
                       CHECKPOINT_TUNING_CACHE_BYTES);
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
