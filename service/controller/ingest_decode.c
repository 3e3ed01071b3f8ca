#include "service/controller/ingest_decode.h"

#include "base/alloc.h"
#include "service/controller/resolved_plan.h"

#include <stdlib.h>

static void metrics(const Trainyard__V1__MetricRow *m, struct store_record *ret) {
    ret->kind = STORE_RECORD_METRICS;
    ret->metrics.step = m->step;
    /* Names and values are two columns of the same length. If a peer sends different lengths, the excess is ignored. */
    ret->metrics.n = m->n_names < m->n_values ? m->n_names : m->n_values;
    ret->metrics.names = m->names;
    ret->metrics.values = m->values;
    ret->metrics.per_rank = m->per_rank;
}

static void shard(const Trainyard__V1__ShardReport *m, struct store_record *ret) {
    ret->kind = STORE_RECORD_SHARD;
    ret->shard.step = m->step;
    ret->shard.rank = m->rank;
    ret->shard.world_size = m->world_size;
    ret->shard.directory = m->directory;
    ret->shard.file = m->file;
    ret->shard.bytes = m->bytes;
    ret->shard.sha256 = m->sha256;
    ret->shard.weights_sha256 = m->weights_sha256;
    ret->shard.has_validation_loss = m->_validation_loss_case != 0;
    ret->shard.validation_loss = m->validation_loss;
    ret->shard.final = m->final;
}

static void chosen(const Trainyard__V1__PlanChosen *m, struct store_record *ret) {
    ret->kind = STORE_RECORD_RESOLVED_PLAN;
    ret->resolved_plan.apply = resolved_plan_apply;
    ret->resolved_plan.plan = m;
}

static void record(const Trainyard__V1__WorkerRecord *m, struct store_record *ret) {
    *ret = (struct store_record){ .kind = STORE_RECORD_NONE, .time_us = m->time_us };
    switch (m->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS: metrics(m->metrics, ret); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD: shard(m->shard, ret); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_CHOSEN: chosen(m->chosen, ret); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_JOINED: ret->kind = STORE_RECORD_JOINED; break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_LOG:
        ret->kind = STORE_RECORD_LOG;
        ret->log.stream = m->log->stream;
        ret->log.text = m->log->text;
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_NOTICE:
        ret->kind = STORE_RECORD_NOTICE;
        ret->notice.kind = m->notice->kind;
        ret->notice.message = m->notice->message;
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_ARTIFACT:
        ret->kind = STORE_RECORD_ARTIFACT;
        ret->artifact.path = m->artifact->path;
        ret->artifact.bytes = m->artifact->bytes;
        ret->artifact.sha256 = m->artifact->sha256;
        break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END:
        ret->kind = STORE_RECORD_END;
        ret->end.cause = (int)m->end->cause;
        ret->end.message = m->end->message;
        ret->end.step = m->end->step;
        ret->end.weights_sha256 = m->end->weights_sha256;
        ret->end.as_asked = m->end->cause == TRAINYARD__V1__WORKER_END__CAUSE__FINISHED ||
                            m->end->cause == TRAINYARD__V1__WORKER_END__CAUSE__STOPPED;
        break;
    default: break; /* counts in the sequence, stores nothing */
    }
}

static status_t decode_record(const ProtobufCBinaryData *packed, size_t i, Trainyard__V1__WorkerRecord **ret,
                              struct err *e) {
    *ret = trainyard__v1__worker_record__unpack(NULL, packed->len, packed->data);
    return *ret ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "records[%zu] cannot be decoded", i);
}

status_t ingest_decode(const Trainyard__V1__ReportBatch *batch, struct decoded *ret, struct store_batch *ret_batch,
                       struct err *e) {
    struct decoded d = { .messages = alloc_zeroed(batch->n_records, sizeof(Trainyard__V1__WorkerRecord *)),
                         .records = alloc_zeroed(batch->n_records, sizeof *d.records) };
    status_t st = ST_OK;
    for (; st == ST_OK && d.n < batch->n_records; d.n += st == ST_OK) {
        st = decode_record(&batch->records[d.n], d.n, &d.messages[d.n], e);
        if (st == ST_OK)
            record(d.messages[d.n], &d.records[d.n]);
    }
    if (st != ST_OK) {
        ingest_decoded_done(&d);
        return st;
    }
    *ret = d;
    *ret_batch = (struct store_batch){ .job = batch->job,
                                       .attempt = batch->attempt,
                                       .rank = batch->rank,
                                       .first_sequence = batch->first_sequence,
                                       .records = d.records,
                                       .n = d.n,
                                       .lost = batch->lost,
                                       .executor = batch->executor };
    return ST_OK;
}

void ingest_decoded_done(struct decoded *d) {
    for (size_t i = 0; i < d->n; i++)
        trainyard__v1__worker_record__free_unpacked(d->messages[i], NULL);
    free(d->messages);
    free(d->records);
    *d = (struct decoded){ 0 };
}
