/* Configurations of models: what the data resolves, which configurations are refused with which message, and what is
 * recorded. The initial values of models. */
#include "engine/model/model.h"
#include "engine/run/initial.h"

#include <math.h>
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

/* A family that was written without thought of mixup. */
static status_t build_without_partners(const void *shape, const struct model_data *data, struct graph *g,
                                       struct err *e) {
    struct model_data unmixed = *data;
    unmixed.mixup = false;
    return model_mlp.build(shape, &unmixed, g, e);
}

static void mixed_images_are_refused_for_a_family_that_reads_one_label(void **state) {
    (void)state;
    struct model_data mixed = PHOTOS;
    mixed.mixup = true;
    struct model_kind kind = model_mlp;
    struct model_config c = { .kind = &kind };
    struct graph *g = NULL;
    struct err e = { "" };
    assert_int_equal(model_resolve(&c, &mixed, &e), ST_OK);
    assert_int_equal(model_build(&c, &mixed, 2, DTYPE_F32, &g, &e), ST_OK);
    g = graph_free(g);
    kind.build = build_without_partners;
    refused(c, &mixed, "`augment.mixup`");
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

static const struct parameter *parameter_named(const struct graph *g, const char *name) {
    for (int i = 0; i < g->n_parameters; i++)
        if (strcmp(g->parameters[i].name, name) == 0)
            return &g->parameters[i];
    fail_msg("there is no parameter %s", name);
    return NULL;
}

/* The deviation that timm's init_weights_vit_timm gives each parameter, and whether timm's optimizers decay it. */
static void a_vit_begins_as_one_of_timm(void **state) {
    (void)state;
    static const struct {
        const char *name;
        enum init init;
        double std;
        bool decay;
    } expected[] = {
        { "class_token", INIT_NORMAL, 1e-6, false },
        { "encoder.pos_embedding", INIT_NORMAL, 0.02, false },
        { "conv_proj.weight", INIT_UNIFORM, 0.041666667, true }, /* 1 / sqrt(3 * 3 * 8 * 8) */
        { "conv_proj.bias", INIT_UNIFORM, 0.041666667, false },
        { "encoder.layers.encoder_layer_0.ln_1.weight", INIT_ONE, 0, false },
        { "encoder.layers.encoder_layer_0.ln_1.bias", INIT_ZERO, 0, false },
        { "encoder.layers.encoder_layer_0.self_attention.in_proj_weight", INIT_NORMAL, 0.02, true },
        { "encoder.layers.encoder_layer_0.self_attention.in_proj_bias", INIT_ZERO, 0, false },
        { "encoder.layers.encoder_layer_0.self_attention.out_proj.weight", INIT_NORMAL, 0.02, true },
        { "encoder.layers.encoder_layer_0.mlp.0.weight", INIT_NORMAL, 0.02, true },
        { "encoder.layers.encoder_layer_0.mlp.3.weight", INIT_NORMAL, 0.02, true },
        { "encoder.layers.encoder_layer_0.mlp.3.bias", INIT_ZERO, 0, false },
        { "heads.head.weight", INIT_NORMAL, 0.02, true },
        { "heads.head.bias", INIT_ZERO, 0, false },
    };
    struct model_config c = { .kind = &model_vit,
                              .vit = { .layers = 1, .heads = 2, .width = 8, .patch = 8, .hidden = 32 } };
    struct graph *g = NULL;
    struct err e;
    assert_int_equal(model_resolve(&c, &PHOTOS, &e), ST_OK);
    assert_int_equal(model_build(&c, &PHOTOS, 2, DTYPE_F32, &g, &e), ST_OK);
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        const struct parameter *p = parameter_named(g, expected[i].name);
        if (p->init != expected[i].init || p->decay != expected[i].decay ||
            !(fabs(p->init_std - expected[i].std) <= 1e-7))
            fail_msg("%s: init %d, deviation %g, decay %d", p->name, (int)p->init, p->init_std, p->decay);
    }
    graph_free(g);
}

/* As torch.nn.Linear begins: between -1 / sqrt(inputs) and 1 / sqrt(inputs). */
static void the_head_of_a_resnet_begins_as_torchvisions(void **state) {
    (void)state;
    struct model_config c = { .kind = &model_resnet, .resnet = { .layers = 18, .width = 16 } };
    struct graph *g = NULL;
    struct err e;
    assert_int_equal(model_resolve(&c, &PHOTOS, &e), ST_OK);
    assert_int_equal(model_build(&c, &PHOTOS, 2, DTYPE_F32, &g, &e), ST_OK);
    for (int bias = 0; bias < 2; bias++) {
        const struct parameter *p = parameter_named(g, bias ? "fc.bias" : "fc.weight");
        assert_int_equal(p->init, INIT_UNIFORM);
        assert_true(fabs(p->init_std * sqrt(3) - 1 / sqrt(128)) < 1e-9);
    }
    graph_free(g);
}

/* Mean, deviation and bounds; and a number does not depend on where a range begins. */
static void uniform_numbers_fill_their_range(void **state) {
    (void)state;
    enum { N = 40000 };
    static float all[N], part[100];
    const struct parameter p = { .init = INIT_UNIFORM, .init_std = 0.5, .shape = { 1, { N } } };
    double sum = 0, squares = 0, low = 0, high = 0;
    initial_parameter(&p, 3, 7, 0, N, all);
    initial_parameter(&p, 3, 7, 1024, 100, part);
    assert_memory_equal(part, all + 1024, sizeof part);
    for (int i = 0; i < N; i++) {
        sum += (double)all[i];
        squares += (double)all[i] * (double)all[i];
        low = fmin(low, (double)all[i]);
        high = fmax(high, (double)all[i]);
    }
    const double bound = 0.5 * sqrt(3);
    assert_true(fabs(sum / N) < 0.01 && fabs(sqrt(squares / N) - 0.5) < 0.01);
    assert_true(high < bound && high > 0.999 * bound && low > -bound && low < -0.999 * bound);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_vit_begins_as_one_of_timm),
        cmocka_unit_test(the_head_of_a_resnet_begins_as_torchvisions),
        cmocka_unit_test(uniform_numbers_fill_their_range),
        cmocka_unit_test(the_data_decides_what_the_spec_leaves_open),
        cmocka_unit_test(what_cannot_be_is_refused_by_its_field),
        cmocka_unit_test(mixed_images_are_refused_for_a_family_that_reads_one_label),
        cmocka_unit_test(a_record_builds_the_same_configuration_again),
        cmocka_unit_test(an_unreadable_model_in_a_layout_gives_an_error_that_names_the_problem),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
