/* Configurations of models: what the data resolves, which configurations are refused with which message, and what is
 * recorded. */
#include "engine/model/model.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct model_data TEXT = { .vocabulary = 65 };
static const struct model_data PHOTOS = { .classes = 10, .channels = 3, .height = 64, .width = 64 };
static const struct model_data SCANS = { .channels = 1, .height = 32, .width = 32 };

static void the_data_decides_what_the_spec_leaves_open(void **state) {
    (void)state;
    struct err e;
    struct model_config gpt = { .kind = &model_gpt, .gpt = { .layers = 2, .heads = 4, .width = 96, .context = 8 } };
    assert_int_equal(model_resolve(&gpt, &TEXT, &e), ST_OK);
    assert_int_equal(gpt.gpt.vocabulary, 65);
    struct model_config resnet = { .kind = &model_resnet, .resnet = { .layers = 18, .width = 64 } };
    assert_int_equal(model_resolve(&resnet, &PHOTOS, &e), ST_OK);
    assert_int_equal(resnet.resnet.classes, 10);
    assert_int_equal(resnet.resnet.stem, RESNET_STEM_SMALL);
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
    const struct llama_shape llama = { .layers = 1,
                                       .heads = 4,
                                       .width = 64,
                                       .context = 8,
                                       .kv_heads = 4,
                                       .hidden = 96,
                                       .rope_theta = 1e4,
                                       .norm_eps = 1e-5 };
    struct model_config c = { .kind = &model_llama, .llama = llama };
    c.llama.kv_heads = 3;
    refused(c, &TEXT, "model.llama.kv_heads");
    c.llama = llama;
    c.llama.vocabulary = 12;
    refused(c, &TEXT, "model.llama.vocabulary");
    c.llama = llama;
    refused(c, &PHOTOS, "model.llama");
    c.llama.width = 36; /* heads of 9 */
    refused(c, &TEXT, "model.llama.heads");
    refused((struct model_config){ .kind = &model_resnet, .resnet = { .layers = 20, .width = 64 } }, &PHOTOS,
            "model.resnet.layers");
    refused((struct model_config){ .kind = &model_resnet, .resnet = { .layers = 18, .width = 64, .classes = 4 } },
            &PHOTOS, "model.resnet.classes");
    refused((struct model_config){ .kind = &model_resnet }, &TEXT, "model.resnet");
    refused((struct model_config){ .kind = &model_vit,
                                   .vit = { .layers = 1, .heads = 2, .width = 8, .patch = 7, .hidden = 32 } },
            &PHOTOS, "model.vit.patch");
    refused((struct model_config){ .kind = &model_mlp, .mlp = { .hidden = { 0 }, .n_hidden = 1 } }, &PHOTOS,
            "model.mlp.hidden");
    refused(
        (struct model_config){ .kind = &model_unrolled, .unrolled = { .iterations = 1, .channels = 4, .layers = 1 } },
        &SCANS, "model.unrolled.layers");
    refused((struct model_config){ .kind = &model_unrolled, .unrolled.iterations = 1 }, &PHOTOS, "model.unrolled");
}

static void a_record_builds_the_same_configuration_again(void **state) {
    (void)state;
    static const struct model_config all[] = {
        { .kind = &model_gpt, .gpt = { 2, 3, 48, 16, 65, 0.25 } },
        { .kind = &model_llama,
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
        { .kind = &model_resnet, .resnet = { 50, 10, RESNET_STEM_IMAGENET, 32 } },
        { .kind = &model_vit, .vit = { 2, 2, 32, 8, 64, 10, 0.125 } },
        { .kind = &model_mlp, .mlp = { .hidden = { 5, 7 }, .n_hidden = 2, .classes = 3, .dropout = 0.5 } },
        { .kind = &model_unrolled, .unrolled = { 4, 16, 3, true } },
    };
    struct err e;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        struct model_config back;
        char *text = model_to_json(&all[i]);
        assert_int_equal(model_from_json(text, &back, &e), ST_OK);
        char *again = model_to_json(&back);
        assert_ptr_equal(back.kind, all[i].kind);
        assert_string_equal(text, again);
        free(text), free(again);
    }
    struct model_config back;
    assert_int_equal(model_from_json("{\"gpt\":{\"layers\":1}}", &back, &e), ST_DATA_LOSS);
    assert_int_equal(model_from_json("{}", &back, &e), ST_DATA_LOSS);
    assert_int_equal(model_from_json("", &back, &e), ST_DATA_LOSS);
}

static void an_unreadable_model_in_a_layout_gives_an_error_that_names_the_problem(void **state) {
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
        cmocka_unit_test(the_data_decides_what_the_spec_leaves_open),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_field),
        cmocka_unit_test(a_record_builds_the_same_configuration_again),
        cmocka_unit_test(an_unreadable_model_in_a_layout_gives_an_error_that_names_the_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
