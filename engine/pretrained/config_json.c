/* Reading: every field that changes what is computed is either taken over (sizes, epsilon, rotary positions) or must
 * have the value that this build computes; another value is refused, because the model would give other logits. A
 * missing field has transformers' default. rope_theta is in the document itself (transformers 4) or in rope_parameters
 * with the type of scaling (transformers 5).
 *
 * Writing: all fields, with the rotary scaling in both places, and real numbers with the fewest digits that read back
 * as the same number. */
#include "engine/pretrained/config_json.h"

#include "base/cleanup.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The epsilon of model/gpt.c. */
static const double GPT2_EPSILON = 1e-5;

enum { MAX_NUMBER = 1 << 30 };

/* --- reading --- */

/* A member that is null counts as missing, as in transformers. */
static json_t *member(const json_t *j, const char *key) {
    json_t *value = json_object_get(j, key);
    return json_is_null(value) ? NULL : value;
}

/* absent: the value of a missing member; 0: it is required. */
static status_t get_int(const json_t *j, const char *key, int absent, int *ret, struct err *e) {
    const json_t *value = member(j, key);
    *ret = absent;
    if (!value && absent)
        return ST_OK;
    if (!json_is_integer(value) || json_integer_value(value) < 1 || json_integer_value(value) > MAX_NUMBER)
        return err_set(e, ST_DATA_LOSS, "its '%s' is not a number from 1 to %d", key, MAX_NUMBER);
    *ret = (int)json_integer_value(value);
    return ST_OK;
}

static status_t get_real(const json_t *j, const char *key, double absent, double *ret, struct err *e) {
    const json_t *value = member(j, key);
    *ret = absent;
    if (!value)
        return ST_OK;
    if (!json_is_number(value) || !(json_number_value(value) > 0))
        return err_set(e, ST_DATA_LOSS, "its '%s' is not a number above 0", key);
    *ret = json_number_value(value);
    return ST_OK;
}

/* A flag or a name must have the value that this build computes, or be missing. */
static status_t need_flag(const json_t *j, const char *key, bool want, struct err *e) {
    const json_t *value = member(j, key);
    if (!value || (json_is_boolean(value) && json_is_true(value) == want))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "its '%s' is not %s, which this build does not compute", key,
                   want ? "true" : "false");
}

static status_t need_name(const json_t *j, const char *key, const char *want, const char *or_, struct err *e) {
    const json_t *value = member(j, key);
    const char *name = json_string_value(value);
    if (!value || (name && (strcmp(name, want) == 0 || (or_ && strcmp(name, or_) == 0))))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "its '%s' is '%.40s', and this build computes '%s'%s%s%s", key,
                   name ? name : "", want, or_ ? " or '" : "", or_ ? or_ : "", or_ ? "'" : "");
}

static status_t parse_gpt2(const json_t *j, struct model_config *m, struct err *e) {
    struct gpt_shape *s = &m->gpt;
    double epsilon;
    int inner;
    m->kind = &model_gpt;
    TRY(get_int(j, "n_layer", 12, &s->layers, e));
    TRY(get_int(j, "n_head", 12, &s->heads, e));
    TRY(get_int(j, "n_embd", 768, &s->width, e));
    TRY(get_int(j, "n_positions", 1024, &s->context, e));
    TRY(get_int(j, "vocab_size", 50257, &s->vocabulary, e));
    if (s->width > MAX_NUMBER / 4)
        return err_set(e, ST_DATA_LOSS, "its 'n_embd' is too large");
    TRY(get_int(j, "n_inner", 4 * s->width, &inner, e));
    TRY(get_real(j, "layer_norm_epsilon", GPT2_EPSILON, &epsilon, e));
    if (inner != 4 * s->width)
        return err_set(e, ST_INVALID_ARGUMENT, "its 'n_inner' is %d, and this build computes 4 n_embd", inner);
    if (fabs(epsilon - GPT2_EPSILON) > 1e-12)
        return err_set(e, ST_INVALID_ARGUMENT, "its 'layer_norm_epsilon' is %g, and this build computes %g", epsilon,
                       GPT2_EPSILON);
    TRY(need_name(j, "activation_function", "gelu_new", "gelu_pytorch_tanh", e));
    TRY(need_flag(j, "scale_attn_weights", true, e));
    TRY(need_flag(j, "scale_attn_by_inverse_layer_idx", false, e));
    TRY(need_flag(j, "add_cross_attention", false, e));
    return need_flag(j, "tie_word_embeddings", true, e);
}

/* The scaling of Llama 3.1 and its successors. Other kinds are not supported. */
static status_t parse_scaling(const json_t *j, struct llama_rope_scaling *s, struct err *e) {
    TRY(get_real(j, "factor", 0, &s->factor, e));
    TRY(get_real(j, "low_freq_factor", 0, &s->low_freq_factor, e));
    TRY(get_real(j, "high_freq_factor", 0, &s->high_freq_factor, e));
    if (!(s->factor >= 1 && s->low_freq_factor > 0 && s->high_freq_factor > s->low_freq_factor))
        return err_set(e, ST_DATA_LOSS,
                       "its rotary positions of type llama3 have no 'factor' of at least 1, or no 'low_freq_factor' "
                       "below a 'high_freq_factor'");
    return get_int(j, "original_max_position_embeddings", 0, &s->original_max_position_embeddings, e);
}

static bool is_llama3(const json_t *rope) {
    const char *type = json_string_value(member(rope, member(rope, "rope_type") ? "rope_type" : "type"));
    return type && strcmp(type, "llama3") == 0;
}

static status_t parse_rope(const json_t *j, struct llama_shape *s, struct err *e) {
    const json_t *parameters = member(j, "rope_parameters"), *scaling = member(j, "rope_scaling");
    if (parameters && !json_is_object(parameters))
        return err_set(e, ST_DATA_LOSS, "its 'rope_parameters' is not an object");
    if (scaling && !json_is_object(scaling))
        return err_set(e, ST_DATA_LOSS, "its 'rope_scaling' is not an object");
    TRY(get_real(j, "rope_theta", 10000, &s->rope_theta, e));
    TRY(get_real(parameters, "rope_theta", s->rope_theta, &s->rope_theta, e));
    TRY(need_name(parameters, "rope_type", "default", "llama3", e));
    TRY(need_name(scaling, "rope_type", "default", "llama3", e));
    TRY(need_name(scaling, "type", "default", "llama3", e));
    if (is_llama3(parameters))
        return parse_scaling(parameters, &s->rope_scaling, e);
    return is_llama3(scaling) ? parse_scaling(scaling, &s->rope_scaling, e) : ST_OK;
}

static status_t parse_llama(const json_t *j, struct model_config *m, struct err *e) {
    struct llama_shape *s = &m->llama;
    int head;
    m->kind = &model_llama;
    TRY(get_int(j, "num_hidden_layers", 0, &s->layers, e));
    TRY(get_int(j, "num_attention_heads", 0, &s->heads, e));
    TRY(get_int(j, "num_key_value_heads", s->heads, &s->kv_heads, e));
    TRY(get_int(j, "hidden_size", 0, &s->width, e));
    TRY(get_int(j, "intermediate_size", 0, &s->hidden, e));
    TRY(get_int(j, "max_position_embeddings", 2048, &s->context, e));
    TRY(get_int(j, "vocab_size", 32000, &s->vocabulary, e));
    if (s->width % s->heads)
        return err_set(e, ST_DATA_LOSS, "its %d heads do not divide its width %d", s->heads, s->width);
    TRY(get_int(j, "head_dim", s->width / s->heads, &head, e));
    if (head != s->width / s->heads)
        return err_set(e, ST_INVALID_ARGUMENT, "its 'head_dim' is %d, and this build computes hidden_size / heads",
                       head);
    TRY(get_real(j, "rms_norm_eps", 1e-6, &s->norm_eps, e));
    TRY(parse_rope(j, s, e));
    TRY(need_name(j, "hidden_act", "silu", "swish", e));
    TRY(need_flag(j, "attention_bias", false, e));
    s->tied_embeddings = json_is_true(member(j, "tie_word_embeddings"));
    return need_flag(j, "mlp_bias", false, e);
}

status_t config_json_parse(const char *text, size_t n, struct model_config *ret, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(root))
        return err_set(e, ST_DATA_LOSS, "it is not a JSON object%s%s", root ? "" : ": ", root ? "" : where.text);
    *ret = (struct model_config){ 0 };
    const char *type = json_string_value(member(root, "model_type"));
    if (type && strcmp(type, "gpt2") == 0)
        return parse_gpt2(root, ret, e);
    if (type && strcmp(type, "llama") == 0)
        return parse_llama(root, ret, e);
    return err_set(e, ST_INVALID_ARGUMENT, "its 'model_type' is '%.40s', which is neither gpt2 nor llama",
                   type ? type : "");
}

/* --- writing --- */

/* Only GPT-2's own vocabulary has a known end-of-text token. */
static json_t *end_of_text(int vocabulary) { return vocabulary == 50257 ? json_integer(50256) : json_null(); }

static json_t *gpt2_json(const struct gpt_shape *s) {
    return json_pack("{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:n, s:s, s:f, s:f, s:f, s:f, s:b, s:b, s:o, s:o, s:s}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "n_layer", s->layers, "n_head", s->heads,
                     "n_embd", s->width, "n_positions", s->context, "vocab_size", s->vocabulary, "n_inner",
                     "activation_function", "gelu_new", "layer_norm_epsilon", GPT2_EPSILON, "embd_pdrop", s->dropout,
                     "attn_pdrop", s->dropout, "resid_pdrop", s->dropout, "scale_attn_weights", true,
                     "tie_word_embeddings", true, "bos_token_id", end_of_text(s->vocabulary), "eos_token_id",
                     end_of_text(s->vocabulary), "dtype", "float32");
}

static json_t *scaling_json(const struct llama_rope_scaling *s) {
    return json_pack("{s:s, s:f, s:f, s:f, s:i}", "rope_type", "llama3", "factor", s->factor, "low_freq_factor",
                     s->low_freq_factor, "high_freq_factor", s->high_freq_factor, "original_max_position_embeddings",
                     s->original_max_position_embeddings);
}

/* For transformers 5. */
static json_t *rope_json(const struct llama_shape *s) {
    json_t *rope = s->rope_scaling.factor != 0 ? scaling_json(&s->rope_scaling)
                                               : json_pack("{s:s}", "rope_type", "default");
    if (rope)
        json_object_set_new(rope, "rope_theta", json_real(s->rope_theta));
    return rope;
}

static json_t *llama_json(const struct llama_shape *s) {
    json_t *root = json_pack(
        "{s:[s], s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f, s:f, s:o, s:s, s:b, s:b, s:b, s:n, s:n, s:s}",
        "architectures", "LlamaForCausalLM", "model_type", "llama", "num_hidden_layers", s->layers,
        "num_attention_heads", s->heads, "num_key_value_heads", s->kv_heads, "hidden_size", s->width, "head_dim",
        s->width / s->heads, "intermediate_size", s->hidden, "max_position_embeddings", s->context, "vocab_size",
        s->vocabulary, "rms_norm_eps", s->norm_eps, "rope_theta", s->rope_theta, "rope_parameters", rope_json(s),
        "hidden_act", "silu", "attention_bias", false, "mlp_bias", false, "tie_word_embeddings", s->tied_embeddings,
        "bos_token_id", "eos_token_id", "dtype", "float32");
    if (root && s->rope_scaling.factor != 0) /* for transformers 4 */
        json_object_set_new(root, "rope_scaling", scaling_json(&s->rope_scaling));
    return root;
}

/* JSON with the fewest digits by which every number is read back unchanged: 1e-5, not 1.0000000000000001e-5. */
static char *shortest_text(const json_t *root) {
    enum { MAX_DIGITS = 17 };
    for (size_t digits = 1; root && digits < MAX_DIGITS; digits++) {
        CLEANUP(freep) char *text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
        CLEANUP(json_decrefp) json_t *back = text ? json_loads(text, 0, NULL) : NULL;
        if (back && json_equal((json_t *)root, back))
            return take_ptr(&text);
    }
    return json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(MAX_DIGITS));
}

status_t config_json_write(const struct model_config *model, struct bytes *ret, struct err *e) {
    if (model->kind != &model_gpt && model->kind != &model_llama)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "a model of the family %s has no form in transformers (gpt and llama have)", model->kind->name);
    CLEANUP(json_decrefp)
    json_t *root = model->kind == &model_gpt ? gpt2_json(&model->gpt) : llama_json(&model->llama);
    CLEANUP(freep) char *text = shortest_text(root);
    if (!text)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a config.json");
    return bytes_printf(ret, e, "%s\n", text);
}
