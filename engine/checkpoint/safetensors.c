/* Reading: the header's length, then its JSON with one entry for each tensor. The entries are sorted by offset, and
 * check_cover walks over them: every byte after the header must belong to exactly one tensor. So a header cannot point
 * outside the file, and two tensors cannot share bytes.
 *
 * Writing: one entry for each segment, in the order in which the data will follow. */
#include "engine/checkpoint/safetensors.h"

#include "base/alloc.h"
#include "engine/checkpoint/digest.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LENGTH_BYTES = 8 };

struct safetensors *safetensors_free(struct safetensors *s) {
    if (s) {
        for (int i = 0; i < s->n_entries; i++)
            free(s->entries[i].name);
        free(s->entries);
        free(s);
    }
    return NULL;
}

/* Bytes of one element; 0 = not a dtype of the format. */
static int dtype_bytes(const char *dtype) {
    static const struct {
        const char *name;
        int bytes;
    } known[] = { { "F32", 4 }, { "F64", 8 }, { "F16", 2 }, { "BF16", 2 }, { "I64", 8 }, { "U64", 8 }, { "I32", 4 },
                  { "U32", 4 }, { "I16", 2 }, { "U16", 2 }, { "I8", 1 },   { "U8", 1 },  { "BOOL", 1 } };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(dtype, known[i].name) == 0)
            return known[i].bytes;
    return 0;
}

status_t safetensors_header_end(const unsigned char first[8], int64_t file_bytes, int64_t *ret, struct err *e) {
    uint64_t length = 0;
    for (int i = LENGTH_BYTES - 1; i >= 0; i--)
        length = length << 8 | first[i];
    if (length > SAFETENSORS_HEADER_BYTES)
        return err_set(e, ST_DATA_LOSS, "the header claims %llu bytes (at most %d are allowed)",
                       (unsigned long long)length, SAFETENSORS_HEADER_BYTES);
    if ((int64_t)length + LENGTH_BYTES > file_bytes)
        return err_set(e, ST_DATA_LOSS, "the header claims %llu bytes of a file of %lld", (unsigned long long)length,
                       (long long)file_bytes);
    *ret = (int64_t)length + LENGTH_BYTES;
    return ST_OK;
}

static bool read_natural(json_t *j, int64_t *ret) {
    *ret = json_integer_value(j);
    return json_is_integer(j) && *ret >= 0;
}

static status_t parse_entry(const char *name, json_t *j, struct safetensors_entry *entry, struct err *e) {
    json_t *shape = json_object_get(j, "shape"), *offsets = json_object_get(j, "data_offsets");
    const char *dtype = json_string_value(json_object_get(j, "dtype"));
    if (json_object_size(j) != 3 || !dtype || !json_is_array(shape) || json_array_size(offsets) != 2)
        return err_set(e, ST_DATA_LOSS, "the tensor %.200s is not described by dtype, shape and data_offsets", name);
    int64_t bytes = dtype_bytes(dtype);
    if (!bytes)
        return err_set(e, ST_DATA_LOSS, "the tensor %.200s has the dtype %.20s", name, dtype);
    if (json_array_size(shape) > CHECKPOINT_RANK)
        return err_set(e, ST_DATA_LOSS, "the tensor %.200s has %zu dimensions", name, json_array_size(shape));
    snprintf(entry->dtype, sizeof entry->dtype, "%s", dtype);
    entry->n_dims = (int)json_array_size(shape);
    for (int i = 0; i < entry->n_dims; i++)
        if (!read_natural(json_array_get(shape, (size_t)i), &entry->shape[i]) ||
            __builtin_mul_overflow(bytes, entry->shape[i], &bytes))
            return err_set(e, ST_DATA_LOSS, "the tensor %.200s has an impossible shape", name);
    if (!read_natural(json_array_get(offsets, 0), &entry->begin) ||
        !read_natural(json_array_get(offsets, 1), &entry->end) || entry->end - entry->begin != bytes)
        return err_set(e, ST_DATA_LOSS, "the tensor %.200s has %lld bytes by its shape, but not by its offsets", name,
                       (long long)bytes);
    entry->name = alloc_copy_text(name);
    return ST_OK;
}

static status_t check_metadata(json_t *metadata, struct err *e) {
    const char *key;
    json_t *value;
    if (!json_is_object(metadata))
        return err_set(e, ST_DATA_LOSS, "__metadata__ is not an object");
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return err_set(e, ST_DATA_LOSS, "__metadata__ has '%.200s', which is not a string", key);
    }
    return ST_OK;
}

static int by_offset(const void *a, const void *b) {
    const struct safetensors_entry *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin) : (x->end > y->end) - (x->end < y->end);
}

/* The tensors cover the data exactly: no gap, no overlap, nothing before or after. */
static status_t check_cover(const struct safetensors *s, int64_t file_bytes, struct err *e) {
    int64_t at = 0;
    for (int i = 0; i < s->n_entries; i++) {
        if (s->entries[i].begin != at)
            return err_set(e, ST_DATA_LOSS,
                           "the tensor %.200s begins at byte %lld, but the data before it ends at %lld",
                           s->entries[i].name, (long long)s->entries[i].begin, (long long)at);
        at = s->entries[i].end;
    }
    if (at > file_bytes - s->data_first || at < file_bytes - s->data_first)
        return err_set(e, ST_DATA_LOSS, "the tensors have %lld bytes and the file has %lld for them", (long long)at,
                       (long long)(file_bytes - s->data_first));
    return ST_OK;
}

status_t safetensors_parse(const void *bytes, size_t n, int64_t file_bytes, struct safetensors **ret, struct err *e) {
    if (n < LENGTH_BYTES || file_bytes < (int64_t)n)
        return err_set(e, ST_DATA_LOSS, "the file has %zu bytes, fewer than the length of its header needs", n);
    CLEANUP(safetensors_freep) struct safetensors *s = alloc_zeroed(1, sizeof *s);
    TRY(safetensors_header_end(bytes, file_bytes, &s->data_first, e));
    if (s->data_first > (int64_t)n)
        return err_set(e, ST_DATA_LOSS, "the header ends after %zu bytes", n);
    json_error_t where;
    CLEANUP(json_decrefp)
    json_t *root = json_loadb((const char *)bytes + LENGTH_BYTES, (size_t)s->data_first - LENGTH_BYTES,
                              JSON_REJECT_DUPLICATES, &where);
    if (!root)
        return err_set(e, ST_DATA_LOSS, "the header is not valid JSON: %s", where.text);
    if (!json_is_object(root) || json_object_size(root) > CHECKPOINT_TENSORS + 1)
        return err_set(e, ST_DATA_LOSS, "the header is not an object of at most %d tensors", CHECKPOINT_TENSORS);
    s->entries = alloc_zeroed(json_object_size(root) + 1, sizeof *s->entries);
    const char *name;
    json_t *value;
    json_object_foreach(root, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            TRY(check_metadata(value, e));
        else
            TRY(parse_entry(name, value, &s->entries[s->n_entries++], e));
    }
    qsort(s->entries, (size_t)s->n_entries, sizeof *s->entries, by_offset);
    TRY(check_cover(s, file_bytes, e));
    *ret = take_ptr(&s);
    return ST_OK;
}

static bool is_whole(const struct checkpoint_tensor *t, int64_t first, int64_t count) {
    return first == 0 && count == checkpoint_tensor_elements(t);
}

void safetensors_segment_name(const struct checkpoint_tensor *t, int64_t first, int64_t count,
                              char ret[SAFETENSORS_NAME_BYTES]) {
    if (is_whole(t, first, count))
        snprintf(ret, SAFETENSORS_NAME_BYTES, "%s", t->name);
    else
        snprintf(ret, SAFETENSORS_NAME_BYTES, "%s[%lld:%lld]", t->name, (long long)first, (long long)(first + count));
}

static int add_segment(json_t *root, json_t *metadata, const struct checkpoint_tensor *t,
                       const struct checkpoint_segment *p, int64_t begin) {
    char name[SAFETENSORS_NAME_BYTES];
    safetensors_segment_name(t, p->first, p->count, name);
    json_t *shape = json_array();
    int bad = 0;
    if (is_whole(t, p->first, p->count)) {
        for (int i = 0; i < t->n_dims; i++)
            bad |= json_array_append_new(shape, json_integer(t->shape[i]));
    } else {
        bad |= json_array_append_new(shape, json_integer(p->count));
        char key[CHECKPOINT_NAME_BYTES + 8], text[DIGEST_SHAPE_BYTES];
        snprintf(key, sizeof key, "shape:%s", t->name);
        digest_shape_text(t, text);
        bad |= json_object_set_new(metadata, key, json_string(text));
    }
    json_t *entry = json_pack("{s:s, s:o, s:[I,I]}", "dtype", "F32", "shape", shape, "data_offsets", (json_int_t)begin,
                              (json_int_t)(begin + p->count * 4));
    return bad | json_object_set_new(root, name, entry);
}

status_t safetensors_header(const struct checkpoint_tensor *tensors, const struct checkpoint_segment *segments,
                            int n_segments, int64_t step, int rank, int world_size, struct bytes *ret, struct err *e) {
    CLEANUP(json_decrefp) json_t *root = json_object();
    char number[24];
    snprintf(number, sizeof number, "%lld", (long long)step);
    json_t *metadata = json_pack("{s:s, s:s}", "format", "pt", "trainyard.step", number);
    int bad = json_object_set_new(root, "__metadata__", metadata);
    snprintf(number, sizeof number, "%d/%d", rank, world_size);
    bad |= json_object_set_new(metadata, "trainyard.rank", json_string(number));
    int64_t at = 0;
    for (int i = 0; i < n_segments; i++) {
        bad |= add_segment(root, metadata, &tensors[segments[i].tensor], &segments[i], at);
        at += segments[i].count * 4;
    }
    CLEANUP(freep) char *text = bad ? NULL : json_dumps(root, JSON_COMPACT);
    if (!text)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a header of %d tensors", n_segments);
    size_t length = strlen(text), padded = (length + 7) / 8 * 8;
    if (padded > SAFETENSORS_HEADER_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "a header of %zu bytes is over the limit of %d", padded,
                       SAFETENSORS_HEADER_BYTES);
    unsigned char first[LENGTH_BYTES];
    for (int i = 0; i < LENGTH_BYTES; i++)
        first[i] = (unsigned char)((uint64_t)padded >> 8 * i);
    TRY(bytes_append(ret, first, sizeof first, e));
    TRY(bytes_append(ret, text, length, e));
    return bytes_append(ret, "       ", padded - length, e);
}
