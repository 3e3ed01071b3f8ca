#include "api/codec/message.h"
#include "api/spec/fields.h"
#include "api/spec/file_kind.h"
#include "api/spec/rules.h"

#include <string.h>

enum { FILE_PATH_BYTES = 4096 };

/* By their names; the engine checks the bytes. */
static void check_kinds(const Trainyard__V1__TextData *text, struct spec_problems *p) {
    for (size_t i = 0; i < text->n_files; i++) {
        char local[FILE_PATH_BYTES];
        const char *why = spec_uri_path(text->files[i], local, sizeof local, NULL) == ST_OK ? file_kind_not_text(local)
                                                                                            : NULL;
        if (why)
            problem_add(p, "data.text.files[%zu]: '%.80s' %s", i, strrchr(local, '/') + 1, why);
    }
}

static void check_idx(const Trainyard__V1__IdxData *idx, struct spec_problems *p) {
    if (*idx->validation_images && !*idx->validation_labels)
        problem_add(p, "data.idx.validation_labels: must be given with validation_images");
    else if (!*idx->validation_images && *idx->validation_labels)
        problem_add(p, "data.idx.validation_images: must be given with validation_labels");
}

static void check_reconstruction(const Trainyard__V1__ReconstructionData *r, struct spec_problems *p) {
    if (rules_field_good(&r->base, "sampled_fraction") && rules_field_good(&r->base, "center_fraction") &&
        r->center_fraction > r->sampled_fraction)
        problem_add(p, "data.reconstruction.center_fraction: %g is more than sampled_fraction %g", r->center_fraction,
                    r->sampled_fraction);
}

/* The field of the source that gives validation data; NULL if it has none. */
static const ProtobufCFieldDescriptor *validation_field(const ProtobufCMessage *source) {
    for (unsigned i = 0; i < source->descriptor->n_fields; i++)
        if (spec_field(source->descriptor, i)->validation)
            return &source->descriptor->fields[i];
    return NULL;
}

static void check_keep_best(const ProtobufCMessage *data, struct spec_problems *p) {
    const ProtobufCMessage *source = spec_member_message(data);
    const ProtobufCFieldDescriptor *f = source ? validation_field(source) : NULL;
    size_t n = 0;
    if (f && f->type == PROTOBUF_C_TYPE_DOUBLE) {
        if (*(const double *)field_value(source, f) == 0)
            problem_add(p, "checkpoint.keep_best: needs validation data, and data.%s.%s is 0", spec_member(data)->name,
                        f->name);
        return;
    }
    if (f && field_is_repeated(f))
        field_elements(source, f, &n);
    else if (f)
        n = strlen(*(char *const *)field_value(source, f));
    if (source && n == 0) /* without a source there is another line */
        problem_add(p, "checkpoint.keep_best: needs validation data, and data names none");
}

void rules_data(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__DataSpec *data = spec->data;
    if (!data)
        return;
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_TEXT)
        check_kinds(data->text, p);
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_IDX)
        check_idx(data->idx, p);
    if (data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION)
        check_reconstruction(data->reconstruction, p);
    if (spec->checkpoint->keep_best > 0)
        check_keep_best(&data->base, p);
}
