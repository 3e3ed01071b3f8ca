#include "api/spec/defaults.h"

#include "api/spec/defaults_fill.h"

static status_t fill_parallel(Trainyard__V1__ParallelSpec *l, struct err *e) {
    FILL(l, PARALLEL_SPEC, data, DATA, 1);
    FILL(l, PARALLEL_SPEC, pipeline, PIPELINE, 1);
    FILL_TEXT(l, PARALLEL_SPEC, pipeline_schedule, PIPELINE_SCHEDULE, "1f1b");
    FILL(l, PARALLEL_SPEC, virtual_stages, VIRTUAL_STAGES, strcmp(l->pipeline_schedule, "interleaved") == 0 ? 2 : 1);
    return ST_OK;
}

static status_t fill_run(Trainyard__V1__JobSpec *spec, struct err *e) {
    FILL_PART(spec->checkpoint, trainyard__v1__checkpoint_spec__descriptor);
    FILL(spec->checkpoint, CHECKPOINT_SPEC, every, EVERY, 500);
    FILL(spec->checkpoint, CHECKPOINT_SPEC, keep_last, KEEP_LAST, 3);
    FILL_PART(spec->resources, trainyard__v1__resources_spec__descriptor);
    FILL_TEXT(spec->resources, RESOURCES_SPEC, accelerator, ACCELERATOR, "cpu");
    FILL_PART(spec->retry, trainyard__v1__retry_spec__descriptor);
    FILL(spec->retry, RETRY_SPEC, max_restarts, MAX_RESTARTS, 3);
    FILL_TEXT(spec, JOB_SPEC, queue, QUEUE, "default");
    return ST_OK;
}

status_t defaults_fill(Trainyard__V1__JobSpec *spec, struct err *e) {
    FILL_PART(spec->train, trainyard__v1__train_spec__descriptor);
    FILL_PART(spec->parallel, trainyard__v1__parallel_spec__descriptor);
    TRY(defaults_model(spec, e));
    TRY(fill_parallel(spec->parallel, e));
    TRY(defaults_train(spec->train, spec->parallel->zero, e));
    return fill_run(spec, e);
}
