/* Writes a small model as a checkpoint and compares what is read back.
 *
 * MODEL lists tensors with shapes that make boundaries visible: one with 293 chunks that ranks share, and tensors of a
 * few elements. The value of an element depends on its tensor, its index and the seed, so a moved or an old element is
 * found. `save` starts one writer for each rank in this process, submits a snapshot to each, and waits for all. The
 * writers' threads exchange blobs through `meet`: every thread publishes its blob and copies all of them between two
 * barriers. assert_loads opens the checkpoint and compares each element. */
#include "tests/engine/saved_model.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "engine/checkpoint/digest.h"
#include "engine/checkpoint/reader.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

const struct checkpoint_tensor MODEL[TENSORS] = {
    { "ln_f.bias", 1, { 5 } },
    { "wte.weight", 2, { 300, 1000 } }, /* 293 chunks, which the ranks share */
    { "scale", 0, { 0 } },
    { "block.0.w", 3, { 2, 3, 7 } },
    { "optimizer.m.wte.weight", 2, { 300, 1000 } },
    { "optimizer.m.ln_f.bias", 1, { 5 } },
    { "ema.ln_f.bias", 1, { 5 } },
    { "optimizer.row.wte.weight", 1, { 300 } },
};
const double NORMS[] = { 0.1, 1.0 / 3, 7e300 };
const char *const RECORDS[RANKS_MOST] = { "one\n", NULL, "one\n", "\"three\"\nlines\n" };

int cut_evenly(int rank, int world_size, struct checkpoint_segment *segments) {
    int64_t all = 0;
    for (int i = 0; i < TENSORS; i++)
        all += digest_chunks(checkpoint_tensor_elements(&MODEL[i]));
    /* This rank's share of the chunks, numbered through all tensors. */
    int64_t first = all * rank / world_size, end = all * (rank + 1) / world_size;
    int count = 0;
    int64_t at = 0;
    for (int i = 0; i < TENSORS; i++) {
        int64_t elements = checkpoint_tensor_elements(&MODEL[i]), chunks = digest_chunks(elements);
        int64_t from = first > at ? first - at : 0, to = end - at < chunks ? end - at : chunks;
        at += chunks;
        if (from >= to)
            continue;
        int64_t from_element = from * CHECKPOINT_CHUNK_ELEMENTS, to_element = to * CHECKPOINT_CHUNK_ELEMENTS;
        if (to_element > elements)
            to_element = elements;
        segments[count++] = (struct checkpoint_segment){ i, from_element, to_element - from_element };
    }
    return count;
}
cut_fn *cut = cut_evenly;
status_t (*keep)(void *ctx, int64_t step, struct err *e);

char root[] = "/tmp/ty-checkpoint-XXXXXX";

float value_of(int tensor, int64_t i, int seed) {
    return (float)((i * 31 + tensor * 1009 + seed * 7) % 4093) * 0.37f - 300.0f;
}

status_t meet(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    struct member *m = ctx;
    m->meeting->blobs[m->rank] = mine;
    m->meeting->sizes[m->rank] = n;
    pthread_barrier_wait(&m->meeting->met);
    status_t st = ST_OK;
    for (int r = 0; r < m->meeting->world_size && st == ST_OK; r++)
        st = bytes_append(&all[r], m->meeting->blobs[r], m->meeting->sizes[r], e);
    pthread_barrier_wait(&m->meeting->met);
    return st;
}

static void note_result(void *ctx, const struct checkpoint_result *result) {
    struct outcome *o = ctx;
    int rank = result->tag ? *(int *)result->tag : 0;
    o->status[rank] = result->status;
    snprintf(o->message[rank], sizeof o->message[rank], "%s", result->message);
    snprintf(o->weights[rank], sizeof o->weights[rank], "%s", result->weights_sha256);
    o->bytes[rank] = result->bytes;
}

static struct checkpoint_writer *writer_of(const char *directory, int rank, struct meeting *meeting,
                                           struct outcome *o) {
    o->members[rank] = (struct member){ meeting, rank };
    struct checkpoint_writer_config config = { .directory = directory,
                                               .rank = rank,
                                               .world_size = meeting->world_size,
                                               .spec_json = "{\"name\":\"tiny\",\"train\":{\"seed\":\"7\",\"lr\":0.1}}",
                                               .layout_json = "{\"data\":1}",
                                               .tokenizer_json = "{\"kind\":\"byte\"}",
                                               .data_sha256 = "d1",
                                               .numerics_id = "test",
                                               .exchange = meeting->world_size > 1 ? meet : NULL,
                                               .exchange_ctx = &o->members[rank],
                                               .done = note_result,
                                               .keep = keep,
                                               .done_ctx = o };
    struct checkpoint_writer *w = NULL;
    struct err e = { "" };
    o->status[rank] = checkpoint_writer_open(&config, &w, &e);
    return w;
}

status_t save(const char *directory, int world_size, int64_t step, int seed, struct outcome *o) {
    struct meeting meeting = { .world_size = world_size };
    pthread_barrier_init(&meeting.met, NULL, (unsigned)world_size);
    float *tensors[TENSORS];
    for (int t = 0; t < TENSORS; t++) {
        int64_t n = checkpoint_tensor_elements(&MODEL[t]);
        tensors[t] = malloc((size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++)
            tensors[t][i] = value_of(t, i, seed);
    }
    struct checkpoint_writer *writers[RANKS_MOST] = { NULL };
    static struct checkpoint_segment segments[RANKS_MOST][PIECES_MOST];
    static const float *data[RANKS_MOST][PIECES_MOST];
    int ranks[RANKS_MOST] = { 0, 1, 2, 3 };
    memset(o, 0, sizeof *o);
    for (int r = 0; r < world_size; r++) {
        writers[r] = writer_of(directory, r, &meeting, o);
        int n = cut(r, world_size, segments[r]);
        for (int i = 0; i < n; i++)
            data[r][i] = tensors[segments[r][i].tensor] + segments[r][i].first;
        struct checkpoint_snapshot snapshot = { .step = step,
                                                .updates = step - 1,
                                                .skipped = 2,
                                                .loss_scale = 4096,
                                                .growth_count = 17,
                                                .samples = 123456789012,
                                                .not_finite = 2,
                                                .spike_norms = NORMS,
                                                .n_spike_norms = 3,
                                                .tensors = MODEL,
                                                .n_tensors = TENSORS,
                                                .segments = segments[r],
                                                .data = data[r],
                                                .n_segments = n,
                                                .tuning_cache = RECORDS[r],
                                                .tag = &ranks[r] };
        struct err e;
        status_t taken = writers[r] ? checkpoint_writer_submit(writers[r], &snapshot, &e) : ST_OK;
        if (taken != ST_OK) /* if this succeeds, the writer's thread sets the status */
            o->status[r] = taken;
    }
    for (int r = 0; r < world_size; r++) {
        struct err e;
        if (writers[r])
            status_ignore(checkpoint_writer_wait(writers[r], &e));
        checkpoint_writer_close(writers[r]);
    }
    for (int t = 0; t < TENSORS; t++)
        free(tensors[t]);
    pthread_barrier_destroy(&meeting.met);
    return o->status[0];
}

struct path path_of(const char *format, ...) {
    struct path path;
    int n = snprintf(path.s, sizeof path.s, "%s/", root);
    va_list args;
    va_start(args, format);
    vsnprintf(path.s + n, sizeof path.s - (size_t)n, format, args);
    va_end(args);
    return path;
}

void assert_loads(const char *directory, int seed) {
    struct err e = { "" };
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    if (checkpoint_reader_open(directory, NULL, &r, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(checkpoint_reader_info(r)->n_tensors, TENSORS);
    for (int t = 0; t < TENSORS; t++) {
        int64_t n = checkpoint_tensor_elements(&MODEL[t]);
        CLEANUP(freep) float *data = calloc((size_t)n, sizeof *data);
        assert_int_equal(checkpoint_reader_read(r, MODEL[t].name, 0, n, data, &e), ST_OK);
        for (int64_t i = 0; i < n; i++)
            assert_true(data[i] == value_of(t, i, seed));
    }
}

int make_root(void **state) {
    (void)state;
    return mkdtemp(root) ? 0 : -1;
}

int remove_root(void **state) {
    (void)state;
    struct err e;
    return dir_remove(root, &e) == ST_OK ? 0 : -1;
}
