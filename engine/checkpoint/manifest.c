/* Writing builds a JSON tree; a member that could not be allocated is counted in `bad`, and the write fails at the end.
 *
 * Reading trusts nothing: every get_* function checks the type and the range of one member, and its error names the
 * member. The caller adds the file's name. Texts and arrays are copied into the struct, which owns them.
 *
 * The member names are a file format: older checkpoints must stay readable. "pieces" are segments, and "record" is the
 * tuning cache. */
#include "engine/checkpoint/manifest.h"

#include "base/alloc.h"
#include "base/limits.h"
#include "engine/checkpoint/checksummed.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char MANIFEST_FORMAT[] = "trainyard-checkpoint-2", RANK_FORMAT[] = "trainyard-rank-2";

void checkpoint_data_file(int rank, char ret[CHECKPOINT_FILE_BYTES]) {
    snprintf(ret, CHECKPOINT_FILE_BYTES, "rank-%d.safetensors", rank);
}

void checkpoint_table_file(int rank, char ret[CHECKPOINT_FILE_BYTES]) {
    snprintf(ret, CHECKPOINT_FILE_BYTES, "rank-%d.json", rank);
}

/* --- writing --- */

static json_t *shape_json(const struct checkpoint_tensor *t) {
    json_t *shape = json_array();
    for (int i = 0; i < t->n_dims; i++)
        if (json_array_append_new(shape, json_integer(t->shape[i])) != 0)
            break;
    return shape;
}

static json_t *digest_json(const digest_t digest) {
    char hex[SHA256_HEX];
    sha256_hex(digest, hex);
    return json_string(hex);
}

/* Adds a JSON object that the caller gives as text. */
static status_t embed(json_t *root, const char *key, const char *text, struct err *e) {
    json_error_t where;
    json_t *value = json_loads(text, JSON_REJECT_DUPLICATES, &where);
    if (!value)
        return err_set(e, ST_INVALID_ARGUMENT, "the manifest's %s is not a JSON object: %s", key, where.text);
    if (json_object_set_new(root, key, value) != 0)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the manifest's %s", key);
    return ST_OK;
}

status_t manifest_write(const struct manifest *m, struct bytes *ret, struct err *e) {
    CLEANUP(json_decrefp)
    json_t *root = json_pack("{s:s, s:I, s:I, s:I, s:i, s:s, s:s, s:s}", "format", MANIFEST_FORMAT, "step",
                             (json_int_t)m->step, "updates", (json_int_t)m->updates, "skipped", (json_int_t)m->skipped,
                             "world_size", m->world_size, "numerics_id", m->numerics_id, "data_sha256", m->data_sha256,
                             "weights_sha256", m->weights_sha256);
    if (!root)
        return err_set(e, ST_INVALID_ARGUMENT, "the manifest's texts are not all valid UTF-8");
    TRY(embed(root, "layout", m->layout_json, e));
    TRY(embed(root, "tokenizer", m->tokenizer_json, e));
    TRY(embed(root, "spec", m->spec_json, e));
    json_t *tensors = json_array(), *norms = json_array();
    int bad = json_object_set_new(root, "loss_scale", json_real(m->loss_scale));
    bad |= json_object_set_new(root, "growth_count", json_integer(m->growth_count));
    if (m->samples >= 0)
        bad |= json_object_set_new(root, "samples", json_integer(m->samples));
    bad |= json_object_set_new(root, "not_finite", json_integer(m->not_finite));
    bad |= json_object_set_new(root, "spike_norms", norms);
    for (int i = 0; i < m->n_spike_norms; i++)
        bad |= json_array_append_new(norms, json_real(m->spike_norms[i]));
    bad |= json_object_set_new(root, "tensors", tensors);
    for (int i = 0; i < m->n_tensors; i++)
        bad |= json_array_append_new(tensors, json_pack("{s:s, s:s, s:o, s:o}", "name", m->tensors[i].name, "dtype",
                                                        "F32", "shape", shape_json(&m->tensors[i]), "sha256",
                                                        digest_json(m->digests[i])));
    if (bad)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a manifest of %d tensors", m->n_tensors);
    return checksummed_write(root, ret, e);
}

status_t rank_table_write(const struct rank_table *t, struct bytes *ret, struct err *e) {
    char file[CHECKPOINT_FILE_BYTES];
    checkpoint_data_file(t->rank, file);
    json_t *segments = json_array();
    CLEANUP(json_decrefp)
    json_t *root = json_pack("{s:s, s:I, s:i, s:i, s:s, s:I, s:s, s:o}", "format", RANK_FORMAT, "step",
                             (json_int_t)t->step, "rank", t->rank, "world_size", t->world_size, "file", file, "bytes",
                             (json_int_t)t->bytes, "sha256", t->sha256, "pieces", segments);
    int bad = !root;
    if (*t->tuning_cache) {
        json_t *record = json_string(t->tuning_cache);
        if (!record)
            return err_set(e, ST_INVALID_ARGUMENT, "the tuning cache of rank %d is not valid UTF-8", t->rank);
        bad |= json_object_set_new(root, "record", record);
    }
    for (int i = 0; i < t->n_segments; i++) {
        const struct rank_segment *p = &t->segments[i];
        bad |= json_array_append_new(segments, json_pack("{s:s, s:s, s:o, s:I, s:I}", "name", p->tensor.name, "dtype",
                                                         "F32", "shape", shape_json(&p->tensor), "first",
                                                         (json_int_t)p->first, "count", (json_int_t)p->count));
    }
    if (bad)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a table of %d segments", t->n_segments);
    return checksummed_write(root, ret, e);
}

/* --- reading --- */

static status_t get_int(json_t *j, const char *key, int64_t min, int64_t max, int64_t *ret, struct err *e) {
    json_t *value = json_object_get(j, key);
    if (!json_is_integer(value) || json_integer_value(value) < min || json_integer_value(value) > max)
        return err_set(e, ST_DATA_LOSS, "its '%s' is not a number from %lld to %lld", key, (long long)min,
                       (long long)max);
    *ret = json_integer_value(value);
    return ST_OK;
}

/* Finite and not negative. */
static status_t get_number(json_t *value, const char *key, double *ret, struct err *e) {
    if (!json_is_number(value) || !(json_number_value(value) >= 0))
        return err_set(e, ST_DATA_LOSS, "its '%s' has a value that is not a number >= 0", key);
    *ret = json_number_value(value);
    return ST_OK;
}

static status_t get_text(json_t *j, const char *key, const char **ret, struct err *e) {
    const char *text = json_string_value(json_object_get(j, key));
    if (!text)
        return err_set(e, ST_DATA_LOSS, "its '%s' is not text", key);
    *ret = alloc_copy_text(text);
    return ST_OK;
}

/* Early files lack it. */
static status_t get_tuning_cache(json_t *root, const char **ret, struct err *e) {
    json_t *value = json_object_get(root, "record");
    if (value && (!json_is_string(value) || json_string_length(value) >= CHECKPOINT_TUNING_CACHE_BYTES))
        return err_set(e, ST_DATA_LOSS, "its 'record' is not text of less than %d bytes",
                       CHECKPOINT_TUNING_CACHE_BYTES);
    *ret = alloc_copy_text(value ? json_string_value(value) : "");
    return ST_OK;
}

static status_t get_object_text(json_t *j, const char *key, const char **ret, struct err *e) {
    json_t *value = json_object_get(j, key);
    if (!json_is_object(value))
        return err_set(e, ST_DATA_LOSS, "its '%s' is not an object", key);
    if (!(*ret = json_dumps(value, JSON_COMPACT)))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the '%s' of a checkpoint", key);
    return ST_OK;
}

static status_t get_digest(json_t *value, digest_t ret, struct err *e) {
    const char *hex = json_string_value(value);
    if (!hex || !digest_from_hex(hex, ret))
        return err_set(e, ST_DATA_LOSS, "a digest in it is not 64 hexadecimal digits");
    return ST_OK;
}

static status_t get_array(json_t *j, const char *key, size_t max, json_t **ret, struct err *e) {
    *ret = json_object_get(j, key);
    if (!json_is_array(*ret) || json_array_size(*ret) > max)
        return err_set(e, ST_DATA_LOSS, "its '%s' is not a list of at most %zu", key, max);
    return ST_OK;
}

/* name, dtype and shape. */
static status_t get_tensor(json_t *j, struct checkpoint_tensor *ret, struct err *e) {
    TRY(get_text(j, "name", &ret->name, e));
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    json_t *shape;
    TRY(get_array(j, "shape", CHECKPOINT_RANK, &shape, e));
    if (!dtype || strcmp(dtype, "F32") != 0)
        return err_set(e, ST_DATA_LOSS, "the tensor %.200s is not of F32", ret->name);
    ret->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < ret->n_dims; i++)
        ret->shape[i] = json_integer_value(
            json_array_get(shape, (size_t)i)); /* if it is not an integer: 0, which is refused later */
    return checkpoint_tensor_check(ret, e) == ST_OK ? ST_OK : ST_DATA_LOSS;
}

static status_t get_root(const char *text, size_t n, const char *format, json_t **ret, struct err *e) {
    json_error_t where;
    CLEANUP(json_decrefp) json_t *root = json_loadb(text, n, JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_DATA_LOSS, "it is not valid JSON: %s", where.text);
    const char *its = json_string_value(json_object_get(root, "format"));
    if (!its || strcmp(its, format) != 0)
        return err_set(e, ST_DATA_LOSS, "its format is '%.40s' and not '%s'", its ? its : "", format);
    *ret = json_incref(root);
    return ST_OK;
}

struct manifest *manifest_free(struct manifest *m) {
    if (!m)
        return NULL;
    for (int i = 0; i < m->n_tensors; i++)
        free((char *)m->tensors[i].name);
    const void *owned[] = { m->numerics_id,    m->data_sha256, m->weights_sha256, m->spec_json,  m->layout_json,
                            m->tokenizer_json, m->tensors,     m->digests,        m->spike_norms };
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++)
        free((void *)owned[i]);
    free(m);
    return NULL;
}

static status_t get_tensors(json_t *list, struct manifest *m, struct err *e) {
    size_t n = json_array_size(list);
    struct checkpoint_tensor *tensors = alloc_zeroed(n + 1, sizeof *tensors);
    digest_t *digests = alloc_zeroed(n + 1, sizeof *digests);
    m->tensors = tensors;
    m->digests = (const digest_t *)digests;
    for (size_t i = 0; i < n; i++) {
        m->n_tensors++;
        TRY(get_tensor(json_array_get(list, i), &tensors[i], e));
        TRY(get_digest(json_object_get(json_array_get(list, i), "sha256"), digests[i], e));
        if (i && strcmp(tensors[i - 1].name, tensors[i].name) >= 0)
            return err_set(e, ST_DATA_LOSS, "its tensors %.200s and %.200s are not in the order of their names",
                           tensors[i - 1].name, tensors[i].name);
    }
    return ST_OK;
}

static status_t get_norms(json_t *root, struct manifest *m, struct err *e) {
    json_t *list;
    TRY(get_array(root, "spike_norms", CHECKPOINT_NORMS, &list, e));
    double *norms = alloc_zeroed(json_array_size(list) + 1, sizeof *norms);
    m->spike_norms = norms;
    for (size_t i = 0; i < json_array_size(list); i++)
        TRY(get_number(json_array_get(list, i), "spike_norms", &norms[m->n_spike_norms++], e));
    return ST_OK;
}

/* A count that early files do not have. */
static status_t get_later_int(json_t *root, const char *name, int64_t *ret, struct err *e) {
    return json_object_get(root, name) ? get_int(root, name, 0, INT64_MAX, ret, e) : ST_OK;
}

status_t manifest_parse(const char *text, size_t n, struct manifest **ret, struct err *e) {
    CLEANUP(json_decrefp) json_t *root = NULL;
    TRY(get_root(text, n, MANIFEST_FORMAT, &root, e));
    CLEANUP(manifest_freep) struct manifest *m = alloc_zeroed(1, sizeof *m);
    int64_t world_size;
    json_t *tensors;
    TRY(get_int(root, "step", 0, INT64_MAX, &m->step, e));
    TRY(get_int(root, "updates", 0, INT64_MAX, &m->updates, e));
    /* Early files lack it. */
    m->skipped = m->step > m->updates ? m->step - m->updates : 0;
    TRY(get_later_int(root, "skipped", &m->skipped, e));
    m->samples = -1;
    TRY(get_later_int(root, "samples", &m->samples, e));
    TRY(get_later_int(root, "not_finite", &m->not_finite, e));
    TRY(get_number(json_object_get(root, "loss_scale"), "loss_scale", &m->loss_scale, e));
    TRY(get_int(root, "growth_count", 0, INT64_MAX, &m->growth_count, e));
    TRY(get_norms(root, m, e));
    TRY(get_int(root, "world_size", 1, LIMIT_WORLD_SIZE, &world_size, e));
    m->world_size = (int)world_size;
    TRY(get_text(root, "numerics_id", &m->numerics_id, e));
    TRY(get_text(root, "data_sha256", &m->data_sha256, e));
    TRY(get_text(root, "weights_sha256", &m->weights_sha256, e));
    TRY(get_object_text(root, "layout", &m->layout_json, e));
    TRY(get_object_text(root, "tokenizer", &m->tokenizer_json, e));
    TRY(get_object_text(root, "spec", &m->spec_json, e));
    TRY(get_array(root, "tensors", CHECKPOINT_TENSORS, &tensors, e));
    TRY(get_tensors(tensors, m, e));
    *ret = take_ptr(&m);
    return ST_OK;
}

struct rank_table *rank_table_free(struct rank_table *t) {
    if (!t)
        return NULL;
    for (int i = 0; i < t->n_segments; i++)
        free((char *)t->segments[i].tensor.name);
    free((void *)t->segments);
    free((char *)t->sha256);
    free((char *)t->tuning_cache);
    free(t);
    return NULL;
}

static status_t get_segment(json_t *j, struct rank_segment *p, struct err *e) {
    TRY(get_tensor(j, &p->tensor, e));
    int64_t elements = checkpoint_tensor_elements(&p->tensor);
    TRY(get_int(j, "first", 0, elements - 1, &p->first, e));
    TRY(get_int(j, "count", 1, elements - p->first, &p->count, e));
    if (p->first % CHECKPOINT_CHUNK_ELEMENTS)
        return err_set(e, ST_DATA_LOSS, "a segment of %s begins within a chunk, at element %lld", p->tensor.name,
                       (long long)p->first);
    if (p->first + p->count < elements && p->count % CHECKPOINT_CHUNK_ELEMENTS)
        return err_set(e, ST_DATA_LOSS, "a segment of %s ends within a chunk, at element %lld", p->tensor.name,
                       (long long)(p->first + p->count));
    return ST_OK;
}

status_t rank_table_parse(const char *text, size_t n, struct rank_table **ret, struct err *e) {
    CLEANUP(json_decrefp) json_t *root = NULL;
    TRY(get_root(text, n, RANK_FORMAT, &root, e));
    CLEANUP(rank_table_freep) struct rank_table *t = alloc_zeroed(1, sizeof *t);
    int64_t rank, world_size;
    json_t *segments;
    digest_t digest;
    TRY(get_int(root, "step", 0, INT64_MAX, &t->step, e));
    TRY(get_int(root, "world_size", 1, LIMIT_WORLD_SIZE, &world_size, e));
    TRY(get_int(root, "rank", 0, world_size - 1, &rank, e));
    TRY(get_int(root, "bytes", 0, INT64_MAX, &t->bytes, e));
    TRY(get_digest(json_object_get(root, "sha256"), digest, e));
    TRY(get_text(root, "sha256", &t->sha256, e));
    TRY(get_tuning_cache(root, &t->tuning_cache, e));
    TRY(get_array(root, "pieces", CHECKPOINT_TENSORS, &segments, e));
    t->rank = (int)rank;
    t->world_size = (int)world_size;
    struct rank_segment *list = alloc_zeroed(json_array_size(segments) + 1, sizeof *list);
    t->segments = list;
    for (size_t i = 0; i < json_array_size(segments); i++) {
        t->n_segments++;
        TRY(get_segment(json_array_get(segments, i), &list[i], e));
    }
    *ret = take_ptr(&t);
    return ST_OK;
}
