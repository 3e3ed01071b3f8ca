/* Checkpoint files that have a correct digest and wrong content: each is refused, with a message that names the error.
 */
#include "tests/engine/saved_model.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "engine/checkpoint/checksummed.h"
#include "engine/checkpoint/gather.h"
#include "engine/checkpoint/manifest.h"
#include "engine/checkpoint/reader.h"

#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { STEP = 40 };
#define D16    "0123456789abcdef"
#define DIGEST "\"" D16 D16 D16 D16 "\""

static json_t *json_of(const char *path) {
    json_error_t where;
    json_t *object = json_load_file(path, JSON_REJECT_DUPLICATES, &where);
    assert_non_null(object);
    json_object_del(object, "self_sha256");
    return object;
}

static void seal(const char *path, json_t *object) {
    struct bytes text;
    struct err e;
    bytes_init(&text, CHECKPOINT_JSON_BYTES);
    assert_int_equal(checksummed_write(object, &text, &e), ST_OK);
    FILE *f = fopen(path, "w");
    assert_int_equal(fwrite(text.data, 1, text.len, f), text.len);
    fclose(f);
    bytes_done(&text);
    json_decref(object);
}

/* JSON text; "nulls N": a list of N nulls. NULL: no value. */
static json_t *value_from(const char *text) {
    int nulls;
    json_error_t where;
    if (!text)
        return NULL;
    if (sscanf(text, "nulls %d", &nulls) != 1)
        return json_loads(text, JSON_DECODE_ANY, &where);
    json_t *list = json_array();
    for (int i = 0; i < nulls; i++)
        json_array_append_new(list, json_null());
    return list;
}

/* where: members and indices, separated by dots; the index after the last element adds an element. */
static void change(json_t *object, const char *where, const char *text) {
    char path[80], *rest = path, *part;
    json_t *at = object, *value = value_from(text);
    snprintf(path, sizeof path, "%s", where);
    for (part = strsep(&rest, "."); rest; part = strsep(&rest, "."))
        at = json_is_array(at) ? json_array_get(at, (size_t)atoi(part)) : json_object_get(at, part);
    const size_t place = (size_t)atoi(part);
    if (json_is_object(at))
        assert_int_equal(value ? json_object_set_new(at, part, value) : json_object_del(at, part), 0);
    else if (!value)
        assert_int_equal(json_array_remove(at, place), 0);
    else if (place == json_array_size(at))
        assert_int_equal(json_array_append_new(at, value), 0);
    else
        assert_int_equal(json_array_set_new(at, place, value), 0);
}

static void assert_lost(const char *directory, const char *what, const char *says) {
    struct err e = { "" };
    struct checkpoint_reader *r = NULL;
    const status_t st = checkpoint_reader_open(directory, NULL, &r, &e);
    checkpoint_reader_close(r);
    if (st != ST_DATA_LOSS || !strstr(e.msg, says))
        fail_msg("%s: %s: '%s', and not '%s'", what, status_name(st), e.msg, says);
}

struct wrong {
    const char *file, *where, *value, *says;
};

/* Three ranks share the tensors: the first has one whole tensor and the beginning of the next. */
static void assert_each_is_refused(const char *name, const struct wrong *all, size_t n) {
    struct outcome o;
    assert_int_equal(save(path_of("%s", name).s, 3, STEP, 1, &o), ST_OK);
    const struct path directory = path_of("%s/step-%d", name, STEP);
    for (size_t i = 0; i < n; i++) {
        const struct path file = path_of("%s/step-%d/%s", name, STEP, all[i].file), kept = path_of("%s/kept", name);
        json_t *object = json_of(file.s);
        assert_int_equal(rename(file.s, kept.s), 0);
        change(object, all[i].where, all[i].value);
        seal(file.s, object);
        assert_lost(directory.s, all[i].where, all[i].says);
        assert_int_equal(rename(kept.s, file.s), 0);
    }
    seal(path_of("%s/step-%d/manifest.json", name, STEP).s,
         json_of(path_of("%s/step-%d/manifest.json", name, STEP).s)); /* and the unchanged checkpoint is read */
    assert_loads(directory.s, 1);
}

#define M "manifest.json"

static void a_manifest_with_a_valid_checksum_and_wrong_content_is_refused(void **state) {
    (void)state;
    static const struct wrong all[] = {
        { M, "format", "\"other\"", "its format is 'other' and not 'trainyard-checkpoint-2'" },
        { M, "format", NULL, "its format is '' and not" },
        { M, "step", "-1", "its 'step' is not a number from 0 to" },
        { M, "step", "\"40\"", "its 'step' is not a number" },
        { M, "step", "41", "rank-0.json': it is of rank 0 of 3 at step 40; the manifest is of 3 at step 41" },
        { M, "updates", "-1", "its 'updates' is not a number from 0 to" },
        { M, "skipped", "-1", "its 'skipped' is not a number from 0 to" },
        { M, "samples", "-1", "its 'samples' is not a number from 0 to" },
        { M, "not_finite", "1.5", "its 'not_finite' is not a number from 0 to" },
        { M, "growth_count", "-1", "its 'growth_count' is not a number from 0 to" },
        { M, "loss_scale", "-0.5", "its 'loss_scale' has a value that is not a number >= 0" },
        { M, "loss_scale", "\"1\"", "its 'loss_scale' has a value that is not a number >= 0" },
        { M, "spike_norms", "{}", "its 'spike_norms' is not a list of at most 1024" },
        { M, "spike_norms", "nulls 1025", "its 'spike_norms' is not a list of at most 1024" },
        { M, "spike_norms.1", "-1", "its 'spike_norms' has a value that is not a number >= 0" },
        { M, "world_size", "0", "its 'world_size' is not a number from 1 to 1024" },
        { M, "world_size", "1025", "its 'world_size' is not a number from 1 to 1024" },
        { M, "world_size", "4", "it is of rank 0 of 3 at step 40; the manifest is of 4 at step 40" },
        { M, "numerics_id", "7", "its 'numerics_id' is not text" },
        { M, "data_sha256", "7", "its 'data_sha256' is not text" },
        { M, "weights_sha256", NULL, "its 'weights_sha256' is not text" },
        { M, "weights_sha256", DIGEST, "has other weights than its manifest lists" },
        { M, "layout", "[]", "its 'layout' is not an object" },
        { M, "tokenizer", "1", "its 'tokenizer' is not an object" },
        { M, "spec", NULL, "its 'spec' is not an object" },
        { M, "tensors", "{}", "its 'tensors' is not a list of at most 65536" },
        { M, "tensors", "nulls 65537", "its 'tensors' is not a list of at most 65536" },
        { M, "tensors.0.name", "7", "its 'name' is not text" },
        { M, "tensors.0.name", "\"a b\"", "a tensor's name has the byte 0x20 at 1" },
        { M, "tensors.0.name", "\"zzz\"", "its tensors zzz and ema.ln_f.bias are not in the order of their names" },
        { M, "tensors.1.name", "\"block.0.w\"", "are not in the order of their names" },
        { M, "tensors.0.dtype", "\"F16\"", "the tensor block.0.w is not of F32" },
        { M, "tensors.0.dtype", NULL, "the tensor block.0.w is not of F32" },
        { M, "tensors.0.shape", "7", "its 'shape' is not a list of at most 8" },
        { M, "tensors.0.shape", "[1,1,1,1,1,1,1,1,42]", "its 'shape' is not a list of at most 8" },
        { M, "tensors.0.shape", "[2,3,0]", "the tensor block.0.w has a shape with 0 in it" },
        { M, "tensors.0.shape", "[2,3,8]", "the manifest has no tensor block.0.w" },
        { M, "tensors.0.shape", "[2]", "the manifest has no tensor block.0.w" },
        { M, "tensors.0.shape", "[42]", "the manifest has no tensor block.0.w" },
        { M, "tensors.0.sha256", "7", "a digest in it is not 64 hexadecimal digits" },
        { M, "tensors.0.sha256", "\"" D16 D16 D16 "0123456789abcde\"", "a digest in it is not 64 hexadecimal digits" },
        { M, "tensors.0.sha256", "\"" D16 D16 D16 D16 "0\"", "a digest in it is not 64 hexadecimal digits" },
        { M, "tensors.0.sha256", "\"" D16 D16 D16 "0123456789abcdeg\"", "a digest in it is not 64 hexadecimal digits" },
        { M, "tensors.0.sha256", "\"" D16 D16 D16 "0123456789abcdxf\"", "a digest in it is not 64 hexadecimal digits" },
        { M, "tensors.0.sha256", DIGEST, "has another block.0.w than its manifest lists" },
        { M, "tensors.0", NULL, "the manifest has no tensor block.0.w" },
        { M, "tensors.8", "{\"name\": \"zzz\", \"dtype\": \"F32\", \"shape\": [1], \"sha256\": " DIGEST "}",
          "lacks elements of zzz, from 0 on" },
    };
    assert_each_is_refused("manifests", all, sizeof all / sizeof *all);
}

#define T0 "rank-0.json"
#define T1 "rank-1.json"

static void a_ranks_table_with_a_valid_checksum_and_wrong_content_is_refused(void **state) {
    (void)state;
    static const struct wrong all[] = {
        { T1, "format", "\"trainyard-checkpoint-2\"", "and not 'trainyard-rank-2'" },
        { T1, "step", "41", "it is of rank 1 of 3 at step 41; the manifest is of 3 at step 40" },
        { T1, "rank", "0", "it is of rank 0 of 3 at step 40" },
        { T1, "rank", "3", "its 'rank' is not a number from 0 to 2" },
        { T1, "world_size", "4", "it is of rank 1 of 4 at step 40" },
        { T1, "bytes", "-1", "its 'bytes' is not a number from 0 to" },
        { T1, "bytes", "7", "bytes, and 7 were written" },
        { T1, "sha256", "\"0\"", "a digest in it is not 64 hexadecimal digits" },
        { T1, "sha256", DIGEST, "its bytes are not the ones that were written (SHA-256)" },
        { T1, "record", "7", "its 'record' is not text" },
        { T1, "pieces", "{}", "its 'pieces' is not a list of at most 65536" },
        { T1, "pieces", "nulls 65537", "its 'pieces' is not a list of at most 65536" },
        { T1, "pieces.0", NULL, "tensors and its table" },
        { T0, "pieces.1.first", "-1", "its 'first' is not a number from 0 to 299999" },
        { T0, "pieces.1.first", "300000", "its 'first' is not a number from 0 to 299999" },
        { T0, "pieces.1.first", "1", "a segment of wte.weight begins within a chunk, at element 1" },
        { T0, "pieces.1.count", "0", "its 'count' is not a number from 1 to 300000" },
        { T0, "pieces.1.count", "300001", "its 'count' is not a number from 1 to 300000" },
        { T0, "pieces.1.count", "1", "a segment of wte.weight ends within a chunk, at element 1" },
        { T0, "pieces.1.count", "1024", "is in the place of wte.weight" },
        { T0, "pieces.1.first", "1024", "is in the place of wte.weight" },
        { T0, "pieces.1.name", "\"optimizer.m.wte.weight\"", "is in the place of optimizer.m.wte.weight" },
        { T0, "pieces.1.name", "\"wte\"", "the manifest has no tensor wte" },
        { T0, "pieces.1",
          "{\"name\": \"wte.weight\", \"dtype\": \"F32\", \"shape\": [1048576, 1024], \"first\": 0, \"count\": "
          "1073741824}",
          "it has fewer elements than its table" },
    };
    assert_each_is_refused("tables", all, sizeof all / sizeof *all);
}

static void copy_file(const char *from, const char *to) {
    FILE *f = fopen(from, "r"), *t = fopen(to, "w");
    for (int c; (c = getc(f)) != EOF;)
        putc(c, t);
    fclose(f);
    fclose(t);
}

/* The files of one rank are presented as those of two ranks, each of which would have written all of it. */
static void elements_that_two_ranks_have_are_refused(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("twice").s, 1, STEP, 1, &o), ST_OK);
    const struct path directory = path_of("twice/step-%d", STEP), first = path_of("twice/step-%d/rank-0.json", STEP),
                      manifest = path_of("twice/step-%d/manifest.json", STEP);
    copy_file(path_of("twice/step-%d/rank-0.safetensors", STEP).s, path_of("twice/step-%d/rank-1.safetensors", STEP).s);
    json_t *object = json_of(first.s), *second;
    change(object, "world_size", "2");
    second = json_deep_copy(object);
    change(second, "rank", "1");
    seal(first.s, object);
    seal(path_of("twice/step-%d/rank-1.json", STEP).s, second);
    object = json_of(manifest.s);
    change(object, "world_size", "2");
    seal(manifest.s, object);
    assert_lost(directory.s, "twice", "lacks elements of ema.ln_f.bias"); /* the repeated range hides the next one */
}

/* The last tensor alone, as a checkpoint of its own. */
static void save_the_last(const char *directory) {
    const struct checkpoint_writer_config config = { .directory = directory,
                                                     .world_size = 1,
                                                     .spec_json = "{}",
                                                     .layout_json = "{}",
                                                     .tokenizer_json = "{}",
                                                     .data_sha256 = "",
                                                     .numerics_id = "" };
    const struct checkpoint_segment piece = { 0, 0, 300000 };
    static const float values[300000], *data = values;
    const struct checkpoint_snapshot snapshot = {
        .step = STEP, .tensors = &MODEL[1], .n_tensors = 1, .segments = &piece, .data = &data, .n_segments = 1
    };
    struct err e;
    CLEANUP(checkpoint_writer_closep) struct checkpoint_writer *w = NULL;
    assert_int_equal(checkpoint_writer_open(&config, &w, &e), ST_OK);
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_OK);
    assert_int_equal(checkpoint_writer_wait(w, &e), ST_OK);
}

static void also_where_nothing_is_behind_them(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("whole").s, 1, STEP, 1, &o), ST_OK);
    save_the_last(path_of("last").s);
    copy_file(path_of("last/step-%d/rank-0.safetensors", STEP).s, path_of("whole/step-%d/rank-1.safetensors", STEP).s);
    const struct path files[] = { path_of("whole/step-%d/manifest.json", STEP),
                                  path_of("whole/step-%d/rank-0.json", STEP),
                                  path_of("last/step-%d/rank-0.json", STEP) };
    for (int i = 0; i < 3; i++) {
        json_t *object = json_of(files[i].s);
        change(object, "world_size", "2");
        if (i == 2)
            change(object, "rank", "1");
        seal(i == 2 ? path_of("whole/step-%d/rank-1.json", STEP).s : files[i].s, object);
    }
    assert_lost(path_of("whole/step-%d", STEP).s, "twice", "has elements of wte.weight twice");
}

static void every_byte_of_a_seal_counts(void **state) {
    (void)state;
    struct bytes text;
    struct err e;
    struct manifest *m = NULL;
    json_t *object = json_pack("{s:i}", "a", 1);
    bytes_init(&text, 1000);
    assert_int_equal(checksummed_write(object, &text, &e), ST_OK);
    assert_int_equal(checksummed_check(text.data, text.len, &e), ST_OK);
    for (size_t i = 0; i < text.len; i++) {
        const char kept = text.data[i];
        text.data[i] = kept == '\n' ? ' ' : '\n'; /* JSON allows both between its parts */
        assert_int_equal(checksummed_check(text.data, text.len, &e), ST_DATA_LOSS);
        text.data[i] = kept;
        assert_int_equal(checksummed_check(text.data, i, &e), ST_DATA_LOSS);
    }
    assert_int_equal(manifest_parse("{", 1, &m, &e), ST_DATA_LOSS);
    assert_non_null(strstr(e.msg, "it is not valid JSON: "));
    json_decref(object);
    bytes_done(&text);
}

static void a_tensor_that_cannot_be_is_refused(void **state) {
    (void)state;
    char most[CHECKPOINT_NAME_BYTES], more[CHECKPOINT_NAME_BYTES + 1];
    memset(most, 'x', sizeof most);
    memset(more, 'x', sizeof more);
    most[sizeof most - 1] = more[sizeof more - 1] = '\0';
    const struct {
        struct checkpoint_tensor tensor;
        const char *says;
    } all[] = {
        { { "a", 0, { 0 } }, NULL },
        { { most, 8, { 1, 1, 1, 1, 1, 1, 1, 7 } }, NULL },
        { { "a", 1, { INT64_C(1) << 50 } }, NULL },
        { { "", 1, { 1 } }, "a tensor's name has 0 bytes" },
        { { more, 1, { 1 } }, "a tensor's name has" },
        { { "a ", 1, { 1 } }, "the byte 0x20 at 1" },
        { { "a\x7f", 1, { 1 } }, "the byte 0x7f at 1" },
        { { "a[", 1, { 1 } }, "the byte 0x5b at 1" },
        { { "a\"", 1, { 1 } }, "the byte 0x22 at 1" },
        { { "a\\", 1, { 1 } }, "the byte 0x5c at 1" },
        { { "__metadata__", 1, { 1 } }, "which safetensors keeps for itself" },
        { { "a", -1, { 1 } }, "has -1 dimensions" },
        { { "a", 9, { 1, 1, 1, 1, 1, 1, 1, 1 } }, "has 9 dimensions" },
        { { "a", 1, { 0 } }, "a shape with 0 in it" },
        { { "a", 1, { (INT64_C(1) << 50) + 1 } }, "a shape with 1125899906842625 in it" },
        { { "a", 2, { INT64_C(1) << 32, INT64_C(1) << 32 } }, "a shape with 4294967296 in it" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err e = { "" };
        const status_t st = checkpoint_tensor_check(&all[i].tensor, &e);
        if (st != (all[i].says ? ST_INVALID_ARGUMENT : ST_OK) || !strstr(e.msg, all[i].says ? all[i].says : ""))
            fail_msg("case %zu: %s: %s", i, status_name(st), e.msg);
    }
}

static void what_is_no_file_or_of_another_type_is_refused(void **state) {
    (void)state;
    struct outcome o;
    struct err e;
    struct checkpoint_reader *r = NULL;
    assert_int_equal(save(path_of("kinds").s, 2, STEP, 1, &o), ST_OK);
    const struct path directory = path_of("kinds/step-%d", STEP), kept = path_of("kinds/kept"),
                      data = path_of("kinds/step-%d/rank-1.safetensors", STEP),
                      manifest = path_of("kinds/step-%d/manifest.json", STEP);
    assert_int_equal(checkpoint_reader_open(manifest.s, NULL, &r, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "is not a folder"));
    copy_file(data.s, kept.s);
    CLEANUP(closep) int fd = open(data.s, O_RDWR);
    char header[400];
    assert_int_equal(pread(fd, header, sizeof header, 8), sizeof header);
    const char *dtype = memmem(header, sizeof header, "\"F32\"", 5);
    assert_non_null(dtype);
    assert_int_equal(pwrite(fd, "\"I32\"", 5, 8 + (dtype - header)), 5);
    assert_lost(directory.s, "I32", "rank-1.safetensors': optimizer.m.wte.weight");
    assert_int_equal(unlink(data.s), 0);
    assert_int_equal(mkfifo(data.s, 0600), 0);
    assert_lost(directory.s, "a pipe", "rank-1.safetensors': it is not a regular file");
    assert_int_equal(unlink(data.s), 0);
    copy_file(kept.s, data.s);
    assert_loads(directory.s, 1);
    assert_int_equal(truncate(manifest.s, (off_t)CHECKPOINT_JSON_BYTES + 1), 0);
    assert_lost(directory.s, "long", "manifest.json': it has 134217729 bytes (at most 134217728 are allowed)");
}

static void a_read_outside_of_a_tensor_is_refused(void **state) {
    (void)state;
    static const int64_t outside[][2] = { { -1, 2 }, { 0, -1 }, { 6, 0 }, { 0, 6 }, { 5, 1 } };
    struct outcome o;
    struct err e;
    float data[8];
    assert_int_equal(save(path_of("reads").s, 1, STEP, 1, &o), ST_OK);
    CLEANUP(checkpoint_reader_closep) struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(path_of("reads/step-%d", STEP).s, NULL, &r, &e), ST_OK);
    for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
        assert_int_equal(checkpoint_reader_read(r, "ln_f.bias", outside[i][0], outside[i][1], data, &e),
                         ST_OUT_OF_RANGE);
        assert_non_null(strstr(e.msg, "are outside the tensor ln_f.bias of 5"));
    }
    assert_int_equal(checkpoint_reader_read(r, "ln_f.bias", 5, 0, data, &e), ST_OK);
    assert_int_equal(checkpoint_reader_read(r, "nothing", 0, 1, data, &e), ST_NOT_FOUND);
}

static void texts_that_make_no_json_are_refused_before_they_are_written(void **state) {
    (void)state;
    struct manifest m = { .world_size = 1,
                          .numerics_id = "n",
                          .data_sha256 = "",
                          .weights_sha256 = "",
                          .spec_json = "{}",
                          .layout_json = "{",
                          .tokenizer_json = "{}" };
    struct rank_table t = { .world_size = 1, .sha256 = "", .tuning_cache = "\xff" };
    struct err e = { "" };
    struct bytes text;
    bytes_init(&text, 1 << 16);
    assert_int_equal(manifest_write(&m, &text, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "the manifest's layout is not a JSON object: "));
    m.layout_json = "{}";
    m.numerics_id = "\xff";
    assert_int_equal(manifest_write(&m, &text, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the manifest's texts are not all valid UTF-8");
    assert_int_equal(rank_table_write(&t, &text, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the tuning cache of rank 0 is not valid UTF-8");
    bytes_done(&text);
}

/* --- the ranks' exchange of a checkpoint's digests --- */

struct part { /* as gather.c sends it; then its chunks' digests */
    int64_t tensor, first, count;
};

static struct {
    char data[200];
    size_t n;
} from_rank_1;

static void tell(const void *data, size_t n) {
    memcpy(from_rank_1.data + from_rank_1.n, data, n);
    from_rank_1.n += n;
}

static status_t hear(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    (void)ctx;
    TRY(bytes_append(&all[0], mine, n, e));
    return bytes_append(&all[1], from_rank_1.data, from_rank_1.n, e);
}

/* Rank 0 has tensor 0; rank 1, which is this test, sends `part` and this many digests. */
static status_t gather_with(int64_t step, const struct part *part, size_t digests, size_t cut_off, struct err *e) {
    static const struct checkpoint_tensor tensors[] = { { "a", 1, { 3 } }, { "b", 1, { 2 } } };
    static const struct checkpoint_segment piece = { 0, 0, 3 };
    static const float values[3], *data = values;
    static const digest_t digest;
    digest_t ret[2];
    char weights[SHA256_HEX];
    const struct checkpoint_writer_config config = { .world_size = 2, .exchange = hear };
    const struct checkpoint_snapshot snapshot = {
        .step = STEP, .tensors = tensors, .n_tensors = 2, .segments = &piece, .data = &data, .n_segments = 1
    };
    from_rank_1.n = 0;
    tell(&step, sizeof step);
    if (part)
        tell(part, sizeof *part);
    for (size_t i = 0; i < digests; i++)
        tell(digest, sizeof digest);
    from_rank_1.n -= cut_off;
    return gather_digests(&config, &snapshot, NULL, 64, ret, weights, e);
}

static void impossible_digests_of_another_rank_are_refused(void **state) {
    (void)state;
    static const struct {
        int64_t step;
        struct part part;
        size_t digests, cut_off;
        const char *says;
    } all[] = {
        { STEP, { 1, 0, 2 }, 1, 0, NULL },
        { STEP + 1, { 1, 0, 2 }, 1, 0, "rank 1 is not writing the checkpoint of step 40" },
        { STEP, { 1, 0, 2 }, 0, sizeof(struct part) + 1, "rank 1 is not writing the checkpoint of step 40" },
        { STEP, { 1, 0, 2 }, 0, 1, "rank 1 sent an impossible segment" },
        { STEP, { -1, 0, 2 }, 1, 0, "rank 1 sent an impossible segment" },
        { STEP, { 2, 0, 2 }, 1, 0, "rank 1 sent an impossible segment" },
        { STEP, { 1, -1024, 2 }, 1, 0, "rank 1 sent an impossible segment" },
        { STEP, { 1, 1, 2 }, 1, 0, "rank 1 sent an impossible segment" },
        { STEP, { 1, 0, 0 }, 0, 0, "rank 1 sent an impossible segment" },
        { STEP, { 1, 0, -2 }, 0, 0, "rank 1 sent an impossible segment" },
        { STEP, { 1, 0, 2 }, 1, 1, "rank 1 sent 2 elements without their digests" },
        { STEP, { 1, 0, 1025 }, 1, 0, "rank 1 sent 1025 elements without their digests" },
        { STEP, { 1, 0, INT64_MAX }, 1, 0, "elements without their digests" },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct err e = { "" };
        const status_t st = gather_with(all[i].step, &all[i].part, all[i].digests, all[i].cut_off, &e);
        if (st != (all[i].says ? ST_INTERNAL : ST_OK) || !strstr(e.msg, all[i].says ? all[i].says : ""))
            fail_msg("case %zu: %s: %s", i, status_name(st), e.msg);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_with_a_valid_checksum_and_wrong_content_is_refused),
        cmocka_unit_test(a_ranks_table_with_a_valid_checksum_and_wrong_content_is_refused),
        cmocka_unit_test(elements_that_two_ranks_have_are_refused),
        cmocka_unit_test(also_where_nothing_is_behind_them),
        cmocka_unit_test(every_byte_of_a_seal_counts),
        cmocka_unit_test(a_tensor_that_cannot_be_is_refused),
        cmocka_unit_test(what_is_no_file_or_of_another_type_is_refused),
        cmocka_unit_test(a_read_outside_of_a_tensor_is_refused),
        cmocka_unit_test(texts_that_make_no_json_are_refused_before_they_are_written),
        cmocka_unit_test(impossible_digests_of_another_rank_are_refused),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
