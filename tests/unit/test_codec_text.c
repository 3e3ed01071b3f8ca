/* api/codec/text.h: which text is read, which is refused with which message, and that printed text reads back the same.
 */
#include "api/codec/message.h"
#include "api/codec/text.h"
#include "base/clock.h"
#include "base/limits.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <trainyard/v1/dispatch.pb-c.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/metric.pb-c.h>

#define SPEC &trainyard__v1__job_spec__descriptor

static ProtobufCMessage *parse(const ProtobufCMessageDescriptor *desc, const char *text) {
    ProtobufCMessage *msg = NULL;
    struct err e = { "" };
    if (codec_parse(desc, text, strlen(text), NULL, &msg, &e) != ST_OK)
        fail_msg("'%s' was refused: %s", text, e.msg);
    return msg;
}

static void drop(void *msg) { protobuf_c_message_free_unpacked(msg, NULL); }

static void assert_refused(const ProtobufCMessageDescriptor *desc, const char *text, const char *sentence) {
    ProtobufCMessage *msg = NULL;
    struct err e = { "" };
    status_t st = codec_parse(desc, text, strlen(text), NULL, &msg, &e);
    if (st == ST_OK) {
        drop(msg);
        fail_msg("accepted: %s", text);
    }
    assert_string_equal(e.msg, sentence);
    assert_null(msg);
}

static char *json_of(const void *msg, int indent) {
    struct bytes text;
    bytes_init(&text, 1 << 20);
    assert_int_equal(codec_print_json(msg, indent, &text, NULL), ST_OK);
    return bytes_take(&text);
}

static char *yaml_of(const void *msg) {
    struct bytes text;
    bytes_init(&text, 1 << 20);
    assert_int_equal(codec_print_yaml(msg, &text, NULL), ST_OK);
    return bytes_take(&text);
}

static const char example[] = "name: shakespeare\n"
                              "model:\n"
                              "  gpt: {layers: 4, heads: 4, width: 128, context: 64, dropout: 0.0}   # or more\n"
                              "data:\n"
                              "  text: {files: [\"file:///data/shakespeare.txt\"], validation_fraction: 0.1}\n"
                              "train:\n"
                              "  steps: 2000\n"
                              "  global_batch: 12\n"
                              "  optimizer: {adamw: {lr: 1.0e-3, beta2: 0.99}}\n"
                              "  learning_rate_schedule:\n"
                              "    constant:\n"
                              "checkpoint: {every: 0}\n"
                              "labels: {team: on, cost: 007}\n";

static void yaml_and_json_give_the_same_message(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *a = (void *)parse(SPEC, example);
    char *json = json_of(a, 0);
    Trainyard__V1__JobSpec *b = (void *)parse(SPEC, json);
    assert_string_equal(a->name, "shakespeare");
    assert_int_equal(a->model->gpt->width, 128);
    assert_int_equal(a->train->steps, 2000);
    assert_true(a->train->optimizer->adamw->lr == 1e-3);
    assert_int_equal(a->train->optimizer->adamw->_beta1_case, 0);
    assert_int_equal(a->train->learning_rate_schedule->kind_case, TRAINYARD__V1__SCHEDULE_SPEC__KIND_CONSTANT);
    assert_int_equal(a->checkpoint->_every_case, TRAINYARD__V1__CHECKPOINT_SPEC___EVERY_EVERY);
    assert_int_equal(a->checkpoint->every, 0);
    assert_string_equal(a->labels[0]->value, "on");
    assert_string_equal(a->labels[1]->value, "007");
    char *again = json_of(b, 0);
    assert_string_equal(json, again);
    free(again);
    free(json);
    drop(a);
    drop(b);
}

static void yaml_output_reads_back_the_same(void **state) {
    (void)state;
    ProtobufCMessage *a = parse(SPEC,
                                "{name: \"a: b\\n\\u0001 'q' \\\\ \\u00e9\", labels: {\"x y\": \"true\", e: \"\"}, "
                                "data: {text: {files: [a, \"- b\", \"\"]}}, queue: '', priority: -3, "
                                "model: {gpt: {dropout: 0.30000000000000004}}}");
    char *yaml = yaml_of(a);
    ProtobufCMessage *b = parse(SPEC, yaml);
    char *ja = json_of(a, 2), *jb = json_of(b, 2);
    assert_string_equal(ja, jb);
    free(ja);
    free(jb);
    free(yaml);
    drop(a);
    drop(b);
}

static void yaml_output_nests_lists_of_mappings(void **state) {
    (void)state;
    ProtobufCMessage *a = parse(&trainyard__v1__list_jobs_response__descriptor,
                                "{jobs: [{name: jobs/1, attempts: [{number: 1}, {number: 2}]}, {name: jobs/2}]}");
    char *yaml = yaml_of(a);
    ProtobufCMessage *b = parse(&trainyard__v1__list_jobs_response__descriptor, yaml);
    char *ja = json_of(a, 0), *jb = json_of(b, 0);
    assert_string_equal(ja, jb);
    assert_non_null(strstr(yaml, "  - name: jobs/1\n    display_name: \"\"\n"));
    free(ja);
    free(jb);
    free(yaml);
    drop(a);
    drop(b);
}

static void json_follows_proto3_with_defaults_written(void **state) {
    (void)state;
    ProtobufCMessage *a = parse(&trainyard__v1__event__descriptor,
                                "{number: 9007199254740993, state: RUNNING, time: 2026-11-21T10:11:04.5+02:00}");
    char *json = json_of(a, 0);
    assert_string_equal(json, "{\"number\":\"9007199254740993\",\"time\":\"2026-11-21T08:11:04.500Z\",\"attempt\":0,"
                              "\"kind\":\"\",\"state\":\"RUNNING\",\"message\":\"\"}");
    free(json);
    drop(a);
}

static void an_optional_that_is_not_set_is_not_written(void **state) {
    (void)state;
    ProtobufCMessage *a = parse(&trainyard__v1__progress__descriptor, "{step: \"5\", loss: 0}");
    char *json = json_of(a, 0);
    assert_string_equal(json, "{\"step\":\"5\",\"steps\":\"0\",\"loss\":0}");
    free(json);
    drop(a);
}

static void doubles_have_the_fewest_digits_that_read_back(void **state) {
    (void)state;
    static const struct {
        double value;
        const char *text;
    } table[] = { { 0.1, "0.1" },
                  { 1e-8, "1e-08" },
                  { 1.0 / 3, "0.3333333333333333" },
                  { 1e300, "1e+300" },
                  { 2000, "2000" },
                  { 1e20, "1e+20" },
                  { 5e-324, "5e-324" },
                  { 1.2e-310, "1.2e-310" },
                  { 0.30000000000000004, "0.30000000000000004" },
                  { 123456789012, "123456789012" },
                  { NAN, "NaN" },
                  { -INFINITY, "-Infinity" },
                  { 0, "0" } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[32];
        codec_double_text(table[i].value, text);
        assert_string_equal(text, table[i].text);
    }
}

/* Any bits: the text is the first that reads back among those of 1, 2, ... 17 digits. */
static void random_doubles_have_the_fewest_digits(void **state) {
    (void)state;
    const char *given = getenv("TRAINYARD_SEED");
    const unsigned seed = given ? (unsigned)atoi(given) : (unsigned)clock_wall_us();
    print_message("# TRAINYARD_SEED=%u\n", seed);
    srand(seed);
    for (int i = 0; i < 20000; i++) {
        uint64_t bits = 0;
        for (int k = 0; k < 5; k++)
            bits = bits << 15 ^ (uint64_t)rand();
        double value;
        memcpy(&value, &bits, sizeof value);
        if (i % 4 == 0)
            value = (double)(rand() % 2000000) / pow(10, rand() % 9); /* few digits */
        if (!isfinite(value) || value == floor(value))
            continue;
        char text[32], wanted[32];
        int digits = 1;
        for (; snprintf(wanted, sizeof wanted, "%.*g", digits, value), strtod(wanted, NULL) != value; digits++)
            assert_true(digits < 17);
        codec_double_text(value, text);
        assert_string_equal(text, wanted);
    }
}

static void special_doubles_go_through_json(void **state) {
    (void)state;
    ProtobufCMessage *a = parse(&trainyard__v1__metric_series__descriptor,
                                "{mean: [NaN, .inf, -.inf, \"Infinity\", 1.5]}");
    char *json = json_of(a, 0);
    assert_non_null(strstr(json, "\"mean\":[\"NaN\",\"Infinity\",\"-Infinity\",\"Infinity\",1.5]"));
    ProtobufCMessage *b = parse(&trainyard__v1__metric_series__descriptor, json);
    char *again = json_of(b, 0);
    assert_string_equal(json, again);
    free(again);
    free(json);
    drop(a);
    drop(b);
}

static void bytes_are_base64(void **state) {
    (void)state;
    Trainyard__V1__RankAddress *a = (void *)parse(&trainyard__v1__rank_address__descriptor, "{address: AAEC/w==}");
    assert_int_equal(a->address.len, 4);
    assert_memory_equal(a->address.data, "\x00\x01\x02\xff", 4);
    char *json = json_of(a, 0);
    assert_string_equal(json, "{\"address\":\"AAEC/w==\"}");
    free(json);
    drop(a);
}

static void surrogate_pairs_of_json_become_one_character(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *a = (void *)parse(SPEC, "{\"name\": \"\\ud83d\\ude00 \\\\ud83d\"}");
    assert_string_equal(a->name, "\xf0\x9f\x98\x80 \\ud83d");
    drop(a);
}

static void bad_utf8_of_a_peer_is_printed_as_replacement(void **state) {
    (void)state;
    Trainyard__V1__LogText text = TRAINYARD__V1__LOG_TEXT__INIT;
    text.text = (char *)"a\xff\xfe z\x01";
    char *json = json_of(&text, 0);
    assert_string_equal(json, "{\"stream\":\"\",\"text\":\"a\\ufffd\\ufffd z\\u0001\"}");
    free(json);
}

static void a_choice_may_be_the_name_of_a_member(void **state) {
    (void)state;
    static const char *const texts[][2] = {
        { "train: {optimizer: sgd, learning_rate_schedule: cosine}",
          "train: {optimizer: {sgd: {}}, learning_rate_schedule: {cosine: {}}}" },
        { "{\"model\": \"resnet\", \"train\": {\"optimizer\": \"muon\"}}",
          "model: {resnet: {}}\ntrain: {optimizer: {muon: {}}}" },
        { "train:\n  optimizer: 'lion'\n", "train: {optimizer: {lion: {}}}" },
        { "{model: , train: {optimizer: }}", "{model: {}, train: {optimizer: {}}}" }, /* YAML's flow style */
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ProtobufCMessage *a = parse(SPEC, texts[i][0]), *b = parse(SPEC, texts[i][1]);
        char *short_form = json_of(a, 0), *long_form = json_of(b, 0);
        assert_string_equal(short_form, long_form);
        free(short_form);
        free(long_form);
        drop(a);
        drop(b);
    }
    ProtobufCMessage *msg = parse(SPEC, "train: {optimizer: {adamw: {lr: 1}}}");
    assert_int_equal(codec_set_path(msg, "train.optimizer", "sgd", NULL, NULL), ST_OK);
    assert_non_null(((Trainyard__V1__JobSpec *)msg)->train->optimizer->sgd);
    assert_int_equal(((Trainyard__V1__JobSpec *)msg)->train->optimizer->kind_case,
                     TRAINYARD__V1__OPTIMIZER_SPEC__KIND_SGD);
    drop(msg);
}

/* `workers` belongs to whatever data is chosen. */
static void a_choice_may_have_settings_beside_its_member(void **state) {
    (void)state;
    ProtobufCMessage *msg = parse(SPEC, "data: {workers: 3, text: {files: [\"file:///a\"]}}");
    const Trainyard__V1__DataSpec *data = ((Trainyard__V1__JobSpec *)msg)->data;
    assert_true(message_is_choice(data->base.descriptor));
    assert_int_equal(data->workers, 3);
    assert_int_equal(data->source_case, TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT);
    drop(msg);
    assert_refused(
        SPEC, "data: workers",
        "data: expected a mapping or one of: text, tokens, images, idx, reconstruction, mixture; found 'workers'");
}

static const char *advice_of_a_test(const char *name) { return strcmp(name, "lr") == 0 ? "ask the optimizer" : NULL; }

static void advice_is_given_if_no_name_is_similar(void **state) {
    (void)state;
    const struct codec_options options = { .advice = advice_of_a_test };
    ProtobufCMessage *msg = NULL;
    struct err e = { "" };
    assert_int_equal(codec_parse(SPEC, "train: {lr: 1}", 14, &options, &msg, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "train.lr: unknown field; ask the optimizer");
    msg = parse(SPEC, "{}");
    assert_int_equal(codec_set_path(msg, "model.gpt.lr", "1", &options, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "model.gpt.lr: unknown field; ask the optimizer");
    assert_int_equal(codec_set_path(msg, "train.optimizer.sgd.lt", "1", &options, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "train.optimizer.sgd.lt: unknown field; did you mean lr?");
    drop(msg);
}

static void an_unknown_name_gets_a_hint(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } table[] = {
        { "model: {gpt: {widht: 4}}", "model.gpt.widht: unknown field; did you mean width?" },
        { "model: {rnn: {}}", "model.rnn: unknown field; known here: gpt, llama, resnet, vit, mlp, unrolled" },
        { "train: {zero: 1}", "train.zero: unknown field; did you mean parallel.zero?" },
        { "steps: 1", "steps: unknown field; did you mean train.steps?" },
        { "train: {augment: {}}",
          "train.augment: unknown field; did you mean data.images.augment or data.idx.augment?" },
        { "model: {gpt: {rope_theta: 1}}",
          "model.gpt.rope_theta: unknown field; did you mean model.llama.rope_theta?" },
        { "train: {gradients: 1}", "train.gradients: unknown field; did you mean train.inspect.gradients_every?" },
        { "train: {dream: 1}", "train.dream: unknown field; no field has a similar name" },
        { "trian: {}", "trian: unknown field; did you mean train?" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_refused(SPEC, table[i].text, table[i].sentence);
}

static void every_refusal_names_the_path_and_the_reason(void **state) {
    (void)state;
    static const struct {
        const char *text, *sentence;
    } table[] = {
        { "train: {micro_batch: automatic}", "train.micro_batch: expected an integer, found 'automatic'" },
        { "train: {lanes: auto}", "train.lanes: expected an integer, found 'auto'" },
        { "{\"name\": \"b\", \"model\": }", "model: its value is missing in line 1" },
        { "{\"train\": {\"seed\": 1,\n\"steps\": ,}}", "train.steps: its value is missing in line 2" },
        { "train: {optimizer: adam}",
          "train.optimizer: expected a mapping or one of: adamw, sgd, lion, adafactor, muon; found 'adam'" },
        { "train: {optimizer: \"sgd\\0x\"}",
          "train.optimizer: expected a mapping or one of: adamw, sgd, lion, adafactor, muon; found 'sgd?x'" },
        { "train: {eval: every}", "train.eval: expected a mapping, found 'every'" },
        { "train: {steps: many}", "train.steps: expected an integer, found 'many'" },
        { "train: {steps: 1.5}", "train.steps: expected an integer, found '1.5'" },
        { "train: {steps: [1]}", "train.steps: expected an integer, found a list" },
        { "train: {steps: 010}", "train.steps: expected an integer, found '010'" },
        { "train: {steps: 99999999999999999999}",
          "train.steps: '99999999999999999999' is too large for a 64-bit integer" },
        { "train: {global_batch: 3000000000}", "train.global_batch: '3000000000' is too large for a 32-bit integer" },
        { "train: {clip_norm: fast}", "train.clip_norm: expected a number, found 'fast'" },
        { "train: {clip_norm: 0x10}", "train.clip_norm: expected a number, found '0x10'" },
        { "train: {clip_norm: 1e999}", "train.clip_norm: '1e999' is too large for a double" },
        { "train: 5", "train: expected a mapping, found '5'" },
        { "train: [a]", "train: expected a mapping, found a list" },
        { "name: {a: b}", "name: expected text, found a mapping" },
        { "name: \"a\\0b\"", "name: a text with a NUL character cannot be stored" },
        { "data: {text: {files: x.txt}}", "data.text.files: expected a list, found 'x.txt'" },
        { "data: {text: {files: [a, [b]]}}", "data.text.files[1]: expected text, found a list" },
        { "data: {text: {files: [a, null]}}", "data.text.files[1]: expected text, found nothing" },
        { "train: {seed: 1, steps: 2, seed: 3}", "train.seed: given twice" },
        { "labels: {a: 1, a: 2}", "labels.a: given twice" },
        { "labels: {a: {b: 1}}", "labels.a: expected text, found a mapping" },
        { "train: {learning_rate_schedule: {cosine: {}, linear: {}}}",
          "train.learning_rate_schedule: give exactly one of cosine, constant, linear, wsd" },
        { "[a]", "expected a mapping, found a list" },
        { "just words", "expected a mapping, found 'just words'" },
        { "? [a]\n: b", "expected a field's name, found a list" },
        { "name: &x a", "line 1: anchors (&name) are not accepted: write the value out" },
        { "name: a\nqueue: *x", "line 2: aliases (*name) are not accepted: write the value out" },
        { "name: !!str a", "line 1: tags (!name) are not accepted: the field decides the type" },
        { "name: a\n---\nname: b", "line 2: a second document begins; exactly one is read" },
        { "name: \xff", "the text is not UTF-8" },
        { "train:\n  steps: 1\n seed: 2", "line 3: did not find expected key (while parsing a block mapping)" },
        { "labels: "
          "{kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk"
          "kkkkkkkkkkkkkkkkkkkkkkkkkkkkk: v}",
          "labels.kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk: a key has at most 128 bytes" },
        { "{{{{{{{{{{{{{{{{{a", "expected a field's name, found a mapping" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        assert_refused(SPEC, table[i].text, table[i].sentence);
}

static void enums_are_read_by_name_and_number(void **state) {
    (void)state;
    Trainyard__V1__Event *a = (void *)parse(&trainyard__v1__event__descriptor, "state: 9");
    assert_int_equal(a->state, TRAINYARD__V1__JOB__STATE__SUCCEEDED);
    drop(a);
    assert_refused(&trainyard__v1__attempt__descriptor, "state: READY",
                   "state: 'READY' is not one of: STARTING, RUNNING, ENDING, ENDED");
    assert_refused(&trainyard__v1__event__descriptor, "time: 2026-02-30T00:00:00Z",
                   "time: expected a time such as 2026-11-21T10:11:04Z");
    assert_refused(&trainyard__v1__checkpoint_committed__descriptor, "step: no",
                   "step: expected an integer, found 'no'");
    assert_refused(&trainyard__v1__worker_alive__descriptor, "waiting_for_spool: yes",
                   "waiting_for_spool: expected true or false, found 'yes'");
}

static void too_long_and_too_deep_texts_are_refused(void **state) {
    (void)state;
    size_t n = LIMIT_SPEC_BYTES + 1;
    char *text = malloc(n);
    memset(text, ' ', n);
    ProtobufCMessage *msg = NULL;
    struct err e;
    assert_int_equal(codec_parse(SPEC, text, n, NULL, &msg, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "the text has 262145 bytes; at most 262144 are read");
    assert_int_equal(codec_parse(SPEC, text, n - 1, NULL, &msg, &e), ST_OK);
    drop(msg);
    free(text);
    struct codec_options flat = { .depth = 2 };
    const char *nested = "train:\n  eval:\n    every: 1";
    assert_int_equal(codec_parse(SPEC, nested, strlen(nested), &flat, &msg, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "line 3: nested deeper than 2 levels");
}

static void a_map_has_at_most_1024_entries(void **state) {
    (void)state;
    struct bytes text;
    bytes_init(&text, 1 << 20);
    assert_int_equal(bytes_append(&text, "labels:\n", 8, NULL), ST_OK);
    for (int i = 0; i < 1025; i++)
        assert_int_equal(bytes_printf(&text, NULL, "  k%d: v\n", i), ST_OK);
    assert_refused(SPEC, text.data, "labels: more than 1024 entries");
    bytes_done(&text);
}

static void empty_texts_are_empty_messages(void **state) {
    (void)state;
    static const char *const texts[] = { "", "\n# nothing\n", "null", "{}", "---\n", "\xef\xbb\xbf{}" };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        ProtobufCMessage *msg = parse(SPEC, texts[i]);
        assert_int_equal(protobuf_c_message_get_packed_size(msg), 0);
        drop(msg);
    }
}

static void a_given_empty_optional_text_survives_the_wire(void **state) {
    (void)state;
    ProtobufCMessage *msg = parse(SPEC, "queue: \"\"");
    uint8_t packed[16];
    size_t n = protobuf_c_message_pack(msg, packed);
    Trainyard__V1__JobSpec *back = trainyard__v1__job_spec__unpack(NULL, n, packed);
    assert_int_equal(back->_queue_case, TRAINYARD__V1__JOB_SPEC___QUEUE_QUEUE);
    drop(back);
    drop(msg);
}

static void set(ProtobufCMessage *msg, const char *path, const char *value) {
    struct err e = { "" };
    if (codec_set_path(msg, path, value, NULL, &e) != ST_OK)
        fail_msg("%s=%s was refused: %s", path, value, e.msg);
}

static void a_path_sets_one_field(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *spec = (void *)parse(SPEC, example);
    ProtobufCMessage *msg = &spec->base;
    set(msg, "train.steps", "200");
    set(msg, "name", "x: y");
    set(msg, "parallel.data", "2");
    set(msg, "labels.team", "research");
    set(msg, "labels.a.b", "c");
    set(msg, "data.text.files", "[one, \"two\"]");
    set(msg, "train.learning_rate_schedule.linear.min_lr", "1e-5");
    set(msg, "train.optimizer.adamw.beta2", "");
    set(msg, "train.eval", "{every: 5}");
    set(msg, "checkpoint.every", "");
    assert_int_equal(spec->train->steps, 200);
    assert_string_equal(spec->name, "x: y");
    assert_int_equal(spec->parallel->data, 2);
    assert_string_equal(spec->labels[0]->value, "research");
    assert_string_equal(spec->labels[2]->key, "a.b");
    assert_int_equal(spec->data->text->n_files, 2);
    assert_string_equal(spec->data->text->files[1], "two");
    assert_int_equal(spec->train->learning_rate_schedule->kind_case, TRAINYARD__V1__SCHEDULE_SPEC__KIND_LINEAR);
    assert_int_equal(spec->train->optimizer->adamw->_beta2_case, 0);
    assert_int_equal(spec->train->eval->every, 5);
    assert_int_equal(spec->checkpoint->_every_case, 0);
    drop(msg);
}

static void a_path_goes_through_the_entry_of_a_map_of_messages(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *spec = (void *)parse(SPEC, "data: {mixture: {sources: {web: {weight: 1}}}}");
    ProtobufCMessage *msg = &spec->base;
    set(msg, "data.mixture.sources.web.weight", "0.5");
    set(msg, "data.mixture.sources.code.text.files", "[one]");
    const Trainyard__V1__MixtureData *m = spec->data->mixture;
    assert_int_equal(m->n_sources, 2);
    assert_true(m->sources[0]->value->weight == 0.5);
    assert_string_equal(m->sources[1]->key, "code");
    assert_string_equal(m->sources[1]->value->text->files[0], "one");
    struct err e = { "" };
    assert_int_equal(codec_set_path(msg, "data.mixture.sources.web", "x", NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "data.mixture.sources: name an entry, with at most 128 bytes, and a field of it");
    assert_int_equal(codec_set_path(msg, "data.mixture.sources.web.wait", "1", NULL, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "data.mixture.sources.web.wait: unknown field; known here: weight, text, tokens");
    drop(msg);
}

static void a_bad_path_or_value_is_refused_and_changes_nothing(void **state) {
    (void)state;
    static const struct {
        const char *path, *value, *sentence;
    } table[] = {
        { "train.stpes", "1", "train.stpes: unknown field; did you mean steps?" },
        { "train.steps", "x", "train.steps: expected an integer, found 'x'" },
        { "train.steps", "[", "train.steps: expected an integer, found a list" },
        { "data.text.files", "[a",
          "data.text.files: line 2: did not find expected ',' or ']' (while parsing a flow sequence)" },
        { "train.steps.more", "1", "train.steps: has no fields: it holds an integer" },
        { "data.text.files.0", "1", "data.text.files: has no fields: it holds a list" },
        { "data.text.files", "x", "data.text.files: expected a list, found 'x'" },
        { "", "1",
          "unknown field; known here: name, model, data, train, parallel, checkpoint, resources, retry, "
          "queue, priority, labels, program, stores" },
        { "name", "\xff", "name: the text is not UTF-8" },
    };
    ProtobufCMessage *msg = parse(SPEC, example);
    char *before = json_of(msg, 0);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e = { "" };
        assert_int_equal(codec_set_path(msg, table[i].path, table[i].value, NULL, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, table[i].sentence);
    }
    char *after = json_of(msg, 0);
    assert_string_equal(before, after);
    free(before);
    free(after);
    drop(msg);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(yaml_and_json_give_the_same_message),
        cmocka_unit_test(yaml_output_reads_back_the_same),
        cmocka_unit_test(yaml_output_nests_lists_of_mappings),
        cmocka_unit_test(json_follows_proto3_with_defaults_written),
        cmocka_unit_test(an_optional_that_is_not_set_is_not_written),
        cmocka_unit_test(doubles_have_the_fewest_digits_that_read_back),
        cmocka_unit_test(random_doubles_have_the_fewest_digits),
        cmocka_unit_test(special_doubles_go_through_json),
        cmocka_unit_test(bytes_are_base64),
        cmocka_unit_test(surrogate_pairs_of_json_become_one_character),
        cmocka_unit_test(bad_utf8_of_a_peer_is_printed_as_replacement),
        cmocka_unit_test(a_choice_may_be_the_name_of_a_member),
        cmocka_unit_test(a_choice_may_have_settings_beside_its_member),
        cmocka_unit_test(advice_is_given_if_no_name_is_similar),
        cmocka_unit_test(an_unknown_name_gets_a_hint),
        cmocka_unit_test(every_refusal_names_the_path_and_the_reason),
        cmocka_unit_test(enums_are_read_by_name_and_number),
        cmocka_unit_test(too_long_and_too_deep_texts_are_refused),
        cmocka_unit_test(a_map_has_at_most_1024_entries),
        cmocka_unit_test(empty_texts_are_empty_messages),
        cmocka_unit_test(a_given_empty_optional_text_survives_the_wire),
        cmocka_unit_test(a_path_sets_one_field),
        cmocka_unit_test(a_path_goes_through_the_entry_of_a_map_of_messages),
        cmocka_unit_test(a_bad_path_or_value_is_refused_and_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
