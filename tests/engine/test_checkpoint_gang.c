/* The readers of a gang prove a checkpoint of 1,024 ranks between them: each reads its share of the files, and all
 * refuse a damaged one with the same sentence. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/writer.h"
#include "tests/sanitized.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

enum { WRITERS = SANITIZED ? 64 : 1024, READERS = 8, ELEMENTS = WRITERS * 2 * CHECKPOINT_CHUNK_ELEMENTS, BIASES = 100 };

static const struct checkpoint_tensor MODEL[] = { { .name = "bias", .shape = { BIASES }, .n_dims = 1 },
                                                  { .name = "weight", .shape = { ELEMENTS }, .n_dims = 1 } };

static char root[] = "/tmp/ty-checkpoint-gang-XXXXXX";

/* --- ranks are threads that exchange blobs --- */

struct hall {
    int n;
    pthread_barrier_t met;
    const void *blobs[WRITERS];
    size_t sizes[WRITERS];
};

struct member {
    struct hall *hall;
    int rank;
};

static status_t exchange(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct member *m = ctx;
    status_t st = ST_OK;
    m->hall->blobs[m->rank] = mine;
    m->hall->sizes[m->rank] = n;
    pthread_barrier_wait(&m->hall->met);
    for (int r = 0; r < m->hall->n && st == ST_OK; r++)
        st = bytes_append(&all[r], m->hall->blobs[r], m->hall->sizes[r], e);
    pthread_barrier_wait(&m->hall->met);
    return st;
}

/* --- writing --- */

static void note(void *ctx, const struct checkpoint_result *result) { *(status_t *)ctx = result->status; }

struct writing {
    struct checkpoint_writer *writer;
    struct member member;
    struct checkpoint_segment segments[2];
    const float *data[2];
    status_t status;
};

/* Two chunks of the weight on each rank, and the bias on the last. */
static void submit(struct writing *w, struct hall *hall, int rank, const char *directory, const float *weight,
                   const float *bias) {
    struct err e = { "" };
    w->member = (struct member){ hall, rank };
    const int64_t first = (int64_t)rank * 2 * CHECKPOINT_CHUNK_ELEMENTS;
    w->segments[0] = (struct checkpoint_segment){ 1, first, 2 * CHECKPOINT_CHUNK_ELEMENTS };
    w->segments[1] = (struct checkpoint_segment){ 0, 0, BIASES };
    w->data[0] = weight + first;
    w->data[1] = bias;
    const struct checkpoint_writer_config config = { .directory = directory,
                                                     .rank = rank,
                                                     .world_size = WRITERS,
                                                     .spec_json = "{}",
                                                     .layout_json = "{}",
                                                     .tokenizer_json = "{}",
                                                     .data_sha256 = "",
                                                     .numerics_id = "test",
                                                     .exchange = exchange,
                                                     .exchange_ctx = &w->member,
                                                     .done = note,
                                                     .done_ctx = &w->status };
    const struct checkpoint_snapshot snapshot = { .step = 5,
                                                  .updates = 5,
                                                  .tensors = MODEL,
                                                  .n_tensors = 2,
                                                  .segments = w->segments,
                                                  .data = w->data,
                                                  .n_segments = rank == WRITERS - 1 ? 2 : 1,
                                                  .tuning_cache = "" };
    if (checkpoint_writer_open(&config, &w->writer, &e) != ST_OK ||
        checkpoint_writer_submit(w->writer, &snapshot, &e) != ST_OK)
        fail_msg("%s", e.msg);
}

static float value_of(int64_t i, int seed) { return (float)((i * 31 + seed) % 4093) * 0.25f; }

static void save(const char *directory, int seed) {
    struct hall *hall = calloc(1, sizeof *hall);
    struct writing *writing = calloc(WRITERS, sizeof *writing);
    float *weight = malloc(ELEMENTS * sizeof *weight), bias[BIASES] = { 1 };
    assert_true(hall && writing && weight);
    hall->n = WRITERS;
    pthread_barrier_init(&hall->met, NULL, WRITERS);
    for (int64_t i = 0; i < ELEMENTS; i++)
        weight[i] = value_of(i, seed);
    for (int rank = 0; rank < WRITERS; rank++)
        submit(&writing[rank], hall, rank, directory, weight, bias);
    for (int rank = 0; rank < WRITERS; rank++) {
        status_ignore(checkpoint_writer_wait(writing[rank].writer, NULL));
        checkpoint_writer_close(writing[rank].writer);
        assert_int_equal(writing[rank].status, ST_OK);
    }
    pthread_barrier_destroy(&hall->met);
    free(hall);
    free(writing);
    free(weight);
}

/* --- reading --- */

struct reading {
    const char *directory;
    struct member member;
    int n, progress;
    status_t status;
    struct err err;
    bool same; /* the elements that it read are those that were written */
};

static void count_progress(void *ctx) { ((struct reading *)ctx)->progress++; }

static void *read_all(void *arg) {
    struct reading *r = arg;
    const struct checkpoint_reader_options options = { .progress = count_progress,
                                                       .ctx = r,
                                                       .rank = r->member.rank,
                                                       .world_size = r->n,
                                                       .exchange = r->n > 1 ? exchange : NULL,
                                                       .exchange_ctx = &r->member };
    struct checkpoint_reader *reader = NULL;
    r->status = checkpoint_reader_open(r->directory, &options, &reader, &r->err);
    const int opened = r->progress;
    CLEANUP(freep) float *weight = malloc(ELEMENTS * sizeof *weight);
    if (r->status == ST_OK && weight) {
        /* Over the boundaries of files, and within one. */
        r->same = checkpoint_reader_read(reader, "weight", 0, ELEMENTS, weight, &r->err) == ST_OK;
        for (int64_t i = 0; i < ELEMENTS && r->same; i++)
            r->same = weight[i] == value_of(i, 1);
        r->same = r->same && checkpoint_reader_read(reader, "weight", ELEMENTS - 5000, 10, weight, &r->err) == ST_OK &&
                  weight[3] == value_of(ELEMENTS - 4997, 1) &&
                  checkpoint_reader_read(reader, "bias", 0, BIASES, weight, &r->err) == ST_OK && weight[0] == 1;
    }
    r->progress = opened;
    checkpoint_reader_close(reader);
    return NULL;
}

static void read_by(int n, const char *directory, struct reading *ret) {
    struct hall *hall = calloc(1, sizeof *hall);
    pthread_t threads[READERS];
    assert_non_null(hall);
    hall->n = n;
    pthread_barrier_init(&hall->met, NULL, (unsigned)n);
    for (int i = 0; i < n; i++) {
        ret[i] = (struct reading){ .directory = directory, .member = { hall, i }, .n = n };
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, &ret[i]), 0);
    }
    for (int i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&hall->met);
    free(hall);
}

static void path_in(char ret[256], const char *directory, const char *file) {
    snprintf(ret, 256, "%s/%s", directory, file);
}

static void flip(const char *directory, const char *file, int64_t from_end) {
    char path[256];
    unsigned char byte;
    path_in(path, directory, file);
    CLEANUP(closep) int fd = open(path, O_RDWR);
    const off_t at = lseek(fd, -from_end, SEEK_END);
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= 4;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void refused_by_all(const char *directory, const char *says) {
    struct reading readers[READERS];
    for (int n = READERS; n >= 1; n -= READERS - 1) {
        read_by(n, directory, readers);
        for (int i = 0; i < n; i++) {
            assert_int_equal(readers[i].status, ST_DATA_LOSS);
            assert_string_equal(readers[i].err.msg, readers[0].err.msg);
            if (!strstr(readers[i].err.msg, says))
                fail_msg("'%s' does not name '%s'", readers[i].err.msg, says);
        }
    }
}

static char good[160];

static void need_files(void) {
    if (!*good)
        skip(); /* this process may open too few files */
}

static void each_reader_reads_its_share_and_gets_what_was_written(void **state) {
    (void)state;
    need_files();
    struct reading alone[1], gang[READERS];
    read_by(1, good, alone);
    if (alone->status != ST_OK)
        fail_msg("%s", alone->err.msg);
    assert_true(alone->same && alone->progress >= 2 * WRITERS);
    read_by(READERS, good, gang);
    for (int i = 0; i < READERS; i++) {
        if (gang[i].status != ST_OK)
            fail_msg("reader %d: %s", i, gang[i].err.msg);
        assert_true(gang[i].same);
        /* A call for each piece of a file, for each second, and for each exchange of digests. */
        assert_in_range(gang[i].progress, alone->progress / READERS, alone->progress / READERS + WRITERS / 4);
    }
}

static void a_damaged_file_is_named_by_every_reader(void **state) {
    (void)state;
    need_files();
    flip(good, "rank-45.safetensors", 77);
    refused_by_all(good, "rank-45.safetensors': its bytes are not the ones that were written");
    flip(good, "rank-18.safetensors", 5000); /* of another share, and the first of the two */
    refused_by_all(good, "rank-18.safetensors': its bytes are not the ones that were written");
    flip(good, "rank-18.safetensors", 5000);
    flip(good, "rank-45.safetensors", 77);
    flip(good, "rank-45.json", 77);
    refused_by_all(good, "rank-45.json': ");
    flip(good, "rank-45.json", 77);
}

static void swap(const char *a, const char *b, const char *file) {
    char from[256], to[256], aside[256];
    path_in(from, a, file);
    path_in(to, b, file);
    path_in(aside, a, "aside");
    assert_int_equal(rename(from, aside), 0);
    assert_int_equal(rename(to, from), 0);
    assert_int_equal(rename(aside, to), 0);
}

/* Valid files, which are not of this checkpoint. */
static void a_pair_of_files_of_another_checkpoint_is_refused_by_every_reader(void **state) {
    (void)state;
    need_files();
    char other[160], step[192];
    snprintf(other, sizeof other, "%s/other", root);
    snprintf(step, sizeof step, "%s/step-5", other);
    save(other, 2);
    swap(good, step, "rank-30.json");
    swap(good, step, "rank-30.safetensors");
    refused_by_all(good, "has another weight than its manifest lists");
    swap(good, step, "rank-30.json");
    swap(good, step, "rank-30.safetensors");
    each_reader_reads_its_share_and_gets_what_was_written(state);
}

static int make(void **state) {
    (void)state;
    struct rlimit limit;
    char directory[128];
    /* Each reader opens all files. */
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max < READERS * WRITERS + 256)
        return 0;
    limit.rlim_cur = READERS * WRITERS + 256;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0 || !mkdtemp(root))
        return -1;
    snprintf(directory, sizeof directory, "%s/good", root);
    snprintf(good, sizeof good, "%s/step-5", directory);
    save(directory, 1);
    return 0;
}

static int clean(void **state) {
    (void)state;
    return *good ? dir_remove(root, NULL) != ST_OK : 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_reader_reads_its_share_and_gets_what_was_written),
        cmocka_unit_test(a_damaged_file_is_named_by_every_reader),
        cmocka_unit_test(a_pair_of_files_of_another_checkpoint_is_refused_by_every_reader),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
