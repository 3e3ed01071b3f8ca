/* Converting a spec to the engine's configuration: every field arrives, and data is accepted only in allowed folders.
 */
#include "api/codec/message.h"
#include "api/codec/text.h"
#include "api/spec/fields.h"
#include "api/spec/spec.h"
#include "base/roots.h"
#include "engine/run/engine.h"
#include "executor/worker/config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/trainyard-config-XXXXXX";

static void make_file(const char *name) {
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("text", f);
    fclose(f);
}

static int make_folder(void **state) {
    (void)state;
    char path[128], target[128];
    assert_non_null(mkdtemp(folder));
    make_file("file");
    snprintf(path, sizeof path, "%s/inside", folder);
    assert_int_equal(mkdir(path, 0755), 0);
    snprintf(path, sizeof path, "%s/inside/out", folder);
    snprintf(target, sizeof target, "%s/file", folder);
    return symlink(target, path);
}

static int remove_folder(void **state) {
    (void)state;
    char path[128];
    static const char *const names[] = { "inside/out", "inside", "file", "" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        remove(path);
    }
    return 0;
}

/* Parses the text, with each @ replaced by the folder's URI. */
static Trainyard__V1__JobSpec *spec_of(const char *text) {
    char filled[2048];
    size_t n = 0;
    for (; *text; text++)
        n += (size_t)snprintf(filled + n, sizeof filled - n, *text == '@' ? "file://%s" : "%.1s",
                              *text == '@' ? folder : text);
    ProtobufCMessage *msg = NULL;
    struct err e = { "" };
    if (codec_parse(&trainyard__v1__job_spec__descriptor, filled, n, NULL, &msg, &e) != ST_OK)
        fail_msg("%s: %s", filled, e.msg);
    return (Trainyard__V1__JobSpec *)msg;
}

static struct config *open_config(const char *text, const struct roots *roots, struct err *e) {
    Trainyard__V1__JobSpec *given = spec_of(text), *spec = NULL;
    struct config *c = NULL;
    status_t st = spec_resolve(given, &spec, NULL, e);
    if (st == ST_OK)
        st = config_open(spec, roots, NULL, &c, e);
    spec_free(given);
    spec_free(spec);
    assert_true((st == ST_OK) == (c != NULL));
    return c;
}

#define TEXT  "data: {text: {files: [\"@/file\"]}}\n"
#define GPT   "model: {gpt: {layers: 2, heads: 2, width: 16, context: 8}}\n"
#define TRAIN "train: {steps: 10, global_batch: 8, micro_batch: 2"

static struct config *must_open(const char *text) {
    struct err e = { "" };
    struct config *c = open_config(text, NULL, &e);
    if (!c)
        fail_msg("%s: %s", text, e.msg);
    return c;
}

static void every_family_arrives_with_its_numbers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        const struct model_kind *family;
        const struct data_kind *kind;
    } table[] = {
        { "name: a\n" GPT TEXT TRAIN "}", &model_gpt, &data_text },
        { "name: a\nmodel: {llama: {layers: 2, heads: 4, kv_heads: 2, width: 16, context: 8, vocabulary: 300, "
          "rope_scaling: {factor: 8, low_freq_factor: 1, high_freq_factor: 4, original_max_position_embeddings: 64}}}\n"
          "data: {tokens: {train: [\"@/file\"]}}\n" TRAIN "}",
          &model_llama, &data_tokens },
        { "name: a\nmodel: {resnet: {layers: 34}}\ndata: {images: {train: \"@/inside\"}}\n" TRAIN "}", &model_resnet,
          &data_images },
        { "name: a\nmodel: {vit: {layers: 1, heads: 2, width: 16, patch: 4}}\n"
          "data: {images: {train: \"@/inside\", size: 8}}\n" TRAIN "}",
          &model_vit, &data_images },
        { "name: a\nmodel: {mlp: {hidden: [7, 5]}}\n"
          "data: {idx: {train_images: \"@/file\", train_labels: \"@/file\"}}\n" TRAIN "}",
          &model_mlp, &data_idx },
        { "name: a\nmodel: {unrolled: {iterations: 3}}\ndata: {reconstruction: {train: \"@/inside\", noise: "
          "0.5}}\n" TRAIN "}",
          &model_unrolled, &data_reconstruction },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct config *c = must_open(table[i].text);
        const struct engine_config *ec = config_engine(c);
        assert_ptr_equal(ec->model.kind, table[i].family);
        assert_ptr_equal(ec->data.kind, table[i].kind);
        if (table[i].family == &model_llama) {
            assert_int_equal(ec->model.llama.kv_heads, 2);
            assert_int_equal(ec->model.llama.hidden, 64);
            const struct llama_rope_scaling *scaling = &ec->model.llama.rope_scaling;
            assert_true(scaling->factor == 8 && scaling->low_freq_factor == 1 && scaling->high_freq_factor == 4);
            assert_int_equal(scaling->original_max_position_embeddings, 64);
            assert_int_equal(ec->data.tokens.n_validation, 0);
        }
        if (table[i].family == &model_mlp) {
            assert_int_equal(ec->model.mlp.n_hidden, 2);
            assert_int_equal(ec->model.mlp.hidden[1], 5);
            assert_string_equal(ec->data.idx.validation_images, "");
        }
        if (table[i].family == &model_resnet)
            assert_int_equal(ec->model.resnet.layers, 34);
        if (table[i].family == &model_unrolled)
            assert_true(ec->data.reconstruction.noise == 0.5);
        config_close(c);
    }
}

static void every_part_of_training_and_layout_arrives(void **state) {
    (void)state;
    struct config *c = must_open(
        "name: a\n" GPT TEXT TRAIN
        ", lanes: 4, precision: fp16, recompute: block, clip_value: 0.5, ema: {decay: 0.9},\n"
        "  loss_scale: {growth_interval: 7}, skip_spikes: {z_score: 6}, max_not_finite: 9, profile: {from: 2, to: 3},\n"
        "  inspect: {gradients_every: 5}, learning_rate_scaling: sqrt, reference_batch: 2, init_from: \"@/inside\",\n"
        "  optimizer: {muon: {iterations: 3, adamw: {lr: 0.5}}},\n"
        "  learning_rate_schedule: {wsd: {warmup_steps: 1, decay_steps: 4, min_lr: 0}}}\n"
        "parallel: {data: 2, pipeline: 3, zero: 1, pipeline_schedule: zero_bubble,\n"
        "  nccl: {buffer_bytes: 65536, algorithm: Ring, protocol: LL}}\n"
        "resources: {accelerator: cuda, memory_bytes: 1e6}\n");
    struct err e;
    const struct engine_config *ec = config_engine(c);
    const struct engine_train *t = &ec->train;
    assert_null(t->init_from);
    assert_int_equal(config_init_from(c, NULL, &e), ST_OK);
    assert_int_equal(t->precision, ENGINE_FP16);
    assert_ptr_equal(t->optimizer.kind, &optimizer_muon);
    assert_true(t->optimizer.muon.adamw.lr == 0.5 && t->optimizer.muon.lr == 0.02);
    assert_int_equal(t->recompute, RECOMPUTE_BLOCK);
    assert_true(t->clip_value == 0.5 && t->ema.decay == 0.9 && t->clip_norm == 1);
    assert_true(t->loss_scale.initial == 65536 && t->loss_scale.growth_interval == 7);
    assert_true(t->skip_spikes.z_score == 6 && t->skip_spikes.window == 100);
    assert_int_equal(t->max_not_finite, 9);
    assert_int_equal(t->rate_scaling.kind, ENGINE_RATE_SQRT);
    assert_int_equal(t->rate_scaling.reference_batch, 2);
    assert_ptr_equal(t->schedule.kind, &rate_wsd);
    assert_int_equal(t->schedule.decay_steps, 4);
    assert_non_null(strstr(t->init_from, "/inside"));
    assert_int_equal(ec->profile.from, 2);
    assert_int_equal(ec->profile.to, 3);
    assert_int_equal(ec->gradients_every, 5);
    assert_int_equal(ec->memory_bytes, 1000000);
    assert_int_equal(engine_ranks(&ec->layout), 6);
    assert_int_equal(ec->layout.zero, 1);
    assert_ptr_equal(ec->layout.schedule, &schedule_zero_bubble);
    assert_string_equal(ec->device, "cuda");
    assert_int_equal(ec->tuning.buffer_bytes, 65536);
    assert_string_equal(ec->tuning.algorithm, "Ring");
    assert_string_equal(ec->tuning.protocol, "LL");
    assert_non_null(strstr(ec->spec_json, "\"precision\":\"fp16\""));
    config_close(c);
}

static const struct engine_config *said(const char *format, const char *word, struct config **ret) {
    char text[512];
    int n = snprintf(text, sizeof text, "name: a\n" GPT TEXT "resources: {memory_bytes: 1e9}\n");
    snprintf(text + n, sizeof text - (size_t)n, format, word);
    return config_engine(*ret = must_open(text));
}

/* Spec and engine do not include each other's lists: each word of the engine's list must be in the spec's, with the
 * same meaning. */
static void every_word_of_the_engine_arrives_from_a_spec(void **state) {
    (void)state;
    struct config *c;
    for (int i = 0; PLAN_REDUCE_WORDS[i]; i++, config_close(c))
        assert_int_equal(said(TRAIN ", reduce: %s}", PLAN_REDUCE_WORDS[i], &c)->train.reduce, i);
    for (int i = 0; PLAN_RECOMPUTE_WORDS[i]; i++, config_close(c))
        assert_int_equal(said(TRAIN ", recompute: %s}", PLAN_RECOMPUTE_WORDS[i], &c)->train.recompute, i);
    for (int i = 0; ENGINE_NUMERICS_NAMES[i]; i++, config_close(c))
        assert_int_equal(said(TRAIN ", numerics: %s}", ENGINE_NUMERICS_NAMES[i], &c)->train.numerics, i);
    for (int i = 0; ENGINE_PRECISION_NAMES[i]; i++, config_close(c))
        assert_int_equal(said(TRAIN ", precision: %s}", ENGINE_PRECISION_NAMES[i], &c)->train.precision, i);
    for (int i = 0; schedule_kinds[i]; i++, config_close(c)) {
        const char *format = TRAIN "}\nparallel: {pipeline: 2, pipeline_schedule: %s}";
        assert_ptr_equal(said(format, schedule_kinds[i]->name, &c)->layout.schedule, schedule_kinds[i]);
    }
}

/* Every member of the spec's choices is a kind of the engine; the option of an optimizer agrees with its kind. */
static void every_kind_of_the_spec_is_one_of_the_engine(void **state) {
    (void)state;
    const ProtobufCMessageDescriptor *models = &trainyard__v1__model_spec__descriptor,
                                     *data = &trainyard__v1__data_spec__descriptor,
                                     *optimizers = &trainyard__v1__optimizer_spec__descriptor,
                                     *rates = &trainyard__v1__schedule_spec__descriptor;
    for (unsigned i = 0; i < models->n_fields; i++)
        assert_non_null(model_kind_find(models->fields[i].name));
    for (unsigned i = 0; i < data->n_fields; i++)
        assert_true(field_is_member(data, &data->fields[i]) == (data_kind_find(data->fields[i].name) != NULL));
    for (unsigned i = 0; i < rates->n_fields; i++)
        assert_non_null(rate_kind_find(rates->fields[i].name));
    for (unsigned i = 0; i < optimizers->n_fields; i++) {
        const struct optimizer_kind *kind = optimizer_kind_find(optimizers->fields[i].name);
        assert_non_null(kind);
        assert_int_equal(kind->whole_tensor, spec_field(optimizers, i)->whole_tensors);
    }
}

static void data_is_read_below_the_roots_only_and_by_no_link(void **state) {
    (void)state;
    char root[128];
    snprintf(root, sizeof root, "%s/inside", folder);
    const char *paths[] = { root };
    struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    struct err e = { "" };
    /* A link inside the root that leads outside. */
    assert_null(open_config("name: a\n" GPT "data: {text: {files: [\"@/inside/out\"]}}\n" TRAIN "}", &roots, &e));
    assert_non_null(strstr(e.msg, "data.text.files[0]: "));
    assert_non_null(strstr(e.msg, "symbolic link"));
    assert_null(open_config("name: a\n" GPT TEXT TRAIN "}", &roots, &e));
    assert_non_null(strstr(e.msg, "lies below no --data-root"));
    /* The root itself may be read. */
    struct config *c = open_config("name: a\nmodel: {resnet: {}}\ndata: {images: {train: \"@/inside\"}}\n" TRAIN "}",
                                   &roots, &e);
    assert_non_null(c);
    config_close(c);
}

static void no_root_admits_no_file(void **state) {
    (void)state;
    const struct roots none = { .option = "--data-root" };
    struct err e = { "" };
    assert_null(open_config("name: a\n" GPT TEXT TRAIN "}", &none, &e));
    assert_non_null(strstr(e.msg, "data.text.files[0]: "));
    assert_non_null(strstr(e.msg, "no --data-root is given"));
}

/* The checked file is the file that is read: if it becomes a link after the check, the link is not followed. */
static void a_file_that_becomes_a_link_is_not_read(void **state) {
    (void)state;
    char file[128], other[128];
    const char *paths[] = { folder };
    const struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    struct err e = { "" };
    struct config *c = open_config("name: a\n" GPT "data: {text: {files: [\"@/file\"]}}\n" TRAIN "}", &roots, &e);
    assert_non_null(c);
    snprintf(file, sizeof file, "%s/file", folder);
    snprintf(other, sizeof other, "%s/moved", folder);
    assert_int_equal(rename(file, other), 0);
    assert_int_equal(symlink("/etc/passwd", file), 0);
    const struct source_options options = { .context = 1 };
    struct source *s = NULL;
    assert_int_equal(source_open(&config_engine(c)->data, &options, &s, &e), ST_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "symbolic link"));
    config_close(c);
    assert_int_equal(rename(other, file), 0);
}

static void initial_weights_are_checked_only_on_request(void **state) {
    (void)state;
    char root[128];
    snprintf(root, sizeof root, "%s/inside", folder);
    const char *paths[] = { root };
    struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    struct err e = { "" };
    static const char *const outside[] = { "@", "@/gone" };
    for (size_t i = 0; i < 2; i++) {
        char text[512];
        snprintf(text, sizeof text, "name: a\n" GPT TEXT TRAIN ", init_from: \"%s\"}", outside[i]);
        struct config *c = must_open(text);
        assert_int_equal(config_init_from(c, &roots, &e), ST_PERMISSION_DENIED);
        assert_non_null(strstr(e.msg, "train.init_from: "));
        assert_null(config_engine(c)->train.init_from);
        config_close(c);
    }
}

static void a_file_is_no_folder_and_a_folder_no_file(void **state) {
    (void)state;
    struct err e = { "" };
    assert_null(open_config("name: a\nmodel: {resnet: {}}\ndata: {images: {train: \"@/file\"}}\n" TRAIN "}", NULL, &e));
    assert_non_null(strstr(e.msg, "data.images.train: "));
    assert_non_null(strstr(e.msg, "is not a folder"));
    assert_null(open_config("name: a\n" GPT "data: {text: {files: [\"@/inside\"]}}\n" TRAIN "}", NULL, &e));
    assert_non_null(strstr(e.msg, "is not a regular file"));
}

/* Sets the field of the optimizer to an end of its range; the engine must accept it too. */
static void assert_end_is_accepted(const char *kind, const char *field, double end) {
    char text[256], path[96], value[32];
    struct err e = { "" };
    struct config *c = NULL;
    snprintf(text, sizeof text, "name: a\n" GPT TEXT TRAIN ", optimizer: %s}", kind);
    snprintf(path, sizeof path, "train.optimizer.%s.%s", kind, field);
    snprintf(value, sizeof value, "%.17g", end);
    Trainyard__V1__JobSpec *given = spec_of(text), *spec = NULL;
    status_t st = codec_set_path(&given->base, path, value, NULL, &e);
    if (st == ST_OK)
        st = spec_resolve(given, &spec, NULL, &e);
    if (st == ST_OK)
        st = config_open(spec, NULL, NULL, &c, &e);
    if (st == ST_OK)
        st = optimizer_check(&config_engine(c)->train.optimizer, &e);
    if (st != ST_OK)
        fail_msg("%s=%s: %s", path, value, e.msg);
    config_close(c);
    spec_free(given);
    spec_free(spec);
}

static void the_engine_accepts_both_ends_of_every_range_of_an_optimizer(void **state) {
    (void)state;
    const ProtobufCMessageDescriptor *kinds = &trainyard__v1__optimizer_spec__descriptor;
    int ends = 0;
    for (unsigned k = 0; k < kinds->n_fields; k++) {
        const ProtobufCMessageDescriptor *kind = kinds->fields[k].descriptor;
        for (unsigned i = 0; i < kind->n_fields; i++) {
            const Trainyard__V1__SpecField *rule = spec_field(kind, i);
            if (rule->_min_case)
                assert_end_is_accepted(kinds->fields[k].name, kind->fields[i].name, rule->min);
            if (rule->_max_case)
                assert_end_is_accepted(kinds->fields[k].name, kind->fields[i].name, rule->max);
            ends += rule->_min_case + rule->_max_case > 0;
        }
    }
    assert_in_range(ends, 20, 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_engine_accepts_both_ends_of_every_range_of_an_optimizer),
        cmocka_unit_test(every_family_arrives_with_its_numbers),
        cmocka_unit_test(every_part_of_training_and_layout_arrives),
        cmocka_unit_test(every_word_of_the_engine_arrives_from_a_spec),
        cmocka_unit_test(every_kind_of_the_spec_is_one_of_the_engine),
        cmocka_unit_test(data_is_read_below_the_roots_only_and_by_no_link),
        cmocka_unit_test(no_root_admits_no_file),
        cmocka_unit_test(a_file_that_becomes_a_link_is_not_read),
        cmocka_unit_test(initial_weights_are_checked_only_on_request),
        cmocka_unit_test(a_file_is_no_folder_and_a_folder_no_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
