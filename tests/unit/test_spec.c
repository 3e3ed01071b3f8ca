/* api/spec: which specs are accepted, what they are resolved to, and the exact message for each wrong spec of
 * specs/wrong.txt. */
#include "api/codec/text.h"
#include "api/spec/digest.h"
#include "api/spec/file.h"
#include "api/spec/fork.h"
#include "api/spec/spec.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/limits.h"
#include "tests/unit/spec_text.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define OK(call) assert_int_equal(call, ST_OK)

static char *json_of(const Trainyard__V1__JobSpec *spec) {
    struct bytes text;
    bytes_init(&text, 1 << 20);
    assert_int_equal(codec_print_json(&spec->base, 0, &text, NULL), ST_OK);
    return bytes_take(&text);
}

static const char smallest[] = "name: a\nmodel: {gpt: {layers: 1, heads: 1, width: 8, context: 4}}\n"
                               "data: {text: {files: [\"file:///x\"]}}\ntrain: {steps: 1, global_batch: 12}\n";

static void the_full_example_is_accepted_unchanged(void **state) {
    (void)state;
    struct bytes text;
    read_table("good.yaml", &text);
    Trainyard__V1__JobSpec *given = parse(text.data), *spec = resolve(text.data);
    char *a = json_of(given), *b = json_of(spec);
    assert_string_equal(a, b);
    assert_int_equal(spec_world_size(spec), 2);
    assert_int_equal(spec_micro_batches(spec), 2);
    assert_int_equal(spec_tokens_per_step(spec), 12 * 64);
    free(a);
    free(b);
    spec_free(given);
    spec_free(spec);
    bytes_done(&text);
}

static void sgd_does_not_clip_by_default(void **state) {
    (void)state;
    static const struct {
        const char *more;
        double clip_norm;
    } all[] = { { "  optimizer: {sgd: {lr: 0.1}}\n", 0 },
                { "  optimizer: {sgd: {lr: 0.1}}\n  clip_norm: 2\n", 2 },
                { "  optimizer: {lion: {}}\n", 1 } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        char text[600];
        snprintf(text, sizeof text,
                 "name: a\nmodel: {gpt: {layers: 1, heads: 1, width: 8, context: 4}}\n"
                 "data: {text: {files: [\"file:///x\"]}}\ntrain:\n  steps: 1\n  global_batch: 12\n%s",
                 all[i].more);
        Trainyard__V1__JobSpec *spec = resolve(text);
        assert_true(spec->train->clip_norm == all[i].clip_norm);
        spec_free(spec);
    }
}

static void the_smallest_spec_gets_every_default(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *spec = resolve(smallest);
    char *json = json_of(spec);
    assert_string_equal(
        json,
        "{\"name\":\"a\",\"model\":{\"gpt\":{\"layers\":1,\"heads\":1,\"width\":8,\"context\":4,\"dropout\":0}},"
        "\"data\":{\"text\":{\"files\":[\"file:///x\"],\"tokenizer\":\"char\",\"validation_fraction\":0.1,"
        "\"validation\":[],\"format\":\"text\",\"separator\":\"\"}},"
        "\"train\":{\"steps\":\"1\",\"global_batch\":12,\"micro_batch\":12,\"optimizer\":{\"adamw\":{\"lr\":0.0003,"
        "\"beta1\":0.9,\"beta2\":0.95,\"eps\":1e-08,\"weight_decay\":0.1}},\"learning_rate_schedule\":{\"constant\":"
        "{\"warmup_steps\":\"0\"}},\"clip_norm\":1,\"precision\":\"fp32\",\"seed\":\"0\",\"numerics\":\"reproducible\","
        "\"lanes\":1,\"reduce\":\"step\",\"eval\":{\"every\":\"0\"},"
        "\"micro_batch_auto\":false,\"recompute\":\"none\",\"init_from\":\"\",\"clip_value\":0,"
        "\"learning_rate_scaling\":\"none\",\"max_not_finite\":3,\"changed_data\":\"refuse\"},\"parallel\":{\"data\":1,"
        "\"pipeline\":1,\"zero\":0,\"pipeline_schedule\":\"1f1b\",\"virtual_stages\":1},\"checkpoint\":{\"every\":"
        "\"500\",\"keep_last\":3,"
        "\"keep_best\":0,\"directory\":\"\",\"store\":\"\"},\"resources\":{\"accelerator\":\"cpu\",\"memory_bytes\":"
        "\"0\",\"cores\":0}"
        ",\"retry\":{"
        "\"max_restarts\":3},"
        "\"queue\":\"default\",\"priority\":0,\"labels\":{}}");
    free(json);
    spec_free(spec);
}

static void a_resolved_spec_resolves_to_itself(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *once = resolve(smallest), *twice = NULL;
    assert_int_equal(spec_resolve(once, &twice, NULL, NULL), ST_OK);
    char *a = json_of(once), *b = json_of(twice);
    assert_string_equal(a, b);
    free(a);
    free(b);
    spec_free(once);
    spec_free(twice);
}

/* Applies one `set` line; true when that is already refused, with the sentence in e. */
static bool set_refused(Trainyard__V1__JobSpec *spec, char *line, struct err *e) {
    char *equals = strchr(line, '=');
    assert_non_null(equals);
    *equals = '\0';
    return codec_set_path(&spec->base, line, equals + 1, NULL, e) != ST_OK;
}

static void check_block(Trainyard__V1__JobSpec *spec, char *sets[], size_t n, const char *sentence) {
    struct err e = { "" };
    struct spec_problems problems = { 0 };
    Trainyard__V1__JobSpec *resolved = NULL;
    for (size_t i = 0; i < n; i++)
        if (set_refused(spec, sets[i], &e)) {
            assert_string_equal(e.msg, sentence);
            return;
        }
    status_t st = spec_resolve(spec, &resolved, &problems, &e);
    if (st == ST_OK)
        fail_msg("accepted, but should say: %s", sentence);
    assert_int_equal(st, ST_INVALID_ARGUMENT);
    assert_null(resolved);
    assert_string_equal(e.msg, sentence);
    assert_int_equal(problems.n, 1); /* one mistake, one line */
    assert_string_equal(problems.lines[0], sentence);
    spec_problems_done(&problems);
}

static void each_wrong_spec_gets_its_one_exact_sentence(void **state) {
    (void)state;
    struct bytes good, wrong;
    read_table("good.yaml", &good);
    read_table("wrong.txt", &wrong);
    char *sets[8];
    size_t n = 0, blocks = 0;
    for (char *save = NULL, *line = strtok_r(wrong.data, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strncmp(line, "set ", 4) == 0) {
            assert_in_range(n, 0, 7);
            sets[n++] = line + 4;
        } else if (strncmp(line, "-> ", 3) == 0) {
            Trainyard__V1__JobSpec *spec = parse(good.data);
            check_block(spec, sets, n, line + 3);
            spec_free(spec);
            n = 0;
            blocks++;
        } else {
            assert_int_equal(*line, '#');
        }
    }
    assert_in_range(blocks, 60, 1000);
    bytes_done(&good);
    bytes_done(&wrong);
}

static void all_problems_are_reported_at_once(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *given = parse("name: x\ntrain: {precision: fp8}"), *spec = NULL;
    struct spec_problems problems = { 0 };
    struct err e = { "" };
    assert_int_equal(spec_resolve(given, &spec, &problems, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg,
                        "model: give exactly one of gpt, llama, resnet, vit, mlp, unrolled (and 4 more problems)");
    static const char *const lines[] = { "model: give exactly one of gpt, llama, resnet, vit, mlp, unrolled",
                                         "data: give exactly one of text, tokens, images, idx, reconstruction, mixture",
                                         "train.steps: must be given, from 1 to 1000000000000",
                                         "train.global_batch: must be given, from 1 to 1048576",
                                         "train.precision: 'fp8' is not one of: fp32, bf16, fp16" };
    assert_int_equal(problems.n, 5);
    for (size_t i = 0; i < 5; i++)
        assert_string_equal(problems.lines[i], lines[i]);
    spec_problems_done(&problems);
    spec_free(given);
}

static void a_field_of_a_newer_version_is_refused(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *given = parse(smallest);
    uint8_t packed[512];
    size_t n = trainyard__v1__model_spec__pack(given->model, packed);
    const uint8_t newer[] = { 0x7a, 0x00 }; /* field 15, an empty message */
    memcpy(packed + n, newer, sizeof newer);
    trainyard__v1__model_spec__free_unpacked(given->model, NULL);
    given->model = trainyard__v1__model_spec__unpack(NULL, n + sizeof newer, packed);
    assert_non_null(given->model);
    Trainyard__V1__JobSpec *spec = NULL;
    struct err e = { "" };
    assert_int_equal(spec_resolve(given, &spec, NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "model: field number 15 is not known to this version");
    spec_free(given);
}

static void texts_of_a_peer_are_made_printable_and_labels_checked(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *given = parse(smallest), *spec = NULL;
    Trainyard__V1__JobSpec__LabelsEntry a = TRAINYARD__V1__JOB_SPEC__LABELS_ENTRY__INIT, b = a;
    Trainyard__V1__JobSpec__LabelsEntry *labels[] = { &a, &b };
    struct spec_problems problems = { 0 };
    a.key = b.key = (char *)"k";
    a.value = (char *)"\xff";
    b.value = (char *)"tab\t";
    given->labels = labels;
    given->n_labels = 2;
    char *name = given->name;
    given->name = (char *)"\xffx\n";
    assert_int_equal(spec_resolve(given, &spec, &problems, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(problems.n, 4);
    assert_string_equal(problems.lines[0],
                        "name: '?x?' is not a name: letters, digits, '.', '_' and '-', the first a letter or a digit");
    assert_string_equal(problems.lines[1], "labels.k: is not UTF-8");
    assert_string_equal(problems.lines[2], "labels.k: has a control character");
    assert_string_equal(problems.lines[3], "labels.k: given twice");
    spec_problems_done(&problems);
    given->labels = NULL;
    given->n_labels = 0;
    given->name = name;
    spec_free(given);
}

/* A text is shorter; a message may have more. */
static void of_files_there_is_a_most(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *given = parse(smallest), *spec = NULL;
    Trainyard__V1__TextData *text = given->data->text;
    char uri[] = "file:///f", **own = text->files, **many = calloc(LIMIT_DATA_OBJECTS + 1, sizeof *many);
    const size_t n_own = text->n_files;
    struct err e = { "" };
    assert_non_null(many);
    for (size_t i = 0; i <= LIMIT_DATA_OBJECTS; i++)
        many[i] = uri;
    text->files = many;
    text->n_files = LIMIT_DATA_OBJECTS;
    assert_int_equal(spec_resolve(given, &spec, NULL, &e), ST_OK);
    spec = spec_free(spec);
    text->n_files++;
    assert_int_equal(spec_resolve(given, &spec, NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "data.text.files: 65537 files are more than 65536");
    text->files = own;
    text->n_files = n_own;
    free(many);
    spec_free(given);
}

/* Of each a text that is as long as it may be, and one that has one more. */
static void of_layers_and_labels_there_is_a_most(void **state) {
    (void)state;
    static const struct {
        const char *head, *each, *tail, *says;
        int most;
    } table[] = {
        { "name: a\nmodel: {mlp: {hidden: [", "8,",
          "]}}\ntrain: {steps: 1, global_batch: 1, optimizer: {adamw: {}}}\n"
          "data: {idx: {train_images: 'file:///i', train_labels: 'file:///l'}}",
          "model.mlp.hidden: 33 layers are more than 32", 32 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int more = 0; more < 2; more++) {
            char text[8192];
            size_t n = (size_t)snprintf(text, sizeof text, "%s", table[i].head);
            for (int k = 0; k < table[i].most + more; k++)
                n += (size_t)snprintf(text + n, sizeof text - n, "%s", table[i].each);
            snprintf(text + n, sizeof text - n, "%s", table[i].tail);
            Trainyard__V1__JobSpec *given = parse(text), *spec = NULL;
            struct err e = { "" };
            assert_int_equal(spec_resolve(given, &spec, NULL, &e), more ? ST_INVALID_ARGUMENT : ST_OK);
            assert_string_equal(e.msg, more ? table[i].says : "");
            spec_free(given);
            spec_free(spec);
        }
    char text[8192];
    size_t n = (size_t)snprintf(text, sizeof text, "%slabels: {", smallest);
    for (int k = 0; k < 65; k++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%sk%d: v", k ? ", " : "", k);
    snprintf(text + n, sizeof text - n, "}\n");
    Trainyard__V1__JobSpec *given = parse(text), *spec = NULL;
    struct err e = { "" };
    assert_int_equal(spec_resolve(given, &spec, NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "labels: 65 labels are more than 64");
    spec_free(given);
}

/* 64 labels of which each is wrong, and a name that is. */
static void problems_beyond_the_maximum_are_dropped(void **state) {
    (void)state;
    char text[8192];
    size_t n = (size_t)snprintf(text, sizeof text, "%slabels: {", smallest);
    for (int k = 0; k < 64; k++)
        n += (size_t)snprintf(text + n, sizeof text - n, "%sk%d: \"\\x7f\"", k ? ", " : "", k);
    snprintf(text + n, sizeof text - n, "}\n");
    Trainyard__V1__JobSpec *given = parse(text), *spec = NULL;
    struct spec_problems problems = { 0 };
    struct err e = { "" };
    given->name[0] = '-';
    assert_int_equal(spec_resolve(given, &spec, &problems, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(problems.n, SPEC_PROBLEMS);
    assert_string_equal(problems.lines[0],
                        "name: '-' is not a name: letters, digits, '.', '_' and '-', the first a letter or a digit");
    assert_string_equal(problems.lines[SPEC_PROBLEMS - 1], "labels.k62: has a control character");
    spec_problems_done(&problems);
    spec_free(given);
}

static void names_may_have_points_and_lines_within(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *spec = resolve("name: a.b_c-9\nmodel: {gpt: {layers: 1, heads: 1, width: 8, context: 4}}\n"
                                           "train: {steps: 1, global_batch: 1, optimizer: {adamw: {}}, "
                                           "init_from: jobs/1/checkpoints/2, profile: {from: 0, to: 0}}\n"
                                           "data: {text: {files: ['file:///f']}}");
    assert_string_equal(spec->name, "a.b_c-9");
    assert_string_equal(spec->train->init_from, "jobs/1/checkpoints/2");
    spec_free(spec);
}

static void a_change_has_a_path_and_a_value(void **state) {
    (void)state;
    char beyond[300];
    memset(beyond, 'x', sizeof beyond);
    memcpy(beyond + 256, "=1", 3);
    const char *const wrong[] = { "name", "=1", "", beyond };
    Trainyard__V1__JobSpec *spec = parse(smallest);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct err e = { "" };
        assert_int_equal(spec_change(spec, &wrong[i], 1, &e), ST_INVALID_ARGUMENT);
        assert_non_null(strstr(e.msg, "is not of the form key.path=value"));
    }
    const char *right = "name=b";
    assert_int_equal(spec_change(spec, &right, 1, NULL), ST_OK);
    assert_string_equal(spec->name, "b");
    spec_free(spec);
}

static void other_programs_names_lead_to_our_fields(void **state) {
    (void)state;
    static const char *const table[][2] = {
        { "train.lr=1", "train.lr: unknown field; the learning rate belongs to the optimizer, as in "
                        "train.optimizer.adamw.lr" },
        { "train.batch_size=8",
          "train.batch_size: unknown field; the samples of a step are train.global_batch, those of "
          "one pass on a rank train.micro_batch" },
        { "train.epochs=3", "train.epochs: unknown field; training is counted in optimizer steps: give train.steps, "
                            "epochs x samples / global_batch" },
        { "model.gpt.n_embd=64", "model.gpt.n_embd: unknown field; the size of the residual stream is `width` of the "
                                 "model, as in model.gpt.width" },
        { "gpus=4", "gpus: unknown field; the ranks are parallel.data x parallel.pipeline, and a rank has a GPU with "
                    "resources.accelerator: cuda" },
        { "train.optimizer.adam.lr=1", "train.optimizer.adam: unknown field; did you mean adamw?" },
    };
    Trainyard__V1__JobSpec *spec = parse(smallest);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e = { "" };
        assert_int_equal(spec_change(spec, &table[i][0], 1, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg + strlen("--set: "), table[i][1]);
    }
    spec_free(spec);
}

static status_t read_spec(const char *text, size_t n, struct err *e) {
    char path[] = "/tmp/test_spec-XXXXXX";
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, n), n);
    close(fd);
    status_t st = spec_file_read(path, &spec, e);
    unlink(path);
    return st;
}

/* A file of as many bytes as a spec may have is read, whatever is in it. */
static void a_file_that_is_empty_or_too_large_is_said_to_be(void **state) {
    (void)state;
    CLEANUP(freep) char *text = malloc(LIMIT_SPEC_BYTES + 2);
    struct err e = { "" };
    assert_int_equal(read_spec("", 0, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, ": it is empty; a spec has at least a name, a model, data and train"));
    assert_int_equal(read_spec(" \n\n", 3, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, ": it is empty"));
    memset(text, ' ', LIMIT_SPEC_BYTES + 1);
    memcpy(text, "name: a #", 9);
    assert_int_equal(read_spec(text, LIMIT_SPEC_BYTES, &e), ST_OK);
    assert_int_equal(read_spec(text, LIMIT_SPEC_BYTES + 1, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, ": a spec has at most 256 KiB, and this one has more"));
    assert_int_equal(read_spec("train: {lr: 1}", 14, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "train.lr: unknown field; the learning rate belongs to the optimizer"));
}

static void uris_that_are_no_paths_say_why(void **state) {
    (void)state;
    static const char *const wrong[][2] = {
        { "http:///data", "'http:///data' is not a URI of the form file:///absolute/path" },
        { "file://host/data", "is not a URI of the form file:///absolute/path" },
        { "http:///\x7f", "'...' is not a URI of the form" },
        { "file:///a%2", "is too long or has an incomplete %XX" },
        { "file:///a%g1", "is too long or has an incomplete %XX" },
        { "file:///a%1g", "is too long or has an incomplete %XX" },
        { "file:///a%7f", "the path has a control character" },
        { "file:///a%1f", "the path has a control character" },
        { "file:///a/../b", "is not in normal form" },
        { "file:///a/./b", "is not in normal form" },
        { "file:///a//b", "is not in normal form" },
        { "file:///a?b", "has a query or fragment" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        char path[64];
        struct err e = { "" };
        assert_int_equal(spec_uri_path(wrong[i][0], path, sizeof path, &e), ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, wrong[i][1]))
            fail_msg("%s: %s", wrong[i][0], e.msg);
    }
}

static void uris_become_paths(void **state) {
    (void)state;
    char path[64];
    struct err e = { "" };
    assert_int_equal(spec_uri_path("file:///data/my%20text%3f", path, sizeof path, &e), ST_OK);
    assert_string_equal(path, "/data/my text?");
    strcpy(path, "kept");
    assert_int_equal(spec_uri_path("file:///", path, sizeof path, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(spec_uri_path("file:///0123456789", path, 8, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(path, "kept");
}

static void auto_is_kept_and_leaves_the_choice_to_the_plan(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *given = parse(smallest), *spec = NULL;
    assert_int_equal(codec_set_path(&given->base, "train.micro_batch", "auto", NULL, NULL), ST_OK);
    assert_int_equal(codec_set_path(&given->base, "resources.memory_bytes", "1e6", NULL, NULL), ST_OK);
    assert_int_equal(spec_resolve(given, &spec, NULL, NULL), ST_OK);
    assert_true(spec_has_auto(spec));
    assert_int_equal(spec_micro_batches(spec), 0);
    assert_int_equal(spec->train->_lanes_case, 0);
    assert_int_equal(codec_set_path(&given->base, "train.micro_batch", "3", NULL, NULL),
                     ST_OK); /* the number takes its place */
    assert_false(given->train->micro_batch_auto);
    spec_free(spec);
    assert_int_equal(spec_resolve(given, &spec, NULL, NULL), ST_OK);
    assert_false(spec_has_auto(spec));
    spec_free(given);
    spec_free(spec);
}

/* All but `parallel` of a spec with this layout, as JSON. */
static char *json_beside_layout(const char *text, const char *layout) {
    Trainyard__V1__JobSpec *given = parse(text), *spec = NULL;
    struct err e = { "" };
    if (codec_set_path(&given->base, "parallel", layout, NULL, &e) != ST_OK ||
        spec_resolve(given, &spec, NULL, &e) != ST_OK)
        fail_msg("%s: %s", layout, e.msg);
    trainyard__v1__parallel_spec__free_unpacked(spec->parallel, NULL);
    spec->parallel = NULL;
    char *json = json_of(spec);
    spec_free(given);
    spec_free(spec);
    return json;
}

/* Sixteen micro-batches on eight lanes, so that `reduce` and `lanes` mean something. */
static void no_default_outside_parallel_follows_the_layout(void **state) {
    (void)state;
    static const char *const models[] = { "gpt: {layers: 4, heads: 1, width: 8, context: 4}",
                                          "llama: {layers: 4, heads: 1, width: 8, context: 4}" };
    static const char *const optimizers[] = { "adamw", "sgd", "lion" };
    static const char *const layouts[] = { "{data: 2}",
                                           "{data: 8}",
                                           "{data: 2, zero: 1}",
                                           "{data: 2, zero: 2}",
                                           "{data: 8, zero: 3}",
                                           "{zero: 3}",
                                           "{pipeline: 2}",
                                           "{pipeline: 2, pipeline_schedule: interleaved}",
                                           "{data: 2, pipeline: 4, pipeline_schedule: zero_bubble, zero: 1}" };
    for (size_t m = 0; m < sizeof models / sizeof *models; m++)
        for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++) {
            char text[400];
            snprintf(text, sizeof text,
                     "name: a\nmodel: {%s}\ndata: {text: {files: ['file:///x']}}\n"
                     "train: {steps: 9, global_batch: 16, micro_batch: 1, optimizer: {%s: {}}}\n",
                     models[m], optimizers[o]);
            char *alone = json_beside_layout(text, "{}");
            for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
                char *json = json_beside_layout(text, layouts[i]);
                assert_string_equal(json, alone);
                free(json);
            }
            free(alone);
        }
}

static void the_decay_of_wsd_is_a_tenth_or_what_warm_up_leaves(void **state) {
    (void)state;
    static const struct {
        const char *warmup;
        int64_t decay;
    } table[] = { { "0", 10 }, { "90", 10 }, { "95", 5 }, { "100", 0 } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e = { "" };
        Trainyard__V1__JobSpec *given = parse(smallest), *spec = NULL;
        assert_int_equal(codec_set_path(&given->base, "train.steps", "100", NULL, &e), ST_OK);
        assert_int_equal(
            codec_set_path(&given->base, "train.learning_rate_schedule.wsd.warmup_steps", table[i].warmup, NULL, &e),
            ST_OK);
        if (spec_resolve(given, &spec, NULL, &e) != ST_OK)
            fail_msg("warm-up of %s steps: %s", table[i].warmup, e.msg);
        assert_int_equal(spec->train->learning_rate_schedule->wsd->decay_steps, table[i].decay);
        spec_free(given);
        spec_free(spec);
    }
}

static void a_checkpoints_name_is_read_exactly(void **state) {
    (void)state;
    static const char *const wrong[] = { "",
                                         "jobs/1",
                                         "jobs/1/checkpoints/",
                                         "jobs/01/checkpoints/2",
                                         "jobs/1/checkpoints/2x",
                                         "jobs/99999999999999999999/checkpoints/1",
                                         "jobs/-1/checkpoints/2" };
    int64_t job = 0, id = 0;
    assert_true(spec_checkpoint_name("jobs/42/checkpoints/7", &job, &id));
    assert_int_equal(job, 42);
    assert_int_equal(id, 7);
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(spec_checkpoint_name(wrong[i], &job, &id));
    assert_int_equal(job, 42);
}

/* Of a fork at step 10 of job 3, which had `smallest` with `before`; each with changes. */
static void assert_fork(const char *const before[2], const char *const change[2], const char *expected) {
    Trainyard__V1__JobSpec *origin = parse(smallest), *fork = NULL, *theirs = NULL, *ours = NULL;
    OK(spec_change(origin, (const char *[]){ "train.steps=10" }, 1, NULL));
    OK(spec_change(origin, before, before[1] ? 2 : before[0] ? 1 : 0, NULL));
    OK(spec_resolve(origin, &theirs, NULL, NULL));
    OK(spec_resolve(theirs, &fork, NULL, NULL)); /* as `submit --fork` begins: every default is written out */
    OK(spec_change(fork, change, change[1] ? 2 : 1, NULL));
    OK(spec_resolve(fork, &ours, NULL, NULL));
    struct spec_problems problems = { 0 };
    spec_check_fork(ours, &(struct spec_origin){ .spec = theirs, .job = 3, .step = 10 }, &problems);
    char all[2048] = "";
    for (size_t i = 0; i < problems.n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? "\n" : "", problems.lines[i]);
    assert_string_equal(all, expected);
    spec_problems_done(&problems);
    spec_free(origin);
    spec_free(theirs);
    spec_free(fork);
    spec_free(ours);
}

static void a_fork_keeps_the_model_and_the_data_of_its_origin(void **state) {
    (void)state;
    static const char *const none[2] = { NULL }, *const two[2] = { "data.text.files=['file:///x', 'file:///y']" },
                             *const changing[2] = { "train.changed_data=restart" };
    static const char model[] = ": a fork keeps the model of its origin",
                      data[] = ": a fork keeps the data of its origin";
    char text[512];
#define FORKED(before, first, second, ...)                                                                             \
    snprintf(text, sizeof text, __VA_ARGS__);                                                                          \
    assert_fork(before, (const char *[2]){ first, second }, text)
    FORKED(none, "train.steps=11", "model.gpt.dropout=0.2", "%s", "");
    FORKED(none, "train.steps=11", "train.optimizer={sgd: {}}", "%s", "");
    FORKED(none, "train.seed=5", NULL, "train.steps: 10 is not above the step 10 that the fork begins at");
    FORKED(none, "train.steps=11", "model.gpt.width=16", "model.gpt.width: 16, but job 3 has 8%s", model);
    FORKED(none, "train.steps=11", "model.gpt.vocabulary=65", "model.gpt.vocabulary: is given, but job 3 has none%s",
           model);
    FORKED(none, "train.steps=11", "model={llama: {layers: 1, heads: 1, width: 8, context: 4}}",
           "model: llama, but job 3 has gpt%s", model);
    FORKED(none, "train.steps=11", "data.text.validation_fraction=0.3",
           "data.text.validation_fraction: 0.3, but job 3 has 0.1%s", data);
    FORKED(none, "train.steps=11", "data.text.tokenizer=byte", "data.text.tokenizer: 'byte', but job 3 has 'char'%s",
           data);
    FORKED(none, "train.steps=11", "data.text.files=['file:///z']",
           "data.text.files[0]: 'file:///z', but job 3 has 'file:///x'%s", data);
    FORKED(none, "train.steps=11", "train.changed_data=continue", "%s", "");
    FORKED(changing, "train.steps=11", "data.text.files=['file:///z']", "%s", "");
    FORKED(changing, "train.steps=11", "model.gpt.width=16", "model.gpt.width: 16, but job 3 has 8%s", model);
    FORKED(two, "train.steps=11", "data.text.files=['file:///x']", "data.text.files: 1 value, but job 3 has 2%s", data);
    FORKED(none, "train.steps=10", "model.gpt.width=16",
           "model.gpt.width: 16, but job 3 has 8%s\ntrain.steps: 10 is not above the step 10 that the fork begins at",
           model);
#undef FORKED
}

static void a_digest_distinguishes_specs_and_ignores_the_order_of_labels(void **state) {
    (void)state;
    static const char *const texts[] = { "name: a\nlabels: {x: '1', y: '2'}", "name: a\nlabels: {y: '2', x: '1'}",
                                         "name: a\nlabels: {x: '2', y: '1'}", "name: b\nlabels: {x: '1', y: '2'}" };
    uint8_t digests[4][SHA256_BYTES], forked[SHA256_BYTES];
    for (int i = 0; i < 4; i++) {
        Trainyard__V1__JobSpec *spec = parse(texts[i]);
        spec_digest(spec, "", digests[i]);
        spec_digest(spec, "42", forked);
        assert_memory_not_equal(digests[i], forked, SHA256_BYTES);
        spec_free(spec);
    }
    assert_memory_equal(digests[0], digests[1], SHA256_BYTES);
    assert_memory_not_equal(digests[0], digests[2], SHA256_BYTES);
    assert_memory_not_equal(digests[0], digests[3], SHA256_BYTES);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fork_keeps_the_model_and_the_data_of_its_origin),
        cmocka_unit_test(a_digest_distinguishes_specs_and_ignores_the_order_of_labels),
        cmocka_unit_test(the_full_example_is_accepted_unchanged),
        cmocka_unit_test(the_smallest_spec_gets_every_default),
        cmocka_unit_test(sgd_does_not_clip_by_default),
        cmocka_unit_test(a_resolved_spec_resolves_to_itself),
        cmocka_unit_test(each_wrong_spec_gets_its_one_exact_sentence),
        cmocka_unit_test(all_problems_are_reported_at_once),
        cmocka_unit_test(a_field_of_a_newer_version_is_refused),
        cmocka_unit_test(texts_of_a_peer_are_made_printable_and_labels_checked),
        cmocka_unit_test(of_files_there_is_a_most),
        cmocka_unit_test(of_layers_and_labels_there_is_a_most),
        cmocka_unit_test(problems_beyond_the_maximum_are_dropped),
        cmocka_unit_test(names_may_have_points_and_lines_within),
        cmocka_unit_test(a_change_has_a_path_and_a_value),
        cmocka_unit_test(other_programs_names_lead_to_our_fields),
        cmocka_unit_test(a_file_that_is_empty_or_too_large_is_said_to_be),
        cmocka_unit_test(uris_that_are_no_paths_say_why),
        cmocka_unit_test(uris_become_paths),
        cmocka_unit_test(auto_is_kept_and_leaves_the_choice_to_the_plan),
        cmocka_unit_test(no_default_outside_parallel_follows_the_layout),
        cmocka_unit_test(the_decay_of_wsd_is_a_tenth_or_what_warm_up_leaves),
        cmocka_unit_test(a_checkpoints_name_is_read_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
