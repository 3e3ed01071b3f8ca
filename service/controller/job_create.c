#include "service/controller/job_create.h"

#include "api/code/entry.h"
#include "api/spec/data_uri.h"
#include "api/spec/secret_fields.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/sha256.h"
#include "service/scheduler/feature.h"

#include <stdlib.h>
#include <string.h>

/* Not a folder of the host. */
static bool is_list(const char *uri) {
    const size_t n = strlen(uri);
    return data_uri_is_remote(uri) || data_uri_is_pattern(uri) || (n > 4 && strcmp(uri + n - 4, ".tar") == 0);
}

static bool changes(const Trainyard__V1__Augmentation *a, const Trainyard__V1__Normalization *n) {
    return (a && (a->resized_crop || a->brightness > 0 || a->contrast > 0 || a->saturation > 0)) ||
           (n && n->n_mean > 0);
}

/* What the first releases do not know, and would leave out. */
static bool has_new_images(const Trainyard__V1__DataSpec *data) {
    switch (data ? data->source_case : TRAINYARD__V1__DATA_SPEC__SOURCE__NOT_SET) {
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES:
        return changes(data->images->augment, data->images->normalize) || data->images->_resize_case ||
               is_list(data->images->train) || is_list(data->images->validation);
    case TRAINYARD__V1__DATA_SPEC__SOURCE_RECONSTRUCTION:
        return is_list(data->reconstruction->train) || is_list(data->reconstruction->validation);
    case TRAINYARD__V1__DATA_SPEC__SOURCE_IDX: return changes(data->idx->augment, data->idx->normalize);
    default: return false;
    }
}

static bool has_mixup(const Trainyard__V1__DataSpec *data) {
    const Trainyard__V1__Augmentation *a = NULL;
    if (data && data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_IMAGES)
        a = data->images->augment;
    if (data && data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_IDX)
        a = data->idx->augment;
    return a && a->mixup > 0;
}

/* Of a checkpoint of another job only its row says whether it is in a store; with keys of one it may be. */
static bool may_begin_in_store(const Trainyard__V1__JobSpec *spec) {
    const char *from = spec->train && spec->train->init_from ? spec->train->init_from : "";
    return data_uri_is_remote(from) || (strncmp(from, "jobs/", 5) == 0 && spec->stores && spec->stores->s3);
}

/* The features that the job's executors must have. */
static uint32_t needs_of(const Trainyard__V1__JobSpec *spec) {
    const Trainyard__V1__ProgramSpec *program = spec->program;
    uint32_t needs = 0;
    if (program && program->code)
        needs |= SCHEDULER_FEATURE_CODE;
    if (program && program->python)
        needs |= SCHEDULER_FEATURE_PYTHON;
    if (program && program->image)
        needs |= SCHEDULER_FEATURE_IMAGE;
    size_t n_remote;
    free(data_uris_remote(spec, &n_remote));
    if (n_remote > 0)
        needs |= SCHEDULER_FEATURE_DATA;
    if (has_new_images(spec->data))
        needs |= SCHEDULER_FEATURE_IMAGES;
    if (has_mixup(spec->data))
        needs |= SCHEDULER_FEATURE_MIXUP;
    if (spec->data && spec->data->source_case == TRAINYARD__V1__DATA_SPEC__SOURCE_MIXTURE)
        needs |= SCHEDULER_FEATURE_MIXTURE;
    if (spec_checkpoints_in_store(spec))
        needs |= SCHEDULER_FEATURE_STORE_CHECKPOINTS;
    if (may_begin_in_store(spec))
        needs |= SCHEDULER_FEATURE_STORE_WEIGHTS;
    if (spec_may_change_data(spec))
        needs |= SCHEDULER_FEATURE_CHANGED_DATA;
    if (spec_names_secrets(spec))
        needs |= SCHEDULER_FEATURE_SECRETS;
    return needs;
}

const struct store_job_label *job_labels(const Trainyard__V1__JobSpec *spec,
                                         struct store_job_label ret[STORE_JOB_LABELS_MAX]) {
    for (size_t i = 0; i < spec->n_labels; i++)
        ret[i] = (struct store_job_label){ spec->labels[i]->key, spec->labels[i]->value };
    return ret;
}

static struct store_job_new row_of(const struct job_creation *x) {
    const Trainyard__V1__JobSpec *spec = x->spec;
    return (struct store_job_new){ .request_id = x->request_id,
                                   .request_digest = x->request_digest,
                                   .name = spec->name,
                                   .queue = spec->queue,
                                   .user = x->user,
                                   .project = x->project,
                                   .priority = spec->priority,
                                   .world_size = spec_world_size(spec),
                                   .max_world_size = spec_max_world_size(spec),
                                   .stops_at_step = spec_stops_at_step(spec),
                                   .accelerator = spec->resources->accelerator,
                                   .needs = needs_of(spec),
                                   .max_restarts = spec->retry->max_restarts,
                                   .steps = spec_steps(spec),
                                   .keep_last = spec->checkpoint->keep_last,
                                   .keep_best = spec->checkpoint->keep_best,
                                   .origin = x->origin,
                                   .sweep = x->sweep,
                                   .trial = x->trial };
}

static struct store_job stored_row(int64_t job, const struct store_job_new *row) {
    return (struct store_job){ .id = job,
                               .state = STORE_JOB_QUEUED,
                               .queue = row->queue,
                               .user = row->user ? row->user : "",
                               .priority = row->priority,
                               .world_size = row->world_size,
                               .max_world_size = row->max_world_size,
                               .stops_at_step = row->stops_at_step,
                               .accelerator = row->accelerator,
                               .needs = row->needs,
                               .steps = row->steps,
                               .max_restarts = row->max_restarts };
}

status_t job_create(struct store *store, int64_t epoch, const struct job_creation *x, struct job_created *ret,
                    struct err *e) {
    struct store_job_label labels[STORE_JOB_LABELS_MAX];
    struct store_job_new row = row_of(x);
    row.labels = job_labels(x->spec, labels);
    row.n_labels = x->spec->n_labels;
    row.spec_bytes = trainyard__v1__job_spec__get_packed_size(x->spec);
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(row.spec_bytes, 1);
    trainyard__v1__job_spec__pack(x->spec, packed);
    row.spec = packed;
    uint8_t code[SHA256_BYTES];
    const Trainyard__V1__ProgramSpec *program = x->spec->program;
    if (program && program->code && program->code->archive && code_archive_name_read(program->code->archive, code))
        row.code = code;
    TRY(store_job_create(store, epoch, &row, &ret->job, &ret->existed, &ret->time_us, e));
    ret->row = stored_row(ret->job, &row);
    return ST_OK;
}
