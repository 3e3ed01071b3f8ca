/* api/spec: how a step is cut into micro-batches and lanes if the spec leaves them out. The cut follows from the model
 * and the batch and never from the layout; a layout that the cut does not divide is refused with what to write. */
#include "api/codec/text.h"
#include "api/spec/problems.h"
#include "api/spec/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define GPT(context)   "gpt: {layers: 4, heads: 1, width: 8, context: " context "}"
#define LLAMA(context) "llama: {layers: 1, heads: 1, width: 8, context: " context "}"
#define TEXT           "text: {files: ['file:///x']}"
#define IMAGES         "images: {train: 'file:///x'}"
#define VIT            "vit: {layers: 1, heads: 1, width: 8, patch: 4}"

/* train: fields beside steps. NULL, and the first problem in ret_why: refused. */
static Trainyard__V1__JobSpec *resolve(const char *model, const char *data, const char *train, const char *parallel,
                                       char ret_why[512]) {
    char text[600];
    struct err e = { "" };
    ProtobufCMessage *given = NULL;
    Trainyard__V1__JobSpec *spec = NULL;
    struct spec_problems problems = { 0 };
    snprintf(text, sizeof text, "name: a\nmodel: {%s}\ndata: {%s}\ntrain: {steps: 1, %s}\nparallel: {%s}\n", model,
             data, train, parallel);
    if (codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &given, &e) != ST_OK)
        fail_msg("%s: %s", text, e.msg);
    if (spec_resolve((Trainyard__V1__JobSpec *)given, &spec, &problems, &e) != ST_OK)
        snprintf(ret_why, 512, "%s", problems.n ? problems.lines[0] : e.msg);
    spec_problems_done(&problems);
    spec_free((Trainyard__V1__JobSpec *)given);
    return spec;
}

static void assert_cut(const char *model, const char *data, const char *train, const char *parallel, int micro_batch,
                       int lanes) {
    char why[512] = "";
    Trainyard__V1__JobSpec *spec = resolve(model, data, train, parallel, why);
    if (!spec)
        fail_msg("%s, %s, %s: %s", model, train, parallel, why);
    if (spec->train->micro_batch != micro_batch || spec->train->lanes != lanes)
        fail_msg("%s, %s, %s: micro_batch %d, lanes %d", model, train, parallel, spec->train->micro_batch,
                 spec->train->lanes);
    spec_free(spec);
}

static void a_default_micro_batch_keeps_the_rows_that_make_products_fast(void **state) {
    (void)state;
    static const struct {
        const char *model, *data, *batch;
        int micro_batch, lanes;
    } table[] = {
        { GPT("2048"), TEXT, "global_batch: 1", 1, 1 },
        { GPT("2048"), TEXT, "global_batch: 6", 3, 2 },
        { GPT("2048"), TEXT, "global_batch: 7", 7, 1 },
        { GPT("2048"), TEXT, "global_batch: 8", 1, 8 },
        { GPT("2048"), TEXT, "global_batch: 12", 3, 4 },
        { GPT("1024"), TEXT, "global_batch: 8", 2, 4 },
        { GPT("1024"), TEXT, "global_batch: 512", 64, 8 },
        { GPT("256"), TEXT, "global_batch: 12", 12, 1 },
        { GPT("64"), TEXT, "global_batch: 64", 32, 2 },
        { LLAMA("2000"), TEXT, "global_batch: 16", 2, 8 },
        { LLAMA("256"), TEXT, "global_batch: 64", 8, 8 },
        { "resnet: {}", IMAGES, "global_batch: 16", 16, 1 },
        { "resnet: {}", IMAGES, "global_batch: 64", 16, 4 },
        { VIT, IMAGES, "global_batch: 64", 8, 8 },
        { "mlp: {}", IMAGES, "global_batch: 512", 512, 1 },
        { "mlp: {}", IMAGES, "global_batch: 8192", 1024, 8 },
        { "unrolled: {iterations: 4}", "reconstruction: {train: 'file:///x'}", "global_batch: 8", 1, 8 },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int data = 1; data <= table[i].lanes; data *= 2) {
            char parallel[32];
            snprintf(parallel, sizeof parallel, "data: %d", data);
            assert_cut(table[i].model, table[i].data, table[i].batch, parallel, table[i].micro_batch, table[i].lanes);
        }
}

/* One field keeps a small job ready for more ranks. */
static void given_lanes_cut_the_batch_and_a_given_micro_batch_stays(void **state) {
    (void)state;
    static const char *const layouts[] = { "", "data: 2", "data: 8", "data: 8, zero: 3", "pipeline: 2" };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        assert_cut(GPT("64"), TEXT, "global_batch: 16, lanes: 8", layouts[i], 2, 8);
    assert_cut(GPT("64"), TEXT, "global_batch: 16, lanes: 16", "", 1, 16);
    assert_cut(GPT("2048"), TEXT, "global_batch: 16, lanes: 2", "", 2, 2);
    assert_cut(GPT("64"), TEXT, "global_batch: 16, micro_batch: 1", "", 1, 8);
    assert_cut(GPT("64"), TEXT, "global_batch: 24, micro_batch: 2, lanes: 2", "", 2, 2);
}

static void a_layout_that_the_cut_does_not_divide_is_refused_with_what_to_write(void **state) {
    (void)state;
    static const struct {
        const char *batch, *parallel, *why;
    } table[] = {
        { "global_batch: 16", "data: 4",
          "parallel.data: 4 does not divide train.lanes 1, since a step has 1 micro-batch; set train.micro_batch to 4 "
          "and train.lanes to 4" },
        { "global_batch: 64", "data: 8",
          "parallel.data: 8 does not divide train.lanes 2, since a step has 2 micro-batches; set train.micro_batch to "
          "8 and train.lanes to 8" },
        { "global_batch: 16", "pipeline: 2, pipeline_schedule: interleaved",
          "parallel.pipeline_schedule: interleaved needs a multiple of 2 micro-batches, and a data rank has 1; set "
          "train.micro_batch to 8" },
        { "global_batch: 24, micro_batch: 8", "pipeline: 2, pipeline_schedule: interleaved",
          "parallel.pipeline_schedule: interleaved needs a multiple of 2 micro-batches, and a data rank has 3; set "
          "train.micro_batch to 6" },
        { "global_batch: 9", "pipeline: 2, pipeline_schedule: interleaved",
          "parallel.pipeline_schedule: interleaved needs a multiple of 2 micro-batches, and a data rank has 9 samples "
          "a step; give global_batch a multiple of 2" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char why[512] = "";
        assert_null(resolve(GPT("64"), TEXT, table[i].batch, table[i].parallel, why));
        assert_string_equal(why, table[i].why);
    }
    /* What the sentences say works. */
    assert_cut(GPT("64"), TEXT, "global_batch: 16, micro_batch: 4, lanes: 4", "data: 4", 4, 4);
    assert_cut(GPT("64"), TEXT, "global_batch: 16, micro_batch: 8", "pipeline: 2, pipeline_schedule: interleaved", 8,
               2);
    assert_cut(GPT("64"), TEXT, "global_batch: 24, micro_batch: 6", "pipeline: 2, pipeline_schedule: interleaved", 6,
               4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_default_micro_batch_keeps_the_rows_that_make_products_fast),
        cmocka_unit_test(given_lanes_cut_the_batch_and_a_given_micro_batch_stays),
        cmocka_unit_test(a_layout_that_the_cut_does_not_divide_is_refused_with_what_to_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
