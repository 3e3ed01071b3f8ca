/* Writing and reading checkpoints: any number of ranks and any division of the tensors give the same model. */
#include "tests/engine/saved_model.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "engine/checkpoint/gather.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/safetensors.h"
#include "engine/checkpoint/writer.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

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

/* Whole tensors, tensors divided chunk by chunk among several ranks, and ranks without elements: the divisions that
 * stages, buckets and optimizers of whole tensors produce. */
static uint32_t cut_seed;
static int cut_at_random(int rank, int world_size, struct checkpoint_segment *segments) {
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
                segments[count++] = (struct checkpoint_segment){ t, at, n };
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
static status_t digests_by(int64_t batch, const struct checkpoint_segment *segments, int n, digest_t *digests,
                           char weights[SHA256_HEX], struct err *e) {
    static float numbers[300000];
    const float *data[TENSORS + 1];
    for (int i = 0; i < n; i++)
        data[i] = numbers + segments[i].first;
    for (int64_t i = 0; i < 300000; i++)
        numbers[i] = value_of(0, i, 9);
    const struct checkpoint_writer_config config = { .world_size = 1 };
    const struct checkpoint_snapshot snapshot = {
        .tensors = MODEL, .n_tensors = TENSORS, .segments = segments, .data = data, .n_segments = n
    };
    return gather_digests(&config, &snapshot, NULL, batch, digests, weights, e);
}

static void digests_do_not_depend_on_the_batches_that_they_are_exchanged_in(void **state) {
    (void)state;
    struct checkpoint_segment segments[TENSORS + 1];
    const int n = cut_evenly(0, 1, segments);
    digest_t all[TENSORS], some[TENSORS];
    char weights[SHA256_HEX], other[SHA256_HEX];
    struct err e = { "" };
    assert_int_equal(digests_by(GATHER_BATCH, segments, n, all, weights, &e), ST_OK);
    for (int64_t batch = 1; batch < 700; batch = batch * 3 + 1) {
        assert_int_equal(digests_by(batch, segments, n, some, other, &e), ST_OK);
        assert_string_equal(other, weights);
        assert_memory_equal(some, all, sizeof all);
    }
}

static void a_chunk_that_no_rank_or_two_ranks_write_is_refused_in_every_batch(void **state) {
    (void)state;
    struct checkpoint_segment segments[TENSORS + 1];
    const int n = cut_evenly(0, 1, segments);
    digest_t digests[TENSORS];
    char weights[SHA256_HEX];
    for (int64_t batch = 7; batch < 1000; batch += 200) {
        struct err e = { "" };
        segments[1] = (struct checkpoint_segment){ 1, 0, 200 * CHECKPOINT_CHUNK_ELEMENTS };
        assert_int_equal(digests_by(batch, segments, n, digests, weights, &e), ST_INTERNAL);
        assert_non_null(strstr(e.msg, "the ranks' segments of wte.weight end at element"));
        segments[1] = (struct checkpoint_segment){ 1, 0, 300000 };
        segments[n] = (struct checkpoint_segment){ 1, 100 * CHECKPOINT_CHUNK_ELEMENTS, 5 };
        assert_int_equal(digests_by(batch, segments, n + 1, digests, weights, &e), ST_INTERNAL);
    }
}

static void averages_and_optimizer_states_are_no_weights(void **state) {
    (void)state;
    assert_true(checkpoint_tensor_is_weight("h.0.ln_1.weight"));
    assert_true(checkpoint_tensor_is_weight("emaciated.weight"));
    assert_false(checkpoint_tensor_is_weight("ema.h.0.ln_1.weight"));
    assert_false(checkpoint_tensor_is_weight("optimizer.row.wte.weight"));
}

static void the_reader_returns_what_the_writer_stored(void **state) {
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
    assert_int_equal(info->samples, 123456789012);
    assert_int_equal(info->not_finite, 2);
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

    /* A range over the border between two ranks' segments. */
    enum { FIRST = CHECKPOINT_CHUNK_ELEMENTS - 3, COUNT = 20000 };
    CLEANUP(freep) float *data = malloc(COUNT * sizeof *data);
    assert_int_equal(checkpoint_reader_read(r, "wte.weight", FIRST, COUNT, data, &e), ST_OK);
    for (int64_t i = 0; i < COUNT; i++)
        assert_true(data[i] == value_of(1, FIRST + i, 1));
    assert_int_equal(checkpoint_reader_read(r, "nothing", 0, 1, data, &e), ST_NOT_FOUND);
    assert_int_equal(checkpoint_reader_read(r, "ln_f.bias", 3, 3, data, &e), ST_OUT_OF_RANGE);
    assert_string_equal(e.msg, "elements 3 to 6 are outside the tensor ln_f.bias of 5");
}

/* The manifest that revision e7402d3, the first with this format, wrote for the same model. */
static void a_manifest_without_a_count_of_updates_is_read(void **state) {
    (void)state;
    const char *source = getenv("TRAINYARD_SOURCE");
    char recorded[PATH_MAX];
    struct outcome o;
    struct bytes manifest;
    struct err e = { "" };
    bytes_init(&manifest, 1 << 16);
    snprintf(recorded, sizeof recorded, "%s/tests/engine/checkpoints/manifest_without_skipped.json",
             source ? source : ".");
    assert_int_equal(save(path_of("old").s, 1, 40, 1, &o), ST_OK);
    assert_int_equal(file_read(recorded, &manifest, &e), ST_OK);
    assert_int_equal(file_write_atomic(path_of("old/step-40/manifest.json").s, manifest.data, manifest.len, 0644, &e),
                     ST_OK);
    bytes_done(&manifest);
    assert_loads(path_of("old/step-40").s, 1);
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(path_of("old/step-40").s, NULL, &r, &e), ST_OK);
    assert_int_equal(checkpoint_reader_info(r)->updates, 39);
    assert_int_equal(checkpoint_reader_info(r)->skipped, 1);
    assert_int_equal(checkpoint_reader_info(r)->samples, -1);
}

static void the_reader_returns_the_record_of_each_rank_once_and_its_own_first(void **state) {
    (void)state;
    static const char *const want[] = { "one\n\"three\"\nlines\n", "one\n\"three\"\nlines\n", "one\n\"three\"\nlines\n",
                                        "\"three\"\nlines\none\n", "one\n\"three\"\nlines\n" };
    struct err e = { "" };
    for (int rank = 0; rank < 5; rank++) {
        CLEANUP(freep) char *records = NULL;
        assert_int_equal(checkpoint_tuning_caches(NULL, path_of("world-4/step-40").s, rank, &records, &e), ST_OK);
        assert_string_equal(records, want[rank]);
    }
    CLEANUP(freep) char *none = NULL;
    assert_int_equal(checkpoint_tuning_caches(NULL, path_of("no such").s, 0, &none, &e), ST_NOT_FOUND);
}

#define DIGITS "0123456789abcdef"

static void a_record_that_is_no_text_or_too_long_is_refused(void **state) {
    (void)state;
    static const char head[] = "{\"format\":\"trainyard-rank-2\",\"step\":1,\"rank\":0,\"world_size\":1,\"bytes\":0,"
                               "\"pieces\":[],\"sha256\":\"" DIGITS DIGITS DIGITS DIGITS "\",\"record\":";
    enum { FITS = CHECKPOINT_TUNING_CACHE_BYTES - 1 };
    CLEANUP(freep) char *text = malloc(sizeof head + FITS + 8);
    for (int more = -1; more <= 1; more++) {
        struct rank_table *t = NULL;
        struct err e = { "" };
        size_t n = (size_t)sprintf(text, more < 0 ? "%s7}" : "%s\"", head);
        if (more >= 0) {
            memset(text + n, 'x', FITS + (size_t)more);
            n += FITS + (size_t)more;
            n += (size_t)sprintf(text + n, "\"}");
        }
        const status_t st = rank_table_parse(text, n, &t, &e);
        rank_table_free(t);
        assert_int_equal(st, more == 0 ? ST_OK : ST_DATA_LOSS);
        assert_string_equal(e.msg, more == 0 ? "" : "its 'record' is not text of less than 2097152 bytes");
    }
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

/* Blocks the writer's thread in `done` until the test releases it. */
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
    struct checkpoint_segment piece = { 0, 0, 3 };
    const float values[] = { 1, 2, 3 }, *data = values;
    struct checkpoint_snapshot snapshot = {
        .step = 1, .tensors = &tensor, .n_tensors = 1, .segments = &piece, .data = &data, .n_segments = 1
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
    CLEANUP(freep) char *record = calloc(1, CHECKPOINT_TUNING_CACHE_BYTES + 1);
    memset(record, 'x', CHECKPOINT_TUNING_CACHE_BYTES);
    snapshot.tuning_cache = record;
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "a tuning cache of 2097152 bytes or more is over the limit");
    snapshot.tuning_cache = NULL;
    snapshot.step = 2;
    piece.count = 2; /* no rank writes element 2 */
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_OK);
    assert_int_equal(checkpoint_writer_wait(w, &e), ST_INTERNAL);
    assert_string_equal(e.msg, "the ranks' segments of a end at element 2 of 3");
}

/* `says` is the expected error message; NULL: the header is accepted. */
static void judge_header(const char *json, int data, const char *says) {
    size_t n = strlen(json);
    CLEANUP(freep) unsigned char *file = calloc(1, 8 + n);
    file[0] = (unsigned char)n;
    memcpy(file + 8, json, n);
    struct safetensors *s = NULL;
    struct err e = { "" };
    status_t st = safetensors_parse(file, 8 + n, (int64_t)(8 + n) + data, &s, &e);
    safetensors_free(s);
    if (st != (says ? ST_DATA_LOSS : ST_OK) || (says && !strstr(e.msg, says)))
        fail_msg("%s: %s, '%s'", json, status_name(st), e.msg);
}

static atomic_int kept;      /* files that the writers of two ranks found when they kept their shards */
static status_t kept_status; /* what comes of it */

static status_t keep_shard(void *ctx, int64_t step, struct err *e) {
    (void)ctx;
    for (int r = 0; r < 2; r++)
        kept += access(path_of("%s/away/step-%lld/rank-%d.json", root, (long long)step, r).s, R_OK) == 0;
    return kept_status == ST_OK ? ST_OK : err_set(e, kept_status, "the store is away");
}

static void files_are_kept_elsewhere_before_the_result_and_then_removed(void **state) {
    (void)state;
    const status_t all[] = { ST_OK, ST_UNAVAILABLE };
    keep = keep_shard;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct outcome o;
        kept = 0;
        kept_status = all[i];
        assert_int_equal(save(path_of("%s/away", root).s, 2, 3, 1, &o), all[i]);
        assert_int_equal(o.status[1], all[i]);
        assert_string_equal(o.message[0], all[i] == ST_OK ? "" : "the store is away");
        assert_true(kept >= 2); /* each rank finds its own, and perhaps that of the other */
        assert_int_not_equal(access(path_of("%s/away/step-3", root).s, F_OK), 0);
    }
    keep = NULL;
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
        { "", 0, "not valid JSON" },
        { "[]", 0, "not an object" },
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
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "impossible shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[9223372036854775807,4],\"data_offsets\":[0,8]}}", 8,
          "impossible shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[0,8]}}", 8, "impossible shape" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "9 dimensions" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
          "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
          8, "not valid JSON" },
        { "{\"__metadata__\":{\"k\":1}}", 0, "which is not a string" },
        { "{\"__metadata__\":[]}", 0, "__metadata__ is not an object" },
        { "{\"a\":{\"dtype\":1,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "not described" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":2,\"data_offsets\":[0,4]}}", 4, "not described" },
        { "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,8]}}", 8, "not described" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        judge_header(table[i].json, table[i].data, table[i].says);
}

static void a_header_longer_than_the_file_is_refused(void **state) {
    (void)state;
    struct safetensors *s = NULL;
    struct err e;
    static const unsigned char huge[16] = { 0, 0, 0, 2, 0, 0, 0, 0, '{' };
    assert_int_equal(safetensors_parse(huge, sizeof huge, 1 << 30, &s, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the header claims 33554432 bytes (at most 16777216 are allowed)");
    static const unsigned char two[10] = { 2, 0, 0, 0, 0, 0, 0, 0, '{', '}' };
    assert_int_equal(safetensors_parse(two, 10, 10, &s, &e), ST_OK);
    safetensors_free(s);
    for (size_t n = 7; n < 10; n++)
        assert_int_equal(safetensors_parse(two, n, 10, &s, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the header ends after 9 bytes");
    assert_int_equal(safetensors_parse(two, 10, 9, &s, &e), ST_DATA_LOSS);
    int64_t end;
    assert_int_equal(safetensors_header_end(two, 9, &end, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the header claims 2 bytes of a file of 9");
}

static void a_header_of_too_many_tensors_is_refused(void **state) {
    (void)state;
    enum { MANY = CHECKPOINT_TENSORS + 2 };
    CLEANUP(freep) char *file = calloc(MANY, 16);
    size_t n = 8;
    for (int i = 0; i < MANY; i++)
        n += (size_t)sprintf(file + n, "%s\"%d\":0", i ? "," : "{", i);
    n += (size_t)sprintf(file + n, "}");
    for (int i = 0; i < 8; i++)
        file[i] = (char)((n - 8) >> 8 * i & 0xff);
    struct safetensors *s = NULL;
    struct err e;
    assert_int_equal(safetensors_parse(file, n, (int64_t)n, &s, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the header is not an object of at most 65536 tensors");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_ranks_writes_the_same_model),
        cmocka_unit_test(the_reader_returns_what_the_writer_stored),
        cmocka_unit_test(a_manifest_without_a_count_of_updates_is_read),
        cmocka_unit_test(the_reader_returns_the_record_of_each_rank_once_and_its_own_first),
        cmocka_unit_test(a_record_that_is_no_text_or_too_long_is_refused),
        cmocka_unit_test(pieces_of_any_layout_make_the_same_digests_and_load),
        cmocka_unit_test(digests_do_not_depend_on_the_batches_that_they_are_exchanged_in),
        cmocka_unit_test(a_chunk_that_no_rank_or_two_ranks_write_is_refused_in_every_batch),
        cmocka_unit_test(averages_and_optimizer_states_are_no_weights),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_one_sentence),
        cmocka_unit_test(a_busy_writer_takes_no_second_snapshot),
        cmocka_unit_test(files_are_kept_elsewhere_before_the_result_and_then_removed),
        cmocka_unit_test(a_header_that_breaks_a_rule_of_the_format_is_refused),
        cmocka_unit_test(a_header_longer_than_the_file_is_refused),
        cmocka_unit_test(a_header_of_too_many_tensors_is_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
