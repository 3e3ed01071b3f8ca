#include "api/codec/message.h"
#include "api/spec/data_sources.h"
#include "api/spec/data_uri.h"
#include "api/spec/fields.h"
#include "api/spec/file_kind.h"
#include "api/spec/rules.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

/* By their names; the engine checks the bytes. */
static void check_kinds(const Trainyard__V1__TextData *text, const char *path, const char *field, char *const *files,
                        size_t n, struct spec_problems *p) {
    for (size_t i = 0; i < n; i++) {
        const char *slash = strrchr(files[i], '/');
        const char *why = slash && data_uri_check(files[i], true, NULL) == ST_OK ? file_kind_not_text(slash) : NULL;
        const char *named = slash ? spec_text_format(slash) : "text";
        if (why)
            problem_add(p, "%s.%s[%zu]: '%.80s' %s", path, field, i, slash + 1, why);
        else if (strcmp(named, "text") != 0 && strcmp(named, text->format ? text->format : named) != 0)
            problem_add(
                p, "%s.%s[%zu]: '%.80s' is %s by its name, and the format is %s: the files of a job have one format",
                path, field, i, slash + 1, named, text->format);
    }
}

static void check_text(const Trainyard__V1__TextData *text, const char *path, struct spec_problems *p) {
    check_kinds(text, path, "files", text->files, text->n_files, p);
    check_kinds(text, path, "validation", text->validation, text->n_validation, p);
    const bool plain = text->format && strcmp(text->format, "text") == 0;
    if (plain && text->_document_case && *text->document)
        problem_add(p, "%s.document: has no effect with format `text`", path);
}

/* By the name, before a host copies anything. A folder has any name, and so may what a pattern ends with. */
static void check_image_files(const char *field, const char *uri, struct spec_problems *p) {
    static const char *const ends[] = { ".png", ".jpg", ".jpeg", ".tar", "*", "}", "]" };
    char name[DATA_URI_BYTES];
    if (!*uri || data_uri_check(uri, true, NULL) != ST_OK || (!data_uri_is_remote(uri) && !data_uri_is_pattern(uri)))
        return;
    snprintf(name, sizeof name, "%s", uri);
    if (strncmp(uri, "http", 4) == 0)
        name[strcspn(name, "?")] = '\0';
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
        if (n > strlen(ends[i]) && strcasecmp(name + n - strlen(ends[i]), ends[i]) == 0)
            return;
    problem_add(p, "%s: '%.120s' names neither images (.png, .jpg, .jpeg) nor tar archives (.tar)", field, uri);
}

static void check_reconstruction(const Trainyard__V1__ReconstructionData *r, struct spec_problems *p) {
    check_image_files("data.reconstruction.train", r->train, p);
    check_image_files("data.reconstruction.validation", r->validation, p);
    if (rules_field_good(&r->base, "sampled_fraction") && rules_field_good(&r->base, "center_fraction") &&
        r->center_fraction > r->sampled_fraction)
        problem_add(p, "data.reconstruction.center_fraction: %g is more than sampled_fraction %g", r->center_fraction,
                    r->sampled_fraction);
}

static void check_augment(const char *source, const Trainyard__V1__Augmentation *a, struct spec_problems *p) {
    const Trainyard__V1__ResizedCrop *c = a ? a->resized_crop : NULL;
    if (!c)
        return;
    if (a->crop_padding)
        problem_add(p, "data.%s.augment.resized_crop: cannot be given with crop_padding", source);
    if (rules_field_good(&c->base, "min_scale") && rules_field_good(&c->base, "max_scale") &&
        c->min_scale > c->max_scale)
        problem_add(p, "data.%s.augment.resized_crop.min_scale: %g is more than max_scale %g", source, c->min_scale,
                    c->max_scale);
    if (rules_field_good(&c->base, "min_ratio") && rules_field_good(&c->base, "max_ratio") &&
        c->min_ratio > c->max_ratio)
        problem_add(p, "data.%s.augment.resized_crop.min_ratio: %g is more than max_ratio %g", source, c->min_ratio,
                    c->max_ratio);
}

/* channels 0: only the data know. */
static void check_normalize(const char *source, const Trainyard__V1__Normalization *n, int channels,
                            struct spec_problems *p) {
    if (!n || (n->n_mean == n->n_std && (n->n_mean == 0 || channels == 0 || n->n_mean == (size_t)channels)))
        return;
    if (n->n_mean != n->n_std)
        problem_add(p, "data.%s.normalize: gives %zu means and %zu standard deviations: give as many of both", source,
                    n->n_mean, n->n_std);
    else
        problem_add(p, "data.%s.normalize: gives %zu means for %d channels", source, n->n_mean, channels);
}

static void check_idx(const Trainyard__V1__IdxData *idx, struct spec_problems *p) {
    if (*idx->validation_images && !*idx->validation_labels)
        problem_add(p, "data.idx.validation_labels: must be given with validation_images");
    else if (!*idx->validation_images && *idx->validation_labels)
        problem_add(p, "data.idx.validation_images: must be given with validation_labels");
    check_augment("idx", idx->augment, p);
    check_normalize("idx", idx->normalize, 0, p);
}

static void check_images(const Trainyard__V1__ImageData *m, struct spec_problems *p) {
    check_image_files("data.images.train", m->train, p);
    check_image_files("data.images.validation", m->validation, p);
    const bool good = rules_field_good(&m->base, "channels");
    check_augment("images", m->augment, p);
    check_normalize("images", m->normalize, good ? m->channels : 0, p);
    if (m->augment && m->augment->saturation > 0 && good && m->channels != 3)
        problem_add(p, "data.images.augment.saturation: images of %d channel have none", m->channels);
    if (m->_resize_case && m->_size_case && m->resize < m->size && rules_field_good(&m->base, "resize") &&
        rules_field_good(&m->base, "size"))
        problem_add(p, "data.images.resize: %d is less than size %d", m->resize, m->size);
}

/* Whether a field of the source gives validation data. */
static bool gives_validation(const ProtobufCMessage *source, const ProtobufCFieldDescriptor *f) {
    size_t n = 0;
    if (f->type == PROTOBUF_C_TYPE_DOUBLE)
        return *(const double *)field_value(source, f) != 0; /* a negative one has a line of its own */
    if (field_is_repeated(f))
        field_elements(source, f, &n);
    else
        n = strlen(*(char *const *)field_value(source, f));
    return n > 0;
}

/* Whether a source has validation data. *ret_fraction: a field of it that is 0, and could give some; else NULL. */
static bool has_validation(const ProtobufCMessage *source, const ProtobufCFieldDescriptor **ret_fraction) {
    *ret_fraction = NULL;
    for (unsigned i = 0; i < source->descriptor->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &source->descriptor->fields[i];
        if (!spec_field(source->descriptor, i)->validation)
            continue;
        if (gives_validation(source, f))
            return true;
        if (f->type == PROTOBUF_C_TYPE_DOUBLE)
            *ret_fraction = f;
    }
    return false;
}

static void check_keep_best(const ProtobufCMessage *data, struct spec_problems *p) {
    const ProtobufCMessage *source = spec_member_message(data);
    const ProtobufCFieldDescriptor *fraction;
    if (!source || has_validation(source, &fraction)) /* without a source there is another line */
        return;
    if (fraction)
        problem_add(p, "checkpoint.keep_best: needs validation data, and data.%s.%s is 0", spec_member(data)->name,
                    fraction->name);
    else
        problem_add(p, "checkpoint.keep_best: needs validation data, and data names none");
}

static void check_mixture(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__MixtureData *m = spec->data->mixture;
    const ProtobufCFieldDescriptor *unused;
    bool validation = false;
    rules_mixture(m, p);
    for (size_t i = 0; i < m->n_sources; i++) {
        const Trainyard__V1__MixtureSource *from = m->sources[i]->value;
        const ProtobufCMessage *source = data_sources_mixed(from, NULL);
        char path[DATA_SOURCES_PATH];
        snprintf(path, sizeof path, "data.mixture.sources.%.32s.text", m->sources[i]->key);
        if (from && from->text)
            check_text(from->text, path, p);
        validation = validation || !source || has_validation(source, &unused);
    }
    if (spec->checkpoint->keep_best > 0 && !validation && m->n_sources > 0)
        problem_add(p, "checkpoint.keep_best: needs validation data, and no source of data.mixture has any");
}

void rules_data(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__DataSpec *data = spec->data;
    if (!data)
        return;
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        check_text(data->text, "data.text", p);
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_IDX)
        check_idx(data->idx, p);
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES)
        check_images(data->images, p);
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION)
        check_reconstruction(data->reconstruction, p);
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_MIXTURE)
        check_mixture(spec, p);
    else if (spec->checkpoint->keep_best > 0)
        check_keep_best(&data->base, p);
}
