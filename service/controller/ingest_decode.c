#include "service/controller/ingest_decode.h"

#include "service/controller/chosen.h"

#include <stdlib.h>

static void metrics(const Trainyard__V1__MetricRow *m, struct store_record *ret) {
    ret->kind = STORE_RECORD_METRICS;
    ret->metrics.step = m->step;
    /* Two columns of one length: a peer that sends others loses what has no partner. */
    ret->metrics.n = m->n_names < m->n_values ? m->n_names : m->n_values;
    ret->metrics.names = m->names;
    ret->metrics.values = m->values;
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
    ret->kind = STORE_RECORD_CHOSEN;
    ret->chosen.apply = chosen_apply;
    ret->chosen.plan = m;
}

static void record(const Trainyard__V1__WorkerRecord *m, struct store_record *ret) {
    *ret = (struct store_record){ .kind = STORE_RECORD_NONE, .time_us = m->time_us };
    switch (m->record_case) {
    case TRAINYARD__V1__WORKER_RECORD__RECORD_METRICS: metrics(m->metrics, ret); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_SHARD: shard(m->shard, ret); break;
    case TRAINYARD__V1__WORKER_RECORD__RECORD_CHOSEN: chosen(m->chosen, ret); break;
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
    case TRAINYARD__V1__WORKER_RECORD__RECORD_END:
        ret->kind = STORE_RECORD_END;
        ret->end.cause = (int)m->end->cause;
        ret->end.message = m->end->message;
        ret->end.step = m->end->step;
        ret->end.weights_sha256 = m->end->weights_sha256;
        break;
    default: break; /* counts in the sequence, stores nothing */
    }
}

status_t ingest_decode(const void *packed, size_t n, struct decoded *ret, struct store_batch *ret_batch,
                       struct err *e) {
    struct decoded d = { .message = trainyard__v1__report_batch__unpack(NULL, n, packed) };
    if (!d.message)
        return err_set(e, ST_DATA_LOSS, "a report of %zu bytes cannot be decoded", n);
    d.records = calloc(d.message->n_records + 1, sizeof *d.records);
    if (!d.records) {
        ingest_decoded_done(&d);
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a report of %zu bytes", n);
    }
    for (size_t i = 0; i < d.message->n_records; i++)
        record(d.message->records[i], &d.records[i]);
    *ret = d;
    *ret_batch = (struct store_batch){ .job = d.message->job,
                                       .attempt = d.message->attempt,
                                       .rank = d.message->rank,
                                       .first_sequence = d.message->first_sequence,
                                       .records = d.records,
                                       .n = d.message->n_records };
    return ST_OK;
}

void ingest_decoded_done(struct decoded *d) {
    if (d->message)
        trainyard__v1__report_batch__free_unpacked(d->message, NULL);
    free(d->records);
    *d = (struct decoded){ 0 };
}
