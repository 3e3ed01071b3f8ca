/* Reading weights from folders of Hugging Face's transformers, and writing checkpoints as such folders. transformers
 * 5.23 made the folders in pretrained/ and their logits (record_pretrained.py). */
#include "base/file.h"
#include "engine/checkpoint/writer.h"
#include "engine/pretrained/config_json.h"
#include "engine/pretrained/export.h"
#include "engine/pretrained/pretrained.h"
#include "engine/run/initial.h"
#include "tests/engine/walk.h"

#include <jansson.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BATCH = 2, TIME = 12, TENSORS_MOST = 64 };

static char root[] = "/tmp/ty-pretrained-XXXXXX";

struct path {
    char s[400];
};

static struct path below(const char *name) {
    struct path p;
    snprintf(p.s, sizeof p.s, "%s/%s", root, name);
    return p;
}

static struct path recorded(const char *name) {
    const char *source = getenv("TRAINYARD_SOURCE");
    struct path p;
    snprintf(p.s, sizeof p.s, "%s/tests/engine/pretrained/%s", source ? source : ".", name);
    return p;
}

/* --- a model's logits ---*/

static struct walk model_open(struct model_config config) {
    struct graph *g = NULL;
    struct err e = { "" };
    const struct model_data data = { .vocabulary = model_vocabulary(&config) };
    if (config.kind == &model_gpt)
        config.gpt.context = TIME;
    else
        config.llama.context = TIME;
    if (model_build(&config, &data, BATCH, DTYPE_F32, &g, &e) != ST_OK)
        fail_msg("%s", e.msg);
    struct walk w;
    walk_open(&w, g, 2);
    w.training = false;
    return w;
}

/* (BATCH, TIME, vocabulary) for the tokens that the scripts also use; free it. */
static float *logits_of(struct walk *w, int vocabulary) {
    int32_t *tokens = w->tensor[w->graph->tokens], *targets = w->tensor[w->graph->targets];
    for (int b = 0; b < BATCH; b++)
        for (int t = 0; t < TIME; t++) {
            tokens[b * TIME + t] = (7 * b + 11 * t + t * t) % vocabulary;
            targets[b * TIME + t] = -1;
        }
    walk_weights(w);
    (void)walk_forward(w);
    const size_t bytes = (size_t)BATCH * TIME * (size_t)vocabulary * sizeof(float);
    float *logits = malloc(bytes);
    memcpy(logits, w->tensor[w->graph->logits], bytes);
    return logits;
}

static float *logits_from(const char *directory, const struct model_config *want, struct walk *w) {
    CLEANUP(pretrained_closep) struct pretrained *p = NULL;
    struct err e = { "" };
    if (pretrained_open(directory, NULL, &p, &e) != ST_OK)
        fail_msg("%s", e.msg);
    const struct model_config model = want ? *want : *pretrained_model(p);
    *w = model_open(model);
    struct model_config mine = model;
    if (mine.kind == &model_gpt)
        mine.gpt.context = TIME;
    if (pretrained_check(p, &mine, w->graph, &e) != ST_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < w->graph->n_parameters; i++) {
        const int64_t n = walk_elements(w, i), first = n / 3;
        const char *name = w->graph->parameters[i].name;
        if (pretrained_read(p, name, 0, first, w->master[i], &e) != ST_OK ||
            pretrained_read(p, name, first, n - first, w->master[i] + first, &e) != ST_OK)
            fail_msg("%s", e.msg);
    }
    return logits_of(w, model_vocabulary(&model));
}

static void close_to(const char *what, const float *have, const float *want, int64_t n, double most) {
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)have[i] - (double)want[i]) <= most))
            fail_msg("%s: logit %lld is %.9g, not %.9g", what, (long long)i, (double)have[i], (double)want[i]);
}

static void folders_of_transformers_give_its_logits(void **state) {
    (void)state;
    static const char *const names[] = { "gpt2", "gpt2-bare-bf16-sharded", "llama-f16", "llama-tied", "llama-scaled" };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct walk w;
        CLEANUP(freep) float *have = logits_from(recorded(names[i]).s, NULL, &w);
        enum { N = BATCH * TIME * 48 };
        static float want[N];
        char file[500];
        snprintf(file, sizeof file, "%s/logits.f32", recorded(names[i]).s);
        CLEANUP(fclosep) FILE *f = fopen(file, "rb");
        assert_non_null(f);
        assert_int_equal(fread(want, sizeof *want, N, f), N);
        close_to(names[i], have, want, N, 1e-4);
        walk_close(&w);
    }
}

static void the_config_of_a_folder_gives_its_model(void **state) {
    (void)state;
    static const struct {
        const char *name, *json;
    } table[] = {
        { "gpt2",
          "{\"gpt\":{\"layers\":2,\"heads\":3,\"width\":24,\"context\":16,\"vocabulary\":48,\"dropout\":0.0}}" },
        { "llama-f16", "{\"llama\":{\"layers\":2,\"heads\":4,\"width\":24,\"context\":64,\"kv_heads\":2,\"hidden\":40,"
                       "\"vocabulary\":48,"
                       "\"rope_theta\":10000.0,\"norm_eps\":1e-05,\"tied_embeddings\":false}}" },
        { "llama-tied", "{\"llama\":{\"layers\":2,\"heads\":4,\"width\":24,\"context\":64,\"kv_heads\":2,\"hidden\":40,"
                        "\"vocabulary\":48,"
                        "\"rope_theta\":50000.0,\"norm_eps\":1e-06,\"tied_embeddings\":true}}" },
        { "llama-scaled",
          "{\"llama\":{\"layers\":2,\"heads\":4,\"width\":24,\"context\":512,\"kv_heads\":2,\"hidden\":40,"
          "\"vocabulary\":48,\"rope_theta\":100.0,\"rope_scaling.factor\":8.0,\"rope_scaling.low_freq_factor\":1.0,"
          "\"rope_scaling.high_freq_factor\":4.0,\"rope_scaling.original_max_position_embeddings\":64,"
          "\"norm_eps\":1e-06,\"tied_embeddings\":false}}" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CLEANUP(pretrained_closep) struct pretrained *p = NULL;
        struct model_config want;
        struct err e = { "" };
        assert_int_equal(pretrained_open(recorded(table[i].name).s, NULL, &p, &e), ST_OK);
        assert_int_equal(model_from_json(table[i].json, &want, &e), ST_OK);
        CLEANUP(freep) char *a = model_to_json(pretrained_model(p)), *b = model_to_json(&want);
        assert_string_equal(a, b);
    }
}

/* As in the files of Llama 3.1 on the hub, which transformers 4 wrote. */
static void the_older_form_of_scaled_positions_has_the_same_meaning(void **state) {
    (void)state;
    char file[500], command[1400];
    struct err e = { "" };
    snprintf(file, sizeof file, "%s/config.json", recorded("llama-scaled").s);
    CLEANUP(json_decrefp) json_t *config = json_load_file(file, 0, NULL);
    json_t *rope = json_incref(json_object_get(config, "rope_parameters"));
    json_object_del(config, "rope_parameters");
    json_object_set(config, "rope_theta", json_object_get(rope, "rope_theta"));
    json_object_del(rope, "rope_theta");
    json_object_set_new(config, "rope_scaling", rope);
    const struct path older = below("older");
    snprintf(command, sizeof command, "mkdir %s && cp %s/model.safetensors %s", older.s, recorded("llama-scaled").s,
             older.s);
    assert_int_equal(system(command), 0);
    snprintf(file, sizeof file, "%s/config.json", older.s);
    assert_int_equal(json_dump_file(config, file, 0), 0);
    CLEANUP(pretrained_closep) struct pretrained *a = NULL, *b = NULL;
    assert_int_equal(pretrained_open(recorded("llama-scaled").s, NULL, &a, &e), ST_OK);
    if (pretrained_open(older.s, NULL, &b, &e) != ST_OK)
        fail_msg("%s", e.msg);
    CLEANUP(freep) char *newer_model = model_to_json(pretrained_model(a)), *model = model_to_json(pretrained_model(b));
    assert_string_equal(model, newer_model);
}

/* --- out and back ---*/

static const struct model_config MODELS[] = {
    { .kind = &model_gpt, .gpt = { .layers = 2, .heads = 2, .width = 32, .context = 20, .vocabulary = 61 } },
    { .kind = &model_llama,
      .llama = { .layers = 2,
                 .heads = 4,
                 .width = 32,
                 .context = 20,
                 .kv_heads = 2,
                 .hidden = 56,
                 .vocabulary = 61,
                 .rope_theta = 20000,
                 .norm_eps = 1e-5 } },
    { .kind = &model_llama,
      .llama = { .layers = 1,
                 .heads = 2,
                 .width = 16,
                 .context = 20,
                 .kv_heads = 2,
                 .hidden = 24,
                 .vocabulary = 61,
                 .rope_theta = 10000,
                 .norm_eps = 1e-6,
                 .tied_embeddings = true } },
    { .kind = &model_llama,
      .llama = { .layers = 2,
                 .heads = 4,
                 .width = 32,
                 .context = 20,
                 .kv_heads = 2,
                 .hidden = 56,
                 .vocabulary = 61,
                 .rope_theta = 100,
                 .rope_scaling = { 32, 1, 4, 16 },
                 .norm_eps = 1e-6 } },
};
enum { N_MODELS = sizeof MODELS / sizeof *MODELS };

/* A graph of the whole context, with weights that differ much from initial weights. */
static struct graph *graph_of(const struct model_config *config) {
    struct graph *g = NULL;
    struct err e;
    const struct model_data data = { .vocabulary = model_vocabulary(config) };
    assert_int_equal(model_build(config, &data, 1, DTYPE_F32, &g, &e), ST_OK);
    return g;
}

static float *weights_of(const struct graph *g, int parameter, int64_t seed) {
    struct parameter p = g->parameters[parameter];
    const int64_t n = shape_elements(&p.shape);
    float *weights = malloc((size_t)n * sizeof *weights);
    p.init = INIT_NORMAL;
    p.init_std = 0.2;
    initial_parameter(&p, parameter, seed, 0, n, weights);
    return weights;
}

/* The checkpoint of a model at step 1, with averages of other numbers; returns its step folder. */
static struct path checkpoint_of(const struct model_config *config, const char *name, bool averages) {
    struct graph *g = graph_of(config);
    struct checkpoint_tensor tensors[TENSORS_MOST];
    struct checkpoint_segment segments[TENSORS_MOST];
    const float *data[TENSORS_MOST];
    static char names[TENSORS_MOST][CHECKPOINT_NAME_BYTES];
    int n = 0;
    for (int average = 0; average <= (averages ? 1 : 0); average++)
        for (int i = 0; i < g->n_parameters; i++, n++) {
            const struct shape *s = &g->parameters[i].shape;
            snprintf(names[n], sizeof names[n], "%s%s", average ? "ema." : "", g->parameters[i].name);
            tensors[n] = (struct checkpoint_tensor){ .name = names[n], .n_dims = s->n };
            memcpy(tensors[n].shape, s->dim, (size_t)s->n * sizeof s->dim[0]);
            data[n] = weights_of(g, i, 5 + average);
            segments[n] = (struct checkpoint_segment){ n, 0, shape_elements(s) };
        }
    CLEANUP(freep) char *model = model_to_json(config);
    char layout[1024];
    snprintf(layout, sizeof layout, "{\"data\":1,\"model\":%s}", model);
    struct path directory = below(name);
    const struct checkpoint_writer_config writer_config = { .directory = directory.s,
                                                            .world_size = 1,
                                                            .spec_json = "{}",
                                                            .layout_json = layout,
                                                            .tokenizer_json = "{\"kind\":\"byte\"}",
                                                            .data_sha256 = "",
                                                            .numerics_id = "" };
    const struct checkpoint_snapshot snapshot = {
        .step = 1, .tensors = tensors, .n_tensors = n, .segments = segments, .data = data, .n_segments = n
    };
    CLEANUP(checkpoint_writer_closep) struct checkpoint_writer *w = NULL;
    struct err e = { "" };
    assert_int_equal(checkpoint_writer_open(&writer_config, &w, &e), ST_OK);
    assert_int_equal(checkpoint_writer_submit(w, &snapshot, &e), ST_OK);
    if (checkpoint_writer_wait(w, &e) != ST_OK)
        fail_msg("%s", e.msg);
    for (int i = 0; i < n; i++)
        free((float *)data[i]);
    graph_free(g);
    strcat(directory.s, "/step-1");
    return directory;
}

static struct path exported(const struct model_config *config, const char *name, bool average) {
    const struct path from = checkpoint_of(config, name, average);
    char to_name[64];
    snprintf(to_name, sizeof to_name, "%s-exported", name);
    const struct path to = below(to_name);
    struct export_result done;
    struct err e = { "" };
    if (pretrained_export(from.s, to.s, &(struct export_options){ .average = average }, &done, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return to;
}

static void an_exported_checkpoint_imports_to_the_same_logits(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        char name[32];
        snprintf(name, sizeof name, "round-%d", i);
        const struct path folder = exported(&MODELS[i], name, false), step = below(name);
        char checkpoint[500];
        snprintf(checkpoint, sizeof checkpoint, "%s/step-1", step.s);
        struct walk a, b;
        CLEANUP(freep) float *before = logits_from(checkpoint, &MODELS[i], &a);
        CLEANUP(freep) float *after = logits_from(folder.s, &MODELS[i], &b);
        close_to(name, after, before, (int64_t)BATCH * TIME * 61, 1e-5);
        double largest = 0;
        for (int k = 0; k < BATCH * TIME * 61; k++)
            largest = fmax(largest, fabs((double)before[k]));
        assert_true(largest > 0.5); /* there is something to compare */
        walk_close(&a);
        walk_close(&b);
    }
}

/* transformers 4 reads the second form, later versions the first. */
static void scaled_positions_are_exported_in_both_forms_and_others_in_none(void **state) {
    (void)state;
    for (int i = 1; i < N_MODELS; i++) {
        const struct llama_rope_scaling *s = &MODELS[i].llama.rope_scaling;
        char name[32], file[500];
        snprintf(name, sizeof name, "scaled-%d", i);
        snprintf(file, sizeof file, "%s/config.json", exported(&MODELS[i], name, false).s);
        CLEANUP(json_decrefp) json_t *config = json_load_file(file, 0, NULL);
        const json_t *forms[] = { json_object_get(config, "rope_parameters"), json_object_get(config, "rope_scaling") };
        const char *type = json_string_value(json_object_get(forms[0], "rope_type"));
        assert_non_null(type);
        assert_true(json_number_value(json_object_get(forms[0], "rope_theta")) == MODELS[i].llama.rope_theta);
        assert_string_equal(type, s->factor != 0 ? "llama3" : "default");
        assert_int_equal(forms[1] != NULL, s->factor != 0);
        for (int k = 0; k < 2 && s->factor != 0; k++) {
            assert_string_equal(json_string_value(json_object_get(forms[k], "rope_type")), "llama3");
            assert_true(json_number_value(json_object_get(forms[k], "factor")) == s->factor);
            assert_true(json_number_value(json_object_get(forms[k], "low_freq_factor")) == s->low_freq_factor);
            assert_true(json_number_value(json_object_get(forms[k], "high_freq_factor")) == s->high_freq_factor);
            assert_int_equal(json_integer_value(json_object_get(forms[k], "original_max_position_embeddings")),
                             s->original_max_position_embeddings);
        }
    }
}

static void averaged_weights_are_exported_where_there_are_any(void **state) {
    (void)state;
    const struct path folder = exported(&MODELS[0], "averaged", true);
    struct graph *g = graph_of(&MODELS[0]);
    CLEANUP(pretrained_closep) struct pretrained *p = NULL;
    struct err e = { "" };
    assert_int_equal(pretrained_open(folder.s, NULL, &p, &e), ST_OK);
    CLEANUP(freep) float *want = weights_of(g, 3, 6), *have = weights_of(g, 3, 7);
    const int64_t n = shape_elements(&g->parameters[3].shape);
    assert_int_equal(pretrained_read(p, g->parameters[3].name, 0, n, have, &e), ST_OK);
    assert_memory_equal(have, want, (size_t)n * sizeof *want);
    graph_free(g);
    const struct path without = checkpoint_of(&MODELS[0], "unaveraged", false);
    struct export_result done;
    assert_int_equal(
        pretrained_export(without.s, below("nowhere").s, &(struct export_options){ .average = true }, &done, &e),
        ST_FAILED_PRECONDITION);
    assert_string_equal(e.msg, "the checkpoint has no averaged weights: it was trained without train.ema");
    assert_int_not_equal(access(below("nowhere/config.json").s, F_OK), 0);
}

static void write_text(const char *directory, const char *name, const char *text, size_t n) {
    char path[600];
    struct err e;
    snprintf(path, sizeof path, "%s/%s", directory, name);
    assert_int_equal(dir_make(directory, 0755, &e), ST_OK);
    assert_int_equal(file_write_atomic(path, text, n, 0644, &e), ST_OK);
}

/* A folder with other files is refused. The files of an earlier export are replaced, and other files stay. */
static void a_folder_that_is_not_empty_is_overwritten_only_on_request(void **state) {
    (void)state;
    const struct path from = checkpoint_of(&MODELS[0], "kept", false), to = below("kept-exported");
    struct export_result done = { 0 };
    struct err e = { "" };
    char wanted[600];
    write_text(to.s, "mine", "mine", 4);
    write_text(to.s, "tokenizer_config.json", "old", 3);
    assert_int_equal(pretrained_export(from.s, to.s, &(struct export_options){ 0 }, &done, &e), ST_ALREADY_EXISTS);
    snprintf(wanted, sizeof wanted, "'%s' is not empty: give another folder, or --overwrite", to.s);
    assert_string_equal(e.msg, wanted);
    assert_int_not_equal(access(below("kept-exported/config.json").s, F_OK), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pretrained_export(from.s, to.s, &(struct export_options){ .overwrite = true }, &done, &e),
                         ST_OK);
    assert_int_equal(access(below("kept-exported/mine").s, F_OK), 0);
    assert_int_equal(access(below("kept-exported/config.json").s, F_OK), 0);
    struct graph *g = graph_of(&MODELS[0]);
    assert_int_equal(done.parameters, graph_parameter_elements(g));
    assert_true(done.weights_bytes > 4 * done.parameters);
    assert_string_equal(done.tokenizer, "byte");
    graph_free(g);
}

static void numbers_of_a_config_have_no_more_digits_than_they_need(void **state) {
    (void)state;
    const struct model_config gpt = {
        .kind = &model_gpt,
        .gpt = { .layers = 1, .heads = 1, .width = 8, .context = 8, .vocabulary = 9, .dropout = 0.1 }
    };
    struct bytes text;
    bytes_init(&text, 1 << 16);
    assert_int_equal(config_json_write(&gpt, &text, NULL), ST_OK);
    assert_non_null(strstr(text.data, "\"layer_norm_epsilon\": 1e-5,"));
    assert_non_null(strstr(text.data, "\"attn_pdrop\": 0.1,"));
    bytes_done(&text);
}

/* Compares the logits of an exported folder by our engine with those of transformers. Returns the script's exit status.
 */
static int compare_with_transformers(int model, char *said, int size) {
    const char *python = getenv("TRAINYARD_PYTHON"), *source = getenv("TRAINYARD_SOURCE");
    char name[32], file[500], command[2000];
    snprintf(name, sizeof name, "opened-%d", model);
    const struct path folder = exported(&MODELS[model], name, false);
    struct walk w;
    CLEANUP(freep) float *logits = logits_from(folder.s, &MODELS[model], &w);
    walk_close(&w);
    snprintf(file, sizeof file, "%s.f32", folder.s);
    struct err e;
    assert_int_equal(file_write_atomic(file, logits, (size_t)BATCH * TIME * 61 * sizeof *logits, 0644, &e), ST_OK);
    snprintf(command, sizeof command, "%s %s/tests/engine/open_in_transformers.py %s %s %d %d 2>/dev/null",
             python ? python : "python3", source ? source : ".", folder.s, file, BATCH, TIME);
    FILE *script = popen(command, "r");
    assert_non_null(script);
    if (!fgets(said, size, script))
        said[0] = 0;
    return pclose(script);
}

/* TRAINYARD_PYTHON names an interpreter with torch and transformers, if python3 has none. */
static void what_is_exported_opens_in_transformers_with_the_same_logits(void **state) {
    (void)state;
    for (int i = 0; i < N_MODELS; i++) {
        char said[400] = "";
        const int status = compare_with_transformers(i, said, sizeof said);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
            skip();
        if (status != 0)
            fail_msg("%s", *said ? said : "transformers could not open the folder");
    }
}

/* --- refused folders --- */

static const char CONFIG[] = "{\"model_type\":\"gpt2\",\"n_layer\":2,\"n_head\":3,\"n_embd\":24,\"n_positions\":16,"
                             "\"vocab_size\":48%s}";
static const char LLAMA[] = "{\"model_type\":\"llama\",\"num_hidden_layers\":1,\"num_attention_heads\":4,"
                            "\"hidden_size\":24,\"intermediate_size\":40,\"vocab_size\":48%s}";

static void assert_refused(const char *directory, status_t status, const char *says) {
    struct pretrained *p = NULL;
    struct err e = { "" };
    assert_int_equal(pretrained_open(directory, NULL, &p, &e), status);
    assert_null(p);
    if (!strstr(e.msg, says))
        fail_msg("'%s' does not say '%s'", e.msg, says);
}

static void a_model_that_this_build_does_not_compute_is_refused_by_its_field(void **state) {
    (void)state;
    static const struct {
        const char *form, *more;
        status_t status;
        const char *says;
    } table[] = {
        { "{\"model_type\":\"bert\"}%s", "", ST_INVALID_ARGUMENT, "is 'bert', which is neither gpt2 nor llama" },
        { "{%s}", "", ST_INVALID_ARGUMENT, "is '', which is neither" },
        { "[%s]", "", ST_DATA_LOSS, "not a JSON object" },
        { "{%s", "", ST_DATA_LOSS, "not a JSON object" },
        { CONFIG, ",\"n_inner\":80", ST_INVALID_ARGUMENT, "its 'n_inner' is 80, and this build computes 4 n_embd" },
        { CONFIG, ",\"activation_function\":\"relu\"", ST_INVALID_ARGUMENT, "'activation_function' is 'relu'" },
        { CONFIG, ",\"layer_norm_epsilon\":1e-6", ST_INVALID_ARGUMENT, "'layer_norm_epsilon' is 1e-06" },
        { CONFIG, ",\"scale_attn_by_inverse_layer_idx\":true", ST_INVALID_ARGUMENT, "is not false" },
        { CONFIG, ",\"tie_word_embeddings\":false", ST_INVALID_ARGUMENT, "is not true" },
        { CONFIG, ",\"n_head\":4", ST_DATA_LOSS, "duplicate" },
        { "{\"model_type\":\"gpt2\",\"n_layer\":0%s}", "", ST_DATA_LOSS, "its 'n_layer' is not a number from 1" },
        { "{\"model_type\":\"gpt2\",\"n_embd\":1073741824%s}", "", ST_DATA_LOSS, "'n_embd' is too large" },
        { "{\"model_type\":\"llama\"%s}", "", ST_DATA_LOSS, "its 'num_hidden_layers' is not a number" },
        { LLAMA, ",\"rope_scaling\":{\"rope_type\":\"llama3\"}", ST_DATA_LOSS, "no 'factor' of at least 1" },
        { LLAMA, ",\"rope_scaling\":{\"type\":\"linear\",\"factor\":2}", ST_INVALID_ARGUMENT, "'type' is 'linear'" },
        { LLAMA,
          ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_freq_factor\":4,"
          "\"original_max_position_embeddings\":8}",
          ST_DATA_LOSS, "no 'low_freq_factor' below" },
        { LLAMA,
          ",\"rope_parameters\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":1,\"high_freq_factor\":4}",
          ST_DATA_LOSS, "its 'original_max_position_embeddings' is not a number" },
        { LLAMA, ",\"rope_parameters\":{\"rope_type\":\"yarn\"}", ST_INVALID_ARGUMENT,
          "'rope_type' is 'yarn', and this build computes 'default' or 'llama3'" },
        { LLAMA, ",\"rope_parameters\":7", ST_DATA_LOSS, "'rope_parameters' is not an object" },
        { LLAMA, ",\"head_dim\":7", ST_INVALID_ARGUMENT, "'head_dim' is 7" },
        { LLAMA, ",\"attention_bias\":true", ST_INVALID_ARGUMENT, "'attention_bias' is not false" },
        { LLAMA, ",\"hidden_act\":\"gelu\"", ST_INVALID_ARGUMENT, "'hidden_act' is 'gelu'" },
        { LLAMA, ",\"rms_norm_eps\":-1", ST_DATA_LOSS, "'rms_norm_eps' is not a number above 0" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        char text[600];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, table[i].form, table[i].more);
#pragma GCC diagnostic pop
        write_text(below("refused").s, "config.json", text, strlen(text));
        assert_refused(below("refused").s, table[i].status, table[i].says);
    }
    assert_refused(below("missing").s, ST_NOT_FOUND, "is neither a checkpoint (manifest.json) nor a folder");
}

static void write_safetensors(const char *directory, const char *name, const char *header, size_t data) {
    const size_t n = strlen(header);
    CLEANUP(freep) char *file = calloc(1, 8 + n + data);
    file[0] = (char)n;
    memcpy(file + 8, header, n);
    write_text(directory, name, file, 8 + n + data);
}

static void a_damaged_folder_is_one_sentence_with_the_files_name(void **state) {
    (void)state;
    static const char config[] = "{\"model_type\":\"gpt2\"}";
    static const char one[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}";
    const struct path d = below("damaged");
    write_text(d.s, "config.json", config, sizeof config - 1);
    assert_refused(d.s, ST_NOT_FOUND, "has neither model.safetensors nor model.safetensors.index.json");
    write_text(d.s, "pytorch_model.bin", "x", 1);
    assert_refused(d.s, ST_NOT_FOUND, "save its pytorch_model.bin as safetensors");
    write_text(d.s, "model.safetensors", "abc", 3);
    assert_refused(d.s, ST_DATA_LOSS, "model.safetensors': it ends at byte 3");
    write_safetensors(d.s, "model.safetensors", one, 7);
    assert_refused(d.s, ST_DATA_LOSS, "model.safetensors': the tensors have 8 bytes and the file has 7");

    static const struct {
        const char *index, *says;
    } table[] = {
        { "{}", "has no 'weight_map'" },
        { "{\"weight_map\":{}}", "has no 'weight_map'" },
        { "{\"weight_map\":{\"a\":1}}", "the file of the tensor a is not text" },
        { "{\"weight_map\":{\"a\":\"../b\"}}", "names the file '../b', which is not a plain file name" },
        { "{\"weight_map\":{\"a\":\"\"}}", "which is not a plain file name" },
        { "{\"weight_map\":{\"a\":\"one\",\"b\":\"two\"}}", "has the tensor a twice" },
        { "[", "index.json': it is not valid JSON" },
    };
    write_safetensors(d.s, "one", one, 8);
    write_safetensors(d.s, "two", one, 8);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        write_text(d.s, "model.safetensors.index.json", table[i].index, strlen(table[i].index));
        assert_refused(d.s, ST_DATA_LOSS, table[i].says);
    }
    static const char three[] = "{\"weight_map\":{\"a\":\"three\"}}";
    write_text(d.s, "model.safetensors.index.json", three, sizeof three - 1);
    assert_refused(d.s, ST_NOT_FOUND, "damaged/three'");
}

static void assert_does_not_fit(const struct pretrained *p, const struct model_config *model, const char *says) {
    struct graph *g = graph_of(model);
    struct err e = { "" };
    assert_int_equal(pretrained_check(p, model, g, &e), ST_INVALID_ARGUMENT);
    if (!strstr(e.msg, says))
        fail_msg("'%s' does not say '%s'", e.msg, says);
    graph_free(g);
}

static void another_model_is_refused_and_a_shorter_context_is_not(void **state) {
    (void)state;
    const struct path folder = exported(&MODELS[0], "fitting", false);
    CLEANUP(pretrained_closep) struct pretrained *p = NULL;
    struct err e = { "" };
    assert_int_equal(pretrained_open(folder.s, NULL, &p, &e), ST_OK);
    struct model_config m = MODELS[0];
    m.gpt.heads = 4;
    assert_does_not_fit(p, &m, "model.gpt.heads: 4, but the weights are of a model with 2");
    m = MODELS[0];
    m.gpt.context = 21;
    assert_does_not_fit(p, &m, "model.gpt.context: 21, but the weights are of a model with ");
    assert_does_not_fit(p, &MODELS[1], "but the weights are of a gpt");
    m = MODELS[0];
    m.gpt.context = 7;
    m.gpt.dropout = 0.5;
    struct graph *g = graph_of(&m);
    assert_int_equal(pretrained_check(p, &m, g, &e), ST_OK);
    graph_free(g);
    float data[4];
    assert_int_equal(pretrained_read(p, "transformer.ln_f.bias", 30, 3, data, &e), ST_OUT_OF_RANGE);
    assert_int_equal(pretrained_read(p, "nothing", 0, 1, data, &e), ST_NOT_FOUND);

    /* A tensor that config.json requires may be missing, or have a type that no weight has. */
    const struct path other = below("hollow");
    static const char config[] = "{\"model_type\":\"gpt2\",\"n_layer\":1,\"n_head\":1,\"n_embd\":2,\"n_positions\":2,"
                                 "\"vocab_size\":3}";
    write_text(other.s, "config.json", config, sizeof config - 1);
    write_safetensors(other.s, "model.safetensors",
                      "{\"wte.weight\":{\"dtype\":\"I64\",\"shape\":[3,2],\"data_offsets\":[0,48]}}", 48);
    CLEANUP(pretrained_closep) struct pretrained *hollow = NULL;
    assert_int_equal(pretrained_open(other.s, NULL, &hollow, &e), ST_OK);
    assert_int_equal(pretrained_read(hollow, "transformer.wte.weight", 0, 1, data, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "the tensor wte.weight is of I64 (F32, BF16 and F16 are read)"));
    m = *pretrained_model(hollow);
    assert_does_not_fit(hollow, &m, "has no tensor transformer.wpe.weight");
}

static void a_family_that_transformers_does_not_have_is_not_exported(void **state) {
    (void)state;
    const struct model_config mlp = { .kind = &model_mlp, .mlp = { .hidden = { 8 }, .n_hidden = 1, .classes = 3 } };
    CLEANUP(freep) char *model = model_to_json(&mlp);
    char layout[400];
    snprintf(layout, sizeof layout, "{\"model\":%s}", model);
    const struct path directory = below("mlp");
    const struct checkpoint_writer_config config = { .directory = directory.s,
                                                     .world_size = 1,
                                                     .spec_json = "{}",
                                                     .layout_json = layout,
                                                     .tokenizer_json = "{}",
                                                     .data_sha256 = "",
                                                     .numerics_id = "" };
    CLEANUP(checkpoint_writer_closep) struct checkpoint_writer *w = NULL;
    struct err e = { "" };
    const struct checkpoint_snapshot empty = { .step = 1 };
    struct export_result done;
    assert_int_equal(checkpoint_writer_open(&config, &w, &e), ST_OK);
    assert_int_equal(checkpoint_writer_submit(w, &empty, &e), ST_OK);
    assert_int_equal(checkpoint_writer_wait(w, &e), ST_OK);
    assert_int_equal(
        pretrained_export(below("mlp/step-1").s, below("mlp-exported").s, &(struct export_options){ 0 }, &done, &e),
        ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "a model of the family mlp has no form in transformers (gpt and llama have)");
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
        cmocka_unit_test(folders_of_transformers_give_its_logits),
        cmocka_unit_test(the_config_of_a_folder_gives_its_model),
        cmocka_unit_test(the_older_form_of_scaled_positions_has_the_same_meaning),
        cmocka_unit_test(an_exported_checkpoint_imports_to_the_same_logits),
        cmocka_unit_test(scaled_positions_are_exported_in_both_forms_and_others_in_none),
        cmocka_unit_test(averaged_weights_are_exported_where_there_are_any),
        cmocka_unit_test(a_folder_that_is_not_empty_is_overwritten_only_on_request),
        cmocka_unit_test(numbers_of_a_config_have_no_more_digits_than_they_need),
        cmocka_unit_test(what_is_exported_opens_in_transformers_with_the_same_logits),
        cmocka_unit_test(a_model_that_this_build_does_not_compute_is_refused_by_its_field),
        cmocka_unit_test(a_damaged_folder_is_one_sentence_with_the_files_name),
        cmocka_unit_test(another_model_is_refused_and_a_shorter_context_is_not),
        cmocka_unit_test(a_family_that_transformers_does_not_have_is_not_exported),
    };
    return cmocka_run_group_tests(tests, NULL, clean);
}
