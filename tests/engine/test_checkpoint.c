/* Linked with --wrap for the calls that change a file system: each may be counted, made to fail, or made the last one.
 */
#include "base/cleanup.h"
#include "base/file.h"
#include "executor/engine/checkpoint/gather.h"
#include "executor/engine/checkpoint/manifest.h"
#include "executor/engine/checkpoint/reader.h"
#include "executor/engine/checkpoint/safetensors.h"
#include "executor/engine/checkpoint/sealed.h"
#include "executor/engine/checkpoint/writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* Faults. */

enum fault { FAULT_NONE, FAULT_CRASH_BEFORE, FAULT_CRASH_AFTER, FAULT_ERROR };

static struct {
    enum fault fault;
    int at, error; /* the at-th call from 0 */
    atomic_int calls;
    bool trace;
    char log[16384];
} plan;

static void trace(const char *call, const char *name) {
    if (!plan.trace)
        return;
    const char *base = strrchr(name, '/');
    size_t n = strlen(plan.log);
    snprintf(plan.log + n, sizeof plan.log - n, "%s %s\n", call, base ? base + 1 : name);
}

static const char *name_of(int fd) {
    static _Thread_local char path[PATH_MAX];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return path;
}

/* True when this call has to fail. */
static bool strikes(void) {
    if (plan.fault == FAULT_NONE || atomic_fetch_add(&plan.calls, 1) != plan.at)
        return false;
    if (plan.fault == FAULT_CRASH_BEFORE)
        _exit(9);
    errno = plan.error;
    return plan.fault == FAULT_ERROR;
}

static void strikes_after(void) {
    if (plan.fault == FAULT_CRASH_AFTER && atomic_load(&plan.calls) == plan.at + 1)
        _exit(9);
}

#define WRAP(type, name, traced, params, args)                                                                         \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params {                                                                                        \
        trace(#name, traced);                                                                                          \
        if (strikes())                                                                                                 \
            return -1;                                                                                                 \
        type ret = __real_##name args;                                                                                 \
        int kept = errno;                                                                                              \
        strikes_after();                                                                                               \
        errno = kept;                                                                                                  \
        return ret;                                                                                                    \
    }
WRAP(int, fsync, name_of(fd), (int fd), (fd))
WRAP(int, rename, to, (const char *from, const char *to), (from, to))
WRAP(ssize_t, write, name_of(fd), (int fd, const void *data, size_t n), (fd, data, n))
WRAP(int, unlink, path, (const char *path), (path))
WRAP(int, mkdir, path, (const char *path, mode_t mode), (path, mode))

/* A small model, on one or several ranks in this process. */

enum { RANKS_MOST = 4, TENSORS = 8, PIECES_MOST = 320 };
static const struct checkpoint_tensor MODEL[TENSORS] = {
    { "ln_f.bias", 1, { 5 } },
    { "wte.weight", 2, { 300, 1000 } }, /* 293 chunks, which the ranks share */
    { "scale", 0, { 0 } },
    { "block.0.w", 3, { 2, 3, 7 } },
    { "optimizer.m.wte.weight", 2, { 300, 1000 } },
    { "optimizer.m.ln_f.bias", 1, { 5 } },
    { "ema.ln_f.bias", 1, { 5 } },
    { "optimizer.row.wte.weight", 1, { 300 } },
};
static const double NORMS[] = { 0.1, 1.0 / 3, 7e300 };

/* How the tensors are cut: the pieces of a rank (PIECES_MOST); returns how many. */
typedef int cut_fn(int rank, int world_size, struct checkpoint_piece *pieces);

static int cut_evenly(int rank, int world_size, struct checkpoint_piece *pieces) {
    return checkpoint_cut(MODEL, TENSORS, rank, world_size, pieces);
}
static cut_fn *cut = cut_evenly;

static char root[] = "/tmp/ty-checkpoint-XXXXXX";

static float value_of(int tensor, int64_t i, int seed) {
    return (float)((i * 31 + tensor * 1009 + seed * 7) % 4093) * 0.37f - 300.0f;
}

struct meeting {
    int world_size;
    pthread_barrier_t met;
    const void *blobs[RANKS_MOST];
    size_t sizes[RANKS_MOST];
};

struct member {
    struct meeting *meeting;
    int rank;
};

static status_t meet(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
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

struct outcome {
    status_t status[RANKS_MOST];
    char message[RANKS_MOST][480];
    char weights[RANKS_MOST][SHA256_HEX];
    int64_t bytes[RANKS_MOST];
    struct member members[RANKS_MOST];
};

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
                                               .done_ctx = o };
    struct checkpoint_writer *w = NULL;
    struct err e = { "" };
    o->status[rank] = checkpoint_writer_open(&config, &w, &e);
    return w;
}

/* Writes one checkpoint with this many ranks; returns rank 0's status. */
static status_t save(const char *directory, int world_size, int64_t step, int seed, struct outcome *o) {
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
    static struct checkpoint_piece pieces[RANKS_MOST][PIECES_MOST];
    static const float *data[RANKS_MOST][PIECES_MOST];
    int ranks[RANKS_MOST] = { 0, 1, 2, 3 };
    memset(o, 0, sizeof *o);
    for (int r = 0; r < world_size; r++) {
        writers[r] = writer_of(directory, r, &meeting, o);
        int n = cut(r, world_size, pieces[r]);
        for (int i = 0; i < n; i++)
            data[r][i] = tensors[pieces[r][i].tensor] + pieces[r][i].first;
        struct checkpoint_snapshot snapshot = { .step = step,
                                                .updates = step - 1,
                                                .skipped = 2,
                                                .loss_scale = 4096,
                                                .growth_count = 17,
                                                .spike_norms = NORMS,
                                                .n_spike_norms = 3,
                                                .tensors = MODEL,
                                                .n_tensors = TENSORS,
                                                .pieces = pieces[r],
                                                .data = data[r],
                                                .n_pieces = n,
                                                .tag = &ranks[r] };
        struct err e;
        status_t taken = writers[r] ? checkpoint_writer_submit(writers[r], &snapshot, &e) : ST_OK;
        if (taken != ST_OK) /* from here on the writer's thread says how it went */
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

struct path {
    char s[200];
};

__attribute__((format(printf, 1, 2))) static struct path path_of(const char *format, ...) {
    struct path path;
    int n = snprintf(path.s, sizeof path.s, "%s/", root);
    va_list args;
    va_start(args, format);
    vsnprintf(path.s + n, sizeof path.s - (size_t)n, format, args);
    va_end(args);
    return path;
}

static void assert_loads(const char *directory, int seed) {
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

static void fault_off(void) { plan.fault = FAULT_NONE; }

/* Tests. */

static void every_element_belongs_to_one_rank_and_the_shares_are_even(void **state) {
    (void)state;
    for (int world_size = 1; world_size <= 16; world_size++) {
        int64_t next[TENSORS] = { 0 }, least = INT64_MAX, most = 0;
        for (int rank = 0; rank < world_size; rank++) {
            struct checkpoint_piece pieces[TENSORS];
            int n = checkpoint_cut(MODEL, TENSORS, rank, world_size, pieces);
            int64_t chunks = 0;
            for (int i = 0; i < n; i++) {
                assert_int_equal(pieces[i].first, next[pieces[i].tensor]);
                assert_int_equal(pieces[i].first % CHECKPOINT_CHUNK_ELEMENTS, 0);
                next[pieces[i].tensor] += pieces[i].count;
                chunks += (pieces[i].count + CHECKPOINT_CHUNK_ELEMENTS - 1) / CHECKPOINT_CHUNK_ELEMENTS;
            }
            least = chunks < least ? chunks : least;
            most = chunks > most ? chunks : most;
        }
        for (int t = 0; t < TENSORS; t++)
            assert_int_equal(next[t], checkpoint_tensor_elements(&MODEL[t]));
        assert_true(most - least <= 1);
    }
}

static void any_number_of_ranks_writes_the_same_model(void **state) {
    (void)state;
    char weights[SHA256_HEX] = "";
    for (int world_size = 1; world_size <= RANKS_MOST; world_size *= 2) {
        struct outcome o;
        const struct path directory_path = path_of("world-%d", world_size);
        const char *directory = directory_path.s;
        assert_int_equal(save(directory, world_size, 40, 1, &o), ST_OK);
        for (int r = 0; r < world_size; r++) {
            assert_int_equal(o.status[r], ST_OK);
            assert_string_equal(o.weights[r], o.weights[0]);
        }
        if (world_size == 1)
            memcpy(weights, o.weights[0], sizeof weights);
        assert_string_equal(o.weights[0], weights);
        assert_loads(path_of("world-%d/step-40", world_size).s, 1);

        /* The same digest by other code, from the safetensors files alone. */
        const char *source = getenv("TRAINYARD_SOURCE");
        char command[PATH_MAX * 2], line[100] = "";
        snprintf(command, sizeof command, "python3 %s/tests/engine/weights_sha256.py %s/step-40", source ? source : ".",
                 directory);
        FILE *python = popen(command, "r");
        assert_non_null(python);
        assert_non_null(fgets(line, sizeof line, python));
        assert_int_equal(pclose(python), 0);
        line[strcspn(line, "\n")] = '\0';
        assert_string_equal(line, weights);
    }
    struct outcome other;
    assert_int_equal(save(path_of("other").s, 1, 40, 2, &other), ST_OK);
    assert_string_not_equal(other.weights[0], weights);
}

/* Whole tensors, tensors cut chunk by chunk among ranks that each hold some of them, and ranks that hold nothing: what
 * stages, buckets and optimizers of whole tensors make of a model. */
static uint32_t cut_seed;
static int cut_at_random(int rank, int world_size, struct checkpoint_piece *pieces) {
    uint32_t random = cut_seed;
    int count = 0;
    for (int t = 0; t < TENSORS; t++) {
        const int64_t elements = checkpoint_tensor_elements(&MODEL[t]);
        for (int64_t at = 0, n; at < elements; at += n) {
            random = random * 1664525u + 1013904223u;
            const int owner = (int)(random >> 20) % world_size;
            n = (1 + (random >> 8) % 60) * CHECKPOINT_CHUNK_ELEMENTS;
            n = n < elements - at ? n : elements - at;
            if (owner == rank)
                pieces[count++] = (struct checkpoint_piece){ t, at, n };
        }
    }
    return count;
}

static void pieces_of_any_layout_make_the_same_digests_and_load(void **state) {
    (void)state;
    struct outcome even, o;
    assert_int_equal(save(path_of("even").s, 1, 3, 6, &even), ST_OK);
    cut = cut_at_random;
    for (int i = 0; i < 6; i++) {
        const int world_size = 1 + i % RANKS_MOST;
        cut_seed = 1000u + (uint32_t)i;
        print_message("cut from seed %u over %d ranks\n", cut_seed, world_size);
        assert_int_equal(save(path_of("cut-%d", i).s, world_size, 3, 6, &o), ST_OK);
        for (int r = 0; r < world_size; r++)
            assert_string_equal(o.weights[r], even.weights[0]);
        assert_loads(path_of("cut-%d/step-3", i).s, 6);
    }
    cut = cut_evenly;
}

/* One rank, all tensors whole, gathered in batches of this many chunks. */
static status_t digests_by(int64_t batch, const struct checkpoint_piece *pieces, int n, digest_t *digests,
                           char weights[SHA256_HEX], struct err *e) {
    static float numbers[300000];
    const float *data[TENSORS + 1];
    for (int i = 0; i < n; i++)
        data[i] = numbers + pieces[i].first;
    for (int64_t i = 0; i < 300000; i++)
        numbers[i] = value_of(0, i, 9);
    const struct checkpoint_writer_config config = { .world_size = 1 };
    const struct checkpoint_snapshot snapshot = {
        .tensors = MODEL, .n_tensors = TENSORS, .pieces = pieces, .data = data, .n_pieces = n
    };
    return gather_digests(&config, &snapshot, batch, digests, weights, e);
}

static void digests_do_not_depend_on_the_batches_that_they_are_exchanged_in(void **state) {
    (void)state;
    struct checkpoint_piece pieces[TENSORS + 1];
    const int n = checkpoint_cut(MODEL, TENSORS, 0, 1, pieces);
    digest_t all[TENSORS], some[TENSORS];
    char weights[SHA256_HEX], other[SHA256_HEX];
    struct err e = { "" };
    assert_int_equal(digests_by(GATHER_BATCH, pieces, n, all, weights, &e), ST_OK);
    for (int64_t batch = 1; batch < 700; batch = batch * 3 + 1) {
        assert_int_equal(digests_by(batch, pieces, n, some, other, &e), ST_OK);
        assert_string_equal(other, weights);
        assert_memory_equal(some, all, sizeof all);
    }
}

static void a_chunk_that_nobody_or_somebody_twice_writes_is_refused_in_every_batch(void **state) {
    (void)state;
    struct checkpoint_piece pieces[TENSORS + 1];
    const int n = checkpoint_cut(MODEL, TENSORS, 0, 1, pieces);
    digest_t digests[TENSORS];
    char weights[SHA256_HEX];
    for (int64_t batch = 7; batch < 1000; batch += 200) {
        struct err e = { "" };
        pieces[1] = (struct checkpoint_piece){ 1, 0, 200 * CHECKPOINT_CHUNK_ELEMENTS };
        assert_int_equal(digests_by(batch, pieces, n, digests, weights, &e), ST_INTERNAL);
        assert_non_null(strstr(e.msg, "the ranks' pieces of wte.weight end at element"));
        pieces[1] = (struct checkpoint_piece){ 1, 0, 300000 };
        pieces[n] = (struct checkpoint_piece){ 1, 100 * CHECKPOINT_CHUNK_ELEMENTS, 5 };
        assert_int_equal(digests_by(batch, pieces, n + 1, digests, weights, &e), ST_INTERNAL);
    }
}

static void averages_and_optimizer_states_are_no_weights(void **state) {
    (void)state;
    assert_true(checkpoint_tensor_is_weight("h.0.ln_1.weight"));
    assert_true(checkpoint_tensor_is_weight("emaciated.weight"));
    assert_false(checkpoint_tensor_is_weight("ema.h.0.ln_1.weight"));
    assert_false(checkpoint_tensor_is_weight("optimizer.row.wte.weight"));
}

static void what_the_writer_was_told_comes_back(void **state) {
    (void)state;
    struct err e = { "" };
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(path_of("world-4/step-40").s, NULL, &r, &e), ST_OK);
    const struct checkpoint_info *info = checkpoint_reader_info(r);
    assert_int_equal(info->step, 40);
    assert_int_equal(info->updates, 39);
    assert_int_equal(info->skipped, 2);
    assert_true(info->loss_scale == 4096);
    assert_int_equal(info->growth_count, 17);
    assert_int_equal(info->n_spike_norms, 3);
    for (int i = 0; i < 3; i++)
        assert_true(info->spike_norms[i] == NORMS[i]);
    assert_int_equal(info->world_size, 4);
    assert_string_equal(info->numerics_id, "test");
    assert_string_equal(info->data_sha256, "d1");
    assert_string_equal(info->tokenizer_json, "{\"kind\":\"byte\"}");
    assert_string_equal(info->spec_json, "{\"name\":\"tiny\",\"train\":{\"seed\":\"7\",\"lr\":0.10000000000000001}}");
    const struct checkpoint_tensor *t = checkpoint_reader_find(r, "block.0.w");
    assert_non_null(t);
    assert_int_equal(t->n_dims, 3);
    assert_int_equal(t->shape[2], 7);
    assert_null(checkpoint_reader_find(r, "block.1.w"));

    /* A range over the border between two ranks' pieces. */
    enum { FIRST = CHECKPOINT_CHUNK_ELEMENTS - 3, COUNT = 20000 };
    CLEANUP(freep) float *data = malloc(COUNT * sizeof *data);
    assert_int_equal(checkpoint_reader_read(r, "wte.weight", FIRST, COUNT, data, &e), ST_OK);
    for (int64_t i = 0; i < COUNT; i++)
        assert_true(data[i] == value_of(1, FIRST + i, 1));
    assert_int_equal(checkpoint_reader_read(r, "nothing", 0, 1, data, &e), ST_NOT_FOUND);
    assert_int_equal(checkpoint_reader_read(r, "ln_f.bias", 3, 3, data, &e), ST_OUT_OF_RANGE);
    assert_string_equal(e.msg, "elements 3 to 6 are outside the tensor ln_f.bias of 5");
}

static void flip(const char *path, off_t at, int bit) {
    CLEANUP(closep) int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void assert_lost(const char *directory, const char *says) {
    struct err e = { "" };
    struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(directory, NULL, &r, &e), ST_DATA_LOSS);
    assert_null(r);
    if (!strstr(e.msg, says))
        fail_msg("'%s' does not name '%s'", e.msg, says);
}

static const char *const FILES[] = { "manifest.json", "rank-0.json", "rank-0.safetensors", "rank-1.json",
                                     "rank-1.safetensors" };

static void one_flipped_bit_anywhere_is_caught(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("flips").s, 2, 7, 3, &o), ST_OK);
    const struct path directory_path = path_of("flips/step-7");
    const char *directory = directory_path.s;
    uint32_t random = 12345;
    for (size_t f = 0; f < sizeof FILES / sizeof *FILES; f++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        for (int i = 0; i < 24; i++) { /* both ends, and anywhere */
            random = random * 1664525u + 1013904223u;
            off_t at = i < 8 ? i : i < 16 ? st.st_size - 1 - (i - 8) : (off_t)(random % (uint32_t)st.st_size);
            flip(path, at, i % 8);
            assert_lost(directory, FILES[f]);
            flip(path, at, i % 8);
        }
    }
    assert_loads(directory, 3);
}

static void a_file_cut_lengthened_lost_or_exchanged_is_caught(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("older").s, 2, 6, 4, &o), ST_OK);
    assert_int_equal(save(path_of("same-step").s, 2, 7, 5, &o), ST_OK);
    const struct path directory_path = path_of("flips/step-7");
    const char *directory = directory_path.s;
    char kept[PATH_MAX], path[PATH_MAX], other[PATH_MAX];
    for (size_t f = 0; f < sizeof FILES / sizeof *FILES; f++) {
        snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
        snprintf(kept, sizeof kept, "%s/kept", root);
        assert_int_equal(rename(path, kept), 0);
        assert_lost(directory, FILES[f]); /* gone */

        CLEANUP(closep) int from = open(kept, O_RDONLY);
        struct stat st;
        assert_int_equal(fstat(from, &st), 0);
        CLEANUP(freep) char *bytes = malloc((size_t)st.st_size + 1);
        struct err e;
        assert_int_equal(fd_read_exact(from, bytes, (size_t)st.st_size, &e), ST_OK);
        bytes[st.st_size] = ' ';
        const size_t sizes[] = { 0, 1, 8, (size_t)st.st_size / 2, (size_t)st.st_size - 1, (size_t)st.st_size + 1 };
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            assert_int_equal(file_write_atomic(path, bytes, sizes[s], 0644, &e), ST_OK);
            assert_lost(directory, FILES[f]);
        }
        /* Taken from the checkpoint of another step, and from another model's of the same step. */
        for (int i = 0; i < 2; i++) {
            unlink(path);
            snprintf(other, sizeof other, "%s/%s/%s", root, i ? "same-step/step-7" : "older/step-6", FILES[f]);
            assert_int_equal(link(other, path), 0);
            assert_lost(directory, "flips/step-7");
        }
        unlink(path);
        assert_int_equal(rename(kept, path), 0);
    }
    /* A rank's pair together. */
    for (int i = 0; i < 2; i++) {
        for (int f = 3; f < 5; f++) {
            snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
            snprintf(other, sizeof other, "%s/same-step/step-7/%s", root, FILES[f]);
            snprintf(kept, sizeof kept, "%s/kept", root);
            assert_int_equal(rename(path, kept), 0);
            assert_int_equal(rename(other, path), 0);
            assert_int_equal(rename(kept, other), 0);
        }
        if (i == 0)
            assert_lost(directory, "has another");
    }
    assert_loads(directory, 3);
    struct err e;
    struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(path_of("flips/step-8").s, NULL, &r, &e), ST_NOT_FOUND);
}

/* In a child: writes a checkpoint of seed 8 over whatever is there, under the planned fault. */
static int write_in_child(const char *directory, enum fault fault, int at) {
    pid_t child = fork();
    if (child == 0) {
        plan.fault = fault;
        plan.at = at;
        struct outcome o;
        _exit(save(directory, 1, 9, 8, &o) == ST_OK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static bool same_content(const char *a, const char *b) {
    struct bytes x, y;
    struct err e;
    bytes_init(&x, 64 << 20);
    bytes_init(&y, 64 << 20);
    assert_int_equal(file_read(a, &x, &e), ST_OK);
    assert_int_equal(file_read(b, &y, &e), ST_OK);
    bool same = x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    bytes_done(&x);
    bytes_done(&y);
    return same;
}

static void after_a_crash_at_any_call_a_file_is_whole_or_absent(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("whole").s, 1, 9, 8, &o), ST_OK);
    const struct path directory_path = path_of("crash");
    const char *directory = directory_path.s;
    int crashes = 0, loads = 0, ended;
    for (int fault = FAULT_CRASH_BEFORE; fault <= FAULT_CRASH_AFTER; fault++) {
        for (int at = 0; (ended = write_in_child(directory, (enum fault)fault, at)) == 9; at++, crashes++) {
            for (int f = 0; f < 3; f++) {
                char path[PATH_MAX], whole[PATH_MAX];
                snprintf(path, sizeof path, "%s/step-9/%s", directory, FILES[f]);
                snprintf(whole, sizeof whole, "%s/whole/step-9/%s", root, FILES[f]);
                if (access(path, F_OK) == 0)
                    assert_true(same_content(path, whole));
            }
            struct checkpoint_reader *r = NULL;
            struct err e;
            loads += checkpoint_reader_open(path_of("crash/step-9").s, NULL, &r, &e) == ST_OK;
            checkpoint_reader_close(r);
            assert_int_equal(dir_remove(directory, &e), ST_OK);
        }
        assert_int_equal(ended, 0);
        assert_loads(path_of("crash/step-9").s, 8);
        struct err e;
        assert_int_equal(dir_remove(directory, &e), ST_OK);
    }
    assert_true(crashes > 30);
    assert_true(loads >= 2 && loads < crashes / 2); /* whole only at the very end */
}

static void a_crash_while_an_older_checkpoint_is_replaced_never_leaves_a_mixture(void **state) {
    (void)state;
    const struct path directory_path = path_of("replace");
    const char *directory = directory_path.s;
    int ended = 9, old = 0, new = 0, neither = 0;
    for (int at = 0; ended == 9; at++) {
        struct outcome o;
        assert_int_equal(save(directory, 1, 9, 1, &o), ST_OK);
        char old_weights[SHA256_HEX];
        memcpy(old_weights, o.weights[0], sizeof old_weights);
        ended = write_in_child(directory, FAULT_CRASH_BEFORE, at);
        struct checkpoint_reader *r = NULL;
        struct err e;
        if (checkpoint_reader_open(path_of("replace/step-9").s, NULL, &r, &e) != ST_OK) {
            neither++;
        } else {
            bool is_old = strcmp(checkpoint_reader_info(r)->weights_sha256, old_weights) == 0;
            old += is_old;
            new += !is_old;
            assert_loads(path_of("replace/step-9").s, is_old ? 1 : 8);
        }
        checkpoint_reader_close(r);
    }
    assert_int_equal(ended, 0);
    assert_true(old > 0 && new > 0 && neither > 0);
    struct err e;
    assert_int_equal(dir_remove(directory, &e), ST_OK);
}

static void a_failing_call_is_one_sentence_and_leaves_no_file(void **state) {
    (void)state;
    const struct path directory_path = path_of("errors");
    const char *directory = directory_path.s;
    int failures = 0;
    for (int at = 0;; at++) {
        plan.fault = FAULT_ERROR;
        plan.error = at % 2 ? EIO : ENOSPC;
        plan.at = at;
        atomic_store(&plan.calls, 0);
        struct outcome o;
        status_t st = save(directory, 1, 9, 8, &o);
        bool struck = atomic_load(&plan.calls) > at;
        fault_off();
        if (!struck) {
            assert_int_equal(st, ST_OK);
            break;
        }
        struct err e;
        if (st == ST_OK) /* the removal of what was not there, or a folder that existed */
            assert_loads(path_of("errors/step-9").s, 8);
        else {
            failures++;
            assert_int_equal(st, at % 2 ? ST_INTERNAL : ST_RESOURCE_EXHAUSTED);
            assert_true(o.message[0][0] == '\0' || strstr(o.message[0], "'/tmp") != NULL); /* "" = open's failure */
            struct stat left;
            assert_int_equal(stat(path_of("errors/step-9").s, &left), -1);
        }
        assert_int_equal(dir_remove(directory, &e), ST_OK);
    }
    assert_true(failures > 15);
}

static void a_file_gets_its_name_after_its_bytes_are_on_disk(void **state) {
    (void)state;
    plan.trace = true;
    struct outcome o;
    assert_int_equal(save(path_of("order").s, 1, 9, 8, &o), ST_OK);
    plan.trace = false;
    const char *at = plan.log;
    static const char *const order[] = { "rank-0.safetensors", "rank-0.json", "manifest.json" };
    for (int f = 0; f < 3; f++) {
        const char *steps[] = { "write %s.tmp\n", "fsync %s.tmp\n", "rename %s\n", "fsync step-9\n" };
        for (int s = 0; s < 4; s++) {
            char line[100];
            snprintf(line, sizeof line, steps[s], order[f]);
            const char *found = strstr(at, line);
            if (!found)
                fail_msg("'%s' does not follow in:\n%s", line, at);
            at = found + strlen(line);
        }
        assert_null(strstr(at, order[f])); /* nothing happens to it afterwards */
    }
}

static void a_full_disk_is_reported_and_the_next_checkpoint_fits_again(void **state) {
    (void)state;
    const struct path disk_path = path_of("disk");
    const char *disk = disk_path.s;
    assert_int_equal(mkdir(disk, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
            _exit(77);
        if (mount("none", disk, "tmpfs", 0, "size=4m") != 0)
            _exit(77);
        char filler[PATH_MAX];
        snprintf(filler, sizeof filler, "%s/filler", disk);
        CLEANUP(closep) int fd = open(filler, O_WRONLY | O_CREAT, 0644);
        struct outcome o;
        if (fd < 0 || posix_fallocate(fd, 0, 3 << 20) != 0)
            _exit(77);
        if (save(disk, 2, 1, 1, &o) == ST_OK && o.status[1] == ST_OK)
            _exit(1);
        int bad = o.status[0] != ST_OK ? 0 : 1;
        if (o.status[bad] != ST_RESOURCE_EXHAUSTED || !strstr(o.message[bad], "No space left on device"))
            _exit(2);
        closep(&fd);
        unlink(filler);
        if (save(disk, 2, 2, 1, &o) != ST_OK || o.status[1] != ST_OK)
            _exit(3);
        struct checkpoint_reader *r = NULL;
        struct err e;
        char step[PATH_MAX];
        snprintf(step, sizeof step, "%s/step-2", disk);
        _exit(checkpoint_reader_open(step, NULL, &r, &e) == ST_OK ? 0 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip(); /* no right to mount a tmpfs here */
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

static void a_folder_that_cannot_be_made_is_one_sentence(void **state) {
    (void)state;
    struct err e;
    assert_int_equal(file_write_atomic(path_of("file").s, "x", 1, 0644, &e), ST_OK);
    struct checkpoint_writer_config config = {
        .directory = path_of("file/below").s, .world_size = 1, .spec_json = "{}", .layout_json = "{}"
    };
    struct checkpoint_writer *w = NULL;
    assert_int_not_equal(checkpoint_writer_open(&config, &w, &e), ST_OK);
    assert_non_null(strstr(e.msg, "file"));
    assert_null(w);
}

/* Holds the writer's thread in `done` until the test lets go. */
struct gate {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    bool reached, open;
};

static void wait_at_gate(void *ctx, const struct checkpoint_result *result) {
    (void)result;
    struct gate *g = ctx;
    pthread_mutex_lock(&g->mutex);
    g->reached = true;
    pthread_cond_broadcast(&g->changed);
    while (!g->open)
        pthread_cond_wait(&g->changed, &g->mutex);
    pthread_mutex_unlock(&g->mutex);
}

static void a_busy_writer_takes_no_second_snapshot(void **state) {
    (void)state;
    struct err e;
    struct gate gate = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false };
    struct checkpoint_writer_config config = { .directory = path_of("busy").s,
                                               .world_size = 1,
                                               .spec_json = "{}",
                                               .layout_json = "{}",
                                               .tokenizer_json = "{}",
                                               .data_sha256 = "",
                                               .numerics_id = "",
                                               .done = wait_at_gate,
                                               .done_ctx = &gate };
    CLEANUP(checkpoint_writer_closep) struct checkpoint_writer *w = NULL;
    assert_int_equal(checkpoint_writer_open(&config, &w, &e), ST_OK);
    assert_int_equal(checkpoint_writer_wait(w, &e), ST_OK);
    struct checkpoint_tensor tensor = { "a", 1, { 3 } };
    struct checkpoint_piece piece = { 0, 0, 3 };
    const float values[] = { 1, 2, 3 }, *data = values;
    struct checkpoint_snapshot snapshot = {
        .step = 1, .tensors = &tensor, .n_tensors = 1, .pieces = &piece, .data = &data, .n_pieces = 1
    };
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_OK);
    pthread_mutex_lock(&gate.mutex);
    while (!gate.reached)
        pthread_cond_wait(&gate.changed, &gate.mutex);
    pthread_mutex_unlock(&gate.mutex);
    assert_true(checkpoint_writer_busy(w));
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "the checkpoint of step 1 is still being written");
    pthread_mutex_lock(&gate.mutex);
    gate.open = true;
    pthread_cond_broadcast(&gate.changed);
    pthread_mutex_unlock(&gate.mutex);
    assert_int_equal(checkpoint_writer_wait(w, &e), ST_OK);
    assert_false(checkpoint_writer_busy(w));
    tensor.name = "has space";
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_INVALID_ARGUMENT);
    tensor.name = "a";
    snapshot.step = 2;
    piece.count = 2; /* element 2 is written by nobody */
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_OK);
    assert_int_equal(checkpoint_writer_wait(w, &e), ST_INTERNAL);
    assert_string_equal(e.msg, "the ranks' pieces of a end at element 2 of 3");
}

static void a_header_that_breaks_a_rule_of_the_format_is_refused(void **state) {
    (void)state;
    static const struct {
        const char *json;
        int data; /* bytes after the header */
        const char *says;
    } table[] = {
        { "{}", 0, NULL },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}  ", 8, NULL },
        { "{\"__metadata__\":{\"k\":\"v\"},\"a\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[0,2]}}", 2, NULL },
        { "{\"e\":{\"dtype\":\"F32\",\"shape\":[0,7],\"data_offsets\":[0,0]}}", 0, NULL },
        { "", 0, "no JSON" },
        { "[]", 0, "no object" },
        { "{\"a\":1}", 0, "not described" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8],\"more\":1}}", 8, "not described" },
        { "{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "has the dtype F31" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]}}", 7, "8 bytes by its shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]}}", 8, "8 bytes by its shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "the file has 9" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "the file has 7" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[1,9]}}", 9, "begins at byte 1" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]},"
          "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "begins at byte 4" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "cannot be" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,4],\"data_offsets\":[0,8]}}", 8, "cannot be" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "cannot be" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "9 dimensions" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "no JSON" },
        { "{\"__metadata__\":{\"k\":1}}", 0, "which is no string" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        size_t n = strlen(table[i].json);
        CLEANUP(freep) unsigned char *file = calloc(1, 8 + n);
        file[0] = (unsigned char)n;
        memcpy(file + 8, table[i].json, n);
        struct safetensors *s = NULL;
        struct err e = { "" };
        status_t st = safetensors_parse(file, 8 + n, (int64_t)(8 + n) + table[i].data, &s, &e);
        safetensors_free(s);
        if (table[i].says) {
            assert_int_equal(st, ST_DATA_LOSS);
            if (!strstr(e.msg, table[i].says))
                fail_msg("%s: '%s'", table[i].json, e.msg);
        } else if (st != ST_OK) {
            fail_msg("%s: '%s'", table[i].json, e.msg);
        }
    }
    struct safetensors *s = NULL;
    struct err e;
    static const unsigned char huge[16] = { 0, 0, 0, 2, 0, 0, 0, 0, '{' };
    assert_int_equal(safetensors_parse(huge, sizeof huge, 1 << 30, &s, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the header claims 33554432 bytes (at most 16777216 are allowed)");
}

static int clean(void **state) {
    (void)state;
    struct err e;
    return dir_remove(root, &e) == ST_OK ? 0 : -1;
}

int main(void) {
    if (!mkdtemp(root))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_element_belongs_to_one_rank_and_the_shares_are_even),
        cmocka_unit_test(any_number_of_ranks_writes_the_same_model),
        cmocka_unit_test(what_the_writer_was_told_comes_back),
        cmocka_unit_test(pieces_of_any_layout_make_the_same_digests_and_load),
        cmocka_unit_test(digests_do_not_depend_on_the_batches_that_they_are_exchanged_in),
        cmocka_unit_test(a_chunk_that_nobody_or_somebody_twice_writes_is_refused_in_every_batch),
        cmocka_unit_test(averages_and_optimizer_states_are_no_weights),
        cmocka_unit_test(one_flipped_bit_anywhere_is_caught),
        cmocka_unit_test(a_file_cut_lengthened_lost_or_exchanged_is_caught),
        cmocka_unit_test(after_a_crash_at_any_call_a_file_is_whole_or_absent),
        cmocka_unit_test(a_crash_while_an_older_checkpoint_is_replaced_never_leaves_a_mixture),
        cmocka_unit_test(a_failing_call_is_one_sentence_and_leaves_no_file),
        cmocka_unit_test(a_file_gets_its_name_after_its_bytes_are_on_disk),
        cmocka_unit_test(a_full_disk_is_reported_and_the_next_checkpoint_fits_again),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_one_sentence),
        cmocka_unit_test(a_busy_writer_takes_no_second_snapshot),
        cmocka_unit_test(a_header_that_breaks_a_rule_of_the_format_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
