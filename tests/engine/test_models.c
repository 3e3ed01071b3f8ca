/* Configurations of models: what is resolved from the data, what is refused and in which words, what is recorded. */
#include "executor/engine/model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct model_data TEXT = { .vocabulary = 65 };
static const struct model_data PHOTOS = { .classes = 10, .channels = 3, .height = 64, .width = 64 };
static const struct model_data SCANS = { .channels = 1, .height = 32, .width = 32 };

static void what_is_left_out_comes_from_the_data_or_is_a_default(void **state) {
    (void)state;
    struct err e;
    struct model_config llama = { .family = MODEL_LLAMA, .llama = { .layers = 2, .heads = 4, .width = 96 } };
    assert_int_equal(model_resolve(&llama, &TEXT, &e), ST_OK);
    assert_int_equal(llama.llama.vocabulary, 65);
    assert_int_equal(llama.llama.kv_heads, 4);
    assert_int_equal(llama.llama.hidden, 256); /* 8/3 of 96 */
    struct model_config resnet = { .family = MODEL_RESNET };
    assert_int_equal(model_resolve(&resnet, &PHOTOS, &e), ST_OK);
    assert_int_equal(resnet.resnet.layers, 18);
    assert_int_equal(resnet.resnet.classes, 10);
    assert_int_equal(resnet.resnet.stem, RESNET_STEM_SMALL);
    struct model_config unrolled = { .family = MODEL_UNROLLED, .unrolled.iterations = 2 };
    assert_int_equal(model_resolve(&unrolled, &SCANS, &e), ST_OK);
    assert_int_equal(unrolled.unrolled.channels, 32);
    assert_int_equal(unrolled.unrolled.layers, 3);
}

static void refused(struct model_config config, const struct model_data *data, const char *field) {
    struct err e;
    struct graph *g = NULL;
    status_t st = model_resolve(&config, data, &e);
    if (st == ST_OK)
        st = model_build(&config, data, 2, DTYPE_F32, &g, &e);
    assert_int_equal(st, ST_INVALID_ARGUMENT);
    if (!strstr(e.msg, field))
        fail_msg("\"%s\" does not name %s", e.msg, field);
}

static void what_cannot_be_is_refused_by_its_field(void **state) {
    (void)state;
    const struct llama_shape llama = { .layers = 1, .heads = 4, .width = 64, .context = 8 };
    struct model_config c = { .family = MODEL_LLAMA, .llama = llama };
    c.llama.kv_heads = 3;
    refused(c, &TEXT, "model.llama.kv_heads");
    c.llama = llama;
    c.llama.vocabulary = 12;
    refused(c, &TEXT, "model.llama.vocabulary");
    c.llama = llama;
    refused(c, &PHOTOS, "model.llama");
    c.llama.width = 36; /* heads of 9 */
    refused(c, &TEXT, "model.llama.heads");
    refused((struct model_config){ .family = MODEL_RESNET, .resnet.layers = 20 }, &PHOTOS, "model.resnet.layers");
    refused((struct model_config){ .family = MODEL_RESNET, .resnet.classes = 4 }, &PHOTOS, "model.resnet.classes");
    refused((struct model_config){ .family = MODEL_RESNET }, &TEXT, "model.resnet");
    refused((struct model_config){ .family = MODEL_VIT, .vit = { .layers = 1, .heads = 2, .width = 8, .patch = 7 } },
            &PHOTOS, "model.vit.patch");
    refused((struct model_config){ .family = MODEL_MLP, .mlp = { .hidden = { 0 }, .n_hidden = 1 } }, &PHOTOS,
            "model.mlp.hidden");
    refused((struct model_config){ .family = MODEL_UNROLLED, .unrolled = { .iterations = 1, .layers = 1 } }, &SCANS,
            "model.unrolled.layers");
    refused((struct model_config){ .family = MODEL_UNROLLED, .unrolled.iterations = 1 }, &PHOTOS, "model.unrolled");
}

static void a_record_builds_the_same_configuration_again(void **state) {
    (void)state;
    static const struct model_config all[] = {
        { .family = MODEL_GPT, .gpt = { 2, 3, 48, 16, 65, 0.25 } },
        { .family = MODEL_LLAMA,
          .llama = { .layers = 2,
                     .heads = 4,
                     .width = 64,
                     .context = 8,
                     .kv_heads = 2,
                     .hidden = 96,
                     .vocabulary = 65,
                     .rope_theta = 5e5,
                     .norm_eps = 1e-6,
                     .tied_embeddings = true } },
        { .family = MODEL_RESNET, .resnet = { 50, 10, RESNET_STEM_IMAGENET, 32 } },
        { .family = MODEL_VIT, .vit = { 2, 2, 32, 8, 64, 10, 0.125 } },
        { .family = MODEL_MLP, .mlp = { .hidden = { 5, 7 }, .n_hidden = 2, .classes = 3, .dropout = 0.5 } },
        { .family = MODEL_UNROLLED, .unrolled = { 4, 16, 3, true } },
    };
    struct err e;
    for (int i = 0; i < MODEL_FAMILIES; i++) {
        struct model_config back;
        char *text = model_to_json(&all[i]);
        assert_int_equal(model_from_json(text, &back, &e), ST_OK);
        char *again = model_to_json(&back);
        assert_int_equal(back.family, all[i].family);
        assert_string_equal(text, again);
        free(text), free(again);
    }
    struct model_config back;
    assert_int_equal(model_from_json("{\"gpt\":{\"layers\":1}}", &back, &e), ST_DATA_LOSS);
    assert_int_equal(model_from_json("{}", &back, &e), ST_DATA_LOSS);
    assert_int_equal(model_from_json("", &back, &e), ST_DATA_LOSS);
}

static void a_layout_without_a_model_that_can_be_read_says_what_is_wrong_with_it(void **state) {
    (void)state;
    struct model_config model;
    struct err e = { "" };
    assert_int_equal(
        model_from_layout("{\"model\":{\"mlp\":{\"hidden\":[5],\"classes\":3,\"dropout\":0.0}}}", &model, &e), ST_OK);
    assert_int_equal(model.mlp.classes, 3);
    assert_int_equal(model_from_layout("{\"data\":2}", &model, &e), ST_DATA_LOSS);
    assert_string_equal(e.msg, "the checkpoint's manifest does not describe its model: it has none");
    assert_int_equal(model_from_layout("{\"model\":{\"gpt\":{}}}", &model, &e), ST_DATA_LOSS);
    assert_non_null(strstr(e.msg, "not one that this build can read"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_left_out_comes_from_the_data_or_is_a_default),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_field),
        cmocka_unit_test(a_record_builds_the_same_configuration_again),
        cmocka_unit_test(a_layout_without_a_model_that_can_be_read_says_what_is_wrong_with_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
