/* ImportService: runs of experiment trackers as jobs.
 *
 * The rows of a call become records of rank 0, numbered from first_row + 1 on, and are written like the reports of a
 * worker: records that the job has are skipped. The writer's memory is read from the rows for each call, so that a call
 * should have many rows. */
#include "service/controller/job_create.h"
#include "service/store/imported_run.h"

#include "api/spec/spec.h"
#include "base/alloc.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/name.h"
#include "service/rpc/services.h"
#include "service/rpc/submitter.h"
#include "service/store/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/import.pb-c.h>

/* A step that every reader of JSON knows exactly. */
#define STEP_MAX (INT64_C(1) << 53)

/* The spec names the run, and a command that nothing ever starts. */
static status_t spec_make(const Trainyard__V1__ImportedRun *run, Trainyard__V1__JobSpec **ret, struct err *e) {
    Trainyard__V1__ProgramSpec program = TRAINYARD__V1__PROGRAM_SPEC__INIT;
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    char *command[] = { (char *)"imported", run->source, run->id };
    program.command = command;
    program.n_command = 3;
    spec.name = run->name;
    spec.program = &program;
    CLEANUP(freep) Trainyard__V1__JobSpec__LabelsEntry *labels = alloc_zeroed(run->n_labels, sizeof *labels);
    CLEANUP(freep) Trainyard__V1__JobSpec__LabelsEntry **pointers = alloc_zeroed(run->n_labels, sizeof *pointers);
    for (size_t i = 0; i < run->n_labels; i++) {
        trainyard__v1__job_spec__labels_entry__init(&labels[i]);
        labels[i].key = run->labels[i]->key;
        labels[i].value = run->labels[i]->value;
        pointers[i] = &labels[i];
    }
    spec.labels = pointers;
    spec.n_labels = run->n_labels;
    return spec_resolve(&spec, ret, NULL, e);
}

static int64_t time_us(const Google__Protobuf__Timestamp *t) {
    return t && t->seconds >= 0 && t->seconds < INT64_C(253402300800) ? t->seconds * 1000000 + t->nanos / 1000 : 0;
}

static status_t run_find(struct controller *c, int64_t epoch, const Trainyard__V1__ImportedRun *run, const char *user,
                         int64_t *ret_job, int64_t *ret_rows, bool *ret_created, struct err *e) {
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *spec = NULL;
    TRY(spec_make(run, &spec, e));
    const size_t n = trainyard__v1__job_spec__get_packed_size(spec);
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(n, 1);
    trainyard__v1__job_spec__pack(spec, packed);
    struct store_job_label labels[STORE_JOB_LABELS_MAX];
    const struct store_imported_run in = { .source = run->source,
                                           .id = run->id,
                                           .name = run->name,
                                           .user = user,
                                           .labels = job_labels(spec, labels),
                                           .n_labels = spec->n_labels,
                                           .state = (enum store_job_state)run->state,
                                           .start_time_us = time_us(run->start_time),
                                           .end_time_us = time_us(run->end_time),
                                           .spec = packed,
                                           .spec_bytes = n,
                                           .parameters = run->parameters,
                                           .n_parameters = run->n_parameters,
                                           .tags = run->tags,
                                           .n_tags = run->n_tags };
    return store_imported_run(controller_store(c), epoch, &in, ret_job, ret_rows, ret_created, e);
}

static status_t rows_convert(const Trainyard__V1__ImportRunRequest *in, struct store_record *ret, struct err *e) {
    for (size_t i = 0; i < in->n_rows; i++) {
        const Trainyard__V1__ImportedRow *row = in->rows[i];
        if (row->step < 0 || row->step > STEP_MAX)
            return err_set(e, ST_INVALID_ARGUMENT, "rows[%zu].step: is below 0 or above 2^53", i);
        if (row->n_names != row->n_values)
            return err_set(e, ST_INVALID_ARGUMENT, "rows[%zu]: has not as many names as values", i);
        ret[i] = (struct store_record){ .kind = STORE_RECORD_METRICS,
                                        .time_us = row->time_us,
                                        .metrics = { row->step, row->n_names, row->names, row->values } };
    }
    return ST_OK;
}

static status_t rows_write(struct controller *c, int64_t epoch, int64_t job, const Trainyard__V1__ImportRunRequest *in,
                           int64_t *ret_rows, struct err *e) {
    CLEANUP(freep) struct store_record *records = alloc_zeroed(in->n_rows, sizeof *records);
    CLEANUP(store_report_freep) struct store_report *writer = store_report_new(controller_store(c), epoch);
    struct store_batch_result result;
    TRY(rows_convert(in, records, e));
    const struct store_batch batch = { .job = job,
                                       .attempt = 1,
                                       .first_sequence = in->first_row + 1,
                                       .records = records,
                                       .n = in->n_rows,
                                       .executor = STORE_IMPORT_EXECUTOR };
    TRY(store_report_write(writer, &batch, 1, &result, e));
    if (result.fenced)
        return err_set(e, ST_FAILED_PRECONDITION, "jobs/%lld is being deleted", (long long)job);
    if (result.gap)
        return err_set(e, ST_FAILED_PRECONDITION, "first_row: the job has only %lld rows", (long long)result.sequence);
    *ret_rows = result.sequence;
    return ST_OK;
}

static status_t import_run(void *service, struct rpc_call *call, const ProtobufCMessage *request, struct err *e) {
    const Trainyard__V1__ImportRunRequest *in = (const void *)request;
    const char *user;
    int64_t epoch, job, rows;
    bool created;
    char name[NAME_BYTES];
    if (!in->run)
        return err_set(e, ST_INVALID_ARGUMENT, "run: it is missing");
    TRY(submitter_name(call, in->user, &user, e));
    if (in->first_row < 0 || in->first_row > INT64_C(1) << 40)
        return err_set(e, ST_INVALID_ARGUMENT, "first_row: is below 0 or above 2^40");
    TRY(controller_leads(service, &epoch, e));
    status_t st = run_find(service, epoch, in->run, user, &job, &rows, &created, e);
    if (st == ST_OK && in->n_rows > 0)
        st = rows_write(service, epoch, job, in, &rows, e);
    TRY(controller_write_status(service, epoch, st, e));
    Trainyard__V1__ImportRunResponse out = TRAINYARD__V1__IMPORT_RUN_RESPONSE__INIT;
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    out.job = name;
    out.rows = rows;
    out.created = created;
    rpc_reply(call, &out.base);
    return ST_OK;
}

static const struct rpc_method methods[] = {
    { .name = "ImportRun", .kind = RPC_UNARY, .unary = import_run },
};

const struct rpc_service rpc_import_service = { &trainyard__v1__import_service__descriptor, methods,
                                                sizeof methods / sizeof *methods };
